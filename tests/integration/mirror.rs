//! Mirrors: `--delete` beside rsync's, and what must never be deleted.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::support::data::write_file;
use crate::support::liar::{self, Move, file, offer, opened};
use crate::support::pairs::{self, Rng, differences, look};
use crate::support::{Scene, each, each_at_once, need, run};
use base::fault::{Class, Fault};
use mover::wire::manifest::{Entry, EntryKind};
use mover::wire::message::{Message, Origin};

/// The prefixes of the source and of the destination: local, push and pull.
const WAYS: &[(&str, &str)] = &[("", ""), ("", "far:"), ("far:", "")];

/// Filters that mean the same to rsync.
const FILTERS: &[&str] = &["", "", "--exclude *.o", "--exclude tmp/ --exclude /build"];

/// The trees of a seed, mirrored here and by rsync. False where rsync could not: a filter keeps
/// something in a folder that must make way.
fn mirrors_as_rsync(seed: u64) -> bool {
    let scene = Scene::new();
    let mut rng = Rng::new(seed ^ 0x5eed);
    let (from, to) = WAYS[(seed % 3) as usize];
    let filters = FILTERS[rng.below(FILTERS.len() as u64) as usize];
    let delete = ["--delete", "--delete-excluded"][rng.below(2) as usize];
    pairs::lay(seed, &scene.path("src"), &scene.path("dst"));
    pairs::lay(seed, &scene.path("src-too"), &scene.path("rsync"));
    let (slash, inside) = if rng.below(4) == 0 { ("", "/src") } else { ("/", "") };
    if slash.is_empty() {
        // The folder itself is copied; what is beside it stays.
        for folder in ["dst", "rsync"] {
            fs::rename(scene.path(folder), scene.path("inner")).unwrap();
            fs::create_dir(scene.path(folder)).unwrap();
            fs::rename(scene.path("inner"), scene.path(folder).join("src")).unwrap();
            write_file(&scene.path(folder).join("beside"), 5, 10);
        }
    }
    // There rsync counts from above the folder.
    let anchored = filters.replace("/build", &format!("{inside}/build"));
    let line = format!("-a {delete} {anchored} @/src{slash} @/rsync/");
    let mut rsync = Command::new(need("rsync", "rsync"));
    rsync.args(scene.words(&line));
    let rsync = run::to_end(rsync, b"");
    let line = format!("copy -r --json {delete} {filters} {from}@/src{slash} {to}@/dst/");
    let ran = scene.run(&line);
    if rsync.code != 0 {
        assert_ne!(ran.code, 0, "seed {seed}: {line}\n{ran}\nrsync: {rsync}");
        return false;
    }
    let found = differences(&look(&scene.path("dst")), &look(&scene.path("rsync")));
    assert!(ran.code == 0 && found.is_empty(), "seed {seed}: {line}\n{found:#?}\n{ran}");
    let mirrored = if slash.is_empty() { "dst/src" } else { "dst" };
    if filters.is_empty() {
        pairs::assert_folder_times(&scene.path("src"), &scene.path(mirrored));
    }
    let mut events = ran.events();
    let end = events.pop().unwrap();
    let deleted = events.iter().filter(|event| event["state"] == "deleted").count();
    assert_eq!(end["record"]["moved"]["deleted"].as_u64(), Some(deleted as u64), "{ran}");
    let again = scene.succeed(&line);
    let end = again.events().pop().unwrap();
    assert_eq!(end["record"]["moved"]["deleted"].as_u64(), Some(0), "seed {seed}: {again}");
    assert_eq!(end["record"]["moved"]["files"].as_u64(), Some(0), "seed {seed}: {again}");
    true
}

fn all_mirror_as_rsync(seeds: std::ops::Range<u64>) {
    let count = seeds.end - seeds.start;
    let compared = AtomicU64::new(0);
    each_at_once(&seeds.collect::<Vec<u64>>(), |seed| {
        compared.fetch_add(u64::from(mirrors_as_rsync(*seed)), Relaxed);
    });
    let compared = compared.into_inner();
    println!("{compared} of {count} pairs were compared; in the others both failed");
    assert!(compared * 10 >= count * 8, "too few could be compared: {compared} of {count}");
}

#[test]
fn mirrors_of_random_pairs_are_those_of_rsync() {
    all_mirror_as_rsync(0..21);
}

#[test]
#[ignore = "200 pairs: cargo test --test integration mirror:: -- --ignored --nocapture"]
fn mirrors_of_two_hundred_random_pairs_are_those_of_rsync() {
    all_mirror_as_rsync(1000..1200);
}

/// Killed once so many events have come, here or there, and run again.
fn keeps_all_when_killed(seed: u64) -> bool {
    let scene = Scene::new();
    let mut rng = Rng::new(seed ^ 0x6b11);
    let (from, to) = WAYS[(seed % 3) as usize];
    pairs::lay(seed, &scene.path("src"), &scene.path("dst"));
    pairs::lay(seed, &scene.path("src-too"), &scene.path("whole"));
    // Slower, so that some are killed on the way.
    let line = format!("copy -r --json --rate 2MB --delete {from}@/src/ {to}@/dst/");
    scene.succeed(&line.replace("/dst/", "/whole/"));
    let (before, whole) = (look(&scene.path("dst")), look(&scene.path("whole")));
    let ran = pairs::killed_somewhere(&scene, &line, &mut rng);
    let now = look(&scene.path("dst"));
    // A name that both have and that has another kind is replaced.
    let kind = |what: &String| what.split(' ').next().map(str::to_string);
    let kept = |name: &Vec<u8>| {
        let (there, then) = (before.get(name), whole.get(name));
        there.zip(then).is_some_and(|(there, then)| kind(there) == kind(then))
    };
    let lost: Vec<String> = before
        .keys()
        .filter(|name| kept(name) && !now.contains_key(*name))
        .map(|name| name.escape_ascii().to_string())
        .collect();
    assert!(lost.is_empty(), "seed {seed}: {lost:?}\n{ran}");
    scene.succeed(&line);
    let found = differences(&look(&scene.path("dst")), &whole);
    assert!(found.is_empty(), "seed {seed}, run again: {found:#?}");
    ran.code != 0
}

fn all_keep_all_when_killed(seeds: std::ops::Range<u64>) {
    let killed = AtomicU64::new(0);
    each_at_once(&seeds.collect::<Vec<u64>>(), |seed| {
        killed.fetch_add(u64::from(keeps_all_when_killed(*seed)), Relaxed);
    });
    println!("{} runs had not ended when they were killed", killed.into_inner());
}

#[test]
fn a_killed_mirror_has_lost_nothing() {
    all_keep_all_when_killed(0..12);
}

#[test]
#[ignore = "200 runs: cargo test --test integration mirror:: -- --ignored --nocapture"]
fn two_hundred_killed_mirrors_have_lost_nothing() {
    all_keep_all_when_killed(1000..1200);
}

fn lay_small(scene: &Scene) {
    for name in ["src/a", "src/d/b", "dst/a", "dst/d/b", "dst/d/old", "dst/gone/x", "dst/keep.o"] {
        let path = scene.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        write_file(&path, 1, 100);
    }
}

fn names(folder: &Path) -> Vec<String> {
    look(folder).into_keys().map(|name| String::from_utf8(name).unwrap()).collect()
}

const ALL: &[&str] = &["a", "d", "d/b", "d/old", "gone", "gone/x", "keep.o"];

#[test]
fn a_dry_run_lists_and_deletes_nothing() {
    each(WAYS, |(from, to)| {
        let scene = Scene::new();
        lay_small(&scene);
        let line = format!("copy -n -r --delete --exclude *.o {from}@/src/ {to}@/dst/");
        let ran = scene.succeed(&line);
        for name in ["d/old", "gone/x", "gone"] {
            assert!(
                ran.stdout_text().contains(&format!("*deleting                  {name}\n")),
                "{ran}"
            );
        }
        assert!(ran.stdout_text().contains("would delete 3 names"), "{ran}");
        let events = scene.succeed(&format!("{line} --json")).events();
        let listed = events.iter().filter(|event| event["state"] == "would_delete").count();
        assert_eq!(listed, 3);
        assert_eq!(names(&scene.path("dst")), ALL);
        let ran = scene.succeed(&line.replace("-n ", "-v "));
        assert!(ran.stdout_text().contains("*deleting                  gone/x\n"), "{ran}");
        assert!(ran.stdout_text().contains("; 3 names deleted"), "{ran}");
        assert_eq!(names(&scene.path("dst")), ["a", "d", "d/b", "keep.o"]);
    });
}

/// How a copy is spoilt, and what is said then.
#[test]
fn nothing_is_deleted_where_something_lacks() {
    type Spoils = fn(&Scene);
    let cases: [(&str, Spoils, i32, &str); 5] = [
        // A link that leads nowhere cannot be followed: that part of the source is not read.
        (
            "--links follow",
            |scene| symlink("nowhere", scene.path("src/d/link")).unwrap(),
            3,
            "nothing is deleted in",
        ),
        // A name that datapump keeps for itself is refused at the destination.
        (
            "",
            |scene| write_file(&scene.path("src/.datapump-0123abcd-1.part"), 3, 5),
            3,
            "nothing is deleted in",
        ),
        (
            "--overwrite never",
            |scene| write_file(&scene.path("src/a"), 3, 5),
            3,
            "nothing is deleted in",
        ),
        ("--max-errors 0 --overwrite never", |scene| write_file(&scene.path("src/a"), 3, 5), 3, ""),
        ("--max-delete 3", |_| {}, 3, "--max-delete allows 3: nothing is deleted"),
    ];
    let cases: Vec<_> =
        cases.iter().flat_map(|case| WAYS.iter().map(move |way| (case, way))).collect();
    each(cases.iter(), |((options, spoil, code, says), (from, to))| {
        let scene = Scene::new();
        lay_small(&scene);
        spoil(&scene);
        let ran = scene.run(&format!("copy -r --delete {options} {from}@/src/ {to}@/dst/"));
        assert_eq!(ran.code, *code, "{options}\n{ran}");
        assert!(ran.stderr.contains(says), "{options}\n{ran}");
        if says.contains("--max-delete") {
            let ended = ran.stderr.lines().last();
            assert_eq!(ended, Some("datapump: nothing was deleted"), "every file is there\n{ran}");
            assert!(!ran.stdout_text().contains("NOT"), "{ran}");
        }
        let left = names(&scene.path("dst"));
        let lost: Vec<_> = ALL.iter().filter(|name| !left.contains(&name.to_string())).collect();
        assert!(lost.is_empty(), "{options}: {lost:?}\n{ran}");
    });
}

/// What the source has stays, although it is not copied.
#[test]
fn what_is_skipped_is_no_stranger() {
    let kinds = [("skip", "l"), ("safe", "out"), ("copy", "pipe")];
    each(kinds.iter().flat_map(|kind| WAYS.iter().map(move |way| (kind, way))), |(kind, way)| {
        let ((links, stays), (from, to)) = (kind, way);
        let scene = Scene::new();
        lay_small(&scene);
        symlink("a", scene.path("src/l")).unwrap();
        symlink("../../out", scene.path("src/out")).unwrap();
        let fifo = rustix::fs::FileType::Fifo;
        let mode = rustix::fs::Mode::RUSR;
        rustix::fs::mknodat(rustix::fs::CWD, scene.path("src/pipe"), fifo, mode, 0).unwrap();
        fs::create_dir(scene.path("dst").join(stays)).unwrap();
        write_file(&scene.path("dst").join(stays).join("inner"), 2, 10);
        scene.succeed(&format!("copy -r --delete --links {links} {from}@/src/ {to}@/dst/"));
        let left = names(&scene.path("dst"));
        assert!(left.contains(&format!("{stays}/inner")), "{left:?}");
        assert!(!left.contains(&"gone".to_string()), "{left:?}");
    });
}

#[test]
fn a_mirror_keeps_its_source() {
    let scene = Scene::new();
    lay_small(&scene);
    for line in ["copy -r --delete @/src/d/ @/src", "copy -r --delete @/src @/"] {
        let ran = scene.run(line);
        assert_eq!(ran.code, 2, "{ran}");
        assert!(ran.stderr.contains("of which --delete makes the mirror"), "{ran}");
    }
    // What is beside the mirror may be the source.
    scene.succeed("copy -r --delete @/src/ @/new");
    assert_eq!(names(&scene.path("src")), ["a", "d", "d/b"]);
}

/// Files that exist are replaced, and folders and files make way for each other.
#[test]
fn another_kind_makes_way() {
    each(WAYS, |(from, to)| {
        let scene = Scene::new();
        lay_small(&scene);
        for name in ["src/gone", "src/keep.o/inner/x"] {
            fs::create_dir_all(scene.path(name).parent().unwrap()).unwrap();
            write_file(&scene.path(name), 9, 30);
        }
        symlink("a", scene.path("src/link")).unwrap();
        fs::create_dir_all(scene.path("dst/link/full")).unwrap();
        let line = format!("copy -r --delete --json {from}@/src/ {to}@/dst/");
        scene.succeed(&line.replace("copy", "copy -n"));
        assert!(scene.path("dst/link/full").is_dir(), "a dry run changes nothing");
        scene.succeed(&line);
        assert_eq!(differences(&kinds(&scene, "dst"), &kinds(&scene, "src")), [""; 0]);
        let without = scene.run(&format!("copy -r {from}@/src/ {to}@/dst/"));
        assert_eq!(without.code, 3, "{without}");
    });
}

fn kinds(scene: &Scene, root: &str) -> BTreeMap<Vec<u8>, String> {
    let kind = |what: String| what.split(' ').next().unwrap_or_default().to_string();
    look(&scene.path(root)).into_iter().map(|(name, what)| (name, kind(what))).collect()
}

/// A far source decides what is deleted below what was asked for, and nowhere else.
#[test]
fn a_far_source_widens_no_mirror() {
    let leave = |path: &str| Entry { is_root: true, ..entry(EntryKind::Leave, path) };
    let folder = |path: &str| entry(EntryKind::Directory, path);
    let cases: Vec<(&str, Vec<Entry>)> = vec![
        ("-r --delete 127.0.0.1:tree @/dst", vec![folder("tree"), leave("")]),
        (
            "-r --delete 127.0.0.1:tree @/dst",
            vec![folder("tree"), folder("tree/d"), leave("tree/d")],
        ),
        ("-r --delete 127.0.0.1:tree/ @/dst", vec![folder("d"), leave("d")]),
    ];
    each(cases, |(line, entries)| {
        let scene = Scene::new();
        lay_small(&scene);
        let origin = Origin { single: false, endless: false };
        let objects = entries.len() as u64;
        let moves = [offer(entries.clone()), Move::Hear(objects), Move::Finish(objects)];
        let (ran, _) = liar::against_near(&scene, line, Some(origin), &moves);
        assert_eq!(ran.code, 9, "{line}\n{ran}");
        let left = names(&scene.path("dst"));
        assert!(ALL.iter().all(|name| left.contains(&name.to_string())), "{line}: {left:?}");
    });
}

fn entry(kind: EntryKind, path: &str) -> Entry {
    Entry { kind, mode: 0o755, ..file(path, 0) }
}

/// Messages of a mirror where nobody asked for one.
#[test]
fn nobody_deletes_unasked() {
    let scene = Scene::new();
    lay_small(&scene);
    let present = Message::Present { paths: vec![b"x".to_vec()] };
    let origin = Origin { single: false, endless: false };
    let pull = "-r 127.0.0.1:tree/ @/dst";
    let (ran, _) = liar::against_near(&scene, pull, Some(origin), &[Move::Say(present)]);
    assert_eq!(ran.code, 9, "{ran}");
    let refused = Fault::new(Class::SomeFailed, "no");
    for message in [
        Message::Deleted { paths: vec![b"x".to_vec()] },
        Message::NotDeleted { path: b"x".to_vec(), fault: refused },
    ] {
        let scene = Scene::new();
        lay_small(&scene);
        let (ran, _) = liar::near_with(&scene, "-r @/src/ 127.0.0.1:dst", opened(None), |far| {
            far.say(&message);
            while far.hear().is_some() {}
        });
        assert_eq!(ran.code, 9, "{ran}");
    }
}

/// What makes way for a folder is deleted as any other name: it is told, and counted.
#[test]
fn a_file_in_the_way_of_a_folder_is_told() {
    each(WAYS, |(from, to)| {
        let scene = Scene::new();
        fs::create_dir_all(scene.path("src/k")).unwrap();
        fs::create_dir_all(scene.path("dst")).unwrap();
        fs::write(scene.path("dst/k"), "k").unwrap();
        let line = format!("copy -r --delete {from}@/src/ {to}@/dst/");
        let states = |line: &str| -> Vec<String> {
            let events = scene.succeed(&format!("{line} --json")).events();
            let files = events.iter().filter(|event| event["event"] == "file");
            files.map(|event| format!("{} {}", event["state"], event["path"])).collect()
        };
        let limited = scene.run(&format!("{line} --max-delete 0"));
        assert_eq!(limited.code, 3, "{limited}");
        assert!(limited.stderr.contains("is in the way of a folder of the source"), "{limited}");
        assert_eq!(fs::read(scene.path("dst/k")).unwrap(), b"k");
        assert_eq!(states(&format!("{line} -n")), ["\"would_delete\" \"k\""]);
        assert_eq!(fs::read(scene.path("dst/k")).unwrap(), b"k");
        assert_eq!(states(&line), ["\"deleted\" \"k\""]);
        assert!(scene.path("dst/k").is_dir());
    });
}
