//! Net tests over an emulated WAN: their output, how they end, and what they refuse.

use crate::support::wan::Wan;
use crate::support::{Scene, each, processes, run};
use rustix::process::Signal;
use serde_json::Value;

/// Of 1500 bytes 1448 are TCP's user's.
const RATE: f64 = 20e6 * 1448.0 / 1500.0;

#[test]
fn the_rate_of_the_path_is_found_in_either_direction_and_in_both() {
    let wan = Wan::up("--rate 20Mbit --rtt 20ms --queue 2bdp");
    let cases: [(&str, &[&str]); 3] = [
        ("--streams 2", &["forward"]),
        ("--reverse", &["reverse"]),
        ("--bidir --seal tls", &["forward", "reverse"]),
    ];
    each(cases, |(line, directions)| {
        let scene = Scene::new();
        let line = format!("net-test far {TIMES} --json {line}");
        let ran = run::to_end(wan.datapump(&scene, &line), b"");
        assert_eq!(ran.code, 0, "{line}\n{ran}");
        let events = ran.events();
        let end = &events.last().unwrap()["net_test"];
        assert_eq!(end["duration_s"], 2.0);
        for (way, direction) in directions.iter().enumerate() {
            assert_way(&end["ways"][way], direction, &line);
            let of_way: Vec<&Value> = events
                .iter()
                .filter(|event| event["event"] == "interval" && event["direction"] == *direction)
                .collect();
            // One second that does not count, and two that do, in halves.
            assert_eq!(of_way.len(), 6, "{line}\n{ran}");
            assert_eq!(of_way.iter().filter(|one| one["omitted"] == true).count(), 2);
            let last = &of_way[5];
            assert_eq!((&last["from_s"], &last["to_s"]), (&1.5.into(), &2.0.into()));
            let streams = last["streams"].as_array().unwrap();
            assert_eq!(streams.len(), if line.contains("--streams 2") { 2 } else { 1 });
            for known in ["retransmitted_segments", "congestion_window_bytes", "rtt_s"] {
                assert!(streams[0][known].is_number(), "{line}: {known} of {last}");
            }
            let rtt_s = streams[0]["rtt_s"].as_f64().unwrap();
            assert!((0.019..0.2).contains(&rtt_s), "{line}: {rtt_s}");
        }
        let hosts = end["hosts"].as_array().unwrap();
        assert_eq!(hosts.len(), 2, "{line}");
        assert_eq!(events.iter().filter(|e| e["event"] == "verdict").count(), directions.len());
    });
}

/// The samples are where `explain` looks for them.
#[test]
fn text_has_a_line_for_each_interval_and_the_run_is_recorded() {
    let wan = Wan::up("--rate 20Mbit --rtt 20ms --queue 2bdp");
    let scene = Scene::new();
    let line = format!("net-test far: {TIMES} --streams 2");
    let mut test = wan.datapump(&scene, &line);
    test.env("DATAPUMP_RESULTS", scene.path("store")).env("DATAPUMP_NO_RECORD", "0");
    let ran = run::to_end(test, b"");
    assert_eq!(ran.code, 0, "{ran}");
    let said = ran.stdout_text();
    assert_eq!(said.lines().filter(|line| line.starts_with(" ->     sum")).count(), 8, "{said}");
    let omitted = |line: &&str| line.starts_with(" ->") && line.ends_with("omitted");
    assert_eq!(said.lines().filter(omitted).count(), 6, "{said}");
    for part in [
        "dir  stream",
        "total of 2.0 s",
        "recorded as run 1",
        "sender",
        "receiver",
        "cpu  here",
        "held back by",
    ] {
        assert!(said.contains(part), "{part}:\n{said}");
    }
    let explained = scene.succeed("explain --results @/store");
    assert!(explained.stdout_text().contains("held back by"), "{explained}");
    let listed = scene.succeed("results list --results @/store");
    assert!(listed.stdout_text().contains("net-test"), "{listed}");
}

#[test]
fn ctrl_c_ends_it_early_with_what_was() {
    let wan = Wan::up("--rate 20Mbit --rtt 20ms --queue 2bdp");
    let scene = Scene::new();
    let line = "net-test far --time 600 --interval 0.5 --json --reverse";
    let mut running = run::start(wan.datapump(&scene, line));
    running.wait_for_line("\"interval\"");
    processes::send(running.pid(), Signal::INT);
    let ran = running.end();
    assert_eq!(ran.code, 130, "{ran}");
    let events = ran.events();
    let end = events.last().unwrap();
    assert!(end["message"].as_str().unwrap().contains("of 600 s"), "{ran}");
    let rate = end["net_test"]["ways"][0]["receiver"]["rate_bits_per_s"].as_f64().unwrap();
    assert!(rate > RATE * 0.5, "{rate}");
}

#[test]
fn what_cannot_be_tested_is_refused_with_what_to_write() {
    let scene = Scene::new();
    let nobody = format!("--ssh {}", scene.script("nobody", "exit 127").display());
    let cases = [
        ("--time 1 --udp far", 2, "UDP is out of scope"),
        ("--time 1 --reverse --bidir far", 2, "leave one out"),
        ("--time 1 far:/data", 2, "HOST or HOST:"),
        ("--time 1 far near", 2, "unexpected argument 'near'"),
        ("--time 1 --on far", 2, "unexpected argument '--on'"),
        ("--time 1 -s 64 --request-size 16M far", 2, "raise --memory"),
        (&format!("--time 1 far {nobody}"), 8, "far did not run /bin/sh"),
        (&format!("--time 1 --install never far {nobody}"), 8, "there is no datapump at far"),
    ];
    each(cases, |(line, code, expect)| {
        let ran = scene.run(&format!("net-test {line}"));
        assert_eq!(ran.code, *code, "{line}\n{ran}");
        assert!(ran.stderr.contains(expect), "{line}\n{ran}");
    });
}

#[test]
fn the_form_of_earlier_versions_is_told_what_to_write() {
    let scene = Scene::new();
    let cases = [
        ("measure net far", "write: datapump net-test far"),
        (
            "measure net --time 3 --omit 2 me@far:",
            "write: datapump net-test --time 3 --omit 2 me@far:",
        ),
        ("measure -t 3 net far --seal tls", "write: datapump net-test -t 3 far --seal tls"),
        ("measure net --streams 2", "write: datapump net-test --streams 2"),
        ("measure net --time 1 far near", "write datapump net-test --time 10 HOST"),
        ("measure disk-sink --time 1", "write datapump net-test --time 10 HOST"),
        ("measure far", "datapump net-test HOST"),
    ];
    each(cases, |(line, expect)| {
        let ran = scene.run(line);
        assert_eq!(ran.code, 2, "{line}\n{ran}");
        assert!(ran.stderr.contains(expect), "{line}\n{ran}");
    });
}

fn assert_way(way: &Value, direction: &str, line: &str) {
    assert_eq!(way["direction"], direction, "{line}");
    let of = |end: &str| way[end]["rate_bits_per_s"].as_f64().unwrap();
    // Both directions share the path with each other's acknowledgements.
    let least = if line.contains("--bidir") { 0.75 } else { 0.93 };
    for end in ["sender", "receiver"] {
        let share = of(end) / RATE;
        assert!((least..1.02).contains(&share), "{line}: {end} {share} of the path: {way}");
    }
    assert!(way["sender"]["retransmitted_segments"].is_number(), "{line}");
    assert!(way["receiver"]["retransmitted_segments"].is_null(), "{line}");
}

const TIMES: &str = "--time 2 --omit 1 --interval 0.5 --congestion cubic";
