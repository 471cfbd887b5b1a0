//! Numbers with units, as in the words of `cargo xtask wan`.

use crate::losses::Loss;
use crate::pipe::Reordering;
use crate::policer::Policer;
use crate::profile::{Queue, UNLIMITED};
use crate::queue::{Aqm, CODEL};

/// Bits a second, decimal: `100Mbit`, `2.5Gbit`, `none`.
pub(crate) fn rate(text: &str) -> Result<u64, String> {
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
pub(crate) fn time(text: &str) -> Result<u64, String> {
    let units = [("us", 1e3), ("ms", NANOS_PER_MS), ("s", 1e9)];
    match quantity(text, &units) {
        Some(nanos) if nanos <= TIME_NS_MAX => Ok(nanos.round() as u64),
        Some(_) => Err("at most 60s".into()),
        None => Err("write a number and us, ms or s".into()),
    }
}

/// A time in a run: as `time`, but up to a day.
pub(crate) fn moment(text: &str) -> Result<std::time::Duration, String> {
    let units = [("us", 1e-6), ("ms", 1e-3), ("s", 1.0)];
    match quantity(text, &units) {
        Some(seconds) if seconds <= MOMENT_S_MAX => Ok(std::time::Duration::from_secs_f64(seconds)),
        Some(_) => Err("at most 86400s".into()),
        None => Err("write a number and us, ms or s".into()),
    }
}

/// Bytes: `65536`, `64K`, `2M`.
pub(crate) fn bytes(text: &str) -> Result<u64, String> {
    let units = [("", 1.0), ("K", 1024.0), ("M", 1024.0 * 1024.0)];
    match quantity(text, &units) {
        Some(bytes) if bytes <= BYTES_MAX => Ok(bytes as u64),
        Some(_) => Err("at most 1024M".into()),
        None => Err("write bytes as 65536, 64K or 2M".into()),
    }
}

/// Bytes, or products of rate and round-trip time: `1bdp`, `0.5bdp`.
pub(crate) fn queue(text: &str) -> Result<Queue, String> {
    match quantity(text, &[("bdp", 1.0)]) {
        Some(count) if count > 100.0 => Err("at most 100bdp".into()),
        Some(count) => Ok(Queue::Products(count)),
        None => bytes(text)
            .map(Queue::Bytes)
            .map_err(|why| format!("{why}, or 1bdp for rate x round-trip time")),
    }
}

/// `0.1%` or `0.001`: each packet by itself. `1%,8`: as many, in runs of 8 packets on average.
pub(crate) fn loss(text: &str) -> Result<Loss, String> {
    let (share_text, run) = match text.split_once(',') {
        Some((share, run)) => (share, Some(run)),
        None => (text, None),
    };
    let share = share(share_text)?;
    let run_packets = match run {
        None => 1.0,
        Some(run) => match run.parse::<f64>() {
            Ok(run) if (1.0..=1e6).contains(&run) => run,
            _ => return Err("write the mean run of lost packets as a number from 1: 1%,8".into()),
        },
    };
    let loss = Loss { share, run_packets };
    match loss.is_possible() {
        true => Ok(loss),
        false => Err(format!(
            "runs of {run_packets} packets cannot be {} % of all: between two runs at least one \
             packet arrives",
            share * 100.0
        )),
    }
}

/// `1%,10ms`: this share of packets takes so much longer, and others overtake them. `none`.
pub(crate) fn reordering(text: &str) -> Result<Reordering, String> {
    if text == "none" {
        return Ok(Reordering::default());
    }
    let (share_text, extra) =
        text.split_once(',').ok_or("write a share and a time, as 1%,10ms, or none")?;
    Ok(Reordering { share: share(share_text)?, extra_ns: time(extra)? })
}

/// `20Mbit,64K`: a bucket of so many bytes, filled at this rate. `none`.
pub(crate) fn policer(text: &str) -> Result<Option<Policer>, String> {
    if text == "none" {
        return Ok(None);
    }
    let (rate_text, burst) = text
        .split_once(',')
        .ok_or("write a rate and the bytes of its bucket, as 20Mbit,64K, or none")?;
    let rate_bits_per_s = rate(rate_text)?;
    let burst_bytes = bytes(burst)?;
    match (rate_bits_per_s, burst_bytes) {
        (UNLIMITED, _) => Err("a policer without a rate is none".into()),
        (_, 1500..) => Ok(Some(Policer { rate_bits_per_s, burst_bytes })),
        _ => Err("a bucket below 1500 bytes lets no full packet pass".into()),
    }
}

/// `none`, `fq_codel`, `fq_codel-ecn`.
pub(crate) fn aqm(text: &str) -> Result<Aqm, String> {
    match text {
        "none" => Ok(Aqm::None),
        "fq_codel" => Ok(Aqm::FqCodel(CODEL)),
        "fq_codel-ecn" => Ok(Aqm::FqCodel(crate::queue::Codel { ecn: true, ..CODEL })),
        _ => Err("write none, fq_codel or fq_codel-ecn".into()),
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

pub(crate) const NANOS_PER_MS: f64 = 1e6;
const BYTES_MAX: f64 = (1 << 30) as f64;
const RATE_MIN: f64 = 1e3;
const RATE_MAX: f64 = 1e12;
const TIME_NS_MAX: f64 = 60e9;
const MOMENT_S_MAX: f64 = 86_400.0;
