//! A WAN's own folder, and the removal of folders of killed owners.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::process::{Pid, Signal, kill_process, test_kill_process};

/// Keys and configuration, readable by the owner only; removed on drop.
#[derive(Debug)]
pub(crate) struct Folder {
    path: PathBuf,
}

impl Folder {
    pub(crate) fn new() -> io::Result<Folder> {
        let parent = std::env::temp_dir();
        let mut tried = io::Error::other("no name is free");
        for _ in 0..100 {
            // Several in one process; and a process with the same number may have left its folder.
            let count = COUNT.fetch_add(1, Ordering::Relaxed);
            let path = parent.join(format!("{PREFIX}{}-{count}", std::process::id()));
            match DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => return Ok(Folder { path }),
                Err(why) => tried = why,
            }
        }
        Err(tried)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.path).ok();
    }
}

/// Removes the folders of owners that are gone, and ends an sshd that even lost its keeper.
pub(crate) fn sweep() {
    let Ok(entries) = fs::read_dir(std::env::temp_dir()) else { return };
    for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
        let owner = path.file_name().and_then(|name| owner_of(name.to_str()?));
        let is_gone = |owner: Pid| test_kill_process(owner) == Err(rustix::io::Errno::SRCH);
        if owner.is_some_and(is_gone) {
            for side in crate::sshd::SIDES {
                if let Some(daemon) = crate::sshd::running(&path, side) {
                    kill_process(daemon, Signal::TERM).ok();
                }
            }
            fs::remove_dir_all(&path).ok();
        }
    }
}

fn owner_of(name: &str) -> Option<Pid> {
    let (owner, _) = name.strip_prefix(PREFIX)?.split_once('-')?;
    Pid::from_raw(owner.parse().ok()?)
}

static COUNT: AtomicU32 = AtomicU32::new(0);
const PREFIX: &str = "datapump-wan-";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_of_owners_that_are_gone_are_removed() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let gone = child.id();
        child.wait().unwrap();
        let left = std::env::temp_dir().join(format!("{PREFIX}{gone}-0"));
        fs::create_dir_all(left.join("bin")).unwrap();
        let own = Folder::new().unwrap();
        sweep();
        assert!(!left.exists());
        let path = own.path().to_path_buf();
        assert!(path.exists());
        drop(own);
        assert!(!path.exists());
        for name in ["datapump-wan-", "datapump-wan-x-1", "datapump-wan-0-1", "other-12-1"] {
            assert_eq!(owner_of(name), None, "{name}");
        }
    }
}
