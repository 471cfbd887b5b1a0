//! A destination on far hosts that all see it: its steps are asked over one login to one of them,
//! and over another's where that one cannot be reached.

use std::io::{self, BufReader};
use std::process::ChildStdin;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread;
use std::time::Duration;

use super::serving::{Asked, MARK, PROGRAM, Response, WORD, line, say};
use super::{DestinationFolder, Reply, Step};
use crate::spread::launcher::ssh;
use crate::spread::records::FarHosts;
use analysis::shards::far::order;
use base::fault::{Class, Fault};
use base::job::Remote;
use base::units::Nanos;
use mover::remote::launch::{Launch, Launched, Login};

/// The far hosts of a job, in one worker's order.
#[derive(Debug)]
pub struct Far {
    place: DestinationFolder,
    hosts: Vec<String>,
    /// Which of them is used.
    at: usize,
    remote: Remote,
    session: Option<Session>,
    /// Whether a host must show that it sees the job's own destination.
    is_taken: bool,
    news: Vec<News>,
}

/// What is told of far hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    LoggedIn(String),
    /// The host, and why another is used.
    Refused(String, String),
}

impl Far {
    pub fn new(
        place: DestinationFolder,
        far: &FarHosts,
        worker: &str,
        ssh: Option<&[String]>,
    ) -> Far {
        let order = order(worker, far.hosts.len());
        let hosts = order.into_iter().map(|number| far.hosts[number].clone()).collect();
        // Where one is lost another is used, and not the same again.
        let remote = Remote {
            ssh: Some(words(ssh)),
            datapump: far.datapump.clone(),
            install: far.install(),
            retry_for: Nanos(0),
            may_have_fewer_streams: true,
            ..Remote::default()
        };
        Far { place, hosts, at: 0, remote, session: None, is_taken: true, news: Vec::new() }
    }

    /// One of the hosts alone, by a login of its own.
    pub(in crate::spread) fn alone(place: DestinationFolder, host: &str, remote: &Remote) -> Far {
        let (hosts, remote) = (vec![host.to_string()], remote.clone());
        Far { place, hosts, at: 0, remote, session: None, is_taken: true, news: Vec::new() }
    }

    /// The job has not taken it yet, or has left it: what a host sees there proves nothing.
    pub fn unchecked(self) -> Far {
        Far { is_taken: false, ..self }
    }

    pub(super) fn place(&self) -> &DestinationFolder {
        &self.place
    }

    pub(super) fn move_to(&mut self, place: DestinationFolder) {
        self.place = place;
    }

    /// The host that is used.
    pub fn host(&self) -> &str {
        &self.hosts[self.at]
    }

    /// The hosts from the one that is used now on.
    pub fn hosts(&self) -> Vec<String> {
        [&self.hosts[self.at..], &self.hosts[..self.at]].concat()
    }

    /// How files are copied to any of them.
    pub fn remote(&self) -> &Remote {
        &self.remote
    }

    /// From now on the next host is used, if this one is now.
    pub fn leave_host(&mut self, host: &str, why: &Fault) {
        if self.host() != host {
            return;
        }
        self.session = None;
        self.news.push(News::Refused(self.host().to_string(), why.text.clone()));
        self.at = (self.at + 1) % self.hosts.len();
    }

    /// What has happened since this was asked last.
    pub fn news(&mut self) -> Vec<News> {
        std::mem::take(&mut self.news)
    }

    /// Asks the host that is used, and each of the others once where it cannot be reached.
    pub(super) fn ask(&mut self, step: &Step) -> Result<Reply, Fault> {
        let mut refused = Vec::new();
        for _ in 0..self.hosts.len() {
            match self.try_step(step) {
                Ok(Response::Reply(reply)) => return Ok(reply),
                Ok(Response::Failed { code, why }) => {
                    let class = Class::from_code(code).unwrap_or(Class::Local);
                    return Err(Fault::new(class, format!("{}: {why}", self.host())));
                }
                Ok(Response::Greeting { .. }) => {
                    self.session = None;
                    return Err(Fault::peer(format!("{} greets in between", self.host())));
                }
                Err(fault) => {
                    let host = self.host().to_string();
                    self.leave_host(&host, &fault);
                    refused.push(fault);
                }
            }
        }
        Err(none_left(refused))
    }

    fn try_step(&mut self, step: &Step) -> Result<Response, Fault> {
        if self.session.is_none() {
            let session = self.log_in(&self.hosts[self.at])?;
            self.news.push(News::LoggedIn(self.host().to_string()));
            self.session = Some(session);
        }
        let asked = Asked { place: self.place.clone(), step: step.clone() };
        let host = self.host().to_string();
        match &mut self.session {
            Some(session) => session.ask(&asked).map_err(|why| session.explain(&host, &why)),
            None => Err(Fault::new(Class::Unreachable, format!("no login to {host}"))),
        }
    }

    /// A login, and the proof that the destination is seen there.
    fn log_in(&self, host: &str) -> Result<Session, Fault> {
        let mut session = Session::start(host, &self.remote)?;
        if !self.is_taken {
            return Ok(session);
        }
        let asked = Asked { place: self.place.clone(), step: Step::IsTaken };
        match session.ask(&asked).map_err(|why| session.explain(host, &why))? {
            Response::Reply(Reply::Yes) => Ok(session),
            Response::Failed { code, why } => {
                let class = Class::from_code(code).unwrap_or(Class::Local);
                Err(Fault::new(class, format!("{host}: {why}")))
            }
            _ => Err(Fault::usage(format!(
                "the destination that {host} sees as '{}' is not that of the job: all far hosts \
                 must see the same storage under this path, or be left out",
                self.place.destination().display()
            ))),
        }
    }

    /// Logs in to each host, once the job has taken the destination. One that cannot be reached is
    /// told of; one that can, and does not serve, is an error, and so is that none can be reached.
    pub fn check_all(&mut self) -> Result<(), Fault> {
        self.is_taken = true;
        let mut refused = Vec::new();
        for host in &self.hosts {
            match self.log_in(host) {
                Ok(_) => {}
                Err(fault) if fault.class == Class::Unreachable => {
                    self.news.push(News::Refused(host.clone(), fault.text.clone()));
                    refused.push(fault);
                }
                Err(fault) => return Err(fault),
            }
        }
        match refused.len() == self.hosts.len() {
            true => Err(none_left(refused)),
            false => Ok(()),
        }
    }
}

fn none_left(refused: Vec<Fault>) -> Fault {
    let class = refused.iter().map(|fault| fault.class).max().unwrap_or(Class::Unreachable);
    // One that can be reached later is worth another try.
    let can_wait = refused.iter().any(|fault| fault.class == Class::Unreachable);
    let texts: Vec<String> = refused.into_iter().map(|fault| fault.text).collect();
    let class = if can_wait { Class::Unreachable } else { class };
    Fault::new(class, format!("no far host of the destination can be used: {}", texts.join("; ")))
}

/// The command of ssh, which asks nothing, and sees a lost host within half a minute.
fn words(ssh: Option<&[String]>) -> Vec<String> {
    let mut words = ssh.map_or_else(|| vec!["ssh".to_string()], <[String]>::to_vec);
    if words[0].rsplit('/').next() == Some("ssh") {
        words.extend(ssh::OPTIONS.iter().chain(&CONNECTS_WITHIN).map(|word| word.to_string()));
    }
    words
}

/// One login.
#[derive(Debug)]
struct Session {
    input: Option<ChildStdin>,
    lines: Receiver<Vec<u8>>,
    launched: Option<Launched>,
}

impl Session {
    fn start(host: &str, remote: &Remote) -> Result<Session, Fault> {
        let launch = Launch::Ssh { host: host.to_string(), remote: remote.clone() };
        let (launched, input, output) = launch.start_as(&[WORD.to_string()], Login::Again)?;
        let (tell, lines) = sync_channel(1);
        thread::spawn(move || {
            let mut output = BufReader::new(output);
            while let Ok(Some(line)) = line(&mut output) {
                if tell.send(line).is_err() {
                    return;
                }
            }
        });
        let mut session = Session { input: Some(input), lines, launched: Some(launched) };
        match session.greeted() {
            Ok(()) => Ok(session),
            Err(why) => Err(session.explain(host, &why)),
        }
    }

    fn greeted(&mut self) -> Result<(), String> {
        for _ in 0..NOISE_LINES_MAX {
            match self.lines.recv_timeout(GREETS_WITHIN) {
                Ok(line) if line.trim_ascii_end() == MARK.as_bytes() => match self.said()? {
                    Response::Greeting { program } if program == PROGRAM => return Ok(()),
                    other => return Err(format!("this is {PROGRAM}, and there is {other:?}")),
                },
                Ok(_) => {}
                Err(RecvTimeoutError::Timeout) => return Err("it does not answer".to_string()),
                Err(RecvTimeoutError::Disconnected) => return Err(ENDED.to_string()),
            }
        }
        Err("another program answers".to_string())
    }

    fn ask(&mut self, asked: &Asked) -> Result<Response, String> {
        let input = self.input.as_mut().ok_or(ENDED)?;
        say(input, asked).map_err(|why: io::Error| why.to_string())?;
        self.said()
    }

    fn said(&mut self) -> Result<Response, String> {
        // ssh itself sees that the host is lost; a step may take as long as its storage does.
        let line = self.lines.recv().map_err(|_| ENDED)?;
        serde_json::from_slice(&line).map_err(|why| format!("its answer makes no sense: {why}"))
    }

    /// What a broken conversation means.
    fn explain(&mut self, host: &str, why: &str) -> Fault {
        let fault = Fault::new(Class::Unreachable, format!("the login to {host} broke: {why}"));
        match &mut self.launched {
            Some(launched) => launched.explain(fault).fault,
            None => fault,
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // The far side ends with its input.
        self.input = None;
        if let Some(launched) = self.launched.take() {
            launched.end(ENDS_WITHIN);
        }
    }
}

const ENDED: &str = "the connection ended";
const CONNECTS_WITHIN: [&str; 2] = ["-o", "ConnectTimeout=10"];
/// A program may have to be sent there first.
const GREETS_WITHIN: Duration = Duration::from_secs(120);
const ENDS_WITHIN: Duration = Duration::from_secs(1);
/// Lines that a login's start-up files may print.
const NOISE_LINES_MAX: usize = 1000;
