//! Recovery episodes: from the first sign of a loss until the recovery is over.

use serde::Serialize;

use super::series::{Series, Step, share, sum};
use crate::statistics::{Spread, median};

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Episode {
    /// Since the first sample of the stream.
    pub at_s: f64,
    pub length_s: f64,
    pub retransmitted_segments: u64,
    /// Bytes acknowledged since the episode before began, or since the first sample.
    pub bytes_before: u64,
    /// The congestion window just before.
    pub cwnd_segments: u32,
    /// The rate in the round trip before, and the lowest of the three after.
    pub peak_bytes_per_s: f64,
    pub trough_bytes_per_s: f64,
    /// A retransmission timeout began it; and the longest time without an acknowledgement.
    pub timed_out: bool,
    pub silent_s: f64,
}

impl Episode {
    /// Nothing got through for a while, so most of a window was lost.
    fn is_silence(&self) -> bool {
        let most = (u64::from(self.cwnd_segments) / 3).max(SILENCE_SEGMENTS_MIN);
        self.timed_out && self.retransmitted_segments >= most
    }
}

/// Statistics of all episodes of a stream.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Losses {
    pub episodes: usize,
    pub retransmitted_segments: u64,
    pub segments_sent: u64,
    /// Of the whole stream, as samples count them: under marks of congestion, twice at the
    /// receiver, overtaken, and timeouts.
    pub segments_marked: u64,
    pub segments_duplicate: u64,
    pub reorderings: u64,
    pub timeouts: u64,
    /// Median of the retransmitted segments of an episode.
    pub per_episode: f64,
    pub bytes_between: Option<Spread>,
    /// Episodes per segment sent: what a congestion control reacts to.
    pub rate: f64,
    /// Episodes that only a timeout detected and that lost most of a window; and their share of all
    /// retransmitted segments.
    pub silences: usize,
    pub of_silences: f64,
    /// Time without acknowledgements in those episodes, as a share of all time.
    pub silent: f64,
    /// How far the rate fell, 0 to 1: the median of 1 - trough / peak.
    pub depth: f64,
}

impl Losses {
    /// Segments that were sent again, as a share of all that were sent, these included.
    pub fn retransmitted(&self) -> f64 {
        share(self.retransmitted_segments as f64, self.segments_sent as f64)
    }

    /// The same, where enough were sent that it says something of the path.
    pub fn retransmitted_of_many(&self) -> Option<f64> {
        (self.segments_sent >= SEGMENTS_MIN).then(|| self.retransmitted())
    }
}

/// So that one segment which is sent again is 0.03 %: a copy with nothing to move sends two or
/// three, of which the last is often sent again, as its probe at the end.
const SEGMENTS_MIN: u64 = 3000;

/// A loss shows as a retransmission, or as the kernel's recovery state. A lower threshold alone is
/// no loss: slow start also ends with one (HyStart).
pub fn episodes(series: &Series, round_trip_s: f64) -> Vec<Episode> {
    let mut found: Vec<Episode> = Vec::new();
    let mut last_sign_s = f64::NEG_INFINITY;
    let mut acked_since = 0u64;
    let mut acked_s = 0.0;
    for step in series.steps() {
        let acked = step.grown(|sample| sample.bytes_acked);
        let silent_s = step.to_s - acked_s;
        acked_s = if acked > 0 { step.to_s } else { acked_s };
        acked_since = acked_since.saturating_add(acked);
        let again = step.grown(|sample| sample.segments_retransmitted);
        let recovering = step.after.state >= RECOVERY;
        let entered = recovering && step.before.state < RECOVERY;
        if again == 0 && !recovering {
            continue;
        }
        let apart_s = step.to_s - last_sign_s;
        // After a timeout one segment is sent alone, and its acknowledgement takes a round trip.
        let trips = if found.last().is_some_and(|last| last.timed_out) { 3.0 } else { 1.0 };
        // Where samples are far apart, signs cannot be closer than the samples are.
        let gap_s = (trips * round_trip(&step, round_trip_s)).max(step.seconds() * 1.5);
        let goes_on = apart_s < gap_s || (recovering && !entered);
        match found.last_mut().filter(|_| goes_on) {
            Some(episode) => {
                episode.retransmitted_segments =
                    episode.retransmitted_segments.saturating_add(again);
                episode.length_s = step.to_s - episode.at_s;
                episode.timed_out |= times_out(&step);
                episode.silent_s = episode.silent_s.max(silent_s);
            }
            None => {
                let begun = begin(series, &step, again, acked_since, round_trip_s);
                found.push(Episode { silent_s, ..begun });
                acked_since = 0;
            }
        }
        last_sign_s = step.to_s;
    }
    found.retain(|episode| episode.retransmitted_segments > 0);
    found
}

/// When a burst overflows a queue, some segments arrive, and their acknowledgements start the
/// recovery. If only a timeout starts it, nothing got through.
fn times_out(step: &Step<'_>) -> bool {
    step.before.state < RECOVERY && step.after.state == LOSS
}

fn begin(series: &Series, step: &Step<'_>, again: u64, acked: u64, round_trip_s: f64) -> Episode {
    let at_s = (step.from_s + step.to_s) / 2.0;
    let span_s = round_trip_s.max(step.seconds());
    let behind = (0..3).map(|trip| {
        let from_s = step.to_s + f64::from(trip) * span_s;
        series.rate_between(from_s, from_s + span_s)
    });
    Episode {
        at_s,
        length_s: step.to_s - at_s,
        retransmitted_segments: again,
        bytes_before: acked,
        cwnd_segments: step.before.cwnd_segments,
        peak_bytes_per_s: series.rate_between(at_s - span_s, at_s),
        trough_bytes_per_s: behind.fold(f64::INFINITY, f64::min),
        timed_out: times_out(step),
        silent_s: 0.0,
    }
}

/// The smoothed round trip of a step, or the least one where it is unknown.
fn round_trip(step: &Step<'_>, least_s: f64) -> f64 {
    step.after.rtt.seconds().clamp(least_s, 10.0 * least_s.max(1e-6))
}

pub fn losses(series: &Series, episodes: &[Episode]) -> Losses {
    let again: Vec<f64> = episodes.iter().map(|e| e.retransmitted_segments as f64).collect();
    let between: Vec<f64> = episodes.iter().skip(1).map(|e| e.bytes_before as f64).collect();
    let depths: Vec<f64> = episodes
        .iter()
        .filter(|e| e.peak_bytes_per_s > 0.0)
        .map(|e| (1.0 - e.trough_bytes_per_s / e.peak_bytes_per_s).clamp(0.0, 1.0))
        .collect();
    let sent = series.grown(|sample| sample.segments_sent);
    let silences = || episodes.iter().filter(|episode| episode.is_silence());
    let all = sum(episodes.iter().map(|episode| episode.retransmitted_segments));
    Losses {
        episodes: episodes.len(),
        retransmitted_segments: series.grown(|sample| sample.segments_retransmitted),
        segments_marked: series.grown(|sample| sample.segments_marked),
        segments_duplicate: series.grown(|sample| sample.segments_duplicate),
        reorderings: series.grown(|sample| sample.reorderings),
        timeouts: series.grown(|sample| sample.timeouts),
        segments_sent: sent,
        per_episode: median(&again).unwrap_or(0.0),
        bytes_between: Spread::of(&between),
        rate: share(episodes.len() as f64, sent as f64),
        silences: silences().count(),
        of_silences: share(sum(silences().map(|e| e.retransmitted_segments)) as f64, all as f64),
        silent: share(silences().map(|episode| episode.silent_s).sum(), series.seconds()),
        depth: median(&depths).unwrap_or(0.0),
    }
}

/// The sum of the congestion windows of all streams, when episodes began.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct WindowAtLoss {
    pub episodes: usize,
    pub bytes: f64,
    /// Deviation over median. A queue overflows at about the same number of bytes each time, random
    /// loss does not.
    pub variation: f64,
}

/// `None` for a single episode, which has no variation.
pub(crate) fn window_at_loss(streams: &[(&Series, &[Episode])]) -> Option<WindowAtLoss> {
    // Slow start overshoots the capacity of the path, so the beginning does not count.
    let times = streams.iter().flat_map(|(series, episodes)| {
        let origin_s = series.origin_s();
        let late = move |episode: &&Episode| episode.at_s >= 0.1 * series.seconds();
        episodes.iter().filter(late).map(move |episode| origin_s + episode.at_s)
    });
    let window_at = |series: &Series, at_s: f64| {
        let samples = series.samples();
        let behind = samples.partition_point(|sample| sample.at.0 as f64 / 1e9 <= at_s);
        let sample = behind.checked_sub(1).map(|index| &samples[index]);
        sample.map_or(0.0, |s| f64::from(s.cwnd_segments) * f64::from(s.mss_bytes))
    };
    let total = |at_s: f64| streams.iter().map(|(series, _)| window_at(series, at_s)).sum::<f64>();
    let windows: Vec<f64> = times.map(total).collect();
    let spread = Spread::of(&windows).filter(|spread| spread.n >= 2 && spread.median > 0.0)?;
    // In a normal distribution the quartiles are 1.349 deviations apart.
    let deviation = spread.interquartile_range() / 1.349;
    Some(WindowAtLoss {
        episodes: spread.n,
        bytes: spread.median,
        variation: deviation / spread.median,
    })
}

/// The kernel's congestion states for losses: 3 is recovery, 4 is loss.
const RECOVERY: u8 = 3;
const LOSS: u8 = 4;
const SILENCE_SEGMENTS_MIN: u64 = 4;
