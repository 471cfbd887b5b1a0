//! One round: its copies, the injected faults, and the checks.

use std::collections::HashSet;
use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use rustix::process::Signal;

use super::draw::{Direction, Fault, Load, Moment, Plan, Strike};
use super::running::{Ended, Running, signal};
use super::{Fixture, Shown, change, files};

/// One destination, and a name of the far program that no other round has.
pub(super) struct Round<'a> {
    fixture: &'a Fixture,
    name: String,
    plan: &'a Plan,
    /// The source as it is, and as it was before it was changed.
    source: PathBuf,
    was: Option<PathBuf>,
    /// The folder that is watched, and the target of the copy.
    place: PathBuf,
    target: PathBuf,
    mounted: bool,
    far_program: PathBuf,
    shown: Shown,
    sent_bytes: u64,
    /// Bytes of earlier runs, as the last run reported them.
    held_bytes: u64,
    /// Everything had arrived when the run began, and no journal was left: the interrupted run was
    /// practically over.
    was_over: bool,
    struck: Vec<(u64, Fault)>,
    /// Final names that were compared: path, inode, length, time.
    compared: HashSet<(PathBuf, u64, u64, i64)>,
}

impl<'a> Round<'a> {
    pub(super) fn new(
        fixture: &'a Fixture,
        name: &str,
        plan: &'a Plan,
    ) -> Result<Round<'a>, String> {
        let at = |what: &str| fixture.folder.join(format!("{what}-{name}"));
        let laid = fixture.folder.join(match plan.load {
            Load::Large => "large",
            Load::Tree | Load::List => "tree",
            Load::Sparse => "sparse",
        });
        let (place, far_program) = (at("to"), at("far"));
        symlink(&fixture.program, &far_program).map_err(|why| format!("far program: {why}"))?;
        fs::create_dir(&place).map_err(|why| format!("{}: {why}", place.display()))?;
        let faults = || plan.strikes.iter().map(|strike| strike.fault);
        let mounted = faults().any(|fault| fault == Fault::Full);
        if mounted {
            said(Command::new("mount").args(["-t", "tmpfs", "none"]).arg(&place))?;
        }
        let (mut source, mut was) = (laid.clone(), None);
        if faults().any(Fault::changes_source) {
            source = at("from");
            said(Command::new("cp").args(["-a", "--sparse=always"]).arg(&laid).arg(&source))?;
            was = Some(laid);
        }
        let target = if plan.load == Load::Tree { place.join("new") } else { place.clone() };
        Ok(Round {
            fixture,
            name: name.into(),
            plan,
            source,
            was,
            place,
            target,
            mounted,
            far_program,
            shown: Shown::default(),
            sent_bytes: 0,
            held_bytes: 0,
            was_over: false,
            struck: Vec::new(),
            compared: HashSet::new(),
        })
    }

    /// Ends what still runs, and removes what the round made; the logs of a good round too.
    pub(super) fn clear(&self, keep_logs: bool) {
        for pid in self.processes(|_| true) {
            signal(pid, Signal::KILL);
        }
        if self.mounted {
            let _ = said(Command::new("umount").arg("-l").arg(&self.place));
        }
        let _ = fs::remove_dir_all(&self.place);
        let _ = fs::remove_file(&self.far_program);
        if self.was.is_some() {
            let _ = fs::remove_dir_all(&self.source);
        }
        for run in (0..=self.shown.runs).filter(|_| !keep_logs) {
            let _ = fs::remove_file(self.log(run));
        }
    }

    /// The faults that were injected so far, with their runs.
    pub(super) fn struck(&self) -> &[(u64, Fault)] {
        &self.struck
    }

    pub(super) fn play(&mut self) -> Result<Shown, String> {
        let mut running = self.start();
        let mut struck = Vec::new();
        for strike in &self.plan.strikes {
            while !self.wait_for(strike.moment, &running)? {
                if self.ends(running, &struck)? {
                    return self.whole();
                }
                (running, struck) = (self.start(), Vec::new());
            }
            if !self.strike(strike, &running)? {
                continue;
            }
            self.shown.struck.push(strike.fault);
            self.struck.push((self.shown.runs, strike.fault));
            struck.push(*strike);
            if strike.fault.ends_run() {
                if self.ends(running, &struck)? {
                    return self.whole();
                }
                (running, struck) = (self.start(), Vec::new());
            }
        }
        while !self.ends(running, &struck)? {
            if struck.is_empty() {
                return Err("after the last interruption the next run does not succeed".into());
            }
            (running, struck) = (self.start(), Vec::new());
        }
        self.whole()
    }

    fn start(&mut self) -> Running {
        self.shown.runs += 1;
        self.was_over = self.missing().is_none();
        let mut command = Command::new(&self.fixture.program);
        command.args(["copy", "--json", "--interval", "0.1"]);
        command.args(self.plan.options.split_whitespace());
        if !self.plan.path.wan {
            command.arg("--rate").arg(format!("{}Mbit", self.plan.path.rate_mbit));
        }
        let source = self.source.display();
        let from = match self.plan.load {
            Load::Large | Load::Sparse => format!("{}", self.file().display()),
            Load::Tree => format!("{source}/"),
            Load::List => format!("{source}"),
        };
        match self.plan.load {
            Load::Tree => drop(command.arg("-r")),
            Load::List => drop(command.arg("--files-from").arg(self.fixture.folder.join("list"))),
            Load::Large | Load::Sparse => {}
        }
        let slash = if self.plan.load == Load::Tree { "" } else { "/" };
        let to = format!("{}{slash}", self.target.display());
        match self.plan.direction {
            Direction::Local => command.args([from, to]),
            Direction::Push => command.args([from, format!("far:{to}")]),
            Direction::Pull => command.args([format!("far:{from}"), to]),
        };
        if self.plan.direction != Direction::Local {
            command.arg("--remote-datapump").arg(&self.far_program);
            let wan = self.fixture.wan.as_ref().filter(|_| self.plan.path.wan);
            command.arg("--ssh").arg(wan.map_or(self.fixture.ssh.clone(), wan::Wan::ssh_command));
        }
        command.process_group(0);
        match self.fixture.wan.as_ref().filter(|_| self.plan.path.wan) {
            Some(wan) => Running::new(wan.near(command).unwrap()),
            None => Running::new(command),
        }
    }

    /// The one file of a load, or the one of a tree that is changed.
    fn file(&self) -> PathBuf {
        self.source.join(match self.plan.load {
            Load::Large => "large",
            Load::Sparse => "image",
            Load::Tree | Load::List => "d0/e0/f0",
        })
    }

    /// False when the run is over before.
    fn wait_for(&mut self, moment: Moment, running: &Running) -> Result<bool, String> {
        let deadline = Instant::now() + HANGS;
        let mut looked = Instant::now();
        loop {
            let is = match moment {
                _ if running.is_over() => return Ok(false),
                Moment::Login | Moment::Begun if self.plan.direction == Direction::Local => true,
                Moment::Login => !self.processes(|words| words[0] == "ssh").is_empty(),
                Moment::Begun => !self.far().is_empty(),
                Moment::Share(share) => running.share() >= share,
            };
            if is {
                return Ok(true);
            }
            if Instant::now() > deadline {
                return Err(format!("hangs: {moment:?} has not come in {HANGS:?}"));
            }
            if looked.elapsed() > LOOK_EVERY {
                looked = Instant::now();
                self.check_named()?;
            }
            thread::sleep(Duration::from_millis(3));
        }
    }

    /// True if there was a process or file to inject the fault into.
    fn strike(&mut self, strike: &Strike, running: &Running) -> Result<bool, String> {
        let for_a_while = Duration::from_secs_f64(strike.seconds);
        let all = |pids: Vec<i32>, what| pids.iter().filter(|pid| signal(**pid, what)).count() > 0;
        Ok(match strike.fault {
            Fault::KillNear => signal(running.pid(), Signal::KILL),
            Fault::KillFar => all(self.far(), Signal::KILL),
            Fault::KillSsh => all(self.processes(|words| words[0] == "ssh"), Signal::KILL),
            Fault::KillSession => {
                let session = |pid: &i32| sshd_above(*pid);
                all(self.far().iter().filter_map(session).collect(), Signal::KILL)
            }
            Fault::StopFar => {
                let far = self.far();
                let struck = all(far.clone(), Signal::STOP);
                thread::sleep(for_a_while);
                all(far, Signal::CONT);
                struck
            }
            Fault::RestartSshd => {
                let Some(wan) = &self.fixture.wan else { return Ok(false) };
                let session = |pid: &i32| sshd_above(*pid);
                all(self.far().iter().filter_map(session).collect(), Signal::KILL);
                // A login in progress finds no server either.
                wan.restart_far_sshd(for_a_while)?;
                true
            }
            Fault::Interrupt => signal(running.pid(), Signal::INT),
            Fault::InterruptGroup => running.signal_group(Signal::INT),
            Fault::Full => self.resize(files::stored_bytes(&self.place) + (128 << 10)).is_ok(),
            Fault::Cut | Fault::CutForward | Fault::CutBack => {
                let Some(wan) = &self.fixture.wan else { return Ok(false) };
                let loss = self.plan.path.loss_permille as f64 / 10.0;
                match strike.fault {
                    Fault::Cut => wan.cut(Some(for_a_while))?,
                    Fault::CutForward => {
                        wan.set(&change(&format!("--loss 100% --loss-back {loss}%"))?)?;
                    }
                    _ => wan.set(&change(&format!("--loss {loss}% --loss-back 100%"))?)?,
                }
                thread::sleep(for_a_while);
                wan.set(&change(&self.plan.path.words())?)?;
                true
            }
            Fault::Touch | Fault::Append | Fault::Rewrite => {
                let told = |why| format!("{}: {why}", self.file().display());
                self.change_source(strike.fault).map_err(told)?;
                true
            }
        })
    }

    fn change_source(&self, fault: Fault) -> std::io::Result<()> {
        let path = self.file();
        let mut file = fs::File::options().append(true).open(&path)?;
        match fault {
            Fault::Touch => file.set_modified(SystemTime::now())?,
            Fault::Append => file.write_all(b"one more line\n")?,
            _ => {
                // Replaced as editors do it: at every moment it is one or the other. Its folder,
                // which is another source, stays as it was.
                let new = self.fixture.folder.join(format!("new-{}", self.name));
                files::write(&new, 4711, file.metadata()?.len().min(64 << 20));
                let folder = fs::File::open(path.parent().unwrap())?;
                let time = folder.metadata()?.modified()?;
                fs::rename(new, path)?;
                folder.set_modified(time)?;
            }
        }
        Ok(())
    }

    fn resize(&self, bytes: u64) -> Result<(), String> {
        let size = format!("remount,size={}k", bytes >> 10);
        said(Command::new("mount").args(["-o", &size]).arg(&self.place))
    }

    fn far(&self) -> Vec<i32> {
        self.processes(|words| words[0] == self.far_program.as_os_str())
    }

    /// Processes of this round whose command line is as asked.
    fn processes(&self, is: impl Fn(&[&str]) -> bool) -> Vec<i32> {
        let ours = self.far_program.display().to_string();
        let pids = fs::read_dir("/proc").unwrap().filter_map(|entry| {
            let pid: i32 = entry.ok()?.file_name().to_str()?.parse().ok()?;
            let line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
            let line = String::from_utf8_lossy(&line).into_owned();
            let words: Vec<&str> = line.trim_end_matches('\0').split('\0').collect();
            (words.iter().any(|word| word.contains(&ours)) && is(&words)).then_some(pid)
        });
        pids.collect()
    }

    /// Follows a run to its end. True: everything was copied; false: run it again.
    fn ends(&mut self, running: Running, struck: &[Strike]) -> Result<bool, String> {
        let mut broken = Ok(());
        let mut looked = Instant::now();
        let ended = running.end(HANGS, || {
            if looked.elapsed() > LOOK_EVERY && broken.is_ok() {
                looked = Instant::now();
                broken = self.check_named();
            }
        })?;
        ended.log(&self.log(self.shown.runs));
        broken?;
        self.check_code(&ended, struck)?;
        self.check_none_left()?;
        self.check_named()?;
        self.check_bytes(&ended, struck)?;
        if self.mounted {
            self.resize(ROOM_BYTES)?;
        }
        // A source that changed after it had its final name is not replaced: `--overwrite never`.
        Ok(match ended.code {
            // The same command takes the journal away.
            Some(0) => !ended.reported.journal_may_stay,
            Some(3) => self.was_over || (self.changed() && struck.is_empty()),
            _ => false,
        })
    }

    fn changed(&self) -> bool {
        self.shown.struck.iter().any(|fault| fault.changes_source())
    }

    fn check_code(&mut self, ended: &Ended, struck: &[Strike]) -> Result<(), String> {
        let was = |fault: Fault| struck.iter().any(|strike| strike.fault == fault);
        let early = struck.iter().any(|strike| !matches!(strike.moment, Moment::Share(_)));
        let allowed = match ended.code {
            Some(0) => true,
            Some(3) if self.was_over => true,
            Some(3 | 4) => self.changed(),
            Some(5) => was(Fault::Full),
            // The login is not complete, and a person is waiting.
            Some(7) if early && !was(Fault::Interrupt) && !was(Fault::InterruptGroup) => {
                self.shown.refused_logins += 1;
                true
            }
            Some(130) => was(Fault::Interrupt) || was(Fault::InterruptGroup),
            // Ctrl-C before the program has installed its handler ends it like any other program.
            None => {
                let interrupted = was(Fault::Interrupt) || was(Fault::InterruptGroup);
                was(Fault::KillNear) || (early && interrupted)
            }
            Some(_) => false,
        };
        match allowed {
            true => Ok(()),
            false => {
                let faults: Vec<Fault> = struck.iter().map(|strike| strike.fault).collect();
                Err(format!("wrong code after {faults:?}: {}", ended.summary()))
            }
        }
    }

    fn check_none_left(&self) -> Result<(), String> {
        let deadline = Instant::now() + ENDS_WITHIN;
        loop {
            let left = self.processes(|words| !words[0].contains("sshd"));
            if left.is_empty() {
                return Ok(());
            }
            if Instant::now() > deadline {
                let line = |pid: &i32| {
                    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
                    String::from_utf8_lossy(&line).replace('\0', " ")
                };
                let lines: Vec<String> = left.iter().map(line).collect();
                return Err(format!("process left after {ENDS_WITHIN:?}: {lines:?}"));
            }
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// The bytes sent again are bounded, and what earlier runs brought is still there.
    fn check_bytes(&mut self, ended: &Ended, struck: &[Strike]) -> Result<(), String> {
        let reported = &ended.reported;
        self.sent_bytes += reported.sent_bytes();
        let one_file = matches!(self.plan.load, Load::Large | Load::Sparse);
        if one_file && reported.all_found && !self.changed() {
            if reported.held_bytes < self.held_bytes {
                let (before, now) = (self.held_bytes, reported.held_bytes);
                return Err(format!("progress lost: {before} bytes were held, now {now}"));
            }
            self.held_bytes = reported.held_bytes;
        }
        for side in ["source", "sink"].map(|role| &reported.end["record"][role]) {
            let number = |name: &str| side[name].as_u64().unwrap_or_default();
            let beyond = number("peak_memory_bytes");
            let beyond = beyond.saturating_sub(number("planned_memory_bytes"));
            self.shown.beyond_plan_bytes = self.shown.beyond_plan_bytes.max(beyond);
            if beyond > MEMORY_BEYOND_PLAN {
                return Err(format!("memory: {beyond} bytes beyond the plan: {side}"));
            }
        }
        let resumed = reported.end["record"]["moved"]["resumed_bytes"].as_u64().unwrap_or_default();
        let undisturbed = struck.is_empty() && ended.code == Some(0) && !self.changed();
        if undisturbed && self.plan.load == Load::Large {
            let total = fs::metadata(self.file()).map_or(0, |meta| meta.len());
            let sent = reported.sent_bytes();
            if resumed + sent != total {
                return Err(format!("resumed_bytes: {resumed} and {sent} sent are not {total}"));
            }
        }
        Ok(())
    }

    /// Every final name has all the bytes of its source; all else is a temporary of ours.
    fn check_named(&mut self) -> Result<(), String> {
        for path in files::below(&self.target, false) {
            let inner = path.strip_prefix(&self.target).unwrap();
            let name = inner.file_name().unwrap_or_default().to_string_lossy();
            let Ok(meta) = fs::metadata(&path) else { continue };
            let seen = (path.clone(), meta.ino(), meta.len(), meta.mtime_nsec());
            if name.starts_with(".datapump-") || !self.compared.insert(seen) {
                continue;
            }
            self.shown.compared += 1;
            let was = self.was.as_ref();
            let same = files::same_bytes(&self.source.join(inner), &path)
                || was.is_some_and(|was| files::same_bytes(&was.join(inner), &path));
            // A rename between the list and the comparison is not the file's fault.
            if !same && path.exists() {
                return Err(format!("wrong bytes under the final name {}", inner.display()));
            }
        }
        Ok(())
    }

    /// The end of the round: everything is there, nothing else is, and little was sent twice.
    fn whole(&mut self) -> Result<Shown, String> {
        self.compared.clear();
        self.check_named()?;
        if let Some(why) = self.missing() {
            return Err(why);
        }
        self.check_sizes()
    }

    /// How the names at the destination differ from those of the source.
    fn missing(&self) -> Option<String> {
        let here = names_below(&self.target);
        let there = self.names();
        if let Some(name) = here.iter().find(|name| !there.contains(name)) {
            return Some(format!("left over: {}", name.display()));
        }
        (there.len() != here.len())
            .then(|| format!("missing: {} of {} files are there", here.len(), there.len()))
    }

    /// The names to be copied.
    fn names(&self) -> Vec<PathBuf> {
        if self.plan.load != Load::List {
            return names_below(&self.source);
        }
        let list = fs::read_to_string(self.fixture.folder.join("list")).unwrap();
        let mut names: Vec<PathBuf> = list.lines().map(PathBuf::from).collect();
        names.sort();
        names
    }

    fn check_sizes(&mut self) -> Result<Shown, String> {
        let there = self.names();
        let mut to_send = 0;
        for name in &there {
            let [from, to] = [&self.source, &self.target].map(|root| root.join(name));
            let [from, to] = [from, to].map(|path| fs::metadata(path).unwrap());
            // A side counts holes as moved too.
            let copied = if self.changed() { to.len() } else { 0 };
            to_send += from.len().max(copied);
        }
        if self.plan.load == Load::Sparse && !self.changed() {
            let [from, to] = [&self.source, &self.target].map(|root| files::stored_bytes(root));
            if to > from + from / 100 + (1 << 20) {
                return Err(format!("holes: {from} bytes of disk became {to}"));
            }
        }
        if self.plan.load == Load::Tree && self.fixture.checks_folders {
            self.check_folders()?;
        }
        let path = self.plan.path;
        let once = JOURNAL_BYTES + self.plan.in_flight_bytes() + path.bytes_per_second();
        let strikes = self.shown.struck.len() as u64;
        self.shown.bound_bytes = once * strikes + if self.changed() { to_send } else { 0 };
        self.shown.resent_bytes = self.sent_bytes.saturating_sub(to_send);
        if self.shown.resent_bytes > self.shown.bound_bytes {
            let (resent, bound) = (self.shown.resent_bytes, self.shown.bound_bytes);
            return Err(format!("sent again: {resent} bytes where {bound} are allowed"));
        }
        Ok(self.shown.clone())
    }

    /// Folders that the copy made have mode and time of their sources.
    fn check_folders(&self) -> Result<(), String> {
        for from in files::below(&self.source, true).iter().chain([&self.source]) {
            let inner = from.strip_prefix(&self.source).unwrap();
            let to = match inner.as_os_str().is_empty() {
                true => self.target.clone(),
                false => self.target.join(inner),
            };
            let time = |path: &Path| fs::metadata(path).and_then(|meta| meta.modified()).ok();
            if files::mode(from) != files::mode(&to) || time(from) != time(&to) {
                return Err(format!(
                    "folder: {:?}: mode {:o} and {:?} for {:o} and {:?}",
                    to.strip_prefix(&self.place).unwrap(),
                    files::mode(&to),
                    time(&to),
                    files::mode(from),
                    time(from)
                ));
            }
        }
        Ok(())
    }

    fn log(&self, run: u64) -> PathBuf {
        self.fixture.logs.join(format!("{}-run{run}.log", self.name))
    }
}

fn names_below(root: &Path) -> Vec<PathBuf> {
    let found = files::below(root, false);
    found.iter().map(|path| path.strip_prefix(root).unwrap().to_owned()).collect()
}

/// The sshd process that serves the login of this process.
fn sshd_above(pid: i32) -> Option<i32> {
    let mut pid = pid;
    for _ in 0..4 {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        pid = stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()?;
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
        if name.starts_with("sshd") {
            return Some(pid);
        }
    }
    None
}

fn said(command: &mut Command) -> Result<(), String> {
    let said = command.output().map_err(|why| format!("{command:?}: {why}"))?;
    match said.status.success() {
        true => Ok(()),
        false => Err(format!("{command:?}: {}", String::from_utf8_lossy(&said.stderr))),
    }
}

/// Only a hang takes so long, on the busiest machine and the slowest path.
const HANGS: Duration = Duration::from_secs(240);
const ENDS_WITHIN: Duration = Duration::from_secs(15);
const LOOK_EVERY: Duration = Duration::from_millis(300);
const ROOM_BYTES: u64 = 8 << 30;
/// What may have been written since the journal's last line.
const JOURNAL_BYTES: u64 = 64 << 20;
const MEMORY_BEYOND_PLAN: u64 = 64 << 20;
