//! One run of a tool over a path: its arguments, and the rate after the ramp.

use crate::said;
use std::collections::BTreeMap;
use std::process::Command;

use ::wan::{FAR_ADDRESS, Wan};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Stand;
use xtask::step::output;

/// A tool that moves bytes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) enum Tool {
    Iperf { congestion: String, streams: u16 },
    Copy { options: String },
}

impl Tool {
    pub(super) fn copy(options: &&str) -> Tool {
        Tool::Copy { options: (*options).to_string() }
    }

    /// The choice as typed.
    pub(super) fn text(&self) -> String {
        match self {
            Tool::Iperf { congestion, streams } => format!("iperf3 -C {congestion} -P {streams}"),
            Tool::Copy { options } if options.is_empty() => "copy, nothing chosen".to_string(),
            Tool::Copy { options } => format!("copy {options}"),
        }
    }
}

/// The result of one run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Seen {
    /// Rate of arrived payload after the ramp.
    pub mbit: f64,
    /// For a copy: all its bytes over all its time without the login.
    pub whole_mbit: Option<f64>,
    /// The bottleneck, by the copy's own diagnosis.
    pub verdict: Option<String>,
}

pub(super) fn run(stand: &Stand<'_>, tool: &Tool, seconds: f64) -> Result<Seen, String> {
    match tool {
        Tool::Iperf { congestion, streams } => {
            let words = format!(
                "-c {FAR_ADDRESS} -J -C {congestion} -P {streams} -O {} -t {seconds}",
                stand.path.ramp_s
            );
            iperf(stand.wan, &words)
        }
        Tool::Copy { options } => copy(stand, options, seconds),
    }
}

fn iperf(wan: &Wan, words: &str) -> Result<Seen, String> {
    let mut client = Command::new("iperf3");
    client.args(words.split_whitespace());
    let mut client = wan.near(client).map_err(|why| format!("iperf3: {why}"))?;
    let said = output(&mut client)?;
    let said: Value =
        serde_json::from_str(&said).map_err(|why| format!("iperf3 {words}: {why}:\n{said}"))?;
    let bits = said["end"]["sum_received"]["bits_per_second"].as_f64();
    let mbit = bits.ok_or_else(|| format!("iperf3 {words} says no rate: {said}"))? / 1e6;
    Ok(Seen { mbit, whole_mbit: None, verdict: None })
}

/// A copy with enough bytes to take as long as iperf3 on a full path.
fn copy(stand: &Stand<'_>, options: &str, seconds: f64) -> Result<Seen, String> {
    let Stand { path, wan, program } = *stand;
    let told = |why: std::io::Error| format!("datapump: {why}");
    let ramp_s = f64::from(path.ramp_s);
    let bytes = path.mbit * 1e6 / 8.0 * (ramp_s + seconds) * LONGER;
    let folder = tempfile::Builder::new().prefix("datapump-profiles-").tempdir().map_err(told)?;
    let store = folder.path().join("results.db");
    let mut copy = Command::new(program);
    copy.args(["copy", "--json", "--quiet", "--ssh", &wan.ssh_command()]);
    copy.env_remove("DATAPUMP_NO_RECORD").arg("--results").arg(&store);
    copy.arg("--remote-datapump").arg(program);
    copy.args(path.copy.split_whitespace()).args(options.split_whitespace());
    copy.args([format!("null:{}", bytes as u64), "far:null:".to_string()]);
    let said = output(&mut wan.near(copy).map_err(told)?)?;
    let events: Vec<Value> =
        said.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let mut export = Command::new(program);
    export.args(["results", "export", "--what", "paths", "--format", "csv", "--results"]);
    let samples = acked(&output(export.arg(&store))?);
    seen(&events, &samples, ramp_s, seconds)
        .ok_or_else(|| format!("a copy is too short, or does not say all: {said}"))
}

/// The acknowledged bytes of each sending stream over time, in seconds and bytes.
fn acked(csv: &str) -> Vec<Vec<(f64, f64)>> {
    let mut lines = csv.lines().map(|line| line.split(',').collect::<Vec<&str>>());
    let names = lines.next().unwrap_or_default();
    let place = |name: &str| names.iter().position(|other| *other == name);
    let (Some(stream), Some(role), Some(at), Some(bytes)) =
        (place("stream"), place("role"), place("at_ns"), place("bytes_acked"))
    else {
        return Vec::new();
    };
    let mut all: BTreeMap<&str, Vec<(f64, f64)>> = BTreeMap::new();
    for line in lines.filter(|line| line.get(role) == Some(&"source")) {
        let number = |place: usize| line.get(place).and_then(|word| word.parse::<f64>().ok());
        if let (Some(at_ns), Some(bytes), Some(stream)) =
            (number(at), number(bytes), line.get(stream))
        {
            all.entry(stream).or_default().push((at_ns / 1e9, bytes));
        }
    }
    all.into_values().collect()
}

/// The rate over this many seconds after the ramp, counted as in iperf3: from the first sample on,
/// all streams together. TLS and frame headers are not payload.
fn seen(events: &[Value], streams: &[Vec<(f64, f64)>], ramp_s: f64, seconds: f64) -> Option<Seen> {
    let began_s = streams.iter().filter_map(|samples| samples.first()).map(|first| first.0);
    let from_s = began_s.fold(f64::INFINITY, f64::min) + ramp_s;
    let last_s = streams.iter().filter_map(|samples| samples.last()).map(|last| last.0);
    let till_s = last_s.fold(0.0, f64::max).min(from_s + seconds);
    let moved = |samples: &Vec<(f64, f64)>| bytes_at(samples, till_s) - bytes_at(samples, from_s);
    let moved: f64 = streams.iter().map(moved).sum();
    let record = said::record_of(events.last()?).ok()?;
    let (bytes, wire_bytes) = (record.moved.bytes as f64, record.moved.wire_bytes as f64);
    let spent_s = record.moved.elapsed_s - record.remote?.login_s;
    let verdict = events.iter().find(|event| event["event"] == "verdict");
    (till_s - from_s > seconds / 2.0).then(|| Seen {
        mbit: moved * bytes / wire_bytes * 8.0 / (till_s - from_s) / 1e6,
        whole_mbit: Some(bytes * 8.0 / spent_s.max(1e-9) / 1e6),
        verdict: verdict.and_then(|event| Some(event["primary"].as_str()?.to_string())),
    })
}

/// Interpolated between two samples.
fn bytes_at(samples: &[(f64, f64)], at_s: f64) -> f64 {
    let behind = samples.partition_point(|(then, _)| *then <= at_s);
    match (behind.checked_sub(1).map(|place| samples[place]), samples.get(behind)) {
        (None, _) => 0.0,
        (Some((_, bytes)), None) => bytes,
        (Some((then, bytes)), Some((next, next_bytes))) => {
            bytes + (next_bytes - bytes) * (at_s - then) / (next - then)
        }
    }
}

/// So that the last stream still has data to send at the end of the time.
const LONGER: f64 = 1.04;

#[cfg(test)]
mod tests {
    use analysis::record::sample::{Moved, Record, Remote};
    use serde_json::json;

    use super::*;

    #[test]
    fn a_rate_is_that_of_all_streams_behind_the_ramp() {
        let csv = "run,stream,side,role,at_ns,rtt_ns,bytes_acked\n\
                   1,0,near,source,1000000000,5,0\n\
                   1,0,near,source,3000000000,5,2000000\n\
                   1,0,near,source,9000000000,5,8000000\n\
                   1,1,near,source,2000000000,5,0\n\
                   1,1,near,source,8000000000,5,6000000\n\
                   1,0,far,sink,1000000000,5,77\n";
        let streams = acked(csv);
        assert_eq!(streams.len(), 2);
        assert_eq!(streams[1], [(2.0, 0.0), (8.0, 6e6)]);
        let moved =
            Moved { bytes: 14_000_000, wire_bytes: 28_000_000, elapsed_s: 9.0, ..Moved::default() };
        let remote = Some(Remote { login_s: 2.0, ..Remote::default() });
        let record = Record { moved, remote, ..Record::default() };
        let events = [
            json!({"event": "verdict", "primary": "path_full"}),
            json!({"event": "end", "record": record}),
        ];
        let seen = seen(&events, &streams, 3.0, 4.0).unwrap();
        // Two streams of 8 Mbit/s, half of which is payload.
        assert!((seen.mbit - 8.0).abs() < 1e-9, "{seen:?}");
        assert!((seen.whole_mbit.unwrap() - 16.0).abs() < 1e-9, "{seen:?}");
        assert_eq!(seen.verdict.as_deref(), Some("path_full"));
        assert!(super::seen(&events, &streams, 3.0, 40.0).is_none());
    }
}
