//! A change made at one gateway applies at every other from the very next request.

use std::{
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    time::{Duration, Instant},
};

use futures_util::future::join_all;
use reqwest::Method;
use serde_json::{Value, json};

use crate::{
    gateways::{Account, Fleet, MODEL, ask},
    support::gateway::hello,
};

/// Keys that change at the same time.
const KEYS: usize = 16;
/// No further rounds begin after this time.
const LONG_ENOUGH: Duration = Duration::from_secs(150);

fn key_rounds() -> usize {
    let wanted = std::env::var("TOLLGATE_KEY_ROUNDS");
    wanted.map_or(10_000, |rounds| rounds.parse().unwrap())
}

/// Changes alternate between the two gateways: one makes the change, the other serves the request.
#[tokio::test(flavor = "multi_thread")]
async fn a_key_disabled_at_one_gateway_is_refused_at_the_other_on_the_very_next_request() {
    let mut fleet = Fleet::of(2).await;
    fleet.keep_connections();
    let account = fleet.account("1000").await;
    let keys = join_all((0..KEYS).map(|_| fleet.new_key(&account))).await;
    let (left, done) = (AtomicUsize::new(key_rounds()), AtomicUsize::new(0));
    let started = Instant::now();
    let turns = keys.iter().map(async |(key_id, key)| {
        let take = |left: usize| left.checked_sub(1);
        while started.elapsed() < LONG_ENOUGH && left.fetch_update(Relaxed, Relaxed, take).is_ok() {
            let round = done.fetch_add(1, Relaxed);
            let (changed, asked) = (round % 2, (round + 1) % 2);
            let public = fleet.gateways[asked].public;
            set(&fleet, changed, key_id, "disable").await;
            let refused = ask(&fleet.client, public, key, &hello(MODEL)).await;
            let code = Some("invalid_api_key");
            let refusal = refused.refusal();
            refusal.assert_error(401, "authentication_error", code, None);
            set(&fleet, changed, key_id, "enable").await;
            let answered = ask(&fleet.client, public, key, &hello(MODEL)).await;
            answered.assert_answered();
        }
    });
    join_all(turns).await;
    let done = done.into_inner();
    println!("{done} rounds in {:?}", started.elapsed());
    assert_eq!(fleet.upstream.calls(), done, "what is refused goes nowhere");
    fleet.until_charged(0, &account, done, 0).await;
    fleet.ends_clean().await;
}

async fn set(fleet: &Fleet, at: usize, key_id: &str, action: &str) {
    let path = format!("/operator/keys/{key_id}/{action}");
    fleet.operate(at, Method::POST, &path, Value::Null).await;
}

/// A change, how to undo it, and the refusal that requests get while it applies.
struct Change {
    method: Method,
    path: String,
    off: Value,
    on: Value,
    /// Status and type.
    refusal: (u16, &'static str),
}

fn changes_of(account: &Account) -> [Change; 4] {
    let limits = |rpm: Value| json!({ "account": account.id, "model": MODEL, "rpm": rpm });
    [
        Change {
            method: Method::PUT,
            path: format!("/operator/models/{MODEL}"),
            off: json!({ "enabled": false }),
            on: json!({ "enabled": true }),
            refusal: (404, "invalid_request_error"),
        },
        Change {
            method: Method::PUT,
            path: "/operator/limits".into(),
            off: limits(1.into()),
            on: limits(Value::Null),
            refusal: (429, "rate_limit_exceeded"),
        },
        Change {
            method: Method::PATCH,
            path: account.path(),
            off: json!({ "tier": "free" }),
            on: json!({ "tier": "max" }),
            refusal: (403, "tier_upgrade_required"),
        },
        Change {
            method: Method::PATCH,
            path: account.path(),
            off: json!({ "closed": true }),
            on: json!({ "closed": false }),
            refusal: (402, "no_account"),
        },
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn models_limits_and_accounts_change_everywhere_at_once() {
    let fleet = Fleet::of(3).await;
    let account = fleet.account_on("personal", "max", "1000").await;
    for at in 0..3 {
        fleet.ask(at, &account).await.assert_answered();
    }
    let mut answered = 3;
    for change in changes_of(&account) {
        for round in 0..10 {
            let (changed, others) = (round % 3, [(round + 1) % 3, (round + 2) % 3]);
            let apply = |body: &Value| {
                let (method, body) = (change.method.clone(), body.clone());
                fleet.operate(changed, method, &change.path, body)
            };
            apply(&change.off).await;
            for at in others {
                let refused = fleet.ask(at, &account).await;
                let refused = refused.refusal();
                let kind = refused.error()["type"].as_str().unwrap();
                assert_eq!((refused.status, kind), change.refusal, "{}", refused.body);
            }
            apply(&change.on).await;
            for at in others {
                fleet.ask(at, &account).await.assert_answered();
                answered += 1;
            }
        }
    }
    assert_eq!(fleet.upstream.calls(), answered);
    fleet.until_charged(0, &account, answered, 0).await;
    fleet.ends_clean().await;
}

/// A grant made at one gateway is spent at another.
#[tokio::test(flavor = "multi_thread")]
async fn credit_granted_at_one_gateway_is_available_at_the_other() {
    let fleet = Fleet::of(2).await;
    let account = fleet.account("0.000001").await;
    let grants = format!("{}/grants", account.path());
    let refused = fleet.ask(1, &account).await;
    let code = Some("payment_required");
    let refusal = refused.refusal();
    refusal.assert_error(402, "insufficient_credits", code, None);
    let amount = json!({ "amount": "1" });
    fleet.operate(0, Method::POST, &grants, amount).await;
    fleet.ask(1, &account).await.assert_answered();
    fleet.ends_clean().await;
}
