//! What was measured: the runs of each row, and what was left out.

use super::cpu::Used;
use super::rows::{Clock, Login, Row};

/// One run of one row.
#[derive(Clone, Debug)]
pub(super) struct Sample {
    pub used: Used,
    /// Bytes a second by the tool's own measurement.
    pub own_rate: Option<f64>,
    pub memory: Option<Memory>,
}

/// Memory of the two sides of datapump, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Memory {
    /// The kernel's high-water marks, read from outside.
    pub near_peak: u64,
    pub far_peak: u64,
    /// The peak that the sides reported, and what they had planned.
    pub reported_max: u64,
    pub planned_max: u64,
}

/// The results of a row.
pub(super) struct Outcome<'a> {
    pub row: &'a Row,
    /// One for each round, or why it failed.
    pub samples: Vec<Result<Sample, String>>,
}

/// A row that was not run, and the programs that are not here.
pub(super) struct LeftOut<'a> {
    pub row: &'a Row,
    pub absent: Vec<&'static str>,
}

/// All rows, and what was left out.
pub(super) struct Results<'a> {
    pub outcomes: Vec<Outcome<'a>>,
    pub left_out: Vec<LeftOut<'a>>,
    pub seed: u64,
}

/// Whether the time and the CPU time of `ssh far true` are in a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LoginTime {
    Included,
    /// Those of the same scenario and round are subtracted from rows that log in.
    Subtracted,
}

/// A run that succeeded, with the login of the same scenario and round.
#[derive(Clone, Copy)]
pub(super) struct Run<'a> {
    pub row: &'a Row,
    pub sample: &'a Sample,
    login: Option<&'a Used>,
}

impl<'a> Results<'a> {
    pub(super) fn outcome(&self, name: &str) -> Option<&Outcome<'a>> {
        self.outcomes.iter().find(|outcome| outcome.row.name == name)
    }

    /// The runs of a row by round; `None` where a run failed.
    pub(super) fn runs<'b>(&'b self, outcome: &'b Outcome<'a>) -> Vec<Option<Run<'b>>> {
        let scenario = outcome.row.scenario;
        let alone = |other: &&Outcome<'_>| {
            other.row.scenario == scenario && other.row.login == Login::Alone
        };
        let logins = self.outcomes.iter().find(alone);
        let login = |round: usize| Some(&logins?.samples.get(round)?.as_ref().ok()?.used);
        let run = |(round, sample): (usize, &'b Result<Sample, String>)| {
            let sample = sample.as_ref().ok()?;
            Some(Run { row: outcome.row, sample, login: login(round) })
        };
        outcome.samples.iter().enumerate().map(run).collect()
    }
}

impl Run<'_> {
    /// `None` where the login of this round was not measured, or took as long as the run.
    pub(super) fn seconds(&self, login: LoginTime) -> Option<f64> {
        self.without(login, |used| used.wall_s)
    }

    /// Of both sides; `None` as in `seconds`.
    pub(super) fn cpu_ns(&self, login: LoginTime) -> Option<f64> {
        self.without(login, |used| used.cpu_ns)
    }

    pub(super) fn cpu_ns_per_byte(&self, login: LoginTime) -> Option<f64> {
        Some(self.cpu_ns(login)? / self.row.bytes as f64)
    }

    /// Where both tools of a comparison measure without their start, that rate counts; elsewhere
    /// the rate over the time of the command.
    pub(super) fn bytes_per_second(&self, login: LoginTime) -> Option<f64> {
        match self.sample.own_rate {
            Some(own) if self.is_judged_by_own_clock() => Some(own),
            _ => Some(self.row.bytes as f64 / self.seconds(login)?),
        }
    }

    /// False when something else used the CPUs during the run or its login.
    pub(super) fn is_clean(&self) -> bool {
        let login = self.login.filter(|_| self.row.login == Login::Subtracted);
        self.sample.used.is_clean() && login.is_none_or(Used::is_clean)
    }

    fn is_judged_by_own_clock(&self) -> bool {
        self.row.scenario.judged_by_own_clock() && self.row.clock != Clock::EndToEnd
    }

    fn without(&self, login: LoginTime, of: fn(&Used) -> f64) -> Option<f64> {
        let whole = of(&self.sample.used);
        match (login, self.row.login) {
            (LoginTime::Subtracted, Login::Subtracted) => {
                Some(whole - of(self.login?)).filter(|rest| *rest > 0.0)
            }
            _ => Some(whole),
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::rows::{self, Scenario, Sizes};
    use super::super::{Options, Quick};
    use super::*;

    pub(in super::super) fn options() -> Options {
        Options {
            rounds: 1,
            bytes: BYTES,
            small_files: 1,
            empty_files: 1,
            only: Vec::new(),
            disk: "/".into(),
            quick: Quick::No,
            peers: Vec::new(),
        }
    }

    /// Every row of every scenario.
    pub(in super::super) fn all_rows() -> Vec<Row> {
        let sizes = Sizes { big: BYTES, small: BYTES, wire: BYTES };
        let congestions = ["bbr".to_string(), "cubic".to_string()];
        let grid = Options { only: vec![rows::GRIDS.to_string()], ..options() };
        let of = |options: &Options| rows::rows(options, sizes, &congestions);
        of(&options()).into_iter().chain(of(&grid)).collect()
    }

    pub(in super::super) fn sample(wall_s: f64, cpu_ns: f64) -> Result<Sample, String> {
        let used = Used { wall_s, cpu_ns, foreign: 0.0 };
        Ok(Sample { used, own_rate: None, memory: None })
    }

    /// The result of each round by row; rows without any were not run.
    pub(in super::super) fn results<'a>(
        rows: &'a [Row],
        samples: impl Fn(&Row) -> Vec<Result<Sample, String>>,
    ) -> Results<'a> {
        let outcome = |row: &'a Row| Outcome { row, samples: samples(row) };
        let mut outcomes: Vec<Outcome<'_>> = rows.iter().map(outcome).collect();
        outcomes.retain(|outcome| !outcome.samples.is_empty());
        Results { outcomes, left_out: Vec::new(), seed: 0 }
    }

    #[test]
    fn the_login_of_the_same_scenario_and_round_is_subtracted() {
        let rows = all_rows();
        let results = results(&rows, |row| match (row.scenario, row.login) {
            (Scenario::Sealed, Login::Alone) => {
                vec![sample(0.25, 10.0), sample(0.5, 20.0), Err("closed".into()), sample(9.0, 9.0)]
            }
            (Scenario::Small, Login::Alone) => vec![sample(7.0, 700.0); 4],
            (Scenario::Sealed, _) => vec![sample(1.25, 110.0); 4],
            _ => Vec::new(),
        });
        let seconds = |name: &str, login: LoginTime| -> Vec<Option<f64>> {
            let runs = results.runs(results.outcome(name).unwrap());
            runs.iter().map(|run| run.unwrap().seconds(login)).collect()
        };
        let ours = "datapump tls blake3";
        assert_eq!(seconds(ours, LoginTime::Included), vec![Some(1.25); 4]);
        let rest = [Some(1.0), Some(0.75), None, None];
        assert_eq!(seconds(ours, LoginTime::Subtracted), rest);
        assert_eq!(seconds("scp", LoginTime::Subtracted), vec![Some(1.25); 4]);
        let runs = results.runs(results.outcome(ours).unwrap());
        let cpu = runs[0].unwrap().cpu_ns_per_byte(LoginTime::Subtracted).unwrap();
        assert_eq!(cpu, 100.0 / BYTES as f64);
    }

    const BYTES: u64 = 1000;
}
