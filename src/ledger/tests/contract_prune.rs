//! Pruning: old calls go, balances and sums stay, and the audit closes.

use super::*;
use crate::{base::month::Month, ledger::EntryKind};

contract!(
    pruned_months_leave_balances_and_sums,
    a_call_across_the_border_stays,
    pruning_again_moves_the_opening,
    a_pending_charge_from_before_is_not_made,
);

/// The clock of tests begins in January 2027.
const NEXT_MONTH: i64 = 31 * 86_400;

fn month(paying: &Paying) -> Month {
    Month::of_ms(paying.now_ms.load(Relaxed))
}

/// How many calls and entries are removed from before the present month.
async fn prune(paying: &Paying) -> (u64, u64) {
    let pruned = paying.ledger.prune(month(paying)).await.unwrap();
    (pruned.calls, pruned.entries)
}

async fn entries(paying: &Paying) -> Vec<(EntryKind, i64)> {
    let entries = paying.ledger.entries_page(&paying.account_id, None, 100);
    let entries = entries.await.unwrap();
    entries
        .into_iter()
        .map(|entry| (entry.kind, entry.balance_after.nanos()))
        .collect()
}

async fn pruned_months_leave_balances_and_sums(store: TestStore) {
    let paying = Paying::on_with(store, DOLLAR).await;
    let neighbour = paying.neighbour(DOLLAR).await;
    for _ in 0..3 {
        paying.pay().await.unwrap();
        neighbour.pay().await.unwrap();
    }
    let failed = paying.hold(COST, COST, 0).await.unwrap();
    drop(failed);
    assert_eq!(prune(&paying).await, (0, 0), "it is still that month");
    paying.advance(NEXT_MONTH);
    let kept = paying.pay().await.unwrap();
    paying.assert_sound().await;
    let days = paying.days().await;

    assert_eq!(prune(&paying).await, (7, 2));
    assert_eq!(
        entries(&paying).await,
        [
            (EntryKind::Charge, DOLLAR - 4 * COST),
            (EntryKind::Opening, DOLLAR - 3 * COST)
        ]
    );
    assert_eq!(
        entries(&neighbour).await,
        [(EntryKind::Opening, DOLLAR - 3 * COST)]
    );
    assert_eq!(paying.days().await, days, "daily sums stay");
    let calls = paying.ledger.usage(&paying.account_id, 0, i64::MAX).await;
    let calls: Vec<_> = calls.unwrap().iter().map(|call| call.id).collect();
    assert_eq!(calls, [kept.id]);
    paying.assert_sound().await;
    paying.pay().await.unwrap();
    paying.assert_sound().await;
    drop(neighbour);
    let paying = paying.restart().await;
    assert_eq!(paying.balance().await, DOLLAR - 5 * COST);
    paying.assert_sound().await;
}

/// A call that was admitted in one month and charged in the next belongs to the next; so do all after it.
async fn a_call_across_the_border_stays(store: TestStore) {
    let paying = Paying::on_with(store, DOLLAR).await;
    paying.pay().await.unwrap();
    let mut long = paying.hold(COST, COST, 0).await.unwrap();
    paying.advance(NEXT_MONTH);
    paying.pay().await.unwrap();
    let long = long.charge(tokens(COST), Outcome::Answered).await.unwrap();
    paying.pay().await.unwrap();
    assert_eq!(prune(&paying).await, (1, 1));
    let found = paying.ledger.call(long.id).await.unwrap();
    assert!(found.is_some(), "it ended this month");
    assert_eq!(entries(&paying).await.len(), 4);
    paying.assert_sound().await;
}

async fn pruning_again_moves_the_opening(store: TestStore) {
    let paying = Paying::on_with(store, DOLLAR).await;
    for round in 1..=3 {
        paying.pay().await.unwrap();
        paying.advance(NEXT_MONTH);
        let grants = u64::from(round == 1);
        assert_eq!(prune(&paying).await, (1, grants), "round {round}");
        let left = DOLLAR - round * COST;
        assert_eq!(entries(&paying).await, [(EntryKind::Opening, left)]);
        paying.assert_sound().await;
        assert_eq!(prune(&paying).await, (0, 0), "nothing is left to prune");
        let opening = paying.sql("SELECT ref FROM ledger_entries WHERE kind = 'opening'");
        assert_eq!(opening, month(&paying).first_day());
    }
}

/// Whether it was made before can no longer be told, and no call may be charged twice.
async fn a_pending_charge_from_before_is_not_made(store: TestStore) {
    let paying = Paying::on_with(store, DOLLAR).await;
    let mut old = paying.hold(COST, COST, 0).await.unwrap();
    let old_charge = old.pending_charge(tokens(COST), Outcome::Answered).unwrap();
    old.charge(tokens(COST), Outcome::Answered).await.unwrap();
    drop(old);
    paying.advance(NEXT_MONTH);
    assert_eq!(prune(&paying).await, (1, 1));
    let settled = paying.ledger.settle_pending(&old_charge).await.unwrap();
    assert!(settled.is_none(), "{settled:?}");
    assert_eq!(paying.balance().await, DOLLAR - COST);
    paying.assert_sound().await;
}
