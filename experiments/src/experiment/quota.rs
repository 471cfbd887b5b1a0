//! A control group whose processes get a share of CPU time and, where that is wanted, of what a
//! disk reads; of either version of the kernel's.

use std::cell::Cell;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

#[derive(Debug)]
pub(super) struct Quota {
    /// The first version has one for each controller.
    groups: Vec<PathBuf>,
    /// Of the scripts that begin in the group.
    folder: tempfile::TempDir,
    scripts: Cell<u32>,
}

impl Quota {
    /// Of CPU time.
    pub(super) fn new() -> Result<Quota, String> {
        Quota::of(&["cpu"])
    }

    /// Of CPU time, and of what a disk reads.
    pub(super) fn with_disk() -> Result<Quota, String> {
        Quota::of(&["cpu", "blkio"])
    }

    fn of(controllers: &[&str]) -> Result<Quota, String> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let told = |why: std::io::Error| format!("a control group: {why}");
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let name = format!("datapump-experiment-{}-{number}", std::process::id());
        let root = Path::new("/sys/fs/cgroup");
        let groups: Vec<PathBuf> = match root.join("cpu").exists() {
            true => controllers.iter().map(|one| root.join(one).join(&name)).collect(),
            false => vec![root.join(name)],
        };
        let folder = tempfile::tempdir().map_err(told)?;
        let mut quota = Quota { groups: Vec::new(), folder, scripts: Cell::new(0) };
        // One that cannot be made does not leave the others behind.
        for group in groups {
            fs::create_dir(&group).map_err(told)?;
            quota.groups.push(group);
        }
        Ok(quota)
    }

    /// What stands for a program: it begins in the group, and so does all that it starts.
    pub(super) fn runs(&self, program: &Path) -> Result<PathBuf, String> {
        let told = |why: std::io::Error| format!("a script for a control group: {why}");
        self.scripts.set(self.scripts.get() + 1);
        let script = self.folder.path().join(format!("within-{}", self.scripts.get()));
        let join = |group: &PathBuf| format!("echo $$ > {}/cgroup.procs\n", group.display());
        let joins: String = self.groups.iter().map(join).collect();
        let text = format!("#!/bin/sh\n{joins}exec {} \"$@\"\n", program.display());
        fs::write(&script, text).map_err(told)?;
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).map_err(told)?;
        Ok(script)
    }

    /// A share of one CPU in percent; `None` is all there are.
    pub(super) fn allow(&self, percent: Option<f64>) -> Result<(), String> {
        let period = f64::from(PERIOD_US);
        let quota = percent.map(|percent| ((percent / 100.0 * period) as u32).max(QUOTA_US_MIN));
        let text = |all: &str| quota.map_or(all.to_string(), |quota| quota.to_string());
        match self.file("cpu.cfs_quota_us") {
            Some(first) => {
                write(&first.with_file_name("cpu.cfs_period_us"), &PERIOD_US.to_string())?;
                write(&first, &text("-1"))
            }
            None => write(&self.groups[0].join("cpu.max"), &format!("{} {PERIOD_US}", text("max"))),
        }
    }

    /// So many bytes a second of the disk that this file is on.
    pub(super) fn allow_reads(&self, file: &Path, bytes_per_s: u64) -> Result<(), String> {
        let disk = disk_of(file).map_err(|why| format!("{}: {why}", file.display()))?;
        match self.file("blkio.throttle.read_bps_device") {
            Some(first) => write(&first, &format!("{disk} {bytes_per_s}")),
            None => write(&self.groups[0].join("io.max"), &format!("{disk} rbps={bytes_per_s}")),
        }
    }

    fn file(&self, name: &str) -> Option<PathBuf> {
        self.groups.iter().map(|group| group.join(name)).find(|file| file.exists())
    }
}

fn write(file: &Path, text: &str) -> Result<(), String> {
    fs::write(file, text).map_err(|why| format!("{}: {why}", file.display()))
}

/// The numbers of the whole disk: a partition cannot be limited.
fn disk_of(file: &Path) -> std::io::Result<String> {
    let device = fs::metadata(file)?.dev();
    let numbers = format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
    let known = Path::new("/sys/dev/block").join(&numbers).canonicalize()?;
    match known.join("partition").exists() {
        true => fs::read_to_string(known.with_file_name("dev")).map(|text| text.trim().to_string()),
        false => Ok(numbers),
    }
}

impl Drop for Quota {
    fn drop(&mut self) {
        self.groups.iter().for_each(|group| drop(fs::remove_dir(group)));
    }
}

/// Quotas are handed out in slices of 5 ms, and what is left of one at a processor that has nothing
/// to do may be lost: many of them must be in a period.
const PERIOD_US: u32 = 200_000;
/// No kernel takes less: two per cent of the period.
const QUOTA_US_MIN: u32 = 1000;
