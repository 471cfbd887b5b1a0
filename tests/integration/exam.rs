//! The same tests for every backend: it returns every request exactly once, with its bytes, however
//! the transfer goes.

use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use base::limits::HEADROOM_BYTES;
use base::settings::Receive;
use mover::io::backend::{Backend, Speed, Verb, Wait};
use mover::io::disk::Disk;
use mover::io::engine::Engine;
use mover::io::request::Request;
use mover::io::sim::{FaultRates, SimVolume, World};
use mover::io::threads::Threads;
use mover::io::uring::Uring;
use mover::io::volume::{Access, Batch, Cache, Handle, Metadata, Mtime, Segment, Volume};

const BODY: u32 = 64 << 10;

/// What a backend is tested with: files, and a connection with both its ends.
struct Fixture {
    volume: Arc<dyn Volume>,
    connect: Box<dyn Fn() -> (Handle, Handle)>,
    /// Kept while the exam lasts.
    _folder: Option<tempfile::TempDir>,
}

fn real_fixture() -> Fixture {
    let folder = tempfile::tempdir().unwrap();
    let volume = Arc::new(Disk::open(folder.path()).unwrap());
    let connect = || {
        let (left, right) = UnixStream::pair().unwrap();
        (Handle::new(OwnedFd::from(left)), Handle::new(OwnedFd::from(right)))
    };
    Fixture { volume, connect: Box::new(connect), _folder: Some(folder) }
}

fn sim_ground(world: &Arc<World>) -> Fixture {
    let volume = Arc::new(SimVolume::new(world, "/exam"));
    let world = world.clone();
    let connect = move || {
        let socket = world.connect();
        (socket.clone(), socket)
    };
    Fixture { volume, connect: Box::new(connect), _folder: None }
}

fn sit(name: &str, make: impl Fn() -> Box<dyn Backend>, fixture: &Fixture) {
    for (subject, exam) in EXAMS {
        let mut engine = Engine::new(make());
        exam(&mut engine, fixture);
        assert_eq!(engine.in_flight(), 0, "{name}: {subject} left something in flight");
    }
}

type Exam = fn(&mut Engine, &Fixture);

const EXAMS: &[(&str, Exam)] = &[
    ("written bytes are read back", writes_and_reads),
    ("many in flight come back, each once", many_in_flight),
    ("buffers that it was told of go round", goes_round),
    ("what finds no file I/O in flight is counted", counts_starts),
    ("the end of a file cuts a read short", end_of_file),
    ("a write to what is open to read fails and gives the request back", bad_write),
    ("sent bytes are received", sends_and_receives),
    ("a peer that is gone ends a receive", gone_peer),
    ("small files are gathered and scattered", batches),
    ("a stretch that is made a hole is zeros, and can be written again", holes),
];

#[test]
fn threads() {
    sit("threads", || Box::new(Threads::new().unwrap()), &real_fixture());
}

#[test]
fn uring() {
    sit("uring", || Box::new(Uring::new().expect("this host has io_uring")), &real_fixture());
}

#[test]
fn sim_in_fair_weather() {
    let world = World::new(1, FaultRates::default());
    sit("sim", || Box::new(world.backend()), &sim_ground(&world));
}

#[test]
fn sim_in_rough_weather() {
    for seed in 0..20 {
        let fault_rates = FaultRates { late: 2, short: 2, interrupted: 4, ..FaultRates::default() };
        let world = World::new(seed, fault_rates);
        sit("sim", || Box::new(world.backend()), &sim_ground(&world));
    }
}

fn pattern(seed: u8, len: usize) -> Vec<u8> {
    (0..len).map(|i| (i as u8).wrapping_mul(31).wrapping_add(seed)).collect()
}

/// A request that carries these bytes, or room for as many.
fn request(bytes: &[u8]) -> Box<Request> {
    let mut request = Request::new(BODY);
    request.label.body_len = bytes.len() as u32;
    request.body_mut().copy_from_slice(bytes);
    request.ask(HEADROOM_BYTES..HEADROOM_BYTES + bytes.len() as u32);
    request
}

#[expect(clippy::vec_box, reason = "it is what the engine fills")]
fn complete(engine: &mut Engine, count: usize) -> Vec<Box<Request>> {
    let mut done = Vec::new();
    while done.len() < count {
        engine.reap(Wait::Completion, &mut done).unwrap();
    }
    assert_eq!(done.len(), count);
    done
}

fn file(fixture: &Fixture, name: &str) -> Handle {
    let access = Access::Create { cache: Cache::Through, reserve: None };
    fixture.volume.remove(name.as_bytes()).unwrap();
    fixture.volume.open(name.as_bytes(), access).unwrap()
}

fn reopen(fixture: &Fixture, name: &str) -> Handle {
    fixture.volume.open(name.as_bytes(), Access::Read { cache: Cache::Through }).unwrap()
}

const SPEEDS: [Speed; 3] = [Speed::Copy, Speed::Cached, Speed::Device];

fn writes_and_reads(engine: &mut Engine, fixture: &Fixture) {
    for (seed, speed) in SPEEDS.into_iter().enumerate() {
        let bytes = pattern(seed as u8, 50_000);
        let written = file(fixture, "w");
        engine.submit(Verb::WriteAt { file: written, offset: 10, speed }, request(&bytes));
        assert_eq!(complete(engine, 1)[0].outcome, Ok(50_000));
        let verb = Verb::ReadAt { file: reopen(fixture, "w"), offset: 10, speed };
        engine.submit(verb, request(&vec![0; 50_000]));
        let done = complete(engine, 1);
        assert_eq!((done[0].outcome, done[0].body()), (Ok(50_000), &bytes[..]), "{speed:?}");
        assert_eq!(done[0].hops, 1);
    }
}

fn many_in_flight(engine: &mut Engine, fixture: &Fixture) {
    let bytes = pattern(3, 16 * 4096);
    let written = file(fixture, "m");
    engine
        .submit(Verb::WriteAt { file: written, offset: 0, speed: Speed::Device }, request(&bytes));
    complete(engine, 1);
    let read = reopen(fixture, "m");
    for i in 0..16u64 {
        let mut one = request(&[0; 4096]);
        one.label.extent.start = i;
        let verb = Verb::ReadAt { file: read.clone(), offset: i * 4096, speed: Speed::Device };
        engine.submit(verb, one);
    }
    let mut done = complete(engine, 16);
    done.sort_by_key(|request| request.label.extent.start);
    for (i, request) in done.iter().enumerate() {
        assert_eq!(request.label.extent.start, i as u64, "each comes back once");
        assert_eq!(request.body(), &bytes[i * 4096..(i + 1) * 4096]);
    }
}

/// Three requests are announced, and two of them are always in flight: before a ring has registered
/// their buffers, during that, and afterwards.
fn goes_round(engine: &mut Engine, fixture: &Fixture) {
    const ROUNDS: u64 = 20;
    let mut pool = Request::several(3, BODY);
    engine.register(&mut pool);
    let written = file(fixture, "r");
    let mut done = Vec::new();
    for round in 0..ROUNDS {
        while pool.is_empty() {
            engine.reap(Wait::Completion, &mut pool).unwrap();
        }
        let mut one = pool.pop().unwrap();
        one.clear();
        one.label.body_len = 4096;
        one.body_mut().copy_from_slice(&pattern(round as u8, 4096));
        one.ask(HEADROOM_BYTES..HEADROOM_BYTES + 4096);
        let offset = round * 4096;
        engine.submit(Verb::WriteAt { file: written.clone(), offset, speed: Speed::Device }, one);
    }
    while pool.len() < 3 {
        engine.reap(Wait::Completion, &mut pool).unwrap();
    }
    let read = reopen(fixture, "r");
    for round in 0..ROUNDS {
        let mut one = pool.pop().unwrap();
        one.body_mut().fill(0);
        one.ask(HEADROOM_BYTES..HEADROOM_BYTES + 4096);
        let verb = Verb::ReadAt { file: read.clone(), offset: round * 4096, speed: Speed::Device };
        engine.submit(verb, one);
        done.append(&mut complete(engine, 1));
        assert_eq!(done[0].outcome, Ok(4096));
        assert_eq!(done[0].body(), pattern(round as u8, 4096), "round {round}");
        pool.append(&mut done);
    }
}

fn end_of_file(engine: &mut Engine, fixture: &Fixture) {
    let bytes = pattern(4, 1000);
    let written = file(fixture, "e");
    engine.submit(Verb::WriteAt { file: written, offset: 0, speed: Speed::Copy }, request(&bytes));
    complete(engine, 1);
    for (offset, expect) in [(0, 1000), (900, 100), (1000, 0), (5000, 0)] {
        for speed in SPEEDS {
            let verb = Verb::ReadAt { file: reopen(fixture, "e"), offset, speed };
            engine.submit(verb, request(&[0; 4000]));
            assert_eq!(complete(engine, 1)[0].outcome, Ok(expect), "at {offset}, {speed:?}");
        }
    }
}

fn bad_write(engine: &mut Engine, fixture: &Fixture) {
    if fixture._folder.is_none() {
        return; // a simulated handle has no mode; its errors are the two-host simulation's subject
    }
    file(fixture, "b");
    for speed in SPEEDS {
        let verb = Verb::WriteAt { file: reopen(fixture, "b"), offset: 0, speed };
        engine.submit(verb, request(&[1; 100]));
        assert_eq!(complete(engine, 1)[0].outcome, Err(libc::EBADF), "{speed:?}");
    }
}

fn holes(engine: &mut Engine, fixture: &Fixture) {
    for speed in SPEEDS {
        let mut bytes = pattern(9, 60_000);
        let written = file(fixture, "h");
        let verb = |offset| Verb::WriteAt { file: written.clone(), offset, speed };
        engine.submit(verb(0), request(&bytes));
        complete(engine, 1);
        // A stretch within the file, and one that reaches beyond its end.
        for stretch in [8192..40_000, 50_000..90_000] {
            fixture.volume.make_hole(&written, b"h", stretch.clone()).unwrap();
            bytes[stretch.start as usize..(stretch.end as usize).min(60_000)].fill(0);
        }
        let again = pattern(10, 5000);
        engine.submit(verb(20_000), request(&again));
        complete(engine, 1);
        bytes[20_000..25_000].copy_from_slice(&again);
        assert_eq!(fixture.volume.status_of(&written, b"h").unwrap().size, 60_000);
        let verb = Verb::ReadAt { file: reopen(fixture, "h"), offset: 0, speed };
        engine.submit(verb, request(&vec![1; 60_000]));
        assert_eq!(complete(engine, 1)[0].body(), bytes, "{speed:?}");
    }
}

fn counts_starts(engine: &mut Engine, fixture: &Fixture) {
    let file = file(fixture, "starts");
    let write = |at: u64| Verb::WriteAt { file: file.clone(), offset: at, speed: Speed::Device };
    let before = engine.counts.starts;
    for at in [0, 4096, 8192] {
        engine.submit(write(at), request(&pattern(1, 4096)));
    }
    complete(engine, 3);
    assert_eq!(engine.counts.starts - before, 1, "two found others in flight");
    engine.submit(write(0), request(&pattern(1, 4096)));
    complete(engine, 1);
    let (near, _far) = (fixture.connect)();
    engine.submit(Verb::Send { socket: near }, request(&pattern(1, 100)));
    complete(engine, 1);
    assert_eq!(engine.counts.starts - before, 2, "a socket is no device");
}

fn sends_and_receives(engine: &mut Engine, fixture: &Fixture) {
    let (near, far) = (fixture.connect)();
    let bytes = pattern(5, 10_000);
    let receive = |socket| Verb::Receive { socket, how: Receive::WaitAll, quick_ack: false };
    engine.submit(receive(far.clone()), request(&[0; 6000]));
    engine.submit(Verb::Send { socket: near }, request(&bytes));
    let mut done = complete(engine, 2);
    done.sort_by_key(|request| request.label.body_len);
    assert_eq!((done[0].outcome, done[0].body()), (Ok(6000), &bytes[..6000]));
    // What needs only a byte takes what is there.
    let mut any = request(&[0; 50_000]);
    any.need = 1;
    engine.submit(receive(far), any);
    let done = complete(engine, 1);
    let got = done[0].outcome.unwrap() as usize;
    assert!((1..=4000).contains(&got));
    assert_eq!(done[0].body()[..got], bytes[6000..6000 + got]);
}

fn gone_peer(engine: &mut Engine, fixture: &Fixture) {
    if fixture._folder.is_none() {
        return; // cutting a simulated connection is the world's business
    }
    let (near, far) = UnixStream::pair().unwrap();
    (&near).write_all(b"abcdef").unwrap();
    drop(near);
    let socket = Handle::new(OwnedFd::from(far));
    // A socket that is not TCP has no acknowledgements, and is read all the same.
    for (quick_ack, len, got) in [(true, 2, &b"ab"[..]), (false, 10, b"cdef"), (true, 1, b"")] {
        let verb = Verb::Receive { socket: socket.clone(), how: Receive::Any, quick_ack };
        engine.submit(verb, request(&vec![0; len]));
        let done = complete(engine, 1);
        let count = got.len() as u32;
        assert_eq!(
            (done[0].outcome, &done[0].body()[..got.len()]),
            (Ok(count), got),
            "{quick_ack}"
        );
    }
    drop(fixture.volume.free_bytes(b""));
}

fn batches(engine: &mut Engine, fixture: &Fixture) {
    let segment = |number: u64, len: u32, at: u32| Segment {
        object: number,
        volume: Some(fixture.volume.clone()),
        path: format!("s{number}").into_bytes(),
        len,
        at,
        meta: Metadata {
            mode: 0o600,
            mtime: Some(Mtime { seconds: 5, nanos: 6 }),
            ..Metadata::default()
        },
        sparse: false,
        new: None,
    };
    let batch = Arc::new(Batch { segments: vec![segment(0, 10, 0), segment(1, 4000, 10)] });
    for path in [b"s0", b"s1"] {
        fixture.volume.remove(path).unwrap();
    }
    let bytes = pattern(6, 4010);
    engine.submit(Verb::Scatter(batch.clone()), request(&bytes));
    let done = complete(engine, 1);
    assert!(done[0].outcome == Ok(4010) && done[0].voids.is_empty(), "{:?}", done[0].voids);
    engine.submit(Verb::Gather(batch.clone()), request(&[0; 4010]));
    assert_eq!(complete(engine, 1)[0].body(), bytes);
    // One that is gone is void, the other is there.
    fixture.volume.remove(b"s0").unwrap();
    engine.submit(Verb::Gather(batch), request(&[1; 4010]));
    let done = complete(engine, 1);
    assert_eq!(done[0].voids.iter().map(|(segment, _)| *segment).collect::<Vec<_>>(), [0]);
    assert_eq!(done[0].body()[10..], bytes[10..]);
}
