//! A store that answers as a test says, at loopback.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use super::Scene;
use super::gateway::with_credentials;

#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub method: String,
    /// Without the bucket.
    pub key: String,
    pub query: String,
    /// Everything but the body, as it was sent.
    pub head: String,
    pub body: Vec<u8>,
}

impl Asked {
    pub(crate) fn is(&self, method: &str, key: &str) -> bool {
        self.method == method && self.key == key
    }

    /// A header; empty where there is none.
    pub(crate) fn header(&self, name: &str) -> &str {
        let pairs = self.head.lines().filter_map(|line| line.split_once(": "));
        pairs.into_iter().find(|(known, _)| *known == name).map_or("", |(_, value)| value)
    }
}

/// Headers, each with its end of line, and a body.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    Of(u16, String, Vec<u8>),
    /// Nothing, ever.
    Silence,
}

impl Answer {
    pub(crate) fn text(status: u16, text: &str) -> Answer {
        Answer::Of(status, String::new(), text.into())
    }

    pub(crate) fn refused(status: u16, code: &str) -> Answer {
        Answer::text(status, &format!("<Error><Code>{code}</Code><Message>No</Message></Error>"))
    }
}

pub(crate) struct ScriptedStore {
    pub port: u16,
    pub asked: Arc<Mutex<Vec<Asked>>>,
}

impl ScriptedStore {
    pub(crate) fn new(answer: impl Fn(&Asked) -> Answer + Send + Sync + 'static) -> ScriptedStore {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let store = ScriptedStore { port, asked: asked.clone() };
        let answer = Arc::new(answer);
        thread::spawn(move || {
            for mut client in listener.incoming().map_while(Result::ok) {
                let (answer, asked) = (answer.clone(), asked.clone());
                thread::spawn(move || while one(&mut client, &*answer, &asked).is_some() {});
            }
        });
        store
    }

    pub(crate) fn command(&self, scene: &Scene, line: &str) -> Command {
        let mut command = scene.command(&scene.words(line));
        let endpoint = format!("http://127.0.0.1:{}", self.port);
        with_credentials(&mut command).env("AWS_ENDPOINT_URL", endpoint);
        command.env("XDG_STATE_HOME", scene.path("state"));
        command
    }

    pub(crate) fn wait_for_one(&self) {
        while self.asked.lock().unwrap().is_empty() {
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Whether such a request has come.
    pub(crate) fn has_been_asked(&self, what: impl Fn(&Asked) -> bool) -> bool {
        self.asked.lock().unwrap().iter().any(what)
    }
}

fn one(
    client: &mut TcpStream,
    answer: &dyn Fn(&Asked) -> Answer,
    all: &Mutex<Vec<Asked>>,
) -> Option<()> {
    let (mut bytes, mut some) = (Vec::new(), vec![0; 64 << 10]);
    let end = loop {
        if let Some(at) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break at + 4;
        }
        match client.read(&mut some).ok()? {
            0 => return None,
            count => bytes.extend_from_slice(&some[..count]),
        }
    };
    let head = String::from_utf8(bytes[..end].to_vec()).ok()?;
    let mut words = head.split(' ');
    let (method, target) = (words.next()?.to_string(), words.next()?);
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let key = path.splitn(3, '/').nth(2).unwrap_or("").to_string();
    let body = bytes[end..].to_vec();
    let mut asked = Asked { method, key, query: query.to_string(), head: head.clone(), body };
    let len = asked.header("content-length").parse().unwrap_or(0_usize);
    while asked.body.len() < len {
        let most = (len - asked.body.len()).min(some.len());
        match client.read(&mut some[..most]).ok()? {
            0 => return None,
            count => asked.body.extend_from_slice(&some[..count]),
        }
    }
    all.lock().unwrap().push(asked.clone());
    let Answer::Of(status, headers, body) = answer(&asked) else {
        // Until the client is gone.
        client.set_read_timeout(Some(Duration::from_secs(600))).ok()?;
        let _ = client.read(&mut some);
        return None;
    };
    let len = body.len();
    write!(client, "HTTP/1.1 {status} x\r\n").ok()?;
    if !headers.contains("Content-Length") && !headers.contains("Transfer-Encoding") {
        write!(client, "Content-Length: {len}\r\n").ok()?;
    }
    write!(client, "{headers}\r\n").ok()?;
    if asked.method != "HEAD" {
        client.write_all(&body).ok()?;
    }
    Some(())
}
