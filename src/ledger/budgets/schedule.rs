//! Periods of budgets: when each begins, in the time zone of the budget.
//!
//! A period begins at midnight of its first day. Where a change of the clock repeats midnight, the later one counts; where
//! it leaves midnight out, the moment of the change. `budgets.sql` computes the same for the shared store.

use jiff::{Timestamp, ToSpan as _, civil::Date, tz::TimeZone};
use serde::Deserialize;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Period {
    Day,
    Week,
    Month,
    /// All time since the budget was made.
    Total,
}

impl Period {
    pub(crate) const ALL: [Self; 4] = [Self::Day, Self::Week, Self::Month, Self::Total];

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Day => "day",
            Self::Week => "week",
            Self::Month => "month",
            Self::Total => "total",
        }
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|period| period.as_str() == text)
    }

    /// The highest anchor; `None` if there is nothing to choose.
    fn most(self) -> Option<i8> {
        match self {
            Self::Week => Some(7),
            // All months have these days.
            Self::Month => Some(28),
            Self::Day | Self::Total => None,
        }
    }
}

/// Why a schedule was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadSchedule {
    #[error("`{0}` is not a time zone; use a name of the IANA database, e.g. Europe/Berlin")]
    Timezone(String),
    #[error(
        "an anchor is the first day of the week (1 Monday to 7 Sunday) or of the month (1 to 28); days and totals have none"
    )]
    Anchor,
}

/// When the periods of a budget begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Schedule {
    period: Period,
    zone: TimeZone,
    timezone: String,
    anchor: i8,
}

/// From when to when a period is, in seconds since 1970; without an end it goes on for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bounds {
    pub starts_at: i64,
    pub ends_at: Option<i64>,
}

impl Schedule {
    pub(crate) const UTC: &str = "UTC";

    pub(crate) fn new(
        period: Period,
        timezone: Option<&str>,
        anchor: Option<i64>,
    ) -> Result<Self, BadSchedule> {
        let timezone = timezone.unwrap_or(Self::UTC);
        let unknown = || BadSchedule::Timezone(timezone.to_owned());
        let zone = TimeZone::get(timezone).map_err(|_| unknown())?;
        // Spelled as in the database of time zones, because PostgreSQL and people read it.
        let timezone = zone.iana_name().ok_or_else(unknown)?.to_owned();
        let anchor = match (anchor, period.most()) {
            (None, _) => 1,
            (Some(anchor), Some(most)) => i8::try_from(anchor)
                .ok()
                .filter(|anchor| (1..=most).contains(anchor))
                .ok_or(BadSchedule::Anchor)?,
            (Some(_), None) => return Err(BadSchedule::Anchor),
        };
        Ok(Self {
            period,
            zone,
            timezone,
            anchor,
        })
    }

    pub(crate) fn period(&self) -> Period {
        self.period
    }

    pub(crate) fn timezone(&self) -> &str {
        &self.timezone
    }

    /// The first day of the week or of the month.
    pub(crate) fn anchor(&self) -> i8 {
        self.anchor
    }

    /// Whether an anchor means something for this period.
    pub(crate) fn has_anchor(&self) -> bool {
        self.period.most().is_some()
    }

    /// The period that a time is in. That of a total begins at `since`.
    pub(crate) fn bounds(&self, at: i64, since: i64) -> Bounds {
        let total = Bounds {
            starts_at: since,
            ends_at: None,
        };
        if self.period == Period::Total {
            return total;
        }
        // Times that no calendar has are in no period of it.
        self.calendar_bounds(at).unwrap_or(total)
    }

    fn calendar_bounds(&self, at: i64) -> Option<Bounds> {
        let at = Timestamp::from_second(at).ok()?;
        let mut first = self.first_day(at.to_zoned(self.zone.clone()).date())?;
        // A repeated hour before the later midnight belongs to the day before.
        if self.midnight(first)? > at {
            first = self.first_day(first.yesterday().ok()?)?;
        }
        let next = match self.period {
            Period::Week => first.checked_add(7.days()),
            Period::Month => first.checked_add(1.month()),
            Period::Day | Period::Total => first.tomorrow(),
        };
        Some(Bounds {
            starts_at: self.midnight(first)?.as_second(),
            ends_at: Some(self.midnight(next.ok()?)?.as_second()),
        })
    }

    /// The first day of the period that a day is in.
    fn first_day(&self, day: Date) -> Option<Date> {
        let anchor = i64::from(self.anchor);
        match self.period {
            Period::Day | Period::Total => Some(day),
            Period::Week => {
                let weekday = i64::from(day.weekday().to_monday_one_offset());
                day.checked_sub(((weekday - anchor + 7) % 7).days()).ok()
            }
            Period::Month => {
                let shifted = day.checked_sub((anchor - 1).days()).ok()?;
                shifted
                    .first_of_month()
                    .checked_add((anchor - 1).days())
                    .ok()
            }
        }
    }

    fn midnight(&self, day: Date) -> Option<Timestamp> {
        let midnight = self.zone.to_ambiguous_zoned(day.at(0, 0, 0, 0)).later();
        Some(midnight.ok()?.timestamp())
    }
}
