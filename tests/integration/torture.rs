//! A few rounds of `cargo xtask torture`: copies are interrupted, and nothing is lost.

use std::path::PathBuf;

use crate::support::torture::{Direction, Fault, Fixture, Load, Moment, Path, Plan, Strike};
use crate::support::{PROGRAM, Scene, each, far, need_root};

#[test]
fn killed_at_random_moments() {
    let scene = Scene::new();
    let fixture = fixture(&scene, None);
    let path = Path { wan: false, rate_mbit: 800, rtt_ms: 0, loss_permille: 0 };
    let plan = |load, direction, fault, shares: &[f64]| {
        let strike = |share: &f64| Strike { fault, moment: Moment::Share(*share), seconds: 0.0 };
        let strikes = shares.iter().map(strike).collect();
        Plan { load, direction, path, options: String::new(), strikes }
    };
    let plans = [
        plan(Load::Large, Direction::Push, Fault::KillNear, &[0.6]),
        plan(Load::Large, Direction::Push, Fault::KillFar, &[0.5]),
        plan(Load::Large, Direction::Pull, Fault::KillSsh, &[0.6]),
        plan(Load::Large, Direction::Local, Fault::KillNear, &[0.5, 0.3]),
        plan(Load::Tree, Direction::Push, Fault::KillNear, &[0.7]),
        plan(Load::Tree, Direction::Pull, Fault::KillNear, &[0.4, 0.3]),
        plan(Load::Tree, Direction::Push, Fault::KillSsh, &[0.5]),
        plan(Load::Tree, Direction::Pull, Fault::KillFar, &[0.5]),
    ];
    each(plans.iter().enumerate(), |(number, plan)| {
        play(&fixture, &format!("killed{number}"), plan);
    });
}

/// The same faults as in the long form, on loopback and over one path with loss.
#[test]
fn a_few_rounds_of_chaos() {
    need_root("it makes network namespaces");
    let scene = Scene::new();
    let path = Path { wan: true, rate_mbit: 200, rtt_ms: 30, loss_permille: 1 };
    let words = path.words();
    let words: Vec<&str> = words.split_whitespace().collect();
    let wan = wan::Wan::up(&wan::Profile::from_words(&words).unwrap(), Some(PROGRAM.as_ref()));
    let fixture = fixture(&scene, Some(wan.unwrap()));
    let mut struck = 0;
    for round in 0..8 {
        let mut plan = Plan::of(SEED, round, None, round % 2 == 1);
        if plan.path.wan {
            plan.path = path;
        }
        // Long waits are for the long form.
        plan.strikes.iter_mut().for_each(|strike| strike.seconds = strike.seconds.min(3.0));
        let shown = fixture.play(&format!("chaos{round}"), &plan).unwrap_or_else(|why| {
            panic!("{why}");
        });
        println!("{plan:?}: {shown:?}");
        struck += shown.struck.len();
    }
    assert!(struck > 0, "nothing was struck");
}

/// Runs it, slower each time until there was a process to kill: a busy machine looks late.
fn play(fixture: &Fixture, name: &str, plan: &Plan) {
    let mut plan = plan.clone();
    for attempt in 0..6 {
        let shown = fixture.play(&format!("{name}-{attempt}"), &plan);
        let shown = shown.unwrap_or_else(|why| panic!("{why}"));
        println!("{plan:?}: {shown:?}");
        if !shown.struck.is_empty() {
            return;
        }
        plan.path.rate_mbit /= 3;
    }
    panic!("nobody was killed");
}

fn fixture(scene: &Scene, wan: Option<wan::Wan>) -> Fixture {
    let fixture = Fixture {
        program: PathBuf::from(PROGRAM),
        ssh: far::ssh_command(),
        folder: scene.path("torture"),
        logs: std::env::temp_dir().join(format!("datapump-torture-{}", std::process::id())),
        large_bytes: 48 << 20,
        tree_files: 400,
        islands: 100,
        checks_folders: true,
        wan,
    };
    std::fs::create_dir(&fixture.folder).unwrap();
    fixture.lay();
    fixture
}

const SEED: u64 = 21;
