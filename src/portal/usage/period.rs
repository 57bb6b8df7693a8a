//! The period of usage, and the bars into which charts divide it: minutes, hours or days, all in UTC.

use maud::{Markup, html};
use serde::Deserialize;
use time::{Date, Duration, format_description::well_known::Iso8601};

use crate::{
    base::timestamp,
    portal::{days, error::PortalError, query::non_empty},
};

const MINUTE: i64 = 60;
const HOUR: i64 = 3_600;
const DAY: i64 = 24 * HOUR;
/// The longest period of days.
const MAX_DAYS: i64 = 93;
const DEFAULT: Period = Period::Days(30);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Period {
    /// Sixty minutes, the current one included.
    Hour,
    /// The hours since midnight.
    Today,
    /// 24 hours, the current one included.
    Day,
    /// So many days up to today.
    Days(u16),
    /// From one day to another, both included.
    Between(Date, Date),
}

#[derive(Default, Deserialize)]
pub(crate) struct PeriodQuery {
    range: Option<String>,
    days: Option<String>,
    from: Option<String>,
    to: Option<String>,
}

/// A period with its bars.
pub(crate) struct Bars {
    /// What each bar is of: days (`2026-11-16`), or times at which a minute or hour begins.
    pub names: Vec<String>,
    /// In seconds; the end is not included.
    pub begin: i64,
    pub end: i64,
    /// The length of a bar in seconds; `None` for days, whose sums the ledger has.
    pub step: Option<i64>,
}

impl Period {
    const PRESETS: [Self; 6] = [
        Self::Hour,
        Self::Today,
        Self::Day,
        Self::Days(7),
        Self::Days(30),
        Self::Days(90),
    ];

    pub(crate) fn read(query: &PeriodQuery) -> Result<Self, PortalError> {
        let invalid = |message: &str| PortalError::Invalid(message.into());
        let day = |text: Option<&String>| {
            let day = non_empty(text).map(|text| Date::parse(text, &Iso8601::DATE));
            let wrong = |_| invalid("Enter days like 2026-11-16.");
            day.transpose().map_err(wrong)
        };
        match (day(query.from.as_ref())?, day(query.to.as_ref())?) {
            (Some(from), Some(to)) => return Self::between(from, to),
            (None, None) => {}
            _ => return Err(invalid("Enter both the first day and the last one.")),
        }
        let name = non_empty(query.range.as_ref()).or(non_empty(query.days.as_ref()));
        let Some(name) = name else {
            return Ok(DEFAULT);
        };
        let found = Self::PRESETS.into_iter().find(|one| one.name() == name);
        found.ok_or_else(|| invalid("There is no such period. Choose one from the list."))
    }

    fn between(from: Date, to: Date) -> Result<Self, PortalError> {
        let invalid = |message: String| Err(PortalError::Invalid(message));
        if from > to {
            return invalid("The period ends before it begins.".into());
        }
        if (to - from).whole_days() >= MAX_DAYS || from.year() < 1970 {
            return invalid(format!("Choose at most {MAX_DAYS} days."));
        }
        Ok(Self::Between(from, to))
    }

    fn name(self) -> String {
        match self {
            Self::Hour => "1h".into(),
            Self::Today => "today".into(),
            Self::Day => "24h".into(),
            Self::Days(days) => days.to_string(),
            Self::Between(..) => String::new(),
        }
    }

    fn label(self) -> String {
        match self {
            Self::Hour => "Last hour".into(),
            Self::Today => "Today (UTC)".into(),
            Self::Day => "24 hours".into(),
            Self::Days(days) => format!("{days} days"),
            Self::Between(from, to) => format!("{from} to {to}"),
        }
    }

    /// Its fields in a query string.
    pub(crate) fn query(self) -> String {
        match self {
            Self::Days(days) => format!("days={days}"),
            Self::Between(from, to) => format!("from={from}&to={to}"),
            preset => format!("range={}", preset.name()),
        }
    }

    pub(crate) fn bars(self, now: i64) -> Bars {
        let spans = |step: i64, begin: i64| {
            let last = now - now.rem_euclid(step);
            let starts = (0..).map(|at| begin + at * step);
            let starts = starts.take_while(|start| *start <= last);
            Bars {
                names: starts.map(timestamp::shown).collect(),
                begin,
                end: last + step,
                step: Some(step),
            }
        };
        let start_of = |step: i64, back: i64| now - now.rem_euclid(step) - back * step;
        match self {
            Self::Hour => spans(MINUTE, start_of(MINUTE, 59)),
            Self::Day => spans(HOUR, start_of(HOUR, 23)),
            Self::Today => spans(HOUR, start_of(DAY, 0)),
            Self::Days(count) => of_days(days::last(count, now)),
            Self::Between(from, to) => {
                let all = (0..=(to - from).whole_days()).map(|at| from + Duration::days(at));
                of_days(all.map(|day| day.to_string()).collect())
            }
        }
    }

    /// Links to the presets, and a form for other days. `by` is what the page shows.
    pub(crate) fn choices(self, by: &str) -> Markup {
        html! {
            ul {
                @for one in Self::PRESETS {
                    li {
                        a href={ "/portal/usage?" (one.query()) "&by=" (by) }
                            aria-current=[(one == self).then_some("true")] { (one.label()) }
                    }
                }
            }
        }
    }

    pub(crate) fn form(self, by: &str) -> Markup {
        let day = |date: Date| date.to_string();
        let (from, to) = match self {
            Self::Between(from, to) => (Some(day(from)), Some(day(to))),
            _ => (None, None),
        };
        html! {
            details open[from.is_some()] {
                summary { "Other days" }
                form.inline method="get" action="/portal/usage" {
                    input type="hidden" name="by" value=(by);
                    label { "First day (UTC)" input type="date" name="from" required value=[from]; }
                    label { "Last day (UTC)" input type="date" name="to" required value=[to]; }
                    button type="submit" { "Show" }
                }
            }
        }
    }
}

impl Bars {
    /// "Daily", "Hourly" or "By minute", for titles.
    pub(crate) fn titled(&self, what: &str) -> String {
        match self.step {
            None => format!("Daily {what}"),
            Some(HOUR) => format!("Hourly {what}"),
            Some(_) => format!("{}{} by minute", what[..1].to_uppercase(), &what[1..]),
        }
    }

    /// What a bar is: "day", "hour" or "minute".
    pub(crate) fn unit(&self) -> &'static str {
        match self.step {
            None => "day",
            Some(HOUR) => "hour",
            Some(_) => "minute",
        }
    }
}

fn of_days(names: Vec<String>) -> Bars {
    let begin = names.first().and_then(|day| begin_of(day));
    let end = names.last().and_then(|day| begin_of(day));
    Bars {
        begin: begin.unwrap_or_default(),
        end: end.map_or(0, |day| day + DAY),
        names,
        step: None,
    }
}

/// When a day begins, in seconds.
fn begin_of(day: &str) -> Option<i64> {
    timestamp::read(&format!("{day}T00:00:00Z"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_800_016_245; // 2027-01-15T12:30:45Z

    fn read(fields: &[(&str, &str)]) -> Result<Period, PortalError> {
        let value = |name| {
            let found = fields.iter().find(|(field, _)| *field == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        Period::read(&PeriodQuery {
            range: value("range"),
            days: value("days"),
            from: value("from"),
            to: value("to"),
        })
    }

    #[test]
    fn bars_cover_the_period_up_to_now() {
        for (range, count, first, last) in [
            ("1h", 60, "2027-01-15T11:31:00Z", "2027-01-15T12:30:00Z"),
            ("24h", 24, "2027-01-14T13:00:00Z", "2027-01-15T12:00:00Z"),
            ("today", 13, "2027-01-15T00:00:00Z", "2027-01-15T12:00:00Z"),
            ("7", 7, "2027-01-09", "2027-01-15"),
        ] {
            let period = read(&[("range", range)]).unwrap();
            let bars = period.bars(NOW);
            let (begin, end) = (&bars.names[0], &bars.names[bars.names.len() - 1]);
            assert_eq!(bars.names.len(), count, "{range}");
            assert_eq!((begin.as_str(), end.as_str()), (first, last));
            assert!(bars.begin <= NOW && NOW < bars.end, "{range}");
            let step = bars.step.unwrap_or(DAY);
            let length = bars.end - bars.begin;
            assert_eq!(length, step * i64::try_from(count).unwrap(), "{range}");
        }
    }

    #[test]
    fn days_are_chosen_from_one_to_another() {
        let period = read(&[("from", "2026-12-30"), ("to", "2027-01-01")]).unwrap();
        let bars = period.bars(NOW);
        assert_eq!(bars.names, ["2026-12-30", "2026-12-31", "2027-01-01"]);
        assert_eq!(bars.end - bars.begin, 3 * DAY);
        assert_eq!(period.query(), "from=2026-12-30&to=2027-01-01");
    }

    #[test]
    fn other_periods_are_refused() {
        for fields in [
            &[("range", "2h")][..],
            &[("days", "31")],
            &[("from", "2026-12-30")],
            &[("from", "2027-01-02"), ("to", "2027-01-01")],
            &[("from", "2026-01-01"), ("to", "2026-04-04")],
            &[("from", "1900-01-01"), ("to", "1900-01-02")],
            &[("from", "soon"), ("to", "2027-01-01")],
        ] {
            assert!(read(fields).is_err(), "{fields:?}");
        }
        assert_eq!(read(&[]).unwrap(), Period::Days(30));
        assert_eq!(read(&[("days", "90")]).unwrap(), Period::Days(90));
    }
}
