//! The cost of a transfer at both ends: CPU time and memory.

use std::fs;
use std::process::Command;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use ::wan::Wan;

use super::Experiment;
use super::shown::{Shown, Table};
use super::steady::{deviation, mean};
use super::testbed::{Order, Testbed};
use crate::bench::shuffle::Shuffle;
use crate::quota::Quota;

pub(super) const BOTH_ENDS: Experiment = Experiment {
    name: "source-and-target-cpu",
    title: "CPU of the source against CPU of the target",
    about: "Over 25 hosts the source needed 1.2 ± 0.3 of the target's CPU for each byte, whatever \
            the rate and the number of streams. Here four rates and five numbers of streams over \
            20 ms, in a mixed order, one copy of 3 s each; CPU is that of the two processes.",
    run: both_ends,
};

pub(super) const SLOW_TARGET: Experiment = Experiment {
    name: "slow-target",
    title: "a slow target is predicted",
    about: "From what unpacking costs a slow target, 125 Mbit/s were predicted of it, and 96 seen. \
            Here the far side unpacks with a share of a CPU, and the prediction is that share by \
            what a byte costs it at a tenth of a CPU. Rates are of what is unpacked.",
    run: slow_target,
};

pub(super) const MEMORY: Experiment = Experiment {
    name: "memory-plan",
    title: "memory of both sides",
    about: "1 MB of the sender and 75 MB of the receiver, and no paging, by top. Here the peak of \
            each process, beside what the program says that it plans, and the memory of its \
            sockets. The page compares both with n(2W + depth RS) as the program plans it.",
    run: memory,
};

fn both_ends(testbed: &Testbed) -> Result<Shown, String> {
    let mut shown = Shown::default();
    let cells: Vec<(u32, u32)> =
        RATES_MBIT.iter().flat_map(|rate| STREAMS.map(|streams| (*rate, streams))).collect();
    let mut seen: Vec<[f64; 5]> = Vec::new();
    let mut table = Table::new(
        "In the order in which they ran:",
        "Mbit/s asked | streams | Mbit/s | source ns/B | target ns/B | source by target",
    );
    let mut lines = String::from("rate_mbit,streams,mbit_per_s,source_ns_per_b,target_ns_per_b\n");
    for index in Shuffle::from_seed(9).order(cells.len()) {
        let (rate, streams) = cells[index];
        let path = format!("--rate {rate}Mbit --rtt 20ms --queue 1bdp");
        let copy = format!("--streams {streams} null:{}M far:null:", rate * 3 / 8);
        let run = testbed.copy(&Order::new(path, copy))?;
        let costs = [run.source_ns_per_byte(), run.sink_ns_per_byte()];
        let ratio = costs[0] / costs[1];
        seen.push([run.copying_mbit_s(), f64::from(streams), costs[0], costs[1], ratio]);
        table.row(vec![
            rate.to_string(),
            streams.to_string(),
            format!("{:.1}", run.copying_mbit_s()),
            format!("{:.2}", costs[0]),
            format!("{:.2}", costs[1]),
            format!("{ratio:.2}"),
        ]);
        lines.push_str(&format!(
            "{rate},{streams},{:.2},{:.3},{:.3}\n",
            run.copying_mbit_s(),
            costs[0],
            costs[1]
        ));
    }
    shown.table(table);
    let column = |index: usize| seen.iter().map(|row| row[index]).collect::<Vec<f64>>();
    let ratios = column(4);
    // For twenty values: Student's t with 19 degrees of freedom.
    let half = 2.093 * deviation(&ratios) / (ratios.len() as f64).sqrt();
    shown.check(
        "the ratio is known, with a 95 % interval",
        format!("{:.2} ± {half:.2} (deviation {:.2})", mean(&ratios), deviation(&ratios)),
        half <= 0.25 * mean(&ratios),
    );
    let with_rate = spearman(&ratios, &column(0));
    let with_streams = spearman(&ratios, &column(1));
    let little = with_rate.abs() <= 0.3 && with_streams.abs() <= 0.3;
    shown.check(
        "no correlation of the ratio (Spearman at most 0.3), or it is stated",
        format!(
            "{with_rate:.2} with the rate, {with_streams:.2} with streams{}",
            match little {
                true => "",
                false => ": stated",
            }
        ),
        true,
    );
    shown.note(format!(
        "Rank correlations of the costs themselves: source with the rate {:.2}, with streams \
         {:.2}; target with the rate {:.2}, with streams {:.2}. A byte costs less where more of \
         them come at once.",
        spearman(&column(2), &column(0)),
        spearman(&column(2), &column(1)),
        spearman(&column(3), &column(0)),
        spearman(&column(3), &column(1)),
    ));
    shown.data("", lines);
    Ok(shown)
}

fn slow_target(testbed: &Testbed) -> Result<Shown, String> {
    let group = Quota::new()?;
    let far_program = group.runs(&testbed.program)?;
    let mut shown = Shown::default();
    let mut table = Table::new(
        "Over 300 Mbit/s and 10 ms, packed with zlib 1 (the target's cost is the first line's):",
        "CPU of the target % | Mbit/s | predicted | off % | target ns/B | held back by",
    );
    let order = |size: &str| Order {
        far_program: Some(far_program.clone()),
        ..Order::new(
            "--rate 300Mbit --rtt 10ms --queue 1bdp",
            format!("--streams 1 --congestion cubic --compress zlib:1 records:{size} far:null:"),
        )
    };
    group.allow(Some(f64::from(KNOWN_PERCENT)))?;
    let known = testbed.copy(&order("900M"))?;
    let cost_ns = known.sink_ns_per_byte();
    table.row(vec![
        KNOWN_PERCENT.to_string(),
        format!("{:.0}", known.copying_mbit_s()),
        String::new(),
        String::new(),
        format!("{cost_ns:.2}"),
        known.sentence().to_string(),
    ]);
    let (mut worst, mut named, mut cells) = (0.0f64, 0, 0);
    for (percent, size) in [(3, "120M"), (4, "200M"), (6, "300M"), (8, "400M"), (14, "700M")] {
        group.allow(Some(f64::from(percent)))?;
        let run = testbed.copy(&order(size))?;
        let predicted = f64::from(percent) / 100.0 / cost_ns * 8e3;
        let off = (run.copying_mbit_s() / predicted - 1.0) * 100.0;
        worst = if off.abs() > worst.abs() { off } else { worst };
        named += usize::from(run.class() == "slow_receiver");
        cells += 1;
        table.row(vec![
            percent.to_string(),
            format!("{:.0}", run.copying_mbit_s()),
            format!("{predicted:.0}"),
            format!("{off:.1}"),
            format!("{:.2}", run.sink_ns_per_byte()),
            run.sentence().to_string(),
        ]);
    }
    shown.table(table);
    shown.check("predicted within 15 %", format!("{worst:.1} % at worst"), worst.abs() <= 15.0);
    shown.check("held back by a slow receiver", format!("{named} of {cells}"), named == cells);
    Ok(shown)
}

fn memory(testbed: &Testbed) -> Result<Shown, String> {
    let mut shown = Shown::default();
    let mut table = Table::new(
        "Over 200 Mbit/s and 50 ms, in MiB (sockets: the most that the kernel says the data \
         sockets of that host hold; predicted: what the program plans but for its ledgers, which \
         one file leaves empty, with four windows for each stream of the source, whose send \
         buffers are that large):",
        "window | streams | request | source peak | sockets | predicted | off % | target peak \
         | sockets | predicted | off %",
    );
    let (mut worst, mut above) = (0.0f64, 0);
    let (faults, swapped) = (counted("pgmajfault"), counted("pswpin"));
    for (window_kib, streams, request) in [
        (256, 1, "256K"),
        (256, 4, "1M"),
        (256, 16, "1M"),
        (1024, 1, "1M"),
        (1024, 4, "4M"),
        (4096, 2, "1M"),
    ] {
        let copy = format!(
            "--window {window_kib}K --streams {streams} --request-size {request} \
             random:60M far:null:"
        );
        let most = Mutex::new([0u64; 2]);
        let path = "--rate 200Mbit --rtt 50ms --queue 1bdp";
        let run = testbed.copy_beside(&Order::new(path, copy), |wan| watch_sockets(wan, &most))?;
        let sockets = most.into_inner().unwrap_or_default().map(mib);
        let mut cells = vec![format!("{window_kib} KiB"), streams.to_string(), request.to_string()];
        let sink = run.record.sink.as_ref().ok_or("the copy had no far side")?;
        for (side, (of, windows)) in
            [(&run.record.source, 4.0), (sink, 0.0)].into_iter().enumerate()
        {
            let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
            let (peak, plan) = (mib(of.peak_memory_bytes), mib(of.planned_memory_bytes));
            let predicted = plan - LEDGERS_MIB + windows * f64::from(window_kib * streams) / 1024.0;
            let off = ((peak + sockets[side]) / predicted - 1.0) * 100.0;
            worst = if off.abs() > worst.abs() { off } else { worst };
            above += usize::from(peak > plan);
            cells.extend([peak, sockets[side], predicted, off].map(|value| format!("{value:.1}")));
        }
        table.row(cells);
    }
    shown.table(table);
    let faults = counted("pgmajfault") - faults;
    let swapped = counted("pswpin") - swapped;
    shown.check("no process above its plan", format!("{above} of 12"), above == 0);
    shown.check(
        "within 25 % of what is predicted",
        format!("{worst:.0} % at worst"),
        worst.abs() <= 25.0,
    );
    shown.check(
        "no paging",
        format!("{swapped} pages swapped in; {faults} major faults of files, on the whole machine"),
        swapped == 0,
    );
    shown.note(
        "The plan is a limit: a lane may need a buffer for each request of both ends and one to \
         seal or open, and what is never filled is never there. So large requests stay below it.",
    );
    Ok(shown)
}

/// A kernel counter of the whole machine since boot.
fn counted(what: &str) -> u64 {
    let text = fs::read_to_string("/proc/vmstat").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(what));
    line.and_then(|number| number.trim().parse().ok()).unwrap_or(0)
}

/// Records the largest memory of each host's data sockets, until they are closed.
fn watch_sockets(wan: &Wan, most: &Mutex<[u64; 2]>) -> Result<(), String> {
    let started = Instant::now();
    let mut seen_s = None;
    loop {
        let mut now = [0, 0];
        for (side, bytes) in now.iter_mut().enumerate() {
            let mut ss = Command::new("ss");
            ss.args(["-tmnH", "state", "established", "not", "sport", "=", ":22", "and", "not"]);
            ss.args(["dport", "=", ":22"]);
            let host = if side == 0 { wan.near(ss) } else { wan.far(ss) };
            let text = xtask::step::output(&mut host.map_err(|why| format!("ss: {why}"))?)?;
            *bytes = text.lines().filter_map(held).sum();
        }
        let elapsed_s = started.elapsed().as_secs_f64();
        if now.iter().sum::<u64>() > 0 {
            seen_s = Some(elapsed_s);
            let mut most = most.lock().map_err(|_| "a watcher failed")?;
            most.iter_mut().zip(now).for_each(|(most, now)| *most = now.max(*most));
        }
        let quiet_s = elapsed_s - seen_s.unwrap_or(0.0);
        if quiet_s > 1.0 && (seen_s.is_some() || elapsed_s > 20.0) {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// `skmem:(r0,rb131072,t0,tb2626560,f4096,w1200,o0,…)`: the bytes received and the bytes to send.
fn held(line: &str) -> Option<u64> {
    let (_, list) = line.split_once("skmem:(")?;
    let number = |key: &str| {
        let words = list.split([',', ')']);
        words.filter_map(|word| word.strip_prefix(key)?.parse::<u64>().ok()).next()
    };
    Some(number("r")? + number("w")?)
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

/// The rank correlation of two columns; equal values share their ranks.
fn spearman(a: &[f64], b: &[f64]) -> f64 {
    let (a, b) = (ranks(a), ranks(b));
    let (middle_a, middle_b) = (mean(&a), mean(&b));
    let both = a.iter().zip(&b).map(|(x, y)| (x - middle_a) * (y - middle_b)).sum::<f64>();
    let of = |ranks: &[f64], middle: f64| ranks.iter().map(|x| (x - middle).powi(2)).sum::<f64>();
    both / (of(&a, middle_a) * of(&b, middle_b)).sqrt()
}

fn ranks(values: &[f64]) -> Vec<f64> {
    let rank = |value: &f64| {
        let below = values.iter().filter(|other| *other < value).count() as f64;
        let equal = values.iter().filter(|other| *other == value).count() as f64;
        below + (equal + 1.0) / 2.0
    };
    values.iter().map(rank).collect()
}

/// The planned memory for ledgers (`pump/lane/assembly.rs`); a copy of one file needs none of it.
const LEDGERS_MIB: f64 = 12.0;
/// The quota at which the target's cost is measured, in percent.
const KNOWN_PERCENT: u32 = 10;
const RATES_MBIT: [u32; 4] = [25, 50, 100, 200];
const STREAMS: [u32; 5] = [1, 2, 4, 8, 16];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_correlated() {
        for (a, b, expect) in [
            ([1.0, 2.0, 3.0, 4.0], [10.0, 20.0, 30.0, 99.0], 1.0),
            ([1.0, 2.0, 3.0, 4.0], [4.0, 3.0, 2.0, 1.0], -1.0),
            ([1.0, 1.0, 2.0, 2.0], [1.0, 2.0, 1.0, 2.0], 0.0),
        ] {
            assert!((spearman(&a, &b) - expect).abs() < 1e-9, "{a:?} {b:?}");
        }
    }

    #[test]
    fn what_sockets_hold_is_read() {
        let line = "0 0 10.77.0.1:5 10.77.0.2:6 skmem:(r100,rb131072,t0,tb87040,f0,w20,o0,bl0)";
        assert_eq!(held(line), Some(120));
        assert_eq!(held("0 0"), None);
    }
}
