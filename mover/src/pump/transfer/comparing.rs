//! A sink that leaves unchanged files by their bytes: what is read and compared at a time.

use crate::pump::sink::Target;
use crate::wire::message::Message;
use base::limits::{OBJECTS_IN_FLIGHT_MAX, OFFER_ENTRIES_MAX, OFFERED_BYTES_MAX};
use base::settings::{Settings, SkipUnchanged};

/// The credit of offers, and one more than it for each of the two ends of offers; each KiB of what
/// they take counts as an object too.
pub(super) const COMPARING_MAX: u64 =
    OBJECTS_IN_FLIGHT_MAX + OFFER_ENTRIES_MAX as u64 + 2 + (OFFERED_BYTES_MAX >> 10);

/// A message without any objects counts as one.
pub(super) fn compared_objects(message: &Message) -> u64 {
    match message {
        Message::Offer { entries, .. } => {
            let bytes: usize = entries.iter().map(|entry| entry.encoded_bytes()).sum();
            entries.len().max(1) as u64 + (bytes as u64 >> 10)
        }
        _ => 1,
    }
}

/// Whether unchanged files are to be found by their bytes.
pub(super) fn is_asked(settings: &Settings, sink: Option<&Target>) -> bool {
    settings.skip_unchanged == SkipUnchanged::Checksum
        && sink.is_some_and(|sink| sink.volume().is_some())
}
