//! Samples of real connections: `tests/data/paths/NAME.csv`, a row for each sample of a stream.

use std::collections::BTreeMap;
use std::path::Path;

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
        let numbers = packed::NAMES.map(|name| text(name).parse().unwrap());
        path.samples.push(packed::of_numbers(&numbers).unwrap());
    }
    paths.into_values().collect()
}
