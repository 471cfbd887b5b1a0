//! What held a real copy back over an emulated path, according to `explain`. The whole matrix is
//! `cargo xtask bench diagnosis`.

use crate::support::wan::Wan;
use crate::support::{Scene, run};
use serde_json::Value;

struct Case {
    path: &'static str,
    copy: &'static str,
    class: &'static str,
    /// Words of the sentence.
    named: &'static [&'static str],
}

const CASES: [Case; 3] = [
    // The path of 2003 between two laboratories: a window that does not fill it, a queue that a
    // window overflows, and an application that hands over one block at a time.
    Case {
        path: "--rate 100Mbit --rtt 102ms --queue 128K",
        copy: "--streams 1 --congestion cubic --window 256K --lockstep 32M:250ms null:34M",
        class: "receive_window",
        named: &["256 KiB caps a stream at 2", "stops in lockstep every 32 MiB for 3"],
    },
    Case {
        path: "--rate 100Mbit --rtt 20ms --loss 1%",
        copy: "--streams 1 --congestion cubic null:9M",
        class: "path_loss",
        named: &["one segment in", "streams would"],
    },
    Case {
        path: "--rate 60Mbit --rtt 30ms",
        copy: "--streams 4 --congestion cubic --pace 20Mbit null:20M",
        class: "pacing",
        named: &["limited by --pace", "raise it to"],
    },
];

#[test]
fn planted_bottlenecks_are_found() {
    std::thread::scope(|scope| {
        for case in &CASES {
            scope.spawn(|| check(case));
        }
    });
}

fn check(case: &Case) {
    let scene = Scene::new();
    let wan = Wan::up(case.path);
    let line = format!("copy {} far:null:", case.copy);
    let mut copy = wan.datapump(&scene, &line);
    copy.env("DATAPUMP_RESULTS", scene.path("results.db")).env_remove("DATAPUMP_NO_RECORD");
    let ran = run::to_end(copy, b"");
    assert_eq!(ran.code, 0, "{line}\n{ran}");
    let page = scene.succeed("explain --results @/results.db").stdout_text();
    let said = scene.succeed("explain --json --results @/results.db").events();
    let verdict: &Value = &said[0];
    assert_eq!(verdict["primary"], case.class, "{line}\n{page}{ran}");
    for named in case.named {
        assert!(page.contains(named), "'{named}' is missing\n{line}\n{page}");
        assert!(ran.stdout_text().contains(named), "'{named}' is missing\n{line}\n{ran}");
    }
}
