//! What a copy was, as a record.

use std::collections::BTreeMap;

use serde_json::json;

use super::packed::Packed;
use super::sample::{Conditions, Knobs, Moved, Predicted, Record, SeriesPoint, Side};
use base::job::{Carrier, Outcome, PathRole};
use base::settings::{Pace, Settings};
use base::tally::{SideReport, Stage};
use base::units::Nanos;

/// A copy that ran to its end, and what is known around it.
#[derive(Clone, Debug)]
pub struct Copied<'a> {
    /// `copy` or `demo`.
    pub command: &'a str,
    /// As typed.
    pub sources: Vec<String>,
    pub target: String,
    pub settings: &'a Settings,
    pub outcome: &'a Outcome,
    pub series: &'a Series,
    pub started_unix_s: f64,
    /// This host's environment, as the store numbers it.
    pub environment: i64,
    /// Where an end is in files of this host.
    pub source_file_system: Option<String>,
    pub sink_file_system: Option<String>,
    pub predicted: Option<Predicted>,
    /// As typed; `None` where both ends are here.
    pub far_host: Option<&'a str>,
}

/// Bytes over time. Once there are many points every second goes and the next ones stand twice as
/// far apart, so that a day takes no more room than a minute.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    points: Vec<SeriesPoint>,
    /// Of so many looks one is kept.
    stride: u32,
    looks: u32,
}

impl Default for Series {
    fn default() -> Series {
        Series { points: Vec::new(), stride: 1, looks: 0 }
    }
}

impl Series {
    pub fn add(&mut self, at: Nanos, bytes: u64) {
        self.looks += 1;
        if self.looks < self.stride {
            return;
        }
        self.looks = 0;
        self.points.push(SeriesPoint { at_s: at.seconds(), bytes });
        if self.points.len() == POINTS_MAX {
            // The second, the fourth, …: the looks that the longer stride would have kept.
            let mut place = 0;
            self.points.retain(|_| {
                place += 1;
                place % 2 == 0
            });
            self.stride = self.stride.saturating_mul(2);
        }
    }

    pub fn points(&self) -> &[SeriesPoint] {
        &self.points
    }
}

pub fn record_of_copy(copied: &Copied<'_>) -> Record {
    let Copied { settings, outcome, .. } = copied;
    let (source, sink) = match &outcome.far {
        None => (&outcome.near, None),
        Some(far) if outcome.near_is_source => (&outcome.near, Some(far)),
        Some(far) => (far, Some(&outcome.near)),
    };
    let near_is_source = outcome.near_is_source || sink.is_none();
    let environment = |is_near: bool| if is_near { copied.environment } else { 0 };
    Record {
        id: 0,
        command: copied.command.to_string(),
        version: env!("CARGO_PKG_VERSION").to_string(),
        started_unix_s: copied.started_unix_s,
        sources: copied.sources.clone(),
        target: copied.target.clone(),
        place: None,
        knobs: knobs(settings, outcome),
        conditions: Conditions {
            carrier: match outcome.carrier {
                Carrier::Memory => "memory",
                Carrier::Tcp => "tcp",
                Carrier::Control => "control",
            }
            .to_string(),
            source_file_system: copied.source_file_system.clone(),
            sink_file_system: copied.sink_file_system.clone(),
            ..Conditions::default()
        },
        moved: moved(outcome, source),
        source: side(source, environment(near_is_source)),
        sink: sink.map(|report| side(report, environment(!near_is_source))),
        machines: Vec::new(),
        gates: Vec::new(),
        void_reason: None,
        series: series(copied.series, outcome),
        round_trips: None,
        predicted: copied.predicted.clone(),
        packed: Packed::of(outcome),
        paths: outcome.paths.clone(),
        more: more(outcome, settings, copied.far_host),
    }
}

fn knobs(settings: &Settings, outcome: &Outcome) -> Knobs {
    Knobs {
        request_bytes: outcome.request_bytes,
        depth_source: settings.depth_source,
        depth_sink: settings.depth_sink,
        streams: outcome.streams,
        window_bytes: settings.window_bytes,
        congestion: settings.congestion.clone(),
        rate_bytes_per_s: settings.rate.map(|rate| rate.bytes_per_second),
        engine: settings.engine.name().to_string(),
        direct: settings.direct.name().to_string(),
        seal: settings.seal.name().to_string(),
        digest: settings.digest.name().to_string(),
        fsync: settings.fsync.name().to_string(),
        receive: settings.receive.name().to_string(),
        codec: settings.compress.is_on().then(|| settings.compress.typed()),
    }
}

fn moved(outcome: &Outcome, source: &SideReport) -> Moved {
    let bytes = outcome.bytes.saturating_sub(outcome.resumed_bytes);
    let elapsed_s = outcome.elapsed.seconds();
    Moved {
        bytes,
        files: outcome.files,
        wire_bytes: source.tally.wire_bytes,
        elapsed_s,
        goodput_bytes_per_s: if elapsed_s > 0.0 { bytes as f64 / elapsed_s } else { 0.0 },
        steady_bytes_per_s: None,
        steady_from_s: None,
        retries: outcome.retries,
    }
}

fn side(report: &SideReport, environment: i64) -> Side {
    let tally = &report.tally;
    let stages = Stage::NAMES.iter().zip(tally.stages);
    Side {
        environment,
        cpus: Vec::new(),
        cpu_user_s: report.cpu_user.seconds(),
        cpu_system_s: report.cpu_system.seconds(),
        kernel_threads_s: BTreeMap::new(),
        requests: tally.requests,
        calls: tally.calls,
        partial_returns: tally.partial_returns,
        partial_bytes: tally.partial_bytes,
        starts: tally.starts,
        fill_s: tally.life.fill.seconds(),
        pass_s: tally.life.pass.seconds(),
        gate_s: tally.life.gate.seconds(),
        drain_s: tally.life.drain.seconds(),
        stages_s: stages.map(|(name, spent)| (name.to_string(), spent.seconds())).collect(),
        peak_memory_bytes: report.peak_memory_bytes,
        planned_memory_bytes: report.planned_memory_bytes,
        engine: report.engine.clone(),
        depth: report.depth,
        congestion: report.congestion.clone(),
        window_seen_bytes: report.window_seen_bytes,
    }
}

/// What was seen, and how it ended.
fn series(seen: &Series, outcome: &Outcome) -> Vec<SeriesPoint> {
    let mut points = seen.points().to_vec();
    let last_s = points.last().map_or(0.0, |point| point.at_s);
    let bytes = outcome.bytes.saturating_sub(outcome.resumed_bytes);
    points.push(SeriesPoint { at_s: outcome.elapsed.seconds().max(last_s), bytes });
    points
}

/// What only some copies have.
fn more(
    outcome: &Outcome,
    settings: &Settings,
    far_host: Option<&str>,
) -> BTreeMap<String, serde_json::Value> {
    let counts = [
        ("directories", outcome.directories),
        ("failed", outcome.failed),
        ("kept", outcome.kept),
        ("excluded", outcome.excluded),
        ("resumed_bytes", outcome.resumed_bytes),
        ("held_files", outcome.held_files),
        ("exit_code", outcome.worst.map_or(0, |class| u64::from(class.exit_code()))),
    ];
    let there = counts.into_iter().filter(|(_, number)| *number > 0);
    let numbers = there.map(|(name, number)| (name.to_string(), json!(number)));
    numbers.chain(set_for_net(outcome, settings)).chain(kept(outcome, far_host)).collect()
}

/// What a record of a copy keeps for the copies to come: the far host and the way's round trip.
fn kept(outcome: &Outcome, far_host: Option<&str>) -> Vec<(String, serde_json::Value)> {
    let Some(far_host) = far_host else { return Vec::new() };
    let senders = outcome.paths.iter().filter(|path| path.role == PathRole::Source);
    let least = |rtt: Option<u64>, rtt_ns: u64| Some(rtt.map_or(rtt_ns, |rtt| rtt.min(rtt_ns)));
    let rtts = senders.flat_map(|path| path.samples.iter().map(|sample| sample.rtt_min.0));
    // The kernel says 0, or all ones, where it has seen none.
    let seen = rtts.filter(|rtt_ns| (1..u64::from(u32::MAX) * 1000).contains(rtt_ns));
    let mut all = vec![
        (FAR_HOST.to_string(), far_host.into()),
        (IS_PUSH.to_string(), outcome.near_is_source.into()),
        (LOGIN.to_string(), outcome.login.seconds().into()),
    ];
    if let Some(rtt_ns) = seen.fold(None, least) {
        all.push((RTT.to_string(), (rtt_ns as f64 / 1e9).into()));
    }
    all
}

fn source(outcome: &Outcome) -> &SideReport {
    match &outcome.far {
        Some(far) if !outcome.near_is_source => far,
        _ => &outcome.near,
    }
}

/// Knobs of the network that are not the usual ones, and what became of them.
fn set_for_net(
    outcome: &Outcome,
    settings: &Settings,
) -> impl Iterator<Item = (String, serde_json::Value)> {
    let source = source(outcome);
    let pace = (settings.pace != Pace::Off).then(|| json!(settings.pace.typed()));
    let cycle = Some(settings.null_cycle_bytes).filter(|bytes| *bytes > 0);
    let chosen = source.pace_bytes_per_s;
    let scale = source.window_scale;
    [
        ("pace", pace),
        ("pace_chosen_bytes_per_s", chosen.map(|pace| json!(pace))),
        ("dscp", settings.dscp.map(|dscp| json!(dscp.code()))),
        ("lockstep", settings.lockstep.map(|lockstep| json!(lockstep.typed()))),
        ("null_cycle_bytes", cycle.map(|bytes| json!(bytes))),
        (SEGMENTS_SENT, segments_sent(outcome).map(|segments| json!(segments))),
        ("window_scale", scale.map(|scale| json!(scale))),
    ]
    .into_iter()
    .filter_map(|(name, value)| Some((name.to_string(), value?)))
}

/// Segments with data that TCP sent, as its last looks have it; they are a little before the end.
fn segments_sent(outcome: &Outcome) -> Option<f64> {
    let senders = outcome.paths.iter().filter(|path| path.role == PathRole::Source);
    let (segments, bytes) = senders
        .filter_map(|path| path.samples.last())
        .fold((0, 0), |sum, last| (sum.0 + last.segments_sent, sum.1 + last.bytes_sent));
    (segments > 0 && bytes > 0).then(|| {
        segments as f64 * (source(outcome).tally.wire_bytes as f64 / bytes as f64).max(1.0)
    })
}

/// What a record calls them among what only some kinds of runs have.
pub(crate) const SEGMENTS_SENT: &str = "segments_sent";
/// Of all devices of the host that a run was made from, while it was made.
pub const DEVICE_INTERRUPTS: &str = "device_interrupts";
/// True where files of that host are read from one and written to another.
pub const TWO_DEVICES: &str = "two_devices";
/// Of a copy to or from another host: the host as typed, the direction, the login, the round trip.
pub(crate) const FAR_HOST: &str = "far_host";
pub(crate) const IS_PUSH: &str = "is_push";
pub(crate) const LOGIN: &str = "login_s";
pub const RTT: &str = "path_rtt_s";

/// Two minutes of looks that are 100 ms apart.
const POINTS_MAX: usize = 1200;

#[cfg(test)]
mod tests {
    use super::*;
    use base::fault::Class;

    fn outcome() -> Outcome {
        let report = |requests, cpu| {
            let mut report = SideReport {
                cpu_user: Nanos::from_millis(cpu),
                cpu_system: Nanos::from_millis(cpu),
                engine: "uring".into(),
                ..SideReport::default()
            };
            report.tally.requests = requests;
            report.tally.stages[Stage::Seal as usize] = Nanos::from_millis(7);
            report
        };
        Outcome {
            files: 3,
            directories: 0,
            failed: 1,
            kept: 0,
            excluded: 0,
            resumed_bytes: 1000,
            held_files: 0,
            retries: 2,
            dry: None,
            worst: Some(Class::SomeFailed),
            bytes: 5000,
            login: Nanos(0),
            elapsed: Nanos::from_millis(2000),
            streams: 4,
            request_bytes: 1 << 20,
            carrier: Carrier::Tcp,
            near_is_source: false,
            near: report(10, 100),
            far: Some(report(20, 200)),
            paths: Vec::new(),
        }
    }

    fn record(outcome: &Outcome) -> Record {
        record_of_copy(&Copied {
            command: "copy",
            sources: vec!["host:a".into()],
            target: "b".into(),
            settings: &Settings::default(),
            outcome,
            series: &Series::default(),
            started_unix_s: 5.0,
            environment: 7,
            source_file_system: None,
            sink_file_system: Some("ext4 rw".into()),
            predicted: None,
            far_host: None,
        })
    }

    #[test]
    fn a_pull_has_its_source_on_the_far_side() {
        let record = record(&outcome());
        let sink = record.sink.as_ref().unwrap();
        assert_eq!((record.source.requests, sink.requests), (20, 10));
        assert_eq!((record.source.environment, sink.environment), (0, 7));
        assert_eq!(record.source.cpu_s(), 0.4);
        assert_eq!(record.source.stages_s["seal"], 0.007);
        assert_eq!(record.moved.bytes, 4000, "what was there already did not move");
        assert_eq!(record.moved.goodput_bytes_per_s, 2000.0);
        assert_eq!(record.more["failed"], json!(1));
        assert_eq!(record.more["exit_code"], json!(3));
        assert!(!record.more.contains_key("kept"));
        assert_eq!(record.series, [SeriesPoint { at_s: 2.0, bytes: 4000 }]);
    }

    #[test]
    fn a_local_copy_has_one_side() {
        let outcome = Outcome { far: None, elapsed: Nanos(0), ..outcome() };
        let record = record(&outcome);
        assert_eq!((record.source.environment, record.sink), (7, None));
        assert_eq!(record.moved.goodput_bytes_per_s, 0.0);
    }

    #[test]
    fn a_series_has_room_for_any_time() {
        let mut series = Series::default();
        let looks = 100_000;
        for look in 1..=looks {
            series.add(Nanos::from_millis(look * 100), look);
        }
        let points = series.points();
        assert!((POINTS_MAX / 2..POINTS_MAX).contains(&points.len()), "{}", points.len());
        let steps: Vec<u64> = points.windows(2).map(|two| two[1].bytes - two[0].bytes).collect();
        assert!(steps.iter().all(|step| *step == steps[0]), "all as far apart");
        assert_eq!(points[0].bytes, steps[0]);
        assert!(looks - points[points.len() - 1].bytes < steps[0]);
    }
}
