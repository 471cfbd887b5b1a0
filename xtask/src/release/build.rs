//! The programs: static, for each processor, by `cargo zigbuild`, whose C compiler and linker come
//! with it for every target. No path of this machine gets into them.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use super::Release;
use xtask::step::{cargo, output, run, target_folder};

/// The programs of a release.
pub(super) const PROGRAMS: [&str; 2] = ["datapump", "datapump-peer"];

pub(super) fn build(release: &Release) -> Result<(), String> {
    let tools = tools()?;
    for arch in &release.arches {
        let mut add = Command::new("rustup");
        output(add.args(["target", "add", arch.triple]).current_dir(&release.source))?;
        let words = format!(
            "zigbuild --locked -p datapump -p datapump-mover --bins --profile {} --target {}",
            release.profile, arch.triple
        );
        let mut command = cargo(&words);
        command.current_dir(&release.source).env("CARGO_TARGET_DIR", &release.target);
        command.env(
            "PATH",
            format!("{}:{}", tools.display(), std::env::var("PATH").unwrap_or_default()),
        );
        command.env("CARGO_ENCODED_RUSTFLAGS", rust_flags(release));
        command.env("CFLAGS", c_flags(release));
        command.env("DATAPUMP_COMMIT", &release.commit).env("SOURCE_DATE_EPOCH", &release.epoch);
        command.env("CARGO_INCREMENTAL", "0").env_remove("RUSTFLAGS");
        run(&format!("programs for {}", arch.name), &mut command)?;
        for name in PROGRAMS {
            has_no_path_of_here(release, &release.program(*arch, name))?;
        }
    }
    Ok(())
}

/// The folder with `cargo-zigbuild` and its `zig`, which come from the Python index.
fn tools() -> Result<PathBuf, String> {
    let folder = target_folder().join("release-tools");
    let bin = folder.join("bin");
    if !bin.join("cargo-zigbuild").exists() {
        run("tools: venv", Command::new("python3").args(["-m", "venv"]).arg(&folder))?;
        let mut pip = Command::new(bin.join("pip"));
        run("tools: zig and cargo-zigbuild", pip.args(["install", "--quiet"]).args(TOOLS))?;
    }
    Ok(bin)
}

/// Folders of this machine, and what is written in place of them.
fn folders(release: &Release) -> Vec<(PathBuf, &'static str)> {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")));
    // Of several that match, compilers take the last.
    let mut folders =
        vec![(release.source.clone(), "/datapump"), (release.target.clone(), "/target")];
    folders.extend(home.map(|home| (home, "/cargo")));
    folders
}

fn rust_flags(release: &Release) -> String {
    let flag = |(from, to): (PathBuf, &str)| format!("--remap-path-prefix={}={to}", from.display());
    let mapped = folders(release).into_iter().map(flag);
    // Cargo leaves symbols in programs of packages that have a level of their own in the profile.
    mapped.chain(["-Cstrip=symbols".to_string()]).collect::<Vec<_>>().join("\x1f")
}

fn c_flags(release: &Release) -> String {
    let flag = |(from, to): (PathBuf, &str)| format!("-ffile-prefix-map={}={to}", from.display());
    folders(release).into_iter().map(flag).collect::<Vec<_>>().join(" ")
}

fn has_no_path_of_here(release: &Release, program: &PathBuf) -> Result<(), String> {
    let bytes = fs::read(program).map_err(|why| format!("{}: {why}", program.display()))?;
    for (folder, _) in folders(release) {
        let path = format!("{}/", folder.display());
        if bytes.windows(path.len()).any(|window| window == path.as_bytes()) {
            return Err(format!("{} has '{path}' in it", program.display()));
        }
    }
    Ok(())
}

/// Exactly these, so that another run has the same compiler.
const TOOLS: [&str; 2] = ["ziglang==0.15.1", "cargo-zigbuild==0.20.1"];
