//! Malicious peers. The test itself speaks for each, once as the far side of an honest near one and
//! once as the near side of an honest far one: nothing outside the destination is touched, the
//! honest side ends within seconds with a reason, and uses no more memory than it may.

use crate::support;
use std::fs;
use std::io::Write;
use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use crate::support::data::{self, write_file};
use crate::support::liar::{self, Move, Stands, file, offer, offer_at, payload, play, settings};
use crate::support::speaker::{Speaker, Watched, end_frame, honest_follower, watch};
use crate::support::swapper::Swapper;
use crate::support::{PATIENCE, Scene, each, each_at_once, far};
use base::codec::Coding;
use base::extent::Extent;
use base::job::Location;
use base::label::{Kind, Label, MAP_CHECK_BYTES, MAPPED_BYTES_MAX, map_bytes};
use base::limits::STRANGERS_MAX;
use base::path::PathSample;
use base::settings::{Pace, Seal, Settings};
use base::units::{Nanos, Rate};
use mover::wire::frame;
use mover::wire::manifest::{ENDLESS_BYTES, Entry, EntryKind};
use mover::wire::message::{Message, Origin, Role, WantedRanges};
use mover::work::codec::Compressor;

/// How the honest side must end.
#[derive(Clone, Copy, Debug)]
enum Ends {
    /// A fault of the peer, which names it.
    Refused,
    /// One of these codes; a far side whose objects fail has done its work all the same.
    Code(&'static [i32]),
}

type Case = (&'static str, Vec<Move>, Ends);

/// The hostile peer has the source.
#[test]
fn sources_that_lie() {
    check(Role::Source, path_cases(), Scene::new);
    check(Role::Source, path_cases(), Scene::with_old_kernel);
    check(Role::Source, count_cases(), Scene::new);
    check(Role::Source, frame_cases(), Scene::new);
    check(Role::Source, packed_cases(), Scene::new);
    check(Role::Source, sparse_cases(), Scene::new);
    check(Role::Source, rubbish_cases(), Scene::new);
}

/// The hostile peer has the sink.
#[test]
fn sinks_that_lie() {
    check(Role::Sink, sink_cases(), Scene::new);
    check(Role::Sink, rubbish_cases(), Scene::new);
}

fn path_cases() -> Vec<Case> {
    let refused = |name, entry| (name, vec![offer(vec![entry])], Ends::Refused);
    let names: [(&'static str, Vec<u8>); 9] = [
        ("above", b"../x".to_vec()),
        ("absolute", b"/tmp/datapump-hostile".to_vec()),
        ("up and down", b"a/../../b".to_vec()),
        ("empty name", b"a//b".to_vec()),
        ("NUL", b"a\0b".to_vec()),
        ("too long", b"a/".repeat(2499)),
        ("a long name", vec![b'a'; 300]),
        ("no name", Vec::new()),
        ("itself", b".".to_vec()),
    ];
    let mut cases: Vec<Case> = Vec::new();
    for (name, path) in names {
        cases.push(refused(name, Entry { path: path.clone(), ..file("", 0) }));
        let twin = Entry { kind: EntryKind::HardLink, link_target: path, ..file("h", 0) };
        cases.push(refused(name, twin));
    }
    let through = |target: &str, path: &str| {
        let link = Entry { kind: EntryKind::Link, link_target: target.into(), ..file("d", 0) };
        let inner = if path == "hard" {
            Entry { kind: EntryKind::HardLink, link_target: b"d/canary".into(), ..file("h", 0) }
        } else {
            file(path, 3)
        };
        let frame = payload(0, b"bad");
        vec![offer(vec![link, inner]), Move::Hear(2), frame, Move::Finish(2)]
    };
    let codes = Ends::Code(&[1, 3, 9]);
    cases.push(("through a link out", through("OUTSIDE", "d/f"), codes));
    cases.push(("through a link up", through("..", "d/outside/f"), codes));
    cases.push(("a hard link through a link", through("OUTSIDE", "hard"), codes));
    let directory = Entry { kind: EntryKind::Directory, ..file("a", 0) };
    let both = vec![offer(vec![file("a", 0), directory.clone()]), Move::Hear(2), Move::Finish(2)];
    cases.push(("a directory where a file comes", both, codes));
    let below = vec![offer(vec![file("a", 0), file("a/b", 0)]), Move::Hear(2), Move::Finish(2)];
    cases.push(("a file below a file", below, codes));
    let twice = vec![file("a", 3), file("a", 3)];
    let twice = vec![offer(twice), Move::Hear(2), payload(0, b"onetwo"), Move::Finish(2)];
    cases.push(("the same path twice", twice, codes));
    cases
}

fn count_cases() -> Vec<Case> {
    let many = |count: usize| (0..count).map(|i| file(&format!("f{i}"), 1)).collect::<Vec<_>>();
    let mut beyond: Vec<Move> = (0..17)
        .map(|i| Move::Say(Message::Offer { first: i * 1000, entries: many(1000) }))
        .collect();
    beyond.push(Move::Hear(16_000));
    let huge = |size| vec![offer(vec![file("huge", size)])];
    let sums = vec![file("a", ENDLESS_BYTES - 1); 6];
    vec![
        ("an empty offer", vec![offer(Vec::new())], Ends::Refused),
        ("an offer out of order", vec![Move::Say(offer_at(5, many(1)))], Ends::Refused),
        ("an offer beyond the credit", beyond, Ends::Refused),
        ("a size past 2^62", huge(ENDLESS_BYTES), Ends::Refused),
        ("a size past 2^63", huge(1 << 63), Ends::Refused),
        ("a size that cannot fit", huge(ENDLESS_BYTES - 1), Ends::Code(&[5])),
        ("sizes past the address space", vec![offer(sums)], Ends::Code(&[2, 5, 9])),
        ("a list that is longer than it may be", vec![envelope(6, &[0xff; 10])], Ends::Refused),
        ("a list that ends early", vec![envelope(6, &list(1000, &[]))], Ends::Refused),
        ("a field that ends early", vec![envelope(6, &list(1, &[1, 0, 9]))], Ends::Refused),
        ("a second end of offers", vec![offer_end(0), offer_end(0)], Ends::Refused),
        ("an end that does not fit", vec![offer_end(7)], Ends::Refused),
        ("an unknown kind of object", vec![envelope(6, &list(1, &[99; 80]))], Ends::Refused),
        ("the end of a pipe that is none", vec![pipe_end(5)], Ends::Refused),
    ]
}

fn frame_cases() -> Vec<Case> {
    let offered = |frames: Vec<Move>| {
        let mut moves = vec![offer(vec![file("a", 3)]), Move::Hear(1)];
        moves.extend(frames);
        moves
    };
    let with = |change: fn(&mut Label)| {
        let Move::Frame(mut label, body) = payload(0, b"abc") else { unreachable!() };
        change(&mut label);
        offered(vec![Move::Frame(label, body)])
    };
    let header = |at: usize, value: u8| {
        let Move::Frame(label, body) = payload(0, b"abc") else { unreachable!() };
        let mut bytes = frame::encode(&label);
        bytes[at] = value;
        let sum = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, &bytes[..60]) as u32;
        bytes[60..].copy_from_slice(&sum.to_le_bytes());
        let bytes = [&bytes[..], &body].concat();
        offered(vec![Move::Say(Message::Carried(bytes))])
    };
    let corrupt = {
        let mut bytes = frame::encode(&Label::default()).to_vec();
        bytes[60] ^= 1;
        offered(vec![Move::Say(Message::Carried(bytes))])
    };
    let missing = offered(vec![payload(0, b"abc"), Move::Frame(end_frame(2), Vec::new())]);
    let digested = {
        let Move::Frame(mut label, body) = payload(0, b"abc") else { unreachable!() };
        (label.body_len, label.digests_len) = (3 + 32, 32);
        offered(vec![Move::Frame(label, [body, vec![0; 32]].concat())])
    };
    let early = offered(vec![Move::Frame(end_frame(0), Vec::new())]);
    vec![
        ("a frame never asked for", offered(vec![payload(1 << 20, b"abc")]), Ends::Refused),
        ("digests that were not asked for", digested, Ends::Refused),
        ("a frame twice", offered(vec![payload(0, b"abc"), payload(0, b"abc")]), Ends::Refused),
        ("a frame that is too short", offered(vec![payload(0, b"ab")]), Ends::Refused),
        ("a frame that is too long", offered(vec![payload(0, b"abcd")]), Ends::Refused),
        ("a frame beside its place", offered(vec![payload(1, b"abc")]), Ends::Refused),
        ("an extent that leaves the space", with(|l| l.extent.start = u64::MAX), Ends::Refused),
        ("a body longer than a request", with(|l| l.body_len = u32::MAX), Ends::Refused),
        ("a void list longer than a body", with(|l| l.voids_len = 9), Ends::Refused),
        ("an unknown kind of frame", header(4, 9), Ends::Refused),
        ("a codec that nobody has", header(5, 1), Ends::Refused),
        ("reserved bytes", header(57, 1), Ends::Refused),
        ("a header with a wrong sum", corrupt, Ends::Code(&[6])),
        ("an end that counts more frames than came", missing, Ends::Code(&[6])),
        ("an end that comes early", early, Ends::Refused),
        ("no frame at all", offered(vec![Move::Say(carried(&[0x55; 200]))]), Ends::Code(&[6])),
    ]
}

/// Payloads with a wrong map of holes: zeros are missing, or the length is not what was offered.
fn sparse_cases() -> Vec<Case> {
    const LEN: u32 = 60_000;
    const BLOCK: usize = 4096;
    let sent = |entry: Entry, map: [u8; 2], blocks: usize| {
        let extent = Extent { start: 0, len: LEN };
        let body = [&vec![7; blocks * BLOCK][..], &frame::crc32c(&map).to_le_bytes(), &map];
        let body = body.concat();
        let label = Label {
            kind: Kind::Sparse,
            extent,
            body_len: body.len() as u32,
            voids_len: 6,
            ..Label::default()
        };
        vec![offer(vec![entry]), Move::Hear(1), Move::Frame(label, body)]
    };
    let holed = || Entry { sparse: true, ..file("a", LEN.into()) };
    let long_map = {
        let len = MAPPED_BYTES_MAX + 1;
        let map = vec![0; map_bytes(len) as usize - MAP_CHECK_BYTES as usize];
        let body = [&frame::crc32c(&map).to_le_bytes(), &map[..]].concat();
        let label = Label {
            kind: Kind::Sparse,
            extent: Extent { start: 0, len },
            body_len: body.len() as u32,
            voids_len: body.len() as u16,
            ..Label::default()
        };
        let entry = Entry { sparse: true, ..file("a", len.into()) };
        vec![offer(vec![entry]), Move::Hear(1), Move::Frame(label, body)]
    };
    let dense = || file("a", LEN.into());
    vec![
        ("holes in a file without holes", sent(dense(), [3, 0], 2), Ends::Refused),
        ("a map of more than came", sent(holed(), [7, 0], 2), Ends::Refused),
        ("a map of less than came", sent(holed(), [1, 0], 2), Ends::Refused),
        ("a map beyond the extent", sent(holed(), [1, 0x80], 2), Ends::Refused),
        ("more than the extent", sent(holed(), [0xff, 0x7f], 15), Ends::Refused),
        ("a map longer than a block", long_map, Ends::Refused),
        (
            "a wrong map length",
            {
                let mut moves = sent(holed(), [3, 0], 2);
                let Some(Move::Frame(label, _)) = moves.last_mut() else { unreachable!() };
                label.voids_len = 5;
                moves
            },
            Ends::Refused,
        ),
        (
            "a map that was damaged",
            {
                let mut moves = sent(holed(), [3, 0], 2);
                let Some(Move::Frame(_, body)) = moves.last_mut() else { unreachable!() };
                *body.last_mut().unwrap() ^= 1;
                moves
            },
            Ends::Code(&[6]),
        ),
    ]
}

/// Compressed payloads of another size than their header says. Nothing is decompressed that would
/// take more memory than a request.
fn packed_cases() -> Vec<Case> {
    const LEN: u32 = 60_000;
    let sent = |len: u32, coding: Coding, raw: &[u8]| {
        vec![offer(vec![file("a", LEN.into())]), Move::Hear(1), compressed(len, coding, raw)]
    };
    let bomb = |coding| sent(LEN, coding, &vec![0; 16 << 20]);
    let wrong_sum = {
        let Move::Frame(mut label, body) = compressed(LEN, Coding::Zstd(1), &[0; LEN as usize])
        else {
            unreachable!()
        };
        label.compressed_check ^= 1;
        vec![offer(vec![file("a", LEN.into())]), Move::Hear(1), Move::Frame(label, body)]
    };
    vec![
        ("a bomb of DEFLATE", bomb(Coding::Zlib(9)), Ends::Refused),
        ("a bomb of Zstandard", bomb(Coding::Zstd(19)), Ends::Refused),
        ("a bomb of LZ4", bomb(Coding::Lz4), Ends::Refused),
        ("a byte too few", sent(LEN, Coding::Zstd(1), &[7; LEN as usize - 1]), Ends::Refused),
        ("a byte too many", sent(LEN, Coding::Lz4, &[7; LEN as usize + 1]), Ends::Refused),
        ("more than a request", sent(u32::MAX, Coding::Zlib(1), &[7; 5000]), Ends::Refused),
        (
            "a compressed frame beside its place",
            sent(LEN - 1, Coding::Lz4, &[7; 59_999]),
            Ends::Refused,
        ),
        ("a compressed frame with a wrong sum", wrong_sum, Ends::Code(&[6])),
    ]
}

fn rubbish_cases() -> Vec<Case> {
    let pings = vec![Move::Raw(Message::Ping.encode().repeat(300_000)), Move::Raw(vec![0; 4])];
    let spoken = Message::Stop(base::fault::Fault::peer("\u{1b}[31mred\u{7}"));
    vec![
        ("an empty envelope", vec![Move::Raw(vec![0; 4])], Ends::Refused),
        ("an envelope of 4 GB", vec![Move::Raw(vec![0xff; 4])], Ends::Refused),
        ("an unknown message", vec![envelope(99, &[])], Ends::Refused),
        ("bytes behind a message", vec![envelope(17, &[1])], Ends::Refused),
        ("a second greeting", vec![Move::Say(support::speaker::hello())], Ends::Refused),
        ("noise", vec![Move::Raw(data::bytes(3, 100_000))], Ends::Refused),
        ("a flood, then nothing sensible", pings, Ends::Refused),
        ("samples of a stream that never was", vec![samples_of(65_536)], Ends::Refused),
        ("words that would paint a terminal", vec![Move::Say(spoken)], Ends::Refused),
    ]
}

fn samples_of(stream: u32) -> Move {
    Move::Say(Message::Samples { stream, samples: vec![PathSample::default()] })
}

fn sink_cases() -> Vec<Case> {
    let want = |first, wanted: Vec<WantedRanges>| Move::Say(Message::Want { first, wanted });
    let finished = |objects: &[u64]| {
        let objects = objects.iter().map(|number| (*number, None)).collect();
        Move::Say(Message::Finished { objects })
    };
    let ack = |start, end| Move::Say(Message::Ack { ranges: vec![(start, end)], bytes: 1 });
    let then = |moves: &[Move]| {
        let mut all = vec![Move::Hear(2)];
        all.extend_from_slice(moves);
        all
    };
    let all = vec![WantedRanges::All; 2];
    let rest = |held: &[(u64, u64)]| {
        then(&[want(0, vec![WantedRanges::Rest(held.to_vec()), WantedRanges::Rest(held.to_vec())])])
    };
    vec![
        ("an answer to nothing", vec![want(0, vec![WantedRanges::All; 1000])], Ends::Refused),
        ("an answer out of order", then(&[want(1, vec![WantedRanges::All])]), Ends::Refused),
        ("an answer to too many", then(&[want(0, vec![WantedRanges::All; 30])]), Ends::Refused),
        ("an answer twice", then(&[want(0, all.clone()), want(0, all.clone())]), Ends::Refused),
        ("finished twice", then(&[want(0, all.clone()), finished(&[0, 0, 0])]), Ends::Refused),
        ("finished, never offered", then(&[finished(&[77])]), Ends::Refused),
        ("an empty acknowledgement", then(&[want(0, all.clone()), ack(5, 5)]), Ends::Refused),
        ("an acknowledgement of nothing sent", then(&[ack(1 << 40, 2 << 40)]), Ends::Refused),
        ("more held than there is", rest(&[(0, 1 << 40)]), Ends::Refused),
        ("held out of order", rest(&[(65_536, 70_000), (0, 65_536)]), Ends::Refused),
        ("held twice over", rest(&[(0, 65_536), (1000, 70_000)]), Ends::Refused),
        ("an offer by a sink", then(&[offer(vec![file("x", 1)])]), Ends::Refused),
    ]
}

fn check(role: Role, cases: Vec<Case>, scene: fn() -> Scene) {
    let cases = cases.iter().flat_map(|case| [(Stands::Near, case), (Stands::Far, case)]);
    each_at_once(&cases.collect::<Vec<_>>(), |(place, (name, moves, ends))| {
        let scene = scene();
        fs::create_dir_all(scene.path("outside")).unwrap();
        fs::create_dir_all(scene.path("dst")).unwrap();
        fs::create_dir_all(scene.path("src")).unwrap();
        write_file(&scene.path("outside/canary"), 1, 1000);
        write_file(&scene.path("src/one"), 2, 100_000);
        write_file(&scene.path("src/two"), 3, 200);
        let before = look(&scene.path("outside"));
        let (code, said, watched) = match place {
            Stands::Near => against_far(&scene, role, moves),
            Stands::Far => against_near(&scene, role, moves),
        };
        assert!(!watched.killed, "{name}: it does not end by itself: {said}");
        assert!(!said.contains("panicked"), "{name}: {said}");
        let paints = said.contains('\u{1b}') || said.contains('\u{7}');
        assert!(matches!(place, Stands::Near) || !paints, "{name}: {said:?}");
        let may = match (ends, place) {
            (Ends::Refused, _) => code == 9,
            (Ends::Code(codes), Stands::Far) => codes.contains(&code),
            // A driver that never says its last word is waited for as long as a stall.
            (Ends::Code(codes), Stands::Near) => [0, 7].contains(&code) || codes.contains(&code),
        };
        assert!(may, "{name}: exit code {code}: {said}");
        assert!(watched.memory_bytes_max < MEMORY_BYTES_MAX, "{name}: {watched:?}");
        assert_eq!(look(&scene.path("outside")), before, "{name}: outside was touched");
        let canary = fs::metadata(scene.path("outside/canary")).unwrap();
        assert_eq!(canary.nlink(), 1, "{name}: the canary got another name");
    });
}

/// An honest `datapump peer`.
fn against_far(scene: &Scene, role: Role, moves: &[Move]) -> (i32, String, Watched) {
    let mut honest = honest_follower(scene);
    let watched = watch(honest.id().cast_signed());
    let (stdin, stdout) = (honest.stdin.take().unwrap(), honest.stdout.take().unwrap());
    let mut speaker = Speaker::driver(stdout, stdin);
    let place = match role {
        Role::Source => scene.path("dst"),
        Role::Sink => scene.path("src/"),
    };
    speaker.open(role.other(), Location::Path(place), settings());
    let said = play(&mut speaker, scene, moves, Stands::Near);
    let watched = watched.join().unwrap();
    (honest.wait().unwrap().code().unwrap_or(-1), said, watched)
}

/// An honest `datapump copy`, whose ssh leads to this test.
fn against_near(scene: &Scene, role: Role, moves: &[Move]) -> (i32, String, Watched) {
    let codings = match role {
        Role::Source => "-r 127.0.0.1:/src/ @/dst",
        Role::Sink => "-r @/src/ 127.0.0.1:/dst",
    };
    let origin = Origin { single: false, endless: false };
    let origin = (role == Role::Source).then_some(origin);
    let (ran, watched) = liar::against_near(scene, codings, origin, moves);
    (ran.code, ran.stderr, watched)
}

/// A driver that asks for what no command line can express.
#[test]
fn requests_that_cannot_be() {
    type Change = fn(&mut Settings);
    let null = Location::Null { len: 100 };
    let places = [
        vec![Location::Path("src/one".into()), null.clone()],
        vec![null.clone(), null.clone()],
        vec![Location::Stdio, null.clone()],
        vec![Location::Path("src/one".into()), Location::Endless],
    ];
    let changes: [(&str, Change); 10] = [
        ("silence is never too long", |s| s.stall = Nanos(u64::MAX)),
        ("silence is too long at once", |s| s.stall = Nanos(0)),
        ("no stream", |s| s.streams = 0),
        ("many streams", |s| s.streams = u16::MAX),
        ("requests of nothing", |s| s.request_bytes = 0),
        ("requests of 4 GB", |s| s.request_bytes = !4095),
        ("no memory", |s| s.memory_bytes = 0),
        ("a window of nothing", |s| s.window_bytes = Some(0)),
        ("many requests at once", |s| s.depth_source = Some(u16::MAX)),
        ("no rate", |s| s.pace = Pace::Fixed(Rate { bytes_per_second: f64::NAN })),
    ];
    let as_they_are: Change = |_| {};
    let cases = places.map(|places| ("places", places, as_they_are)).into_iter();
    let cases = cases.chain(changes.map(|(name, change)| (name, vec![null.clone()], change)));
    each(cases, |(name, places, change)| {
        let scene = Scene::new();
        let mut honest = honest_follower(&scene);
        let watched = watch(honest.id().cast_signed());
        let (stdin, stdout) = (honest.stdin.take().unwrap(), honest.stdout.take().unwrap());
        let mut speaker = Speaker::driver(stdout, stdin);
        let mut asked = settings();
        change(&mut asked);
        speaker.ask(Role::Source, places.clone(), asked);
        let said = speaker.hear();
        let about = format!("{name} {places:?}");
        assert!(matches!(said, Some(Message::Stop(_))), "{about}: {said:?}");
        assert_eq!(honest.wait().unwrap().code(), Some(9), "{about}");
        assert!(!watched.join().unwrap().killed, "{about}");
    });
}

/// Every name in a folder, with what an unsafe writer would change.
fn look(folder: &Path) -> Vec<(String, u64, i64, u32)> {
    let files = data::files_below(folder);
    let line = |path: &std::path::PathBuf| {
        let meta = fs::symlink_metadata(path).unwrap();
        (path.display().to_string(), meta.len(), meta.mtime_nsec(), meta.mode())
    };
    files.iter().map(line).collect()
}

/// While a tree is copied, another user with rights in the destination replaces one of its folders
/// by a link to another folder and back, as fast as possible.
#[test]
fn folders_that_become_links() {
    // An old kernel is played on this host only.
    each([("", false), ("far:", false), ("", true)], |(host, has_old_kernel)| {
        let scene = if *has_old_kernel { Scene::with_old_kernel() } else { Scene::new() };
        for folder in ["src/d/e", "dst/d/e", "outside/e"] {
            fs::create_dir_all(scene.path(folder)).unwrap();
        }
        for i in 0..1500 {
            write_file(&scene.path(format!("src/d/e/f{i}")), i, 100 + i as usize);
        }
        write_file(&scene.path("outside/e/f7"), 1, 1000);
        std::os::unix::fs::symlink(scene.path("outside"), scene.path("dst/link")).unwrap();
        let before = look(&scene.path("outside"));
        let swapper = Swapper::start(scene.path("dst/d"), scene.path("dst/link"));
        let begun = Instant::now();
        let mut failures = 0;
        // As long as it takes for copies to meet some swaps.
        while swapper.swaps() < SWAPS || failures < MET {
            let has = format!("{} swaps, {failures} copies met one", swapper.swaps());
            assert!(begun.elapsed() < PATIENCE, "{has}: no race");
            let options = "--overwrite always --fsync off";
            let line = format!("copy -r {options} @/src/ {host}@/dst");
            let ran = scene.run(&line);
            failures += u64::from(ran.code != 0);
            assert!(!ran.stderr.contains("panicked"), "{ran}");
            assert_eq!(look(&scene.path("outside")), before, "outside was touched\n{ran}");
        }
        swapper.stop();
    });
}

/// Many strangers, silent, slow or noisy: the data port stays usable for the transfer.
#[test]
fn thousands_of_strangers() {
    each(["tls", "auth"], |seal| {
        let scene = Scene::new();
        write_file(&scene.path("in"), 4, 8 << 20);
        let port = far::closed_port();
        let stop = Arc::new(AtomicBool::new(false));
        let strangers: Vec<_> = (0..4)
            .map(|kind| {
                let stop = stop.clone();
                thread::spawn(move || pester(kind, port, &stop))
            })
            .collect();
        let options = format!("--seal {seal} --ports {port}-{port} --rate 16Mbit");
        let begun = Instant::now();
        let ran = scene.run(&format!("copy {options} @/in far:@/out"));
        stop.store(true, SeqCst);
        let met: u64 = strangers.into_iter().map(|thread| thread.join().unwrap()).sum();
        assert_eq!(ran.code, 0, "{options}\n{ran}");
        data::assert_same(&scene.path("in"), &scene.path("out"));
        println!("{seal}: {met} connections of strangers in {:?}", begun.elapsed());
    });
}

/// A silent stranger holds a place for a bounded time, and the number of places is bounded.
#[test]
fn silent_strangers_are_few_and_go() {
    besiege(|pid, connect| {
        let silent: Vec<TcpStream> = (0..3000).map(|_| connect()).collect();
        let descriptors = || fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count();
        // A connection beyond the limit is accepted only to be closed.
        let most = STRANGERS_MAX + DESCRIPTORS_OF_ITS_OWN;
        support::until("all of them go", || {
            let held = descriptors();
            assert!(held <= most, "{held} descriptors: strangers are listened to");
            open_of(&silent) == 0
        });
    });
}

/// The same for a stranger that sends a valid handshake, two bytes a second.
#[test]
fn slow_strangers_go() {
    besiege(|_, connect| {
        let mut slow: Vec<TcpStream> = (0..4).map(|_| connect()).collect();
        // It takes more than a minute to say all of this.
        let words = [&b"DPS1"[..], &[0; 36], &[22, 3, 1, 2, 0], &[1; 100]].concat();
        for byte in words {
            slow.iter_mut().for_each(|stranger| drop(stranger.write_all(&[byte])));
            thread::sleep(Duration::from_millis(500));
            if open_of(&slow) == 0 {
                return;
            }
        }
        panic!("they are listened to until they have said everything");
    });
}

/// An honest far side that waits for its streams, and a function that connects to its data port.
fn besiege(attack: impl FnOnce(u32, &dyn Fn() -> TcpStream)) {
    let scene = Scene::new();
    fs::create_dir(scene.path("dst")).unwrap();
    let mut honest = honest_follower(&scene);
    let watched = watch(honest.id().cast_signed());
    let (stdin, stdout) = (honest.stdin.take().unwrap(), honest.stdout.take().unwrap());
    let mut speaker = Speaker::driver(stdout, stdin);
    // It is to be there as long as the attack, during which its near side says nothing.
    let settings = Settings { seal: Seal::Tls, stall: Nanos::from_millis(120_000), ..settings() };
    let port = speaker.open_port(Role::Sink, Location::Path(scene.path("dst")), settings);
    attack(honest.id(), &|| {
        let stranger = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
        stranger.set_nonblocking(true).unwrap();
        stranger
    });
    drop(speaker);
    let watched = watched.join().unwrap();
    honest.wait().unwrap();
    assert!(!watched.killed && watched.memory_bytes_max < MEMORY_BYTES_MAX, "{watched:?}");
}

fn open_of(strangers: &[TcpStream]) -> usize {
    strangers.iter().filter(|stranger| is_open(stranger)).count()
}

/// False where the other side has closed it.
fn is_open(stranger: &TcpStream) -> bool {
    let mut byte = [0];
    match stranger.peek(&mut byte) {
        Ok(count) => count > 0,
        Err(why) => why.kind() == std::io::ErrorKind::WouldBlock,
    }
}

/// Connects repeatedly and misbehaves in one of four ways; returns how often it was accepted.
fn pester(kind: u64, port: u16, stop: &AtomicBool) -> u64 {
    let mut met = 0;
    let mut held = Vec::new();
    while !stop.load(SeqCst) {
        let Ok(mut stranger) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)) else {
            thread::sleep(Duration::from_millis(1));
            continue;
        };
        met += 1;
        match kind {
            0 => {}
            1 => drop(stranger.write_all(&data::bytes(met, 5000))),
            // Nothing, or one byte: and the connection is kept.
            2 => held.push(stranger),
            _ => {
                let _ = stranger.write_all(b"D");
                held.push(stranger);
            }
        }
        if held.len() > STRANGERS_HELD {
            held.remove(0);
        }
    }
    met
}

fn offer_end(objects: u64) -> Move {
    Move::Say(Message::OfferEnd { objects, bytes: 0 })
}

fn pipe_end(bytes: u64) -> Move {
    Move::Say(Message::PipeEnd { bytes })
}

fn carried(bytes: &[u8]) -> Message {
    Message::Carried(bytes.to_vec())
}

/// `raw` compressed, with a header that claims this length.
fn compressed(len: u32, coding: Coding, raw: &[u8]) -> Move {
    let body = Compressor::new(raw.len() as u32).compress(coding, raw).unwrap().to_vec();
    let label = Label {
        kind: Kind::Data,
        extent: Extent { start: 0, len },
        body_len: body.len() as u32,
        codec: coding.codec(),
        compressed_check: frame::crc32c(&body),
        ..Label::default()
    };
    Move::Frame(label, body)
}

/// A message that no honest program could encode.
fn envelope(code: u8, fields: &[u8]) -> Move {
    let mut bytes = (fields.len() as u32 + 1).to_le_bytes().to_vec();
    bytes.push(code);
    bytes.extend_from_slice(fields);
    Move::Raw(bytes)
}

/// The beginning of an offer that announces so many entries.
fn list(count: u16, rest: &[u8]) -> Vec<u8> {
    [&0_u64.to_le_bytes()[..], &count.to_le_bytes(), rest].concat()
}

const SWAPS: u64 = 2000;
const MET: u64 = 3;
/// What a far side has open beside strangers; most of 3000 would be more.
const DESCRIPTORS_OF_ITS_OWN: usize = 64;
const STRANGERS_HELD: usize = 200;
const MEMORY_BYTES_MAX: u64 = 300 << 20;
