//! What about a host, and about the path to another, would hold copies back: each finding with what
//! was found, why it matters and the command that changes it. Nothing is changed here.
//!
//! The facts are texts by name, as in an environment, read on the host that they are of. The rules
//! are pure functions of them: who reads facts and tries connections is not known here.

mod finding;
mod path;
mod rules;
mod tcp;

use std::collections::BTreeMap;

use self::finding::{Facts, Said};
pub use self::finding::{Finding, Goal, Knocked, State, Tried};
use base::fault::{Class, Fault};

/// Everything that is known of a host, judged. Checks that have nothing to look at are left out.
pub fn of_host(host: &str, facts: &BTreeMap<String, String>, goal: &Goal) -> Vec<Finding> {
    let all = tcp::RULES.iter().chain(rules::RULES);
    all.filter_map(|(check, rule)| Some(rule(&Facts(facts), goal)?.of(host, check))).collect()
}

/// The path to a host, judged by a connection that was tried.
pub fn of_path(host: &str, knocked: &Knocked, near: &BTreeMap<String, String>) -> Vec<Finding> {
    path::findings(&format!("path to {host}"), knocked, &Facts(near))
}

/// A host that could not be asked: who is there to be looked at is all that is known.
pub fn not_reached(host: &str, fault: &Fault) -> Finding {
    let (check, why) = match fault.class {
        Class::Version => ("versions", "both sides need programs that speak a common protocol"),
        _ => ("ssh", "the far side of a copy is started over it"),
    };
    let remedy = format!("ssh {host} datapump --version");
    Said::trouble(&fault.text, why, remedy).of(&format!("path to {host}"), check)
}

#[cfg(test)]
mod tests;
