//! A folder that an experiment works in: it goes with the experiment, and what one that was killed
//! has left goes with the next.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use tempfile::TempDir;

use base::fault::Fault;

/// Removed with all that is in it when it is dropped.
#[derive(Debug)]
pub(crate) struct Workplace {
    folder: TempDir,
    /// Held as long as the folder is in use.
    _lock: File,
}

impl Workplace {
    /// Makes a folder in another, after removing those that nobody holds any more.
    pub(crate) fn make(parent: &Path) -> Result<Workplace, Fault> {
        remove_abandoned(parent);
        let folder = tempfile::Builder::new().prefix(FOLDER_PREFIX).tempdir_in(parent);
        let folder = folder.map_err(|error| Fault::io("make a folder in", parent, &error))?;
        let lock = lock(folder.path())
            .map_err(|error| Fault::io("lock", &folder.path().join(LOCK), &error))?;
        Ok(Workplace { folder, _lock: lock })
    }

    /// Has it removed while this program ends: many files take many seconds, and whoever has
    /// pressed Ctrl-C does not wait for them. What cannot be begun is done here.
    pub(crate) fn leave(self) {
        let mut remove = Command::new("rm");
        remove.args(["-rf", "--"]).arg(self.path());
        remove.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        // Another Ctrl-C is not meant for it.
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
/// What a folder of an experiment is called; one that was killed leaves its own behind.
const FOLDER_PREFIX: &str = ".datapump-measure-";
