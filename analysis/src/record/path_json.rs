//! Samples of streams in the JSON of a record.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use base::job::{PathRole, PathSide, StreamPath};
use base::packed;

/// A table as JSON: names once, then numbers or null, since a run has thousands of samples.
#[derive(Serialize, Deserialize)]
struct Table {
    stream: u32,
    side: String,
    role: String,
    columns: Vec<String>,
    rows: Vec<Vec<Option<u64>>>,
}

pub(crate) fn serialize<S: Serializer>(paths: &[StreamPath], to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(paths.iter().map(|path| Table {
        stream: path.stream,
        side: path.side.name().into(),
        role: path.role.name().into(),
        columns: packed::NAMES.map(String::from).into(),
        rows: path.samples.iter().map(|sample| packed::exported(sample).into()).collect(),
    }))
}

pub(crate) fn deserialize<'a, D: Deserializer<'a>>(from: D) -> Result<Vec<StreamPath>, D::Error> {
    let tables = Vec::<Table>::deserialize(from)?;
    tables.iter().map(|table| path(table).map_err(D::Error::custom)).collect()
}

/// Columns are found by name: another version may have fewer, or others.
fn path(table: &Table) -> Result<StreamPath, String> {
    let (side, role) = side_and_role(&table.side, &table.role)?;
    let places: Vec<Option<usize>> = packed::NAMES
        .iter()
        .map(|name| table.columns.iter().position(|column| column == name))
        .collect();
    let sample = |row: &Vec<Option<u64>>| {
        let mut numbers = [Some(0); packed::COUNT];
        for (number, place) in numbers.iter_mut().zip(&places) {
            *number = place.and_then(|place| row.get(place)).copied().unwrap_or(Some(0));
        }
        packed::of_exported(&numbers).ok_or("a sample of a path has a number that is too large")
    };
    let samples = table.rows.iter().map(sample).collect::<Result<_, _>>()?;
    Ok(StreamPath { stream: table.stream, side, role, samples })
}

/// Parses the names that records have for the ends of a stream.
pub fn side_and_role(side: &str, role: &str) -> Result<(PathSide, PathRole), String> {
    PathSide::parse(side)
        .zip(PathRole::parse(role))
        .ok_or_else(|| format!("a path of side '{side}' and role '{role}'"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::sample::Record;
    use base::path::PathSample;
    use base::units::Tick;

    fn record() -> Record {
        let sample = |at| PathSample {
            at: Tick(at),
            pace_max_bytes_per_s: u64::MAX,
            app_limited: at > 1,
            ..PathSample::default()
        };
        let path = |stream, side, role| StreamPath {
            stream,
            side,
            role,
            samples: (1..4).map(sample).collect(),
        };
        let paths = vec![
            path(0, PathSide::Near, PathRole::Source),
            path(70, PathSide::Far, PathRole::Sink),
        ];
        Record { id: 8, paths, ..Record::default() }
    }

    #[test]
    fn json_is_read_back() {
        let record = record();
        let text = serde_json::to_string(&record).unwrap();
        assert_eq!(serde_json::from_str::<Record>(&text).unwrap(), record);
        let old = serde_json::to_string(&Record::default()).unwrap();
        assert!(!old.contains("paths"), "{old}");
        for (from, to) in [("\"near\"", "\"here\""), ("\"state\"", "\"at_ns\"")] {
            let odd = text.replace(from, to);
            let read = serde_json::from_str::<Record>(&odd);
            assert_eq!(read.is_err(), from == "\"near\"", "{from}");
        }
    }
}
