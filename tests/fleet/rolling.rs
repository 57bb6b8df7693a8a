//! Gateways that are replaced one after the other under load: callers see nothing but a reason to retry at the next
//! gateway.

use crate::{
    gateways::Fleet,
    load::{Addresses, Load},
};

/// More than there are gateways; one of them is always running.
const RETRIES: usize = 50;

#[tokio::test(flavor = "multi_thread")]
async fn a_rolling_restart_under_load_fails_no_request() {
    let mut fleet = Fleet::of(3).await;
    let account = fleet.account("1000").await;
    let addresses = Addresses::of(&fleet);
    let load = Load::start(&fleet, &addresses, &account, RETRIES);
    for at in [0, 1, 2, 0, 1, 2] {
        load.until_more(25).await;
        let old = fleet.gateways.remove(at);
        let public = old.public;
        let ended = old.process.terminated().await;
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        let new = fleet.one_more().await;
        addresses.replace(public, new.public);
        fleet.gateways.insert(at, new);
    }
    load.until_more(25).await;
    let tally = load.end().await;
    let answered = tally.answered.len();
    println!(
        "{answered} answered; {} refused and {} not connected before that",
        tally.refused, tally.broken
    );
    // Requests whose connection failed were not admitted either.
    fleet.until_charged(0, &account, answered, 0).await;
    let charged = fleet.charged(2, &account).await;
    assert!(
        charged.iter().eq(&tally.answered),
        "all of them, and no other"
    );
    fleet.ends_clean().await;
}
