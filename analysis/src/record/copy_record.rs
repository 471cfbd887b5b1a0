//! A copy as a record.

use std::collections::BTreeMap;

use super::compression::Compression;
use super::options::Options;
use super::sample::{Conditions, Moved, Predicted, Record, Remote, SeriesPoint, Side, StreamStep};
use base::fault::Class;
use base::job::{Carrier, Outcome, PathRole};
use base::settings::Settings;
use base::tally::{SideReport, Stage};
use base::units::Nanos;

/// A copy that ran to its end, and its circumstances.
#[derive(Clone, Debug)]
pub struct CopyRecord<'a> {
    /// `copy` or `demo`.
    pub command: &'a str,
    /// As typed on the command line.
    pub sources: Vec<String>,
    pub target: String,
    pub settings: &'a Settings,
    pub outcome: &'a Outcome,
    pub series: &'a Series,
    pub started_unix_s: f64,
    /// The number of this host's environment in the store.
    pub environment: i64,
    /// Where an end is in files on this host.
    pub source_file_system: Option<String>,
    pub sink_file_system: Option<String>,
    pub predicted: Option<Predicted>,
    /// As typed; `None` where both ends are on this host.
    pub far_host: Option<&'a str>,
}

/// Bytes over time. With too many points every second one is dropped and later ones are twice as
/// far apart, so that a day needs no more space than a minute.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    points: Vec<SeriesPoint>,
    /// One of this many samples is kept.
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
            // The second, the fourth, …: the samples that the longer stride would have kept.
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

pub fn record_of_copy(copied: &CopyRecord<'_>) -> Record {
    let CopyRecord { settings, outcome, .. } = copied;
    let (source, sink) = match &outcome.far {
        None => (&outcome.near, None),
        Some(far) if outcome.near_is_source => (&outcome.near, Some(far)),
        Some(far) => (far, Some(&outcome.near)),
    };
    let near_is_source = outcome.near_is_source || sink.is_none();
    // The file system of the other host's end, as that host named it.
    let far_end = |is_sink: bool| {
        let far = outcome.far.as_ref().filter(|_| copied.far_host.is_some())?;
        let name = &far.about.file_system;
        (is_sink == near_is_source && !name.is_empty()).then(|| name.clone())
    };
    let environment = |is_near: bool| if is_near { copied.environment } else { 0 };
    Record {
        command: copied.command.to_string(),
        version: env!("CARGO_PKG_VERSION").to_string(),
        started_unix_s: copied.started_unix_s,
        sources: copied.sources.clone(),
        target: copied.target.clone(),
        options: Options {
            streams: outcome.streams,
            request_bytes: outcome.request_bytes,
            ..Options::of(settings)
        },
        conditions: Conditions {
            carrier: match outcome.carrier {
                Carrier::Memory => "memory",
                Carrier::Tcp => "tcp",
                Carrier::Control => "control",
            }
            .to_string(),
            source_file_system: copied.source_file_system.clone().or_else(|| far_end(false)),
            sink_file_system: copied.sink_file_system.clone().or_else(|| far_end(true)),
            is_one_machine: outcome.is_one_machine(),
            free_bytes: outcome.dry.and_then(|room| room.free_bytes),
            ..Conditions::default()
        },
        moved: moved(outcome, source),
        remote: copied.far_host.map(|host| remote(outcome, host)),
        source: side(source, environment(near_is_source)),
        sink: sink.map(|report| side(report, environment(!near_is_source))),
        series: series(copied.series, outcome),
        predicted: copied.predicted.clone(),
        compression: Compression::of(outcome),
        stream_steps: outcome.stream_steps.iter().map(StreamStep::of).collect(),
        paths: outcome.paths.clone(),
        ..Record::default()
    }
}

fn moved(outcome: &Outcome, source: &SideReport) -> Moved {
    Moved {
        bytes: outcome.moved_bytes(),
        hole_bytes: outcome.hole_bytes(),
        files: outcome.files,
        directories: outcome.directories,
        failed: outcome.failed,
        kept: outcome.kept,
        deleted: outcome.deleted,
        excluded: outcome.excluded,
        resumed_bytes: outcome.resumed_bytes,
        held_files: outcome.held_files,
        wire_bytes: source.tally.wire_bytes,
        elapsed_s: outcome.elapsed.seconds(),
        goodput_bytes_per_s: outcome.rate().bytes_per_second,
        steady_bytes_per_s: None,
        steady_from_s: None,
        retries: outcome.retries,
        segments_sent: segments_sent(outcome, source),
        exit_code: outcome.worst.map_or(0, Class::exit_code),
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
        bytes: tally.bytes,
        wire_bytes: tally.wire_bytes,
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
        window_scale: report.window_scale,
        pace_chosen_bytes_per_s: report.pace_bytes_per_s,
    }
}

/// The samples, and the end of the copy.
fn series(seen: &Series, outcome: &Outcome) -> Vec<SeriesPoint> {
    let mut points = seen.points().to_vec();
    let last_s = points.last().map_or(0.0, |point| point.at_s);
    let at_s = outcome.elapsed.seconds().max(last_s);
    points.push(SeriesPoint { at_s, bytes: outcome.moved_bytes() });
    points
}

/// What a record keeps for predictions of later copies: the far host, and the path's round trip.
fn remote(outcome: &Outcome, host: &str) -> Remote {
    let senders = outcome.paths.iter().filter(|path| path.role == PathRole::Source);
    let rtts = senders.flat_map(|path| path.samples.iter().map(|sample| sample.rtt_min.0));
    // The kernel reports 0, or all ones, where it has measured none.
    let seen = rtts.filter(|rtt_ns| (1..u64::from(u32::MAX) * 1000).contains(rtt_ns));
    Remote {
        host: host.to_string(),
        is_push: outcome.near_is_source,
        login_s: outcome.login.seconds(),
        rtt_min_s: seen.min().map(|rtt_ns| rtt_ns as f64 / 1e9),
    }
}

/// Segments with data that TCP sent, scaled up from its last samples to the end.
fn segments_sent(outcome: &Outcome, source: &SideReport) -> Option<f64> {
    let senders = outcome.paths.iter().filter(|path| path.role == PathRole::Source);
    let (segments, bytes) = senders
        .filter_map(|path| path.samples.last())
        .fold((0, 0), |sum, last| (sum.0 + last.segments_sent, sum.1 + last.bytes_sent));
    (segments > 0 && bytes > 0)
        .then(|| segments as f64 * (source.tally.wire_bytes as f64 / bytes as f64).max(1.0))
}

/// Two minutes of samples that are 100 ms apart.
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
            deleted: 0,
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
            stream_steps: Vec::new(),
        }
    }

    fn record(outcome: &Outcome) -> Record {
        record_of_copy(&CopyRecord {
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
        assert_eq!((record.moved.failed, record.moved.kept), (1, 0));
        assert_eq!(record.moved.exit_code, 3);
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
