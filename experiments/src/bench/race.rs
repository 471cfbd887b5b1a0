//! Runs the rows, interleaved, in a seeded order, and records each run.

use crate::said;
use analysis::record::sample::{Record, Side};
use std::fs;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::Value;

use super::cpu::Accounts;
use super::fixture::Fixture;
use super::results::{LeftOut, Memory, Outcome, Results, Sample};
use super::rows::{Arrives, Clock, Ready, Row, Serve, ServeEnd};
use super::shuffle::Shuffle;
use super::{Options, far};

pub(super) fn run<'a>(
    rows: &'a [Row],
    fixture: &Fixture,
    accounts: &Accounts,
    options: &Options,
) -> Result<Results<'a>, String> {
    let absent = |row: &Row| -> Vec<&'static str> {
        row.needs.iter().filter(|program| !options.has(program)).copied().collect()
    };
    let seed = u64::from(std::process::id());
    let mut shuffle = Shuffle::from_seed(seed);
    let mut results = Results { outcomes: Vec::new(), left_out: Vec::new(), seed };
    for row in rows {
        match absent(row) {
            none if none.is_empty() => results.outcomes.push(Outcome { row, samples: Vec::new() }),
            absent => results.left_out.push(LeftOut { row, absent }),
        }
    }
    // sshd starts before the first measurement.
    far::ssh_command();
    let at_rest = accounts.processes().len();
    for round in 0..options.rounds {
        println!("\n== round {} of {}", round + 1, options.rounds);
        for i in shuffle.order(results.outcomes.len()) {
            let row = results.outcomes[i].row;
            fixture.sweep().map_err(|why| format!("the destination cannot be emptied: {why}"))?;
            rest(accounts, at_rest);
            let sample = run_once(row, fixture, accounts);
            println!("{}", line(row, &sample));
            results.outcomes[i].samples.push(sample);
        }
    }
    Ok(results)
}

/// Waits for all processes of the previous run, so that their CPU time is not counted here.
fn rest(accounts: &Accounts, at_rest: usize) {
    let start = Instant::now();
    while accounts.processes().len() > at_rest && start.elapsed() < Duration::from_secs(10) {
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn line(row: &Row, sample: &Result<Sample, String>) -> String {
    let scenario = row.scenario.word();
    let name = &row.name;
    let Sample { used, .. } = match sample {
        Err(why) => return format!("{scenario:<7} {name:<34} failed: {why}"),
        Ok(sample) => sample,
    };
    let cpu = match row.is_large() {
        true => format!(
            "{:>7.0} MB/s  {:>6.2} ns/B",
            row.bytes as f64 / used.wall_s / 1e6,
            used.cpu_ns / row.bytes as f64
        ),
        false => format!("{:>20.0} ms CPU", used.cpu_ns / 1e6),
    };
    let (wall_s, foreign) = (used.wall_s, used.foreign * 100.0);
    format!("{scenario:<7} {name:<34} {wall_s:>8.3} s  {cpu}  foreign {foreign:>3.0} %")
}

fn run_once(row: &Row, fixture: &Fixture, accounts: &Accounts) -> Result<Sample, String> {
    let port = far::closed_port();
    let served = row.serve.as_ref().map(|serve| start_serving(serve, fixture, port)).transpose()?;
    let watch = AtomicBool::new(row.reports_memory());
    let mut memory = Memory::default();
    let before = accounts.now();
    let said = std::thread::scope(|scope| {
        let sampler = scope.spawn(|| sample_memory(accounts, &watch));
        let said = finish(start(&row.script, fixture, port), "the tool");
        watch.store(false, Ordering::Relaxed);
        memory = sampler.join().unwrap_or_default();
        said
    });
    let ended = match (served, &row.serve) {
        (Some(served), Some(serve)) => end_serving(served, serve.end),
        _ => Ok(()),
    };
    let used = before.until(&accounts.now());
    said?;
    ended?;
    compare(row, fixture)?;
    let own_rate = own_rate(row, fixture)?;
    let memory = row.reports_memory().then(|| reported(memory, fixture)).transpose()?;
    Ok(Sample { used, own_rate, memory })
}

/// bash with the row's variables and, as `dp` and `steady`, datapump's copy.
fn start(script: &str, fixture: &Fixture, port: u16) -> std::io::Result<Child> {
    let mut command = Command::new("bash");
    command.arg("-c").arg(format!("set -o pipefail\n{DP}\n{script}"));
    command.envs(fixture.variables(port));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    command.process_group(0).spawn()
}

/// Waits for a command and returns its error output if it failed.
fn finish(child: std::io::Result<Child>, what: &str) -> Result<(), String> {
    let mut child = child.map_err(|why| format!("{what}: {why}"))?;
    let mut words = String::new();
    let group = Pid::from_child(&child);
    let limit = Limit::start(group);
    if let Some(mut pipe) = child.stderr.take() {
        pipe.read_to_string(&mut words).ok();
    }
    let status = child.wait().map_err(|why| format!("{what}: {why}"))?;
    drop(limit);
    match status.success() {
        true => Ok(()),
        false => Err(format!("{what} ended with {status}: {}", words.trim())),
    }
}

/// Ends a process group after a time limit, unless this is dropped before.
struct Limit {
    _in_time: std::sync::mpsc::Sender<()>,
}

impl Limit {
    fn start(group: Pid) -> Limit {
        let (in_time, waits) = std::sync::mpsc::channel::<()>();
        std::thread::spawn(move || {
            if waits.recv_timeout(PATIENCE) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
                kill_process_group(group, Signal::KILL).ok();
            }
        });
        Limit { _in_time: in_time }
    }
}

fn start_serving(serve: &Serve, fixture: &Fixture, port: u16) -> Result<Child, String> {
    let url = fixture.log().join("wdt.url");
    fs::write(&url, "").map_err(|why| format!("{}: {why}", url.display()))?;
    let child = start(&serve.script, fixture, port).map_err(|why| format!("the far end: {why}"))?;
    let ready = || match serve.ready {
        Ready::Port => listens(port),
        Ready::Url => fs::read(&url).is_ok_and(|text| text.contains(&b'\n')),
    };
    let start = Instant::now();
    while !ready() {
        if start.elapsed() > Duration::from_secs(10) {
            end_serving(child, ServeEnd::Stopped).ok();
            return Err("the far end does not become ready".into());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(child)
}

fn end_serving(child: Child, end: ServeEnd) -> Result<(), String> {
    match end {
        ServeEnd::Waited => finish(Ok(child), "the far end"),
        ServeEnd::Stopped => {
            kill_process_group(Pid::from_child(&child), Signal::TERM).ok();
            // We stopped it: its exit status does not matter.
            finish(Ok(child), "the far end").or(Ok(()))
        }
    }
}

/// True when there is a listener on this port, according to the kernel, without a connection.
fn listens(port: u16) -> bool {
    let wanted = format!(":{port:04X}");
    ["/proc/net/tcp", "/proc/net/tcp6"].iter().any(|table| {
        let text = fs::read_to_string(table).unwrap_or_default();
        text.lines().any(|line| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            fields.len() > 3 && fields[1].ends_with(&wanted) && fields[3] == LISTEN
        })
    })
}

/// The arrived data must equal the sent data: a fast tool that loses bytes does not count.
fn compare(row: &Row, fixture: &Fixture) -> Result<(), String> {
    let (left, right) = match row.arrives {
        Arrives::Nothing => return Ok(()),
        Arrives::File(name) => (fixture.source(name), fixture.arrived("f")),
        Arrives::Same(name) => (fixture.source(name), fixture.arrived(name)),
        Arrives::Disk => (fixture.disk_source(), fixture.disk_arrived()),
    };
    let tool = if left.is_dir() { "diff" } else { "cmp" };
    let mut command = Command::new(tool);
    if left.is_dir() {
        command.arg("-rq");
    }
    let output = command.arg(left).arg(right).output().map_err(|why| format!("{tool}: {why}"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err("what arrived is not what was sent".into()),
    }
}

fn own_rate(row: &Row, fixture: &Fixture) -> Result<Option<f64>, String> {
    let seconds = match row.clock {
        Clock::EndToEnd => return Ok(None),
        Clock::Datapump => Some(record(fixture)?.moved.elapsed_s),
        Clock::Steady => return steady_rate(fixture).map(Some),
        Clock::Iperf => read_json(fixture, "iperf.json")?
            .pointer("/end/sum_received/seconds")
            .and_then(Value::as_f64),
        Clock::Fio => {
            let report = read_json(fixture, "fio.json")?;
            let jobs = report["jobs"].as_array().cloned().unwrap_or_default();
            let millis = jobs.iter().filter_map(|job| job["job_runtime"].as_f64());
            millis.reduce(f64::max).map(|millis| millis / 1e3)
        }
    };
    let seconds = seconds.ok_or("the tool's report names no time")?;
    Ok(Some(row.bytes as f64 / seconds))
}

/// The rate between the first and the last progress event with new bytes: without login, handshakes
/// and end, which iperf3 also leaves out.
fn steady_rate(fixture: &Fixture) -> Result<f64, String> {
    let text = fs::read_to_string(fixture.log().join("dp.json")).map_err(|why| why.to_string())?;
    let events = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let points: Vec<(f64, f64)> = events
        .filter(|event| event["event"] == "progress")
        .filter_map(|event| Some((event["elapsed_s"].as_f64()?, event["bytes_done"].as_f64()?)))
        .collect();
    let moved = || points.iter().filter(|(_, bytes)| *bytes > 0.0);
    // Events repeat the same bytes while the far side ends.
    let most = moved().map(|(_, bytes)| *bytes).fold(0.0, f64::max);
    let last = points.iter().find(|(_, bytes)| *bytes == most);
    match (moved().next(), last) {
        (Some(first), Some(last)) if last.0 > first.0 => {
            Ok((last.1 - first.1) / (last.0 - first.0))
        }
        _ => Err("too short to have a steady rate: raise --size".into()),
    }
}

/// The record in datapump's last event.
fn record(fixture: &Fixture) -> Result<Record, String> {
    let text = fs::read_to_string(fixture.log().join("dp.json")).map_err(|why| why.to_string())?;
    said::record(&text)
}

fn read_json(fixture: &Fixture, name: &str) -> Result<Value, String> {
    let text =
        fs::read_to_string(fixture.log().join(name)).map_err(|why| format!("{name}: {why}"))?;
    // fio may write a line before its JSON.
    let start = text.find('{').unwrap_or(0);
    serde_json::from_str(&text[start..]).map_err(|why| format!("{name}: {why}"))
}

/// Reads high-water marks of both sides until it is stopped.
fn sample_memory(accounts: &Accounts, watch: &AtomicBool) -> Memory {
    let mut memory = Memory::default();
    while watch.load(Ordering::Relaxed) {
        for pid in accounts.processes() {
            let line = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let words: Vec<&str> = line.split('\0').collect();
            if !words[0].ends_with("/datapump") {
                continue;
            }
            let peak = high_water(pid);
            match words.get(1) == Some(&"peer") {
                true => memory.far_peak = memory.far_peak.max(peak),
                false => memory.near_peak = memory.near_peak.max(peak),
            }
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    memory
}

fn high_water(pid: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) << 10
}

fn reported(seen: Memory, fixture: &Fixture) -> Result<Memory, String> {
    let record = record(fixture)?;
    let sides = || std::iter::once(&record.source).chain(&record.sink);
    let most = |of: fn(&Side) -> u64| sides().map(of).max().unwrap_or(0);
    Ok(Memory {
        reported_max: most(|side| side.peak_memory_bytes),
        planned_max: most(|side| side.planned_memory_bytes),
        ..seen
    })
}

const DP: &str = "copy() { \"$DP\" copy --json --ssh \"$SSH\" --remote-datapump \"$DP\" \"$@\"; }
dp() { copy -q \"$@\" > \"$LOG/dp.json\"; }
steady() { copy --interval 0.1 \"$@\" > \"$LOG/dp.json\"; }";
const PATIENCE: Duration = Duration::from_secs(600);
/// The state of a listening socket in /proc/net/tcp.
const LISTEN: &str = "0A";
