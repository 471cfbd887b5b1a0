//! Developer commands: `cargo xtask COMMAND`. Never shipped.

mod checks;
mod fuzz;
mod published;
mod release;
#[path = "../../tests/tidy/wire_hash.rs"]
mod wire_hash;

use std::process::ExitCode;

use xtask::step::cargo;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let done = match words.as_slice() {
        ["check"] => checks::check(),
        ["test"] => checks::test(),
        ["sim", options @ ..] => checks::sim(options),
        ["fuzz", options @ ..] => fuzz::fuzz(options),
        ["gateway"] => xtask::gateway::ensure(),
        ["man", folder] => checks::man(folder),
        ["published"] => published::write(),
        ["release", options @ ..] => release::release(options),
        ["wire-hash"] => checks::print_wire_hash(),
        [first, ..] if EXPERIMENTS.contains(first) => return experiments(&words),
        _ => Err(USAGE.to_string()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("xtask: {why}");
            ExitCode::FAILURE
        }
    }
}

/// They are a package of their own, which is built only when one is run. It prints its own errors.
fn experiments(words: &[&str]) -> ExitCode {
    let mut command = cargo("run --quiet --package experiments --");
    match command.args(words).status() {
        Ok(status) => ExitCode::from(u8::try_from(status.code().unwrap_or(1)).unwrap_or(1)),
        Err(why) => {
            eprintln!("xtask: cargo: {why}");
            ExitCode::FAILURE
        }
    }
}

const EXPERIMENTS: &[&str] = &[
    "bench",
    "experiment",
    "install-matrix",
    "power-cut",
    "spread-faults",
    "spread-peers",
    "torture",
    "wan",
];

const USAGE: &str = "\
cargo xtask COMMAND
  check                  format, clippy, unit and tidy tests: seconds
  test                   what CI runs: check, simulation, end-to-end tests through a real sshd
  sim [--leases] [--seed N] [--count N]
                         the two-host simulation, or that of the leases of many nodes: so many
                         seeds, from the one that is named
  sim --spread-scale     100 million files and 1,000 workers, without copying: plan, claims, view
  fuzz [TARGET] [--minutes N]
                         libFuzzer over one target of fuzz/, or all: a minute each
  gateway                object stores and a reader of exports for tests, made once
  man DIR                man page and completions, written by the built program
  published              the page of the guide with published figures beside ours, from runs/data
  release [--check] [--pack-only] [--arch LIST] [--profile NAME] [--out DIR]
                         static programs and their packages; --check builds twice and installs
  wire-hash              the hash of mover/src/wire that docs/WIRE.md states
  torture, power-cut, spread-faults, spread-peers, install-matrix, bench, experiment, wan
                         long proofs, benches and experiments: cargo xtask bench says more";
