//! A control group with a limit on CPU time and, optionally, on a disk; for both versions of the
//! kernel's control groups.

use std::cell::Cell;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

#[derive(Debug)]
pub(crate) struct Quota {
    /// Version 1 has a group for each controller.
    groups: Vec<PathBuf>,
    /// For the scripts that start in the group.
    folder: tempfile::TempDir,
    scripts: Cell<u32>,
}

impl Quota {
    /// Limits CPU time.
    pub(crate) fn new() -> Result<Quota, String> {
        Quota::of(&["cpu"])
    }

    /// Limits CPU time and a disk.
    pub(crate) fn with_disk() -> Result<Quota, String> {
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
        // If one cannot be made, the others are still removed.
        for group in groups {
            fs::create_dir(&group).map_err(told)?;
            quota.groups.push(group);
        }
        Ok(quota)
    }

    /// A script in place of a program: the program and its children run in the group.
    pub(crate) fn runs(&self, program: &Path) -> Result<PathBuf, String> {
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

    /// A share of one CPU in percent; `None` is no limit.
    pub(crate) fn allow(&self, percent: Option<f64>) -> Result<(), String> {
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

    /// A limit in bytes a second, each way, for the disk that this file or folder is on. Only
    /// direct writes are held to it by version 1.
    pub(crate) fn allow_disk(&self, file: &Path, bytes_per_s: u64) -> Result<(), String> {
        let disk = disk_of(file).map_err(|why| format!("{}: {why}", file.display()))?;
        match self.file("blkio.throttle.read_bps_device") {
            Some(first) => {
                write(&first, &format!("{disk} {bytes_per_s}"))?;
                let writes = first.with_file_name("blkio.throttle.write_bps_device");
                write(&writes, &format!("{disk} {bytes_per_s}"))
            }
            None => {
                let limits = format!("{disk} rbps={bytes_per_s} wbps={bytes_per_s}");
                write(&self.groups[0].join("io.max"), &limits)
            }
        }
    }

    fn file(&self, name: &str) -> Option<PathBuf> {
        self.groups.iter().map(|group| group.join(name)).find(|file| file.exists())
    }
}

fn write(file: &Path, text: &str) -> Result<(), String> {
    fs::write(file, text).map_err(|why| format!("{}: {why}", file.display()))
}

/// The device number of the whole disk: a partition cannot be limited.
fn disk_of(file: &Path) -> std::io::Result<String> {
    let device = fs::metadata(file)?.dev();
    let numbers = format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
    let known = Path::new("/sys/dev/block").join(&numbers);
    let known = known.canonicalize().map_err(|_| std::io::Error::other("it is on no disk"))?;
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

/// The kernel assigns quotas in slices of 5 ms, and the rest of a slice on an idle CPU may be lost:
/// a period must have many slices.
const PERIOD_US: u32 = 200_000;
/// The kernel's minimum; 0.5 % of the period.
const QUOTA_US_MIN: u32 = 1000;
