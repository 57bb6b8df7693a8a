//! A key that is disabled while its requests run: the very next one is refused.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use axum::{
    body::Body,
    http::{Request, StatusCode},
};
use futures_util::future::join_all;
use tollgate::{api::public::Front, gateway::Gateway, ledger::KeyState, server};

use crate::support::{TestGateway, gateway::hello, stores};

const KEYS: usize = 20;

/// Rounds per key: ten thousand in all. With shared stores there are a thousand, because the fleet tests make as many
/// between gateways.
fn rounds_each() -> usize {
    if stores::are_shared() { 50 } else { 500 }
}

const MODEL: &str = "svc-native-fast";

/// Sends a request without a socket, so that ten thousand rounds take seconds.
async fn ask(front: &Front, key: &str) -> StatusCode {
    let request = Request::post("/v1/chat/completions")
        .header("authorization", format!("Bearer {key}"))
        .body(Body::from(hello(MODEL).to_string()))
        .unwrap();
    front.respond(request).await.status()
}

/// Repeatedly: request, disable, request, enable.
async fn rounds(gateway: Arc<Gateway>, front: Front, key_id: String, key: String) {
    for round in 0..rounds_each() {
        assert_eq!(ask(&front, &key).await, StatusCode::OK, "{round}");
        let disabled = gateway.ledger.set_key_state(&key_id, KeyState::Disabled);
        disabled.await.unwrap();
        let refused = ask(&front, &key).await;
        assert_eq!(refused, StatusCode::UNAUTHORIZED, "{round}");
        let enabled = gateway.ledger.set_key_state(&key_id, KeyState::Active);
        enabled.await.unwrap();
    }
}

/// Sends requests until stopped; returns how many succeeded.
async fn keep_asking(front: Front, key: String, stop: Arc<AtomicBool>) -> usize {
    let mut answered = 0;
    while !stop.load(Ordering::Relaxed) {
        match ask(&front, &key).await {
            StatusCode::OK => answered += 1,
            StatusCode::UNAUTHORIZED => {}
            other => panic!("{other}"),
        }
        tokio::task::yield_now().await;
    }
    answered
}

/// Twenty keys of an account at the same time. The first two are also used by concurrent callers, whose requests are
/// either charged or refused.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_disabled_key_is_refused_on_the_very_next_request_every_time() {
    let simulator = format!(
        "[providers.play]\nkind = \"simulator\"\n\
         [[deployments]]\nmodel = \"{MODEL}\"\nprovider = \"play\"\n"
    );
    let gateway = TestGateway::start_with(&simulator).await;
    let (front, inside) = (server::public_front(gateway.inside()), gateway.inside());
    let balance = async || {
        let balances = inside.ledger.balances(&gateway.account_id).await;
        balances.unwrap().balance.nanos()
    };

    // One call to learn the price of each.
    let granted = balance().await;
    assert_eq!(ask(&front, &gateway.key).await, StatusCode::OK);
    let price = granted - balance().await;
    assert!(price > 0);

    let keys = (0..KEYS).map(|_| gateway.new_key(&gateway.account_id));
    let keys = join_all(keys).await;
    let stop = Arc::new(AtomicBool::new(false));
    let busy: Vec<_> = keys[..2]
        .iter()
        .map(|(_, key)| tokio::spawn(keep_asking(front.clone(), key.clone(), stop.clone())))
        .collect();
    let turns: Vec<_> = keys
        .into_iter()
        .map(|(id, key)| tokio::spawn(rounds(inside.clone(), front.clone(), id, key)))
        .collect();
    for turn in turns {
        turn.await.unwrap();
    }
    stop.store(true, Ordering::Relaxed);
    let mut answered = 1 + KEYS * rounds_each();
    for asking in busy {
        answered += asking.await.unwrap();
    }
    gateway.idle().await;
    let spent = i64::try_from(answered).unwrap() * price;
    assert_eq!(granted - balance().await, spent, "{answered} answers");
}
