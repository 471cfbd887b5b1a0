//! Parts of shards that are given away, on the job folder: a turn is a folder that gets its name
//! once, with all that is in it. docs/SPREAD.md says why.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use super::folder::{JobFolder, Part, named, read_named, replace, sync_folder};
use super::records::{Shard, Turn};
use super::storage::Storage;
use analysis::shards::worker::{Answer, Given};
use analysis::shards::{Claim, given, names};
use base::fault::{Class, Fault};

impl Storage {
    /// A name that says: this worker waits for a shard. Only a hint, so nothing depends on it.
    pub(super) fn show_idle(&self) -> Result<Answer, Fault> {
        let path = self.folder.file(Part::Idle, &self.me);
        File::create(&path).map_err(|why| Fault::write("write", &path, &why))?;
        Ok(Answer::Done)
    }

    pub(super) fn show_busy(&self) -> Result<Answer, Fault> {
        let path = self.folder.file(Part::Idle, &self.me);
        match fs::remove_file(&path) {
            Err(why) if why.kind() != io::ErrorKind::NotFound => {
                Err(Fault::write("remove", &path, &why))
            }
            _ => Ok(Answer::Done),
        }
    }

    /// Workers that wait for a shard, where none is open.
    pub(super) fn waiting(&self) -> Result<u64, Fault> {
        let idle = self.folder.names(Part::Idle)?;
        let others = idle.iter().filter(|name| **name != self.me).count() as u64;
        let is_open = others > 0 && !self.folder.some_names(Part::Open, 1)?.is_empty();
        Ok(if is_open { 0 } else { others })
    }

    /// A part that an earlier attempt has given away is not this one's.
    pub(super) fn close_turn(&mut self, given: Given) -> Result<Answer, Fault> {
        if self.decide(given, None, &[])? {
            return Ok(Answer::Done);
        }
        let (turn, names) = turn_of(&self.folder, given.part)?;
        let Some(part) = turn.part else {
            return Ok(if turn.by == given.claim { Answer::Done } else { Answer::Closed });
        };
        if let Some(work) = &mut self.work
            && work.given.is_disjoint(&names.iter().cloned().collect())
        {
            work.given.extend(names);
            work.given_ns += part.predicted_ns;
        }
        Ok(Answer::Stands)
    }

    pub(super) fn give(&mut self, given: Given, items: &[u64]) -> Result<Answer, Fault> {
        let Some(work) = &self.work else { return Ok(Answer::Exists) };
        let names: Vec<Vec<u8>> =
            items.iter().filter_map(|item| work.names.get(*item as usize).cloned()).collect();
        let (count, of) = (names.len() as u64, &work.shard);
        let part = |whole: u64| {
            let part = u128::from(whole) * u128::from(count) / u128::from(of.files.max(1));
            u64::try_from(part).unwrap_or(whole)
        };
        let shard = Shard {
            shard: given.part,
            source: of.source,
            files: count,
            bytes: part(of.bytes),
            predicted_ns: part(of.predicted_ns),
            range: None,
            whole: None,
        };
        let predicted_ns = shard.predicted_ns;
        let is_ours = self.decide(given, Some(shard), &names)? || {
            let turn = turn_of(&self.folder, given.part)?.0;
            // The answer to a first try may have been lost.
            turn.by == given.claim && turn.part.is_some()
        };
        if let (true, Some(work)) = (is_ours, &mut self.work) {
            work.given_ns += predicted_ns;
        }
        Ok(if is_ours { Answer::Done } else { Answer::Exists })
    }

    /// True where this call has decided the turn. What others see of it is complete, and on stable
    /// storage: a folder that has something in it is replaced by none.
    fn decide(&self, given: Given, part: Option<Shard>, names: &[Vec<u8>]) -> Result<bool, Fault> {
        let turns = self.folder.part(Part::Given);
        let made = turns.join(format!(".{}.{}", names::of_shard(given.part), self.me));
        let fault = |why: io::Error| Fault::write("write", &made, &why);
        remove(&made)?;
        DirBuilder::new().mode(0o700).create(&made).map_err(fault)?;
        if part.is_some() {
            File::create(made.join(OPEN)).and_then(|open| open.sync_all()).map_err(fault)?;
        }
        let turn = Turn { by: given.claim, worker: self.me.clone(), part };
        replace(&made, WHAT, &named(&turn, names))?;
        sync_folder(&made)?;
        let decided = match fs::rename(&made, folder_of(&self.folder, given.part)) {
            Ok(()) => true,
            Err(why) if is_taken(&why) => false,
            Err(why) => return Err(fault(why)),
        };
        match decided {
            true => sync_folder(&turns)?,
            false => remove(&made)?,
        }
        Ok(decided)
    }

    pub(super) fn open_given(&self, given: Given) -> Result<Answer, Fault> {
        open_part(&self.folder, given.part)
    }
}

/// Makes an open shard of a part: its file first, which is always the same, then its name, which is
/// moved and so made once.
pub(super) fn open_part(folder: &JobFolder, part: u32) -> Result<Answer, Fault> {
    if folder.shard(part).is_err() {
        restore(folder, part)?;
    }
    let from = folder_of(folder, part).join(OPEN);
    match fs::rename(&from, folder.file(Part::Open, &names::open(part, 0))) {
        Ok(()) => Ok(Answer::Moved),
        Err(why) if why.kind() == io::ErrorKind::NotFound => Ok(Answer::Missing),
        Err(why) => Err(Fault::write("rename", &from, &why)),
    }
}

/// Writes the file of a shard that was given away, from what its turn says.
pub(super) fn restore(folder: &JobFolder, part: u32) -> Result<(), Fault> {
    let (turn, names) = turn_of(folder, part)?;
    let shard = turn.part.ok_or_else(|| {
        Fault::new(Class::Local, format!("shard {part} is given away, and its turn was closed"))
    })?;
    replace(&folder.part(Part::Shards), &names::of_shard(part), &named(&shard, &names))
}

/// What became of the turn at which a part could be given away, and the names of the part.
pub(super) fn turn_of(folder: &JobFolder, part: u32) -> Result<(Turn, Vec<Vec<u8>>), Fault> {
    read_named(&folder_of(folder, part).join(WHAT))
}

/// Nothing is given away at this turn, whatever an attempt does that has not heard.
pub(super) fn close(folder: &JobFolder, part: u32) -> Result<(), Fault> {
    let turn = folder_of(folder, part);
    let _ = fs::remove_file(turn.join(OPEN));
    let by = Claim { shard: part, attempt: 0 };
    replace(&turn, WHAT, &named(&Turn { by, worker: String::new(), part: None }, &[]))
}

/// Writes what a turn came to, where that is lost and the part is not.
pub(super) fn keep_turn(folder: &JobFolder, part: u32) -> Result<(), Fault> {
    let Some(giver) = given::giver(part) else { return Ok(()) };
    if turn_of(folder, part).is_ok() {
        return Ok(());
    }
    let turn = folder_of(folder, part);
    let made = DirBuilder::new().recursive(true).mode(0o700).create(&turn);
    made.map_err(|why| Fault::write("make", &turn, &why))?;
    let (shard, names) = folder.shard(part)?;
    let by = Claim { shard: giver, attempt: 0 };
    let what = Turn { by, worker: String::new(), part: Some(shard) };
    replace(&turn, WHAT, &named(&what, &names))
}

fn folder_of(folder: &JobFolder, part: u32) -> PathBuf {
    folder.file(Part::Given, &names::of_shard(part))
}

fn is_taken(why: &io::Error) -> bool {
    matches!(why.kind(), io::ErrorKind::AlreadyExists | io::ErrorKind::DirectoryNotEmpty)
}

fn remove(path: &Path) -> Result<(), Fault> {
    match fs::remove_dir_all(path) {
        Err(why) if why.kind() != io::ErrorKind::NotFound => {
            Err(Fault::write("remove", path, &why))
        }
        _ => Ok(()),
    }
}

/// What the turn came to, and the name that becomes an open shard.
const WHAT: &str = "what";
const OPEN: &str = "open";
