//! What limits copies on a host and on the path to another: each finding says what was found, why
//! it matters, and which command changes it. Nothing is changed here.
//!
//! Facts are texts by name, as in an environment, read on the host that they describe. The rules
//! are pure functions of them: facts are read and connections are tested elsewhere.

mod finding;
mod path;
mod rules;
mod tcp;

use std::collections::BTreeMap;

use self::finding::{Facts, RuleResult};
pub use self::finding::{Finding, Goal, PathProbe, State, TestConnection};
use base::fault::{Class, Fault};

/// All findings of a host. Checks without facts are left out.
pub fn of_host(host: &str, facts: &BTreeMap<String, String>, goal: &Goal) -> Vec<Finding> {
    let all = tcp::RULES.iter().chain(rules::RULES);
    all.filter_map(|(check, rule)| Some(rule(&Facts(facts), goal)?.of(host, check))).collect()
}

/// The findings of the path to a host, from a test connection.
pub fn of_path(host: &str, knocked: &PathProbe, near: &BTreeMap<String, String>) -> Vec<Finding> {
    path::findings(&format!("path to {host}"), knocked, &Facts(near))
}

/// A host that could not be reached: the finding follows from the class of the fault.
pub fn not_reached(host: &str, fault: &Fault) -> Finding {
    let (check, why) = match fault.class {
        Class::Version => ("versions", "both sides need programs that speak a common protocol"),
        _ => ("ssh", "the far side of a copy is started over it"),
    };
    let remedy = format!("ssh {host} datapump --version");
    RuleResult::trouble(&fault.text, why, remedy).of(&format!("path to {host}"), check)
}

#[cfg(test)]
mod tests;
