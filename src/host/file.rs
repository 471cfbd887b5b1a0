//! The state of a file on its host: its share of the page cache, and its file system.

use std::fs::File;
use std::io::ErrorKind;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use base::fault::reason;
use mover::io::system;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FileState {
    /// `None` where there is no file yet.
    pub len_bytes: Option<u64>,
    /// The share of it that is in the page cache, where that is known.
    pub resident: Option<f64>,
    pub file_system: String,
    pub mount_options: String,
}

impl FileState {
    pub(crate) fn is_in_memory(&self) -> bool {
        matches!(self.file_system.as_str(), "tmpfs" | "ramfs")
    }
}

/// The state of a path; of a file that does not exist yet, of the place where it would be.
pub fn state(path: &Path) -> Result<FileState, String> {
    let file = File::open(path).ok();
    let length = file.as_ref().and_then(|file| Some(file.metadata().ok()?.len()));
    let cached = file.as_ref().and_then(|file| system::cached_bytes(file.as_fd()));
    let resident = match (cached, length) {
        (Some(cached), Some(length @ 1..)) => Some((cached as f64 / length as f64).min(1.0)),
        _ => None,
    };
    let real = real_folder(path)?;
    let mounts = std::fs::read("/proc/self/mountinfo").unwrap_or_default();
    let (file_system, mount_options) =
        mount_of(&String::from_utf8_lossy(&mounts), &real).unwrap_or_default();
    Ok(FileState { len_bytes: length, resident, file_system, mount_options })
}

/// Writes a file back and drops it from the page cache: the next read is from the disk.
pub fn drop_from_cache(path: &Path) -> Result<(), String> {
    let failed = |doing: &str, why: &dyn std::fmt::Display| {
        format!("cannot {doing} '{}': {why}", path.display())
    };
    let file = File::open(path).map_err(|why| failed("open", &why))?;
    // Dirty pages would stay in the cache.
    file.sync_all().map_err(|why| failed("sync", &why))?;
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)
        .map_err(|why| failed("drop from the page cache", &why))
}

/// The device of a path, as `major:minor`: for a partition the whole disk; each file system in
/// memory has a number of its own.
pub fn device(path: &Path) -> Option<String> {
    let number = rustix::fs::stat(path).ok()?.st_dev;
    let number = format!("{}:{}", rustix::fs::major(number), rustix::fs::minor(number));
    let block = Path::new("/sys/dev/block").join(&number);
    let whole = || std::fs::read_to_string(block.join("../dev")).ok();
    match block.join("partition").exists() {
        true => whole().map(|text| text.trim().to_string()),
        false => Some(number),
    }
}

/// Removes a file; a missing file is no error.
pub(crate) fn remove_if_there(path: &Path) -> Result<(), String> {
    match std::fs::remove_file(path) {
        Err(why) if why.kind() != ErrorKind::NotFound => {
            Err(format!("cannot remove '{}': {why}", path.display()))
        }
        _ => Ok(()),
    }
}

/// The path with its links resolved, or that of the nearest folder above it that exists.
fn real_folder(path: &Path) -> Result<PathBuf, String> {
    let whole = std::path::absolute(path)
        .map_err(|why| format!("cannot find '{}': {}", path.display(), reason(&why)))?;
    let there = whole.ancestors().find_map(|folder| folder.canonicalize().ok());
    there.ok_or_else(|| format!("cannot find '{}': no folder above it exists", path.display()))
}

/// File system and options of the mount that a path lies in, in the text of `/proc/self/mountinfo`:
/// `id parent device root folder options … - kind source options`. Of several mounts on one folder
/// the last counts.
pub(crate) fn mount_of(mountinfo: &str, path: &Path) -> Option<(String, String)> {
    let of = |line: &str| {
        let (front, back) = line.split_once(" - ")?;
        let front: Vec<&str> = front.split(' ').collect();
        let back: Vec<&str> = back.split(' ').collect();
        let folder = unescaped(front.get(4)?);
        let depth = path.starts_with(&folder).then(|| Path::new(&folder).components().count())?;
        let own = front.get(5)?;
        let options = match back.get(2) {
            // Those of the mount are in front of those of the file system; some are in both.
            Some(options) => {
                let more = options.split(',').filter(|word| !own.split(',').any(|o| o == *word));
                [*own].into_iter().chain(more).collect::<Vec<_>>().join(",")
            }
            None => (*own).to_string(),
        };
        Some((depth, ((*back.first()?).to_string(), options)))
    };
    let found = mountinfo.lines().filter_map(of).max_by_key(|(depth, _)| *depth);
    found.map(|(_, mount)| mount)
}

/// The kernel writes spaces and other special characters as `\040` there.
fn unescaped(word: &str) -> String {
    let mut parts = word.split('\\');
    let mut text = parts.next().unwrap_or_default().to_string();
    for part in parts {
        let code = part.get(..3).and_then(|code| u8::from_str_radix(code, 8).ok());
        match code {
            Some(code) => {
                text.push(char::from(code));
                text.push_str(&part[3..]);
            }
            None => {
                text.push('\\');
                text.push_str(part);
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_found() {
        let text = "27 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard\n\
                    30 27 0:30 / /data rw,noatime shared:1 - xfs /dev/vdb rw,attr2\n\
                    31 27 0:31 / /data\\040two ro - tmpfs tmpfs rw,size=1k\n\
                    32 27 0:32 / /data rw - tmpfs tmpfs\n\
                    broken line\n- \n";
        let cases = [
            ("/srv/x", Some(("ext4", "rw,relatime,discard"))),
            ("/data/x", Some(("tmpfs", "rw"))),
            ("/data two/x", Some(("tmpfs", "ro,rw,size=1k"))),
            ("/database", Some(("ext4", "rw,relatime,discard"))),
        ];
        for (path, expect) in cases {
            let got = mount_of(text, Path::new(path));
            let got = got.as_ref().map(|(kind, options)| (kind.as_str(), options.as_str()));
            assert_eq!(got, expect, "{path}");
        }
        assert_eq!(mount_of("", Path::new("/")), None);
    }

    #[test]
    fn devices_are_told_apart() {
        let shm = device(Path::new("/dev/shm")).unwrap();
        assert_eq!(device(Path::new("/dev/shm/.")).as_ref(), Some(&shm));
        assert_ne!(device(Path::new("/proc")), Some(shm));
        assert_eq!(device(Path::new("/no/such")), None);
    }

    #[test]
    fn a_file_is_warm_after_writing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let absent = state(&path).unwrap();
        assert_eq!((absent.len_bytes, absent.resident), (None, None));
        assert!(!absent.file_system.is_empty());
        std::fs::write(&path, vec![1; 1 << 20]).unwrap();
        let warm = state(&path).unwrap();
        assert_eq!(warm.len_bytes, Some(1 << 20));
        // Kernels before 6.5 have no cachestat.
        assert!(warm.resident.is_none_or(|share| share > 0.9), "{warm:?}");
        drop_from_cache(&path).unwrap();
    }
}
