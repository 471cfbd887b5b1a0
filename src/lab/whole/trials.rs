//! Makes the copies of a calibration: each is the program itself, run as people run it.

use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use super::{Ground, LOADS, Load, Trial, WholeSample, calibration_jobs};
use crate::base::fault::{Class, Fault};
use crate::base::job::Place;
use crate::io::medium;
use crate::lab::file::drop_from_cache;
use crate::remote::demo::make_file;
use crate::remote::launch::own_program;

/// A calibration: where, in which order, and how often.
#[derive(Clone, Debug)]
pub struct Order {
    /// A folder on a file system in memory, and one on a disk.
    pub memory: PathBuf,
    pub disk: PathBuf,
    pub seed: u64,
    pub repeats: u32,
}

/// How often each copy is made unless something else is said.
pub const REPEATS: u32 = 3;

impl Order {
    /// Makes all copies. `told` hears how many of how many are made.
    pub fn run(
        &self,
        stopping: &dyn Fn() -> bool,
        told: &mut dyn FnMut(usize, usize),
    ) -> Result<Vec<WholeSample>, Fault> {
        let field = Field::make(&self.memory, &self.disk, stopping)?;
        let jobs = calibration_jobs(self.seed, self.repeats);
        // What the first copies meet cold, as programs and libraries, is nobody's cost.
        for trial in jobs.iter().take(WARM_UPS) {
            field.run(*trial)?;
        }
        let mut samples = Vec::with_capacity(jobs.len());
        for (number, trial) in jobs.iter().enumerate() {
            if stopping() {
                return Err(Fault::interrupted());
            }
            samples.push(field.run(*trial)?);
            told(number + 1, jobs.len());
        }
        Ok(samples)
    }
}

const WARM_UPS: usize = 2;

/// Samples as a table, and back.
pub fn to_csv(samples: &[WholeSample]) -> String {
    let mut writer = csv::Writer::from_writer(Vec::new());
    for sample in samples {
        writer.serialize(sample).expect("numbers and names fit into a table in memory");
    }
    let bytes = writer.into_inner().expect("memory takes all bytes");
    String::from_utf8(bytes).expect("numbers and names are UTF-8")
}

pub fn from_csv(text: &str) -> Result<Vec<WholeSample>, String> {
    let rows = csv::Reader::from_reader(text.as_bytes()).into_deserialize();
    rows.map(|row| row.map_err(|why| format!("not a sample of a copy: {why}"))).collect()
}

/// The folders that trials work in; both are emptied at the end.
#[derive(Debug)]
pub struct Field {
    memory: tempfile::TempDir,
    disk: tempfile::TempDir,
    program: PathBuf,
}

impl Field {
    /// Makes all sources, in a folder of each kind.
    pub fn make(memory: &Path, disk: &Path, stopping: &dyn Fn() -> bool) -> Result<Field, Fault> {
        let folder = |parent: &Path| {
            fs::create_dir_all(parent)
                .and_then(|()| {
                    tempfile::Builder::new().prefix("datapump-whole-").tempdir_in(parent)
                })
                .map_err(|error| Fault::io("make a folder in", parent, &error))
        };
        let field = Field { memory: folder(memory)?, disk: folder(disk)?, program: own_program()? };
        for ground in [Ground::Memory, Ground::Disk] {
            for load in LOADS {
                if stopping() {
                    return Err(Fault::interrupted());
                }
                let path = field.source(ground, *load);
                make_source(&path, *load)?;
            }
        }
        Ok(field)
    }

    /// Makes one copy, on empty ground and with nothing left to be written out.
    pub fn run(&self, trial: Trial) -> Result<WholeSample, Fault> {
        let source = self.source(trial.source, trial.load);
        let target = self.folder(trial.sink).join("target");
        self.settle(&target)?;
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
        // What is copied to learn from it is no copy of the user's.
        command.env("DATAPUMP_NO_RECORD", "1").env("DATAPUMP_MODEL", "");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let output = command.output().map_err(|error| Fault::system("start a copy", &error))?;
        let _ = remove(&target);
        let text = String::from_utf8_lossy(&output.stdout);
        let line = text.lines().last().unwrap_or_default();
        let failed = || {
            let why = String::from_utf8_lossy(&output.stderr);
            let text = format!("a copy that was to be measured failed: {}", why.trim());
            Fault::new(Class::Local, text)
        };
        if !output.status.success() {
            return Err(failed());
        }
        sample(line, trial, [self.named(trial.source), self.named(trial.sink)]).ok_or_else(failed)
    }

    fn settle(&self, target: &Path) -> Result<(), Fault> {
        remove(target).map_err(|error| Fault::io("remove", target, &error))?;
        let disk = self.disk.path();
        let folder = File::open(disk).map_err(|error| Fault::io("open", disk, &error))?;
        rustix::fs::syncfs(&folder).map_err(|errno| Fault::io("sync", disk, &errno.into()))
    }

    fn folder(&self, ground: Ground) -> &Path {
        match ground {
            Ground::Memory => self.memory.path(),
            Ground::Disk => self.disk.path(),
        }
    }

    fn source(&self, ground: Ground, load: Load) -> PathBuf {
        self.folder(ground).join(format!("source-{}-{}", load.files, load.file_bytes))
    }

    /// The file system of a ground.
    fn named(&self, ground: Ground) -> String {
        medium::file_system(&Place::Path(self.folder(ground).to_path_buf()))
    }
}

/// A far side on this host, without a login: what stands for `ssh` gets the host as its name.
const FAR_HERE: &str = r#"sh -c 'eval "exec $1"'"#;

/// The last line of a copy's `--json`, as a sample.
pub fn sample(line: &str, trial: Trial, [source, sink]: [String; 2]) -> Option<WholeSample> {
    let end: Value = serde_json::from_str(line).ok()?;
    let transfer = end.get("transfer")?;
    let number = |name: &str| transfer.get(name).and_then(Value::as_f64);
    let sides = transfer.get("sides")?.as_array()?;
    let cpu_s = |side: &Value| {
        let part = |name: &str| side.get(name).and_then(Value::as_f64);
        Some(part("cpu_user_seconds")? + part("cpu_system_seconds")?)
    };
    let shape = trial.load.shape();
    let complete =
        number("bytes")? as u64 == shape.bytes() && number("files")? as u64 == shape.files;
    complete.then_some(())?;
    Some(WholeSample {
        carrier: transfer.get("carrier")?.as_str()?.to_string(),
        source,
        sink,
        cold: trial.cold,
        streams: number("streams")? as u16,
        files: shape.files,
        small_bytes: shape.small_bytes,
        large_bytes: shape.large_bytes,
        login_s: number("login_seconds")?,
        elapsed_s: number("elapsed_seconds")?,
        cpu_source_s: cpu_s(sides.first()?)?,
        cpu_sink_s: sides.get(1).map_or(Some(0.0), cpu_s)?,
    })
}

/// One file, or a folder with a hundred files in each folder below it.
fn make_source(path: &Path, load: Load) -> Result<(), Fault> {
    if load.files == 1 {
        return make_file(path, 0, load.file_bytes);
    }
    for number in 0..load.files {
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

fn each_file(path: &Path, act: &dyn Fn(&Path) -> std::io::Result<()>) -> std::io::Result<()> {
    if !path.is_dir() {
        return act(path);
    }
    for entry in fs::read_dir(path)? {
        each_file(&entry?.path(), act)?;
    }
    Ok(())
}
