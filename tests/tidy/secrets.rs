//! What holds a secret does not show it: no `Debug` is derived around one in plain form, as any
//! panic and any error may print it.

use crate::code::code_only;
use crate::{Finding, Page, Rule, of_the_program};

pub(crate) const RULE: Rule =
    Rule { name: "what holds a secret does not show it", look: rule, bad: BAD, good: GOOD };

/// Names of fields that hold secrets.
const SECRETS: [&str; 5] = ["secret", "token", "password", "passphrase", "private_key"];

/// Types that do not show what is in them.
const HIDING: [&str; 3] = ["SecretString", "SharedSecret", "Secret,"];

/// Tokens that open nothing.
const NO_SECRETS: &[(&str, &str)] = &[
    ("src/spread/destination.rs", "tells one job's folder from another's; it lies in that folder"),
    ("src/spread/records.rs", "the same"),
    ("src/probe/mod.rs", "of a test connection, which carries no data of anybody"),
];

const BAD: &[(&str, &str)] = &[
    ("s3/src/signing.rs", "#[derive(Clone, Debug)]\nstruct Keys {\n    pub secret: String,\n}"),
    ("src/cli/live.rs", "#[derive(Debug)]\npub struct A {\n    token: Option<String>,\n}"),
];

const GOOD: &[(&str, &str)] = &[
    ("s3/src/signing.rs", "#[derive(Debug)]\nstruct Keys {\n    pub secret: SecretString,\n}"),
    ("s3/src/signing.rs", "#[derive(Clone)]\nstruct Keys {\n    pub secret: String,\n}"),
    ("s3/src/a.rs", "#[derive(Debug)]\nstruct A(u8);\nstruct B {\n    token: String,\n}"),
    ("wan/src/policer.rs", "#[derive(Debug)]\nstruct A {\n    tokens: u128,\n}"),
];

fn rule(pages: &[Page]) -> Vec<Finding> {
    let looked_at = |page: &&Page| {
        let is_exempt = NO_SECRETS.iter().any(|(file, _)| *file == page.path);
        of_the_program(&page.path).is_some() && !is_exempt
    };
    pages.iter().filter(looked_at).flat_map(look).collect()
}

fn look(page: &Page) -> Vec<Finding> {
    let code = code_only(&page.text);
    let (mut is_shown, mut is_within, mut findings) = (false, false, Vec::new());
    for (number, line) in code.lines().enumerate() {
        let line = line.trim();
        if line.starts_with("#[derive(") {
            is_shown = line.contains("Debug");
        } else if line.contains("struct ") || line.contains("enum ") {
            is_within = is_shown && line.ends_with('{');
            is_shown = false;
        } else if line == "}" {
            is_within = false;
        }
        if !is_within {
            continue;
        }
        let Some((name, kind)) = line.split_once(": ") else { continue };
        let name = name.rsplit(' ').next().unwrap_or(name);
        if SECRETS.contains(&name) && !HIDING.iter().any(|hiding| kind.contains(hiding)) {
            findings.push(format!("{}:{}: '{name}' would be shown", page.path, number + 1));
        }
    }
    findings
}
