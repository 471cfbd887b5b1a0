//! Pauses and losses in a copy's samples agree with its packets, and the pump itself makes no
//! pauses. `cargo xtask experiment retransmission-count no-stops` is the long form.

use std::fs;

use crate::support::data::write_file;
use crate::support::packets::{self, Stream};
use crate::support::wan::Wan;
use crate::support::{Scene, each, run};
use serde_json::Value;

/// A copy over a path, recorded and captured; gives the figures of `explain`.
fn explained(scene: &Scene, wan: &Wan, line: &str) -> Value {
    let mut copy = wan.datapump(scene, &format!("copy --json {line}"));
    copy.env("DATAPUMP_RESULTS", scene.path("results.db")).env_remove("DATAPUMP_NO_RECORD");
    let ran = run::to_end(copy, b"");
    assert_eq!(ran.code, 0, "{line}\n{ran}");
    let ran = scene.succeed("explain --json --results @/results.db");
    ran.events().into_iter().find(|event| event["event"] == "verdict").unwrap()
}

fn list<'a>(verdict: &'a Value, name: &str) -> Vec<&'a Value> {
    let streams = verdict["streams"].as_array().unwrap().iter();
    streams.flat_map(|stream| stream[name].as_array().unwrap()).collect()
}

/// One that pauses for its peer, with a window larger than the queue; and random losses. A busy
/// machine may be late with samples, or make pauses of its own: then it is tried again.
#[test]
fn samples_say_what_packets_say() {
    let keeps_its_window = "--sysctl net.ipv4.tcp_slow_start_after_idle=0";
    let mover = "--lockstep 2M:150ms --window 128K --streams 1 null:10M far:null:";
    let chance = "--streams 2 null:8M far:null:";
    let cases = [
        (format!("--rate 50Mbit --rtt 40ms --queue 48K {keeps_its_window}"), mover, 4, 3),
        ("--rate 50Mbit --rtt 20ms --loss 0.2% --loss-back 0".to_string(), chance, 0, 3),
    ];
    each(cases, |(path, line, pauses, episodes_min)| {
        let line = format!("--congestion cubic --pace off --request-size 256K {line}");
        let mut differences = Vec::new();
        let agree = |_| match compared(path, &line, *pauses, *episodes_min) {
            Ok(()) => true,
            Err(difference) => {
                println!("{difference}");
                differences.push(difference);
                false
            }
        };
        assert!((0..10).any(agree), "{}", differences.join("\n"));
    });
}

/// What the samples of a copy say beside its captured packets; gives the first difference.
fn compared(path: &str, line: &str, pauses: usize, episodes_min: u64) -> Result<(), String> {
    let scene = Scene::new();
    let pcap = scene.path("pcap");
    let wan = Wan::up(&format!("{path} --pcap {}", pcap.display()));
    let verdict = explained(&scene, &wan, line);
    // The file is complete when the path is gone.
    drop(wan);
    let streams = packets::streams(&pcap).unwrap();
    let round_trip_s = verdict["figures"]["round_trip_min_s"].as_f64().unwrap();
    let sampled = list(&verdict, "pause_list");
    let truth: Vec<_> = streams.iter().flat_map(|one| one.pauses(round_trip_s)).collect();
    if (sampled.len(), truth.len()) != (pauses, pauses) {
        return Err(format!("not {pauses} pauses: {sampled:#?}\n{truth:#?}"));
    }
    for (seen, truth) in sampled.iter().zip(&truth) {
        let off_s = (seen["length_s"].as_f64().unwrap() - truth.length_s).abs();
        if off_s >= 0.03 {
            return Err(format!("{off_s}: {seen} for {truth:?}"));
        }
    }
    let again = verdict["figures"]["losses"]["retransmitted_segments"].as_u64().unwrap();
    near("segments again", again, streams.iter().map(Stream::sent_again).sum())?;
    let episodes = list(&verdict, "episodes").len() as u64;
    let truth = streams.iter().map(|one| one.episodes(round_trip_s).len() as u64).sum();
    near("episodes", episodes, truth)?;
    if episodes < episodes_min { Err(format!("{episodes} episodes")) } else { Ok(()) }
}

/// Within a tenth, or one where there are few.
fn near(what: &str, samples: u64, packets: u64) -> Result<(), String> {
    println!("{what}: {samples} by samples, {packets} in packets");
    let off = samples.abs_diff(packets);
    if off * 10 <= packets.max(10) {
        return Ok(());
    }
    Err(format!("{what}: {samples} by samples, {packets} in packets"))
}

#[test]
fn the_pump_never_stops_for_itself() {
    each([("small", "pull"), ("large", "push")], |case| {
        let (files, way) = case;
        let scene = Scene::new();
        fs::create_dir(scene.path("in")).unwrap();
        match *files {
            "small" => (0..2_000).for_each(|number| {
                write_file(
                    &scene.path(format!("in/{number}")),
                    number,
                    1_000 + number as usize * 5,
                );
            }),
            _ => write_file(&scene.path("in/one"), 1, 12 << 20),
        }
        fs::create_dir(scene.path("dst")).unwrap();
        let ends = if way == &"push" { "@/in/ far:@/dst/" } else { "far:@/in/ @/dst/" };
        // A busy machine stops it: one copy of ten is not stopped.
        let never_stops = |_| {
            let wan = Wan::up("--rate 50Mbit --rtt 102ms --queue 1bdp");
            let verdict =
                explained(&scene, &wan, &format!("-r --overwrite always --streams 2 {ends}"));
            assert_eq!(verdict["streams"].as_array().unwrap().len(), 2, "{case:?}");
            let pauses = list(&verdict, "pause_list");
            println!("{case:?}: {pauses:#?}");
            pauses.is_empty()
        };
        assert!((0..10).any(never_stops), "{case:?}: it stops each time");
    });
}
