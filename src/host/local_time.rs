//! The clock on the wall, where this host is.

use jiff::ZonedDateTime;

use base::schedule::MinuteOfWeek;

/// Minutes since Monday, 00:00, by `TZ` or the zone of the host.
pub fn minute_of_week() -> MinuteOfWeek {
    let now = ZonedDateTime::now();
    let day = now.weekday().to_monday_zero_offset();
    let minute = (i32::from(day) * 24 + i32::from(now.hour())) * 60 + i32::from(now.minute());
    MinuteOfWeek::try_from(minute).expect("a week has 10,080 minutes")
}
