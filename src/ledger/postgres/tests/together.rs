//! Two gateways on one database see the same state.

use super::*;
use crate::{
    base::rate::Reservation,
    catalog::{Tier, Track},
    ledger::{AccountChange, Edit, HoldRequest, KeyState},
};

async fn two(nanos: i64) -> (Arc<Paying>, Arc<Paying>) {
    let one = with(nanos).await;
    let other = one.beside().await;
    (Arc::new(one), Arc::new(other))
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_holds_at_two_gateways_never_exceed_the_credit() {
    let (one, other) = two(50 * COST).await;
    let calls = (0..320).map(|at| {
        let paying = if at % 2 == 0 { &one } else { &other }.clone();
        tokio::spawn(async move { paying.hold_with_retry().await })
    });
    let mut held = Vec::new();
    for call in calls.collect::<Vec<_>>() {
        match call.await.unwrap() {
            Ok(one) => held.push(one),
            Err(refused) => assert!(matches!(refused, HoldRefused::Short(_)), "{refused:?}"),
        }
    }
    assert_eq!((held.len(), one.held().await), (50, 50 * COST));
    one.assert_sound().await;
    drop(held);
    // Each gateway waits for its own queued operations only.
    other.held().await;
    assert_eq!((one.balance().await, one.held().await), (50 * COST, 0));
    one.assert_sound().await;
}

#[tokio::test]
async fn a_key_that_is_disabled_at_one_is_disabled_at_the_other() {
    let (one, other) = two(DOLLAR).await;
    assert!(other.hold(COST, COST, 0).await.is_ok());
    let disabled = one.ledger.set_key_state(&one.key_id, KeyState::Disabled);
    disabled.await.unwrap();
    let remembered = other.ledger.caller(other.digest).await.unwrap();
    let refused = other.ledger.hold(other.request(COST, COST, 0)).await.err();
    assert_eq!(refused, Some(HoldRefused::KeyInactive));
    assert!(
        other
            .ledger
            .fresh_caller(other.digest)
            .await
            .unwrap()
            .is_none()
    );
    let again = other.ledger.caller(other.digest).await.unwrap();
    assert!(
        again.is_none(),
        "removed from the cache, after {remembered:?}"
    );
}

#[tokio::test]
async fn a_cached_plan_or_setting_is_stale_once_it_changes() {
    let (one, other) = two(DOLLAR).await;
    let change = AccountChange {
        track: Some(Track::Personal),
        tier: Some(Tier::Pro),
        ..AccountChange::default()
    };
    other.refresh().await;
    one.ledger
        .change_account(&one.account_id, change)
        .await
        .unwrap();
    assert_stale(&other).await;
    let caller = other.ledger.caller(other.digest).await.unwrap().unwrap();
    assert_eq!((caller.plan.tier(), caller.seen.fresh), (Tier::Pro, false));

    let model = "svc-standard";
    let off = one.ledger.set_model(model, Some(false), None);
    off.await.unwrap();
    assert!(other.ledger.model_settings(model).enabled);
    assert_stale(&other).await;
    assert!(!other.ledger.model_settings(model).enabled);

    let (keep, ceiling) = (Edit::Keep, Edit::Set(7));
    let limited = one.ledger.set_limit(None, None, ceiling, keep);
    let rule = limited.await.unwrap();
    assert_stale(&other).await;
    assert_eq!(other.ledger.limits(), [rule]);
    let limited = one.ledger.set_limit(None, None, keep, ceiling);
    let rule = limited.await.unwrap();
    other.ledger.refresh().await.unwrap();
    assert_eq!(other.ledger.limits(), [rule]);
}

/// A caller read for a request is not outdated by settings that change while it starts.
#[tokio::test]
async fn settings_that_change_meanwhile_keep_no_call_from_starting() {
    let (one, other) = two(DOLLAR).await;
    let caller = other
        .ledger
        .fresh_caller(other.digest)
        .await
        .unwrap()
        .unwrap();
    assert!(caller.seen.fresh);
    let off = one.ledger.set_model("svc-standard", Some(false), None);
    off.await.unwrap();
    let request = HoldRequest {
        seen: caller.seen,
        ..other.request(COST, COST, 0)
    };
    let held = other.ledger.hold(request).await;
    assert!(held.is_ok(), "{:?}", held.err());
}

/// Checks that a hold with cached data is refused, and succeeds after a lookup.
async fn assert_stale(paying: &Paying) {
    let refused = paying.ledger.hold(paying.request(COST, COST, 0)).await;
    assert_eq!(refused.err(), Some(HoldRefused::Stale));
    paying.refresh().await;
    let held = paying.ledger.hold(paying.request(COST, COST, 0)).await;
    assert!(held.is_ok(), "{:?}", held.err());
}

/// For the limiter: reservations of running calls as they were reserved, of ended calls as they were used.
#[tokio::test]
async fn every_reservation_of_the_window_is_stored() {
    let (one, other) = two(DOLLAR).await;
    let at_ms = u64::try_from(one.ledger.clock().now_ms()).unwrap();
    let reservation = |tokens, step| Reservation {
        at_ms,
        tokens,
        step,
    };
    let mut ids = Vec::new();
    let mut hold = async |paying: &Paying, reservations: &[Reservation]| {
        let request = paying.request(COST, COST, 0);
        ids.push(request.id.0);
        let request = crate::ledger::HoldRequest {
            reservations,
            ..request
        };
        paying.ledger.hold(request).await.unwrap()
    };
    let mut charged = hold(&one, &[reservation(500, 0)]).await;
    let mut running = hold(&other, &[reservation(600, 0)]).await;
    let released = hold(&one, &[reservation(700, 0)]).await;
    let cancelled = hold(&one, &[reservation(800, 0)]).await;
    charge(&mut charged, 40).await.unwrap();
    released.release(Outcome::ProviderFailed, None);
    cancelled.cancel();
    running.set_reservations(&[reservation(550, 0), reservation(900, 1)]);
    let (amount, overdraft) = (NanoUsd::new(2 * COST), NanoUsd::new(0));
    let extended = running.extend(1, amount, amount, overdraft).await;
    extended.unwrap();
    one.held().await;
    let stored = other.ledger.reservations_in_window().await.unwrap();
    let mut stored: Vec<_> = stored
        .iter()
        .map(|stored| (stored.call, stored.step, stored.tokens))
        .collect();
    stored.sort_unstable();
    let mut expected = vec![
        (ids[0], 0, 40),
        (ids[1], 0, 550),
        (ids[1], 1, 900),
        (ids[2], 0, 700),
    ];
    expected.sort_unstable();
    assert_eq!(stored, expected);
    one.advance(3_600);
    drop(running);
    other.held().await;
    let stored = other.ledger.reservations_in_window().await.unwrap();
    assert!(
        stored.iter().all(|stored| stored.call == ids[1]),
        "the others are old"
    );
}
