//! All that happens on a path, as one value: what it is, what changes when, and who else is there.

use crate::profile::Profile;
use crate::rivals::Rivals;
use crate::schedule::{AT, Schedule};

/// A path, its changes and its rivals. `Wan::up` makes its path, and `Wan::begin` begins the rest,
/// at the moment from which its times count.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    pub profile: Profile,
    pub schedule: Schedule,
    pub rivals: Vec<Rivals>,
}

impl Scenario {
    /// Options of `cargo xtask wan up`; `--rivals WORD`, as often as there are kinds of them; and
    /// at the end changes, behind `--at TIME`.
    pub fn from_words(words: &[&str]) -> Result<Scenario, String> {
        let end = words.iter().position(|word| *word == AT).unwrap_or(words.len());
        let (path, changes) = words.split_at(end);
        let (mut own, mut rivals) = (Vec::new(), Vec::new());
        let mut path = path.iter();
        while let Some(word) = path.next() {
            match *word {
                "--rivals" => {
                    let word = path.next().ok_or("--rivals needs a value, as 4xcubic")?;
                    rivals.push(Rivals::from_word(word)?);
                }
                word => own.push(word),
            }
        }
        let profile = Profile::from_words(&own)?;
        let schedule = match changes {
            [] => Schedule::default(),
            changes => Schedule::from_words(changes)?,
        };
        // Impossible changes are refused now.
        schedule.profiles(profile.clone())?;
        Ok(Scenario { profile, schedule, rivals })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scenario(line: &str) -> Result<Scenario, String> {
        Scenario::from_words(&line.split_whitespace().collect::<Vec<_>>())
    }

    #[test]
    fn words_become_scenarios() {
        let line = "--rate 50Mbit --rivals 4xcubic,for=9s --rtt 30ms --rivals short \
                    --at 3s --rate 20Mbit --at 6s --rate 50Mbit";
        let made = scenario(line).unwrap();
        assert_eq!(
            made.profile,
            Profile::from_words(&["--rate", "50Mbit", "--rtt", "30ms"]).unwrap()
        );
        let rivals: Vec<String> = made.rivals.iter().map(ToString::to_string).collect();
        assert_eq!(rivals[0], "4xcubic,for=9s");
        assert_eq!(rivals.len(), 2);
        assert_eq!(made.schedule.profiles(made.profile).unwrap().len(), 2);
        assert!(scenario("--rate 5Mbit").unwrap().schedule.is_empty());
        for (line, expected) in [
            ("--rivals", "--rivals needs a value"),
            ("--rivals vegas", "rivals vegas"),
            ("--at 1s --queue 5", "--at 1s: a queue of 5 bytes"),
            ("--at 1s --rivals cubic", "--rivals is not understood"),
        ] {
            let why = scenario(line).unwrap_err();
            assert!(why.contains(expected), "{line}: {why}");
        }
    }
}
