//! The event log: who did what, and why. Each process appends to a file of its own.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;

use super::folder::{JobFolder, Part};
use super::records::EventLine;
use analysis::report::utc::utc;
use analysis::shards::Claim;
use mover::io::clock;

/// What a worker notes before it ends for a reason that it cannot mend.
pub(super) const GIVES_UP: &str = "gives up";

/// The last line of a worker's log.
pub(super) fn last_note(folder: &JobFolder, worker: &str) -> Option<EventLine> {
    let text = fs::read_to_string(folder.file(Part::Events, worker)).ok()?;
    text.lines().next_back().and_then(|line| serde_json::from_str(line).ok())
}

/// One process's part of the log. A log that cannot be written stops nothing.
#[derive(Debug)]
pub(super) struct Events {
    who: String,
    file: Option<File>,
}

impl Events {
    pub(super) fn open(folder: &JobFolder, who: &str) -> Events {
        let path = folder.file(Part::Events, who);
        let file = OpenOptions::new().append(true).create(true).mode(0o600).open(path).ok();
        Events { who: who.to_string(), file }
    }

    pub(super) fn note(&mut self, what: &str, claim: Option<Claim>, why: &str) {
        let Some(file) = &mut self.file else { return };
        let line = EventLine {
            time_utc: utc(clock::unix()),
            who: self.who.clone(),
            what: what.to_string(),
            shard: claim.map(|claim| claim.shard),
            attempt: claim.map(|claim| claim.attempt),
            why: why.to_string(),
        };
        if let Ok(mut text) = serde_json::to_vec(&line) {
            text.push(b'\n');
            let _ = file.write_all(&text);
        }
    }
}
