//! Private names that were replaced, and the field's word for each: docs/GLOSSARY.md.

use crate::{Finding, Page};

/// A private name, in the singular and in lower case, and what to write.
const REPLACED: &[(&str, &str)] = &[
    ("audience", "observer"),
    ("brake", "cancellation"),
    ("broom", "cleaner"),
    ("crew", "worker pool"),
    ("desk", "pool handle; of a WAN: emulated"),
    ("foresee", "predict"),
    ("foreseen", "predicted"),
    ("foretell", "predict"),
    ("foretold", "predicted"),
    ("knob", "option"),
    ("house", "program, repository"),
    ("toil", "codec time"),
    ("tray", "completion queue"),
    ("wish", "wanted ranges"),
];
/// Ordinary words, which are private only as the name of a type.
const TYPES: &[(&str, &str)] = &[
    ("Bell", "EventCount"),
    ("Eye", "HostProbe"),
    ("Governor", "PaceController"),
    ("Ground", "Conditions, Fixture or Medium"),
    ("Landing", "Completion"),
    ("Maker", "DataGenerator"),
    ("Past", "PriorRuns"),
    ("Place", "Location"),
    ("Said", "Conclusion or RuleResult"),
    ("Seat", "CpuBinding"),
    ("Unpacked", "DecompressionTime"),
    ("Voice", "Console"),
    ("Wires", "Streams"),
];
/// Pages about the past, and this rule with its samples.
const HISTORY: [&str; 5] =
    ["runs/", "docs/decisions/", "CHANGELOG.md", "docs/GLOSSARY.md", "tests/tidy"];

pub(crate) fn private_names(pages: &[Page]) -> Vec<Finding> {
    let now = pages.iter().filter(|page| !HISTORY.iter().any(|old| page.path.starts_with(old)));
    now.flat_map(|page| {
        let lines = page.text.lines().enumerate();
        lines.flat_map(move |(number, line)| {
            let names = identifiers(line);
            let is_code = page.path.ends_with(".rs") && !line.trim_start().starts_with("//");
            let found = names.filter_map(move |name| replaced(name, is_code));
            found.map(move |(old, new)| {
                format!("{}:{}: '{old}' is a private name: {new}", page.path, number + 1)
            })
        })
    })
    .collect()
}

fn identifiers(line: &str) -> impl Iterator<Item = &str> {
    line.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|name| !name.is_empty())
}

/// The private name in an identifier, and the field's word for it.
fn replaced(name: &str, is_code: bool) -> Option<(&'static str, &'static str)> {
    let of_type = TYPES.iter().find(|(old, _)| is_code && *old == name).copied();
    of_type.or_else(|| {
        parts(name).find_map(|part| {
            let is_old = |old: &str| part == old || part.strip_suffix('s') == Some(old);
            REPLACED.iter().find(|(old, _)| is_old(old)).copied()
        })
    })
}

/// The words of an identifier, in lower case: `KnobSet` and `knob_set` have two.
fn parts(name: &str) -> impl Iterator<Item = String> {
    name.split('_').flat_map(|word| {
        let mut parts = vec![String::new()];
        let mut was_lower = false;
        for c in word.chars() {
            if c.is_uppercase() && was_lower {
                parts.push(String::new());
            }
            was_lower = c.is_lowercase();
            parts.last_mut().expect("it has one").extend(c.to_lowercase());
        }
        parts
    })
}
