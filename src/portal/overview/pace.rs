//! How long the credit lasts if spending goes on as in the last days.

use crate::ledger::{DayUse, GrantLeft};

/// The spending of so many days before today is averaged…
const DAYS: usize = 7;
/// … or of fewer in a new account, but not of fewer than this.
const MIN_DAYS: usize = 3;
/// What lasts longer is not told in days.
const MAX_SHOWN: i64 = 365;
const DAY: i128 = 86_400;

/// What was spent in so many days.
#[derive(Clone, Copy)]
struct Pace {
    /// In nano-dollars, more than none.
    spent: i128,
    days: i128,
}

/// For how many days the credit lasts at the pace of the last seven days: days that are over, since the first use. Of each
/// grant only what can be spent before it expires counts. `None` if nothing was spent in these days, if nothing is left, or
/// for an account that has been in use for less than three days.
///
/// `rows` are the sums of `days`, which are in ascending order and end with today.
pub(crate) fn days_left(
    left: &[GrantLeft],
    now: i64,
    days: &[String],
    rows: &[DayUse],
) -> Option<i64> {
    let pace = Pace::of(days, rows)?;
    if left.iter().all(|grant| grant.left.nanos() <= 0) {
        return None;
    }
    let days = pace.seconds(left, now) / DAY;
    Some(i64::try_from(days).unwrap_or(i64::MAX))
}

impl Pace {
    fn of(days: &[String], rows: &[DayUse]) -> Option<Self> {
        let first_use = rows.iter().map(|row| row.day.as_str()).min()?;
        let over = days.split_last().map_or(&[][..], |(_, over)| over);
        let counted = over.iter().rev().take(DAYS);
        let counted: Vec<_> = counted.filter(|day| day.as_str() >= first_use).collect();
        let of_days = rows.iter().filter(|row| counted.contains(&&row.day));
        let spent: i128 = of_days.map(|row| i128::from(row.cost.nanos())).sum();
        (counted.len() >= MIN_DAYS && spent > 0).then_some(Self {
            spent,
            days: counted.len() as i128,
        })
    }

    /// For how many seconds from now grants last that are spent one after another, the earliest expiry first.
    fn seconds(self, left: &[GrantLeft], now: i64) -> i128 {
        let mut grants: Vec<_> = left.iter().collect();
        grants.sort_by_key(|grant| grant.expires_at.unwrap_or(i64::MAX));
        // In seconds times what was spent, so that nothing is rounded on the way.
        let mut until: i128 = 0;
        for grant in grants {
            let used_up = until + i128::from(grant.left.nanos()).max(0) * self.days * DAY;
            let expiry = grant.expires_at;
            let expiry =
                expiry.map(|at| i128::from(at.saturating_sub(now)).saturating_mul(self.spent));
            // One that expires before it is begun adds nothing.
            until = until.max(expiry.map_or(used_up, |expiry| used_up.min(expiry)));
        }
        until / self.spent
    }
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
    use crate::{base::money::NanoUsd, portal::days};

    const NOW: i64 = 1_794_787_200; // 2026-11-16

    fn grant(left: i64, expires_at: Option<i64>) -> GrantLeft {
        GrantLeft {
            grant_id: String::new(),
            left: NanoUsd::new(left),
            held: NanoUsd::default(),
            expires_at,
        }
    }

    /// For how many days a balance lasts after spending these amounts on the last days, today last; `None` is a day without
    /// requests.
    fn left(balance: i64, spent: &[Option<i64>]) -> Option<i64> {
        left_of(&[grant(balance, None)], spent)
    }

    fn left_of(grants: &[GrantLeft], spent: &[Option<i64>]) -> Option<i64> {
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
        days_left(grants, NOW, &days, &rows)
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
    fn only_what_can_be_spent_before_it_expires_counts() {
        let week = [Some(10); 8];
        let in_days = |days: i64| Some(NOW + days * 86_400);
        let of = |grants: &[GrantLeft]| left_of(grants, &week);
        assert_eq!(of(&[]), None);
        // Ten a day: 20 of 5,000 are spent in two days.
        assert_eq!(of(&[grant(5_000, in_days(2))]), Some(2));
        assert_eq!(of(&[grant(5_000, Some(NOW + 3_600))]), Some(0));
        assert_eq!(of(&[grant(15, in_days(2))]), Some(1));
        // What does not expire is spent afterwards, in whatever order they come.
        let both = [grant(100, None), grant(5_000, in_days(2))];
        assert_eq!(of(&both), Some(12));
        // What the first leaves unspent when it expires does not count, and the second is begun then.
        let soon = [grant(20, in_days(5)), grant(70, in_days(3))];
        assert_eq!(of(&soon), Some(5));
        let short = [grant(40, in_days(4)), grant(5_000, in_days(5))];
        assert_eq!(of(&short), Some(5));
        // While the first is spent, the second expires.
        let late = [grant(30, in_days(3)), grant(30, in_days(3)), grant(5, None)];
        assert_eq!(of(&late), Some(3));
        // Thirds of days add up.
        let thirds = [grant(5, in_days(9)), grant(5, in_days(9)), grant(10, None)];
        assert_eq!(of(&thirds), Some(2));
        // One that has expired in the meantime adds nothing.
        assert_eq!(of(&[grant(50, in_days(-1)), grant(10, None)]), Some(1));
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
