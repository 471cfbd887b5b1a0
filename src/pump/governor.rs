//! Chooses the pace of a transfer's streams from what TCP says of them: numbers in, a number out.
//!
//! A sender that is not paced sends what its window allows as fast as its host can. Where a queue
//! on the path is shorter than such a burst, much of it is lost at once, the congestion control
//! takes that for a full path, and most of the path stays empty. Spaced a little below what the
//! path delivers, the same bytes are not lost. So a pace is set once bursts have been lost on a
//! path whose queue is short, and it is raised for as long as nothing is lost by that. What loses a
//! segment now and then, or has a queue that fills, is not helped by it and is left alone.

use std::collections::BTreeMap;

use crate::base::path::PathSample;
use crate::base::units::{Nanos, Tick};

/// The pace of all streams of a transfer together.
#[derive(Debug, Default)]
pub struct Governor {
    streams: BTreeMap<u32, Stream>,
    /// The most that the path has delivered, smoothed, in bytes a second.
    highest: f64,
    /// When a burst was lost while there was no pace.
    burst_at: Option<Tick>,
    bursts: u32,
    pace: Option<f64>,
    period: Option<Period>,
    /// When a pace that loses nothing is raised to see whether the path carries more.
    raise_at: Tick,
    /// The pace before it was raised; `None` where it is not being tried.
    before_raise: Option<f64>,
}

/// What is remembered of one stream.
#[derive(Debug)]
struct Stream {
    last: PathSample,
    /// Its delivery rate, smoothed over a few round trips.
    rate: f64,
    /// Segments that were sent again since the last quiet while, and when the last of them was.
    episode_segments: u64,
    lost_at: Tick,
}

/// What has happened since the pace was last judged.
#[derive(Debug)]
struct Period {
    since: Tick,
    acked_bytes: u64,
    burst_was_lost: bool,
}

impl Governor {
    /// Takes a look at all streams; the pace of all together in bytes a second, `None` for none.
    pub fn look(&mut self, now: Tick, samples: &[(u32, PathSample)]) -> Option<u64> {
        self.streams.retain(|number, _| samples.iter().any(|(other, _)| other == number));
        let mut acked_bytes = 0;
        let mut burst_was_lost = false;
        for (number, sample) in samples {
            let Some(stream) = self.streams.get_mut(number) else {
                self.streams.insert(*number, Stream::new(*sample));
                continue;
            };
            acked_bytes += sample.bytes_acked.saturating_sub(stream.last.bytes_acked);
            burst_was_lost |= stream.see(sample);
        }
        let rate: f64 = self.streams.values().map(|stream| stream.rate).sum();
        self.highest = self.highest.max(rate);
        let period = self.period.get_or_insert(Period::new(now));
        period.acked_bytes += acked_bytes;
        period.burst_was_lost |= burst_was_lost;
        let failed = self.before_raise.is_some() && period.burst_was_lost;
        let rtt = samples.iter().map(|(_, sample)| sample.rtt).max().unwrap_or(Nanos(0));
        let length = PERIOD_MIN.max(Nanos(rtt.0.saturating_mul(PERIOD_RTTS)));
        let is_over = now.since(period.since) >= length;
        match self.pace {
            None => self.wait_for_bursts(now, burst_was_lost, length),
            Some(pace) if is_over || failed => self.judge(now, pace),
            Some(_) => {}
        }
        self.pace.map(|pace| pace as u64)
    }

    /// The first burst that is lost ends slow start, and says little about the path. A pace begins
    /// behind the second, when what was lost has been sent again: what is lost until then was not
    /// paced.
    fn wait_for_bursts(&mut self, now: Tick, burst_was_lost: bool, length: Nanos) {
        if burst_was_lost {
            self.burst_at.get_or_insert(now);
        }
        let Some(burst_at) = self.burst_at else { return };
        let is_mended = self.streams.values().all(|stream| stream.is_mended(now));
        if !is_mended && now.since(burst_at).0 < length.0 * 3 {
            return;
        }
        self.burst_at = None;
        self.bursts += 1;
        if self.bursts >= BURSTS && self.highest > 0.0 {
            self.pace = Some(self.highest * BELOW_HIGHEST);
            self.raise_at = now.after(RAISE_FIRST_AFTER);
        }
        self.begin_period();
    }

    /// A period is over.
    fn judge(&mut self, now: Tick, pace: f64) {
        let Some(period) = self.period.take() else { return };
        let spent = now.since(period.since);
        let rate = period.acked_bytes as f64 / spent.seconds().max(1e-9);
        let reached = rate >= pace * REACHED;
        match self.before_raise.take() {
            // Back to what lost nothing, for long.
            Some(before) if period.burst_was_lost || !reached => {
                self.pace = Some(before);
                self.raise_at = now.after(RAISE_EVERY);
            }
            // It carries more: on from there at once.
            Some(_) => self.raise(pace),
            None if period.burst_was_lost => {
                // The highest rate was no measure, or the path has become slower.
                self.pace = Some(pace * BELOW_HIGHEST);
                self.raise_at = now.after(RAISE_EVERY);
            }
            None if reached && now >= self.raise_at => self.raise(pace),
            None => {}
        }
        self.begin_period();
    }

    fn raise(&mut self, pace: f64) {
        self.before_raise = Some(pace);
        self.pace = Some(pace * RAISED);
    }

    fn begin_period(&mut self) {
        self.period = None;
        self.streams.values_mut().for_each(Stream::forgive);
    }
}

impl Stream {
    fn new(sample: PathSample) -> Stream {
        Stream { last: sample, rate: 0.0, episode_segments: 0, lost_at: Tick(0) }
    }

    /// True when a burst has been lost where the path's queue is short.
    fn see(&mut self, sample: &PathSample) -> bool {
        let last = std::mem::replace(&mut self.last, *sample);
        let spent = sample.at.since(last.at);
        let again = sample.segments_retransmitted.saturating_sub(last.segments_retransmitted);
        if again > 0 {
            self.lost_at = sample.at;
            self.episode_segments += again;
        } else if self.is_mended(sample.at) {
            self.episode_segments = 0;
        }
        if sample.bytes_acked > last.bytes_acked {
            let over = (sample.rtt.0 * SMOOTHED_RTTS).max(1);
            let share = (spent.0 as f64 / over as f64).min(1.0);
            self.rate += (sample.delivery_bytes_per_s as f64 - self.rate) * share;
        } else if self.is_mended(sample.at) {
            self.rate = 0.0;
        }
        let queue_is_short = (sample.rtt.0 as f64) < sample.rtt_min.0 as f64 * QUEUE_SHORT;
        self.episode_segments > BURST_SEGMENTS && queue_is_short
    }

    /// True when nothing has been sent again for a few round trips.
    fn is_mended(&self, now: Tick) -> bool {
        now.since(self.lost_at).0 > self.last.rtt.0 * MENDED_RTTS
    }

    fn forgive(&mut self) {
        self.episode_segments = 0;
    }
}

impl Period {
    fn new(now: Tick) -> Period {
        Period { since: now, acked_bytes: 0, burst_was_lost: false }
    }
}

/// So many of them are lost before there is a pace.
const BURSTS: u32 = 2;
/// More segments than this, sent again in a row, were a burst.
const BURST_SEGMENTS: u64 = 10;
/// A round trip that is longer than the least by this factor has met a queue that is not short.
const QUEUE_SHORT: f64 = 1.25;
/// Delivery rates are smoothed over so many round trips.
const SMOOTHED_RTTS: u64 = 2;
/// What was lost has been sent again when nothing was for so many round trips.
const MENDED_RTTS: u64 = 2;
/// Where the pace begins, below the highest rate, and what is left of it when that was too much.
const BELOW_HIGHEST: f64 = 0.9;
/// A pace holds the streams back when they reach this share of it.
const REACHED: f64 = 0.9;
/// A pace is judged after this time and so many round trips, whichever is longer.
const PERIOD_MIN: Nanos = Nanos::from_millis(1000);
const PERIOD_RTTS: u64 = 10;
/// How soon a pace that loses nothing is raised, how often when that has failed, and by what.
const RAISE_FIRST_AFTER: Nanos = Nanos::from_millis(3_000);
const RAISE_EVERY: Nanos = Nanos::from_millis(30_000);
const RAISED: f64 = 1.06;

#[cfg(test)]
mod tests {
    use super::*;

    const MSS: f64 = 1448.0;

    /// A path of 100 Mbit/s of payload and 100 ms, with a queue, as one stream meets it: what is
    /// sent faster than it drains is lost once the queue is full.
    struct Link {
        capacity: f64,
        queue_bytes: f64,
        /// What the stream sends while nothing holds it: its bursts, and how they repeat.
        unpaced: fn(u64) -> f64,
        waits: f64,
        lost_bytes: f64,
        sample: PathSample,
    }

    const STEP_MS: u64 = 10;
    const CAPACITY: f64 = 12.0e6;

    impl Link {
        fn new(queue_bytes: f64, unpaced: fn(u64) -> f64) -> Link {
            let rtt = Nanos::from_millis(100);
            let sample = PathSample { rtt, rtt_min: rtt, ..PathSample::default() };
            Link { capacity: CAPACITY, queue_bytes, unpaced, waits: 0.0, lost_bytes: 0.0, sample }
        }

        /// The next 10 ms at a pace.
        fn step(&mut self, pace: Option<u64>) -> PathSample {
            let seconds = STEP_MS as f64 / 1e3;
            let step = self.sample.at.0 / (STEP_MS * 1_000_000);
            let offered = (self.unpaced)(step).min(pace.map_or(f64::MAX, |pace| pace as f64));
            let sample = &mut self.sample;
            self.waits += (offered - self.capacity) * seconds;
            let lost = (self.waits - self.queue_bytes).max(0.0);
            self.waits = self.waits.clamp(0.0, self.queue_bytes);
            let delivered = (offered * seconds - lost).min(self.capacity * seconds);
            sample.at = sample.at.after(Nanos::from_millis(STEP_MS));
            sample.rtt = Nanos(sample.rtt_min.0 + (self.waits / self.capacity * 1e9) as u64);
            sample.bytes_acked += delivered as u64;
            sample.bytes_sent += (offered * seconds) as u64;
            self.lost_bytes += lost;
            sample.segments_retransmitted = (self.lost_bytes / MSS) as u64;
            sample.delivery_bytes_per_s = (delivered / seconds) as u64;
            *sample
        }

        /// So many seconds with a governor; the pace at the end.
        fn run(&mut self, governor: &mut Governor, seconds: u64) -> Option<u64> {
            let mut pace = None;
            for _ in 0..seconds * 1000 / STEP_MS {
                let sample = self.step(pace);
                pace = governor.look(sample.at, &[(0, sample)]);
            }
            pace
        }
    }

    /// Fills the path, then a burst of a window at the host's own speed, once in two seconds.
    fn bursts(step: u64) -> f64 {
        if step % 200 < 3 && step > 100 { 100e6 } else { 11.9e6 }
    }

    /// As much as the window allows, a little more than the path carries.
    fn steady(_: u64) -> f64 {
        12.2e6
    }

    fn slow(_: u64) -> f64 {
        5e6
    }

    #[test]
    fn a_pace_is_set_where_bursts_are_lost_and_the_queue_is_short() {
        type Case = (&'static str, f64, fn(u64) -> f64, Option<(f64, f64)>);
        let cases: [Case; 4] = [
            ("bursts, a short queue", 64e3, bursts, Some((0.85, 1.1))),
            ("bursts, a deep queue", 6e6, bursts, None),
            ("a little more than it carries, a deep queue", 3e6, steady, None),
            ("less than it carries", 64e3, slow, None),
        ];
        for (name, queue_bytes, unpaced, expect) in cases {
            let mut governor = Governor::default();
            let pace = Link::new(queue_bytes, unpaced).run(&mut governor, 60);
            let share = pace.map(|pace| pace as f64 / CAPACITY);
            match (share, expect) {
                (None, None) => {}
                (Some(share), Some((low, high))) => {
                    assert!((low..=high).contains(&share), "{name}: {share:.3} of the path");
                }
                other => panic!("{name}: {other:?}"),
            }
        }
    }

    #[test]
    fn a_pace_follows_a_path_that_becomes_faster_or_slower() {
        let mut governor = Governor::default();
        let mut link = Link::new(64e3, |step| if step % 200 < 3 { 100e6 } else { 30e6 });
        let before = link.run(&mut governor, 20).unwrap() as f64;
        assert!((0.8..=1.02).contains(&(before / CAPACITY)), "{before}");
        link.capacity = CAPACITY / 2.0;
        let slower = link.run(&mut governor, 20).unwrap() as f64;
        assert!((0.7..=1.02).contains(&(slower / link.capacity)), "{slower}");
        link.capacity = CAPACITY * 1.5;
        let faster = link.run(&mut governor, 200).unwrap() as f64;
        assert!((0.85..=1.02).contains(&(faster / link.capacity)), "{faster}");
    }

    #[test]
    fn a_segment_lost_now_and_then_is_no_burst() {
        let mut governor = Governor::default();
        let rtt = Nanos::from_millis(100);
        let mut sample = PathSample { rtt, rtt_min: rtt, ..PathSample::default() };
        for step in 0..10_000_u64 {
            sample.at = sample.at.after(Nanos::from_millis(STEP_MS));
            sample.bytes_acked += 10_000;
            sample.delivery_bytes_per_s = 1_000_000;
            sample.segments_retransmitted += u64::from(step % 50 == 0) * 3;
            assert_eq!(governor.look(sample.at, &[(0, sample)]), None, "step {step}");
        }
    }

    #[test]
    fn streams_that_come_and_go_are_added_up() {
        let mut governor = Governor::default();
        let mut links: Vec<Link> = (0..4).map(|_| Link::new(16e3, bursts)).collect();
        links.iter_mut().for_each(|link| link.capacity = CAPACITY / 4.0);
        let mut pace = None;
        for step in 0..1000 {
            let count = if step < 500 { 4 } else { 3 };
            let each = pace.map(|pace| pace / count as u64);
            let samples: Vec<(u32, PathSample)> =
                (0..count as u32).zip(links.iter_mut().map(|link| link.step(each))).collect();
            pace = governor.look(samples[0].1.at, &samples);
        }
        let share = pace.unwrap() as f64 / (CAPACITY * 3.0 / 4.0);
        assert!((0.8..=1.1).contains(&share), "{share:.3} of the path");
    }
}
