//! The targets as rows of one table, and whether they were reached.

use super::cpu::CLEAN_FOREIGN_MAX;
use super::results::{LoginTime, Outcome, Results, Run};
use super::rows::{Grid, Login, Scenario};
use super::{Options, Quick};
use crate::page;
use analysis::statistics::{Estimate, median, median_estimate};

/// With fewer rounds in which all its rows succeeded, a target is void. The default of `--rounds`.
pub(super) const ROUNDS_MIN: usize = 9;

/// One target.
struct Target {
    what: &'static str,
    measure: Measure,
    bound: Bound,
}

/// How it is measured, by the names of rows.
enum Measure {
    /// The first row's CPU time a byte over the second's, in each round.
    CpuRatio(&'static str, &'static str),
    /// The first row's time over the second's, in each round.
    Times(&'static str, &'static str),
    /// The first row's rate over the second's, in each round.
    Rates(&'static str, &'static str),
    /// By how many seconds the first is slower than the second, in each round. Both log in.
    Seconds(&'static str, &'static str),
    /// CPU time of both sides in ns per byte.
    CpuPerByte(&'static str),
    /// The rate without an option over the best median rate of the grid.
    OfBest(Grid),
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
    at_most("sealed, no option: CPU against wdt sealed", cpu(DEFAULT, WDT_SEALED), 1.10),
    at_most("sealed, no option: time against wdt sealed", times(DEFAULT, WDT_SEALED), 1.10),
    at_most("the same with one hash: CPU against wdt sealed", cpu(ONE_HASH, WDT_SEALED), 0.98),
    at_most("the same with one hash: time against wdt sealed", times(ONE_HASH, WDT_SEALED), 1.0),
    at_most("sealed, crc64: CPU against wdt sealed", cpu(TLS_CRC, WDT_SEALED), 0.88),
    at_most("sealed, crc64: time against wdt sealed", times(TLS_CRC, WDT_SEALED), 0.95),
    at_most("clear, crc64: CPU against wdt clear", cpu(CLEAR_CRC, "wdt 8 ports"), 0.95),
    at_most("clear, crc64: time against socat", times(CLEAR_CRC, "socat"), 1.05),
    at_most("small files, sealed: CPU against wdt sealed", cpu(TREE, WDT_TREE), 1.15),
    at_most("small files, sealed: time against wdt sealed", times(TREE, WDT_TREE), 1.15),
    at_most("disk to disk, crc64: CPU in ns a byte", Measure::CpuPerByte(DISK_CRC), 0.15),
    at_least(
        "disk to disk, crc64: rate against fio doing both at once",
        rates(DISK_CRC, FIO),
        0.95,
    ),
    at_most("null to null, bbr: CPU against iperf3", cpu(NULL_BBR, IPERF_BBR), 1.0),
    at_least("null to null, bbr: rate against iperf3", rates(NULL_BBR, IPERF_BBR), 1.0),
    at_most("null to null, cubic: CPU against iperf3", cpu(NULL_CUBIC, IPERF_CUBIC), 1.0),
    at_least("null to null, cubic: rate against iperf3", rates(NULL_CUBIC, IPERF_CUBIC), 1.0),
    of_best("no option: rate against the best of the grid", Grid::Sealed),
    of_best("no option, clear: rate against the best of the grid", Grid::Clear),
    of_best("no option, small files: rate against the best of the grid", Grid::Small),
    of_best("no option, null to null: rate against the best of the grid", Grid::Wire),
    of_best("no option, disk to disk: rate against the best of the grid", Grid::Disk),
    at_most("2 bytes: seconds beyond scp", Measure::Seconds(TWO_BYTES, "scp, 2 bytes"), 0.1),
    at_most("empty files: MiB of the larger side", Measure::Peak(EMPTY), 300.0),
    at_most("empty files: MiB beyond the plan", Measure::BeyondPlan(EMPTY), 64.0),
    at_most("one large file: MiB beyond the plan", Measure::BeyondPlan(ONE_LARGE), 64.0),
    at_most("large requests: MiB beyond the plan", Measure::BeyondPlan(LARGE_REQUESTS), 64.0),
];

const DEFAULT: &str = "datapump, default options";
const ONE_HASH: &str = "datapump, hashed at the source";
const TLS_CRC: &str = "datapump tls crc64";
const CLEAR_CRC: &str = "datapump crc64";
const TREE: &str = "datapump tls blake3, tree";
const DISK_CRC: &str = "datapump disk crc64";
const NULL_BBR: &str = "datapump null, 1 streams bbr";
const NULL_CUBIC: &str = "datapump null, 1 streams cubic";
const TWO_BYTES: &str = "datapump, 2 bytes";
const EMPTY: &str = "datapump empty files";
const ONE_LARGE: &str = "datapump one large file";
const LARGE_REQUESTS: &str = "datapump large requests";
const WDT_SEALED: &str = "wdt 8 ports aes128-gcm";
const WDT_TREE: &str = "wdt 8 ports aes128-gcm, tree";
const FIO: &str = "fio reading and writing";
const IPERF_BBR: &str = "iperf3 -P1 bbr";
const IPERF_CUBIC: &str = "iperf3 -P1 cubic";

const fn cpu(ours: &'static str, theirs: &'static str) -> Measure {
    Measure::CpuRatio(ours, theirs)
}

const fn times(ours: &'static str, theirs: &'static str) -> Measure {
    Measure::Times(ours, theirs)
}

const fn rates(ours: &'static str, theirs: &'static str) -> Measure {
    Measure::Rates(ours, theirs)
}

const fn of_best(what: &'static str, grid: Grid) -> Target {
    at_least(what, Measure::OfBest(grid), 0.95)
}

const fn at_least(what: &'static str, measure: Measure, bound: f64) -> Target {
    Target { what, measure, bound: Bound::Least(bound) }
}

const fn at_most(what: &'static str, measure: Measure, bound: f64) -> Target {
    Target { what, measure, bound: Bound::Most(bound) }
}

/// What the table means, for the page: the criterion is stated before the figures.
pub(super) fn preface() -> String {
    format!(
        "A target is the ratio of two rows in the same round, except those in other units: the \
         median over the rounds, with its 95 % interval by bootstrap. The verdict is that of the \
         median. Rows of ours that log in over ssh are judged without the time and the CPU time of \
         `ssh far true` in the same scenario and round; the values with them stand beside. The \
         start of the other tools is part of their time: their far sides start without a login, \
         except scp, which is compared with the login of both. The row without an option is \
         compared with the set of options that has the best median rate. A round counts where all \
         rows of the target succeeded, and is clean where other programs used less than {:.0} % of \
         the CPUs. A target is void where a program is not here, or where fewer than {ROUNDS_MIN} \
         rounds count.\n\n",
        CLEAN_FOREIGN_MAX * 100.0,
    )
}

/// The table of targets as Markdown. A target whose rows were not run says so.
pub(super) fn table(results: &Results<'_>, options: &Options) -> String {
    let rows: Vec<Vec<String>> =
        TARGETS.iter().map(|target| line(target, results, options)).collect();
    page::table(
        &["to reach", "bound", "median (95 %)", "with the login", "rounds (clean)", "verdict"],
        &rows,
    )
}

fn line(target: &Target, results: &Results<'_>, options: &Options) -> Vec<String> {
    let measured = target.measure.of(results, LoginTime::Subtracted);
    let whole = target.measure.of(results, LoginTime::Included);
    let text = |measured: &Measured| measured.text(target.measure.digits());
    let login_counts = measured.as_ref().map(text) != whole.as_ref().map(text);
    let with_login = whole.as_ref().filter(|_| login_counts).map(text);
    let none = || "–".to_string();
    vec![
        target.what.to_string(),
        target.bound.text(),
        measured.as_ref().map_or_else(none, text),
        with_login.unwrap_or_else(none),
        measured.as_ref().map_or_else(none, |m| format!("{} ({})", m.values.len(), m.clean)),
        verdict(target, measured.as_ref(), results, options),
    ]
}

fn verdict(
    target: &Target,
    measured: Option<&Measured>,
    results: &Results<'_>,
    options: &Options,
) -> String {
    let names = target.measure.rows();
    let absent = absent(results, &names);
    if let Some((last, front)) = absent.split_last() {
        return match front {
            [] => format!("void: {last} is not here"),
            front => format!("void: {} and {last} are not here", front.join(", ")),
        };
    }
    let estimate = measured.and_then(|measured| Some((measured, measured.estimate()?)));
    match estimate {
        _ if names.iter().any(|name| results.outcome(name).is_none()) => "not measured".to_string(),
        None => "void: its runs failed".to_string(),
        Some((Measured { values, .. }, _))
            if options.quick == Quick::No && values.len() < ROUNDS_MIN =>
        {
            format!("void: {} rounds of {ROUNDS_MIN}", values.len())
        }
        Some((_, estimate)) => target.bound.verdict(estimate.value).to_string(),
    }
}

/// The programs without which these rows were left out, each once.
fn absent(results: &Results<'_>, names: &[&str]) -> Vec<&'static str> {
    let left_out = results.left_out.iter().filter(|left| names.contains(&left.row.name.as_str()));
    let mut absent: Vec<&'static str> = left_out.flat_map(|left| &left.absent).copied().collect();
    absent.sort_unstable();
    absent.dedup();
    absent
}

impl Bound {
    fn text(self) -> String {
        match self {
            Bound::Least(bound) => format!("≥ {bound}"),
            Bound::Most(bound) => format!("≤ {bound}"),
        }
    }

    fn verdict(self, value: f64) -> &'static str {
        let reached = match self {
            Bound::Least(bound) => value >= bound,
            Bound::Most(bound) => value <= bound,
        };
        if reached { "pass" } else { "**fail**" }
    }
}

/// A target's value in each round that counts.
#[derive(Clone, Debug, Default, PartialEq)]
struct Measured {
    values: Vec<f64>,
    /// Rounds in which nothing else used the CPUs.
    clean: usize,
}

impl Measured {
    fn estimate(&self) -> Option<Estimate> {
        median_estimate(&self.values, SEED)
    }

    fn text(&self, digits: usize) -> String {
        match self.estimate() {
            None => "–".to_string(),
            Some(Estimate { value, low, high }) if low == high => format!("{value:.digits$}"),
            Some(Estimate { value, low, high }) => {
                format!("{value:.digits$} ({low:.digits$}–{high:.digits$})")
            }
        }
    }
}

impl Measure {
    fn rows(&self) -> Vec<&'static str> {
        match self {
            Measure::CpuRatio(ours, theirs)
            | Measure::Times(ours, theirs)
            | Measure::Rates(ours, theirs)
            | Measure::Seconds(ours, theirs) => vec![ours, theirs],
            Measure::CpuPerByte(name) | Measure::Peak(name) | Measure::BeyondPlan(name) => {
                vec![name]
            }
            Measure::OfBest(grid) => vec![grid.default_row()],
        }
    }

    fn digits(&self) -> usize {
        match self {
            Measure::Peak(_) | Measure::BeyondPlan(_) => 1,
            _ => 3,
        }
    }

    fn of(&self, results: &Results<'_>, login: LoginTime) -> Option<Measured> {
        match self {
            Measure::CpuRatio(ours, theirs) => pairs(results, ours, theirs, |us, them| {
                Some(us.cpu_ns_per_byte(login)? / them.cpu_ns_per_byte(login)?)
            }),
            Measure::Times(ours, theirs) => pairs(results, ours, theirs, |us, them| {
                Some(us.seconds(login)? / them.seconds(login)?)
            }),
            Measure::Rates(ours, theirs) => pairs(results, ours, theirs, |us, them| {
                Some(us.bytes_per_second(login)? / them.bytes_per_second(login)?)
            }),
            Measure::Seconds(ours, theirs) => pairs(results, ours, theirs, |us, them| {
                Some(us.sample.used.wall_s - them.sample.used.wall_s)
            }),
            Measure::CpuPerByte(name) => each(results, name, |us| us.cpu_ns_per_byte(login)),
            Measure::OfBest(grid) => {
                let best = best_of_grid(*grid, results, login)?;
                each(results, grid.default_row(), |us| Some(us.bytes_per_second(login)? / best))
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

/// The best median rate of the grid's cells; `None` unless every cell has one.
fn best_of_grid(grid: Grid, results: &Results<'_>, login: LoginTime) -> Option<f64> {
    let is_cell = |outcome: &&Outcome<'_>| {
        let row = outcome.row;
        row.scenario == Scenario::Grid(grid)
            && row.login != Login::Alone
            && row.name != grid.default_row()
    };
    let rate = |outcome: &Outcome<'_>| {
        let runs = results.runs(outcome);
        let rates: Vec<f64> =
            runs.iter().flatten().filter_map(|run| run.bytes_per_second(login)).collect();
        median(&rates)
    };
    let rates: Option<Vec<f64>> = results.outcomes.iter().filter(is_cell).map(rate).collect();
    rates?.into_iter().reduce(f64::max)
}

fn each(
    results: &Results<'_>,
    name: &str,
    value: impl Fn(Run<'_>) -> Option<f64>,
) -> Option<Measured> {
    let mut measured = Measured::default();
    for run in results.runs(results.outcome(name)?).into_iter().flatten() {
        measured.add(value(run), run.is_clean());
    }
    Some(measured)
}

/// Values of two rows in the same round: disturbances affect both.
fn pairs(
    results: &Results<'_>,
    ours: &str,
    theirs: &str,
    value: impl Fn(Run<'_>, Run<'_>) -> Option<f64>,
) -> Option<Measured> {
    let (us, them) = (results.outcome(ours)?, results.outcome(theirs)?);
    let mut measured = Measured::default();
    for both in results.runs(us).into_iter().zip(results.runs(them)) {
        if let (Some(us), Some(them)) = both {
            measured.add(value(us, them), us.is_clean() && them.is_clean());
        }
    }
    Some(measured)
}

impl Measured {
    fn add(&mut self, value: Option<f64>, is_clean: bool) {
        if let Some(value) = value.filter(|value| value.is_finite()) {
            self.values.push(value);
            self.clean += usize::from(is_clean);
        }
    }
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

/// Of the bootstrap: the same samples give the same interval.
const SEED: u64 = 24;

#[cfg(test)]
mod tests {
    use super::super::results::LeftOut;
    use super::super::results::tests::{all_rows, options, results, sample};
    use super::super::rows::Row;
    use super::*;

    /// A target with a wrong row name would never be measured, and nobody would notice.
    #[test]
    fn every_target_has_its_rows() {
        let rows = all_rows();
        for target in TARGETS {
            let mut scenarios = Vec::new();
            for name in target.measure.rows() {
                let found: Vec<&Row> = rows.iter().filter(|row| row.name == name).collect();
                assert_eq!(found.len(), 1, "rows called '{name}'");
                scenarios.push(found[0].scenario);
            }
            scenarios.dedup();
            assert_eq!(scenarios.len(), 1, "'{}' compares what is not comparable", target.what);
        }
    }

    #[test]
    fn every_row_that_is_judged_without_a_login_has_one_beside_it() {
        let rows = all_rows();
        for row in rows.iter().filter(|row| row.login == Login::Subtracted) {
            let beside = rows
                .iter()
                .filter(|other| other.scenario == row.scenario && other.login == Login::Alone);
            assert_eq!(beside.count(), 1, "logins of '{}'", row.name);
        }
        let over_ssh = |row: &&Row| row.script.contains("far:") && row.script.contains("steady ");
        assert!(rows.iter().filter(over_ssh).all(|row| row.login == Login::Subtracted));
    }

    #[test]
    fn bounds_hold_at_their_edge() {
        assert_eq!(Bound::Least(1.1).verdict(1.1), "pass");
        assert_eq!(Bound::Least(1.1).verdict(1.09), "**fail**");
        assert_eq!(Bound::Most(0.9).verdict(0.9), "pass");
        assert_eq!(Bound::Most(0.9).verdict(0.91), "**fail**");
    }

    /// wdt takes 1 s; ours 1.25 s, of which the login takes 0.25 s.
    fn seconds_of(row: &Row) -> f64 {
        match (row.login, row.name.as_str()) {
            (Login::Alone, _) => 0.25,
            (_, WDT_SEALED) => 1.0,
            _ => 1.25,
        }
    }

    fn line_of(what: &str, results: &Results<'_>, quick: Quick) -> Vec<String> {
        let target = TARGETS.iter().find(|target| target.what == what).unwrap();
        line(target, results, &Options { quick, ..options() })[2..].to_vec()
    }

    #[test]
    fn a_target_is_judged_without_the_login_and_shown_with_it() {
        let rows = all_rows();
        let what = "sealed, no option: time against wdt sealed";
        let check = |rounds: usize, quick: Quick, verdict: &str| {
            let results = results(&rows, |row| match row.scenario {
                Scenario::Sealed => vec![sample(seconds_of(row), 1e9); rounds],
                _ => Vec::new(),
            });
            let rounds = format!("{rounds} ({rounds})");
            let expect = ["1.000", "1.250", &rounds, verdict];
            assert_eq!(line_of(what, &results, quick), expect);
        };
        check(ROUNDS_MIN, Quick::No, "pass");
        check(ROUNDS_MIN - 1, Quick::No, "void: 8 rounds of 9");
        check(1, Quick::Yes, "pass");
    }

    #[test]
    fn what_is_missing_is_named() {
        let rows = all_rows();
        let check = |what: &str, results: &Results<'_>, verdict: &str| {
            assert_eq!(line_of(what, results, Quick::No), ["–", "–", "–", verdict]);
        };
        let sealed = "sealed, crc64: time against wdt sealed";
        let mut results = results(&rows, |_| Vec::new());
        check(sealed, &results, "not measured");
        let wdt = rows.iter().find(|row| row.name == WDT_SEALED).unwrap();
        results.left_out.push(LeftOut { row: wdt, absent: vec!["wdt"] });
        check(sealed, &results, "void: wdt is not here");
        results.left_out.push(LeftOut { row: wdt, absent: vec!["socat", "bbcp"] });
        check(sealed, &results, "void: bbcp, socat and wdt are not here");
        check("clear, crc64: time against socat", &results, "not measured");
    }

    #[test]
    fn runs_that_failed_measure_nothing() {
        let rows = all_rows();
        let results = results(&rows, |row| match row.name.as_str() {
            WDT_SEALED => vec![Err("closed".to_string()); ROUNDS_MIN],
            _ => vec![sample(seconds_of(row), 1e9); ROUNDS_MIN],
        });
        let line = line_of("sealed, crc64: time against wdt sealed", &results, Quick::No);
        assert_eq!(line, ["–", "–", "0 (0)", "void: its runs failed"]);
    }

    #[test]
    fn no_option_is_compared_with_the_best_cell() {
        let rows = all_rows();
        let check = |cell_s: f64, verdict: &str| {
            let results = results(&rows, |row| match (row.login, row.name.as_str()) {
                (Login::Alone, _) => vec![sample(0.25, 1e6); ROUNDS_MIN],
                (_, "no option, sealed") => vec![sample(1.25, 1e9); ROUNDS_MIN],
                (_, "2 × 1M, threads, sealed") => vec![sample(cell_s, 1e9); ROUNDS_MIN],
                // A cell of another grid is no competitor.
                (_, "2 × 1M, threads, clear") => vec![sample(0.3, 1e9); ROUNDS_MIN],
                _ => vec![sample(2.0, 1e9); ROUNDS_MIN],
            });
            let line = line_of("no option: rate against the best of the grid", &results, Quick::No);
            assert_eq!(line[3], verdict, "{line:?}");
        };
        check(1.21, "pass");
        check(1.19, "**fail**");
    }
}
