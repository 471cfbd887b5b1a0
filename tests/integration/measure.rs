//! `datapump measure` with the real program, disk and far side.

use crate::support;
use std::fs;
use std::path::Path;

use crate::support::mount::Mount;
use crate::support::processes::send;
use crate::support::run::{self, Ran};
use crate::support::{Scene, each, far};
use rustix::process::Signal;
use serde_json::Value;

/// Short runs: the test checks what is done, not how fast.
const SHORT: &str = "--bytes 8M --repeat 1 --soak none --file @/ --results @/results.db";

fn set_up() -> Scene {
    let scene = Scene::new();
    data_file(&scene.path("given"), 4 << 20);
    scene
}

fn data_file(path: &Path, bytes: u64) {
    support::data::write_file(path, 7, bytes as usize);
}

/// Each run once: runs that the hypervisor disturbed are repeated.
fn runs(ran: &Ran) -> Vec<Value> {
    let mut runs: Vec<Value> = Vec::new();
    for event in ran.events().into_iter().filter(|event| event["event"] == "run") {
        let run = event["record"].clone();
        let (options, place) = (&run["options"], &run["place"]);
        let place = [&place["scenario"], &place["repeat"], &options["depth_source"]];
        let is = |other: &Value| {
            let (other_options, other_place) = (&other["options"], &other["place"]);
            [&other_place["scenario"], &other_place["repeat"], &other_options["depth_source"]]
                == place
                && other_options["request_bytes"] == options["request_bytes"]
                && other["more"]["whole"].is_null()
        };
        if !run["more"]["whole"].is_null() || !runs.iter().any(is) {
            runs.push(run);
        }
    }
    runs
}

/// A measurement that ran to its end.
fn measured(scene: &Scene, line: &str) -> Ran {
    let ran = scene.run(line);
    check_measured(&ran);
    ran
}

/// On a machine as busy as that of tests all of its runs may be void, which is a failure.
fn check_measured(ran: &Ran) {
    let is_all_void = ran.code == 1 && ran.stderr.contains("nothing was measured: ");
    assert!(ran.code == 0 || is_all_void, "{ran}");
}

#[test]
fn every_part_is_measured_recorded_and_removed() {
    let scene = set_up();
    let line = format!("measure all --request-sizes 64K,1M --json --seed 3 {SHORT}");
    let line = line.replace("8M", "900K");
    let ran = measured(&scene, &line);
    let runs = runs(&ran);
    let (copies, parts): (Vec<&Value>, Vec<&Value>) =
        runs.iter().partition(|run| run["more"]["whole"].is_object());
    // On one disk there are no halves; a folder for tests may be in memory.
    let halves = parts.iter().filter(|run| run["place"]["scenario"] == "disk-net").count();
    let expect = if halves > 0 { 20 } else { 16 };
    assert_eq!(parts.len(), expect, "all scenarios at two sizes, disks alone at two depths\n{ran}");
    // One load is small enough; cold ones are of disks only.
    assert_eq!(copies.len(), 8 + 4, "{ran}");
    for run in parts {
        let scenario = run["place"]["scenario"].as_str().unwrap();
        assert_eq!(run["options"]["streams"], 1);
        assert_eq!(run["sink"].is_null(), !scenario.contains("net"), "{scenario}");
        let on_disk = scenario.starts_with("disk");
        let reads = on_disk && scenario != "disk-sink";
        assert_eq!(run["conditions"]["source_file_system"].is_null(), !reads, "{scenario}");
        let cpu_s = |side: &Value| {
            side["cpu_user_s"].as_f64().unwrap() + side["cpu_system_s"].as_f64().unwrap()
        };
        assert!(cpu_s(&run["source"]) > 0.0, "{run}");
        assert!(run["source"]["environment"].as_i64() > Some(0));
        assert!(run["machines"][0]["span_s"].as_f64() > Some(0.0));
    }
    // What was made is gone, and what was measured is there.
    scene.assert_holds("", &["far-datapump", "given", "results.db"]);
    let listed = scene.succeed("results export --format json --results @/results.db");
    let stored: Vec<Value> = serde_json::from_slice(&listed.stdout).unwrap();
    let told = ran.events().iter().filter(|event| event["event"] == "run").count();
    assert_eq!(stored.len(), told);
    let model = scene.succeed("model show --results @/results.db").stdout_text();
    assert!(model.contains("What copies cost"), "{model}");
    assert!(model.contains("tcp: "), "{model}");
    // The same runs make the same model.
    let fitted = scene.succeed("model fit --results @/results.db").stdout_text();
    let costs = |text: &str| text[text.find("What copies cost").unwrap()..].to_string();
    assert_eq!(costs(&fitted), costs(&model));
}

#[test]
fn the_same_seed_gives_the_same_order() {
    let scene = set_up();
    let order = |seed: u32| {
        let line = format!("measure cpu net --request-sizes 16K..64K --json --seed {seed} {SHORT}");
        let cells = runs(&measured(&scene, &line)).into_iter();
        let cell = |run: Value| {
            (run["place"]["scenario"].clone(), run["options"]["request_bytes"].clone())
        };
        cells.map(cell).collect::<Vec<_>>()
    };
    let first = order(5);
    assert_eq!(first, order(5));
    assert!((6..12).any(|seed| order(seed) != first));
}

#[test]
fn the_other_end_on_another_host() {
    let scene = set_up();
    let ssh = far::ssh_command();
    let what = "net disk-net-disk disk-net net-disk";
    let line = format!("measure {what} --request-sizes 1M --json {SHORT} --on");
    let mut args = scene.words(&line);
    args.push(format!("far:{}", scene.path("").display()).into());
    let mut command = scene.command(&args);
    command.arg("--ssh").arg(ssh).arg("--remote-datapump").arg(scene.far_program());
    let ran = run::to_end(command, b"");
    check_measured(&ran);
    let runs = runs(&ran);
    assert_eq!(runs.len(), 4, "{ran}");
    for run in runs {
        assert_eq!(run["machines"].as_array().unwrap().len(), 2, "a probe on each host: {run}");
        assert_eq!(run["conditions"]["carrier"], "tcp");
    }
    let left = fs::read_dir(scene.path("")).unwrap().flatten().map(|entry| entry.file_name());
    let left: Vec<_> =
        left.filter(|name| name.to_string_lossy().starts_with(".datapump-measure")).collect();
    assert!(left.is_empty(), "{left:?}");
}

/// A container's files lie on overlayfs, where `cachestat` finds no page of a file that is read
/// from memory.
#[test]
fn a_warm_file_on_overlayfs_is_seen_as_one() {
    let scene = Scene::new();
    fs::create_dir(scene.path("lower")).unwrap();
    data_file(&scene.path("lower/given"), 8 << 20);
    // What is not on the disk yet cannot be dropped from memory.
    fs::File::open(scene.path("lower/given")).unwrap().sync_all().unwrap();
    // What lies in memory alone cannot be dropped from there.
    let is_in_memory = rustix::fs::statfs(scene.path("")).unwrap().f_type == 0x0102_1994;
    let _mount = Mount::overlay(&scene.path(""));
    for (cache, expect) in [("warm", 0.98..=1.0), ("cold", 0.0..=0.02)] {
        let line = format!(
            "measure disk-source --request-sizes 64K --json --cache {cache} --repeat 1 \
             --soak none --results @/results.db --file @/merged/given"
        );
        for run in runs(&measured(&scene, &line)) {
            let resident = run["conditions"]["resident_before"].as_f64().unwrap();
            let is_right = expect.contains(&resident) || cache == "cold" && is_in_memory;
            assert!(is_right, "{cache}: {run}");
        }
    }
}

#[test]
fn a_given_file_is_read_and_stays() {
    let scene = set_up();
    let before = fs::read(scene.path("given")).unwrap();
    for cache in ["bypass", "warm", "cold"] {
        let line = format!(
            "measure disk-source disk-disk --request-sizes 64K --json --cache {cache} --repeat 1 \
             --soak none --results @/results.db --file @/given"
        );
        for run in runs(&measured(&scene, &line)) {
            assert_eq!(run["moved"]["bytes"], before.len());
            assert_eq!(run["conditions"]["cache"], cache);
            let resident = run["conditions"]["resident_before"].as_f64();
            let in_memory = run["conditions"]["source_file_system"] == "tmpfs";
            match cache {
                "warm" => assert!(resident.is_none_or(|share| share > 0.98), "{run}"),
                "cold" if !in_memory => {
                    assert!(resident.is_none_or(|share| share < 0.02), "{run}");
                }
                _ => {}
            }
            // Whether a run counts is this machine's affair of the moment (a host that takes its
            // CPUs away makes it void); whether that is said is not.
            let failed =
                run["gates"].as_array().unwrap().iter().any(|gate| gate["passed"] == false);
            assert_eq!(failed, run["void_reason"].is_string(), "{run}");
        }
    }
    assert_eq!(fs::read(scene.path("given")).unwrap(), before);
}

#[test]
fn what_is_written_may_lie_elsewhere() {
    let scene = set_up();
    let elsewhere = tempfile::tempdir_in("/dev/shm").unwrap();
    let line = format!(
        "measure all --request-sizes 64K --json {SHORT} --sink-folder {}",
        elsewhere.path().display()
    );
    let line = line.replace("8M", "900K");
    let mut runs = runs(&measured(&scene, &line));
    runs.retain(|run| run["more"]["whole"].is_null());
    assert_eq!(runs.len(), 10, "eight scenarios, disks alone at two depths");
    runs.retain(|run| !run["conditions"]["sink_file_system"].is_null());
    assert_eq!(runs.len(), 5, "a sink alone at two depths");
    for run in &runs {
        let sink = run["conditions"]["sink_file_system"].as_str();
        assert!(sink.unwrap().starts_with("tmpfs"), "{run}");
        assert_eq!(run["conditions"]["has_two_devices"], true, "{run}");
        let target = run["target"].as_str().unwrap();
        assert!(Path::new(target).starts_with(elsewhere.path()), "{target}");
        let source = run["sources"].to_string();
        assert!(!source.contains(elsewhere.path().to_str().unwrap()), "{source}");
    }
    assert_eq!(fs::read_dir(elsewhere.path()).unwrap().count(), 0, "all is removed");
}

#[test]
fn reading_any_counts_more_calls() {
    let scene = set_up();
    let calls = |how: &str| {
        let line = format!(
            "measure net --request-sizes 1M --json --receive {how} --bytes 64M --repeat 3 \
             --soak none --results @/results.db --file @/"
        );
        let runs = runs(&measured(&scene, &line));
        runs.iter().map(|run| run["sink"]["calls"].as_u64().unwrap()).sum::<u64>()
    };
    let (whole, any) = (calls("waitall"), calls("any"));
    // Two for each request, the header and the body, where the body comes whole.
    assert!(any > whole, "{any} calls with any, {whole} with waitall");
}

#[test]
fn what_is_wrong_is_named() {
    let cases: [(&str, i32, &[&str]); 13] = [
        ("measure codec /dev/zero", 2, &["is no regular file: name a file"]),
        ("measure disks", 2, &["'disks' cannot be measured: write cpu, disk-source"]),
        ("measure cpu --request-sizes 5K", 2, &["--request-sizes '5K': write sizes such as 16K"]),
        ("measure cpu --request-sizes 1M..16K", 2, &["--request-sizes '1M..16K'"]),
        ("measure cpu --depths 0..4", 2, &["--depths '0..4': write numbers such as 1..4"]),
        ("measure cpu --soak one", 2, &["--soak 'one': write none, some or all"]),
        ("measure cpu --file @/nowhere --results @/r.db", 1, &["nowhere"]),
        ("measure cpu --file @/ --sink-folder @/given --results @/r.db", 1, &["given"]),
        (
            "measure disk-sink --bytes 1024T --file @/ --results @/r.db",
            5,
            &[" free, ", "with --file"],
        ),
        (
            "measure net-disk --bytes 1024T --file @/ --sink-folder /dev/shm --results @/r.db",
            5,
            &["'/dev/shm' has", "net-disk writes 1 PiB", "with --sink-folder"],
        ),
        ("measure cpu --file /dev/null --results @/r.db", 2, &["is neither a folder nor a file"]),
        ("measure cpu --file @/ --results @/given", 1, &["it is not an SQLite database"]),
        ("measure cpu --cpus 999 --file @/ --results @/r.db", 2, &["CPU 999"]),
    ];
    each(cases, |(line, code, words)| {
        let scene = set_up();
        let ran = scene.run(line);
        assert_eq!(ran.code, *code, "{line}\n{ran}");
        for word in *words {
            assert!(ran.stderr.contains(word), "{line}: {word}\n{ran}");
        }
    });
}

/// Ctrl-C ends within a second or two; a kill leaves a folder that the next experiment removes. The
/// finished runs stay in both cases.
#[test]
fn what_was_measured_stays() {
    let ends = [(Signal::INT, 130), (Signal::KILL, 128 + 9)];
    let parts = ["measure cpu disk-sink --request-sizes 64K", "measure whole"];
    for ((signal, code), what) in ends.iter().flat_map(|end| parts.map(|what| (*end, what))) {
        let scene = set_up();
        let short = SHORT.replace("8M", "900K");
        let line = format!("{what} --json {short}").replace("--repeat 1", "--repeat 1000");
        let mut running = run::start(scene.command(&scene.words(&line)));
        running.wait_for("run");
        send(running.pid(), signal);
        let ran = running.end();
        assert_eq!(ran.code, code, "{ran}");
        let made = runs(&ran).len();
        let listed = scene.succeed("results export --format json --results @/results.db");
        let stored: Vec<Value> = serde_json::from_slice(&listed.stdout).unwrap();
        assert!(stored.len() >= made.max(1), "{} of {made} runs are recorded", stored.len());
        measured(&scene, &format!("measure cpu --request-sizes 64K {short}"));
        measured(&scene, &format!("measure whole {short}"));
        scene.assert_holds("", &["far-datapump", "given", "results.db"]);
    }
}
