//! Test data from a seed, and comparison by the system's own tools.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::need;

/// Bytes that differ for each seed.
pub(crate) fn bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut out = vec![0; len];
    blake3::Hasher::new().update(&seed.to_le_bytes()).finalize_xof().fill(&mut out);
    out
}

pub(crate) fn write_file(path: &Path, seed: u64, len: usize) {
    fs::write(path, bytes(seed, len)).unwrap();
}

/// Folders three deep, an empty one, and files of the lengths at which something could go wrong.
pub(crate) fn write_tree(root: &Path) {
    fs::create_dir_all(root.join("one/two/three")).unwrap();
    fs::create_dir_all(root.join("empty/inner")).unwrap();
    for (i, len) in LENGTHS.iter().enumerate() {
        let folder = ["", "one", "one/two", "one/two/three"][i % 4];
        write_file(&root.join(folder).join(format!("file-{len}")), i as u64, *len);
    }
    for i in 0..40_u64 {
        write_file(&root.join(format!("one/two/small-{i}")), 100 + i, 37 * i as usize);
    }
    std::os::unix::fs::symlink("../file-0", root.join("one/link")).unwrap();
    std::os::unix::fs::symlink("nowhere", root.join("one/dangling")).unwrap();
}

/// Names that a shell, a terminal or a text protocol would spoil.
pub(crate) fn write_odd_names(root: &Path) {
    fs::create_dir_all(root).unwrap();
    for (i, name) in odd_names().iter().enumerate() {
        write_file(&root.join(OsStr::from_bytes(name)), i as u64, 1000 + i);
    }
}

pub(crate) fn odd_names() -> Vec<Vec<u8>> {
    let mut names: Vec<Vec<u8>> = [
        "-r",
        "--help",
        "a b",
        "new\nline",
        "tab\tstop",
        "quote'\"`",
        "$HOME",
        "back\\slash",
        "*",
        "é漢🚰",
        "far:file",
        "#",
        "~",
        ".hidden",
        "...",
        ";ls",
        "%s%n",
    ]
    .iter()
    .map(|name| name.as_bytes().to_vec())
    .collect();
    names.push(b"not-utf8-\xff\xfe".to_vec());
    names.push(vec![b'x'; 255]);
    names
}

/// `diff -r` of two trees or `cmp` of two files; links are compared as links.
pub(crate) fn assert_same(left: &Path, right: &Path) {
    let mut tool = match left.is_dir() {
        true => Command::new(need("diff", "diffutils")),
        false => Command::new(need("cmp", "diffutils")),
    };
    if left.is_dir() {
        tool.args(["-r", "--no-dereference"]);
    }
    let output = tool.arg("--").arg(left).arg(right).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{} and {} differ: {text}", left.display(), right.display());
}

/// Every file and link below a folder.
pub(crate) fn files_below(root: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut open = vec![root.to_path_buf()];
    while let Some(folder) = open.pop() {
        let Ok(entries) = fs::read_dir(&folder) else { continue };
        for entry in entries.map(Result::unwrap) {
            match entry.file_type().unwrap().is_dir() {
                true => open.push(entry.path()),
                false => files.push(entry.path()),
            }
        }
    }
    files.sort();
    files
}

/// Around one request of `REQUEST_BYTES`, and enough for several streams.
pub(crate) const LENGTHS: &[usize] = &[
    0,
    1,
    4095,
    4096,
    4097,
    REQUEST_BYTES - 1,
    REQUEST_BYTES,
    REQUEST_BYTES + 1,
    1 << 20,
    (3 << 20) + 4096 + 17,
];
/// The request size of tests with `--request-size 64K`.
pub(crate) const REQUEST_BYTES: usize = 64 << 10;

/// Waits until the journal of a running copy says that bytes are on stable storage.
pub(crate) fn wait_for_flush(folder: &Path) {
    let is_journal = |path: &PathBuf| path.extension().is_some_and(|end| end == "journal");
    let journals = || files_below(folder).into_iter().filter(is_journal);
    super::until("something is put into the journal", || {
        journals().filter_map(|path| fs::read(path).ok()).any(|journal| has_flushed(&journal))
    });
}

/// True where a journal has a record that says so.
fn has_flushed(mut journal: &[u8]) -> bool {
    const FRONT_BYTES: usize = 8;
    const FLUSHED: u8 = 4;
    while journal.len() > FRONT_BYTES {
        let length = u32::from_le_bytes(*journal.first_chunk().expect("four of more bytes"));
        if journal[FRONT_BYTES] == FLUSHED {
            return true;
        }
        journal = journal.get(FRONT_BYTES + length as usize..).unwrap_or_default();
    }
    false
}
