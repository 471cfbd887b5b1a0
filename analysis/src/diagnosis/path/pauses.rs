//! Pauses, in which a stream had nothing to send, and what follows them: bursts, losses, a period.

use serde::Serialize;

use super::episodes::Episode;
use super::series::{Series, Step, farewell, share, sum};
use crate::statistics::{Spread, median};
use base::path::PathSample;
use base::units::Nanos;

/// A time between two sends in which no data was queued to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Pause {
    /// Since the first sample of the stream.
    pub at_s: f64,
    pub length_s: f64,
    /// New bytes that were sent between the previous pause, or the beginning, and this one.
    pub bytes_before: u64,
    pub waiting: Waiting,
    pub burst: Option<Burst>,
}

/// What the lane waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Waiting {
    /// For the peer: no credit, nothing offered, nothing wanted.
    Peer,
    Source,
    Passage,
    /// In send, though TCP has nothing to send: the send buffer has no free space for it.
    Send,
    /// The lane's clocks do not show it.
    Unknown,
}

impl Waiting {
    /// The lane's clock that runs during such a wait.
    fn clock(self) -> Option<fn(&PathSample) -> Nanos> {
        match self {
            Waiting::Peer => Some(|sample| sample.clocks.idle),
            Waiting::Source => Some(|sample| sample.clocks.source),
            Waiting::Passage => Some(|sample| sample.clocks.passage),
            Waiting::Send => Some(|sample| sample.clocks.sink),
            Waiting::Unknown => None,
        }
    }
}

/// What was sent at once after a pause.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Burst {
    pub bytes: u64,
    /// As a share of what the congestion window and the peer's window allowed.
    pub of_window: f64,
}

/// Statistics of all pauses of a stream.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct PauseStats {
    pub count: usize,
    pub total_s: f64,
    pub median_length_s: f64,
    /// New bytes from one pause to the next; `None` for fewer than two pauses.
    pub bytes_between: Option<Spread>,
    pub bursts: usize,
    /// Probability that an episode begins within three round trips of a pause's end, or anytime.
    pub episode_after_pause: f64,
    pub episode_anytime: f64,
    /// The number of episodes that begin there.
    pub episodes_after_pause: usize,
    /// The pauses cause the losses: three times as likely as at any time, over three pauses.
    pub causes_losses: bool,
}

/// True for a step in which nothing was sent, and nothing was queued or to be retransmitted.
fn quiet(step: &Step<'_>) -> bool {
    let unsent = step.before.unsent_bytes.max(step.after.unsent_bytes);
    let pending = step.after.lost_segments > 0 || step.after.state >= 3;
    step.grown(|sample| sample.bytes_sent) == 0 && unsent == 0 && !pending
}

pub fn pauses(series: &Series, round_trip_s: f64) -> Vec<Pause> {
    let steps: Vec<Step<'_>> = series.steps().collect();
    let sent = |step: &Step<'_>| step.grown(|sample| sample.bytes_sent) > 0;
    // No pause is before the first byte or after the last; the end message is no data.
    let steps = &steps[..farewell(&steps).unwrap_or(steps.len())];
    let (Some(first), Some(last)) = (steps.iter().position(sent), steps.iter().rposition(sent))
    else {
        return Vec::new();
    };
    let mut found = Vec::new();
    let mut index = first;
    let mut since = first;
    while index < last {
        let end = index + steps[index..=last].iter().take_while(|step| quiet(step)).count();
        if end > index {
            let span = Span { steps, first: index, end };
            if let Some(pause) = span.pause(since, round_trip_s) {
                found.push(pause);
                since = end;
            }
        }
        index = end.max(index) + 1;
    }
    found
}

/// Consecutive quiet steps, from `first` to before `end`, between two steps that send.
struct Span<'a> {
    steps: &'a [Step<'a>],
    first: usize,
    end: usize,
}

impl Span<'_> {
    fn pause(&self, since: usize, round_trip_s: f64) -> Option<Pause> {
        let quiet = &self.steps[self.first..self.end];
        let (from_s, to_s) = (quiet[0].from_s, quiet[quiet.len() - 1].to_s);
        let empty_s: f64 = quiet
            .iter()
            .filter(|step| step.before.unacked_segments == 0 && step.after.unacked_segments == 0)
            .map(Step::seconds)
            .sum();
        let long = (round_trip_s / 2.0).max(PAUSE_SECONDS_MIN);
        if empty_s < long && to_s - from_s < (1.5 * round_trip_s).max(PAUSE_SECONDS_MIN) {
            return None;
        }
        // The last send is somewhere in the step before, the next one in the step after; a step
        // that is longer than a round trip does not show where.
        let middle = |step: &Step<'_>| step.seconds().min(round_trip_s / 4.0) / 2.0;
        let waiting = waiting(quiet, to_s - from_s);
        let before = self.first.checked_sub(1).and_then(|index| self.steps.get(index));
        let before_s = before.map_or(0.0, middle);
        // The pause ends when what the lane waited for is there: then that clock stops.
        let behind_s = self.steps.get(self.end).map_or(0.0, |step| match waiting.clock() {
            Some(clock) if waiting != Waiting::Send => step.ran(clock).min(step.seconds()),
            _ => middle(step),
        });
        Some(Pause {
            at_s: from_s - before_s,
            length_s: to_s - from_s + before_s + behind_s,
            bytes_before: sum(self.steps[since..self.first].iter().map(new_bytes)),
            waiting,
            burst: self.burst(round_trip_s),
        })
    }

    /// What was sent in the first quarter of a round trip, at least in the first step.
    fn burst(&self, round_trip_s: f64) -> Option<Burst> {
        let next = self.steps.get(self.end)?;
        let until_s = next.from_s + (round_trip_s / 4.0).max(next.seconds());
        let within = self.steps[self.end..].iter().take_while(|step| step.to_s <= until_s + 1e-9);
        let bytes = sum(within.map(|step| step.grown(|sample| sample.bytes_sent)));
        let cwnd = f64::from(next.before.cwnd_segments) * f64::from(next.before.mss_bytes);
        let window = cwnd.min(f64::from(next.before.peer_window_bytes));
        let of_window = if window > 0.0 { bytes as f64 / window } else { 0.0 };
        (of_window >= BURST_SHARE_MIN).then_some(Burst { bytes, of_window })
    }
}

/// Without retransmitted bytes, which also count as sent.
fn new_bytes(step: &Step<'_>) -> u64 {
    let sent = step.grown(|sample| sample.bytes_sent);
    sent.saturating_sub(step.grown(|sample| sample.bytes_retransmitted))
}

fn waiting(quiet: &[Step<'_>], length_s: f64) -> Waiting {
    let ran = |waiting: Waiting| {
        waiting.clock().map_or(0.0, |clock| quiet.iter().map(|step| step.ran(clock)).sum())
    };
    let all = [Waiting::Peer, Waiting::Source, Waiting::Passage, Waiting::Send];
    let most = all.into_iter().max_by(|a, b| ran(*a).total_cmp(&ran(*b)));
    most.filter(|most| ran(*most) >= 0.5 * length_s).unwrap_or(Waiting::Unknown)
}

/// Statistics of the pauses of a stream, and whether its episodes follow them.
pub(crate) fn habit(
    pauses: &[Pause],
    episodes: &[Episode],
    seconds: f64,
    round_trip_s: f64,
) -> PauseStats {
    let lengths: Vec<f64> = pauses.iter().map(|pause| pause.length_s).collect();
    // The bytes before the first pause may have begun before the first sample: they are left out.
    let between: Vec<f64> = pauses.iter().skip(1).map(|pause| pause.bytes_before as f64).collect();
    let reach_s = LINK_ROUND_TRIPS * round_trip_s;
    let ends = || pauses.iter().map(|pause| pause.at_s + pause.length_s);
    // Pause limits are exact to half a sample, so an episode may seem to begin a bit early.
    let follows = |end: f64, episode: &Episode| {
        (end - round_trip_s / 4.0..=end + reach_s).contains(&episode.at_s)
    };
    let hit = ends().filter(|end| episodes.iter().any(|episode| follows(*end, episode))).count();
    let after = episodes.iter().filter(|episode| ends().any(|end| follows(end, episode))).count();
    let per_second = if seconds > 0.0 { episodes.len() as f64 / seconds } else { 0.0 };
    let episode_after_pause = share(hit as f64, pauses.len() as f64);
    let episode_anytime = (per_second * reach_s).clamp(0.0, 1.0);
    PauseStats {
        count: pauses.len(),
        total_s: lengths.iter().sum(),
        median_length_s: median(&lengths).unwrap_or(0.0),
        bytes_between: Spread::of(&between),
        bursts: pauses.iter().filter(|pause| pause.burst.is_some()).count(),
        episode_after_pause,
        episode_anytime,
        episodes_after_pause: after,
        causes_losses: pauses.len() >= LINK_PAUSES_MIN
            && after >= LINK_PAUSES_MIN
            && episode_after_pause >= LINK_RATIO_MIN * episode_anytime,
    }
}

/// A number of bytes after which pauses repeat, and its cause.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Period {
    pub bytes: u64,
    pub what: String,
}

/// The period of pauses, where it is regular: a known block size, or else a power of two. Several
/// streams that pause together share a block.
pub fn period(bytes: &Spread, sharing: usize, blocks: &[(String, u64)]) -> Option<Period> {
    let regular = bytes.n >= 2 && bytes.interquartile_range() <= PERIOD_SLACK * bytes.median;
    if !regular || bytes.median < PERIOD_BYTES_MIN {
        return None;
    }
    let counts = if sharing > 1 { vec![sharing as f64, 1.0] } else { vec![1.0] };
    for count in &counts {
        let seen = bytes.median * count;
        let near = |block: u64| (seen / block as f64 - 1.0).abs() <= PERIOD_SLACK;
        if let Some((what, block)) = blocks.iter().find(|(_, block)| *block > 0 && near(*block)) {
            return Some(Period { bytes: *block, what: what.clone() });
        }
    }
    let seen = bytes.median * counts[0];
    let power = seen.log2().round().clamp(0.0, 62.0);
    let block = 2f64.powf(power);
    let near = (seen / block - 1.0).abs() <= PERIOD_SLACK;
    near.then(|| Period { bytes: block as u64, what: "a power of two".to_string() })
}

/// The period of a few pauses, including the first, where a block size that the user asked for (a
/// lockstep, not a request) explains it.
pub fn told(pauses: &[Pause], sharing: usize, blocks: &[(String, u64)]) -> Option<Period> {
    let bytes: Vec<f64> = pauses.iter().map(|pause| pause.bytes_before as f64).collect();
    let seen = median(&bytes)?;
    let near = |count: f64, block: u64| (seen * count / block as f64 - 1.0).abs() <= PERIOD_SLACK;
    let told = |(what, block): &&(String, u64)| {
        what == LOCKSTEP && *block > 0 && (near(1.0, *block) || near(sharing as f64, *block))
    };
    let (what, block) = blocks.iter().find(told)?;
    Some(Period { bytes: *block, what: what.clone() })
}

/// The name of stops that the user asked for.
pub const LOCKSTEP: &str = "the lockstep";
const PAUSE_SECONDS_MIN: f64 = 0.020;
const BURST_SHARE_MIN: f64 = 0.5;
const LINK_ROUND_TRIPS: f64 = 3.0;
const LINK_PAUSES_MIN: usize = 3;
const LINK_RATIO_MIN: f64 = 3.0;
/// The largest relative difference between a period and its name.
const PERIOD_SLACK: f64 = 0.10;
/// Smaller ones are single writes of the application, not blocks.
const PERIOD_BYTES_MIN: f64 = 60_000.0;
