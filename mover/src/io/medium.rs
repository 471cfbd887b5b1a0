//! What locations lie on: the file system, and how much of them is in the page cache already.

use std::fs::{File, OpenOptions};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::StatFs;

use super::reach::Reach;
use super::system;
use base::job::Location;
use base::tally::About;

/// What this host reports of its end. The files of a source are looked at, those of a target not,
/// and none of a side that is limited to a folder.
pub fn about(locations: &[Location], end: TransferEnd, model: String, reach: &Reach) -> About {
    let (resident_percent, file_system) = match (reach, end) {
        (Reach::Beneath(_), _) => (None, reach.file_system().map(|status| name_of(&status))),
        (Reach::Host | Reach::Stores(_), TransferEnd::Source) => {
            (resident_percent(locations), locations.first().map(file_system))
        }
        (Reach::Host | Reach::Stores(_), TransferEnd::Target) => {
            (None, locations.first().map(file_system))
        }
    };
    let file_system = file_system.unwrap_or_default();
    About { machine: machine(), file_system, resident_percent, model, ..About::default() }
}

/// Which end of a transfer locations are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransferEnd {
    Source,
    Target,
}

/// Identifies this machine until its next boot. Nothing else can be read from it.
pub fn machine() -> String {
    let mut hasher = blake3::Hasher::new_derive_key("datapump 2026 machine");
    hasher.update(system::boot_id());
    hasher.finalize().to_hex()[..32].to_string()
}

/// The file system of a location; for a path that does not exist yet, that of its nearest folder.
pub fn file_system(location: &Location) -> String {
    let Location::Path(path) = location else {
        let made = match location {
            Location::Stdio => "pipe",
            Location::Object(_) => "s3",
            Location::Null { .. } | Location::Endless => "null",
            _ => "generated",
        };
        return made.to_string();
    };
    let Ok(path) = std::path::absolute(path) else { return String::new() };
    let found = path.ancestors().find_map(|folder| rustix::fs::statfs(folder).ok());
    found.map(|status| name_of(&status)).unwrap_or_default()
}

fn name_of(status: &StatFs) -> String {
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

/// How much of the first files of the locations is in the page cache.
fn resident_percent(locations: &[Location]) -> Option<u8> {
    let mut files = Vec::new();
    let mut looks_left = LOOKS_MAX;
    for location in locations {
        if let Location::Path(path) = location {
            find_files(path, &mut files, &mut looks_left);
        }
    }
    let (mut bytes, mut cached_bytes) = (0u64, 0u64);
    for (path, len) in &files {
        let Some(cached) = open(path).ok().and_then(|file| system::cached_bytes(file.as_fd()))
        else {
            continue;
        };
        bytes = bytes.saturating_add(*len);
        cached_bytes = cached_bytes.saturating_add(cached.min(*len));
    }
    (bytes > 0).then(|| (u128::from(cached_bytes) * 100 / u128::from(bytes)) as u8)
}

/// Regular files at or below a path, the first that are found.
fn find_files(path: &Path, files: &mut Vec<(PathBuf, u64)>, looks_left: &mut usize) {
    if files.len() >= FILES_MAX || *looks_left == 0 {
        return;
    }
    *looks_left -= 1;
    let Ok(meta) = std::fs::symlink_metadata(path) else { return };
    if meta.is_file() && meta.len() > 0 {
        files.push((path.to_path_buf(), meta.len()));
    } else if meta.is_dir() {
        let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
        for entry in entries.take(FILES_MAX) {
            find_files(&entry.path(), files, looks_left);
        }
    }
}

/// Does not block where the name is that of a pipe by now.
fn open(path: &Path) -> std::io::Result<File> {
    let flags = rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOFOLLOW;
    OpenOptions::new().read(true).custom_flags(flags.bits() as i32).open(path)
}

const FILES_MAX: usize = 64;
const LOOKS_MAX: usize = 512;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_named() {
        let cases = [
            (Location::Stdio, "pipe"),
            (Location::Null { len: 1 }, "null"),
            (Location::Zero { len: 1 }, "generated"),
        ];
        for (location, expect) in cases {
            assert_eq!(file_system(&location), expect);
        }
        let folder = tempfile::tempdir().unwrap();
        let here = file_system(&Location::Path(folder.path().to_path_buf()));
        assert!(!here.is_empty());
        let below = Location::Path(folder.path().join("not/there/yet"));
        assert_eq!(file_system(&below), here, "a new folder is where its parent is");
    }

    #[test]
    fn what_was_just_written_is_in_memory() {
        let folder = tempfile::tempdir().unwrap();
        let locations = [Location::Path(folder.path().to_path_buf())];
        let look = |model: &str| about(&locations, TransferEnd::Source, model.into(), &Reach::Host);
        assert_eq!(look("").resident_percent, None);
        std::fs::write(folder.path().join("f"), vec![1; 100_000]).unwrap();
        let about = look("{}");
        // A file system that does not report it is no failure.
        assert!(matches!(about.resident_percent, None | Some(100)), "{about:?}");
        assert_eq!((about.machine.len(), about.model.as_str()), (32, "{}"));
        assert_eq!(about.machine, machine());
    }
}
