//! A cell and its copy as a record.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{Cell, Extent, Way};
use crate::accounting::gates::{self, CpuBinding};
use crate::accounting::moment::Moment;
use crate::diagnosis::{diagnose, evidence, store};
use crate::record::copy_record::{self, Series, record_of_copy};
use crate::record::sample::{self as record, Environment, Record, RoundTrips, Side, Tcp};
use base::job::{Carrier, Job, Location, Outcome, PathRole, StreamPath};
use base::path::PathSample;
use base::store_times::StoreTimes;
use base::units::{Nanos, Tick};

/// A copy that ran to its end.
#[derive(Debug)]
pub struct CopyRecord {
    pub outcome: Outcome,
    pub series: Series,
    pub started_unix_s: f64,
    /// While bytes moved.
    pub moving: (Tick, Tick),
    pub warnings: Vec<String>,
}

/// What was measured around a copy.
#[derive(Debug)]
pub struct Around<'a> {
    pub job: &'a Job,
    pub copied: &'a CopyRecord,
    pub round_trips: Option<RoundTrips>,
    /// How long nothing was copied before it.
    pub paused: Nanos,
    /// When the pause began, before the copy, and after it: on this host, and on the far one if
    /// there is one.
    pub moments: [Vec<Moment>; 3],
    /// Of this host, and of the far one.
    pub environments: [i64; 2],
    pub near_facts: &'a Environment,
    pub store: Option<AtStore<'a>>,
}

/// What is known of a copy from or to an object store.
#[derive(Clone, Copy, Debug)]
pub struct AtStore<'a> {
    pub way: Way,
    /// Of the campaign: the objects of its cells are below it.
    pub url: &'a str,
    /// What its requests took.
    pub times: StoreTimes,
}

/// The record, without its index in the campaign.
pub fn record(cell: &Cell, around: &Around<'_>) -> Record {
    let Around { job, copied, .. } = around;
    let far_host = job.target_host.as_deref();
    let (source, target) = ends(around);
    let mut record = record_of_copy(&copy_record::CopyRecord {
        command: "sweep",
        sources: vec![source],
        target,
        settings: &job.settings,
        outcome: &copied.outcome,
        series: &copied.series,
        started_unix_s: copied.started_unix_s,
        environment: around.environments[0],
        source_file_system: None,
        sink_file_system: None,
        predicted: None,
        far_host,
    });
    record.round_trips = around.round_trips.clone();
    if far_host.is_some() && copied.outcome.carrier != Carrier::Tcp {
        record.void_reason = Some("the bytes went over the ssh connection".into());
    }
    if let Some(sink) = &mut record.sink {
        sink.environment = around.environments[1];
    }
    machines(&mut record, around);
    record.cell = Some(record::Cell {
        cycles_per_byte_source: cycles_per_byte(
            &record.source,
            record.moved.bytes,
            around.near_facts,
        ),
        ..of_cell(cell, around)
    });
    match around.store {
        None => {
            record.tcp = Some(of_tcp(&copied.outcome.paths));
            record.more.extend(verdict(around));
        }
        Some(at) => {
            store::keep(&mut record, store::of_copy(&at.times, &copied.outcome).as_ref());
        }
    }
    record
}

/// What both machines did; what they did in the pause is their background load. A path is measured
/// on hosts that have other work, so a gate that fails is recorded, and voids no run.
fn machines(record: &mut Record, around: &Around<'_>) {
    let [resting, before, after] = &around.moments;
    for (end, ((resting, before), after)) in resting.iter().zip(before).zip(after).enumerate() {
        let mut machine = before.until(after);
        let rest = resting.until(before);
        let share = rest.busy_idle_s / rest.span_s.max(1e-9);
        machine.background_s = Some(share * machine.span_s);
        record.gates.extend(gates::of_run(&machine, 0, 0));
        let bindings = [CpuBinding { cpus: Vec::new(), reads_files: false, writes_files: false }];
        let charged =
            gates::attribute(&machine.kernel_threads, &bindings).pop().unwrap_or_default();
        match (end, &mut record.sink) {
            (0, _) => record.source.kernel_threads_s = charged,
            (_, Some(sink)) => sink.kernel_threads_s = charged,
            (_, None) => {}
        }
        record.machines.push(machine);
    }
}

/// Its values in the grid, and the time that is counted: from the login to the last byte.
fn of_cell(cell: &Cell, around: &Around<'_>) -> record::Cell {
    let outcome = &around.copied.outcome;
    let (extent_bytes, extent_s) = match cell.extent {
        Extent::Time(time) => (None, Some(time.seconds())),
        Extent::Bytes(bytes) => (Some(bytes), None),
    };
    record::Cell {
        choice: cell.kind.name().to_string(),
        extent_bytes,
        extent_s,
        moving_s: Some(outcome.moving().seconds()),
        pause_s: Some(around.paused.seconds()),
        loaded_s: Some(around.copied.moving.1.since(around.copied.moving.0).seconds()),
        compression_ratio: Some(outcome.near.tally.compression.ratio().unwrap_or(1.0)),
        cycles_per_byte_source: None,
    }
}

/// TCP's own counts of the streams, from their sending ends; and what the receiving ends advertise.
fn of_tcp(paths: &[StreamPath]) -> Tcp {
    let of = |role| paths.iter().filter(move |path| path.role == role);
    let samples = |role| of(role).flat_map(|path: &StreamPath| &path.samples);
    let lasts: Vec<&PathSample> =
        of(PathRole::Source).filter_map(|path| path.samples.last()).collect();
    let sum = |count: fn(&PathSample) -> u64| lasts.iter().map(|last| count(last)).sum::<u64>();
    let windows: Vec<f64> =
        samples(PathRole::Source).map(|s| f64::from(s.peer_window_bytes)).collect();
    let most = |role, of: fn(&PathSample) -> u32| samples(role).map(of).max();
    let rtt_min_s = samples(PathRole::Source)
        .map(|sample| sample.rtt_min.seconds())
        .filter(|rtt_s| *rtt_s > 0.0 && *rtt_s < 4000.0)
        .reduce(f64::min);
    Tcp {
        segments_sent: sum(|sample| sample.segments_sent),
        segments_retransmitted: sum(|sample| sample.segments_retransmitted),
        busy_s: sum(|sample| sample.busy.0) as f64 / 1e9,
        window_limited_s: sum(|sample| sample.window_limited.0) as f64 / 1e9,
        buffer_limited_s: sum(|sample| sample.buffer_limited.0) as f64 / 1e9,
        rtt_min_s,
        mss_bytes: most(PathRole::Source, |sample| sample.mss_bytes),
        peer_window_p50_bytes: at_share(&windows, 0.5),
        peer_window_p90_bytes: at_share(&windows, 0.9),
        receive_threshold_bytes: most(PathRole::Sink, |sample| sample.receive_threshold_bytes),
        send_buffer_bytes: most(PathRole::Source, |sample| sample.send_buffer_bytes),
        receive_buffer_bytes: most(PathRole::Sink, |sample| sample.receive_buffer_bytes),
    }
}

fn at_share(values: &[f64], share: f64) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().checked_sub(1)?;
    sorted.get((share * last as f64).round() as usize).copied()
}

fn verdict(around: &Around<'_>) -> BTreeMap<String, Value> {
    let (outcome, settings) = (&around.copied.outcome, &around.job.settings);
    let evidence = evidence::of_copy(outcome, settings, around.near_facts);
    if evidence.streams.is_empty() {
        return BTreeMap::new();
    }
    let verdict = diagnose(&evidence);
    let value = json!({
        "class": verdict.primary,
        "shares": verdict.shares,
        "advice": verdict.advice,
        "losses": verdict.figures.losses,
        "pauses": verdict.figures.pauses,
    });
    [("verdict".to_string(), value)].into()
}

fn cycles_per_byte(side: &Side, bytes: u64, facts: &Environment) -> Option<f64> {
    let mhz: f64 = facts.facts.get("mhz")?.parse().ok()?;
    (bytes > 0).then(|| side.cpu_s() * mhz * 1e6 / bytes as f64)
}

/// As a user would type them; of a store what all cells have in common.
fn ends(around: &Around<'_>) -> (String, String) {
    let job = around.job;
    let (source, target) = (source(&job.sources[0]), target(&job.target));
    match (&job.target_host, around.store) {
        (None, Some(AtStore { way: Way::Put, url, .. })) => (source, url.to_string()),
        (None, Some(AtStore { way: Way::Get, url, .. })) => (url.to_string(), target),
        (host, _) => (source, format!("{}:{target}", host.as_deref().unwrap_or_default())),
    }
}

fn source(location: &Location) -> String {
    match location {
        Location::EndlessSynthetic { set, .. } => format!("{}:", set.name()),
        Location::Synthetic { set, len, .. } => format!("{}:{len}", set.name()),
        _ => String::new(),
    }
}

fn target(location: &Location) -> String {
    match location {
        Location::Path(path) => path.display().to_string(),
        _ => "null:".to_string(),
    }
}
