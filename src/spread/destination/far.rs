//! A destination on far hosts that all see it: its steps are asked there.

use super::{DestinationFolder, Reply, Step};
use crate::spread::far::serving::{Asked, Response};
use crate::spread::far::{FarEnd, Hosts, Session, failed};
use crate::spread::records::FarHosts;
use base::fault::Fault;
use base::job::Remote;

/// A destination, and the far hosts that see it.
#[derive(Debug)]
pub struct Far {
    place: DestinationFolder,
    pub(super) hosts: Hosts,
    /// Whether a host must show that it sees the job's own destination.
    is_taken: bool,
}

impl Far {
    pub fn new(
        place: DestinationFolder,
        far: &FarHosts,
        worker: &str,
        ssh: Option<&[String]>,
    ) -> Far {
        let hosts = Hosts::new(FarEnd::Destination, far, worker, ssh);
        Far { place, hosts, is_taken: true }
    }

    /// One of the hosts alone, by a login of its own.
    pub(in crate::spread) fn alone(place: DestinationFolder, host: &str, remote: &Remote) -> Far {
        let hosts = Hosts::alone(FarEnd::Destination, host, remote);
        Far { place, hosts, is_taken: true }
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

    pub(super) fn ask(&mut self, step: &Step) -> Result<Reply, Fault> {
        let Far { place, hosts, is_taken } = self;
        let asked = Asked::Step { place: place.clone(), step: step.clone() };
        let proof = |session: &mut Session, host: &str| match *is_taken {
            true => sees(place, session, host),
            false => Ok(()),
        };
        match hosts.ask(&asked, &proof)? {
            Response::Reply(reply) => Ok(reply),
            other => Err(Fault::peer(format!("{} answers {other:?}", hosts.host()))),
        }
    }

    /// Logs in to each host, once the job has taken the destination.
    pub fn check_all(&mut self) -> Result<(), Fault> {
        self.is_taken = true;
        let place = &self.place;
        self.hosts.ask_each(&mut |session, host| sees(place, session, host))
    }
}

/// The proof that a host sees the destination of the job.
fn sees(place: &DestinationFolder, session: &mut Session, host: &str) -> Result<(), Fault> {
    let asked = Asked::Step { place: place.clone(), step: Step::IsTaken };
    match session.ask(&asked).map_err(|why| session.explain(host, &why))? {
        Response::Reply(Reply::Yes) => Ok(()),
        Response::Failed { code, why } => Err(failed(host, code, &why)),
        _ => Err(Fault::usage(format!(
            "the destination that {host} sees as '{}' is not that of the job: all far hosts must \
             see the same storage under this path, or be left out",
            place.destination().display()
        ))),
    }
}
