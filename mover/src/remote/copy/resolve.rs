//! The first stage of a copy: what the command means, resolved on this host alone.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use crate::io::reach::Reach;
use crate::io::tcp;
use crate::pump::sink::journal::TransferId;
use crate::pump::source::names::{Ending, Names};
use crate::pump::source::walk::{Sources, means_contents};
use base::fault::Fault;
use base::job::{FileRange, Job, Location};
use base::limits::{MESSAGE_BYTES_MAX, PATH_BYTES_MAX, REQUEST_BYTES_MIN, REQUEST_BYTES_STEP};
use base::settings::{Delete, DigestKind};

/// What a copy is, in all its attempts.
#[derive(Debug)]
pub(super) struct Resolved {
    pub job: Job,
    /// What the paths on this host may lead to.
    pub reach: Reach,
    /// The same for every run of the same command.
    pub transfer: TransferId,
    /// The list of names to copy. It is read once: it may be standard input.
    pub names: Option<Arc<Names>>,
}

/// Errors on this host are found before anybody has to log in.
pub(super) fn resolve(job: &Job, is_far: bool, reach: &Reach) -> Result<Resolved, Fault> {
    if is_far {
        check_request(job)?;
        tcp::check_congestion(job.settings.congestion.as_deref())?;
    }
    check_range(job)?;
    let transfer = transfer_id(job)?;
    let names = names(job)?.map(Arc::new);
    Ok(Resolved { job: job.clone(), reach: reach.clone(), transfer, names })
}

fn check_range(job: &Job) -> Result<(), Fault> {
    let Some(range) = &job.range else { return Ok(()) };
    if job.source_host.is_none() || job.settings.digest != DigestKind::Blake3 {
        return Err(Fault::usage("only of a far file a range is copied, with its BLAKE3 digest"));
    }
    let is_within = range.bytes.start < range.bytes.end && range.bytes.end <= range.of_size;
    let is_part = range.bytes != (0..range.of_size);
    match is_within && is_part && job.settings.request_bytes >= REQUEST_BYTES_MIN {
        true => Ok(()),
        false => {
            let FileRange { bytes, of_size, .. } = range;
            let text = format!("{bytes:?} of {of_size} bytes is no range that requests fit");
            Err(Fault::usage(text))
        }
    }
}

/// Requests of a second each at a limited rate would come in bursts: one takes an eighth at most.
/// None is in a range and outside of it.
pub(super) fn with_requests_for(job: &Job) -> Job {
    let mut job = job.clone();
    // Parts of an object are large, however slowly they are sent.
    let is_store = matches!(job.target, Location::Object(_));
    if let Some(rate) = job.settings.rate.filter(|_| !is_store) {
        let eighth = (rate.bytes_per_second / 8.0) as u32 / REQUEST_BYTES_STEP * REQUEST_BYTES_STEP;
        let most = eighth.max(REQUEST_BYTES_MIN);
        job.settings.request_bytes = job.settings.request_bytes.min(most);
    }
    if let Some(range) = &job.range {
        job.settings.request_bytes = range.request_bytes(job.settings.request_bytes);
    }
    job
}

/// The sources, where they are on this host.
pub(super) fn near_sources(
    job: &Job,
    names: Option<&Arc<Names>>,
    reach: &Reach,
) -> Result<Sources, Fault> {
    let Some(names) = names else {
        let sources = Sources::look(&job.sources, job.settings.recursive, reach)?;
        return sources.choose(&job.settings);
    };
    let sources = Sources::look_below(&job.sources, reach)?.choose(&job.settings)?;
    Ok(sources.list(names.clone(), job.settings.recursive))
}

/// A tree copied into itself would never end.
pub(super) fn refuse_into_itself(job: &Job) -> Result<(), Fault> {
    let Location::Path(target) = &job.target else { return Ok(()) };
    let parent = target.parent().filter(|parent| !parent.as_os_str().is_empty());
    let real = target.canonicalize().or_else(|_| parent.unwrap_or(Path::new(".")).canonicalize());
    let Ok(real) = real else { return Ok(()) };
    for source in &job.sources {
        if let Location::Path(source) = source
            && let Ok(source_real) = source.canonicalize()
            && source_real.is_dir()
            && real.starts_with(&source_real)
        {
            let text = format!(
                "'{}' lies in '{}': a tree cannot be copied into itself",
                target.display(),
                source.display()
            );
            return Err(Fault::usage(text));
        }
    }
    Ok(())
}

/// A mirror must not remove its own source.
pub(super) fn refuse_to_delete_source(job: &Job) -> Result<(), Fault> {
    let Location::Path(target) = &job.target else { return Ok(()) };
    if job.settings.delete == Delete::Off {
        return Ok(());
    }
    let Ok(target) = target.canonicalize() else { return Ok(()) };
    let paths = || {
        job.sources.iter().filter_map(|source| match source {
            Location::Path(path) => Some((path, path.canonicalize().ok()?)),
            _ => None,
        })
    };
    for (source, _) in paths().filter(|(_, real)| real.is_dir()) {
        let mirrored = match (means_contents(source), source.file_name()) {
            (false, Some(name)) => target.join(name),
            _ => target.clone(),
        };
        let mirrored = mirrored.canonicalize().unwrap_or(mirrored);
        if let Some((lost, _)) = paths().find(|(_, other)| other.starts_with(&mirrored)) {
            return Err(Fault::usage(format!(
                "'{}' lies in '{}', of which --delete makes the mirror of '{}': it could be \
                 deleted; copy to another folder",
                lost.display(),
                mirrored.display(),
                source.display()
            )));
        }
    }
    Ok(())
}

/// No more streams than there are requests: each costs a handshake.
pub(super) fn with_streams_for(job: &Job, sources: Option<&Sources>) -> Job {
    let mut job = job.clone();
    if let Some(bytes) = sources.and_then(Sources::single_bytes) {
        let requests = bytes.div_ceil(u64::from(job.settings.request_bytes)).max(1);
        let streams = u16::try_from(requests).unwrap_or(u16::MAX);
        job.settings.streams = job.settings.streams.min(streams);
    }
    job
}

fn names(job: &Job) -> Result<Option<Names>, Fault> {
    let Some(listed) = &job.listed else { return Ok(None) };
    let ending = if listed.nul { Ending::Nul } else { Ending::Line };
    Names::read(&listed.file, ending).map(Some)
}

/// Identifies a transfer at its destination: the same for the same command.
fn transfer_id(job: &Job) -> Result<TransferId, Fault> {
    let mut hasher = blake3::Hasher::new_derive_key("datapump 2026 transfer");
    let mut add = |bytes: &[u8]| {
        hasher.update(&(bytes.len() as u64).to_le_bytes()).update(bytes);
    };
    let here = rustix::system::uname();
    for (host, locations) in [
        (&job.source_host, &job.sources[..]),
        (&job.target_host, std::slice::from_ref(&job.target)),
    ] {
        let name = host.as_ref().map_or(here.nodename().to_bytes(), |name| name.as_bytes());
        add(name);
        for location in locations {
            match location {
                Location::Path(path) if host.is_none() => {
                    let path = std::path::absolute(path)
                        .map_err(|error| Fault::io("find", path, &error))?;
                    add(path.as_os_str().as_bytes());
                }
                Location::Path(path) => add(path.as_os_str().as_bytes()),
                made => add(format!("{made:?}").as_bytes()),
            }
        }
    }
    let mut id = [0; 16];
    hasher.finalize_xof().fill(&mut id);
    Ok(id)
}

/// The far side gets its paths and the patterns in one message.
fn check_request(job: &Job) -> Result<(), Fault> {
    let far = match job.source_host {
        Some(_) => &job.sources[..],
        None => std::slice::from_ref(&job.target),
    };
    let path_bytes = |location: &Location| match location {
        Location::Path(path) => path.as_os_str().len(),
        _ => 0,
    };
    if let Some(bytes) = far.iter().map(path_bytes).find(|bytes| *bytes > PATH_BYTES_MAX) {
        return Err(Fault::usage(format!(
            "a path of {bytes} bytes is longer than any there can be ({PATH_BYTES_MAX}): shorten \
             it, or name a folder above it"
        )));
    }
    let names: usize = job.sources.iter().map(path_bytes).sum();
    if job.sources.len() > SOURCES_MAX || names > SOURCES_BYTES_MAX {
        return Err(Fault::usage(format!(
            "{} sources are too many for one command (at most {SOURCES_MAX}, with \
             {SOURCES_BYTES_MAX} bytes of names): copy the folder they are in, or use several \
             commands",
            job.sources.len()
        )));
    }
    let fields = |bytes: usize| bytes + FIELD_BYTES;
    let patterns = &job.settings.filters;
    let paths: usize = far.iter().map(|location| fields(path_bytes(location))).sum();
    let bytes = paths + patterns.iter().map(|line| fields(line.len())).sum::<usize>();
    match bytes <= OPEN_BYTES_MAX {
        true => Ok(()),
        false => Err(Fault::usage(format!(
            "{} sources and {} patterns are {bytes} bytes, and one command takes \
             {OPEN_BYTES_MAX}: write wider patterns, name the files with --files-from, or use \
             several commands",
            job.sources.len(),
            patterns.len()
        ))),
    }
}

/// What precedes a path or a pattern at most; and what all of them may take, so that the rest of
/// the message fits too.
const FIELD_BYTES: usize = 32;
const OPEN_BYTES_MAX: usize = MESSAGE_BYTES_MAX - (16 << 10);

const SOURCES_MAX: usize = 1000;
const SOURCES_BYTES_MAX: usize = 100_000;
