//! Finished runs on a path: one line of JSON each, appended to a file.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::runs::{Seen, Tool};
use analysis::statistics::Spread;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Stage {
    /// A short run, to choose what takes turns.
    Look,
    Turn,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Run {
    pub stage: Stage,
    pub round: usize,
    pub tool: Tool,
    pub seen: Seen,
    /// Packets that the path's queue dropped during the run.
    pub dropped: u64,
}

#[derive(Debug)]
pub(super) struct Kept {
    path: PathBuf,
    pub runs: Vec<Run>,
}

impl Kept {
    /// A line that was cut off by an interruption is ignored.
    pub(super) fn open(path: &Path) -> Result<Kept, String> {
        let text = match path.exists() {
            true => fs::read_to_string(path).map_err(|why| format!("{}: {why}", path.display()))?,
            false => String::new(),
        };
        let runs = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        Ok(Kept { path: path.to_path_buf(), runs })
    }

    pub(super) fn forget(self) -> Result<(), String> {
        match fs::remove_file(&self.path) {
            Err(why) if self.path.exists() => Err(format!("{}: {why}", self.path.display())),
            _ => Ok(()),
        }
    }

    pub(super) fn add(&mut self, run: Run) -> Result<(), String> {
        let told = |why: std::io::Error| format!("{}: {why}", self.path.display());
        let line = serde_json::to_string(&run).map_err(|why| why.to_string())?;
        fs::create_dir_all(self.path.parent().unwrap_or(Path::new("."))).map_err(told)?;
        let mut file = File::options().append(true).create(true).open(&self.path).map_err(told)?;
        writeln!(file, "{line}").map_err(told)?;
        self.runs.push(run);
        Ok(())
    }

    pub(super) fn has(&self, stage: Stage, round: usize, tool: &Tool) -> bool {
        self.runs.iter().any(|run| (run.stage, run.round, &run.tool) == (stage, round, tool))
    }

    pub(super) fn count(&self, stage: Stage) -> usize {
        self.runs.iter().filter(|run| run.stage == stage).count()
    }

    /// The tools with a short run, the fastest first. A short run may exceed the rate of the path,
    /// as data that waited behind a gap counts when the gap is filled: of tools that fill the path
    /// to a thousandth, the one with the fewest drops comes first.
    pub(super) fn best_looks(&self, most_mbit: f64) -> Vec<Tool> {
        let mut looks: Vec<&Run> =
            self.runs.iter().filter(|run| run.stage == Stage::Look).collect();
        looks.sort_by_key(|run| {
            let share = (run.seen.mbit / most_mbit).min(FULL);
            (std::cmp::Reverse((share * 1000.0) as u64), run.dropped)
        });
        looks.into_iter().map(|run| run.tool.clone()).collect()
    }

    /// The tools that took turns, in the order of their first turn.
    pub(super) fn turned(&self) -> Vec<Tool> {
        let mut tools: Vec<Tool> = Vec::new();
        for run in self.runs.iter().filter(|run| run.stage == Stage::Turn) {
            if !tools.contains(&run.tool) {
                tools.push(run.tool.clone());
            }
        }
        tools
    }

    pub(super) fn turns_of<'a>(&'a self, tool: &'a Tool) -> impl Iterator<Item = &'a Run> {
        self.runs.iter().filter(move |run| run.stage == Stage::Turn && run.tool == *tool)
    }

    pub(super) fn spread(&self, tool: &Tool) -> Option<Spread> {
        Spread::of(self.turns_of(tool).map(|run| run.seen.mbit))
    }
}

/// A path counts as full from this share on.
const FULL: f64 = 0.998;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interrupted_bench_goes_on() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deeper/path.jsonl");
        let run = |stage, mbit, options: &str| Run {
            stage,
            round: 0,
            tool: Tool::copy(&options),
            seen: Seen { mbit, whole_mbit: None, verdict: None },
            dropped: 3,
        };
        let mut kept = Kept::open(&path).unwrap();
        kept.add(run(Stage::Look, 5.0, "")).unwrap();
        kept.add(run(Stage::Look, 7.0, "--streams 1")).unwrap();
        kept.add(run(Stage::Turn, 7.5, "--streams 1")).unwrap();
        let whole = fs::read_to_string(&path).unwrap();
        fs::write(&path, whole + "{\"stage\":\"Tu").unwrap();
        let again = Kept::open(&path).unwrap();
        assert_eq!(again.runs, kept.runs);
        let tuned = Tool::copy(&"--streams 1");
        assert_eq!(again.best_looks(9.0)[0], tuned);
        assert_eq!(again.best_looks(4.0)[0], Tool::copy(&""), "both fill it");
        assert!(again.has(Stage::Turn, 0, &tuned) && !again.has(Stage::Turn, 1, &tuned));
        assert_eq!(again.spread(&tuned).unwrap().median, 7.5);
        again.forget().unwrap();
        assert_eq!(Kept::open(&path).unwrap().runs, []);
    }
}
