//! `datapump limit`: the rate of a copy that runs is changed by another process.

use serde_json::Value;

use crate::support::data::{assert_same, write_file};
use crate::support::{Scene, each, run, until_some};

/// The rates that a copy is told to keep, one after the other. It begins at one at which it would
/// take days, and so ends only if it hears of the last.
const TOLD: &[(&str, Option<f64>)] =
    &[("2kB", Some(2e3)), ("1Gbit", Some(125e6)), ("1kB", Some(1e3)), ("unlimited", None)];

#[test]
fn a_copy_that_runs_keeps_to_another_rate() {
    each(["@/from @/to", "@/from far:@/to", "far:@/from @/to"], |ends| {
        let scene = Scene::new();
        write_file(&scene.path("from"), 7, 1 << 22);
        let line = format!("copy --json --digest crc64 --rate 1kB {ends}");
        let copy = run::start(scene.command(&scene.words(&line)));
        let process = copy.child.id();
        let shown = until_some("the copy is listed", || {
            let listed = scene.succeed("limit --json").events();
            let is_it = |shown: &Value| shown["process"] == process;
            listed.into_iter().find(|shown| is_it(shown) && shown["bytes_found"] == 1 << 22)
        });
        assert_eq!(shown["limit_bytes_per_s"], 1000.0);
        assert!(shown["target"].as_str().unwrap().ends_with("/to"), "{shown}");
        for (rate, bytes_per_s) in TOLD {
            let told = scene.succeed(&format!("limit --json {process} {rate}")).events();
            assert_eq!(told[0]["limit_bytes_per_s"].as_f64(), *bytes_per_s, "{rate}");
        }
        let ran = copy.end();
        assert_eq!(ran.code, 0, "{ran}");
        let limits = ran.events().into_iter().filter(|event| event["event"] == "limit");
        let limits: Vec<_> = limits.map(|event| event["rate_bytes_per_s"].as_f64()).collect();
        assert_eq!(limits, TOLD.iter().map(|(_, rate)| *rate).collect::<Vec<_>>());
        assert_same(&scene.path("from"), &scene.path("to"));
    });
}

#[test]
fn a_process_that_is_no_copy_is_named() {
    let scene = Scene::new();
    for process in [1, std::process::id()] {
        let ran = scene.run(&format!("limit {process} 5MB"));
        assert_eq!(ran.code, 1, "{ran}");
        let text = format!("process {process} is no copy of yours that runs here");
        assert!(ran.stderr.contains(&text), "{ran}");
    }
}
