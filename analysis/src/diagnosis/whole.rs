//! What holds a copy back as a whole, and no window of a stream shows: the work that each file
//! takes, and the sync behind the last byte.

use super::evidence::Evidence;
use super::path::pauses::LOCKSTEP;
use super::verdict::{Bottleneck, Figures, Shares};

/// Where files are small, what a host seems to spend on bytes goes into opening, naming and closing
/// files, and into waiting for the next ones.
pub(super) fn by_files(shares: Shares, figures: &Figures, evidence: &Evidence) -> Shares {
    let Some(files) = figures.files else { return shares };
    if files.count < FILES_MIN || files.mean_bytes >= FILE_COSTS_BYTES {
        return shares;
    }
    let in_lockstep = evidence.asked.blocks.iter().any(|(name, _)| name == LOCKSTEP);
    let class = |class: Bottleneck| match class {
        Bottleneck::Pauses if in_lockstep => class,
        Bottleneck::Pauses
        | Bottleneck::SlowReceiver
        | Bottleneck::SlowSource
        | Bottleneck::SlowPassage
        | Bottleneck::SlowSender
        | Bottleneck::HostCpu => Bottleneck::SmallFiles,
        _ => class,
    };
    let weights: Vec<(Bottleneck, f64)> =
        shares.all().iter().map(|share| (class(share.class), share.share)).collect();
    Shares::of(&weights)
}

/// The share of the sync in the time of the copy, where it is long enough to count.
pub(super) fn sync_share(figures: &Figures) -> Option<f64> {
    let sync_s = figures.sync_s.filter(|seconds| *seconds >= SYNC_SECONDS_MIN)?;
    Some(sync_s / (figures.duration_s + sync_s))
}

/// Fewer are not what takes the time of a copy that is long enough to judge.
const FILES_MIN: u64 = 100;
/// Between what a file costs in memory (39 us of CPU time, as much as 30 kB of a large one) and on
/// ext4 (700 us, 580 kB): runs/2026-11-25-small-files.md.
const FILE_COSTS_BYTES: f64 = 1e5;
const SYNC_SECONDS_MIN: f64 = 0.25;
