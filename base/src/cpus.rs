//! A set of CPUs, as people type it and the kernel prints it: `0,2-3`.

use std::fmt;

/// At least one CPU; in order, each once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cpus(Vec<u32>);

impl Cpus {
    /// `None` for an empty list.
    pub fn of(cpus: impl IntoIterator<Item = u32>) -> Option<Cpus> {
        let mut cpus: Vec<u32> = cpus.into_iter().collect();
        cpus.sort_unstable();
        cpus.dedup();
        (!cpus.is_empty()).then_some(Cpus(cpus))
    }

    /// Reads `0,2-3`. The error says what to write instead.
    pub fn parse(text: &str) -> Result<Cpus, String> {
        let mut cpus = Vec::new();
        for part in text.trim().split(',') {
            let (low, high) = part.split_once('-').unwrap_or((part, part));
            let number = |word: &str| word.parse::<u32>().ok().filter(|cpu| *cpu <= CPU_MAX);
            match (number(low), number(high)) {
                (Some(low), Some(high)) if low <= high => cpus.extend(low..=high),
                _ => return Err(format!("write {CPUS_PHRASE}")),
            }
        }
        Cpus::of(cpus).ok_or_else(|| format!("write {CPUS_PHRASE}"))
    }

    pub fn list(&self) -> &[u32] {
        &self.0
    }
}

impl fmt::Display for Cpus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut comma = "";
        let mut left = &self.0[..];
        while let Some(&first) = left.first() {
            let run = left.iter().zip(first..).take_while(|(cpu, at)| **cpu == *at).count();
            match run {
                1 => write!(f, "{comma}{first}")?,
                _ => write!(f, "{comma}{first}-{}", left[run - 1])?,
            }
            (left, comma) = (&left[run..], ",");
        }
        Ok(())
    }
}

pub const CPUS_PHRASE: &str = "a list of CPUs, for instance 0,2-3 (numbers from 0 to 1023)";

/// The highest CPU number that a `cpu_set_t` of the C library has a bit for.
const CPU_MAX: u32 = 1023;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_and_written() {
        let cases = [
            ("0", Some("0")),
            ("0,2-3", Some("0,2-3")),
            ("3,2,2,0", Some("0,2-3")),
            ("0-1023", Some("0-1023")),
            ("1\n", Some("1")),
            ("", None),
            (",", None),
            ("0,", None),
            ("3-2", None),
            ("-1", None),
            ("a", None),
            ("0-4000000000", None),
            ("1024", None),
            ("0 1", None),
        ];
        for (text, expect) in cases {
            let got = Cpus::parse(text).ok().map(|cpus| cpus.to_string());
            assert_eq!(got.as_deref(), expect, "{text:?}");
        }
    }
}
