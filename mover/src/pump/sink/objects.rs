//! The sink's ledger: what each address belongs to, and which objects are complete.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use crate::ends::pipe::mark_whole;
use crate::io::request::{Content, Coverage, Part, Request};
use crate::io::volume::{Batch, LazyFile, Status};
use crate::pump::sink::journal::{Held, Origin};
use crate::pump::sink::wanted::Wanted;
use crate::pump::watch::Watch;
use crate::wire::manifest::ENDLESS_BYTES;
use crate::work::digest::{FileSum, Shift};
use crate::work::extra;
use crate::work::voids;
use base::extent::{Extent, ExtentSet};
use base::extra::{ExtraDigests, ExtraSums};
use base::fault::{Class, Fault};
use base::label::{Kind, Sum};
use base::settings::DigestKind;

/// What has been written of a file since the last call.
#[derive(Debug)]
pub struct Advance {
    pub number: u64,
    pub origin: Origin,
    pub temporary: Vec<u8>,
    pub file: Arc<LazyFile>,
    pub begun: Option<u32>,
    pub written: Held,
}

/// An object of which every byte is accounted for: it can be finished, or removed.
#[derive(Debug)]
pub struct Complete {
    pub wanted: Wanted,
    pub outcome: Result<Option<Sum>, Fault>,
    /// Digests besides that are known already.
    pub extra: ExtraSums,
    /// What it was when it had been written, where a batch wrote it.
    pub made: Option<Status>,
}

/// What has been written since the last call.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Written {
    pub ranges: Vec<(u64, u64)>,
    pub bytes: u64,
    /// Bytes of these that take space, and are not known to be holes, by file system.
    pub data_on: BTreeMap<u64, u64>,
}

/// Temporary names of objects that are not complete, and were not begun by an earlier run.
#[derive(Debug)]
pub(crate) struct Unfinished {
    /// Of files that the journal records, with the numbers of their objects.
    pub told: Vec<(u64, Vec<u8>)>,
    pub untold: Vec<Vec<u8>>,
}

/// Shared by the lanes of a sink.
#[derive(Debug)]
pub struct Objects {
    slot_bytes: u32,
    digest: DigestKind,
    shift: Option<Arc<Shift>>,
    watch: Arc<Watch>,
    state: Mutex<State>,
    when_written: OnceLock<WhenWritten>,
}

/// Called when all that was expected has been written: a side need not wait for its next beat.
struct WhenWritten(Box<dyn Fn() + Send + Sync>);

impl fmt::Debug for WhenWritten {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WhenWritten")
    }
}

#[derive(Debug)]
struct State {
    slots: BTreeMap<u64, Slot>,
    objects: BTreeMap<u64, Object>,
    written: ExtentSet,
    written_bytes: u64,
    /// Bytes of these that take space, by file system.
    written_on: BTreeMap<u64, u64>,
    /// Objects of which something has been written since the journal was updated.
    advanced: BTreeSet<u64>,
    complete: Sender<Complete>,
    digest_also: ExtraDigests,
}

/// What is at an address.
#[derive(Debug)]
enum Slot {
    Batch { batch: Arc<Batch> },
    Object { object: u64, size: u64, length: Length, received: ExtentSet },
}

/// How an object's length is known: by its entry, or by its end when it is a pipe. A pipe's parts
/// are digested as both sides can tell from the part alone, whether or not the end is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Length {
    Offered,
    Counted,
}

#[derive(Debug)]
struct Object {
    wanted: Wanted,
    slot: u64,
    /// Bytes not accounted for yet; of a pipe, those beyond what has arrived so far.
    missing: u64,
    sum: FileSum,
    /// What the journal does not have yet; `None` for what it does not record.
    news: Option<News>,
    extra: extra::Parts,
    fault: Option<Fault>,
}

/// Ranges that have been written, with their digests.
#[derive(Debug)]
struct News {
    ranges: ExtentSet,
    sums: FileSum,
}

impl Objects {
    pub fn new(
        slot_bytes: u32,
        digest: DigestKind,
        watch: Arc<Watch>,
        complete: Sender<Complete>,
    ) -> Objects {
        let state = State {
            slots: BTreeMap::new(),
            objects: BTreeMap::new(),
            written: ExtentSet::default(),
            written_bytes: 0,
            written_on: BTreeMap::new(),
            advanced: BTreeSet::new(),
            complete,
            digest_also: ExtraDigests::NONE,
        };
        let shift = (digest == DigestKind::Crc64).then(|| Arc::new(Shift::new(slot_bytes)));
        let (state, when_written) = (Mutex::new(state), OnceLock::new());
        Objects { slot_bytes, digest, shift, watch, state, when_written }
    }

    /// Has these digests collected besides.
    pub(crate) fn digesting_also(self, digest_also: ExtraDigests) -> Objects {
        self.lock().digest_also = digest_also;
        self
    }

    /// An object with one or more slots of its own, some of which may be here, or are not wanted.
    pub(crate) fn expect_own(&self, start: u64, wanted: Wanted, held: Option<Held>) {
        let mut state = self.lock();
        let (object, size) = (wanted.number, wanted.size);
        let held = held.unwrap_or_default();
        let length = match size == ENDLESS_BYTES {
            true => Length::Counted,
            false => Length::Offered,
        };
        let mut received = held.ranges;
        if let Some(range) = &wanted.range {
            let is_new = received.insert_new(0, range.start);
            assert!(is_new && received.insert_new(range.end, size), "nothing was here of a range");
        }
        let missing = size - received.total();
        state.slots.insert(start, Slot::Object { object, size, length, received });
        self.insert(&mut state, start, wanted);
        let entry = state.objects.get_mut(&object).expect("inserted above");
        entry.missing = missing;
        held.nodes.into_iter().for_each(|node| entry.sum.add_node(node));
        if length == Length::Offered && entry.wanted.file.is_some() && size > self.slot() {
            let sums = FileSum::apart(self.digest, self.shift.clone());
            entry.news = Some(News { ranges: ExtentSet::default(), sums });
        }
        complete_if_all_came(&mut state, object, None);
    }

    fn slot(&self) -> u64 {
        u64::from(self.slot_bytes)
    }

    /// Small objects that share a slot, in the order of the batch's segments.
    pub(crate) fn expect_batch(&self, start: u64, batch: Arc<Batch>, members: Vec<Wanted>) {
        let mut state = self.lock();
        state.slots.insert(start, Slot::Batch { batch });
        for wanted in members {
            self.insert(&mut state, start, wanted);
        }
    }

    /// An object without bytes: complete as it is.
    pub(crate) fn expect_empty(&self, wanted: Wanted) {
        let sum = crate::work::digest::empty_sum(self.digest);
        let state = self.lock();
        let extra = extra::of(state.digest_also, b"");
        let _ = state.complete.send(Complete { wanted, outcome: Ok(sum), extra, made: None });
    }

    /// An object without bytes of its own that can be made now, or that has failed.
    pub(crate) fn hand_over(&self, wanted: Wanted, fault: Option<Fault>) {
        let outcome = fault.map_or(Ok(None), Err);
        let extra = ExtraSums::default();
        let _ = self.lock().complete.send(Complete { wanted, outcome, extra, made: None });
    }

    fn insert(&self, state: &mut State, slot: u64, wanted: Wanted) {
        let object = Object {
            slot,
            missing: wanted.size,
            sum: FileSum::with_shift(self.digest, self.shift.clone()),
            news: None,
            extra: extra::Parts::default(),
            fault: None,
            wanted,
        };
        state.objects.insert(object.wanted.number, object);
    }

    /// Tells a request what its extent is. An extent that is not expected, or arrives twice, is the
    /// peer's fault.
    pub(crate) fn admit(&self, request: &mut Request) -> Result<(), Fault> {
        let extent = request.label.extent;
        let mut state = self.lock();
        let Some((start, slot)) = state.slots.range_mut(..=extent.start).next_back() else {
            return Err(unexpected(extent));
        };
        match slot {
            Slot::Batch { batch } => {
                let hole = match request.label.kind {
                    Kind::Zero => true,
                    Kind::Sparse => batch.segments.iter().all(|file| !file.sparse),
                    Kind::Data | Kind::Void | Kind::End => false,
                };
                if *start != extent.start || extent.len != batch.bytes() || hole {
                    return Err(unexpected(extent));
                }
                request.content = Content::Batch(batch.clone());
                let start = *start;
                state.slots.remove(&start);
            }
            Slot::Object { object, size, length, received } => {
                let offset = extent.start - *start;
                let len = (*size).saturating_sub(offset).min(u64::from(self.slot_bytes));
                let length = *length;
                let fits = match *size == ENDLESS_BYTES {
                    true => (1..=self.slot_bytes).contains(&extent.len),
                    false => u64::from(extent.len) == len && len > 0,
                };
                let end = offset + u64::from(extent.len);
                if !fits
                    || !offset.is_multiple_of(u64::from(self.slot_bytes))
                    || !received.insert_new(offset, end)
                {
                    return Err(unexpected(extent));
                }
                let whole = length == Length::Offered && u64::from(extent.len) == *size;
                let coverage = if whole { Coverage::All } else { Coverage::Some };
                let object = *object;
                let wanted = state.objects.get(&object).map(|object| &object.wanted);
                let sparse = wanted.is_some_and(|wanted| wanted.sparse);
                if matches!(request.label.kind, Kind::Zero | Kind::Sparse) && !sparse {
                    return Err(Fault::peer("the peer sent a hole in a file without holes"));
                }
                let file = wanted.and_then(|wanted| wanted.file.clone());
                request.content = Content::Part(Part { object, offset, coverage, file });
                if length == Length::Counted {
                    mark_whole(request, self.slot_bytes);
                }
            }
        }
        drop(state);
        check_payload(request)
    }

    /// A request that was admitted did not complete: it may come again.
    pub fn release(&self, request: &Request) {
        let extent = request.label.extent;
        let mut state = self.lock();
        match &request.content {
            Content::Unknown => {}
            Content::Part(_) => {
                let slot = state.slots.range_mut(..=extent.start).next_back();
                if let Some((start, Slot::Object { received, .. })) = slot {
                    let offset = extent.start - *start;
                    received.remove(offset, offset + u64::from(extent.len));
                }
            }
            Content::Batch(batch) => {
                state.slots.insert(extent.start, Slot::Batch { batch: batch.clone() });
            }
        }
    }

    /// What the journal does not have yet of files that are not complete.
    pub(crate) fn take_advances(&self) -> Vec<Advance> {
        let mut state = self.lock();
        let advanced = std::mem::take(&mut state.advanced);
        let mut advances = Vec::with_capacity(advanced.len());
        for number in advanced {
            let Some(object) = state.objects.get_mut(&number) else { continue };
            let (Some(news), Some(file)) = (&mut object.news, &object.wanted.file) else {
                continue;
            };
            let written =
                Held { ranges: std::mem::take(&mut news.ranges), nodes: news.sums.take_nodes() };
            advances.push(Advance {
                number,
                origin: object.wanted.origin(self.digest),
                temporary: object.wanted.temporary.clone(),
                file: file.clone(),
                begun: object.wanted.begun,
                written,
            });
        }
        advances
    }

    /// The sink has taken the request, or it is void: accounts for its bytes.
    pub fn record_written(&self, request: &mut Request) {
        let extent = request.label.extent;
        let mut guard = self.lock();
        let state = &mut *guard;
        if !state.written.insert_new(extent.start, extent.end()) {
            panic!("{extent:?} written twice"); // admitted once, so it is written once
        }
        let payload = match request.label.kind {
            Kind::Data => u64::from(request.payload_len()),
            Kind::Zero | Kind::Sparse => u64::from(extent.len),
            Kind::Void | Kind::End => 0,
        };
        state.written_bytes += payload;
        let data = payload.saturating_sub(u64::from(request.left_out()));
        self.watch.gauge.bytes_done.fetch_add(payload, Relaxed);
        match &request.content {
            Content::Unknown => panic!("a request that was not admitted"),
            Content::Part(part) => {
                let object = state.objects.get_mut(&part.object).expect("an admitted object");
                object.missing -= u64::from(extent.len);
                *state.written_on.entry(object.wanted.file_system).or_default() += data;
                object.note(0, request);
                let number = part.object;
                if object.keep_news(part.offset, request) {
                    state.advanced.insert(number);
                }
                complete_if_all_came(state, number, None);
            }
            Content::Batch(batch) => {
                let mut made = request.made.iter().peekable();
                for (index, segment) in batch.segments.iter().enumerate() {
                    let made = made.next_if(|(of, _)| usize::from(*of) == index);
                    let object = state.objects.get_mut(&segment.object).expect("a known object");
                    object.missing -= u64::from(segment.len);
                    let written = state.written_on.entry(object.wanted.file_system).or_default();
                    *written += data * u64::from(segment.len) / payload.max(1);
                    object.note(index as u16, request);
                    complete_if_all_came(state, segment.object, made.map(|(_, made)| *made));
                }
            }
        }
        let is_all = state.objects.is_empty();
        drop(guard);
        if is_all && let Some(when_written) = self.when_written.get() {
            when_written.0();
        }
    }

    /// Has this called, from a lane, when all that was expected has been written.
    pub(crate) fn when_written(&self, call: impl Fn() + Send + Sync + 'static) {
        let _ = self.when_written.set(WhenWritten(Box::new(call)));
    }

    /// The pipe was this long: what has not arrived by now is still to come.
    pub fn end_pipe(&self, bytes: u64) -> Result<(), Fault> {
        let mut state = self.lock();
        let Some(object) =
            state.objects.values().find(|object| object.wanted.size == ENDLESS_BYTES)
        else {
            return Err(Fault::peer("the end of a pipe that was not offered"));
        };
        let came = ENDLESS_BYTES - object.missing;
        let Some(missing) = bytes.checked_sub(came) else {
            return Err(Fault::peer("a pipe that ended before bytes that have come"));
        };
        let (number, slot) = (object.wanted.number, object.slot);
        if let Some(Slot::Object { received, .. }) = state.slots.get(&slot)
            && received.ranges().last().is_some_and(|(_, end)| end > bytes)
        {
            return Err(Fault::peer("a pipe that ended before bytes that have come"));
        }
        let object = state.objects.get_mut(&number).expect("found above");
        object.wanted.size = bytes;
        object.missing = missing;
        if let Some(Slot::Object { size, .. }) = state.slots.get_mut(&slot) {
            *size = bytes; // nothing beyond is expected any more
        }
        complete_if_all_came(&mut state, number, None);
        Ok(())
    }

    /// What has been written since the last call, at most `ranges_max` ranges of it.
    pub(crate) fn take_written(&self, ranges_max: usize) -> Option<Written> {
        let mut state = self.lock();
        if state.written.is_empty() {
            return None;
        }
        let ranges: Vec<(u64, u64)> = state.written.ranges().take(ranges_max).collect();
        if ranges.len() == state.written.range_count() {
            state.written.clear();
        } else {
            state.written = rest_of(&state.written, ranges.len());
        }
        let bytes = std::mem::take(&mut state.written_bytes);
        let data_on = std::mem::take(&mut state.written_on);
        Some(Written { ranges, bytes, data_on })
    }

    /// Bytes still to come of files on one file system that have space reserved.
    pub(crate) fn reserved_bytes(&self, file_system: u64) -> u64 {
        let state = self.lock();
        let reserved = |object: &&Object| {
            object.wanted.file_system == file_system
                && object.wanted.file.as_ref().is_some_and(|file| file.is_reserved())
        };
        state.objects.values().filter(reserved).map(|object| object.missing).sum()
    }

    /// True while bytes are expected, except those of a pipe of unknown length.
    pub(crate) fn is_waiting(&self) -> bool {
        self.lock().objects.values().any(|object| object.wanted.size != ENDLESS_BYTES)
    }

    /// True while bytes are expected, or may still come from a pipe.
    pub fn is_open(&self) -> bool {
        !self.lock().objects.is_empty()
    }

    /// The temporary names of what is not complete and was begun in this run: of files that the
    /// journal records, and of the others.
    pub(crate) fn unfinished(&self) -> Unfinished {
        let state = self.lock();
        let begun_now = state.objects.values().filter(|object| object.wanted.begun.is_none());
        let (told, untold): (Vec<_>, Vec<_>) = begun_now.partition(|object| object.news.is_some());
        let name = |object: &Object| object.wanted.temporary.clone();
        let numbered = |object: &Object| (object.wanted.number, name(object));
        Unfinished {
            told: told.into_iter().map(numbered).collect(),
            untold: untold.into_iter().map(name).collect(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Object {
    /// Records for the journal what was written of a file; true when there is anything to record.
    fn keep_news(&mut self, offset: u64, request: &Request) -> bool {
        let Some(news) = &mut self.news else { return false };
        if request.label.kind != Kind::Data || !request.voids.is_empty() {
            return false;
        }
        let end = offset + u64::from(request.label.extent.len);
        assert!(news.ranges.insert_new(offset, end), "a stretch written twice");
        request.pieces.iter().for_each(|piece| news.sums.add(piece));
        true
    }

    /// Takes from a request what concerns this object: its fault, or its digests.
    fn note(&mut self, segment: u16, request: &Request) {
        let void = request.voids.iter().find(|(void, _)| *void == segment);
        if let Some((_, fault)) = void {
            self.fault.get_or_insert_with(|| fault.clone().from_other_side());
            return;
        }
        if request.label.kind == Kind::Void {
            let fault = || Fault::new(Class::Local, "the source could not give its bytes");
            self.fault.get_or_insert_with(|| fault().from_other_side());
            return;
        }
        let whole = match &request.content {
            Content::Part(part) => part.coverage == Coverage::All,
            Content::Batch(_) | Content::Unknown => true,
        };
        // They are in the order of their segments.
        let first = request.pieces.partition_point(|piece| piece.segment < segment);
        let of_it = request.pieces[first..].iter().take_while(|piece| piece.segment == segment);
        for piece in of_it {
            match whole {
                true => self.sum.set_whole(piece.sum),
                false => self.sum.add(piece),
            }
        }
        let first = request.extra.partition_point(|piece| piece.segment < segment);
        let of_it = request.extra[first..].iter().take_while(|piece| piece.segment == segment);
        of_it.for_each(|piece| self.extra.add(piece));
    }
}

/// `made` is what it is now, where a batch has just written it.
fn complete_if_all_came(state: &mut State, number: u64, made: Option<Status>) {
    if state.objects.get(&number).is_none_or(|object| object.missing > 0) {
        return;
    }
    let Some(object) = state.objects.remove(&number) else { return };
    if matches!(state.slots.get(&object.slot), Some(Slot::Object { .. })) {
        state.slots.remove(&object.slot);
    }
    let outcome = match object.fault {
        Some(fault) => Err(fault),
        None => {
            let size = object.wanted.size;
            Ok(object.sum.finish(object.wanted.range.clone().unwrap_or(0..size), size))
        }
    };
    // There is no finisher when the side is stopping; then nothing needs to be finished.
    let extra = object.extra.finish(state.digest_also, object.wanted.size);
    let _ = state.complete.send(Complete { wanted: object.wanted, outcome, extra, made });
}

/// The payload must be what the ledger says, before a byte of it is used.
fn check_payload(request: &mut Request) -> Result<(), Fault> {
    let extent = request.label.extent;
    let payload = match request.label.kind {
        Kind::Data => extent.len,
        Kind::Void | Kind::End | Kind::Zero => 0,
        // Its map says how long it is, and is checked where damage is told from a fault.
        Kind::Sparse => return Ok(()),
    };
    // A compressed payload was found to fit its label, and is decompressed after this.
    if request.raw_len() != payload {
        return Err(unexpected(extent));
    }
    if request.label.voids_len > 0 && request.voids.is_empty() {
        voids::read(request)?;
    }
    Ok(())
}

fn rest_of(set: &ExtentSet, skip: usize) -> ExtentSet {
    let mut rest = ExtentSet::default();
    for (start, end) in set.ranges().skip(skip) {
        assert!(rest.insert_new(start, end), "ranges of a set are apart");
    }
    rest
}

fn unexpected(extent: Extent) -> Fault {
    Fault::peer(format!(
        "the peer sent {} bytes for address {}, which was not asked for or came already",
        extent.len, extent.start
    ))
}
