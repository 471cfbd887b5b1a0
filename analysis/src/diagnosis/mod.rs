//! The bottleneck of a transfer, from recorded samples alone: no clock, no I/O, no store, and no
//! guesses.
//!
//! Each stream's steady time is divided into windows, each window is assigned to the class that
//! limited it (`rules`); a stream's shares are of its time, a transfer's of its bytes. The rules
//! follow the decision list of docs/decisions/0028-diagnosis.md.

mod advice;
pub mod evidence;
pub mod path;
mod rules;
pub mod store;
mod stream;
mod verdict;
mod whole;

#[cfg(test)]
mod recorded;
#[cfg(test)]
pub(crate) mod simulator;
#[cfg(test)]
mod tests;

pub use self::evidence::{Asked, Copied, Evidence, Host, Pace, Stream};
use self::path::series::share;
pub use self::verdict::{
    Advice, Bottleneck, Change, Confidence, Figures, Files, Share, Shares, Stage, StreamVerdict,
    Verdict,
};

/// Diagnoses a transfer. Streams with fewer than two samples are ignored.
pub fn diagnose(evidence: &Evidence) -> Verdict {
    let all = stream::Streams::of(evidence);
    let streams: Vec<StreamVerdict> = all.each().map(|one| one.verdict()).collect();
    let figures = all.figures(&streams);
    let shares = whole::by_files(Shares::of(&weights(&streams)), &figures, evidence);
    let sync = whole::sync_share(&figures);
    let primary = primary(&shares, &figures);
    let others = shares.all().iter().map(|share| (share.class, share.share));
    let secondary = sync
        .map(|share| (Bottleneck::SlowSync, share))
        .into_iter()
        .chain(others)
        .filter(|(class, share)| Some(*class) != primary && *share >= SECONDARY_SHARE_MIN)
        .map(|(class, _)| class)
        .collect();
    let windows = streams.iter().map(|one| one.windows).max().unwrap_or(0);
    let confidence = confidence(primary, &shares, windows, &figures);
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
        verdict.advice.iter().rev().find_map(|advice| advice.predicted_bytes_per_s);
    verdict
}

/// Weights by the bytes of each stream; where nothing was acknowledged, all streams are equal.
fn weights(streams: &[StreamVerdict]) -> Vec<(Bottleneck, f64)> {
    let total: f64 = streams.iter().map(|one| one.acked_bytes).sum();
    let weight = |one: &StreamVerdict| if total > 0.0 { one.acked_bytes } else { 1.0 };
    let of = |one: &StreamVerdict| {
        let weight = weight(one);
        let each = one.shares.all().iter().map(move |share| (share.class, share.share * weight));
        each.collect::<Vec<_>>()
    };
    streams.iter().flat_map(of).collect()
}

/// The class with most bytes, if it has half of them. A full path is not a problem, so pauses that
/// take a notable part of the time come before it.
fn primary(shares: &Shares, figures: &Figures) -> Option<Bottleneck> {
    if whole::sync_share(figures).is_some_and(|share| share >= PRIMARY_SHARE_MIN) {
        return Some(Bottleneck::SlowSync);
    }
    let Some(first) = shares.all().first() else { return Some(Bottleneck::Undetermined) };
    let steady_s = (figures.duration_s - figures.ramp_s).max(0.0);
    let paused = share(figures.pauses.total_s, steady_s);
    // While nothing gets through, a sender has nothing to do: such pauses do not count.
    let silent = rules::has_outages(&figures.losses);
    let yields = matches!(
        first.class,
        Bottleneck::PathFull | Bottleneck::SharedBottleneck | Bottleneck::Undetermined
    ) && !silent;
    if yields && paused >= rules::PAUSED_SHARE_MIN && shares.get(Bottleneck::Pauses) > 0.0 {
        return Some(Bottleneck::Pauses);
    }
    (first.share >= PRIMARY_SHARE_MIN).then_some(first.class)
}

fn confidence(
    primary: Option<Bottleneck>,
    shares: &Shares,
    windows: usize,
    figures: &Figures,
) -> Confidence {
    let share = primary.map_or(0.0, |class| shares.get(class));
    match primary {
        // It is certain that a transfer was short.
        Some(Bottleneck::TooShort) => Confidence::High,
        None | Some(Bottleneck::Undetermined) => Confidence::Low,
        // What a file takes is not told from what a slow disk takes.
        Some(Bottleneck::SmallFiles) => Confidence::Medium,
        // It is measured, and not inferred.
        Some(Bottleneck::SlowSync) => Confidence::High,
        Some(class) if share >= 0.8 && windows >= 5 && !rules::is_close(class, figures) => {
            Confidence::High
        }
        Some(_) if share >= 0.5 && windows >= 2 => Confidence::Medium,
        Some(_) => Confidence::Low,
    }
}

const PRIMARY_SHARE_MIN: f64 = 0.5;
const SECONDARY_SHARE_MIN: f64 = 0.10;
