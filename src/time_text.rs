//! Times as people read and write them: ISO 8601 in UTC.

use time::{OffsetDateTime, format_description::well_known::Rfc3339};

pub fn shown(unix_seconds: i64) -> String {
    let time = OffsetDateTime::from_unix_timestamp(unix_seconds).ok();
    time.and_then(|time| time.format(&Rfc3339).ok())
        .unwrap_or_default()
}

/// Unix seconds; fractions of a second are rounded down.
pub fn read(text: &str) -> Option<i64> {
    OffsetDateTime::parse(text, &Rfc3339)
        .ok()
        .map(OffsetDateTime::unix_timestamp)
}
