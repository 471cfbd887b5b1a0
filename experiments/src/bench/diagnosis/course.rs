//! One copy over one path, and the verdict of `explain`.

use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use ::wan::{Profile, Rivals, Wan};
use serde_json::Value;

use super::cells::{Cell, Plant};
use xtask::step::output;

/// Makes the copy of a cell with these options, and returns the stored verdict.
pub(super) fn run(
    program: &Path,
    cell: &Cell,
    options: &[String],
    mib: u64,
    store: &Path,
) -> Result<Value, String> {
    fs::remove_file(store).ok();
    let wan = Wan::up(&profile(cell)?, Some(program))?;
    let rivals = match cell.plant {
        Plant::Rivals(word) => Some(wan.rivals(&Rivals::from_word(word)?)?),
        _ => None,
    };
    if rivals.is_some() {
        thread::sleep(RIVALS_BEFORE);
    }
    let copy = Copy { program, cell, options, mib, store };
    let group = match cell.plant {
        Plant::Quota(hundredths) => Some(CpuGroup::hold(hundredths)?),
        _ => None,
    };
    let command = copy.command(&wan, group.as_ref());
    let told = |why: io::Error| format!("{}: {why}", cell.name);
    let mut command = wan.near(command).map_err(told)?;
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    match cell.plant {
        Plant::Source(_) => command.stdin(Stdio::piped()),
        Plant::Reader(_) => command.stdout(Stdio::piped()),
        _ => &mut command,
    };
    let child = command.spawn().map_err(told)?;
    attend(child, &wan, cell, mib)?;
    drop(rivals);
    drop(wan);
    explained(program, store)
}

fn profile(cell: &Cell) -> Result<Profile, String> {
    let mut words: Vec<&str> = cell.path.split_whitespace().collect();
    if let Plant::Setting(setting) = cell.plant {
        words.extend(["--sysctl", setting]);
    }
    Profile::from_words(&words)
}

struct Copy<'a> {
    program: &'a Path,
    cell: &'a Cell,
    options: &'a [String],
    mib: u64,
    store: &'a Path,
}

impl Copy<'_> {
    fn command(&self, wan: &Wan, group: Option<&CpuGroup>) -> Command {
        let mut command = match group {
            None => Command::new(self.program),
            Some(group) => {
                let enter =
                    format!("echo $$ > {}/cgroup.procs; exec \"$@\"", group.folder.display());
                let mut command = Command::new("sh");
                command.arg("-c").arg(enter).arg("sh").arg(self.program);
                command
            }
        };
        let bytes = format!("null:{}M", self.mib);
        let ends = match self.cell.plant {
            Plant::Source(_) => ["-".to_string(), "far:null:".to_string()],
            Plant::Reader(_) => [format!("far:{bytes}"), "-".to_string()],
            _ => [bytes, "far:null:".to_string()],
        };
        command.args(["copy", "-q", "--ssh", &wan.ssh_command()]).args(self.options).args(ends);
        if let Plant::Variable(variable) = self.cell.plant {
            let (name, value) = variable.split_once('=').unwrap_or((variable, ""));
            command.env(name, value);
        }
        command.env_remove("DATAPUMP_NO_RECORD").env("DATAPUMP_RESULTS", self.store);
        command
    }
}

/// Applies the plant during the copy, until that ends.
fn attend(mut child: Child, wan: &Wan, cell: &Cell, mib: u64) -> Result<(), String> {
    let (input, reader, errors) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let (done, is_done) = channel::<()>();
    let (status, said) = thread::scope(|scope| {
        match cell.plant {
            Plant::Source(bits_per_s) => {
                scope.spawn(move || feed(input, bits_per_s, mib << 20));
            }
            Plant::Reader(bits_per_s) => {
                scope.spawn(move || take(reader, bits_per_s));
            }
            Plant::Cuts(every_ms, for_ms) => {
                let [every, time] = [every_ms, for_ms].map(Duration::from_millis);
                scope.spawn(move || {
                    while is_done.recv_timeout(every) == Err(RecvTimeoutError::Timeout) {
                        wan.cut(Some(time)).ok();
                    }
                });
            }
            _ => {}
        }
        let mut said = String::new();
        errors.map(|mut errors| errors.read_to_string(&mut said));
        let status = child.wait();
        drop::<Sender<()>>(done);
        (status, said)
    });
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{}: the copy failed ({status}):\n{said}", cell.name)),
        Err(why) => Err(format!("{}: {why}", cell.name)),
    }
}

/// Rivals are past their start when the copy begins.
const RIVALS_BEFORE: Duration = Duration::from_secs(3);

/// Writes this many bytes, at most at this rate.
fn feed(to: Option<impl Write>, bits_per_s: u64, bytes: u64) {
    let Some(mut to) = to else { return };
    let began = Instant::now();
    let mut moved = 0;
    while moved < bytes && to.write_all(&[0; CHUNK_BYTES]).is_ok() {
        moved += CHUNK_BYTES as u64;
        wait_for(began, bits_per_s, moved);
    }
}

fn take(from: Option<impl Read>, bits_per_s: u64) {
    let Some(mut from) = from else { return };
    let began = Instant::now();
    let mut moved = 0;
    let mut chunk = [0; CHUNK_BYTES];
    while let Ok(bytes @ 1..) = from.read(&mut chunk) {
        moved += bytes as u64;
        wait_for(began, bits_per_s, moved);
    }
}

/// Sleeps until this many bytes may have been sent.
fn wait_for(began: Instant, bits_per_s: u64, moved: u64) {
    let due = Duration::from_secs_f64(moved as f64 * 8.0 / bits_per_s as f64);
    thread::sleep(due.saturating_sub(began.elapsed()));
}

fn explained(program: &Path, store: &Path) -> Result<Value, String> {
    let mut explain = Command::new(program);
    explain.args(["explain", "--json", "--results"]).arg(store);
    let said = output(&mut explain)?;
    let events = said.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut verdicts = events.filter(|event| event["event"] == "verdict");
    verdicts.next().ok_or_else(|| format!("explain says no verdict:\n{said}"))
}

/// A control group with a limit on CPU time, for both versions of the kernel's control groups.
struct CpuGroup {
    folder: PathBuf,
}

impl CpuGroup {
    fn hold(hundredths: u64) -> Result<CpuGroup, String> {
        let name = format!("datapump-diagnosis-{}", std::process::id());
        let first = Path::new("/sys/fs/cgroup/cpu");
        let (folder, file, text) = match first.join("cpu.cfs_quota_us").exists() {
            true => (first.join(name), "cpu.cfs_quota_us", format!("{}", hundredths * 1000)),
            false => {
                let folder = Path::new("/sys/fs/cgroup").join(name);
                (folder, "cpu.max", format!("{} 100000", hundredths * 1000))
            }
        };
        let told = |why: io::Error| format!("{}: {why}", folder.display());
        fs::create_dir(&folder).map_err(told)?;
        let group = CpuGroup { folder: folder.clone() };
        fs::write(folder.join(file), text).map_err(told)?;
        Ok(group)
    }
}

impl Drop for CpuGroup {
    fn drop(&mut self) {
        // Its last process may still be exiting.
        for _ in 0..50 {
            if fs::remove_dir(&self.folder).is_ok() {
                return;
            }
            thread::sleep(Duration::from_millis(20));
        }
    }
}

const CHUNK_BYTES: usize = 16 << 10;
