//! Which addresses the near side connects to: those of the host that was typed, and those that
//! `--addresses` allows. A far side cannot add others.

use crate::support;
use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::symlink;
use std::panic::{self, AssertUnwindSafe};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::thread;
use std::time::Duration;

use crate::support::liar::{near_with, opened};
use crate::support::speaker::Speaker;
use crate::support::{PROGRAM, Scene, data, each, far, need, until};

/// Hosts that lead to the private sshd, besides `far` itself.
const WAYS: [(&str, &str); 4] = [
    // A host with no address that this one knows: a ProxyCommand makes the connection.
    ("hidden", "HostName hidden.invalid\nProxyCommand $SOCAT - TCP:127.0.0.1:$PORT"),
    // The same behind a jump host, whose resolver would know it: here that is this host.
    ("inner", "HostName 127.0.0.1\nPort $PORT\nProxyJump far"),
    // A name of several addresses.
    ("several", "HostName localhost\nPort $PORT"),
    // A connection that exists already.
    ("shared", "HostName 127.0.0.1\nPort $PORT\nControlPath $FOLDER/control"),
];

/// How the data goes, and what the output says about it.
#[derive(Clone, Copy, Debug)]
struct Case {
    host: &'static str,
    /// What the far side believes to be its address.
    named: &'static str,
    options: &'static str,
    carrier: &'static str,
    says: &'static str,
}

const CASES: [Case; 12] = [
    case("far", "127.0.0.1", "", "tcp", ""),
    case("127.0.0.1", "127.0.0.1", "", "tcp", ""),
    // An address translation: its own address is of no use here.
    case("far", "127.0.0.9", "", "tcp", ""),
    case("far", "", "", "tcp", ""),
    case("several", "127.0.0.1", "", "tcp", ""),
    case("inner", "127.0.0.1", "", "tcp", ""),
    case("inner", "127.0.0.9", "", "tcp", ""),
    case("shared", "127.0.0.1", "", "tcp", ""),
    case("hidden", "127.0.0.1", "", "control", "--addresses 127.0.0.1 allows it"),
    case("hidden", "127.0.0.1", "--addresses 127.0.0.0/8", "tcp", ""),
    // Another interface, which the far side does not name.
    case("hidden", "127.0.0.1", "--addresses 127.0.0.5", "tcp", ""),
    case("hidden", "127.0.0.1", "--addresses 10.0.0.0/8", "control", "--addresses 127.0.0.1"),
];

const fn case(
    host: &'static str,
    named: &'static str,
    options: &'static str,
    carrier: &'static str,
    says: &'static str,
) -> Case {
    Case { host, named, options, carrier, says }
}

#[test]
fn data_goes_to_the_host_that_was_typed() {
    each(CASES, |case| {
        let scene = Scene::new();
        data::write_file(&scene.path("in"), 1, 100_000);
        let ssh = configuration(&scene);
        let _master = (case.host == "shared").then(|| Master::start(&scene, &ssh));
        let lines = format!("SSH_CONNECTION='127.0.0.1 1 {} 22'", case.named);
        scene.far_script(&format!("export {lines}\nexec \"$0.there\" \"$@\""));
        symlink(PROGRAM, scene.path("far-datapump.there")).unwrap();
        for (from, to) in [
            ("@/in", format!("{}:@/out", case.host)),
            (&format!("{}:@/in", case.host), "@/out".into()),
        ] {
            let mut words =
                scene.words(&format!("copy --json --streams 2 {} {from} {to}", case.options));
            words.extend(["--ssh".into(), ssh.clone().into()]);
            words.extend(["--remote-datapump".into(), scene.far_program().into()]);
            let mut command = Command::new(PROGRAM);
            command.args(words);
            let ran = support::run::to_end(command, b"");
            assert_eq!(ran.code, 0, "{ran}");
            let end = ran.events().pop().unwrap();
            assert_eq!(end["record"]["conditions"]["carrier"], case.carrier, "{ran}");
            let warned: String = ran.events().iter().filter_map(warning).collect();
            assert!(warned.contains(case.says), "{case:?}\n{ran}");
            assert_eq!(warned.is_empty(), case.says.is_empty(), "{case:?}\n{ran}");
            data::assert_same(&scene.path("in"), &scene.path("out"));
            fs::remove_file(scene.path("out")).unwrap();
        }
    });
}

fn warning(event: &serde_json::Value) -> Option<String> {
    (event["event"] == "warning").then(|| event["text"].to_string())
}

/// A far side that lies: nothing connects to the address that it names, unless `--addresses` allows
/// it.
#[test]
fn nobody_else_is_connected_to() {
    let cases = [("", false), ("--addresses 10.0.0.0/8", false), ("--addresses 127.0.0.0/8", true)];
    each(cases, |(options, expect)| {
        let scene = Scene::new();
        data::write_file(&scene.path("in"), 1, 100_000);
        let trap = TcpListener::bind("127.0.0.77:0").unwrap();
        let port = trap.local_addr().unwrap().port();
        trap.set_nonblocking(true).unwrap();
        let mut opened = opened(None);
        (opened.port, opened.addresses) = (port, vec!["127.0.0.77".into(), "127.0.0.77".into()]);
        let ways = format!("{options} --stall 2 --retry-for off @/in 127.0.0.1:@/out");
        let over = AtomicBool::new(false);
        let came = AtomicBool::new(false);
        // Each connection is closed at once.
        let watch = || {
            while !over.load(SeqCst) {
                came.fetch_or(trap.accept().is_ok(), SeqCst);
                thread::sleep(Duration::from_millis(5));
            }
        };
        // It carries the data after no address has answered: by then all addresses were tried.
        let mut carried = false;
        let talk = |_: &mut Speaker| carried = true;
        thread::scope(|scope| {
            scope.spawn(watch);
            let near = || near_with(&scene, &ways, opened, talk);
            let ended = panic::catch_unwind(AssertUnwindSafe(near));
            over.store(true, SeqCst);
            ended.unwrap_or_else(|why| panic::resume_unwind(why));
        });
        came.fetch_or(trap.accept().is_ok(), SeqCst);
        assert!(carried, "{options}: the honest side does not go on");
        assert_eq!(came.into_inner(), *expect, "{options}");
    });
}

/// The configuration of ssh for `far` and the other hosts.
fn configuration(scene: &Scene) -> String {
    let plain = far::ssh_command();
    let plain = plain.rsplit(' ').next().unwrap();
    let far = fs::read_to_string(plain).unwrap();
    let keys: Vec<&str> = far
        .lines()
        .filter(|line| ["IdentityFile", "UserKnownHostsFile"].iter().any(|key| line.contains(key)))
        .collect();
    let port = far::port().to_string();
    let mut text = String::new();
    for (name, lines) in WAYS {
        let lines = lines
            .replace("$SOCAT", &need("socat", "socat").display().to_string())
            .replace("$PORT", &port)
            .replace("$FOLDER", &scene.path("").display().to_string());
        let keys = keys.join("\n");
        text.push_str(&format!("Host {name}\n{lines}\n{keys}\nIdentitiesOnly yes\n{QUIET}"));
    }
    let here = format!("Host 127.0.0.1\nPort {port}\n{}\n{QUIET}", keys.join("\n"));
    let path = scene.path("ssh_config");
    fs::write(&path, format!("{text}{here}{far}")).unwrap();
    format!("ssh -F {}", path.display())
}

/// An ssh connection that others share (ControlMaster).
struct Master(Child);

impl Master {
    fn start(scene: &Scene, ssh: &str) -> Master {
        let mut words = ssh.split(' ');
        let mut command = Command::new(words.next().unwrap());
        command.args(words).args(["-M", "-N", "shared"]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let master = Master(command.spawn().unwrap());
        until("the shared connection", || scene.path("control").exists());
        master
    }
}

impl Drop for Master {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// ssh does not ask about host keys.
const QUIET: &str = "StrictHostKeyChecking no\nLogLevel ERROR\n";

/// Within one host there are no more streams than CPUs, unless a number was given.
#[test]
fn streams_within_one_host() {
    let cpus = std::thread::available_parallelism().unwrap().get();
    each([("", cpus.min(4)), ("--streams 4", 4), ("--pace 800Mbit", 4)], |(options, expect)| {
        let scene = Scene::new();
        data::write_file(&scene.path("in"), 1, 8 << 20);
        let ran = scene.run(&format!("copy --json {options} @/in far:@/out"));
        assert_eq!(ran.code, 0, "{ran}");
        let events = ran.events();
        let streams = &events.last().unwrap()["record"]["options"]["streams"];
        assert_eq!(streams, *expect, "'{options}'");
    });
}
