//! The time-sequence of a stream in the format of xplot: what was sent, acknowledged and sent
//! again, with the colours of tcptrace.

use std::fmt::Write as _;

use super::escape;
use crate::diagnosis::path::episodes::episodes;
use crate::diagnosis::path::pauses::pauses;
use crate::diagnosis::path::series::{Series, Step};
use base::path::PathSample;

/// One stream from its sending end. Sequence numbers count bytes from its beginning; times are
/// seconds since its first sample. `round_trip_s` is the least of the path.
pub fn stream(title: &str, samples: &[PathSample], round_trip_s: f64) -> String {
    let series = Series::of(samples);
    let mut text = format!(
        "double signed\ntitle\n{}\nxlabel\ntime (s)\nylabel\nsequence number\n",
        escape::line(title)
    );
    for step in series.steps() {
        put_step(&mut text, &step);
    }
    for episode in episodes(&series, round_trip_s) {
        put_mark(&mut text, "red", episode.at_s, acked_at(&series, episode.at_s), "episode");
    }
    for pause in pauses(&series, round_trip_s) {
        put_mark(&mut text, "blue", pause.at_s, acked_at(&series, pause.at_s), "pause");
    }
    text.push_str("go\n");
    text
}

/// Two samples and what happened between them: in steps, as an acknowledgement holds until the
/// next one.
fn put_step(text: &mut String, step: &Step<'_>) {
    let (from_s, to_s) = (step.from_s, step.to_s);
    let acked = |sample: &PathSample| sample.bytes_acked;
    let window =
        |sample: &PathSample| sample.bytes_acked.saturating_add(sample.peer_window_bytes.into());
    let lines = [("green", acked as fn(&PathSample) -> u64), ("yellow", window)];
    for (colour, figure) in lines {
        let (before, after) = (figure(step.before), figure(step.after));
        let _ = writeln!(text, "{colour}\nline {from_s:.6} {before} {to_s:.6} {before}");
        if after != before {
            let _ = writeln!(text, "line {to_s:.6} {before} {to_s:.6} {after}");
        }
    }
    let (sent, until) = (first_sent(step.before), first_sent(step.after));
    if until > sent {
        let _ = writeln!(text, "white\nline {to_s:.6} {sent} {to_s:.6} {until}");
    }
    // TCP sends again from what is acknowledged on: a segment each.
    let mss = u64::from(step.after.mss_bytes.max(1));
    for number in 0..step.grown(|sample| sample.segments_retransmitted).min(SEGMENTS_MAX) {
        let from = step.before.bytes_acked.saturating_add(number.saturating_mul(mss));
        let to = from.saturating_add(mss);
        let _ =
            writeln!(text, "red\nline {to_s:.6} {from} {to_s:.6} {to}\nctext {to_s:.6} {to}\nR");
    }
}

/// Bytes that were sent for the first time.
fn first_sent(sample: &PathSample) -> u64 {
    sample.bytes_sent.saturating_sub(sample.bytes_retransmitted)
}

fn put_mark(text: &mut String, colour: &str, at_s: f64, sequence: u64, name: &str) {
    let _ =
        writeln!(text, "{colour}\ndarrow {at_s:.6} {sequence}\natext {at_s:.6} {sequence}\n{name}");
}

fn acked_at(series: &Series, at_s: f64) -> u64 {
    let first = series.samples().first().map_or(0, |sample| sample.bytes_acked);
    first.saturating_add(series.acked_until(at_s) as u64)
}

/// Between two samples: more is a counter that jumped.
const SEGMENTS_MAX: u64 = 100_000;

#[cfg(test)]
mod tests {
    use super::*;
    use base::units::{Nanos, Tick};

    fn samples() -> Vec<PathSample> {
        let at = |(millis, sent, acked, again): (u64, u64, u64, u64)| PathSample {
            at: Tick(1_000_000_000 + millis * 1_000_000),
            rtt: Nanos::from_millis(20),
            mss_bytes: 1000,
            unacked_segments: 5,
            peer_window_bytes: 9000,
            bytes_sent: sent + again * 1000,
            bytes_acked: acked,
            bytes_retransmitted: again * 1000,
            segments_sent: sent / 1000 + again,
            segments_retransmitted: again,
            ..PathSample::default()
        };
        [(0, 0, 0, 0), (20, 5000, 0, 0), (40, 9000, 5000, 2), (60, 9000, 9000, 2)].map(at).into()
    }

    #[test]
    fn every_command_is_one_of_xplot() {
        let text = stream("copy\u{1b}[2J\nto far", &samples(), 0.02);
        insta::assert_snapshot!("xplot", text);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!((lines[0], lines[lines.len() - 1]), ("double signed", "go"));
        assert_eq!(lines.iter().filter(|line| **line == "R").count(), 2, "{text}");
        assert_eq!(lines.iter().filter(|line| **line == "episode").count(), 1, "{text}");
        assert!(!text.contains('\u{1b}'));
    }

    #[test]
    fn nothing_makes_an_empty_plot() {
        assert_eq!(stream("t", &[], 0.0).lines().last(), Some("go"));
    }
}
