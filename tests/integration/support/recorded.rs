//! What was recorded of real runs: samples of connections in `tests/data/paths/NAME.csv`, a row for
//! each sample of a stream, and cells of campaigns in `runs/data/NAME.csv`.

use std::collections::BTreeMap;
use std::path::Path;

use analysis::record::options::Options;
use analysis::record::sample::{
    Cell, Moved, PlaceInExperiment, Probes, Record, Remote, RoundTrips, Scenario, Side,
};
use base::job::{PathRole, PathSide, StreamPath};
use base::packed;

/// Both ends of each stream.
pub(crate) fn paths(name: &str) -> Vec<StreamPath> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/data/paths/{name}.csv"));
    let mut reader = csv::Reader::from_path(&file).unwrap();
    let names = reader.headers().unwrap().clone();
    let mut paths: BTreeMap<(u32, bool), StreamPath> = BTreeMap::new();
    for row in reader.records() {
        let row = row.unwrap();
        let text = |name: &str| -> &str {
            names.iter().position(|other| other == name).map_or("0", |at| &row[at])
        };
        let stream: u32 = text("stream").parse().unwrap();
        let sends = text("side") == "sent";
        let path = paths.entry((stream, sends)).or_insert(StreamPath {
            stream,
            side: if sends { PathSide::Near } else { PathSide::Far },
            role: if sends { PathRole::Source } else { PathRole::Sink },
            samples: Vec::new(),
        });
        let number = |text: &str| (!text.is_empty()).then(|| text.parse().unwrap());
        let numbers = packed::NAMES.map(|name| number(text(name)));
        path.samples.push(packed::of_exported(&numbers).unwrap());
    }
    paths.into_values().collect()
}

/// The cells of a campaign, as runs of an experiment.
pub(crate) fn cells(name: &str, experiment: &str) -> Vec<Record> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("runs/data/{name}.csv"));
    let mut reader = csv::Reader::from_path(&file).unwrap();
    let names = reader.headers().unwrap().clone();
    let record = |row: csv::StringRecord| {
        let text = |name: &str| &row[names.iter().position(|known| known == name).unwrap()];
        let number = |name: &str| text(name).parse::<f64>().ok();
        let count = |name: &str| number(name).map_or(0, |number| number as u32);
        let probes = |name: &str| Probes { sent: 10, median_s: number(name), ..Probes::default() };
        Record {
            command: "sweep".into(),
            started_unix_s: 1.79e9 + f64::from(count("order_index")),
            place: Some(PlaceInExperiment {
                experiment: experiment.into(),
                scenario: Scenario::Net,
                seed: 0,
                order_index: count("order_index"),
                repeat: count("pass"),
                block: 0,
            }),
            options: Options {
                window_bytes: number("window_bytes").map(|bytes| bytes as u32),
                streams: count("streams") as u16,
                compress: text("level").into(),
                ..Options::default()
            },
            moved: Moved { bytes: number("bytes").unwrap() as u64, ..Moved::default() },
            remote: Some(Remote { host: text("host").into(), ..Remote::default() }),
            source: Side {
                cpu_user_s: number("cpu_user_s").unwrap_or(0.0),
                cpu_system_s: number("cpu_system_s").unwrap_or(0.0),
                ..Side::default()
            },
            round_trips: Some(RoundTrips {
                unloaded: probes("unloaded_median_s"),
                loaded: probes("loaded_median_s"),
                ..RoundTrips::default()
            }),
            cell: Some(Cell {
                choice: text("choice").into(),
                extent_s: number("seconds"),
                extent_bytes: number("size_bytes").map(|bytes| bytes as u64),
                moving_s: number("moving_s"),
                pause_s: number("pause_s"),
                ..Cell::default()
            }),
            ..Record::default()
        }
    };
    reader.records().map(|row| record(row.unwrap())).collect()
}
