//! Converts days between the ledger's form ("2026-11-16", UTC) and the form shown on pages; also the times at which hours
//! and minutes begin ("2026-11-16T14:00:00Z").

use time::{Date, OffsetDateTime};

const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];

/// The last `count` days up to and including the day of `unix_seconds`, in ascending order.
pub(crate) fn last(count: u16, unix_seconds: i64) -> Vec<String> {
    let now = OffsetDateTime::from_unix_timestamp(unix_seconds);
    let today = now.map_or(Date::MIN, OffsetDateTime::date);
    let mut days: Vec<_> = std::iter::successors(Some(today), |day| day.previous_day())
        .take(count.into())
        .map(|day| day.to_string())
        .collect();
    days.reverse();
    days
}

/// "16 Nov"; of a time, "14:00".
pub(crate) fn short(day: &str) -> String {
    if let Some((_, time)) = time_of(day) {
        return time.to_owned();
    }
    parts(day).map_or_else(
        || day.to_owned(),
        |(_, month, day)| format!("{day} {month}"),
    )
}

/// "16 Nov 2026"; of a time, "16 Nov 2026, 14:00 UTC".
pub(crate) fn long(day: &str) -> String {
    if let Some((day, time)) = time_of(day) {
        return format!("{}, {time} UTC", long(day));
    }
    parts(day).map_or_else(
        || day.to_owned(),
        |(year, month, day)| format!("{day} {month} {year}"),
    )
}

/// Whether it is a time and not a day.
pub(crate) fn is_time(text: &str) -> bool {
    time_of(text).is_some()
}

/// Day, hours and minutes of a time.
fn time_of(text: &str) -> Option<(&str, &str)> {
    let (day, time) = text.split_once('T')?;
    Some((day, time.get(..5)?))
}

fn parts(day: &str) -> Option<(&str, &'static str, u8)> {
    let (year, rest) = day.split_once('-')?;
    let (month, day) = rest.split_once('-')?;
    let month: usize = month.parse().ok()?;
    let month = MONTHS.get(month.checked_sub(1)?)?;
    Some((year, month, day.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_days_end_with_today_and_cross_months_and_years() {
        let noon_of_new_year = 1_767_268_800; // 2026-01-01T12:00:00Z
        let days = last(3, noon_of_new_year);
        assert_eq!(days, ["2025-12-30", "2025-12-31", "2026-01-01"]);
        assert_eq!(last(90, noon_of_new_year).len(), 90);
        let before_midnight = noon_of_new_year + 43_199;
        assert_eq!(last(1, before_midnight), ["2026-01-01"]);
        assert_eq!(last(1, before_midnight + 1), ["2026-01-02"]);
    }

    #[test]
    fn days_are_formatted_and_invalid_ones_returned_unchanged() {
        assert_eq!(short("2026-11-06"), "6 Nov");
        assert_eq!(long("2026-11-16"), "16 Nov 2026");
        assert_eq!(short("2026-11-16T04:30:00Z"), "04:30");
        assert!(is_time("2026-11-16T04:30:00Z") && !is_time("2026-11-16"));
        assert_eq!(long("2026-11-16T04:30:00Z"), "16 Nov 2026, 04:30 UTC");
        for none in ["", "2026", "2026-13-01", "2026-00-01", "2026-01-x"] {
            assert_eq!(long(none), none);
        }
    }
}
