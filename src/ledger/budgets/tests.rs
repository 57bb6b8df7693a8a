//! When periods begin: in both stores the same.

use super::{BadSchedule, Bounds, Period, Schedule};
use crate::{base::timestamp, ledger::tests::TestStore};

fn at(text: &str) -> i64 {
    timestamp::read(text).unwrap()
}

fn schedule(period: Period, timezone: &str, anchor: Option<i64>) -> Schedule {
    Schedule::new(period, Some(timezone), anchor).unwrap()
}

fn shown(bounds: Bounds) -> (String, String) {
    let until = bounds.ends_at.map_or_else(String::new, timestamp::shown);
    (timestamp::shown(bounds.starts_at), until)
}

#[test]
fn periods_begin_at_midnight_of_their_first_day() {
    let berlin = "Europe/Berlin";
    for (schedule, time, starts, ends) in [
        (
            schedule(Period::Day, "UTC", None),
            "2026-11-19T10:00:00Z",
            "2026-11-19T00:00:00Z",
            "2026-11-20T00:00:00Z",
        ),
        (
            schedule(Period::Day, berlin, None),
            "2026-11-18T23:00:00Z",
            "2026-11-18T23:00:00Z",
            "2026-11-19T23:00:00Z",
        ),
        (
            schedule(Period::Day, berlin, None),
            "2026-11-18T22:59:59Z",
            "2026-11-17T23:00:00Z",
            "2026-11-18T23:00:00Z",
        ),
        // A Thursday: the week began on Monday, or on Sunday.
        (
            schedule(Period::Week, "UTC", None),
            "2026-11-19T10:00:00Z",
            "2026-11-16T00:00:00Z",
            "2026-11-23T00:00:00Z",
        ),
        (
            schedule(Period::Week, "UTC", Some(7)),
            "2026-11-19T10:00:00Z",
            "2026-11-15T00:00:00Z",
            "2026-11-22T00:00:00Z",
        ),
        (
            schedule(Period::Week, "UTC", Some(4)),
            "2026-11-19T10:00:00Z",
            "2026-11-19T00:00:00Z",
            "2026-11-26T00:00:00Z",
        ),
        (
            schedule(Period::Month, "UTC", None),
            "2026-11-19T10:00:00Z",
            "2026-11-01T00:00:00Z",
            "2026-12-01T00:00:00Z",
        ),
        (
            schedule(Period::Month, "UTC", Some(28)),
            "2027-02-27T10:00:00Z",
            "2027-01-28T00:00:00Z",
            "2027-02-28T00:00:00Z",
        ),
        (
            schedule(Period::Month, "UTC", Some(15)),
            "2027-01-15T00:00:00Z",
            "2027-01-15T00:00:00Z",
            "2027-02-15T00:00:00Z",
        ),
        // Days of 23 and of 25 hours.
        (
            schedule(Period::Day, berlin, None),
            "2026-03-29T12:00:00Z",
            "2026-03-28T23:00:00Z",
            "2026-03-29T22:00:00Z",
        ),
        (
            schedule(Period::Day, berlin, None),
            "2026-10-25T12:00:00Z",
            "2026-10-24T22:00:00Z",
            "2026-10-25T23:00:00Z",
        ),
        // In Havana the clock goes from 1:00 back to midnight: that hour belongs to the day before.
        (
            schedule(Period::Day, "America/Havana", None),
            "2026-11-01T04:30:00Z",
            "2026-10-31T04:00:00Z",
            "2026-11-01T05:00:00Z",
        ),
        (
            schedule(Period::Day, "America/Havana", None),
            "2026-11-01T05:00:00Z",
            "2026-11-01T05:00:00Z",
            "2026-11-02T05:00:00Z",
        ),
        // In spring there is no midnight.
        (
            schedule(Period::Day, "America/Havana", None),
            "2026-03-08T05:00:00Z",
            "2026-03-08T05:00:00Z",
            "2026-03-09T04:00:00Z",
        ),
    ] {
        let found = shown(schedule.bounds(at(time), 0));
        assert_eq!(
            found,
            (starts.to_owned(), ends.to_owned()),
            "{schedule:?} {time}"
        );
    }
}

#[test]
fn a_total_has_no_end() {
    let total = schedule(Period::Total, "UTC", None).bounds(at("2026-11-19T10:00:00Z"), 7);
    assert_eq!((total.starts_at, total.ends_at), (7, None));
}

#[test]
fn schedules_are_checked() {
    let make = |period, timezone, anchor| Schedule::new(period, timezone, anchor).map(|_| ());
    for timezone in [
        "",
        "Berlin",
        "Europe/Nowhere",
        "../etc/passwd",
        "+01:00",
        "CET-1CEST",
    ] {
        let refused = Err(BadSchedule::Timezone(timezone.to_owned()));
        assert_eq!(make(Period::Day, Some(timezone), None), refused);
    }
    for (period, anchor) in [
        (Period::Day, 1),
        (Period::Total, 1),
        (Period::Week, 0),
        (Period::Week, 8),
        (Period::Month, 29),
        (Period::Month, -1),
        (Period::Month, i64::MAX),
    ] {
        assert_eq!(
            make(period, None, Some(anchor)),
            Err(BadSchedule::Anchor),
            "{period:?}"
        );
    }
    let spelled = schedule(Period::Day, "europe/berlin", None);
    assert_eq!(spelled.timezone(), "Europe/Berlin");
}

/// The shared store computes periods itself, with its own database of time zones.
#[test]
fn postgres_computes_the_same_periods() {
    const STEP: i64 = 5 * 3_600 + 1_713;
    let zones = [
        "UTC",
        "Europe/Berlin",
        "America/New_York",
        "America/Havana",
        "Africa/Cairo",
        "Asia/Beirut",
        "America/Santiago",
        "Australia/Lord_Howe",
        "Asia/Kathmandu",
        "Pacific/Apia",
        "America/St_Johns",
    ];
    let periods = [
        (Period::Day, None),
        (Period::Week, Some(1)),
        (Period::Week, Some(7)),
        (Period::Month, Some(1)),
        (Period::Month, Some(28)),
    ];
    let store = TestStore::database();
    let (from, to) = (at("2024-01-01T00:00:00Z"), at("2027-06-01T00:00:00Z"));
    for zone in zones {
        for (period, anchor) in periods {
            let rules = format!(
                r#"{{"period":"{}","timezone":"{zone}","anchor":{}}}"#,
                period.as_str(),
                anchor.unwrap_or(1)
            );
            let query = format!(
                "SELECT turned.period_start || ' ' || turned.period_end FROM generate_series({from}, {to}, {STEP}) AS at,
                     LATERAL turned_to(jsonb_populate_record(NULL::budgets,
                         '{rules}' || jsonb_build_object('period_end', 0)), at) AS turned"
            );
            let found = store.sql(&query);
            let schedule = schedule(period, zone, anchor);
            let times = (0..).map(|n| from + n * STEP).take_while(|at| *at <= to);
            let expected = times.map(|at| {
                let bounds = schedule.bounds(at, 0);
                assert!(
                    bounds.starts_at <= at && bounds.ends_at.unwrap() > at,
                    "{zone} {at}"
                );
                format!("{} {}", bounds.starts_at, bounds.ends_at.unwrap())
            });
            let expected: Vec<_> = expected.collect();
            let found: Vec<_> = found.lines().collect();
            assert_eq!(found, expected, "{zone} {period:?}");
        }
    }
}
