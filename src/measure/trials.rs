//! Makes the copies of a calibration: each runs the program itself, as a user would.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{Read, Seek};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::thread;
use std::time::Duration;

use serde_json::Value;

use super::workplace::Workplace;
use crate::host::file::drop_from_cache;
use analysis::model::end_to_end::{
    EndToEndSample, LOADS, Load, Medium, Trial, TrialCopy, calibration_jobs,
};
use analysis::record::sample::{Moved, Record};
use base::fault::{Class, Fault};
use base::job::Location;
use mover::io::{clock, medium};
use mover::remote::demo::make_file;
use mover::remote::launch::own_program;

/// A calibration: where, in which order, and how often.
#[derive(Clone, Debug)]
pub(crate) struct Order {
    /// A folder on a file system in memory, and one on a disk.
    pub memory: PathBuf,
    pub disk: PathBuf,
    pub seed: u64,
    pub repeats: u32,
    /// Limit of the size of a copy.
    pub bytes_max: Option<u64>,
}

/// The default number of repeats.
pub(crate) const REPEATS: u32 = 3;

impl Order {
    /// The copies that there is room for, in the order of their execution.
    pub(crate) fn jobs(&self) -> Result<Vec<Trial>, Fault> {
        let loads = self.loads()?;
        let all = calibration_jobs(self.seed, self.repeats);
        Ok(all.into_iter().filter(|trial| loads.contains(&trial.load)).collect())
    }

    /// Makes all copies and gives each to `keep`.
    pub(crate) fn run(
        &self,
        stopping: &dyn Fn() -> bool,
        keep: &mut dyn FnMut(&TrialCopy) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let jobs = self.jobs()?;
        let mut field = Field::make(&self.memory, &self.disk, &self.loads()?, stopping)?;
        let made = make_all(&mut field, &jobs, stopping, keep);
        if stopping() {
            field.disk.leave();
        }
        made
    }

    /// All loads that are small enough and fit into both file systems.
    fn loads(&self) -> Result<Vec<Load>, Fault> {
        let bytes = |load: &Load| load.shape().bytes();
        let mut loads: Vec<Load> = LOADS.to_vec();
        loads.retain(|load| self.bytes_max.is_none_or(|most| bytes(load) <= most));
        let room = room(&self.memory)?.min(room(&self.disk)?);
        // All sources must fit, and the largest copy beside them.
        let needed = |loads: &[Load]| {
            loads.iter().map(bytes).sum::<u64>() + loads.iter().map(bytes).max().unwrap_or(0)
        };
        while !loads.is_empty() && needed(&loads) > room / 4 * 3 {
            let largest = loads.iter().map(bytes).max();
            loads.retain(|load| Some(bytes(load)) != largest);
        }
        match loads.is_empty() {
            false => Ok(loads),
            true => Err(Fault::usage(format!(
                "no trial copy fits: the smallest has 1 MiB, and '{}' and '{}' have room for {} \
                 MiB; make room, name another folder with --file, or raise --bytes",
                self.memory.display(),
                self.disk.display(),
                room >> 20
            ))),
        }
    }
}

fn make_all(
    field: &mut Field,
    jobs: &[Trial],
    stopping: &dyn Fn() -> bool,
    keep: &mut dyn FnMut(&TrialCopy) -> Result<(), Fault>,
) -> Result<(), Fault> {
    // The first copies load programs and libraries from the disk: this is no cost of a copy.
    for trial in jobs.iter().take(WARM_UPS) {
        field.run(*trial, stopping)?;
    }
    for (place, trial) in jobs.iter().enumerate() {
        let started_unix_s = clock::unix().as_secs_f64();
        let (sample, target) = field.run(*trial, stopping)?;
        keep(&TrialCopy {
            trial: *trial,
            sample,
            source: field.source(trial.source, trial.load),
            target,
            started_unix_s,
            number: place + 1,
            of: jobs.len(),
        })?;
    }
    Ok(())
}

/// Estimated duration of so many copies, with the time between them.
pub(crate) fn duration_s(copies: usize) -> f64 {
    MAKING_SOURCES_S + copies as f64 * COPY_S
}

fn room(folder: &Path) -> Result<u64, Fault> {
    let found =
        rustix::fs::statvfs(folder).map_err(|error| Fault::io("look at", folder, &error.into()))?;
    Ok(found.f_bavail * found.f_frsize)
}

const WARM_UPS: usize = 2;
const MAKING_SOURCES_S: f64 = 15.0;
const COPY_S: f64 = 1.0;

/// The folders that trials work in; both are removed at the end.
#[derive(Debug)]
pub(crate) struct Field {
    memory: Workplace,
    disk: Workplace,
    program: PathBuf,
    /// How many copies were made: each has a target of its own.
    made: u64,
}

impl Field {
    /// Creates all sources, in a folder on each medium.
    fn make(
        memory: &Path,
        disk: &Path,
        loads: &[Load],
        stopping: &dyn Fn() -> bool,
    ) -> Result<Field, Fault> {
        let (memory, disk) = (Workplace::make(memory)?, Workplace::make(disk)?);
        let field = Field { memory, disk, program: own_program()?, made: 0 };
        for medium in [Medium::Memory, Medium::Disk] {
            for load in loads {
                make_source(&field.source(medium, *load), *load, stopping)?;
            }
        }
        Ok(field)
    }

    /// Makes one copy, to a new target and with no dirty pages left.
    fn run(
        &mut self,
        trial: Trial,
        stopping: &dyn Fn() -> bool,
    ) -> Result<(EndToEndSample, PathBuf), Fault> {
        self.made += 1;
        let source = self.source(trial.source, trial.load);
        let target = self.folder(trial.sink).join(format!("target-{}", self.made));
        self.settle()?;
        if trial.cold {
            each_file(&source, &|path| drop_from_cache(path).map_err(std::io::Error::other))
                .map_err(|error| Fault::io("drop from the page cache", &source, &error))?;
        }
        let mut command = Command::new(&self.program);
        command.args(["copy", "--json", "--quiet", "--recursive"]);
        let mut to = target.clone().into_os_string();
        if trial.far {
            command.args(["--ssh", FAR_HERE, "--remote-datapump"]).arg(&self.program);
            to = OsString::from("localhost:");
            to.push(&target);
        }
        command.arg(&source).arg(to);
        // It is not a copy of the user's: not recorded, and without a prediction in its output.
        command.env("DATAPUMP_NO_RECORD", "1");
        command.env("DATAPUMP_RESULTS", self.disk.path().join("none"));
        let (status, out, words) = ended(command, stopping)?;
        let failed = || {
            let text = format!("a trial copy failed: {}", words.trim());
            Fault::new(Class::Local, text)
        };
        let _ = match trial.sink {
            Medium::Memory => remove(&target),
            Medium::Disk => empty(&target),
        };
        let line = out.lines().last().unwrap_or_default();
        let ends = [self.named(trial.source), self.named(trial.sink)];
        let sample = sample(line, trial, ends).filter(|_| status.success());
        Ok((sample.ok_or_else(failed)?, target))
    }

    fn settle(&self) -> Result<(), Fault> {
        let disk = self.disk.path();
        let folder = File::open(disk).map_err(|error| Fault::io("open", disk, &error))?;
        rustix::fs::syncfs(&folder).map_err(|errno| Fault::io("sync", disk, &errno.into()))
    }

    fn folder(&self, medium: Medium) -> &Path {
        match medium {
            Medium::Memory => self.memory.path(),
            Medium::Disk => self.disk.path(),
        }
    }

    fn source(&self, medium: Medium, load: Load) -> PathBuf {
        self.folder(medium).join(format!("source-{}-{}", load.files, load.file_bytes))
    }

    /// The file system of a medium.
    fn named(&self, medium: Medium) -> String {
        medium::file_system(&Location::Path(self.folder(medium).to_path_buf()))
    }
}

/// Runs a program to its end, or stops it: its status and its output.
fn ended(
    mut command: Command,
    stopping: &dyn Fn() -> bool,
) -> Result<(ExitStatus, String, String), Fault> {
    let system = |error: std::io::Error| Fault::system("start a copy", &error);
    // Files, not pipes, since nothing reads while it runs.
    let (mut out, mut words) =
        (tempfile::tempfile().map_err(system)?, tempfile::tempfile().map_err(system)?);
    command.stdin(Stdio::null());
    command.stdout(out.try_clone().map_err(system)?).stderr(words.try_clone().map_err(system)?);
    let mut child = command.spawn().map_err(system)?;
    let status = loop {
        if let Some(status) = child.try_wait().map_err(system)? {
            break status;
        }
        if stopping() {
            let _ = child.kill();
            let _ = child.wait();
            return Err(Fault::interrupted());
        }
        thread::sleep(LOOK_EVERY);
    };
    if stopping() {
        return Err(Fault::interrupted());
    }
    let text = |file: &mut File| {
        let mut bytes = Vec::new();
        file.rewind()?;
        file.read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    let out = text(&mut out).map_err(system)?;
    Ok((status, out, text(&mut words).map_err(system)?))
}

/// Polling so often has no measurable cost for a copy.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Stands for `ssh`: a far side on this host, without a login. The host becomes `$0`.
const FAR_HERE: &str = r#"sh -c 'eval "exec $1"'"#;

/// The last line of a copy's `--json`, as a sample.
pub fn sample(line: &str, trial: Trial, [source, sink]: [String; 2]) -> Option<EndToEndSample> {
    let end: Value = serde_json::from_str(line).ok()?;
    let record: Record = serde_json::from_value(end.get("record")?.clone()).ok()?;
    let shape = trial.load.shape();
    let Moved { bytes, files, elapsed_s, .. } = record.moved;
    (bytes == shape.bytes() && files == shape.files).then_some(())?;
    Some(EndToEndSample {
        carrier: record.conditions.carrier,
        source,
        sink,
        cold: trial.cold,
        streams: record.options.streams,
        files: shape.files,
        small_bytes: shape.small_bytes,
        large_bytes: shape.large_bytes,
        login_s: record.remote.map_or(0.0, |remote| remote.login_s),
        elapsed_s,
        cpu_source_s: record.source.cpu_s(),
        cpu_sink_s: record.sink.map_or(0.0, |sink| sink.cpu_s()),
    })
}

/// One file, or a folder with a hundred files in each folder below it.
fn make_source(path: &Path, load: Load, stopping: &dyn Fn() -> bool) -> Result<(), Fault> {
    if stopping() {
        return Err(Fault::interrupted());
    }
    if load.files == 1 {
        return make_file(path, 0, load.file_bytes);
    }
    for number in 0..load.files {
        if stopping() {
            return Err(Fault::interrupted());
        }
        let folder = path.join(format!("{:04}", number / 100));
        if number % 100 == 0 {
            fs::create_dir_all(&folder)
                .map_err(|error| Fault::io("make the folder", &folder, &error))?;
        }
        make_file(&folder.join(number.to_string()), number, load.file_bytes)?;
    }
    Ok(())
}

/// A copy that was made: a file or a folder.
fn remove(path: &Path) -> std::io::Result<()> {
    match fs::symlink_metadata(path) {
        Err(_) => Ok(()),
        Ok(meta) if meta.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
    }
}

/// Frees the space of a copy but keeps its files, empty. Whenever it creates a file, ext4 skips the
/// inode numbers of files removed in the last minutes, one by one: after a few thousand removals a
/// new file costs a millisecond of CPU instead of a tenth.
fn empty(path: &Path) -> std::io::Result<()> {
    each_file(path, &|path| File::options().write(true).open(path)?.set_len(0))
}

fn each_file(path: &Path, act: &dyn Fn(&Path) -> std::io::Result<()>) -> std::io::Result<()> {
    if !path.is_dir() {
        return act(path);
    }
    for entry in fs::read_dir(path)? {
        each_file(&entry?.path(), act)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use analysis::record::sample::Side;

    #[test]
    fn the_last_line_of_a_copy_is_read_with_care() {
        let trial = calibration_jobs(1, 1)[0];
        let shape = trial.load.shape();
        let ends = || ["tmpfs".to_string(), "ext4".to_string()];
        let side = |cpu_user_s, cpu_system_s| Side { cpu_user_s, cpu_system_s, ..Side::default() };
        let record = Record {
            moved: Moved {
                bytes: shape.bytes(),
                files: shape.files,
                elapsed_s: 1.5,
                ..Moved::default()
            },
            source: side(1.0, 2.0),
            sink: Some(side(3.0, 4.0)),
            ..Record::default()
        };
        let good = format!("{{\"record\":{}}}", serde_json::to_string(&record).unwrap());
        let got = sample(&good, trial, ends()).unwrap();
        assert_eq!((got.cpu_source_s, got.cpu_sink_s, got.elapsed_s), (3.0, 7.0, 1.5));
        for odd in ["", "{}", "null", r#"{"record":null}"#, &good.replace("\"files\":", "\"f\":")] {
            assert_eq!(sample(odd, trial, ends()), None, "{odd}");
        }
    }
}
