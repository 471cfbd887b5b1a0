//! The probe of one host while something is measured: a process of its own, here or over ssh, which
//! is asked in JSON, one object a line, and answers so.
//!
//! It is a process of its own so that its soakers and its reading of clocks are nobody's CPU time,
//! and so that a far host is looked at in the same way as this one. It ends when its standard input
//! is closed, so it never outlives who asks. It knows no experiment
//! and no store.

pub mod knock;
pub mod path;
pub mod soaker;

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, ChildStdout};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use self::knock::Token;
use self::soaker::Soakers;
use crate::host::checkup::{self, Toward};
use crate::host::file::{self, FileState};
use crate::host::hold;
use analysis::accounting::gates::{self, Spun};
use analysis::accounting::moment::{
    Moment, ThreadTime, read_available_bytes, read_cpus, read_device_interrupts, read_kernel_thread,
};
use analysis::record::sample::Environment;
use base::cpus::Cpus;
use base::fault::{Class, Fault};
use base::units::Nanos;
use mover::io::clock;
use mover::io::system::{self, CpuClock};
use mover::remote::launch::{LEAVES_WITHIN, Launch, Launched, Login};
use mover::remote::peer::PROGRAM;

/// What a probe can be asked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
enum Request {
    Moment {},
    /// Exactly these CPUs are soaked from now on.
    Soak {
        cpus: Vec<u32>,
    },
    /// Whoever else is on the host goes first, also to the scheduler's groups.
    GiveWay {},
    Environment {},
    /// What a doctor wants to know beside the environment.
    Checkup {
        folder: PathBuf,
        toward: Toward,
    },
    /// What time it is.
    Time {},
    /// A port is to be opened for one who knows the token.
    Listen {
        ports: Option<(u16, u16)>,
        token: Token,
    },
    /// The same for one who wants back what it sends.
    Reflect {
        ports: Option<(u16, u16)>,
        token: Token,
    },
    /// Nobody else is to measure this host until the probe ends.
    Hold {
        who: String,
    },
    File {
        path: PathBuf,
    },
    /// A file is to leave the page cache.
    Drop {
        path: PathBuf,
    },
    /// What a run has written in a folder of its host is to go; nothing else can be named.
    RemoveSink {
        folder: PathBuf,
    },
    /// A thread of normal weight wants all of a CPU for so long.
    Spin {
        cpu: u32,
        for_ms: u32,
    },
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Answer {
    /// Who answers; always first.
    Probe {
        program: String,
        cpus: Vec<u32>,
    },
    Moment(Box<Moment>),
    Done {},
    Environment(Environment),
    Facts(BTreeMap<String, String>),
    Time {
        unix_s: f64,
    },
    Listening {
        port: u16,
    },
    File(FileState),
    Spun(Spun),
    /// It could not be done; the probe goes on.
    Failed {
        why: String,
    },
}

/// What a run writes in a folder of another host.
pub(crate) const FAR_SINK: &str = ".datapump-measure-sink";
/// A line in front of the first answer: what a login shell prints comes before it.
const MARK: &str = "datapump-probe";
/// No answer is longer: a thousand CPUs and ten thousand threads are less.
const LINE_BYTES_MAX: u64 = 16 << 20;
/// How much a login shell may print.
const NOISE_LINES_MAX: usize = 1000;
/// A busy host answers late. A login may ask for a password first.
const PATIENCE: Duration = Duration::from_secs(30);
const PATIENCE_LOGIN: Duration = Duration::from_secs(120);
const SPIN_MS_MAX: u32 = 10_000;

/// `datapump probe`: the exit code.
pub fn main(environment: fn() -> Environment) -> u8 {
    match serve(&mut io::stdin().lock(), &mut io::stdout().lock(), environment) {
        Ok(()) => 0,
        // Who asked has gone; nobody is there to be told.
        Err(_) => Class::Unreachable.exit_code(),
    }
}

fn serve(
    input: &mut dyn BufRead,
    output: &mut dyn Write,
    environment: fn() -> Environment,
) -> io::Result<()> {
    // Who started us may be held to one CPU; soakers must reach all.
    let cpus = system::unpin();
    writeln!(output, "\n{MARK}")?;
    answer(output, &Answer::Probe { program: PROGRAM.into(), cpus })?;
    let own = CpuClock::of_process(std::process::id());
    let mut soakers = Soakers::default();
    while let Some(line) = line(input)? {
        let said = match serde_json::from_str(&line) {
            Ok(request) => fulfil(request, own, &mut soakers, environment),
            Err(why) => Err(format!("no request of a probe: {why}")),
        };
        answer(output, &said.unwrap_or_else(|why| Answer::Failed { why }))?;
    }
    Ok(())
}

fn fulfil(
    request: Request,
    own: Option<CpuClock>,
    soakers: &mut Soakers,
    environment: fn() -> Environment,
) -> Result<Answer, String> {
    match request {
        Request::Moment {} => Ok(Answer::Moment(Box::new(moment(own, soakers)))),
        Request::Soak { cpus } => soakers.soak(&cpus, clock::now()).map(|()| Answer::Done {}),
        Request::GiveWay {} => {
            give_way();
            Ok(Answer::Done {})
        }
        Request::Environment {} => Ok(Answer::Environment(environment())),
        Request::Checkup { folder, toward } => Ok(Answer::Facts(checkup::here(&folder, toward))),
        Request::Time {} => Ok(Answer::Time { unix_s: clock::unix().as_secs_f64() }),
        Request::Listen { ports, token } => {
            knock::answer(ports, token).map(|port| Answer::Listening { port })
        }
        Request::Reflect { ports, token } => {
            knock::reflect(ports, token).map(|port| Answer::Listening { port })
        }
        Request::Hold { who } => hold::hold(hold::PathEnd::Far, &who).map(|()| Answer::Done {}),
        Request::File { path } => file::state(&path).map(Answer::File),
        Request::Drop { path } => file::drop_from_cache(&path).map(|()| Answer::Done {}),
        Request::RemoveSink { folder } => {
            file::remove_if_there(&folder.join(FAR_SINK)).map(|()| Answer::Done {})
        }
        Request::Spin { cpu, for_ms } => spin(cpu, for_ms.min(SPIN_MS_MAX)).map(Answer::Spun),
    }
}

fn answer(output: &mut dyn Write, answer: &Answer) -> io::Result<()> {
    let mut line = serde_json::to_vec(answer)?;
    line.push(b'\n');
    output.write_all(&line)?;
    output.flush()
}

/// The next line; `None` where nobody will say anything more.
fn line(input: &mut dyn BufRead) -> io::Result<Option<String>> {
    let mut line = Vec::new();
    match input.take(LINE_BYTES_MAX).read_until(b'\n', &mut line)? {
        0 => Ok(None),
        _ if line.last() != Some(&b'\n') => Ok(None),
        _ => Ok(Some(String::from_utf8_lossy(&line).into_owned())),
    }
}

/// Reads all clocks. Those that are compared with each other are read first, close together.
fn moment(own: Option<CpuClock>, soakers: &Soakers) -> Moment {
    let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let stat = text("/proc/stat");
    let soaking = soakers.times();
    let at_ns = clock::now().0;
    let kernel_threads = kernel_threads();
    let memory_available_bytes = read_available_bytes(&text("/proc/meminfo"));
    let all_ns = own.and_then(CpuClock::now).map_or(0, |time| time.0);
    Moment {
        at_ns,
        cpus: read_cpus(&stat, rustix::param::clock_ticks_per_second()),
        soakers: soaking,
        kernel_threads,
        own_cpu_ns: all_ns.saturating_sub(soakers.cpu_ns()),
        memory_available_bytes,
        device_interrupts: read_device_interrupts(&stat),
    }
}

/// Threads of the kernel are processes without a session; that costs one cheap call for each of the
/// others. One that ends meanwhile is left out.
fn kernel_threads() -> Vec<ThreadTime> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid| system::session_of(*pid) == Some(0)).filter_map(kernel_thread).collect()
}

fn kernel_thread(pid: u32) -> Option<ThreadTime> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (name, started) = read_kernel_thread(&stat)?;
    let cpu_ns = CpuClock::of_process(pid)?.now()?.0;
    let cpu = match system::allowed_cpus(pid)[..] {
        [only] => Some(only),
        _ => None,
    };
    Some(ThreadTime { pid, started, name, cpu, cpu_ns })
}

/// To the scheduler a session is a group (where `sched_autogroup_enabled` is 1), and SCHED_IDLE
/// gives way within a group only: a soaker in a session of its own would take half of a CPU. A
/// session's weight can be lowered to 15 where that of others is 1024; some 1.5 % of a busy CPU is
/// what remains.
/// A session that is not the probe's own is left alone: it is somebody's terminal.
fn give_way() {
    let (own, parent) = (std::process::id(), std::os::unix::process::parent_id());
    // sshd starts a session for the shell, which becomes this program or waits for it.
    if system::session_of(own).is_some_and(|leader| leader == own || leader == parent) {
        // A kernel without such groups has no such file.
        let _ = fs::write("/proc/self/autogroup", "19");
    }
}

/// Wants all of a CPU for a while.
fn spin(cpu: u32, for_ms: u32) -> Result<Spun, String> {
    let one = Cpus::of([cpu]).ok_or("there is no such CPU")?;
    let work = move || {
        system::pin(&one)?;
        let own = CpuClock::of_this_thread().ok_or("a thread has no clock")?;
        let used = || own.now().unwrap_or_default();
        let (from, used_before) = (clock::now(), used());
        while clock::now().since(from) < Nanos::from_millis(for_ms.into()) {}
        let cpu_ns = (used() - used_before).0;
        Ok(Spun { wall_ns: clock::now().since(from).0, cpu_ns })
    };
    thread::spawn(work).join().unwrap_or_else(|_| Err("a thread failed".into()))
}

/// A probe that runs, and who asks it.
#[derive(Debug)]
pub struct Probe {
    what: String,
    launched: Option<Launched>,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    cpus: Vec<u32>,
    group: Group,
}

/// The scheduler's group that a probe is in, and so its soakers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Group {
    /// That of who started it.
    Shared,
    /// One of its own, as an ssh login has, which weighs as much as any other.
    Own,
    /// One of its own that gives way to others.
    Light,
}

impl Probe {
    /// Starts a probe: `how` is as for the far side of a copy. Its first answer has come when this
    /// returns.
    pub fn start(how: &Launch) -> Result<Probe, Fault> {
        let what = match how {
            Launch::Ssh { host, .. } => format!("the probe at {host}"),
            Launch::Process { .. } => "the probe on this host".to_string(),
        };
        let group = match how {
            Launch::Ssh { .. } => Group::Own,
            Launch::Process { .. } => Group::Shared,
        };
        let (launched, stdin, stdout) = how.start_as(&["probe".to_string()], Login::First)?;
        let lines = read(stdout);
        let (launched, stdin, cpus) = (Some(launched), Some(stdin), Vec::new());
        let mut probe = Probe { what, launched, stdin, lines, cpus, group };
        match probe.greeted() {
            Ok(()) => Ok(probe),
            Err(fault) => Err(match &mut probe.launched {
                Some(launched) => launched.explain(fault).fault,
                None => fault,
            }),
        }
    }

    fn greeted(&mut self) -> Result<(), Fault> {
        let mut noise = 0;
        while self.next_line(PATIENCE_LOGIN)?.trim_end() != MARK {
            noise += 1;
            if noise > NOISE_LINES_MAX {
                return Err(self.gone("something else answers"));
            }
        }
        match self.next_answer()? {
            Answer::Probe { program, cpus } if program == PROGRAM => {
                self.cpus = cpus;
                Ok(())
            }
            Answer::Probe { program, .. } => Err(Fault::new(
                Class::Version,
                format!("{} is {program}, this is {PROGRAM}: install the same", self.what),
            )),
            other => Err(self.strange(&other)),
        }
    }

    /// The CPUs of its host that it may use.
    pub fn cpus(&self) -> &[u32] {
        &self.cpus
    }

    pub fn moment(&mut self) -> Result<Moment, Fault> {
        match self.ask(&Request::Moment {})? {
            Answer::Moment(moment) => Ok(*moment),
            other => Err(self.strange(&other)),
        }
    }

    /// Has exactly these CPUs soaked from now on.
    pub fn soak(&mut self, cpus: &[u32]) -> Result<(), Fault> {
        if self.group == Group::Own && !cpus.is_empty() {
            self.done(&Request::GiveWay {})?;
            self.group = Group::Light;
        }
        self.done(&Request::Soak { cpus: cpus.to_vec() })
    }

    fn done(&mut self, request: &Request) -> Result<(), Fault> {
        match self.ask(request)? {
            Answer::Done {} => Ok(()),
            other => Err(self.strange(&other)),
        }
    }

    pub fn environment(&mut self) -> Result<Environment, Fault> {
        match self.ask(&Request::Environment {})? {
            Answer::Environment(environment) => Ok(environment),
            other => Err(self.strange(&other)),
        }
    }

    /// Facts beside those of the environment: of a folder there, and of an interface.
    pub(crate) fn checkup(
        &mut self,
        folder: &Path,
        toward: Toward,
    ) -> Result<BTreeMap<String, String>, Fault> {
        match self.ask(&Request::Checkup { folder: folder.into(), toward })? {
            Answer::Facts(facts) => Ok(facts),
            other => Err(self.strange(&other)),
        }
    }

    /// What time it is there.
    pub(crate) fn unix_s(&mut self) -> Result<f64, Fault> {
        match self.ask(&Request::Time {})? {
            Answer::Time { unix_s } => Ok(unix_s),
            other => Err(self.strange(&other)),
        }
    }

    /// Has a port opened, for a while, for one who knows the token.
    pub fn listen(&mut self, ports: Option<(u16, u16)>, token: &Token) -> Result<u16, Fault> {
        match self.ask(&Request::Listen { ports, token: *token })? {
            Answer::Listening { port } => Ok(port),
            other => Err(self.strange(&other)),
        }
    }

    /// Has a port opened that gives back what comes, to one who knows the token.
    pub(crate) fn reflect(
        &mut self,
        ports: Option<(u16, u16)>,
        token: &Token,
    ) -> Result<u16, Fault> {
        match self.ask(&Request::Reflect { ports, token: *token })? {
            Answer::Listening { port } => Ok(port),
            other => Err(self.strange(&other)),
        }
    }

    /// Claims the host for a campaign, until this probe ends. The error says who has it.
    pub fn hold(&mut self, who: &str) -> Result<(), Fault> {
        self.done(&Request::Hold { who: who.to_string() })
    }

    /// How much of a file is in the page cache, and where it lies.
    pub fn file(&mut self, path: &Path) -> Result<FileState, Fault> {
        match self.ask(&Request::File { path: path.into() })? {
            Answer::File(state) => Ok(state),
            other => Err(self.strange(&other)),
        }
    }

    /// Makes the page cache forget a file: cold without being root.
    pub fn drop_from_cache(&mut self, path: &Path) -> Result<(), Fault> {
        self.done(&Request::Drop { path: path.into() })
    }

    /// Removes what a run has written in a folder of the probe's host, if it is there.
    pub(crate) fn remove_sink(&mut self, folder: &Path) -> Result<(), Fault> {
        self.done(&Request::RemoveSink { folder: folder.into() })
    }

    /// Has a thread of the probe's own session want all of a CPU.
    pub(crate) fn spin(&mut self, cpu: u32, for_ms: u32) -> Result<Spun, Fault> {
        match self.ask(&Request::Spin { cpu, for_ms })? {
            Answer::Spun(spun) => Ok(spun),
            other => Err(self.strange(&other)),
        }
    }

    fn ask(&mut self, request: &Request) -> Result<Answer, Fault> {
        let mut line = serde_json::to_vec(request)
            .map_err(|why| Fault::usage(format!("{} cannot be asked: {why}", self.what)))?;
        line.push(b'\n');
        let written = self.stdin.as_mut().map(|stdin| stdin.write_all(&line));
        match written {
            Some(Ok(())) => self.next_answer(),
            _ => Err(self.gone("it has ended")),
        }
    }

    fn next_answer(&mut self) -> Result<Answer, Fault> {
        let line = self.next_line(PATIENCE)?;
        match serde_json::from_str(&line) {
            Ok(Answer::Failed { why }) => {
                Err(Fault::new(Class::Local, format!("{}: {why}", self.what)))
            }
            Ok(answer) => Ok(answer),
            Err(why) => Err(Fault::peer(format!("{} gives no answer: {why}", self.what))),
        }
    }

    fn next_line(&mut self, patience: Duration) -> Result<String, Fault> {
        match self.lines.recv_timeout(patience) {
            Ok(line) => Ok(line),
            Err(RecvTimeoutError::Timeout) => {
                // A late answer would be taken for that of the next question.
                self.stdin = None;
                Err(self.gone(&format!("no answer within {} s", patience.as_secs())))
            }
            Err(RecvTimeoutError::Disconnected) => Err(self.gone("it has ended")),
        }
    }

    fn gone(&self, why: &str) -> Fault {
        let text = format!("{} cannot be asked: {why}; measure again", self.what);
        Fault::new(Class::Unreachable, text)
    }

    fn strange(&self, answer: &Answer) -> Fault {
        Fault::peer(format!("{} answers something else: {answer:?}", self.what))
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        // It ends when nobody can ask any more.
        self.stdin = None;
        if let Some(launched) = self.launched.take() {
            launched.end(LEAVES_WITHIN);
        }
    }
}

/// Reads lines on a thread of its own, so that whoever waits for one can give up.
fn read(stdout: ChildStdout) -> Receiver<String> {
    let (said, lines) = sync_channel(1);
    thread::spawn(move || {
        let mut stdout = BufReader::new(stdout);
        while let Ok(Some(line)) = line(&mut stdout) {
            if said.send(line).is_err() {
                return;
            }
        }
    });
    lines
}

/// The share of each CPU that its soaker takes from a thread that wants all of it, measured while
/// `soaking` has soakers there. `spinner` is another probe, started in the way that what is
/// measured will be: to the scheduler a session is a group, and the weights of groups are what
/// counts between two of them. The least of a few tries: whoever else wants a CPU meanwhile makes
/// room for the soaker, and what is said here is said of a whole experiment.
pub fn intrusion(soaking: &mut Probe, spinner: &mut Probe) -> Result<BTreeMap<u32, f64>, Fault> {
    let cpus: Vec<u32> = soaking.moment()?.soakers.into_keys().collect();
    let mut shares = BTreeMap::new();
    for cpu in cpus {
        let mut least = f64::NAN;
        for _ in 0..INTRUSION_TRIES {
            least = least.min(intrusion_of(cpu, soaking, spinner)?);
            if least <= gates::INTRUSION_MAX {
                break;
            }
        }
        shares.insert(cpu, least);
    }
    Ok(shares)
}

fn intrusion_of(cpu: u32, soaking: &mut Probe, spinner: &mut Probe) -> Result<f64, Fault> {
    let before = soaking.moment()?;
    let spun = spinner.spin(cpu, INTRUSION_MS)?;
    let after = soaking.moment()?;
    let soaked = before.soaked_until(&after).into_iter().find(|soaked| soaked.cpu == cpu);
    let soaker_s = soaked.map_or(f64::NAN, |soaked| soaked.cpu_s);
    Ok(gates::intruded(before.span_s(&after), soaker_s, spun))
}

/// Long beside what a question takes, which is not known to belong to the soaker or not.
const INTRUSION_MS: u32 = 400;
const INTRUSION_TRIES: u32 = 3;

#[cfg(test)]
mod tests {
    use super::*;

    fn told(input: &str) -> Vec<String> {
        let mut output = Vec::new();
        serve(&mut input.as_bytes(), &mut output, Environment::default).unwrap();
        String::from_utf8(output).unwrap().lines().map(String::from).collect()
    }

    #[test]
    fn every_line_is_answered() {
        let cases = [
            ("{\"moment\":{}}", "{\"moment\":{\"at_ns\":"),
            ("{\"soak\":{\"cpus\":[]}}", "{\"done\":{}}"),
            ("{\"soak\":{\"cpus\":[9999]}}", "{\"failed\":{\"why\":\"cannot soak CPU 9999: "),
            ("{\"soak\":{\"cpus\":[-1]}}", "{\"failed\":{\"why\":\"no request of a probe: "),
            ("{\"environment\":{}}", "{\"environment\":{"),
            ("{\"file\":{\"path\":\"/proc/version\"}}", "{\"file\":{"),
            ("{\"time\":{}}", "{\"time\":{\"unix_s\":"),
            ("{\"checkup\":{\"folder\":\"/\",\"toward\":\"world\"}}", "{\"facts\":{"),
            ("{\"listen\":{\"token\":[1]}}", "{\"failed\":{\"why\":\"no request of a probe: "),
            ("{\"drop\":{\"path\":\"/no/such\"}}", "{\"failed\":{\"why\":\"cannot open '/no/such'"),
            ("{\"remove-sink\":{\"folder\":\"/no/such\"}}", "{\"done\":{}}"),
            (
                "{\"remove-sink\":{\"folder\":\"/proc/version\"}}",
                "{\"failed\":{\"why\":\"cannot remove '/proc/version/.datapump-measure-sink': ",
            ),
            ("{\"spin\":{\"cpu\":0,\"for_ms\":1}}", "{\"spun\":{\"wall_ns\":"),
            ("{\"fly\":{}}", "{\"failed\":{\"why\":\"no request of a probe: "),
            ("", "{\"failed\":{\"why\":\"no request of a probe: "),
            ("\u{0}[[[", "{\"failed\":{\"why\":\"no request of a probe: "),
        ];
        for (line, expect) in cases {
            let lines = told(&format!("{line}\n"));
            assert_eq!(lines[1], MARK);
            assert!(lines[2].starts_with("{\"probe\":{\"program\":\"datapump "), "{}", lines[2]);
            assert!(lines[3].starts_with(expect), "{line}: {}", lines[3]);
        }
        assert_eq!(told("").len(), 3);
        assert_eq!(told("{\"moment\":{}}").len(), 3, "half a line is the end of who asks");
    }
}
