//! The progress of a transfer in one line.

use std::collections::VecDeque;
use std::time::Duration;

use super::utc::utc;
use base::units::{Bytes, Nanos, Rate};

/// The counts of a transfer at one time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Since the start of the run.
    pub at: Nanos,
    pub bytes_done: u64,
    /// Those of them that an earlier run has copied: they did not move in this run.
    pub bytes_held: u64,
    pub bytes_found: u64,
    pub files_done: u64,
    pub files_found: u64,
    pub walk: Walk,
    /// The phase until something is found.
    pub first: Phase,
    /// Time of the first connection: before it no bytes can move.
    pub connected_at: Nanos,
    /// Bytes that moved before the last reconnect.
    pub moved_before: u64,
}

/// How much is known about the total.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Walk {
    #[default]
    Looking,
    /// Bytes and files found are final.
    Done,
    /// A pipe: the total is unknown until it ends.
    Endless,
}

/// What a transfer is doing at the moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Phase {
    #[default]
    Connecting,
    /// The connection was lost and is being re-established.
    Reconnecting,
    Finding,
    Moving,
    Finishing,
}

impl Phase {
    pub fn name(self) -> &'static str {
        match self {
            Phase::Connecting => "connecting",
            Phase::Reconnecting => "reconnecting",
            Phase::Finding => "finding files",
            Phase::Moving => "moving",
            Phase::Finishing => "finishing",
        }
    }
}

impl Seen {
    pub fn phase(&self) -> Phase {
        let all_moved = self.walk == Walk::Done && self.bytes_done >= self.bytes_found;
        match self {
            Seen { files_found: 0, bytes_done: 0, walk: Walk::Looking, .. } => self.first,
            Seen { bytes_done: 0, walk: Walk::Looking, .. } => Phase::Finding,
            Seen { bytes_done: 0, files_done: 0, bytes_found: 1.., .. } => Phase::Moving,
            _ if all_moved => Phase::Finishing,
            _ => Phase::Moving,
        }
    }

    /// The progress, if the total is known.
    pub fn percent(&self) -> Option<u64> {
        match self.walk {
            Walk::Done if self.bytes_found > 0 => {
                // Less than all is never shown as 100 %.
                let percent = u128::from(self.bytes_done) * 100 / u128::from(self.bytes_found);
                Some(percent.min(100) as u64)
            }
            _ => None,
        }
    }

    /// The mean rate since the first connection, over all connections.
    pub(crate) fn average(&self) -> Rate {
        Rate::of(self.moved_before + self.moved(), self.at - self.connected_at)
    }

    /// Bytes that moved in this run since the last reconnect.
    pub fn moved(&self) -> u64 {
        self.bytes_done.saturating_sub(self.bytes_held)
    }

    fn bytes(&self) -> String {
        match self.walk {
            Walk::Endless => Bytes(self.bytes_done).to_string(),
            Walk::Looking => format!("{} of {}+", Bytes(self.bytes_done), Bytes(self.bytes_found)),
            Walk::Done => format!("{} of {}", Bytes(self.bytes_done), Bytes(self.bytes_found)),
        }
    }

    fn files(&self) -> Option<String> {
        let more = if self.walk == Walk::Done { "" } else { "+" };
        match self.files_found {
            0 | 1 => None,
            found => Some(format!("{} of {found}{more} files", self.files_done)),
        }
    }
}

/// Keeps the last seconds, for the current rate.
#[derive(Debug, Default)]
pub struct Meter {
    /// Oldest first; spans at most `SPAN`.
    past: VecDeque<(Nanos, u64)>,
    /// When bytes last moved.
    moved_at: Nanos,
}

impl Meter {
    pub fn see(&mut self, seen: &Seen) {
        if self.past.back().is_none_or(|last| last.1 != seen.moved()) {
            self.moved_at = seen.at;
        }
        self.past.push_back((seen.at, seen.moved()));
        while self.past.len() > 2 && self.past.front().is_some_and(|p| seen.at - p.0 > SPAN) {
            self.past.pop_front();
        }
    }

    /// The rate of the last second or so.
    pub fn now(&self) -> Rate {
        self.over(NOW)
    }

    /// How long nothing has moved, if that is longer than usual.
    pub fn still(&self, seen: &Seen) -> Option<Nanos> {
        Some(seen.at - self.moved_at).filter(|still| *still >= STILL)
    }

    /// The remaining time at the rate of the last seconds. Only once all files are found.
    pub fn left(&self, seen: &Seen) -> Option<Nanos> {
        let rate = self.over(SPAN).bytes_per_second;
        let rest = seen.bytes_found.saturating_sub(seen.bytes_done);
        match seen.walk {
            Walk::Done if rate >= 1.0 && rest > 0 => Some(Nanos((rest as f64 / rate * 1e9) as u64)),
            _ => None,
        }
    }

    fn over(&self, span: Nanos) -> Rate {
        let Some(last) = self.past.back() else {
            return Rate { bytes_per_second: 0.0 };
        };
        let first = self.past.iter().find(|p| last.0 - p.0 <= span).unwrap_or(last);
        // A single sample within the span gives no rate; then it takes the oldest one as well.
        let first = if first.0 == last.0 { self.past.front().unwrap_or(last) } else { first };
        Rate::of(last.1.saturating_sub(first.1), last.0 - first.0)
    }
}

/// The progress line, at most `columns` wide: the least important fields are left out.
pub fn line(seen: &Seen, meter: &Meter, columns: usize) -> String {
    let phase = seen.phase();
    let average = || format!("average {}", seen.average());
    // Each field with its rank: the highest is left out first.
    let mut fields = match phase {
        Phase::Connecting | Phase::Reconnecting => vec![(1, clock(seen.at))],
        Phase::Finding => vec![
            (1, format!("{} so far", count(seen.files_found, "file"))),
            (2, Bytes(seen.bytes_found).to_string()),
        ],
        Phase::Moving => moving(seen, meter),
        Phase::Finishing => {
            let files = seen.files().map(|files| (1, files));
            let rest = [(2, Bytes(seen.bytes_done).to_string()), (3, average())];
            files.into_iter().chain(rest).collect()
        }
    };
    loop {
        let words: Vec<&str> = fields.iter().map(|(_, text)| &**text).collect();
        let line = format!("{}  {}", phase.name(), words.join("  "));
        let last = fields.iter().map(|(rank, _)| *rank).max();
        match last {
            Some(last) if line.chars().count() > columns => {
                fields.retain(|(rank, _)| *rank != last);
            }
            _ => return line.trim_end().to_string(),
        }
    }
}

fn moving(seen: &Seen, meter: &Meter) -> Vec<(u8, String)> {
    let rate = match meter.still(seen) {
        Some(still) => format!("no data for {}", clock(still)),
        None => meter.now().to_string(),
    };
    [
        (1, seen.percent().map(|percent| format!("{percent:>2} %"))),
        (4, Some(seen.bytes())),
        (2, Some(rate)),
        (3, meter.left(seen).map(|left| format!("ETA {}", clock(left)))),
        (5, seen.files()),
        (6, Some(format!("average {}", seen.average()))),
    ]
    .into_iter()
    .filter_map(|(rank, text)| Some((rank, text?)))
    .collect()
}

/// The line of `--interval`: when, how far, the rate of the interval and the average.
pub fn interval_line(before: &Seen, seen: &Seen) -> String {
    let during = Rate::of(seen.moved().saturating_sub(before.moved()), seen.at - before.at);
    let what = match seen.phase() {
        Phase::Moving => seen.percent().map_or(String::new(), |percent| format!("{percent} %  ")),
        other => format!("{}  ", other.name()),
    };
    let files = seen.files().map_or(String::new(), |files| format!("  {files}"));
    format!(
        "{:>7.1} s  {what}{}  now {during}  average {}{files}",
        seen.at.seconds(),
        seen.bytes(),
        seen.average()
    )
}

/// `0:07`, `12:34`, `1:02:03`, `3d 04:05`.
pub fn clock(time: Nanos) -> String {
    let seconds = time.0.div_ceil(1_000_000_000);
    let (days, hours) = (seconds / 86_400, seconds / 3600 % 24);
    let (minutes, seconds) = (seconds / 60 % 60, seconds % 60);
    match (days, hours) {
        (0, 0) => format!("{minutes}:{seconds:02}"),
        (0, _) => format!("{hours}:{minutes:02}:{seconds:02}"),
        _ => format!("{days}d {hours:02}:{minutes:02}"),
    }
}

/// A time as part of a name: `20261121T153000Z`.
pub fn stamp(unix: Duration) -> String {
    utc(unix).chars().filter(|c| c.is_ascii_digit() || *c == 'T').take(15).chain(['Z']).collect()
}

/// `1 file`, `2 files`.
pub fn count(number: u64, noun: &str) -> String {
    match number {
        1 => format!("1 {noun}"),
        _ => format!("{number} {noun}s"),
    }
}

const NOW: Nanos = Nanos::from_millis(1500);
/// Pauses of slow disks and paths are shorter.
const STILL: Nanos = Nanos::from_millis(3000);
const SPAN: Nanos = Nanos::from_millis(10_000);

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(seconds: u64, done: u64, found: u64, files: (u64, u64), walk: Walk) -> Seen {
        Seen {
            at: Nanos::from_millis(seconds * 1000),
            bytes_done: done,
            bytes_held: 0,
            bytes_found: found,
            files_done: files.0,
            files_found: files.1,
            walk,
            ..Seen::default()
        }
    }

    #[test]
    fn no_phase_is_silent() {
        const G: u64 = 1 << 30;
        let cases = [
            (seen(3, 0, 0, (0, 0), Walk::Looking), "connecting  0:03"),
            (seen(3, 0, G, (0, 12), Walk::Looking), "finding files  12 files so far  1 GiB"),
            (
                seen(4, G, 4 * G, (0, 1), Walk::Done),
                "moving  25 %  1 GiB of 4 GiB  268 MB/s (2.15 Gbit/s)  ETA 0:12  \
                 average 268 MB/s (2.15 Gbit/s)",
            ),
            (
                seen(4, G, 2 * G, (3, 9), Walk::Looking),
                "moving  1 GiB of 2 GiB+  268 MB/s (2.15 Gbit/s)  3 of 9+ files  \
                 average 268 MB/s (2.15 Gbit/s)",
            ),
            (
                seen(4, G, 0, (0, 1), Walk::Endless),
                "moving  1 GiB  268 MB/s (2.15 Gbit/s)  average 268 MB/s (2.15 Gbit/s)",
            ),
            (
                seen(4, G, G, (8, 9), Walk::Done),
                "finishing  8 of 9 files  1 GiB  average 268 MB/s (2.15 Gbit/s)",
            ),
            (
                Seen { first: Phase::Reconnecting, ..seen(9, 0, 0, (0, 0), Walk::Looking) },
                "reconnecting  0:09",
            ),
            (
                seen(0, 0, G, (0, 1), Walk::Done),
                "moving   0 %  0 B of 1 GiB  0.0 kB/s (0.0 kbit/s)  average 0.0 kB/s (0.0 kbit/s)",
            ),
            (
                seen(1, 0, 0, (0, 5), Walk::Done),
                "finishing  0 of 5 files  0 B  average 0.0 kB/s (0.0 kbit/s)",
            ),
        ];
        let here = Seen { first: Phase::Finding, ..Seen::default() };
        assert_eq!(line(&here, &Meter::default(), 200), "finding files  0 files so far  0 B");
        for (seen, expect) in cases {
            let mut meter = Meter::default();
            meter.see(&Seen::default());
            meter.see(&seen);
            assert_eq!(line(&seen, &meter, 200), expect);
        }
    }

    /// Whole fields are left out, and the others stay correct.
    #[test]
    fn narrow_terminals() {
        const G: u64 = 1 << 30;
        let mut meter = Meter::default();
        meter.see(&Seen::default());
        let seen = seen(4, G, 4 * G, (3, 9), Walk::Done);
        meter.see(&seen);
        let cases = [
            (
                120,
                "moving  25 %  1 GiB of 4 GiB  268 MB/s (2.15 Gbit/s)  ETA 0:12  3 of 9 files  \
                 average 268 MB/s (2.15 Gbit/s)",
            ),
            (80, "moving  25 %  1 GiB of 4 GiB  268 MB/s (2.15 Gbit/s)  ETA 0:12  3 of 9 files"),
            (66, "moving  25 %  1 GiB of 4 GiB  268 MB/s (2.15 Gbit/s)  ETA 0:12"),
            (60, "moving  25 %  268 MB/s (2.15 Gbit/s)  ETA 0:12"),
            (40, "moving  25 %  268 MB/s (2.15 Gbit/s)"),
            (20, "moving  25 %"),
            (3, "moving"),
        ];
        for (columns, expect) in cases {
            assert_eq!(line(&seen, &meter, columns), expect, "{columns}");
        }
        let later = Seen { at: seen.at + Nanos::from_millis(6000), ..seen };
        meter.see(&later);
        assert_eq!(line(&later, &meter, 40), "moving  25 %  no data for 0:06  ETA 0:30");
    }

    /// An average is over all connections, without the time before the first.
    #[test]
    fn averages_hold_across_reconnections() {
        let seen = Seen {
            connected_at: Nanos::from_millis(2000),
            moved_before: 300,
            ..seen(12, 700, 1000, (0, 1), Walk::Done)
        };
        assert_eq!(seen.average().bytes_per_second, 100.0);
    }

    #[test]
    fn now_forgets_and_the_estimate_remembers() {
        let mut meter = Meter::default();
        let mut last = Seen::default();
        for tenth in 0..=200 {
            let bytes = if tenth <= 100 { tenth * 10_000_000 } else { 1_000_000_000 };
            last = Seen {
                at: Nanos::from_millis(tenth * 100),
                bytes_done: bytes,
                bytes_found: 2_000_000_000,
                walk: Walk::Done,
                ..Seen::default()
            };
            meter.see(&last);
        }
        assert_eq!(meter.now().bytes_per_second, 0.0, "it stalled ten seconds ago");
        assert_eq!(meter.left(&last), None);
        assert!(meter.past.len() <= 102, "{}", meter.past.len());
    }

    #[test]
    fn what_was_held_did_not_move() {
        const G: u64 = 1 << 30;
        let mut meter = Meter::default();
        meter.see(&Seen::default());
        let seen = Seen { bytes_held: 2 * G, ..seen(4, 3 * G, 4 * G, (0, 1), Walk::Done) };
        meter.see(&seen);
        assert_eq!(
            line(&seen, &meter, 200),
            "moving  75 %  3 GiB of 4 GiB  268 MB/s (2.15 Gbit/s)  ETA 0:04  \
             average 268 MB/s (2.15 Gbit/s)"
        );
    }

    #[test]
    fn an_interval_has_its_own_rate() {
        let before = seen(10, 1_000_000_000, 8_000_000_000, (0, 1), Walk::Done);
        let after = seen(12, 2_000_000_000, 8_000_000_000, (0, 1), Walk::Done);
        assert_eq!(
            interval_line(&before, &after),
            "   12.0 s  25 %  1.86 GiB of 7.45 GiB  now 500 MB/s (4.00 Gbit/s)  \
             average 167 MB/s (1.33 Gbit/s)"
        );
    }

    #[test]
    fn clocks() {
        let cases =
            [(0, "0:00"), (59, "0:59"), (3599, "59:59"), (3600, "1:00:00"), (90_061, "1d 01:01")];
        for (seconds, expect) in cases {
            assert_eq!(clock(Nanos::from_millis(seconds * 1000)), expect);
        }
    }
}
