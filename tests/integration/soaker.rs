//! The probe and its soakers as real processes: what holds on a machine with other load. `cargo
//! bench --bench soaker` prints how well three ways of counting agree on a quiet one.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread;
use std::time::Duration;

use crate::support::{PATIENCE, PROGRAM, Scene, each, far, processes, until_some};
use analysis::accounting::gates::{Calibration, of_block, void_reason};
use analysis::accounting::moment::Moment;
use base::job::Remote;
use datapump::probe::{Probe, intrusion};
use mover::remote::launch::Launch;
use rustix::process::Signal;

fn local() -> Launch {
    Launch::Process { program: PROGRAM.into(), cpus: None }
}

/// A probe, driven by its lines of JSON.
struct Raw {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
}

impl Raw {
    fn start() -> Raw {
        let mut command = Command::new(PROGRAM);
        command.arg("probe").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let stdin = child.stdin.take();
        let mut raw = Raw { stdin, stdout: BufReader::new(child.stdout.take().unwrap()), child };
        while !raw.line().starts_with("{\"probe\"") {}
        raw
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        assert!(self.stdout.read_line(&mut line).unwrap() > 0, "the probe has ended");
        line
    }

    fn ask(&mut self, request: &str) -> String {
        writeln!(self.stdin.as_mut().unwrap(), "{request}").unwrap();
        self.line()
    }

    fn pid(&self) -> i32 {
        self.child.id().cast_signed()
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        self.stdin = None;
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// Policy and CPUs of each thread of a process, by the thread's name.
fn threads(pid: i32) -> BTreeMap<String, (String, String)> {
    let folder = format!("/proc/{pid}/task");
    let of = |task: fs::DirEntry| {
        let text = |name: &str| fs::read_to_string(task.path().join(name)).unwrap();
        let (stat, status) = (text("stat"), text("status"));
        let policy = stat.rsplit_once(") ").unwrap().1.split(' ').nth(38).unwrap().to_string();
        let cpus = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:\t"));
        (text("comm").trim().to_string(), (policy, cpus.unwrap().to_string()))
    };
    fs::read_dir(folder).unwrap().map(|task| of(task.unwrap())).collect()
}

#[test]
fn soakers_are_pinned_and_idle_and_the_rest_is_not() {
    const NORMAL: &str = "0";
    const IDLE: &str = "5";
    let mut probe = Raw::start();
    let own = threads(probe.pid())["datapump"].clone();
    assert_eq!(own.0, NORMAL);
    assert_eq!(probe.ask("{\"soak\":{\"cpus\":[0]}}"), "{\"done\":{}}\n");
    let threads = threads(probe.pid());
    assert_eq!(threads["soaker/0"], (IDLE.into(), "0".into()));
    assert_eq!(threads["datapump"], own);
}

#[test]
fn a_soaker_counts_while_it_works_and_rests_otherwise() {
    let mut probe = Probe::start(&local()).unwrap();
    let cpu = *probe.cpus().last().unwrap();
    let moments = |probe: &mut Probe| {
        let from = probe.moment().unwrap();
        thread::sleep(Duration::from_millis(300));
        (from, probe.moment().unwrap())
    };
    probe.soak(&[cpu]).unwrap();
    let (from, to) = moments(&mut probe);
    let soaked = from.soaked_until(&to);
    let span_s = from.span_s(&to);
    assert_eq!(soaked.iter().map(|soaked| soaked.cpu).collect::<Vec<_>>(), [cpu]);
    // What it gets is up to the others here, and never more than there is.
    assert!(soaked[0].cpu_s <= span_s * 1.02, "{soaked:?} in {span_s} s");
    assert_eq!(soaked[0].iterations > 0.0, soaked[0].cpu_s > 0.0, "{soaked:?}");
    let machine = from.until(&to);
    assert!(machine.busy_clock_s.unwrap() <= span_s * 1.02);
    assert!(machine.busy_idle_s <= span_s * 1.02 * f64::from(machine.cpus), "{machine:?}");
    // Two clocks are read one after the other: their difference may even be a little less later on.
    let own_ns = to.own_cpu_ns.saturating_sub(from.own_cpu_ns);
    assert!(own_ns < 50_000_000, "the soaker is not the probe's own time");
    probe.soak(&[]).unwrap();
    let (from, to) = moments(&mut probe);
    assert_eq!(from.until(&to).busy_clock_s, None);
    assert!(!from.kernel_threads.is_empty() && from.memory_available_bytes > 0);
}

#[test]
fn a_busy_neighbour_is_noticed() {
    let mut probe = Probe::start(&local()).unwrap();
    let cpus = probe.cpus().to_vec();
    probe.soak(&cpus).unwrap();
    let neighbours: Vec<Neighbour> = cpus.iter().map(|_| Neighbour::start()).collect();
    let calibrate = |probe: &mut Probe| {
        let from = probe.moment().unwrap();
        thread::sleep(Duration::from_secs(1));
        Calibration::between(&from, &probe.moment().unwrap(), &BTreeMap::new())
    };
    let (before, after) = (calibrate(&mut probe), calibrate(&mut probe));
    drop(neighbours);
    let gates = of_block(&before, &after, &BTreeMap::from([(0, 0.0)]));
    let background = gates.iter().find(|gate| gate.name == "background").unwrap();
    assert!(!background.passed && background.value > 0.3, "{gates:?}");
    assert!(void_reason(&gates).is_some());
}

/// A process that uses all of a CPU.
struct Neighbour(Child);

impl Neighbour {
    fn start() -> Neighbour {
        Neighbour(Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap())
    }
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

#[test]
fn a_soaker_gives_way_within_a_session() {
    let (mut soaking, mut spinner) =
        (Probe::start(&local()).unwrap(), Probe::start(&local()).unwrap());
    let cpu = soaking.cpus()[0];
    soaking.soak(&[cpu]).unwrap();
    let shares = intrusion(&mut soaking, &mut spinner).unwrap();
    // The gate is at 1 %; of a thread of its own weight a soaker would take half.
    assert!(shares[&cpu] < 0.1, "{shares:?}");
}

/// A login has a session of its own, which is a scheduler group of its own.
#[test]
fn a_far_soaker_gives_way_too() {
    let scene = Scene::new();
    let mut words = far::ssh_command().split(' ').map(String::from).collect::<Vec<_>>();
    words.retain(|word| !word.is_empty());
    let remote = Remote {
        ssh: Some(words),
        datapump: Some(scene.far_program().display().to_string()),
        ..Remote::default()
    };
    let launch = Launch::Ssh { host: "far".into(), remote };
    let mut soaking = Probe::start(&launch).unwrap();
    let pids = processes::named_exactly(&scene.far_program());
    let group = || fs::read_to_string(format!("/proc/{}/autogroup", pids[0]));
    let mut spinner = Probe::start(&launch).unwrap();
    let cpu = soaking.cpus()[0];
    soaking.soak(&[cpu]).unwrap();
    // Kernels that are built without such groups have no such file.
    assert!(group().is_ok_and(|text| text.trim().ends_with("nice 19")) || group().is_err());
    let shares = intrusion(&mut soaking, &mut spinner).unwrap();
    assert!(shares[&cpu] < 0.1, "{shares:?}");
}

#[test]
fn a_probe_ends_with_who_asks() {
    let mut probe = Raw::start();
    probe.ask("{\"soak\":{\"cpus\":[0]}}");
    probe.stdin = None;
    assert!(processes::ends_within(probe.pid(), PATIENCE), "stdin is closed");
    assert_eq!(probe.child.wait().unwrap().code(), Some(0));

    // The shell holds the other end of the pipe, and is killed.
    let scene = Scene::new();
    let script = "cd \"$1\" && mkfifo in && { \"$2\" probe < in > out & } && exec 3> in && \
                  echo $! > pid.new && echo '{\"soak\":{\"cpus\":[0]}}' >&3 && \
                  mv pid.new pid && read wait";
    let mut command = Command::new("sh");
    command.args(["-c", script, "sh"]).arg(scene.path("")).arg(PROGRAM).stdin(Stdio::piped());
    let mut parent = command.spawn().unwrap();
    let pid = until_some("the probe is told", || {
        fs::read_to_string(scene.path("pid")).ok()?.trim().parse().ok()
    });
    until_some("the probe is told", || {
        fs::read_to_string(scene.path("out")).ok()?.contains("\"done\"").then_some(())
    });
    processes::send(parent.id().cast_signed(), Signal::KILL);
    parent.wait().unwrap();
    assert!(processes::ends_within(pid, PATIENCE), "its parent was killed");
}

#[test]
fn what_cannot_be_done_is_said_and_the_probe_goes_on() {
    let mut probe = Probe::start(&local()).unwrap();
    let fault = probe.soak(&[1023]).unwrap_err();
    assert!(fault.text.starts_with("the probe on this host: cannot soak CPU 1023: "), "{fault}");
    let absent = probe.drop_from_cache("/no/such".as_ref()).unwrap_err();
    assert!(absent.text.contains("cannot open '/no/such'"), "{absent}");
    assert!(probe.moment().unwrap() != Moment::default());
    let missing = Launch::Process { program: "/no/such/program".into(), cpus: None };
    assert!(Probe::start(&missing).is_err());
    let other = Launch::Process { program: "/bin/true".into(), cpus: None };
    assert!(Probe::start(&other).unwrap_err().text.contains("ended"), "no probe answers");
}

#[test]
fn a_side_is_held_to_its_cpus() {
    let cases = [
        ("copy --cpus 0 null:64M null:", 0, ""),
        ("copy --cpus 1023 null:64M null:", 2, "--cpus: CPU 1023 is not there"),
        ("copy --cpus 3-2 null:64M null:", 2, "--cpus '3-2': write a list of CPUs"),
        ("copy --remote-cpus 0 null:64M far:null:", 0, ""),
        ("copy --remote-cpus 1023 null:64M far:null:", 2, "--remote-cpus: CPU 1023 is not there"),
        ("copy --remote-cpus x null:64M far:null:", 2, "--remote-cpus 'x': write a list of CPUs"),
    ];
    each(cases, |(line, code, text)| {
        let ran = Scene::new().run(line);
        assert_eq!(ran.code, *code, "{ran}");
        assert!(ran.stderr.contains(text), "{ran}");
    });
}
