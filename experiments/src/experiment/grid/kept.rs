//! Finished measurements: a line of CSV each, written at once.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use super::{CANDIDATES, Seen};
use analysis::statistics::Spread;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// A short run, to choose what takes turns.
    Look,
    Turn(usize),
}

/// The key of a run.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Key {
    pub data: String,
    pub link: String,
    pub stage: Stage,
    pub way: String,
    pub seconds: f64,
}

/// A run with its results.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Row {
    pub key: Key,
    pub mbit: f64,
    /// The rate on the path; `None` where it is not counted.
    pub wire_mbit: Option<f64>,
    /// The commit of the program.
    pub commit: String,
}

#[derive(Debug)]
pub(super) struct Kept {
    path: PathBuf,
    rows: Vec<Row>,
}

impl Key {
    pub(super) fn new(data: &str, link: &str, stage: Stage, way: &str, seconds: f64) -> Key {
        Key { data: data.into(), link: link.into(), stage, way: way.into(), seconds }
    }
}

impl Row {
    pub(super) fn new(key: Key, seen: Seen, commit: &str) -> Row {
        let mbit = |bytes_per_s: f64| bytes_per_s * 8.0 / 1e6;
        let wire_mbit = seen.wire_bytes_per_s.map(mbit);
        Row { key, mbit: mbit(seen.bytes_per_s), wire_mbit, commit: commit.to_string() }
    }

    pub(super) fn is_of(&self, data: &str, link: &str) -> bool {
        self.key.data == data && self.key.link == link
    }

    pub(super) fn bytes_per_s(&self) -> f64 {
        self.mbit * 1e6 / 8.0
    }

    /// Its line in the file, in the order of `HEADING`.
    pub(super) fn line(&self) -> String {
        let Key { data, link, stage, way, seconds } = &self.key;
        let stage = match stage {
            Stage::Look => "look".to_string(),
            Stage::Turn(round) => round.to_string(),
        };
        let wire = self.wire_mbit.map_or(String::new(), |mbit| format!("{mbit:.3}"));
        format!("{data},{link},{seconds},{stage},{way},{:.3},{wire},{}", self.mbit, self.commit)
    }

    fn parse(line: &str) -> Option<Row> {
        let words: Vec<&str> = line.split(',').collect();
        let [data, link, seconds, stage, way, mbit, wire, commit] = words[..] else { return None };
        let stage = match stage {
            "look" => Stage::Look,
            round => Stage::Turn(round.parse().ok()?),
        };
        let key = Key::new(data, link, stage, way, seconds.parse().ok()?);
        let (wire_mbit, commit) = (wire.parse().ok(), commit.to_string());
        Some(Row { key, mbit: mbit.parse().ok()?, wire_mbit, commit })
    }
}

impl Kept {
    /// A line that was cut off by an interruption is ignored.
    pub(super) fn open(path: &Path) -> Result<Kept, String> {
        let text = match path.exists() {
            true => fs::read_to_string(path).map_err(|why| format!("{}: {why}", path.display()))?,
            false => String::new(),
        };
        let whole = text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n'));
        let rows = whole.filter_map(Row::parse).collect();
        let kept = Kept { path: path.to_path_buf(), rows };
        kept.write()?;
        Ok(kept)
    }

    /// Deletes some rows, to measure them again.
    pub(super) fn forget(&mut self, which: impl Fn(&Row) -> bool) -> Result<(), String> {
        self.rows.retain(|row| !which(row));
        self.write()
    }

    pub(super) fn add(&mut self, row: Row) -> Result<(), String> {
        let told = |why: std::io::Error| format!("{}: {why}", self.path.display());
        let mut file = File::options().append(true).open(&self.path).map_err(told)?;
        writeln!(file, "{}", row.line()).map_err(told)?;
        self.rows.push(row);
        Ok(())
    }

    pub(super) fn find(&self, key: &Key) -> Option<&Row> {
        self.rows.iter().find(|row| row.key == *key)
    }

    /// The fixed codings with a short run in a cell, the fastest first.
    pub(super) fn best_looks(&self, data: &str, link: &str, seconds: f64) -> Vec<&'static str> {
        let look = |way: &&'static str| {
            let row = self.find(&Key::new(data, link, Stage::Look, way, seconds))?;
            Some((row.mbit, *way))
        };
        let mut looks: Vec<(f64, &str)> = CANDIDATES.iter().filter_map(look).collect();
        looks.sort_by(|(one, _), (other, _)| other.total_cmp(one));
        looks.into_iter().map(|(_, way)| way).collect()
    }

    /// The rates of a coding's turns in a cell.
    pub(super) fn turns(&self, data: &str, link: &str, way: &str, seconds: f64) -> Option<Spread> {
        let of_cell = |row: &&Row| {
            let Key { stage, way: other, seconds: time, .. } = &row.key;
            row.is_of(data, link) && other == way && *time == seconds && *stage != Stage::Look
        };
        Spread::of(self.rows.iter().filter(of_cell).map(|row| row.mbit))
    }

    /// The programs of auto's turns, in order of appearance.
    pub(super) fn commits(&self) -> Vec<&str> {
        let turns = self.rows.iter().filter(|row| row.key.way == super::AUTO);
        let mut commits: Vec<&str> = Vec::new();
        for row in turns {
            if !commits.contains(&row.commit.as_str()) {
                commits.push(&row.commit);
            }
        }
        commits
    }

    fn write(&self) -> Result<(), String> {
        let lines: String = self.rows.iter().map(|row| row.line() + "\n").collect();
        fs::write(&self.path, format!("{HEADING}\n{lines}"))
            .map_err(|why| format!("{}: {why}", self.path.display()))
    }
}

const HEADING: &str = "data,link,seconds,turn,compress,mbit_per_s,wire_mbit_per_s,commit";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interrupted_grid_goes_on() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("compression-grid.csv");
        let row = |stage, way: &str, mbit: f64| Row {
            key: Key::new("text", "2Mbit", stage, way, 2.5),
            mbit,
            wire_mbit: (way != "off").then_some(1.5),
            commit: "abc1234".into(),
        };
        let mut kept = Kept::open(&path).unwrap();
        kept.add(row(Stage::Look, "off", 2.0)).unwrap();
        kept.add(row(Stage::Look, "zstd:9", 7.5)).unwrap();
        kept.add(row(Stage::Turn(0), "zstd:9", 7.0)).unwrap();
        kept.add(row(Stage::Turn(2), "zstd:9", 9.0)).unwrap();
        let whole = fs::read_to_string(&path).unwrap();
        fs::write(&path, format!("{whole}text,2Mbit,2.5,look,lz4,3.0,1.5")).unwrap();
        let mut again = Kept::open(&path).unwrap();
        assert_eq!(again.rows, kept.rows);
        assert_eq!(again.best_looks("text", "2Mbit", 2.5), ["zstd:9", "off"]);
        assert_eq!(again.best_looks("text", "2Mbit", 3.0), [""; 0]);
        assert_eq!(again.turns("text", "2Mbit", "zstd:9", 2.5).unwrap().median, 8.0);
        again.forget(|row| row.is_of("text", "2Mbit")).unwrap();
        assert_eq!(Kept::open(&path).unwrap().rows, []);
    }
}
