//! Times as text, in UTC.

use std::time::Duration;

/// `2026-11-20T12:15:03.123Z`. The days become a date as Howard Hinnant's `civil_from_days` does
/// it: years begin in March, so that the leap day is the last of its year.
pub fn utc(unix: Duration) -> String {
    let seconds = unix.as_secs();
    let days = seconds / 86_400 + 719_468; // since 0000-03-01
    let era = days / 146_097;
    let day_of_era = days % 146_097;
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    let millis = unix.subsec_millis();
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
}

/// Seconds since 1970 of a day, or of a minute or a second of it: `2026-11-20`,
/// `2026-11-20 12:15:03`, `2026-11-20T12:15Z`. `None` for other texts.
pub fn unix_s(text: &str) -> Option<u64> {
    let (day, time) = match text.split_once(['T', ' ']) {
        Some((day, time)) => (day, time.trim_end_matches('Z')),
        None => (text, "00:00"),
    };
    let [year, month, day] = numbers(day, '-')?.try_into().ok()?;
    let (hour, minute, second) = match numbers(time, ':')?[..] {
        [hour, minute] => (hour, minute, 0),
        [hour, minute, second] => (hour, minute, second),
        _ => return None,
    };
    let is_time = hour < 24 && minute < 60 && second < 60;
    if !is_time || !(1970..=9999).contains(&year) || !(1..=12).contains(&month) {
        return None;
    }
    let (year_from_march, month_from_march) =
        if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let (era, year_of_era) = (year_from_march / 400, year_from_march % 400);
    let day_of_year = (153 * month_from_march + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    let days = (era * 146_097 + day_of_era).checked_sub(719_468)?;
    let unix = days * 86_400 + hour * 3600 + minute * 60 + second;
    // A day that its month does not have is another one in the next.
    let there = utc(Duration::from_secs(unix));
    there.starts_with(&format!("{year:04}-{month:02}-{day:02}T")).then_some(unix)
}

fn numbers(text: &str, between: char) -> Option<Vec<u64>> {
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    text.split(between).map(|part| part.parse().ok().filter(|_| is_number(part))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates() {
        let cases = [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_399, "2000-02-28T23:59:59.000Z"),
            (951_782_400, "2000-02-29T00:00:00.000Z"),
            (951_868_800, "2000-03-01T00:00:00.000Z"),
            (1_709_164_800, "2024-02-29T00:00:00.000Z"),
            (1_735_689_599, "2024-12-31T23:59:59.000Z"),
            (4_107_542_400, "2100-03-01T00:00:00.000Z"),
        ];
        for (seconds, expect) in cases {
            assert_eq!(utc(Duration::from_secs(seconds)), expect);
            let (typed, _) = expect.split_once('.').unwrap();
            assert_eq!(unix_s(typed), Some(seconds), "{typed}");
        }
    }

    #[test]
    fn typed_dates() {
        let cases = [
            ("2024-02-29", Some(1_709_164_800)),
            ("2024-02-29 00:01", Some(1_709_164_860)),
            ("2024-02-29T00:01:02Z", Some(1_709_164_862)),
            ("1970-01-01", Some(0)),
            ("1969-12-31", None),
            ("2023-02-29", None),
            ("2024-13-01", None),
            ("2024-04-31", None),
            ("2024-04-00", None),
            ("2024-04-01 24:00", None),
            ("2024-04-01 1", None),
            ("2024-04", None),
            ("2024-04-+1", None),
            ("2024-04-", None),
            ("99999999999999999999-01-01", None),
            ("yesterday", None),
            ("", None),
        ];
        for (text, expect) in cases {
            assert_eq!(unix_s(text), expect, "{text}");
        }
    }
}
