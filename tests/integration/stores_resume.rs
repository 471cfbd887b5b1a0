//! Uploads to a real store that are cut short, by kill -9 above all: another run continues them,
//! and nothing is lost.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use crate::support::gateway::{Fault, FaultyStore, Gateway, Rule, file_of, set_mtime};
use crate::support::run::{self, Ran};
use crate::support::{Scene, each, until};

const MIB: u64 = 1 << 20;
const SIZE: u64 = 64 * MIB + 5;
const LINE: &str = "copy @/a s3:/d/a --request-size 5M";

/// A proxy that only counts.
fn counting(gateway: &Arc<Gateway>) -> FaultyStore {
    let rule = Rule { method: "", target: "", after: 0, times: 0, fault: Fault::Reset };
    FaultyStore::new(gateway, rule)
}

fn parts_sent(store: &FaultyStore) -> usize {
    let seen = store.seen.lock().unwrap();
    seen.iter().filter(|line| line.starts_with("PUT") && line.contains("partNumber")).count()
}

/// Journals of what is under way.
pub(crate) fn journals(gateway: &Gateway) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    let hosts = fs::read_dir(gateway.state().join("datapump/uploads")).into_iter().flatten();
    for host in hosts.flatten() {
        for file in fs::read_dir(host.path()).unwrap().flatten() {
            found.push(fs::read(file.path()).unwrap_or_default());
        }
    }
    found
}

/// Begins a copy of a file of `SIZE` bytes, and kills it when its journal records some parts.
fn killed(gateway: &Gateway, scene: &Scene, port: u16) {
    let line = format!("{LINE} --rate 16MB");
    let mut child = gateway.command(scene, &line, port).spawn().unwrap();
    // A part's tag is the only text of 32 digits.
    until("parts are recorded", || journals(gateway).iter().any(|journal| journal.len() > 700));
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(!gateway.object("d/a").exists(), "it was killed before it was complete");
}

fn begun() -> (Arc<Gateway>, Scene, FaultyStore) {
    let (gateway, scene) = (Arc::new(Gateway::new()), Scene::new());
    let store = counting(&gateway);
    file_of(&scene.path("a"), SIZE, 1);
    set_mtime(&scene.path("a"), 1_600_000_000, 5);
    killed(&gateway, &scene, store.port);
    (gateway, scene, store)
}

fn again(gateway: &Gateway, scene: &Scene, store: &FaultyStore, line: &str) -> (Ran, usize) {
    let before = parts_sent(store);
    let ran = run::to_end(gateway.command(scene, line, store.port), b"");
    (ran, parts_sent(store) - before)
}

/// The object is the file, and nothing is left: no upload, no journal.
fn assert_done(gateway: &Gateway, scene: &Scene, ran: &Ran) {
    assert_copied(gateway, scene, ran);
    let left = gateway.run(scene, "clean -n --min-age off s3:/d/ --json");
    assert!(!left.stdout_text().contains("would_remove"), "{left}");
}

/// The object is the file, and no journal is left.
fn assert_copied(gateway: &Gateway, scene: &Scene, ran: &Ran) {
    assert_eq!(ran.code, 0, "{ran}");
    assert!(fs::read(gateway.object("d/a")).unwrap() == fs::read(scene.path("a")).unwrap());
    assert_eq!(journals(gateway).len(), 0, "{ran}");
}

const PARTS: usize = 13;

#[test]
fn a_killed_upload_is_continued() {
    for (more, says) in [
        ("", ""),
        // The parts have the size that they have in the store.
        (" --request-size 8M", "requests of 5 MiB instead of 8 MiB"),
        (" --streams 1 --engine threads", ""),
    ] {
        let (gateway, scene, store) = begun();
        let line = match more.contains("--request-size") {
            true => format!("copy @/a s3:/d/a{more}"),
            false => format!("{LINE}{more}"),
        };
        let (ran, sent) = again(&gateway, &scene, &store, &line);
        assert_done(&gateway, &scene, &ran);
        assert!((1..PARTS).contains(&sent), "{sent} of {PARTS} parts are sent again: {ran}");
        assert!(ran.stderr.contains(says), "{ran}");
    }
}

/// Long parts are continued also by a command that would have shorter ones, with as many streams
/// as memory has room for.
#[test]
fn an_upload_in_long_parts_is_continued() {
    const LONG_PARTS: usize = 4;
    each([" --request-size 32M --streams 2", ""], |options| {
        let (gateway, scene) = (Arc::new(Gateway::new()), Scene::new());
        let store = counting(&gateway);
        file_of(&scene.path("a"), 96 * MIB + 5, 1);
        let line = "copy @/a s3:/d/a --request-size 32M --streams 2 --rate 8MB";
        let mut child = gateway.command(&scene, line, store.port).spawn().unwrap();
        until("a part is recorded", || journals(&gateway).iter().any(|journal| has_tag(journal)));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!gateway.object("d/a").exists(), "it was killed before it was complete");
        let (ran, sent) = again(&gateway, &scene, &store, &format!("copy @/a s3:/d/a{options}"));
        assert_done(&gateway, &scene, &ran);
        assert!((1..LONG_PARTS).contains(&sent), "{sent} parts are sent again: {ran}");
        let is_continued = ran.stderr.contains("requests of 32 MiB instead of 8 MiB");
        let are_fewer = ran.stderr.contains("enough for 3 of the 4 streams; --memory 29");
        assert_eq!((is_continued, are_fewer), (options.is_empty(), options.is_empty()), "{ran}");
    });
}

/// A part's tag is the only text of 32 digits.
fn has_tag(journal: &[u8]) -> bool {
    journal.windows(32).any(|text| text.iter().all(u8::is_ascii_hexdigit))
}

#[test]
fn what_cannot_be_continued_starts_over() {
    let append = |scene: &Scene, _: &Gateway| {
        let mut bytes = fs::read(scene.path("a")).unwrap();
        bytes[7] ^= 1;
        fs::write(scene.path("a"), bytes).unwrap();
    };
    let clean = |scene: &Scene, gateway: &Gateway| {
        gateway.succeed(scene, "clean --min-age off s3:/d/");
    };
    let damage = |_: &Scene, gateway: &Gateway| {
        for host in fs::read_dir(gateway.state().join("datapump/uploads")).unwrap().flatten() {
            for file in fs::read_dir(host.path()).unwrap().flatten() {
                let mut bytes = fs::read(file.path()).unwrap();
                bytes[3] ^= 0xff;
                fs::write(file.path(), bytes).unwrap();
            }
        }
    };
    type Between = fn(&Scene, &Gateway);
    let cases: [(&str, Between, &str, bool); 5] = [
        ("the source changed", append, "its source has changed since", true),
        // A part that was under way when it was removed may make it anew, without the others.
        (
            "the upload is gone",
            clean,
            "the store does not have its parts any more|sent again",
            true,
        ),
        ("--fresh", |_, _| {}, "", true),
        ("the journal is damaged", damage, "is damaged, or of another version", false),
        ("another digest", |_, _| {}, "it was digested in another way", true),
    ];
    for (what, between, says, is_cleared) in cases {
        let (gateway, scene, store) = begun();
        between(&scene, &gateway);
        let line = match what {
            "--fresh" => format!("{LINE} --fresh"),
            "another digest" => {
                // What is weaker than this is not enough.
                let (ran, _) = again(&gateway, &scene, &store, &format!("{LINE} --fresh"));
                assert_eq!(ran.code, 0, "{ran}");
                fs::remove_file(gateway.object("d/a")).unwrap();
                let weak = format!("{LINE} --rate 16MB --digest crc64");
                let mut child = gateway.command(&scene, &weak, store.port).spawn().unwrap();
                until("parts are recorded", || {
                    journals(&gateway).iter().any(|journal| journal.len() > 700)
                });
                child.kill().unwrap();
                child.wait().unwrap();
                LINE.to_string()
            }
            _ => LINE.to_string(),
        };
        let (ran, sent) = again(&gateway, &scene, &store, &line);
        if is_cleared {
            assert_done(&gateway, &scene, &ran);
        }
        assert_eq!((ran.code, sent), (0, PARTS), "{what}: {ran}");
        assert!(says.split('|').any(|says| ran.stderr.contains(says)), "{what}: {ran}");
        let there = fs::read(gateway.object("d/a")).unwrap();
        assert!(there == fs::read(scene.path("a")).unwrap(), "{what}");
    }
}

/// A part that the store has lost, or has another one of, is sent again.
#[test]
fn parts_are_checked_against_the_store() {
    let (gateway, scene, store) = begun();
    let recorded = parts_sent(&store);
    let part = parts_of(&gateway).into_iter().next().expect("a part in the gateway's folder");
    fs::remove_file(&part).unwrap();
    let (ran, sent) = again(&gateway, &scene, &store, LINE);
    assert_done(&gateway, &scene, &ran);
    assert!(sent > PARTS.saturating_sub(recorded), "one is sent again: {sent}, {recorded}");
}

/// A run is killed while the store carries out the request that completes its upload. The next run
/// knows the object for its own, whenever it comes; what somebody else has put there it leaves.
#[test]
fn what_the_store_still_completes_is_recognized() {
    // Which request of the next run comes after the object, whether the upload is gone until then,
    // and whether somebody else's object comes in between.
    let cases = [
        (("GET", "list-type", 1), false, "", 0),
        (("GET", "uploadId=", 1), false, "", 0),
        (("POST", "uploadId=", 1), false, "", 0),
        (("HEAD", "/d/a", 3), true, "", 0),
        // As in round 36 of the page of 60 rounds: it is not waited for long enough.
        (("POST", "uploadId=", 1), true, " --stall 1", PARTS),
        (("HEAD", "/d/a", 1), true, " other", 0),
    ];
    each(cases, |(until, is_gone, more, parts)| {
        let (gateway, scene) = (Arc::new(Gateway::new()), Scene::new());
        let fault = Fault::Held { until: *until, is_gone: *is_gone };
        let rule = Rule { method: "POST", target: "uploadId=", after: 0, times: 1, fault };
        let store = FaultyStore::new(&gateway, rule);
        file_of(&scene.path("a"), SIZE, 1);
        file_of(&scene.path("other"), SIZE, 2);
        let line = format!("{LINE} --rate 32MB");
        let mut child = gateway.command(&scene, &line, store.port).spawn().unwrap();
        until_held(&store);
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!gateway.object("d/a").exists(), "it is held back");
        if *more == " other" {
            gateway.succeed(&scene, "copy @/other s3:/d/a");
            let (ran, _) = again(&gateway, &scene, &store, LINE);
            assert!(ran.code == 3 && ran.stderr.contains("exists"), "{ran}");
            let there = fs::read(gateway.object("d/a")).unwrap();
            assert!(there == fs::read(scene.path("other")).unwrap(), "{ran}");
            return;
        }
        let (ran, sent) = again(&gateway, &scene, &store, &format!("{LINE}{more}"));
        // A busy machine may keep a request silent for a second: it is sent once more then. Of one
        // that begins an upload, the first upload is left to `clean`.
        match *parts {
            0 => assert_done(&gateway, &scene, &ran),
            _ => assert_copied(&gateway, &scene, &ran),
        }
        assert!(sent == *parts || *parts > 0 && sent > *parts, "{sent}: {ran}");
        let is_told = ran.stderr.contains("is still completing");
        assert_eq!(is_told, *is_gone, "{ran}");
    });
}

fn until_held(store: &FaultyStore) {
    until("the completion is held back", || store.applied.load(Relaxed) == 1);
}

/// The files of parts, in the folder where this gateway keeps uploads.
fn parts_of(gateway: &Gateway) -> Vec<std::path::PathBuf> {
    fn below(folder: &Path, found: &mut Vec<std::path::PathBuf>) {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            let is_part = path
                .file_name()
                .is_some_and(|name| name.to_str().is_some_and(|name| name.parse::<u32>().is_ok()));
            match path.is_dir() {
                true => below(&path, found),
                false if is_part => found.push(path),
                false => {}
            }
        }
    }
    let mut found = Vec::new();
    below(&gateway.object(""), &mut found);
    found.sort();
    found
}

/// A tree that was interrupted is completed: what it has written is recognized, also where nothing
/// may be replaced.
#[test]
fn a_killed_tree_is_completed() {
    let (gateway, scene) = (Arc::new(Gateway::new()), Scene::new());
    tree(&scene);
    let line = "copy -r @/tree/ s3:/tree --request-size 5M";
    let mut child =
        gateway.command(&scene, &format!("{line} --rate 16MB"), gateway.port).spawn().unwrap();
    until("some are complete", || gateway.object("tree/small/f7").exists());
    child.kill().unwrap();
    child.wait().unwrap();
    let ran = gateway.succeed(&scene, line);
    same_tree(&gateway, &scene, &ran);
    let ran = gateway.run(&scene, line);
    assert_eq!(ran.code, 3, "complete, it is somebody's: {ran}");
}

fn tree(scene: &Scene) {
    fs::create_dir_all(scene.path("tree/small")).unwrap();
    for number in 0..60_u64 {
        file_of(&scene.path(format!("tree/small/f{number}")), number * 997, number);
    }
    for number in 0..4_u64 {
        file_of(&scene.path(format!("tree/long{number}")), (11 + 5 * number) * MIB + 1, number);
    }
}

fn same_tree(gateway: &Gateway, scene: &Scene, ran: &Ran) {
    for file in crate::support::data::files_below(&scene.path("tree")) {
        let inner = file.strip_prefix(scene.path("tree")).unwrap();
        let there = fs::read(gateway.object("tree").join(inner));
        let there = there.unwrap_or_else(|why| panic!("{}: {why}: {ran}", inner.display()));
        assert!(there == fs::read(&file).unwrap(), "{}: {ran}", inner.display());
    }
}

#[test]
fn killed_at_random_nothing_is_lost() {
    rounds(3);
}

/// `cargo test --test integration stores_resume -- --ignored --nocapture`, with a page in runs/.
#[test]
#[ignore = "60 rounds take some minutes"]
fn killed_at_random_sixty_times() {
    rounds(60);
}

/// Copies of a tree that are killed at random moments, up to three times each, and then completed.
fn rounds(count: u64) {
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = move |below: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % below
    };
    let (mut kills, mut sent, mut resent, mut abandoned) = (0, 0, 0, 0);
    for round in 0..count {
        let (gateway, scene) = (Arc::new(Gateway::new()), Scene::new());
        tree(&scene);
        let store = counting(&gateway);
        let parts: usize = (0..4).map(|number| (11 + 5 * number) / 5 + 1).sum();
        let line = "copy -r @/tree/ s3:/tree --request-size 5M";
        for _ in 0..=next(3) {
            let slow = format!("{line} --rate 32MB");
            let mut child = gateway.command(&scene, &slow, store.port).spawn().unwrap();
            std::thread::sleep(Duration::from_millis(next(2500)));
            kills += usize::from(child.try_wait().unwrap().is_none());
            child.kill().unwrap();
            child.wait().unwrap();
            for file in crate::support::data::files_below(&scene.path("tree")) {
                let inner = file.strip_prefix(scene.path("tree")).unwrap();
                if let Ok(there) = fs::read(gateway.object("tree").join(inner)) {
                    assert!(there == fs::read(&file).unwrap(), "round {round}: a wrong byte");
                }
            }
        }
        let ran = run::to_end(gateway.command(&scene, line, store.port), b"");
        // A run that was complete when it was killed is nobody's business any more.
        let is_complete = ran.code == 0 || ran.code == 3 && journals(&gateway).is_empty();
        assert!(is_complete, "round {round}: {ran}");
        same_tree(&gateway, &scene, &ran);
        sent += parts;
        resent += parts_sent(&store).saturating_sub(parts);
        let left = gateway.run(&scene, "clean -n --min-age off s3:/ --json");
        abandoned += left.stdout_text().matches("would_remove").count();
        let left = gateway.run(&scene, "clean --min-age off s3:/");
        assert_eq!(left.code, 0, "{left}");
    }
    assert!(resent <= 14 * kills, "{resent} parts are sent again after {kills} kills");
    println!(
        "{count} rounds, {kills} kills: {sent} parts, {resent} sent again, {abandoned} uploads \
         left for clean"
    );
}
