//! Input and output of the rules: the facts of a host, a test connection, and findings.

use std::collections::BTreeMap;

use serde::Serialize;

use base::units::Nanos;

/// The result of one check on a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    Good,
    /// It could not be determined, or there is nothing to compare it with.
    Unknown,
    /// It costs speed on some paths or in some cases.
    Advice,
    /// It costs speed, or breaks copies.
    Trouble,
}

impl State {
    pub fn name(self) -> &'static str {
        match self {
            State::Good => "good",
            State::Unknown => "unknown",
            State::Advice => "advice",
            State::Trouble => "trouble",
        }
    }
}

/// What one check found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding {
    /// The host, or the path to it.
    pub of: String,
    pub check: &'static str,
    pub state: State,
    pub found: String,
    /// Why it matters; empty where all is good.
    pub why: String,
    /// The command that would change it, or what to ask for; empty where all is good.
    pub remedy: String,
}

/// The result of a rule, before the host and the check are added.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct RuleResult {
    pub state: State,
    pub found: String,
    pub why: String,
    pub remedy: String,
}

impl RuleResult {
    pub(super) fn good(found: impl Into<String>) -> RuleResult {
        RuleResult {
            state: State::Good,
            found: found.into(),
            why: String::new(),
            remedy: String::new(),
        }
    }

    pub(super) fn unknown(found: impl Into<String>) -> RuleResult {
        RuleResult { state: State::Unknown, ..RuleResult::good(found) }
    }

    pub(super) fn advice(
        found: impl Into<String>,
        why: impl Into<String>,
        remedy: impl Into<String>,
    ) -> RuleResult {
        let result = RuleResult::good(found);
        RuleResult { state: State::Advice, why: why.into(), remedy: remedy.into(), ..result }
    }

    pub(super) fn trouble(
        found: impl Into<String>,
        why: impl Into<String>,
        remedy: impl Into<String>,
    ) -> RuleResult {
        RuleResult { state: State::Trouble, ..RuleResult::advice(found, why, remedy) }
    }

    pub(super) fn of(self, of: &str, check: &'static str) -> Finding {
        let RuleResult { state, found, why, remedy } = self;
        Finding { of: of.to_string(), check, state, found, why, remedy }
    }
}

/// The rate that copies should reach, and the round trip if it is known.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Goal {
    pub bytes_per_s: f64,
    pub round_trip: Option<Nanos>,
}

impl Goal {
    /// The bandwidth-delay product; `None` where the round trip is not known.
    pub(crate) fn product_bytes(&self) -> Option<f64> {
        self.round_trip.map(|time| self.bytes_per_s * time.seconds())
    }
}

/// The facts of a host by name: those of its environment, and those of a checkup.
#[derive(Clone, Copy, Debug)]
pub(super) struct Facts<'a>(pub &'a BTreeMap<String, String>);

impl Facts<'_> {
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    pub(super) fn number(&self, name: &str) -> Option<f64> {
        self.text(name)?.parse().ok()
    }

    pub(super) fn sysctl(&self, name: &str) -> Option<&str> {
        self.text(&format!("sysctl {name}"))
    }

    /// The last of several numbers: the upper limit of a buffer.
    pub(crate) fn sysctl_most(&self, name: &str) -> Option<f64> {
        self.sysctl(name)?.split_whitespace().last()?.parse().ok()
    }
}

/// One check; `None` where its facts are missing.
pub(super) type Rule = fn(&Facts<'_>, &Goal) -> Option<RuleResult>;

/// What a test connection and a login found out about the path to a host.
#[derive(Clone, Debug, PartialEq)]
pub struct PathProbe {
    /// Time until the far program answered.
    pub login: Nanos,
    /// Its name and version, the same as ours.
    pub program: String,
    /// How far its clock is ahead of ours, and how long that request took.
    pub clock_apart_s: f64,
    pub asked: Nanos,
    /// The test connection, or why there was none.
    pub tried: Result<TestConnection, String>,
}

/// A test connection that was made.
#[derive(Clone, Debug, PartialEq)]
pub struct TestConnection {
    pub address: String,
    pub round_trip: Nanos,
    pub round_trip_min: Nanos,
    pub path_mtu_bytes: u32,
    pub window_scaling: bool,
    pub selective: bool,
    pub timestamps: bool,
    /// Many full packets arrived at the far host, and at this one.
    pub there: bool,
    pub back: bool,
}
