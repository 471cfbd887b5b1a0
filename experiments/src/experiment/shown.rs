//! The results of an experiment: tables, criteria with the values found, data of figures; and its
//! page in `runs/`.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::Experiment;
use crate::bench::machine;
use crate::page::table;
use xtask::step::{output, root};

#[derive(Debug, Default)]
pub(crate) struct Shown {
    tables: Vec<Table>,
    checks: Vec<Check>,
    /// Data of a figure: a name, and lines of values.
    data: Vec<(String, String)>,
    notes: Vec<String>,
    /// The disk, for an experiment with files.
    disk: Option<PathBuf>,
}

#[derive(Debug)]
pub(crate) struct Table {
    title: String,
    heading: Vec<String>,
    rows: Vec<Vec<String>>,
}

#[derive(Debug)]
pub(super) struct Check {
    wanted: String,
    seen: String,
    passed: bool,
}

impl Table {
    /// `columns` is a heading in Markdown without the outer bars: `a | b`.
    pub(crate) fn new(title: &str, columns: &str) -> Table {
        let heading = columns.split('|').map(|word| word.trim().to_string()).collect();
        Table { title: title.to_string(), heading, rows: Vec::new() }
    }

    /// Adds a row and prints it: experiments take minutes.
    pub(crate) fn row(&mut self, cells: Vec<String>) {
        if self.rows.is_empty() {
            println!("\n{}\n| {} |", self.title, self.heading.join(" | "));
        }
        println!("| {} |", cells.join(" | "));
        self.rows.push(cells);
    }

    fn text(&self) -> String {
        let heading: Vec<&str> = self.heading.iter().map(String::as_str).collect();
        format!("\n{}\n\n{}", self.title, table(&heading, &self.rows))
    }
}

impl Shown {
    pub(crate) fn table(&mut self, table: Table) {
        self.tables.push(table);
    }

    /// A criterion, and the value found.
    pub(crate) fn check(&mut self, wanted: &str, seen: impl Into<String>, passed: bool) {
        self.checks.push(Check { wanted: wanted.to_string(), seen: seen.into(), passed });
    }

    /// The data file of a figure; `name` is added to that of the experiment.
    pub(crate) fn data(&mut self, name: &str, lines: String) {
        self.data.push((name.to_string(), lines));
    }

    pub(crate) fn on_disk(&mut self, folder: &Path) {
        self.disk = Some(folder.to_path_buf());
    }

    pub(crate) fn note(&mut self, text: impl Into<String>) {
        self.notes.push(text.into());
    }

    pub(crate) fn failed(&self) -> usize {
        self.checks.iter().filter(|check| !check.passed).count()
    }

    /// Prints the criteria, and writes the page and the data.
    pub(crate) fn publish(&self, experiment: &Experiment) -> Result<(), String> {
        let date = output(Command::new("date").arg("+%F"))?;
        let name = format!("{}-{}", date.trim(), experiment.name);
        let folder = root().join("runs");
        fs::create_dir_all(folder.join("data")).map_err(|why| format!("runs/data: {why}"))?;
        let write = |path: &Path, text: &str| {
            fs::write(path, text).map_err(|why| format!("{}: {why}", path.display()))
        };
        let mut files = Vec::new();
        for (part, lines) in &self.data {
            let file = match part.as_str() {
                "" => format!("data/{name}.csv"),
                part => format!("data/{name}-{part}.csv"),
            };
            write(&folder.join(&file), lines)?;
            files.push(file);
        }
        let page = self.page(experiment, &files);
        let path = folder.join(format!("{name}.md"));
        write(&path, &page)?;
        println!("\n{}\nwritten to {}", self.verdicts(), path.display());
        Ok(())
    }

    fn page(&self, experiment: &Experiment, files: &[String]) -> String {
        let mut text = format!("# {}\n\n{}\n\n", experiment.title, experiment.about);
        let _ = writeln!(text, "`cargo xtask experiment {}`\n", experiment.name);
        for note in machine::notes(self.disk.as_deref().unwrap_or(Path::new("/dev/shm"))) {
            let _ = writeln!(text, "- {note}");
        }
        let _ = write!(text, "\n{}", self.verdicts());
        self.tables.iter().for_each(|table| text.push_str(&table.text()));
        for note in &self.notes {
            let _ = write!(text, "\n{note}\n");
        }
        if !files.is_empty() {
            let links: Vec<String> = files.iter().map(|file| format!("[{file}]({file})")).collect();
            let _ = write!(text, "\nData: {}\n", links.join(", "));
        }
        text
    }

    fn verdicts(&self) -> String {
        let word = |check: &Check| if check.passed { "passed" } else { "**failed**" };
        let row =
            |check: &Check| vec![check.wanted.clone(), check.seen.clone(), word(check).into()];
        table(&["wanted", "seen", ""], &self.checks.iter().map(row).collect::<Vec<_>>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_its_tables_and_what_failed() {
        let experiment = Experiment {
            name: "example",
            title: "a title",
            about: "A report.",
            run: |_| Err(String::new()),
        };
        let mut shown = Shown::default();
        let mut table = Table::new("Rates:", "path | Mbit/s");
        table.row(vec!["long".into(), "9.5".into()]);
        shown.table(table);
        shown.check("at least 10 Mbit/s", "9.5", false);
        shown.check("no pause", "0", true);
        let page = shown.page(&experiment, &["data/example.csv".into()]);
        for line in [
            "# a title",
            "| path | Mbit/s |\n|---|---|\n| long | 9.5 |",
            "| at least 10 Mbit/s | 9.5 | **failed** |",
            "| no pause | 0 | passed |",
            "Data: [data/example.csv](data/example.csv)",
        ] {
            assert!(page.contains(line), "{line}\n{page}");
        }
        assert_eq!(shown.failed(), 1);
    }
}
