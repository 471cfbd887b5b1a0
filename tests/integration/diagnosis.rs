//! What held a real copy back over an emulated path, according to `explain`. The whole matrix is
//! `cargo xtask bench diagnosis`.

use crate::support::Scene;
use crate::support::run::{self, Ran};
use crate::support::wan::Wan;
use serde_json::Value;

struct Case {
    path: &'static str,
    round_trip_s: f64,
    /// What a full window makes of it, as a factor.
    loaded_max: f64,
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
        round_trip_s: 0.102,
        loaded_max: 1.2,
        copy: "--streams 1 --congestion cubic --window 256K --lockstep 32M:250ms null:34M",
        class: "receive_window",
        named: &["256 KiB caps a stream at 2", "stops in lockstep every 32 MiB for 3"],
    },
    Case {
        path: "--rate 100Mbit --rtt 20ms --loss 1%",
        round_trip_s: 0.020,
        // Delayed acknowledgements of a small window add 7 % on an idle machine.
        loaded_max: 1.15,
        copy: "--streams 1 --congestion cubic null:9M",
        class: "path_loss",
        named: &["one segment in", "streams would"],
    },
    Case {
        path: "--rate 60Mbit --rtt 30ms",
        round_trip_s: 0.030,
        loaded_max: 1.05,
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

/// A machine that is too busy to emulate the path is asked again. If it stays so, there is only a
/// verdict to check: its rules are tested with recorded paths.
fn check(case: &Case) {
    let mut last = None;
    for _ in 0..ATTEMPTS_MAX {
        let found = Found::of(case);
        if found.path_was_right {
            return found.is_right(case);
        }
        last = Some(found);
    }
    let found = last.expect("there was an attempt");
    let first = found.page.lines().find(|line| line.starts_with("held back by: "));
    assert!(first.is_some(), "no verdict\n{}", found.page);
}

struct Found {
    ran: Ran,
    verdict: Value,
    page: String,
    path_was_right: bool,
}

impl Found {
    fn of(case: &Case) -> Found {
        let scene = Scene::new();
        let wan = Wan::up(case.path);
        let line = format!("copy {} far:null:", case.copy);
        let mut copy = wan.datapump(&scene, &line);
        copy.env("DATAPUMP_RESULTS", scene.path("results.db")).env_remove("DATAPUMP_NO_RECORD");
        let ran = run::to_end(copy, b"");
        assert_eq!(ran.code, 0, "{line}\n{ran}");
        let page = scene.succeed("explain --results @/results.db").stdout_text();
        let said = scene.succeed("explain --json --results @/results.db").events();
        let verdict = said[0].clone();
        let figures = &verdict["figures"];
        let within = |seconds: &Value, most: f64| {
            let seconds = seconds.as_f64().unwrap_or(0.0);
            (0.95..most).contains(&(seconds / case.round_trip_s))
        };
        // What makes round trips longer than that is the machine.
        let path_was_right = within(&figures["round_trip_min_s"], 1.05)
            && within(&figures["features"]["round_trip_s"], case.loaded_max)
            && wan.counters().late_share() <= LATE_MAX;
        Found { ran, verdict, page, path_was_right }
    }

    fn is_right(&self, case: &Case) {
        let Found { ran, verdict, page, .. } = self;
        assert_eq!(verdict["primary"], case.class, "{}\n{page}{ran}", case.copy);
        for named in case.named {
            assert!(page.contains(named), "'{named}' is missing\n{}\n{page}", case.copy);
            assert!(
                ran.stdout_text().contains(named),
                "'{named}' is missing\n{}\n{ran}",
                case.copy
            );
        }
    }
}

const ATTEMPTS_MAX: usize = 5;
/// The share of packets that left the path more than 1 ms late, as in the benches.
const LATE_MAX: f64 = 0.03;
