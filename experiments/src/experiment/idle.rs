//! How a sender behaves after a pause, and what that costs.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::Experiment;
use super::shown::{Shown, Table};
use super::testbed::{Order, Run, Testbed};

pub(super) const RESTART: Experiment = Experiment {
    name: "restart-after-idle",
    title: "slow start behind a pause, or not, or a pace",
    about: "AIX sent a whole window at once when a pause was over, where others begin with slow \
            start; Dunigan adds that slow start loses too. Here both, for pauses of several \
            lengths behind every 16 MiB, with cubic and bbr as they are and with cubic at a pace \
            of 90 Mbit/s; 64 MiB over 100 Mbit/s, 102 ms and a queue of 128 KiB.",
    run: restart,
};

#[derive(Clone, Copy)]
struct Cell {
    slow_start: u8,
    pause_ms: u32,
    sender: usize,
}

struct Seen {
    rate: f64,
    again: u64,
    again_percent: f64,
}

fn restart(testbed: &Testbed) -> Result<Shown, String> {
    let cells: Vec<Cell> = [0, 1]
        .into_iter()
        .flat_map(|slow_start| PAUSES_MS.map(|pause_ms| (slow_start, pause_ms)))
        .flat_map(|(slow_start, pause_ms)| {
            [0, 1, 2].map(|sender| Cell { slow_start, pause_ms, sender })
        })
        .collect();
    let seen = measure(testbed, &cells)?;
    let mut shown = Shown::default();
    let mut table = Table::new(
        "Mbit/s, and segments that were sent again (one copy each):",
        "slow start after idle | pause ms | cubic | again | bbr | again | cubic at 90 Mbit/s \
         | again",
    );
    let (mut best, mut fewest, mut rows) = (0, 0, 0);
    let mut lines = String::from("slow_start_after_idle,pause_ms,sender,mbit_per_s,again\n");
    for (three, cells) in seen.chunks(3).zip(cells.chunks(3)) {
        let mut row = vec![cells[0].slow_start.to_string(), cells[0].pause_ms.to_string()];
        for (one, cell) in three.iter().zip(cells) {
            row.push(format!("{:.1}", one.rate));
            row.push(format!("{} ({:.2} %)", one.again, one.again_percent));
            lines.push_str(&format!(
                "{},{},{},{:.2},{}\n",
                cell.slow_start, cell.pause_ms, SENDERS[cell.sender].0, one.rate, one.again
            ));
        }
        table.row(row);
        let most = three.iter().map(|one| one.rate).fold(0.0, f64::max);
        rows += 1;
        best += usize::from(three[2].rate >= TIED * most);
        fewest += usize::from(three.iter().all(|one| three[2].again <= one.again));
    }
    shown.table(table);
    shown.check(
        "the pace is best, or within 5 % of it",
        format!("in {best} of {rows} rows"),
        best == rows,
    );
    shown.check(
        "with a pace the fewest segments are sent again",
        format!("in {fewest} of {rows} rows"),
        fewest == rows,
    );
    shown.data("", lines);
    Ok(shown)
}

/// Two at once: each has its own WAN, and waits most of the time.
fn measure(testbed: &Testbed, cells: &[Cell]) -> Result<Vec<Seen>, String> {
    let next = AtomicUsize::new(0);
    let found = Mutex::new(Vec::new());
    let program = &testbed.program;
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let testbed = Testbed::of(program.clone());
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(cell) = cells.get(index) else { return };
                    let seen = one(&testbed, *cell);
                    found.lock().expect("nobody panics with it").push((index, seen));
                }
            });
        }
    });
    let mut found = found.into_inner().expect("nobody panics with it");
    found.sort_by_key(|(index, _)| *index);
    found.into_iter().map(|(_, seen)| seen).collect()
}

fn one(testbed: &Testbed, cell: Cell) -> Result<Seen, String> {
    let path = format!(
        "--rate 100Mbit --rtt 102ms --queue 128K --sysctl net.ipv4.tcp_slow_start_after_idle={}",
        cell.slow_start
    );
    let stops = match cell.pause_ms {
        0 => String::new(),
        pause_ms => format!("--lockstep 16M:{pause_ms}ms"),
    };
    let sender = SENDERS[cell.sender].1;
    let copy = format!("--streams 1 {sender} {stops} null:64M far:null:");
    let run: Run = testbed.copy(&Order::new(path, copy))?;
    println!("{} {}", SENDERS[cell.sender].0, run.sentence());
    Ok(Seen {
        rate: run.copying_mbit_s(),
        again: run.segments_again(),
        again_percent: run.again_percent(),
    })
}

const PAUSES_MS: [u32; 4] = [0, 100, 250, 1000];
const SENDERS: [(&str, &str); 3] = [
    ("cubic", "--congestion cubic --pace off"),
    ("bbr", "--congestion bbr --pace off"),
    ("paced", "--congestion cubic --pace 90Mbit"),
];
const TIED: f64 = 0.95;
