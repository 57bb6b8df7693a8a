//! A day or a time on the command line.

use time::{Date as CalendarDate, Time, macros::format_description};

use crate::base::timestamp;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Date {
    /// Since 1970.
    pub seconds: i64,
    /// Whether it is the beginning of a day (UTC).
    pub is_day: bool,
}

/// Reads `2026-11-01`, the beginning of that day in UTC, or a time as in RFC 3339.
pub(crate) fn date(text: &str) -> Result<Date, String> {
    let day = CalendarDate::parse(text, format_description!("[year]-[month]-[day]")).ok();
    let midnight = day.map(|day| day.with_time(Time::MIDNIGHT).assume_utc().unix_timestamp());
    let seconds = midnight
        .or_else(|| timestamp::read(text))
        .filter(|seconds| *seconds >= 0)
        .ok_or(
            "expected a day since 1970 such as 2026-11-01, or a time such as 2026-11-01T08:00:00Z",
        )?;
    Ok(Date {
        seconds,
        is_day: seconds % 86_400 == 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_and_times() {
        for (text, seconds, is_day) in [
            ("2027-01-15", 1_799_971_200, true),
            ("2027-01-15T00:00:00Z", 1_799_971_200, true),
            ("2027-01-15T08:00:00Z", 1_800_000_000, false),
            ("2027-01-15T09:00:00.9+01:00", 1_800_000_000, false),
            ("1970-01-01", 0, true),
        ] {
            assert_eq!(date(text), Ok(Date { seconds, is_day }), "{text}");
        }
        for wrong in [
            "",
            "yesterday",
            "2027-02-30",
            "2027-1-5",
            "15.01.2027",
            "2027-01-15 08:00",
            "1969-12-31",
        ] {
            assert!(date(wrong).is_err(), "{wrong}");
        }
    }
}
