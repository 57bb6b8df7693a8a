//! Operations that are repeated, late, or have text that the database cannot store.

use super::*;
use crate::ledger::{EntryKind, HoldRequest, Idempotency, IdempotencyKey, KeepLimits, RequestHash};

#[tokio::test]
async fn a_charge_that_is_repeated_charges_once() {
    let paying = with(DOLLAR).await;
    let call = paying.pay().await.unwrap();
    let charged = call.charged.unwrap();
    let again = paying.charge_again(&call).await;
    assert_eq!(
        (again.balance_before_nano_usd, again.balance_after_nano_usd),
        (
            charged.balance_before.nanos(),
            charged.balance_after.nanos()
        )
    );
    assert_eq!(paying.balance().await, DOLLAR - COST);
    paying.assert_sound().await;
}

#[tokio::test]
async fn a_charge_whose_caller_gave_up_is_taken_back() {
    let paying = with(DOLLAR).await;
    let call = paying.pay().await.unwrap();
    for _ in 0..2 {
        paying.reverse(&call).await;
        assert_eq!((paying.balance().await, paying.held().await), (DOLLAR, 0));
        let days = paying.days().await;
        assert_eq!((days[0].calls, days[0].charged), (1, 0));
        assert_eq!((days[0].prompt, days[0].cost.nanos()), (0, 0));
        paying.assert_added_up().await;
    }
    let late = paying.charge_again(&call).await;
    assert!(matches!(late.charged(), Err(LedgerError::NoHold)));
    assert_eq!(
        paying.entries(),
        format!("grant {DOLLAR}, charge -{COST}, reversal {COST}")
    );
    let found = paying
        .ledger
        .find_calls(&call.id.to_string())
        .await
        .unwrap();
    assert_eq!(
        (found[0].outcome, found[0].charged),
        (Outcome::NotCharged, None)
    );
    paying.assert_sound().await;
    let entries = paying.ledger.entries_page(&paying.account_id, None, 2);
    let entries = entries.await.unwrap();
    let kinds = [entries[0].kind, entries[1].kind];
    assert_eq!(kinds, [EntryKind::Reversal, EntryKind::Charge]);
    assert_eq!(entries[0].reference, call.id.to_string());
    paying.pay().await.unwrap();
    paying.assert_sound().await;
    paying.assert_added_up().await;
}

/// A retry with its key then runs.
#[tokio::test]
async fn a_charge_that_is_taken_back_takes_its_response_along() {
    let paying = with(DOLLAR).await;
    let idempotency = Idempotency {
        key: Arc::new(IdempotencyKey {
            key: "k".into(),
            request_hash: RequestHash::of("/v1/messages", b"{}"),
        }),
        limits: KeepLimits {
            keep: Duration::from_hours(1),
            max_total_bytes: 1_000,
        },
        body: Some("text".into()),
    };
    let request = HoldRequest {
        idempotency: Some(Box::new(idempotency)),
        ..paying.request(COST, COST, 0)
    };
    let mut held = paying.ledger.hold(request).await.unwrap();
    let call = charge(&mut held, COST).await.unwrap();
    let stored = async || {
        let found = paying.ledger.idempotent_response(&paying.account_id, "k");
        found.await.unwrap().map(|found| found.call_id)
    };
    assert_eq!(stored().await, Some(call.id));
    paying.reverse(&call).await;
    assert_eq!(stored().await, None);
    assert_eq!(paying.balance().await, DOLLAR);
    paying.assert_sound().await;
}

/// The whole sequence: another transaction locks the account for so long that the call gives up.
#[tokio::test]
async fn a_call_that_does_not_wait_for_its_charge_is_not_charged() {
    let paying = with(DOLLAR).await;
    let mut held = paying.hold(COST, COST, 0).await.unwrap();
    let stranger = paying.store.address().connect().await.unwrap();
    let lock = "BEGIN; SELECT FROM accounts FOR UPDATE";
    stranger.batch_execute(lock).await.unwrap();
    let charged = held.charge(tokens(COST), Outcome::Answered).await;
    assert!(matches!(charged, Err(LedgerError::Unavailable)));
    held.release(Outcome::NotCharged, Some("too slow".into()));
    stranger.batch_execute("COMMIT").await.unwrap();
    until("the hold is released", async || paying.held().await == 0).await;
    assert_eq!(paying.balance().await, DOLLAR);
    paying.assert_added_up().await;
    assert!(paying.hold_with_retry().await.is_ok());
    paying.assert_sound().await;
}

/// Debt that several grants have paid since goes back to all of them.
#[tokio::test]
async fn debt_that_was_paid_meanwhile_is_taken_back_too() {
    let paying = with(100).await;
    let mut held = paying.hold(100, 200, 1_000).await.unwrap();
    let call = charge(&mut held, 180).await.unwrap();
    assert_eq!(paying.balance().await, -80);
    paying.give(30, None).await;
    paying.give(100, Some(paying.now() + 60)).await;
    assert_eq!(paying.balance().await, 50);
    paying.reverse(&call).await;
    assert_eq!(paying.balance().await, 230);
    paying.assert_sound().await;
    assert!(paying.hold(230, 230, 0).await.is_ok());
}

/// The charge is taken back while part of it is still debt.
#[tokio::test]
async fn debt_is_taken_back_before_it_is_paid() {
    let paying = with(100).await;
    let mut held = paying.hold(100, 200, 1_000).await.unwrap();
    let call = charge(&mut held, 180).await.unwrap();
    paying.reverse(&call).await;
    assert_eq!(paying.balance().await, 100);
    paying.assert_sound().await;
}

/// A batch that was sent again on another connection arrives late.
#[tokio::test]
async fn a_batch_with_an_old_number_is_refused() {
    let paying = with(DOLLAR).await;
    paying.pay().await.unwrap();
    paying.pay().await.unwrap();
    let (inner, lane) = (
        &paying.shared().inner,
        paying.sql("SELECT max(lane) FROM lanes"),
    );
    let (lease, account) = (**inner.lease.load(), &paying.account_id);
    let stranger = paying.store.address().connect().await.unwrap();
    let call = paying.ledger.next_call().0;
    let sent_late = |number: i64| {
        format!(
            "SELECT execute_batch({}, {lane}, {number}, {}, {}, NULL,
                '[{{\"kind\": \"cancel\", \"account_id\": \"{account}\", \"call_id\": {call}}}]')::text",
            inner.run, lease.slot, lease.epoch
        )
    };
    let number = paying.sql("SELECT max(number) FROM lanes").parse().unwrap();
    for old in [1, number] {
        let refused = stranger
            .query_typed(&sent_late(old), &[])
            .await
            .unwrap_err();
        assert_eq!(refused.code().unwrap().code(), "40001", "{refused}");
    }
    stranger
        .query_typed(&sent_late(number + 1), &[])
        .await
        .unwrap();
    // The gateway continues with a higher number.
    paying.pay().await.unwrap();
    paying.pay().await.unwrap();
    assert_eq!(paying.balance().await, DOLLAR - 4 * COST);
    paying.assert_sound().await;
}

/// PostgreSQL's text cannot have a NUL byte: text of a client or a provider must not block the whole batch.
#[tokio::test]
async fn a_nul_byte_does_not_block_other_calls() {
    let paying = with(DOLLAR).await;
    let odd = "odd\0 text";
    let request = crate::ledger::HoldRequest {
        request_id: odd,
        decision: Some(odd.into()),
        ..paying.request(COST, COST, 0)
    };
    let mut charged = paying.ledger.hold(request.clone()).await.unwrap();
    let id = paying.ledger.next_call();
    let released = crate::ledger::HoldRequest { id, ..request };
    let released = paying.ledger.hold(released).await.unwrap();
    charge(&mut charged, COST).await.unwrap();
    released.release(Outcome::ProviderFailed, Some(odd.into()));
    paying.pay().await.unwrap();
    let found = paying.ledger.find_calls("odd\u{fffd} text").await.unwrap();
    assert_eq!(found.len(), 2);
    assert_eq!(found[0].failure.as_deref(), Some("odd\u{fffd} text"));
    assert_eq!(
        (paying.balance().await, paying.held().await),
        (DOLLAR - 2 * COST, 0)
    );
    paying.assert_sound().await;
}

/// An operation that the database rejects fails alone, not the whole batch.
#[tokio::test]
async fn a_rejected_operation_does_not_fail_the_others_of_its_batch() {
    let paying = Arc::new(with(DOLLAR).await);
    let call = paying.pay().await.unwrap();
    // A call with the ID of one that has ended cannot be charged.
    let request = paying.request(COST, COST, 0);
    let id = call.id;
    let request = crate::ledger::HoldRequest { id, ..request };
    let mut twin = paying.ledger.hold(request).await.unwrap();
    let others = (0..20).map(|_| {
        let paying = paying.clone();
        tokio::spawn(async move { paying.pay().await.map(|_| ()) })
    });
    let others: Vec<_> = others.collect();
    assert!(matches!(
        charge(&mut twin, COST).await,
        Err(LedgerError::NotCommitted)
    ));
    for other in others {
        other.await.unwrap().unwrap();
    }
    assert_eq!(paying.balance().await, DOLLAR - 21 * COST);
    paying.assert_sound().await;
    paying.assert_added_up().await;
}
