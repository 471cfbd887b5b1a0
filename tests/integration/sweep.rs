//! Campaigns over an emulated WAN with a real sshd: measured, interrupted, resumed, shown.

use std::fs;
use std::process::Command;

use crate::support::run::{self, Ran};
use crate::support::wan::Wan;
use crate::support::{Scene, each, processes};
use rustix::process::Signal;
use serde_json::Value;

/// A scene with a file of hosts.
fn scene(hosts: &str) -> Scene {
    let scene = Scene::new();
    fs::write(scene.path("hosts"), hosts).unwrap();
    scene
}

/// Campaigns are always recorded: in a store of this scene.
fn sweep(wan: &Wan, scene: &Scene, line: &str) -> Command {
    wan.datapump(scene, &format!("sweep --results @/store {line}"))
}

fn cells(scene: &Scene) -> Vec<Value> {
    let ran = scene.succeed("results export --format json --results @/store");
    serde_json::from_slice(&ran.stdout).unwrap()
}

fn ask(scene: &Scene, line: &str) -> Ran {
    scene.succeed(&format!("sweep {line} --results @/store"))
}

#[test]
fn a_campaign_is_interrupted_and_gone_on_with() {
    let wan = Wan::up("--rate 20Mbit --rtt 40ms --queue 2bdp");
    let scene = scene("# the other end of the path\nfar\n");
    let mut running = run::start(sweep(&wan, &scene, &format!("{GRID} --json")));
    running.wait_for("run");
    let second = run::to_end(sweep(&wan, &scene, GRID), b"");
    assert_eq!(second.code, 1, "{second}");
    assert!(second.stderr.contains("it is being measured by sweep-"), "{second}");
    processes::send(running.pid(), Signal::INT);
    let ran = running.end();
    assert_eq!(ran.code, 130, "{ran}");
    let message = ran.events().last().unwrap()["message"].as_str().unwrap().to_string();
    assert!(message.contains("continue with: datapump sweep --resume sweep-"), "{message}");
    let measured = cells(&scene).len();
    assert!((1..6).contains(&measured), "it ends after a cell: {measured}");
    let shown = ask(&scene, "show").stdout_text();
    assert!(shown.contains(&format!("not measured: far ({} cell", 6 - measured)), "{shown}");

    let ran = run::to_end(sweep(&wan, &scene, "--resume"), b"");
    assert_eq!(ran.code, 0, "{ran}");
    assert_eq!(
        ran.stdout_text().lines().filter(|line| line.contains(" of 6 ")).count(),
        6 - measured
    );
    let cells = cells(&scene);
    let mut order: Vec<u64> =
        cells.iter().map(|cell| cell["place"]["order_index"].as_u64().unwrap()).collect();
    order.sort_unstable();
    assert_eq!(order, [0, 1, 2, 3, 4, 5], "each cell once");
    cells.iter().for_each(assert_filled);
    for (number, pair) in (1..).zip(cells.windows(2)) {
        let busy_s = pair[0]["moved"]["elapsed_s"].as_f64().unwrap();
        let idle_s = pair[1]["cell"]["pause_s"].as_f64().unwrap();
        // Nothing was measured while it was interrupted.
        assert!(number == measured || idle_s >= busy_s, "{busy_s} s of load, {idle_s} s of rest");
    }

    let shown = ask(&scene, "show").stdout_text();
    for part in ["far: medians", "the best setting of each host", "auto/best", "% of the time"] {
        assert!(shown.contains(part), "{part}:\n{shown}");
    }
    assert!(!shown.contains("not measured"), "{shown}");
    let rows = ask(&scene, "show --format csv").stdout_text();
    assert!(rows.contains("round_trips_unloaded_median_s") && rows.lines().count() == 7, "{rows}");
    let name = cells[0]["place"]["experiment"].as_str().unwrap();
    let compared = ask(&scene, &format!("compare {name} {name}")).stdout_text();
    assert!(compared.contains("1.000 to 1.000") || compared.contains("  1.000  "), "{compared}");
    assert_profile(&wan, &scene);
}

/// Every field of the record that the analysis needs.
fn assert_filled(cell: &Value) {
    let paths = [
        "/moved/bytes",
        "/moved/wire_bytes",
        "/moved/goodput_bytes_per_s",
        "/options/streams",
        "/options/request_bytes",
        "/conditions/carrier",
        "/source/cpu_user_s",
        "/source/calls",
        "/source/environment",
        "/sink/cpu_system_s",
        "/sink/environment",
        "/sink/window_seen_bytes",
        "/machines/1/busy_idle_s",
        "/machines/1/background_s",
        "/round_trips/method",
        "/round_trips/unloaded/min_s",
        "/round_trips/unloaded/p95_s",
        "/round_trips/loaded/median_s",
        "/place/repeat",
        "/place/seed",
        "/cell/choice",
        "/cell/extent_s",
        "/cell/compression_ratio",
        "/cell/moving_s",
        "/source/window_scale",
        "/tcp/segments_sent",
        "/tcp/peer_window_p90_bytes",
        "/tcp/receive_threshold_bytes",
        "/tcp/rtt_min_s",
        "/more/verdict/shares",
        "/more/verdict/pauses",
        "/cell/cycles_per_byte_source",
        "/series/0",
        "/paths/0",
        "/gates/0",
    ];
    for path in paths {
        let value = cell.pointer(path);
        assert!(value.is_some_and(|value| !value.is_null()), "{path}: {cell}");
    }
    let figure = |path: &str| cell.pointer(path).unwrap().as_f64().unwrap();
    // A busy machine is late, and the emulated path makes up for some of that.
    let rest_s = figure("/round_trips/unloaded/min_s");
    assert!((0.01..0.4).contains(&rest_s), "the path takes 40 ms: {rest_s}");
    assert!(figure("/round_trips/unloaded/sent") >= 9.0, "ten a second: {cell}");
    let compresses = cell["options"]["compress"] != "off";
    assert_eq!(figure("/cell/compression_ratio") > 4.0, compresses, "{cell}");
}

/// A copy with the profile uses the best settings.
fn assert_profile(wan: &Wan, scene: &Scene) {
    let home = scene.path("config");
    let with_home = |mut command: Command| {
        command.env("XDG_CONFIG_HOME", &home);
        command
    };
    let keep = scene.command(&scene.words("sweep --results @/store profile"));
    let ran = run::to_end(with_home(keep), b"");
    assert_eq!(ran.code, 0, "{ran}");
    let path = home.join("datapump/profiles/far");
    assert!(fs::read_to_string(&path).unwrap().starts_with("# far, measured by sweep-"));
    fs::write(&path, "streams 3\nwindow 128K\n").unwrap();
    let line = "copy --json --profile far null:64K far:null:";
    let ran = run::to_end(with_home(wan.datapump(scene, line)), b"");
    assert_eq!(ran.code, 0, "{ran}");
    let settings = &ran.events()[0]["options"];
    assert_eq!((&settings["streams"], &settings["window_bytes"]), (&3.into(), &131_072.into()));
}

/// Without an answer by ICMP the far probe echoes.
#[test]
fn a_host_that_fails_is_named_and_the_others_are_measured() {
    let wan = Wan::up("--rate 50Mbit --rtt 10ms --queue 2bdp");
    let mut silent = Command::new("sysctl");
    silent.args(["-w", "net.ipv4.icmp_echo_ignore_all=1"]);
    assert_eq!(run::to_end(wan.far(silent), b"").code, 0);
    let scene = Scene::new();
    fs::create_dir(scene.path("there")).unwrap();
    let hosts = format!("nowhere.invalid\nfar:{}\n", scene.path("there").display());
    fs::write(scene.path("hosts"), hosts).unwrap();
    let line = "--hosts @/hosts --sizes 64K,128K --windows auto --streams 2 --repeat 1";
    let ran = run::to_end(sweep(&wan, &scene, line), b"");
    assert_eq!(ran.code, 7, "{ran}");
    assert!(ran.stderr.contains("not measured to the end: nowhere.invalid (4 cells"), "{ran}");
    assert!(ran.stderr.contains("nowhere.invalid is skipped for"), "{ran}");
    let cells = cells(&scene);
    assert_eq!(cells.len(), 4, "{ran}");
    assert!(cells.iter().all(|cell| cell["remote"]["host"] == "far"));
    let mut bytes: Vec<u64> =
        cells.iter().map(|cell| cell["moved"]["bytes"].as_u64().unwrap()).collect();
    bytes.sort_unstable();
    assert_eq!(bytes, [65_536, 65_536, 131_072, 131_072]);
    for cell in &cells {
        let trips = &cell["round_trips"];
        assert_eq!(trips["method"], "tcp");
        let rest_s = trips["unloaded"]["median_s"].as_f64().unwrap();
        assert!((0.0095..0.02).contains(&rest_s), "the path takes 10 ms: {rest_s}");
    }
    assert!(cells[0]["target"].as_str().unwrap().starts_with("far:/"), "to a file there");
    scene.assert_holds("there", &[]);
}

/// Requests in flight when the time is over are still written.
#[test]
fn timed_copies_are_written_to_a_folder_and_taken_away() {
    let wan = Wan::up("--rate 50Mbit --rtt 10ms --queue 2bdp");
    let scene = Scene::new();
    fs::create_dir(scene.path("there")).unwrap();
    let hosts = format!("far:{}\n", scene.path("there").display());
    fs::write(scene.path("hosts"), hosts).unwrap();
    let line = "--hosts @/hosts --durations 0.3,0.6 --windows auto --streams 1 --repeat 1";
    let ran = run::to_end(sweep(&wan, &scene, line), b"");
    assert_eq!(ran.code, 0, "{ran}");
    let cells = cells(&scene);
    assert_eq!(cells.len(), 4, "{ran}");
    for cell in &cells {
        let figure = |path: &str| cell.pointer(path).and_then(Value::as_f64).unwrap();
        assert!(figure("/cell/moving_s") >= figure("/cell/extent_s"), "{cell}");
        assert!(figure("/sink/starts") > 0.0, "a file was written to: {cell}");
    }
    scene.assert_holds("there", &[]);
}

#[test]
fn the_order_of_slac_is_said_and_nothing_is_done() {
    let scene = scene("anl\nkek.jp:/tmp\n");
    let line = "sweep --hosts @/hosts --preset slac --dry-run";
    let ran = scene.succeed(line);
    let said = ran.stdout_text();
    assert_eq!(said.lines().count(), 2 + 2 * (8 * 17 * 8 + 2), "{}", said.len());
    assert!(ran.stderr.contains("2180 cells on 2 hosts"), "{}", ran.stderr);
    assert!(ran.stderr.contains("(25 %)"), "each path: {}", ran.stderr);
    let json = scene.succeed(&format!("{line} --json")).events();
    let first: Vec<String> = json[1]["cells"].as_array().unwrap()[..10]
        .iter()
        .map(|cell| format!("{} {} {}", cell["window_bytes"], cell["streams"], cell["compress"]))
        .collect();
    assert_eq!(first[0], "8192 1 \"off\"");
    assert_eq!(first[1], "8192 1 \"zlib:5\"");
    assert_eq!(first[8], "8192 20 \"off\"");
}

#[test]
fn what_cannot_be_measured_is_refused_with_what_to_write() {
    let scene = scene("anl\na b\n");
    fs::write(scene.path("good"), "anl\n").unwrap();
    let cases = [
        ("", 2, "write --hosts FILE"),
        ("--hosts @/none", 2, "cannot be read"),
        ("--hosts @/hosts", 2, "line 2: 'a b': write one host per line"),
        ("--hosts @/good --windows 1K", 2, "write sizes such as 64K,1M"),
        ("--hosts @/good --levels 0,10", 2, "write levels such as 0,1,9"),
        ("--hosts @/good --streams 65", 2, "each a number from 1 to 64"),
        ("--hosts @/good --time 1 --sizes 1M", 2, "keep one"),
        ("--hosts @/good --durations 2,x", 2, "write times such as 2,5,10"),
        ("--hosts @/good --streams 64 --request-size 16M", 2, "raise --memory"),
        ("shew", 2, "write show, compare, profile or install"),
        ("compare a", 2, "two campaigns"),
        ("show --results @/nothing", 1, "there is no results store"),
        ("--resume --results @/nothing", 1, "there is no results store"),
    ];
    each(cases, |(line, code, expect)| {
        let ran = scene.run(&format!("sweep {line}"));
        assert_eq!(ran.code, *code, "{line}\n{ran}");
        assert!(ran.stderr.contains(expect), "{line}\n{ran}");
    });
}

/// Two of the grid at two levels, and what is done by itself, with compression and without.
const GRID: &str = "--hosts @/hosts --windows 64K --streams 1,4 --levels 0,1 --time 0.5 --repeat 1 \
                    --congestion cubic";
