//! Idempotency keys on both backends: one charge for a key, and its response stored with it.

use super::*;
use crate::{
    base::month::Month,
    ledger::{
        Idempotency, IdempotencyKey, IdempotentResponse, KeepLimits, KeyTaken, MAX_REPLAYS_OF_CALL,
        ReplayKind, RequestHash,
    },
};

contract!(
    a_charge_stores_its_response_and_another_with_the_key_is_refused,
    a_response_is_kept_as_long_as_it_is_to_be,
    a_response_that_was_not_kept_leaves_its_key,
    a_released_call_leaves_its_key_free,
    the_oldest_responses_make_room,
    a_pending_charge_stores_its_response,
    a_pending_charge_with_a_spent_key_is_not_made,
    replays_are_recorded_up_to_their_maximum,
    pruned_calls_take_their_replays_along,
);

const HOUR: i64 = 3_600;

fn idempotency(key: &str, request: &[u8]) -> Idempotency {
    Idempotency {
        key: Arc::new(IdempotencyKey {
            key: key.into(),
            request_hash: RequestHash::of("/v1/messages", request),
        }),
        limits: KeepLimits {
            keep: Duration::from_hours(24),
            max_total_bytes: 1_000,
        },
        body: None,
    }
}

/// Places the hold of a call with a key.
async fn hold(paying: &Paying, key: &str, request: &[u8]) -> Result<Held, HoldRefused> {
    let wanted = || HoldRequest {
        idempotency: Some(Box::new(idempotency(key, request))),
        ..paying.request(30, 30, 0)
    };
    match paying.ledger.hold(wanted()).await {
        Err(HoldRefused::Stale) => {
            paying.refresh().await;
            paying.ledger.hold(wanted()).await
        }
        other => other,
    }
}

/// Charges a call with a key; its response is this text.
async fn answer(paying: &Paying, key: &str, text: Option<&str>) -> CallId {
    let mut held = hold(paying, key, b"x").await.unwrap();
    held.set_response(text.map(Arc::from));
    charge(&mut held, 20).await.unwrap().id
}

async fn found(paying: &Paying, key: &str) -> Option<IdempotentResponse> {
    let found = paying.ledger.idempotent_response(&paying.account_id, key);
    found.await.unwrap()
}

async fn body(paying: &Paying, key: &str) -> Option<String> {
    found(paying, key).await.expect("the key is known").body
}

async fn a_charge_stores_its_response_and_another_with_the_key_is_refused(store: TestStore) {
    let paying = Paying::on_with(store, 100).await;
    assert_eq!(found(&paying, "k").await, None);
    // Both have a hold, as if the lease of the first one's gateway had been over for a while.
    let (mut first, second) = (
        hold(&paying, "k", b"x").await.unwrap(),
        hold(&paying, "k", b"x").await,
    );
    let is_shared = matches!(&*paying.ledger, Ledger::Shared(_));
    first.set_response(Some("the \"response\"\n\u{1F600}".into()));
    let mut second = match second {
        Ok(second) => second,
        Err(refused) => {
            assert!(is_shared);
            assert_eq!(refused, HoldRefused::KeyTaken(KeyTaken::InProgress));
            let other = hold(&paying, "k", b"y").await.err();
            assert_eq!(other, Some(HoldRefused::KeyTaken(KeyTaken::OtherRequest)));
            paying.sql("UPDATE holds SET idempotency_key = NULL");
            hold(&paying, "k", b"x").await.unwrap()
        }
    };
    let charged = charge(&mut first, 20).await.unwrap();
    let expected = IdempotentResponse {
        call_id: charged.id,
        request_hash: RequestHash::of("/v1/messages", b"x"),
        stream: false,
        routed_model: None,
        body: Some("the \"response\"\n\u{1F600}".into()),
    };
    assert_eq!(found(&paying, "k").await, Some(expected.clone()));
    second.set_response(Some("another".into()));
    let refused = charge(&mut second, 20).await;
    assert!(matches!(refused, Err(LedgerError::KeySpent)), "{refused:?}");
    second.release(Outcome::NotCharged, None);
    until("nothing is held", async || paying.held().await == 0).await;
    assert_eq!(paying.balance().await, 80);
    let (other, neighbour) = (
        hold(&paying, "other", b"y").await,
        paying.neighbour(100).await,
    );
    other.unwrap().release(Outcome::ProviderFailed, None);
    assert_eq!(found(&neighbour, "k").await, None, "a key is of an account");
    drop((first, neighbour));
    let paying = paying.restart().await;
    assert_eq!(found(&paying, "k").await, Some(expected));
    paying.assert_sound().await;
}

async fn a_response_is_kept_as_long_as_it_is_to_be(store: TestStore) {
    let paying = Paying::on_with(store, 100).await;
    answer(&paying, "k", Some("first")).await;
    paying.advance(24 * HOUR - 1);
    assert_eq!(body(&paying, "k").await.unwrap(), "first");
    paying.advance(1);
    assert_eq!(found(&paying, "k").await, None);
    // It can be used again, though the old one is still there.
    answer(&paying, "k", Some("second")).await;
    assert_eq!(body(&paying, "k").await.unwrap(), "second");
    paying.advance(24 * HOUR);
    paying.ledger.make_room_for_retries(1_000).await.unwrap();
    assert_eq!(paying.sql("SELECT count(*) FROM idempotent_responses"), "0");
    assert_eq!(paying.balance().await, 60);
    paying.assert_sound().await;
}

async fn a_response_that_was_not_kept_leaves_its_key(store: TestStore) {
    let paying = Paying::on_with(store, 100).await;
    let call = answer(&paying, "k", None).await;
    let kept = found(&paying, "k").await.unwrap();
    assert_eq!((kept.call_id, kept.body), (call, None));
}

async fn a_released_call_leaves_its_key_free(store: TestStore) {
    let paying = Paying::on_with(store, 100).await;
    let held = hold(&paying, "k", b"x").await.unwrap();
    held.release(Outcome::ProviderFailed, None);
    until("nothing is held", async || paying.held().await == 0).await;
    assert_eq!(found(&paying, "k").await, None);
    let held = hold(&paying, "k", b"y").await.unwrap();
    held.cancel();
    until("nothing is held", async || paying.held().await == 0).await;
    answer(&paying, "k", Some("text")).await;
    assert_eq!(paying.balance().await, 80);
}

async fn the_oldest_responses_make_room(store: TestStore) {
    let paying = Paying::on_with(store, 1_000).await;
    let text = "x".repeat(300);
    for key in 0..6 {
        answer(&paying, &key.to_string(), Some(&text)).await;
        paying.advance(1);
    }
    // The embedded ledger makes room with each charge.
    if let Ledger::Shared(_) = &*paying.ledger {
        paying.ledger.make_room_for_retries(1_000).await.unwrap();
    }
    for key in 0..6 {
        let kept = body(&paying, &key.to_string()).await;
        assert_eq!(kept.is_some(), key >= 3, "{key}");
    }
    let paying = paying.restart().await;
    answer(&paying, "7", Some(&text)).await;
    paying.ledger.make_room_for_retries(300).await.unwrap();
    assert_eq!(body(&paying, "5").await, None);
    assert!(body(&paying, "7").await.is_some());
    assert_eq!(paying.balance().await, 1_000 - 7 * 20);
}

async fn a_pending_charge_stores_its_response(store: TestStore) {
    let paying = Paying::on_with(store, 100).await;
    let mut held = hold(&paying, "k", b"x").await.unwrap();
    held.set_response(Some("text".into()));
    let pending = held.pending_charge(tokens(20), Outcome::Answered).unwrap();
    held.mark_spooled();
    drop(held);
    let paying = paying.restart().await;
    assert_eq!(found(&paying, "k").await, None);
    let settled = paying.ledger.settle_pending(&pending).await.unwrap();
    assert!(settled.is_some());
    assert_eq!(body(&paying, "k").await.unwrap(), "text");
    assert_eq!(paying.balance().await, 80);
}

/// The client sent its request again while the charge of the first one was in the spool.
async fn a_pending_charge_with_a_spent_key_is_not_made(store: TestStore) {
    let paying = Paying::on_with(store, 100).await;
    let mut held = hold(&paying, "k", b"x").await.unwrap();
    held.set_response(Some("first".into()));
    let pending = held.pending_charge(tokens(20), Outcome::Answered).unwrap();
    held.mark_spooled();
    drop(held);
    let paying = paying.restart().await;
    until("the hold is gone", async || paying.held().await == 0).await;
    answer(&paying, "k", Some("second")).await;
    let settled = paying.ledger.settle_pending(&pending).await.unwrap();
    assert!(settled.is_none());
    assert_eq!(body(&paying, "k").await.unwrap(), "second");
    assert_eq!(paying.balance().await, 80);
    paying.assert_sound().await;
    paying.assert_added_up().await;
}

async fn replays_are_recorded_up_to_their_maximum(store: TestStore) {
    let paying = Paying::on_with(store, 100).await;
    let (call, other) = (
        answer(&paying, "k", Some("a")).await,
        answer(&paying, "l", Some("b")).await,
    );
    let record = |call, request_id: &str, kind| {
        paying
            .ledger
            .record_replay(call, &paying.account_id, request_id, kind);
    };
    record(other, "req_other", ReplayKind::Attached);
    let recorded = async |call, count: usize| {
        until("replays are recorded", async || {
            paying.ledger.replays_of(call).await.unwrap().len() == count
        })
        .await;
    };
    recorded(other, 1).await;
    for number in 1..=MAX_REPLAYS_OF_CALL as usize {
        record(call, &format!("req_{number}"), ReplayKind::Replayed);
        recorded(call, number).await;
    }
    record(call, "req_too_many", ReplayKind::Replayed);
    record(other, "req_last", ReplayKind::Replayed);
    recorded(other, 2).await;
    recorded(call, MAX_REPLAYS_OF_CALL as usize).await;
    let replays = paying.ledger.replays_of(call).await.unwrap();
    assert_eq!(replays[0].request_id, "req_1");
    assert!(
        replays
            .iter()
            .all(|replay| replay.kind == ReplayKind::Replayed)
    );
    let of_other = paying.ledger.replays_of(other).await.unwrap();
    assert_eq!(of_other[0].kind, ReplayKind::Attached);
    let count = paying
        .ledger
        .count_replays(&paying.account_id, paying.now(), paying.now() + 1);
    assert_eq!(count.await.unwrap(), u64::from(MAX_REPLAYS_OF_CALL) + 2);
    let later = paying
        .ledger
        .count_replays(&paying.account_id, paying.now() + 1, i64::MAX);
    assert_eq!(later.await.unwrap(), 0);
    let by_retry = paying.ledger.find_calls("req_last").await.unwrap();
    assert_eq!(
        by_retry.iter().map(|call| call.id).collect::<Vec<_>>(),
        [other]
    );
}

async fn pruned_calls_take_their_replays_along(store: TestStore) {
    let paying = Paying::on_with(store, 100).await;
    let call = answer(&paying, "k", Some("a")).await;
    let account = &paying.account_id;
    paying
        .ledger
        .record_replay(call, account, "req", ReplayKind::Replayed);
    until("it is recorded", async || {
        paying.ledger.replays_of(call).await.unwrap().len() == 1
    })
    .await;
    paying.advance(70 * 24 * HOUR);
    let before = Month::of_ms(paying.now() * 1_000);
    paying.ledger.prune(before).await.unwrap();
    assert!(paying.ledger.replays_of(call).await.unwrap().is_empty());
    assert_eq!(paying.balance().await, 80);
    paying.assert_sound().await;
}
