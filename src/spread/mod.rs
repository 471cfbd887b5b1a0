//! A dataset over many nodes: a plan cut into shards, a job folder on storage that all nodes share,
//! and workers that claim shards from it. `analysis::shards` decides; here are the files, the
//! processes and the clock. docs/SPREAD.md has the protocol and what always holds.

pub mod coordinator;
mod copying;
pub mod destination;
pub mod ending;
mod events;
pub mod far;
pub mod folder;
mod giving;
pub mod history;
pub mod launcher;
mod ledgers;
pub mod planning;
mod ranges;
mod rebuilding;
pub mod records;
mod shard_work;
pub mod source;
mod staged_file;
mod storage;
pub mod submitted;
pub mod view;
pub mod work;

use std::fs;
use std::path::{Path, PathBuf};

use self::destination::far::Far;
use self::destination::{Destination, DestinationFolder, Name, Reply, Step, strange};
use self::far::{Hosts, News};
use self::folder::{JobFolder, random_hex};
use self::launcher::Launcher;
use self::launcher::local::Local;
use self::launcher::slurm::{Request, Slurm};
use self::launcher::ssh::Ssh;
use self::records::{Copying, FORMAT, FarHosts, Manifest, SourceRoot, text_of_path};
use self::source::Source;
use analysis::shards::lease::LeaseTimes;
use analysis::shards::plan::{Cost, Cutting};
use analysis::shards::start::Start;
use base::fault::Fault;
use mover::io::clock;

pub use self::rebuilding::resumed;

/// Where workers run, as `--on` takes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum On {
    /// This host, with so many workers.
    Local(usize),
    /// A list of hosts.
    Ssh(PathBuf),
    /// Slurm, and the partition, if one is named.
    Slurm(Option<String>),
}

impl On {
    /// The error says what to write instead.
    pub fn parse(text: &str) -> Result<On, String> {
        let (kind, rest) = match text.split_once(':') {
            Some((kind, rest)) => (kind, Some(rest)),
            None => (text, None),
        };
        match (kind, rest) {
            ("local", None) => Ok(On::Local(WORKERS_HERE)),
            ("local", Some(count)) => match count.parse() {
                Ok(count @ 1..=WORKERS_MAX) => Ok(On::Local(count)),
                _ => Err(format!("write local:N with a number from 1 to {WORKERS_MAX}")),
            },
            ("ssh", Some(list)) if !list.is_empty() => Ok(On::Ssh(list.into())),
            ("slurm", None) => Ok(On::Slurm(None)),
            ("slurm", Some(name)) if !name.is_empty() => Ok(On::Slurm(Some(name.to_string()))),
            _ => Err(format!("write {ON_PHRASE}")),
        }
    }

    /// What starts workers there.
    pub fn launcher(
        &self,
        ssh: Option<Vec<String>>,
        request: &Request,
    ) -> Result<Box<dyn Launcher>, Fault> {
        Ok(match self {
            On::Local(workers) => Box::new(Local::new(*workers, ssh)),
            On::Ssh(list) => Box::new(Ssh::read(list, ssh)?),
            On::Slurm(_) => Box::new(Slurm::new(self.request(request))),
        })
    }
}

impl On {
    /// How workers come to run there.
    pub fn start(&self) -> Start {
        match self {
            On::Local(_) => Start::Here,
            On::Ssh(_) => Start::BySsh,
            On::Slurm(_) => Start::InQueue,
        }
    }

    /// What is asked of Slurm, with the partition.
    pub fn request(&self, request: &Request) -> Request {
        let partition = match self {
            On::Slurm(partition) => partition.clone(),
            _ => None,
        };
        Request { partition, ..request.clone() }
    }
}

/// A job as it is ordered.
#[derive(Clone, Debug)]
pub struct SpreadOrder {
    /// As typed: a trailing slash has a meaning.
    pub sources: Vec<PathBuf>,
    pub target: PathBuf,
    /// The hosts that see the target, where the nodes do not.
    pub far: Option<FarHosts>,
    /// The hosts that see the sources, where the nodes do not.
    pub far_source: Option<FarHosts>,
    /// The command of ssh, for either.
    pub ssh: Option<Vec<String>>,
    /// `None` for a new folder in the current one.
    pub job: Option<PathBuf>,
    pub copying: Copying,
    pub times: LeaseTimes,
    pub on: String,
    pub workers: usize,
    /// Larger files are cut into ranges.
    pub split_above: u64,
    pub command: Vec<String>,
}

/// Makes the job folder, and takes the destination, which is told with what is to be said of far
/// hosts.
pub fn begin(order: &SpreadOrder) -> Result<(JobFolder, Destination, Vec<News>), Fault> {
    let mut source = Source::new(order.far_source.as_ref(), "", order.ssh.as_deref());
    let sources = source.find(&order.sources)?;
    let mut place = DestinationFolder {
        folder: Name::from(&*order.target),
        id: random_hex(8)?,
        token: random_hex(16)?,
    };
    let mut at = match &order.far {
        Some(far) => {
            let far = Far::new(place.clone(), far, "", order.ssh.as_deref());
            Destination::Far(Box::new(far.unchecked()))
        }
        None => Destination::here(place.clone()),
    };
    let (destination, was_empty) = match at.ask(&Step::Prepare)? {
        Reply::Prepared { folder, was_empty } => (folder, was_empty),
        other => return Err(strange(&other)),
    };
    place.folder = destination;
    let destination = place.destination();
    if order.far.is_none() && order.far_source.is_none() {
        sources.iter().try_for_each(|source| refuse_inside(&destination, source))?;
    }
    at.move_to(place.clone());
    let job = match &order.job {
        Some(job) => job.clone(),
        None => free_name()?,
    };
    let manifest = Manifest {
        format: FORMAT,
        version: env!("CARGO_PKG_VERSION").to_string(),
        id: place.id,
        token: place.token,
        sources,
        destination: text_of_path(&destination),
        far: order.far.clone(),
        far_source: order.far_source.clone(),
        destination_was_empty: was_empty,
        copying: order.copying.clone(),
        times: order.times,
        workers: order.workers,
        split_above: order.split_above,
        on: order.on.clone(),
        command: without_ssh(&order.command),
        began_unix_s: clock::unix().as_secs(),
    };
    let folder = JobFolder::create(&job, &manifest, &mut at)?;
    let news = [at.hosts(), source.hosts()].into_iter().flatten().flat_map(Hosts::news).collect();
    Ok((folder, at, news))
}

/// How ssh logs in is in no file of a job: others may read those.
fn without_ssh(words: &[String]) -> Vec<String> {
    let mut kept = Vec::with_capacity(words.len());
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--ssh" => drop(words.next()),
            word if word.starts_with("--ssh=") => {}
            word => kept.push(word.to_string()),
        }
    }
    kept
}

fn refuse_inside(destination: &Path, source: &SourceRoot) -> Result<(), Fault> {
    let folder = records::path_of(&source.folder).unwrap_or_default();
    match source.only.is_none() && destination.starts_with(&folder) {
        true => Err(Fault::usage(format!(
            "'{}' lies in '{}': a tree cannot be copied into itself",
            destination.display(),
            folder.display()
        ))),
        false => Ok(()),
    }
}

/// The first of `spread-1`, `spread-2` that is not there.
fn free_name() -> Result<PathBuf, Fault> {
    let names = (1..JOBS_MAX).map(|number| PathBuf::from(format!("spread-{number}")));
    let mut free = names.filter(|name| fs::symlink_metadata(name).is_err());
    free.next().ok_or_else(|| Fault::usage("name a new folder for the job with --job"))
}

/// How a job of so many workers is cut, with both ends here or one on far hosts.
pub fn cutting(workers: usize, split_above: u64, far: Option<&FarHosts>) -> Cutting {
    let cutting = Cutting::new(Cost::UNKNOWN, workers);
    let cutting = if far.is_some() { cutting.far() } else { cutting };
    Cutting { range_above: Some(split_above), ..cutting }
}

/// The values of `--on`, as the user reads them.
pub const ON_PHRASE: &str =
    "local, local:N (workers on this host), ssh:HOSTFILE (one host a line) or slurm[:PARTITION]";
const WORKERS_HERE: usize = 2;
const WORKERS_MAX: usize = 256;
const JOBS_MAX: u32 = 100_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_workers_run() {
        assert_eq!(On::parse("local"), Ok(On::Local(WORKERS_HERE)));
        assert_eq!(On::parse("local:7"), Ok(On::Local(7)));
        assert_eq!(On::parse("ssh:a:b"), Ok(On::Ssh("a:b".into())));
        assert_eq!(On::parse("slurm"), Ok(On::Slurm(None)));
        assert_eq!(On::parse("slurm:dtn"), Ok(On::Slurm(Some("dtn".into()))));
        for wrong in ["", "local:", "local:0", "local:x", "ssh", "ssh:", "slurm:", "pbs"] {
            assert!(On::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn no_job_says_how_ssh_logs_in() {
        let kept = |line: &str| {
            let words: Vec<String> = line.split(' ').map(str::to_string).collect();
            without_ssh(&words).join(" ")
        };
        assert_eq!(kept("datapump spread --ssh mine -r a b:c"), "datapump spread -r a b:c");
        assert_eq!(kept("datapump spread a b:c --ssh=mine"), "datapump spread a b:c");
        assert_eq!(kept("datapump spread a b:c --ssh"), "datapump spread a b:c");
    }
}
