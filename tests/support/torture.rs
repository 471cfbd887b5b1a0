//! Rounds of torture: a copy whose near side, far side or ssh is killed at a random moment, and
//! what must be true afterwards. `cargo xtask torture` plays many, `tests/torture.rs` a few.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// What is copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    Large,
    Tree,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    Local,
    Push,
    Pull,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Victim {
    Near,
    Far,
    Ssh,
}

/// Where the rounds are played, and with what.
#[derive(Clone, Debug)]
pub struct Ground {
    pub program: PathBuf,
    /// What `--ssh` takes; the host is `far`.
    pub ssh: String,
    pub folder: PathBuf,
    pub large_bytes: u64,
    pub tree_files: u64,
    /// More words of every copy.
    pub knobs: String,
}

#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub load: Load,
    pub way: Way,
    pub victim: Victim,
    /// When to kill, as shares of the time that an undisturbed copy takes.
    pub moments: [Option<f64>; 2],
}

/// What a round has shown.
#[derive(Clone, Copy, Debug)]
pub struct Shown {
    pub kills: u32,
    pub reruns: u32,
    /// Bytes that had arrived by the last kill and were sent again: an upper bound of what had been
    /// acknowledged and was.
    pub resent_bytes: u64,
}

impl Plan {
    /// The plan of one round of a seed.
    pub fn of(seed: u64, round: u64, only: Option<Load>) -> Plan {
        let mut dice = [0_u8; 8];
        let mut hasher = blake3::Hasher::new();
        hasher.update(&seed.to_le_bytes()).update(&round.to_le_bytes());
        hasher.finalize_xof().fill(&mut dice);
        let share = |die: u8| 0.05 + 0.8 * f64::from(die) / 255.0;
        let way = [Way::Push, Way::Pull, Way::Push, Way::Pull, Way::Local][dice[0] as usize % 5];
        let victim = [Victim::Near, Victim::Far, Victim::Ssh][dice[1] as usize % 3];
        Plan {
            load: only.unwrap_or(if dice[2] & 1 == 0 { Load::Large } else { Load::Tree }),
            way,
            victim: if way == Way::Local { Victim::Near } else { victim },
            moments: [Some(share(dice[3])), (dice[4] % 3 == 0).then(|| share(dice[5]))],
        }
    }
}

impl Ground {
    /// Makes the sources.
    pub fn lay(&self) {
        let large = self.source(Load::Large);
        fs::create_dir_all(&large).unwrap();
        write(&large.join("large"), 0, self.large_bytes);
        let tree = self.source(Load::Tree);
        for number in 0..self.tree_files {
            let folder = tree.join(format!("d{}/e{}", number % 7, number % 11));
            fs::create_dir_all(&folder).unwrap();
            // Mostly small, some of several requests, a few around the page cache.
            let bytes = match number % 400 {
                0 => (17 << 20) + number,
                1..=10 => (300 << 10) * (number % 9),
                _ => number * 7919 % 20_000,
            };
            write(&folder.join(format!("f{number}")), number + 1, bytes);
        }
    }

    fn source(&self, load: Load) -> PathBuf {
        self.folder.join(match load {
            Load::Large => "large",
            Load::Tree => "tree",
        })
    }

    /// How long an undisturbed copy takes, and how many bytes it moves.
    pub fn clean(&self, load: Load, way: Way) -> Result<(Duration, u64), String> {
        let round = Round::new(self, "clean", load, way);
        let begun = Instant::now();
        let moved = round.start().end(LONGEST)?;
        let elapsed = begun.elapsed();
        round.check_whole()?;
        round.clear();
        Ok((elapsed, moved.sent_bytes))
    }

    /// Plays one round; an error says what was broken.
    pub fn play(&self, number: u64, plan: &Plan, clean: Duration) -> Result<Shown, String> {
        let round = Round::new(self, &number.to_string(), plan.load, plan.way);
        let mut shown = Shown { kills: 0, reruns: 0, resent_bytes: 0 };
        let mut running = round.start();
        let mut arrived_bytes = 0;
        for moment in plan.moments.iter().flatten() {
            thread::sleep(clean.mul_f64(*moment));
            if !round.kill(plan.victim, &running) {
                continue; // it was faster than that
            }
            shown.kills += 1;
            arrived_bytes = stored_bytes(&round.target);
            if plan.victim == Victim::Near {
                running.killed()?;
                arrived_bytes = stored_bytes(&round.target);
                round.wait_for_far_end()?;
                round.check_named()?;
                running = round.start();
                shown.reruns += 1;
            }
        }
        let moved = match running.end(LONGEST) {
            // It was hit before the two sides had met: that is not tried again, somebody looks on.
            Err(text)
                if text.starts_with("exit status: 7") && files_below(&round.target).is_empty() =>
            {
                shown.reruns += 1;
                round.start().end(LONGEST)?
            }
            ended => ended?,
        };
        let total = tree_bytes(&self.source(plan.load));
        if std::env::var_os("TORTURE_DEBUG").is_some() {
            println!("{plan:?} sent {} arrived {arrived_bytes} total {total}", moved.sent_bytes);
        }
        shown.resent_bytes = (arrived_bytes + moved.sent_bytes).saturating_sub(total);
        round.check_whole()?;
        round.clear();
        Ok(shown)
    }
}

/// One destination, and a name of the far program that no other round has.
struct Round<'a> {
    ground: &'a Ground,
    source: PathBuf,
    target: PathBuf,
    far_program: PathBuf,
    way: Way,
}

impl Round<'_> {
    fn new<'a>(ground: &'a Ground, name: &str, load: Load, way: Way) -> Round<'a> {
        let far_program = ground.folder.join(format!("far-{name}-{load:?}-{way:?}"));
        let _ = fs::remove_file(&far_program);
        symlink(&ground.program, &far_program).unwrap();
        let target = ground.folder.join(format!("to-{name}-{load:?}-{way:?}"));
        let _ = fs::remove_dir_all(&target);
        fs::create_dir(&target).unwrap();
        Round { ground, source: ground.source(load), target, far_program, way }
    }

    fn clear(&self) {
        let _ = fs::remove_dir_all(&self.target);
        let _ = fs::remove_file(&self.far_program);
    }

    fn start(&self) -> Running {
        let mut command = Command::new(&self.ground.program);
        command.args(["copy", "-r", "--json", "--interval", "0.1"]);
        command.args(self.ground.knobs.split_whitespace());
        let (from, to) = (format!("{}/", self.source.display()), self.target.display());
        match self.way {
            Way::Local => command.arg(from).arg(to.to_string()),
            Way::Push => command.arg(from).arg(format!("far:{to}")),
            Way::Pull => command.arg(format!("far:{from}")).arg(to.to_string()),
        };
        if self.way != Way::Local {
            command.arg("--ssh").arg(&self.ground.ssh);
            command.arg("--remote-datapump").arg(&self.far_program);
        }
        Running::new(command)
    }

    /// True when there was somebody to kill.
    fn kill(&self, victim: Victim, running: &Running) -> bool {
        let pids = match victim {
            Victim::Near => vec![running.child.id().cast_signed()],
            Victim::Far => self.processes(|words| words[0] == self.far_program.as_os_str()),
            Victim::Ssh => self.processes(|words| words[0] == "ssh"),
        };
        !running.is_over() && pids.iter().filter(|pid| kill(**pid)).count() > 0
    }

    /// Processes of this round whose command line is as asked.
    fn processes(&self, is: impl Fn(&[&str]) -> bool) -> Vec<i32> {
        let ours = self.far_program.display().to_string();
        let pids = fs::read_dir("/proc").unwrap().filter_map(|entry| {
            let pid: i32 = entry.ok()?.file_name().to_str()?.parse().ok()?;
            let line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
            let line = String::from_utf8_lossy(&line).into_owned();
            let words: Vec<&str> = line.trim_end_matches('\0').split('\0').collect();
            (line.contains(&ours) && is(&words)).then_some(pid)
        });
        pids.collect()
    }

    fn wait_for_far_end(&self) -> Result<(), String> {
        let deadline = Instant::now() + FAR_ENDS_WITHIN;
        loop {
            let left = self.processes(|words| words[0] == self.far_program.as_os_str());
            match left.is_empty() {
                true => return Ok(()),
                false if Instant::now() > deadline => {
                    return Err(format!("the far side outlives its connection: {left:?}"));
                }
                false => thread::sleep(Duration::from_millis(5)),
            }
        }
    }

    /// Every final name has all the bytes of its source; all else is a temporary of ours.
    fn check_named(&self) -> Result<(), String> {
        for path in files_below(&self.target) {
            let inner = path.strip_prefix(&self.target).unwrap();
            let name = inner.file_name().unwrap_or_default().to_string_lossy();
            if name.starts_with(".datapump-") {
                continue;
            }
            if !same_bytes(&self.source.join(inner), &path) {
                return Err(format!("{} has its final name and is not whole", inner.display()));
            }
        }
        Ok(())
    }

    fn check_whole(&self) -> Result<(), String> {
        self.check_named()?;
        let names = |root: &Path| {
            let files = files_below(root);
            files.iter().map(|path| path.strip_prefix(root).unwrap().to_owned()).collect::<Vec<_>>()
        };
        let (there, here) = (names(&self.source), names(&self.target));
        match here.iter().find(|name| !there.contains(name)) {
            Some(name) => Err(format!("{} is left over", name.display())),
            None if there.len() != here.len() => {
                Err(format!("{} of {} files are there", here.len(), there.len()))
            }
            None => Ok(()),
        }
    }
}

/// A copy that runs, with its events being read.
struct Running {
    child: Child,
    events: Receiver<serde_json::Value>,
    words: Receiver<String>,
}

struct Moved {
    sent_bytes: u64,
}

impl Running {
    fn new(mut command: Command) -> Running {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (event_in, events) = mpsc::channel();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                let _ = serde_json::from_str(&line).map(|event| event_in.send(event));
            }
        });
        let (words_in, words) = mpsc::channel();
        let mut stderr = child.stderr.take().unwrap();
        thread::spawn(move || {
            let mut text = Vec::new();
            let _ = stderr.read_to_end(&mut text);
            words_in.send(String::from_utf8_lossy(&text).into_owned())
        });
        Running { child, events, words }
    }

    fn is_over(&self) -> bool {
        let pid = self.child.id();
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.is_empty() || stat.contains(") Z ")
    }

    fn killed(mut self) -> Result<(), String> {
        self.child.wait().map(drop).map_err(|why| why.to_string())
    }

    /// Waits for a good end.
    fn end(mut self, patience: Duration) -> Result<Moved, String> {
        let deadline = Instant::now() + patience;
        while !self.is_over() {
            if Instant::now() > deadline {
                kill(self.child.id().cast_signed());
                return Err(format!("it has not ended after {patience:?}"));
            }
            thread::sleep(Duration::from_millis(3));
        }
        let status = self.child.wait().map_err(|why| why.to_string())?;
        let words = self.words.recv_timeout(Duration::from_secs(5)).unwrap_or_default();
        let last = self.events.iter().last().unwrap_or_default();
        if !status.success() {
            return Err(format!("{status}: {} {words}", last["message"]));
        }
        let sides = last["transfer"]["sides"].as_array().cloned().unwrap_or_default();
        let sent = sides.first().and_then(|side| side["bytes"].as_u64());
        sent.map(|sent_bytes| Moved { sent_bytes }).ok_or_else(|| format!("no bytes in {last}"))
    }
}

/// Makes a file of bytes that no other has.
fn write(path: &Path, seed: u64, bytes: u64) {
    let mut file = fs::File::create(path).unwrap();
    let mut reader = blake3::Hasher::new().update(&seed.to_le_bytes()).finalize_xof().take(bytes);
    std::io::copy(&mut reader, &mut file).unwrap();
}

fn same_bytes(left: &Path, right: &Path) -> bool {
    let status = Command::new("cmp").arg("-s").arg("--").arg(left).arg(right).status();
    status.is_ok_and(|status| status.success())
}

fn tree_bytes(root: &Path) -> u64 {
    files_below(root).iter().map(|path| fs::metadata(path).unwrap().len()).sum()
}

/// Bytes that the file system holds for what is below a folder.
fn stored_bytes(root: &Path) -> u64 {
    let blocks = |path: &PathBuf| fs::metadata(path).map_or(0, |meta| meta.blocks());
    files_below(root).iter().map(blocks).sum::<u64>() * 512
}

fn files_below(root: &Path) -> Vec<PathBuf> {
    let (mut files, mut open) = (Vec::new(), vec![root.to_path_buf()]);
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().filter_map(Result::ok) {
            match entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                true => open.push(entry.path()),
                false => files.push(entry.path()),
            }
        }
    }
    files.sort();
    files
}

fn kill(pid: i32) -> bool {
    Pid::from_raw(pid).is_some_and(|pid| kill_process(pid, Signal::KILL).is_ok())
}

const LONGEST: Duration = Duration::from_secs(90);
const FAR_ENDS_WITHIN: Duration = Duration::from_secs(10);
