//! `cargo xtask fuzz`: libFuzzer over the targets of `fuzz/`, on the stable toolchain.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use xtask::step::{cargo, output, root, run};

/// Compiler options for coverage, so that the engine sees which code an input reaches.
const COVERAGE: &str = "-Cpasses=sancov-module -Clink-dead-code -Ccodegen-units=1 \
     -Cllvm-args=-sanitizer-coverage-level=4 \
     -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
     -Cllvm-args=-sanitizer-coverage-pc-table \
     -Cllvm-args=-sanitizer-coverage-trace-compares --cfg fuzzing";

/// `fuzz [TARGET] [--minutes N]`.
pub(crate) fn fuzz(words: &[&str]) -> Result<(), String> {
    let (only, minutes) = options(words)?;
    let targets = targets()?;
    let chosen: Vec<&String> =
        targets.iter().filter(|name| only.is_none_or(|only| only == *name)).collect();
    if chosen.is_empty() {
        let names = targets.join(", ");
        return Err(format!("fuzz: no target {}: one of {names}", only.unwrap_or_default()));
    }
    let folder = build()?;
    let mut failed = Vec::new();
    for name in chosen {
        if let Err(why) = one(name, minutes, &folder) {
            failed.push(why);
        }
    }
    match failed.is_empty() {
        true => Ok(()),
        false => Err(failed.join("; ")),
    }
}

fn options<'a>(words: &[&'a str]) -> Result<(Option<&'a str>, f64), String> {
    let (mut only, mut minutes) = (None, 1.0);
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match *word {
            "--minutes" => {
                let number = words.next().and_then(|text| text.parse().ok());
                minutes = number.filter(|n| *n > 0.0).ok_or("fuzz: --minutes needs a number")?;
            }
            option if option.starts_with('-') => {
                return Err(format!("fuzz: unknown option {option}: write --minutes N"));
            }
            name => only = Some(name),
        }
    }
    Ok((only, minutes))
}

/// The programs of `fuzz/fuzz_targets`.
fn targets() -> Result<Vec<String>, String> {
    let folder = root().join("fuzz/fuzz_targets");
    let entries = fs::read_dir(&folder).map_err(|why| format!("{}: {why}", folder.display()))?;
    let mut names: Vec<String> = entries
        .filter_map(|entry| Some(entry.ok()?.path().file_stem()?.to_str()?.to_string()))
        .collect();
    names.sort();
    Ok(names)
}

/// Builds all targets. With `--target`, the flags do not apply to build scripts.
fn build() -> Result<PathBuf, String> {
    let version = output(Command::new("rustc").arg("-vV"))?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    let host = host.ok_or("rustc does not say what it builds for")?;
    let mut command = cargo(&format!("build --release --target {host}"));
    command.current_dir(root().join("fuzz")).env("RUSTFLAGS", COVERAGE);
    command.env_remove("CARGO_TARGET_DIR");
    run("build of the fuzz targets", &mut command)?;
    Ok(root().join("fuzz/target").join(host).join("release"))
}

/// Fuzzes one target, then keeps the smallest corpus with the same coverage.
fn one(name: &str, minutes: f64, folder: &Path) -> Result<(), String> {
    let corpus = root().join("fuzz/corpus").join(name);
    let found = root().join("fuzz/target/found").join(name);
    let grown = root().join("fuzz/target/grown").join(name);
    for path in [&corpus, &found, &grown] {
        fs::create_dir_all(path).map_err(|why| format!("{}: {why}", path.display()))?;
    }
    let seconds = (minutes * 60.0).ceil();
    let mut engine = Command::new(folder.join(name));
    engine.arg(&grown).arg(&corpus);
    engine.arg(format!("-max_len={INPUT_BYTES_MAX}"));
    engine.arg(format!("-max_total_time={seconds}"));
    engine.arg(format!("-artifact_prefix={}/", found.display()));
    engine.args(["-timeout=10", "-rss_limit_mb=1024", "-print_final_stats=1", "-verbosity=0"]);
    run(&format!("fuzz {name}, {minutes} min"), &mut engine).map_err(|why| {
        format!("{why}: the input lies in {}; add it to {}", found.display(), corpus.display())
    })?;
    minimise(name, folder, &corpus, &grown)
}

/// Replaces the committed corpus if the new one is small enough to commit.
fn minimise(name: &str, folder: &Path, corpus: &Path, grown: &Path) -> Result<(), String> {
    let fresh = corpus.with_file_name(format!("{name}.new"));
    fs::create_dir_all(&fresh).map_err(|why| format!("{}: {why}", fresh.display()))?;
    let mut engine = Command::new(folder.join(name));
    // Coverage counts, not how often: otherwise thousands of inputs would remain.
    engine.args(["-set_cover_merge=1", "-use_counters=0", "-verbosity=0"]);
    engine.arg(format!("-max_len={INPUT_BYTES_MAX}"));
    output(engine.arg(&fresh).arg(corpus).arg(grown))?;
    let count = fs::read_dir(&fresh).map_err(|why| why.to_string())?.count();
    let kept = match count <= INPUTS_MAX {
        true => {
            println!("{name}: {count} inputs reach what all of them reach");
            fs::remove_dir_all(corpus).and_then(|()| fs::rename(&fresh, corpus))
        }
        false => {
            println!("{name}: {count} inputs are too many to commit; the corpus stays as it was");
            fs::remove_dir_all(&fresh)
        }
    };
    kept.map_err(|why| format!("{}: {why}", corpus.display()))
}

/// Upper limits for a committed input in bytes, and for the inputs of one target.
const INPUT_BYTES_MAX: usize = 4095;
const INPUTS_MAX: usize = 299;
