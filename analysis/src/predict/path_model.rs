//! The rate of the path between two hosts, and how long a start takes: from earlier copies over it.
//! Pure: from records of the store.
//!
//! A copy's time after its login is `fixed + files·file + ramp + bytes / rate`. The ramp is slow
//! start: each stream begins with ten segments and doubles what it sends every round trip, until
//! the path is full. The round trip is from the samples of those copies; `fixed`, `file` and the
//! rate are fitted to their times.

use crate::model::end_to_end::cost::{Misses, Parts, spread};
use crate::model::shape::Shape;
use crate::record::sample::Record;
use base::stream_steps::StepReason;

/// The path to look for: the far host, the direction, and how connections are set up.
#[derive(Clone, Debug, PartialEq)]
pub struct PathKey {
    /// As typed: `[user@]host`.
    pub far_host: String,
    pub near_is_source: bool,
    pub seal: String,
    pub congestion: Option<String>,
    pub window_bytes: Option<u32>,
    /// As typed: `off` for none.
    pub pace: String,
}

/// An earlier copy over this path.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PriorCopy {
    pub streams: u16,
    pub files: u64,
    pub bytes: u64,
    /// The least of all streams.
    pub rtt_s: f64,
    pub login_s: f64,
    /// Without the login.
    pub seconds: f64,
    pub cpu_source_s: f64,
    pub cpu_sink_s: f64,
}

/// The model of a path.
#[derive(Clone, Debug, PartialEq)]
pub struct PathModel {
    pub copies: usize,
    pub rtt_s: f64,
    pub rate_bytes_per_s: f64,
    pub fixed_s: f64,
    pub file_s: f64,
    /// Nine of ten copies are within `exp(spread)` times the prediction.
    pub spread: f64,
    pub bytes_max: f64,
    /// CPU time per byte, on each side.
    pub cpu_source_byte_s: f64,
    pub cpu_sink_byte_s: f64,
}

/// Copies of `records` over this path that had no errors and no special options.
pub fn crossings(records: &[Record], sought: &PathKey) -> Vec<PriorCopy> {
    records.iter().filter_map(|record| crossing(record, sought)).collect()
}

/// The number of streams that the newest copy over this path was settled at that chose it.
pub fn streams_settled(records: &[Record], sought: &PathKey) -> Option<u16> {
    let unsettled = [StepReason::Short.name(), StepReason::Late.name()];
    let settled = |record: &Record| {
        let last = record.stream_steps.last().filter(|_| is_over(record, sought))?;
        (!unsettled.contains(&last.reason.as_str())).then_some(last.to)
    };
    records.iter().rev().find_map(settled)
}

/// True for a copy over this path.
fn is_over(record: &Record, sought: &PathKey) -> bool {
    let Record { options, remote, .. } = record;
    record.conditions.carrier == "tcp"
        && remote.as_ref().is_some_and(|remote| {
            remote.host == sought.far_host && remote.is_push == sought.near_is_source
        })
        && options.seal == sought.seal
        && options.congestion == sought.congestion
        && options.window_bytes == sought.window_bytes
        && options.pace == sought.pace
}

fn crossing(record: &Record, sought: &PathKey) -> Option<PriorCopy> {
    let Record { options, moved, .. } = record;
    let remote = record.remote.as_ref()?;
    let alike = is_over(record, sought);
    let crossing = PriorCopy {
        streams: options.streams,
        files: record.moved.files,
        bytes: record.moved.data_bytes(),
        rtt_s: remote.rtt_min_s?,
        login_s: remote.login_s,
        seconds: moved.elapsed_s - remote.login_s,
        cpu_source_s: record.source.cpu_s(),
        cpu_sink_s: record.sink.as_ref().map_or(0.0, crate::record::sample::Side::cpu_s),
    };
    (alike && is_undisturbed(record) && crossing.is_sound()).then_some(crossing)
}

/// True for a copy without errors, interruptions and limits.
pub(super) fn is_undisturbed(record: &Record) -> bool {
    let Record { options, moved, .. } = record;
    let odd = [moved.failed, moved.resumed_bytes, moved.held_files, moved.exit_code.into()];
    moved.retries == 0
        && options.rate_bytes_per_s.is_none()
        && record.void_reason.is_none()
        && options.lockstep.is_none()
        && !options.streams_auto
        && odd.iter().all(|count| *count == 0)
}

impl PriorCopy {
    fn is_sound(&self) -> bool {
        let positive = |number: f64| number.is_finite() && number > 0.0;
        // Within one host there is no round trip.
        let rtt_s = self.rtt_s.is_finite() && self.rtt_s >= 0.0;
        positive(self.seconds) && rtt_s && self.bytes > 0 && self.login_s >= 0.0
    }

    /// The error of a prediction: the logarithm of the factor, above 0 where it took longer.
    fn off(&self, path_model: &PathModel) -> f64 {
        let said = path_model.at(self.files, self.bytes, self.streams).total_s() + self.login_s;
        ((self.seconds + self.login_s) / said.max(1e-9)).ln()
    }
}

impl PathModel {
    /// The model of the newest of these copies, which are last; `None` without any. A copy must not
    /// wait for its prediction, so their number is limited.
    pub fn of(crossings: &[PriorCopy]) -> Option<PathModel> {
        let sound = newest(crossings);
        let path_model = fit(&sound)?;
        let misses: Misses = errors(&sound).iter().map(|off| off.abs()).collect();
        let spread = if misses.is_empty() { SPREAD_OF_FEW } else { spread(&misses) };
        Some(PathModel { spread, ..path_model })
    }

    /// The time of a copy after its login.
    pub fn at(&self, files: u64, bytes: u64, streams: u16) -> Parts {
        let ramp_s = ramp_s(bytes as f64, streams, self.rate_bytes_per_s, self.rtt_s);
        Parts {
            start_s: self.fixed_s + ramp_s,
            files_s: self.file_s * files as f64,
            bytes_s: bytes as f64 / self.rate_bytes_per_s,
        }
    }

    pub(crate) fn at_shape(&self, shape: &Shape, streams: u16) -> Parts {
        self.at(shape.files, shape.bytes(), streams)
    }
}

/// The newest that are sound.
fn newest(crossings: &[PriorCopy]) -> Vec<PriorCopy> {
    let sound: Vec<PriorCopy> = crossings.iter().copied().filter(PriorCopy::is_sound).collect();
    sound[sound.len().saturating_sub(FITTED_MAX)..].to_vec()
}

/// The errors of copies that were left out of the fit; none where there are too few copies.
pub(super) fn errors(crossings: &[PriorCopy]) -> Vec<f64> {
    let sound = newest(crossings);
    match sound.len() {
        0..LEFT_OUT_FROM => Vec::new(),
        count => (0..count.min(FOLDS)).flat_map(|fold| left_out(&sound, fold)).collect(),
    }
}

/// The time that a copy loses to slow start.
fn ramp_s(bytes: f64, streams: u16, rate: f64, rtt_s: f64) -> f64 {
    // A stream is given one request at a time: a short copy starts with few streams.
    let busy = (bytes / REQUEST_BYTES).ceil().clamp(1.0, f64::from(streams.max(1)));
    let first = busy * FIRST_WINDOW_BYTES;
    let full = rate * rtt_s;
    if full <= first {
        return 0.0;
    }
    // The rate doubles until the path is full, or everything is sent.
    let sent = bytes.min(full - first);
    rtt_s * (1.0 + sent / first).log2() - sent / rate
}

/// The rate with the least error; for each rate the other two costs are computed.
fn fit(crossings: &[PriorCopy]) -> Option<PathModel> {
    let average = |crossing: &PriorCopy| crossing.bytes as f64 / crossing.seconds;
    // The path is at least as fast as the fastest copy.
    let slowest = crossings.iter().map(average).fold(f64::NAN, f64::max);
    if !(slowest.is_finite() && slowest > 0.0) {
        return None;
    }
    let rtt_s = crossings.iter().map(|crossing| crossing.rtt_s).fold(f64::INFINITY, f64::min);
    let try_rate = |rate: f64| {
        let costs = beside(crossings, rate, rtt_s);
        (miss(crossings, rate, rtt_s, costs), rate, costs)
    };
    let better = |a: (f64, f64, [f64; 2]), b: (f64, f64, [f64; 2])| if b.0 < a.0 { b } else { a };
    let rates = (0..=RATES).map(|i| slowest * RATE_SPAN.powf(f64::from(i) / f64::from(RATES)));
    let (_, coarse, _) = rates.map(try_rate).reduce(better)?;
    let step = RATE_SPAN.powf(1.0 / f64::from(RATES));
    let finer = (-10..=10).map(|i| (coarse * step.powf(f64::from(i) / 10.0)).max(slowest));
    let (_, rate, [fixed_s, file_s]) = finer.map(try_rate).reduce(better)?;
    let bytes: f64 = crossings.iter().map(|crossing| crossing.bytes as f64).sum();
    let cpu = |of: fn(&PriorCopy) -> f64| crossings.iter().map(of).sum::<f64>() / bytes;
    Some(PathModel {
        copies: crossings.len(),
        rtt_s,
        rate_bytes_per_s: rate,
        fixed_s,
        file_s,
        spread: SPREAD_OF_FEW,
        bytes_max: crossings.iter().map(|crossing| crossing.bytes as f64).fold(0.0, f64::max),
        cpu_source_byte_s: cpu(|crossing| crossing.cpu_source_s),
        cpu_sink_byte_s: cpu(|crossing| crossing.cpu_sink_s),
    })
}

/// The fixed time and the time per file, fitted to what remains of each copy's time after its bytes
/// and ramp. Least squares of relative errors, neither below zero. Where files cannot be separated,
/// all of it is fixed, and a few round trips at least.
fn beside(crossings: &[PriorCopy], rate: f64, rtt_s: f64) -> [f64; 2] {
    let left = |crossing: &PriorCopy| {
        let bytes = crossing.bytes as f64;
        crossing.seconds - bytes / rate - ramp_s(bytes, crossing.streams, rate, rtt_s)
    };
    let mut sums = [0.0; 5];
    for crossing in crossings {
        let weight = (crossing.seconds + crossing.login_s).powi(-2);
        let (files, left) = (crossing.files as f64, left(crossing));
        let terms = [1.0, files, files * files, left, files * left];
        sums.iter_mut().zip(terms).for_each(|(sum, term)| *sum += weight * term);
    }
    let [ones, files, squares, left, files_left] = sums;
    let least = rtt_s * START_RTTS_MIN;
    let alone = [(left / ones).max(least), 0.0];
    let determinant = ones * squares - files * files;
    if determinant <= ones * squares * 1e-6 {
        return alone;
    }
    let fixed = (squares * left - files * files_left) / determinant;
    let file = (ones * files_left - files * left) / determinant;
    match (fixed >= least, file >= 0.0) {
        (true, true) => [fixed, file],
        (_, false) => alone,
        (false, true) => [least, ((files_left - least * files) / squares).max(0.0)],
    }
}

/// Huber loss of the logarithms of errors: outliers count less.
fn miss(crossings: &[PriorCopy], rate: f64, rtt_s: f64, [fixed_s, file_s]: [f64; 2]) -> f64 {
    let one = |crossing: &PriorCopy| {
        let bytes = crossing.bytes as f64;
        let ramp_s = ramp_s(bytes, crossing.streams, rate, rtt_s);
        let said = fixed_s + file_s * crossing.files as f64 + ramp_s + bytes / rate;
        let whole = crossing.seconds + crossing.login_s;
        let off = (whole / (said + crossing.login_s).max(1e-9)).ln().abs();
        if off <= HUBER { off * off } else { HUBER * (2.0 * off - HUBER) }
    };
    crossings.iter().map(one).sum()
}

/// Cross-validation: the errors, for every eighth copy, of the fit to all others.
fn left_out(crossings: &[PriorCopy], fold: usize) -> Vec<f64> {
    let (out, others): (Vec<_>, Vec<_>) =
        crossings.iter().enumerate().partition(|(place, _)| place % FOLDS == fold);
    let others: Vec<PriorCopy> = others.into_iter().map(|(_, crossing)| *crossing).collect();
    match fit(&others) {
        Some(path_model) => out.iter().map(|(_, crossing)| crossing.off(&path_model)).collect(),
        None => Vec::new(),
    }
}

/// Ten segments of Ethernet (RFC 6928).
const FIRST_WINDOW_BYTES: f64 = 14_480.0;
/// The default request size.
const REQUEST_BYTES: f64 = 1_048_576.0;
/// Connection, authentication, offer and end take at least this many round trips.
const START_RTTS_MIN: f64 = 3.0;
/// Rates are tried from the fastest copy's average to this many times that.
const RATE_SPAN: f64 = 16.0;
const RATES: i32 = 120;
/// Errors above this are outliers.
const HUBER: f64 = 0.1;
/// Copies that are fitted, and parts into which they are divided for cross-validation.
const FITTED_MAX: usize = 64;
const FOLDS: usize = 8;
/// With fewer copies there is no cross-validation, and the interval is a factor of a half more each
/// way.
const LEFT_OUT_FROM: usize = 4;
const SPREAD_OF_FEW: f64 = 0.4;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::sample::Remote;

    const RATE: f64 = 12e6;
    const RTT_S: f64 = 0.1;

    /// A copy over a path of 96 Mbit/s and 100 ms, `off` times slower than the model.
    fn planted(files: u64, bytes: u64, streams: u16, off: f64) -> PriorCopy {
        let ramp_s = ramp_s(bytes as f64, streams, RATE, RTT_S);
        let seconds = 0.6 + 0.002 * files as f64 + ramp_s + bytes as f64 / RATE;
        PriorCopy {
            streams,
            files,
            bytes,
            rtt_s: RTT_S,
            login_s: 1.5,
            seconds: seconds * off,
            cpu_source_s: bytes as f64 * 3e-9,
            cpu_sink_s: bytes as f64 * 6e-9,
        }
    }

    #[test]
    fn a_ramp_is_that_of_slow_start() {
        // (bytes, streams, rate, rtt, seconds)
        let cases = [
            // The first window is larger than the path needs.
            (1e9, 4, 1e6, 0.01, 0.0),
            // One window doubles three times until all is sent.
            (7.0 * FIRST_WINDOW_BYTES, 1, 1e9, 0.1, 0.3 - 7.0 * FIRST_WINDOW_BYTES / 1e9),
            // Until the path is full, and no longer.
            (1e9, 1, 1.448e6, 0.1, 0.1 * 10_f64.log2() - 9.0 * FIRST_WINDOW_BYTES / 1.448e6),
        ];
        for (bytes, streams, rate, rtt_s, expect) in cases {
            let got = ramp_s(bytes, streams, rate, rtt_s);
            assert!((got - expect).abs() < 1e-9, "{bytes} {streams}: {got} against {expect}");
        }
    }

    #[test]
    fn planted_ways_are_found() {
        let offs = [1.0, 1.01, 0.99, 1.02, 0.98, 1.0, 1.4];
        let all: Vec<PriorCopy> = (0..14_u64)
            .map(|i| {
                let files = if i % 3 == 0 { 400 } else { 1 };
                planted(files, (2 << i.min(7)) * 1_000_000, 1 << (i % 4), offs[i as usize % 7])
            })
            .collect();
        let path_model = PathModel::of(&all).unwrap();
        for (files, bytes, streams) in [(1, 5_000_000, 4), (100, 70_000_000, 2), (1, 1 << 30, 1)] {
            let expect = planted(files, bytes, streams, 1.0).seconds;
            let got = path_model.at(files, bytes, streams).total_s();
            assert!(
                (got / expect - 1.0).abs() < 0.06,
                "{bytes}: {got} against {expect}, {path_model:?}"
            );
        }
        assert!((path_model.rate_bytes_per_s / RATE - 1.0).abs() < 0.05, "{path_model:?}");
        assert!((0.02..0.5).contains(&path_model.spread), "{path_model:?}");
        assert!((path_model.cpu_sink_byte_s - 6e-9).abs() < 1e-12);
    }

    #[test]
    fn few_copies_say_something_and_none_say_nothing() {
        assert_eq!(PathModel::of(&[]), None);
        let one = PathModel::of(&[planted(1, 100_000_000, 4, 1.0)]).unwrap();
        assert_eq!(one.spread, SPREAD_OF_FEW);
        let (got, expect) = (one.at(1, 100_000_000, 4).total_s(), 0.6 + 0.002 + 8.5);
        assert!((got / expect - 1.0).abs() < 0.1, "{got} against {expect}");
        // Invalid values cause no error.
        let odd = [
            PriorCopy { seconds: f64::NAN, ..planted(1, 5, 4, 1.0) },
            PriorCopy { rtt_s: -1.0, ..planted(1, 5, 4, 1.0) },
            PriorCopy { bytes: 0, ..planted(1, 5, 4, 1.0) },
        ];
        assert_eq!(PathModel::of(&odd), None);
        let tiny = PathModel::of(&[planted(u64::MAX, u64::MAX, u16::MAX, 1.0)]).unwrap();
        assert!(tiny.at(1, 1, 1).total_s().is_finite());
    }

    #[test]
    fn only_copies_of_the_same_kind_count() {
        let sought = PathKey {
            far_host: "far".into(),
            near_is_source: true,
            seal: "tls".into(),
            congestion: None,
            window_bytes: None,
            pace: "auto".into(),
        };
        let mut record = Record::default();
        record.conditions.carrier = "tcp".into();
        record.options.seal = "tls".into();
        record.options.streams = 4;
        (record.moved.bytes, record.moved.files, record.moved.elapsed_s) = (1000, 1, 5.0);
        record.options.pace = "auto".into();
        let rtt_min_s = Some(0.1);
        record.remote = Some(Remote { host: "far".into(), is_push: true, login_s: 1.5, rtt_min_s });
        let count = |record: &Record| crossings(std::slice::from_ref(record), &sought).len();
        assert_eq!(crossings(&[record.clone()], &sought)[0].seconds, 3.5);
        let changes: [fn(&mut Record); 7] = [
            |record| record.remote.as_mut().unwrap().host = "other".into(),
            |record| record.remote.as_mut().unwrap().is_push = false,
            |record| record.remote.as_mut().unwrap().rtt_min_s = None,
            |record| record.moved.failed = 1,
            |record| record.options.window_bytes = Some(1),
            |record| record.options.rate_bytes_per_s = Some(1.0),
            |record| record.moved.elapsed_s = 1.0,
        ];
        for (place, change) in changes.into_iter().enumerate() {
            let mut other = record.clone();
            change(&mut other);
            assert_eq!(count(&other), 0, "change {place}");
        }
    }
}
