//! Other traffic on the path of a WAN, as values: `4xcubic`, `2xon-off,on=2s,off=3s`,
//! `8xshort,size=64K,every=250ms`.

use std::fmt;
use std::time::Duration;

use crate::words;

/// Flows of one kind that share the path.
#[derive(Clone, Debug, PartialEq)]
pub struct Rivals {
    pub flows: u16,
    pub kind: Kind,
    /// The congestion control of their senders.
    pub congestion: String,
    pub way: Way,
    /// When they begin, counted from the moment when they are started.
    pub after: Duration,
    /// How long they last; `None`: until they are stopped.
    pub time: Option<Duration>,
}

/// What a flow does over and over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Sends as much as it can.
    Bulk,
    /// Sends as much as it can for a time, on a connection of its own, then nothing for a time.
    OnOff { on: Duration, off: Duration },
    /// Sends this much on a connection of its own, and begins the next such transfer so long after
    /// the last one began, or when that has ended.
    Short { bytes: u64, every: Duration },
}

/// From which host to which.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// From near to far.
    Forward,
    Back,
}

impl Rivals {
    /// `[COUNTx]KIND[,OPTION=VALUE]...`; the kind is `on-off`, `short`, or the congestion control
    /// of flows that send all the time: `cubic`, `bbr`, `reno`.
    pub fn from_word(word: &str) -> Result<Rivals, String> {
        let told = |why: String| format!("rivals {word}: {why}");
        let mut parts = word.split(',');
        let first = parts.next().unwrap_or_default();
        let (count, name) = match first.split_once('x') {
            Some((count, name)) if count.starts_with(|c: char| c.is_ascii_digit()) => (count, name),
            _ => ("1", first),
        };
        let flows = count.parse().ok().filter(|count| (1..=FLOWS_MAX).contains(count));
        let flows = flows.ok_or_else(|| told(format!("1 to {FLOWS_MAX} flows")))?;
        let (kind, congestion) = match name {
            "on-off" => (Kind::OnOff { on: ON, off: ON }, "cubic"),
            "short" => (Kind::Short { bytes: SHORT_BYTES, every: SHORT_EVERY }, "cubic"),
            "cubic" | "bbr" | "reno" => (Kind::Bulk, name),
            _ => return Err(told(format!("write [COUNTx]{KINDS}"))),
        };
        let mut rivals = Rivals {
            flows,
            kind,
            congestion: congestion.to_string(),
            way: Way::Forward,
            after: Duration::ZERO,
            time: None,
        };
        for part in parts {
            let (option, value) = part.split_once('=').unwrap_or((part, ""));
            rivals.take(option, value).map_err(|why| told(format!("{part}: {why}")))?;
        }
        Ok(rivals)
    }

    fn take(&mut self, option: &str, value: &str) -> Result<(), String> {
        match (option, &mut self.kind) {
            ("at", _) => self.after = words::moment(value)?,
            ("for", _) => self.time = Some(some_time(value)?),
            ("on", Kind::OnOff { on, .. }) => *on = some_time(value)?,
            ("off", Kind::OnOff { off, .. }) => *off = some_time(value)?,
            ("every", Kind::Short { every, .. }) => *every = some_time(value)?,
            ("size", Kind::Short { bytes, .. }) => match words::bytes(value)? {
                0 => return Err("at least one byte".to_string()),
                some => *bytes = some,
            },
            ("congestion", Kind::OnOff { .. } | Kind::Short { .. }) if !value.is_empty() => {
                self.congestion = value.to_string();
            }
            ("back", _) if value.is_empty() => self.way = Way::Back,
            _ => return Err(format!("these flows take {}", self.options())),
        }
        Ok(())
    }

    fn options(&self) -> &'static str {
        match self.kind {
            Kind::Bulk => "at=5s, for=30s and back",
            Kind::OnOff { .. } => "on=2s, off=2s, congestion=bbr, at=5s, for=30s and back",
            Kind::Short { .. } => "size=64K, every=250ms, congestion=bbr, at=5s, for=30s and back",
        }
    }
}

/// In the form that `from_word` reads.
impl fmt::Display for Rivals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x", self.flows)?;
        let seconds = |time: Duration| format!("{}s", time.as_secs_f64());
        match self.kind {
            Kind::Bulk => write!(f, "{}", self.congestion)?,
            Kind::OnOff { on, off } => write!(f, "on-off,on={},off={}", seconds(on), seconds(off))?,
            Kind::Short { bytes, every } => {
                write!(f, "short,size={bytes},every={}", seconds(every))?;
            }
        }
        if self.kind != Kind::Bulk {
            write!(f, ",congestion={}", self.congestion)?;
        }
        if self.after > Duration::ZERO {
            write!(f, ",at={}", seconds(self.after))?;
        }
        if let Some(time) = self.time {
            write!(f, ",for={}", seconds(time))?;
        }
        match self.way {
            Way::Forward => Ok(()),
            Way::Back => write!(f, ",back"),
        }
    }
}

fn some_time(value: &str) -> Result<Duration, String> {
    match words::moment(value)? {
        Duration::ZERO => Err("a time above 0".to_string()),
        time => Ok(time),
    }
}

/// What flows have received, in each `SLOT` since they were started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    pub flows: Vec<FlowOutcome>,
}

/// Of one flow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FlowOutcome {
    /// Bytes that the receiver took, by slot. What no slot has is 0.
    pub received_bytes: Vec<u64>,
    /// What each complete transfer of a `Short` flow took, with connecting and closing.
    pub completed: Vec<Duration>,
    /// Connections that failed, and were made again.
    pub broken: u32,
}

impl Outcome {
    /// The rate of all together between these times, in whole slots.
    pub fn bits_per_s(&self, from: Duration, until: Duration) -> f64 {
        self.flows.iter().map(|flow| flow.bits_per_s(from, until)).sum()
    }

    pub fn received_bytes(&self) -> u64 {
        self.flows.iter().flat_map(|flow| &flow.received_bytes).sum()
    }

    /// The times of all complete transfers, in order of length.
    pub fn completed(&self) -> Vec<Duration> {
        let mut times: Vec<Duration> =
            self.flows.iter().flat_map(|flow| flow.completed.iter().copied()).collect();
        times.sort();
        times
    }

    pub fn broken(&self) -> u32 {
        self.flows.iter().map(|flow| flow.broken).sum()
    }
}

impl FlowOutcome {
    pub fn bits_per_s(&self, from: Duration, until: Duration) -> f64 {
        let slot = |time: Duration| (time.as_nanos() / SLOT.as_nanos()) as usize;
        let (from, until) = (slot(from), slot(until));
        let bytes: u64 = self.received_bytes.iter().take(until).skip(from).sum();
        let seconds = until.saturating_sub(from) as f64 * SLOT.as_secs_f64();
        if seconds > 0.0 { bytes as f64 * 8.0 / seconds } else { 0.0 }
    }
}

/// Jain's index: 1 if all have the same, 1/n if one of n has everything.
pub fn jain(shares: &[f64]) -> f64 {
    let sum: f64 = shares.iter().sum();
    let squares: f64 = shares.iter().map(|share| share * share).sum();
    if squares > 0.0 { sum * sum / (shares.len() as f64 * squares) } else { 1.0 }
}

/// The resolution of an `Outcome`.
pub const SLOT: Duration = Duration::from_millis(100);
/// The kinds of `Rivals::from_word`.
pub const KINDS: &str = "cubic|bbr|reno|on-off|short[,OPTION=VALUE]...";
const FLOWS_MAX: u16 = 256;
const ON: Duration = Duration::from_secs(2);
const SHORT_BYTES: u64 = 64 << 10;
const SHORT_EVERY: Duration = Duration::from_millis(250);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_become_rivals_and_words_again() {
        let cases = [
            ("cubic", "1xcubic"),
            ("4xbbr,for=30s,at=0.5s", "4xbbr,at=0.5s,for=30s"),
            ("on-off", "1xon-off,on=2s,off=2s,congestion=cubic"),
            (
                "2xon-off,on=1500ms,off=3s,congestion=bbr,back",
                "2xon-off,on=1.5s,off=3s,congestion=bbr,back",
            ),
            ("8xshort,size=1M,every=100ms", "8xshort,size=1048576,every=0.1s,congestion=cubic"),
        ];
        for (word, expected) in cases {
            let rivals = Rivals::from_word(word).unwrap();
            assert_eq!(rivals.to_string(), expected, "{word}");
            assert_eq!(Rivals::from_word(expected).unwrap(), rivals);
        }
    }

    #[test]
    fn nonsense_is_refused_with_a_way_out() {
        let cases = [
            ("", "write [COUNTx]cubic"),
            ("vegas", "write [COUNTx]cubic"),
            ("0xcubic", "1 to 256 flows"),
            ("999xcubic", "1 to 256 flows"),
            ("2xcubic,on=1s", "these flows take at=5s"),
            ("cubic,congestion=bbr", "these flows take at=5s"),
            ("short,on=1s", "these flows take size=64K"),
            ("short,size=0", "at least one byte"),
            ("short,every=0s", "a time above 0"),
            ("on-off,off=never", "off=never: write a number"),
            ("cubic,for", "for: write a number"),
            ("cubic,back=1", "these flows take at=5s"),
        ];
        for (word, expected) in cases {
            let why = Rivals::from_word(word).unwrap_err();
            assert!(why.contains(expected), "{word}: {why}");
        }
    }

    #[test]
    fn outcomes_have_rates_and_shares() {
        let flow = |bytes: &[u64]| FlowOutcome {
            received_bytes: bytes.to_vec(),
            ..FlowOutcome::default()
        };
        let outcome =
            Outcome { flows: vec![flow(&[0, 1_250_000, 1_250_000, 0]), flow(&[1_250_000])] };
        let rate = |from_ms, until_ms| {
            let at = Duration::from_millis;
            (outcome.bits_per_s(at(from_ms), at(until_ms)) / 1e6).round()
        };
        assert_eq!((rate(100, 300), rate(0, 200), rate(300, 900)), (100.0, 100.0, 0.0));
        assert_eq!((rate(0, 400), rate(200, 200), rate(300, 100)), (75.0, 0.0, 0.0));
        assert_eq!(outcome.received_bytes(), 3_750_000);
        assert_eq!(jain(&[3.0, 3.0, 3.0]), 1.0);
        assert_eq!(jain(&[1.0, 0.0, 0.0, 0.0]), 0.25);
        assert_eq!(jain(&[]), 1.0);
    }
}
