//! The requested properties of a WAN: parses the words of `cargo xtask wan`.

use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::losses::Loss;
use crate::pipe::{Reordering, Shape};
use crate::policer::Policer;
use crate::queue::Aqm;
use crate::words::{self, NANOS_PER_MS};

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
    /// Our own link over two TUN devices: all that a `Shape` has, changes at set times, cuts.
    Link,
    /// A pair of veth devices, with token buckets where a rate is given. Fast, and without delay
    /// beyond that of the kernel.
    Veth,
}

/// Properties that may change while a WAN is up; `None` leaves one as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Change {
    rtt_ns: Option<u64>,
    /// How much of the round trip is the way back; half of it, if only the round trip is given.
    delay_back_ns: Option<u64>,
    rate: Ways<u64>,
    jitter_ns: Ways<u64>,
    queue: Ways<Queue>,
    aqm: Ways<Aqm>,
    policer: Ways<Option<Policer>>,
    loss: Ways<Loss>,
    reordering: Ways<Reordering>,
}

/// A property of each way: `--NAME` is for both, `--NAME-back` only for the way back.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Ways<T> {
    both: Option<T>,
    back: Option<T>,
}

/// The limit of a queue.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Queue {
    Bytes(u64),
    /// In multiples of rate x round-trip time.
    Products(f64),
}

impl<T> Default for Ways<T> {
    fn default() -> Ways<T> {
        Ways { both: None, back: None }
    }
}

impl<T: Copy> Ways<T> {
    fn of(self, side: Side) -> Option<T> {
        match side {
            Side::Forward => self.both,
            Side::Back => self.back.or(self.both),
        }
    }
}

impl<T> Ways<T> {
    fn take(&mut self, is_back: bool, value: T) {
        match is_back {
            true => self.back = Some(value),
            false => self.both = Some(value),
        }
    }
}

#[derive(Clone, Copy)]
enum Side {
    Forward,
    Back,
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
        let joined = match veth || change.rate.both == Some(UNLIMITED) {
            true => Joined::Veth,
            false => Joined::Link,
        };
        let shape = Shape { rate_bits_per_s: 100_000_000, ..BARE };
        let mut profile = Profile { joined, forward: shape, back: shape, seed, sysctls, pcap };
        match joined {
            Joined::Link => {
                change.rtt_ns.get_or_insert(10 * NANOS_PER_MS as u64);
                let limit = |side| match change.aqm.of(side) {
                    None | Some(Aqm::None) => Queue::Products(1.0),
                    Some(Aqm::FqCodel(_)) => Queue::Bytes(AQM_QUEUE_BYTES),
                };
                if change.queue.both.is_none() {
                    let (both, back) = (limit(Side::Forward), limit(Side::Back));
                    change.queue.both = Some(both);
                    change.queue.back.get_or_insert(back);
                }
            }
            Joined::Veth => {
                change.rate.both.get_or_insert(UNLIMITED);
                change.queue.both.get_or_insert(Queue::Bytes(VETH_QUEUE_BYTES));
            }
        }
        profile.apply(&change)?;
        Ok(profile)
    }

    /// Applies the change; on an error the profile stays as it was.
    pub fn apply(&mut self, change: &Change) -> Result<(), String> {
        let mut forward = self.forward;
        let mut back = self.back;
        let rtt_ns = change.rtt_ns.unwrap_or(forward.delay_ns + back.delay_ns);
        let half_ns = change.rtt_ns.map(|rtt_ns| rtt_ns - rtt_ns / 2);
        let back_ns = change.delay_back_ns.or(half_ns).unwrap_or(back.delay_ns);
        forward.delay_ns = rtt_ns.checked_sub(back_ns).ok_or_else(|| {
            let ms = |ns: u64| ns as f64 / NANOS_PER_MS;
            format!(
                "--delay-back {}ms is more than the round trip of {} ms: name a longer --rtt",
                ms(back_ns),
                ms(rtt_ns)
            )
        })?;
        back.delay_ns = back_ns;
        let shapes = [(forward, Side::Forward), (back, Side::Back)]
            .map(|(shape, side)| change.on(shape, side, rtt_ns));
        for shape in shapes {
            self.judge(shape)?;
        }
        [self.forward, self.back] = shapes;
        Ok(())
    }

    /// Does one of the queues mark packets? Then the hosts must ask for it.
    pub(crate) fn has_ecn(&self) -> bool {
        let marks = |aqm| matches!(aqm, Aqm::FqCodel(codel) if codel.ecn);
        marks(self.forward.aqm) || marks(self.back.aqm)
    }

    fn judge(&self, shape: Shape) -> Result<(), String> {
        if self.joined == Joined::Veth {
            let Shape { rate_bits_per_s, queue_bytes, .. } = shape;
            let bare = shape == Shape { rate_bits_per_s, queue_bytes, ..BARE };
            return match bare {
                true if shape.queue_bytes < VETH_QUEUE_BYTES_MIN => Err(format!(
                    "a queue of {} bytes before a veth pair drops what the kernel sends at once: \
                     ask for {VETH_QUEUE_BYTES_MIN} at least, or leave --veth out",
                    shape.queue_bytes
                )),
                true => Ok(()),
                false => {
                    Err("a veth pair has no delay, jitter, loss, reordering, policer or --aqm \
                              of its own: name a --rate of at most 1Gbit and leave --veth out, or \
                              name --rate and --queue only"
                        .to_string())
                }
            };
        }
        match shape {
            Shape { rate_bits_per_s: UNLIMITED, .. } => {
                Err("this link needs a rate: only a veth pair has none".to_string())
            }
            Shape { rate_bits_per_s, .. } if rate_bits_per_s > LINK_RATE_MAX => {
                Err("a link with delay, loss or a queue of its own carries at most 1Gbit: above \
                     that there is --veth --rate 10Gbit, which has none of these"
                    .to_string())
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
        let (name, is_back) = match option.strip_suffix("-back") {
            Some(name) => (name, true),
            None => (option, false),
        };
        match name {
            "--rtt" if !is_back => self.rtt_ns = Some(words::time(value).map_err(why)?),
            "--delay" if is_back => self.delay_back_ns = Some(words::time(value).map_err(why)?),
            "--rate" => self.rate.take(is_back, words::rate(value).map_err(why)?),
            "--jitter" => self.jitter_ns.take(is_back, words::time(value).map_err(why)?),
            "--queue" => self.queue.take(is_back, words::queue(value).map_err(why)?),
            "--aqm" => self.aqm.take(is_back, words::aqm(value).map_err(why)?),
            "--policer" => self.policer.take(is_back, words::policer(value).map_err(why)?),
            "--loss" => self.loss.take(is_back, words::loss(value).map_err(why)?),
            "--reorder" => self.reordering.take(is_back, words::reordering(value).map_err(why)?),
            _ => return Err(format!("{option} is not understood: see cargo xtask wan")),
        }
        Ok(())
    }

    /// The shape of a way after this change.
    fn on(&self, before: Shape, side: Side, rtt_ns: u64) -> Shape {
        let rate_bits_per_s = self.rate.of(side).unwrap_or(before.rate_bits_per_s);
        let queue = self.queue.of(side).map(|queue| queue.bytes(rate_bits_per_s, rtt_ns));
        Shape {
            policer: self.policer.of(side).unwrap_or(before.policer),
            rate_bits_per_s,
            queue_bytes: queue.unwrap_or(before.queue_bytes),
            aqm: self.aqm.of(side).unwrap_or(before.aqm),
            loss: self.loss.of(side).unwrap_or(before.loss),
            delay_ns: before.delay_ns,
            jitter_ns: self.jitter_ns.of(side).unwrap_or(before.jitter_ns),
            reordering: self.reordering.of(side).unwrap_or(before.reordering),
        }
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
        let ms = |ns: u64| ns as f64 / NANOS_PER_MS;
        let pair = |of: &dyn Fn(&Shape) -> String| match (of(forward), of(back)) {
            (forward, back) if forward == back => forward,
            (forward, back) => format!("{forward} there, {back} back"),
        };
        let rate = |shape: &Shape| match shape.rate_bits_per_s {
            UNLIMITED => "no rate".to_string(),
            rate => format!("{} Mbit/s", rate as f64 / 1e6),
        };
        write!(f, "{}", pair(&rate))?;
        write!(f, ", rtt {} ms", ms(forward.delay_ns + back.delay_ns))?;
        if forward.delay_ns.abs_diff(back.delay_ns) > 1 {
            write!(f, " ({})", pair(&|shape| format!("{} ms", ms(shape.delay_ns))))?;
        }
        write!(f, ", queue {}", pair(&|shape| format!("{} bytes", shape.queue_bytes)))?;
        write!(f, ", loss {}", pair(&|shape| shape.loss.to_string()))?;
        write!(f, ", jitter {}", pair(&|shape| format!("{} ms", ms(shape.jitter_ns))))?;
        write!(f, ", seed {seed}")?;
        for (name, special) in SPECIAL {
            let text = pair(&|shape| special(shape).unwrap_or_else(|| "none".to_string()));
            if text != "none" {
                write!(f, ", {name} {text}")?;
            }
        }
        sysctls.iter().try_for_each(|(key, value)| write!(f, ", {key}={value}"))?;
        pcap.as_ref().map_or(Ok(()), |path| write!(f, ", packets to {}", path.display()))
    }
}

/// What only some paths do, and what a way does of it.
const SPECIAL: [(&str, Shown); 3] =
    [("aqm", aqm), ("policer", policer), ("reordering", reordering)];
type Shown = fn(&Shape) -> Option<String>;

fn aqm(shape: &Shape) -> Option<String> {
    match shape.aqm {
        Aqm::None => None,
        Aqm::FqCodel(codel) if codel.ecn => Some("fq_codel with ECN".to_string()),
        Aqm::FqCodel(_) => Some("fq_codel".to_string()),
    }
}

fn policer(shape: &Shape) -> Option<String> {
    let Policer { rate_bits_per_s, burst_bytes } = shape.policer?;
    Some(format!("{} Mbit/s of {burst_bytes} bytes", rate_bits_per_s as f64 / 1e6))
}

fn reordering(shape: &Shape) -> Option<String> {
    let Reordering { share, extra_ns } = shape.reordering;
    let ms = extra_ns as f64 / NANOS_PER_MS;
    (share > 0.0).then(|| format!("{} % by {ms} ms", share * 100.0))
}

/// The options of a `Change`, for messages.
pub(crate) const CHANGES: &str = "--rate, --rtt, --queue, --aqm, --policer, --loss, --reorder, \
                                  --jitter, each but --rtt with -back, --delay-back";
pub const UNLIMITED: u64 = u64::MAX;
/// A way that does nothing to packets.
const BARE: Shape = Shape {
    policer: None,
    rate_bits_per_s: UNLIMITED,
    queue_bytes: 0,
    aqm: Aqm::None,
    loss: Loss::NONE,
    delay_ns: 0,
    jitter_ns: 0,
    reordering: Reordering { share: 0.0, extra_ns: 0 },
};
/// The fastest link in user space that keeps its promises (docs/decisions/0026-emulated-wan.md).
const LINK_RATE_MAX: u64 = 1_000_000_000;
/// The limit of a managed queue: 10,240 packets, as in Linux and RFC 8290.
const AQM_QUEUE_BYTES: u64 = 10_240 * 1500;
/// The queue of a token bucket of a veth pair.
const VETH_QUEUE_BYTES: u64 = 4 << 20;
/// Two segments before they are cut into packets.
const VETH_QUEUE_BYTES_MIN: u64 = 2 * 65_536;
/// Two packets of 1500 bytes: one is being transmitted while another waits.
const QUEUE_BYTES_MIN: u64 = 3000;

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
            (
                "--rtt 60ms --delay-back 45ms --aqm fq_codel-ecn --aqm-back none --loss 1%,8 \
                 --policer-back 20Mbit,64K --reorder 2%,10ms --queue 1M --jitter-back 1ms",
                "link: 100 Mbit/s, rtt 60 ms (15 ms there, 45 ms back), queue 1048576 bytes, loss \
                 1 % in runs of 8, jitter 0 ms there, 1 ms back, seed 1, aqm fq_codel with ECN \
                 there, none back, policer none there, 20 Mbit/s of 65536 bytes back, reordering 2 \
                 % by 10 ms",
            ),
            (
                "--aqm fq_codel",
                "link: 100 Mbit/s, rtt 10 ms, queue 15360000 bytes, loss 0 %, jitter 0 ms, seed 1, \
                 aqm fq_codel",
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
            ("--veth --loss 1%", "a veth pair has no delay, jitter, loss"),
            ("--veth --aqm fq_codel", "or --aqm of its own"),
            ("--veth --policer 1Mbit,64K", "policer or --aqm of its own"),
            ("--rate 2Gbit", "at most 1Gbit: above that there is --veth"),
            ("--loss 1%,0.5", "mean run of lost packets"),
            ("--loss 90%,4", "at least one packet arrives"),
            ("--reorder 1%", "as 1%,10ms, or none"),
            ("--reorder 1%,x", "number and us, ms or s"),
            ("--policer 1Mbit", "as 20Mbit,64K, or none"),
            ("--policer none,64K", "a policer without a rate"),
            ("--policer 1Mbit,1000", "lets no full packet pass"),
            ("--aqm red", "fq_codel-ecn"),
            ("--rtt 10ms --delay-back 11ms", "more than the round trip of 10 ms"),
            ("--rtt-back 1ms", "--rtt-back is not understood"),
            ("--delay 1ms", "--delay is not understood"),
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
        // The way back keeps its delay, or takes half of a new round trip.
        asked.apply(&change("--delay-back 100ms").unwrap()).unwrap();
        assert_eq!((asked.forward.delay_ns, asked.back.delay_ns), (2_000_000, 100_000_000));
        asked.apply(&change("--loss 2%").unwrap()).unwrap();
        assert_eq!((asked.forward.delay_ns, asked.back.delay_ns), (2_000_000, 100_000_000));
        asked.apply(&change("--rtt 50ms --aqm fq_codel-ecn").unwrap()).unwrap();
        assert_eq!((asked.forward.delay_ns, asked.back.delay_ns), (25_000_000, 25_000_000));
        assert!(asked.has_ecn());
        asked.apply(&change("--aqm none --policer none --reorder none").unwrap()).unwrap();
        assert!(!asked.has_ecn());
        let before = asked.clone();
        assert!(asked.apply(&change("--loss 3% --queue 10").unwrap()).is_err());
        assert!(asked.apply(&change("--rate none").unwrap()).is_err());
        assert_eq!(asked, before, "a change that cannot be changes nothing");
        assert!(change("").unwrap_err().contains("--rate"));
        assert!(change("--seed 2").is_err());
    }
}
