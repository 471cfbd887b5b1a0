//! What has arrived is not sent again: runs that are interrupted and resumed, repeatedly.

use crate::support;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;

use crate::support::relay::{Relay, Toward, Trouble, What};
use crate::support::run::{self, Ran, Running};
use crate::support::{Scene, data, each, processes};
use base::settings::DigestKind;
use mover::pump::sink::journal::{Held, Partial, Record, Replay};
use mover::work::digest::nodes_of;
use rustix::process::Signal;

const WAYS: [&str; 3] = ["local", "push", "pull"];

/// Which process is interrupted, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Blow {
    Near(Signal),
    /// The near side logs in again, and goes on.
    FarKilled,
}

/// A run that is stopped after its n-th line of the journal, or before the first, keeps all that
/// was here when it began.
#[test]
fn what_has_arrived_stays() {
    each(WAYS, |way| {
        let scene = Scene::new();
        data::write_file(&scene.path("in"), 1, 20 << 20);
        fs::create_dir(scene.path("dst")).unwrap();
        let blows = [
            Blow::Near(Signal::INT),
            Blow::Near(Signal::TERM),
            Blow::Near(Signal::KILL),
            Blow::FarKilled,
        ];
        let blows = blows.iter().filter(|blow| *way != "local" || **blow != Blow::FarKilled);
        // What could be lost.
        let first = start(&scene, way, "--rate 2MB");
        end_by(&scene, first, Blow::Near(Signal::KILL), 1);
        let mut here = Here::of(&scene);
        assert!(here.bytes() > 0, "{way}: nothing has been journaled");
        for flushes in 0..2 {
            for blow in blows.clone() {
                let running = start(&scene, way, "--rate 400KB");
                end_by(&scene, running, *blow, flushes);
                let now = Here::of(&scene);
                let (was, is) = (here.bytes(), now.bytes());
                assert!(is >= was, "{way}, {blow:?} behind {flushes} flushes: {was} -> {is} bytes");
                here = now;
            }
        }
        goes_on(&scene, way, "", here.bytes());
    });
}

/// The same before anything has arrived: the streams exist, and drop all.
#[test]
fn what_has_arrived_stays_where_nothing_comes() {
    let signals = [Signal::INT, Signal::TERM];
    let cases = ["push", "pull"].into_iter().flat_map(|way| signals.map(|signal| (way, signal)));
    each(cases, |(way, signal)| {
        let scene = Scene::new();
        data::write_file(&scene.path("in"), 1, 8 << 20);
        fs::create_dir(scene.path("dst")).unwrap();
        let begin = |relay: &Relay, options: &str| {
            let ends = match *way {
                "push" => "@/in 127.0.0.1:@/dst/out",
                _ => "127.0.0.1:@/in @/dst/out",
            };
            let ssh = relay.ssh.display();
            let always = "copy --json --interval 0.1 --seal auth --request-size 64K --stall 60s";
            let words = scene.words(&format!("{always} {options} --ssh {ssh} {ends}"));
            run::start(scene.command(&words))
        };
        let relay = Relay::start(&scene, Vec::new());
        end_by(&scene, begin(&relay, "--rate 2MB"), Blow::Near(Signal::KILL), 1);
        let here = Here::of(&scene).bytes();
        assert!(here > 0, "{way}: nothing has been journaled");
        drop(relay);
        fs::remove_file(scene.path("relay")).unwrap();
        let swallow =
            |toward| Trouble { connection: None, toward, at_byte: 5000, what: What::Stall };
        let relay = Relay::start(&scene, [Toward::Far, Toward::Near].map(swallow).to_vec());
        end_by(&scene, begin(&relay, ""), Blow::Near(*signal), 0);
        let now = Here::of(&scene).bytes();
        assert!(now >= here, "{way}, {signal:?}: {here} -> {now} bytes");
        assert!(part_of(&scene).exists(), "{way}, {signal:?}: the part is gone");
    });
}

/// What the near side reports as not sent is exactly what was here when it began.
#[test]
fn what_was_sent_before_a_new_login_is_not_resumed() {
    each(["push", "pull"], |way| {
        let scene = Scene::new();
        data::write_file(&scene.path("in"), 1, 8 << 20);
        fs::create_dir(scene.path("dst")).unwrap();
        end_by(&scene, start(&scene, way, "--rate 2MB"), Blow::Near(Signal::KILL), 1);
        let here = Here::of(&scene).bytes();
        let running = start(&scene, way, "--rate 2MB");
        let running = strike(&scene, running, Blow::FarKilled, 1).expect("it goes on");
        let ran = running.end();
        assert_eq!(ran.code, 0, "{way}\n{ran}");
        assert_eq!(resumed_bytes(&ran), here, "{way}\n{ran}");
        data::assert_same(&scene.path("in"), &scene.path("dst/out"));
        scene.assert_holds("dst", &["out"]);
    });
}

/// A file with more extents than one message holds is resumed, in a new run and within one.
#[test]
fn thousands_of_stretches() {
    each(WAYS, |way| {
        let scene = scattered(way, 12_000);
        let here = Here::of(&scene);
        assert_eq!(here.stretches(), 6000, "{way}");
        if *way != "local" {
            // A slow machine has 20 s until a thousand stretches are gone.
            let running = start(&scene, way, "--request-size 4K --rate 200KB");
            let running = strike(&scene, running, Blow::FarKilled, 1).expect("it goes on");
            end_by(&scene, running, Blow::Near(Signal::INT), 1);
            assert!(Here::of(&scene).stretches() > 5000, "{way}: few stretches are left to test");
        }
        let now = Here::of(&scene).bytes();
        assert!(now >= here.bytes(), "{way}: {} -> {now}", here.bytes());
        goes_on(&scene, way, "--request-size 4K", now);
    });
}

/// With another request size or digest than the interrupted run.
#[test]
fn with_other_options() {
    let cases = [
        ("--request-size 64K", "--request-size 96K", "requests of 64 KiB"),
        ("--request-size 96K", "--request-size 64K", "requests of 96 KiB"),
        ("--request-size 64K", "--request-size 16M", "requests of 64 KiB"),
        ("--digest crc64", "--digest blake3", ""),
        ("--digest none", "--digest blake3", ""),
        ("--digest blake3", "--digest none", "--digest blake3"),
    ];
    let cases = ["push", "pull"].into_iter().flat_map(|way| cases.iter().map(move |c| (way, c)));
    each(cases, |(way, (first, second, said))| {
        let scene = Scene::new();
        data::write_file(&scene.path("in"), 1, 8 << 20);
        fs::create_dir(scene.path("dst")).unwrap();
        let options = format!("--rate 2MB {first}");
        end_by(&scene, start(&scene, way, &options), Blow::Near(Signal::INT), 1);
        let here = Here::of(&scene);
        let sure = match *first {
            // What was not flushed cannot be read back and compared.
            "--digest none" => here.flushed_bytes(),
            _ => here.bytes(),
        };
        let ran = goes_on(&scene, way, second, sure);
        let words = format!("{}{}", ran.stdout_text(), ran.stderr);
        // If the other requests happen to end at the same places, there is no change.
        let size = second.strip_prefix("--request-size ").map_or(0, kib_or_mib);
        let changes = size == 0 || !here.fits(size);
        assert!(!changes || words.contains(said), "{said} is not said\n{ran}");
    });
}

/// A different file under the name of a partial one is not resumed, and its content goes nowhere.
#[test]
fn another_file_under_the_name() {
    type Change = fn(&PathBuf);
    let cases: [(&str, Change); 3] = [
        ("another file", |part| {
            let len = fs::metadata(part).unwrap().len();
            let other = part.with_extension("other");
            fs::write(&other, vec![7; len as usize]).unwrap();
            fs::rename(other, part).unwrap();
        }),
        ("another name of it", |part| fs::hard_link(part, part.with_extension("held")).unwrap()),
        ("longer than it can be", |part| {
            File::options().append(true).open(part).unwrap().set_len(9 << 20).unwrap();
        }),
    ];
    each(cases, |(name, change)| {
        let scene = Scene::new();
        data::write_file(&scene.path("in"), 1, 8 << 20);
        fs::create_dir(scene.path("dst")).unwrap();
        end_by(&scene, start(&scene, "push", "--rate 2MB"), Blow::Near(Signal::INT), 1);
        change(&part_of(&scene));
        let ran = goes_on_with(&scene, "push", "");
        assert_eq!(resumed_bytes(&ran), 0, "{name}\n{ran}");
        let words = format!("{}{}", ran.stdout_text(), ran.stderr);
        assert!(words.contains("begins anew"), "{name}: nothing is said\n{ran}");
        data::assert_same(&scene.path("in"), &scene.path("dst/out"));
    });
}

/// A source that has changed, and bytes that are not as they were written: what is lost is
/// reported, and the rest is kept.
#[test]
fn what_is_given_up_is_said() {
    let cases = [("the source", "begins anew"), ("a byte of the part", "sent again")];
    each(cases, |(what, said)| {
        let scene = scattered("push", 1000);
        let here = Here::of(&scene);
        let expect = match *what {
            "the source" => {
                data::write_file(&scene.path("in"), 2, 1000 * 4096);
                0
            }
            _ => {
                let part = File::options().write(true).open(part_of(&scene)).unwrap();
                part.write_all_at(b"x", 100 * 4096).unwrap();
                unflush(&scene);
                here.bytes() - 4096
            }
        };
        let ran = goes_on_with(&scene, "push", "--request-size 4K");
        assert_eq!(resumed_bytes(&ran), expect, "{what}\n{ran}");
        let words = format!("{}{}", ran.stdout_text(), ran.stderr);
        assert!(words.contains(said), "{what}: nothing is said\n{ran}");
        data::assert_same(&scene.path("in"), &scene.path("dst/out"));
        scene.assert_holds("dst", &["out"]);
    });
}

/// What a later run does not ask for: removed if its source is gone, kept if it was left out.
#[test]
fn what_nobody_asks_for() {
    each([("--exclude long", true), ("", false)], |(options, left_out)| {
        let scene = Scene::new();
        fs::create_dir(scene.path("tree")).unwrap();
        data::write_file(&scene.path("tree/long"), 1, 8 << 20);
        data::write_file(&scene.path("tree/short"), 2, 1000);
        let line = "copy -r --json --interval 0.1";
        let begin = format!("{line} --rate 2MB @/tree/ @/dst");
        let running = run::start(scene.command(&scene.words(&begin)));
        end_by(&scene, running, Blow::Near(Signal::KILL), 1);
        if !left_out {
            fs::remove_file(scene.path("tree/long")).unwrap();
        }
        let here = Here::of(&scene).bytes();
        let ran = scene.succeed(&format!("{line} {options} @/tree/ @/dst"));
        if *left_out {
            assert_eq!(Here::of(&scene).bytes(), here, "{ran}");
            let ran = scene.succeed(&format!("{line} @/tree/ @/dst"));
            assert!(resumed_bytes(&ran) >= here, "{ran}");
            scene.assert_holds("dst", &["long", "short"]);
            return;
        }
        let words = format!("{}{}", ran.stdout_text(), ran.stderr);
        assert!(words.contains("is removed"), "{ran}");
        scene.assert_holds("dst", &["short"]);
    });
}

/// What the journal in `dst` says.
struct Here {
    partials: Vec<Partial>,
    flushes: usize,
}

impl Here {
    fn of(scene: &Scene) -> Here {
        let Some(bytes) = journal_of(scene).and_then(|path| fs::read(path).ok()) else {
            return Here { partials: Vec::new(), flushes: 0 };
        };
        let records = records(&bytes);
        let transfer = match records.first() {
            Some(Record::Open { transfer }) => *transfer,
            _ => [0; 16],
        };
        let mut replay = Replay::default();
        replay.take(&bytes, &transfer);
        let is_flush = |record: &&Record| matches!(record, Record::Flushed { .. });
        let flushes = records.iter().filter(is_flush).count();
        Here { partials: replay.partials().cloned().collect(), flushes }
    }

    fn flushed_bytes(&self) -> u64 {
        self.partials.iter().map(|partial| partial.flushed.ranges.total()).sum()
    }

    fn bytes(&self) -> u64 {
        let written = self.partials.iter().map(|partial| partial.written.ranges.total());
        self.flushed_bytes() + written.sum::<u64>()
    }

    /// True where all of it can be cut into such requests.
    fn fits(&self, request_bytes: u32) -> bool {
        self.partials.iter().all(|partial| {
            let fits = |held: &Held| held.fits(partial.origin.size, request_bytes);
            fits(&partial.flushed) && fits(&partial.written)
        })
    }

    fn stretches(&self) -> usize {
        self.partials.iter().map(|partial| partial.flushed.ranges.range_count()).sum()
    }
}

/// With `--fresh` nothing of earlier runs is used or stays, except the files they completed.
#[test]
fn fresh_begins_anew() {
    each(WAYS, |way| {
        let scene = Scene::new();
        data::write_file(&scene.path("in"), 1, 8 << 20);
        fs::create_dir(scene.path("dst")).unwrap();
        end_by(&scene, start(&scene, way, "--rate 2MB"), Blow::Near(Signal::KILL), 1);
        assert!(Here::of(&scene).bytes() > 0, "{way}: nothing has been journaled");
        let ran = goes_on_with(&scene, way, "--fresh");
        assert_eq!(resumed_bytes(&ran), 0, "{way}\n{ran}");
        data::assert_same(&scene.path("in"), &scene.path("dst/out"));
        scene.assert_holds("dst", &["out"]);
        let ran = scene.run(&line(way, "--fresh"));
        assert_eq!(ran.code, 3, "{way}: it is there\n{ran}");
    });
}

/// The same command started twice: the second waits for the first for a while, and leaves it alone.
#[test]
fn the_same_command_twice_at_once() {
    each(["local", "push"], |way| {
        let scene = Scene::new();
        data::write_file(&scene.path("in"), 1, 8 << 20);
        fs::create_dir(scene.path("dst")).unwrap();
        let mut first = start(&scene, way, "--rate 100KB");
        first.wait_for_bytes();
        let second = scene.run(&line(way, "--stall 4s"));
        assert_eq!(second.code, 1, "{way}\n{second}");
        assert!(second.stderr.contains("another"), "{way}\n{second}");
        end_by(&scene, first, Blow::Near(Signal::INT), 1);
        goes_on(&scene, way, "", 1);
    });
}

/// Files that an interrupted run completed are kept in a dry run, as in the real one, and what that
/// run left stays as it was.
#[test]
fn a_dry_run_knows_what_is_complete() {
    const FILES: u64 = 6;
    each(WAYS, |way| {
        let scene = Scene::new();
        fs::create_dir_all(scene.path("in")).unwrap();
        for number in 0..FILES {
            data::write_file(&scene.path(format!("in/{number}")), number, 4 << 20);
        }
        fs::create_dir(scene.path("dst")).unwrap();
        let running = start(&scene, way, "-r --rate 4MB");
        let complete = || {
            let is_there = |number: &u64| scene.path(format!("dst/out/in/{number}")).exists();
            (0..FILES).filter(is_there).count() as u64
        };
        support::until("a file is complete", || complete() > 0);
        end_by(&scene, running, Blow::Near(Signal::INT), 0);
        let complete = complete();
        let left = |scene: &Scene| {
            let files = data::files_below(&scene.path("dst"));
            let look = |path: &PathBuf| (path.clone(), fs::read(path).unwrap());
            files.iter().map(look).collect::<Vec<_>>()
        };
        let before = left(&scene);
        let ran = scene.succeed(&line(way, "-r --dry-run"));
        let moved = &ran.events().pop().unwrap()["record"]["moved"];
        assert_eq!(moved["kept"].as_u64(), Some(complete), "{way}\n{ran}");
        assert_eq!(moved["files"].as_u64(), Some(FILES - complete), "{way}\n{ran}");
        assert!(left(&scene) == before, "{way}: a dry run changed something");
        let fresh = scene.run(&line(way, "-r --dry-run --fresh"));
        assert_eq!(fresh.code, 3, "{way}: what is there is in the way\n{fresh}");
        scene.succeed(&line(way, "-r"));
        let last = format!("{}", FILES - 1);
        data::assert_same(&scene.path("in").join(&last), &scene.path("dst/out/in").join(&last));
    });
}

/// Two commands for one name: each file is complete, and `--overwrite` decides which one stays.
#[test]
fn two_commands_for_one_name() {
    each([("", 3, "in"), ("--overwrite always", 0, "other")], |(overwrite, code, there)| {
        let scene = Scene::new();
        data::write_file(&scene.path("in"), 1, 4 << 20);
        data::write_file(&scene.path("other"), 2, 4 << 20);
        fs::create_dir(scene.path("dst")).unwrap();
        // The second has begun when the first ends.
        let mut first = start(&scene, "local", "--rate 2MB");
        let words = scene.words(&format!("copy --json --rate 500KB {overwrite} @/other @/dst/out"));
        let mut second = run::start(scene.command(&words));
        first.wait_for_bytes();
        second.wait_for_bytes();
        let first = first.end();
        assert_eq!(first.code, 0, "{first}");
        data::assert_same(&scene.path("in"), &scene.path("dst/out"));
        let second = second.end();
        assert_eq!(second.code, *code, "{second}");
        data::assert_same(&scene.path(there), &scene.path("dst/out"));
    });
}

/// `64K` and `16M`.
fn kib_or_mib(text: &str) -> u32 {
    let (number, unit) = text.split_at(text.len() - 1);
    number.parse::<u32>().unwrap() << if unit == "K" { 10 } else { 20 }
}

fn records(bytes: &[u8]) -> Vec<Record> {
    let (mut records, mut at) = (Vec::new(), 0);
    while let Some((record, length)) = Record::decode(&bytes[at..]) {
        records.push(record);
        at += length;
    }
    records
}

fn journal_of(scene: &Scene) -> Option<PathBuf> {
    with_ending(scene, ".journal")
}

fn part_of(scene: &Scene) -> PathBuf {
    with_ending(scene, ".part").expect("a part is there")
}

fn with_ending(scene: &Scene, ending: &str) -> Option<PathBuf> {
    let files = data::files_below(&scene.path("dst"));
    files.into_iter().find(|path| path.to_string_lossy().ends_with(ending))
}

fn start(scene: &Scene, way: &str, options: &str) -> Running {
    run::start(scene.command(&scene.words(&line(way, options))))
}

fn line(way: &str, options: &str) -> String {
    let ends = match way {
        "local" => "@/in @/dst/out",
        "push" => "@/in far:@/dst/out",
        _ => "far:@/in @/dst/out",
    };
    format!("copy --json --interval 0.1 --streams 2 {options} {ends}")
}

/// Interrupts a run after so many flushes, and waits until both sides have ended.
fn end_by(scene: &Scene, running: Running, blow: Blow, flushes: usize) {
    if let Some(running) = strike(scene, running, blow, flushes) {
        processes::send(running.pid(), Signal::INT);
        running.end();
    }
    let gone = || processes::named_exactly(&scene.far_program()).is_empty();
    support::until("the far side goes", gone);
}

/// The run, if it continues.
fn strike(scene: &Scene, mut running: Running, blow: Blow, flushes: usize) -> Option<Running> {
    let before = Here::of(scene).flushes;
    running.wait_for_bytes();
    let enough = || Here::of(scene).flushes >= before + flushes;
    support::until(&format!("{flushes} flushes"), enough);
    match blow {
        Blow::Near(signal) => {
            processes::send(running.pid(), signal);
            let ran = running.end();
            assert!([130, 137].contains(&ran.code), "{ran}");
            None
        }
        Blow::FarKilled => {
            let far = processes::named_exactly(&scene.far_program());
            assert!(!far.is_empty(), "nobody is there to be killed");
            far.iter().for_each(|pid| processes::send(*pid, Signal::KILL));
            running.wait_for_line("trying again");
            Some(running)
        }
    }
}

/// Runs it to a successful end, which sends none of these bytes again.
fn goes_on(scene: &Scene, way: &str, options: &str, here: u64) -> Ran {
    let ran = goes_on_with(scene, way, options);
    assert!(resumed_bytes(&ran) >= here && here > 0, "{way}: {here} bytes were here\n{ran}");
    data::assert_same(&scene.path("in"), &scene.path("dst/out"));
    scene.assert_holds("dst", &["out"]);
    ran
}

fn goes_on_with(scene: &Scene, way: &str, options: &str) -> Ran {
    scene.succeed(&line(way, options))
}

fn resumed_bytes(ran: &Ran) -> u64 {
    let end = ran.events().pop().unwrap();
    end["record"]["moved"]["resumed_bytes"].as_u64().unwrap()
}

/// A file of which every other request has arrived.
fn scattered(way: &str, requests: u64) -> Scene {
    const REQUEST: u64 = 4096;
    let scene = Scene::new();
    let bytes = data::bytes(1, (requests * REQUEST) as usize);
    fs::write(scene.path("in"), &bytes).unwrap();
    fs::create_dir(scene.path("dst")).unwrap();
    end_by(&scene, start(&scene, way, "--request-size 4K --rate 1MB"), Blow::Near(Signal::KILL), 1);
    // Its journal is that of a run which was broken off when just these had come.
    let journal = journal_of(&scene).unwrap();
    let said = records(&fs::read(&journal).unwrap());
    let begun = |record: &Record| match record {
        Record::Begin { file, .. } => Some(*file),
        _ => None,
    };
    let at = said.iter().position(|record| begun(record).is_some()).unwrap();
    let file = begun(&said[at]).unwrap();
    let part = File::options().write(true).open(part_of(&scene)).unwrap();
    part.set_len(0).unwrap();
    part.set_len(bytes.len() as u64).unwrap();
    let ranges: Vec<(u64, u64)> =
        (0..requests).step_by(2).map(|n| (n * REQUEST, (n + 1) * REQUEST)).collect();
    let slice = |(from, to): &(u64, u64)| &bytes[*from as usize..*to as usize];
    ranges.iter().for_each(|range| part.write_all_at(slice(range), range.0).unwrap());
    let read = |at: u64, into: &mut [u8]| {
        into.copy_from_slice(&bytes[at as usize..at as usize + into.len()]);
        Ok(into.len())
    };
    let mut out: Vec<u8> = said[..=at].iter().flat_map(Record::encode).collect();
    for some in ranges.chunks(1000) {
        let nodes = nodes_of(DigestKind::Blake3, REQUEST as u32, some, read);
        out.extend(Record::Have { file, ranges: some.to_vec(), nodes }.encode());
    }
    out.extend(Record::Flushed { file }.encode());
    fs::write(&journal, out).unwrap();
    assert_eq!(fs::metadata(&journal).unwrap().nlink(), 1);
    scene
}

/// Removes the record that it was flushed.
fn unflush(scene: &Scene) {
    let journal = journal_of(scene).unwrap();
    let said = records(&fs::read(&journal).unwrap());
    let said = said.iter().filter(|record| !matches!(record, Record::Flushed { .. }));
    fs::write(&journal, said.flat_map(Record::encode).collect::<Vec<u8>>()).unwrap();
}
