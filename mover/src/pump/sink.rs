//! The sink's side of the protocol: validates what is offered, says what it wants, acknowledges.

mod judging;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

pub mod afterwards;
pub mod backup;
pub mod clean;
pub mod compare;
mod credit;
mod differing;
pub mod expected;
pub mod finisher;
mod folders;
mod folding;
mod free_space;
mod held;
pub mod journal;
mod metadata;
pub mod mirror;
mod mirroring;
pub mod objects;
pub mod owner_map;
pub mod places;
pub(crate) mod read_back;
pub mod resume;
mod target;
pub mod wanted;

use folders::Folders;
use folding::Folding;
use free_space::SpaceNeeded;
pub use target::{Root, Target};

use crate::io::volume::{Batch, Segment, show};
use crate::pump::sink::afterwards::{Afterwards, Ended, Ready};
use crate::pump::sink::backup::Backup;
use crate::pump::sink::expected::Expected;
use crate::pump::sink::finisher::{Ending, Finished};
use crate::pump::sink::journal::{Partial, PriorRuns};
use crate::pump::sink::judging::twin_failed;
use crate::pump::sink::mirror::Mirror;
use crate::pump::sink::objects::Objects;
use crate::pump::sink::owner_map::OwnerMap;
use crate::pump::sink::places::is_place;
use crate::pump::sink::resume::temporary;
use crate::pump::sink::wanted::Storage;
use crate::pump::source::is_file;
use crate::pump::watch::Watch;
use crate::wire::manifest::{Chunk, Entry, EntryKind, Layout, Slot};
use crate::wire::message::{FINISHED_MAX, Message, RANGES_MAX};
use base::fault::{Class, Fault};
use base::label::Sum;
use base::limits::TWINS_MAX;
use base::reason::Changes;
use base::settings::{Fsync, Settings};

/// The permissions that the owner of a directory needs to put files there.
const OWNER_BITS: u32 = 0o700;

/// The protocol state of a host that has the sink.
#[derive(Debug)]
pub struct SinkSide {
    pub objects: Arc<Objects>,
    settings: Settings,
    target: Target,
    watch: Arc<Watch>,
    layout: Layout,
    /// Part of every temporary name of this transfer.
    tag: String,
    expected: Expected,
    /// Wanted, and not finished: the bytes of its entry, and of all entries.
    open: BTreeMap<u64, u64>,
    open_bytes: u64,
    /// What is made after other objects are finished.
    afterwards: Afterwards,
    folders: Folders,
    /// Where names that differ only in case are one.
    folding: Option<Folding>,
    /// Folders with new folders or links in them that are never left: they are synced at the end.
    renewed: BTreeSet<Vec<u8>>,
    /// What earlier runs left.
    prior_runs: Option<PriorRuns>,
    /// The source is on another host: what the user sees is counted here.
    alone: bool,
    /// What earlier runs left of wanted objects, until these are expected.
    partials: BTreeMap<u64, Partial>,
    /// The space that these take on the disk already.
    partial_rooms: BTreeMap<u64, u64>,
    /// Ranges of files with holes that no journal records.
    unknown: BTreeMap<u64, Vec<Range<u64>>>,
    /// How many ranges of open objects were here.
    stretches: BTreeMap<u64, usize>,
    /// Objects that another run might still complete.
    lacking: u64,
    offered_objects: u64,
    space_needed: SpaceNeeded,
    offers: Offers,
    /// Objects that were found here byte for byte, and are not judged yet.
    same: BTreeSet<u64>,
    /// Where what the source does not have is removed.
    mirror: Option<Mirror>,
    owners: OwnerMap,
    /// Where what is replaced or removed is kept.
    backup: Option<Arc<Backup>>,
    /// Open objects whose names something of another kind has.
    blocked: BTreeSet<u64>,
    /// Files of which more names may come, and that this run gives other bytes.
    renamed: BTreeSet<u64>,
    /// Folders that could not be made, until they are left.
    unmade: BTreeSet<Vec<u8>>,
    /// A folder of which a dry run knows that nothing is in it: something else has its name.
    dry_folder: Option<Vec<u8>>,
    /// In what objects of this offer differ from what is here.
    differing: Vec<(u64, Changes)>,
    /// Warnings for the user.
    warnings: Vec<String>,
}

/// What a sink starts with.
#[derive(Debug)]
pub struct Begin {
    /// Part of every temporary name.
    pub tag: String,
    pub prior_runs: Option<PriorRuns>,
    /// The source is on another host.
    pub alone: bool,
    pub expected: Expected,
    pub mirror: Option<Mirror>,
    pub owners: OwnerMap,
    pub backup: Option<Arc<Backup>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Offers {
    Going,
    Over,
}

/// What is done with an offered object at once.
enum Verdict {
    Wanted,
    /// It has no bytes, and is in place.
    Done,
    /// An earlier run has completed it.
    Held(Option<Sum>),
    /// The file that exists stays.
    Kept,
    Refused(Fault),
}

impl SinkSide {
    pub fn new(
        objects: Arc<Objects>,
        settings: Settings,
        target: Target,
        watch: Arc<Watch>,
        begin: Begin,
    ) -> SinkSide {
        let Begin { tag, prior_runs, alone, expected, mirror, owners, backup } = begin;
        let layout = Layout::new(settings.request_bytes);
        let folders = Folders::new(&target, prior_runs.as_ref());
        let folding = Folding::of(target.volume().map(|volume| &**volume));
        SinkSide {
            objects,
            settings,
            target,
            watch,
            layout,
            tag,
            expected,
            open: BTreeMap::new(),
            open_bytes: 0,
            afterwards: Afterwards::default(),
            folders,
            folding,
            renewed: BTreeSet::new(),
            prior_runs,
            alone,
            partials: BTreeMap::new(),
            partial_rooms: BTreeMap::new(),
            unknown: BTreeMap::new(),
            stretches: BTreeMap::new(),
            lacking: 0,
            offered_objects: 0,
            space_needed: SpaceNeeded::default(),
            offers: Offers::Going,
            same: BTreeSet::new(),
            mirror,
            owners,
            backup,
            blocked: BTreeSet::new(),
            renamed: BTreeSet::new(),
            unmade: BTreeSet::new(),
            dry_folder: None,
            differing: Vec::new(),
            warnings: Vec::new(),
        }
    }

    /// Judges offered objects, prepares those that are wanted, and answers.
    pub fn offer(&mut self, first: u64, mut entries: Vec<Entry>) -> Result<Vec<Message>, Fault> {
        if first != self.offered_objects {
            return Err(Fault::peer("an offer out of order"));
        }
        self.expected.check(first, &entries)?;
        self.check_credit(&entries)?;
        self.owners.learn(&entries)?;
        self.rename_single(&mut entries)?;
        self.offered_objects += entries.len() as u64;
        self.mirror.iter_mut().for_each(|mirror| mirror.note(&entries));
        let chunk = self.layout.place(entries)?;
        let mut wanted = vec![false; chunk.entries.len()];
        let mut done = Vec::new();
        let mut held = Vec::new();
        let mut refused = Vec::new();
        let mut copied = vec![false; chunk.entries.len()]; // by the run that a dry run is about
        for (member, entry) in chunk.entries.iter().enumerate() {
            let number = first + member as u64;
            if entry.kind == EntryKind::HardLink && entry.twin >= number {
                return Err(Fault::peer("the peer offered another name of a later object"));
            }
            let verdict = self.verdict(number, entry);
            self.note_names(number, entry, matches!(verdict, Ok(Verdict::Wanted)));
            match verdict {
                Ok(Verdict::Wanted) if self.settings.dry_run => {
                    copied[member] = true;
                    done.push((number, None));
                }
                Ok(Verdict::Wanted) => wanted[member] = true,
                Ok(Verdict::Done) => done.push((number, None)),
                Ok(Verdict::Held(sum)) => {
                    self.hold(entry.size);
                    self.renew(&entry.path); // its name may not have reached the disk
                    held.push((number, sum));
                }
                Ok(Verdict::Kept) => refused.push(Message::Kept { object: number }),
                Ok(Verdict::Refused(fault)) => {
                    self.note_lacking();
                    // What has arrived of it is kept for a run that may replace the existing file.
                    self.lacking += u64::from(self.is_begun(&entry.path));
                    self.afterwards.settle(number, Ended::Failed);
                    refused.push(Message::Failed { object: number, fault })
                }
                Err(fault) if fault.ends_transfer() => return Err(fault),
                Err(fault) => {
                    self.note_lacking();
                    self.lacking += 1;
                    self.afterwards.settle(number, Ended::Failed);
                    refused.push(Message::Failed { object: number, fault });
                }
            }
        }
        self.note_space(&chunk, &copied)?;
        self.find_partials(&chunk, &wanted)?;
        let mut answer = self.take_differing();
        answer.extend(self.wanted_ranges(&chunk, &wanted));
        self.count(&chunk, &wanted);
        self.check_room()?;
        self.expect(&chunk, &wanted);
        self.expect_places(&chunk, &wanted);
        if !held.is_empty() {
            answer.push(Message::Held { objects: held });
        }
        if !done.is_empty() {
            answer.push(Message::Finished { objects: done });
        }
        answer.extend(refused);
        Ok(answer)
    }

    pub fn end_offers(&mut self, objects: u64) -> Result<(), Fault> {
        if objects != self.offered_objects {
            return Err(Fault::peer("an end of offers that does not fit them"));
        }
        self.offers = Offers::Over;
        self.watch.gauge.walk_done.store(true, Relaxed);
        self.watch.gauge.answered.store(true, Relaxed);
        Ok(())
    }

    /// What has been written since the last acknowledgement.
    pub fn acknowledge(&mut self) -> Option<Message> {
        let written = self.objects.take_written(RANGES_MAX)?;
        self.space_needed.record_written(&written.data_on);
        Some(Message::Ack { ranges: written.ranges, bytes: written.bytes })
    }

    /// Objects that the finisher has finished, as messages.
    pub fn finished(&mut self, finished: &[Finished]) -> Vec<Message> {
        let mut messages = Vec::new();
        let mut well = Vec::new();
        let mut extra = Vec::new();
        for object in finished {
            self.open_bytes -= self.open.remove(&object.number).unwrap_or(0);
            self.stretches.remove(&object.number);
            self.blocked.remove(&object.number);
            let end = if object.outcome.is_ok() { Ended::Well } else { Ended::Failed };
            for ready in self.afterwards.settle(object.number, end) {
                self.hand_over(ready);
            }
            if object.kind == EntryKind::Leave {
                self.left(&object.path, end);
            }
            match &object.outcome {
                Ok(sum) => {
                    well.push((object.number, *sum));
                    extra.extend(
                        (!object.extra.is_empty()).then_some((object.number, object.extra)),
                    );
                }
                Err(fault) => {
                    self.note_lacking();
                    self.lacking += 1;
                    let fault = fault.clone();
                    messages.push(Message::Failed { object: object.number, fault });
                }
            }
        }
        self.leave_directories();
        for objects in extra.chunks(FINISHED_MAX) {
            messages.push(Message::Extra { objects: objects.to_vec() });
        }
        for objects in well.chunks(FINISHED_MAX) {
            messages.push(Message::Finished { objects: objects.to_vec() });
        }
        messages
    }

    pub fn is_over(&self) -> bool {
        self.is_settled() && self.mirror.as_ref().is_none_or(Mirror::is_over)
    }

    /// Every object is in its place, or has failed.
    fn is_settled(&self) -> bool {
        self.offers == Offers::Over && self.open.is_empty()
    }

    /// Syncs the names of new folders and links. A failure is no reason to doubt a file. The user
    /// is told of failures, and of what is left over.
    pub fn close(&mut self) -> Vec<Fault> {
        let mut faults = Vec::new();
        faults.extend(self.settle_unasked().map(|text| Fault::new(Class::Local, text)));
        faults.extend(self.leave_root().err());
        let Some(volume) = self.target.volume() else { return faults };
        let renewed = std::mem::take(&mut self.renewed);
        if self.settings.fsync == Fsync::File {
            let sync = |folder: &Vec<u8>| {
                let inside = [&folder[..], b"/."].concat();
                volume.sync_directory(if folder.is_empty() { b"." } else { &inside })
            };
            faults.extend(renewed.iter().map(sync).filter_map(Result::err));
            faults.extend(self.backup.as_ref().and_then(|backup| backup.sync().err()));
        }
        faults
    }

    /// Objects that wait for others, or can be made at once.
    fn expect_places(&mut self, chunk: &Chunk, wanted: &[bool]) {
        for (member, entry) in chunk.entries.iter().enumerate() {
            if !wanted[member] || !is_place(entry.kind) {
                continue;
            }
            let place = self.wanted(chunk, member, Storage::Batch);
            if entry.kind == EntryKind::Leave {
                self.renewed.remove(&entry.path); // it is synced when it is left
                self.afterwards.leave(place);
            } else if let Some(ready) = self.afterwards.name(entry.twin, place) {
                self.hand_over(ready);
            }
        }
        self.leave_directories();
    }

    fn leave_directories(&mut self) {
        for directory in self.afterwards.ready_directories() {
            self.objects.hand_over(directory, None);
        }
    }

    fn hand_over(&self, ready: Ready) {
        match ready {
            Ready::Go(name) => self.objects.hand_over(name, None),
            Ready::TwinFailed(name) => {
                let show = |path| self.target.volume().map(|volume| show(&**volume, path));
                let [path, twin] = [&name.path, &name.twin].map(|it| show(it).unwrap_or_default());
                self.objects.hand_over(name, Some(twin_failed(&path, &twin)));
            }
        }
    }

    /// Remembers of files with several names whether they get other bytes.
    fn note_names(&mut self, number: u64, entry: &Entry, is_wanted: bool) {
        match entry.kind {
            EntryKind::File
                if entry.names_follow && is_wanted && self.renamed.len() < TWINS_MAX =>
            {
                self.renamed.insert(number);
            }
            EntryKind::HardLink if !entry.names_follow => {
                self.renamed.remove(&entry.twin);
            }
            _ => {}
        }
    }

    fn renew(&mut self, path: &[u8]) {
        let folder = &path[..path.iter().rposition(|byte| *byte == b'/').unwrap_or(0)];
        self.renewed.insert(folder.to_vec());
    }

    /// True when every byte that will come has arrived.
    pub(crate) fn has_all(&self) -> bool {
        self.offers == Offers::Over && !self.objects.is_open()
    }

    /// Records a path that the source could not offer: another run may.
    pub fn note_unoffered(&mut self) {
        self.note_lacking();
        self.lacking += 1;
    }

    /// What another run could do; if that is nothing, removes what earlier runs began in vain.
    pub fn ending(&mut self) -> Ending {
        match self.lacking {
            0 => {
                if let Some(prior_runs) = &mut self.prior_runs {
                    prior_runs.remove_all(|path| temporary(&self.tag, path));
                }
                Ending::Complete
            }
            _ => Ending::Short,
        }
    }

    pub fn target(&self) -> &Target {
        &self.target
    }

    fn rename_single(&self, entries: &mut [Entry]) -> Result<(), Fault> {
        let Target::Tree { rename: Some(name), .. } = &self.target else { return Ok(()) };
        let [entry] = entries else {
            return Err(Fault::peer("several objects where one was announced"));
        };
        entry.path.clone_from(name);
        Ok(())
    }

    /// Objects of the next offer that exist here byte for byte.
    pub(crate) fn note_same(&mut self, numbers: Vec<u64>) {
        self.same.extend(numbers);
    }

    fn count(&mut self, chunk: &Chunk, wanted: &[bool]) {
        let watch = self.watch.clone();
        for (member, entry) in chunk.entries.iter().enumerate() {
            let gauge = &watch.gauge;
            if self.alone && is_file(entry.kind) {
                gauge.files_found.fetch_add(1, Relaxed);
            }
            if !wanted[member] {
                continue;
            }
            let number = chunk.first + member as u64;
            let bytes = entry.encoded_bytes() as u64;
            self.open_bytes += bytes;
            self.open.insert(number, bytes);
            self.afterwards.open(number);
            if entry.kind == EntryKind::Pipe {
                gauge.endless.store(true, Relaxed);
                continue;
            }
            let partial = self.partials.get(&number);
            let held = partial.map_or(0, |partial| partial.flushed.ranges.total());
            let missing = match self.range_of(entry) {
                Some(range) => range.bytes.end - range.bytes.start,
                None => entry.size - held,
            };
            self.want_space(number, entry, held, missing);
            if self.alone {
                gauge.bytes_found.fetch_add(missing, Relaxed);
            }
            self.note_held_bytes(held);
        }
    }

    fn expect(&mut self, chunk: &Chunk, wanted: &[bool]) {
        for (member, entry) in chunk.entries.iter().enumerate() {
            if wanted[member] && entry.size == 0 && !is_place(entry.kind) {
                self.objects.expect_empty(self.wanted(chunk, member, Storage::Batch));
            }
        }
        for slot in chunk.slots(|member| wanted[member], self.settings.request_bytes) {
            match slot {
                Slot::Object { member } => {
                    let start = chunk.starts[member];
                    let number = chunk.first + member as u64;
                    let partial = self.partials.remove(&number);
                    let storage = Storage::OwnFile { begun: partial.as_ref() };
                    let wanted = self.wanted(chunk, member, storage);
                    self.unknown.remove(&number);
                    self.objects.expect_own(start, wanted, partial.map(|held| held.flushed));
                }
                Slot::Batch { start, members } => {
                    let mut all = Vec::with_capacity(members.len());
                    let mut segments = Vec::with_capacity(members.len());
                    let mut at = 0;
                    for member in members {
                        let wanted = self.wanted(chunk, member, Storage::Batch);
                        segments.push(Segment {
                            object: wanted.number,
                            volume: self.target.volume().cloned(),
                            path: wanted.temporary.clone(),
                            len: wanted.size as u32,
                            at,
                            meta: wanted.meta.clone(),
                            sparse: wanted.sparse,
                            new: wanted.new.clone(),
                        });
                        at += wanted.size as u32;
                        all.push(wanted);
                    }
                    self.objects.expect_batch(start, Arc::new(Batch { segments }), all);
                }
            }
        }
    }
}
