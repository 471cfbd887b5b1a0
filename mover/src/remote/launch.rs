//! Starts the far side: the system's `ssh`, or a process on this host.

use std::fmt::{self, Debug};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, Sender, SyncSender, TryRecvError, channel, sync_channel};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process};

use super::install::{self, FarOutput, Installing, Part, Progress};
use super::peer::tag;
use super::tunnel::{Started, Tunnel};
use crate::io::system;
use base::cpus::Cpus;
use base::escape;
use base::fault::{Class, Fault};
use base::job::{Install, Remote};
use base::units::Nanos;

/// How the far side is started.
#[derive(Clone, Debug)]
pub enum Launch {
    Ssh {
        host: String,
        remote: Remote,
    },
    /// This very program, as another process on this host.
    Process {
        program: PathBuf,
        /// The CPUs that it is bound to.
        cpus: Option<Cpus>,
    },
}

/// Whether the user may be asked for a password.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Login {
    First,
    /// The connection was lost: a key or an agent must be enough.
    Again,
}

impl Login {
    /// How long the far side may take for its first message; `None` while the user may be typing.
    pub fn patience(self, stall: Nanos) -> Option<Nanos> {
        let asked = self == Login::First && std::fs::File::open("/dev/tty").is_ok();
        (!asked).then(|| Nanos(stall.0 + LOGIN_WITHIN.0))
    }
}

/// The extra time for a login: name lookup and key exchange.
const LOGIN_WITHIN: Nanos = Nanos::from_millis(15_000);

/// Makes ssh fail where it would ask, and give up where nothing answers.
const UNATTENDED: [&str; 4] = ["-o", "BatchMode=yes", "-o", "ConnectTimeout=15"];

/// No terminal, no escape character: the connection carries bytes. And nothing is forwarded from
/// this host to the far one, whatever the user's configuration sets for interactive logins.
const PLAIN: [&str; 17] = [
    "-T",
    "-x",
    "-a",
    "-e",
    "none",
    "-o",
    "ClearAllForwardings=yes",
    "-o",
    "ForwardX11=no",
    "-o",
    "PermitLocalCommand=no",
    "-o",
    "RemoteCommand=none",
    "-o",
    "ForwardAgent=no",
    "-o",
    "Tunnel=no",
];

/// A far side that has been started.
#[derive(Debug)]
pub struct Launched {
    child: Far,
    what: String,
    host: Option<String>,
    program: String,
    relay: Option<Relay>,
    progress: Arc<Progress>,
}

/// What shows that a far side has ended.
#[derive(Debug)]
enum Far {
    /// The command that has logged in for it.
    Process(Child),
    /// Its exit code, which comes over a login that stays.
    Tunnelled { code: Receiver<u8>, ended: Option<ExitStatus> },
}

impl Far {
    fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        match self {
            Far::Process(child) => child.try_wait(),
            Far::Tunnelled { code, ended } => {
                let said = match code.try_recv() {
                    Ok(code) => Some(i32::from(code)),
                    // As ssh says it.
                    Err(TryRecvError::Disconnected) => Some(SSH_FAILED),
                    Err(TryRecvError::Empty) => None,
                };
                let now = said.map(|code| ExitStatus::from_raw(code << 8));
                *ended = ended.or(now);
                Ok(*ended)
            }
        }
    }
}

/// What the end of a far side means.
#[derive(Debug)]
pub struct Explained {
    pub fault: Fault,
    /// It was ended from outside, or its connection was lost: another attempt may succeed.
    pub was_there: bool,
}

/// Reports what ssh prints on its standard error, line by line. A last line, after which ssh ends,
/// is kept back: it is part of the explanation of the end.
#[derive(Debug)]
struct Relay {
    last_line: Arc<Mutex<String>>,
    /// As it would be told.
    held: Arc<Mutex<String>>,
    tell: Tell,
    thread: JoinHandle<()>,
}

/// Takes what the user is told, line by line.
#[derive(Clone)]
pub(super) struct Tell(Arc<dyn Fn(String) + Send + Sync>);

impl Tell {
    pub(super) fn say(&self, line: String) {
        (self.0)(line);
    }
}

impl Debug for Tell {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("Tell")
    }
}

impl Launch {
    /// The far host, as it was typed.
    pub(crate) fn host(&self) -> Option<&str> {
        match self {
            Launch::Ssh { host, .. } => Some(host),
            Launch::Process { .. } => None,
        }
    }

    /// True where the far host may be sent a program: `/bin/sh` there reads a script first.
    fn may_install(&self) -> bool {
        matches!(self, Launch::Ssh { remote, .. }
            if remote.datapump.is_none() && remote.install != Install::Never)
    }

    /// Starts the far side of a copy. What ssh prints in the meantime goes to `tell`.
    pub fn start(
        &self,
        login: Login,
        tell: impl Fn(String) + Send + Sync + 'static,
    ) -> Result<(Launched, ChildStdin, FarOutput), Fault> {
        let cpus = match self {
            Launch::Ssh { remote, .. } => remote.cpus.as_ref(),
            Launch::Process { cpus, .. } => cpus.as_ref(),
        };
        let mut words = vec!["peer".to_string()];
        words.extend(cpus.map(|cpus| format!("--cpus={cpus}")));
        let tell = Tell(Arc::new(tell));
        self.spawn(&words, login, tell.clone(), Some(tell))
    }

    /// Starts the far side of a copy over a login that is there already.
    pub(super) fn start_over(
        &self,
        tunnel: &dyn Tunnel,
    ) -> Result<(Launched, ChildStdin, FarOutput), Fault> {
        let Started { input, output, code } = tunnel.start()?;
        let launched = Launched {
            child: Far::Tunnelled { code, ended: None },
            what: self.what(),
            host: self.host().map(str::to_string),
            program: "datapump".to_string(),
            relay: None,
            progress: Arc::default(),
        };
        Ok((launched, ChildStdin::from(input), FarOutput::plain(ChildStdout::from(output))))
    }

    /// Starts this program there with these words, which need no quoting in a shell. What it prints
    /// on its standard error is on this one's, safe for a terminal.
    pub fn start_as(
        &self,
        words: &[String],
        login: Login,
    ) -> Result<(Launched, ChildStdin, FarOutput), Fault> {
        let tell = |line: String| {
            let text = format!("{}\n", escape::line(&line));
            let _ = io::stderr().lock().write_all(text.as_bytes());
        };
        self.spawn(words, login, Tell(Arc::new(tell)), None)
    }

    fn spawn(
        &self,
        words: &[String],
        login: Login,
        said: Tell,
        tell: Option<Tell>,
    ) -> Result<(Launched, ChildStdin, FarOutput), Fault> {
        let (mut command, launched_as) = self.command(words, login);
        let what = self.what();
        // Never ours: what comes from a host could control the terminal.
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = spawn_from_lasting_thread(command).map_err(|error| {
            let fault = Fault::system(&format!("start '{what}'"), &error);
            Fault { class: Class::Unreachable, ..fault }
        })?;
        let mut stdin = child.stdin.take().expect("asked for");
        let stdout = child.stdout.take().expect("asked for");
        let progress = Arc::new(Progress::default());
        let stdout = match self.installing(words, &mut stdin, progress.clone(), tell)? {
            Some(installing) => FarOutput::answering(stdout, installing),
            None => FarOutput::plain(stdout),
        };
        let host = self.host().map(str::to_string);
        let relay = child.stderr.take().map(|from| Relay::start(from, what.clone(), said));
        let (program, child) = (launched_as, Far::Process(child));
        Ok((Launched { child, what, host, program, relay, progress }, stdin, stdout))
    }

    /// Gives the far host's shell its script, while ssh logs in; where that may install something.
    fn installing(
        &self,
        words: &[String],
        stdin: &mut ChildStdin,
        progress: Arc<Progress>,
        tell: Option<Tell>,
    ) -> Result<Option<Installing>, Fault> {
        let Launch::Ssh { host, remote } = self else { return Ok(None) };
        if !self.may_install() {
            return Ok(None);
        }
        let part = Part::of(words);
        let programs = install::programs(part);
        let script = install::script(part, &words.join(" "), remote.install, &programs, &tag()?);
        // Where ssh has ended already, its end says why.
        drop(stdin.write_all(script.as_bytes()));
        let input = stdin.as_fd().try_clone_to_owned();
        let input = input.map_err(|error| Fault::system("duplicate a pipe", &error))?;
        Ok(Some(Installing {
            part,
            host: host.clone(),
            programs,
            input: File::from(input),
            progress,
            tell,
            tried: Vec::new(),
            sent: 0,
        }))
    }

    /// The command as the user knows it.
    fn what(&self) -> String {
        match self {
            Launch::Process { program, .. } => program.display().to_string(),
            Launch::Ssh { remote, .. } => {
                let ssh = remote.ssh.as_ref().and_then(|words| words.first());
                ssh.map_or("ssh", String::as_str).to_string()
            }
        }
    }

    /// The command, and the name of the far program.
    fn command(&self, words: &[String], login: Login) -> (Command, String) {
        match self {
            Launch::Process { program, .. } => {
                let mut command = Command::new(program);
                // Signals of a terminal are for us; when we end, the child's streams end.
                command.args(words).process_group(0);
                (command, program.display().to_string())
            }
            Launch::Ssh { host, remote } => {
                let program = match &remote.datapump {
                    _ if self.may_install() => SHELL.to_string(),
                    Some(program) => program.clone(),
                    None => "datapump".to_string(),
                };
                let (ssh, arguments) = match remote.ssh.as_deref() {
                    Some([ssh, arguments @ ..]) => (ssh.as_str(), arguments),
                    _ => ("ssh", &[][..]),
                };
                let mut command = Command::new(ssh);
                system::end_with_parent(&mut command);
                if ssh.rsplit('/').next() == Some("ssh") {
                    // ssh takes the first of two settings of one option.
                    command.args(if login == Login::Again { &UNATTENDED[..] } else { &[] });
                    command.args(PLAIN);
                }
                command.args(arguments);
                command.arg(host).arg(match self.may_install() {
                    true => program.clone(), // one plain word, for any login shell
                    false => format!("{} {}", quoted(&program), words.join(" ")),
                });
                (command, program)
            }
        }
    }
}

impl Launched {
    /// What the end of the far side means, when it ended before it said anything useful.
    pub fn explain(&mut self, fault: Fault) -> Explained {
        let explained = self.explained(fault);
        if let Some(relay) = &self.relay {
            relay.told_in(&explained.fault.text);
        }
        explained
    }

    /// Grows while a program is sent there.
    pub(super) fn sent_bytes(&self) -> u64 {
        self.progress.sent_bytes()
    }

    /// What the user is to be told of a program that was sent there, where nobody was told at once.
    pub fn installed(&self) -> Option<String> {
        self.progress.note()
    }

    fn explained(&mut self, fault: Fault) -> Explained {
        let given = |fault| Explained { fault, was_there: false };
        if let Some(fault) = self.progress.fault() {
            return given(fault);
        }
        let Some(status) = self.wait(Duration::from_millis(500)) else { return given(fault) };
        let host = self.host.clone().unwrap_or_else(|| "this host".into());
        let unreachable = fault.class == Class::Unreachable;
        let (what, said) =
            (&self.what, self.relay.as_ref().map_or(String::new(), Relay::last_line));
        let lost =
            |text| Explained { fault: Fault::new(Class::Unreachable, text), was_there: true };
        if let Some(signal) = status.signal().filter(|_| unreachable) {
            let name = signal_hook::low_level::signal_name(signal).unwrap_or("a signal");
            return lost(format!("'{what}' to {host} was ended by {name}, before all was said"));
        }
        let text = match status.code() {
            // A login that ends at once and says nothing may be anything.
            Some(code)
                if unreachable
                    && code != SSH_FAILED
                    && self.had_no_shell()
                    && (!said.is_empty() || matches!(code, 126 | 127)) =>
            {
                return given(Fault::new(Class::Version, self.no_shell(&host, code, &said)));
            }
            Some(126 | 127) => {
                let text = format!(
                    "there is no datapump at {host} ('{}' was not found there): install the same \
                     version, name its path with --remote-datapump, or let it be sent there by \
                     --install auto without --remote-datapump",
                    self.program
                );
                return given(Fault::new(Class::Version, text));
            }
            // ssh itself says what it cannot do.
            Some(SSH_FAILED) if unreachable && self.host.is_some() && said.is_empty() => {
                return lost(format!(
                    "the far side at {host} was ended, or its connection was lost, before it \
                     answered ('{what}' gave no reason)"
                ));
            }
            Some(SSH_FAILED) if unreachable && self.host.is_some() => {
                format!("cannot reach {host}: '{what}' said: {said}; try '{what} {host} true'")
            }
            Some(code) if unreachable => format!(
                "the far side at {host} ended before it answered ('{what}' with exit code {code}): \
                 {fault}"
            ),
            _ => return given(fault),
        };
        given(Fault::new(Class::Unreachable, text))
    }

    fn had_no_shell(&self) -> bool {
        self.program == SHELL && !self.progress.has_begun()
    }

    /// What a login means that ran something else than the shell.
    fn no_shell(&self, host: &str, code: i32, said: &str) -> String {
        let said = if said.is_empty() { String::new() } else { format!(": {said}") };
        format!(
            "{host} did not run {SHELL} for this login (exit code {code}){said}; if its account \
             has a forced command or a restricted shell, let that run 'datapump peer', and add \
             --install never"
        )
    }

    /// Waits for the far side to end, and kills it if it does not. True where it ended by itself,
    /// and so has read all that was sent.
    pub fn end(mut self, patience: Duration) -> bool {
        match self.wait(patience) {
            Some(status) => {
                if let Some(relay) = &self.relay {
                    relay.told_in("");
                }
                status.code().is_some_and(|code| code != SSH_FAILED)
            }
            None => {
                self.cut();
                false
            }
        }
    }

    /// Ends the command that connects to the far side: asks it first, and kills it in the end.
    pub fn cut(mut self) {
        // Over a login that stays it ends with its input.
        let Far::Process(child) = &self.child else { return };
        // At a prompt ssh has a terminal to restore.
        let _ = kill_process(Pid::from_child(child), Signal::TERM);
        if self.wait(Duration::from_millis(300)).is_none()
            && let Far::Process(child) = &mut self.child
        {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    fn wait(&mut self, at_most: Duration) -> Option<ExitStatus> {
        const BEAT: Duration = Duration::from_millis(2);
        let mut left = at_most;
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) => return Some(status),
                Ok(None) | Err(_) if left.is_zero() => return None,
                _ => {}
            }
            thread::sleep(BEAT);
            left = left.saturating_sub(BEAT);
        }
    }
}

impl Relay {
    fn start(from: ChildStderr, what: String, tell: Tell) -> Relay {
        let last_line = Arc::new(Mutex::new(String::new()));
        let last = last_line.clone();
        let held = Arc::new(Mutex::new(String::new()));
        let (relay_held, relay_tell) = (held.clone(), tell.clone());
        let work = move || {
            let mut from = BufReader::new(from);
            for number in 0.. {
                if !lock(&held).is_empty() && !more_within(&from, LINE_HELD) {
                    tell.say(std::mem::take(&mut *lock(&held)));
                }
                let mut line = Vec::new();
                match from.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line) {
                    Ok(1..) => {}
                    Ok(0) | Err(_) => return,
                }
                let text = String::from_utf8_lossy(&line).trim().to_string();
                if text.is_empty() || number >= LINES_MAX {
                    continue; // read on: the writer must not block
                }
                let whole = match text.starts_with(&format!("{what}:")) {
                    true => text.clone(),
                    false => format!("{what}: {text}"),
                };
                let before = std::mem::replace(&mut *lock(&held), whole);
                if !before.is_empty() {
                    tell.say(before);
                }
                *lock(&last) = text;
            }
        };
        let thread = thread::Builder::new().name("datapump-ssh-words".into()).spawn(work);
        let thread = thread.expect("the system gives a thread");
        Relay { last_line, held: relay_held, tell: relay_tell, thread }
    }

    /// Tells the line that is held back, unless this text has it.
    fn told_in(&self, text: &str) {
        let held = std::mem::take(&mut *lock(&self.held));
        if !held.is_empty() && !text.contains(lock(&self.last_line).as_str()) {
            self.tell.say(held);
        }
    }

    /// The last line that was printed. A shared connection may keep the pipe open.
    fn last_line(&self) -> String {
        for _ in 0..150 {
            if self.thread.is_finished() {
                break;
            }
            thread::sleep(Duration::from_millis(2));
        }
        lock(&self.last_line).clone()
    }
}

fn lock(text: &Mutex<String>) -> MutexGuard<'_, String> {
    text.lock().unwrap_or_else(PoisonError::into_inner)
}

/// True where something can be read in this time, or the end is reached.
fn more_within(from: &BufReader<ChildStderr>, time: Timespec) -> bool {
    let mut waiting = [PollFd::new(from.get_ref(), PollFlags::IN)];
    !from.buffer().is_empty() || !matches!(poll(&mut waiting, Some(&time)), Ok(0))
}

/// So long a line is kept back: the end of ssh follows its last line at once.
const LINE_HELD: Timespec = Timespec { tv_sec: 0, tv_nsec: 300_000_000 };
/// How long a far side that is no longer needed may take to end.
pub const LEAVES_WITHIN: Duration = Duration::from_millis(900);
/// The far command where a program may be sent.
const SHELL: &str = "/bin/sh";
/// The exit code of ssh where ssh itself has failed, not what it started.
const SSH_FAILED: i32 = 255;

/// How much of ssh's output is shown: a banner, not a flood.
const LINE_BYTES_MAX: u64 = 4096;
const LINES_MAX: u64 = 200;

type Start = (Command, SyncSender<io::Result<Child>>);

/// Starts a program that ends with this one. The kernel ends it with the *thread* that has started
/// it, so that thread must last.
fn spawn_from_lasting_thread(command: Command) -> io::Result<Child> {
    static STARTER: LazyLock<Sender<Start>> = LazyLock::new(|| {
        let (orders, received) = channel::<Start>();
        let work = move || {
            for (mut command, answer) in received {
                let _ = answer.send(command.spawn());
            }
        };
        let thread = thread::Builder::new().name("datapump-starter".into()).spawn(work);
        thread.expect("the system gives a thread");
        orders
    });
    let (answer, started) = sync_channel(1);
    STARTER.send((command, answer)).expect("the thread lasts");
    started.recv().expect("the thread answers")
}

/// Quotes a word so that every shell takes it literally; a leading `~` keeps its meaning.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+~".contains(c);
    match word.chars().all(plain) {
        true => word.to_string(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

/// The path of this program's file.
pub fn own_program() -> Result<PathBuf, Fault> {
    std::env::current_exe()
        .map_err(|error: io::Error| Fault::system("find this program's file", &error))
}
