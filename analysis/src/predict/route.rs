//! Earlier copies of the same kind over the same route: the same hosts and direction, file systems,
//! and options that change the speed. Where there are enough, they alone predict the time of a
//! copy. Pure: from records of the store.

use super::Plan;
use super::path_model::{self, PathModel, PriorCopy, is_undisturbed};
use crate::model::end_to_end::cost::spread;
use crate::model::shape::LARGE_FROM_BYTES;
use crate::record::options::Options;
use crate::record::sample::{Record, Side};
use crate::statistics::median;

/// What copies have in common that predict each other.
#[derive(Clone, Debug, PartialEq)]
pub struct RouteKey {
    /// As typed; `None` within one host.
    pub far_host: Option<String>,
    pub near_is_source: bool,
    pub carrier: String,
    /// File systems of the two ends, without mount options; empty where they are not known.
    pub source: String,
    pub sink: String,
    /// Its files are small on average.
    pub is_small: bool,
    /// Those that change the speed.
    pub options: Options,
}

impl RouteKey {
    /// The key of a copy to be made, with the file systems of this host's ends as a record would
    /// have them.
    pub fn of_plan(
        plan: &Plan,
        far_host: Option<String>,
        recorded: [Option<&str>; 2],
        options: &Options,
    ) -> RouteKey {
        let near_is_source = far_host.is_none() || plan.near_is_source;
        // Only the far host knows its own.
        let of_end = |recorded: Option<&str>, is_far: bool, there: &str| match recorded {
            None if is_far => there.to_string(),
            recorded => first_word(recorded.unwrap_or_default()),
        };
        let [source, sink] = recorded;
        let is_remote = far_host.is_some();
        RouteKey {
            near_is_source,
            carrier: plan.carrier.to_string(),
            source: of_end(source, is_remote && !near_is_source, &plan.source),
            sink: of_end(sink, is_remote && near_is_source, &plan.sink),
            is_small: is_small(plan.shape.files, plan.shape.bytes()),
            options: Options { streams: plan.streams, ..of_speed(options) },
            far_host,
        }
    }

    pub fn of(record: &Record) -> RouteKey {
        let conditions = &record.conditions;
        let name =
            |file_system: &Option<String>| first_word(file_system.as_deref().unwrap_or_default());
        RouteKey {
            far_host: record.remote.as_ref().map(|remote| remote.host.clone()),
            near_is_source: record.remote.as_ref().is_none_or(|remote| remote.is_push),
            carrier: conditions.carrier.clone(),
            source: name(&conditions.source_file_system),
            sink: name(&conditions.sink_file_system),
            is_small: is_small(record.moved.files, record.moved.bytes),
            options: of_speed(&record.options),
        }
    }
}

/// What the copies of one route and kind took.
#[derive(Clone, Debug, PartialEq)]
pub struct RouteModel {
    pub key: RouteKey,
    /// Of the time after the login.
    pub model: PathModel,
    /// The median logarithm of what copies took over what a fit to others said: a fit takes the
    /// path for as fast as its fastest copy.
    pub bias_ln: f64,
    /// Nine of ten copies are within `exp(spread)` times the prediction with its bias.
    pub spread: f64,
    pub bytes_min: f64,
    /// As `PathModel::spread`, of the CPU time of the source and of the sink.
    pub cpu_spreads: [f64; 2],
}

impl RouteModel {
    /// The models of all routes among these copies that `is_sought` wants. The newest are last.
    pub fn all(records: &[Record], is_sought: impl Fn(&RouteKey) -> bool) -> Vec<RouteModel> {
        let mut groups: Vec<(RouteKey, Vec<PriorCopy>)> = Vec::new();
        for record in records.iter().filter(|record| is_whole(record)) {
            let key = RouteKey::of(record);
            if !is_sought(&key) {
                continue;
            }
            match groups.iter_mut().find(|(known, _)| *known == key) {
                Some((_, copies)) => copies.push(prior(record)),
                None => groups.push((key, vec![prior(record)])),
            }
        }
        groups.into_iter().filter_map(|(key, copies)| RouteModel::of(key, &copies)).collect()
    }

    /// Of the newest of these copies, which are last; `None` where they are too few.
    fn of(key: RouteKey, copies: &[PriorCopy]) -> Option<RouteModel> {
        let newest = &copies[copies.len().saturating_sub(COPIES_MAX)..];
        let model = PathModel::of(newest).filter(|model| model.copies >= COPIES_MIN)?;
        let bytes_min = newest.iter().map(|copy| copy.bytes as f64).fold(f64::INFINITY, f64::min);
        let errors = path_model::errors(newest);
        let bias_ln = median(&errors)?;
        let spread_s = spread(&errors.iter().map(|off| (off - bias_ln).abs()).collect::<Vec<_>>());
        let cpu_spread = |of: fn(&PriorCopy) -> f64, byte_s: f64| {
            let off = |copy: &PriorCopy| (of(copy) / (copy.bytes as f64 * byte_s)).ln().abs();
            let misses = newest.iter().map(off).filter(|off| off.is_finite());
            spread(&misses.collect::<Vec<f64>>())
        };
        let cpu_spreads = [
            cpu_spread(|copy| copy.cpu_source_s, model.cpu_source_byte_s),
            cpu_spread(|copy| copy.cpu_sink_s, model.cpu_sink_byte_s),
        ];
        Some(RouteModel { key, model, bias_ln, spread: spread_s, bytes_min, cpu_spreads })
    }

    /// Whether it is about copies of this size.
    pub fn is_about(&self, plan: &Plan) -> bool {
        let bytes = plan.shape.bytes() as f64;
        plan.rate_limit_bytes_per_s.is_none()
            && (self.bytes_min / COMPARABLE..=self.model.bytes_max * COMPARABLE).contains(&bytes)
    }
}

/// True for a copy that moved all that was asked for, without errors.
fn is_whole(record: &Record) -> bool {
    record.command == "copy" && record.moved.kept == 0 && is_undisturbed(record)
}

fn prior(record: &Record) -> PriorCopy {
    let login_s = record.remote.as_ref().map_or(0.0, |remote| remote.login_s);
    PriorCopy {
        streams: record.options.streams,
        files: record.moved.files,
        bytes: record.moved.data_bytes(),
        rtt_s: record.remote.as_ref().and_then(|remote| remote.rtt_min_s).unwrap_or(0.0),
        // It is known when a copy is predicted; the model is of what comes after it.
        login_s: 0.0,
        seconds: record.moved.elapsed_s - login_s,
        cpu_source_s: record.source.cpu_s(),
        cpu_sink_s: record.sink.as_ref().map_or(0.0, Side::cpu_s),
    }
}

/// A file system without its mount options.
fn first_word(words: &str) -> String {
    words.split_whitespace().next().unwrap_or_default().to_string()
}

fn is_small(files: u64, bytes: u64) -> bool {
    bytes / files.max(1) < LARGE_FROM_BYTES
}

/// The options that change the speed of a copy.
fn of_speed(options: &Options) -> Options {
    let Options { streams, depth_source, depth_sink, window_bytes, preallocate, .. } = options;
    let Options { congestion, pace, lockstep, engine, direct, receive, .. } = options;
    let Options { seal, digest, verify, digest_also, fsync, archive, compress, .. } = options;
    Options {
        streams: *streams,
        depth_source: *depth_source,
        depth_sink: *depth_sink,
        window_bytes: *window_bytes,
        preallocate: preallocate.clone(),
        congestion: congestion.clone(),
        pace: pace.clone(),
        lockstep: lockstep.clone(),
        engine: engine.clone(),
        direct: direct.clone(),
        receive: receive.clone(),
        seal: seal.clone(),
        digest: digest.clone(),
        verify: verify.clone(),
        digest_also: digest_also.clone(),
        fsync: fsync.clone(),
        archive: *archive,
        compress: compress.clone(),
        ..Options::default()
    }
}

/// With fewer copies the error of a model is not known.
const COPIES_MIN: usize = 5;
/// Older ones say less about the machine as it is.
const COPIES_MAX: usize = 32;
/// A copy may be so many times smaller or larger than all others.
const COMPARABLE: f64 = 4.0;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::shape::Shape;
    use crate::predict::Prediction;
    use crate::record::sample::Remote;

    /// A push of one file at 500 MB/s after 0.1 s, to a host with a login of 0.2 s.
    fn record(bytes: u64, off: f64) -> Record {
        let mut record = Record { command: "copy".into(), ..Record::default() };
        record.conditions.carrier = "tcp".into();
        record.conditions.source_file_system = Some("ext4 rw,relatime".into());
        record.conditions.sink_file_system = Some("tmpfs".into());
        record.options.streams = 4;
        record.options.seal = "tls".into();
        record.moved.bytes = bytes;
        record.moved.files = 1;
        record.moved.elapsed_s = 0.2 + (0.1 + bytes as f64 / 5e8) * off;
        record.source.cpu_user_s = bytes as f64 * 1e-9;
        let host = "far".to_string();
        record.remote = Some(Remote { host, is_push: true, login_s: 0.2, rtt_min_s: Some(0.0001) });
        record
    }

    fn plan(bytes: u64) -> Plan {
        let mut shape = Shape::default();
        shape.add(bytes);
        Plan {
            shape,
            carrier: "tcp",
            streams: 4,
            source: "ext4".into(),
            sink: "tmpfs".into(),
            resident: 1.0,
            login_s: 0.2,
            near_is_source: true,
            same_machine: true,
            rate_limit_bytes_per_s: None,
            unusual: Vec::new(),
        }
    }

    fn options() -> Options {
        Options { streams: 9, seal: "tls".into(), recursive: true, ..Options::default() }
    }

    fn key_of(bytes: u64) -> RouteKey {
        let recorded = [Some("ext4 rw,relatime"), None];
        RouteKey::of_plan(&plan(bytes), Some("far".into()), recorded, &options())
    }

    const MB: u64 = 1_000_000;

    #[test]
    fn copies_over_a_route_predict_the_next_one() {
        let offs = [1.0, 1.1, 0.95, 1.05, 0.9, 1.0, 1.08, 0.97, 1.02, 1.0];
        let sizes = [500, 900, 700, 1000, 600, 800];
        let records: Vec<Record> =
            offs.iter().enumerate().map(|(i, off)| record(sizes[i % 6] * MB, *off)).collect();
        let key = key_of(750 * MB);
        let models = RouteModel::all(&records, |known| *known == key);
        let [model] = &models[..] else { panic!("{models:?}") };
        assert_eq!(model.model.copies, 10);
        let said = Prediction::on_route(&plan(750 * MB), None, None, model);
        let [low, middle, high] = said.elapsed_s;
        assert!((middle / 1.8 - 1.0).abs() < 0.1, "{said:?}");
        assert!(low < 1.8 && 1.8 < high && high / low < 1.6, "{said:?}");
        assert!((said.cpu_source_s[1] / 0.75 - 1.0).abs() < 0.01, "{said:?}");
        for (bytes, is_about) in [(750, true), (130, true), (100, false), (4001, false)] {
            assert_eq!(model.is_about(&plan(bytes * MB)), is_about, "{bytes}");
        }
        let limited = Plan { rate_limit_bytes_per_s: Some(1e6), ..plan(750 * MB) };
        assert!(!model.is_about(&limited));
    }

    #[test]
    fn only_the_same_kind_over_the_same_route_counts() {
        type Change = fn(&mut Record);
        let key = key_of(750 * MB);
        let count = |change: fn(&mut Record)| {
            let mut records: Vec<Record> =
                (0..COPIES_MIN as u64).map(|i| record((500 + 100 * i) * MB, 1.0)).collect();
            records.iter_mut().for_each(change);
            RouteModel::all(&records, |known| *known == key).len()
        };
        let cases: [(Change, usize); 12] = [
            (|_| {}, 1),
            (|record| record.options.fresh = true, 1),
            (|record| record.options.request_bytes = 7, 1),
            (|record| record.remote = None, 0),
            (|record| record.remote.as_mut().unwrap().is_push = false, 0),
            (|record| record.conditions.sink_file_system = Some("ext4 rw".into()), 0),
            (|record| record.conditions.sink_file_system = None, 0),
            (|record| record.options.seal = "off".into(), 0),
            (|record| record.options.streams = 8, 0),
            (|record| record.moved.files = 10_000, 0),
            (|record| record.moved.kept = 1, 0),
            (|record| record.command = "sweep".into(), 0),
        ];
        for (place, (change, expect)) in cases.into_iter().enumerate() {
            assert_eq!(count(change), expect, "case {place}");
        }
        let few: Vec<Record> = (1..COPIES_MIN as u64).map(|i| record(i * MB, 1.0)).collect();
        assert_eq!(RouteModel::all(&few, |_| true), []);
    }

    /// Nine of ten copies take a third longer than the fastest: that is what the next one takes.
    #[test]
    fn a_fast_copy_is_no_promise() {
        let copies = (0..20).map(|i| record((500 + 20 * i) * MB, if i == 7 { 0.75 } else { 1.0 }));
        let records: Vec<Record> = copies.collect();
        let models = RouteModel::all(&records, |known| *known == key_of(750 * MB));
        let said = Prediction::on_route(&plan(750 * MB), None, None, &models[0]);
        assert!((said.elapsed_s[1] / 1.8 - 1.0).abs() < 0.05, "{said:?}, {models:?}");
    }

    /// Within one host there is neither a login nor a round trip.
    #[test]
    fn copies_within_a_host_are_learned_from_too() {
        let local = |i: u64| {
            let mut record = record((500 + 50 * i) * MB, 1.0);
            record.moved.elapsed_s -= 0.2;
            record.remote = None;
            record.conditions.carrier = "memory".into();
            record
        };
        let records: Vec<Record> = (0..8).map(local).collect();
        let plan = Plan { carrier: "memory", login_s: 0.0, ..plan(600 * MB) };
        let key = RouteKey::of_plan(&plan, None, [Some("ext4 rw"), Some("tmpfs")], &options());
        let models = RouteModel::all(&records, |known| *known == key);
        let said = Prediction::on_route(&plan, None, None, &models[0]);
        assert!((said.elapsed_s[1] / 1.3 - 1.0).abs() < 0.05, "{said:?}");
    }
}
