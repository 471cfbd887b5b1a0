//! The source's side of the protocol: offers what the walk finds, plans what the sink wants.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use crate::io::volume::{Access, Batch, Cache, LazyFile, Metadata, READ_THROUGH, Segment};
use crate::pump::source::plan::{Plan, Run};
use crate::pump::source::walk::{Found, From, mtime_of};
use crate::pump::watch::Watch;
use crate::wire::manifest::{Chunk, EntryKind, Layout, Slot};
use crate::wire::message::{Message, WantedRanges};
use base::extent::ExtentSet;
use base::fault::Fault;
use base::job::Location;
use base::limits::{OBJECTS_IN_FLIGHT_MAX, OFFERED_BYTES_MAX, STRETCHES_MAX};
use base::settings::{Direct, Settings};
use base::units::Tick;

pub mod covered;
mod gitignore;
pub(crate) mod limits;
pub mod names;
pub mod pattern;
pub mod plan;
pub(crate) mod safe_links;
pub mod select;
pub mod walk;

/// The protocol state of a host that has the source.
#[derive(Debug)]
pub struct SourceSide {
    pub plan: Arc<Plan>,
    settings: Settings,
    watch: Arc<Watch>,
    layout: Layout,
    /// Offered, and not answered yet.
    offered: VecDeque<(Chunk, Vec<Option<From>>)>,
    /// Offered, and not finished, with the paths that the user knows.
    open: BTreeMap<u64, OpenObject>,
    offered_objects: u64,
    offered_bytes: u64,
    /// Ranges that the sink has of objects that it has not answered yet.
    told_held: BTreeMap<u64, ExtentSet>,
    /// How many ranges it has of open objects.
    stretches: BTreeMap<u64, usize>,
    stretch_count: usize,
    /// What the open objects take of the credit, and the bytes of their entries.
    cost: u64,
    open_bytes: u64,
    walk: Walk,
    /// The single object's name at the target, where it is another.
    rename: Option<Vec<u8>>,
    flow: Flow,
}

/// An object that is offered and not finished.
#[derive(Debug)]
struct OpenObject {
    path: Vec<u8>,
    size: u64,
    kind: EntryKind,
    /// The bytes of its entry on the wire.
    entry_bytes: u64,
    /// Where it is, if a dry run cannot open it.
    unreadable: Option<From>,
}

/// The kind of source whose length is known only at its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    /// Read in order, until it ends.
    Pipe,
    /// Generated, until it is stopped.
    Endless,
}

impl Flow {
    pub(crate) fn of(location: Option<&Location>) -> Flow {
        if location.is_some_and(Location::is_endless) { Flow::Endless } else { Flow::Pipe }
    }
}

/// The credit that an object of a slot or more takes.
const LONG_OBJECT_COST: u64 = 32;

/// How far the walk has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Walk {
    Going,
    Over,
    /// And the length of the pipe has been sent, where there is one.
    Told,
}

/// The outcome of an object, for counting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settled {
    pub number: u64,
    pub path: Vec<u8>,
    pub bytes: u64,
    pub kind: EntryKind,
}

/// The offer of what a walk finds first. The peer may get it before the two have agreed on anything
/// else: no credit is needed for it, and its form does not depend on how objects are cut.
pub(crate) fn first_offer(found: &[Found]) -> Message {
    Message::Offer { first: 0, entries: found.iter().map(|found| found.entry.clone()).collect() }
}

impl SourceSide {
    pub fn new(plan: Arc<Plan>, settings: Settings, watch: Arc<Watch>) -> SourceSide {
        let layout = Layout::new(settings.request_bytes);
        SourceSide {
            plan,
            settings,
            watch,
            layout,
            offered: VecDeque::new(),
            open: BTreeMap::new(),
            told_held: BTreeMap::new(),
            stretches: BTreeMap::new(),
            stretch_count: 0,
            offered_objects: 0,
            offered_bytes: 0,
            cost: 0,
            open_bytes: 0,
            walk: Walk::Going,
            rename: None,
            flow: Flow::Pipe,
        }
    }

    /// A single object will have this name.
    pub fn renamed(self, rename: Option<Vec<u8>>) -> SourceSide {
        SourceSide { rename, ..self }
    }

    pub(crate) fn flowing(self, flow: Flow) -> SourceSide {
        SourceSide { flow, ..self }
    }

    /// True when these objects may be offered before another is finished.
    pub(crate) fn has_credit(&self, found: &[Found]) -> bool {
        let more: u64 = found.iter().map(|found| self.cost_of(found.entry.size)).sum();
        let bytes: u64 = found.iter().map(|found| found.entry.encoded_bytes() as u64).sum();
        let fits = self.cost + more <= OBJECTS_IN_FLIGHT_MAX
            && self.open_bytes + bytes <= OFFERED_BYTES_MAX;
        self.open.is_empty() || fits
    }

    /// A long object takes the credit of many short ones: the sink may hold a file open for it.
    fn cost_of(&self, size: u64) -> u64 {
        let slot = u64::from(self.settings.request_bytes);
        1 + (LONG_OBJECT_COST - 1) * size.min(slot) / slot
    }

    /// Objects from the walk, as an offer.
    pub fn offer(&mut self, found: Vec<Found>) -> Result<Message, Fault> {
        let (entries, from): (Vec<_>, Vec<_>) =
            found.into_iter().map(|found| (found.entry, found.from)).unzip();
        let first = self.offered_objects;
        self.offered_objects += entries.len() as u64;
        let chunk = self.layout.place(entries.clone())?;
        for ((number, entry), from) in (first..).zip(&entries).zip(&from) {
            let name = self.rename.as_ref().unwrap_or(&entry.path);
            let bytes = entry.encoded_bytes() as u64;
            self.open_bytes += bytes;
            self.open.insert(
                number,
                OpenObject {
                    path: name.clone(),
                    entry_bytes: bytes,
                    size: entry.size,
                    kind: entry.kind,
                    unreadable: from.clone().filter(|_| entry.unreadable),
                },
            );
            self.cost += self.cost_of(entry.size);
            if entry.kind != EntryKind::Pipe {
                self.offered_bytes += entry.size;
            }
        }
        self.offered.push_back((chunk, from));
        Ok(Message::Offer { first, entries })
    }

    /// The walk has ended: so do the offers.
    pub fn end_walk(&mut self) -> Message {
        self.walk = Walk::Over;
        self.watch.gauge.walk_done.store(true, Relaxed);
        self.end_plan_if_answered();
        Message::OfferEnd { objects: self.offered_objects, bytes: self.offered_bytes }
    }

    /// The sink's answer to the oldest offer.
    pub fn want(&mut self, wanted: &[WantedRanges]) -> Result<(), Fault> {
        let Some((chunk, mut from)) = self.offered.pop_front() else {
            return Err(Fault::peer("an answer without an offer"));
        };
        if wanted.len() != chunk.entries.len() {
            return Err(Fault::peer("an answer that does not fit its offer"));
        }
        let watch = self.watch.clone();
        let gauge = &watch.gauge;
        let mut runs = Vec::new();
        for slot in chunk
            .slots(|member| wanted[member] != WantedRanges::Nothing, self.settings.request_bytes)
        {
            match slot {
                Slot::Object { member } if chunk.entries[member].kind == EntryKind::Pipe => {
                    gauge.endless.store(true, Relaxed);
                    gauge.files_found.fetch_add(1, Relaxed);
                    match self.flow {
                        Flow::Pipe => self.plan.want_pipe(),
                        Flow::Endless => self.plan.want_endless(),
                    }
                }
                Slot::Object { member } => {
                    let entry = &chunk.entries[member];
                    gauge.bytes_found.fetch_add(entry.size, Relaxed);
                    let number = chunk.first + member as u64;
                    let held = match &wanted[member] {
                        WantedRanges::Rest(held) => {
                            self.note_stretches(number, held.len())?;
                            let told = self.told_held.remove(&number).unwrap_or_default();
                            held_of(told, held, (entry.size, self.settings.request_bytes))?
                        }
                        WantedRanges::All | WantedRanges::Nothing => ExtentSet::default(),
                    };
                    let bytes = held.total();
                    gauge.bytes_done.fetch_add(bytes, Relaxed);
                    gauge.bytes_held.fetch_add(bytes, Relaxed);
                    let file = from[member].take().map(|from| self.file(from, &chunk, member));
                    let run = |(from, to): (u64, u64)| Run::Object {
                        start: chunk.starts[member],
                        size: entry.size,
                        todo: from..to,
                        object: chunk.first + member as u64,
                        file: file.clone(),
                    };
                    runs.extend(held.gaps(entry.size).into_iter().map(run));
                }
                Slot::Batch { start, members } => {
                    let batch = batch_of(&chunk, &mut from, &members)?;
                    gauge.bytes_found.fetch_add(u64::from(batch.bytes()), Relaxed);
                    runs.push(Run::Batch { start, batch: Arc::new(batch) });
                }
            }
        }
        let files = chunk.entries.iter().filter(|entry| is_file(entry.kind)).count() as u64;
        if !self.watch.gauge.endless.load(Relaxed) {
            gauge.files_found.fetch_add(files, Relaxed);
        }
        let answered = chunk.first + chunk.entries.len() as u64;
        if self.told_held.keys().any(|number| *number < answered) {
            return Err(Fault::peer("the peer has stretches of an object that it does not want"));
        }
        self.plan.want(runs);
        self.end_plan_if_answered();
        Ok(())
    }

    /// Ranges that the sink has of an object, before its answer that wants the rest.
    pub fn note_held(&mut self, number: u64, ranges: &[(u64, u64)]) -> Result<(), Fault> {
        let first = self.offered.front().map_or(self.offered_objects, |(chunk, _)| chunk.first);
        if number < first || number >= self.offered_objects || !self.open.contains_key(&number) {
            return Err(Fault::peer("the peer has stretches of an object that it may not want"));
        }
        self.note_stretches(number, ranges.len())?;
        let size = self.open[&number].size;
        let told = self.told_held.remove(&number).unwrap_or_default();
        let held = held_of(told, ranges, (size, self.settings.request_bytes))?;
        self.told_held.insert(number, held);
        Ok(())
    }

    fn note_stretches(&mut self, number: u64, count: usize) -> Result<(), Fault> {
        *self.stretches.entry(number).or_default() += count;
        self.stretch_count += count;
        match self.stretch_count <= STRETCHES_MAX {
            true => Ok(()),
            false => Err(Fault::peer("the peer has more stretches than it may speak of")),
        }
    }

    pub fn acknowledged(&mut self, now: Tick, ranges: &[(u64, u64)]) -> Result<(), Fault> {
        match self.plan.settle(now, ranges) {
            true => Ok(()),
            false => Err(Fault::peer("the peer acknowledged bytes that were not under way")),
        }
    }

    /// An object that an earlier run has completed.
    pub fn held_whole(&mut self, number: u64) -> Result<Settled, Fault> {
        let settled = self.settle(number)?;
        let gauge = &self.watch.gauge;
        gauge.bytes_found.fetch_add(settled.bytes, Relaxed);
        gauge.bytes_done.fetch_add(settled.bytes, Relaxed);
        gauge.bytes_held.fetch_add(settled.bytes, Relaxed);
        gauge.files_held.fetch_add(1, Relaxed);
        Ok(settled)
    }

    /// Why an object cannot be read, where a dry run could not open it.
    pub(crate) fn unreadable(&self, number: u64) -> Option<Fault> {
        let from = self.open.get(&number)?.unreadable.as_ref()?;
        from.volume.open(&from.path, READ_THROUGH).err()
    }

    /// An object that the sink has finished, successfully or not.
    pub fn settle(&mut self, number: u64) -> Result<Settled, Fault> {
        match self.open.remove(&number) {
            Some(OpenObject { path, size, kind, entry_bytes, .. }) => {
                self.cost = self.cost.saturating_sub(self.cost_of(size));
                self.open_bytes -= entry_bytes;
                self.stretch_count -= self.stretches.remove(&number).unwrap_or_default();
                Ok(Settled { number, path, bytes: size, kind })
            }
            None => Err(Fault::peer("the peer finished an object that is not open")),
        }
    }

    /// The length of the pipe, once, when it has ended.
    pub fn pipe_end(&mut self) -> Option<Message> {
        let bytes = self.plan.pipe_bytes()?;
        if self.walk != Walk::Over {
            return None; // the end of the offers comes first, and this comes once
        }
        self.walk = Walk::Told;
        for object in self.open.values_mut() {
            if object.kind == EntryKind::Pipe {
                object.size = bytes;
            }
        }
        Some(Message::PipeEnd { bytes })
    }

    pub fn is_over(&self) -> bool {
        self.walk != Walk::Going && self.open.is_empty()
    }

    fn end_plan_if_answered(&self) {
        if self.walk != Walk::Going && self.offered.is_empty() {
            self.watch.gauge.answered.store(true, Relaxed);
            self.plan.end();
        }
    }

    fn file(&self, from: From, chunk: &Chunk, member: usize) -> Arc<LazyFile> {
        let entry = &chunk.entries[member];
        let cache = match self.settings.direct {
            Direct::On => Cache::Around,
            Direct::Auto | Direct::Off => Cache::Through,
        };
        let expect = Some((entry.size, mtime_of(entry)));
        let file = LazyFile::new(from.volume, from.path, Access::Read { cache }, expect);
        Arc::new(file.with_holes(entry.sparse))
    }
}

/// True for kinds that are counted as files.
pub fn is_file(kind: EntryKind) -> bool {
    !matches!(kind, EntryKind::Directory | EntryKind::Leave)
}

/// What the sink reports to have of an object besides `told`: cut as requests are.
fn held_of(
    told: ExtentSet,
    ranges: &[(u64, u64)],
    (size, slot_bytes): (u64, u32),
) -> Result<ExtentSet, Fault> {
    let slot = u64::from(slot_bytes);
    let mut held = told;
    for (start, end) in ranges {
        let cut = start.is_multiple_of(slot) && (end.is_multiple_of(slot) || *end == size);
        if !cut || *end > size || !held.insert_new(*start, *end) {
            return Err(Fault::peer("the peer has stretches that no object is cut into"));
        }
    }
    Ok(held)
}

/// The small files of one slot, one after the other in the body.
fn batch_of(chunk: &Chunk, from: &mut [Option<From>], members: &[usize]) -> Result<Batch, Fault> {
    let mut at = 0;
    let mut segments = Vec::with_capacity(members.len());
    for member in members {
        let entry = &chunk.entries[*member];
        let Some(from) = from[*member].take() else {
            return Err(Fault::usage("generated data is copied alone: leave the others out"));
        };
        let len = entry.size as u32;
        segments.push(Segment {
            object: chunk.first + *member as u64,
            volume: Some(from.volume),
            path: from.path,
            len,
            at,
            meta: Metadata {
                mode: entry.mode,
                mtime: Some(mtime_of(entry)),
                ..Metadata::default()
            },
            sparse: entry.sparse,
            new: None,
        });
        at += len;
    }
    Ok(Batch { segments })
}
