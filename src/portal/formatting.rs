//! Formats amounts, numbers and times for pages.

use maud::{Markup, html};
use time::{OffsetDateTime, macros::format_description};

use crate::base::{money::NanoUsd, timestamp};

/// An amount in US dollars, exact to the nano-dollar and with at least two decimals.
pub(crate) fn money(amount: NanoUsd) -> String {
    let nanos = amount.nanos();
    let (whole, rest) = (
        nanos.unsigned_abs() / 1_000_000_000,
        nanos.unsigned_abs() % 1_000_000_000,
    );
    let rest = format!("{rest:09}");
    let kept = rest.trim_end_matches('0').len().max(2);
    let sign = if nanos < 0 { "−" } else { "" };
    format!("{sign}${}.{}", count(whole), &rest[..kept])
}

/// An amount in US dollars, rounded to cents from one cent on. For overviews, not for bills.
pub(crate) fn money_rounded(amount: NanoUsd) -> String {
    let nanos = amount.nanos();
    if nanos.unsigned_abs() < 10_000_000 {
        return money(amount);
    }
    let cents = (nanos.unsigned_abs() + 5_000_000) / 10_000_000;
    let sign = if nanos < 0 { "−" } else { "" };
    format!("{sign}${}.{:02}", count(cents / 100), cents % 100)
}

/// A number with thousands separators.
pub(crate) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A point in time to the second, as a `<time>` element: in UTC, until a script (`times.js`) shows it in the time zone of
/// the reader. Its title stays in UTC.
pub(crate) fn moment(unix_seconds: i64) -> Markup {
    let format = format_description!(
        "[day padding:none] [month repr:short] [year], [hour]:[minute]:[second] UTC"
    );
    let time = OffsetDateTime::from_unix_timestamp(unix_seconds).ok();
    let shown = time.and_then(|time| time.format(format).ok());
    let shown = shown.unwrap_or_default();
    html! { time datetime=(timestamp::shown(unix_seconds)) title=(shown) { (shown) } }
}

/// A point in time, as [`moment`] has it, but without seconds.
pub(crate) fn minute(unix_seconds: i64) -> Markup {
    let format =
        format_description!("[day padding:none] [month repr:short] [year], [hour]:[minute] UTC");
    let time = OffsetDateTime::from_unix_timestamp(unix_seconds).ok();
    let shown = time.and_then(|time| time.format(format).ok());
    let shown = shown.unwrap_or_default();
    html! { time datetime=(timestamp::shown(unix_seconds)) title=(shown) data-to="minute" { (shown) } }
}

/// A duration in milliseconds, seconds or minutes.
pub(crate) fn duration(ms: i64) -> String {
    match ms.max(0) {
        ms @ 0..1_000 => format!("{ms} ms"),
        ms @ 1_000..60_000 => format!("{}.{:02} s", ms / 1_000, ms % 1_000 / 10),
        ms => format!("{} min {} s", ms / 60_000, ms % 60_000 / 1_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn money_is_exact_with_at_least_two_decimals() {
        let shown = |nanos| money(NanoUsd::new(nanos));
        assert_eq!(shown(0), "$0.00");
        assert_eq!(shown(1), "$0.000000001");
        assert_eq!(shown(100_000_000_000), "$100.00");
        assert_eq!(shown(1_234_567_890_123_456_789), "$1,234,567,890.123456789");
        assert_eq!(shown(-1_500_000_000), "−$1.50");
    }

    #[test]
    fn rounded_money_has_cents() {
        let shown = |nanos| money_rounded(NanoUsd::new(nanos));
        assert_eq!(shown(1_234_567_890), "$1.23");
        assert_eq!(shown(1_995_000_000), "$2.00");
        assert_eq!(shown(1_200), "$0.0000012");
        assert_eq!(shown(-99_999_999_999), "−$100.00");
    }

    #[test]
    fn counts_have_thousands_separators() {
        let shown: Vec<_> = [0, 999, 1_000, 1_234_567].map(count).into();
        assert_eq!(shown, ["0", "999", "1,000", "1,234,567"]);
    }

    #[test]
    fn a_moment_is_shown_with_a_machine_readable_time() {
        let shown = moment(1_800_000_000).into_string();
        let expected = "<time datetime=\"2027-01-15T08:00:00Z\" title=\"15 Jan 2027, 08:00:00 UTC\">\
                        15 Jan 2027, 08:00:00 UTC</time>";
        assert_eq!(shown, expected);
        let shown = minute(1_800_000_000).into_string();
        let expected = "<time datetime=\"2027-01-15T08:00:00Z\" title=\"15 Jan 2027, 08:00 UTC\" \
                        data-to=\"minute\">15 Jan 2027, 08:00 UTC</time>";
        assert_eq!(shown, expected);
    }
}
