//! An account's ledger by day, on both backends: it adds up from one exact balance to the next.

use super::*;
use crate::{
    base::month::Month,
    ledger::{AccountDays, DayRange, EntryKind},
};

contract!(
    days_add_up_from_one_balance_to_the_next,
    days_before_the_pruned_ones_are_brought_forward,
    a_day_with_very_many_entries_has_a_sum_of_the_rest,
);

const DAY: i64 = 86_400;

/// The days from so many days ago to so many days ago.
async fn days(paying: &Paying, from: i64, to: i64) -> AccountDays {
    let now = paying.now();
    let range = DayRange::of(now - from * DAY, now - to * DAY);
    let days = paying.ledger.account_days(&paying.account_id, &range).await;
    let days = days.unwrap();
    let charges = days.charges.iter().map(|one| -one.cost.nanos());
    let entries = days.entries.iter().map(|one| one.delta.nanos());
    let change = charges.chain(entries).sum::<i64>() + days.earlier_entries.1.nanos();
    assert_eq!(days.closing.nanos() - days.opening.nanos(), change);
    days
}

async fn latest(paying: &Paying, ago: i64) -> Option<String> {
    let before = paying.now() - ago * DAY;
    let edges = paying.ledger.history_edges(&paying.account_id, before);
    edges.await.unwrap().latest
}

async fn days_add_up_from_one_balance_to_the_next(store: TestStore) {
    let paying = Paying::on_with(store, DOLLAR).await;
    let neighbour = paying.neighbour(DOLLAR).await;
    neighbour.pay().await.unwrap();
    paying.pay().await.unwrap();
    paying.pay().await.unwrap();
    paying.advance(DAY);
    paying.pay().await.unwrap();
    let expires_at = paying.now() + DAY;
    paying.give(7, Some(expires_at)).await;
    paying.advance(2 * DAY);
    paying.pay().await.unwrap();
    drop(paying.hold(COST, COST, 0).await.unwrap());

    let all = days(&paying, 3, 0).await;
    assert_eq!(all.opening.nanos(), 0);
    assert_eq!(all.closing.nanos(), paying.balance().await);
    let shown = all.charges.iter();
    let shown: Vec<_> = shown
        .map(|one| (&*one.day, &*one.model, one.requests, one.cost.nanos()))
        .collect();
    let expected = [("2027-01-15", 2), ("2027-01-16", 1), ("2027-01-18", 1)];
    let expected = expected.map(|(day, requests): (_, u64)| {
        let cost = COST * i64::try_from(requests).unwrap();
        (day, "svc-standard", requests, cost)
    });
    assert_eq!(shown, expected);
    let entries = all.entries.iter().map(|one| (one.kind, one.delta.nanos()));
    let expected = [
        (EntryKind::Grant, DOLLAR),
        (EntryKind::Grant, 7),
        (EntryKind::Expiry, -7),
    ];
    assert_eq!(entries.collect::<Vec<_>>(), expected);

    // Each day begins with the balance with which the day before has ended.
    let mut opening = all.opening;
    for ago in (0..4).rev() {
        let day = days(&paying, ago, ago).await;
        assert_eq!(day.opening, opening, "{ago}");
        opening = day.closing;
    }
    assert_eq!(opening, all.closing);
    let none = days(&paying, -1, -9).await;
    assert_eq!((none.opening, none.closing), (all.closing, all.closing));
    assert_eq!(latest(&paying, -1).await.as_deref(), Some("2027-01-18"));
    assert_eq!(latest(&paying, 0).await.as_deref(), Some("2027-01-16"));
    assert_eq!(latest(&paying, 3).await, None);
    drop(neighbour);
    let paying = paying.restart().await;
    assert_eq!(days(&paying, 3, 0).await, all, "after a restart");
    let nobody = DayRange::of(0, 0);
    let nobody = paying.ledger.account_days("acct_nobody", &nobody).await;
    assert_eq!(nobody.unwrap(), AccountDays::default());
}

async fn days_before_the_pruned_ones_are_brought_forward(store: TestStore) {
    let paying = Paying::on_with(store, DOLLAR).await;
    paying.pay().await.unwrap();
    // A call that runs into the next month stays, and so does its day in the sums.
    paying.advance(17 * DAY - 8 * 3_600 - 1);
    let mut across = paying.hold(COST, COST, 0).await.unwrap();
    paying.advance(2);
    charge(&mut across, COST).await.unwrap();
    drop(across);
    paying.pay().await.unwrap();
    let before = days(&paying, 0, 0).await;
    assert_eq!(before.opening.nanos(), DOLLAR - COST);
    let month = Month::of_ms(paying.now_ms.load(Relaxed));
    paying.ledger.prune(month).await.unwrap();
    assert_eq!(days(&paying, 0, 0).await, before);
    let edges = paying
        .ledger
        .history_edges(&paying.account_id, paying.now());
    let edges = edges.await.unwrap();
    assert_eq!(edges.opening, Some(month.first_day()));
    paying.assert_sound().await;
}

async fn a_day_with_very_many_entries_has_a_sum_of_the_rest(store: TestStore) {
    let paying = Paying::on(store).await;
    for _ in 0..403 {
        paying.give(2, None).await;
    }
    let all = days(&paying, 0, 0).await;
    assert_eq!(all.entries.len(), 400);
    assert_eq!(all.earlier_entries, (3, NanoUsd::new(6)));
    assert_eq!(all.entries[0].balance_after.nanos(), 8);
    assert_eq!(all.closing.nanos(), 806);
}
