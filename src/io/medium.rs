//! What places lie on: which file system, and how much of them is in the page cache already.

use std::fs::{File, OpenOptions};
use std::io::IoSliceMut;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::io::ReadWriteFlags;

use super::system;
use crate::base::job::Place;
use crate::base::tally::About;

/// What this host says of an end that it has. `sources` are looked into, a target is not.
pub fn about(places: &[Place], end: End, model: String) -> About {
    let resident_percent = match end {
        End::Source => resident_percent(places),
        End::Target => None,
    };
    let file_system = places.first().map(file_system).unwrap_or_default();
    About { machine: machine(), file_system, resident_percent, model }
}

/// Which end of a transfer places are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Source,
    Target,
}

/// What this machine is known by until it is started again. Nothing else can be read from it.
pub fn machine() -> String {
    let mut hasher = blake3::Hasher::new_derive_key("datapump 2026 machine");
    hasher.update(system::boot_id());
    hasher.finalize().to_hex()[..32].to_string()
}

/// The name of the file system that a place is in; of a path that is not there yet, its nearest
/// folder's.
pub fn file_system(place: &Place) -> String {
    let Place::Path(path) = place else {
        let made = match place {
            Place::Stdio => "pipe",
            Place::Null { .. } => "null",
            _ => "made",
        };
        return made.to_string();
    };
    let Ok(path) = std::path::absolute(path) else { return String::new() };
    let found = path.ancestors().find_map(|folder| rustix::fs::statfs(folder).ok());
    let Some(status) = found else { return String::new() };
    let magic = status.f_type as u64 & 0xffff_ffff;
    match FILE_SYSTEMS.iter().find(|(known, _)| *known == magic) {
        Some((_, name)) => (*name).to_string(),
        None => format!("{magic:x}"),
    }
}

/// Numbers of `statfs(2)`.
const FILE_SYSTEMS: &[(u64, &str)] = &[
    (0x0102_1994, "tmpfs"),
    (0x8584_58f6, "ramfs"),
    (0xef53, "ext4"),
    (0x5846_5342, "xfs"),
    (0x9123_683e, "btrfs"),
    (0x2fc1_2fc1, "zfs"),
    (0xf2f5_2010, "f2fs"),
    (0x794c_7630, "overlay"),
    (0x6969, "nfs"),
    (0xff53_4d42, "cifs"),
    (0x6573_5546, "fuse"),
];

/// How much of some places in their files is in the page cache. A read that may not wait brings
/// nothing into it.
fn resident_percent(places: &[Place]) -> Option<u8> {
    let mut files = Vec::new();
    let mut looks_left = LOOKS_MAX;
    for place in places {
        if let Place::Path(path) = place {
            find_files(path, &mut files, &mut looks_left);
        }
    }
    let probes_each = (PROBES / files.len().max(1)).max(1) as u64;
    let (mut seen, mut there) = (0u32, 0u32);
    for (path, len) in &files {
        let Ok(file) = open(path) else { continue };
        for probe in 0..probes_each {
            let found = is_resident(&file, len / probes_each * probe);
            seen += u32::from(found.is_some());
            there += u32::from(found == Some(true));
        }
    }
    (seen > 0).then(|| (there * 100 / seen) as u8)
}

/// Regular files at or below a path, the first that are found.
fn find_files(path: &Path, files: &mut Vec<(PathBuf, u64)>, looks_left: &mut usize) {
    if files.len() >= PROBES || *looks_left == 0 {
        return;
    }
    *looks_left -= 1;
    let Ok(meta) = std::fs::symlink_metadata(path) else { return };
    if meta.is_file() && meta.len() > 0 {
        files.push((path.to_path_buf(), meta.len()));
    } else if meta.is_dir() {
        let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
        for entry in entries.take(PROBES) {
            find_files(&entry.path(), files, looks_left);
        }
    }
}

/// Does not wait where the name has become that of a pipe.
fn open(path: &Path) -> std::io::Result<File> {
    let flags = rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOFOLLOW;
    OpenOptions::new().read(true).custom_flags(flags.bits() as i32).open(path)
}

/// `None` where the file system does not say.
fn is_resident(file: &File, offset: u64) -> Option<bool> {
    let mut byte = [0];
    let mut into = [IoSliceMut::new(&mut byte)];
    match rustix::io::preadv2(file, &mut into, offset, ReadWriteFlags::NOWAIT) {
        Ok(_) => Some(true),
        Err(rustix::io::Errno::AGAIN) => Some(false),
        Err(_) => None,
    }
}

const PROBES: usize = 64;
const LOOKS_MAX: usize = 512;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_named() {
        let cases = [
            (Place::Stdio, "pipe"),
            (Place::Null { len: 1 }, "null"),
            (Place::Zero { len: 1 }, "made"),
        ];
        for (place, expect) in cases {
            assert_eq!(file_system(&place), expect);
        }
        let folder = tempfile::tempdir().unwrap();
        let here = file_system(&Place::Path(folder.path().to_path_buf()));
        assert!(!here.is_empty());
        let below = Place::Path(folder.path().join("not/there/yet"));
        assert_eq!(file_system(&below), here, "a new folder is where its parent is");
    }

    #[test]
    fn what_was_just_written_is_in_memory() {
        let folder = tempfile::tempdir().unwrap();
        let places = [Place::Path(folder.path().to_path_buf())];
        assert_eq!(about(&places, End::Source, String::new()).resident_percent, None);
        std::fs::write(folder.path().join("f"), vec![1; 100_000]).unwrap();
        let about = about(&places, End::Source, "{}".into());
        // A file system that never says is no failure.
        assert!(matches!(about.resident_percent, None | Some(100)), "{about:?}");
        assert_eq!((about.machine.len(), about.model.as_str()), (32, "{}"));
        assert_eq!(about.machine, machine());
    }
}
