//! The requested properties of a WAN: parses the words of `cargo xtask wan`.

use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::pipe::Shape;

/// The profile of a WAN.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Profile {
    pub joined: Joined,
    /// From near to far, and from far to near.
    pub forward: Shape,
    pub back: Shape,
    pub seed: u64,
    /// Set in both namespaces, after the defaults of this crate.
    pub sysctls: Vec<(String, String)>,
    /// The capture file of the link: packets as the near side sees them.
    pub pcap: Option<PathBuf>,
}

/// What connects the two namespaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Joined {
    /// Our own link over two TUN devices: rate, delay, queue, loss, jitter, cuts.
    Link,
    /// A pair of veth devices, with token buckets where a rate is given. Fast, and without delay
    /// beyond that of the kernel.
    Veth,
}

/// Properties that may change while a WAN is up; `None` leaves one as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Change {
    rate: Option<u64>,
    rate_back: Option<u64>,
    rtt_ns: Option<u64>,
    jitter_ns: Option<u64>,
    queue: Option<Queue>,
    queue_back: Option<Queue>,
    loss: Option<f64>,
    loss_back: Option<f64>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Queue {
    Bytes(u64),
    /// In multiples of rate x round-trip time.
    Products(f64),
}

impl Profile {
    /// `--rate 100Mbit --rtt 102ms --queue 64K …`
    pub fn from_words(words: &[&str]) -> Result<Profile, String> {
        let mut change = Change::default();
        let (mut seed, mut sysctls, mut pcap, mut veth) = (1, Vec::new(), None, false);
        let mut words = words.iter();
        while let Some(option) = words.next() {
            if *option == "--veth" {
                veth = true;
                continue;
            }
            let value = words.next().ok_or_else(|| format!("{option} needs a value"))?;
            match *option {
                "--seed" => {
                    seed = value
                        .parse()
                        .map_err(|_| format!("--seed {value}: write a whole number"))?;
                }
                "--sysctl" => {
                    let (key, value) = value.split_once('=').ok_or_else(|| {
                        format!("--sysctl {value}: write KEY=VALUE, as net.ipv4.tcp_sack=0")
                    })?;
                    sysctls.push((key.to_string(), value.to_string()));
                }
                "--pcap" => pcap = Some(PathBuf::from(value)),
                _ => change.take(option, value)?,
            }
        }
        let joined = match veth || change.rate == Some(UNLIMITED) {
            true => Joined::Veth,
            false => Joined::Link,
        };
        let shape = Shape {
            rate_bits_per_s: 100_000_000,
            delay_ns: 0,
            jitter_ns: 0,
            queue_bytes: 0,
            loss: 0.0,
        };
        let mut profile = Profile { joined, forward: shape, back: shape, seed, sysctls, pcap };
        match joined {
            Joined::Link => {
                change.rtt_ns.get_or_insert(10 * NANOS_PER_MS as u64);
                change.queue.get_or_insert(Queue::Products(1.0));
            }
            Joined::Veth => {
                change.rate.get_or_insert(UNLIMITED);
                change.queue.get_or_insert(Queue::Bytes(VETH_QUEUE_BYTES));
            }
        }
        profile.apply(&change)?;
        Ok(profile)
    }

    /// Applies the change; on an error the profile stays as it was.
    pub fn apply(&mut self, change: &Change) -> Result<(), String> {
        let mut forward = self.forward;
        let mut back = self.back;
        if let Some(rtt_ns) = change.rtt_ns {
            forward.delay_ns = rtt_ns / 2;
            back.delay_ns = rtt_ns - rtt_ns / 2;
        }
        forward.rate_bits_per_s = change.rate.unwrap_or(forward.rate_bits_per_s);
        back.rate_bits_per_s = change.rate_back.or(change.rate).unwrap_or(back.rate_bits_per_s);
        forward.jitter_ns = change.jitter_ns.unwrap_or(forward.jitter_ns);
        back.jitter_ns = change.jitter_ns.unwrap_or(back.jitter_ns);
        forward.loss = change.loss.unwrap_or(forward.loss);
        back.loss = change.loss_back.or(change.loss).unwrap_or(back.loss);
        let rtt_ns = forward.delay_ns + back.delay_ns;
        if let Some(queue) = change.queue {
            forward.queue_bytes = queue.bytes(forward.rate_bits_per_s, rtt_ns);
        }
        if let Some(queue) = change.queue_back.or(change.queue) {
            back.queue_bytes = queue.bytes(back.rate_bits_per_s, rtt_ns);
        }
        for shape in [forward, back] {
            self.judge(shape)?;
        }
        (self.forward, self.back) = (forward, back);
        Ok(())
    }

    fn judge(&self, shape: Shape) -> Result<(), String> {
        if self.joined == Joined::Veth {
            let bare = shape.delay_ns == 0 && shape.jitter_ns == 0 && shape.loss == 0.0;
            return match bare {
                true if shape.queue_bytes < VETH_QUEUE_BYTES_MIN => Err(format!(
                    "a queue of {} bytes before a veth pair drops what the kernel sends at once: \
                     ask for {VETH_QUEUE_BYTES_MIN} at least, or leave --veth out",
                    shape.queue_bytes
                )),
                true => Ok(()),
                false => Err("a veth pair has no delay, jitter or loss of its own: name a --rate \
                              and leave --veth out, or leave --rtt, --jitter and --loss out"
                    .to_string()),
            };
        }
        match shape {
            Shape { rate_bits_per_s: UNLIMITED, .. } => {
                Err("this link needs a rate: only a veth pair has none".to_string())
            }
            Shape { queue_bytes, .. } if queue_bytes < QUEUE_BYTES_MIN => Err(format!(
                "a queue of {queue_bytes} bytes holds no two packets: ask for {QUEUE_BYTES_MIN} at \
                 least"
            )),
            _ => Ok(()),
        }
    }
}

impl Change {
    pub fn from_words(words: &[&str]) -> Result<Change, String> {
        let mut change = Change::default();
        let mut words = words.iter();
        while let Some(option) = words.next() {
            let value = words.next().ok_or_else(|| format!("{option} needs a value"))?;
            change.take(option, value)?;
        }
        match change == Change::default() {
            true => Err(format!("nothing to change: name one of {CHANGES}")),
            false => Ok(change),
        }
    }

    fn take(&mut self, option: &str, value: &str) -> Result<(), String> {
        let why = |why: String| format!("{option} {value}: {why}");
        match option {
            "--rate" => self.rate = Some(rate(value).map_err(why)?),
            "--rate-back" => self.rate_back = Some(rate(value).map_err(why)?),
            "--rtt" => self.rtt_ns = Some(time(value).map_err(why)?),
            "--jitter" => self.jitter_ns = Some(time(value).map_err(why)?),
            "--queue" => self.queue = Some(queue(value).map_err(why)?),
            "--queue-back" => self.queue_back = Some(queue(value).map_err(why)?),
            "--loss" => self.loss = Some(share(value).map_err(why)?),
            "--loss-back" => self.loss_back = Some(share(value).map_err(why)?),
            _ => return Err(format!("{option} is not understood: see cargo xtask wan")),
        }
        Ok(())
    }
}

impl Queue {
    fn bytes(self, rate_bits_per_s: u64, rtt_ns: u64) -> u64 {
        match self {
            Queue::Bytes(bytes) => bytes,
            Queue::Products(count) => {
                let product = rate_bits_per_s as f64 / 8.0 * rtt_ns as f64 / 1e9;
                ((count * product) as u64).max(QUEUE_BYTES_MIN)
            }
        }
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Profile { joined, forward, back, seed, sysctls, pcap } = self;
        match joined {
            Joined::Link => write!(f, "link: ")?,
            Joined::Veth => write!(f, "veth pair: ")?,
        }
        let rate = |shape: &Shape| match shape.rate_bits_per_s {
            UNLIMITED => "no rate".to_string(),
            rate => format!("{} Mbit/s", rate as f64 / 1e6),
        };
        let pair = |name: &str, forward: String, back: String| match forward == back {
            true => format!("{name}{forward}"),
            false => format!("{name}{forward} there, {back} back"),
        };
        write!(f, "{}", pair("", rate(forward), rate(back)))?;
        write!(f, ", rtt {} ms", (forward.delay_ns + back.delay_ns) as f64 / NANOS_PER_MS)?;
        let queue = |shape: &Shape| format!("{} bytes", shape.queue_bytes);
        write!(f, ", {}", pair("queue ", queue(forward), queue(back)))?;
        let loss = |shape: &Shape| format!("{} %", shape.loss * 100.0);
        write!(f, ", {}", pair("loss ", loss(forward), loss(back)))?;
        write!(f, ", jitter {} ms, seed {seed}", forward.jitter_ns as f64 / NANOS_PER_MS)?;
        sysctls.iter().try_for_each(|(key, value)| write!(f, ", {key}={value}"))?;
        pcap.as_ref().map_or(Ok(()), |path| write!(f, ", packets to {}", path.display()))
    }
}

/// Bits a second, decimal: `100Mbit`, `2.5Gbit`, `none`.
fn rate(text: &str) -> Result<u64, String> {
    if text == "none" {
        return Ok(UNLIMITED);
    }
    let units = [("bit", 1.0), ("kbit", 1e3), ("Mbit", 1e6), ("Gbit", 1e9)];
    let rate = quantity(text, &units)
        .ok_or("write a number and bit, kbit, Mbit or Gbit (a second), or none")?;
    match rate {
        RATE_MIN..=RATE_MAX => Ok(rate as u64),
        _ => {
            Err("a rate is between 1kbit and 1000Gbit; to stop all packets there is wan cut".into())
        }
    }
}

/// `102ms`, `0.1ms`, `5us`, `2s`.
fn time(text: &str) -> Result<u64, String> {
    let units = [("us", 1e3), ("ms", NANOS_PER_MS), ("s", 1e9)];
    match quantity(text, &units) {
        Some(nanos) if nanos <= TIME_NS_MAX => Ok(nanos.round() as u64),
        Some(_) => Err("at most 60s".into()),
        None => Err("write a number and us, ms or s".into()),
    }
}

/// Bytes: `65536`, `64K`, `2M`; or products of rate and round-trip time: `1bdp`, `0.5bdp`.
fn queue(text: &str) -> Result<Queue, String> {
    let units = [("", 1.0), ("K", 1024.0), ("M", 1024.0 * 1024.0)];
    let bytes = quantity(text, &units).map(|bytes| Queue::Bytes(bytes as u64));
    let products = || quantity(text, &[("bdp", 1.0)]).map(Queue::Products);
    match bytes.or_else(products) {
        Some(Queue::Bytes(bytes)) if bytes > QUEUE_BYTES_MAX => Err("at most 1024M".into()),
        Some(Queue::Products(count)) if count > 100.0 => Err("at most 100bdp".into()),
        Some(queue) => Ok(queue),
        None => Err("write bytes as 65536, 64K or 2M, or 1bdp for rate x round-trip time".into()),
    }
}

/// `0.1%`, or a share as `0.001`.
fn share(text: &str) -> Result<f64, String> {
    match quantity(text, &[("", 1.0), ("%", 0.01)]) {
        Some(share) if share <= 1.0 => Ok(share),
        _ => Err("write a share from 0 to 1, or as 0.1%".into()),
    }
}

/// A number and one of these units.
fn quantity(text: &str, units: &[(&str, f64)]) -> Option<f64> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let (_, factor) = units.iter().find(|(name, _)| *name == unit)?;
    Some(number.parse::<f64>().ok()? * factor)
}

/// The options of a `Change`, for messages.
pub(crate) const CHANGES: &str =
    "--rate, --rate-back, --rtt, --jitter, --queue, --queue-back, --loss, --loss-back";
pub const UNLIMITED: u64 = u64::MAX;
/// The queue of a token bucket of a veth pair.
const VETH_QUEUE_BYTES: u64 = 4 << 20;
/// Two segments before they are cut into packets.
const VETH_QUEUE_BYTES_MIN: u64 = 2 * 65_536;
/// Two packets of 1500 bytes: one is being transmitted while another waits.
const QUEUE_BYTES_MIN: u64 = 3000;
const QUEUE_BYTES_MAX: u64 = 1 << 30;
const RATE_MIN: f64 = 1e3;
const RATE_MAX: f64 = 1e12;
const TIME_NS_MAX: f64 = 60e9;
const NANOS_PER_MS: f64 = 1e6;

#[cfg(test)]
mod tests {
    use super::*;

    fn profile(line: &str) -> Result<Profile, String> {
        Profile::from_words(&line.split_whitespace().collect::<Vec<_>>())
    }

    #[test]
    fn words_become_profiles() {
        let cases = [
            (
                "--rate 100Mbit --rtt 102ms --queue 64K --loss 0.1%",
                "link: 100 Mbit/s, rtt 102 ms, queue 65536 bytes, loss 0.1 %, jitter 0 ms, seed 1",
            ),
            (
                "--rate 1Gbit --rtt 5ms --queue 2bdp --rate-back 10Mbit --jitter 0.5ms --seed 7",
                "link: 1000 Mbit/s there, 10 Mbit/s back, rtt 5 ms, queue 1250000 bytes there, \
                 12500 bytes back, loss 0 %, jitter 0.5 ms, seed 7",
            ),
            (
                "--loss 0 --loss-back 0.5 --sysctl net.ipv4.tcp_sack=0 --pcap /tmp/x",
                "link: 100 Mbit/s, rtt 10 ms, queue 125000 bytes, loss 0 % there, 50 % back, \
                 jitter 0 ms, seed 1, net.ipv4.tcp_sack=0, packets to /tmp/x",
            ),
            (
                "--rate none",
                "veth pair: no rate, rtt 0 ms, queue 4194304 bytes, loss 0 %, jitter 0 ms, seed 1",
            ),
            (
                "--veth --rate 10Gbit --queue 1M",
                "veth pair: 10000 Mbit/s, rtt 0 ms, queue 1048576 bytes, loss 0 %, jitter 0 ms, \
                 seed 1",
            ),
        ];
        for (line, expected) in cases {
            assert_eq!(profile(line).unwrap().to_string(), expected, "{line}");
        }
    }

    #[test]
    fn nonsense_is_refused_with_a_way_out() {
        let cases = [
            ("--rate", "--rate needs a value"),
            ("--rate fast", "write a number and bit, kbit, Mbit or Gbit"),
            ("--rate 0bit", "wan cut"),
            ("--rate 1.2.3Mbit", "write a number"),
            ("--rtt 102", "write a number and us, ms or s"),
            ("--rtt 100s", "at most 60s"),
            ("--rtt -1ms", "write a number"),
            ("--queue 100", "holds no two packets"),
            ("--queue big", "1bdp"),
            ("--queue 9999999M", "at most 1024M"),
            ("--loss 2", "from 0 to 1"),
            ("--loss NaN", "from 0 to 1"),
            ("--seed x", "whole number"),
            ("--sysctl x", "KEY=VALUE"),
            ("--rate none --rtt 1ms", "a veth pair has no delay"),
            ("--veth --loss 1%", "a veth pair has no delay, jitter or loss"),
            ("--veth --rate 10Mbit --queue 64K", "ask for 131072 at least"),
            ("--bandwidth 1Mbit", "--bandwidth is not understood"),
        ];
        for (line, expected) in cases {
            let why = profile(line).unwrap_err();
            assert!(why.contains(expected), "{line}: {why}");
        }
    }

    #[test]
    fn changes_leave_the_rest() {
        let mut asked = profile("--rate 100Mbit --rtt 102ms --queue 64K --seed 3").unwrap();
        let change = |line: &str| Change::from_words(&line.split_whitespace().collect::<Vec<_>>());
        asked.apply(&change("--loss 1% --rate-back 5Mbit").unwrap()).unwrap();
        assert_eq!(
            asked,
            profile("--rate 100Mbit --rate-back 5Mbit --rtt 102ms --queue 64K --loss 1% --seed 3")
                .unwrap()
        );
        let before = asked.clone();
        assert!(asked.apply(&change("--loss 3% --queue 10").unwrap()).is_err());
        assert!(asked.apply(&change("--rate none").unwrap()).is_err());
        assert_eq!(asked, before, "a change that cannot be changes nothing");
        assert!(change("").unwrap_err().contains("--rate"));
        assert!(change("--seed 2").is_err());
    }
}
