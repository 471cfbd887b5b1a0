//! A control group whose processes get a share of CPU time, of either version of the kernel's.

use std::cell::Cell;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

#[derive(Debug)]
pub struct Quota {
    group: PathBuf,
    /// Of the scripts that begin in the group.
    folder: tempfile::TempDir,
    scripts: Cell<u32>,
}

impl Quota {
    pub fn new() -> Result<Quota, String> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let told = |why: std::io::Error| format!("a control group for CPU time: {why}");
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let name = format!("datapump-experiment-{}-{number}", std::process::id());
        let first = Path::new("/sys/fs/cgroup/cpu");
        let group = match first.exists() {
            true => first.join(name),
            false => Path::new("/sys/fs/cgroup").join(name),
        };
        fs::create_dir(&group).map_err(told)?;
        let folder = tempfile::tempdir().map_err(told)?;
        Ok(Quota { group, folder, scripts: Cell::new(0) })
    }

    /// What stands for a program: it begins in the group, and so does all that it starts.
    pub fn runs(&self, program: &Path) -> Result<PathBuf, String> {
        let told = |why: std::io::Error| format!("a script for a control group: {why}");
        self.scripts.set(self.scripts.get() + 1);
        let script = self.folder.path().join(format!("within-{}", self.scripts.get()));
        let procs = self.group.join("cgroup.procs");
        let (procs, program) = (procs.display(), program.display());
        let text = format!("#!/bin/sh\necho $$ > {procs}\nexec {program} \"$@\"\n");
        fs::write(&script, text).map_err(told)?;
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).map_err(told)?;
        Ok(script)
    }

    /// A share of one CPU in percent; `None` is all there are.
    pub fn allow(&self, percent: Option<f64>) -> Result<(), String> {
        let period = f64::from(PERIOD_US);
        let quota = percent.map(|percent| ((percent / 100.0 * period) as u32).max(QUOTA_US_MIN));
        let first = self.group.join("cpu.cfs_quota_us");
        let (file, text) = match (first.exists(), quota) {
            (true, Some(quota)) => (first, quota.to_string()),
            (true, None) => (first, "-1".to_string()),
            (false, Some(quota)) => (self.group.join("cpu.max"), format!("{quota} {PERIOD_US}")),
            (false, None) => (self.group.join("cpu.max"), format!("max {PERIOD_US}")),
        };
        if self.group.join("cpu.cfs_period_us").exists() {
            fs::write(self.group.join("cpu.cfs_period_us"), PERIOD_US.to_string())
                .map_err(|why| format!("cpu.cfs_period_us: {why}"))?;
        }
        fs::write(&file, text).map_err(|why| format!("{}: {why}", file.display()))
    }
}

impl Drop for Quota {
    fn drop(&mut self) {
        fs::remove_dir(&self.group).ok();
    }
}

const PERIOD_US: u32 = 50_000;
/// No kernel takes less: two per cent of the period.
const QUOTA_US_MIN: u32 = 1000;
