//! Late settlement on both backends: calls delivered by one process and charged by the next.

use super::*;
use crate::ledger::PendingCharge;

contract!(
    a_delivered_call_is_charged_once_by_the_next_process,
    a_committed_charge_is_not_made_again,
    a_cost_beyond_the_credit_becomes_debt,
    a_call_recorded_as_not_charged_stays_so,
    a_call_of_another_store_is_refused,
);

/// A call whose charge is in the spool when its process ends.
async fn left_behind(paying: &Paying, held: i64, worst: i64, cost: i64) -> PendingCharge {
    let mut held = paying.hold(held, worst, worst).await.unwrap();
    let pending = held
        .pending_charge(tokens(cost), Outcome::Answered)
        .unwrap();
    held.mark_spooled();
    pending
}

async fn a_delivered_call_is_charged_once_by_the_next_process(store: TestStore) {
    let paying = Paying::on_with(store, 100).await;
    let pending = left_behind(&paying, 30, 30, 25).await;
    let paying = paying.restart().await;
    assert_eq!(paying.balance().await, 100);
    let call = paying
        .ledger
        .settle_pending(&pending)
        .await
        .unwrap()
        .unwrap();
    let charged = call.charged.unwrap();
    let balances = (
        charged.balance_before.nanos(),
        charged.balance_after.nanos(),
    );
    assert_eq!((call.id, balances), (pending.call.id, (100, 75)));
    assert!(
        paying
            .ledger
            .settle_pending(&pending)
            .await
            .unwrap()
            .is_none()
    );
    assert!(paying.ledger.next_call() > pending.call.id);
    let paying = paying.restart().await;
    assert!(
        paying
            .ledger
            .settle_pending(&pending)
            .await
            .unwrap()
            .is_none()
    );
    until("nothing is held", async || paying.held().await == 0).await;
    assert_eq!(paying.balance().await, 75);
    let found = paying.ledger.find_calls(&pending.call.id.to_string()).await;
    assert_eq!(found.unwrap()[0].charged, Some(charged));
    paying.assert_sound().await;
    paying.assert_added_up().await;
}

async fn a_committed_charge_is_not_made_again(store: TestStore) {
    let paying = Paying::on_with(store, 100).await;
    let mut held = paying.hold(30, 30, 0).await.unwrap();
    let pending = held.pending_charge(tokens(25), Outcome::Answered).unwrap();
    held.mark_spooled();
    charge(&mut held, 25).await.unwrap();
    drop(held);
    assert!(
        paying
            .ledger
            .settle_pending(&pending)
            .await
            .unwrap()
            .is_none()
    );
    let paying = paying.restart().await;
    assert!(
        paying
            .ledger
            .settle_pending(&pending)
            .await
            .unwrap()
            .is_none()
    );
    assert_eq!((paying.balance().await, paying.held().await), (75, 0));
    paying.assert_sound().await;
}

async fn a_cost_beyond_the_credit_becomes_debt(store: TestStore) {
    let paying = Paying::on_with(store, 10).await;
    let pending = left_behind(&paying, 10, 25, 25).await;
    let paying = paying.restart().await;
    paying
        .ledger
        .settle_pending(&pending)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(paying.balance().await, -15);
    paying.give(20, None).await;
    assert_eq!(paying.balance().await, 5);
    paying.assert_sound().await;
}

/// The charge could not be spooled either, and the client's response ended with an error.
async fn a_call_recorded_as_not_charged_stays_so(store: TestStore) {
    let paying = Paying::on_with(store, 100).await;
    let held = paying.hold(30, 30, 0).await.unwrap();
    let pending = held.pending_charge(tokens(25), Outcome::Answered).unwrap();
    held.release(Outcome::NotCharged, None);
    let id = pending.call.id.to_string();
    until("the call is stored", async || {
        !paying.ledger.find_calls(&id).await.unwrap().is_empty()
    })
    .await;
    assert!(
        paying
            .ledger
            .settle_pending(&pending)
            .await
            .unwrap()
            .is_none()
    );
    let paying = paying.restart().await;
    assert!(
        paying
            .ledger
            .settle_pending(&pending)
            .await
            .unwrap()
            .is_none()
    );
    assert_eq!(paying.balance().await, 100);
    paying.assert_sound().await;
}

async fn a_call_of_another_store_is_refused(store: TestStore) {
    let paying = Paying::on_with(store, 100).await;
    let mut pending = left_behind(&paying, 30, 30, 25).await;
    pending.call.account_id = "acct_elsewhere".into();
    let refused = paying.ledger.settle_pending(&pending).await;
    assert!(
        matches!(refused, Err(LedgerError::NotFound { .. })),
        "{refused:?}"
    );
    paying.assert_sound().await;
}
