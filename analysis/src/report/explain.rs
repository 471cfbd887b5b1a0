//! The bottleneck of a transfer, as one sentence, as a page, and as JSON.

mod advice;
mod cause;
pub mod store;

use self::advice::{tell, would};
use self::cause::because;
use super::live::count;
use crate::diagnosis::path::episodes::Losses;
use crate::diagnosis::path::pauses::{LOCKSTEP, PauseStats, Period, Waiting};
use crate::diagnosis::path::series::share;
use crate::diagnosis::path::windows::Features;
use crate::diagnosis::{Advice, Bottleneck, Change, Confidence, StreamVerdict, Verdict};
use crate::statistics::Spread;
use base::units::Bytes;

/// The verdict in one sentence, for the summary of a transfer.
pub fn sentence(verdict: &Verdict) -> String {
    let mut text = match verdict.primary {
        None => mixed(verdict),
        Some(class) => because(verdict, class),
    };
    if let Some(advice) = verdict.advice.iter().find(|advice| in_sentence(verdict, advice)) {
        text.push_str(&format!("; {}", would(verdict, advice)));
    }
    let pauses = &verdict.figures.pauses;
    // A limited rate is kept by pauses.
    let named = matches!(verdict.primary, Some(Bottleneck::Pauses | Bottleneck::Pacing));
    let is_told = |period: &Period| pauses.count >= 3 || period.what == LOCKSTEP;
    if !named && verdict.figures.period.as_ref().is_some_and(is_told) {
        text.push_str(&format!("; it also {}", stops(verdict)));
    } else if let Some(second) = verdict.secondary.first().filter(|_| verdict.primary.is_some()) {
        text.push_str(&also(verdict, *second));
    }
    let known = !matches!(verdict.primary, None | Some(Bottleneck::Undetermined));
    if known && verdict.confidence == Confidence::Low {
        text.push_str(" (low confidence)");
    }
    text
}

fn also(verdict: &Verdict, second: Bottleneck) -> String {
    let name = second.name();
    match (verdict.primary, second) {
        (Some(Bottleneck::SlowSync), _) => format!("; before that {name}"),
        (_, Bottleneck::SlowSync) => {
            format!("; then {name} for {}", time(verdict.figures.sync_s.unwrap_or_default()))
        }
        _ => format!("; also {name} ({})", percent(verdict.shares.get(second))),
    }
}

/// The whole verdict: why, what to change, the figures, each stream, each episode and pause.
pub fn page(verdict: &Verdict) -> String {
    let mut text = format!("held back by: {}\n", sentence(verdict));
    text.push_str(&format!("confidence: {}\n\n", confidence(verdict)));
    let shares = verdict.shares.all();
    for share in shares {
        text.push_str(&fact(share.class.name(), &format!("{} of the bytes", percent(share.share))));
    }
    text.push_str(&format!("\nwhat to change{}\n", in_order(verdict)));
    for (number, advice) in (1..).zip(advice(verdict)) {
        text.push_str(&format!("  {number}. {advice}\n"));
    }
    text.push_str("\nthe path\n");
    for (name, value) in figures(verdict) {
        text.push_str(&fact(name, &value));
    }
    text.push_str(&streams(verdict));
    for stream in &verdict.streams {
        text.push_str(&episodes(stream));
        text.push_str(&pauses(stream));
    }
    text
}

/// What to change, in this order.
pub fn advice(verdict: &Verdict) -> Vec<String> {
    let mut before = None;
    let tell = |advice: &Advice| {
        let told = tell(verdict, advice, before);
        before = advice.predicted_bytes_per_s.or(before);
        told
    };
    verdict.advice.iter().map(tell).collect()
}

/// What the order and the rates of several pieces of advice mean.
pub fn in_order(verdict: &Verdict) -> &'static str {
    match verdict.advice.len() {
        0 | 1 => "",
        _ => {
            ", in this order: first what stops the data, then windows and hosts, then the path; \
             each rate is with all changes up to there"
        }
    }
}

/// The sentence as a line of the summary; nothing where no rule matched or the transfer was too
/// short, as that helps nobody.
pub fn line(verdict: &Verdict) -> String {
    match verdict.primary {
        Some(Bottleneck::Undetermined | Bottleneck::TooShort) => String::new(),
        _ => fact("held back by", &sentence(verdict)),
    }
}

/// True for advice with a number, if it belongs to the primary class.
fn in_sentence(verdict: &Verdict, advice: &Advice) -> bool {
    let class = match advice.change {
        Change::MoveMore { .. } => Bottleneck::TooShort,
        Change::Prefetch { .. } => Bottleneck::Pauses,
        Change::Window { .. } => Bottleneck::ReceiveWindow,
        Change::SendBuffer { .. } => Bottleneck::SendBuffer,
        Change::RaisePace { .. } | Change::RaiseRate { .. } => Bottleneck::Pacing,
        Change::Pace { .. } => Bottleneck::ShallowBuffer,
        Change::Policer { .. } => Bottleneck::Policer,
        Change::Streams { .. } => Bottleneck::PathLoss,
        _ => return false,
    };
    verdict.primary == Some(class)
}

fn mixed(verdict: &Verdict) -> String {
    let parts: Vec<String> = verdict
        .shares
        .all()
        .iter()
        .take(3)
        .map(|share| format!("{} {}", share.class.name(), percent(share.share)))
        .collect();
    format!("mixed: {}", parts.join(", "))
}

/// `stops every 32 MiB for 350 ms waiting for the peer (13 times, 21 % of the time)`.
fn stops(verdict: &Verdict) -> String {
    let figures = &verdict.figures;
    let habit = &figures.pauses;
    let every = match (&figures.period, &habit.bytes_between) {
        (Some(period), _) if period.what == LOCKSTEP => {
            format!(" in lockstep every {}", Bytes(period.bytes))
        }
        (Some(period), _) => format!(" every {}", Bytes(period.bytes)),
        (None, Some(bytes)) => format!(" about every {}", size(bytes.median)),
        (None, None) => String::new(),
    };
    let steady_s = (figures.duration_s - figures.ramp_s).max(1e-9);
    let mut text = format!(
        "stops{every} for {}{} ({}, {} of the time)",
        time(habit.median_length_s),
        waiting_for(verdict),
        match habit.count {
            1 => "once".to_string(),
            times => format!("{times} times"),
        },
        percent((habit.total_s / steady_s).min(1.0))
    );
    if habit.causes_losses {
        text.push_str(&format!(
            ", and losses follow within three round trips ({})",
            count(habit.episodes_after_pause as u64, "recovery episode")
        ));
    }
    text
}

fn waiting_for(verdict: &Verdict) -> &'static str {
    match most_wait_for(verdict) {
        Waiting::Peer => " waiting for the peer",
        Waiting::Source => " waiting for its source",
        Waiting::Passage => " busy with digest, compression or TLS",
        Waiting::Send => " blocked in send",
        Waiting::Unknown => "",
    }
}

/// What most of the pauses wait for, if it is the same.
fn most_wait_for(verdict: &Verdict) -> Waiting {
    let pauses = || verdict.streams.iter().flat_map(|stream| &stream.pause_list);
    let all = pauses().count();
    let most = |waiting: &Waiting| 2 * pauses().filter(|one| one.waiting == *waiting).count() > all;
    let known = [Waiting::Peer, Waiting::Source, Waiting::Passage, Waiting::Send];
    known.into_iter().find(most).unwrap_or(Waiting::Unknown)
}

/// How certain the verdict is, and from how much was seen.
pub fn confidence(verdict: &Verdict) -> String {
    let windows: usize = verdict.streams.iter().map(|stream| stream.windows).sum();
    let seen = format!("{} of time in {}", count(windows as u64, "span"), streams_of(verdict));
    match verdict.primary {
        Some(Bottleneck::TooShort) => format!("too short to judge more ({seen})"),
        Some(Bottleneck::PathFull) if verdict.figures.may_be_shared() => {
            format!("{} ({seen}; that others send too is not ruled out)", verdict.confidence.name())
        }
        _ => format!("{} ({seen})", verdict.confidence.name()),
    }
}

fn streams_of(verdict: &Verdict) -> String {
    count(verdict.streams.len() as u64, "stream")
}

/// The figures of the path, by name.
pub fn figures(verdict: &Verdict) -> Vec<(&'static str, String)> {
    let figures = &verdict.figures;
    let features = &figures.features;
    let losses = &figures.losses;
    let mut facts = vec![
        ("rate", format!("{} on the wire, after slow start", bits(figures.bytes_per_s))),
        ("fastest seen", bits(figures.seen_bytes_per_s)),
        (
            "round trip",
            format!(
                "{} at least, {} loaded",
                time(figures.round_trip_min_s),
                time(features.round_trip_s)
            ),
        ),
        ("slow start", format!("{} of {}", time(figures.ramp_s), time(figures.duration_s))),
        ("TCP's time", clocks(&verdict.streams)),
        ("window", format!("{} advertised", size(features.window_high_bytes))),
        ("retransmitted", losses_text(losses)),
    ];
    facts.extend(seen_by_tcp(losses));
    if losses.episodes > 0 {
        let between = losses.bytes_between.as_ref().map_or(String::new(), apart);
        let each = match losses.episodes {
            1 => format!("one, of {:.0} segments", losses.per_episode),
            many => format!("{many}, of {:.0} segments each (median)", losses.per_episode),
        };
        facts.push(("recovery episodes", format!("{each}{between}")));
    }
    if figures.pauses.count > 0 {
        facts.push(("pauses", habit(&figures.pauses)));
    }
    let (sender, receiver) = (figures.sender_busy_cpus, figures.receiver_busy_cpus);
    let cpus = match figures.is_one_machine {
        true => [("CPU of both", sender), ("", None)],
        false => [("sender's CPU", sender), ("receiver's CPU", receiver)],
    };
    for (name, busy) in cpus {
        facts.extend(busy.map(|busy| (name, format!("{busy:.2} CPUs busy"))));
    }
    let sync_s = figures.sync_s.filter(|seconds| *seconds >= 0.01);
    facts.extend(sync_s.map(|seconds| ("sync", format!("{} after the last byte", time(seconds)))));
    if let Some(rate) = verdict.predicted_bytes_per_s {
        let is_bound = verdict.advice.iter().any(|advice| advice.at_most);
        let most = if is_bound { "at most " } else { "" };
        facts.push(("after all advice", format!("{most}{}", bits(rate))));
    }
    facts
}

/// What TCP's three clocks of a sender (RFC 4898) say, as shares of the time after slow start, the
/// mean of all streams. In a pause there is nothing to send.
fn clocks(streams: &[StreamVerdict]) -> String {
    let count = streams.len().max(1) as f64;
    let mean = |of: fn(&Features) -> f64| {
        percent(streams.iter().map(|stream| of(&stream.features)).sum::<f64>() / count)
    };
    format!(
        "{} limited by the path, {} by the receive window, {} by the send buffer; {} without data",
        mean(|f| sending(f) * (1.0 - f.window_limited - f.buffer_limited).max(0.0)),
        mean(|f| sending(f) * f.window_limited),
        mean(|f| sending(f) * f.buffer_limited),
        mean(|f| 1.0 - sending(f))
    )
}

/// The share of all time in which there is data to send, or on its way.
fn sending(features: &Features) -> f64 {
    features.busy * (1.0 - share(features.paused_s, features.duration_s))
}

/// What TCP saw of marks, order, needless repetition and timeouts, where there was any.
fn seen_by_tcp(losses: &Losses) -> Option<(&'static str, String)> {
    let seen = [
        (losses.segments_marked, "acknowledged under a congestion mark (ECN)"),
        (losses.segments_duplicate, "sent again without need (DSACK)"),
        (losses.reorderings, "times overtaken by others"),
        (losses.timeouts, "timeouts"),
    ];
    let some = seen.iter().filter(|(count, _)| *count > 0);
    let said: Vec<String> = some.map(|(count, what)| format!("{count} {what}")).collect();
    (!said.is_empty()).then(|| ("segments", said.join(", ")))
}

fn losses_text(losses: &Losses) -> String {
    let Losses { retransmitted_segments: again, segments_sent: sent, .. } = losses;
    match losses.retransmitted_of_many() {
        Some(share) => format!("{again} of {sent} segments sent ({:.3} %)", 100.0 * share),
        None => format!("{again} of {sent} segments sent, too few for a share"),
    }
}

/// How far apart recovery episodes are.
fn apart(bytes: &Spread) -> String {
    let half = match bytes.n {
        ..4 => String::new(),
        _ => {
            let [low, high] = [bytes.lower_quartile, bytes.upper_quartile].map(size);
            format!(" (middle half: {low} to {high})")
        }
    };
    format!(", {} apart{half}", size(bytes.median))
}

fn habit(habit: &PauseStats) -> String {
    format!(
        "{} of {} (median), {} in all; losses follow {} of them (of moments at random, {})",
        habit.count,
        time(habit.median_length_s),
        time(habit.total_s),
        percent(habit.episode_after_pause),
        percent(habit.episode_anytime)
    )
}

/// A line for each stream: the shares of its time, and the features that they follow from.
fn streams(verdict: &Verdict) -> String {
    let mut text = format!(
        "\n  {:>6} {:>13} {:>6} {:>6} {:>6} {:>6} {:>6} {:>6} {:>10} {:>6} {:>7}  limited by\n",
        "stream",
        "rate",
        "window",
        "buffer",
        "app",
        "queued",
        "fill",
        "busy",
        "source/send",
        "rtt/min",
        "retrans"
    );
    for stream in &verdict.streams {
        let f = &stream.features;
        let held = stream.shares.all().iter().take(3);
        let held: Vec<String> =
            held.map(|share| format!("{} {}", share.class.name(), percent(share.share))).collect();
        text.push_str(&format!(
            "  {:>6} {:>13} {:>6} {:>6} {:>6} {:>6} {:>6.2} {:>6} {:>11} {:>7.2} {:>7}  {}\n",
            stream.number,
            bits(f.goodput),
            percent(f.window_limited),
            percent(f.buffer_limited),
            percent(f.app_limited),
            percent(f.queued),
            f.fill,
            percent(f.busy),
            format!("{}/{}", percent(f.source + f.passage), percent(f.sink)),
            f.queueing(),
            stream
                .losses
                .retransmitted_of_many()
                .map_or("-".to_string(), |share| format!("{:.2} %", 100.0 * share)),
            held.join(", ")
        ));
    }
    text
}

fn episodes(stream: &StreamVerdict) -> String {
    let mut text = String::new();
    if !stream.episodes.is_empty() {
        text.push_str(&format!("\nstream {}: recovery episodes\n", stream.number));
    }
    for episode in stream.episodes.iter().take(LINES_MAX) {
        text.push_str(&format!(
            "  {:>9.3} s  {:>6} segments retransmitted  {:>12} after the previous episode  window \
             {:>6} segments\n",
            episode.at_s,
            episode.retransmitted_segments,
            Bytes(episode.bytes_before).to_string(),
            episode.cwnd_segments
        ));
    }
    text.push_str(&more(stream.losses.episodes));
    if let Some(tooth) = &stream.sawtooth {
        let depth = percent(tooth.depth);
        text.push_str(&format!("  a sawtooth of {}, {depth} deep\n", time(tooth.period_s)));
    }
    text
}

fn pauses(stream: &StreamVerdict) -> String {
    let mut text = String::new();
    if !stream.pause_list.is_empty() {
        text.push_str(&format!("\nstream {}: pauses\n", stream.number));
    }
    for pause in stream.pause_list.iter().take(LINES_MAX) {
        let waiting = match pause.waiting {
            Waiting::Peer => "for the peer",
            Waiting::Source => "for the source",
            Waiting::Passage => "digest, codec or TLS",
            Waiting::Send => "blocked in send",
            Waiting::Unknown => "",
        };
        let burst = pause
            .burst
            .map_or(String::new(), |burst| format!("then {} at once", Bytes(burst.bytes)));
        text.push_str(&format!(
            "  {:>9.3} s  {:>8}  after {:>12}  {waiting:<20} {burst}\n",
            pause.at_s,
            time(pause.length_s),
            Bytes(pause.bytes_before).to_string()
        ));
    }
    text.push_str(&more(stream.pauses.count));
    text
}

fn more(all: usize) -> String {
    match all.saturating_sub(LINES_MAX) {
        0 => String::new(),
        more => format!("  and {more} more\n"),
    }
}

fn fact(name: &str, value: &str) -> String {
    format!("  {name:<NAME_WIDTH$}{value}\n")
}

fn percent(share: f64) -> String {
    format!("{:.0} %", 100.0 * share)
}

/// `24.1 Mbit/s`.
pub(super) fn bits(bytes_per_s: f64) -> String {
    let bits = bytes_per_s * 8.0;
    match bits {
        1e9.. => format!("{:.2} Gbit/s", bits / 1e9),
        1e8.. => format!("{:.0} Mbit/s", bits / 1e6),
        1e6.. => format!("{:.1} Mbit/s", bits / 1e6),
        _ => format!("{:.0} kbit/s", bits / 1e3),
    }
}

fn size(bytes: f64) -> String {
    match bytes {
        1_073_741_824.0.. => format!("{:.1} GiB", bytes / 1_073_741_824.0),
        1_048_576.0.. => format!("{:.1} MiB", bytes / 1_048_576.0),
        1024.0.. => format!("{:.0} KiB", bytes / 1024.0),
        _ => format!("{bytes:.0} B"),
    }
}

/// As it is typed: whole KiB.
fn typed(bytes: f64) -> String {
    format!("{:.0}K", (bytes / 1024.0).ceil())
}

pub(crate) fn time(seconds: f64) -> String {
    match seconds {
        10.0.. => format!("{seconds:.0} s"),
        1.0.. => format!("{seconds:.1} s"),
        0.01.. => format!("{:.0} ms", seconds * 1e3),
        0.001.. => format!("{:.1} ms", seconds * 1e3),
        _ => format!("{:.0} µs", seconds * 1e6),
    }
}

const NAME_WIDTH: usize = 20;
/// At most this many episodes and pauses of each stream are shown.
const LINES_MAX: usize = 20;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnosis::simulator::{Application, World};
    use crate::diagnosis::{Evidence, diagnose};

    fn check(name: &str, world: &World, expect: &[&str]) {
        let verdict = diagnose(&world.evidence());
        let text = sentence(&verdict);
        let page = page(&verdict);
        insta::assert_snapshot!(name, page);
        for part in expect {
            assert!(text.contains(part), "'{part}' is not in '{text}'\n{page}");
        }
        assert!(!text.contains('\n') && page.contains(&text), "{text}\n{page}");
    }

    #[test]
    fn a_sentence_has_the_numbers() {
        let plain = World { seconds: 12.0, ..World::default() };
        let lockstep = Application::Lockstep { block_bytes: f64::from(8 << 20), pause_s: 0.25 };
        let cases: [(&str, World, &[&str]); 4] = [
            (
                "receive-window",
                World { window_bytes: 326_880.0, ..plain.clone() },
                &[
                    "receive window: 319 KiB caps a stream at 25",
                    "102 ms path; --window 1443K would carry 9",
                ],
            ),
            (
                "application-pauses",
                World { application: lockstep, ..plain.clone() },
                &["application pauses: it stops every 8 MiB for 3", "waiting for the peer"],
            ),
            (
                "too-short",
                World { application: Application::Total { bytes: 1e6 }, ..plain.clone() },
                &["too short to judge"],
            ),
            (
                "slow-receiver",
                World { reader_bits_per_s: Some(30e6), window_bytes: 2.5e6, ..plain },
                &["slow receiver: it receives only", "time goes into writing"],
            ),
        ];
        for (name, world, expect) in cases {
            check(name, &world, expect);
        }
    }

    /// On one machine the CPU time of both processes is known together, and is nobody's alone.
    #[test]
    fn whose_cpu_is_busy() {
        let world = World { kernel_bits_per_s: Some(40e6), seconds: 12.0, ..World::default() };
        let cases = [
            (false, "0.97 CPUs of the sending host are busy", "sender's CPU"),
            (true, "0.97 CPUs are busy with both sides", "CPU of both"),
        ];
        for (is_one_machine, expect, fact) in cases {
            let verdict = diagnose(&Evidence { is_one_machine, ..world.evidence() });
            let page = page(&verdict);
            assert!(sentence(&verdict).contains(expect) && page.contains(fact), "{page}");
            assert_eq!(page.contains("sender's CPU"), !is_one_machine, "{page}");
        }
    }

    #[test]
    fn nothing_is_said_of_nothing() {
        let verdict = diagnose(&Evidence::default());
        assert!(sentence(&verdict).starts_with("undetermined"), "{}", page(&verdict));
        assert_eq!(line(&verdict), "", "a summary is silent then");
        assert!(serde_json::to_string(&verdict).unwrap().contains("\"primary\":\"undetermined\""));
    }
}
