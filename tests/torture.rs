//! A few rounds of `cargo xtask torture`: processes are killed in the middle, nothing is lost.

mod support;

use std::path::PathBuf;

use support::torture::{Ground, Load, Plan, Victim, Way};
use support::{PROGRAM, Scene, each, far};

#[test]
fn killed_at_random_moments() {
    let scene = Scene::new();
    let ground = Ground {
        program: PathBuf::from(PROGRAM),
        ssh: far::ssh_command(),
        folder: scene.path("torture"),
        large_bytes: 48 << 20,
        tree_files: 400,
        knobs: "--rate 800Mbit".into(),
    };
    std::fs::create_dir(&ground.folder).unwrap();
    ground.lay();
    let plan = |load, way, victim, first, second| {
        let (clean, _) = ground.clean(load, way).unwrap();
        (Plan { load, way, victim, moments: [Some(first), second] }, clean)
    };
    let plans = [
        plan(Load::Large, Way::Push, Victim::Near, 0.6, None),
        plan(Load::Large, Way::Push, Victim::Far, 0.5, None),
        plan(Load::Large, Way::Pull, Victim::Ssh, 0.6, None),
        plan(Load::Large, Way::Local, Victim::Near, 0.5, Some(0.3)),
        plan(Load::Tree, Way::Push, Victim::Near, 0.7, None),
        plan(Load::Tree, Way::Pull, Victim::Near, 0.4, Some(0.3)),
        plan(Load::Tree, Way::Push, Victim::Ssh, 0.5, None),
        plan(Load::Tree, Way::Pull, Victim::Far, 0.5, None),
    ];
    each(plans.iter().enumerate(), |(number, (plan, clean))| {
        let shown = ground.play(*number as u64, plan, *clean).unwrap_or_else(|why| panic!("{why}"));
        println!("{plan:?}: {shown:?}");
        assert!(shown.kills > 0, "nobody was killed");
    });
}
