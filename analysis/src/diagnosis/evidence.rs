//! The input of a diagnosis, from the records of a transfer: in memory when it has just ended, or
//! from the store.

use std::collections::BTreeMap;

use super::path::pauses::LOCKSTEP;
use crate::record::sample::{Environment, Record, Side};
use base::cpus::Cpus;
use base::job::{Outcome, PathRole, StreamPath};
use base::path::PathSample;
use base::settings::{self, Fsync, Lockstep, Settings, Verify};
use base::tally::SideReport;

/// Everything known about the path of a transfer; unknown values are left out.
#[derive(Clone, Debug, Default)]
pub struct Evidence {
    pub streams: Vec<Stream>,
    pub sender: Host,
    pub receiver: Host,
    /// Both sides are on one machine; the CPUs of either host are then those of both processes.
    pub is_one_machine: bool,
    pub copied: Copied,
    pub asked: Asked,
    /// The capacity of the path, if it was measured elsewhere, for example by `net-test`.
    pub capacity_bytes_per_s: Option<f64>,
}

/// The samples of one stream from both hosts, each with its own clock.
#[derive(Clone, Debug, Default)]
pub struct Stream {
    pub number: u32,
    pub sent: Vec<PathSample>,
    pub received: Vec<PathSample>,
}

/// What a copy moved; of a net test, and where it is unknown, nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Copied {
    pub files: u64,
    pub bytes: u64,
    /// Without the login.
    pub moving_s: f64,
    /// It ends when all is on stable storage, and has nothing else to do behind the last byte.
    pub is_synced: bool,
}

#[derive(Clone, Debug, Default)]
pub struct Host {
    /// CPUs that the process kept busy during the transfer, on average; and those that it may use,
    /// including a quota.
    pub busy_cpus: Option<f64>,
    pub usable_cpus: Option<f64>,
    /// The largest receive and send buffers that autotuning uses on this host (third values of
    /// `net.ipv4.tcp_rmem` and `tcp_wmem`), and that may be set (`net.core.rmem_max`, `wmem_max`).
    pub receive_buffer_auto_max: Option<u64>,
    pub receive_buffer_asked_max: Option<u64>,
    pub send_buffer_auto_max: Option<u64>,
    pub send_buffer_asked_max: Option<u64>,
    pub congestion: String,
}

/// The options of the transfer.
#[derive(Clone, Debug, Default)]
pub struct Asked {
    pub window_bytes: Option<u64>,
    pub pace: Pace,
    /// The transfer's own rate limit.
    pub rate_bytes_per_s: Option<f64>,
    pub request_bytes: u64,
    /// Block sizes at which something may stop, with names: `the lockstep of 32 MiB`.
    pub blocks: Vec<(String, u64)>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Pace {
    #[default]
    None,
    /// The program measured it itself, so it limits nothing.
    Auto,
    /// It keeps to what others leave.
    Scavenger,
    Asked,
}

/// The evidence at the end of a copy; `here` is this host.
pub fn of_copy(outcome: &Outcome, settings: &Settings, here: &Environment) -> Evidence {
    let streams = streams(outcome.paths.clone());
    let seconds = data_seconds(&streams, outcome.elapsed.seconds());
    let host = |report: &SideReport, facts: Option<&Environment>| {
        let cpu_s = (report.cpu_user + report.cpu_system).seconds();
        host(cpu_s / seconds, &report.congestion, facts)
    };
    let near = host(&outcome.near, Some(here));
    let far_report = outcome.far.as_ref().unwrap_or(&outcome.near);
    // The limits of another machine are unknown here.
    let same = outcome.is_one_machine();
    let far = host(far_report, same.then_some(here));
    let asked = Asked {
        window_bytes: settings.window_bytes.map(u64::from),
        pace: pace(settings.pace),
        rate_bytes_per_s: settings.rate.map(|rate| rate.bytes_per_second),
        request_bytes: settings.request_bytes.into(),
        blocks: blocks(settings.lockstep, settings.request_bytes),
    };
    let sink = if outcome.near_is_source { far_report } else { &outcome.near };
    let medium = &sink.about.file_system;
    let copied = Copied {
        files: outcome.files,
        bytes: outcome.moved_bytes() - outcome.hole_bytes(),
        moving_s: outcome.moving().seconds(),
        is_synced: is_synced(settings.fsync.name(), settings.verify.name(), medium)
            && outcome.deleted == 0,
    };
    let evidence = together(streams, near, far, outcome.near_is_source, same, asked);
    Evidence { copied, ..evidence }
}

/// The evidence of a stored run; its paths are in the record.
pub fn of_record(record: &Record, environments: &BTreeMap<i64, Environment>) -> Evidence {
    with_streams(record, streams(record.paths.clone()), environments)
}

/// The same, which takes the samples out of the record: they may be many.
pub fn taken(record: &mut Record, environments: &BTreeMap<i64, Environment>) -> Evidence {
    let streams = streams(std::mem::take(&mut record.paths));
    with_streams(record, streams, environments)
}

fn with_streams(
    record: &Record,
    streams: Vec<Stream>,
    environments: &BTreeMap<i64, Environment>,
) -> Evidence {
    let seconds = data_seconds(&streams, record.moved.elapsed_s);
    let sink = record.sink.as_ref().unwrap_or(&record.source);
    let same = record.conditions.is_one_machine
        || record.source.environment == sink.environment && sink.environment != 0;
    let here = record.source.environment.max(sink.environment);
    let host = |side: &Side| {
        let cpu_s = side.cpu_user_s + side.cpu_system_s;
        let environment = if same { here } else { side.environment };
        host(cpu_s / seconds, &side.congestion, environments.get(&environment))
    };
    // Options as typed; what an older version did not record is missing.
    let options = &record.options;
    let paced = settings::Pace::parse(&options.pace).ok();
    let lockstep = options.lockstep.as_ref().and_then(|text| Lockstep::parse(text).ok());
    let asked = Asked {
        window_bytes: options.window_bytes.map(u64::from),
        pace: paced.map_or(Pace::None, pace),
        rate_bytes_per_s: options.rate_bytes_per_s,
        request_bytes: options.request_bytes.into(),
        blocks: blocks(lockstep, options.request_bytes),
    };
    let medium = record.conditions.sink_file_system.as_deref().unwrap_or_default();
    let login_s = record.remote.as_ref().map_or(0.0, |remote| remote.login_s);
    let copied = Copied {
        files: record.moved.files,
        bytes: record.moved.data_bytes(),
        moving_s: record.moved.elapsed_s - login_s,
        is_synced: is_synced(&options.fsync, &options.verify, medium) && record.moved.deleted == 0,
    };
    let evidence = together(streams, host(&record.source), host(sink), true, same, asked);
    Evidence { copied, ..evidence }
}

/// A copy to files ends when they are on stable storage, and reads nothing back behind that. The
/// options and the medium have their names.
fn is_synced(fsync: &str, verify: &str, medium: &str) -> bool {
    fsync == Fsync::File.name()
        && verify != Verify::Disk.name()
        && !["", "null", "pipe", "s3"].contains(&medium)
}

fn pace(asked: settings::Pace) -> Pace {
    match asked {
        settings::Pace::Off => Pace::None,
        settings::Pace::Auto => Pace::Auto,
        settings::Pace::Scavenger => Pace::Scavenger,
        settings::Pace::Fixed(_) => Pace::Asked,
    }
}

/// Known block sizes: a lockstep comes first, as it consists of requests.
fn blocks(lockstep: Option<Lockstep>, request_bytes: u32) -> Vec<(String, u64)> {
    let lockstep = lockstep.map(|lockstep| (LOCKSTEP.to_string(), lockstep.every_bytes));
    lockstep.into_iter().chain([("a request".to_string(), request_bytes.into())]).collect()
}

fn together(
    streams: Vec<Stream>,
    near: Host,
    far: Host,
    near_is_source: bool,
    is_one_machine: bool,
    asked: Asked,
) -> Evidence {
    let (mut sender, mut receiver) = if near_is_source { (near, far) } else { (far, near) };
    if is_one_machine {
        let both = sender.busy_cpus.zip(receiver.busy_cpus).map(|(a, b)| a + b);
        (sender.busy_cpus, receiver.busy_cpus) = (both, both);
    }
    Evidence { streams, sender, receiver, is_one_machine, asked, ..Evidence::default() }
}

/// Both ends of each stream; streams without a sending end are ignored.
fn streams(paths: Vec<StreamPath>) -> Vec<Stream> {
    let mut streams: BTreeMap<u32, Stream> = BTreeMap::new();
    for path in paths {
        let number = path.stream;
        let stream = streams.entry(number).or_insert(Stream { number, ..Stream::default() });
        match path.role {
            PathRole::Source => stream.sent = path.samples,
            PathRole::Sink => stream.received = path.samples,
        }
    }
    streams.into_values().filter(|stream| !stream.sent.is_empty()).collect()
}

/// How long data moved: without login and sync, unless they took most of the time.
fn data_seconds(streams: &[Stream], elapsed_s: f64) -> f64 {
    let first = streams.iter().filter_map(|stream| stream.sent.first()).map(|s| s.at).min();
    let last = streams.iter().filter_map(|stream| stream.sent.last()).map(|s| s.at).max();
    let moved_s = first.zip(last).map_or(0.0, |(first, last)| last.since(first).seconds());
    moved_s.max(elapsed_s / 2.0).max(1e-3)
}

fn host(busy_cpus: f64, congestion: &str, facts: Option<&Environment>) -> Host {
    let fact = |name: &str| facts.and_then(|environment| environment.facts.get(name));
    let last =
        |name: &str| fact(name).and_then(|text| text.split_whitespace().last()?.parse().ok());
    let online = fact("cpus_online").and_then(|text| Cpus::parse(text).ok());
    let online = online.map(|cpus| cpus.list().len() as f64);
    let quota = fact("cpu_quota").and_then(|text| quota(text));
    Host {
        busy_cpus: Some(busy_cpus),
        usable_cpus: online.into_iter().chain(quota).reduce(f64::min),
        receive_buffer_auto_max: last("sysctl net.ipv4.tcp_rmem"),
        receive_buffer_asked_max: last("sysctl net.core.rmem_max"),
        send_buffer_auto_max: last("sysctl net.ipv4.tcp_wmem"),
        send_buffer_asked_max: last("sysctl net.core.wmem_max"),
        congestion: congestion.to_string(),
    }
}

/// `50000 100000` is half a CPU; `max 100000` is no quota.
fn quota(text: &str) -> Option<f64> {
    let (share, period) = text.trim().split_once(' ')?;
    let (share, period): (f64, f64) = (share.parse().ok()?, period.parse().ok()?);
    (share > 0.0 && period > 0.0).then(|| share / period)
}
