//! Limits of a rate by the time of the week.

use crate::units::{Rate, parse_rate};

/// Minutes since Monday, 00:00, of a local clock.
pub type MinuteOfWeek = u16;

const MINUTES_OF_DAY: MinuteOfWeek = 24 * 60;
pub const MINUTES_OF_WEEK: MinuteOfWeek = 7 * MINUTES_OF_DAY;
const DAYS: [&str; 7] = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];

/// From each of these minutes on a limit holds until the next one, around the week.
#[derive(Clone, Debug, PartialEq)]
pub struct RateSchedule {
    /// By minute; never empty.
    changes: Vec<(MinuteOfWeek, Option<Rate>)>,
}

pub const SCHEDULE_PHRASE: &str = "times and rates such as '08:00,20MB 18:00,unlimited'";

impl RateSchedule {
    /// Reads `08:00,20MB 18:00,unlimited Sat-00:00,unlimited`: a time without a day is of every day
    /// that has none of its own at that minute.
    pub fn parse(text: &str) -> Result<RateSchedule, String> {
        let mut changes: Vec<(MinuteOfWeek, Option<Rate>, bool)> = Vec::new();
        for word in text.split_whitespace() {
            let (when, limit) = change(word)?;
            let is_of_day = when.day.is_some();
            let days = when.day.map_or(0..7, |day| day..day + 1);
            for day in days {
                let minute = day * MINUTES_OF_DAY + when.minute;
                match changes.iter_mut().find(|(at, ..)| *at == minute) {
                    Some((_, known, known_of_day)) if is_of_day && !*known_of_day => {
                        (*known, *known_of_day) = (limit, true);
                    }
                    Some((_, _, true)) if !is_of_day => {}
                    Some(_) => {
                        return Err(format!("'{word}' is of a time that has a rate already"));
                    }
                    None => changes.push((minute, limit, is_of_day)),
                }
            }
        }
        if changes.is_empty() {
            return Err(format!("write {SCHEDULE_PHRASE}"));
        }
        changes.sort_by_key(|(minute, ..)| *minute);
        let changes = changes.into_iter().map(|(minute, limit, _)| (minute, limit)).collect();
        Ok(RateSchedule { changes })
    }

    /// The limit at this minute.
    pub fn at(&self, minute: MinuteOfWeek) -> Option<Rate> {
        let before = self.changes.iter().take_while(|(from, _)| *from <= minute).last();
        let last = self.changes.last().expect("a schedule has a change");
        before.unwrap_or(last).1
    }
}

struct When {
    day: Option<MinuteOfWeek>,
    /// Of the day.
    minute: MinuteOfWeek,
}

fn change(word: &str) -> Result<(When, Option<Rate>), String> {
    let wrong = || format!("'{word}': write DAY-HH:MM,RATE or HH:MM,RATE");
    let (when, rate) = word.split_once(',').ok_or_else(wrong)?;
    let (day, time) = match when.split_once('-') {
        None => (None, when),
        Some((day, time)) => {
            let lower = day.to_ascii_lowercase();
            let day = DAYS.iter().position(|name| *name == lower);
            let day = day.ok_or_else(|| format!("'{word}': a day is one of Mon to Sun"))?;
            (Some(day as MinuteOfWeek), time)
        }
    };
    let (hour, minute) = time.split_once(':').ok_or_else(wrong)?;
    let number = |text: &str, below: MinuteOfWeek| {
        let is_plain = (1..=2).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
        let number: Option<MinuteOfWeek> = text.parse().ok();
        let number = number.filter(|number| is_plain && *number < below);
        number.ok_or_else(|| format!("'{word}': a time is 00:00 to 23:59"))
    };
    let minute = number(hour, 24)? * 60 + number(minute, 60)?;
    let limit = match rate {
        "unlimited" => None,
        rate => Some(parse_rate(rate).map_err(|why| format!("'{word}': {why}, or unlimited"))?),
    };
    Ok((When { day, minute }, limit))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Days from 0 for Monday, and a time.
    fn at(day: MinuteOfWeek, hour: MinuteOfWeek, minute: MinuteOfWeek) -> MinuteOfWeek {
        day * MINUTES_OF_DAY + hour * 60 + minute
    }

    #[test]
    fn a_limit_holds_until_the_next() {
        let office = "8:00,20MB 18:00,unlimited Sat-08:00,unlimited sun-8:00,1MB";
        let cases: &[(&str, MinuteOfWeek, Option<f64>)] = &[
            ("00:00,5MB", 0, Some(5e6)),
            ("00:00,5MB", MINUTES_OF_WEEK - 1, Some(5e6)),
            ("Wed-12:30,80Mbit", 0, Some(1e7)),
            (office, at(0, 7, 59), None),
            (office, at(0, 8, 0), Some(2e7)),
            (office, at(4, 17, 59), Some(2e7)),
            (office, at(4, 18, 0), None),
            (office, at(5, 12, 0), None),
            (office, at(6, 12, 0), Some(1e6)),
            (office, at(6, 23, 59), None),
            ("Mon-09:00,1MB Fri-17:00,2MB", at(0, 8, 59), Some(2e6)),
        ];
        for (text, minute, bytes_per_second) in cases {
            let schedule = RateSchedule::parse(text).unwrap();
            let limit = schedule.at(*minute).map(|rate| rate.bytes_per_second);
            assert_eq!(limit, *bytes_per_second, "{text} at {minute}");
        }
    }

    /// A time of one day takes the place of that of every day, in either order.
    #[test]
    fn what_is_wrong_is_named() {
        let twice = ["08:00,1MB Mon-08:00,2MB", "Mon-08:00,2MB 08:00,1MB"];
        for text in twice {
            let schedule = RateSchedule::parse(text).unwrap();
            assert_eq!(schedule.at(at(0, 9, 0)).map(|rate| rate.bytes_per_second), Some(2e6));
            assert_eq!(schedule.at(at(1, 9, 0)).map(|rate| rate.bytes_per_second), Some(1e6));
        }
        let wrong = [
            "",
            "8,1MB",
            "08:00",
            "24:00,1MB",
            "8:60,1MB",
            "+8:00,1MB",
            "008:00,1MB",
            "8:00,",
            "8:00,5",
            "Someday-8:00,1MB",
            "8:00,1MB 08:00,2MB",
            "Mon-8:00,1MB mon-08:00,1MB",
            "8:00,off",
        ];
        for text in wrong {
            let why = RateSchedule::parse(text).unwrap_err();
            assert!(
                text.split_whitespace().any(|word| why.contains(word)) || text.is_empty(),
                "{why}"
            );
        }
    }
}
