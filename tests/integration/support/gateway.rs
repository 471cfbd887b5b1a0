//! A real object store: a gateway whose objects are files of a folder; and a proxy in front of it
//! that answers some requests wrongly.

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, Weak};
use std::thread;
use std::time::Duration;

use super::run::{self, Ran};
use super::{Scene, need};

/// A gateway of this test alone, with one bucket.
pub(crate) struct Gateway {
    folder: tempfile::TempDir,
    child: Child,
    pub port: u16,
}

pub(crate) const BUCKET: &str = "bucket";
const KEY: &str = "testkey";
const SECRET: &str = "testsecret123";

impl Gateway {
    pub(crate) fn new() -> Gateway {
        Gateway::start(&[])
    }

    /// One behind TLS, with this certificate.
    pub(crate) fn with_tls(certificate: &Path, key: &Path) -> Gateway {
        let words = ["--cert".as_ref(), certificate, "--key".as_ref(), key];
        Gateway::start(&words)
    }

    /// A store of another make, which keeps its objects in memory, and no checksum of whole ones.
    pub(crate) fn moto() -> Gateway {
        let gateway = Gateway::started(|port, _| {
            let mut server = Command::new(tool("moto/bin/moto_server"));
            server.args(["-H", "127.0.0.1", "-p", &port.to_string()]);
            server
        });
        let mut connection = TcpStream::connect(("127.0.0.1", gateway.port)).unwrap();
        let host = "Host: 127.0.0.1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
        connection.write_all(format!("PUT /{BUCKET} HTTP/1.1\r\n{host}").as_bytes()).unwrap();
        let (head, _) = message(&mut connection, false).expect("the bucket is made");
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        gateway
    }

    /// rclone's, which knows no markers of folders.
    pub(crate) fn rclone_serve() -> Gateway {
        Gateway::started(|port, data| {
            fs::create_dir_all(data.join(BUCKET)).unwrap();
            let mut server = Command::new(tool("moto/bin/rclone"));
            server.args(["serve", "s3", "--auth-key", &format!("{KEY},{SECRET}")]);
            server.args(["--addr", &format!("127.0.0.1:{port}")]).arg(data);
            server.env("RCLONE_CONFIG", "/dev/null").env_remove("AWS_CA_BUNDLE");
            server
        })
    }

    /// One in Rust, which keeps objects as files.
    pub(crate) fn s3s_fs() -> Gateway {
        Gateway::started(|port, data| {
            fs::create_dir_all(data.join(BUCKET)).unwrap();
            let mut server = Command::new(tool("bin/s3s-fs"));
            server.args(["--host", "127.0.0.1", "--port", &port.to_string()]);
            server.args(["--access-key", KEY, "--secret-key", SECRET]).arg(data);
            server
        })
    }

    fn start(options: &[&Path]) -> Gateway {
        Gateway::started(|port, data| {
            fs::create_dir_all(data.join(BUCKET)).unwrap();
            let mut gateway = Command::new(tool("versitygw"));
            gateway
                .args(["--port", &format!("127.0.0.1:{port}"), "--quiet"])
                .args(options)
                .arg("posix")
                .arg(data)
                .env("ROOT_ACCESS_KEY", KEY)
                .env("ROOT_SECRET_KEY", SECRET);
            gateway
        })
    }

    fn started(make: impl Fn(u16, &Path) -> Command) -> Gateway {
        let folder = tempfile::Builder::new().prefix("datapump-store-").tempdir().unwrap();
        // Another process may take a port between looking for it and using it.
        for _ in 0..5 {
            let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
            let mut command = make(port, &folder.path().join("data"));
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            let mut child = command.spawn().unwrap();
            let mut ended = None;
            super::until("the store answers, or has ended", || {
                ended = child.try_wait().unwrap();
                ended.is_some() || TcpStream::connect(("127.0.0.1", port)).is_ok()
            });
            if ended.is_none() {
                return Gateway { folder, child, port };
            }
        }
        panic!("the store does not start");
    }

    /// The file that an object is.
    pub(crate) fn object(&self, key: &str) -> PathBuf {
        self.folder.path().join("data").join(BUCKET).join(key)
    }

    /// The folder of the program's state, journals of uploads among it.
    pub(crate) fn state(&self) -> PathBuf {
        self.folder.path().join("state")
    }

    /// Runs a command line of the program against this store; `s3:` in it is the bucket.
    pub(crate) fn run(&self, scene: &Scene, line: &str) -> Ran {
        run::to_end(self.command(scene, line, self.port), b"")
    }

    pub(crate) fn succeed(&self, scene: &Scene, line: &str) -> Ran {
        let ran = self.run(scene, line);
        assert_eq!(ran.code, 0, "{line}\n{ran}");
        ran
    }

    pub(crate) fn command(&self, scene: &Scene, line: &str, port: u16) -> Command {
        let line = line.replace(" s3:/", &format!(" s3://{BUCKET}/"));
        let line = line.replace(&format!("s3://{BUCKET}//"), "s3://"); // a URL that is whole
        let mut command = scene.command(&scene.words(&line));
        with_credentials(&mut command).env("AWS_ENDPOINT_URL", format!("http://127.0.0.1:{port}"));
        command.env("XDG_STATE_HOME", self.state());
        command
    }

    /// Runs rclone against this store.
    pub(crate) fn rclone(&self, words: &[&str]) -> Ran {
        let mut command = Command::new(super::need("rclone", "rclone"));
        with_credentials(&mut command);
        let port = self.port;
        command
            .env("RCLONE_CONFIG", "/dev/null")
            .env("RCLONE_CONFIG_STORE_TYPE", "s3")
            .env("RCLONE_CONFIG_STORE_PROVIDER", "Other")
            .env("RCLONE_CONFIG_STORE_ENV_AUTH", "true")
            .env("RCLONE_CONFIG_STORE_ENDPOINT", format!("http://127.0.0.1:{port}"))
            .args(words);
        run::to_end(command, b"")
    }
}

/// A file of this size.
pub(crate) fn file_of(path: &Path, bytes: u64, seed: u64) {
    super::data::write_file(path, seed, bytes as usize);
}

/// Two trees are equal in names, bytes, modes, times, links and extended attributes, for rsync.
pub(crate) fn no_difference_for_rsync(one: &Path, other: &Path) {
    let ran = Command::new(need("rsync", "rsync"))
        .args(["-aXn", "--checksum", "--itemize-changes", "--delete"])
        .args([one, other])
        .output()
        .unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    assert_eq!(String::from_utf8_lossy(&ran.stdout), "", "rsync finds differences");
}

/// Of a file or a folder.
pub(crate) fn set_mtime(path: &Path, seconds: u64, nanos: u32) {
    let time = std::time::UNIX_EPOCH + Duration::new(seconds, nanos);
    fs::File::open(path).unwrap().set_modified(time).unwrap();
}

/// The credentials of every gateway here, and nothing of the user's own.
pub(crate) fn with_credentials(command: &mut Command) -> &mut Command {
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("AWS_") {
            command.env_remove(name);
        }
    }
    command
        .env("AWS_ACCESS_KEY_ID", KEY)
        .env("AWS_SECRET_ACCESS_KEY", SECRET)
        .env("AWS_EC2_METADATA_DISABLED", "true")
        .env("AWS_CONFIG_FILE", "/dev/null")
        .env("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A program in the folder of tools.
pub(crate) fn tool(name: &str) -> PathBuf {
    // Of the folder of build outputs that this test was built in.
    let below = Path::new(super::PROGRAM).ancestors().nth(2).unwrap();
    let program = below.join("tools").join(name);
    assert!(program.exists(), "{} is missing: 'cargo xtask gateway' makes it", program.display());
    program
}

/// What a proxy does with a request instead of passing it on.
#[derive(Clone, Debug)]
pub(crate) enum Fault {
    /// Answers with this status and code.
    Status(u16, &'static str),
    /// Redirects to this port.
    Redirect(u16),
    /// Closes the connection without an answer.
    Reset,
    /// Never answers.
    Silence,
    /// Never answers, and takes no more of the body than comes with the head.
    Stuck,
    /// Passes it on, and drops the answer.
    LostAnswer,
    /// Passes on so many bytes of the answer.
    Truncated(usize),
    /// Flips a bit of this byte of the answer's body.
    Flipped(usize),
    /// Flips a bit of this byte of the request's body.
    FlippedBefore(usize),
    /// Says another length of the body than it has.
    OtherLength,
    /// Tells another CRC-64/NVME, in a header or in a document, than the store does.
    OtherChecksum,
    /// Waits so many milliseconds before the answer.
    Late(u64),
    /// Does this first.
    After(fn(&Gateway)),
    /// Keeps it until so many later requests of this method and target have come, whether or not
    /// its client is still there; the last of them is passed on when it has been answered. Where
    /// `is_gone`, its upload is gone meanwhile, as with a store that is completing it.
    Held { until: (&'static str, &'static str, usize), is_gone: bool },
}

/// What a proxy holds back.
#[derive(Debug, Default)]
struct Hold {
    state: Mutex<Held>,
    changed: Condvar,
}

#[derive(Debug, Default)]
enum Held {
    #[default]
    Nothing,
    Until {
        until: (&'static str, &'static str, usize),
        /// What is gone meanwhile.
        gone: Option<String>,
    },
    Released,
    Answered,
}

impl Hold {
    /// Waits until it is released.
    fn keep(&self, until: (&'static str, &'static str, usize), gone: Option<String>) {
        let mut state = self.state.lock().unwrap();
        *state = Held::Until { until, gone };
        while !matches!(*state, Held::Released) {
            state = self.changed.wait(state).unwrap();
        }
    }

    fn answered(&self) {
        *self.state.lock().unwrap() = Held::Answered;
        self.changed.notify_all();
    }

    /// Called with every other request. True where what it asks for is gone.
    fn pass(&self, line: &str) -> bool {
        let mut state = self.state.lock().unwrap();
        if let Held::Until { until: (method, target, left), gone } = &mut *state {
            if !(line.starts_with(*method) && line.contains(*target)) {
                return gone.as_ref().is_some_and(|gone| line.contains(gone));
            }
            *left -= 1;
            if *left > 0 {
                return false;
            }
            *state = Held::Released;
            self.changed.notify_all();
        }
        while matches!(*state, Held::Released) {
            state = self.changed.wait(state).unwrap();
        }
        false
    }
}

/// A proxy that does something with the requests that fit: method, part of the target, how many of
/// them are passed on before, and to how many it is done.
#[derive(Clone, Debug)]
pub(crate) struct Rule {
    pub method: &'static str,
    pub target: &'static str,
    pub after: usize,
    pub times: usize,
    pub fault: Fault,
}

pub(crate) struct FaultyStore {
    pub port: u16,
    /// How many requests the rule was applied to.
    pub applied: Arc<AtomicUsize>,
    /// Every request line.
    pub seen: Arc<Mutex<Vec<String>>>,
}

impl FaultyStore {
    pub(crate) fn new(gateway: &Arc<Gateway>, rule: Rule) -> FaultyStore {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (fitting, applied) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let seen = Arc::new(Mutex::new(Vec::new()));
        let hold = Arc::new(Hold::default());
        let store = FaultyStore { port, applied: applied.clone(), seen: seen.clone() };
        // Its thread never ends, and must not keep the gateway running.
        let gateway = Arc::downgrade(gateway);
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let gateway = gateway.clone();
                let rule = rule.clone();
                let (fitting, applied, seen) = (fitting.clone(), applied.clone(), seen.clone());
                let hold = hold.clone();
                thread::spawn(move || {
                    let mut proxied =
                        Proxied { client, gateway, rule, fitting, applied, seen, hold };
                    while proxied.one().is_some() {}
                });
            }
        });
        store
    }
}

/// One connection through a proxy.
struct Proxied {
    client: TcpStream,
    gateway: Weak<Gateway>,
    rule: Rule,
    fitting: Arc<AtomicUsize>,
    applied: Arc<AtomicUsize>,
    seen: Arc<Mutex<Vec<String>>>,
    hold: Arc<Hold>,
}

impl Proxied {
    /// Handles one request; `None` where the connection ends.
    fn one(&mut self) -> Option<()> {
        let (head, begun) = head(&mut self.client)?;
        let line = head.lines().next()?.to_string();
        self.seen.lock().unwrap().push(line.clone());
        let rule = &self.rule;
        let fits = line.starts_with(rule.method) && line.contains(rule.target);
        let fits = fits && {
            let number = self.fitting.fetch_add(1, Relaxed);
            (rule.after..rule.after + rule.times).contains(&number)
        };
        let fault = fits.then(|| rule.fault.clone());
        self.applied.fetch_add(usize::from(fits), Relaxed);
        let mut body = self.rest(&head, begun, fault.as_ref())?;
        match &fault {
            Some(Fault::Held { until, is_gone }) => {
                let id = line.split([' ', '?', '&']).find(|word| word.starts_with("uploadId="));
                self.hold.keep(*until, id.filter(|_| *is_gone).map(String::from));
            }
            _ if self.hold.pass(&line) => {
                let text = "<Error><Code>NoSuchUpload</Code><Message>No</Message></Error>";
                return self.answer(404, "", text);
            }
            _ => {}
        }
        match &fault {
            Some(Fault::Status(status, code)) => {
                let text = format!("<Error><Code>{code}</Code><Message>No</Message></Error>");
                return self.answer(*status, "", &text);
            }
            Some(Fault::Redirect(port)) => {
                let location = format!("Location: http://127.0.0.1:{port}/\r\n");
                return self.answer(307, &location, "");
            }
            Some(Fault::Reset) => return None,
            Some(Fault::Silence) => {
                // Until the client gives up.
                let _ = self.client.read(&mut [0]);
                return None;
            }
            Some(Fault::FlippedBefore(at)) => *body.get_mut(*at)? ^= 1,
            Some(Fault::After(work)) => work(&*self.gateway.upgrade()?),
            _ => {}
        }
        let mut store = TcpStream::connect(("127.0.0.1", self.gateway.upgrade()?.port)).ok()?;
        store.write_all(head.as_bytes()).ok()?;
        store.write_all(&body).ok()?;
        let (mut head, mut body) = message(&mut store, line.starts_with("HEAD"))?;
        match fault {
            Some(Fault::Held { .. }) => self.hold.answered(),
            Some(Fault::LostAnswer) => return None,
            Some(Fault::OtherChecksum) => {
                head = with_other_checksum(&head);
                body = with_other_checksum(std::str::from_utf8(&body).ok()?).into_bytes();
            }
            Some(Fault::Late(millis)) => thread::sleep(Duration::from_millis(millis)),
            Some(Fault::Flipped(at)) => *body.get_mut(at)? ^= 1,
            Some(Fault::OtherLength) => {
                let told = format!("Content-Length: {}", body.len());
                let head = head.replace(&told, &format!("Content-Length: {}", body.len() + 9));
                return self.end(&head, &body);
            }
            Some(Fault::Truncated(bytes)) => {
                return self.end(&head, &body[..bytes.min(body.len())]);
            }
            _ => {}
        }
        self.client.write_all(head.as_bytes()).ok()?;
        self.client.write_all(&body).ok()
    }

    /// The body of a request.
    fn rest(&mut self, head: &str, begun: Vec<u8>, fault: Option<&Fault>) -> Option<Vec<u8>> {
        if matches!(fault, Some(Fault::Stuck)) {
            // Until long after the client has given up.
            thread::sleep(Duration::from_secs(300));
            return None;
        }
        body(&mut self.client, head, begun)
    }

    /// Passes this on, and closes the connection.
    fn end(&mut self, head: &str, body: &[u8]) -> Option<()> {
        self.client.write_all(head.as_bytes()).ok()?;
        self.client.write_all(body).ok()?;
        let _ = self.client.shutdown(Shutdown::Both);
        None
    }

    fn answer(&mut self, status: u16, headers: &str, text: &str) -> Option<()> {
        let len = text.len();
        let head = format!("HTTP/1.1 {status} No\r\n{headers}Content-Length: {len}\r\n\r\n");
        self.client.write_all(head.as_bytes()).ok()?;
        self.client.write_all(text.as_bytes()).ok()
    }
}

/// With the checksum of eight bytes of zeros, where there is one.
fn with_other_checksum(text: &str) -> String {
    let mut other = text.to_string();
    for before in ["x-amz-checksum-crc64nvme: ", "<checksumcrc64nvme>"] {
        if let Some(at) = text.to_ascii_lowercase().find(before) {
            let at = at + before.len();
            other.replace_range(at..at + OTHER_CHECKSUM.len(), OTHER_CHECKSUM);
        }
    }
    other
}

const OTHER_CHECKSUM: &str = "AAAAAAAAAAA=";

/// A message: its head, and its body, by its length.
fn message(stream: &mut TcpStream, without_body: bool) -> Option<(String, Vec<u8>)> {
    let (head, begun) = head(stream)?;
    match without_body {
        true => Some((head, Vec::new())),
        false => body(stream, &head, begun).map(|body| (head, body)),
    }
}

/// The head of a message, and what came of its body with it.
fn head(stream: &mut TcpStream) -> Option<(String, Vec<u8>)> {
    stream.set_read_timeout(Some(Duration::from_secs(120))).ok()?;
    let mut bytes = Vec::new();
    let mut some = vec![0; 64 << 10];
    let end = loop {
        if let Some(at) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break at + 4;
        }
        match stream.read(&mut some).ok()? {
            0 => return None,
            count => bytes.extend_from_slice(&some[..count]),
        }
    };
    let body = bytes.split_off(end);
    Some((String::from_utf8(bytes).ok()?, body))
}

fn body(stream: &mut TcpStream, head: &str, mut body: Vec<u8>) -> Option<Vec<u8>> {
    let len = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().ok())?
    });
    let mut some = vec![0; 64 << 10];
    while body.len() < len.unwrap_or(0) {
        match stream.read(&mut some).ok()? {
            0 => return None,
            count => body.extend_from_slice(&some[..count]),
        }
    }
    Some(body)
}
