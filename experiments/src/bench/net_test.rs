//! `cargo xtask bench net-test`: does `datapump net-test` agree with iperf3? Both over the same
//! emulated WAN, in turns.

use analysis::statistics::Spread;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use ::wan::{FAR_ADDRESS, Profile, Wan};
use serde_json::Value;

use super::{build, machine};
use crate::page::table;
use xtask::packages;
use xtask::step::{output, root, target_folder};

/// A path, and what is tested on it.
struct Fixture {
    profile: &'static str,
    /// The time in which slow start and its losses end.
    omit_s: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cell {
    streams: u32,
    reverse: bool,
}

/// The rates of both, in Mbit/s, by repeat.
struct Row {
    profile: &'static str,
    cell: Cell,
    ours: Vec<f64>,
    iperf3: Vec<f64>,
    /// Retransmitted segments of both.
    retransmitted: [Vec<f64>; 2],
}

impl Row {
    fn ratio(&self) -> Option<f64> {
        let median =
            |values: &[f64]| Spread::of(values.iter().copied()).map(|spread| spread.median);
        Some(median(&self.ours)? / median(&self.iperf3)?)
    }

    fn is_as_said(&self) -> bool {
        self.ratio().is_some_and(|ratio| (ratio - 1.0).abs() <= OFF_MAX)
    }
}

/// `bench net-test [--program FILE] [--only WORDS]`; with `--only` no page is written.
pub(crate) fn net_test(words: &[&str]) -> Result<(), String> {
    let (mut program, mut only) = (None, None);
    for pair in words.chunks(2) {
        match pair {
            ["--program", file] => program = Some(PathBuf::from(file)),
            ["--only", path] => only = Some((*path).to_string()),
            _ => {
                return Err(
                    "bench net-test: write nothing, --program FILE, or --only 10Mbit".to_string()
                );
            }
        }
    }
    let program = match program {
        // The far side starts in another folder.
        Some(program) => program
            .canonicalize()
            .map_err(|why| format!("--program {}: {why}", program.display()))?,
        None => {
            build()?;
            target_folder().join("release/datapump")
        }
    };
    packages::ensure(packages::FOR_WAN)?;
    let wanted =
        |fixture: &&Fixture| only.as_ref().is_none_or(|only| fixture.profile.contains(only));
    let mut rows = Vec::new();
    for fixture in GROUNDS.iter().filter(wanted) {
        for row in measure(&program, fixture)? {
            println!("| {} |", cells(&row).join(" | "));
            rows.push(row);
        }
    }
    let page = page(&rows);
    let date = output(Command::new("date").arg("+%F"))?;
    let path = match only {
        None => root().join(format!("runs/{}-net-test.md", date.trim())),
        Some(_) => target_folder().join("bench-net-test-part.md"),
    };
    fs::write(&path, page).map_err(|why| format!("{}: {why}", path.display()))?;
    println!("\nwritten to {}", path.display());
    match rows.iter().filter(|row| !row.is_as_said()).count() {
        0 => Ok(()),
        wrong => Err(format!("{wrong} of {} cells differ by more than 3 %", rows.len())),
    }
}

fn measure(program: &Path, fixture: &Fixture) -> Result<Vec<Row>, String> {
    let wan = Wan::up(&Profile::from_words(&words_of(fixture))?, Some(program))?;
    let mut server = serve(&wan)?;
    let row = |cell| Row {
        profile: fixture.profile,
        cell,
        ours: Vec::new(),
        iperf3: Vec::new(),
        retransmitted: [Vec::new(), Vec::new()],
    };
    let mut rows: Vec<Row> = CELLS.into_iter().map(row).collect();
    let mut passes = || -> Result<(), String> {
        for repeat in 0..REPEATS {
            for row in &mut rows {
                // They alternate in going first.
                let order = if repeat % 2 == 0 { [0, 1] } else { [1, 0] };
                for tool in order {
                    let said = match tool {
                        0 => ours(&wan, program, fixture, row.cell)?,
                        _ => iperf3(&wan, fixture, row.cell)?,
                    };
                    let rates = if tool == 0 { &mut row.ours } else { &mut row.iperf3 };
                    rates.push(said.0);
                    row.retransmitted[tool].push(said.1);
                }
            }
        }
        Ok(())
    };
    let done = passes();
    server.kill().ok();
    server.wait().ok();
    done.map(|()| rows)
}

/// The rate that arrived, in Mbit/s, and retransmitted segments.
fn ours(wan: &Wan, program: &Path, fixture: &Fixture, cell: Cell) -> Result<(f64, f64), String> {
    let mut test = Command::new(program);
    test.args(["net-test", "far", "--json", "--no-record", "--ssh", &wan.ssh_command()]);
    test.args(OURS.split_whitespace()).args(["--time", &TIME_S.to_string()]);
    test.args(["--omit", &fixture.omit_s.to_string(), "--streams", &cell.streams.to_string()]);
    test.args(cell.reverse.then_some("--reverse"));
    let mut test = wan.near(test).map_err(|why| format!("datapump: {why}"))?;
    let said = output(&mut test)?;
    let end = said.lines().last().and_then(|line| serde_json::from_str::<Value>(line).ok());
    let way = end.map(|end| end["net_test"]["ways"][0].clone()).unwrap_or_default();
    let rate = way["receiver"]["rate_bits_per_s"].as_f64();
    let again = way["sender"]["retransmitted_segments"].as_f64();
    rate.zip(again).map(|(rate, again)| (rate / 1e6, again)).ok_or(format!("no result:\n{said}"))
}

fn iperf3(wan: &Wan, fixture: &Fixture, cell: Cell) -> Result<(f64, f64), String> {
    let mut client = Command::new("iperf3");
    client.args(["-c", FAR_ADDRESS, "-J", "-C", "cubic", "-t", &TIME_S.to_string()]);
    client.args(["-O", &fixture.omit_s.to_string(), "-P", &cell.streams.to_string()]);
    client.args(cell.reverse.then_some("-R"));
    let mut client = wan.near(client).map_err(|why| format!("iperf3: {why}"))?;
    let said = output(&mut client)?;
    let end: Value = serde_json::from_str(&said).map_err(|why| format!("iperf3: {why}"))?;
    let rate = end["end"]["sum_received"]["bits_per_second"].as_f64();
    let again = end["end"]["sum_sent"]["retransmits"].as_f64();
    // The server needs some time before the next test.
    std::thread::sleep(Duration::from_millis(500));
    rate.zip(again).map(|(rate, again)| (rate / 1e6, again)).ok_or(format!("no result:\n{said}"))
}

fn serve(wan: &Wan) -> Result<Child, String> {
    let told = |why: std::io::Error| format!("iperf3: {why}");
    let mut server = Command::new("iperf3");
    server.arg("-s").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let server = wan.far(server).and_then(|mut server| server.spawn()).map_err(told)?;
    std::thread::sleep(Duration::from_millis(300));
    Ok(server)
}

/// Limits of the kernel's buffers must not limit the measurement.
fn words_of(fixture: &Fixture) -> Vec<&str> {
    let mut words: Vec<&str> = fixture.profile.split_whitespace().collect();
    words.extend(["--sysctl", "net.ipv4.tcp_rmem=4096 131072 134217728"]);
    words.extend(["--sysctl", "net.ipv4.tcp_wmem=4096 131072 134217728"]);
    words
}

fn cells(row: &Row) -> Vec<String> {
    let spread = |values: &[f64], digits| {
        Spread::of(values.iter().copied()).map_or("-".to_string(), |spread| spread.text(digits))
    };
    vec![
        row.profile.to_string(),
        row.cell.streams.to_string(),
        if row.cell.reverse { "reverse" } else { "forward" }.to_string(),
        spread(&row.ours, 2),
        spread(&row.iperf3, 2),
        format!("{:.3}", row.ratio().unwrap_or(f64::NAN)),
        spread(&row.retransmitted[0], 0),
        spread(&row.retransmitted[1], 0),
        if row.is_as_said() { "yes" } else { "NO" }.to_string(),
    ]
}

fn page(rows: &[Row]) -> String {
    let mut text = String::from("# A net test beside iperf3\n\n");
    for note in machine::notes(Path::new("/dev/shm")) {
        let _ = writeln!(text, "- {note}");
    }
    let _ = write!(
        text,
        "\n`cargo xtask bench net-test`: `datapump net-test far {OURS} --time {TIME_S}` and \
         `iperf3 -c far -C cubic -t {TIME_S}` over the same emulated WAN (`cargo xtask wan \
         up`, with tcp_rmem and tcp_wmem to 128 MiB), by turns, {REPEATS} times each; `--omit` \
         and `-O` by the path: {}. Medians with the range, in Mbit/s of what arrived; ours counts \
         what TCP delivered in the time that counts, iperf3 what its receiver read. Within 3 % \
         is the same.\n\n",
        GROUNDS
            .iter()
            .map(|fixture| format!("{} s for `{}`", fixture.omit_s, fixture.profile))
            .collect::<Vec<_>>()
            .join(", ")
    );
    text.push_str(&table(&COLUMNS, &rows.iter().map(cells).collect::<Vec<_>>()));
    let wrong = rows.iter().filter(|row| !row.is_as_said()).count();
    let _ = writeln!(text, "\n{wrong} of {} cells differ by more than 3 %.", rows.len());
    text
}

const GROUNDS: [Fixture; 4] = [
    Fixture { profile: "--rate 100Mbit --rtt 102ms --queue 1bdp", omit_s: 5 },
    Fixture { profile: "--rate 10Mbit --rtt 180ms --queue 1bdp", omit_s: 5 },
    Fixture { profile: "--rate 200Mbit --rtt 50ms --queue 1bdp", omit_s: 4 },
    Fixture { profile: "--rate 300Mbit --rtt 5ms --queue 1bdp", omit_s: 2 },
];
const CELLS: [Cell; 4] = [
    Cell { streams: 1, reverse: false },
    Cell { streams: 1, reverse: true },
    Cell { streams: 4, reverse: false },
    Cell { streams: 4, reverse: true },
];
const REPEATS: usize = 3;
const TIME_S: u32 = 8;
/// As iperf3: without a pace.
const OURS: &str = "--congestion cubic --pace off";
const OFF_MAX: f64 = 0.03;
const COLUMNS: [&str; 9] = [
    "path",
    "streams",
    "way",
    "datapump",
    "iperf3",
    "ratio",
    "sent again, datapump",
    "iperf3",
    "within 3 %",
];
