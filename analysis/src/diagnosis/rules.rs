//! The decision list: which class limited a window. The first rule that matches decides.

use super::evidence::Pace;
use super::path::episodes::{Losses, WindowAtLoss};
use super::path::policing::Policing;
use super::path::sharing::Sharing;
use super::path::windows::Features;
use super::verdict::{Bottleneck, Figures};

/// Data of a stream from outside the window.
#[derive(Clone, Debug, Default)]
pub(crate) struct Context {
    pub losses: Losses,
    /// The congestion windows of all streams together when episodes began.
    pub window_at_loss: Option<WindowAtLoss>,
    /// How the bottleneck served all streams, while a queue stood there.
    pub sharing: Option<Sharing>,
    pub policing: Option<Policing>,
    /// The rate after the ramp, without pauses; also of the whole transfer.
    pub goodput: f64,
    pub total_goodput: f64,
    /// The highest rate measured for this stream, and for all streams together.
    pub peak: f64,
    pub total_seen: f64,
    pub round_trip_min_s: f64,
    pub capacity_known: Option<f64>,
    /// The largest window that the peer has advertised to this stream.
    pub window_max_bytes: f64,
    pub mss_bytes: f64,
    pub congestion: String,
    pub pace: Pace,
    /// The transfer has reached its `--rate`.
    pub at_rate_limit: bool,
    pub sender: CpuLoad,
    pub receiver: CpuLoad,
    pub receiver_lane: Option<ReceiverLane>,
    /// The lanes read all the time, taking turns; a lane without data waits for its turn.
    pub sender_reads: bool,
}

/// How busy a host's CPUs are, 0 to 1: of all that the process may use, and of as many as there are
/// lanes. 0 where this is unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct CpuLoad {
    pub of_usable: f64,
    pub of_lanes: f64,
}

/// How the receiving lane used its time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct ReceiverLane {
    /// Waiting for the network.
    pub waiting: f64,
    pub passage: f64,
    /// Writing.
    pub sink: f64,
}

impl ReceiverLane {
    /// It has hardly any time to receive.
    pub(super) fn is_busy(&self) -> bool {
        self.waiting < 0.3 && self.sink + self.passage >= 0.5
    }
}

pub(super) fn held_by(window: &Features, context: &Context) -> Bottleneck {
    let rules: [fn(&Features, &Context) -> Option<Bottleneck>; 12] = [
        still_growing,
        by_receiver,
        by_send_buffer,
        by_sender,
        by_pace,
        by_cpu,
        by_outages,
        by_policer,
        by_sharing,
        by_full_path,
        by_losses,
        by_default,
    ];
    rules.iter().find_map(|rule| rule(window, context)).unwrap_or(Bottleneck::Undetermined)
}

/// Slow start continues after what was taken for the ramp.
fn still_growing(window: &Features, _: &Context) -> Option<Bottleneck> {
    let growing = window.slow_start > 0.5 && window.growth >= 2.0 && window.fill >= 0.7;
    growing.then_some(Bottleneck::TooShort)
}

fn by_receiver(window: &Features, context: &Context) -> Option<Bottleneck> {
    if context.receiver_exhausted() {
        return Some(Bottleneck::SlowReceiver);
    }
    if !held_by_window(window, context) {
        return None;
    }
    // A lane that waits for the network most of the time is not slow.
    if context.receiver_lane.is_some_and(|lane| lane.waiting < 0.5)
        || context.receiver.of_usable >= SATURATED
    {
        return Some(Bottleneck::SlowReceiver);
    }
    // A window above the bandwidth-delay product fills the queue, and then the path is the limit.
    let filled = window.goodput * window.round_trip_s >= 0.8 * window.window_high_bytes;
    if filled && has_standing_queue(window) && context.evenness() >= 0.7 {
        return Some(Bottleneck::PathFull);
    }
    let open = (window.window_use() >= 0.80 || filled)
        && window.window_steadiness() >= 0.7
        && window.window_high_bytes >= 0.7 * context.window_max_bytes;
    let small = context.receiver_lane.is_some() || open;
    // If the window would allow many times the rate, as between processes of one machine, the
    // reader was only descheduled for a moment, and another class decides.
    let ceiling = window.window_high_bytes / window.round_trip_s.max(1e-9);
    match small {
        true if ceiling > CEILING_MAX * window.goodput => None,
        true => Some(Bottleneck::ReceiveWindow),
        false => Some(Bottleneck::SlowReceiver),
    }
}

/// The kernel reports it; or all of the window is in flight all the time; or the kernel reports it
/// now and then, and most of the window is in flight, or the receiving lane is busy. A sender that
/// paces by its measured rate (BBR) adapts to the rate that the window allows, so that it seldom
/// waits for the window.
fn held_by_window(window: &Features, context: &Context) -> bool {
    let in_flight = window.window_use() >= 0.85 && window.fill < NEARLY_FILLED;
    let late = context.receiver_lane.is_some_and(|lane| lane.is_busy());
    window.window_limited >= LIMITED_MIN
        || window.window_fill >= WHOLE && has_room(window)
        || window.window_limited >= SOMETIMES_LIMITED_MIN && (in_flight || late)
}

fn by_send_buffer(window: &Features, _: &Context) -> Option<Bottleneck> {
    // Where the path is the limit the lane is blocked in send too, but then segments are queued.
    let blocked = window.sink >= 0.5 && window.queued < 0.2 && window.buffer_fill >= 0.7;
    let whole = window.buffer_fill >= WHOLE && window.queued < 0.2 && has_room(window);
    if window.buffer_limited < BUFFER_LIMITED_MIN && !blocked && !whole {
        return None;
    }
    let full = has_standing_queue(window) && window.fill >= FILLED;
    Some(if full { Bottleneck::PathFull } else { Bottleneck::SendBuffer })
}

fn by_sender(window: &Features, context: &Context) -> Option<Bottleneck> {
    let path_busy = window.fill >= FILLED && window.queued >= 0.8;
    let clocks = window.lane().are_known();
    let at_work = clocks && window.source + window.passage >= 0.5 && window.sink < 0.5;
    let empty = window.app_limited >= 0.5 && window.queued <= 0.2 && window.fill < FILLED;
    let waiting = !clocks || window.sink < 0.5;
    if path_busy || !(at_work || (empty && waiting)) {
        return None;
    }
    if context.at_rate_limit {
        return Some(Bottleneck::Pacing);
    }
    Some(sender_stage(window, context))
}

/// The stage of the sending lane that takes the most time.
pub(crate) fn sender_stage(window: &Features, context: &Context) -> Bottleneck {
    if context.sender.of_usable >= SATURATED {
        return Bottleneck::HostCpu;
    }
    let stages = [
        (window.source, Bottleneck::SlowSource),
        (window.passage, Bottleneck::SlowPassage),
        (
            window.idle,
            if context.sender_reads { Bottleneck::SlowSource } else { Bottleneck::Pauses },
        ),
    ];
    let most = stages.into_iter().max_by(|a, b| a.0.total_cmp(&b.0));
    most.filter(|(share, _)| *share >= STAGE_MIN).map_or(Bottleneck::SlowSender, |(_, class)| class)
}

fn by_pace(window: &Features, context: &Context) -> Option<Bottleneck> {
    let pace = window.pace_bytes_per_s.filter(|_| context.pace == Pace::Asked)?;
    (window.goodput >= 0.9 * pace).then_some(Bottleneck::Pacing)
}

/// Data is queued, the window is open, and the CPUs are busy.
fn by_cpu(window: &Features, context: &Context) -> Option<Bottleneck> {
    if context.sender.of_lanes < SATURATED || window.buffer_limited >= 0.1 {
        return None;
    }
    let open = window.fill < FILLED && !has_standing_queue(window);
    // Between processes of one machine, or in one building, a queue of microseconds does not count.
    let near = window.queue_s() < NEAR_QUEUE_SECONDS && context.losses.episodes == 0;
    (open || near).then_some(Bottleneck::HostCpu)
}

/// Between two outages the path may well be full: that is not the cause.
fn by_outages(_: &Features, context: &Context) -> Option<Bottleneck> {
    has_outages(&context.losses).then_some(Bottleneck::Undetermined)
}

/// What passes is limited, by nothing that queues. Losses make round trips look longer, as if one
/// stood there.
fn by_policer(window: &Features, context: &Context) -> Option<Bottleneck> {
    context.policing?;
    let sending =
        window.app_limited < 0.5 && (window.fill >= NEARLY_FILLED || window.queued >= 0.5);
    sending.then_some(Bottleneck::Policer)
}

/// A queue stands at the bottleneck, and what we get there changes: others send too.
fn by_sharing(window: &Features, context: &Context) -> Option<Bottleneck> {
    // It keeps a shorter queue than that by itself.
    if context.pace == Pace::Scavenger && has_standing_queue(window) {
        return Some(Bottleneck::SharedBottleneck);
    }
    let sharing = context.sharing?;
    let sending =
        window.app_limited < 0.5 && (window.fill >= NEARLY_FILLED || window.queued >= 0.5);
    let varies = match context.congestion.starts_with("bbr") {
        true => SHARED_VARIATION_MIN_BBR,
        false => SHARED_VARIATION_MIN,
    };
    let shared = sharing.queued >= SHARED_QUEUED_MIN && sharing.variation >= varies;
    (sending && shared).then_some(Bottleneck::SharedBottleneck)
}

fn by_full_path(window: &Features, context: &Context) -> Option<Bottleneck> {
    let sending = window.app_limited < 0.5 && (window.fill >= FILLED || window.queued >= 0.5);
    if !sending {
        return None;
    }
    let known = context.capacity_known.is_some_and(|capacity| {
        window.goodput >= 0.9 * capacity || context.total_goodput >= 0.9 * capacity
    });
    // BBR and `--pace auto` pace by their measurements: then the window shows nothing.
    let paced = match (context.pace, window.pace_bytes_per_s) {
        (Pace::Auto | Pace::Scavenger, Some(pace)) => window.goodput >= 0.85 * pace,
        _ => context.congestion.starts_with("bbr") && window.goodput >= 0.8 * context.peak,
    };
    // Acknowledgements come as evenly as they can: the streams together fill the path.
    let even = window.fill >= FILLED && context.evenness() >= 0.9;
    let full = has_standing_queue(window) || known || paced || (even && !context.by_chance());
    full.then_some(Bottleneck::PathFull)
}

fn by_losses(window: &Features, context: &Context) -> Option<Bottleneck> {
    let losses = &context.losses;
    if window.fill < NEARLY_FILLED || losses.episodes == 0 {
        return None;
    }
    if context.overflows() {
        let near_peak = window.goodput >= 0.9 * context.peak;
        return Some(if near_peak { Bottleneck::PathFull } else { Bottleneck::ShallowBuffer });
    }
    let of_expected = context.goodput / context.expected_under_loss(window.round_trip_s);
    (0.4..=2.5).contains(&of_expected).then_some(Bottleneck::PathLoss)
}

fn by_default(window: &Features, context: &Context) -> Option<Bottleneck> {
    if context.sender.of_usable >= SATURATED || context.receiver.of_usable >= SATURATED {
        return Some(Bottleneck::HostCpu);
    }
    // A full window that never lost anything grows, if only by a segment per round trip.
    let growing = window.fill >= FILLED && window.growth > 1.0 && context.losses.episodes == 0;
    growing.then_some(Bottleneck::TooShort)
}

impl Context {
    /// Episodes lose many segments each, or begin at the same window each time: a queue overflows.
    pub(super) fn overflows(&self) -> bool {
        let carries = self.total_seen * self.round_trip_min_s;
        let same = self.window_at_loss.is_some_and(|window| {
            // Two may be alike by chance.
            let same = if window.episodes > 2 { SAME_WINDOW } else { SAME_WINDOW / 4.0 };
            window.variation < same && window.bytes >= SAME_AS_CARRIED * carries
        });
        self.losses.per_episode > BURST_SEGMENTS || same
    }

    /// The rate over the fastest rate of acknowledgements. After a link that is never idle they
    /// come evenly, and this is near 1.
    fn evenness(&self) -> f64 {
        match self.total_seen > 0.0 {
            true => self.total_goodput / self.total_seen,
            false => 0.0,
        }
    }

    /// The receiving host has no free CPU, and the sending one has. Where CPU time comes in slices,
    /// data waits in the receiver's kernel, acknowledgements come in bursts, and the window shows
    /// little; a full path makes them come evenly.
    fn receiver_exhausted(&self) -> bool {
        self.receiver.of_usable >= SATURATED
            && self.sender.of_usable < SATURATED
            && self.evenness() < BURSTY_MAX
    }

    fn by_chance(&self) -> bool {
        self.losses.episodes > 0 && !self.overflows()
    }

    /// The rate of a congestion control at this loss rate: Mathis for Reno; CUBIC's own formula
    /// (RFC 9438, 5.1) where that gives more.
    fn expected_under_loss(&self, round_trip_s: f64) -> f64 {
        let rate = self.losses.rate.max(1e-12);
        let reno = 1.22 / rate.sqrt();
        let cubic = 1.054 * (round_trip_s / rate).powf(0.75);
        let segments = match self.congestion.as_str() {
            "reno" => reno,
            _ => reno.max(cubic),
        };
        segments * self.mss_bytes / round_trip_s.max(1e-6)
    }
}

/// Another class is nearly as likely by the figures that tell the two apart: others on a path that
/// is full, a short queue where segments are lost.
pub(super) fn is_close(class: Bottleneck, figures: &Figures) -> bool {
    match class {
        Bottleneck::PathFull => may_be_shared(figures),
        Bottleneck::SharedBottleneck => {
            let waiting_bytes = figures.features.queue_s() * figures.bytes_per_s;
            waiting_bytes < CLEARLY_QUEUED_BYTES
                || figures.sharing.is_some_and(|sharing| sharing.variation < CLEARLY_SHARED)
        }
        Bottleneck::PathLoss => figures.window_at_loss.is_some_and(|window| {
            window.variation < CLOSE_TO_SAME && figures.losses.per_episode >= CLOSE_TO_BURST
        }),
        _ => false,
    }
}

/// Where no queue stood for long, or the rate at which it was served varied more than alone.
pub(crate) fn may_be_shared(figures: &Figures) -> bool {
    figures.sharing.is_none_or(|sharing| {
        sharing.queued < SHARED_QUEUED_MIN || sharing.variation >= ALONE_VARIATION_MAX
    })
}

/// Whole windows are lost and nothing after them arrives: the path is down for a while. A queue
/// does not do that, and no rule explains it.
pub(crate) fn has_outages(losses: &Losses) -> bool {
    let most = losses.of_silences >= 0.5 || losses.silences * 2 >= losses.episodes;
    losses.silences >= 2 && most && losses.silent >= PAUSED_SHARE_MIN
}

/// A standing queue: a quarter of the round trip, or less where the round trip is steady.
fn has_standing_queue(window: &Features) -> bool {
    let queue_s = window.queue_s();
    // Within a machine or a building, a thread that waits for a CPU delays as much as a queue does.
    let noise_s = match window.round_trip_min_s < NEAR_SECONDS {
        true => NEAR_QUEUE_SECONDS,
        false => QUEUE_SECONDS_MIN,
    };
    let long = window.queueing() >= 1.25 && queue_s >= noise_s;
    let steady = window.queueing() >= STEADY_QUEUEING
        && queue_s >= STEADY_QUEUE_SECONDS_MIN
        && queue_s > 3.0 * window.deviation_s;
    long || steady
}

/// Nothing queues and nothing is lost: the path could carry more than is in flight. A congestion
/// window that has stopped growing at the peer's window, or at the buffer, is as full as they are.
fn has_room(window: &Features) -> bool {
    window.queueing() < STEADY_QUEUEING
        && !has_standing_queue(window)
        && window.retransmitted == 0.0
}

/// Share of a window's or a stream's steady time from which pauses count as the cause.
pub(crate) const PAUSED_SHARE_MIN: f64 = 0.05;
/// From this share on, a host or a thread has no free CPU.
pub(crate) const SATURATED: f64 = 0.88;
/// Share of the fastest rate of acknowledgements.
const BURSTY_MAX: f64 = 0.7;
const LIMITED_MIN: f64 = 0.5;
/// Of a window or a buffer: a segment or two is always between two acknowledgements.
const WHOLE: f64 = 0.95;
/// The round trip over the least one, where it is steady.
const STEADY_QUEUEING: f64 = 1.08;
/// A window that limits a stream allows about the present rate, or up to this many times as much
/// where the round trip varies.
const CEILING_MAX: f64 = 2.5;
const SOMETIMES_LIMITED_MIN: f64 = 0.02;
const BUFFER_LIMITED_MIN: f64 = 0.10;
const FILLED: f64 = 0.9;
/// During recovery a stream has fewer segments in flight than its window.
const NEARLY_FILLED: f64 = 0.8;
const STAGE_MIN: f64 = 0.2;
/// Others send too where a queue stands for this share of the time, and what we get varies by this
/// share of it.
const SHARED_QUEUED_MIN: f64 = 0.3;
pub(super) const SHARED_VARIATION_MIN: f64 = 0.03;
/// BBR varies its rate by itself.
const SHARED_VARIATION_MIN_BBR: f64 = 0.09;
/// From here on a change of the path itself does not explain it.
const CLEARLY_SHARED: f64 = 0.08;
/// Six segments of ours in the queue: what fewer add to a round trip, a busy host adds too.
const CLEARLY_QUEUED_BYTES: f64 = 6.0 * 1448.0;
/// Alone it is mostly less than this.
const ALONE_VARIATION_MAX: f64 = 0.02;
const BURST_SEGMENTS: f64 = 6.0;
const SAME_WINDOW: f64 = 0.2;
/// From here on it is less certain that losses are by chance.
const CLOSE_TO_SAME: f64 = 0.3;
const CLOSE_TO_BURST: f64 = 3.0;
/// An overflow needs about as much in flight as the path was seen to carry.
const SAME_AS_CARRIED: f64 = 0.85;
const QUEUE_SECONDS_MIN: f64 = 0.0003;
const NEAR_SECONDS: f64 = 0.001;
const STEADY_QUEUE_SECONDS_MIN: f64 = 0.002;
const NEAR_QUEUE_SECONDS: f64 = 0.002;
