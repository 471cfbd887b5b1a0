//! The output of a copy with `--json`, as values of the library.

use analysis::record::sample::Record;
use serde_json::Value;

/// The record of the copy, from the last line.
pub(crate) fn record(said: &str) -> Result<Record, String> {
    let told = |why: String| format!("{why}: {}", said.lines().last().unwrap_or_default());
    let end: Value = serde_json::from_str(said.lines().last().unwrap_or_default())
        .map_err(|why| told(why.to_string()))?;
    record_of(&end)
}

/// The same, from the last event.
pub(crate) fn record_of(end: &Value) -> Result<Record, String> {
    let record = end.get("record").filter(|record| !record.is_null());
    let record = record.ok_or_else(|| format!("no copy ran to its end: {end}"))?;
    serde_json::from_value(record.clone()).map_err(|why| format!("{why}: {record}"))
}
