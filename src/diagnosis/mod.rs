//! What held a transfer back, said from recorded samples alone: it knows no clock, no I/O and no
//! store, and never guesses.
//!
//! Each stream's steady time is cut into windows, each window is given to the class that held it
//! (`rules`), a stream's shares are those of its time and a transfer's those of its bytes. The
//! rules follow the decision list of docs/decisions/0028-diagnosis.md.

mod advice;
pub mod evidence;
pub mod path;
mod rules;
mod stream;

#[cfg(test)]
mod recorded;
#[cfg(test)]
pub mod simulator;
#[cfg(test)]
mod tests;

use serde::Serialize;

use self::path::episodes::{Losses, WindowAtLoss};
use self::path::pauses::{Habit, Period};
use self::path::series::share;
use self::path::windows::Features;
use crate::base::path::PathSample;

pub use advice::{Advice, Change, Stage};
pub use stream::StreamVerdict;

/// All that is known of the path of a transfer. What is not known is left out.
#[derive(Clone, Debug, Default)]
pub struct Evidence {
    pub streams: Vec<Stream>,
    pub sender: Host,
    pub receiver: Host,
    pub asked: Asked,
    /// What the path is known to carry from elsewhere, as from `measure net`.
    pub capacity_bytes_per_s: Option<f64>,
}

/// The samples of one stream, by either host; each by its own clock.
#[derive(Clone, Debug, Default)]
pub struct Stream {
    pub number: u32,
    pub sent: Vec<PathSample>,
    pub received: Vec<PathSample>,
}

#[derive(Clone, Debug, Default)]
pub struct Host {
    /// CPUs that the process kept busy while data moved, on average; and those that it may use, a
    /// quota taken into account.
    pub busy_cpus: Option<f64>,
    pub usable_cpus: Option<f64>,
    /// The largest receive and send buffers that autotuning reaches here (`net.ipv4.tcp_rmem`,
    /// `tcp_wmem`, the third values), and that may be asked for (`net.core.rmem_max`, `wmem_max`).
    pub receive_buffer_auto_max: Option<u64>,
    pub receive_buffer_asked_max: Option<u64>,
    pub send_buffer_auto_max: Option<u64>,
    pub send_buffer_asked_max: Option<u64>,
    pub congestion: String,
}

/// What the transfer was told.
#[derive(Clone, Debug, Default)]
pub struct Asked {
    pub window_bytes: Option<u64>,
    pub pace: Pace,
    /// The limit of the transfer's own rate.
    pub rate_bytes_per_s: Option<f64>,
    pub request_bytes: u64,
    /// Sizes at which something may stop, with their names: `the lockstep of 32 MiB`.
    pub blocks: Vec<(String, u64)>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Pace {
    #[default]
    None,
    /// The program found it out for itself, so it holds nothing back.
    Auto,
    Asked,
}

/// What can hold a transfer back, in the order in which it is asked about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    TooShort,
    Pauses,
    ReceiveWindow,
    SlowReceiver,
    SendBuffer,
    SlowSource,
    SlowPassage,
    /// Neither the lane's clocks nor its pauses say which stage.
    SlowSender,
    Pacing,
    PathLoss,
    PathFull,
    ShallowBuffer,
    HostCpu,
    Undetermined,
}

impl Class {
    pub const ALL: [Class; 14] = [
        Class::TooShort,
        Class::Pauses,
        Class::ReceiveWindow,
        Class::SlowReceiver,
        Class::SendBuffer,
        Class::SlowSource,
        Class::SlowPassage,
        Class::SlowSender,
        Class::Pacing,
        Class::PathLoss,
        Class::PathFull,
        Class::ShallowBuffer,
        Class::HostCpu,
        Class::Undetermined,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Class::TooShort => "too short",
            Class::Pauses => "application pauses",
            Class::ReceiveWindow => "receive window",
            Class::SlowReceiver => "slow receiver",
            Class::SendBuffer => "send buffer",
            Class::SlowSource => "slow source",
            Class::SlowPassage => "slow passage",
            Class::SlowSender => "slow sender",
            Class::Pacing => "pacing",
            Class::PathLoss => "path loss",
            Class::PathFull => "path full",
            Class::ShallowBuffer => "shallow buffer",
            Class::HostCpu => "host CPU",
            Class::Undetermined => "undetermined",
        }
    }
}

/// Parts of a whole by class; they sum to 1, or to 0 where nothing is known.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Shares(Vec<Share>);

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Share {
    pub class: Class,
    pub share: f64,
}

impl Shares {
    /// Of weights, which may be of anything.
    pub fn of(weights: &[(Class, f64)]) -> Shares {
        let good = |weight: f64| if weight.is_finite() && weight > 0.0 { weight } else { 0.0 };
        let total: f64 = weights.iter().map(|(_, weight)| good(*weight)).sum();
        let of = |class: Class| {
            let mine = weights.iter().filter(|(other, _)| *other == class);
            share(mine.map(|(_, weight)| good(*weight)).sum(), total)
        };
        let mut shares: Vec<Share> = Class::ALL
            .into_iter()
            .map(|class| Share { class, share: of(class) })
            .filter(|share| share.share > 0.0)
            .collect();
        shares.sort_by(|a, b| b.share.total_cmp(&a.share).then(a.class.cmp(&b.class)));
        Shares(shares)
    }

    /// The largest first.
    pub fn all(&self) -> &[Share] {
        &self.0
    }

    pub fn get(&self, class: Class) -> f64 {
        self.0.iter().find(|share| share.class == class).map_or(0.0, |share| share.share)
    }
}

/// How sure a verdict is: by the share of what it names, and by how much was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Confidence {
    Low,
    Medium,
    High,
}

impl Confidence {
    pub fn name(self) -> &'static str {
        match self {
            Confidence::Low => "low",
            Confidence::Medium => "medium",
            Confidence::High => "high",
        }
    }
}

/// What held the transfer back, why we think so, and what would change it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Verdict {
    /// `None` is mixed: no class held half of the bytes.
    pub primary: Option<Class>,
    /// Others that held a tenth or more, the largest first.
    pub secondary: Vec<Class>,
    pub shares: Shares,
    pub confidence: Confidence,
    pub figures: Figures,
    /// What to change, in order. Each says which rate is expected once it is followed, and all
    /// before it are.
    pub advice: Vec<Advice>,
    /// After following all advice; `None` where nobody can know.
    pub predicted_bytes_per_s: Option<f64>,
    pub streams: Vec<StreamVerdict>,
}

/// The numbers of a whole transfer.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Figures {
    pub seconds: f64,
    /// Of the longest stream's life.
    pub ramp_s: f64,
    pub acked_bytes: f64,
    /// Behind the ramp, all streams together.
    pub bytes_per_s: f64,
    /// The same without the time of pauses.
    pub bytes_per_s_active: f64,
    pub round_trip_min_s: f64,
    /// The fastest that acknowledgements came: the path carries at least about this.
    pub seen_bytes_per_s: f64,
    /// What the path is taken to carry: known from elsewhere, or seen.
    pub capacity_bytes_per_s: f64,
    /// Features of all streams, weighted by bytes.
    pub features: Features,
    pub losses: Losses,
    /// The windows of all streams together when episodes began.
    pub window_at_loss: Option<WindowAtLoss>,
    /// Of the stream with most pauses.
    pub pauses: Habit,
    pub period: Option<Period>,
    pub sender_busy_cpus: Option<f64>,
    pub receiver_busy_cpus: Option<f64>,
}

/// What held a transfer back. Streams without a single step say nothing.
pub fn diagnose(evidence: &Evidence) -> Verdict {
    let all = stream::Streams::of(evidence);
    let streams: Vec<StreamVerdict> = all.each().map(|one| one.verdict()).collect();
    let weights: Vec<(Class, f64)> = weights(&streams);
    let shares = Shares::of(&weights);
    let figures = all.figures(&streams);
    let primary = primary(&shares, &figures);
    let secondary = shares
        .all()
        .iter()
        .filter(|share| Some(share.class) != primary && share.share >= SECONDARY_SHARE_MIN)
        .map(|share| share.class)
        .collect();
    let windows = streams.iter().map(|one| one.windows).max().unwrap_or(0);
    let confidence = confidence(primary, &shares, windows);
    let mut verdict = Verdict {
        primary,
        secondary,
        shares,
        confidence,
        figures,
        advice: Vec::new(),
        predicted_bytes_per_s: None,
        streams,
    };
    verdict.advice = advice::advise(&verdict, evidence);
    verdict.predicted_bytes_per_s =
        verdict.advice.last().and_then(|advice| advice.predicted_bytes_per_s);
    verdict
}

/// By the bytes of each stream; where nothing was acknowledged at all, every stream counts alike.
fn weights(streams: &[StreamVerdict]) -> Vec<(Class, f64)> {
    let total: f64 = streams.iter().map(|one| one.acked_bytes).sum();
    let weight = |one: &StreamVerdict| if total > 0.0 { one.acked_bytes } else { 1.0 };
    let of = |one: &StreamVerdict| {
        let weight = weight(one);
        let each = one.shares.all().iter().map(move |share| (share.class, share.share * weight));
        each.collect::<Vec<_>>()
    };
    streams.iter().flat_map(of).collect()
}

/// The class of most bytes, where that is half of them. A full path is no loss, so pauses that take
/// a notable part of the time come before it.
fn primary(shares: &Shares, figures: &Figures) -> Option<Class> {
    let Some(first) = shares.all().first() else { return Some(Class::Undetermined) };
    let steady_s = (figures.seconds - figures.ramp_s).max(0.0);
    let paused = share(figures.pauses.total_s, steady_s);
    // Who gets nothing through for a while has nothing to do meanwhile.
    let silent = rules::goes_silent(&figures.losses);
    let yields = matches!(first.class, Class::PathFull | Class::Undetermined) && !silent;
    if yields && paused >= rules::PAUSED_SHARE_MIN && shares.get(Class::Pauses) > 0.0 {
        return Some(Class::Pauses);
    }
    (first.share >= PRIMARY_SHARE_MIN).then_some(first.class)
}

fn confidence(primary: Option<Class>, shares: &Shares, windows: usize) -> Confidence {
    let share = primary.map_or(0.0, |class| shares.get(class));
    match primary {
        // That a transfer was short is beyond doubt.
        Some(Class::TooShort) => Confidence::High,
        None | Some(Class::Undetermined) => Confidence::Low,
        Some(_) if share >= 0.8 && windows >= 5 => Confidence::High,
        Some(_) if share >= 0.5 && windows >= 2 => Confidence::Medium,
        Some(_) => Confidence::Low,
    }
}

const PRIMARY_SHARE_MIN: f64 = 0.5;
const SECONDARY_SHARE_MIN: f64 = 0.10;
