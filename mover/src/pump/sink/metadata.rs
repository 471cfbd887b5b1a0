//! What a new file gets besides its bytes.

use crate::io::system;
use crate::io::volume::Metadata;
use crate::pump::sink::SinkSide;
use crate::pump::source::walk::{has_time, mtime_of};
use crate::wire::manifest::Entry;
use base::settings::Settings;

impl SinkSide {
    pub(super) fn metadata(&self, entry: &Entry) -> Metadata {
        // Whoever puts the file together reads its parts.
        if self.range_of(entry).is_some() {
            return Metadata { mode: 0o600, ..Metadata::default() };
        }
        // No more than permissions unless that is asked for: a source must not make programs here
        // run as another user.
        let &Settings { archive, preserve, .. } = &self.settings;
        let is_new = !preserve || !has_time(entry);
        let is_owned = archive && entry.attributes.is_some();
        let mode = entry.mode & if is_owned { 0o7777 } else { 0o777 };
        Metadata {
            mode: if is_new { mode & !system::umask() } else { mode },
            mtime: (!is_new).then(|| mtime_of(entry)),
            owner: self.owners.owner_of(entry.attributes.as_deref()),
            attributes: entry.attributes.clone().filter(|_| archive),
        }
    }
}
