//! File systems of their own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::need;

/// A small file system that fills up soon.
pub(crate) struct Mount {
    folder: PathBuf,
}

impl Mount {
    pub(crate) fn small(folder: &Path) -> Mount {
        fs::create_dir_all(folder).unwrap();
        let mut mount = Command::new(need("mount", "mount"));
        let status =
            mount.args(["-t", "tmpfs", "-o", "size=4m", "tmpfs"]).arg(folder).status().unwrap();
        assert!(status.success(), "a tmpfs cannot be mounted here");
        Mount { folder: folder.to_path_buf() }
    }

    /// A merged view, as containers have, of the folder `lower` of `scratch`; new files go to
    /// others there.
    pub(crate) fn overlay(scratch: &Path) -> Mount {
        let folder = scratch.join("merged");
        let of = |name: &str| {
            fs::create_dir_all(scratch.join(name)).unwrap();
            format!("{name}dir={}", scratch.join(name).display())
        };
        let options = ["lower", "upper", "work"].map(of).join(",");
        fs::create_dir_all(&folder).unwrap();
        let mut mount = Command::new(need("mount", "mount"));
        mount.args(["-t", "overlay", "-o", &options, "overlay"]).arg(&folder);
        assert!(mount.status().unwrap().success(), "an overlay cannot be mounted here");
        Mount { folder }
    }

    pub(crate) fn enlarge(&self) {
        let mut mount = Command::new(need("mount", "mount"));
        mount.args(["-o", "remount,size=64m"]).arg(&self.folder);
        assert!(mount.status().unwrap().success());
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        Command::new("umount").arg("-l").arg(&self.folder).status().unwrap();
    }
}
