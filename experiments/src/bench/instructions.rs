//! The cost of a request in instructions, counted by callgrind: the same on a busy machine and on
//! an idle one, so CI can check it. Budgets are in `benches/instructions.txt`.

use std::fs;
use std::process::Command;

use super::build;
use xtask::packages;
use xtask::step::{root, target_folder};

/// Requests in the short run; the long one has twice as many, and the difference counts.
const REQUESTS: u64 = 4096;
/// How far a count may be from its budget, up or down: improvements must be written down too.
const SHARE_MAX: f64 = 0.02;

/// A copy inside one process, with its options.
const SUBJECTS: &[(&str, &str)] = &[
    ("null to null", "--digest none"),
    ("null to null, 4K requests with crc64", "--digest crc64 --request-size 4K"),
    ("null to null, 4K requests with blake3", "--digest blake3 --request-size 4K"),
];

/// `cargo xtask bench instructions`.
pub(crate) fn instructions() -> Result<(), String> {
    packages::ensure(&[("valgrind", "valgrind")])?;
    build()?;
    let budgets = fs::read_to_string(root().join("benches/instructions.txt"))
        .map_err(|why| format!("benches/instructions.txt: {why}"))?;
    let mut wrong = Vec::new();
    for (subject, options) in SUBJECTS {
        let each =
            count(options, 2 * REQUESTS)?.saturating_sub(count(options, REQUESTS)?) / REQUESTS;
        let budget = budget_of(&budgets, subject)?;
        let share = each as f64 / budget as f64 - 1.0;
        let percent = share * 100.0;
        println!(
            "{subject:<40} {each:>8} instructions a request, budget {budget} ({percent:+.1} %)"
        );
        if share.abs() > SHARE_MAX {
            wrong.push(format!("{subject}: {each} instructions, {budget} are budgeted"));
        }
    }
    match wrong.is_empty() {
        true => Ok(()),
        false => Err(format!(
            "{}\nfind out why, then write the new number into benches/instructions.txt",
            wrong.join("\n")
        )),
    }
}

fn budget_of(budgets: &str, subject: &str) -> Result<u64, String> {
    let line = budgets.lines().filter_map(|line| line.split_once(": "));
    let found = line.into_iter().find(|(name, _)| *name == subject);
    found
        .and_then(|(_, number)| number.trim().parse().ok())
        .ok_or_else(|| format!("benches/instructions.txt has no budget for '{subject}'"))
}

/// Instructions of a whole run with this many requests on one lane.
fn count(options: &str, requests: u64) -> Result<u64, String> {
    let request_bytes = if options.contains("4K") { 4096 } else { 512 << 10 };
    let mut command = Command::new("valgrind");
    command.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]);
    command.arg(target_folder().join("release/datapump"));
    command.args(["copy", "--quiet", "--streams", "1"]).args(options.split(' '));
    command.arg(format!("null:{}", requests * request_bytes)).arg("null:");
    let output = command.output().map_err(|why| format!("valgrind: {why}"))?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let collected = said.lines().find_map(|line| line.split_once("Collected : "));
    collected
        .and_then(|(_, number)| number.trim().parse().ok())
        .filter(|_| output.status.success())
        .ok_or_else(|| format!("callgrind of {options} gave no count:\n{said}"))
}
