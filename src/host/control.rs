//! A copy that runs can be asked what it copies, and to keep to another rate, by other processes of
//! its user. It listens on an abstract Unix socket that is named after its process, so nothing is
//! left when it ends. The kernel says who asks (SO_PEERCRED): processes of its user, and of root.
//! Each network namespace has names of its own.
//!
//! A question is JSON, and so is the answer.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::thread;
use std::time::Duration;

use rustix::net::sockopt::socket_peercred;
use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};
use rustix::process::geteuid;
use serde::{Deserialize, Serialize};

/// What may be asked of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Question {
    /// What it copies.
    Tell,
    /// To keep to this rate from now on; null for no limit.
    Limit { bytes_per_s: Option<f64> },
}

/// What a copy says of itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    pub process: u32,
    pub sources: Vec<String>,
    pub target: String,
    /// The limit of its rate; null where there is none.
    pub limit_bytes_per_s: Option<f64>,
    pub bytes_done: u64,
    pub bytes_found: u64,
}

/// Answers questions until the process ends; those that get `None` are not answered.
pub fn serve(answer: impl Fn(Question) -> Option<Answer> + Send + 'static) -> io::Result<()> {
    let listener = UnixListener::bind_addr(&address(std::process::id())?)?;
    thread::Builder::new().name("control".into()).spawn(move || {
        loop {
            match listener.accept() {
                // Who asks and does not wait for the answer needs none.
                Ok((asker, _)) => drop(converse(&asker, &answer)),
                Err(_) => thread::sleep(RETRY_AFTER),
            }
        }
    })?;
    Ok(())
}

fn converse(
    mut asker: &UnixStream,
    answer: &impl Fn(Question) -> Option<Answer>,
) -> io::Result<()> {
    let user = user_of(asker)?;
    if user != geteuid().as_raw() && user != 0 {
        return Ok(());
    }
    let question = serde_json::from_slice(&heard(asker)?)?;
    let Some(answer) = answer(question) else { return Ok(()) };
    let mut line = serde_json::to_vec(&answer)?;
    line.push(b'\n');
    asker.set_write_timeout(Some(PATIENCE))?;
    asker.write_all(&line)
}

/// Asks the copy of this process. Only one of this user, or of root, is believed.
pub fn ask(process: u32, question: Question) -> io::Result<Answer> {
    let mut copy = connect(process)?;
    if ![geteuid().as_raw(), 0].contains(&user_of(&copy)?) {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    copy.set_write_timeout(Some(PATIENCE))?;
    copy.write_all(&serde_json::to_vec(&question)?)?;
    copy.shutdown(Shutdown::Write)?;
    Ok(serde_json::from_slice(&heard(&copy)?)?)
}

/// The processes that listen, of all users.
pub fn listening() -> io::Result<BTreeSet<u32>> {
    let table = fs::read_to_string("/proc/net/unix")?;
    let names = table.lines().filter_map(|line| line.split_ascii_whitespace().nth(7));
    Ok(names.filter_map(|name| name.strip_prefix('@')?.strip_prefix(NAME)?.parse().ok()).collect())
}

/// Never waits: whoever has the name, and takes no connection, holds up nobody.
fn connect(process: u32) -> io::Result<UnixStream> {
    let name = SocketAddrUnix::new_abstract_name(format!("{NAME}{process}").as_bytes())?;
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    net::connect(&socket, &name)?;
    let stream = UnixStream::from(socket);
    stream.set_nonblocking(false)?;
    Ok(stream)
}

fn address(process: u32) -> io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(format!("{NAME}{process}"))
}

fn heard(stream: &UnixStream) -> io::Result<Vec<u8>> {
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut said = Vec::new();
    stream.take(SAID_BYTES_MAX).read_to_end(&mut said)?;
    Ok(said)
}

fn user_of(stream: &UnixStream) -> io::Result<u32> {
    Ok(socket_peercred(stream)?.uid.as_raw())
}

const NAME: &str = "datapump-copy-";
const PATIENCE: Duration = Duration::from_secs(2);
const RETRY_AFTER: Duration = Duration::from_millis(100);
/// An answer has names of files.
const SAID_BYTES_MAX: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(question: Question) -> Answer {
        let limit_bytes_per_s = match question {
            Question::Tell => None,
            Question::Limit { bytes_per_s } => bytes_per_s,
        };
        Answer {
            process: std::process::id(),
            sources: vec!["a\n\"b".into()],
            target: "c".into(),
            limit_bytes_per_s,
            bytes_done: 1,
            bytes_found: u64::MAX,
        }
    }

    /// Answers come through as they were given, also after somebody who asks nonsense.
    #[test]
    fn a_process_is_found_and_asked() {
        serve(|question| Some(answer(question))).unwrap();
        let process = std::process::id();
        assert!(listening().unwrap().contains(&process));
        let questions = [
            Question::Tell,
            Question::Limit { bytes_per_s: Some(5e6) },
            Question::Limit { bytes_per_s: None },
        ];
        for nonsense in [&b""[..], b"{", b"{\"limit\": 7}", &[b'['; 4096]] {
            let mut asker = UnixStream::connect_addr(&address(process).unwrap()).unwrap();
            asker.write_all(nonsense).unwrap();
            asker.shutdown(Shutdown::Write).unwrap();
            assert_eq!(heard(&asker).unwrap(), b"", "nonsense is not answered");
            for question in questions {
                assert_eq!(ask(process, question).unwrap(), answer(question));
            }
        }
        assert!(ask(u32::MAX, Question::Tell).is_err());
    }

    /// Somebody has the name, and the queue of those who want to connect is full.
    #[test]
    fn who_takes_no_connection_holds_up_nobody() {
        let process = u32::MAX - 1;
        let socket =
            socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None);
        let socket = socket.unwrap();
        let name = SocketAddrUnix::new_abstract_name(format!("{NAME}{process}").as_bytes());
        net::bind(&socket, &name.unwrap()).unwrap();
        net::listen(&socket, 0).unwrap();
        let held: Vec<_> = std::iter::from_fn(|| connect(process).ok()).take(100).collect();
        assert!(held.len() < 100, "the queue is never full");
        assert!(ask(process, Question::Tell).is_err());
    }
}
