//! What is known of a copy while it runs, for its page: bounded, whatever its length.

use std::mem;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, Weak};
use std::thread;

use super::live::{Cost, locked};
use analysis::page::run::Progress;
use analysis::record::copy_record::Series;
use analysis::record::sample::Record;
use base::job::StreamPath;
use base::path::PathSample;
use base::units::{Nanos, Tick};
use mover::io::clock;
use mover::pump::watch::Watch;

/// A copy under way.
#[derive(Debug)]
pub struct UnderWay {
    began: Tick,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    /// What the copy is, without what it has moved.
    record: Record,
    watch: Weak<Watch>,
    paths: Vec<StreamPath>,
    /// Samples of a stream are at least so far apart.
    apart: Nanos,
    series: Series,
    /// When nothing had moved yet: a login is no part of the rate.
    still_at: Tick,
}

impl UnderWay {
    /// Collects until what is returned beside it is dropped, to which samples of streams are sent.
    pub fn collect(record: Record, cost: &Arc<Cost>) -> (Arc<UnderWay>, Sender<StreamPath>) {
        let mut known = Known { record, ..Known::default() };
        known.series.add(Nanos(0), 0);
        let began = clock::now();
        known.still_at = began;
        let copy = Arc::new(UnderWay { began, known: Mutex::new(known) });
        let (to, from) = mpsc::channel();
        let (mine, cost) = (Arc::clone(&copy), Arc::clone(cost));
        // It ends when nobody holds the other end; nobody waits for it.
        thread::spawn(move || mine.run(&from, &cost));
        (copy, to)
    }

    pub fn begins(&self, watch: &Arc<Watch>) {
        locked(&self.known).watch = Arc::downgrade(watch);
    }

    /// What is known of it now, as a record, and how far it has come.
    pub fn record(&self) -> (Record, Progress) {
        let known = locked(&self.known);
        let mut record = known.record.clone();
        let now = clock::now();
        let watch = known.watch.upgrade();
        record.moved.bytes = watch.as_ref().map_or(0, |watch| moved(watch));
        record.moved.elapsed_s = now.since(self.began).seconds();
        let moving_s = now.since(known.still_at).seconds();
        record.moved.goodput_bytes_per_s = record.moved.bytes as f64 / moving_s.max(1e-3);
        record.paths.clone_from(&known.paths);
        record.series = known.series.points().to_vec();
        (record, watch.as_deref().map(progress).unwrap_or_default())
    }

    fn run(&self, parts: &Receiver<StreamPath>, cost: &Cost) {
        let mut counted = clock::thread_cpu();
        let mut look_at = self.began;
        loop {
            let part = parts.recv_timeout(look_at.since(clock::now()).into());
            let mut known = locked(&self.known);
            match part {
                Ok(part) => known.take(part),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            let now = clock::now();
            if now >= look_at {
                look_at = now.after(LOOK_EVERY);
                if let Some(watch) = known.watch.upgrade() {
                    let moved = moved(&watch);
                    known.series.add(now.since(self.began), moved);
                    if moved == 0 {
                        known.still_at = now;
                    }
                }
                let spent = clock::thread_cpu();
                cost.add(spent - mem::replace(&mut counted, spent));
            }
        }
    }
}

fn progress(watch: &Watch) -> Progress {
    let gauge = &watch.gauge;
    let is_endless = gauge.endless.load(Relaxed);
    Progress {
        bytes_done: gauge.bytes_done.load(Relaxed),
        bytes_found: (!is_endless).then(|| gauge.bytes_found.load(Relaxed)),
        all_found: gauge.walk_done.load(Relaxed) && gauge.answered.load(Relaxed),
    }
}

fn moved(watch: &Watch) -> u64 {
    let gauge = &watch.gauge;
    gauge.bytes_done.load(Relaxed).saturating_sub(gauge.bytes_held.load(Relaxed))
}

impl Known {
    fn take(&mut self, part: StreamPath) {
        let is_same = |known: &&mut StreamPath| {
            (known.stream, known.side, known.role) == (part.stream, part.side, part.role)
        };
        match self.paths.iter_mut().find(is_same) {
            Some(known) => add(&mut known.samples, part.samples, self.apart),
            None => self.paths.push(part),
        }
        while self.count() > SAMPLES_MAX {
            let first = self.paths.iter().filter_map(|path| path.samples.first()).map(|s| s.at);
            let last = self.paths.iter().filter_map(|path| path.samples.last()).map(|s| s.at);
            let span = last.max().zip(first.min()).map_or(Nanos(0), |(to, from)| to.since(from));
            let share = self.paths.len() as u64 * span.0 / SAMPLES_MAX as u64;
            self.apart = Nanos((2 * self.apart.0).max(share).max(1));
            for path in &mut self.paths {
                let all = mem::take(&mut path.samples);
                add(&mut path.samples, all, self.apart);
            }
        }
    }

    fn count(&self) -> usize {
        self.paths.iter().map(|path| path.samples.len()).sum()
    }
}

/// Adds those that are so far apart, also from the last one. They have counters, so that those
/// between are in the sums.
fn add(kept: &mut Vec<PathSample>, more: Vec<PathSample>, apart: Nanos) {
    for sample in more {
        if kept.last().is_none_or(|last| sample.at.since(last.at) >= apart) {
            kept.push(sample);
        }
    }
}

const LOOK_EVERY: Nanos = Nanos::from_millis(250);
/// Of all streams and sides together: 64 streams have 32 each at least.
const SAMPLES_MAX: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;
    use base::job::{PathRole, PathSide};

    /// However many samples come, few are kept, over the whole time, of each stream.
    #[test]
    fn what_is_kept_is_bounded_and_of_the_whole_time() {
        let mut known = Known::default();
        let part = |stream: u32, from: u64| StreamPath {
            stream,
            side: PathSide::Near,
            role: PathRole::Source,
            samples: (from..from + 10)
                .map(|at| PathSample { at: Tick(at), ..PathSample::default() })
                .collect(),
        };
        let parts = 10_000;
        for at in 0..parts {
            (0..4).for_each(|stream| known.take(part(stream, at * 10)));
            let count: usize = known.paths.iter().map(|path| path.samples.len()).sum();
            assert!(count <= SAMPLES_MAX, "{count}");
        }
        assert_eq!(known.paths.len(), 4);
        for path in &known.paths {
            let at: Vec<u64> = path.samples.iter().map(|sample| sample.at.0).collect();
            let widest = at.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap();
            assert!(at.len() > SAMPLES_MAX / 20, "{}", at.len());
            assert!(at[0] == 0 && widest < parts * 10 / 100, "{widest}: {at:?}");
            assert!(parts * 10 - at[at.len() - 1] < parts * 10 / 100, "{at:?}");
        }
    }
}
