//! The start of a transfer: what earlier runs of it left at the destination, and the name under
//! which this one keeps what is not complete.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::io::clock;
use crate::io::volume::{Volume, show};
use crate::pump::sink::Target;
use crate::pump::sink::journal::{
    self, Journal, Opened, PriorRuns, TransferId, journal_name, spare_journal_name, tag_of,
};
use base::fault::Fault;
use base::settings::{Cut, Settings};
use base::units::{Bytes, Nanos};

/// How opening warns the user, and how it is stopped.
pub struct ResumeCallbacks<'a> {
    pub warn: &'a dyn Fn(String),
    pub stopping: &'a dyn Fn() -> bool,
}

impl fmt::Debug for ResumeCallbacks<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ResumeCallbacks")
    }
}

/// What a sink starts with.
#[derive(Debug)]
pub struct ResumeState {
    /// Part of every temporary name.
    pub tag: String,
    pub prior_runs: Option<PriorRuns>,
    pub journal: Option<Journal>,
    /// How the run cuts and digests its files: as asked, or as what is here needs it.
    pub cut: Cut,
}

impl ResumeState {
    /// For a sink that keeps nothing.
    pub fn none(tag: String, settings: &Settings) -> ResumeState {
        ResumeState { tag, prior_runs: None, journal: None, cut: settings.cut() }
    }

    /// Finds what earlier runs of this transfer left, and reads back what may not have reached the
    /// disk. `spare_tag` is for names of files that cannot be resumed.
    pub fn open(
        target: &Target,
        transfer: TransferId,
        settings: &Settings,
        spare_tag: String,
        callbacks: &ResumeCallbacks<'_>,
    ) -> Result<ResumeState, Fault> {
        let volume = match target.volume() {
            Some(volume) if !settings.dry_run => volume,
            volume => return Ok(look(volume, &transfer, (settings, spare_tag), callbacks)),
        };
        let give_up = clock::now().after(Nanos(settings.stall.0 + LEAVING.0));
        let (mut tag, mut name) = (tag_of(&transfer), journal_name(&transfer));
        let mut warn_at = Some(clock::now().after(BUSY_WITHIN));
        let (mut prior_runs, mut journal) = loop {
            match journal::open(volume, &name, transfer, settings.cut()) {
                Ok(Opened::Ours(found)) => break *found,
                // A copy that was interrupted a moment ago may still be ending.
                Ok(Opened::Busy) if clock::now() < give_up && !(callbacks.stopping)() => {
                    if clock::now() >= warn_at.unwrap_or(give_up) {
                        warn_at = None;
                        (callbacks.warn)(waits_for_another(&**volume, settings));
                    }
                    std::thread::sleep(Duration::from_millis(50));
                }
                Ok(Opened::Busy) if (callbacks.stopping)() => return Err(Fault::interrupted()),
                Ok(Opened::Busy) => return Err(journal::busy(&**volume)),
                Ok(Opened::Foreign) if tag != spare_tag => {
                    (callbacks.warn)(format!(
                        "'{}' is not only yours: this copy keeps its journal under another name, \
                         and could not be resumed if it broke",
                        show(&**volume, &name)
                    ));
                    (tag, name) = (spare_tag.clone(), spare_journal_name(&spare_tag));
                }
                Ok(Opened::Foreign) => return Ok(ResumeState::none(spare_tag, settings)),
                Err(fault) if fault.ends_transfer() => return Err(fault),
                Err(fault) => {
                    (callbacks.warn)(format!(
                        "this copy could not be resumed if it broke: {fault}"
                    ));
                    return Ok(ResumeState::none(spare_tag, settings));
                }
            }
        };
        if settings.fresh {
            prior_runs.remove_all(|path| temporary(&tag, path));
            journal.restart()?;
            prior_runs.repeat_folders()?;
        }
        if target.is_new() || prior_runs.made_root() {
            let inode = volume.status(b".")?.map_or(0, |root| root.inode.1);
            prior_runs.know_root(inode, target.is_new())?;
        }
        if prior_runs.is_unread() && !settings.fresh {
            (callbacks.warn)(format!(
                "the journal in '{}' is damaged, or of another version of datapump: what earlier \
                 runs left begins anew",
                show(&*journal::beside(volume)?, b"")
            ));
        }
        let cut = prepare((&mut prior_runs, &mut journal), &**volume, &tag, (settings, callbacks))?;
        match (callbacks.stopping)() {
            true => Err(Fault::interrupted()),
            false => {
                Ok(ResumeState { tag, prior_runs: Some(prior_runs), journal: Some(journal), cut })
            }
        }
    }
}

/// For a sink that keeps nothing. A dry run knows what earlier runs completed.
fn look(
    volume: Option<&Arc<dyn Volume>>,
    transfer: &TransferId,
    (settings, tag): (&Settings, String),
    callbacks: &ResumeCallbacks<'_>,
) -> ResumeState {
    let found = volume.filter(|_| !settings.fresh).map(|volume| {
        journal::look(volume, &journal_name(transfer), *transfer).unwrap_or_else(|fault| {
            (callbacks.warn)(format!("what earlier runs completed is not known: {fault}"));
            None
        })
    });
    ResumeState { prior_runs: found.flatten(), ..ResumeState::none(tag, settings) }
}

/// Prepares what is here for this run, and tells the user of it.
fn prepare(
    (prior_runs, journal): (&mut PriorRuns, &mut Journal),
    volume: &dyn Volume,
    tag: &str,
    (settings, callbacks): (&Settings, &ResumeCallbacks<'_>),
) -> Result<Cut, Fault> {
    let cut = prior_runs.cut_for(settings.cut(), request_bytes_max(settings, volume));
    journal.cut_as(cut);
    let root = show(volume, b"");
    if let Some(text) = told_of_cut(cut, settings) {
        (callbacks.warn)(format!("'{root}': {text}"));
    }
    let doubtful = prior_runs.doubtful_bytes(cut);
    if doubtful > TOLD_BYTES {
        (callbacks.warn)(format!(
            "reading back {} in '{root}' that earlier runs wrote",
            Bytes(doubtful)
        ));
    }
    let going = || !(callbacks.stopping)();
    for lost in prior_runs.prepare(journal, cut, |path| temporary(tag, path), going)? {
        let name = show(volume, &lost.path);
        (callbacks.warn)(format!(
            "{} of '{name}' that had arrived are not as they were written, or are not whole \
             requests: they are sent again",
            Bytes(lost.bytes)
        ));
    }
    await_completions(prior_runs, volume, (settings, callbacks));
    Ok(cut)
}

/// A store may take long to make an object of its parts: a run that was killed meanwhile has left
/// neither an upload nor an object. What does not come is sent again.
fn await_completions(
    prior_runs: &PriorRuns,
    volume: &dyn Volume,
    (settings, callbacks): (&Settings, &ResumeCallbacks<'_>),
) {
    let Some(store) = volume.store() else { return };
    let give_up = clock::now().after(settings.stall);
    let mut awaited = prior_runs.completing();
    let mut told = false;
    loop {
        // One that cannot be looked at is not waited for.
        awaited.retain(|path| matches!(store.look(path), Ok(None)));
        let Some(first) = awaited.first() else { return };
        if clock::now() >= give_up || (callbacks.stopping)() {
            return;
        }
        if !told {
            (callbacks.warn)(format!(
                "the store is still completing '{}' for an earlier run: waiting up to {}",
                show(volume, first),
                settings.stall
            ));
        }
        told = true;
        std::thread::sleep(COMPLETION_PAUSE);
    }
}

fn waits_for_another(volume: &dyn Volume, settings: &Settings) -> String {
    format!(
        "another copy to '{}' is running, or was just broken off: waiting up to {} for it to end",
        show(volume, b""),
        Nanos(settings.stall.0 + LEAVING.0)
    )
}

/// The largest requests of which memory holds some for every stream. Parts that are in a store can
/// only be continued as they are: of those it holds the two that a stream needs at least.
fn request_bytes_max(settings: &Settings, volume: &dyn Volume) -> u32 {
    let of_a_stream = settings.memory_bytes / u64::from(settings.streams);
    let most = of_a_stream / if volume.store().is_some() { 4 } else { 16 };
    u32::try_from(most).unwrap_or(u32::MAX)
}

fn told_of_cut(cut: Cut, settings: &Settings) -> Option<String> {
    let own = settings.cut();
    let mut how = Vec::new();
    if cut.request_bytes != own.request_bytes {
        let (size, asked) = (Bytes(cut.request_bytes.into()), Bytes(own.request_bytes.into()));
        how.push(format!("requests of {size} instead of {asked}"));
    }
    if cut.digest != own.digest {
        how.push(format!("--digest {} instead of {}", cut.digest.name(), own.digest.name()));
    }
    (!how.is_empty()).then(|| {
        format!("resuming with what it was begun with: {}; --fresh starts over", how.join(" and "))
    })
}

/// How long a far side that has lost its peer may take to exit, once it knows.
const LEAVING: Nanos = Nanos::from_millis(10_000);
/// A copy that was interrupted a moment ago has ended by then.
const BUSY_WITHIN: Nanos = Nanos::from_millis(700);
/// Between two looks at an object that a store completes.
const COMPLETION_PAUSE: Duration = Duration::from_millis(200);
/// Reading back less than this is not reported.
const TOLD_BYTES: u64 = 1 << 30;

/// A name in the same directory that nobody takes for a finished file; the same for every run.
pub fn temporary(tag: &str, path: &[u8]) -> Vec<u8> {
    let directory = path.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
    let hash = blake3::hash(path);
    let front = u64::from_be_bytes(hash.as_bytes()[..8].try_into().expect("eight of 32 bytes"));
    let name = format!(".datapump-{tag}-{front:016x}.part");
    [&path[..directory], name.as_bytes()].concat()
}

/// The same, or a name that nobody can guess where another user has that one.
pub(crate) fn free_temporary(volume: &dyn Volume, tag: &str, path: &[u8]) -> Vec<u8> {
    let name = temporary(tag, path);
    let mut bytes = [0; 8];
    // A name that cannot be checked cannot be written either, which is reported then.
    if !volume.is_foreign(&name).unwrap_or(false) || getrandom::fill(&mut bytes).is_err() {
        return name;
    }
    let directory = path.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
    let name = format!(".datapump-{tag}-{:016x}.part", u64::from_le_bytes(bytes));
    [&path[..directory], name.as_bytes()].concat()
}
