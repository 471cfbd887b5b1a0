//! The object store that tests use: a gateway to a folder, built from its sources once.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{packages, step};

/// The release that fixed its conditional writes, and what they are built from.
const MODULE: &str = "github.com/versity/versitygw/cmd/versitygw@v1.8.0";
const NAME: &str = "versitygw";

/// Makes sure that the gateway is in the folder of tools below the build outputs.
pub fn ensure() -> Result<(), String> {
    let folder = step::target_folder().join("tools");
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
    std::fs::create_dir_all(&folder).map_err(|why| format!("{}: {why}", folder.display()))?;
    let mut build = Command::new(go);
    build.args(["install", MODULE]).env("GOBIN", &folder).env("CGO_ENABLED", "0");
    step::run("the gateway that tests of object stores use", &mut build)
}

/// Where Go's own archive puts it, or where a package does.
fn go() -> Option<PathBuf> {
    let path = std::env::var("PATH").unwrap_or_default();
    let folders = path.split(':').chain(["/usr/local/go/bin"]);
    folders.map(|folder| Path::new(folder).join("go")).find(|go| go.exists())
}
