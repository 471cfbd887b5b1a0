//! Dates as S3 writes them: in signatures, in listings and in headers.

/// `20130524T000000Z`, for seconds since 1970.
pub(crate) fn stamp(unix_s: u64) -> String {
    let (year, month, day) = civil(unix_s / DAY_S);
    let (hour, minute, second) = (unix_s / 3600 % 24, unix_s / 60 % 60, unix_s % 60);
    format!("{year:04}{month:02}{day:02}T{hour:02}{minute:02}{second:02}Z")
}

/// Seconds and nanoseconds of `2009-10-12T17:50:30.123Z`.
pub(crate) fn iso(text: &str) -> Option<(i64, u32)> {
    let (date, time) = text.strip_suffix('Z')?.split_once('T')?;
    let mut date = date.split('-').map(|part| part.parse::<i64>().ok());
    let (year, month, day) = (date.next()??, date.next()??, date.next()??);
    let (time, fraction) = time.split_once('.').unwrap_or((time, ""));
    let nanos = format!("{fraction:0<9}").get(..9)?.parse().ok()?;
    Some((days(year, month, day)? * DAY_S as i64 + seconds_of_day(time)?, nanos))
}

/// Seconds of `Mon, 12 Oct 2009 17:50:30 GMT`.
pub(crate) fn http(text: &str) -> Option<i64> {
    let mut words = text.split_once(", ")?.1.split(' ');
    let day = words.next()?.parse().ok()?;
    let month = words.next()?;
    let month = MONTHS.iter().position(|name| *name == month)? as i64 + 1;
    let year = words.next()?.parse().ok()?;
    Some(days(year, month, day)? * DAY_S as i64 + seconds_of_day(words.next()?)?)
}

fn seconds_of_day(time: &str) -> Option<i64> {
    let mut parts = time.split(':').map(|part| part.parse::<i64>().ok());
    let (hour, minute, second) = (parts.next()??, parts.next()??, parts.next()??);
    Some(hour * 3600 + minute * 60 + second)
}

/// Days since 1970-01-01. Years begin in March here, so that leap days are at their ends.
fn days(year: i64, month: i64, day: i64) -> Option<i64> {
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) || !(1..=9999).contains(&year) {
        return None;
    }
    let year = if month <= 2 { year - 1 } else { year };
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let of_era = year.rem_euclid(400);
    let days = of_era * 365 + of_era / 4 - of_era / 100 + of_year;
    Some(year.div_euclid(400) * ERA_DAYS + days - EPOCH_DAYS)
}

/// The other way round.
fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + EPOCH_DAYS as u64;
    let (era, of_era) = (days / ERA_DAYS as u64, days % ERA_DAYS as u64);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let shifted = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    (era * 400 + year + u64::from(month <= 2), month, day)
}

const DAY_S: u64 = 86_400;
/// Days of 400 years, and from the first of March of the year 0 to 1970.
const ERA_DAYS: i64 = 146_097;
const EPOCH_DAYS: i64 = 719_468;
const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_written_and_read() {
        let cases = [
            (0, "19700101T000000Z", "1970-01-01T00:00:00Z", "Thu, 01 Jan 1970 00:00:00 GMT"),
            (
                951_782_400,
                "20000229T000000Z",
                "2000-02-29T00:00:00.000Z",
                "Tue, 29 Feb 2000 00:00:00 GMT",
            ),
            (
                1_369_353_600,
                "20130524T000000Z",
                "2013-05-24T00:00:00Z",
                "Fri, 24 May 2013 00:00:00 GMT",
            ),
            (
                4_102_444_799,
                "20991231T235959Z",
                "2099-12-31T23:59:59Z",
                "Thu, 31 Dec 2099 23:59:59 GMT",
            ),
        ];
        for (unix_s, stamped, in_listing, in_header) in cases {
            assert_eq!(stamp(unix_s), stamped);
            assert_eq!(iso(in_listing), Some((unix_s as i64, 0)));
            assert_eq!(http(in_header), Some(unix_s as i64));
        }
        assert_eq!(iso("2009-10-12T17:50:30.5Z"), Some((1_255_369_830, 500_000_000)));
        for bad in ["", "2009-10-12", "2009-13-12T17:50:30Z", "2009-10-12T17:50Z", "x-y-zTa:b:cZ"] {
            assert_eq!(iso(bad), None, "{bad}");
        }
        for bad in ["", "yesterday", "Mon, 12 Foo 2009 17:50:30 GMT", "Mon, 12 Oct"] {
            assert_eq!(http(bad), None, "{bad}");
        }
    }
}
