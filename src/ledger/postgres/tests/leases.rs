//! Gateways that die, sleep too long, or are forgotten.

use tokio::runtime::Runtime;

use super::*;

impl Paying {
    /// As if no gateway had given a sign of life for long, and another looked.
    fn forget_gateways(&self) {
        self.sql("DELETE FROM gateways; SELECT free_the_dead(100)");
    }
}

#[tokio::test]
async fn a_call_whose_hold_was_freed_is_charged_once_all_the_same() {
    let paying = with(DOLLAR).await;
    let mut held = paying.hold(COST, COST, 0).await.unwrap();
    paying.forget_gateways();
    assert_eq!(paying.held().await, 0);
    let more = NanoUsd::new(2 * COST);
    let extended = held.extend(1, more, more, NanoUsd::new(0)).await;
    assert_eq!(extended, Err(HoldRefused::Unavailable));
    let call = charge(&mut held, COST).await.unwrap();
    paying.charge_again(&call).await;
    assert_eq!(
        (paying.balance().await, paying.held().await),
        (DOLLAR - COST, 0)
    );
    paying.assert_sound().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_dead_gateway_had_set_aside_is_freed_by_another() {
    let one = with(DOLLAR).await;
    let doomed = Runtime::new().unwrap();
    let place = (one.place.clone(), one.now_ms.clone());
    let other = one.with(
        doomed
            .spawn(async move { place.0.open(&place.1).await })
            .await
            .unwrap(),
    );
    let mut held = Vec::new();
    for risk in 0..3 {
        held.push(other.hold(COST, COST + risk, COST).await.unwrap());
    }
    let mine = one.hold(COST, COST, 0).await.unwrap();
    assert_eq!(one.held().await, 4 * COST);
    let lease = **other.shared().inner.lease.load();
    doomed.shutdown_background();
    let past = format!(
        "UPDATE gateways SET lease_until = now() - interval '1 hour' WHERE epoch = {}",
        lease.epoch
    );
    until("the holds are freed", async || {
        one.sql(&past);
        one.shared().inner.lease_wanted.notify_one();
        one.held().await == COST
    })
    .await;
    one.assert_sound().await;
    drop((mine, held));
    assert_eq!((one.balance().await, one.held().await), (DOLLAR, 0));
    one.assert_sound().await;
}

#[tokio::test]
async fn a_gateway_whose_lease_ran_out_takes_a_new_one_and_goes_on() {
    let paying = with(DOLLAR).await;
    let before = **paying.shared().inner.lease.load();
    let running = paying.hold(COST, COST, 0).await.unwrap();
    paying.forget_gateways();
    // Its slot is taken by another meanwhile.
    let other = paying.beside().await;
    paying.pay().await.unwrap();
    let after = **paying.shared().inner.lease.load();
    assert_ne!(before.epoch, after.epoch);
    let others = **other.shared().inner.lease.load();
    assert_ne!(after.slot, others.slot);
    other.pay().await.unwrap();
    drop(running);
    assert_eq!(
        (paying.balance().await, paying.held().await),
        (DOLLAR - 2 * COST, 0)
    );
    paying.assert_sound().await;
}

#[tokio::test]
async fn a_gateway_that_ends_gives_its_place_back() {
    let paying = with(DOLLAR).await;
    let held = paying.hold(COST, COST, 0).await.unwrap();
    drop(held);
    paying.ledger.close().await;
    let left = "SELECT (SELECT count(*) FROM gateways) + (SELECT count(*) FROM lanes)
        + (SELECT count(*) FROM holds)";
    assert_eq!(paying.sql(left), "0");
}
