//! One round: a copy whose sink loses its power once or twice, and again after the end.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io::Read;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::disk::{Counts, Cut, Disk, Unflushed};
use super::guest::{Guest, Machine};
use super::image::{self, FileSystem, Found, Mounted};
use super::near::{Call, Near, Reported, Retry};
use crate::random::Random;

/// What is copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Load {
    Large,
    Tree,
}

impl Load {
    pub(crate) const ALL: [Load; 2] = [Load::Large, Load::Tree];
}

/// A copy without a power cut.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clean {
    pub counts: Counts,
    pub time: Duration,
    pub bytes: u64,
}

/// The results of a round.
#[derive(Clone, Debug)]
pub(crate) struct Shown {
    pub load: Load,
    pub cuts: Vec<CutShown>,
    /// Bytes that all runs together sent beyond the size of the source.
    pub resent_bytes: u64,
    pub resent_bytes_max: u64,
    /// Bytes that runs kept from earlier runs.
    pub believed_bytes: u64,
    /// Final names with a wrong mode or time, at any cut.
    pub attributes: Vec<String>,
    /// The last cut was so early that the journal exists again.
    pub journal_left: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct CutShown {
    pub unflushed: Unflushed,
    pub retry: Retry,
    /// Blocks in the disk's cache, and how many of them were lost.
    pub blocks: u64,
    pub lost: u64,
    pub final_names: u64,
}

/// The environment of the rounds.
pub(super) struct Fixture {
    folder: PathBuf,
    program: PathBuf,
    connector: PathBuf,
    machine: Machine,
}

/// A running sink: its disk and its guest.
struct Sink {
    disk: Disk,
    guest: Guest,
}

impl Fixture {
    /// Makes the sources and the guest.
    pub(super) fn lay(folder: &Path, program: &Path) -> Result<Fixture, String> {
        let machine = Machine::make(folder, program)?;
        // Another build may replace both during the rounds.
        let keep = |from: &Path, name: &str| {
            let to = folder.join(name);
            fs::copy(from, &to).map_err(|why| format!("{}: {why}", from.display()))?;
            Ok::<PathBuf, String>(to)
        };
        let own = std::env::current_exe().map_err(|why| format!("find xtask: {why}"))?;
        let (connector, program) = (keep(&own, "connector")?, keep(program, "near")?);
        let fixture = Fixture { folder: folder.into(), program, connector, machine };
        fixture.make_sources().map_err(|why| format!("{}: {why}", folder.display()))?;
        Ok(fixture)
    }

    fn make_sources(&self) -> std::io::Result<()> {
        let large = self.source(Load::Large);
        fs::create_dir_all(&large)?;
        write(&large.join("large"), 0, LARGE_BYTES)?;
        let tree = self.source(Load::Tree);
        for number in 0..TREE_FILES {
            let folder = tree.join(format!("d{}/e{}", number % 5, number % 7));
            fs::create_dir_all(&folder)?;
            // Mostly small files, some of several requests; some are empty.
            let bytes = match number % 100 {
                0 => (6 << 20) + number,
                1..=9 => (300 << 10) * (number % 9),
                _ => number * 7919 % 20_000,
            };
            write(&folder.join(format!("f{number}")), number + 1, bytes)?;
            if number % 50 == 0 {
                symlink(format!("f{number}"), folder.join(format!("link{number}")))?;
            }
        }
        Ok(())
    }

    fn source(&self, load: Load) -> PathBuf {
        self.folder.join(format!("{load:?}").to_lowercase())
    }

    fn image(&self) -> PathBuf {
        self.folder.join("image")
    }

    fn call(&self, load: Load) -> Call {
        Call {
            program: self.program.clone(),
            connector: self.connector.clone(),
            source: self.source(load),
            login_port: self.machine.login_port,
            data_port: self.machine.data_port,
            fsync: "file",
        }
    }

    fn boot(&self, kind: FileSystem) -> Result<Sink, String> {
        let socket = self.folder.join("disk.socket");
        let disk = Disk::serve(&self.image(), &socket)?;
        let guest = self.machine.boot(&socket, kind)?;
        Ok(Sink { disk, guest })
    }

    /// The writes and flushes of a copy without a cut; the power fails after it.
    pub(super) fn clean(&self, kind: FileSystem, load: Load) -> Result<Clean, String> {
        kind.make(&self.image())?;
        let mut sink = self.boot(kind)?;
        sink.disk.set(Cut::Never);
        let begun = Instant::now();
        let near = Near::start(&self.call(load), Retry::EndsAtOnce)?;
        let (code, reported) = near.end(LONGEST)?;
        let time = begun.elapsed();
        let counts = sink.disk.since_set();
        if code != 0 {
            let words = sink.guest.last_words();
            return Err(format!(
                "a copy that nothing cut ends with {code}: {}\n{words}",
                reported.why()
            ));
        }
        self.check_end(kind, load, &mut sink)?;
        drop(sink);
        let mut sink = self.boot(kind)?;
        let (code, again) = Near::start(&self.call(load), Retry::EndsAtOnce)?.end(LONGEST)?;
        if code != 0 || again.moved_bytes() > 0 {
            let (moved, why) = (again.moved_bytes(), again.why());
            return Err(format!("a second run moves {moved} bytes and ends with {code}: {why}"));
        }
        self.check_end(kind, load, &mut sink)?;
        Ok(Clean { counts, time, bytes: reported.moved_bytes() })
    }

    /// A copy without syncs, whose sink loses its power at the end: returns the number of names
    /// that are missing or have wrong content. If there are none, the rounds would detect nothing.
    pub(super) fn canary(&self, kind: FileSystem) -> Result<usize, String> {
        kind.make(&self.image())?;
        let mut sink = self.boot(kind)?;
        let call = Call { fsync: "off", ..self.call(Load::Tree) };
        let (code, reported) = Near::start(&call, Retry::EndsAtOnce)?.end(LONGEST)?;
        if code != 0 {
            return Err(format!("a copy that does not sync ends with {code}: {}", reported.why()));
        }
        sink.guest.kill();
        sink.disk.power_off(Unflushed::Lost, &mut Random::of(0, 0))?;
        let found = self.look(kind, Load::Tree)?;
        match found.wrong.len() + found.missing.len() {
            0 => Err("a disk that lost all that was not synced has all: nothing was cut".into()),
            broken => Ok(broken),
        }
    }

    /// Runs one round of a seed; an error says what was broken.
    pub(super) fn play(
        &self,
        kind: FileSystem,
        seed: u64,
        number: u64,
        clean: &BTreeMap<Load, Clean>,
    ) -> Result<Shown, String> {
        let mut random = Random::of(seed, number);
        let load = Load::ALL[usize::from(random.below(3) > 0)];
        let clean = clean[&load];
        kind.make(&self.image())?;
        let mut round = Round {
            fixture: self,
            kind,
            load,
            near: None,
            moved_bytes: 0,
            shown: Shown {
                load,
                cuts: Vec::new(),
                resent_bytes: 0,
                resent_bytes_max: 0,
                believed_bytes: 0,
                attributes: Vec::new(),
                journal_left: false,
            },
        };
        let mut done = None;
        for earlier in 0..=random.below(2) {
            let cut = moment(&mut random, clean.counts, earlier);
            done =
                round.cut(cut, &mut random).map_err(|why| format!("{load:?}, {cut:?}: {why}"))?;
            if done.is_some() {
                break;
            }
        }
        round.finish(done, clean).map_err(|why| format!("{load:?}, at its end: {why}"))
    }

    /// All is there, even if the power fails as soon as the command has succeeded.
    fn check_end(&self, kind: FileSystem, load: Load, sink: &mut Sink) -> Result<Found, String> {
        sink.guest.kill();
        sink.disk.power_off(Unflushed::Lost, &mut Random::of(0, 0))?;
        let found = self.look(kind, load)?;
        // The removal of the journal is not synced: the next run of the command removes it.
        let temporary = found.temporary.iter().map(|path| path.display().to_string());
        let broken = [
            ("wrong", found.wrong.clone()),
            ("missing", found.missing.clone()),
            ("left over", temporary.filter(|name| !name.ends_with(".journal")).collect()),
        ];
        match broken.iter().find(|(_, names)| !names.is_empty()) {
            None => Ok(found),
            Some((what, names)) => Err(format!("{what} after a good end: {}", few(names))),
        }
    }

    fn look(&self, kind: FileSystem, load: Load) -> Result<Found, String> {
        let mounted = Mounted::mount(&self.image(), kind, &self.folder.join("mounted"))?;
        Ok(image::compare(&self.source(load), &mounted.tree()))
    }
}

/// A round in progress.
struct Round<'a> {
    fixture: &'a Fixture,
    kind: FileSystem,
    load: Load,
    /// A run that reconnects by itself.
    near: Option<Near>,
    moved_bytes: u64,
    shown: Shown,
}

impl Round<'_> {
    /// Starts the sink, lets the copy continue, and cuts the power; returns the sink if the copy
    /// succeeded before the cut.
    fn cut(&mut self, cut: Cut, random: &mut Random) -> Result<Option<Sink>, String> {
        let mut sink = self.fixture.boot(self.kind)?;
        sink.disk.set(cut);
        let retry = [Retry::LogsInAgain, Retry::EndsAtOnce][random.below(2) as usize];
        let (mut near, retry) = match self.near.take() {
            Some(near) => (near, Retry::LogsInAgain),
            None => (Near::start(&self.fixture.call(self.load), retry)?, retry),
        };
        let deadline = Instant::now() + LONGEST;
        while sink.disk.gone.recv_timeout(LOOK_AGAIN).is_err() {
            if near.has_ended() {
                self.ended(near, &sink)?;
                return Ok(Some(sink));
            }
            if Instant::now() > deadline {
                return Err(format!("nothing ends:\n{}", sink.guest.last_words()));
            }
        }
        sink.guest.kill();
        let unflushed =
            [Unflushed::Lost, Unflushed::Mixed, Unflushed::Kept][random.below(3) as usize];
        let (blocks, lost) = sink.disk.power_off(unflushed, random)?;
        let found = self.fixture.look(self.kind, self.load)?;
        if !found.wrong.is_empty() {
            return Err(format!("{unflushed:?}, {retry:?}: {}", few(&found.wrong)));
        }
        self.shown.attributes.extend(found.attributes);
        let final_names = found.final_names;
        self.shown.cuts.push(CutShown { unflushed, retry, blocks, lost, final_names });
        match retry {
            Retry::LogsInAgain => self.near = Some(near),
            Retry::EndsAtOnce => {
                let (code, reported) = near.end(LONGEST)?;
                if code != UNREACHABLE {
                    return Err(format!("a run that was cut ends with {code}: {}", reported.why()));
                }
                self.count(&reported);
            }
        }
        Ok(None)
    }

    /// The same command is run again, and the copy is equal at its end.
    fn finish(mut self, done: Option<Sink>, clean: Clean) -> Result<Shown, String> {
        let mut sink = match done {
            Some(sink) => sink,
            None => {
                let sink = self.fixture.boot(self.kind)?;
                let near = match self.near.take() {
                    Some(near) => near,
                    None => Near::start(&self.fixture.call(self.load), Retry::EndsAtOnce)?,
                };
                self.ended(near, &sink)?;
                sink
            }
        };
        let found = self.fixture.check_end(self.kind, self.load, &mut sink)?;
        self.shown.journal_left = !found.temporary.is_empty();
        self.shown.attributes.extend(found.attributes);
        self.shown.resent_bytes = self.moved_bytes.saturating_sub(clean.bytes);
        let second = (clean.bytes as f64 / clean.time.as_secs_f64()) as u64;
        self.shown.resent_bytes_max = self.shown.cuts.len() as u64 * (RESENT_BYTES + second);
        match self.shown.resent_bytes <= self.shown.resent_bytes_max {
            true => Ok(self.shown),
            false => Err(format!("more is sent again than the bound: {}", self.shown)),
        }
    }

    /// A run without a further cut succeeds. One that lost its sink before the first connection
    /// does not retry by itself: it is started again, as a user would.
    fn ended(&mut self, near: Near, sink: &Sink) -> Result<(), String> {
        let (code, reported) = near.end(LONGEST)?;
        self.count(&reported);
        if code == 0 {
            return Ok(());
        }
        if code == UNREACHABLE && reported.moved_bytes() == 0 && !self.shown.cuts.is_empty() {
            let near = Near::start(&self.fixture.call(self.load), Retry::EndsAtOnce)?;
            return self.ended_for_good(near, sink);
        }
        let words = sink.guest.last_words();
        Err(format!("a run that nothing cut ends with {code}: {}\n{words}", reported.why()))
    }

    fn ended_for_good(&mut self, near: Near, sink: &Sink) -> Result<(), String> {
        let (code, reported) = near.end(LONGEST)?;
        self.count(&reported);
        match code {
            0 => Ok(()),
            _ => Err(format!("ends with {code}: {}\n{}", reported.why(), sink.guest.last_words())),
        }
    }

    fn count(&mut self, reported: &Reported) {
        self.moved_bytes += reported.moved_bytes();
        self.shown.believed_bytes += reported.held_bytes;
    }
}

/// A random point in a copy, counted in requests of the disk. After earlier cuts less remains of
/// the copy.
fn moment(random: &mut Random, clean: Counts, earlier: u64) -> Cut {
    let mut below = |count: u64| 1 + random.below((count / (earlier + 1)).max(1));
    let (request, flush) = (below(clean.writes + clean.flushes), below(clean.flushes));
    match random.below(4) {
        0 => Cut::BeforeFlush(flush),
        1 => Cut::AfterFlush(flush),
        _ => Cut::Request(request),
    }
}

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.load)?;
        for cut in &self.cuts {
            let CutShown { unflushed, retry, blocks, lost, final_names } = cut;
            write!(f, "; {unflushed:?} {retry:?}: {lost} of {blocks} blocks lost, ")?;
            write!(f, "{final_names} final names")?;
        }
        let mib = |bytes: u64| bytes >> 20;
        let (resent, bound) = (mib(self.resent_bytes), mib(self.resent_bytes_max));
        write!(f, "; {} MiB believed, {resent} MiB sent again", mib(self.believed_bytes))?;
        write!(f, " (at most {bound}), {} other attributes", self.attributes.len())
    }
}

/// The first few of many names.
pub(super) fn few(names: &[String]) -> String {
    let more =
        if names.len() > 5 { format!(" and {} more", names.len() - 5) } else { String::new() };
    names[..names.len().min(5)].join(", ") + &more
}

/// Writes a file with unique content.
fn write(path: &Path, seed: u64, bytes: u64) -> std::io::Result<()> {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&seed.to_le_bytes());
    let mut reader = hasher.finalize_xof().take(bytes);
    std::io::copy(&mut reader, &mut fs::File::create(path)?).map(drop)
}

const LARGE_BYTES: u64 = 192 << 20;
const TREE_FILES: u64 = 500;
/// The exit code of a run whose far side is lost.
const UNREACHABLE: i32 = 7;
/// 64 MiB between two journal entries, and the data in flight of four streams.
const RESENT_BYTES: u64 = (64 << 20) + ((4 * 8) << 20);
const LOOK_AGAIN: Duration = Duration::from_millis(20);
const LONGEST: Duration = Duration::from_secs(300);
