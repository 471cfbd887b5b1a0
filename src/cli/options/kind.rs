//! What may be typed as an option's value, and how it is read.

use std::ffi::OsStr;
use std::path::PathBuf;

use crate::cli::words;
use base::cpus::{CPUS_PHRASE, Cpus};
use base::limits;
use base::units::{Bytes, Nanos, Rate, parse_rate, parse_size};
use mover::pump::source::select;

/// What may be typed as an option's value, and what a good value becomes.
#[derive(Debug)]
pub(crate) enum Kind<T: 'static> {
    Flag(fn() -> T),
    Number(Limits, fn(u64) -> T),
    /// A number, or the word that leaves it to the program.
    NumberOr(&'static str, Limits, fn(Option<u64>) -> T),
    /// Several numbers: `1,5`, or a range.
    List(Limits, Range, fn(Vec<u64>) -> T),
    RateOr(&'static str, fn(Option<Rate>) -> T),
    NameOr(&'static str, fn(Option<String>) -> T),
    /// One of the names; the function gets its place among them.
    Choice(&'static [&'static str], fn(usize) -> T),
    Seconds(fn(Nanos) -> T),
    /// A time with its unit, or off.
    Time(fn(Nanos) -> T),
    /// A line of gitignore rules. It may be given again; the order on the command line counts.
    Pattern(fn(String) -> T),
    /// Text that may be given again, and each counts.
    Repeated(fn(String) -> T),
    Ports(fn((u16, u16)) -> T),
    /// After `=`; without it any port that is free, as 0.
    Port(fn(u16) -> T),
    Cpus(fn(Cpus) -> T),
    Words(fn(Vec<String>) -> T),
    Text(fn(String) -> T),
    /// What only this option takes: the values as a phrase, and how they are read.
    Parsed(&'static str, fn(&str) -> Result<T, String>),
    Path(fn(PathBuf) -> T),
    /// A file that may be given again, and each counts.
    Paths(fn(PathBuf) -> T),
}

/// The numbers that an option takes: both ends included, multiples of `step`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub unit: Unit,
    pub min: u64,
    pub max: u64,
    pub step: u64,
}

/// What `LOW..HIGH` stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Range {
    Each,
    Doubling,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    Count,
    Bytes,
}

impl<T> Kind<T> {
    /// Reads the value of the option of this name. The error says what to type instead.
    pub(crate) fn read(&self, name: &str, typed: &OsStr) -> Result<T, String> {
        if let Kind::Path(make) | Kind::Paths(make) = self {
            return match typed.is_empty() {
                true => Err(format!("--{name} needs a file name")),
                false => Ok(make(PathBuf::from(typed))),
            };
        }
        let text = typed.to_str().ok_or_else(|| format!("--{name}: the value is not UTF-8"))?;
        self.read_text(text).map_err(|why| format!("--{name} '{text}': {why}"))
    }

    /// The same for what is UTF-8; the error does not name the option.
    pub(crate) fn read_text(&self, text: &str) -> Result<T, String> {
        Ok(match self {
            Kind::Flag(make) => make(),
            Kind::Number(limits, make) => make(limits.parse(text)?),
            Kind::NumberOr(word, _, make) if text == *word => make(None),
            Kind::NumberOr(word, limits, make) => {
                make(Some(limits.parse(text).map_err(|why| format!("{why}, or {word}"))?))
            }
            Kind::List(limits, range, make) => make(limits.list(*range, text)?),
            Kind::RateOr(word, make) if text == *word => make(None),
            Kind::RateOr(word, make) => {
                make(Some(parse_rate(text).map_err(|why| format!("{why}, or {word}"))?))
            }
            Kind::NameOr(word, make) if text == *word => make(None),
            Kind::NameOr(_, make) => make(Some(kernel_name(text)?)),
            Kind::Choice(names, make) => {
                let place = names.iter().position(|name| *name == text);
                make(place.ok_or_else(|| format!("write {}", any_of(names)))?)
            }
            Kind::Seconds(make) => make(seconds(text)?),
            Kind::Time(make) => make(time(text)?),
            Kind::Pattern(make) => {
                select::check_pattern(text)?;
                make(text.to_string())
            }
            Kind::Ports(make) => make(ports(text)?),
            Kind::Port(make) if text.is_empty() => make(0),
            Kind::Port(make) => make(text.parse().map_err(|_| format!("write {PORT_PHRASE}"))?),
            Kind::Cpus(make) => make(Cpus::parse(text)?),
            Kind::Words(make) => make(words::split(text)?),
            Kind::Text(_) if text.is_empty() => return Err("write a value".into()),
            Kind::Repeated(_) if text.is_empty() => return Err("write a value".into()),
            Kind::Text(make) | Kind::Repeated(make) => make(text.to_string()),
            Kind::Parsed(_, read) => read(text)?,
            Kind::Path(make) | Kind::Paths(make) => make(PathBuf::from(text)),
        })
    }

    /// The values it takes, as a phrase: `a number from 1 to 64`. Empty where all are allowed.
    pub(crate) fn phrase(&self) -> String {
        match self {
            Kind::Number(limits, _) => limits.phrase(),
            Kind::NumberOr(word, limits, _) => format!("{}, or {word}", limits.phrase()),
            Kind::List(limits, range, _) => limits.list_phrase(*range),
            Kind::RateOr(word, _) => format!("100Mbit (bits) or 80MB (bytes a second), or {word}"),
            Kind::Choice(names, _) => any_of(names),
            Kind::Seconds(_) => SECONDS_PHRASE.to_string(),
            Kind::Time(_) => TIME_PHRASE.to_string(),
            Kind::Ports(_) => PORTS_PHRASE.to_string(),
            Kind::Port(_) => PORT_PHRASE.to_string(),
            Kind::Cpus(_) => CPUS_PHRASE.to_string(),
            Kind::Parsed(phrase, _) => (*phrase).to_string(),
            _ => String::new(),
        }
    }
}

impl Limits {
    pub(crate) const STREAMS: Limits = Limits::count(1, limits::STREAMS_MAX as u64);
    pub(crate) const DEPTH: Limits = Limits::count(1, limits::DEPTH_MAX as u64);
    pub(crate) const WINDOW_BYTES: Limits =
        Limits::bytes(limits::WINDOW_BYTES_MIN as u64, limits::WINDOW_BYTES_MAX as u64);
    pub(crate) const REQUEST_BYTES: Limits = Limits {
        unit: Unit::Bytes,
        min: limits::REQUEST_BYTES_MIN as u64,
        max: limits::REQUEST_BYTES_MAX as u64,
        step: limits::REQUEST_BYTES_STEP as u64,
    };

    pub(crate) const fn count(min: u64, max: u64) -> Limits {
        Limits { unit: Unit::Count, min, max, step: 1 }
    }

    pub(crate) const fn bytes(min: u64, max: u64) -> Limits {
        Limits { unit: Unit::Bytes, min, max, step: 1 }
    }

    fn parse(self, text: &str) -> Result<u64, String> {
        let number = match self.unit {
            Unit::Count => text.parse().ok(),
            Unit::Bytes => parse_size(text).ok(),
        };
        number
            .filter(|n| (self.min..=self.max).contains(n) && n.is_multiple_of(self.step))
            .ok_or_else(|| format!("write {}", self.phrase()))
    }

    /// `16K..1M`, or `16K,96K`.
    fn list(self, range: Range, text: &str) -> Result<Vec<u64>, String> {
        let parse = |word: &str| {
            self.parse(word.trim()).map_err(|_| format!("write {}", self.list_phrase(range)))
        };
        let Some((low, high)) = text.split_once("..") else {
            return text.split(',').map(parse).collect();
        };
        let (low, high) = (parse(low)?, parse(high)?);
        let next = |number: &u64| match range {
            Range::Each => number.checked_add(1),
            Range::Doubling => number.checked_mul(2),
        };
        let numbers = std::iter::successors(Some(low), next);
        let numbers: Vec<u64> = numbers.take_while(|number| *number <= high).collect();
        match numbers.is_empty() {
            true => Err(format!("write {}", self.list_phrase(range))),
            false => Ok(numbers),
        }
    }

    fn list_phrase(self, range: Range) -> String {
        match range {
            Range::Each => format!("numbers such as 1..4 or 1,3: each {}", self.phrase()),
            Range::Doubling => format!("sizes such as 16K..1M or 16K,96K: each {}", self.phrase()),
        }
    }

    fn phrase(self) -> String {
        let Limits { unit, min, max, step } = self;
        match unit {
            Unit::Count if max == u64::MAX => format!("a number from {min} up"),
            Unit::Count => format!("a number from {min} to {max}"),
            Unit::Bytes if max == SIZE_MAX && min < 2 => {
                format!("a size from {} up, such as 10K, 5M or 2G", Bytes(min).typed())
            }
            Unit::Bytes if max == SIZE_MAX => format!("a size from {} up", Bytes(min).typed()),
            Unit::Bytes if step > 1 => format!(
                "a multiple of {} from {} to {}",
                Bytes(step).typed(),
                Bytes(min).typed(),
                Bytes(max).typed()
            ),
            Unit::Bytes => format!("a size from {} to {}", Bytes(min).typed(), Bytes(max).typed()),
        }
    }
}

/// `auto, uring or threads`.
pub(crate) fn any_of(names: &[&str]) -> String {
    match names {
        [] => String::new(),
        [only] => (*only).to_string(),
        [most @ .., last] => format!("{} or {last}", most.join(", ")),
    }
}

fn seconds(text: &str) -> Result<Nanos, String> {
    let number: Option<f64> = text.strip_suffix('s').unwrap_or(text).parse().ok();
    match number {
        Some(seconds) if (SECONDS_MIN..=SECONDS_MAX).contains(&seconds) => {
            Ok(Nanos((seconds * 1e9).round() as u64))
        }
        _ => Err(format!("write {SECONDS_PHRASE}")),
    }
}

/// `90`, `90s`, `10m`, `2h`; `0` and `off` mean zero.
fn time(text: &str) -> Result<Nanos, String> {
    let (number, unit_seconds) = match text.char_indices().last() {
        Some((at, 's')) => (&text[..at], 1),
        Some((at, 'm')) => (&text[..at], 60),
        Some((at, 'h')) => (&text[..at], 3600),
        _ => (text, 1),
    };
    match number.parse::<u64>() {
        _ if text == "off" => Ok(Nanos(0)),
        Ok(number) if number.saturating_mul(unit_seconds) <= TIME_SECONDS_MAX => {
            Ok(Nanos(number * unit_seconds * 1_000_000_000))
        }
        _ => Err(format!("write {TIME_PHRASE}")),
    }
}

/// `50000-50100`, `50000:50100` as bbcp writes it, or one port.
fn ports(text: &str) -> Result<(u16, u16), String> {
    let (low, high) = text.split_once(['-', ':']).unwrap_or((text, text));
    match (low.parse(), high.parse()) {
        (Ok(low @ 1..), Ok(high)) if low <= high => Ok((low, high)),
        _ => Err(format!("write {PORTS_PHRASE}")),
    }
}

/// A congestion control as the kernel names it: at most 15 letters (TCP_CA_NAME_MAX with its zero).
fn kernel_name(text: &str) -> Result<String, String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    match (1..16).contains(&text.len()) && text.chars().all(plain) {
        true => Ok(text.to_string()),
        false => Err("write a name from 'sysctl net.ipv4.tcp_available_congestion_control', \
                      such as cubic or bbr"
            .into()),
    }
}

/// The largest size that `parse_size` reads.
pub(crate) const SIZE_MAX: u64 = i64::MAX as u64;
const SECONDS_MIN: f64 = 0.1;
const SECONDS_MAX: f64 = 3600.0;
const SECONDS_PHRASE: &str = "seconds from 0.1 to 3600";
/// A week.
const TIME_SECONDS_MAX: u64 = 7 * 24 * 3600;
const TIME_PHRASE: &str = "a time such as 90s, 10m or 2h (a week at most), or off";
const PORT_PHRASE: &str = "a port from 1 to 65535, or 0 for one that is free";
const PORTS_PHRASE: &str = "LO-HI, for instance 50000-50100 (ports from 1 to 65535)";
