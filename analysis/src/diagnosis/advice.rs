//! What to change, with numbers, and the rate that is then expected.

use super::evidence::{Evidence, Host, Pace};
use super::rules::{ReceiverLane, SATURATED};
use super::stream::receiver_lane;
use super::verdict::{Advice, Bottleneck, Change, ForLink, Stage, Verdict};

/// For the primary class and each secondary one, in the order in which they help. A full path gives
/// no advice beside another class that does.
pub(crate) fn advise(verdict: &Verdict, evidence: &Evidence) -> Vec<Advice> {
    let mut classes: Vec<Bottleneck> = verdict.primary.into_iter().collect();
    // What was before a sync that took most of the time hardly counts.
    if verdict.primary != Some(Bottleneck::SlowSync) {
        classes.extend(&verdict.secondary);
    }
    let bursts = verdict.figures.pauses.causes_losses
        || verdict.streams.iter().any(|stream| stream.losses.per_episode > BURST_SEGMENTS);
    let cured = [Bottleneck::Pauses, Bottleneck::ReceiveWindow];
    if bursts && classes.iter().any(|class| cured.contains(class)) {
        classes.push(Bottleneck::ShallowBuffer);
    }
    classes.dedup();
    if classes.len() > 1 {
        classes.retain(|class| {
            !matches!(
                class,
                Bottleneck::PathFull | Bottleneck::SharedBottleneck | Bottleneck::Undetermined
            )
        });
    }
    classes.sort();
    classes.dedup();
    let adviser = Adviser { verdict, evidence };
    let mut advice: Vec<Advice> = Vec::new();
    for class in classes {
        let (change, predicted) = adviser.on(class);
        let before = advice.last();
        if matches!(change, Change::Pace { .. }) && before.is_some_and(|last| last.at_most) {
            // What the path carries is not known yet, so no pace is: the changes before show it.
            continue;
        }
        let predicted = adviser.together(&change, predicted, before);
        let at_most =
            predicted.is_some_and(|rate| rate > 1.02 * verdict.figures.capacity_bytes_per_s);
        advice.push(Advice { change, predicted_bytes_per_s: predicted, at_most });
    }
    advice
}

/// The rate that a change should reach, and whether the path was seen to carry it.
struct Target {
    bytes_per_s: f64,
    is_seen: bool,
}

struct Adviser<'a> {
    verdict: &'a Verdict,
    evidence: &'a Evidence,
}

impl Adviser<'_> {
    fn on(&self, class: Bottleneck) -> (Change, Option<f64>) {
        match class {
            Bottleneck::TooShort => self.move_more(),
            Bottleneck::Pauses => self.prefetch(),
            Bottleneck::ReceiveWindow => self.window(),
            Bottleneck::SlowReceiver => (self.receiver(), None),
            Bottleneck::SlowSync => (self.sync(), None),
            Bottleneck::SmallFiles => (self.files(), None),
            Bottleneck::SendBuffer => self.send_buffer(),
            Bottleneck::SlowSource => (self.sender(Stage::Source), None),
            Bottleneck::SlowPassage => (self.sender(Stage::Passage), None),
            Bottleneck::SlowSender => (self.sender(Stage::Unknown), None),
            Bottleneck::Pacing => self.raise(),
            Bottleneck::PathLoss => self.more_streams(),
            Bottleneck::PathFull => (self.nothing(), Some(self.rate())),
            Bottleneck::SharedBottleneck => (self.share(), None),
            Bottleneck::Policer => self.policer(),
            Bottleneck::ShallowBuffer => self.pace(),
            Bottleneck::HostCpu => (self.cpu(), None),
            Bottleneck::Undetermined => (Change::Look, None),
        }
    }

    /// The prediction for a change, with the changes before it. No change is advised for a rate
    /// below the present one: a pace that brings no more only avoids losses.
    fn together(
        &self,
        change: &Change,
        alone: Option<f64>,
        before: Option<&Advice>,
    ) -> Option<f64> {
        let alone = alone?;
        match change {
            Change::Pace { .. } | Change::Policer { .. } => {
                Some(alone).filter(|rate| *rate >= self.rate())
            }
            _ => {
                let before = before.and_then(|last| last.predicted_bytes_per_s).unwrap_or(0.0);
                Some(alone.max(before).max(self.rate()))
            }
        }
    }

    fn rate(&self) -> f64 {
        self.verdict.figures.bytes_per_s
    }

    fn capacity(&self) -> f64 {
        self.verdict.figures.capacity_bytes_per_s
    }

    fn streams(&self) -> f64 {
        self.verdict.streams.len().max(1) as f64
    }

    /// The path's rate without this limit: the highest seen; where that is about the present rate,
    /// or what TCP's pacing alone produces, the present rate times `unseen_factor`.
    fn target(&self, unseen_factor: f64) -> Target {
        let features = &self.verdict.figures.features;
        let is_spaced = self.evidence.asked.pace != Pace::None
            || self.evidence.sender.congestion.starts_with("bbr");
        let spacing = match is_spaced && features.fill > 0.0 {
            true => SPACING * self.rate() / features.fill.min(1.0),
            false => 0.0,
        };
        let is_seen = self.evidence.capacity_bytes_per_s.is_some()
            || self.capacity() > (SEEN_MORE * self.rate()).max(spacing);
        match is_seen {
            true => Target { bytes_per_s: self.capacity(), is_seen },
            false => {
                Target { bytes_per_s: (unseen_factor * self.rate()).max(self.capacity()), is_seen }
            }
        }
    }

    /// A window or a buffer for the target. Where the path was not seen to carry it, the present
    /// size is scaled with the rate.
    fn enough(&self, target: &Target, now_bytes: f64, headroom: f64) -> f64 {
        let round_trip_s = self.verdict.figures.round_trip_min_s;
        let product = target.bytes_per_s * round_trip_s / self.streams();
        let bytes = match target.is_seen || self.rate() <= 0.0 {
            true => headroom * product,
            false => now_bytes * target.bytes_per_s / self.rate(),
        };
        bytes.max(now_bytes)
    }

    /// A window for the next common link rate, unless the target is that rate or the present window
    /// is enough for it, as between processes of one host.
    fn for_link(&self, target: &Target, now_bytes: f64) -> Option<ForLink> {
        let wanted = 8.0 * target.bytes_per_s;
        let usual = LINK_BITS_PER_S.into_iter().find(|rate| *rate >= LINK_SLACK * wanted)?;
        let trip_s = self.verdict.figures.round_trip_min_s;
        let bytes = WINDOW_HEADROOM * usual / 8.0 * trip_s / self.streams();
        (usual > wanted / LINK_SLACK && bytes > now_bytes)
            .then_some(ForLink { bits_per_s: usual, bytes })
    }

    /// rate(bytes) = bytes / (lost + bytes / steady): the size at which the ramp's loss is 5 %.
    fn move_more(&self) -> (Change, Option<f64>) {
        let figures = &self.verdict.figures;
        let steady = figures.seen_bytes_per_s.max(self.rate());
        // Without one steady window the rate is not known.
        if steady <= 0.0 || self.verdict.streams.iter().all(|stream| stream.windows == 0) {
            return (Change::Look, None);
        }
        let lost_s = (figures.duration_s - figures.acked_bytes / steady).max(0.0);
        let bytes = (19.0 * lost_s * steady).max(figures.acked_bytes);
        (Change::MoveMore { bytes, duration_s: lost_s + bytes / steady }, Some(0.95 * steady))
    }

    fn prefetch(&self) -> (Change, Option<f64>) {
        let figures = &self.verdict.figures;
        let pauses = &figures.pauses;
        let carried = self.capacity().max(self.rate());
        let bytes = carried * (pauses.median_length_s + figures.round_trip_min_s);
        let blocks =
            figures.period.as_ref().map(|period| (bytes / period.bytes as f64).max(1.0) + 1.0);
        let change = Change::Prefetch { bytes, pause_s: pauses.median_length_s, blocks };
        // Where pauses cause losses, the loss rate without pauses is not known. Streams that pause
        // at different times are fast at different times: their sum may be more than the path.
        let predicted = (!pauses.causes_losses).then(|| figures.bytes_per_s_active.min(carried));
        (change, predicted)
    }

    fn window(&self) -> (Change, Option<f64>) {
        let figures = &self.verdict.figures;
        let now_bytes = figures.features.window_high_bytes;
        let target = self.target(UNSEEN_FACTOR);
        let bytes = self.enough(&target, now_bytes, WINDOW_HEADROOM);
        let for_link = self.for_link(&target, now_bytes);
        // A window that is large enough already is nothing to change.
        if bytes <= now_bytes && for_link.is_none() {
            return (Change::Look, None);
        }
        let host = &self.evidence.receiver;
        let limit = match self.evidence.asked.window_bytes {
            Some(_) => host.receive_buffer_asked_max,
            None => host.receive_buffer_auto_max,
        };
        // About half of a buffer is advertised: the kernel keeps the rest for its own overhead.
        let limit_bytes = limit.filter(|limit| (*limit as f64) < 2.0 * bytes);
        let round_trip_s = figures.features.round_trip_s.max(figures.round_trip_min_s);
        let ceiling_bytes_per_s = match round_trip_s > 0.0 {
            true => now_bytes / round_trip_s,
            false => 0.0,
        };
        let change =
            Change::Window { bytes, now_bytes, ceiling_bytes_per_s, limit_bytes, for_link };
        (change, Some(target.bytes_per_s))
    }

    fn receiver(&self) -> Change {
        let lanes: Vec<ReceiverLane> =
            self.evidence.streams.iter().filter_map(receiver_lane).collect();
        let count = lanes.len().max(1) as f64;
        let sink = lanes.iter().map(|lane| lane.sink).sum::<f64>() / count;
        let passage = lanes.iter().map(|lane| lane.passage).sum::<f64>() / count;
        let host = &self.evidence.receiver;
        let cpu = match (host.busy_cpus, host.usable_cpus) {
            (Some(busy), Some(usable)) if usable > 0.0 => busy / usable,
            _ => 0.0,
        };
        let (stage, share) = match (sink, passage) {
            _ if cpu >= SATURATED => (Stage::Cpu, cpu),
            (0.0, 0.0) => (Stage::Unknown, 0.0),
            (sink, passage) if sink >= passage => (Stage::Sink, sink),
            (_, passage) => (Stage::Passage, passage),
        };
        Change::Receiver { stage, share }
    }

    fn sync(&self) -> Change {
        let seconds = self.verdict.figures.sync_s.unwrap_or_default();
        let bytes_per_s = self.evidence.copied.bytes as f64 / seconds.max(1e-9);
        Change::Sync { seconds, bytes_per_s }
    }

    fn files(&self) -> Change {
        let is_free = |host: &Host| match (host.busy_cpus, host.usable_cpus) {
            (Some(busy), Some(usable)) => busy < SATURATED * usable,
            _ => true,
        };
        let Evidence { sender, receiver, .. } = self.evidence;
        Change::Files {
            files: self.verdict.figures.files.unwrap_or_default(),
            cpus_are_free: is_free(sender) && is_free(receiver),
        }
    }

    fn send_buffer(&self) -> (Change, Option<f64>) {
        let sent = self.evidence.streams.iter().flat_map(|stream| stream.sent.last());
        let now_bytes = f64::from(sent.map(|last| last.send_buffer_bytes).max().unwrap_or(0));
        let target = self.target(UNSEEN_FACTOR);
        let bytes = self.enough(&target, now_bytes, BUFFER_HEADROOM);
        let host = &self.evidence.sender;
        let limit = host.send_buffer_auto_max.or(host.send_buffer_asked_max);
        let limit_bytes = limit.filter(|limit| (*limit as f64) < bytes);
        (Change::SendBuffer { bytes, now_bytes, limit_bytes }, Some(target.bytes_per_s))
    }

    fn sender(&self, stage: Stage) -> Change {
        let features = &self.verdict.figures.features;
        let share = match stage {
            Stage::Source => features.source,
            Stage::Passage => features.passage,
            _ => 0.0,
        };
        let bytes_per_s = if share > 0.0 { self.rate() / share } else { self.rate() };
        Change::Sender { stage, share, bytes_per_s }
    }

    fn raise(&self) -> (Change, Option<f64>) {
        // A pace hides the capacity of the path, so the next step is a small one.
        let target = self.target(RAISED_FACTOR).bytes_per_s;
        match (self.evidence.asked.rate_bytes_per_s, self.verdict.figures.features.pace_bytes_per_s)
        {
            (_, Some(now)) => {
                let now_bytes_per_s = now * self.streams();
                (Change::RaisePace { bytes_per_s: target, now_bytes_per_s }, Some(target))
            }
            (Some(now), None) => {
                (Change::RaiseRate { bytes_per_s: target, now_bytes_per_s: now }, Some(target))
            }
            (None, None) => (Change::Look, None),
        }
    }

    /// Losses hit each stream independently, so their rates add up until the path is full.
    fn more_streams(&self) -> (Change, Option<f64>) {
        let now = self.streams();
        let target = self.target(UNSEEN_FACTOR);
        let room = match target.is_seen && target.bytes_per_s > 2.0 * self.rate() {
            true => (0.8 * target.bytes_per_s / self.rate()).floor(),
            false => UNSEEN_FACTOR,
        };
        let factor = room.clamp(2.0, UNSEEN_FACTOR).min((STREAMS_MAX / now).floor().max(1.0));
        let count = (now * factor) as u32;
        let loss_rate = self.verdict.figures.losses.retransmitted();
        let change = Change::Streams { count, now: now as u32, loss_rate };
        (change, Some(self.rate() * factor))
    }

    /// A little below the capacity of the path, so that no queue builds up.
    fn pace(&self) -> (Change, Option<f64>) {
        let bytes_per_s = PACE_SHARE * self.capacity();
        (Change::Pace { bytes_per_s }, Some(PACED_SHARE * bytes_per_s))
    }

    /// A little below what passes, so that the bucket does not run empty.
    fn policer(&self) -> (Change, Option<f64>) {
        let passes = self.verdict.figures.policing.unwrap_or_default().bytes_per_s;
        let bytes_per_s = POLICED_SHARE * passes;
        (Change::Policer { bytes_per_s }, Some(PACED_SHARE * bytes_per_s))
    }

    fn share(&self) -> Change {
        let sharing = self.verdict.figures.sharing.unwrap_or_default();
        Change::Share { variation: sharing.variation }
    }

    fn nothing(&self) -> Change {
        let features = &self.verdict.figures.features;
        Change::Nothing { queue_bytes: features.queue_s() * features.goodput }
    }

    fn cpu(&self) -> Change {
        let host = &self.evidence.sender;
        Change::Cpu { busy: host.busy_cpus.unwrap_or(0.0), usable: host.usable_cpus }
    }
}

const WINDOW_HEADROOM: f64 = 1.25;
const BUFFER_HEADROOM: f64 = 2.0;
/// A rate this much above the present one was seen: then that is the capacity of the path.
const SEEN_MORE: f64 = 1.15;
/// The common rates of links.
const LINK_BITS_PER_S: [f64; 8] = [1e7, 1e8, 1e9, 1e10, 2.5e10, 4e10, 1e11, 4e11];
/// A rate this close to a link's rate counts as the link's.
const LINK_SLACK: f64 = 0.9;
const UNSEEN_FACTOR: f64 = 4.0;
const RAISED_FACTOR: f64 = 2.0;
/// TCP paces at 1.2 times the rate of its window; some segments may come closer together.
const SPACING: f64 = 1.4;
const STREAMS_MAX: f64 = 64.0;
const BURST_SEGMENTS: f64 = 10.0;
const PACE_SHARE: f64 = 0.9;
const POLICED_SHARE: f64 = 0.95;
/// The share of its pace that a paced stream reaches, including its start.
const PACED_SHARE: f64 = 0.97;
