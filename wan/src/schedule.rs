//! Changes of a path at set times: `--at 10s --rate 50Mbit --at 20s --rate 100Mbit`.

use std::time::Duration;

use crate::profile::{Change, Profile};
use crate::words;

/// What changes when, in the order of time. Times count from the moment when it is begun.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Schedule {
    steps: Vec<(Duration, Change)>,
}

impl Schedule {
    /// Options of a change, at once or behind `--at TIME`.
    pub fn from_words(words: &[&str]) -> Result<Schedule, String> {
        let mut steps = Vec::new();
        let mut groups = words.split(|word| *word == AT);
        // What comes before the first time is changed at once.
        match groups.next() {
            None | Some([]) => {}
            Some(own) => steps.push((Duration::ZERO, Change::from_words(own)?)),
        }
        for group in groups {
            let [time, own @ ..] = group else {
                return Err(format!("{AT} needs a time: {AT} 10s --rate 5Mbit"));
            };
            let time = words::moment(time).map_err(|why| format!("{AT} {time}: {why}"))?;
            steps.push((time, Change::from_words(own)?));
        }
        if steps.is_empty() {
            // The message has the options.
            Change::from_words(&[])?;
        }
        match steps.is_sorted_by_key(|(at, _)| *at) {
            true => Ok(Schedule { steps }),
            false => Err(format!("{AT}: name the times in their order")),
        }
    }

    /// Nothing to do?
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// The profiles that a path takes on, each from its time on. An impossible one is an error
    /// before anything has changed.
    pub fn profiles(&self, mut profile: Profile) -> Result<Vec<(Duration, Profile)>, String> {
        let mut profiles = Vec::new();
        for (at, change) in &self.steps {
            profile.apply(change).map_err(|why| format!("{AT} {}s: {why}", at.as_secs_f64()))?;
            profiles.push((*at, profile.clone()));
        }
        Ok(profiles)
    }
}

pub(crate) const AT: &str = "--at";

#[cfg(test)]
mod tests {
    use super::*;

    fn schedule(line: &str) -> Result<Schedule, String> {
        Schedule::from_words(&line.split_whitespace().collect::<Vec<_>>())
    }

    #[test]
    fn each_time_has_its_changes() {
        let profile = Profile::from_words(&["--rate", "10Mbit", "--rtt", "20ms"]).unwrap();
        let line = "--loss 1% --at 2s --rate 5Mbit --rtt 40ms --at 500000ms --rate 20Mbit";
        let steps = schedule(line).unwrap().profiles(profile.clone()).unwrap();
        let seen: Vec<_> = steps
            .iter()
            .map(|(at, step)| {
                let shape = step.forward;
                let mbit = shape.rate_bits_per_s / 1_000_000;
                (at.as_millis(), mbit, shape.delay_ns / 1_000_000, shape.loss.share)
            })
            .collect();
        assert_eq!(seen, [(0, 10, 10, 0.01), (2000, 5, 20, 0.01), (500_000, 20, 20, 0.01)]);
        let impossible = schedule("--at 1s --queue 10").unwrap().profiles(profile).unwrap_err();
        assert!(impossible.starts_with("--at 1s: a queue of 10 bytes"), "{impossible}");
    }

    #[test]
    fn nonsense_is_refused() {
        let cases = [
            ("", "nothing to change"),
            ("--at", "--at needs a time"),
            ("--rate 1Mbit --at", "--at needs a time"),
            ("--at --at 1s --rate 1Mbit", "--at needs a time"),
            ("--at 1s", "nothing to change"),
            ("--at soon --rate 1Mbit", "--at soon: write a number"),
            ("--at 2s --rate 1Mbit --at 1s --rate 2Mbit", "in their order"),
            ("--at 1s --seed 2", "--seed is not understood"),
        ];
        for (line, expected) in cases {
            let why = schedule(line).unwrap_err();
            assert!(why.contains(expected), "{line}: {why}");
        }
    }
}
