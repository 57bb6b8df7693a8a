//! More requests than the shared stores can admit: as many as before are served, and the others are refused at once.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use futures_util::future::join_all;
use serde_json::Value;

use crate::{
    gateways::{Account, Fleet, MODEL, Stores, store_refusal_is_wrong},
    support::{RawConnection, gateway::hello, raw::chat_request},
};

/// Connections to three gateways at which they serve the most; more only wait for one another.
const KNEE: usize = 120;
const TIME: Duration = Duration::from_secs(3);

/// Every connection sends its next request as soon as it has a response. Returns the number of served requests, and of
/// refused ones.
async fn load(fleet: &Fleet, account: &Account, connections: usize) -> (usize, usize) {
    let (begun, body) = (Instant::now(), hello(MODEL));
    let callers = (0..connections).map(|number| {
        let public = fleet.gateways[number % fleet.gateways.len()].public;
        let (key, body) = (account.key.clone(), body.clone());
        tokio::spawn(keep_asking(public, key, body, begun))
    });
    let mut all = (0, 0);
    for done in join_all(callers).await {
        let (served, refused) = done.unwrap();
        all = (all.0 + served, all.1 + refused);
    }
    all
}

async fn keep_asking(
    public: SocketAddr,
    key: String,
    body: Value,
    begun: Instant,
) -> (usize, usize) {
    let mut connection = RawConnection::open(public).await;
    let request = chat_request(&key, "", &body);
    let (mut served, mut refused) = (0, 0);
    while begun.elapsed() < TIME {
        connection.send(&request).await;
        let answer = connection.answer().await;
        if answer.status == 200 {
            served += 1;
        } else {
            assert_eq!(store_refusal_is_wrong(&answer), None);
            refused += 1;
        }
    }
    (served, refused)
}

/// Row 65 of the faults. The threads of the gateways, in a build without optimisation, are as busy as the stores here,
/// and are not what is tested; so the bound of their lag is not the default.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_and_a_half_times_the_connections_do_not_reduce_what_is_served() {
    let fleet = Fleet::on(Stores::new().with_default_deadlines(), 3).await;
    let account = fleet.account("1000").await;
    load(&fleet, &account, 6).await;
    let (peak, refused) = load(&fleet, &account, KNEE).await;
    println!("{KNEE} connections: {peak} served, {refused} refused");
    let excess = KNEE * 5 / 2;
    let (served, refused) = load(&fleet, &account, excess).await;
    println!("{excess} connections: {served} served, {refused} refused");
    // On an idle machine it is above 80 %; this allows for a busy one. Before there was a bound, it was below 10 %.
    assert!(served * 2 > peak, "{served} served of {peak} at the peak");
    for at in 0..3 {
        assert_eq!(fleet.health(at).await, (200, 200));
    }
    fleet.ends_clean().await;
}
