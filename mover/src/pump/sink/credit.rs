//! Checks that refuse an offer before it is looked at.

use crate::pump::sink::SinkSide;
use crate::wire::manifest::Entry;
use crate::wire::message::Message;
use base::fault::Fault;
use base::limits::OFFERED_BYTES_MAX;

impl SinkSide {
    /// Refuses what was not asked for, before any of its names is looked up here.
    pub(crate) fn check_offer(&self, message: &Message) -> Result<(), Fault> {
        match message {
            Message::Offer { first, entries } => self.expected.check(*first, entries),
            _ => Ok(()),
        }
    }

    /// Wanted objects are held until they are finished, with their names and attributes in memory.
    pub(super) fn check_credit(&self, entries: &[Entry]) -> Result<(), Fault> {
        let bytes: u64 = entries.iter().map(|entry| entry.encoded_bytes() as u64).sum();
        match self.open.is_empty() || self.open_bytes + bytes <= OFFERED_BYTES_MAX {
            true => Ok(()),
            false => Err(Fault::peer("the peer offered more names and attributes than it may")),
        }
    }
}
