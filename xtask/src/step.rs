//! One step of a longer command: a heading, a command, its time.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

/// The project's folder.
pub fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().expect("xtask has a parent").to_path_buf()
}

/// The `cargo` that called this program, in the project's folder.
pub fn cargo(words: &str) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(words.split_whitespace()).current_dir(root());
    command
}

/// The folder of build outputs.
pub fn target_folder() -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(folder) => root().join(folder),
        None => root().join("target"),
    }
}

/// Runs a command under a heading, with its output shown.
pub fn run(heading: &str, command: &mut Command) -> Result<(), String> {
    println!("\n== {heading}");
    let start = Instant::now();
    let status = command.status().map_err(|why| format!("{heading}: {why}"))?;
    println!("== {heading}: {:.1} s", start.elapsed().as_secs_f64());
    match status.success() {
        true => Ok(()),
        false => Err(format!("{heading} failed ({status})")),
    }
}

/// Runs a command and returns its output; standard error is part of a failure.
pub fn output(command: &mut Command) -> Result<String, String> {
    let words = format!("{command:?}");
    let output = command.output().map_err(|why| format!("{words}: {why}"))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match output.status.success() {
        true => Ok(text(&output.stdout)),
        false => {
            let said = text(&output.stdout) + &text(&output.stderr);
            Err(format!("{words} failed ({}):\n{said}", output.status))
        }
    }
}

/// The counts of cargo's test programs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    passed: u64,
    failed: u64,
    ignored: u64,
}

/// Runs tests under a heading with their output shown, and sums up their counts.
pub fn run_tests(heading: &str, command: &mut Command) -> Result<(), String> {
    println!("\n== {heading}");
    let start = Instant::now();
    let command = command.stdout(Stdio::piped());
    let mut child = command.spawn().map_err(|why| format!("{heading}: {why}"))?;
    let mut counts = Counts::default();
    if let Some(pipe) = child.stdout.take() {
        for line in BufReader::new(pipe).lines().map_while(Result::ok) {
            println!("{line}");
            counts.add(&line);
        }
    }
    let status = child.wait().map_err(|why| format!("{heading}: {why}"))?;
    println!("== {heading}: {:.1} s", start.elapsed().as_secs_f64());
    let Counts { passed, failed, ignored } = counts;
    println!("\n{passed} passed, {failed} failed, {ignored} ignored");
    match (status.success(), failed) {
        (true, _) => Ok(()),
        (false, 0) => {
            Err(format!("{heading} were not built, or did not run to their end ({status})"))
        }
        (false, _) => Err(format!("{heading}: {failed} failed")),
    }
}

impl Counts {
    /// `test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; …`
    fn add(&mut self, line: &str) {
        let Some((_, counts)) = line.split_once("test result: ") else { return };
        for part in counts.split([';', '.']) {
            let mut words = part.split_whitespace();
            let Some(Ok(number)) = words.next().map(str::parse::<u64>) else { continue };
            match words.next() {
                Some("passed") => self.passed += number,
                Some("failed") => self.failed += number,
                Some("ignored") => self.ignored += number,
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_added_up() {
        let mut counts = Counts::default();
        let lines = [
            "running 4 tests",
            "test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; finished in 1s",
            "test result: FAILED. 2 passed; 5 failed; 0 ignored; 0 measured; 0 filtered out",
        ];
        lines.iter().for_each(|line| counts.add(line));
        assert_eq!(counts, Counts { passed: 5, failed: 5, ignored: 1 });
    }
}
