//! What must be true of a run, whatever has happened in it.

use std::collections::{BTreeMap, BTreeSet};

use base::job::Notice;
use base::settings::{DigestKind, Fsync};
use mover::pump::sink::journal::{Replay, tag_of};
use mover::pump::sink::resume::temporary;
use mover::pump::source::walk::Found;

use super::{Fixture, Hosts, SLOT, TRANSFER, Tree3};

impl Hosts {
    /// Every name that is no temporary one has exactly its source's bytes; with faults that lose
    /// nothing all are there, and what is missing was named.
    pub(crate) fn check(&mut self) -> Result<(), String> {
        let told = self.hosts.iter().flat_map(|host| host.notices.try_iter());
        self.notices.extend(told);
        let Fixture { sent, target, .. } = &self.fixture;
        let arrived = finals(target.files());
        compare(sent, &arrived)?;
        self.check_room()?;
        let is_done = |host: &super::Host| matches!(host.ended, Some(Ok(_)));
        if !self.hosts.iter().all(is_done) {
            return Ok(());
        }
        let failed = self.failed();
        let lost = sent.keys().find(|path| !arrived.contains_key(*path) && !failed.contains(*path));
        if let Some(lost) = lost {
            let (all, there) = (sent.len(), arrived.len());
            let name = lost.escape_ascii();
            return Err(format!("{name} is missing and nobody said so: {there} of {all} arrived"));
        }
        self.check_counts(failed.len())?;
        // Another run goes on with what has failed.
        let mut left = target.files().into_keys();
        let goes_on = !failed.is_empty();
        if let Some(left) = left.find(|path| is_temporary(path) && !goes_on) {
            return Err(format!("{} was left", left.escape_ascii()));
        }
        self.check_digests()
    }

    /// A run that has ended by itself leaves no temporary file of which its journal does not speak.
    pub(crate) fn check_parts(&self) -> Result<(), String> {
        if self.sink().has_left_lanes {
            return Ok(());
        }
        let files = self.fixture.target.files();
        let mut replay = Replay::default();
        if let Some((_, bytes)) = files.iter().find(|(path, _)| path.ends_with(b".journal")) {
            replay.take(bytes, &TRANSFER);
        }
        let of = |path: &[u8]| temporary(&tag_of(&TRANSFER), path);
        let known: BTreeSet<Vec<u8>> =
            replay.partials().map(|part| of(&part.origin.path)).collect();
        match files.keys().find(|path| path.ends_with(b".part") && !known.contains(*path)) {
            None => Ok(()),
            Some(part) => Err(format!("no journal speaks of {}", part.escape_ascii())),
        }
    }

    /// Files that people were told have failed.
    pub(crate) fn failed(&self) -> BTreeSet<Vec<u8>> {
        let failed = self.notices.iter().filter_map(|notice| match notice {
            Notice::FileFailed { path, .. } => Some(path.clone()),
            _ => None,
        });
        failed.filter(|path| self.fixture.sent.contains_key(path)).collect()
    }

    /// What the driver counts is what there is.
    fn check_counts(&self, failed: usize) -> Result<(), String> {
        let Some(Ok(done)) = &self.driver().ended else { return Ok(()) };
        let (sent, said) = (self.fixture.sent.len(), done.files + done.kept + done.failed);
        let too_few = (done.files + done.kept + failed as u64) < sent as u64;
        match too_few || (done.failed == 0 && said != sent as u64) {
            true => Err(format!("{sent} files are told as {said}, {} of them failed", done.failed)),
            false => Ok(()),
        }
    }

    /// A file with holes takes no more room than its data, also where it was gone on with.
    fn check_room(&self) -> Result<(), String> {
        let Fixture { sent, target, offers, .. } = &self.fixture;
        for Found { entry, .. } in offers.iter().flatten().filter(|found| found.entry.sparse) {
            let (Some(takes), Some(bytes)) =
                (target.room_bytes(&entry.path), sent.get(&entry.path))
            else {
                continue;
            };
            let is_data = |block: &&[u8]| block.iter().any(|byte| *byte != 0);
            let data = bytes.chunks(SLOT as usize).filter(is_data).count() as u64;
            if takes > data * u64::from(SLOT) {
                let name = entry.path.escape_ascii();
                return Err(format!("{name}: {data} blocks of data take {takes} bytes"));
            }
        }
        Ok(())
    }

    /// The digests that were reported are those of the bytes.
    fn check_digests(&self) -> Result<(), String> {
        if self.fixture.settings.digest != DigestKind::Blake3 {
            return Ok(());
        }
        let done = self.notices.iter().filter_map(|notice| match notice {
            Notice::FileDone { path, digest, .. } => Some((&path[..], digest.as_ref())),
            _ => None,
        });
        let told: BTreeMap<&[u8], Option<&String>> = done.collect();
        for (path, digest) in &told {
            let of_file = path.strip_suffix(b"-too").and_then(|file| told.get(file));
            if of_file.is_some_and(|of_file| of_file != digest) {
                return Err(format!("{} has not its file's digest", path.escape_ascii()));
            }
            // An earlier run, whose digests were of another kind, may have completed it.
            let Some(digest) = digest else { continue };
            let Some(bytes) = self.fixture.sent.get(*path) else {
                return Err(format!("{} was not sent", path.escape_ascii()));
            };
            if **digest != blake3::hash(bytes).to_hex().to_string() {
                return Err(format!("{} has another digest than was told", path.escape_ascii()));
            }
        }
        Ok(())
    }

    pub(crate) fn check_after_crash(&mut self) -> Result<(), String> {
        if self.fixture.settings.fsync == Fsync::Off {
            return Ok(()); // nothing was promised
        }
        let left = finals(self.fixture.target.files_after_crash());
        let lost = self.notices.iter().find_map(|notice| match notice {
            Notice::FileDone { path, .. } => Some(path).filter(|path| !left.contains_key(*path)),
            _ => None,
        });
        let lost = lost.map(|path| format!("{} was there for good", path.escape_ascii()));
        compare(&self.fixture.sent, &left)
            .and(lost.map_or(Ok(()), Err))
            .map_err(|text| format!("after a crash: {text}"))
    }
}

pub(crate) fn finals(files: Tree3) -> Tree3 {
    files.into_iter().filter(|(path, _)| !is_temporary(path)).collect()
}

fn is_temporary(path: &[u8]) -> bool {
    path.ends_with(b".part") || path.ends_with(b".journal")
}

pub(crate) fn compare(sent: &Tree3, arrived: &Tree3) -> Result<(), String> {
    for (path, bytes) in arrived {
        let name = path.escape_ascii();
        match sent.get(path) {
            None => return Err(format!("{name} arrived and was not sent")),
            Some(expect) if expect != bytes => {
                return Err(format!("{name} has {} bytes that are not its own", bytes.len()));
            }
            Some(_) => {}
        }
    }
    Ok(())
}
