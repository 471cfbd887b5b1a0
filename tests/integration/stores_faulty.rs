//! A store that fails, lies, or is silent, behind a proxy: no wrong byte gets a name, nothing that
//! can be tried again is lost, and all of it ends.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use crate::stores_resume::journals;
use crate::support::gateway::{Fault, FaultyStore, Gateway, Rule, file_of};
use crate::support::run::{self, Ran};
use crate::support::{Scene, each};

const MIB: u64 = 1 << 20;
const SIZE: u64 = 20 * MIB + 1;

/// A copy through a proxy of this rule, up or down.
fn copy(way: &str, rule: &Rule) -> (Ran, Arc<Gateway>, Scene, FaultyStore) {
    let (gateway, scene) = (Arc::new(Gateway::new()), Scene::new());
    file_of(&scene.path("a"), SIZE, 5);
    file_of(&scene.path("other"), SIZE, 6);
    if way == "down" {
        gateway.succeed(&scene, "copy @/a s3:/there");
    }
    let store = FaultyStore::new(&gateway, rule.clone());
    let line = match way {
        "up" => "copy @/a s3:/new --streams 1",
        _ => "copy s3:/there @/new --streams 1",
    };
    // On a busy machine whatever is not silent takes seconds too.
    let stall_s = if matches!(rule.fault, Fault::Silence) { 2 } else { 60 };
    let line = format!("{line} --stall {stall_s}");
    let ran = run::to_end(gateway.command(&scene, &line, store.port), b"");
    assert!(store.applied.load(Relaxed) > 0, "the rule did nothing: {rule:?}\n{ran}");
    (ran, gateway, scene, store)
}

fn rule(method: &'static str, target: &'static str, times: usize, fault: Fault) -> Rule {
    Rule { method, target, after: 0, times, fault }
}

#[test]
fn what_passes_is_tried_again() {
    let cases = [
        ("down", rule("GET", "/there", 2, Fault::Status(500, "InternalError"))),
        ("down", rule("GET", "/there", 3, Fault::Status(503, "SlowDown"))),
        ("down", rule("HEAD", "/there", 2, Fault::Status(503, ""))),
        ("down", rule("GET", "/there", 2, Fault::Reset)),
        ("down", rule("GET", "/there", 2, Fault::Truncated(1_000_000))),
        ("down", rule("GET", "/there", 1, Fault::OtherLength)),
        ("down", rule("GET", "/there", 1, Fault::Silence)),
        ("up", rule("PUT", "partNumber=2", 2, Fault::Status(500, "InternalError"))),
        ("up", rule("PUT", "partNumber", 2, Fault::Reset)),
        ("up", rule("PUT", "partNumber", 1, Fault::LostAnswer)),
        ("up", rule("PUT", "partNumber=1", 1, Fault::Silence)),
        ("up", rule("POST", "uploads", 2, Fault::Status(503, "SlowDown"))),
        ("up", rule("POST", "uploadId", 2, Fault::Status(500, "InternalError"))),
        ("up", rule("POST", "uploadId", 1, Fault::LostAnswer)),
        ("up", rule("GET", "list-type", 1, Fault::Truncated(40))),
    ];
    each(cases, |(way, rule)| {
        let (ran, gateway, scene, _) = copy(way, rule);
        assert_eq!(ran.code, 0, "{ran}");
        let new = match *way {
            "up" => gateway.object("new"),
            _ => scene.path("new"),
        };
        assert!(fs::read(new).unwrap() == fs::read(scene.path("a")).unwrap());
    });
}

/// A request of which nothing moves is sent again on a new connection where others have shown what
/// is usual: long before its store counts as silent.
#[test]
fn a_request_that_is_left_behind_by_others_is_sent_again() {
    let bytes = 100 * MIB;
    let cases = [
        ("copy @/a s3:/new", rule("PUT", "partNumber=12&", 1, Fault::Stuck)),
        ("copy s3:/there @/new", Rule { after: 9, ..rule("GET", "/there", 1, Fault::Silence) }),
    ];
    each(cases, |(line, rule)| {
        let (gateway, scene) = (Arc::new(Gateway::new()), Scene::new());
        file_of(&scene.path("a"), bytes, 5);
        gateway.succeed(&scene, "copy @/a s3:/there");
        let store = FaultyStore::new(&gateway, rule.clone());
        // Nobody waits for so long.
        let line = format!("{line} --stall 3600");
        let ran = run::to_end(gateway.command(&scene, &line, store.port), b"");
        assert_eq!((ran.code, store.applied.load(Relaxed)), (0, 1), "{ran}");
        let new = match rule.method {
            "PUT" => gateway.object("new"),
            _ => scene.path("new"),
        };
        assert!(fs::read(new).unwrap() == fs::read(scene.path("a")).unwrap());
    });
}

#[test]
fn what_does_not_pass_ends_and_leaves_nothing() {
    let always = 1000;
    let cases = [
        ("down", rule("GET", "/there", always, Fault::Status(500, "InternalError")), 7, "failed"),
        ("down", rule("GET", "/there", always, Fault::Truncated(9)), 7, "failed"),
        ("down", rule("GET", "/there", always, Fault::Status(403, "AccessDenied")), 3, "forbids"),
        ("down", rule("GET", "/there", 1, Fault::Flipped(77)), 6, "not what its checksum"),
        ("down", rule("HEAD", "/there", always, Fault::OtherChecksum), 6, "not what its checksum"),
        ("up", rule("PUT", "partNumber=2", 1, Fault::OtherChecksum), 6, "another checksum"),
        ("up", rule("POST", "uploadId", 1, Fault::OtherChecksum), 6, "another checksum"),
        (
            "up",
            rule("PUT", "partNumber=2", 1, Fault::FlippedBefore(9)),
            6,
            "other than it was sent",
        ),
        ("up", rule("PUT", "partNumber", always, Fault::Status(500, "InternalError")), 7, "failed"),
        ("up", rule("PUT", "partNumber", 1, Fault::Status(403, "AccessDenied")), 3, "forbids"),
        ("up", rule("PUT", "partNumber", 1, Fault::Status(404, "NoSuchUpload")), 3, "NoSuchUpload"),
        ("up", rule("POST", "uploadId", 1, Fault::Status(400, "InvalidPart")), 3, "InvalidPart"),
        ("up", rule("PUT", "partNumber", 1, Fault::Status(507, "QuotaExceeded")), 5, "no room"),
        (
            "up",
            rule("GET", "list-type", 1, Fault::Status(403, "RequestTimeTooSkewed")),
            2,
            "clocks",
        ),
    ];
    each(cases, |(way, rule, code, says)| {
        let (ran, gateway, scene, store) = copy(way, rule);
        assert_eq!(ran.code, *code, "{ran}");
        assert!(ran.stderr.contains(says), "{ran}");
        assert!(!gateway.object("new").exists() && !scene.path("new").exists(), "{ran}");
        if *way == "up" && rule.method != "GET" {
            let seen = store.seen.lock().unwrap();
            // A copy that took a second, as on a busy machine, has a journal: it can be continued.
            let is_kept = !journals(&gateway).is_empty();
            let is_removed = seen.iter().any(|line| line.starts_with("DELETE"));
            assert!(is_removed || is_kept, "parts stay: {seen:?}");
        }
    });
}

/// The same for one that is put whole.
#[test]
fn an_object_of_which_the_store_tells_another_checksum_is_deleted() {
    let (gateway, scene) = (Arc::new(Gateway::new()), Scene::new());
    file_of(&scene.path("a"), 1000, 5);
    let store = FaultyStore::new(&gateway, rule("PUT", "/new", 1, Fault::OtherChecksum));
    let ran = run::to_end(gateway.command(&scene, "copy @/a s3:/new", store.port), b"");
    assert_eq!((ran.code, store.applied.load(Relaxed)), (6, 1), "{ran}");
    assert!(ran.stderr.contains("another checksum") && ran.stderr.contains("is deleted"), "{ran}");
    assert!(!gateway.object("new").exists(), "{ran}");
}

/// A byte changes on its way, so that the checksum that is sent is of others: the store refuses it.
#[test]
fn an_object_that_is_not_what_its_checksum_says_is_refused_by_the_store() {
    let (gateway, scene) = (Arc::new(Gateway::new()), Scene::new());
    file_of(&scene.path("a"), 1000, 5);
    let store = FaultyStore::new(&gateway, rule("PUT", "/new", 1, Fault::FlippedBefore(9)));
    let ran = run::to_end(gateway.command(&scene, "copy @/a s3:/new", store.port), b"");
    assert_eq!((ran.code, store.applied.load(Relaxed)), (6, 1), "{ran}");
    assert!(ran.stderr.contains("other than it was sent"), "{ran}");
    assert!(!gateway.object("new").exists(), "{ran}");
}

/// What held a copy back is what was planted, and is found again in its record.
#[test]
fn the_bottleneck_of_a_store_is_named() {
    let always = 1000;
    let cases = [
        (
            "copy s3:/there @/new --request-size 1M",
            rule("GET", "/there", always, Fault::Late(1500)),
            "first_byte",
        ),
        ("copy s3:/there @/new", rule("GET", "/there", 6, SLOW_DOWN), "throttled"),
        ("copy -r @/t s3:/t", rule("PUT", "/t/", always, Fault::Late(500)), "requests"),
    ];
    each(cases, |(line, rule, expect)| {
        let (gateway, scene) = (Arc::new(Gateway::new()), Scene::new());
        file_of(&scene.path("a"), 6 << 20, 5);
        fs::create_dir(scene.path("t")).unwrap();
        (0..48).for_each(|number| file_of(&scene.path(format!("t/{number}")), 100, number));
        gateway.succeed(&scene, "copy @/a s3:/there");
        let store = FaultyStore::new(&gateway, rule.clone());
        let results = "--results @/results.db";
        let mut copy = gateway.command(&scene, &format!("{line} --json {results}"), store.port);
        copy.env("DATAPUMP_RESULTS", scene.path("results.db")).env_remove("DATAPUMP_NO_RECORD");
        let ran = run::to_end(copy, b"");
        assert_eq!(ran.code, 0, "{ran}");
        let verdict = |ran: &Ran| {
            let events = ran.events();
            let found = events.into_iter().find(|event| event["event"] == "store_verdict");
            found.unwrap_or_else(|| panic!("{ran}"))
        };
        let told = verdict(&ran);
        assert_eq!(told["primary"], *expect, "{told}");
        let again = gateway.succeed(&scene, &format!("explain --json {results}"));
        for figure in ["primary", "shares", "requests", "under_way"] {
            assert_eq!(verdict(&again)[figure], told[figure], "{figure}");
        }
        let page = gateway.succeed(&scene, &format!("explain {results}"));
        assert!(page.stdout_text().contains("held back by: the store"), "{page}");
    });
}

const SLOW_DOWN: Fault = Fault::Status(503, "SlowDown");

/// An object that is replaced while it is read is never a mix of both.
#[test]
fn an_object_that_changes_is_named() {
    let replace = |gateway: &Gateway| {
        let scene = Scene::new();
        file_of(&scene.path("other"), SIZE, 8);
        gateway.succeed(&scene, "copy @/other s3:/there --overwrite always");
    };
    let rule = Rule { after: 1, ..rule("GET", "/there", 1, Fault::After(replace)) };
    let (ran, _, scene, _) = copy("down", &rule);
    assert_eq!(ran.code, 4, "{ran}");
    assert!(ran.stderr.contains("changed while it was read"), "{ran}");
    assert!(!scene.path("new").exists());
}

/// Credentials go to the store that was named and nowhere else.
#[test]
fn a_redirect_is_not_followed() {
    let elsewhere = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = elsewhere.local_addr().unwrap().port();
    for (way, method) in [("down", "HEAD"), ("down", "GET"), ("up", "PUT"), ("up", "GET")] {
        let (ran, ..) = copy(way, &rule(method, "", 1000, Fault::Redirect(port)));
        assert!(ran.code == 2 || ran.code == 3, "{ran}");
        let says = format!("redirects to http://127.0.0.1:{port}/, and credentials do not follow");
        assert!(method == "HEAD" || ran.stderr.contains(&says), "{ran}");
    }
    elsewhere.set_nonblocking(true).unwrap();
    assert!(elsewhere.accept().is_err(), "somebody has come");
}
