//! The process that owns a WAN, and requests to it: a line of JSON each way over a socket.

use std::fs::{self, DirBuilder};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ::wan::{Access, Change, Counters, Profile, Schedule, Wan};
use serde::{Deserialize, Serialize};

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Request {
    Status,
    /// Options of `set`.
    Set(Vec<String>),
    /// For this many seconds, or until `Mend`.
    Cut(Option<f64>),
    Mend,
    Down,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Status {
    pub profile: Profile,
    pub counters: Counters,
    pub access: Access,
    pub pid: u32,
    pub up_s: f64,
}

type Reply = Result<Status, String>;

/// Makes a WAN and serves requests until it is told to end.
pub(super) fn serve(name: &str, profile: &Profile) -> Result<(), String> {
    // Ctrl-C in the terminal that started it must not end it.
    rustix::process::setsid().ok();
    let wan = Wan::up(profile, super::program().as_deref())?;
    let path = socket_of(name)?;
    fs::remove_file(&path).ok();
    let listener = UnixListener::bind(&path).map_err(|why| format!("{}: {why}", path.display()))?;
    println!("{UP}");
    let began = Instant::now();
    let status = |wan: &Wan| Status {
        profile: wan.profile(),
        counters: wan.counters(),
        access: wan.access(),
        pid: std::process::id(),
        up_s: began.elapsed().as_secs_f64(),
    };
    for stream in listener.incoming().filter_map(Result::ok) {
        stream.set_read_timeout(Some(PATIENCE)).ok();
        let mut line = String::new();
        if BufReader::new(&stream).read_line(&mut line).is_err() {
            continue;
        }
        let done = match serde_json::from_str(&line) {
            Ok(Request::Down) => {
                let last = status(&wan);
                drop(wan);
                fs::remove_file(&path).ok();
                answer(stream, &Ok(last));
                return Ok(());
            }
            Ok(request) => obey(&wan, request),
            Err(why) => Err(format!("not a request: {why}")),
        };
        answer(stream, &done.map(|()| status(&wan)));
    }
    Ok(())
}

fn obey(wan: &Wan, request: Request) -> Result<(), String> {
    match request {
        Request::Set(words) => {
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            match words.contains(&"--at") {
                true => wan.follow(&Schedule::from_words(&words)?),
                false => wan.set(&Change::from_words(&words)?),
            }
        }
        Request::Cut(seconds) => {
            let time = seconds.map(Duration::try_from_secs_f64);
            wan.cut(time.transpose().map_err(|why| format!("cut: {why}"))?)
        }
        Request::Mend => wan.mend(),
        Request::Status | Request::Down => Ok(()),
    }
}

/// The client may be gone: that is no fault of the WAN's.
fn answer(mut stream: UnixStream, reply: &Reply) {
    let mut line = serde_json::to_string(reply).unwrap_or_default();
    line.push('\n');
    stream.write_all(line.as_bytes()).ok();
}

/// Sends a request to the process of a WAN.
pub(super) fn ask(name: &str, request: &Request) -> Reply {
    let path = socket_of(name)?;
    let mut stream = UnixStream::connect(&path)
        .map_err(|_| format!("no WAN named {name} is up: cargo xtask wan up --rate … --rtt …"))?;
    let told = |why: std::io::Error| format!("the WAN named {name} does not answer: {why}");
    stream.set_read_timeout(Some(PATIENCE)).map_err(told)?;
    let mut line = serde_json::to_string(request).map_err(|why| why.to_string())?;
    line.push('\n');
    stream.write_all(line.as_bytes()).map_err(told)?;
    let mut reply = String::new();
    BufReader::new(stream).read_line(&mut reply).map_err(told)?;
    serde_json::from_str(&reply)
        .map_err(|why| format!("the WAN named {name} answers strangely: {why}"))?
}

pub(super) fn log_of(name: &str) -> Result<PathBuf, String> {
    Ok(folder()?.join(format!("{name}.log")))
}

fn socket_of(name: &str) -> Result<PathBuf, String> {
    Ok(folder()?.join(format!("{name}.socket")))
}

/// Only root makes WANs, so only root may read this folder.
fn folder() -> Result<PathBuf, String> {
    let path = Path::new("/run/datapump-wan");
    let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.map_err(|why| format!("{}: {why}: an emulated WAN needs root", path.display()))?;
    Ok(path.to_path_buf())
}

/// The message of the process when its WAN is up.
pub(super) const UP: &str = "up";
const PATIENCE: Duration = Duration::from_secs(10);
