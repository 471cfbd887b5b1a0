//! The start of a copy between two hosts: how many times each side waits for the other before the
//! first byte of data.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;

use mover::wire::message::Message;

use crate::support::speaker::{envelope, skip_mark};
use crate::support::{PATIENCE, PROGRAM, Scene, data, each, need, need_root, run};

/// Who says what before it needs an answer: flights, in turn, the near side's first. None of a
/// side's next flight is let through before all of the other's has been said.
type Flights = &'static [&'static [&'static str]];

const PUSH: Flights =
    &[&[], &["Hello"], &["Hello", "Open", "Carry", "Offer"], &["Opened", "Want"], &["Carried"]];
const PULL: Flights = &[
    &[],
    &["Hello"],
    &["Hello", "Open"],
    &["Opened", "Offer"],
    &["Cut", "Carry", "Want"],
    &["Carried"],
];

/// The far side's greeting ends the login. A push has its first data under way one round trip
/// later; a pull after another half.
#[test]
fn the_first_data_waits_for_one_answer() {
    need_root("network namespaces are made");
    need("ip", "iproute2");
    let unshare = need("unshare", "util-linux");
    let socat = need("socat", "socat");
    let cases = [
        ("push of a file", PUSH, "@/file 203.0.113.1:@/out/"),
        ("push of a tree", PUSH, "-r @/tree 203.0.113.1:@/out/"),
        ("pull of a file", PULL, "203.0.113.1:@/file @/out/"),
        ("pull of a tree", PULL, "-r 203.0.113.1:@/tree @/out/"),
    ];
    each(cases, |&(name, flights, ends)| {
        let scene = Scene::new();
        data::write_file(&scene.path("file"), 1, 2);
        std::fs::create_dir_all(scene.path("tree/sub")).unwrap();
        data::write_file(&scene.path("tree/sub/one"), 2, 3000);
        std::fs::create_dir(scene.path("out")).unwrap();
        let socket = scene.path("control");
        let listener = UnixListener::bind(&socket).unwrap();
        let words = format!("exec {} -t 5 - UNIX-CONNECT:{}", socat.display(), socket.display());
        let ssh = scene.script("ssh-in-flights", &words);
        let far = scene.far_program();
        let relay = thread::spawn(move || relay(&listener, Command::new(far), flights));
        // Data connections to the far address are swallowed: nothing answers there.
        let near = "ip link set lo up; ip link add a0 type veth peer name a1; ip link set a1 up; \
                    ip addr add 203.0.113.2/24 dev a0; ip link set a0 up; \
                    ip neigh add 203.0.113.1 lladdr 2:0:0:0:0:1 dev a0 nud permanent; exec \"$@\"";
        let mut command = Command::new(&unshare);
        command.args(["--net", "sh", "-c", near, "sh", PROGRAM]);
        command.args(scene.words(&format!("copy --ssh {} {ends}", ssh.display())));
        let ran = run::to_end(command, b"");
        assert_eq!(ran.code, 0, "{name}\n{ran}");
        relay.join().unwrap();
        let copied = if ends.contains("tree") { "tree/sub/one" } else { "file" };
        data::assert_same(&scene.path(copied), &scene.path("out").join(copied));
    });
}

/// What answers a login may be a shell that runs what it reads: before the mark of a datapump
/// nothing that anybody has chosen is sent, no path and no name of a file. A shell is told how to
/// start the far side; where no program may be sent, nothing at all is sent.
#[test]
fn only_the_script_is_sent_before_the_mark() {
    each(["auto", "never"], |install| {
        let scene = Scene::new();
        std::fs::create_dir(scene.path("tree")).unwrap();
        data::write_file(&scene.path("tree/a\ntouch pwned\n#"), 1, 10);
        let words = format!("timeout 2 cat > {}; exit 1", scene.path("said").display());
        let ssh = scene.script("no-datapump", &words);
        let line = format!("copy -r --install {install} --ssh {} @/tree f:@/out", ssh.display());
        let ran = scene.run(&line);
        assert_eq!(ran.code, 7, "{ran}");
        let said = std::fs::read_to_string(scene.path("said")).unwrap();
        if *install == "never" {
            assert_eq!(said, "");
            return;
        }
        assert!(said.starts_with(SCRIPT_BEGINS) && said.ends_with(SCRIPT_ENDS), "{said}");
        let once = |part| said.matches(part).count() == 1;
        assert!(once(SCRIPT_BEGINS) && once(SCRIPT_ENDS), "{said}");
        assert!(!said.contains("pwned") && !said.contains("/out"), "{said}");
    });
}

const SCRIPT_BEGINS: &str = "# datapump starts its far side\n";
const SCRIPT_ENDS: &str = "} # datapump: end of the script\n";

/// Lets the two sides talk in flights, and freely after the last.
fn relay(listener: &UnixListener, mut far: Command, flights: Flights) {
    let (near, _) = listener.accept().unwrap();
    far.arg("peer").stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut far = far.spawn().unwrap();
    let mut stdout = far.stdout.take().unwrap();
    let mark = skip_mark(&mut stdout).unwrap();
    let mut to_far = far.stdin.take().unwrap();
    to_far.write_all(&script(&near)).unwrap();
    let mut of_near = Side::new(near.try_clone().unwrap(), Box::new(near));
    let mut of_far = Side::new(stdout, Box::new(to_far));
    of_near.to.write_all(&mark).unwrap();
    for (number, names) in flights.iter().enumerate() {
        let (from, to) = match number % 2 {
            0 => (&mut of_near, &mut of_far),
            _ => (&mut of_far, &mut of_near),
        };
        from.say_all(names).iter().for_each(|bytes| to.to.write_all(bytes).unwrap());
    }
    let Side { said: near_says, to: mut to_near, .. } = of_near;
    let Side { said: far_says, to: mut to_far, .. } = of_far;
    let back = thread::spawn(move || {
        far_says.iter().all(|(_, bytes)| to_near.write_all(&bytes).is_ok());
    });
    near_says.iter().all(|(_, bytes)| to_far.write_all(&bytes).is_ok());
    drop(to_far);
    far.wait().unwrap();
    back.join().unwrap();
}

/// What comes before the first message: the far side here is started as by a forced command.
fn script(mut near: &UnixStream) -> Vec<u8> {
    let mut seen = Vec::new();
    let mut byte = [0];
    while !seen.ends_with(SCRIPT_ENDS.as_bytes()) {
        near.read_exact(&mut byte).unwrap();
        seen.push(byte[0]);
    }
    seen
}

/// One side: what it says, and what leads to it.
struct Side {
    said: Receiver<(String, Vec<u8>)>,
    to: Box<dyn Write + Send>,
}

impl Side {
    fn new(mut from: impl std::io::Read + Send + 'static, to: Box<dyn Write + Send>) -> Side {
        let (said_in, said) = mpsc::channel();
        thread::spawn(move || {
            while let Some(bytes) = envelope(&mut from) {
                let message = Message::decode(&bytes[4..]).unwrap();
                if said_in.send((message.name(), bytes)).is_err() {
                    return;
                }
            }
        });
        Side { said, to }
    }

    /// Waits until all of these have been said, and returns what has been.
    fn say_all(&self, names: &[&str]) -> VecDeque<Vec<u8>> {
        let (mut missing, mut all) = (names.to_vec(), VecDeque::new());
        while !missing.is_empty() {
            let said = self.said.recv_timeout(PATIENCE);
            let (name, bytes) = said.unwrap_or_else(|_| panic!("{missing:?} need an answer first"));
            missing.retain(|each| *each != name);
            all.push_back(bytes);
        }
        all
    }
}
