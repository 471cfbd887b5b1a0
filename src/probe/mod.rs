//! The host probe: a separate process, here or over ssh, that reads the counters of its host while
//! something is measured. Requests and answers are JSON, one object a line.
//!
//! It is a separate process so that the CPU time of its soakers and of its reading is not counted
//! as that of a transfer, and so that a far host is measured in the same way as this one. It ends
//! when its standard input is closed, so it never outlives its parent. It knows neither experiments
//! nor the store.

pub mod knock;
pub mod path;
pub mod soaker;

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ChildStdin;
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

/// A request to a probe.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
enum Request {
    Moment {},
    /// Run soakers on exactly these CPUs from now on.
    Soak {
        cpus: Vec<u32>,
    },
    /// Give the scheduler group of the probe's session the lowest weight.
    GiveWay {},
    Environment {},
    /// Facts that `doctor` needs beside the environment.
    Checkup {
        folder: PathBuf,
        toward: Toward,
    },
    /// The current time.
    Time {},
    /// Open a port for a peer that knows the token.
    Listen {
        ports: Option<(u16, u16)>,
        token: Token,
    },
    /// Open an echo port for a peer that knows the token.
    Reflect {
        ports: Option<(u16, u16)>,
        token: Token,
    },
    /// Reserve this host for one campaign until the probe ends.
    Hold {
        who: String,
    },
    File {
        path: PathBuf,
    },
    /// Drop a file from the page cache.
    Drop {
        path: PathBuf,
    },
    /// Remove what a run has written in a folder of this host; no other name can be given.
    RemoveSink {
        folder: PathBuf,
    },
    /// Run a thread of normal weight that uses all of a CPU for this time.
    Spin {
        cpu: u32,
        for_ms: u32,
    },
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Answer {
    /// Identifies the probe; always the first answer.
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
    /// The request failed; the probe continues.
    Failed {
        why: String,
    },
}

/// Name of what a run writes in a folder of another host.
pub(crate) const FAR_SINK: &str = ".datapump-measure-sink";
/// The line before the first answer: anything above it was printed by the login shell.
const MARK: &str = "datapump-probe";
/// Upper limit of an answer: 1000 CPUs and 10,000 threads need less.
const LINE_BYTES_MAX: u64 = 16 << 20;
/// Lines that a login shell may print.
const NOISE_LINES_MAX: usize = 1000;
/// A busy host answers late. A login may ask for a password first.
const PATIENCE: Duration = Duration::from_secs(30);
const PATIENCE_LOGIN: Duration = Duration::from_secs(120);
const SPIN_MS_MAX: u32 = 10_000;

/// `datapump probe`: the exit code.
pub fn main(environment: fn() -> Environment) -> u8 {
    match serve(&mut io::stdin().lock(), &mut io::stdout().lock(), environment) {
        Ok(()) => 0,
        // The process that asked is gone: there is nobody to report to.
        Err(_) => Class::Unreachable.exit_code(),
    }
}

fn serve(
    input: &mut dyn BufRead,
    output: &mut dyn Write,
    environment: fn() -> Environment,
) -> io::Result<()> {
    // The parent may be bound to one CPU; soakers must be able to use all.
    let cpus = system::unpin();
    writeln!(output, "\n{MARK}")?;
    answer(output, &Answer::Probe { program: PROGRAM.into(), cpus })?;
    let own = CpuClock::of_process(std::process::id());
    let mut soakers = Soakers::default();
    while let Some(line) = line(input)? {
        let said = match serde_json::from_str(&line) {
            Ok(request) => fulfil(request, own, &mut soakers, environment),
            Err(why) => Err(format!("not a probe request: {why}")),
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

/// The next line; `None` at the end of the input.
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

/// Kernel threads are the processes without a session: one cheap call for each process. A thread
/// that ends during the scan is left out.
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

/// Where `sched_autogroup_enabled` is 1, each session is a scheduler group, and SCHED_IDLE yields
/// only within its group: a soaker in a session of its own would take half of a CPU. The weight of
/// a session can be lowered to 15, where others have 1024: about 1.5 % of a busy CPU remains. Only
/// the probe's own session is changed: another one is a user's terminal.
fn give_way() {
    let (own, parent) = (std::process::id(), std::os::unix::process::parent_id());
    // sshd starts a session for the shell, which becomes this program or waits for it.
    if system::session_of(own).is_some_and(|leader| leader == own || leader == parent) {
        // A kernel without autogroups has no such file.
        let _ = fs::write("/proc/self/autogroup", "19");
    }
}

/// Uses all of a CPU for this time.
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

/// A running probe, and the pipes to it.
#[derive(Debug)]
pub struct Probe {
    what: String,
    launched: Option<Launched>,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    cpus: Vec<u32>,
    group: Group,
}

/// The scheduler group of a probe and of its soakers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Group {
    /// The group of its parent.
    Shared,
    /// A group of its own with the usual weight, as for an ssh login.
    Own,
    /// A group of its own with the lowest weight.
    Light,
}

impl Probe {
    /// Starts a probe, with `how` as for the far side of a copy, and waits for its first answer.
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
                return Err(self.gone("an unexpected program answers"));
            }
        }
        match self.next_answer()? {
            Answer::Probe { program, cpus } if program == PROGRAM => {
                self.cpus = cpus;
                Ok(())
            }
            Answer::Probe { program, .. } => Err(Fault::new(
                Class::Version,
                format!(
                    "{} is {program}, this is {PROGRAM}: install the same version, or leave \
                     --remote-datapump and --install never out",
                    self.what
                ),
            )),
            other => Err(self.strange(&other)),
        }
    }

    /// What the user is to be told of the program that was sent to its host for it.
    pub fn installed(&self) -> Option<String> {
        self.launched.as_ref().and_then(Launched::installed)
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

    /// Runs soakers on exactly these CPUs from now on.
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

    /// Facts beside the environment: about a folder there, and about an interface.
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

    /// The current time on the probe's host.
    pub(crate) fn unix_s(&mut self) -> Result<f64, Fault> {
        match self.ask(&Request::Time {})? {
            Answer::Time { unix_s } => Ok(unix_s),
            other => Err(self.strange(&other)),
        }
    }

    /// Opens a port, for a limited time, for a peer that knows the token.
    pub fn listen(&mut self, ports: Option<(u16, u16)>, token: &Token) -> Result<u16, Fault> {
        match self.ask(&Request::Listen { ports, token: *token })? {
            Answer::Listening { port } => Ok(port),
            other => Err(self.strange(&other)),
        }
    }

    /// Opens an echo port for a peer that knows the token.
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

    /// Reserves the host for a campaign until this probe ends. The error names the holder.
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

    /// Drops a file from the page cache, which needs no root.
    pub fn drop_from_cache(&mut self, path: &Path) -> Result<(), Fault> {
        self.done(&Request::Drop { path: path.into() })
    }

    /// Removes what a run has written in a folder of the probe's host, if it exists.
    pub(crate) fn remove_sink(&mut self, folder: &Path) -> Result<(), Fault> {
        self.done(&Request::RemoveSink { folder: folder.into() })
    }

    /// Runs a thread in the probe's session that uses all of a CPU.
    pub(crate) fn spin(&mut self, cpu: u32, for_ms: u32) -> Result<Spun, Fault> {
        match self.ask(&Request::Spin { cpu, for_ms })? {
            Answer::Spun(spun) => Ok(spun),
            other => Err(self.strange(&other)),
        }
    }

    fn ask(&mut self, request: &Request) -> Result<Answer, Fault> {
        let mut line = serde_json::to_vec(request).map_err(|why| {
            Fault::usage(format!("a request to {} cannot be sent: {why}", self.what))
        })?;
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
            Err(why) => Err(Fault::peer(format!("{}: unexpected answer: {why}", self.what))),
        }
    }

    fn next_line(&mut self, patience: Duration) -> Result<String, Fault> {
        match self.lines.recv_timeout(patience) {
            Ok(line) => Ok(line),
            Err(RecvTimeoutError::Timeout) => {
                // A late answer would be taken for the answer to the next request.
                self.stdin = None;
                Err(self.gone(&format!("no answer within {} s", patience.as_secs())))
            }
            Err(RecvTimeoutError::Disconnected) => Err(self.gone("it has ended")),
        }
    }

    fn gone(&self, why: &str) -> Fault {
        let text = format!("{} does not respond: {why}; measure again", self.what);
        Fault::new(Class::Unreachable, text)
    }

    fn strange(&self, answer: &Answer) -> Fault {
        Fault::peer(format!("{}: unexpected answer: {answer:?}", self.what))
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        // The probe ends when its standard input is closed.
        self.stdin = None;
        if let Some(launched) = self.launched.take() {
            launched.end(LEAVES_WITHIN);
        }
    }
}

/// Reads lines on a separate thread, so that waiting for a line can time out.
fn read(stdout: impl Read + Send + 'static) -> Receiver<String> {
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

/// The share of each CPU that its soaker takes from a thread that could use all of it, measured
/// while `soaking` runs soakers there. `spinner` is another probe, started in the same way as the
/// measured process: where a session is a scheduler group, the weights of the two groups count. The
/// result is the minimum of a few tries, since other load increases the soaker's share, and the
/// result holds for a whole experiment.
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

/// Long compared with a request, during which the soaker cannot be told apart.
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
            ("{\"soak\":{\"cpus\":[-1]}}", "{\"failed\":{\"why\":\"not a probe request: "),
            ("{\"environment\":{}}", "{\"environment\":{"),
            ("{\"file\":{\"path\":\"/proc/version\"}}", "{\"file\":{"),
            ("{\"time\":{}}", "{\"time\":{\"unix_s\":"),
            ("{\"checkup\":{\"folder\":\"/\",\"toward\":\"world\"}}", "{\"facts\":{"),
            ("{\"listen\":{\"token\":[1]}}", "{\"failed\":{\"why\":\"not a probe request: "),
            ("{\"drop\":{\"path\":\"/no/such\"}}", "{\"failed\":{\"why\":\"cannot open '/no/such'"),
            ("{\"remove-sink\":{\"folder\":\"/no/such\"}}", "{\"done\":{}}"),
            (
                "{\"remove-sink\":{\"folder\":\"/proc/version\"}}",
                "{\"failed\":{\"why\":\"cannot remove '/proc/version/.datapump-measure-sink': ",
            ),
            ("{\"spin\":{\"cpu\":0,\"for_ms\":1}}", "{\"spun\":{\"wall_ns\":"),
            ("{\"fly\":{}}", "{\"failed\":{\"why\":\"not a probe request: "),
            ("", "{\"failed\":{\"why\":\"not a probe request: "),
            ("\u{0}[[[", "{\"failed\":{\"why\":\"not a probe request: "),
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
