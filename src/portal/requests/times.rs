//! The period of a list of requests: a preset, or from one time to another.

use maud::{Markup, html};
use time::{OffsetDateTime, macros::format_description};

use crate::{
    base::timestamp,
    portal::{error::PortalError, query::non_empty},
};

const DAY: i64 = 24 * 3_600;

/// A period that ends now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Last {
    Hour,
    /// Since midnight in UTC.
    Today,
    Day,
    Week,
    Month,
}

/// When requests ended, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Times {
    pub last: Option<Last>,
    pub from: Option<i64>,
    /// The end is part of the period: the whole second, or day if no time was given.
    pub to: Option<i64>,
}

impl Last {
    pub(crate) const ALL: [Self; 5] = [Self::Hour, Self::Today, Self::Day, Self::Week, Self::Month];

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Hour => "1h",
            Self::Today => "today",
            Self::Day => "24h",
            Self::Week => "7d",
            Self::Month => "30d",
        }
    }

    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Hour => "Last hour",
            Self::Today => "Today (UTC)",
            Self::Day => "Last 24 hours",
            Self::Week => "Last 7 days",
            Self::Month => "Last 30 days",
        }
    }

    fn begin(self, now: i64) -> i64 {
        match self {
            Self::Hour => now - 3_600,
            Self::Today => now - now.rem_euclid(DAY),
            Self::Day => now - DAY,
            Self::Week => now - 7 * DAY,
            Self::Month => now - 30 * DAY,
        }
    }
}

impl Times {
    /// Reads the fields of the form. Times take precedence over a preset.
    pub(crate) fn read(
        last: Option<&String>,
        from: Option<&String>,
        to: Option<&String>,
    ) -> Result<Self, PortalError> {
        let invalid = |message: &str| PortalError::Invalid(message.into());
        let preset = non_empty(last).map(|text| {
            let mut all = Last::ALL.into_iter();
            let unknown = || invalid("There is no such period. Choose one from the list.");
            all.find(|last| last.as_str() == text).ok_or_else(unknown)
        });
        let preset = preset.transpose()?;
        let read = |text: Option<&String>, is_end| {
            let time = non_empty(text).map(|text| parse(text, is_end));
            let wrong = "Enter dates and times like 2026-11-16 14:30, in UTC.";
            time.map(|time| time.ok_or_else(|| invalid(wrong)))
                .transpose()
        };
        let (from, to) = (read(from, false)?, read(to, true)?);
        if from.zip(to).is_some_and(|(from, to)| from > to) {
            return Err(invalid("The period ends before it begins."));
        }
        let last = preset.filter(|_| from.is_none() && to.is_none());
        Ok(Self { last, from, to })
    }

    /// The period with the time at which it begins in place of a preset.
    pub(crate) fn at(self, now: i64) -> Self {
        Self {
            last: None,
            from: self.last.map(|last| last.begin(now)).or(self.from),
            to: self.to,
        }
    }

    /// The first millisecond, and the first one after the period.
    pub(crate) fn bounds(self, now: i64) -> (Option<i64>, Option<i64>) {
        let Self { from, to, .. } = self.at(now);
        let end = to.map(|to| to.saturating_add(1));
        let ms = |seconds: i64| seconds.saturating_mul(1_000);
        (from.map(ms), end.map(ms))
    }

    /// Its fields in a query string.
    pub(crate) fn fields(self) -> [(&'static str, Option<String>); 3] {
        [
            ("last", self.last.map(|last| last.as_str().to_owned())),
            ("from", self.from.map(compact)),
            ("to", self.to.map(compact)),
        ]
    }

    /// The inputs of a form. They are in UTC; a script shows them in the time zone of the reader.
    pub(crate) fn inputs(self) -> Markup {
        let value = |time: Option<i64>| time.map(|time| compact(time).replace('Z', ""));
        html! {
            @if let Some(last) = self.last {
                input type="hidden" name="last" value=(last.as_str());
            }
            label { "From " span.muted data-zone { "(UTC)" }
                input type="datetime-local" step="1" name="from" value=[value(self.from)] data-utc;
            }
            label { "To " span.muted data-zone { "(UTC)" }
                input type="datetime-local" step="1" name="to" value=[value(self.to)] data-utc;
            }
        }
    }
}

/// Reads a time or a day in UTC; of a day its first second, or its last one as an end.
fn parse(text: &str, is_end: bool) -> Option<i64> {
    let text = text.replacen(' ', "T", 1);
    let day = timestamp::read(&format!("{text}T00:00:00Z"));
    let end = day.filter(|_| is_end).map(|day| day + DAY - 1);
    end.or(day)
        .or_else(|| timestamp::read(&text))
        .or_else(|| timestamp::read(&format!("{text}Z")))
        .or_else(|| timestamp::read(&format!("{text}:00Z")))
        .filter(|time| *time >= 0)
}

/// A time in UTC, to the second.
fn compact(unix_seconds: i64) -> String {
    let format = format_description!("[year]-[month]-[day]T[hour]:[minute]:[second]Z");
    let time = OffsetDateTime::from_unix_timestamp(unix_seconds).ok();
    time.and_then(|time| time.format(format).ok())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(last: &str, from: &str, to: &str) -> Result<Times, PortalError> {
        let [last, from, to] = [last, from, to].map(str::to_owned);
        Times::read(Some(&last), Some(&from), Some(&to))
    }

    #[test]
    fn a_period_includes_its_last_second_or_day() {
        let noon = 1_800_014_400; // 2027-01-15T12:00:00Z
        for (from, to, expected) in [
            (
                "2027-01-15T12:00",
                "2027-01-15T12:00:00",
                (Some(noon), Some(noon + 1)),
            ),
            ("2027-01-15 12:00:00Z", "", (Some(noon), None)),
            ("2027-01-15T13:00:00+01:00", "", (Some(noon), None)),
            (
                "2027-01-15",
                "2027-01-15",
                (Some(noon - 43_200), Some(noon + 43_200)),
            ),
        ] {
            let (begin, end) = times("", from, to).unwrap().bounds(0);
            let ms = |time: Option<i64>| time.map(|time| time * 1_000);
            assert_eq!(
                (begin, end),
                (ms(expected.0), ms(expected.1)),
                "{from} {to}"
            );
        }
    }

    #[test]
    fn a_preset_ends_now_and_gives_way_to_times() {
        let noon = 1_800_014_400;
        let begin = |last| times(last, "", "").unwrap().bounds(noon);
        assert_eq!(begin("1h"), (Some((noon - 3_600) * 1_000), None));
        assert_eq!(begin("today"), (Some((noon - 43_200) * 1_000), None));
        let both = times("1h", "2027-01-15", "").unwrap();
        assert_eq!((both.last, both.from), (None, Some(noon - 43_200)));
        // Fixed, it begins at the same time whenever it is read again.
        let [last, from, to] = times("1h", "", "").unwrap().at(noon).fields();
        assert_eq!((last.1, &to.1), (None, &None));
        let again = Times::read(None, from.1.as_ref(), to.1.as_ref()).unwrap();
        assert_eq!(
            again.bounds(noon + 60),
            (Some((noon - 3_600) * 1_000), None)
        );
    }

    #[test]
    fn what_cannot_be_a_period_is_refused() {
        for (last, from, to) in [
            ("2h", "", ""),
            ("", "yesterday", ""),
            ("", "", "2027-13-01"),
            ("", "1901-01-01", ""),
            ("", "2027-01-16", "2027-01-15"),
            ("", "2027-01-15T12:00:01", "2027-01-15T12:00:00"),
        ] {
            assert!(times(last, from, to).is_err(), "{last} {from} {to}");
        }
    }
}
