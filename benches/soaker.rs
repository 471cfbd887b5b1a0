//! The soaker against idle accounting and against the clocks of those who work, on this machine.
//! `cargo bench --bench soaker`: a table, with the gates that each row passed. On a quiet machine
//! the three agree within 10 %; where a gate says that it is not quiet, the row says nothing.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use analysis::accounting::gates::{Calibration, agreement, of_block, of_run, sentence};
use analysis::record::sample::{Gate, Machine};
use datapump::probe::{Probe, intrusion};
use mover::remote::launch::Launch;

const CALIBRATION: Duration = Duration::from_secs(2);
/// How often a row is measured until it passes its gates.
const TRIES_MAX: u32 = 3;
const LOAD: Duration = Duration::from_secs(5);

const LOADS: &[(&str, fn())] = &[
    ("nothing", || thread::sleep(LOAD)),
    ("one thread, 2 ms of every 10", || duty(2, 10)),
    ("one thread, half of the time", || duty(10, 20)),
    ("one thread", || duty(10, 10)),
    ("loopback TCP, one stream", loopback),
    ("1 MiB written and synced", disk),
];

fn main() {
    let launch = Launch::Process { program: env!("CARGO_BIN_EXE_datapump").into(), cpus: None };
    let mut probe = Probe::start(&launch).expect("a probe");
    let mut spinner = Probe::start(&launch).expect("another probe");
    cost(&mut probe);
    println!(
        "| load | span s | idle accounting | its clocks | soaker's clock | its iterations \
              | its clocks | agree | gates |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    let mut best = BTreeMap::new();
    for (name, load) in LOADS {
        for _ in 0..TRIES_MAX {
            if row(name, *load, &mut probe, &mut spinner, &mut best) == Validity::Valid {
                break;
            }
        }
    }
}

/// Whether a row passed its gates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Validity {
    Valid,
    Void,
}

/// What looking at the clocks costs.
fn cost(probe: &mut Probe) {
    const MOMENTS: u32 = 50;
    let from = probe.moment().expect("a moment");
    let started = Instant::now();
    (1..MOMENTS).for_each(|_| drop(probe.moment().expect("a moment")));
    let wall_ms = started.elapsed().as_secs_f64() * 1e3 / f64::from(MOMENTS - 1);
    let to = probe.moment().expect("a moment");
    let cpu_ms = (to.own_cpu_ns - from.own_cpu_ns) as f64 / 1e6 / f64::from(MOMENTS);
    let threads = to.kernel_threads.len();
    println!("a moment: {wall_ms:.2} ms, {cpu_ms:.2} ms CPU, {threads} kernel threads\n");
}

fn row(
    name: &str,
    load: fn(),
    probe: &mut Probe,
    spinner: &mut Probe,
    best: &mut BTreeMap<u32, f64>,
) -> Validity {
    let cpus = probe.cpus().to_vec();
    probe.soak(&[]).expect("no soaker");
    let (from, own_before) = (probe.moment().expect("a moment"), own_s());
    load();
    let plain_own_s = own_s() - own_before;
    let plain = from.until(&probe.moment().expect("a moment"));

    probe.soak(&cpus).expect("soakers");
    let before = calibrate(probe, best);
    let (from, own_before) = (probe.moment().expect("a moment"), own_s());
    load();
    let soaked_own_s = own_s() - own_before;
    let to = probe.moment().expect("a moment");
    let after = calibrate(probe, best);
    let intruded = intrusion(probe, spinner).expect("an intrusion");
    let soaked = before.mean(&after).referee(&from, &to);
    let plain = Machine {
        background_s: Some(before.mean(&after).background.max(0.0) * plain.span_s * 2.0),
        ..plain
    };

    let mut gates: Vec<Gate> = of_block(&before, &after, &intruded);
    gates.extend(of_run(&soaked, to.memory_available_bytes, 0));
    let failed: Vec<String> = gates.iter().filter(|gate| !gate.passed).map(sentence).collect();
    let pairs = [agreement(&plain, plain_own_s), agreement(&soaked, soaked_own_s)].concat();
    let residues: Vec<String> = pairs
        .iter()
        .filter_map(|pair| Some(format!("{} / {}: {}", pair.one, pair.other, pair.residue?)))
        .collect();
    println!(
        "| {name} | {:.2} | {:.3} | {:.3} | {:.3} | {:.3} | {:.3} | {} | {} |",
        plain.span_s,
        plain.busy_idle_s,
        clocks_s(&plain, plain_own_s),
        soaked.busy_clock_s.unwrap_or(f64::NAN),
        soaked.busy_iter_s.unwrap_or(f64::NAN) + soaked.background_s.unwrap_or(0.0),
        clocks_s(&soaked, soaked_own_s),
        if residues.is_empty() { "yes".to_string() } else { residues.join("; ") },
        if failed.is_empty() { "passed".to_string() } else { failed.join("; ") },
    );
    if failed.is_empty() { Validity::Valid } else { Validity::Void }
}

fn clocks_s(machine: &Machine, own_s: f64) -> f64 {
    let kernel_s: f64 = machine.kernel_threads.iter().map(|thread| thread.cpu_s).sum();
    own_s + kernel_s + machine.background_s.unwrap_or(0.0)
}

fn calibrate(probe: &mut Probe, best: &mut BTreeMap<u32, f64>) -> Calibration {
    let from = probe.moment().expect("a moment");
    thread::sleep(CALIBRATION);
    let found = Calibration::between(&from, &probe.moment().expect("a moment"), best);
    best.clone_from(&found.rho_best);
    found
}

/// All threads of this process.
fn own_s() -> f64 {
    let clock = mover::io::system::CpuClock::of_process(std::process::id());
    clock.and_then(|clock| clock.now()).map_or(0.0, |time| time.seconds())
}

fn duty(busy_ms: u64, of_ms: u64) {
    let end = Instant::now() + LOAD;
    while Instant::now() < end {
        let pause = Instant::now() + Duration::from_millis(busy_ms);
        while Instant::now() < pause {}
        thread::sleep(Duration::from_millis(of_ms - busy_ms));
    }
}

fn loopback() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let receiver = thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a stream");
        let mut buffer = vec![0; 256 << 10];
        while stream.read(&mut buffer).is_ok_and(|count| count > 0) {}
    });
    let mut stream = TcpStream::connect(address).expect("a stream");
    let end = Instant::now() + LOAD;
    let buffer = vec![1; 256 << 10];
    while Instant::now() < end {
        stream.write_all(&buffer).expect("it is sent");
    }
    drop(stream);
    receiver.join().expect("a receiver");
}

fn disk() {
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"));
    let path = folder.join("soaker-bench");
    let buffer = vec![1; 1 << 20];
    let end = Instant::now() + LOAD;
    while Instant::now() < end {
        let mut file = File::create(&path).expect("a file");
        file.write_all(&buffer).and_then(|()| file.sync_all()).expect("it is written");
    }
    std::fs::remove_file(&path).ok();
}
