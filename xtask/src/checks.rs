//! The checks before a commit, and those of CI.

use std::fs;
use std::num::NonZero;
use std::path::Path;
use std::process::Command;

use crate::wire_hash::wire_hash;
use xtask::step::{cargo, output, root, run, run_tests, target_folder};
use xtask::{gateway, packages};

/// Space for a cold build and its tests, in bytes.
const ROOM: u64 = 5_000_000_000;

/// Most end-to-end tests wait most of their time: for a login, a limited rate, a process that ends.
const TESTS_PER_CPU: usize = 2;

/// Format, clippy, unit and tidy tests.
pub(crate) fn check() -> Result<(), String> {
    let tests = "test --workspace --lib --bins --test tidy";
    verdict([format(), clippy(), run_tests("unit and tidy tests", &mut cargo(tests))])
}

/// Everything that CI runs. One profile only (dev, optimised a little), so that it builds once.
pub(crate) fn test() -> Result<(), String> {
    packages::ensure(packages::FOR_TESTS)?;
    gateway::ensure()?;
    room()?;
    let mut doc = cargo("doc --workspace --no-deps --quiet");
    doc.env("RUSTDOCFLAGS", "-Dwarnings");
    let mut tests = cargo("test --workspace --no-fail-fast");
    if std::env::var_os("RUST_TEST_THREADS").is_none() {
        let cpus = std::thread::available_parallelism().map_or(1, NonZero::get);
        tests.env("RUST_TEST_THREADS", (TESTS_PER_CPU * cpus).to_string());
    }
    verdict([
        format(),
        clippy(),
        run("documentation", &mut doc),
        run_tests("all tests", &mut tests),
        examples(),
    ])
}

/// Runs each example once, on little data.
fn examples() -> Result<(), String> {
    let copy = target_folder().join("example-copy");
    let _ = fs::remove_dir_all(&copy);
    let copy = format!("copy_with_progress -- examples {}", copy.display());
    for example in ["own_endpoint", "null_to_null -- 1", &copy] {
        let name = example.split(' ').next().unwrap_or_default();
        let mut command = cargo("run --quiet --example");
        run(&format!("example {name}"), command.args(example.split(' ')))?;
    }
    Ok(())
}

/// One simulation alone: of two hosts, or of the leases of many nodes.
pub(crate) fn sim(options: &[&str]) -> Result<(), String> {
    if options == ["--spread-scale"] {
        return run("spread at scale", &mut cargo("bench --bench spread_scale"));
    }
    let (name, test, options) = match options {
        ["--leases", rest @ ..] => ("lease simulation", "-p datapump-analysis --test leases", rest),
        all => ("two-host simulation", "-p datapump-mover --test two_hosts", all),
    };
    let mut command = cargo(&format!("test {test} -- --nocapture"));
    let mut options = options.iter();
    while let Some(option) = options.next() {
        let name = match *option {
            "--seed" => "DATAPUMP_SIM_SEED",
            "--count" => "DATAPUMP_SIM_COUNT",
            other => {
                return Err(format!(
                    "sim: unknown option {other}: write --leases first, --seed N or --count N"
                ));
            }
        };
        let value = options.next().ok_or_else(|| format!("sim: {option} needs a number"))?;
        value.parse::<u64>().map_err(|_| format!("sim: {option} {value}: write a number"))?;
        command.env(name, value);
    }
    run(name, &mut command)
}

/// The man page and the completions, as the built program writes them.
pub(crate) fn man(folder: &str) -> Result<(), String> {
    run("build", &mut cargo("build --release --bin datapump"))?;
    let folder = Path::new(folder);
    fs::create_dir_all(folder).map_err(|why| format!("{}: {why}", folder.display()))?;
    let pages = [
        ("datapump.1", "man"),
        ("datapump.bash", "completions bash"),
        ("_datapump", "completions zsh"),
        ("datapump.fish", "completions fish"),
    ];
    for (name, words) in pages {
        let mut program = Command::new(target_folder().join("release/datapump"));
        let text = output(program.args(words.split(' ')))?;
        let path = folder.join(name);
        fs::write(&path, text).map_err(|why| format!("{}: {why}", path.display()))?;
        println!("{}", path.display());
    }
    Ok(())
}

pub(crate) fn print_wire_hash() -> Result<(), String> {
    let mut files = Vec::new();
    let mut open = vec![root().join("mover/src/wire")];
    while let Some(folder) = open.pop() {
        let entries =
            fs::read_dir(&folder).map_err(|why| format!("{}: {why}", folder.display()))?;
        for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
            if path.is_dir() {
                open.push(path);
                continue;
            }
            let text =
                fs::read_to_string(&path).map_err(|why| format!("{}: {why}", path.display()))?;
            let name = path.strip_prefix(root()).unwrap_or(&path).display().to_string();
            files.push((name, text));
        }
    }
    println!("{}", wire_hash(files));
    Ok(())
}

/// Checks the free space. A linker on a full disk dies of a bus error without an explanation.
fn room() -> Result<(), String> {
    let target = target_folder();
    fs::create_dir_all(&target).map_err(|why| format!("{}: {why}", target.display()))?;
    for folder in [target, std::env::temp_dir()] {
        let space = rustix::fs::statvfs(&folder).map_err(|why| format!("{folder:?}: {why}"))?;
        let free = space.f_bavail * space.f_frsize;
        println!("room in {}: {:.1} GB", folder.display(), free as f64 / 1e9);
        if free < ROOM {
            println!("  little: a cold build and its tests take up to {:.0} GB", ROOM as f64 / 1e9);
        }
    }
    Ok(())
}

fn format() -> Result<(), String> {
    component("fmt", "rustfmt")?;
    run("format", &mut cargo("fmt --all --check"))
}

fn clippy() -> Result<(), String> {
    component("clippy", "clippy")?;
    run("clippy", &mut cargo("clippy --workspace --all-targets --quiet -- -Dwarnings"))
}

/// One failure does not hide another: all steps run, and all failures are named.
fn verdict<const STEPS: usize>(steps: [Result<(), String>; STEPS]) -> Result<(), String> {
    let failed: Vec<String> = steps.into_iter().filter_map(Result::err).collect();
    match failed.is_empty() {
        true => Ok(()),
        false => Err(failed.join("; ")),
    }
}

fn component(command: &str, name: &str) -> Result<(), String> {
    output(&mut cargo(&format!("{command} --version")))
        .map(|_| ())
        .map_err(|_| format!("the component {name} is missing: rustup component add {name}"))
}
