//! Calls that were delivered by a process that is gone, and charged by the next: each case runs on both kinds.

use super::*;
use crate::ledger::PendingCharge;

contract!(
    a_delivered_call_is_charged_once_by_the_next_process,
    a_charge_that_came_about_is_not_made_again,
    what_is_not_covered_any_more_is_owed,
    a_call_that_was_told_to_be_free_stays_free,
    a_call_of_another_store_is_refused,
);

/// A call whose charge is in the spool when its process ends.
async fn left_behind(paying: &Paying, held: i64, worst: i64, cost: i64) -> PendingCharge {
    let mut held = paying.hold(held, worst, worst).await.unwrap();
    let owed = held
        .pending_charge(tokens(cost), Outcome::Answered)
        .unwrap();
    held.mark_spooled();
    owed
}

async fn a_delivered_call_is_charged_once_by_the_next_process(place: TestStore) {
    let paying = Paying::on_with(place, 100).await;
    let owed = left_behind(&paying, 30, 30, 25).await;
    let paying = paying.restart().await;
    assert_eq!(paying.balance().await, 100);
    let call = paying.ledger.settle_pending(&owed).await.unwrap().unwrap();
    let charged = call.charged.unwrap();
    let balances = (
        charged.balance_before.nanos(),
        charged.balance_after.nanos(),
    );
    assert_eq!((call.id, balances), (owed.call.id, (100, 75)));
    assert!(paying.ledger.settle_pending(&owed).await.unwrap().is_none());
    assert!(paying.ledger.next_call() > owed.call.id);
    let paying = paying.restart().await;
    assert!(paying.ledger.settle_pending(&owed).await.unwrap().is_none());
    until("nothing is held", async || paying.held().await == 0).await;
    assert_eq!(paying.balance().await, 75);
    let found = paying.ledger.find_calls(&owed.call.id.to_string()).await;
    assert_eq!(found.unwrap()[0].charged, Some(charged));
    paying.assert_sound().await;
    paying.assert_added_up().await;
}

async fn a_charge_that_came_about_is_not_made_again(place: TestStore) {
    let paying = Paying::on_with(place, 100).await;
    let mut held = paying.hold(30, 30, 0).await.unwrap();
    let owed = held.pending_charge(tokens(25), Outcome::Answered).unwrap();
    held.mark_spooled();
    charge(&mut held, 25).await.unwrap();
    drop(held);
    assert!(paying.ledger.settle_pending(&owed).await.unwrap().is_none());
    let paying = paying.restart().await;
    assert!(paying.ledger.settle_pending(&owed).await.unwrap().is_none());
    assert_eq!((paying.balance().await, paying.held().await), (75, 0));
    paying.assert_sound().await;
}

async fn what_is_not_covered_any_more_is_owed(place: TestStore) {
    let paying = Paying::on_with(place, 10).await;
    let owed = left_behind(&paying, 10, 25, 25).await;
    let paying = paying.restart().await;
    paying.ledger.settle_pending(&owed).await.unwrap().unwrap();
    assert_eq!(paying.balance().await, -15);
    paying.give(20, None).await;
    assert_eq!(paying.balance().await, 5);
    paying.assert_sound().await;
}

/// It could not be spooled either, and its client was told that the response is not whole.
async fn a_call_that_was_told_to_be_free_stays_free(place: TestStore) {
    let paying = Paying::on_with(place, 100).await;
    let held = paying.hold(30, 30, 0).await.unwrap();
    let owed = held.pending_charge(tokens(25), Outcome::Answered).unwrap();
    held.release(Outcome::NotCharged, None);
    let id = owed.call.id.to_string();
    until("it is written down", async || {
        !paying.ledger.find_calls(&id).await.unwrap().is_empty()
    })
    .await;
    assert!(paying.ledger.settle_pending(&owed).await.unwrap().is_none());
    let paying = paying.restart().await;
    assert!(paying.ledger.settle_pending(&owed).await.unwrap().is_none());
    assert_eq!(paying.balance().await, 100);
    paying.assert_sound().await;
}

async fn a_call_of_another_store_is_refused(place: TestStore) {
    let paying = Paying::on_with(place, 100).await;
    let mut owed = left_behind(&paying, 30, 30, 25).await;
    owed.call.account_id = "acct_elsewhere".into();
    let refused = paying.ledger.settle_pending(&owed).await;
    assert!(
        matches!(refused, Err(LedgerError::NotFound { .. })),
        "{refused:?}"
    );
    paying.assert_sound().await;
}
