//! Times as text: ISO 8601 (RFC 3339) in UTC.

use time::{OffsetDateTime, format_description::well_known::Rfc3339};

/// The system's time in seconds since 1970.
pub fn now() -> i64 {
    OffsetDateTime::now_utc().unix_timestamp()
}

/// The system's time in milliseconds since 1970.
pub(crate) fn now_ms() -> i64 {
    let nanos = OffsetDateTime::now_utc().unix_timestamp_nanos();
    i64::try_from(nanos.div_euclid(1_000_000)).unwrap_or(0)
}

/// Formats a time: `2027-01-15T08:00:00Z`.
pub fn shown(unix_seconds: i64) -> String {
    let time = OffsetDateTime::from_unix_timestamp(unix_seconds).ok();
    time.and_then(|time| time.format(&Rfc3339).ok())
        .unwrap_or_default()
}

/// Formats the date of a time: `2027-01-15`.
pub(crate) fn day(unix_seconds: i64) -> String {
    let mut date = shown(unix_seconds);
    date.truncate("2027-01-15".len());
    date
}

/// Formats a time with milliseconds, always with three decimals, so that the texts sort in time order.
pub(crate) fn shown_ms(unix_ms: i64) -> String {
    let whole = shown(unix_ms.div_euclid(1_000));
    let seconds = whole.strip_suffix('Z').unwrap_or(&whole);
    format!("{seconds}.{:03}Z", unix_ms.rem_euclid(1_000))
}

/// Parses a time to seconds since 1970; fractions of a second are rounded down.
pub(crate) fn read(text: &str) -> Option<i64> {
    OffsetDateTime::parse(text, &Rfc3339)
        .ok()
        .map(OffsetDateTime::unix_timestamp)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn milliseconds_have_three_decimals() {
        assert_eq!(shown_ms(1_800_000_000_007), "2027-01-15T08:00:00.007Z");
        assert_eq!(shown_ms(1_800_000_000_000), "2027-01-15T08:00:00.000Z");
        assert_eq!(read(&shown_ms(1_800_000_000_999)), Some(1_800_000_000));
        assert_eq!(day(1_800_000_000), "2027-01-15");
    }
}
