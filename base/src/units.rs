//! Quantities with their units: parsing, printing, and arithmetic that cannot mix them.

use std::fmt;
use std::ops::{Add, AddAssign, Sub};

/// A point in time, in nanoseconds since an origin that the owner of the clock chose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tick(pub u64);

/// A length of time in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Nanos(pub u64);

impl Tick {
    /// The time from `earlier` to here; zero if `earlier` is later.
    #[inline]
    pub fn since(self, earlier: Tick) -> Nanos {
        Nanos(self.0.saturating_sub(earlier.0))
    }

    #[inline]
    pub fn after(self, wait: Nanos) -> Tick {
        Tick(self.0.saturating_add(wait.0))
    }
}

impl Nanos {
    #[inline]
    pub const fn from_millis(millis: u64) -> Nanos {
        Nanos(millis * 1_000_000)
    }

    #[inline]
    pub fn seconds(self) -> f64 {
        self.0 as f64 / 1e9
    }
}

impl Add for Nanos {
    type Output = Nanos;
    #[inline]
    fn add(self, other: Nanos) -> Nanos {
        // A peer's numbers may be anything.
        Nanos(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Nanos {
    fn add_assign(&mut self, other: Nanos) {
        *self = *self + other;
    }
}

impl Sub for Nanos {
    type Output = Nanos;
    #[inline]
    fn sub(self, other: Nanos) -> Nanos {
        Nanos(self.0.saturating_sub(other.0))
    }
}

impl From<std::time::Duration> for Nanos {
    #[inline]
    fn from(duration: std::time::Duration) -> Nanos {
        Nanos(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
    }
}

impl From<Nanos> for std::time::Duration {
    #[inline]
    fn from(nanos: Nanos) -> std::time::Duration {
        std::time::Duration::from_nanos(nanos.0)
    }
}

/// `1.23 s`, `45.6 ms`, `7.8 µs`, `9 ns`.
impl fmt::Display for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ns = self.0 as f64;
        match self.0 {
            1_000_000_000.. => write!(f, "{:.2} s", ns / 1e9),
            1_000_000.. => write!(f, "{:.1} ms", ns / 1e6),
            1_000.. => write!(f, "{:.1} µs", ns / 1e3),
            _ => write!(f, "{} ns", self.0),
        }
    }
}

/// A number of bytes, printed with binary units.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bytes(pub u64);

impl Bytes {
    /// As a person would type it, and `parse_size` reads it: `64K`, `4G`, `5000`.
    pub fn typed(self) -> String {
        const UNITS: [&str; 5] = ["", "K", "M", "G", "T"];
        let mut value = self.0;
        let mut unit = 0;
        while value >= 1024 && value.is_multiple_of(1024) && unit + 1 < UNITS.len() {
            value /= 1024;
            unit += 1;
        }
        format!("{value}{}", UNITS[unit])
    }
}

/// `4 GiB`, `1.50 MiB`, `17 B`.
impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
        if self.0 < 1024 {
            return write!(f, "{} B", self.0);
        }
        let mut value = self.0 as f64 / 1024.0;
        let mut unit = 0;
        while value >= 1024.0 && unit + 1 < UNITS.len() {
            value /= 1024.0;
            unit += 1;
        }
        match value.fract() == 0.0 {
            true => write!(f, "{value:.0} {}", UNITS[unit]),
            false => write!(f, "{value:.2} {}", UNITS[unit]),
        }
    }
}

/// A rate in bytes a second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    pub bytes_per_second: f64,
}

impl Rate {
    /// The rate of moving `bytes` in `time`; zero when no time has passed.
    pub fn of(bytes: u64, time: Nanos) -> Rate {
        let bytes_per_second = if time.0 == 0 { 0.0 } else { bytes as f64 * 1e9 / time.0 as f64 };
        Rate { bytes_per_second }
    }
}

/// Both units people use, decimal: `118 MB/s (0.94 Gbit/s)`.
impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mega = self.bytes_per_second / 1e6;
        let bits = self.bytes_per_second * 8.0;
        match mega {
            100.0.. => write!(f, "{mega:.0} MB/s")?,
            1.0..100.0 => write!(f, "{mega:.1} MB/s")?,
            _ => write!(f, "{:.1} kB/s", mega * 1e3)?,
        }
        match bits {
            1e9.. => write!(f, " ({:.2} Gbit/s)", bits / 1e9),
            1e6..1e9 => write!(f, " ({:.1} Mbit/s)", bits / 1e6),
            _ => write!(f, " ({:.1} kbit/s)", bits / 1e3),
        }
    }
}

/// Reads a size: `4096`, `64K`, `1M`, `4G`, `1.5T` are binary, as are `64KiB` and the like; `64kB`,
/// `1MB` are decimal.
///
/// ```
/// use base::units::{Bytes, parse_size};
///
/// assert_eq!(parse_size("64K"), Ok(65536));
/// assert_eq!(parse_size("64kB"), Ok(64000));
/// assert_eq!(Bytes(65536).to_string(), "64 KiB");
/// assert!(parse_size("64 elephants").is_err());
/// ```
pub fn parse_size(text: &str) -> Result<u64, String> {
    let (number, unit) = split_number(text)?;
    let factor = byte_factor(unit).ok_or_else(|| {
        format!("'{text}' is no size: write 4096, 64K, 1M, 4G (binary) or 10MB (decimal)")
    })?;
    scale(text, number, factor)
}

/// Reads a rate: `100Mbit`, `1.5 Gbit/s` and `100Mbps` are decimal bits a second, `100M` and
/// `12MiB` binary bytes and `80MB` decimal bytes a second. It always has a unit; `10m` has none, as
/// it is bits to some programs and bytes to others.
///
/// ```
/// use base::units::parse_rate;
///
/// assert_eq!(parse_rate("100Mbit").map(|rate| rate.bytes_per_second), Ok(12.5e6));
/// assert!(parse_rate("100").is_err());
/// ```
pub fn parse_rate(text: &str) -> Result<Rate, String> {
    let (number, unit) = split_number(text.trim())?;
    let unit = unit.trim_start();
    let in_bits = |unit: &str| match unit.to_ascii_lowercase().as_str() {
        "bit" => Some(1.0),
        "kbit" => Some(1e3),
        "mbit" => Some(1e6),
        "gbit" => Some(1e9),
        "tbit" => Some(1e12),
        _ => None,
    };
    // By custom bps with a small b are bits.
    let bits = match unit.strip_suffix("bps") {
        Some(prefix) => in_bits(&format!("{prefix}bit")),
        None => in_bits(unit.strip_suffix("/s").unwrap_or(unit)),
    };
    let plain = unit.strip_suffix("/s").or(unit.strip_suffix("ps")).unwrap_or(unit);
    // To iperf3 these are bits, to rsync bytes.
    let is_unclear = matches!(plain, "k" | "m" | "g" | "t" | "p");
    let is_bytes = !plain.is_empty() && !is_unclear;
    let bytes = || Some(plain).filter(|_| is_bytes).and_then(byte_factor);
    let factor = bits.map(|bits| bits / 8.0).or_else(bytes).ok_or_else(|| {
        // `10m`, `80Mb`: what is meant is one of two.
        let prefix = plain.strip_suffix(['b', 'B']).unwrap_or(plain).to_ascii_uppercase();
        let prefix = match &*prefix {
            "K" => "k",
            known @ ("G" | "T") => known,
            _ => "M",
        };
        let number = if number < 1.0 && plain.is_empty() { 100.0 } else { number };
        format!(
            "'{text}' has no unit of a rate: write {number}{prefix}bit (bits) or {number}{prefix}B \
             (bytes a second)"
        )
    })?;
    let bytes_per_second = number * factor;
    match bytes_per_second.is_finite() && bytes_per_second >= 1.0 {
        true => Ok(Rate { bytes_per_second }),
        false => Err(format!("'{text}' is no rate: less than a byte a second")),
    }
}

fn split_number(text: &str) -> Result<(f64, &str), String> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let number: f64 =
        text[..end].parse().map_err(|_| format!("'{text}' does not begin with a number"))?;
    Ok((number, &text[end..]))
}

fn byte_factor(unit: &str) -> Option<f64> {
    let factor = match unit {
        "" | "B" => 1.0,
        "k" | "K" | "KiB" => 1024.0,
        "m" | "M" | "MiB" => 1024.0 * 1024.0,
        "g" | "G" | "GiB" => 1024.0 * 1024.0 * 1024.0,
        "t" | "T" | "TiB" => 1024.0 * 1024.0 * 1024.0 * 1024.0,
        "p" | "P" | "PiB" => 1024.0 * 1024.0 * 1024.0 * 1024.0 * 1024.0,
        "kB" | "KB" => 1e3,
        "MB" => 1e6,
        "GB" => 1e9,
        "TB" => 1e12,
        _ => return None,
    };
    Some(factor)
}

fn scale(text: &str, number: f64, factor: f64) -> Result<u64, String> {
    let value = number * factor;
    if value > i64::MAX as f64 {
        return Err(format!("'{text}' is larger than any file can be (2^63 - 1 bytes)"));
    }
    if value.fract() != 0.0 && factor == 1.0 {
        return Err(format!("'{text}' is not a whole number of bytes"));
    }
    Ok(value.round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        let cases: [(&str, Option<u64>); 14] = [
            ("0", Some(0)),
            ("1", Some(1)),
            ("64K", Some(65536)),
            ("64KiB", Some(65536)),
            ("1.5M", Some(1_572_864)),
            ("4G", Some(4 << 30)),
            ("10MB", Some(10_000_000)),
            ("1T", Some(1 << 40)),
            ("", None),
            ("K", None),
            ("-1", None),
            ("1.5", None),
            ("1X", None),
            ("9223372036854775808G", None),
        ];
        for (text, expect) in cases {
            assert_eq!(parse_size(text).ok(), expect, "{text}");
        }
    }

    #[test]
    fn rates() {
        let cases: [(&str, Option<f64>); 21] = [
            ("100Mbit", Some(12.5e6)),
            ("3.31 Gbit/s", Some(413.75e6)),
            ("100Mbps", Some(12.5e6)),
            ("100MBps", Some(100e6)),
            ("250 MB/s", Some(250e6)),
            ("2B", Some(2.0)),
            ("100", None),
            ("100/s", None),
            ("100Mb", None),
            ("1.5Gbit/s", Some(187.5e6)),
            ("10M", Some(10485760.0)),
            ("80MB/s", Some(80e6)),
            ("0", None),
            ("100mbit", Some(12.5e6)),
            ("fast", None),
            ("1bit", None),
            ("10m", None),
            ("10k/s", None),
            ("1g", None),
            ("80mb", None),
            ("80mbps", Some(10e6)),
        ];
        for (text, expect) in cases {
            assert_eq!(parse_rate(text).ok().map(|r| r.bytes_per_second), expect, "{text}");
        }
        let cases = [
            ("10m", "write 10Mbit (bits) or 10MB (bytes a second)"),
            ("64k", "write 64kbit (bits) or 64kB (bytes a second)"),
            ("1gb", "write 1Gbit (bits) or 1GB (bytes a second)"),
            ("0.5g", "write 0.5Gbit (bits) or 0.5GB (bytes a second)"),
            ("80Mb", "write 80Mbit (bits) or 80MB (bytes a second)"),
            ("0.5", "write 100Mbit (bits) or 100MB (bytes a second)"),
        ];
        for (text, expect) in cases {
            let why = parse_rate(text).unwrap_err();
            assert_eq!(why, format!("'{text}' has no unit of a rate: {expect}"));
        }
    }

    #[test]
    fn printed() {
        assert_eq!(Bytes(4 << 30).to_string(), "4 GiB");
        assert_eq!(Bytes(4 << 30).typed(), "4G");
        assert_eq!(Bytes(5000).typed(), "5000");
        assert_eq!(Bytes(1_572_865).to_string(), "1.50 MiB");
        assert_eq!(Rate { bytes_per_second: 12.5e6 }.to_string(), "12.5 MB/s (100.0 Mbit/s)");
        assert_eq!(Nanos(1_500_000).to_string(), "1.5 ms");
    }
}
