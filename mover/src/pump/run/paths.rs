//! The samples of a side's data streams; where it drives, also those that the far side sent.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::io::sampler::{self, Outbox};
use crate::io::volume::Handle;
use crate::pump::lane::StreamHandle;
use crate::wire::message::Message;
use base::job::{PathRole, PathSide, StreamPath};
use base::limits::{PATH_SAMPLES_MAX, SAMPLES_MAX, SIDE_SAMPLES_MAX};
use base::packed::{self, not_behind};
use base::path::{LaneClocks, PathSample};
use base::units::{Nanos, Tick};

/// All streams of a side, by number: lost ones stay.
#[derive(Debug, Default)]
pub struct Paths {
    own: BTreeMap<u32, Own>,
    /// Kept samples of own streams and, where this side drives, of the peer's.
    kept: BTreeMap<(PathSide, u32), Series>,
    collect_at: Tick,
    tell_at: Tick,
    /// Bytes of samples that were sent to the peer.
    told_bytes: u64,
}

/// A stream that this side has, or has had.
#[derive(Debug)]
struct Own {
    role: PathRole,
    outbox: Arc<Outbox>,
    last: PathSample,
    /// Taken and not yet kept or sent.
    fresh: Vec<PathSample>,
    is_drained: bool,
}

/// Samples of one stream in bounded memory: above the limit every second one is dropped, and of the
/// next ones too. The first and the last stay. Counters lose only resolution.
#[derive(Debug)]
struct Series {
    kept: Vec<PathSample>,
    /// The last one, where it is not its turn to be kept.
    tail: Option<PathSample>,
    /// One of this many is kept.
    stride: u64,
    seen: u64,
}

impl Default for Series {
    fn default() -> Series {
        Series { kept: Vec::new(), tail: None, stride: 1, seen: 0 }
    }
}

impl Series {
    /// Time and counters never go back, whoever sent the sample.
    fn add(&mut self, sample: &PathSample) {
        let sample = self.last().map_or(*sample, |last| not_behind(sample, last));
        match self.seen.is_multiple_of(self.stride) {
            true => {
                self.kept.push(sample);
                self.tail = None;
            }
            false => self.tail = Some(sample),
        }
        self.seen += 1;
        if self.kept.len() > PATH_SAMPLES_MAX {
            self.thin();
        }
    }

    fn last(&self) -> Option<&PathSample> {
        self.tail.as_ref().or(self.kept.last())
    }

    fn thin(&mut self) {
        self.tail = self.last().copied();
        let mut place = 0;
        self.kept.retain(|_| {
            place += 1;
            place % 2 == 1
        });
        self.stride = self.stride.saturating_mul(2);
        if self.tail.as_ref() == self.kept.last() {
            self.tail = None;
        }
    }

    fn into_samples(mut self) -> Vec<PathSample> {
        self.kept.extend(self.tail);
        self.kept
    }
}

impl Paths {
    /// A stream begins.
    pub fn add(&mut self, wire: &StreamHandle, role: PathRole) {
        let own = Own {
            role,
            outbox: wire.outbox.clone(),
            last: PathSample::default(),
            fresh: Vec::new(),
            is_drained: false,
        };
        self.own.insert(wire.number, own);
    }

    /// Collects the samples of lanes, now and then; true where it was time.
    pub fn collect(&mut self, now: Tick, when: When) -> bool {
        let due = when == When::AtEnd || now >= self.collect_at;
        if due {
            self.collect_at = now.after(COLLECT_EVERY);
            self.take_all();
        }
        due
    }

    fn take_all(&mut self) {
        for own in self.own.values_mut() {
            own.outbox.take(&mut own.fresh);
            own.last = own.fresh.last().copied().unwrap_or(own.last);
        }
    }

    /// Samples a stream whose lane has sent everything and has ended, until the peer's TCP has it
    /// all.
    pub(crate) fn look_behind(&mut self, number: u32, socket: &Handle, now: Tick, when: When) {
        let Some(own) = self.own.get_mut(&number) else { return };
        if own.role == PathRole::Sink || own.is_drained {
            return;
        }
        own.outbox.take(&mut own.fresh);
        own.last = own.fresh.last().copied().unwrap_or(own.last);
        // Without a first sample there is none: sampling is off.
        if own.last == PathSample::default() {
            return;
        }
        if when == When::InTime && now.since(own.last.at) < sampler::interval(own.last.rtt) {
            return;
        }
        match sampler::look(socket, &own.last, now) {
            Some(sample) => {
                own.is_drained = sample.unacked_segments == 0 && sample.unsent_bytes == 0;
                own.last = sample;
                own.fresh.push(sample);
            }
            None => own.is_drained = true,
        }
    }

    /// The newest sample of each stream of which the far side is the sender, as far as it has said.
    pub(crate) fn far_senders(&self, role: PathRole) -> BTreeMap<u32, PathSample> {
        let of_far = self.kept.iter().filter(|((side, _), _)| *side == PathSide::Far);
        let of_far = of_far.filter(|_| role == PathRole::Sink);
        of_far.filter_map(|((_, stream), series)| Some((*stream, *series.last()?))).collect()
    }

    /// The newest clocks of a lane of this host.
    pub(crate) fn clocks(&self, stream: u32) -> LaneClocks {
        self.own.get(&stream).map(|own| own.last.clocks).unwrap_or_default()
    }

    /// Samples that are not kept yet.
    pub fn fresh(&self) -> Vec<StreamPath> {
        let seen = self.own.iter().filter(|(_, own)| !own.fresh.is_empty());
        let path = |(number, own): (&u32, &Own)| StreamPath {
            stream: *number,
            side: PathSide::Near,
            role: own.role,
            samples: own.fresh.clone(),
        };
        seen.map(path).collect()
    }

    /// Keeps the samples: for the side that drives.
    pub fn keep(&mut self) {
        for (number, own) in &mut self.own {
            let series = self.kept.entry((PathSide::Near, *number)).or_default();
            own.fresh.drain(..).for_each(|sample| series.add(&sample));
        }
        self.hold_to_bound(PathSide::Near);
    }

    /// Messages for the side that drives, about once a second; all that is left at the end.
    pub fn tell(&mut self, now: Tick, when: When) -> Vec<Message> {
        if when == When::InTime && now < self.tell_at {
            return Vec::new();
        }
        self.tell_at = now.after(TELL_EVERY);
        self.take_all();
        let packed_bytes = |own: &Own| packed::pack(&own.fresh).len() as u64;
        let wanted: u64 = self.own.values().map(packed_bytes).sum();
        let allowed = (self.moved_bytes() / MOVED_FOR_TOLD).saturating_sub(self.told_bytes);
        let stride = wanted.div_ceil(allowed.max(TOLD_BYTES_MIN)).max(1) as usize;
        let mut messages = Vec::new();
        for (stream, own) in &mut self.own {
            let samples = every(stride, &own.fresh);
            own.fresh.clear();
            for part in samples.chunks(SAMPLES_MAX) {
                let message = Message::Samples { stream: *stream, samples: part.to_vec() };
                self.told_bytes += packed::pack(part).len() as u64;
                messages.push(message);
            }
        }
        messages
    }

    /// Samples that the peer sends.
    pub fn hear(&mut self, stream: u32, samples: &[PathSample]) {
        let series = self.kept.entry((PathSide::Far, stream)).or_default();
        samples.iter().for_each(|sample| series.add(sample));
        self.hold_to_bound(PathSide::Far);
    }

    /// All samples that are kept.
    pub fn finish(&mut self) -> Vec<StreamPath> {
        self.take_all();
        self.keep();
        let paths = std::mem::take(&mut self.kept).into_iter().map(|((side, stream), series)| {
            let own = self.own.get(&stream).map_or(PathRole::Source, |own| own.role);
            let role = if side == PathSide::Near { own } else { own.other() };
            StreamPath { stream, side, role, samples: series.into_samples() }
        });
        paths.filter(|path| !path.samples.is_empty()).collect()
    }

    /// Payload and frames that own streams have moved.
    fn moved_bytes(&self) -> u64 {
        let moved = |own: &Own| own.last.bytes_acked + own.last.bytes_received;
        self.own.values().map(moved).sum()
    }

    /// With many streams on a side each has less room: the longest series is thinned.
    fn hold_to_bound(&mut self, side: PathSide) {
        loop {
            let of_side = self.kept.iter_mut().filter(|((whose, _), _)| *whose == side);
            let mut sum = 0;
            let longest = of_side
                .map(|(_, series)| {
                    sum += series.kept.len();
                    series
                })
                .max_by_key(|series| series.kept.len());
            match longest {
                Some(longest) if sum > SIDE_SAMPLES_MAX && longest.kept.len() > 2 => longest.thin(),
                _ => return,
            }
        }
    }
}

/// When samples are taken or sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    InTime,
    AtEnd,
}

/// Every `stride`-th one, and the last.
fn every(stride: usize, samples: &[PathSample]) -> Vec<PathSample> {
    let last = samples.len().saturating_sub(1);
    let some = samples.iter().enumerate().filter(|(at, _)| at % stride == 0 || *at == last);
    some.map(|(_, sample)| *sample).collect()
}

const COLLECT_EVERY: Nanos = Nanos::from_millis(250);
const TELL_EVERY: Nanos = Nanos::from_millis(1_000);
/// Samples take at most this part of the bytes moved, so that they do not disturb what they
/// measure; and this many bytes each time, when little is moved.
const MOVED_FOR_TOLD: u64 = 500;
const TOLD_BYTES_MIN: u64 = 2048;

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(number: u64) -> PathSample {
        PathSample { at: Tick(number), bytes_sent: number, ..PathSample::default() }
    }

    #[test]
    fn a_series_is_bounded_and_keeps_its_ends() {
        let most = PATH_SAMPLES_MAX as u64;
        for seen in [0, 1, 2, most, most + 1, most + 2, 2 * most, 2 * most + 1, 5 * most + 3] {
            let mut series = Series::default();
            (0..seen).for_each(|number| series.add(&sample(number)));
            let stride = series.stride;
            let kept = series.into_samples();
            assert_eq!(kept.first().copied(), (seen > 0).then(|| sample(0)), "{seen}");
            assert_eq!(kept.last().copied(), seen.checked_sub(1).map(sample), "{seen}");
            assert!(kept.len() <= PATH_SAMPLES_MAX + 1, "{seen}: {}", kept.len());
            assert!(kept.len() as u64 >= seen.min(most / 2), "{seen}: {}", kept.len());
            let steps: Vec<u64> = kept.windows(2).map(|two| two[1].at.0 - two[0].at.0).collect();
            let Some((last, steps)) = steps.split_last() else { continue };
            assert!(steps.iter().all(|step| *step == stride), "{seen}");
            assert!(*last <= stride, "{seen}");
        }
    }

    /// A peer's clock that goes back does not affect the series.
    #[test]
    fn what_goes_back_is_held() {
        let mut paths = Paths::default();
        paths.hear(3, &[sample(5), sample(9)]);
        paths.hear(3, &[sample(2), sample(11)]);
        let found = paths.finish();
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].stream, found[0].side), (3, PathSide::Far));
        assert_eq!(found[0].role, PathRole::Sink);
        let at: Vec<u64> = found[0].samples.iter().map(|sample| sample.at.0).collect();
        assert_eq!(at, [5, 9, 9, 11]);
    }

    #[test]
    fn many_streams_share_the_room_of_a_side() {
        let mut paths = Paths::default();
        let each = SIDE_SAMPLES_MAX as u64 / 8;
        for stream in 0..64 {
            let samples: Vec<PathSample> = (0..each).map(sample).collect();
            paths.hear(stream, &samples);
        }
        let found = paths.finish();
        let sum: usize = found.iter().map(|path| path.samples.len()).sum();
        assert_eq!(found.len(), 64);
        assert!(sum <= SIDE_SAMPLES_MAX + 64 && sum > SIDE_SAMPLES_MAX / 2, "{sum}");
        assert!(found.iter().all(|path| path.samples[0] == sample(0)));
        assert!(found.iter().all(|path| path.samples.last() == Some(&sample(each - 1))));
    }

    #[test]
    fn what_is_told_is_little_of_what_is_moved() {
        for (moved, expect) in [(0, TOLD_BYTES_MIN), (1 << 30, u64::MAX)] {
            let mut paths = Paths::default();
            let socket = Handle::Sim(0);
            let wire = StreamHandle::new(7, socket);
            paths.add(&wire, PathRole::Source);
            let fresh = (0..4000).map(|number| PathSample { bytes_acked: moved, ..sample(number) });
            paths.own.get_mut(&7).unwrap().fresh = fresh.collect();
            let messages = paths.tell(Tick(1), When::InTime);
            assert!(paths.tell(Tick(2), When::InTime).is_empty(), "told already");
            assert!(paths.told_bytes <= expect.saturating_add(100), "{} bytes", paths.told_bytes);
            let mut driver = Paths::default();
            for message in &messages {
                let Message::Samples { stream, samples } = message else { unreachable!() };
                driver.hear(*stream, samples);
            }
            let heard = driver.finish();
            assert_eq!(heard[0].samples[0].at, Tick(0));
            assert_eq!(heard[0].samples.last().unwrap().at, Tick(3999));
            assert_eq!(heard[0].samples.len() == 4000, moved > 0);
        }
    }
}
