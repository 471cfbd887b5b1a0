//! The result of a diagnosis: classes and their shares, the verdict on a transfer and on each
//! stream, and the advice.

use serde::Serialize;

use super::path::episodes::{Episode, Losses, WindowAtLoss};
use super::path::pauses::{Pause, PauseStats, Period};
use super::path::policing::Policing;
use super::path::sawtooth::Sawtooth;
use super::path::series::share;
use super::path::sharing::Sharing;
use super::path::windows::Features;

/// Bottlenecks, in the order in which advice is given. `rules.rs` has the order in which they are
/// tested.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Bottleneck {
    TooShort,
    Pauses,
    ReceiveWindow,
    SlowReceiver,
    /// All bytes have arrived, and are not on stable storage yet.
    SlowSync,
    /// What each file takes besides its bytes.
    SmallFiles,
    SendBuffer,
    SlowSource,
    SlowPassage,
    /// Neither the lane's clocks nor its pauses show which stage.
    SlowSender,
    Pacing,
    PathLoss,
    PathFull,
    /// Others send over it too.
    SharedBottleneck,
    /// The network drops what is above a rate, without a queue.
    Policer,
    ShallowBuffer,
    HostCpu,
    Undetermined,
}

impl Bottleneck {
    pub const ALL: [Bottleneck; 18] = [
        Bottleneck::TooShort,
        Bottleneck::Pauses,
        Bottleneck::ReceiveWindow,
        Bottleneck::SlowReceiver,
        Bottleneck::SlowSync,
        Bottleneck::SmallFiles,
        Bottleneck::SendBuffer,
        Bottleneck::SlowSource,
        Bottleneck::SlowPassage,
        Bottleneck::SlowSender,
        Bottleneck::Pacing,
        Bottleneck::PathLoss,
        Bottleneck::PathFull,
        Bottleneck::SharedBottleneck,
        Bottleneck::Policer,
        Bottleneck::ShallowBuffer,
        Bottleneck::HostCpu,
        Bottleneck::Undetermined,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Bottleneck::TooShort => "too short",
            Bottleneck::Pauses => "application pauses",
            Bottleneck::ReceiveWindow => "receive window",
            Bottleneck::SlowReceiver => "slow receiver",
            Bottleneck::SlowSync => "slow sync",
            Bottleneck::SmallFiles => "small files",
            Bottleneck::SendBuffer => "send buffer",
            Bottleneck::SlowSource => "slow source",
            Bottleneck::SlowPassage => "slow passage",
            Bottleneck::SlowSender => "slow sender",
            Bottleneck::Pacing => "pacing",
            Bottleneck::PathLoss => "path loss",
            Bottleneck::PathFull => "path full",
            Bottleneck::SharedBottleneck => "shared bottleneck",
            Bottleneck::Policer => "policer",
            Bottleneck::ShallowBuffer => "shallow buffer",
            Bottleneck::HostCpu => "host CPU",
            Bottleneck::Undetermined => "undetermined",
        }
    }
}

/// Parts of a whole by class; they sum to 1, or to 0 where none is known.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Shares(Vec<Share>);

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Share {
    pub class: Bottleneck,
    pub share: f64,
}

impl Shares {
    /// From weights in any unit; what is not a positive number counts as 0.
    pub fn of(weights: &[(Bottleneck, f64)]) -> Shares {
        let good = |weight: f64| if weight.is_finite() && weight > 0.0 { weight } else { 0.0 };
        let total: f64 = weights.iter().map(|(_, weight)| good(*weight)).sum();
        let of = |class: Bottleneck| {
            let mine = weights.iter().filter(|(other, _)| *other == class);
            share(mine.map(|(_, weight)| good(*weight)).sum(), total)
        };
        let mut shares: Vec<Share> = Bottleneck::ALL
            .into_iter()
            .map(|class| Share { class, share: of(class) })
            .filter(|share| share.share > 0.0)
            .collect();
        shares.sort_by(|a, b| b.share.total_cmp(&a.share).then(a.class.cmp(&b.class)));
        Shares(shares)
    }

    /// In descending order.
    pub fn all(&self) -> &[Share] {
        &self.0
    }

    pub fn get(&self, class: Bottleneck) -> f64 {
        self.0.iter().find(|share| share.class == class).map_or(0.0, |share| share.share)
    }
}

impl Figures {
    /// What was seen of a full path does not rule out that others send over it.
    pub fn may_be_shared(&self) -> bool {
        super::rules::may_be_shared(self)
    }
}

/// The confidence of a verdict: from the share of its class, from the number of windows, and from
/// how clearly the figures tell the class from others.
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

/// The bottleneck of the transfer, the evidence for it, and what would change it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Verdict {
    /// `None` is mixed: no class held half of the bytes.
    pub primary: Option<Bottleneck>,
    /// Others with a tenth or more, in descending order.
    pub secondary: Vec<Bottleneck>,
    pub shares: Shares,
    pub confidence: Confidence,
    pub figures: Figures,
    /// What to change, in order. Each entry has the rate that is expected once it and all before it
    /// are followed.
    pub advice: Vec<Advice>,
    /// After following all advice; `None` where it is unknown.
    pub predicted_bytes_per_s: Option<f64>,
    pub streams: Vec<StreamVerdict>,
}

/// The numbers of a whole transfer.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Figures {
    pub duration_s: f64,
    /// Of the stream with the longest duration.
    pub ramp_s: f64,
    pub acked_bytes: f64,
    /// After the ramp, all streams together.
    pub bytes_per_s: f64,
    /// The same without the time of pauses.
    pub bytes_per_s_active: f64,
    pub round_trip_min_s: f64,
    /// The fastest rate of acknowledgements: the path carries at least about this.
    pub seen_bytes_per_s: f64,
    /// The capacity of the path that is assumed: measured elsewhere, or seen here.
    pub capacity_bytes_per_s: f64,
    /// Features of all streams, weighted by bytes.
    pub features: Features,
    pub losses: Losses,
    /// The congestion windows of all streams together when episodes began.
    pub window_at_loss: Option<WindowAtLoss>,
    /// How the bottleneck served all streams, while a queue stood there.
    pub sharing: Option<Sharing>,
    pub policing: Option<Policing>,
    /// Of the stream with the most pauses.
    pub pauses: PauseStats,
    pub period: Option<Period>,
    pub sender_busy_cpus: Option<f64>,
    pub receiver_busy_cpus: Option<f64>,
    /// Both sides are on one machine: the two above are the CPUs of both together.
    pub is_one_machine: bool,
    pub files: Option<Files>,
    /// From the last byte until it is known to be on stable storage, where that was asked for.
    pub sync_s: Option<f64>,
}

/// The files of a copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Files {
    pub count: u64,
    pub mean_bytes: f64,
    /// While bytes moved.
    pub per_s: f64,
}

/// The bottleneck of one stream.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StreamVerdict {
    pub number: u32,
    /// `None` is mixed.
    pub primary: Option<Bottleneck>,
    /// Shares of the time after the ramp.
    pub shares: Shares,
    pub duration_s: f64,
    pub ramp_s: f64,
    pub windows: usize,
    pub acked_bytes: f64,
    /// All of the stream after its ramp, without pauses.
    pub features: Features,
    pub losses: Losses,
    pub pauses: PauseStats,
    pub sawtooth: Option<Sawtooth>,
    /// Every episode, in order; at most a thousand.
    pub episodes: Vec<Episode>,
    pub pause_list: Vec<Pause>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Advice {
    pub change: Change,
    /// Once this and all advice before it are followed; `None` where it is unknown.
    pub predicted_bytes_per_s: Option<f64>,
    /// The path was never seen to carry this rate: it is what this change alone would allow.
    pub at_most: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "change")]
pub enum Change {
    /// A transfer of this size spends 95 % of its time at full speed.
    MoveMore {
        bytes: f64,
        duration_s: f64,
    },
    /// More data requested ahead, so that the sender need not stop.
    Prefetch {
        bytes: f64,
        pause_s: f64,
        blocks: Option<f64>,
    },
    /// A window for each stream.
    Window {
        bytes: f64,
        now_bytes: f64,
        ceiling_bytes_per_s: f64,
        limit_bytes: Option<u64>,
        /// Computed, for a path that may carry more than was seen.
        for_link: Option<ForLink>,
    },
    /// The receiving host: what it does instead of receiving, and the share of its time.
    Receiver {
        stage: Stage,
        share: f64,
    },
    /// Of the receiving host: how fast what has arrived reaches stable storage.
    Sync {
        seconds: f64,
        bytes_per_s: f64,
    },
    /// Fewer and larger files, or more of them at once where CPUs are free.
    Files {
        files: Files,
        cpus_are_free: bool,
    },
    SendBuffer {
        bytes: f64,
        now_bytes: f64,
        limit_bytes: Option<u64>,
    },
    /// The sending host: the rate of this stage while it works.
    Sender {
        stage: Stage,
        share: f64,
        bytes_per_s: f64,
    },
    /// A higher pace or rate, of all streams together.
    RaisePace {
        bytes_per_s: f64,
        now_bytes_per_s: f64,
    },
    RaiseRate {
        bytes_per_s: f64,
        now_bytes_per_s: f64,
    },
    /// For all streams together.
    Pace {
        bytes_per_s: f64,
    },
    /// The rate that a policer lets pass, of all streams together.
    Policer {
        bytes_per_s: f64,
    },
    Streams {
        count: u32,
        now: u32,
        loss_rate: f64,
    },
    /// Of the sending host.
    Cpu {
        busy: f64,
        usable: Option<f64>,
    },
    /// Others send over the path too: more would be taken from them.
    Share {
        variation: f64,
    },
    /// The path is full.
    Nothing {
        queue_bytes: f64,
    },
    /// Look at the table of figures.
    Look,
}

/// The window that fills a link of a common rate.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ForLink {
    pub bits_per_s: f64,
    pub bytes: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    Source,
    Passage,
    Sink,
    Cpu,
    Unknown,
}

impl Stage {
    pub fn name(self) -> &'static str {
        match self {
            Stage::Source => "reading the source",
            Stage::Passage => "digest, codec and seal",
            Stage::Sink => "writing",
            Stage::Cpu => "its CPUs",
            Stage::Unknown => "the application",
        }
    }
}
