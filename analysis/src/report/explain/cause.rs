//! What held a transfer back, as text: a sentence for each class.

use super::{bits, percent, size, stops, time};
use crate::diagnosis::path::series::share;
use crate::diagnosis::{Bottleneck, Change, Figures, Stage, Verdict};
use crate::report::live::count;

pub(super) fn because(verdict: &Verdict, class: Bottleneck) -> String {
    let figures = &verdict.figures;
    let features = &figures.features;
    // The summary beside it has the rate of the files.
    let rate = format!("{} on the wire", bits(figures.bytes_per_s));
    let path = path(figures);
    let name = class.name();
    let each = match verdict.streams.len() {
        0 | 1 => "a stream".to_string(),
        many => format!("each of {many} streams"),
    };
    // With the round trip as it was, which a queue or a busy host makes longer.
    let round_trip_s = features.round_trip_s.max(figures.round_trip_min_s).max(1e-9);
    let ceiling = |bytes: f64| bits(bytes / round_trip_s);
    match class {
        Bottleneck::TooShort => short(verdict),
        Bottleneck::Pauses => format!("{name}: it {}", stops(verdict)),
        Bottleneck::ReceiveWindow => {
            let window = features.window_high_bytes;
            let caps = ceiling(window);
            format!("{name}: {} caps {each} at {caps} on {path}", size(window))
        }
        Bottleneck::SlowReceiver => {
            format!("{name}: it receives only {rate}{}", busy_with(verdict))
        }
        Bottleneck::SlowSync => sync(figures),
        Bottleneck::SmallFiles => small_files(figures),
        Bottleneck::SendBuffer => {
            let share = percent(features.buffer_limited);
            let held = match features.buffer_limited >= 0.1 {
                true => format!("it limited the sender {share} of the time"),
                false => "it was full of unacknowledged data".to_string(),
            };
            format!("{name}: {held}, so {rate} on {path}")
        }
        Bottleneck::SlowSource => {
            let share = percent(features.source);
            format!("{name}: it supplies {rate}; reading takes {share} of the lanes' time")
        }
        Bottleneck::SlowPassage => {
            let share = percent(features.passage);
            format!("{name}: digest, codec and seal take {share} of the lanes' time, so {rate}")
        }
        Bottleneck::SlowSender => {
            let share = percent(features.app_limited);
            format!(
                "{name}: the sender supplies {rate}; the path waited for data {share} of the time"
            )
        }
        Bottleneck::Pacing => format!("{name}: limited by {}, to {rate}", rate_option(verdict)),
        Bottleneck::PathLoss => format!(
            "{name}: one segment in {:.0} is sent again, which limits {each} to {} on {path}",
            1.0 / figures.losses.retransmitted().max(1e-9),
            bits(features.goodput / verdict.streams.len().max(1) as f64)
        ),
        Bottleneck::PathFull => format!(
            "{name}: network-limited at {rate}; {} are queued",
            size(features.queue_s() * features.goodput)
        ),
        Bottleneck::SharedBottleneck => format!(
            "{name}: others send here too, as our part, {rate} on average, varies by {} in a queue",
            percent(figures.sharing.unwrap_or_default().variation)
        ),
        Bottleneck::Policer => policer(verdict),
        Bottleneck::ShallowBuffer => overflow(verdict),
        Bottleneck::HostCpu => format!("{name}: {}, so {rate}", busy_cpus(verdict)),
        Bottleneck::Undetermined => format!("{name}: cause unknown, {rate} on {path}"),
    }
}

fn sync(figures: &Figures) -> String {
    let sync_s = figures.sync_s.unwrap_or_default();
    format!(
        "{}: once all bytes had arrived, it took {} until they were on stable storage, {} of the \
         time",
        Bottleneck::SlowSync.name(),
        time(sync_s),
        percent(share(sync_s, figures.duration_s + sync_s))
    )
}

fn small_files(figures: &Figures) -> String {
    let files = figures.files.unwrap_or_default();
    format!(
        "{}: {} of {} on average, {:.0} a second, each of which takes longer than its bytes, so {}",
        Bottleneck::SmallFiles.name(),
        count(files.count, "file"),
        size(files.mean_bytes),
        files.per_s,
        format_args!("{} on the wire", bits(figures.bytes_per_s))
    )
}

/// `this 102 ms path`; with both round trips where they are far apart.
fn path(figures: &Figures) -> String {
    let (least_s, usual_s) = (figures.round_trip_min_s, figures.features.round_trip_s);
    match usual_s > ROUND_TRIPS_APART * least_s {
        true => format!("this path ({} idle, {} loaded)", time(least_s), time(usual_s)),
        false => format!("this {} path", time(least_s)),
    }
}

const ROUND_TRIPS_APART: f64 = 3.0;

fn overflow(verdict: &Verdict) -> String {
    let figures = &verdict.figures;
    format!(
        "{}: a queue overflows, {} lost {} segments in all, so {} of {}",
        Bottleneck::ShallowBuffer.name(),
        count(figures.losses.episodes as u64, "recovery episode"),
        figures.losses.retransmitted_segments,
        bits(figures.bytes_per_s),
        bits(figures.capacity_bytes_per_s)
    )
}

/// `policer: the network lets 20 Mbit/s pass and drops the rest, without a queue; the first 500 KiB
/// came at 59 Mbit/s`.
fn policer(verdict: &Verdict) -> String {
    let policing = verdict.figures.policing.unwrap_or_default();
    format!(
        "{}: the network lets {} pass and drops the rest, without a queue; the first {} came at up \
         to {}",
        Bottleneck::Policer.name(),
        bits(policing.bytes_per_s),
        size(policing.before_bytes),
        bits(policing.before_bytes_per_s)
    )
}

/// Where CPU time is all used: on one machine that of both sides is known together only.
fn busy_cpus(verdict: &Verdict) -> String {
    let figures = &verdict.figures;
    match figures.sender_busy_cpus {
        Some(busy) if figures.is_one_machine => format!("{busy:.2} CPUs are busy with both sides"),
        Some(busy) => format!("{busy:.2} CPUs of the sending host are busy"),
        None => "a host is busy".to_string(),
    }
}

/// The option that limits the rate, as far as the advice shows it.
fn rate_option(verdict: &Verdict) -> &'static str {
    let reached = verdict.figures.bytes_per_s;
    let known = verdict.advice.iter().find_map(|advice| match advice.change {
        Change::RaiseRate { .. } => Some("--rate"),
        // A transfer far below its pace may have a --rate too.
        Change::RaisePace { now_bytes_per_s, .. } if reached >= 0.8 * now_bytes_per_s => {
            Some("--pace")
        }
        _ => None,
    });
    known.unwrap_or("--rate or --pace")
}

fn short(verdict: &Verdict) -> String {
    let figures = &verdict.figures;
    let trips = figures.duration_s / figures.round_trip_min_s.max(1e-9);
    format!(
        "too short to judge: {} ({trips:.0} round trips), {} of it slow start",
        time(figures.duration_s),
        time(figures.ramp_s)
    )
}

/// What the receiving host does instead of receiving.
fn busy_with(verdict: &Verdict) -> String {
    let stage = verdict.advice.iter().find_map(|advice| match advice.change {
        Change::Receiver { stage, share } if share > 0.0 => Some((stage, share)),
        _ => None,
    });
    match stage {
        Some((Stage::Cpu, share)) if verdict.figures.is_one_machine => {
            format!(", {} of the CPU is busy with both sides", percent(share))
        }
        Some((Stage::Cpu, share)) => format!(", {} of its CPU is busy", percent(share)),
        Some((stage, share)) => {
            format!(", {} of its lanes' time goes into {}", percent(share), stage.name())
        }
        None => String::new(),
    }
}
