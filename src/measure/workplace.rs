//! The folder of an experiment: removed at its end. If an experiment was killed, the next one
//! removes its folder.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use tempfile::TempDir;

use base::fault::Fault;

/// Removed with its content when dropped.
#[derive(Debug)]
pub(crate) struct Workplace {
    folder: TempDir,
    /// Held as long as the folder is in use.
    _lock: File,
}

impl Workplace {
    /// Creates a folder in `parent`, after removing those that no process locks any more.
    pub(crate) fn make(parent: &Path) -> Result<Workplace, Fault> {
        remove_abandoned(parent);
        let folder = tempfile::Builder::new().prefix(FOLDER_PREFIX).tempdir_in(parent);
        let folder = folder.map_err(|error| Fault::io("make a folder in", parent, &error))?;
        let lock = lock(folder.path())
            .map_err(|error| Fault::io("lock", &folder.path().join(LOCK), &error))?;
        Ok(Workplace { folder, _lock: lock })
    }

    /// Removes it in another process: many files take many seconds, and a user who has pressed
    /// Ctrl-C does not wait for them. Without such a process it is removed here.
    pub(crate) fn leave(self) {
        let mut remove = Command::new("rm");
        remove.args(["-rf", "--"]).arg(self.path());
        remove.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        // In a group of its own, so that another Ctrl-C does not stop it.
        if remove.process_group(0).spawn().is_ok() {
            let _ = self.folder.keep();
        }
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }
}

fn lock(folder: &Path) -> std::io::Result<File> {
    let file = File::options().create(true).append(true).open(folder.join(LOCK))?;
    rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive)?;
    Ok(file)
}

fn remove_abandoned(parent: &Path) {
    let entries = fs::read_dir(parent).into_iter().flatten().flatten();
    let ours = entries
        .filter(|entry| entry.file_name().as_encoded_bytes().starts_with(FOLDER_PREFIX.as_bytes()));
    for folder in ours.map(|entry| entry.path()) {
        if folder.join(LOCK).exists() && lock(&folder).is_ok() {
            let _ = fs::remove_dir_all(&folder);
        }
    }
}

const LOCK: &str = "lock";
/// Prefix of such folders; a killed experiment leaves its own behind.
const FOLDER_PREFIX: &str = ".datapump-measure-";
