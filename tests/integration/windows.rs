//! Settings for TCP have their effect, as the other host and the packets show.

use std::path::Path;
use std::process::Command;

use crate::support::capture::{self, Advertised};
use crate::support::wan::Wan;
use crate::support::{Scene, each, need, run};
use serde_json::Value;

const NEAR: &str = "10.77.0.1";
const FAR: &str = "10.77.0.2";

/// A copy from memory to memory over a path, with its packets in a file.
fn copy_over(scene: &Scene, path: &str, line: &str) -> Value {
    need("tcpdump", "tcpdump");
    let pcap = scene.path("pcap");
    let wan = Wan::up(&format!("{path} --pcap {}", pcap.display()));
    let ran = run::to_end(wan.datapump(scene, &format!("copy --json {line}")), b"");
    assert_eq!(ran.code, 0, "{line}\n{ran}");
    // The file is complete when the path is gone.
    drop(wan);
    ran.events().pop().unwrap()["record"].clone()
}

fn advertised(pcap: &Path, by: &str) -> Advertised {
    let words = capture::words_of(pcap, &["tcp"]).unwrap();
    capture::advertised(&words, by).unwrap_or_else(|| panic!("no connection of {by}:\n{words}"))
}

#[test]
fn the_window_that_was_asked_for_is_advertised() {
    let cases = [
        ("8K", "push", "300K"),
        ("16K", "pull", "500K"),
        ("64K", "push", "2M"),
        ("256K", "pull", "8M"),
        ("1M", "push", "24M"),
        ("1M", "pull", "24M"),
    ];
    each(cases, |(window, way, bytes)| {
        let scene = Scene::new();
        let (ends, sink) = match *way {
            "push" => (format!("null:{bytes} far:null:"), FAR),
            _ => (format!("far:null:{bytes} null:"), NEAR),
        };
        let line = format!("--window {window} --streams 1 --seal off {ends}");
        let record = copy_over(&scene, "--rate 200Mbit --rtt 10ms", &line);
        let asked = record["options"]["window_bytes"].as_f64().unwrap();
        let seen = record["source"]["window_seen_bytes"].as_f64().unwrap();
        let wire = advertised(&scene.path("pcap"), sink);
        println!("{window} {way}: asked {asked}, seen {seen}, on the wire {wire:?}");
        // The kernel estimates anew how much of a buffer is payload: 20475 of 16384 was seen once.
        let most = if asked < 65536.0 { 1.3 } else { 1.05 };
        for bytes in [seen, wire.most_bytes as f64] {
            assert!((0.95..most).contains(&(bytes / asked)), "{window} {way}: {seen}, {wire:?}");
        }
        assert!(wire.first_bytes as f64 <= asked * 1.05, "{window} {way}: {wire:?}");
        assert_eq!(record["source"]["window_scale"].as_u64(), Some(wire.scale.into()));
    });
}

/// Root may have any buffer, so this drops the privilege for that.
#[test]
fn a_window_beyond_the_kernels_limits_is_told_with_what_to_set() {
    let scene = Scene::new();
    let wan = Wan::up("--rate 100Mbit --rtt 4ms");
    for (ends, expect) in [
        ("far:null:1M null:", ["the receiving host", "net.core.rmem_max=2147483648"]),
        ("null:1M far:null:", ["the sending host", "net.core.wmem_max=2147483648"]),
    ] {
        let copy = wan.datapump(&scene, &format!("copy --json --window 1G {ends}"));
        let mut limited = Command::new(need("setpriv", "util-linux"));
        limited
            .args(["--bounding-set", "-net_admin"])
            .arg(copy.get_program())
            .args(copy.get_args());
        let ran = run::to_end(wan.near(limited), b"");
        assert_eq!(ran.code, 0, "{ends}\n{ran}");
        let events = ran.events();
        let warned = events.iter().filter(|event| event["event"] == "warning");
        let texts: Vec<&str> = warned.filter_map(|event| event["text"].as_str()).collect();
        let told = |text: &str| expect.iter().all(|words| text.contains(words));
        assert!(texts.iter().any(|text| told(text)), "{ends}: {texts:?}");
    }
}

#[test]
fn data_streams_have_their_mark_and_ssh_has_not() {
    each(["push", "pull"], |way| {
        let scene = Scene::new();
        let ends = if way == &"push" { "null:1M far:null:" } else { "far:null:1M null:" };
        let line = format!("--dscp ef --streams 2 {ends}");
        copy_over(&scene, "--rate 100Mbit --rtt 4ms", &line);
        let marked = |what: &str, address: &str, octet: &str| {
            let filter = format!("src host {address} and {what} and ip[1] & 0xfc {octet}");
            capture::words_of(&scene.path("pcap"), &[&filter]).unwrap().lines().count()
        };
        for address in [NEAR, FAR] {
            let data = "tcp and not port 22";
            assert!(marked(data, address, "== 0xb8") > 10, "{way}: nothing of {address}");
            assert_eq!(marked(data, address, "!= 0xb8"), 0, "{way}: of {address}");
            assert_eq!(marked("port 22", address, "== 0xb8"), 0, "{way}: ssh of {address}");
        }
    });
}

#[test]
fn a_pace_holds_what_is_sent() {
    each(["push", "pull"], |way| {
        let scene = Scene::new();
        let ends = if way == &"push" { "null:4M far:null:" } else { "far:null:4M null:" };
        let line = format!("--pace 20Mbit --streams 2 --seal off {ends}");
        // A copy over a busy machine is slower than its pace: one of ten is not.
        let paced = |_| {
            let record = copy_over(&scene, "--rate 200Mbit --rtt 4ms", &line);
            let moving_s = record["moved"]["elapsed_s"].as_f64().unwrap()
                - record["remote"]["login_s"].as_f64().unwrap();
            let rate = (4 << 20) as f64 * 8.0 / moving_s;
            assert!(rate < 23e6, "{way}: {rate}");
            rate > 14e6
        };
        assert!((0..10).any(paced), "{way}: never near its pace");
    });
}

#[test]
fn in_lockstep_the_source_stops_for_the_sink() {
    let scene = Scene::new();
    let ends = "--request-size 256K --streams 1 null:5M far:null:";
    let elapsed_s = |line: &str| {
        let record = copy_over(&scene, "--rate 200Mbit --rtt 20ms", line);
        record["moved"]["elapsed_s"].as_f64().unwrap()
    };
    // Four stops: after the fifth block there is none. A busy machine may delay the other copy.
    let stops = |_| {
        let stopping_s = elapsed_s(&format!("--lockstep 1M:200ms {ends}"));
        assert!(stopping_s >= 0.8, "{stopping_s}");
        stopping_s > elapsed_s(ends) + 0.6
    };
    assert!((0..10).any(stops));
}

#[test]
fn a_congestion_control_that_the_far_side_lacks_is_named() {
    let scene = Scene::new();
    let wan = Wan::up("--rate 100Mbit --rtt 4ms");
    let run = |name: &str| {
        let line = format!("copy --json --congestion {name} null:1M far:null:");
        run::to_end(wan.datapump(&scene, &line), b"")
    };
    let ran = run("cubic");
    let record = ran.events().pop().unwrap()["record"].clone();
    assert_eq!(
        (record["source"]["congestion"].as_str(), record["sink"]["congestion"].as_str()),
        (CUBIC, CUBIC)
    );
    let ran = run("nosuch");
    assert_eq!(ran.code, 2, "{ran}");
    assert!(ran.stderr.contains("no congestion control 'nosuch' on this host"), "{ran}");
    assert!(ran.stderr.contains("cubic"), "what there is, is named\n{ran}");
}

const CUBIC: Option<&str> = Some("cubic");
