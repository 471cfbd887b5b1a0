//! A sink that finds unchanged files by their bytes: how much is compared at a time.

use crate::pump::sink::Target;
use crate::wire::message::Message;
use base::limits::{OBJECTS_IN_FLIGHT_MAX, OFFER_ENTRIES_MAX, OFFERED_BYTES_MAX};
use base::settings::{Settings, SkipUnchanged};

/// The credit of offers, one more offer, and one for each of the two ends of offers; each KiB of
/// entries counts as an object too.
pub(super) const COMPARING_MAX: u64 =
    OBJECTS_IN_FLIGHT_MAX + OFFER_ENTRIES_MAX as u64 + 2 + (OFFERED_BYTES_MAX >> 10);

/// A message without objects counts as one.
pub(super) fn compared_objects(message: &Message) -> u64 {
    match message {
        Message::Offer { entries, .. } => {
            let bytes: usize = entries.iter().map(|entry| entry.encoded_bytes()).sum();
            entries.len().max(1) as u64 + (bytes as u64 >> 10)
        }
        _ => 1,
    }
}

/// Whether unchanged files must be found by their bytes.
pub(super) fn is_asked(settings: &Settings, sink: Option<&Target>) -> bool {
    settings.skip_unchanged == SkipUnchanged::Checksum
        && sink.is_some_and(|sink| sink.volume().is_some())
}
