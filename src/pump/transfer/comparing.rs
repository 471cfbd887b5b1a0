//! A sink that leaves unchanged files by their bytes: the thread that reads and compares them.

use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};

use super::super::brake::Brake;
use super::super::compare::Compare;
use super::super::sink::Target;
use super::{Event, spawn};
use crate::base::limits::{OBJECTS_IN_FLIGHT_MAX, OFFER_ENTRIES_MAX, OFFERED_BYTES_MAX};
use crate::base::settings::{Settings, SkipUnchanged};
use crate::wire::message::Message;

/// What the thread that compares has been given.
pub(super) struct Comparing {
    pub offers: Sender<Message>,
    /// Objects that it has now; a message without any counts as one.
    pub objects: u64,
}

/// The credit of offers, and one more than it for each of the two ends of offers; each KiB of what
/// they take counts as an object too.
pub(super) const COMPARING_MAX: u64 =
    OBJECTS_IN_FLIGHT_MAX + OFFER_ENTRIES_MAX as u64 + 2 + (OFFERED_BYTES_MAX >> 10);

pub(super) fn compared_objects(message: &Message) -> u64 {
    match message {
        Message::Offer { entries, .. } => {
            let bytes: usize = entries.iter().map(|entry| entry.encoded_bytes()).sum();
            entries.len().max(1) as u64 + (bytes as u64 >> 10)
        }
        _ => 1,
    }
}

/// Where unchanged files are found by their bytes, a thread that reads them.
pub(super) fn start(
    settings: &Settings,
    sink: Option<&Target>,
    events: &Sender<Event>,
    brake: &Arc<Brake>,
) -> Option<Comparing> {
    let sink = sink.filter(|_| settings.skip_unchanged == SkipUnchanged::Checksum)?;
    let volume = sink.volume()?.clone();
    let compare = Compare { volume, rename: sink.rename(), brake: brake.clone() };
    let (offered, messages) = channel::<Message>();
    let events = events.clone();
    spawn("datapump-compare", move || {
        while let Ok(message) = messages.recv() {
            let same = compare.same(&message);
            let _ = events.send(Event::Compared(message, same));
        }
    });
    Some(Comparing { offers: offered, objects: 0 })
}
