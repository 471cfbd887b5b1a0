//! Peers that send too much: the flooded side stays within its planned memory and 64 MiB, and ends
//! by itself.

use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::support::data::write_file;
use crate::support::liar::{self, file, settings};
use crate::support::speaker::{Speaker, Watched, honest_follower, watch};
use crate::support::{Scene, each};
use base::attributes::Attributes;
use base::codec::DecompressionTime;
use base::fault::{Class, Fault};
use base::job::Location;
use base::path::PathSample;
use base::settings::Settings;
use base::units::Nanos;
use mover::wire::manifest::{Entry, EntryKind};
use mover::wire::message::{Message, Origin, Role};

/// The role, and the message that is repeated.
type Flood = (Role, &'static str, fn(u64) -> Message);

const FLOODS: [Flood; 13] = [
    (Role::Source, "unoffered", |at| Message::Unoffered { path: name(at), fault: fault() }),
    (Role::Source, "warnings", |_| Message::Warning { text: "w".repeat(3000) }),
    (Role::Source, "pings", |_| Message::Ping),
    (Role::Source, "samples", samples),
    (Role::Source, "lost", |at| Message::Lost { stream: at as u32 % 60_000 }),
    (Role::Source, "doubt", |at| Message::Doubt { stream: at as u32 % 60_000 }),
    (Role::Source, "carried", |_| Message::Carried(vec![0x55; 60_000])),
    (Role::Source, "attributes", attributes),
    (Role::Sink, "warnings", |_| Message::Warning { text: "w".repeat(3000) }),
    (Role::Sink, "pings", |_| Message::Ping),
    (Role::Sink, "samples", samples),
    (Role::Sink, "the time of decompression", |_| {
        Message::DecompressionTime(DecompressionTime::default())
    }),
    (Role::Sink, "names", |at| Message::Names { paths: vec![name(at); 50], last: false }),
];

/// An honest near side, flooded by its far side.
#[test]
fn floods_end_within_bounded_memory() {
    each(FLOODS, |(role, name, message)| {
        let scene = Scene::new();
        fs::create_dir_all(scene.path("dst")).unwrap();
        write_file(&scene.path("src"), 1, 100_000);
        let (ways, origin) = match role {
            Role::Source => {
                let origin = Origin { single: false, endless: false };
                ("-A -r 127.0.0.1:/src/ @/dst", Some(origin))
            }
            Role::Sink => ("@/src 127.0.0.1:/dst", None),
        };
        let opened = liar::opened(origin);
        let (ran, watched) = liar::near_with(&scene, ways, opened, |speaker| {
            flood(speaker, *message);
        });
        let shown: String = ran.stderr.chars().take(500).collect();
        assert!(!ran.stderr.contains("panicked"), "{name}: {shown}");
        assert!(!ran.stderr.contains("Names {"), "{name}: what it said is told: {shown}");
        assert_bounded(&format!("{name} from a far {role:?}: {shown}"), ran.code, watched);
    });
}

/// An honest far side, flooded by its driver: with its data stream, and before it has one.
#[test]
fn floods_of_a_near_side_end_within_bounded_memory() {
    let early = FLOODS.into_iter().filter(|(_, name, _)| ["unoffered", "names"].contains(name));
    let cases = FLOODS.into_iter().map(|flood| (flood, true));
    each(cases.chain(early.map(|flood| (flood, false))), |((role, name, message), carries)| {
        let scene = Scene::new();
        fs::create_dir_all(scene.path("dst")).unwrap();
        write_file(&scene.path("src"), 1, 100_000);
        let mut far = honest_follower(&scene);
        let watched = watch(far.id().cast_signed());
        let (stdin, stdout) = (far.stdin.take().unwrap(), far.stdout.take().unwrap());
        let mut speaker = Speaker::driver(stdout, stdin);
        let place = scene.path(if *role == Role::Source { "dst" } else { "src" });
        let stall = Nanos::from_millis(2000);
        let settings = Settings { archive: *role == Role::Source, stall, ..settings() };
        match carries {
            true => speaker.open(role.other(), Location::Path(place), settings),
            false => drop(speaker.open_port(role.other(), Location::Path(place), settings)),
        }
        flood(&mut speaker, *message);
        let watched = watched.join().unwrap();
        let code = far.wait().unwrap().code().unwrap_or(-1);
        let carries = if *carries { "with" } else { "without" };
        assert_bounded(&format!("{name} from a near {role:?} {carries} data"), code, watched);
    });
}

fn assert_bounded(name: &str, code: i32, watched: Watched) {
    println!("{name}: {} MiB, code {code}", watched.memory_bytes_max >> 20);
    assert!(!watched.killed, "{name}: it does not end by itself");
    assert!([6, 7, 9].contains(&code), "{name}: exit code {code}");
    let memory = watched.memory_bytes_max;
    assert!(memory < PLANNED_BYTES + (64 << 20), "{name}: {memory} bytes");
}

/// Sends the message for some seconds, and then nothing useful.
fn flood(speaker: &mut Speaker, message: fn(u64) -> Message) {
    let (begun, mut at) = (Instant::now(), 0);
    while begun.elapsed() < FLOODED_FOR {
        let mut bytes = Vec::new();
        while bytes.len() < WRITE_BYTES {
            bytes.extend(message(at).encode());
            at += 1;
        }
        if !speaker.try_raw(&bytes) {
            break;
        }
    }
    speaker.raw(&[0; 4]);
}

fn name(at: u64) -> Vec<u8> {
    format!("{at}-{}", "n".repeat(1000)).into()
}

fn fault() -> Fault {
    Fault::new(Class::Local, "r".repeat(1000))
}

fn samples(at: u64) -> Message {
    let sample =
        |step| PathSample { at: base::units::Tick(at * 256 + step), ..PathSample::default() };
    Message::Samples { stream: at as u32 % 60_000, samples: (0..256).map(sample).collect() }
}

/// A file that never comes, a folder, and its final attributes, again and again.
fn attributes(at: u64) -> Message {
    let xattrs = vec![(b"user.x".to_vec(), vec![1; 32_000])];
    let entry = match at {
        0 => file("never", 100),
        1 => Entry { kind: EntryKind::Directory, mode: 0o755, ..file("d", 0) },
        _ => Entry {
            kind: EntryKind::Leave,
            mode: 0o755,
            attributes: Some(Arc::new(Attributes { xattrs, ..Attributes::default() })),
            ..file("d", 0)
        },
    };
    Message::Offer { first: at, entries: vec![entry] }
}

const FLOODED_FOR: Duration = Duration::from_secs(3);
const WRITE_BYTES: usize = 256 << 10;
/// What a side of one stream with requests of 64 KiB plans at least (its summary says how much).
const PLANNED_BYTES: u64 = 27 << 20;
