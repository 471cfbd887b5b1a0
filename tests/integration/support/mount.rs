//! File systems that a test has for itself.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{need, until_some};

/// A folder where something is mounted, until this is dropped.
pub(crate) struct Mount {
    pub at: PathBuf,
}

impl Mount {
    pub(crate) fn tmpfs(at: &Path, options: &str) -> Mount {
        Mount::new(at, &["-t", "tmpfs", "-o", options], Path::new("tmpfs"))
    }

    /// A small file system that fills up soon.
    pub(crate) fn small(at: &Path) -> Mount {
        Mount::tmpfs(at, "size=4m")
    }

    /// A merged view, as containers have, of the folder `lower` of `scratch`; new files go to
    /// others there.
    pub(crate) fn overlay(scratch: &Path) -> Mount {
        let of = |name: &str| {
            fs::create_dir_all(scratch.join(name)).unwrap();
            format!("{name}dir={}", scratch.join(name).display())
        };
        let options = ["lower", "upper", "work"].map(of).join(",");
        let words = ["-t", "overlay", "-o", &options];
        Mount::new(&scratch.join("merged"), &words, Path::new("overlay"))
    }

    pub(crate) fn new(at: &Path, words: &[&str], what: &Path) -> Mount {
        Mount::attempt(at, words, what).unwrap_or_else(|why| panic!("no mount: {why}"))
    }

    pub(crate) fn attempt(at: &Path, words: &[&str], what: &Path) -> Result<Mount, String> {
        fs::create_dir_all(at).unwrap();
        let mut mount = Command::new(need("mount", "mount"));
        let output = mount.args(words).arg(what).arg(at).output().unwrap();
        match output.status.success() {
            true => Ok(Mount { at: at.to_path_buf() }),
            false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
        }
    }

    /// What another program has mounted here, or is about to.
    pub(crate) fn by_another(at: PathBuf) -> Mount {
        until_some("it is mounted", || Mount::found(at.clone()))
    }

    /// What is mounted here, if anything is.
    pub(crate) fn found(at: PathBuf) -> Option<Mount> {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        mounts.contains(&format!(" {} ", at.display())).then(|| Mount { at })
    }

    /// Changes what the mount allows.
    pub(crate) fn again(&self, options: &str) {
        let mut mount = Command::new(need("mount", "mount"));
        let status = mount.args(["-o", &format!("remount,{options}")]).arg(&self.at).status();
        assert!(status.unwrap().success(), "not mounted again with {options}");
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // What a program has in memory is written by it first.
        let done = Command::new("umount").arg(&self.at).output();
        if !done.is_ok_and(|done| done.status.success()) {
            let _ = Command::new("umount").arg("-l").arg(&self.at).status();
        }
    }
}
