//! The hash that ties docs/WIRE.md to mover/src/wire: `tests/tidy.rs` compares it, and
//! `cargo xtask wire-hash` prints it.

/// BLAKE3 of the files of mover/src/wire, concatenated in name order. Files that hold only tests
/// do not count.
pub(crate) fn wire_hash(mut files: Vec<(String, String)>) -> String {
    files.retain(|(name, _)| name.ends_with(".rs") && !name.ends_with("tests.rs"));
    files.sort();
    let mut hasher = blake3::Hasher::new();
    for (_, text) in &files {
        hasher.update(text.as_bytes());
    }
    hasher.finalize().to_hex().to_string()
}
