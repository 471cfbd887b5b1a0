//! One setting of a real store is measured both ways; and nothing but its own objects is touched.

use serde_json::Value;

use crate::stores_sweep::{alone, assert_untouched, cells, gateway};
use crate::support::gateway::Gateway;
use crate::support::{Scene, each, processes, run};
use rustix::process::Signal;

const MIB: u64 = 1 << 20;

fn measured(gateway: &Gateway, scene: &Scene, options: &str) -> Vec<Value> {
    let line = format!("measure s3:/data/ --bytes 11M --results @/store {options}");
    let ran = gateway.succeed(scene, &line);
    let told = ran.stdout_text();
    let begins = |start: &'static str| told.lines().filter(move |line| line.starts_with(start));
    assert_eq!(begins("to s3://bucket/data/: 11M").count(), 1, "{ran}");
    assert_eq!(begins("from s3://bucket/data/: 11M").count(), 1, "{ran}");
    for figure in ["rate", "CPU time here", "requests", "first byte", "held back by"] {
        let named = told.lines().filter(|line| line.trim_start().starts_with(figure)).count();
        assert_eq!(named, 2, "{figure}: once each way\n{ran}");
    }
    assert_untouched(gateway, scene);
    cells(scene)
}

#[test]
fn what_a_copy_has_by_itself_is_measured() {
    let ((gateway, scene), _alone) = (gateway(), alone());
    let cells = measured(&gateway, &scene, "--repeat 2");
    assert_eq!(cells.len(), 4, "twice each way");
    for cell in &cells {
        assert_eq!(cell["moved"]["bytes"], 11 * MIB, "{cell}");
        assert_eq!(cell["options"]["request_bytes"], 8 * MIB, "{cell}");
        assert_eq!(cell["options"]["depth_sink"], Value::Null, "{cell}");
    }
    let shown = scene.succeed("sweep show --results @/store");
    assert!(shown.stdout_text().contains("to s3://bucket/data/: medians"), "{shown}");
}

#[test]
fn the_setting_that_is_typed_is_measured_alone() {
    let ((gateway, scene), _alone) = (gateway(), alone());
    let options = "--request-sizes 6M --depths 2 --repeat 1 --order given";
    let cells = measured(&gateway, &scene, options);
    assert_eq!(cells.len(), 2, "once each way");
    for cell in &cells {
        assert_eq!(cell["options"]["request_bytes"], 6 * MIB, "{cell}");
        assert_eq!(cell["options"]["depth_sink"], 2, "{cell}");
    }
}

#[test]
fn an_interrupted_measurement_leaves_nothing_and_goes_on() {
    let ((gateway, scene), _alone) = (gateway(), alone());
    let line = "measure s3:/data/ --bytes 11M --repeat 8 --results @/store --json";
    let mut running = run::start(gateway.command(&scene, line, gateway.port));
    running.wait_for("run");
    processes::send(running.pid(), Signal::INT);
    let ran = running.end();
    assert_eq!(ran.code, 130, "{ran}");
    let before = cells(&scene).len();
    assert!((1..16).contains(&before), "it ends after a copy: {before}");
    assert_untouched(&gateway, &scene);
    gateway.succeed(&scene, "sweep --resume --results @/store");
    assert_eq!(cells(&scene).len(), 16);
    assert_untouched(&gateway, &scene);
}

#[test]
fn what_is_not_of_a_store_is_refused_by_name() {
    let ((gateway, scene), _alone) = (gateway(), alone());
    let cases = [
        ("measure s3:/data --soak none", "--soak is about the parts of a copy between hosts"),
        ("measure s3:/data --on far", "--on is about the parts of a copy between hosts"),
        ("measure s3:/data --window 1M", "--window is about the parts of a copy between hosts"),
        ("measure s3:/data --ssh ssh", "--ssh is about the parts of a copy between hosts"),
        ("measure s3:/data --request-sizes 6M,8M", "datapump sweep s3://bucket/data compares"),
        ("measure s3:/data --depths 1..4", "datapump sweep s3://bucket/data compares"),
        ("measure s3:/data --request-sizes 1M", "--request-sizes is 1M"),
        ("measure s3:/data --depths 8 --memory 64M", "the largest cell needs"),
        ("measure s3:/data cpu", "is measured by itself"),
        ("measure cpu --s3-region x", "--s3-region is about an object store"),
        ("measure s3://", "names no bucket"),
        // Before it is said how long it takes.
        ("measure s3://nosuchbucket/data", "nosuchbucket"),
        ("sweep s3://nosuchbucket/data", "nosuchbucket"),
    ];
    each(cases, |(line, says)| {
        let ran = gateway.run(&scene, &format!("{line} --results @/store"));
        assert_ne!(ran.code, 0, "{ran}");
        assert!(ran.stderr.contains(says), "{says}\n{ran}");
        assert!(ran.stdout.is_empty(), "{ran}");
    });
    assert_untouched(&gateway, &scene);
}
