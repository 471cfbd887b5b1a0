//! What to change, as text: the effect that is expected, and what to set.

use super::{bits, most_wait_for, size, time, typed};
use crate::diagnosis::path::pauses::{LOCKSTEP, Waiting};
use crate::diagnosis::{Advice, Change, Stage, Verdict};
use base::units::Bytes;

/// `--window 1664K would carry 100 Mbit/s`.
pub(super) fn would(verdict: &Verdict, advice: &Advice) -> String {
    let carried = carried(advice.predicted_bytes_per_s);
    let may = if advice.at_most { "would allow at most" } else { "would carry" };
    match &advice.change {
        Change::Prefetch { .. } if is_lockstep(verdict) && !carried.is_empty() => {
            format!("without --lockstep it {may} {carried}")
        }
        Change::MoveMore { bytes, .. } => {
            format!("copies of {} or more would reach full speed", size(*bytes))
        }
        Change::Prefetch { bytes, .. } if carried.is_empty() => {
            format!("prefetching {} would avoid the pauses", size(*bytes))
        }
        Change::Prefetch { bytes, .. } => format!("prefetching {} {may} {carried}", size(*bytes)),
        Change::Window { bytes, for_link: Some(link), .. } => {
            let rate = bits(link.bits_per_s / 8.0);
            let [bytes, more] = [*bytes, link.bytes].map(typed);
            format!("--window {bytes} {may} {carried}; {rate} would take {more}")
        }
        Change::Window { bytes, .. } => format!("--window {} {may} {carried}", typed(*bytes)),
        Change::SendBuffer { bytes, .. } => {
            format!("a send buffer of {} {may} {carried}", size(*bytes))
        }
        Change::RaisePace { bytes_per_s, .. } | Change::RaiseRate { bytes_per_s, .. } => {
            format!("raise it to {} or leave it out", bits(*bytes_per_s))
        }
        Change::Policer { bytes_per_s } => {
            format!("a pace of {} would avoid the losses", bits(*bytes_per_s))
        }
        Change::Pace { bytes_per_s } if carried.is_empty() => {
            format!("a pace of {} would avoid the losses", bits(*bytes_per_s))
        }
        Change::Pace { bytes_per_s } => format!("a pace of {} {may} {carried}", bits(*bytes_per_s)),
        Change::Streams { count, .. } => format!("{count} streams {may} {carried}"),
        _ => carried,
    }
}

/// One piece of advice in full, with the rate that the advice before it promises.
pub(super) fn tell(verdict: &Verdict, advice: &Advice, before: Option<f64>) -> String {
    let mut text = order(&advice.change);
    if matches!(advice.change, Change::Prefetch { .. }) {
        text.push_str(&format!(": {}", prefetch_by(verdict)));
    }
    let seen = bits(verdict.figures.seen_bytes_per_s);
    text.push_str(&match (advice.predicted_bytes_per_s.map(bits), &advice.change) {
        (Some(rate), _) if advice.at_most => {
            format!(" (at most: {rate}; what the path carries is not known, {seen} was seen)")
        }
        (Some(rate), Change::Pace { .. }) if before > advice.predicted_bytes_per_s => {
            format!(" (expected: {rate}; {} only until a queue overflows)", carried(before))
        }
        (Some(rate), _) => format!(" (expected: {rate})"),
        (None, Change::Pace { .. } | Change::Policer { .. }) => {
            " (not faster, but with fewer losses)".into()
        }
        (None, _) => String::new(),
    });
    text
}

fn carried(bytes_per_s: Option<f64>) -> String {
    bytes_per_s.map(bits).unwrap_or_default()
}

/// How data is requested ahead of the pauses.
fn prefetch_by(verdict: &Verdict) -> &'static str {
    match most_wait_for(verdict) {
        _ if is_lockstep(verdict) => "leave out --lockstep",
        Waiting::Source => {
            "raise --depth-source, or let the program that feeds the copy read ahead"
        }
        _ => "the program that feeds the copy must read ahead, or use more --streams",
    }
}

fn is_lockstep(verdict: &Verdict) -> bool {
    verdict.figures.period.as_ref().is_some_and(|period| period.what == LOCKSTEP)
}

fn order(change: &Change) -> String {
    let limit = |limit: &Option<u64>, names: &str| match limit {
        Some(limit) => format!("; raise {names} on that host, now {}", Bytes(*limit)),
        None => String::new(),
    };
    match change {
        Change::MoveMore { bytes, duration_s } => format!(
            "copy more at once: {} or {} reach 95 % of full speed",
            size(*bytes),
            time(*duration_s)
        ),
        Change::Prefetch { bytes, pause_s, blocks } => {
            let blocks =
                blocks.map_or(String::new(), |blocks| format!(" ({:.0} blocks)", blocks.ceil()));
            format!("prefetch {}{blocks} to cover pauses of {}", size(*bytes), time(*pause_s))
        }
        Change::Window { bytes, now_bytes, ceiling_bytes_per_s, limit_bytes, for_link } => format!(
            "--window {} or auto: {} allows {} a stream{}{}",
            typed(*bytes),
            size(*now_bytes),
            bits(*ceiling_bytes_per_s),
            for_link.map_or(String::new(), |link| {
                let rate = bits(link.bits_per_s / 8.0);
                let more = typed(link.bytes);
                format!("; {more}, with a quarter to spare, if the path carries {rate}")
            }),
            limit(limit_bytes, "net.core.rmem_max and net.ipv4.tcp_rmem")
        ),
        Change::Receiver { stage, .. } => receiver(*stage).into(),
        Change::Sync { bytes_per_s, .. } => sync(*bytes_per_s),
        Change::Files { cpus_are_free, .. } => files(*cpus_are_free).into(),
        Change::SendBuffer { bytes, now_bytes, limit_bytes } => format!(
            "a send buffer of {} or autotuning: it is {} now{}",
            size(*bytes),
            size(*now_bytes),
            limit(limit_bytes, "net.core.wmem_max and net.ipv4.tcp_wmem")
        ),
        Change::Sender { stage, bytes_per_s, .. } => sender(*stage, *bytes_per_s),
        Change::RaisePace { bytes_per_s, now_bytes_per_s } => {
            format!("raise --pace, now {}: try {}", bits(*now_bytes_per_s), bits(*bytes_per_s))
        }
        Change::RaiseRate { bytes_per_s, now_bytes_per_s } => {
            format!("raise --rate, now {}: try {}", bits(*now_bytes_per_s), bits(*bytes_per_s))
        }
        Change::Pace { bytes_per_s } => {
            format!("pace at {} in all, so that no burst overflows a queue", bits(*bytes_per_s))
        }
        Change::Policer { bytes_per_s } => format!(
            "--pace {}, so that less is dropped; more passes only if whoever runs the network \
             raises the limit",
            bits(*bytes_per_s)
        ),
        Change::Streams { count, now, loss_rate } => format!(
            "--streams {count} (now {now}): each recovers from its own losses, one segment in \
             {:.0}; or --congestion bbr where the sending host has it",
            1.0 / loss_rate.max(1e-9)
        ),
        Change::Cpu { .. } => CPU.into(),
        Change::Share { .. } => {
            "wait until the others have gone; more --streams would take bandwidth from them".into()
        }
        Change::Nothing { queue_bytes } => {
            format!("nothing: the network is the limit; {} are queued", size(*queue_bytes))
        }
        Change::Look => "no advice: see the figures below".into(),
    }
}

const CPU: &str = "more CPU or less to do: --seal off, --digest crc64, larger requests, streams up \
                   to the number of CPUs";

fn sync(bytes_per_s: f64) -> String {
    format!(
        "a disk that writes faster than {}, or --direct on, which writes while data arrives; \
         --fsync off where what is lost with the power can be copied again",
        bits(bytes_per_s)
    )
}

fn files(cpus_are_free: bool) -> &'static str {
    match cpus_are_free {
        true => "more --streams, so that more files are under way; or one archive: tar to a pipe",
        false => "fewer and larger files, as one archive, or more CPU: the CPUs are busy",
    }
}

fn receiver(stage: Stage) -> &'static str {
    match stage {
        Stage::Sink => "a faster disk at the receiver, or more writes at once (--depth-sink)",
        Stage::Passage => "more streams: the receiver's lanes are busy with the bytes",
        Stage::Cpu => "more CPU at the receiver, or less to do (--seal off, --digest crc64)",
        _ => "look at the receiving application: it reads too slowly",
    }
}

fn sender(stage: Stage, bytes_per_s: f64) -> String {
    let alone = bits(bytes_per_s);
    match stage {
        Stage::Source => format!(
            "a faster source, or more reads at once (--depth-source, --streams): reading alone \
             reaches {alone}"
        ),
        Stage::Passage => format!(
            "more streams on more CPUs, or less to do (--seal off, --digest crc64): these steps \
             reach {alone}"
        ),
        _ => format!("look at the sending application: it supplies {alone}"),
    }
}
