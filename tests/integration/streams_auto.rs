//! `--streams auto`: whatever is tried while a copy runs, all bytes arrive, and each step is told.
//!
//! Looks come late on a busy host, and a path may seem to be anything then: no test expects that
//! more streams are tried, or that they gain anything. What each path leads to is tested as values
//! (`mover/src/pump/run/stream_controller/tests.rs`).

use serde_json::Value;

use crate::support::data::{assert_same, write_file};
use crate::support::wan::Wan;
use crate::support::{Scene, each, run};

const REASONS: &[&str] = base::stream_steps::StepReason::NAMES;

/// Each step follows the one before, has a reason, and is told as it is recorded; returns the
/// numbers of streams at the beginning and at the end, and whether that was settled.
fn check_steps(events: &[Value]) -> (u64, u64, bool) {
    let steps: Vec<&Value> =
        events.iter().filter(|event| event["event"] == "streams_step").collect();
    let record = &events.last().unwrap()["record"];
    let recorded = record["stream_steps"].as_array().unwrap();
    assert_eq!(steps.len(), recorded.len());
    assert_eq!(record["options"]["streams_auto"], true);
    let begun = record["options"]["streams"].as_u64().unwrap();
    let (mut streams, mut at_s, mut reason) = (begun, 0.0, "");
    for (step, recorded) in steps.iter().zip(recorded) {
        for (name, value) in recorded.as_object().unwrap() {
            assert_eq!(&step[name], value, "{name}");
        }
        assert_eq!(step["from"], streams, "{steps:?}");
        streams = step["to"].as_u64().unwrap();
        assert!((1..=64).contains(&streams), "{step}");
        reason = step["reason"].as_str().unwrap();
        assert!(REASONS.contains(&reason), "{step}");
        let then_s = step["at_s"].as_f64().unwrap();
        assert!(then_s >= at_s, "{steps:?}");
        at_s = then_s;
    }
    assert!(!steps.is_empty(), "at least why the number stayed is told");
    (begun, streams, !["short", "late"].contains(&reason))
}

#[test]
fn a_copy_that_chooses_its_streams_is_whole() {
    each([("@/from far:@/to", 4), ("far:@/from @/to", 4)], |(ends, first)| {
        let scene = Scene::new();
        let wan = Wan::up("--rate 200Mbit --rtt 102ms");
        write_file(&scene.path("from"), 7, 40 << 20);
        let line = format!("copy --json --streams auto --window 64K --request-size 256K {ends}");
        let copy = || {
            let mut copy = wan.datapump(&scene, &line);
            copy.env("DATAPUMP_RESULTS", scene.path("store")).env_remove("DATAPUMP_NO_RECORD");
            run::to_end(copy, b"")
        };
        let ran = copy();
        assert_eq!(ran.code, 0, "{ran}");
        assert_same(&scene.path("from"), &scene.path("to"));
        let (begun, ended, is_settled) = check_steps(&ran.events());
        println!("{ends}: {begun} to {ended} streams");
        assert_eq!(begun, *first, "nothing is known of the path");
        let page = scene.succeed("explain --results @/store").stdout_text();
        assert!(page.contains(&format!("the number of streams\n  {begun} at first\n")), "{page}");
        let told = scene.succeed("explain --json --results @/store").events();
        let is_step = |event: &&Value| event["event"] == "streams_step";
        let count = ran.events().iter().filter(is_step).count();
        assert_eq!(told.iter().filter(is_step).count(), count);
        // Another copy begins with what this one was settled at.
        std::fs::remove_file(scene.path("to")).unwrap();
        let again = copy();
        assert_eq!(again.code, 0, "{again}");
        assert_same(&scene.path("from"), &scene.path("to"));
        let expect = if is_settled { ended } else { *first };
        assert_eq!(check_steps(&again.events()).0, expect);
    });
}

#[test]
fn within_one_host_one_stream_is_the_first() {
    each(["@/from far:@/to", "far:@/from @/to"], |ends| {
        let scene = Scene::new();
        write_file(&scene.path("from"), 7, 64 << 20);
        let ran = scene.succeed(&format!("copy --json --streams auto {ends}"));
        assert_same(&scene.path("from"), &scene.path("to"));
        assert_eq!(check_steps(&ran.events()).0, 1);
    });
}

#[test]
fn as_many_as_there_may_be_fit_into_the_usual_memory() {
    each(["@/from far:@/to", "far:@/from @/to"], |ends| {
        let scene = Scene::new();
        write_file(&scene.path("from"), 7, 80 << 20);
        scene.succeed(&format!("copy --streams 64 {ends}"));
        assert_same(&scene.path("from"), &scene.path("to"));
    });
}

#[test]
fn what_contradicts_it_is_refused() {
    each(["--pace 10MB", "--path-samples off"], |other| {
        let scene = Scene::new();
        let ran = scene.run(&format!("copy --streams auto {other} @/from far:@/to"));
        assert_eq!(ran.code, 2, "{ran}");
        assert!(ran.stderr.contains("--streams auto"), "{ran}");
    });
}
