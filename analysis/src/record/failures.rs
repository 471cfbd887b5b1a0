//! The first files of a run that were not copied, and why, as its record keeps them.

use serde::{Deserialize, Serialize};

use super::sample::Record;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    pub path: String,
    pub why: String,
}

/// Keeps the first of them; nothing where there is none.
pub fn keep(record: &mut Record, failures: impl Iterator<Item = Failure>) {
    let first: Vec<Failure> = failures.take(KEPT_MAX).collect();
    if let (false, Ok(value)) = (first.is_empty(), serde_json::to_value(&first)) {
        record.more.insert(NAME.into(), value);
    }
}

pub fn kept(record: &Record) -> Vec<Failure> {
    let kept = record.more.get(NAME).cloned().unwrap_or_default();
    serde_json::from_value(kept).unwrap_or_default()
}

const NAME: &str = "failures";
const KEPT_MAX: usize = 10;
