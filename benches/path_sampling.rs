//! What looking at streams costs: copies of made-up bytes to another process over loopback, with
//! and without, in interleaved pairs; the two ways in which a blocked send can come back for a
//! look; and what it takes to record what was seen. `cargo bench --bench path_sampling [-- PAIRS]`.

use analysis::statistics::median;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use analysis::record::sample::Record;
use base::job::{Job, Location, PathRole, PathSide, Remote, StreamPath};
use base::packed;
use base::path::{LaneClocks, PathSample};
use base::settings::{DigestKind, PathSamples, Receive, Seal, Settings};
use base::units::{Nanos, Rate, Tick};
use datapump::results::{Durability, Store};
use mover::io::backend::Verb;
use mover::io::request::Request;
use mover::io::sampler::{Outbox, Sampler};
use mover::io::volume::Handle;
use mover::io::{clock, system, tcp};
use mover::pump::watch::Watch;
use mover::remote::copy::run_with;
use mover::remote::launch::Launch;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{SendFlags, send};

const BYTES: u64 = 2 << 30;
const PAIRS: usize = 21;
const LOOKS: u64 = 200_000;
const WAIT_S: u64 = 10;

fn main() {
    let pairs = std::env::args().skip(1).find_map(|word| word.parse().ok()).unwrap_or(PAIRS);
    println!("| streams | seal | rate, with / without | CPU a byte, with / without | samples |");
    println!("|---|---|---|---|---|");
    for (streams, seal) in [(1, Seal::Off), (4, Seal::Off), (1, Seal::Tls), (4, Seal::Tls)] {
        copies(pairs, streams, seal);
    }
    println!("\n| a blocked send comes back by | rate, of a plain one | CPU, of a plain one |");
    println!("|---|---|---|");
    for variant in [Variant::Timeout, Variant::Poll] {
        sends(pairs, variant);
    }
    looks();
    inserts();
}

/// What a pair of copies cannot tell from noise, each part for itself: looks one after the other,
/// and a lane that waits for ten seconds for a byte and comes back for every look that is due.
fn looks() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let mut far = TcpStream::connect(address).expect("a connection");
    let (near, _) = listener.accept().expect("a connection");
    let socket = Handle::new(near.into());
    let outbox = Arc::new(Outbox::default());
    let mut taken = Vec::new();

    let mut sampler = Sampler::new(socket.clone(), outbox.clone()).expect("a TCP connection");
    let before = cpu();
    for look in 1..=LOOKS {
        sampler.look_if_due(Tick(look * Nanos::from_millis(50).0));
        if look % 100 == 0 {
            taken.clear();
            outbox.take(&mut taken);
        }
    }
    let each = (cpu() - before).0 / LOOKS;

    let mut sampler = Sampler::new(socket.clone(), outbox.clone()).expect("a TCP connection");
    taken.clear();
    outbox.take(&mut taken);
    taken.clear();
    let waiting = thread::spawn(move || {
        let mut request = Request::new(4096);
        request.ask(0..1);
        let verb = Verb::Receive { socket, how: Receive::WaitAll, quick_ack: false };
        let before = cpu();
        sampler.perform(&verb, &mut request).expect("a byte");
        let spent = cpu() - before;
        sampler.close();
        spent
    });
    for _ in 0..WAIT_S * 10 {
        thread::sleep(Duration::from_millis(100));
        outbox.take(&mut taken);
    }
    far.write_all(&[1]).expect("a byte sent");
    let spent = waiting.join().expect("a lane that ends");
    outbox.take(&mut taken);
    println!("\n| one look | looks a second of a lane that waits | of a CPU |");
    println!("|---|---|---|");
    let share = spent.0 as f64 / Nanos::from_millis(WAIT_S * 1000).0 as f64 * 100.0;
    println!("| {each} ns | {:.0} | {share:.3} % |", taken.len() as f64 / WAIT_S as f64);
}

/// What it takes to record what was seen of four streams from both their ends: over a path of
/// 102 ms for ten seconds, over loopback for as long, and as much as is kept of half of a side.
fn inserts() {
    println!("\n| samples of a run | in the store | recording takes, beside one without |");
    println!("|---|---|---|");
    for each in [0, 400, 2000, 8192] {
        let folder = tempfile::tempdir().expect("a folder");
        let mut store = Store::open_lasting(&folder.path().join("results.db"), Durability::Program)
            .expect("a store");
        let sides = [(PathSide::Near, PathRole::Source), (PathSide::Far, PathRole::Sink)];
        let path = |stream| {
            sides.map(|(side, role)| StreamPath { stream, side, role, samples: made(each) })
        };
        let paths: Vec<StreamPath> = (0..4).flat_map(path).collect();
        let bytes: usize = paths.iter().map(|path| packed::pack(&path.samples).len()).sum();
        let samples: usize = paths.iter().map(|path| path.samples.len()).sum();
        let with = Record { paths, ..Record::default() };
        let without = Record::default();
        let mut timed = |record: &Record| {
            let begun = clock::now();
            store.insert(record).expect("inserted");
            clock::now().since(begun).0 as f64 / 1e6
        };
        let pairs: Vec<f64> = (0..PAIRS).map(|_| timed(&with) - timed(&without)).collect();
        println!("| {samples} | {bytes} bytes | {:.2} ms |", middle(&pairs));
    }
}

/// Samples that change as real ones do.
fn made(count: u64) -> Vec<PathSample> {
    let noise = |at: u64, below: u64| at.wrapping_mul(0x9e37_79b9_7f4a_7c15) % below;
    let sample = |at: u64| PathSample {
        at: Tick(at * 5_100_000 + noise(at, 200_000)),
        rtt: Nanos(5_000_000 + noise(at, 90_000) * 1000),
        rtt_deviation: Nanos(noise(at + 1, 20_000) * 1000),
        cwnd_segments: 80 + noise(at, 40) as u32,
        unacked_segments: noise(at + 2, 80) as u32,
        unsent_bytes: noise(at + 3, 500_000) as u32,
        delivery_bytes_per_s: 300_000_000 + noise(at + 4, 100_000_000),
        bytes_sent: at * 1_500_000 + noise(at, 65_536),
        bytes_acked: at * 1_499_000,
        segments_sent: at * 25,
        busy: Nanos(at * 5_000_000),
        clocks: LaneClocks {
            source: Nanos(at * 400_000 + noise(at, 10_000)),
            passage: Nanos(at * 900_000 + noise(at, 10_000)),
            sink: Nanos(at * 3_600_000 + noise(at, 10_000)),
            idle: Nanos(0),
        },
        ..PathSample::default()
    };
    (0..count).map(sample).collect()
}

/// Rate in bytes a second, CPU nanoseconds a byte of both sides.
type Cost = (f64, f64);

fn copies(pairs: usize, streams: u16, seal: Seal) {
    let (mut on, mut off, mut samples) = (Vec::new(), Vec::new(), Vec::new());
    let run = |how| copy(streams, seal, how);
    run(PathSamples::On);
    for pair in 0..pairs {
        // Whoever is second may find the machine warmer.
        if pair % 2 == 0 {
            off.push(run(PathSamples::Off).0);
        }
        let (cost, count) = run(PathSamples::On);
        on.push(cost);
        samples.push(count as f64);
        if pair % 2 == 1 {
            off.push(run(PathSamples::Off).0);
        }
    }
    let (rate, cpu) = ratios(&on, &off);
    println!("| {streams} | {} | {rate} | {cpu} | {:.0} |", seal.name(), middle(&samples));
}

fn copy(streams: u16, seal: Seal, path_samples: PathSamples) -> (Cost, usize) {
    let settings =
        Settings { streams, seal, digest: DigestKind::None, path_samples, ..Settings::default() };
    let job = Job {
        sources: vec![Location::Null { len: BYTES }],
        source_host: None,
        target: Location::Null { len: 0 },
        target_host: Some("there".into()),
        settings,
        listed: None,
        range: None,
        remote: Remote::default(),
    };
    let program = PathBuf::from(env!("CARGO_BIN_EXE_datapump"));
    let (notices, _heard) = channel();
    let launch = Launch::Process { program, cpus: None };
    let watch = Arc::new(Watch::new(notices));
    let outcome = run_with(&job, &launch, &watch, clock::now()).expect("a copy to null");
    let far = outcome.far.as_ref().expect("a far side");
    let sides = [&outcome.near, far];
    let cpu: u64 = sides.iter().map(|side| side.cpu_user.0 + side.cpu_system.0).sum();
    let time = outcome.moving();
    let samples = outcome.paths.iter().map(|path| path.samples.len()).sum();
    ((Rate::of(BYTES, time).bytes_per_second, cpu as f64 / BYTES as f64), samples)
}

/// How a send that blocks comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Variant {
    Plain,
    /// `SO_SNDTIMEO`.
    Timeout,
    /// A send that does not block, then a poll.
    Poll,
}

fn sends(pairs: usize, variant: Variant) {
    let (mut with, mut without) = (Vec::new(), Vec::new());
    for _ in 0..pairs {
        without.push(stream(Variant::Plain));
        with.push(stream(variant));
    }
    let (rate, cpu) = ratios(&with, &without);
    println!("| {variant:?} | {rate} | {cpu} |");
}

/// A stream over loopback in requests of 1 MiB.
fn stream(variant: Variant) -> Cost {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let sender = TcpStream::connect(address).expect("a connection");
    let (mut receiver, _) = listener.accept().expect("a connection");
    for socket in [&sender, &receiver] {
        tcp::tune(socket, &tcp::Tuning::default()).expect("a tuned socket");
    }
    if variant == Variant::Timeout {
        let half = Some(Duration::from_micros(2_500));
        set_socket_timeout(&sender, Timeout::Send, half).expect("a timeout");
    }
    let before = (clock::now(), cpu());
    let sending = thread::spawn(move || {
        let block = vec![1; 1 << 20];
        (0..BYTES >> 20).for_each(|_| send_all(&sender, &block, variant));
    });
    let mut block = vec![0; 1 << 20];
    while receiver.read(&mut block).expect("received") > 0 {}
    sending.join().expect("a sender that ends");
    let time = clock::now().since(before.0);
    (Rate::of(BYTES, time).bytes_per_second, (cpu() - before.1).0 as f64 / BYTES as f64)
}

fn send_all(socket: &TcpStream, mut block: &[u8], variant: Variant) {
    let flags = match variant {
        Variant::Poll => SendFlags::DONTWAIT,
        Variant::Plain | Variant::Timeout => SendFlags::empty(),
    };
    let wait = Timespec { tv_sec: 0, tv_nsec: 5_000_000 };
    while !block.is_empty() {
        match send(socket, block, flags) {
            Ok(count) => block = &block[count..],
            Err(rustix::io::Errno::AGAIN) => {}
            Err(error) => panic!("sent: {error}"),
        }
        if variant == Variant::Poll && !block.is_empty() {
            let mut fds = [PollFd::from_borrowed_fd(socket.as_fd(), PollFlags::OUT)];
            poll(&mut fds, Some(&wait)).expect("polled");
        }
    }
}

fn cpu() -> Nanos {
    let usage = system::usage();
    usage.user + usage.system
}

/// The medians of the pairs' ratios, with the range that holds half of them.
fn ratios(with: &[Cost], without: &[Cost]) -> (String, String) {
    let of = |pick: fn(&Cost) -> f64| {
        let pairs = with.iter().zip(without);
        let mut ratios: Vec<f64> = pairs.map(|(one, other)| pick(one) / pick(other)).collect();
        ratios.sort_by(f64::total_cmp);
        let at = |share: usize| ratios[(ratios.len() - 1) * share / 100];
        format!("{:.4} ({:.4} to {:.4})", at(50), at(25), at(75))
    };
    (of(|cost| cost.0), of(|cost| cost.1))
}

fn middle(values: &[f64]) -> f64 {
    median(values).unwrap_or(f64::NAN)
}
