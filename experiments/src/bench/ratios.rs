//! The targets as rows of one table, and whether they were reached.

use super::race::{Outcome, Results, Sample};
use super::rows::Clock;
use crate::page;
use analysis::statistics::Spread;

/// One target.
struct Target {
    what: &'static str,
    measure: Measure,
    bound: Bound,
}

/// How it is measured, by the names of rows.
enum Measure {
    /// The first row's rate over the second's, in each round.
    Rates(&'static str, &'static str),
    /// CPU time of both sides in ns per byte.
    Cpu(&'static str),
    /// By how many seconds the first is slower than the second, in each round.
    Seconds(&'static str, &'static str),
    /// The first row's time over the second's, in each round.
    Times(&'static str, &'static str),
    /// MiB of the larger side.
    Peak(&'static str),
    /// MiB of the larger side above the printed plan.
    BeyondPlan(&'static str),
}

#[derive(Clone, Copy)]
enum Bound {
    Least(f64),
    Most(f64),
}

const TARGETS: &[Target] = &[
    at_least("sealed with BLAKE3 against wdt sealed", rates(TLS_BLAKE3, WDT_SEALED), 1.1),
    at_most("sealed with BLAKE3, ns a byte", Measure::Cpu(TLS_BLAKE3), 1.35),
    at_most("stretch: the same", Measure::Cpu(TLS_BLAKE3), 1.2),
    at_least("stretch: sealed with BLAKE3 against wdt clear", rates(TLS_BLAKE3, WDT_CLEAR), 0.9),
    at_least("sealed with BLAKE3 against default scp", rates(TLS_BLAKE3, "scp"), 5.0),
    at_most("sealed with crc64, ns a byte", Measure::Cpu("datapump tls crc64"), 1.1),
    at_least("clear with crc64 against socat", rates("datapump crc64", "socat"), 1.0),
    at_most("clear with crc64, ns a byte", Measure::Cpu("datapump crc64"), 0.9),
    at_least("null to null against iperf3 -P1, bbr", rates(NULL_BBR, "iperf3 -P1 bbr"), 0.9),
    at_least("null to null against iperf3 -P1, cubic", rates(NULL_CUBIC, "iperf3 -P1 cubic"), 0.9),
    at_most("small files sealed, time against tar over socat", times(TREE, TAR_TREE), 1.0),
    at_most("stretch: small files sealed, time against wdt clear", times(TREE, WDT_TREE), 1.0),
    at_least("disk to disk with crc64 against fio", rates(DISK_CRC, FIO), 0.9),
    at_most("disk to disk with crc64, ns a byte", Measure::Cpu(DISK_CRC), 0.15),
    at_most(
        "2 bytes, seconds beyond scp",
        Measure::Seconds("datapump, 2 bytes", "scp, 2 bytes"),
        0.1,
    ),
    at_most("empty files, MiB of the larger side", Measure::Peak(EMPTY), 300.0),
    at_most("empty files, MiB beyond the plan", Measure::BeyondPlan(EMPTY), 64.0),
    at_most(
        "one large file, MiB beyond the plan",
        Measure::BeyondPlan("datapump one large file"),
        64.0,
    ),
    at_most(
        "large requests, MiB beyond the plan",
        Measure::BeyondPlan("datapump large requests"),
        64.0,
    ),
];

const TLS_BLAKE3: &str = "datapump tls blake3";
const WDT_SEALED: &str = "wdt 4 ports aes128-gcm";
const WDT_CLEAR: &str = "wdt 4 ports";
const NULL_BBR: &str = "datapump null, 1 streams bbr";
const NULL_CUBIC: &str = "datapump null, 1 streams cubic";
const TREE: &str = "datapump tls blake3, tree";
const TAR_TREE: &str = "tar over socat, tree";
const WDT_TREE: &str = "wdt 4 ports, tree";
const DISK_CRC: &str = "datapump disk crc64";
const FIO: &str = "fio reading and writing";
const EMPTY: &str = "datapump empty files";

const fn rates(ours: &'static str, theirs: &'static str) -> Measure {
    Measure::Rates(ours, theirs)
}

const fn times(ours: &'static str, theirs: &'static str) -> Measure {
    Measure::Times(ours, theirs)
}

const fn at_least(what: &'static str, measure: Measure, bound: f64) -> Target {
    Target { what, measure, bound: Bound::Least(bound) }
}

const fn at_most(what: &'static str, measure: Measure, bound: f64) -> Target {
    Target { what, measure, bound: Bound::Most(bound) }
}

/// The table of targets as Markdown. A target whose rows were not run says so.
pub(super) fn table(results: &Results<'_>) -> String {
    let row = |target: &Target| {
        let bound = match target.bound {
            Bound::Least(bound) => format!("≥ {bound}"),
            Bound::Most(bound) => format!("≤ {bound}"),
        };
        let (measured, verdict) = match target.measure.of(results) {
            None => ("–".to_string(), "not measured"),
            Some(spread) => (spread.text(2), target.bound.verdict(spread.median)),
        };
        vec![target.what.to_string(), bound, measured, verdict.to_string()]
    };
    let rows: Vec<Vec<String>> = TARGETS.iter().map(row).collect();
    page::table(&["to reach", "bound", "measured", "verdict"], &rows)
}

impl Bound {
    fn verdict(self, value: f64) -> &'static str {
        let reached = match self {
            Bound::Least(bound) => value >= bound,
            Bound::Most(bound) => value <= bound,
        };
        if reached { "pass" } else { "**fail**" }
    }
}

impl Measure {
    fn of(&self, results: &Results<'_>) -> Option<Spread> {
        match self {
            Measure::Rates(ours, theirs) => {
                pairs(results, ours, theirs, |us, them| us.judged_rate() / them.judged_rate())
            }
            Measure::Times(ours, theirs) => pairs(results, ours, theirs, |us, them| {
                us.sample.used.wall_s / them.sample.used.wall_s
            }),
            Measure::Seconds(ours, theirs) => pairs(results, ours, theirs, |us, them| {
                us.sample.used.wall_s - them.sample.used.wall_s
            }),
            Measure::Cpu(name) => {
                each(results, name, |us| Some(us.sample.used.cpu_ns / us.outcome.row.bytes as f64))
            }
            Measure::Peak(name) => each(results, name, |us| {
                let memory = us.sample.memory?;
                Some(mib(memory.near_peak.max(memory.far_peak).max(memory.reported_max)))
            }),
            Measure::BeyondPlan(name) => each(results, name, |us| {
                let memory = us.sample.memory?;
                let peak = memory.near_peak.max(memory.far_peak).max(memory.reported_max);
                Some(mib(peak) - mib(memory.planned_max))
            }),
        }
    }
}

/// A sample with the row it belongs to.
struct Run<'a> {
    outcome: &'a Outcome<'a>,
    sample: &'a Sample,
}

impl Run<'_> {
    /// If both tools of a comparison measure without the start-up, that rate counts; otherwise the
    /// rate over the whole time, which the user waits for.
    fn judged_rate(&self) -> f64 {
        let whole = self.outcome.row.bytes as f64 / self.sample.used.wall_s;
        let scenario_has_clocks = self.outcome.row.scenario.judged_by_own_clock();
        match self.sample.own_rate {
            Some(own) if scenario_has_clocks && self.outcome.row.clock != Clock::EndToEnd => own,
            _ => whole,
        }
    }
}

fn each(
    results: &Results<'_>,
    name: &str,
    value: impl Fn(Run<'_>) -> Option<f64>,
) -> Option<Spread> {
    let outcome = results.outcomes.iter().find(|outcome| outcome.row.name == name)?;
    let samples = outcome.samples.iter().flatten();
    Spread::of(samples.filter_map(|sample| value(Run { outcome, sample })))
}

/// Values of two rows in the same round: disturbances affect both.
fn pairs(
    results: &Results<'_>,
    ours: &str,
    theirs: &str,
    value: impl Fn(Run<'_>, Run<'_>) -> f64,
) -> Option<Spread> {
    let find = |name: &str| results.outcomes.iter().find(|outcome| outcome.row.name == name);
    let (us, them) = (find(ours)?, find(theirs)?);
    let rounds = us.samples.iter().zip(&them.samples);
    let both =
        rounds.filter_map(|(ours, theirs)| Some((ours.as_ref().ok()?, theirs.as_ref().ok()?)));
    Spread::of(both.map(|(ours, theirs)| {
        value(Run { outcome: us, sample: ours }, Run { outcome: them, sample: theirs })
    }))
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

#[cfg(test)]
mod tests {
    use super::super::rows::{Sizes, rows};
    use super::super::{Options, Quick};
    use super::*;

    /// A target with a wrong row name would never be measured, and nobody would notice.
    #[test]
    fn every_target_has_its_rows() {
        let options = Options {
            rounds: 1,
            bytes: 1,
            small_files: 1,
            empty_files: 1,
            only: None,
            disk: "/".into(),
            quick: Quick::Yes,
            peers: Vec::new(),
        };
        let sizes = Sizes { big: 1, small: 1, wire: 1 };
        let rows = rows(&options, sizes, &["bbr".to_string(), "cubic".to_string()]);
        for target in TARGETS {
            let names = match target.measure {
                Measure::Rates(a, b) | Measure::Seconds(a, b) | Measure::Times(a, b) => vec![a, b],
                Measure::Cpu(a) | Measure::Peak(a) | Measure::BeyondPlan(a) => vec![a],
            };
            for name in names {
                let found = rows.iter().filter(|row| row.name == name).count();
                assert_eq!(found, 1, "rows called '{name}'");
            }
        }
    }

    #[test]
    fn bounds_hold_at_their_edge() {
        assert_eq!(Bound::Least(1.1).verdict(1.1), "pass");
        assert_eq!(Bound::Least(1.1).verdict(1.09), "**fail**");
        assert_eq!(Bound::Most(0.9).verdict(0.9), "pass");
        assert_eq!(Bound::Most(0.9).verdict(0.91), "**fail**");
    }
}
