//! Gives complete objects their names: sync, journal, rename, sync of directories, in that order,
//! in epochs; and keeps the journal of those that are not complete yet.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::io::request::ExtraPiece;
use crate::io::store::OBJECT_DEVICE;
use crate::io::volume::{Cache, Handle, LazyFile, READ_THROUGH, Replace, Segment, Status, Volume};
use crate::pump::sink::backup::Backup;
use crate::pump::sink::journal::{Journal, key_of};
use crate::pump::sink::mirror::{Obstacles, Pass, Step};
use crate::pump::sink::objects::{Advance, Complete};
use crate::pump::sink::places::{self, Synced, is_place};
use crate::pump::sink::read_back::ReadBack;
use crate::pump::sink::wanted::Wanted;
use crate::wire::manifest::EntryKind;
use base::extra::ExtraSums;
use base::fault::{Class, Fault};
use base::label::Sum;
use base::settings::Fsync;

/// Small files that are synced one by one; more on one file system are synced by one call for it.
pub(crate) const SINGLE_SYNCS_MAX: usize = 8;

/// Objects that one epoch takes.
pub(crate) const EPOCH_OBJECTS_MAX: usize = 512;

/// The outcome of an object.
#[derive(Debug)]
pub struct Finished {
    pub number: u64,
    pub kind: EntryKind,
    pub path: Vec<u8>,
    pub bytes: u64,
    pub outcome: Result<Option<Sum>, Fault>,
    pub extra: ExtraSums,
}

/// One for each sink. Not a lane's work: a sync can take seconds.
#[derive(Debug)]
pub struct Finisher {
    /// `None` where nothing has a name: null and pipes.
    volume: Option<Arc<dyn Volume>>,
    fsync: Fsync,
    /// `None` where nothing can be resumed.
    journal: Option<Journal>,
    /// The journal's numbers of incomplete files, by the number of their object.
    begun: BTreeMap<u64, u32>,
    /// Objects that could not be synced: nothing more is recorded of them.
    doubted: BTreeSet<u64>,
    /// The result of syncing the destination's own name: this transfer, or one before it, may have
    /// created that.
    own_name: Option<Result<(), Fault>>,
    /// Removes what has the name of an object and is of another kind, where that is asked.
    obstacles: Option<Arc<Obstacles>>,
    /// Where what is replaced is kept.
    backup: Option<Arc<Backup>>,
    /// Compares what the medium gives back, where that is asked.
    read_back: Option<ReadBack>,
}

impl Finisher {
    pub fn new(
        volume: Option<Arc<dyn Volume>>,
        fsync: Fsync,
        journal: Option<Journal>,
    ) -> Finisher {
        let (begun, doubted) = (BTreeMap::new(), BTreeSet::new());
        let is_store = volume.as_ref().is_some_and(|volume| volume.store().is_some());
        // What a store has acknowledged is kept.
        let fsync = if is_store { Fsync::Off } else { fsync };
        Finisher {
            volume,
            fsync,
            journal,
            begun,
            doubted,
            own_name: None,
            obstacles: None,
            backup: None,
            read_back: None,
        }
    }

    pub(crate) fn clearing(self, obstacles: Option<Arc<Obstacles>>) -> Finisher {
        Finisher { obstacles, ..self }
    }

    pub(crate) fn keeping(self, backup: Option<Arc<Backup>>) -> Finisher {
        Finisher { backup, ..self }
    }

    pub(crate) fn reading_back(self, read_back: Option<ReadBack>) -> Finisher {
        Finisher { read_back, ..self }
    }

    /// Finishes these objects together. A failed one loses its temporary file and keeps its fault.
    pub fn epoch(&mut self, objects: Vec<Complete>) -> Vec<Finished> {
        let (mut places, mut objects): (Vec<_>, Vec<_>) =
            objects.into_iter().partition(|object| is_place(object.wanted.kind));
        if let Some(volume) = self.volume.clone() {
            objects.iter_mut().for_each(|object| prepare(&*volume, object));
            self.read_back.iter().for_each(|it| it.digest_also(&*volume, &mut objects));
            if self.fsync == Fsync::File {
                self.sync(&*volume, &mut objects);
                let named = self.sync_own_name(&*volume);
                for object in objects.iter_mut().chain(&mut places) {
                    apply(object, |_| named.clone());
                }
            }
            self.read_back.iter().for_each(|it| it.files(&*volume, &mut objects));
            if let Err(fault) = self.note_done(&*volume, &mut objects) {
                objects.iter_mut().for_each(|object| apply(object, |_| Err(fault.clone())));
            }
            let backup = self.backup.as_deref();
            if let Some(backup) = backup {
                keep_old(backup, &mut objects);
            }
            for object in &mut objects {
                apply(object, |wanted| {
                    make_way((self.obstacles.as_deref(), backup), wanted)?;
                    volume.rename(&wanted.temporary, &wanted.path, wanted.replace)
                });
            }
            self.read_back.iter().for_each(|it| it.objects(&*volume, &mut objects));
            let mut synced = Synced::default();
            places::make_names(&*volume, (self.obstacles.as_deref(), backup), &mut places);
            places::leave(&*volume, &mut places, self.fsync, &mut synced);
            if self.fsync == Fsync::File {
                // A name is durable when its folder is; a folder that was left has been synced.
                let is_name = |place: &&mut Complete| place.wanted.kind == EntryKind::HardLink;
                for object in objects.iter_mut().chain(places.iter_mut().filter(is_name)) {
                    apply(object, |wanted| synced.folder_of(&*volume, &wanted.path));
                }
            }
            for object in &objects {
                self.let_go(&*volume, object);
            }
        }
        objects.into_iter().chain(places).map(Finished::from).collect()
    }

    /// Called before anything at the destination is reported to be there. Done once: a sync that
    /// failed is not tried again.
    fn sync_own_name(&mut self, volume: &dyn Volume) -> Result<(), Fault> {
        self.own_name.get_or_insert_with(|| volume.sync_own_name()).clone()
    }

    /// An object whose sync failed is not trusted again: the kernel may have dropped its pages.
    /// What was synced before stays.
    fn sync(&mut self, volume: &dyn Volume, objects: &mut [Complete]) {
        let well: Vec<bool> = objects.iter().map(|object| object.outcome.is_ok()).collect();
        sync(volume, objects);
        let failed =
            objects.iter().zip(well).filter(|(object, well)| *well && object.outcome.is_err());
        for (object, _) in failed {
            let number = object.wanted.number;
            let begun = self.begun.get(&number).copied().or(object.wanted.begun);
            self.doubted.insert(number);
            if let (Some(file), Some(journal)) = (begun, &mut self.journal) {
                let _ = journal.forget(file).and_then(|()| journal.sync());
            }
        }
    }

    /// Records in the journal that these are complete, before any has its name: a rerun then
    /// recognizes them. What they are is known from their descriptors: nothing that has taken a
    /// temporary name meanwhile is recognized.
    fn note_done(&mut self, volume: &dyn Volume, objects: &mut [Complete]) -> Result<(), Fault> {
        let Some(journal) = &mut self.journal else { return Ok(()) };
        // What a store has acknowledged is kept.
        let fsync = if volume.store().is_some() { Fsync::File } else { self.fsync };
        let mut files = Vec::with_capacity(objects.len());
        for object in objects.iter_mut().filter(|object| object.outcome.is_ok()) {
            let wanted = &object.wanted;
            let opened = wanted.file.as_ref().and_then(|file| file.opened());
            let made = match (object.made, opened) {
                (Some(made), _) => Ok(made),
                (None, Some(handle)) => volume.status_of(handle, &wanted.temporary),
                (None, None) => continue,
            };
            match made {
                Ok(made) => {
                    let begun = self.begun.get(&wanted.number).copied().or(wanted.begun);
                    if volume.store().is_some()
                        && let Some(file) = begun
                    {
                        journal.completing(file)?;
                    }
                    let sum = object.outcome.as_ref().ok().copied().flatten();
                    for made in [Some(made), known_by_tag(made, opened)].into_iter().flatten() {
                        let key = key_of(&wanted.path, wanted.size, wanted.mtime, &made, fsync);
                        files.push((key, sum));
                    }
                }
                Err(fault) => object.outcome = Err(fault),
            }
        }
        if files.is_empty() {
            return Ok(());
        }
        journal.done(files)?;
        match self.fsync {
            Fsync::File => journal.sync(),
            Fsync::Off => Ok(()),
        }
    }

    /// Drops the ranges of an object: it has its name, or they are of no use.
    fn let_go(&mut self, volume: &dyn Volume, object: &Complete) {
        let begun = self.begun.remove(&object.wanted.number).or(object.wanted.begun);
        let is_spoilt =
            |fault: &Fault| matches!(fault.class, Class::SourceChanged | Class::Corrupt);
        if begun.is_some() && object.outcome.as_ref().is_err_and(|fault| !is_spoilt(fault)) {
            return; // another run continues it
        }
        if let (Some(file), Some(journal)) = (begun, &mut self.journal) {
            // If this is recorded twice or not at all, the next run has to look.
            let _ = journal.drop_file(file);
        }
        if object.outcome.is_err() {
            // It failed already; a temporary file that stays is named like one.
            let _ = volume.remove(&object.wanted.temporary);
        }
    }

    /// Records in the journal what has been written: at once, as something to be read back, and
    /// again when it is on stable storage.
    pub fn advance(&mut self, advances: &[Advance]) -> Result<(), Fault> {
        let Some(volume) = self.volume.clone() else { return Ok(()) };
        if self.journal.is_none() || advances.is_empty() {
            return Ok(());
        }
        let files = self.note_written(&*volume, advances)?;
        if self.fsync == Fsync::Off {
            return Ok(());
        }
        let mut folders = BTreeSet::new();
        for (advance, file) in advances.iter().zip(&files) {
            let Some(file) = file else { continue };
            let synced =
                volume.sync(advance.file.handle()?, &advance.temporary).and_then(
                    |()| match folders.insert(folder(&advance.temporary).to_vec()) {
                        true => volume.sync_directory(&advance.temporary),
                        false => Ok(()),
                    },
                );
            let journal = self.journal.as_mut().expect("looked at above");
            match synced {
                Ok(()) => journal.flushed(*file)?,
                Err(fault) => {
                    // The kernel may have dropped the pages: only what was synced before is safe.
                    self.doubted.insert(advance.number);
                    let _ = journal.forget(*file).and_then(|()| journal.sync());
                    return Err(fault);
                }
            }
        }
        self.journal.as_mut().map_or(Ok(()), Journal::sync)
    }

    fn note_written(
        &mut self,
        volume: &dyn Volume,
        advances: &[Advance],
    ) -> Result<Vec<Option<u32>>, Fault> {
        let journal = self.journal.as_mut().expect("asked for where there is one");
        let mut files = Vec::with_capacity(advances.len());
        for advance in advances {
            let known = self.begun.get(&advance.number).copied().or(advance.begun);
            let file = match known {
                _ if self.doubted.contains(&advance.number) => None,
                Some(file) => Some(file),
                None => {
                    let handle = advance.file.handle()?;
                    let (made, _) = volume.identity_of(handle, &advance.temporary)?;
                    // A file that has other names too cannot be recognized later.
                    made.map(|made| journal.begin(advance.origin.clone(), made)).transpose()?
                }
            };
            if let Some(file) = file {
                self.begun.insert(advance.number, file);
                let is_new = known.is_none();
                let upload = match advance.file.handle()? {
                    Handle::Object(object) => object.take_parts(),
                    Handle::Fd(_) | Handle::Sim(_) => None,
                };
                let is_upload = upload.is_some();
                upload.map_or(Ok(()), |upload| journal.parts(file, upload, is_new))?;
                journal.have(file, &advance.written)?;
                if is_upload {
                    journal.flushed(file)?; // what a store has acknowledged is kept
                }
            }
            files.push(file);
        }
        Ok(files)
    }

    /// Removes some of what the source does not have.
    pub(crate) fn remove(&self, pass: Box<Pass>) -> Step {
        pass.step()
    }

    /// The transfer ends early: keeps what can be resumed, quickly, and removes the rest. `left`
    /// are files that no earlier run began, of which nothing may have been written.
    pub fn stop(&mut self, advances: &[Advance], left: &[(u64, Vec<u8>)]) {
        let Some(volume) = self.volume.clone() else { return };
        if self.journal.is_some() {
            // What the journal cannot take now is only sent again.
            let _ = self.note_written(&*volume, advances);
        }
        for (number, temporary) in left {
            if !self.begun.contains_key(number) {
                let _ = volume.remove(temporary);
            }
        }
        self.close(Ending::Short);
    }

    /// The transfer has ended. Where all went well the journal is removed.
    pub fn close(&mut self, ending: Ending) {
        if let Some(journal) = self.journal.take()
            && (ending == Ending::Complete || journal.is_useless())
        {
            // An empty or old journal that stays only shows up in `ls -a`.
            let _ = journal.remove();
        }
    }
}

/// How a transfer ended for the sink.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Nothing is left that another run could do.
    Complete,
    /// Another run would continue where this one stopped.
    Short,
}

impl From<Complete> for Finished {
    fn from(object: Complete) -> Finished {
        let wanted = object.wanted;
        Finished {
            number: wanted.number,
            kind: wanted.kind,
            bytes: wanted.bytes(),
            // The user does not know the name that a file has until it is complete.
            outcome: object.outcome.map_err(|it| it.renamed(&wanted.temporary, &wanted.path)),
            path: wanted.path,
            extra: object.extra,
        }
    }
}

/// What an object is that is in a store which tells no checksum of it.
fn known_by_tag(made: Status, file: Option<&Handle>) -> Option<Status> {
    let Some(Handle::Object(object)) = file else { return None };
    Some(Status { inode: (OBJECT_DEVICE, object.number_by_tag()?), ..made })
}

/// Before anything is replaced, it has another name, which lasts.
fn keep_old(backup: &Backup, objects: &mut [Complete]) {
    for object in &mut *objects {
        apply(object, |wanted| match wanted.replace {
            Replace::Never => Ok(()),
            Replace::Allowed | Replace::AnyKind => backup.keep(&wanted.path),
        });
    }
    if let Err(fault) = backup.sync() {
        objects.iter_mut().for_each(|object| apply(object, |_| Err(fault.clone())));
    }
}

/// What makes way for a complete object, where that is asked.
pub(crate) type Ways<'a> = (Option<&'a Obstacles>, Option<&'a Backup>);

/// Removes what has the name of a complete object, where that is of another kind or cannot have
/// two names.
pub(crate) fn make_way((obstacles, backup): Ways<'_>, wanted: &Wanted) -> Result<(), Fault> {
    match (obstacles, backup, wanted.replace) {
        (Some(obstacles), _, Replace::AnyKind) => obstacles.remove(&wanted.path),
        (_, Some(backup), Replace::Allowed) => backup.let_go(&wanted.path),
        _ => Ok(()),
    }
}

/// Does something to an object that has not failed so far.
pub fn apply(object: &mut Complete, step: impl FnOnce(&Wanted) -> Result<(), Fault>) {
    if object.outcome.is_ok()
        && let Err(fault) = step(&object.wanted)
    {
        object.outcome = Err(fault);
    }
}

/// Length, mode and time of a file with a handle; a batch does that for its small ones.
fn prepare(volume: &dyn Volume, object: &mut Complete) {
    if object.outcome.is_err() {
        return;
    }
    let wanted = &object.wanted;
    let prepared = match &wanted.file {
        Some(file) => prepare_open(volume, wanted, file),
        None if wanted.size == 0 => {
            make_empty(volume, wanted, object.extra).map(|made| object.made = Some(made))
        }
        None => Ok(()),
    };
    if let Err(fault) = prepared {
        object.outcome = Err(fault);
    }
}

fn prepare_open(volume: &dyn Volume, wanted: &Wanted, file: &LazyFile) -> Result<(), Fault> {
    let handle = file.handle()?;
    // The padding of the last block is cut off. An earlier run may have begun it in another way.
    if file.cache() == Cache::Around || file.sparse || wanted.begun.is_some() {
        volume.set_length(handle, &wanted.temporary, wanted.bytes())?;
    }
    volume.set_metadata(handle, &wanted.temporary, &wanted.meta)
}

/// A file without bytes comes in no request: it is created here.
fn make_empty(volume: &dyn Volume, wanted: &Wanted, sums: ExtraSums) -> Result<Status, Fault> {
    let segment = Segment {
        object: wanted.number,
        volume: None,
        path: wanted.temporary.clone(),
        len: 0,
        at: 0,
        meta: wanted.meta.clone(),
        sparse: false,
        new: wanted.new.clone(),
    };
    let extra = ExtraPiece { segment: 0, offset: 0, len: 0, sums, crc64: None };
    volume.write_small(&segment, b"", Some(&extra))
}

/// Bytes before names. A sync that failed is not tried again: the kernel may have dropped the
/// pages.
fn sync(volume: &dyn Volume, objects: &mut [Complete]) {
    let mut file_systems: BTreeMap<u64, Vec<&mut Complete>> = BTreeMap::new();
    for object in objects {
        file_systems.entry(object.wanted.file_system).or_default().push(object);
    }
    file_systems.into_values().for_each(|objects| sync_on_one(volume, objects));
}

/// Syncs objects that are on one file system.
fn sync_on_one(volume: &dyn Volume, objects: Vec<&mut Complete>) {
    let small = objects.iter().filter(|object| object.wanted.file.is_none()).count();
    // One that has failed may have no folder, and that of another may have gone.
    let is_there = |object: &&&mut Complete| {
        object.outcome.is_ok() && volume.file_system_of(&object.wanted.temporary).is_ok()
    };
    if objects.len() > SINGLE_SYNCS_MAX
        && small > SINGLE_SYNCS_MAX
        && let Some(one) = objects.iter().find(is_there)
    {
        let synced = volume.sync_all(&one.wanted.temporary);
        objects.into_iter().for_each(|object| apply(object, |_| synced.clone()));
        return;
    }
    for object in objects {
        apply(object, |wanted| match wanted.file.as_ref().and_then(|file| file.opened()) {
            Some(handle) => volume.sync(handle, &wanted.temporary),
            None => volume.sync(&volume.open(&wanted.temporary, READ_THROUGH)?, &wanted.temporary),
        });
    }
}

/// The path of the directory that a path is in; empty for the root.
pub fn folder(path: &[u8]) -> &[u8] {
    &path[..path.iter().rposition(|byte| *byte == b'/').unwrap_or(0)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::call::Call;
    use crate::io::sim::{Failure, FaultRates, Rng, SimVolume, World};
    use crate::io::volume::{Access, Metadata, Mtime, Replace};
    use crate::pump::sink::journal::{self, Opened};
    use crate::pump::sink::{Root, Target};
    use base::settings::Settings;

    fn complete(volume: &SimVolume, kind: EntryKind, path: String, number: u64) -> Complete {
        let wanted = Wanted {
            number,
            kind,
            temporary: format!("{path}.part").into_bytes(),
            file_system: volume.file_system_of(path.as_bytes()).unwrap(),
            path: path.into_bytes(),
            size: 1,
            range: None,
            file: None,
            meta: Metadata::default(),
            replace: Replace::Allowed,
            mtime: Mtime::default(),
            begun: None,
            twin: Vec::new(),
            sparse: false,
            stays: false,
            new: None,
        };
        Complete { wanted, outcome: Ok(None), extra: ExtraSums::default(), made: None }
    }

    fn write(volume: &SimVolume, wanted: &Wanted) -> Status {
        let segment = Segment {
            object: wanted.number,
            volume: None,
            path: wanted.temporary.clone(),
            len: 1,
            at: 0,
            meta: wanted.meta.clone(),
            sparse: false,
            new: None,
        };
        volume.write_small(&segment, b"x", None).unwrap()
    }

    /// What one call syncs is one file system; files, names and directories on others are synced
    /// too.
    #[test]
    fn each_file_system_is_synced() {
        for folders in [&["", "m/"][..], &["m/"], &["m/", "n/"], &["m/", "m/n/"], &[""]] {
            let world = World::new(1, FaultRates::default());
            let volume = SimVolume::new(&world, "/t").with_mount(b"m").with_mount(b"n");
            let volume = Arc::new(volume);
            volume.put(b"twin", b"x".to_vec(), Mtime::default());
            let mut objects = Vec::new();
            for number in 0..20 * folders.len() as u64 {
                let folder = folders[number as usize % folders.len()];
                let file = complete(&volume, EntryKind::File, format!("{folder}f{number}"), number);
                write(&volume, &file.wanted);
                objects.push(file);
                let directory = format!("{folder}d{number}");
                let mut name =
                    complete(&volume, EntryKind::HardLink, format!("{directory}/name"), number);
                name.wanted.twin = b"twin".to_vec();
                objects.push(name);
                objects.push(complete(&volume, EntryKind::Leave, directory, number));
            }
            let mut finisher = Finisher::new(Some(volume.clone()), Fsync::File, None);
            for finished in finisher.epoch(objects) {
                assert!(finished.outcome.is_ok(), "{folders:?}: {finished:?}");
            }
            assert_eq!(volume.files_after_crash(), volume.files(), "{folders:?}");
        }
    }

    /// Whatever fails, and whatever a loss of power takes: an old file is there, under its own name
    /// or in the backup, and no other bytes have its name than the old ones or the new ones.
    #[test]
    fn an_old_file_outlasts_a_loss_of_power() {
        let calls = [Call::LookAt, Call::MakeDirectory, Call::MakeHardLink, Call::SyncDirectory];
        let calls = calls.into_iter().chain([Call::Rename, Call::Sync, Call::Remove]);
        let cases = calls.flat_map(|call| (0..6).map(move |after| (call, after)));
        for (seed, (call, after)) in cases.enumerate() {
            let mut rng = Rng::new(seed as u64);
            let sim = Arc::new(SimVolume::new(&World::new(1, FaultRates::default()), "/t"));
            let volume: Arc<dyn Volume> = sim.clone();
            let paths = ["a", "d/b", "d/e/c"];
            let mut objects = Vec::new();
            for (number, path) in paths.into_iter().enumerate() {
                sim.put(path.as_bytes(), path.as_bytes().to_vec(), Mtime::default());
                let file = complete(&sim, EntryKind::File, path.into(), number as u64);
                write(&sim, &file.wanted);
                objects.push(file);
            }
            // Of an older run.
            sim.put(b"old/a", b"older".to_vec(), Mtime::default());
            let target = Target::Tree { volume: volume.clone(), rename: None, root: Root::FOUND };
            let backup_dir = Some("old".to_string());
            let settings = Settings { backup_dir, ..Settings::default() };
            let backup = Backup::of(&target, &settings);
            sim.fail(Failure { call, errno: libc::EPERM, after });
            let mut finisher = Finisher::new(Some(volume), Fsync::File, None).keeping(backup);
            let finished = finisher.epoch(objects);
            let has_failed = !sim.heal();
            sim.lose_power(&mut rng);
            let files = sim.files();
            for (path, finished) in paths.into_iter().zip(finished) {
                let case = format!("{path}, {call:?} after {after}: {finished:?}");
                assert!(has_failed || finished.outcome.is_ok(), "{case}");
                let (old, new) = (path.as_bytes(), b"x");
                let kept = files.get(format!("old/{path}").as_bytes());
                let there = files.get(old);
                assert!(there.is_none_or(|bytes| bytes == old || bytes == new), "{case}");
                let is_there = [kept, there].into_iter().flatten().any(|bytes| bytes == old);
                assert!(is_there, "{case}: {files:?}");
                assert!(finished.outcome.is_err() || there.is_some_and(|it| it == new), "{case}");
            }
        }
    }

    /// A rerun recognizes what was written here, however it was written, and not what somebody else
    /// has put under a temporary name before that was renamed.
    #[test]
    fn what_takes_a_temporary_name_is_not_recognized() {
        let cut = Settings::default().cut();
        for is_replaced in [false, true] {
            let sim = Arc::new(SimVolume::new(&World::new(1, FaultRates::default()), "/t"));
            let volume: Arc<dyn Volume> = sim.clone();
            let open = || match journal::open(&volume, b"journal", [7; 16], cut).unwrap() {
                Opened::Ours(found) => *found,
                other => panic!("{other:?}"),
            };
            let mut small = complete(&sim, EntryKind::File, "small".into(), 0);
            small.made = Some(write(&sim, &small.wanted));
            let mut long = complete(&sim, EntryKind::File, "long".into(), 1);
            let access = Access::Create { cache: Cache::Through, reserve: None };
            let file = LazyFile::new(volume.clone(), long.wanted.temporary.clone(), access, None);
            volume.append(file.handle().unwrap(), b"long", 0, b"x").unwrap();
            long.wanted.file = Some(Arc::new(file));
            if is_replaced {
                for object in [&small, &long] {
                    sim.put(&object.wanted.temporary, b"x".to_vec(), Mtime::default());
                }
            }
            let mut finisher = Finisher::new(Some(volume.clone()), Fsync::File, Some(open().1));
            let finished = finisher.epoch(vec![small, long]);
            let (prior_runs, _) = open();
            for Finished { path, outcome, .. } in finished {
                assert!(outcome.is_ok(), "{outcome:?}");
                let there = volume.status(&path).unwrap().unwrap();
                let key = key_of(&path, 1, Mtime::default(), &there, Fsync::File);
                let known = prior_runs.done(&key).unwrap().is_some();
                assert_eq!(known, !is_replaced, "{}", path.escape_ascii());
            }
        }
    }
}
