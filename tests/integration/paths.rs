//! Path samples of data streams: they agree with the system's own tool, continue while a lane is
//! blocked, disturb nothing, and are stored.

use crate::support;
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use crate::support::data::write_file;
use crate::support::relay::{Relay, Toward, Trouble, What};
use crate::support::{PROGRAM, Scene, each, need, run};
use base::job::{Job, Location, Outcome, PathRole, PathSide, Remote, StreamPath};
use base::limits::HEADROOM_BYTES;
use base::packed::{self, Course};
use base::path::PathSample;
use base::settings::{PathSamples, Receive, Seal, Settings};
use base::units::{Nanos, Tick};
use datapump::results::Store;
use mover::io::backend::{Backend, Verb, Wait};
use mover::io::engine::Engine;
use mover::io::request::Request;
use mover::io::sampler::{Outbox, Sampler};
use mover::io::threads::Threads;
use mover::io::uring::Uring;
use mover::io::volume::Handle;
use mover::io::{clock, system, tcp};
use mover::pump::watch::Watch;
use mover::remote::copy::run_with;
use mover::remote::launch::Launch;

fn connection() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (far, _) = listener.accept().unwrap();
    for socket in [&near, &far] {
        tcp::tune(socket, &tcp::Tuning::default()).unwrap();
    }
    (near, far)
}

/// The output of `ss` for a connection.
fn ss(socket: &TcpStream) -> String {
    let (local, peer) = (socket.local_addr().unwrap().port(), socket.peer_addr().unwrap().port());
    let filter = format!("sport = :{local} and dport = :{peer}");
    let ran = Command::new(need("ss", "iproute2")).args(["-tinH", &filter]).output().unwrap();
    String::from_utf8(ran.stdout).unwrap()
}

/// The number after a word of `ss`; nothing if the word is missing, as for zeros.
fn said(text: &str, word: &str) -> Option<f64> {
    let value = text.split_whitespace().find_map(|part| part.strip_prefix(word)?.strip_prefix(':'));
    value?.split(['/', ',']).next()?.parse().ok()
}

/// A connection on which so much was written and read, examined at both ends.
fn check_fields(written: usize, read: usize) {
    let (mut near, mut far) = connection();
    near.set_nonblocking(true).unwrap();
    let (mut sent, mut got) = (0, 0);
    let block = vec![7; 64 << 10];
    while sent < written || got < read {
        let most = block.len().min(written - sent);
        sent += near.write(&block[..most]).unwrap_or(0);
        if got < read {
            got += far.read(&mut vec![0; (read - got).min(64 << 10)]).unwrap();
        } else if read < written && said(&ss(&near), "notsent").is_some() {
            break;
        }
    }
    for (end, socket) in [("near", &near), ("far", &far)] {
        // What is still under way, as an acknowledgement that is put off, comes between the two.
        support::until(&format!("{end}: ss and the sample are alike"), || {
            compared(socket).inspect_err(|why| println!("{end}: {why}")).is_ok()
        });
    }
}

/// Whether a sample agrees with `ss`.
fn compared(socket: &TcpStream) -> Result<(), String> {
    let text = ss(socket);
    let sample = system::path_sample(socket.as_fd(), Tick(0)).unwrap();
    let millis = |nanos: Nanos| nanos.0 as f64 / 1e6;
    for (word, value) in [
        ("cwnd", f64::from(sample.cwnd_segments)),
        ("mss", f64::from(sample.mss_bytes)),
        ("bytes_sent", sample.bytes_sent as f64),
        ("bytes_acked", sample.bytes_acked as f64),
        ("bytes_received", sample.bytes_received as f64),
        ("bytes_retrans", sample.bytes_retransmitted as f64),
        ("data_segs_out", sample.segments_sent as f64),
        ("unacked", f64::from(sample.unacked_segments)),
        ("notsent", f64::from(sample.unsent_bytes)),
        ("snd_wnd", f64::from(sample.peer_window_bytes)),
        ("rcv_ssthresh", f64::from(sample.receive_threshold_bytes)),
        ("rtt", millis(sample.rtt)),
        ("minrtt", millis(sample.rtt_min)),
    ] {
        let silent = matches!(word, "snd_wnd") && said(&text, word).is_none();
        let expect = said(&text, word).unwrap_or(0.0);
        // `ss` prints six digits of what it divides.
        let near_enough = (value - expect).abs() <= 0.01 * expect.abs() + 0.001;
        if !silent && !near_enough {
            return Err(format!("{word} is {value}, ss says {expect}\n{text}"));
        }
    }
    Ok(())
}

#[test]
fn samples_say_what_ss_says() {
    for (written, read) in [(0, 0), (1, 1), (3 << 20, 3 << 20), (64 << 20, 0)] {
        check_fields(written, read);
    }
}

/// The request that a lane submits on its connection.
type Ask = fn(Handle) -> Verb;

/// The samples of a lane that waits, how many of them before bytes move again, and the counts of
/// its engine.
struct Waited {
    samples: Vec<PathSample>,
    blocked: usize,
    moved: Result<u32, i32>,
    partial_returns: u64,
}

/// One request on a connection whose other end first does nothing, then everything.
fn wait_on(backend: Box<dyn Backend>, verb: Ask) -> Waited {
    let (near, mut far) = connection();
    let (socket, outbox) = (tcp::into_handle(near), Arc::new(Outbox::default()));
    let sampler = Sampler::new(socket.clone(), outbox.clone()).expect("a TCP connection");
    let mut engine = Engine::new(backend);
    engine.watch(sampler);
    let verb = verb(socket);
    let sends = matches!(verb, Verb::Send { .. });
    let working = thread::spawn(move || {
        let mut request = Request::new(BLOCKED_BYTES);
        request.ask(HEADROOM_BYTES..HEADROOM_BYTES + BLOCKED_BYTES);
        if sends {
            request.pending_bytes_mut().fill(9);
        }
        engine.submit(verb, request);
        let mut done = Vec::new();
        while done.is_empty() {
            engine.reap(Wait::Completion, &mut done).unwrap();
        }
        engine.sampler().unwrap().close();
        (done[0].outcome, engine.counts.partial_returns, done.remove(0))
    });
    let mut samples = Vec::new();
    support::until("it looks at its connection while it waits", || {
        outbox.take(&mut samples);
        samples.len() >= BLOCKED_SAMPLES
    });
    let blocked = samples.len();
    let mut bytes = vec![9; BLOCKED_BYTES as usize];
    match sends {
        true => far.read_exact(&mut bytes).unwrap(),
        false => {
            // A few bytes first, the rest later: a call that was interrupted by a sample continues.
            far.write_all(&bytes[..1000]).unwrap();
            thread::sleep(Duration::from_millis(50));
            far.write_all(&bytes[1000..]).unwrap();
        }
    }
    let (moved, partial_returns, request) = working.join().unwrap();
    assert!(bytes.iter().all(|byte| *byte == 9), "the bytes are what was sent");
    let span = HEADROOM_BYTES as usize..(HEADROOM_BYTES + BLOCKED_BYTES) as usize;
    assert!(request.buffer.bytes()[span].iter().all(|byte| *byte == 9));
    outbox.take(&mut samples);
    Waited { samples, blocked, moved, partial_returns }
}

/// The connection of data over the control connection, for instance.
#[test]
fn what_is_no_tcp_is_not_looked_at() {
    let (near, _far) = std::os::unix::net::UnixStream::pair().unwrap();
    let socket = Handle::new(near.into());
    assert!(Sampler::new(socket, Arc::default()).is_none());
    assert!(Sampler::new(Handle::Sim(0), Arc::default()).is_none());
}

#[test]
fn who_is_blocked_goes_on_looking() {
    type Make = fn() -> Box<dyn Backend>;
    let mut backends: Vec<(&str, Make)> = vec![("threads", || Box::new(Threads::new().unwrap()))];
    if Uring::new().is_ok() {
        backends.push(("uring", || Box::new(Uring::new().unwrap())));
    }
    let send = |socket| Verb::Send { socket };
    let receive = |socket| Verb::Receive { socket, how: Receive::WaitAll, quick_ack: false };
    let verbs: [(&str, Ask); 2] = [("send", send), ("receive", receive)];
    for ((backend, make), (name, verb)) in
        backends.into_iter().flat_map(|backend| verbs.map(|verb| (backend, verb)))
    {
        let Waited { samples, blocked, moved, partial_returns } = wait_on(make(), verb);
        assert_eq!((moved, partial_returns), (Ok(BLOCKED_BYTES), 0), "{backend}, {name}");
        assert_grows(&samples, name);
        // Once the buffers are full, nothing but the other end is waited for.
        let (from, to) = (&samples[blocked / 2], &samples[blocked - 1]);
        let clock = |sample: &PathSample| match name {
            "send" => sample.clocks.sink,
            _ => sample.clocks.source,
        };
        let (waited, span) = (clock(to) - clock(from), to.at.since(from.at));
        assert!(waited.0 * 2 > span.0, "{backend}, {name}: {waited} of {span}");
        let last = samples.last().unwrap();
        assert!(last.send_buffer_bytes > 0 && last.receive_buffer_bytes > 0);
    }
}

fn assert_grows(samples: &[PathSample], what: &str) {
    for two in samples.windows(2) {
        let [before, after] = [&two[0], &two[1]].map(packed::numbers);
        for (at, course) in packed::COURSES.iter().enumerate() {
            let falls = *course == Course::Grows && after[at] < before[at];
            assert!(!falls, "{what}: {} falls: {two:?}", packed::NAMES[at]);
        }
    }
}

/// A transfer of generated bytes between this process and another.
fn transfer(pull: bool, settings: Settings, bytes: u64) -> Outcome {
    let made = Location::Random { len: bytes, seed: 3 };
    let far = Some("far".to_string());
    let job = Job {
        sources: vec![made],
        source_host: far.clone().filter(|_| pull),
        target: Location::Null { len: 0 },
        target_host: far.filter(|_| !pull),
        settings,
        listed: None,
        range: None,
        remote: Remote::default(),
    };
    let (notices, _heard) = channel();
    let launch = Launch::Process { program: PathBuf::from(PROGRAM), cpus: None };
    run_with(&job, &launch, &Arc::new(Watch::new(notices)), clock::now()).unwrap()
}

/// The smallest share of its time that a lane's clocks account for, over all lanes.
fn share_known(paths: &[StreamPath]) -> f64 {
    let share = |path: &StreamPath| {
        let (first, last) = (path.samples.first().unwrap(), path.samples.last().unwrap());
        let known = |sample: &PathSample| {
            let clocks = sample.clocks;
            (clocks.source + clocks.passage + clocks.sink + clocks.idle).0 as f64
        };
        (known(last) - known(first)) / last.at.since(first.at).0 as f64
    };
    paths.iter().map(share).fold(f64::INFINITY, f64::min)
}

#[test]
fn a_run_is_seen_from_both_ends() {
    for (pull, streams, seal) in
        [(false, 1, Seal::Tls), (false, 4, Seal::Off), (true, 1, Seal::Auth), (true, 4, Seal::Tls)]
    {
        let what = format!("pull {pull}, {streams} streams, {seal:?}");
        let settings = Settings { streams, seal, ..Settings::default() };
        let bytes = 96 << 20;
        let outcome = transfer(pull, settings, bytes);
        let seen: BTreeSet<(u32, PathSide)> =
            outcome.paths.iter().map(|path| (path.stream, path.side)).collect();
        let sides = |stream| [(stream, PathSide::Near), (stream, PathSide::Far)];
        assert_eq!(seen, (0..u32::from(streams)).flat_map(sides).collect(), "{what}");
        let (mut sent, mut received) = (0, 0);
        for path in &outcome.paths {
            let name = format!("{what}: stream {} {}", path.stream, path.side.name());
            assert_grows(&path.samples, &name);
            assert_eq!((path.side == PathSide::Near) == pull, path.role == PathRole::Sink);
            let last = path.samples.last().unwrap();
            match path.role {
                PathRole::Source => {
                    assert_eq!(last.unsent_bytes, 0, "{name}");
                    sent += last.bytes_sent - last.bytes_retransmitted;
                }
                PathRole::Sink => received += last.bytes_received,
            }
            assert!(last.rtt.0 > 0 && last.mss_bytes > 0, "{name}: {last:?}");
        }
        // An end of a connection counts for a byte.
        assert!(sent.abs_diff(received) <= 2 * u64::from(streams), "{what}: {sent}, {received}");
        assert!(sent >= bytes, "{what}: {sent}");
        let share = share_known(&outcome.paths);
        assert!(share <= 1.001, "{what}: {share}");
        let partial = outcome.near.tally.partial_returns;
        assert!(seal == Seal::Tls || partial == 0, "{what}: {partial} partial returns");
    }
}

/// A lane's clocks account for 98 % of its time. On a busy machine waiting for a CPU counts as the
/// lane's own work: the best of some runs counts.
#[test]
fn a_lane_knows_where_its_time_went() {
    let run = || {
        let settings = Settings { streams: 1, ..Settings::default() };
        share_known(&transfer(false, settings, 128 << 20).paths)
    };
    let best = (0..8).map(|_| run()).find(|share| (0.98..1.001).contains(share));
    assert!(best.is_some(), "no run of 8 knows of 98 % of its time");
}

#[test]
fn nothing_is_seen_where_nobody_wants_to() {
    let settings = Settings { path_samples: PathSamples::Off, ..Settings::default() };
    assert_eq!(transfer(false, settings, 8 << 20).paths, []);
}

/// Runs a command line of the real program, recorded in a store of its own, and returns the paths
/// in the store.
fn recorded(scene: &Scene, line: &str) -> Vec<StreamPath> {
    let mut command = scene.command(&scene.words(line));
    let store = scene.path("results.db");
    command.env("DATAPUMP_RESULTS", &store).env_remove("DATAPUMP_NO_RECORD");
    let ran = run::to_end(command, b"");
    assert_eq!(ran.code, 0, "{line}\n{ran}");
    Store::open_existing(&store).unwrap().paths(1).unwrap()
}

#[test]
fn paths_are_recorded_and_exported() {
    each(["push", "pull"], |way| {
        let scene = Scene::new();
        write_file(&scene.path("in"), 1, 24 << 20);
        let ends = if way == &"push" { "@/in far:@/out" } else { "far:@/in @/out" };
        let paths = recorded(&scene, &format!("copy --streams 2 {ends}"));
        assert_eq!(paths.len(), 4, "{way}: two streams, two ends");
        assert!(paths.iter().all(|path| path.samples.len() > 1), "{way}: {paths:?}");
        let results = |words: &str| {
            let line = format!("results {words} --results @/results.db");
            scene.succeed(&line).stdout_text()
        };
        let page = results("show 1");
        let role = if way == &"push" { "0, near source" } else { "0, near sink" };
        assert!(page.contains("\ndata streams\n") && page.contains(role), "{page}");
        let csv = results("export --format csv --what paths");
        let samples: usize = paths.iter().map(|path| path.samples.len()).sum();
        assert_eq!(csv.lines().count(), samples + 1, "{way}");
        let json: serde_json::Value = serde_json::from_str(&results("export")).unwrap();
        let rows = json[0]["paths"][0]["rows"].as_array().unwrap();
        assert_eq!(rows.len(), paths[0].samples.len(), "{way}");
        let refused = scene.run("results export --format parquet --what paths");
        assert_eq!(refused.code, 2, "{refused}");
    });
}

/// The samples of a lost stream are stored with those of its replacement.
#[test]
fn lost_streams_keep_what_was_seen() {
    each(["push", "pull"], |way| {
        let scene = Scene::new();
        write_file(&scene.path("in"), 1, 8 << 20);
        let cut = |connection| Trouble {
            connection: Some(connection),
            toward: if way == &"push" { Toward::Far } else { Toward::Near },
            at_byte: 777_777,
            what: What::Cut,
        };
        let relay = Relay::start(&scene, vec![cut(1)]);
        let ssh = relay.ssh.display();
        let ends = match *way {
            "push" => "@/in 127.0.0.1:@/out",
            _ => "127.0.0.1:@/in @/out",
        };
        // Slow enough for another stream to take the place of the lost one.
        let options = "--streams 4 --request-size 64K --seal tls --stall 1s --rate 64Mbit";
        let paths = recorded(&scene, &format!("copy {options} --ssh {ssh} {ends}"));
        let near: BTreeSet<u32> = paths
            .iter()
            .filter(|path| path.side == PathSide::Near)
            .map(|path| path.stream)
            .collect();
        // Where the trouble came too late for this run, nothing was lost.
        let streams = if relay.happened() > 0 { 5 } else { 4 };
        assert!(near.len() >= streams, "{way}: {near:?}");
        paths.iter().for_each(|path| assert_grows(&path.samples, way));
    });
}

/// More than both socket buffers hold.
const BLOCKED_BYTES: u32 = 12 << 20;
/// Some half a second of them.
const BLOCKED_SAMPLES: usize = 100;
