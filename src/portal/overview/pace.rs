//! How long the balance lasts if spending goes on as in the last days.

use crate::{base::money::NanoUsd, ledger::DayUse};

/// The spending of so many days before today is averaged…
const DAYS: usize = 7;
/// … or of fewer in a new account, but not of fewer than this.
const MIN_DAYS: usize = 3;
/// What lasts longer is not told in days.
const MAX_SHOWN: i64 = 365;

/// For how many days the balance lasts at the pace of the last seven days: days that are over, since the first use. `None`
/// if nothing was spent in them, if nothing is left, or for an account that has been in use for less than three days.
///
/// `rows` are the sums of `days`, which are in ascending order and end with today.
pub(crate) fn days_left(balance: NanoUsd, days: &[String], rows: &[DayUse]) -> Option<i64> {
    let first_use = rows.iter().map(|row| row.day.as_str()).min()?;
    let over = days.split_last().map_or(&[][..], |(_, over)| over);
    let counted: Vec<_> = over.iter().rev().take(DAYS).collect();
    let counted: Vec<_> = counted
        .into_iter()
        .filter(|day| day.as_str() >= first_use)
        .collect();
    let of_days = rows.iter().filter(|row| counted.contains(&&row.day));
    let spent: i128 = of_days.map(|row| i128::from(row.cost.nanos())).sum();
    let balance = i128::from(balance.nanos());
    if counted.len() < MIN_DAYS || spent <= 0 || balance <= 0 {
        return None;
    }
    let left = balance * counted.len() as i128 / spent;
    Some(i64::try_from(left).unwrap_or(i64::MAX))
}

/// The days in words.
pub(crate) fn in_words(days: i64) -> String {
    match days {
        0 => "less than a day".into(),
        1 => "about 1 day".into(),
        2..=MAX_SHOWN => format!("about {days} days"),
        _ => "more than a year".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::portal::days;

    const NOW: i64 = 1_794_787_200; // 2026-11-16

    /// What is left of 100 after spending these amounts on the last days, today last; `None` is a day without requests.
    fn left(balance: i64, spent: &[Option<i64>]) -> Option<i64> {
        let days = days::last(30, NOW);
        let first = days.len() - spent.len();
        let rows = days[first..].iter().zip(spent);
        let rows = rows.filter_map(|(day, cost)| {
            Some(DayUse {
                day: day.clone(),
                key_id: "key_a".into(),
                project_id: "default".into(),
                model: "m".into(),
                calls: 1,
                charged: 1,
                prompt: 1,
                cached: 0,
                completion: 1,
                reasoning: 0,
                cost: NanoUsd::new((*cost)?),
                last_ms: 0,
            })
        });
        let rows: Vec<_> = rows.collect();
        days_left(NanoUsd::new(balance), &days, &rows)
    }

    #[test]
    fn the_pace_is_that_of_seven_days_that_are_over() {
        let week = [Some(10); 8];
        assert_eq!(left(100, &week), Some(10));
        // Today is not over, and what was before the week does not count.
        let mut long = vec![Some(500); 5];
        long.extend([Some(10); 7]);
        long.push(Some(999));
        assert_eq!(left(100, &long), Some(10));
        // Days without requests count.
        let mut quiet = [None; 12];
        (quiet[0], quiet[9]) = (Some(5), Some(70));
        assert_eq!(left(100, &quiet), Some(10));
        assert_eq!(left(99, &week), Some(9));
    }

    #[test]
    fn a_new_account_has_a_pace_after_three_days() {
        let new = [Some(10), Some(20), Some(30), Some(7)];
        assert_eq!(left(100, &new), Some(5));
        assert_eq!(left(100, &new[1..]), None);
        assert_eq!(left(100, &[Some(10)]), None);
        assert_eq!(left(100, &[]), None);
    }

    #[test]
    fn without_spending_or_balance_there_is_no_pace() {
        assert_eq!(left(100, &[Some(0), Some(0), Some(0), Some(9)]), None);
        assert_eq!(left(0, &[Some(10); 8]), None);
        assert_eq!(left(-5, &[Some(10); 8]), None);
        assert_eq!(
            left(i64::MAX, &[Some(1), Some(0), Some(0), None]),
            Some(i64::MAX)
        );
    }

    #[test]
    fn few_and_many_days_have_words() {
        let words: Vec<_> = [0, 1, 12, 365, 366].map(in_words).into();
        assert_eq!(
            words,
            [
                "less than a day",
                "about 1 day",
                "about 12 days",
                "about 365 days",
                "more than a year"
            ]
        );
    }
}
