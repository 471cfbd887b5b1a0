//! The verdict on one stream: its time divided into windows, and what limited each of them.

use super::evidence::{Copied, Evidence, Host, Stream};
use super::path::episodes::{Episode, Losses, WindowAtLoss, episodes, losses, window_at_loss};
use super::path::pauses::{Pause, PauseStats, Waiting, habit, pauses, period, told};
use super::path::policing::{Policing, policing};
use super::path::sawtooth::sawtooth;
use super::path::series::{Series, share, sum};
use super::path::sharing::{Sharing, sharing};
use super::path::windows::{
    self, Cut, Features, LaneShares, OFTEN, SELDOM, WINDOW_ROUND_TRIPS, cut, fastest,
    fastest_together, features,
};
use super::rules::{self, Context, CpuLoad, PAUSED_SHARE_MIN, ReceiverLane, SATURATED};
use super::verdict::{Bottleneck, Figures, Files, Shares, StreamVerdict};
use crate::statistics::median;

/// All streams of a transfer, in the order of their numbers, with what they have in common.
pub(crate) struct Streams<'a> {
    evidence: &'a Evidence,
    series: Vec<(&'a Stream, Series<'a>)>,
    /// The recovery episodes of each.
    lost: Vec<Vec<Episode>>,
    window_at_loss: Option<WindowAtLoss>,
    sharing: Option<Sharing>,
    policing: Option<Policing>,
    round_trip_s: f64,
    total_seen: f64,
    /// The least capacity of the path.
    carried: f64,
    total_goodput: f64,
    seconds: f64,
    sender: CpuLoad,
    receiver: CpuLoad,
    receiver_writes: bool,
    sender_reads: bool,
}

impl<'a> Streams<'a> {
    pub(super) fn of(evidence: &'a Evidence) -> Streams<'a> {
        let mut series: Vec<(&Stream, Series)> = evidence
            .streams
            .iter()
            .map(|stream| (stream, Series::of(&stream.sent).while_moving()))
            .filter(|(_, series)| series.samples().len() >= 2)
            .collect();
        series.sort_by_key(|(stream, series)| (stream.number, series.origin()));
        let known = series.iter().filter_map(|(_, series)| series.round_trip_min_s());
        let round_trip_s = known.reduce(f64::min).unwrap_or(ROUND_TRIP_UNKNOWN_S);
        let all: Vec<&Series> = series.iter().map(|(_, series)| series).collect();
        // Streams are not sampled at the same moment, so the sum of their rates is bursty.
        let together = fastest_together(&all, OFTEN);
        let most = |percentile: f64| {
            all.iter().map(|series| fastest(series, percentile)).fold(together, f64::max)
        };
        let lanes = series.len();
        let lost: Vec<Vec<Episode>> = all.iter().map(|s| episodes(s, round_trip_s)).collect();
        let both: Vec<(&Series, &[Episode])> =
            all.iter().zip(&lost).map(|(series, lost)| (*series, lost.as_slice())).collect();
        let total_seen = most(OFTEN);
        let each_seen = total_seen / lanes.max(1) as f64;
        let ramps: Vec<(&Series, f64)> =
            all.iter().map(|s| (*s, windows::ramp(s, round_trip_s, each_seen))).collect();
        Streams {
            evidence,
            round_trip_s,
            sharing: sharing(&ramps, round_trip_s),
            total_seen,
            carried: most(SELDOM),
            total_goodput: all.iter().map(|series| steady_rate(series, round_trip_s)).sum(),
            seconds: all.iter().map(|series| series.seconds()).fold(0.0, f64::max),
            sender: strain(&evidence.sender, lanes),
            receiver: strain(&evidence.receiver, lanes),
            window_at_loss: window_at_loss(&both),
            policing: policing(&both, round_trip_s),
            receiver_writes: receiver_writes(evidence),
            sender_reads: sender_reads(&all),
            lost,
            series,
        }
    }

    pub(super) fn each(&self) -> impl Iterator<Item = One<'_>> {
        let both = self.series.iter().zip(&self.lost);
        both.map(|((stream, series), lost)| One::of(self, stream, series, lost.clone()))
    }

    /// The figures of all streams together.
    pub(super) fn figures(&self, streams: &[StreamVerdict]) -> Figures {
        let most = streams.iter().max_by(|a, b| a.pauses.count.cmp(&b.pauses.count));
        let pauses = most.map(|one| one.pauses.clone()).unwrap_or_default();
        // Streams with about the same number of pauses pause together, at blocks of the transfer.
        let alike = |one: &&StreamVerdict| one.pauses.count * 10 >= pauses.count * 8;
        let sharing = streams.iter().filter(alike).count();
        let between = pauses.bytes_between.as_ref();
        let blocks = &self.evidence.asked.blocks;
        let period = between.and_then(|bytes| period(bytes, sharing, blocks));
        let period = period.or_else(|| most.and_then(|one| told(&one.pause_list, sharing, blocks)));
        let active = |one: &StreamVerdict| {
            let steady_s = one.features.duration_s - one.features.paused_s;
            if steady_s > 0.0 { one.features.acked_bytes / steady_s } else { 0.0 }
        };
        Figures {
            duration_s: self.seconds,
            ramp_s: streams.iter().map(|one| one.ramp_s).fold(0.0, f64::max),
            acked_bytes: streams.iter().map(|one| one.acked_bytes).sum(),
            bytes_per_s: self.total_goodput,
            bytes_per_s_active: streams.iter().map(active).sum(),
            round_trip_min_s: self.round_trip_s,
            seen_bytes_per_s: self.carried,
            capacity_bytes_per_s: self.evidence.capacity_bytes_per_s.unwrap_or(self.carried),
            features: together(streams),
            losses: all_losses(streams),
            window_at_loss: self.window_at_loss,
            sharing: self.sharing,
            policing: self.policing,
            pauses,
            period,
            sender_busy_cpus: self.evidence.sender.busy_cpus,
            receiver_busy_cpus: self.evidence.receiver.busy_cpus,
            is_one_machine: self.evidence.is_one_machine,
            files: self.files(),
            sync_s: self.sync_s(),
        }
    }

    fn files(&self) -> Option<Files> {
        let Copied { files: count, bytes, moving_s, .. } = self.evidence.copied;
        // In the time of the copy's summary, which samples of streams need not span.
        let seconds = if moving_s > 0.0 { moving_s } else { self.seconds };
        let per_s = count as f64 / seconds.max(1e-9);
        (count > 0).then(|| Files { count, mean_bytes: bytes as f64 / count as f64, per_s })
    }

    /// Streams are sampled until both sides have released them: then the receiver has written all.
    fn sync_s(&self) -> Option<f64> {
        let samples = || self.evidence.streams.iter().map(|stream| &stream.sent);
        let first = samples().filter_map(|sent| sent.first()).map(|sample| sample.at).min()?;
        let last = samples().filter_map(|sent| sent.last()).map(|sample| sample.at).max()?;
        let Copied { bytes, moving_s, is_synced, .. } = self.evidence.copied;
        let agreed_s = AGREED_ROUND_TRIPS * self.round_trip_s;
        (is_synced && bytes > 0)
            .then(|| (moving_s - last.since(first).seconds() - agreed_s).max(0.0))
    }

    fn at_rate_limit(&self) -> bool {
        self.evidence.asked.rate_bytes_per_s.is_some_and(|rate| self.total_goodput >= 0.9 * rate)
    }
}

/// True if the receiving lanes together write all the time: where they share a pipe, they take
/// turns, and none of them is busy for long.
fn receiver_writes(evidence: &Evidence) -> bool {
    let lanes = evidence.streams.iter().filter_map(receiver_lane);
    lanes.map(|lane| lane.sink + lane.passage).sum::<f64>() >= RECEIVER_WRITES_MIN
}

/// True if the sending lanes together read all the time, for example from one pipe.
fn sender_reads(all: &[&Series]) -> bool {
    let reading = all.iter().map(|series| LaneShares::whole(series).source);
    reading.sum::<f64>() >= SENDER_READS_MIN
}

/// The rate after the first tenth of a stream's time, after a few round trips at least.
fn steady_rate(series: &Series, round_trip_s: f64) -> f64 {
    let seconds = series.seconds();
    let from_s = (seconds / 10.0).max((5.0 * round_trip_s).min(seconds / 2.0));
    series.rate_between(from_s, seconds)
}

fn strain(host: &Host, lanes: usize) -> CpuLoad {
    let Some(busy) = host.busy_cpus.filter(|busy| busy.is_finite() && *busy >= 0.0) else {
        return CpuLoad::default();
    };
    let usable = host.usable_cpus.filter(|usable| usable.is_finite() && *usable > 0.0);
    let lanes = lanes.max(1) as f64;
    CpuLoad {
        of_usable: usable.map_or(0.0, |usable| busy / usable),
        of_lanes: busy / usable.map_or(lanes, |usable| usable.min(lanes)),
    }
}

/// One stream and its analysis.
pub(super) struct One<'a> {
    stream: &'a Stream,
    series: &'a Series<'a>,
    seconds: f64,
    round_trip_s: f64,
    cut: Cut,
    context: Context,
    episodes: Vec<Episode>,
    pauses: Vec<Pause>,
    habit: PauseStats,
    steady: Features,
    /// The class that pauses are assigned to.
    pausing: Bottleneck,
}

impl<'a> One<'a> {
    fn of(
        all: &'a Streams<'a>,
        stream: &'a Stream,
        series: &'a Series,
        episodes: Vec<Episode>,
    ) -> One<'a> {
        let round_trip_s = all.round_trip_s;
        let pauses = pauses(series, round_trip_s);
        let seen = fastest(series, OFTEN);
        let peak = match windows::peak_delivery(series) {
            0.0 => seen,
            delivered => delivered,
        };
        let cut = cut(series, &pauses, round_trip_s, peak);
        let steady = steady(series, &pauses, &cut, round_trip_s);
        let habit = habit(&pauses, &episodes, series.seconds(), round_trip_s);
        let context = context(all, stream, series, &episodes, &steady, peak);
        let pausing = pausing(all, &pauses, &habit, &context, series.seconds());
        let seconds = series.seconds();
        One {
            stream,
            series,
            seconds,
            round_trip_s,
            cut,
            context,
            episodes,
            pauses,
            habit,
            steady,
            pausing,
        }
    }

    pub(super) fn verdict(&self) -> StreamVerdict {
        let shares = self.shares();
        let first = shares.all().first();
        let losses = self.context.losses.clone();
        StreamVerdict {
            number: self.stream.number,
            primary: match first {
                None => Some(Bottleneck::Undetermined),
                Some(first) => (first.share >= 0.5).then_some(first.class),
            },
            shares,
            duration_s: self.seconds,
            ramp_s: self.cut.ramp_s,
            windows: self.cut.windows.len(),
            acked_bytes: self.series.acked_bytes() as f64,
            features: self.steady,
            losses,
            pauses: self.habit.clone(),
            sawtooth: sawtooth(self.series, self.cut.ramp_s, self.round_trip_s),
            episodes: self.episodes.iter().take(LIST_MAX).copied().collect(),
            pause_list: self.pauses.iter().take(LIST_MAX).copied().collect(),
        }
    }

    fn shares(&self) -> Shares {
        let short = self.seconds < SHORT_ROUND_TRIPS * self.round_trip_s
            || self.seconds < SHORT_SECONDS
            || self.cut.ramp_s > 0.5 * self.seconds && !self.waits_in_ramp();
        if short {
            return Shares::of(&[(Bottleneck::TooShort, 1.0)]);
        }
        let weights: Vec<(Bottleneck, f64)> =
            self.cut.windows.iter().flat_map(|window| self.attribute(window)).collect();
        Shares::of(&weights)
    }

    /// A stream that is limited by something else than its congestion window never leaves what
    /// looks like its ramp: it does not fill the window, so the window does not grow.
    fn waits_in_ramp(&self) -> bool {
        self.steady.fill < 0.7 || self.seconds > LONG_ROUND_TRIPS * self.round_trip_s
    }

    /// A window's time by class: that of its pauses, and the rest. Effects of a pause are charged
    /// to it: the classes here are weaker explanations of a window with pauses.
    fn attribute(&self, window: &Features) -> Vec<(Bottleneck, f64)> {
        let held = rules::held_by(window, &self.context);
        let paused = share(window.paused_s, window.duration_s);
        let unexplained = matches!(
            held,
            Bottleneck::TooShort
                | Bottleneck::SlowSender
                | Bottleneck::PathLoss
                | Bottleneck::PathFull
                | Bottleneck::SharedBottleneck
                | Bottleneck::Policer
                | Bottleneck::ShallowBuffer
                | Bottleneck::Undetermined
        );
        let losses = matches!(
            held,
            Bottleneck::ShallowBuffer | Bottleneck::PathLoss | Bottleneck::Undetermined
        );
        let follows = self.habit.causes_losses && losses;
        let rest = match (paused >= PAUSED_SHARE_MIN && unexplained) || follows {
            true => self.pausing,
            false => held,
        };
        match paused >= PAUSED_SHARE_MIN {
            true => {
                vec![(self.pausing, window.paused_s), (rest, window.duration_s - window.paused_s)]
            }
            false => vec![(rest, window.duration_s)],
        }
    }
}

/// All windows of a stream as one.
fn steady(series: &Series, pauses: &[Pause], cut: &Cut, round_trip_s: f64) -> Features {
    let steps: Vec<_> = series.steps().filter(|step| step.from_s >= cut.ramp_s).collect();
    match steps.is_empty() {
        true => features(&series.steps().collect::<Vec<_>>(), pauses, round_trip_s),
        false => features(&steps, pauses, round_trip_s),
    }
}

fn context(
    all: &Streams<'_>,
    stream: &Stream,
    series: &Series,
    episodes: &[Episode],
    steady: &Features,
    peak: f64,
) -> Context {
    let samples = series.samples();
    let window_max = samples.iter().map(|sample| sample.peer_window_bytes).max().unwrap_or(0);
    let mss = samples.last().map_or(0, |sample| sample.mss_bytes);
    let evidence = all.evidence;
    Context {
        losses: losses(series, episodes),
        window_at_loss: all.window_at_loss,
        sharing: all.sharing,
        // After a pause a burst is lost at any short queue, and the rest of the time is slow.
        policing: all
            .policing
            .filter(|_| share(steady.paused_s, steady.duration_s) < PAUSED_SHARE_MIN),
        goodput: steady.goodput,
        total_goodput: all.total_goodput,
        peak,
        total_seen: all.total_seen,
        round_trip_min_s: all.round_trip_s,
        capacity_known: evidence.capacity_bytes_per_s,
        window_max_bytes: window_max.into(),
        mss_bytes: mss.into(),
        congestion: evidence.sender.congestion.clone(),
        pace: evidence.asked.pace,
        at_rate_limit: all.at_rate_limit(),
        sender: all.sender,
        receiver: all.receiver,
        receiver_lane: receiver_lane(stream),
        sender_reads: all.sender_reads,
    }
}

/// How the receiving lane used its time, in total; `None` where it was not recorded.
pub(crate) fn receiver_lane(stream: &Stream) -> Option<ReceiverLane> {
    let lane = LaneShares::whole(&Series::of(&stream.received));
    lane.are_known().then_some(ReceiverLane {
        waiting: lane.source,
        passage: lane.passage,
        sink: lane.sink,
    })
}

/// The class that the pauses of a stream are assigned to. A stage that stops after each few
/// requests is a slow stage; one that works for long between its stops pauses.
fn pausing(
    all: &Streams<'_>,
    pauses: &[Pause],
    habit: &PauseStats,
    context: &Context,
    seconds: f64,
) -> Bottleneck {
    if context.at_rate_limit {
        return Bottleneck::Pacing;
    }
    if context.sender.of_usable >= SATURATED {
        return Bottleneck::HostCpu;
    }
    let time = |waiting: Waiting| -> f64 {
        pauses.iter().filter(|pause| pause.waiting == waiting).map(|pause| pause.length_s).sum()
    };
    let request = all.evidence.asked.request_bytes.max(REQUEST_BYTES_MIN) as f64;
    let often = match &habit.bytes_between {
        Some(bytes) => bytes.median <= REQUESTS_BETWEEN * request,
        None => false,
    };
    let stages = [
        (time(Waiting::Peer), Bottleneck::Pauses),
        (time(Waiting::Source), Bottleneck::SlowSource),
        (time(Waiting::Passage), Bottleneck::SlowPassage),
        (time(Waiting::Send), Bottleneck::SendBuffer),
        (time(Waiting::Unknown), Bottleneck::SlowSender),
    ];
    let most = stages.into_iter().max_by(|a, b| a.0.total_cmp(&b.0));
    match most {
        // A receiver that writes has no more space; one in lockstep waits for the network.
        Some((time, Bottleneck::Pauses)) if time > 0.0 && all.sender_reads => {
            Bottleneck::SlowSource
        }
        Some((time, Bottleneck::Pauses)) if time > 0.0 && all.receiver_writes => {
            Bottleneck::SlowReceiver
        }
        Some((time, Bottleneck::SendBuffer)) if time > 0.0 => Bottleneck::SendBuffer,
        Some((_, Bottleneck::SlowSender)) if habit.total_s < 0.5 * seconds => Bottleneck::Pauses,
        Some((time, class)) if often && time > 0.0 => class,
        _ => Bottleneck::Pauses,
    }
}

/// The mean of all streams' features, weighted by their bytes.
fn together(streams: &[StreamVerdict]) -> Features {
    let total: f64 = streams.iter().map(|one| one.features.acked_bytes).sum();
    let mean = |of: fn(&Features) -> f64| -> f64 {
        let weighed = streams.iter().map(|one| of(&one.features) * one.features.acked_bytes);
        if total > 0.0 { weighed.sum::<f64>() / total } else { 0.0 }
    };
    let sum = |of: fn(&Features) -> f64| streams.iter().map(|one| of(&one.features)).sum::<f64>();
    let pace = mean(|f| f.pace_bytes_per_s.unwrap_or(0.0));
    Features {
        from_s: mean(|f| f.from_s),
        duration_s: mean(|f| f.duration_s),
        paused_s: mean(|f| f.paused_s),
        acked_bytes: total,
        goodput: sum(|f| f.goodput),
        busy: mean(|f| f.busy),
        window_limited: mean(|f| f.window_limited),
        buffer_limited: mean(|f| f.buffer_limited),
        app_limited: mean(|f| f.app_limited),
        queued: mean(|f| f.queued),
        fill: mean(|f| f.fill),
        window_high_bytes: mean(|f| f.window_high_bytes),
        window_low_bytes: mean(|f| f.window_low_bytes),
        window_fill: mean(|f| f.window_fill),
        buffer_fill: mean(|f| f.buffer_fill),
        round_trip_s: mean(|f| f.round_trip_s),
        deviation_s: mean(|f| f.deviation_s),
        round_trip_min_s: mean(|f| f.round_trip_min_s),
        retransmitted: mean(|f| f.retransmitted),
        growth: mean(|f| f.growth),
        slow_start: mean(|f| f.slow_start),
        source: mean(|f| f.source),
        passage: mean(|f| f.passage),
        sink: mean(|f| f.sink),
        idle: mean(|f| f.idle),
        pace_bytes_per_s: (pace > 0.0).then_some(pace),
    }
}

fn all_losses(streams: &[StreamVerdict]) -> Losses {
    let episodes: usize = streams.iter().map(|one| one.losses.episodes).sum();
    let all_of = |count: fn(&Losses) -> u64| sum(streams.iter().map(|one| count(&one.losses)));
    let sent = all_of(|losses| losses.segments_sent);
    let all: Vec<f64> = streams
        .iter()
        .flat_map(|one| &one.episodes)
        .map(|episode| episode.retransmitted_segments as f64)
        .collect();
    let most = streams.iter().max_by(|a, b| a.losses.episodes.cmp(&b.losses.episodes));
    let most = most.map(|one| one.losses.clone()).unwrap_or_default();
    Losses {
        episodes,
        retransmitted_segments: all_of(|losses| losses.retransmitted_segments),
        segments_sent: sent,
        segments_marked: all_of(|losses| losses.segments_marked),
        segments_duplicate: all_of(|losses| losses.segments_duplicate),
        reorderings: all_of(|losses| losses.reorderings),
        timeouts: all_of(|losses| losses.timeouts),
        per_episode: median(&all).unwrap_or(0.0),
        silences: streams.iter().map(|one| one.losses.silences).sum(),
        rate: share(episodes as f64, sent as f64),
        ..most
    }
}

/// Assumed for a path without a measured round trip.
const ROUND_TRIP_UNKNOWN_S: f64 = 0.001;
const SHORT_ROUND_TRIPS: f64 = 2.0 * WINDOW_ROUND_TRIPS;
const SHORT_SECONDS: f64 = 0.25;
/// What two sides say to each other before there are streams, and after.
const AGREED_ROUND_TRIPS: f64 = 4.0;
const LONG_ROUND_TRIPS: f64 = 60.0;
const RECEIVER_WRITES_MIN: f64 = 0.7;
const SENDER_READS_MIN: f64 = 0.7;
const LIST_MAX: usize = 1000;
const REQUEST_BYTES_MIN: u64 = 1 << 18;
const REQUESTS_BETWEEN: f64 = 4.0;
