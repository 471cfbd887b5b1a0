//! Hosts that see an end of a job which the nodes do not see. What is asked of them goes over one
//! login to one of them, and over another's where that one cannot be reached.

mod login;
mod pieces;
pub mod serving;

use std::io::{BufRead, BufReader};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use self::login::{Login as Near, Over};
use self::pieces::{Piece, line};
use self::serving::{Asked, MARK, PROGRAM, Response, WORD};
use super::launcher::ssh;
use super::records::FarHosts;
use analysis::shards::far::order;
use base::fault::{Class, Fault};
use base::job::Remote;
use base::units::Nanos;
use mover::io::clock;
use mover::pump::watch::Watch;
use mover::remote::launch::{Launch, Launched, Login};
use mover::remote::tunnel::Tunnel;

/// Which end of a job far hosts see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FarEnd {
    Source,
    Destination,
}

/// The far hosts of a job, in one worker's order.
#[derive(Debug)]
pub struct Hosts {
    end: FarEnd,
    hosts: Vec<String>,
    /// Which of them is used.
    at: usize,
    remote: Remote,
    session: Option<Session>,
    news: Vec<News>,
    /// A host that says nothing for so long while it is asked is lost.
    silent_for: Nanos,
}

/// What is told of far hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    LoggedIn(String),
    /// The host, and why another is used.
    Refused(String, String),
}

/// How a copy reaches far hosts: those that it tries, in that order.
#[derive(Clone, Debug)]
pub struct Tries {
    pub end: FarEnd,
    pub hosts: Vec<String>,
    pub remote: Remote,
    /// The login to the first of them, where it is there already.
    over: Option<Over>,
}

impl Tries {
    /// The login to a host over which a copy goes, where it needs none of its own.
    pub fn over(&self, host: &str) -> Option<&dyn Tunnel> {
        let over = self.over.as_ref().filter(|_| self.hosts.first().is_some_and(|at| at == host));
        over.map(|over| over as &dyn Tunnel)
    }
}

/// What a host must show of itself when it is logged in to.
pub type Proof<'a> = dyn Fn(&mut Session, &str) -> Result<(), Fault> + 'a;

impl Hosts {
    pub fn new(end: FarEnd, far: &FarHosts, worker: &str, ssh: Option<&[String]>) -> Hosts {
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
        Hosts { end, hosts, at: 0, remote, session: None, news: Vec::new(), silent_for: SILENT_FOR }
    }

    /// One of the hosts alone, by a login of its own.
    pub fn alone(end: FarEnd, host: &str, remote: &Remote) -> Hosts {
        let (hosts, remote) = (vec![host.to_string()], remote.clone());
        Hosts { end, hosts, at: 0, remote, session: None, news: Vec::new(), silent_for: SILENT_FOR }
    }

    /// The host that is used.
    pub fn host(&self) -> &str {
        &self.hosts[self.at]
    }

    pub fn count(&self) -> usize {
        self.hosts.len()
    }

    /// How files are copied, with the hosts from the one that is used now on.
    pub fn tries(&self) -> Tries {
        let hosts = [&self.hosts[self.at..], &self.hosts[..self.at]].concat();
        let over = self.session.as_ref().map(|session| Over(session.login.clone()));
        Tries { end: self.end, hosts, remote: self.remote.clone(), over }
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
    pub fn ask(&mut self, asked: &Asked, proof: &Proof<'_>) -> Result<Response, Fault> {
        let mut refused = Vec::new();
        for _ in 0..self.hosts.len() {
            match self.try_ask(asked, proof) {
                Ok(said) => return self.understood(said),
                Err(fault) => {
                    let host = self.host().to_string();
                    self.leave_host(&host, &fault);
                    refused.push(fault);
                }
            }
        }
        Err(self.none_left(refused))
    }

    fn try_ask(&mut self, asked: &Asked, proof: &Proof<'_>) -> Result<Response, Fault> {
        let host = self.host().to_string();
        if self.session.is_none() {
            let mut session = Session::start(&host, &self.remote, self.silent_for)?;
            proof(&mut session, &host)?;
            self.news.push(News::LoggedIn(host.clone()));
            self.session = Some(session);
        }
        match &mut self.session {
            Some(session) => session.ask(asked).map_err(|why| session.explain(&host, &why)),
            None => Err(Fault::new(Class::Unreachable, format!("no login to {host}"))),
        }
    }

    /// What the host that was asked says next. Where it is lost no other is asked: what that one
    /// would say is no continuation.
    pub fn hear(&mut self, watch: &Watch) -> Result<Response, Fault> {
        let host = self.host().to_string();
        let heard = match &mut self.session {
            Some(session) => session
                .said_unless(&|| watch.stopping())
                .map_err(|why| session.explain(&host, &why)),
            None => Err(Fault::new(Class::Unreachable, format!("no login to {host}"))),
        };
        match heard {
            Ok(Some(said)) => self.understood(said),
            Ok(None) => Err(Fault::interrupted()),
            Err(lost) => {
                self.leave_host(&host, &lost);
                Err(lost)
            }
        }
    }

    /// What the host goes on saying is of no use.
    pub fn log_out(&mut self) {
        self.session = None;
    }

    fn understood(&mut self, said: Response) -> Result<Response, Fault> {
        let fault = match said {
            Response::Failed { code, why } => return Err(failed(self.host(), code, &why)),
            Response::Greeting { .. } => Fault::peer(format!("{} greets again", self.host())),
            Response::Busy => Fault::peer(format!("{} says nothing", self.host())),
            said => return Ok(said),
        };
        self.session = None;
        Err(fault)
    }

    /// Asks each host, over a new login where there is none yet. One that cannot be reached is told
    /// of; one that can, and does not serve, is an error, and so is that none can be reached.
    pub fn ask_each(
        &mut self,
        ask: &mut dyn FnMut(&mut Session, &str) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let mut refused = Vec::new();
        let (at, mut kept) = (self.at, self.session.take());
        for (number, host) in self.hosts.iter().enumerate() {
            let there = kept.take_if(|_| number == at);
            let session = match there {
                Some(session) => Ok(session),
                None => Session::start(host, &self.remote, self.silent_for),
            };
            let asked = session.and_then(|mut session| ask(&mut session, host).map(|()| session));
            match asked {
                Ok(session) if number == at => self.session = Some(session),
                Ok(_) => {}
                Err(fault) if fault.class == Class::Unreachable => {
                    self.news.push(News::Refused(host.clone(), fault.text.clone()));
                    refused.push(fault);
                }
                Err(fault) => return Err(fault),
            }
        }
        match refused.len() == self.hosts.len() {
            true => Err(self.none_left(refused)),
            false => Ok(()),
        }
    }

    fn none_left(&self, refused: Vec<Fault>) -> Fault {
        let class = refused.iter().map(|fault| fault.class).max().unwrap_or(Class::Unreachable);
        // One that can be reached later is worth another try.
        let can_wait = refused.iter().any(|fault| fault.class == Class::Unreachable);
        let texts: Vec<String> = refused.into_iter().map(|fault| fault.text).collect();
        let class = if can_wait { Class::Unreachable } else { class };
        let end = match self.end {
            FarEnd::Source => "source",
            FarEnd::Destination => "destination",
        };
        Fault::new(class, format!("no far host of the {end} can be used: {}", texts.join("; ")))
    }
}

/// What a host could not do, and says so.
pub fn failed(host: &str, code: u8, why: &str) -> Fault {
    Fault::new(Class::from_code(code).unwrap_or(Class::Local), format!("{host}: {why}"))
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
pub struct Session {
    login: Arc<Near>,
    lines: Receiver<Vec<u8>>,
    launched: Option<Launched>,
    silent_for: Nanos,
}

impl Session {
    fn start(host: &str, remote: &Remote, silent_for: Nanos) -> Result<Session, Fault> {
        let launch = Launch::Ssh { host: host.to_string(), remote: remote.clone() };
        let (launched, input, output) = launch.start_as(&[WORD.to_string()], Login::Again)?;
        let login = Near::start(input);
        let (tell, lines) = sync_channel(1);
        let heard = login.clone();
        thread::spawn(move || {
            hear(&mut BufReader::new(output), &tell, &heard);
            heard.end();
        });
        let mut session = Session { login, lines, launched: Some(launched), silent_for };
        match session.greeted() {
            Ok(()) => Ok(session),
            Err(why) => Err(session.explain(host, &why)),
        }
    }

    fn greeted(&mut self) -> Result<(), String> {
        for _ in 0..NOISE_LINES_MAX {
            match self.lines.recv_timeout(GREETS_WITHIN) {
                Ok(line) if is_mark(&line) => match self.said()? {
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

    pub fn ask(&mut self, asked: &Asked) -> Result<Response, String> {
        self.login.say(serde_json::to_vec(asked).map_err(|why| why.to_string())?);
        self.said()
    }

    fn said(&mut self) -> Result<Response, String> {
        self.said_unless(&|| false).map(|said| said.unwrap_or(Response::Busy))
    }

    /// The next answer, or nothing where it is stopped before. ssh itself sees that a host is lost;
    /// a step may take as long as its storage does, and then it is told that it goes on.
    fn said_unless(&mut self, stopping: &dyn Fn() -> bool) -> Result<Option<Response>, String> {
        let mut heard_at = clock::now();
        loop {
            match self.lines.recv_timeout(LOOK_EVERY) {
                Ok(line) => match understood(&line)? {
                    Response::Busy => heard_at = clock::now(),
                    said => return Ok(Some(said)),
                },
                Err(RecvTimeoutError::Timeout) if stopping() => return Ok(None),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Err(ENDED.to_string()),
            }
            if clock::now().since(heard_at) > self.silent_for {
                return Err(format!("nothing was heard from it for {}", self.silent_for));
            }
        }
    }

    /// What a broken conversation means.
    pub fn explain(&mut self, host: &str, why: &str) -> Fault {
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
        self.login.end();
        if let Some(launched) = self.launched.take() {
            launched.end(ENDS_WITHIN);
        }
    }
}

/// Passes on what comes over a login until that ends, or nobody takes it.
fn hear(output: &mut dyn BufRead, tell: &SyncSender<Vec<u8>>, login: &Near) {
    let mut has_begun = false;
    loop {
        // Before the mark a login's start-up files may print anything.
        let next = match has_begun {
            true => Piece::read(output),
            false => line(output).map(|line| line.map(Piece::Line)),
        };
        match next {
            Ok(Some(Piece::Line(line))) => {
                has_begun = has_begun || is_mark(&line);
                if tell.send(line).is_err() {
                    return;
                }
            }
            Ok(Some(piece)) => login.take(piece),
            Ok(None) | Err(_) => return,
        }
    }
}

fn is_mark(line: &[u8]) -> bool {
    line.trim_ascii_end() == MARK.as_bytes()
}

fn understood(line: &[u8]) -> Result<Response, String> {
    serde_json::from_slice(line).map_err(|why| format!("its answer makes no sense: {why}"))
}

const ENDED: &str = "the connection ended";
const CONNECTS_WITHIN: [&str; 2] = ["-o", "ConnectTimeout=10"];
/// A program may have to be sent there first.
const GREETS_WITHIN: Duration = Duration::from_secs(120);
/// It tells every five seconds that it goes on.
const SILENT_FOR: Nanos = Nanos::from_millis(60_000);
/// How often it is looked whether to stop while nothing is heard.
const LOOK_EVERY: Duration = Duration::from_millis(100);
const ENDS_WITHIN: Duration = Duration::from_secs(1);
/// Lines that a login's start-up files may print.
const NOISE_LINES_MAX: usize = 1000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spread::source::{Question, Told};

    /// One host greets and then hangs, in the middle of a walk too; the other answers.
    #[test]
    fn a_host_that_hangs_is_left_for_the_next() {
        let scratch = tempfile::tempdir().unwrap();
        let script = scratch.path().join("ssh");
        let lines = format!(
            "printf '\\n{MARK}\\n{{\"greeting\":{{\"program\":\"{PROGRAM}\"}}}}\\n'
             read -r asked
             case $1 in walks) echo '{{\"source\":\"walks\"}}';; esac
             [ $1 = answers ] || exec sleep 1000
             echo '\"busy\"'
             echo '{{\"source\":{{\"roots\":[]}}}}'
             read -r asked"
        );
        std::fs::write(&script, lines).unwrap();
        let remote = Remote {
            ssh: Some(vec!["/bin/sh".into(), script.to_str().unwrap().into()]),
            datapump: Some("datapump".into()),
            ..Remote::default()
        };
        // Long enough for a busy host to start the one that answers.
        let silent_for = Nanos::from_millis(10_000);
        let mut hosts = Hosts { silent_for, ..Hosts::alone(FarEnd::Source, "hangs", &remote) };
        hosts.hosts.push("answers".into());
        let asked = Asked::Source(Question::Find(Vec::new()));
        let said = hosts.ask(&asked, &|_, _| Ok(())).unwrap();
        assert!(
            matches!(&said, Response::Source(Told::Roots(roots)) if roots.is_empty()),
            "{said:?}"
        );
        let [News::LoggedIn(_), News::Refused(host, why), News::LoggedIn(other)] =
            &hosts.news()[..]
        else {
            panic!("it is told which host hangs")
        };
        assert_eq!((&**host, &**other), ("hangs", "answers"));
        assert!(why.contains("the login to hangs broke: nothing was heard from it for"), "{why}");
        let mut hosts = Hosts { silent_for, ..Hosts::alone(FarEnd::Source, "walks", &remote) };
        hosts.ask(&asked, &|_, _| Ok(())).unwrap();
        let (notices, _told) = std::sync::mpsc::channel();
        let lost = hosts.hear(&Watch::new(notices)).unwrap_err();
        assert!(lost.class == Class::Unreachable && lost.text.contains("nothing was heard"));
    }
}
