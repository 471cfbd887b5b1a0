//! Markers of folders: empty objects whose keys end with a slash. A folder that has something in it
//! is there without one, which keeps its mode and time.

use crate::bucket::Bucket;
use crate::client::{Trouble, lock};
use crate::metadata;
use crate::upload;
use base::fault::{Class, Fault};
use mover::io::volume::{Metadata, Replace};

impl Bucket {
    /// Something has come to be in the folder that holds this.
    pub(super) fn note_made(&self, path: &[u8]) {
        if let Some(at) = path.iter().rposition(|byte| *byte == b'/') {
            lock(&self.filled).insert(path[..at].to_vec());
        }
    }

    /// Marks a folder that is left, where the store takes markers and one has something to tell.
    pub(super) fn mark(&self, path: &[u8], meta: &Metadata) -> Result<(), Fault> {
        let has_some = lock(&self.filled).remove(path);
        self.note_made(path);
        let is_plain = meta.mtime.is_none() && meta.attributes.is_none();
        if has_some && is_plain || self.client.abilities.refuses_markers() {
            return Ok(());
        }
        let key = format!("{}/", self.key(path)?);
        match self.put_made(&key, (meta, metadata::FOLDER), b"", Replace::Allowed) {
            Err(Trouble::Refused(refusal)) if !refusal.is_of_all() => {
                let trouble = Trouble::Refused(refusal.clone());
                let fault = upload::refused(trouble, &self.bucket, &key);
                if fault.class == Class::NoSpace {
                    return Err(fault);
                }
                if self.client.abilities.note_no_markers() {
                    let text = format!(
                        "the store refuses markers of folders ({}): their modes and times are not \
                         kept, and empty ones are not there",
                        refusal.told()
                    );
                    self.warn(Some(&text));
                }
                Ok(())
            }
            Err(trouble) => Err(upload::refused(trouble, &self.bucket, &key)),
            Ok(()) => Ok(()),
        }
    }
}
