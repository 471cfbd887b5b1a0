//! Rounds of a spread whose nodes, storage, tasks, controller or coordinator fail. Everything about
//! a round follows from a seed.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crate::{Cluster, Manner, Plan, Storage};

/// What fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    None,
    /// A node, for good.
    NodeKilled,
    /// A node, which comes back.
    NodeRestarted,
    /// A node's link and its storage; both are healed when others have gone on for a while.
    CutOff,
    /// One worker's process, by SIGKILL.
    TaskKilled,
    /// The controller; it is started again.
    ControllerKilled,
    /// The coordinator, by SIGKILL; `resume` goes on.
    CoordinatorKilled,
    /// A job of a partition with a higher priority takes a node.
    Preempted,
}

impl Fault {
    pub const ALL: &[Fault] = &[
        Fault::NodeKilled,
        Fault::NodeRestarted,
        Fault::CutOff,
        Fault::TaskKilled,
        Fault::ControllerKilled,
        Fault::CoordinatorKilled,
        Fault::Preempted,
    ];
}

/// One round: what fails, where, and when.
#[derive(Clone, Copy, Debug)]
pub struct Round {
    pub seed: u64,
    pub number: u64,
    pub fault: Fault,
    pub node: usize,
    /// When so many files of a hundred have their final name.
    pub after_percent: u64,
    /// What a node has written stays with it until a file is closed.
    pub caches_writes: bool,
}

impl Round {
    pub fn of(seed: u64, number: u64) -> Round {
        let mut random = Random::of(seed, number);
        Round {
            seed,
            number,
            fault: Fault::ALL[(number % Fault::ALL.len() as u64) as usize],
            node: 1 + random.below(NODES as u64) as usize,
            after_percent: 5 + random.below(60),
            caches_writes: random.below(4) > 0,
        }
    }
}

/// What a round copies, and with which program.
#[derive(Clone, Debug)]
pub struct Fixture {
    pub program: PathBuf,
    pub files: u64,
    pub large_bytes: u64,
    /// How long each write takes at a node, so that faults meet work.
    pub write_takes: Duration,
    /// Of how many bytes a file is copied in ranges; else none is.
    pub split_above: Option<u64>,
    pub nodes: usize,
}

/// What a round has shown.
#[derive(Clone, Debug)]
pub struct Shown {
    pub time: Duration,
    /// From the fault to the end.
    pub after_fault: Duration,
    /// Bytes that nodes wrote to the destination beyond those of the source, once, and of files put
    /// together of ranges, twice: what lost attempts had under way.
    pub twice_bytes: u64,
}

/// The nodes of a round of which nothing else is said.
pub const NODES: usize = 3;

/// Longer than any round takes: only one that hangs lasts so long.
const PATIENCE: Duration = Duration::from_secs(400);

/// Plays a round on a new cluster. The error says what went wrong, with the logs.
pub fn play(fixture: &Fixture, round: &Round) -> Result<Shown, String> {
    let cluster = Cluster::up(&Plan::of(fixture.nodes))?;
    let stage = Stage::set(&cluster, fixture, round)?;
    stage.play().map_err(|why| format!("{round:?}: {why}\n{}\n{}", stage.logs(), cluster.logs()))
}

/// A round under way.
struct Stage<'a> {
    cluster: &'a Cluster,
    fixture: &'a Fixture,
    round: &'a Round,
    /// The folder that all nodes see.
    shared: PathBuf,
    storage: Vec<Arc<Storage>>,
    /// That of a node which was started again.
    again: OnceCell<Arc<Storage>>,
    manner: Manner,
}

impl<'a> Stage<'a> {
    fn set(
        cluster: &'a Cluster,
        fixture: &'a Fixture,
        round: &'a Round,
    ) -> Result<Stage<'a>, String> {
        let shared = cluster.path().join("shared");
        let told = |why: std::io::Error| format!("{}: {why}", shared.display());
        fs::create_dir_all(shared.join("dst")).map_err(told)?;
        make_source(&shared.join("src"), fixture, round).map_err(told)?;
        let manner = Manner {
            caches_writes: round.caches_writes,
            remembers_names: Duration::from_secs(1),
            write_takes: fixture.write_takes,
        };
        let storage = (1..=fixture.nodes).map(|node| cluster.mount(node, &shared, manner));
        let storage = storage.collect::<Result<_, _>>()?;
        let again = OnceCell::new();
        Ok(Stage { cluster, fixture, round, shared, storage, again, manner })
    }

    fn play(&self) -> Result<Shown, String> {
        let started = Instant::now();
        let mut coordinator = self.coordinator(|command| {
            if let Some(bytes) = self.fixture.split_above {
                command.args(["--split-above", &format!("{bytes}B")]);
            }
            command.arg(self.shared.join("src/")).arg(self.shared.join("dst/"));
            command.args(["--on", "slurm:dtn", "--job"]).arg(self.job());
        })?;
        let wanted = self.fixture.files * self.round.after_percent / 100;
        self.wait_for_files(wanted, &mut coordinator)?;
        let failed = Instant::now();
        if self.round.fault == Fault::CoordinatorKilled {
            coordinator.kill().and_then(|()| coordinator.wait()).map_err(|why| why.to_string())?;
            coordinator = self.coordinator(|command| {
                command.arg("resume").arg(self.job());
            })?;
        } else {
            self.fail()?;
        }
        if self.round.fault == Fault::CutOff {
            // Others have gone on, or have finished: then it comes back, with all that it held.
            let more = wanted + (self.fixture.files - wanted) / 2;
            self.wait_for_files(more, &mut coordinator)?;
            let _ = wait(&mut coordinator, Duration::from_secs(15));
            self.cluster.mend_link(self.round.node)?;
            self.storage[self.round.node - 1].heal();
        }
        let status = wait(&mut coordinator, PATIENCE);
        let status = status.ok_or_else(|| {
            coordinator.kill().ok();
            coordinator.wait().ok();
            format!("it does not end within {PATIENCE:?}")
        })?;
        if !status.success() {
            return Err(format!("the coordinator ended with {status}"));
        }
        let (time, after_fault) = (started.elapsed(), failed.elapsed());
        // Workers that were cut off may still find out that others have done their work.
        self.cluster.wait_for("end of the jobs", || {
            let listed = self.cluster.client("squeue --noheader --partition=dtn");
            listed.is_ok_and(|text| text.trim().is_empty())
        })?;
        for storage in self.all_storage() {
            storage.arrive_late()?;
        }
        self.check()?;
        let written: u64 = self.all_storage().map(|storage| storage.written_bytes()).sum();
        let source = bytes_below(&self.shared.join("src")).map_err(|why| why.to_string())?;
        let twice_bytes = written.checked_sub(source + self.put_together_bytes());
        let twice_bytes = twice_bytes.ok_or("nodes wrote less than the source has")?;
        Ok(Shown { time, after_fault, twice_bytes })
    }

    /// `datapump spread …` on the controller's host.
    fn coordinator(&self, words: impl FnOnce(&mut Command)) -> Result<Child, String> {
        let mut command = self.cluster.login(&self.fixture.program);
        command.arg("spread");
        words(&mut command);
        let log = File::options().create(true).append(true).open(self.log());
        let log = log.map_err(|why| why.to_string())?;
        let copy = log.try_clone().map_err(|why| why.to_string())?;
        command.stdin(Stdio::null()).stdout(log).stderr(copy).current_dir(&self.shared);
        // What a secret would be in.
        command.env("AWS_SECRET_ACCESS_KEY", SECRET).env("SLURM_SECRET", SECRET);
        command.env("DATAPUMP_NO_RECORD", "1").env("DATAPUMP_CONFIG", "none");
        command.spawn().map_err(|why| format!("{command:?}: {why}"))
    }

    /// What is read from ranges and written again: this storage does not share blocks.
    fn put_together_bytes(&self) -> u64 {
        let large = self.fixture.large_bytes;
        if self.fixture.split_above.is_some_and(|above| large > above) { 2 * large } else { 0 }
    }

    fn all_storage(&self) -> impl Iterator<Item = &Arc<Storage>> {
        self.storage.iter().chain(self.again.get())
    }

    fn job(&self) -> PathBuf {
        self.shared.join("job")
    }

    fn log(&self) -> PathBuf {
        self.cluster.path().join("log/coordinator.log")
    }

    fn fail(&self) -> Result<(), String> {
        let node = self.round.node;
        match self.round.fault {
            Fault::None | Fault::CoordinatorKilled => Ok(()),
            Fault::NodeKilled => self.cluster.kill_node(node),
            Fault::NodeRestarted => {
                self.cluster.kill_node(node)?;
                self.cluster.start_node(node)?;
                let mounted = self.cluster.mount(node, &self.shared, self.manner)?;
                self.again.set(mounted).map_err(|_| "a node is started again once".to_string())
            }
            Fault::CutOff => {
                self.storage[node - 1].cut();
                self.cluster.cut_link(node)
            }
            Fault::TaskKilled => {
                let mut kill = self.cluster.on_node(node, "pkill")?;
                // In the node's own process namespace: no other process can be meant.
                kill.args(["-KILL", "-f", "spread work"]);
                kill.status().map(drop).map_err(|why| format!("pkill: {why}"))
            }
            Fault::ControllerKilled => {
                self.cluster.kill_controller()?;
                thread::sleep(Duration::from_secs(3));
                self.cluster.start_controller()
            }
            Fault::Preempted => {
                let mut urgent = self.cluster.login("sbatch");
                urgent.args(["--partition=urgent", &format!("--nodelist=c{node}"), "--exclusive"]);
                urgent.args(["--output=/dev/null", "--wrap", "sleep 5"]);
                let ran = urgent.stdin(Stdio::null()).stdout(Stdio::null()).status();
                match ran {
                    Ok(status) if status.success() => Ok(()),
                    other => Err(format!("the urgent job: {other:?}")),
                }
            }
        }
    }

    fn wait_for_files(&self, wanted: u64, coordinator: &mut Child) -> Result<(), String> {
        let deadline = Instant::now() + PATIENCE;
        while count_final(&self.shared.join("dst")) < wanted {
            if let Some(status) = coordinator.try_wait().map_err(|why| why.to_string())? {
                return match status.success() {
                    true => Ok(()),
                    false => Err(format!("the coordinator ended early, with {status}")),
                };
            }
            if Instant::now() > deadline {
                coordinator.kill().ok();
                coordinator.wait().ok();
                return Err(format!("no {wanted} files within {PATIENCE:?}"));
            }
            thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// All is there, equal, and nothing else; and no file was written to under its final name.
    fn check(&self) -> Result<(), String> {
        let (source, target) = (self.shared.join("src"), self.shared.join("dst"));
        let (expected, found) = (hashes(&source)?, hashes(&target)?);
        let differing: Vec<&PathBuf> = expected
            .iter()
            .filter(|(path, hash)| found.get(*path) != Some(hash))
            .map(|(path, _)| path)
            .chain(found.keys().filter(|path| !expected.contains_key(*path)))
            .collect();
        if !differing.is_empty() {
            let some = &differing[..differing.len().min(5)];
            return Err(format!("{} files differ: {some:?}", differing.len()));
        }
        for storage in self.all_storage() {
            let written = storage.writes_to_final_names();
            if !written.is_empty() {
                return Err(format!("a node wrote to complete files: {written:?}"));
            }
        }
        let mut verify = Command::new(&self.fixture.program);
        verify.arg("verify").arg(self.job().join("receipt")).arg(&target);
        verify.env("DATAPUMP_NO_RECORD", "1").env("DATAPUMP_CONFIG", "none");
        crate::output(verify)?;
        let secret = Command::new("grep")
            .args(["-rl", SECRET])
            .args([self.cluster.path().join("state"), self.cluster.path().join("spool")])
            .arg(self.job())
            .output();
        let kept = secret.map_err(|why| format!("grep: {why}"))?;
        let kept = String::from_utf8_lossy(&kept.stdout).into_owned();
        if kept.is_empty() { Ok(()) } else { Err(format!("a secret is kept in {kept}")) }
    }

    fn logs(&self) -> String {
        let mut text = fs::read_to_string(self.log()).unwrap_or_default();
        let jobs = self.cluster.client("squeue --array --states=all").unwrap_or_default();
        text.push_str(&format!("\n{jobs}"));
        for folder in ["logs", "events"] {
            let entries = fs::read_dir(self.job().join(folder)).into_iter().flatten();
            for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
                let all = fs::read_to_string(&path).unwrap_or_default();
                let lines: Vec<&str> = all.lines().collect();
                let tail = lines[lines.len().saturating_sub(40)..].join("\n");
                text.push_str(&format!("--- {}\n{tail}\n", path.display()));
            }
        }
        text
    }
}

const SECRET: &str = "secret-9c1e7a54";

/// How a command ended, if it did within a time.
pub fn wait(child: &mut Child, within: Duration) -> Option<ExitStatus> {
    let deadline = Instant::now() + within;
    while Instant::now() < deadline {
        if let Ok(Some(status)) = child.try_wait() {
            return Some(status);
        }
        thread::sleep(Duration::from_millis(20));
    }
    None
}

/// Small files, two large ones, odd names, an empty folder, a link.
fn make_source(folder: &Path, fixture: &Fixture, round: &Round) -> std::io::Result<()> {
    let mut random = Random::of(round.seed, round.number ^ 0xDA7A);
    for number in 0..fixture.files {
        let below = folder.join(format!("d{}", number % 17));
        fs::create_dir_all(&below)?;
        let name = match number % 50 {
            1 => format!("it's \"{number}\" $(id) `id`"),
            2 => format!("line\nbreak {number}"),
            _ => format!("f{number}"),
        };
        let bytes = 200 + random.below(20_000);
        random.write_file(&below.join(name), bytes)?;
    }
    for number in 0..2 {
        random.write_file(&folder.join(format!("large{number}")), fixture.large_bytes)?;
    }
    fs::create_dir_all(folder.join("empty"))?;
    std::os::unix::fs::symlink("d0/f0", folder.join("link"))?;
    fs::set_permissions(folder.join("large0"), fs::Permissions::from_mode(0o640))
}

/// Files under their final names.
pub fn count_final(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
    let visible = entries.filter(|entry| !entry.file_name().to_string_lossy().starts_with('.'));
    visible
        .map(|entry| match entry.file_type() {
            Ok(kind) if kind.is_dir() => count_final(&entry.path()),
            _ => 1,
        })
        .sum()
}

fn bytes_below(folder: &Path) -> std::io::Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let meta = entry.metadata()?;
        bytes += match () {
            () if meta.is_dir() => bytes_below(&entry.path())?,
            () if meta.is_file() => meta.len(),
            () => 0,
        };
    }
    Ok(bytes)
}

/// What is at each path below a folder, with its mode.
pub fn hashes(folder: &Path) -> Result<BTreeMap<PathBuf, String>, String> {
    let mut all = BTreeMap::new();
    let mut open = vec![folder.to_path_buf()];
    while let Some(next) = open.pop() {
        let told = |why: std::io::Error| format!("{}: {why}", next.display());
        for entry in fs::read_dir(&next).map_err(told)? {
            let path = entry.map_err(told)?.path();
            let meta = path.symlink_metadata().map_err(told)?;
            let inner = path.strip_prefix(folder).expect("it is below").to_path_buf();
            let what = if meta.is_symlink() {
                format!("link to {}", fs::read_link(&path).map_err(told)?.display())
            } else if meta.is_dir() {
                open.push(path);
                "folder".to_string()
            } else {
                format!("{:o} {} {}", meta.permissions().mode(), meta.len(), sum(&path)?)
            };
            all.insert(inner, what);
        }
    }
    Ok(all)
}

/// FNV-1a over words: it compares what this program made itself.
fn sum(path: &Path) -> Result<u64, String> {
    let told = |why: std::io::Error| format!("{}: {why}", path.display());
    let mut file = File::open(path).map_err(told)?;
    let (mut sum, mut bytes) = (0xcbf2_9ce4_8422_2325_u64, vec![0; 1 << 20]);
    loop {
        let count = file.read(&mut bytes).map_err(told)?;
        if count == 0 {
            return Ok(sum);
        }
        for byte in &bytes[..count] {
            sum = (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn of(seed: u64, round: u64) -> Random {
        let mut random = Random(seed ^ round.wrapping_mul(0xA24B_AED4_963E_E407));
        random.next();
        random
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    fn write_file(&mut self, path: &Path, bytes: u64) -> std::io::Result<()> {
        let mut file = std::io::BufWriter::new(File::create(path)?);
        let mut left = bytes;
        while left > 0 {
            let word = self.next().to_le_bytes();
            let count = left.min(8) as usize;
            file.write_all(&word[..count])?;
            left -= count as u64;
        }
        file.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_follows_from_its_seed() {
        let (one, same) = (Round::of(1, 5), Round::of(1, 5));
        assert_eq!(format!("{one:?}"), format!("{same:?}"));
        let faults: Vec<Fault> = (0..7).map(|number| Round::of(3, number).fault).collect();
        assert_eq!(faults, Fault::ALL);
        assert!((0..200).map(|n| Round::of(9, n)).all(|round| (1..=NODES).contains(&round.node)));
    }
}
