//! Files of a round: writes, compares and finds them.

use std::fs;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Writes a file of bytes that no other has.
pub(super) fn write(path: &Path, seed: u64, bytes: u64) {
    let mut file = fs::File::create(path).unwrap();
    std::io::copy(&mut noise(seed).take(bytes), &mut file).unwrap();
}

fn noise(seed: u64) -> blake3::OutputReader {
    blake3::Hasher::new().update(&seed.to_le_bytes()).finalize_xof()
}

/// A file of islands of 64 KiB, with holes around them and at its end.
pub(super) fn write_sparse(path: &Path, islands: u64) {
    let mut file = fs::File::create(path).unwrap();
    file.set_len(islands * ISLAND_EVERY).unwrap();
    let mut bytes = vec![0; ISLAND_BYTES];
    let mut noise = noise(77);
    for island in 0..islands {
        noise.read_exact(&mut bytes).unwrap();
        file.seek(SeekFrom::Start(island * ISLAND_EVERY + (island % 13) * 4096)).unwrap();
        file.write_all(&bytes).unwrap();
    }
}

pub(super) fn same_bytes(left: &Path, right: &Path) -> bool {
    let status = Command::new("cmp").arg("-s").arg("--").arg(left).arg(right).status();
    status.is_ok_and(|status| status.success())
}

pub(super) fn mode(path: &Path) -> u32 {
    fs::metadata(path).map_or(0, |meta| meta.permissions().mode() & 0o7777)
}

/// Space that the file system has allocated to what is below a folder.
pub(super) fn stored_bytes(root: &Path) -> u64 {
    let blocks = |path: &PathBuf| fs::metadata(path).map_or(0, |meta| meta.blocks());
    below(root, false).iter().map(blocks).sum::<u64>() * 512
}

/// Files below a folder, or folders.
pub(super) fn below(root: &Path, folders: bool) -> Vec<PathBuf> {
    let (mut found, mut open) = (Vec::new(), vec![root.to_path_buf()]);
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().filter_map(Result::ok) {
            let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
            if is_folder {
                open.push(entry.path());
            }
            if is_folder == folders {
                found.push(entry.path());
            }
        }
    }
    found.sort();
    found
}

const ISLAND_BYTES: usize = 64 << 10;
const ISLAND_EVERY: u64 = 1 << 20;
