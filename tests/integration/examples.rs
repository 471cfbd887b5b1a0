//! The shell commands of the README and the guide are such that `shellcheck` finds nothing in them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::need;

#[test]
fn shellcheck_finds_nothing_in_the_examples() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = tempfile::tempdir().unwrap();
    let mut pages = vec![root.join("README.md")];
    let guide = fs::read_dir(root.join("docs/guide")).unwrap().map(|entry| entry.unwrap().path());
    pages.extend(guide.filter(|path| path.extension().is_some_and(|end| end == "md")));
    let mut scripts: Vec<PathBuf> = Vec::new();
    for page in pages {
        let name = page.file_stem().unwrap().to_str().unwrap().to_string();
        for (line, block) in blocks(&fs::read_to_string(&page).unwrap()) {
            let script = folder.path().join(format!("{name}-line-{line}.sh"));
            fs::write(&script, format!("#!/bin/bash\n{block}")).unwrap();
            scripts.push(script);
        }
    }
    assert!(scripts.len() > 30, "{} blocks of shell were found", scripts.len());
    let mut command = Command::new(need("shellcheck", "shellcheck"));
    // A user's own settings do not count.
    let ran = command.args(["--norc", "--format=gcc"]).args(&scripts).output().unwrap();
    let said = String::from_utf8_lossy(&ran.stdout);
    let failed = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "each name is its page and line\n{said}{failed}");
}

/// The blocks of shell of a page, each with the line where it begins.
fn blocks(page: &str) -> Vec<(usize, String)> {
    let mut blocks = Vec::new();
    let mut open: Option<(usize, String)> = None;
    for (number, line) in (1..).zip(page.lines()) {
        match (&mut open, line.trim()) {
            (None, "```sh") => open = Some((number, String::new())),
            (Some(_), "```") => blocks.extend(open.take()),
            (Some((_, block)), _) => block.push_str(&format!("{line}\n")),
            (None, _) => {}
        }
    }
    blocks
}
