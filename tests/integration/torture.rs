//! A few rounds of `cargo xtask torture`: copies are interrupted in the middle, nothing is lost.

use std::path::PathBuf;

use crate::support::torture::{Fault, Ground, Load, Moment, Path, Plan, Strike, Way};
use crate::support::{PROGRAM, Scene, each, far, need_root};

#[test]
fn killed_at_random_moments() {
    let scene = Scene::new();
    let ground = ground(&scene, None);
    let path = Path { wan: false, rate_mbit: 800, rtt_ms: 0, loss_permille: 0 };
    let plan = |load, way, fault, shares: &[f64]| {
        let strike = |share: &f64| Strike { fault, moment: Moment::Share(*share), seconds: 0.0 };
        let strikes = shares.iter().map(strike).collect();
        Plan { load, way, path, options: String::new(), strikes }
    };
    let plans = [
        plan(Load::Large, Way::Push, Fault::KillNear, &[0.6]),
        plan(Load::Large, Way::Push, Fault::KillFar, &[0.5]),
        plan(Load::Large, Way::Pull, Fault::KillSsh, &[0.6]),
        plan(Load::Large, Way::Local, Fault::KillNear, &[0.5, 0.3]),
        plan(Load::Tree, Way::Push, Fault::KillNear, &[0.7]),
        plan(Load::Tree, Way::Pull, Fault::KillNear, &[0.4, 0.3]),
        plan(Load::Tree, Way::Push, Fault::KillSsh, &[0.5]),
        plan(Load::Tree, Way::Pull, Fault::KillFar, &[0.5]),
    ];
    each(plans.iter().enumerate(), |(number, plan)| {
        play(&ground, &format!("killed{number}"), plan);
    });
}

/// The same faults as the long form draws, on loopback and over one path with loss.
#[test]
fn a_few_rounds_of_chaos() {
    need_root("it makes network namespaces");
    let scene = Scene::new();
    let path = Path { wan: true, rate_mbit: 200, rtt_ms: 30, loss_permille: 1 };
    let words = path.words();
    let words: Vec<&str> = words.split_whitespace().collect();
    let wan = wan::Wan::up(&wan::Profile::from_words(&words).unwrap(), Some(PROGRAM.as_ref()));
    let ground = ground(&scene, Some(wan.unwrap()));
    let mut struck = 0;
    for round in 0..8 {
        let mut plan = Plan::of(SEED, round, None, round % 2 == 1);
        if plan.path.wan {
            plan.path = path;
        }
        // Long waits are for the long form.
        plan.strikes.iter_mut().for_each(|strike| strike.seconds = strike.seconds.min(3.0));
        let shown = ground.play(&format!("chaos{round}"), &plan).unwrap_or_else(|why| {
            panic!("{why}");
        });
        println!("{plan:?}: {shown:?}");
        struck += shown.struck.len();
    }
    assert!(struck > 0, "nothing was struck");
}

/// Plays it, slower until somebody was there to kill: a busy machine looks late.
fn play(ground: &Ground, name: &str, plan: &Plan) {
    let mut plan = plan.clone();
    for attempt in 0..6 {
        let shown = ground.play(&format!("{name}-{attempt}"), &plan);
        let shown = shown.unwrap_or_else(|why| panic!("{why}"));
        println!("{plan:?}: {shown:?}");
        if !shown.struck.is_empty() {
            return;
        }
        plan.path.rate_mbit /= 3;
    }
    panic!("nobody was killed");
}

fn ground(scene: &Scene, wan: Option<wan::Wan>) -> Ground {
    let ground = Ground {
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
    std::fs::create_dir(&ground.folder).unwrap();
    ground.lay();
    ground
}

const SEED: u64 = 21;
