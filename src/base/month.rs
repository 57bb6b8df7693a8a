//! Calendar months in UTC.

use std::fmt;

use time::{Date, Month as Name, OffsetDateTime};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Month {
    year: i32,
    /// From 1 to 12.
    number: u8,
}

impl Month {
    /// The month of a time in milliseconds since 1970.
    pub(crate) fn of_ms(ms: i64) -> Self {
        let date = OffsetDateTime::from_unix_timestamp(ms.div_euclid(1_000));
        let date = date.unwrap_or(OffsetDateTime::UNIX_EPOCH).date();
        Self {
            year: date.year(),
            number: date.month().into(),
        }
    }

    /// The month of a day such as `2026-11-16`.
    pub(crate) fn of_day(day: &str) -> Option<Self> {
        let mut parts = day.splitn(3, '-');
        let (year, number, day) = (parts.next()?, parts.next()?, parts.next()?);
        let is_short = year.len() == 4 && number.len() == 2 && day.len() == 2;
        let (year, number) = (year.parse().ok()?, number.parse().ok()?);
        let month = Name::try_from(number).ok()?;
        let date = Date::from_calendar_date(year, month, day.parse().ok()?);
        (is_short && date.is_ok()).then_some(Self { year, number })
    }

    /// Its first millisecond since 1970.
    pub(crate) fn first_ms(self) -> i64 {
        let month = Name::try_from(self.number).unwrap_or(Name::January);
        let first = Date::from_calendar_date(self.year, month, 1);
        let first = first.map_or(OffsetDateTime::UNIX_EPOCH, |day| {
            day.midnight().assume_utc()
        });
        first.unix_timestamp() * 1_000
    }

    /// Reads a month such as `2026-11`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        Self::of_day(&format!("{text}-01"))
    }

    /// The month after it.
    pub(crate) fn next(self) -> Self {
        let (year, number) = match self.number {
            12 => (self.year.saturating_add(1), 1),
            number => (self.year, number + 1),
        };
        Self { year, number }
    }

    /// Its first day, e.g. `2026-11-01`.
    pub(crate) fn first_day(self) -> String {
        format!("{self}-01")
    }

    /// The month so many months before.
    pub(crate) fn earlier(self, months: u32) -> Self {
        let index = i64::from(self.year) * 12 + i64::from(self.number) - 1 - i64::from(months);
        Self {
            year: i32::try_from(index.div_euclid(12)).unwrap_or(0),
            number: u8::try_from(index.rem_euclid(12) + 1).unwrap_or(1),
        }
    }
}

/// E.g. `2026-11`.
impl fmt::Display for Month {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04}-{:02}", self.year, self.number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn months_begin_at_midnight_utc() {
        let november = Month::of_day("2026-11-16").unwrap();
        assert_eq!(november.first_ms(), 1_793_491_200_000);
        assert_eq!(Month::of_ms(november.first_ms()), november);
        assert_eq!(Month::of_ms(november.first_ms() - 1), november.earlier(1));
        assert_eq!(november.first_day(), "2026-11-01");
    }

    #[test]
    fn earlier_months_cross_years() {
        let january = Month::of_day("2026-01-31").unwrap();
        let shown = [0, 1, 12, 13, 25].map(|months| january.earlier(months).to_string());
        assert_eq!(
            shown,
            ["2026-01", "2025-12", "2025-01", "2024-12", "2023-12"]
        );
    }

    #[test]
    fn the_next_month_crosses_years() {
        let next = |month: &str| Month::parse(month).map(|month| month.next().to_string());
        assert_eq!(next("2026-11").as_deref(), Some("2026-12"));
        assert_eq!(next("2026-12").as_deref(), Some("2027-01"));
        assert_eq!(
            (next("2026-13"), next("2026-1"), next("")),
            (None, None, None)
        );
    }

    #[test]
    fn days_that_do_not_exist_have_no_month() {
        for day in [
            "",
            "2026",
            "2026-11",
            "2026-13-01",
            "2026-02-30",
            "26-1-1",
            "2026-11-1x",
        ] {
            assert_eq!(Month::of_day(day), None, "{day}");
        }
    }
}
