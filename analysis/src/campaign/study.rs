//! Analysis of a campaign's cells: medians with their spread, the best setting of each host, the
//! program's own choice beside it, how long a copy must be, and what changed since another
//! campaign. Pure functions of records.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{Extent, Kind, Way};
use crate::diagnosis::store::{self, StoreBottleneck};
use crate::model::fit::{Fit, Known, Observation};
use crate::record::sample::{Record, Side};
use crate::statistics::{Estimate, Spread, median, median_estimate, ratio_of_medians};
use base::units::Nanos;

/// Cells with the same host, choice and length.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Point {
    pub host: String,
    pub kind: Kind,
    pub choice: Choice,
    pub extent: Extent,
}

/// How a copy was made.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Choice {
    Path {
        /// `None` where it was left to TCP.
        window_bytes: Option<u32>,
        streams: u16,
        /// As typed for `copy --compress`.
        level: String,
    },
    Store {
        request_bytes: u32,
        /// `None` where it was left to the program.
        depth: Option<u16>,
    },
}

/// What held most copies of a point back at a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldBack {
    /// `None` is mixed.
    pub class: Option<StoreBottleneck>,
    pub cells: usize,
    pub of: usize,
}

/// Summary of the cells of a point.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    pub point: Point,
    /// From the login to the last byte, in bytes a second.
    pub rates: Vec<f64>,
    pub rate: Spread,
    pub compression_ratio: Option<f64>,
    /// As a share of one CPU, on each side.
    pub cpu_source: Option<f64>,
    pub cpu_sink: Option<f64>,
    pub rtt_unloaded_s: Option<f64>,
    pub rtt_loaded_s: Option<f64>,
    pub probes_lost_share: Option<f64>,
    /// Cells whose hosts were busy with something else.
    pub disturbed: usize,
    /// Of a store.
    pub held_back: Option<HeldBack>,
}

/// The best of a host's grid, and beside it the program's own choice.
#[derive(Clone, Debug, PartialEq)]
pub struct Best<'a> {
    pub host: &'a str,
    pub grid: Option<&'a Row>,
    /// Each with the ratio of its median to that of the best cell.
    pub auto: Vec<(&'a Row, Option<Estimate>)>,
}

/// How the rate of a setting grows with the length of a copy.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Growth<'a> {
    /// From the shortest to the longest.
    pub lengths: Vec<Length<'a>>,
    /// The median of the pooled copies of the three longest lengths.
    pub asymptote: Estimate,
    /// The first length whose median is at most 5 % below that.
    pub close_at: Option<Length<'a>>,
    /// The first of those whose interval also overlaps: a longer copy gains nothing.
    pub reached_at: Option<Length<'a>>,
    /// A length, and a longer one that is significantly slower: their intervals are disjoint.
    pub fall: Option<[Length<'a>; 2]>,
    /// `time = t0 + bytes / rate`, where lengths were given in bytes.
    pub model: Option<Model>,
}

/// Copies of one length.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Length<'a> {
    pub row: &'a Row,
    /// Their median rate with its interval.
    pub rate: Estimate,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Model {
    pub t0_s: Estimate,
    pub bytes_per_s: Estimate,
}

/// A point that is in two campaigns.
#[derive(Clone, Debug, PartialEq)]
pub struct Change<'a> {
    pub before: &'a Row,
    pub after: &'a Row,
    pub ratio: Option<Estimate>,
}

impl Change<'_> {
    /// True where there is an interval, and 1 is outside of it.
    pub(crate) fn is_one(&self) -> bool {
        let leaves_out = |ratio: Estimate| ratio.low > 1.0 || ratio.high < 1.0;
        has_interval(self.before, self.after) && self.ratio.is_some_and(leaves_out)
    }
}

/// One row for each point, sorted by host.
pub fn rows(records: &[Record]) -> Vec<Row> {
    let mut by_point: BTreeMap<Point, Vec<&Record>> = BTreeMap::new();
    let counted = records.iter().filter(|record| record.void_reason.is_none());
    for (point, record) in counted.filter_map(|record| Some((point(record)?, record))) {
        by_point.entry(point).or_default().push(record);
    }
    by_point.into_iter().filter_map(|(point, records)| row(point, &records)).collect()
}

pub(crate) fn point(record: &Record) -> Option<Point> {
    let cell = record.cell.as_ref()?;
    let bytes = cell.extent_bytes.map(Extent::Bytes);
    let time = cell.extent_s.map(|s| Extent::Time(Nanos((s * 1e9).round() as u64)));
    Some(Point {
        host: route(record)?,
        kind: if cell.choice == Kind::Auto.name() { Kind::Auto } else { Kind::Grid },
        choice: Choice::of(record),
        extent: bytes.or(time)?,
    })
}

/// The host, or the way to or from a store.
fn route(record: &Record) -> Option<String> {
    match &record.remote {
        Some(remote) => Some(remote.host.clone()),
        None => way(record).map(|(way, url)| way.route(url)),
    }
}

fn way(record: &Record) -> Option<(Way, &str)> {
    let is_store = |end: &&str| end.starts_with("s3://");
    let source = record.sources.first().map(String::as_str).filter(is_store);
    let target = Some(record.target.as_str()).filter(is_store);
    target.map(|url| (Way::Put, url)).or(source.map(|url| (Way::Get, url)))
}

impl Choice {
    fn of(record: &Record) -> Choice {
        let options = &record.options;
        let way = record.remote.is_none().then(|| way(record)).flatten();
        match way {
            None => Choice::Path {
                window_bytes: options.window_bytes,
                streams: options.streams,
                level: options.compress.clone(),
            },
            Some((way, _)) => Choice::Store {
                request_bytes: options.request_bytes,
                depth: match way {
                    Way::Put => options.depth_sink,
                    Way::Get => options.depth_source,
                },
            },
        }
    }

    /// The first axis of a grid: the window, or the size of a request. `None` where it was left to
    /// TCP.
    pub(crate) fn bytes(&self) -> Option<u32> {
        match self {
            Choice::Path { window_bytes, .. } => *window_bytes,
            Choice::Store { request_bytes, .. } => Some(*request_bytes),
        }
    }

    /// The second axis: streams, or requests at each stream. `None` where it was left to the
    /// program.
    pub(crate) fn count(&self) -> Option<u16> {
        match self {
            Choice::Path { streams, .. } => Some(*streams),
            Choice::Store { depth, .. } => *depth,
        }
    }

    /// The third; nothing is compressed for a store.
    pub(crate) fn level(&self) -> &str {
        match self {
            Choice::Path { level, .. } => level,
            Choice::Store { .. } => OFF,
        }
    }
}

/// What most of these copies were held back by at a store.
fn held_back(records: &[&Record]) -> Option<HeldBack> {
    let verdicts = records.iter().filter_map(|record| store::kept(record));
    let mut cells: BTreeMap<Option<StoreBottleneck>, usize> = BTreeMap::new();
    verdicts.for_each(|verdict| *cells.entry(verdict.primary).or_default() += 1);
    let of = cells.values().sum();
    let (class, cells) = cells.into_iter().max_by_key(|(_, cells)| *cells)?;
    Some(HeldBack { class, cells, of })
}

fn row(point: Point, records: &[&Record]) -> Option<Row> {
    let of = |figure: &dyn Fn(&Record) -> Option<f64>| -> Vec<f64> {
        records.iter().filter_map(|record| figure(record)).collect()
    };
    let rates = of(&|record| Some(record.moved.data_bytes() as f64 / moving_s(record)?));
    let trips = |record: &Record| record.round_trips.clone();
    let used = |side: &Side, record: &Record| Some(side.cpu_s() / moving_s(record)?);
    let lost = |record: &Record| {
        let loaded = trips(record)?.loaded;
        (loaded.sent > 0).then(|| f64::from(loaded.lost) / f64::from(loaded.sent))
    };
    Some(Row {
        rate: Spread::of(&rates)?,
        rates,
        compression_ratio: median(&of(&|r| r.cell.as_ref()?.compression_ratio)),
        cpu_source: median(&of(&|record| used(&record.source, record))),
        cpu_sink: median(&of(&|record| used(record.sink.as_ref()?, record))),
        rtt_unloaded_s: median(&of(&|record| trips(record)?.unloaded.median_s)),
        rtt_loaded_s: median(&of(&|record| trips(record)?.loaded.median_s)),
        probes_lost_share: median(&of(&lost)),
        disturbed: records.iter().filter(|r| r.gates.iter().any(|gate| !gate.passed)).count(),
        held_back: held_back(records),
        point,
    })
}

fn moving_s(record: &Record) -> Option<f64> {
    record.cell.as_ref()?.moving_s.filter(|seconds| *seconds > 0.0)
}

/// The share of the time in which a path was loaded; `None` without any time.
pub fn duty(records: &[Record]) -> Option<f64> {
    let pause = |record: &Record| record.cell.as_ref()?.pause_s;
    let busy_s: f64 = records.iter().map(|record| record.moved.elapsed_s).sum();
    let idle_s: f64 = records.iter().filter_map(pause).sum();
    (busy_s + idle_s > 0.0).then(|| busy_s / (busy_s + idle_s))
}

/// The best of each host, among its longest copies.
pub fn best(rows: &[Row]) -> Vec<Best<'_>> {
    let mut hosts: Vec<&str> = rows.iter().map(|row| row.point.host.as_str()).collect();
    hosts.dedup();
    let of_host = |host| {
        let all = || rows.iter().filter(move |row| row.point.host == host);
        let longest = all().map(|row| row.point.extent).max();
        let of = |kind| {
            all().filter(move |row| row.point.kind == kind && Some(row.point.extent) == longest)
        };
        let grid = of(Kind::Grid).max_by(|a, b| a.rate.median.total_cmp(&b.rate.median));
        let beside = |row| {
            let ratio = grid.and_then(|grid: &Row| beside(row, grid));
            (row, ratio)
        };
        Best { host, grid, auto: of(Kind::Auto).map(beside).collect() }
    };
    hosts.into_iter().map(of_host).collect()
}

fn beside(row: &Row, other: &Row) -> Option<Estimate> {
    ratio_of_medians(&row.rates, &other.rates, SEED)
}

/// With fewer passes than `PASSES_MIN`, an interval of the ratio means nothing.
fn has_interval(row: &Row, other: &Row) -> bool {
    row.rate.n.min(other.rate.n) >= PASSES_MIN
}

impl<'a> Best<'a> {
    /// The setting to recommend: the best of all, where it is significantly faster than a copy with
    /// default options.
    pub(crate) fn advised(&self) -> Option<&'a Row> {
        let auto = self.auto.iter().map(|(row, _)| *row);
        let best = auto.chain(self.grid).max_by(|a, b| a.rate.median.total_cmp(&b.rate.median))?;
        match self.usual() {
            Some(usual) => {
                let slower = has_interval(usual, best) && beside(usual, best)?.high < 1.0;
                slower.then_some(best)
            }
            None => Some(best),
        }
    }

    /// Whether it is a way to or from a store.
    pub fn is_at_store(&self) -> bool {
        let mut rows = self.auto.iter().map(|(row, _)| *row).chain(self.grid);
        rows.any(|row| matches!(row.point.choice, Choice::Store { .. }))
    }

    /// A copy of files with default options, which chooses its compression. Where compression was
    /// not tried, a copy without it, as for data that does not shrink.
    pub fn usual(&self) -> Option<&'a Row> {
        let of = |level| {
            self.auto.iter().map(|(row, _)| *row).find(|row| row.point.choice.level() == level)
        };
        of("auto").or_else(|| of(OFF))
    }
}

/// How rates grow, for each setting that was tried at three lengths or more.
pub(crate) fn growths(rows: &[Row]) -> Vec<Growth<'_>> {
    let mut by_setting: BTreeMap<(&str, Kind, &Choice), Vec<&Row>> = BTreeMap::new();
    for row in rows {
        let Point { host, kind, choice, .. } = &row.point;
        by_setting.entry((host, *kind, choice)).or_default().push(row);
    }
    by_setting.into_values().filter(|rows| rows.len() >= LENGTHS_MIN).filter_map(growth).collect()
}

fn growth(mut rows: Vec<&Row>) -> Option<Growth<'_>> {
    rows.sort_by_key(|row| row.point.extent);
    let length = |row| Some(Length { row, rate: median_estimate(&row.rates, SEED)? });
    let lengths: Vec<Length<'_>> = rows.iter().filter_map(|row| length(row)).collect();
    let longest = &rows[rows.len() - LENGTHS_MIN..];
    let pooled: Vec<f64> = longest.iter().flat_map(|row| row.rates.iter().copied()).collect();
    let asymptote = median_estimate(&pooled, SEED)?;
    let is_close = |length: &&Length<'_>| length.rate.value >= CLOSE_SHARE * asymptote.value;
    let overlaps = |length: &&Length<'_>| {
        length.rate.low <= asymptote.high && length.rate.high >= asymptote.low
    };
    Some(Growth {
        asymptote,
        close_at: lengths.iter().find(is_close).copied(),
        reached_at: lengths.iter().filter(is_close).find(overlaps).copied(),
        fall: fall(&lengths),
        model: model(&rows),
        lengths,
    })
}

fn fall<'a>(lengths: &[Length<'a>]) -> Option<[Length<'a>; 2]> {
    let fall_to = |(longer, at): (usize, &Length<'a>)| {
        let before = lengths[..longer].iter().find(|shorter| shorter.rate.low > at.rate.high)?;
        Some([*before, *at])
    };
    lengths.iter().enumerate().find_map(fall_to)
}

/// The time of a copy has the form of a cost: a fixed time, and a time per byte.
fn model(rows: &[&Row]) -> Option<Model> {
    let mut runs = Vec::new();
    for (number, row) in (1..).zip(rows) {
        let Extent::Bytes(bytes) = row.point.extent else { return None };
        let bytes = bytes as f64;
        runs.extend(row.rates.iter().map(|rate| Observation {
            request_bytes: number,
            depth: 0,
            bytes,
            calls: 1.0,
            starts: 1.0,
            cpu_s: bytes / rate,
        }));
    }
    let fit = Fit::of(&runs, Known::default(), SEED).ok()?;
    let (t0, each) = (fit.cr_ns, fit.cb_ns);
    let rate = |ns: f64| 1e9 / ns;
    Some(Model {
        t0_s: Estimate { value: t0.value / 1e9, low: t0.low / 1e9, high: t0.high / 1e9 },
        bytes_per_s: Estimate {
            value: rate(each.value),
            low: rate(each.high),
            high: rate(each.low),
        },
    })
}

/// The points that are in both campaigns.
pub fn changes<'a>(before: &'a [Row], after: &'a [Row]) -> Vec<Change<'a>> {
    let of = |after: &'a Row| {
        let before = before.iter().find(|row| row.point == after.point)?;
        Some(Change { before, after, ratio: beside(after, before) })
    };
    after.iter().filter_map(of).collect()
}

/// Without compression.
pub(crate) const OFF: &str = "off";
const CLOSE_SHARE: f64 = 0.95;
const LENGTHS_MIN: usize = 3;
/// How many passes are needed before something can be called faster than something else.
pub const PASSES_MIN: usize = 3;
/// Any value will do: the same records give the same intervals.
const SEED: u64 = 1;

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::record::options::Options;
    use crate::record::sample::{Cell as CellOfRun, Moved, Probes, Remote, RoundTrips};

    /// A copy that took `moving_s`.
    fn cell(kind: &str, streams: u16, extent: Extent, bytes: u64, moving_s: f64) -> Record {
        let (extent_bytes, extent_s) = match extent {
            Extent::Bytes(bytes) => (Some(bytes), None),
            Extent::Time(time) => (None, Some(time.seconds())),
        };
        let probes = |median_s| Probes { sent: 10, lost: 1, median_s, ..Probes::default() };
        Record {
            options: Options { streams, compress: "off".into(), ..Options::default() },
            moved: Moved { bytes, elapsed_s: moving_s + 0.5, ..Moved::default() },
            round_trips: Some(RoundTrips {
                unloaded: probes(Some(0.05)),
                loaded: probes(Some(0.08)),
                ..RoundTrips::default()
            }),
            remote: Some(Remote { host: "anl".into(), ..Remote::default() }),
            cell: Some(CellOfRun {
                choice: kind.into(),
                extent_bytes,
                extent_s,
                moving_s: Some(moving_s),
                pause_s: Some(moving_s + 1.0),
                ..CellOfRun::default()
            }),
            ..Record::default()
        }
    }

    fn timed(kind: &str, streams: u16, megabytes: [u64; 5]) -> Vec<Record> {
        let extent = Extent::Time(Nanos::from_millis(1000));
        megabytes.into_iter().map(|mb| cell(kind, streams, extent, mb * 1_000_000, 1.0)).collect()
    }

    pub(crate) fn campaign(four: [u64; 5]) -> Vec<Record> {
        let mut records = timed("grid", 1, [10, 11, 10, 9, 10]);
        records.extend(timed("grid", 16, [50, 52, 49, 50, 51]));
        records.extend(timed("auto", 4, four));
        records
    }

    #[test]
    fn the_best_stands_beside_what_is_done_anyway() {
        let records = campaign([40, 40, 41, 39, 40]);
        let rows = rows(&records);
        assert_eq!(rows.len(), 3);
        assert_eq!((rows[0].rtt_unloaded_s, rows[0].rtt_loaded_s), (Some(0.05), Some(0.08)));
        assert_eq!(rows[0].probes_lost_share, Some(0.1));
        let best = &best(&rows)[0];
        assert_eq!(best.grid.unwrap().point.choice.count(), Some(16));
        let (auto, ratio) = &best.auto[0];
        assert_eq!(auto.rate.median, 40e6);
        assert!((ratio.unwrap().value - 0.8).abs() < 1e-9);
        assert_eq!(best.advised().unwrap().point.choice.count(), Some(16));
        let duty = duty(&records).unwrap();
        assert!(duty < 0.5, "{duty}");
    }

    #[test]
    fn what_is_hardly_faster_is_not_advised() {
        let rows = rows(&campaign([50, 49, 51, 50, 52]));
        assert_eq!(best(&rows)[0].advised(), None);
    }

    /// Where compression was tried, the best is compared with a copy that chooses its compression.
    #[test]
    fn the_usual_copy_compresses_where_compression_was_tried() {
        let at_level = |level: &str, kind, megabytes| {
            let mut records = timed(kind, 4, megabytes);
            for record in &mut records {
                record.options.compress = level.to_string();
            }
            records
        };
        let mut records = at_level("off", "auto", [40, 41, 40, 39, 40]);
        records.extend(at_level("zlib:1", "grid", [60, 61, 60, 59, 60]));
        assert_eq!(best(&rows(&records))[0].usual().unwrap().point.choice.level(), "off");
        assert!(best(&rows(&records))[0].advised().is_some());
        records.extend(at_level("auto", "auto", [62, 63, 62, 61, 62]));
        assert_eq!(best(&rows(&records))[0].usual().unwrap().point.choice.level(), "auto");
        assert!(best(&rows(&records))[0].advised().is_none());
    }

    /// With two passes, every second difference would be called significant by chance.
    #[test]
    fn two_passes_say_nothing_of_what_is_faster() {
        for (passes, is_said) in [(2, false), (3, true)] {
            let pass = |records: Vec<Record>| records.into_iter().take(passes);
            let of = |four| -> Vec<Row> {
                let grid = pass(timed("grid", 16, [50, 51, 52, 50, 51]));
                rows(&grid.chain(pass(timed("auto", 4, four))).collect::<Vec<_>>())
            };
            let (before, after) = (of([40, 41, 42, 40, 41]), of([30, 31, 32, 30, 31]));
            assert_eq!(best(&before)[0].advised().is_some(), is_said, "{passes} passes");
            assert_eq!(changes(&before, &after).iter().any(Change::is_one), is_said);
        }
    }

    #[test]
    fn a_change_is_told_from_none() {
        let (before, after) = (campaign([40, 40, 41, 39, 40]), campaign([30, 31, 30, 29, 30]));
        let (before, after) = (rows(&before), rows(&after));
        let changes = changes(&before, &after);
        let real: Vec<u16> = changes
            .iter()
            .filter(|change| change.is_one())
            .filter_map(|change| change.after.point.choice.count())
            .collect();
        assert_eq!((changes.len(), real), (3, vec![4]));
    }

    /// t0 = 0.5 s, 100 MB/s: 95 % is reached from 950 MB on.
    #[test]
    fn the_asymptote_and_its_model_are_found() {
        let mut records = Vec::new();
        for power in 0..14 {
            let bytes = 1_000_000 << power;
            for repeat in 0..9 {
                let took_s = (0.5 + bytes as f64 / 1e8) * (1.0 + 0.002 * f64::from(repeat - 4));
                records.push(cell("grid", 4, Extent::Bytes(bytes), bytes, took_s));
            }
        }
        let rows = rows(&records);
        let growth = &growths(&rows)[0];
        let model = growth.model.unwrap();
        assert!((model.t0_s.value - 0.5).abs() < 0.01, "{model:?}");
        assert!((model.bytes_per_s.value / 1e8 - 1.0).abs() < 0.01, "{model:?}");
        let extent = |length: Option<Length<'_>>| length.unwrap().row.point.extent;
        assert_eq!(extent(growth.close_at), Extent::Bytes(1_024_000_000));
        assert_eq!(extent(growth.reached_at), Extent::Bytes(2_048_000_000), "97.6 of 98.8 %");
        assert_eq!(growth.fall, None);
    }

    /// Five copies of each length: median rate and range, in MB/s.
    #[test]
    fn a_length_is_long_enough_by_its_median_and_its_interval() {
        type Found = (Option<usize>, Option<usize>, Option<[usize; 2]>);
        let check = |medians: &[(f64, f64)], expect: Found| {
            let mut records = Vec::new();
            for (at, (median, range)) in medians.iter().enumerate() {
                for share in [-0.5, -0.2, 0.0, 0.2, 0.5] {
                    let (bytes, rate) = (1_000_000 << at, (median + range * share) * 1e6);
                    let extent = Extent::Bytes(bytes);
                    records.push(cell("grid", 4, extent, bytes, bytes as f64 / rate));
                }
            }
            let rows = rows(&records);
            let growth = &growths(&rows)[0];
            let place = |length: Length<'_>| {
                growth.lengths.iter().position(|other| *other == length).unwrap()
            };
            let found = (
                growth.close_at.map(place),
                growth.reached_at.map(place),
                growth.fall.map(|pair| pair.map(place)),
            );
            assert_eq!(found, expect, "{medians:?}");
        };
        // The first of those that are equally fast.
        check(&[(50.0, 4.0), (99.0, 4.0), (100.0, 4.0), (101.0, 4.0)], (Some(1), Some(1), None));
        // 96 % of the asymptote: significantly lower, and not.
        check(&[(96.0, 1.0), (100.0, 1.0), (100.0, 1.0), (100.5, 1.0)], (Some(0), Some(1), None));
        check(&[(96.0, 12.0), (100.0, 1.0), (100.0, 1.0), (100.5, 1.0)], (Some(0), Some(0), None));
        // An overlapping interval is not enough.
        check(&[(94.0, 30.0), (100.0, 1.0), (100.0, 1.0), (100.5, 1.0)], (Some(1), Some(1), None));
        // A short copy that fits into a queue looks faster than the path.
        let swallowed = [(150.0, 4.0), (120.0, 4.0), (100.0, 4.0), (100.0, 4.0), (101.0, 4.0)];
        check(&swallowed, (Some(0), Some(2), Some([0, 1])));
        // A dip within the intervals does not count.
        check(&[(99.0, 8.0), (96.0, 8.0), (100.0, 8.0), (100.0, 8.0)], (Some(0), Some(0), None));
        check(
            &[(100.0, 2.0), (90.0, 2.0), (100.0, 2.0), (100.0, 2.0)],
            (Some(0), Some(0), Some([0, 1])),
        );
        // Rates never level off: the pooled median of the last three is that of the second longest.
        check(&[(10.0, 0.1), (20.0, 0.1), (40.0, 0.1), (80.0, 0.1)], (Some(2), Some(2), None));
    }
}
