//! Campaigns at a real store: measured both ways, interrupted, resumed, shown, refused; and nothing
//! but their own objects is touched.

use std::fs::{self, File};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use crate::support::gateway::{Fault, FaultyStore, Gateway, Rule, file_of};
use crate::support::run;
use crate::support::{Scene, each, processes};
use rustix::process::Signal;
use serde_json::Value;

const MIB: u64 = 1 << 20;
/// Two sizes and two depths beside what a copy has by itself, both ways.
const CELLS: usize = 10;
const GRID: &str = "sweep s3:/data/ --request-sizes 5M,6M --depths 1,2 --sizes 11M --repeat 1 \
                    --results @/store";

/// One campaign at a time measures this host, also of another run of these tests.
pub(crate) fn alone() -> File {
    let file = File::create(std::env::temp_dir().join("datapump-test-campaign")).unwrap();
    file.lock().unwrap();
    file
}

/// A gateway with somebody else's objects where the campaign is.
pub(crate) fn gateway() -> (Arc<Gateway>, Scene) {
    let (gateway, scene) = (Arc::new(Gateway::new()), Scene::new());
    file_of(&scene.path("a"), MIB, 1);
    for key in ["data/a", "data/deep/a", "data/datapump-sweep-other/a"] {
        gateway.succeed(&scene, &format!("copy @/a s3:/{key}"));
    }
    (gateway, scene)
}

/// What is in the store is what was there before the campaign; no upload is left either.
pub(crate) fn assert_untouched(gateway: &Gateway, scene: &Scene) {
    let mut names: Vec<String> = fs::read_dir(gateway.object("data"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, ["a", "datapump-sweep-other", "deep"]);
    for key in ["data/a", "data/deep/a", "data/datapump-sweep-other/a"] {
        assert!(fs::read(gateway.object(key)).unwrap() == fs::read(scene.path("a")).unwrap());
    }
    let left = gateway.succeed(scene, "clean -n --min-age off s3:/ --json").events();
    assert!(!left.iter().any(|event| event["state"] == "would_remove"), "{left:?}");
}

pub(crate) fn cells(scene: &Scene) -> Vec<Value> {
    let ran = scene.succeed("results export --format json --results @/store");
    serde_json::from_slice(&ran.stdout).unwrap()
}

#[test]
fn a_store_is_measured_both_ways_and_shown() {
    let ((gateway, scene), _alone) = (gateway(), alone());
    let ran = gateway.succeed(&scene, GRID);
    let told = ran.stdout_text();
    let lines = || told.lines().filter(|line| line.contains(&format!(" of {CELLS} ")));
    assert_eq!(lines().count(), CELLS, "{ran}");
    assert!(lines().all(|line| line.contains("held back by: ")), "{ran}");
    let cells = cells(&scene);
    assert_eq!(cells.len(), CELLS);
    for cell in &cells {
        assert_eq!(cell["moved"]["bytes"], 11 * MIB, "{cell}");
        assert!(cell["more"]["store_verdict"]["shares"][0]["share"].as_f64() > Some(0.0), "{cell}");
        assert!(cell["cell"]["moving_s"].as_f64() > Some(0.0), "{cell}");
    }
    let put = |cell: &&Value| cell["target"] == "s3://bucket/data/";
    let got = |cell: &&Value| cell["sources"][0] == "s3://bucket/data/";
    let ways = (cells.iter().filter(put).count(), cells.iter().filter(got).count());
    assert_eq!(ways, (CELLS / 2, CELLS / 2));
    assert_shown(&scene);
    assert_untouched(&gateway, &scene);
}

fn assert_shown(scene: &Scene) {
    let shown = scene.succeed("sweep show --results @/store").stdout_text();
    let parts = [
        "to s3://bucket/data/: medians of all passes",
        "from s3://bucket/data/: medians of all passes",
        "request  depth",
        "held back by",
        "request 8M, depth auto",
    ];
    for part in parts {
        assert!(shown.contains(part), "{part}:\n{shown}");
    }
    assert!(!shown.contains("not measured") && !shown.contains("sweep profile"), "{shown}");
    let json = scene.succeed("sweep show --json --results @/store");
    let json: Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(json.as_array().unwrap().len(), CELLS);
    let name = json[0]["place"]["experiment"].as_str().unwrap();
    scene.succeed(&format!("report {name} --html @/page.html --results @/store"));
    let page = fs::read_to_string(scene.path("page.html")).unwrap();
    for part in ["Rate over requests and depths", "held back by", "to s3://bucket/data/"] {
        assert!(page.contains(part), "{part}");
    }
    let none = scene.run("sweep profile --results @/store");
    assert_eq!(none.code, 2, "{none}");
    assert!(none.stderr.contains("--request-size and --depth-sink"), "{none}");
}

#[test]
fn an_interrupted_campaign_leaves_nothing_and_goes_on() {
    let ((gateway, scene), _alone) = (gateway(), alone());
    let mut running = run::start(gateway.command(&scene, &format!("{GRID} --json"), gateway.port));
    running.wait_for("run");
    processes::send(running.pid(), Signal::INT);
    let ran = running.end();
    assert_eq!(ran.code, 130, "{ran}");
    let measured = cells(&scene).len();
    assert!((1..CELLS).contains(&measured), "it ends after a cell: {measured}");
    assert_untouched(&gateway, &scene);
    let ran = gateway.succeed(&scene, "sweep --resume --results @/store");
    let left = ran.stdout_text().lines().filter(|line| line.contains(" of 10 ")).count();
    assert_eq!(left, CELLS - measured, "{ran}");
    let mut order: Vec<u64> =
        cells(&scene).iter().filter_map(|cell| cell["place"]["order_index"].as_u64()).collect();
    order.sort_unstable();
    assert_eq!(order, (0..CELLS as u64).collect::<Vec<_>>(), "each cell once");
    assert_untouched(&gateway, &scene);
}

#[test]
fn what_a_killed_campaign_leaves_goes_when_it_goes_on() {
    let ((gateway, scene), _alone) = (gateway(), alone());
    let mut running = run::start(gateway.command(&scene, &format!("{GRID} --json"), gateway.port));
    running.wait_for("run");
    processes::send(running.pid(), Signal::KILL);
    running.end();
    gateway.succeed(&scene, "sweep --resume --results @/store");
    assert_eq!(cells(&scene).len(), CELLS);
    assert_untouched(&gateway, &scene);
}

#[test]
fn what_passes_is_measured_and_what_is_refused_ends() {
    let status = |times, code, error| Rule {
        method: "PUT",
        target: "partNumber",
        after: 0,
        times,
        fault: Fault::Status(code, error),
    };
    let cases = [
        (status(3, 503, "SlowDown"), 0, ""),
        (status(1000, 403, "AccessDenied"), 1, "the store forbids it"),
    ];
    each(cases, |(rule, code, says)| {
        let ((gateway, scene), _alone) = (gateway(), alone());
        let store = FaultyStore::new(&gateway, rule.clone());
        let ran = run::to_end(gateway.command(&scene, GRID, store.port), b"");
        assert!(store.applied.load(Relaxed) > 0, "{ran}");
        assert_eq!(ran.code, *code, "{ran}");
        assert!(ran.stderr.contains(says), "{ran}");
        if *code == 0 {
            let slowed = |cell: &Value| cell["more"]["store_verdict"]["slow_downs"].as_u64();
            let told: u64 = cells(&scene).iter().filter_map(slowed).sum();
            assert!((1..=3).contains(&told), "the first cell puts: {told}");
        }
        assert_untouched(&gateway, &scene);
    });
}

#[test]
fn what_a_store_does_not_take_is_refused_by_name() {
    let ((gateway, scene), _alone) = (gateway(), alone());
    fs::write(scene.path("hosts"), "s3://bucket/data\n").unwrap();
    let cases = [
        ("sweep s3:/data --windows 64K", "--windows is about copies to hosts"),
        ("sweep s3:/data --levels 0,1", "--levels is about copies to hosts"),
        ("sweep s3:/data --streams 1,2", "--streams is about copies to hosts"),
        ("sweep s3:/data --time 5", "--time is about copies to hosts"),
        ("sweep s3:/data --preset slac", "--preset is about copies to hosts"),
        ("sweep s3:/data --ssh ssh", "--ssh is about copies to hosts"),
        ("sweep s3:/data --request-size 1M", "--request-size is about copies to hosts"),
        ("sweep s3:/data --hosts @/hosts", "--hosts is about copies to hosts"),
        ("sweep s3:/data --request-sizes 4M", "--request-sizes is 4M"),
        ("sweep s3:/data --depths 8 --memory 64M", "the largest cell needs"),
        ("sweep --hosts @/hosts", "measured by itself, with datapump sweep s3://bucket/data"),
        ("sweep --hosts @/hosts --depths 2", "--depths is about an object store"),
        ("sweep --hosts @/hosts --s3-region x", "--s3-region is about an object store"),
        ("sweep --resume --s3-region x", "--s3-region with --resume"),
        ("sweep s3://", "names no bucket"),
        ("sweep s3:/data s3:/more", "write show, compare, profile or install"),
        ("sweep s3://nosuchbucket/data", "nosuchbucket"),
    ];
    each(cases, |(line, says)| {
        let ran = gateway.run(&scene, &format!("{line} --results @/store"));
        assert_ne!(ran.code, 0, "{ran}");
        assert!(ran.stderr.contains(says), "{says}\n{ran}");
    });
    let mut command = gateway.command(&scene, GRID, gateway.port);
    command.env("AWS_SECRET_ACCESS_KEY", "other");
    let wrong = run::to_end(command, b"");
    assert_eq!(wrong.code, 2, "{wrong}");
    assert!(wrong.stderr.contains("the secret key is wrong"), "{wrong}");
    assert_untouched(&gateway, &scene);
}
