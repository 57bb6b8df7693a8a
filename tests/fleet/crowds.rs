//! Many simultaneous requests at several gateways: exactly as many calls start as the balance and the rate-limit
//! window allow.

use futures_util::{StreamExt as _, future::join_all, stream::FuturesUnordered};
use reqwest::{Client, Method};
use serde_json::json;

use crate::{
    gateways::{Fleet, MODEL, Outcome, TIMEOUT, ask},
    support::{Gate, bodies::hello_with, gateway::hello, turns::Turn},
};

/// A hundred requests on each of ten connections, five connections to each gateway. No started call ends before all
/// other requests were refused.
#[tokio::test(flavor = "multi_thread")]
async fn of_a_thousand_requests_exactly_seven_affordable_calls_start() {
    let fleet = Fleet::of(2).await;
    // Each call holds its input and 1,000 output tokens at 9,000 nano-dollars: seven fit, an eighth does not.
    let account = fleet.account("0.07").await;
    let refusals_seen = Gate::default();
    fleet
        .upstream
        .converse([Turn::says("Hi").after(&refusals_seen)]);
    let connection = || Client::builder().no_proxy().http2_prior_knowledge().build();
    let connections: Vec<_> = (0..10).map(|_| connection().unwrap()).collect();
    let own = json!({ "max_tokens": 1_000, "tool_execution": "passthrough" });
    let body = hello_with(MODEL, own);
    let mut requests: FuturesUnordered<_> = (0..1_000)
        .map(|number| {
            let client = connections[number % 10].clone();
            let public = fleet.gateways[number % 2].public;
            let (key, body) = (account.key.clone(), body.clone());
            tokio::spawn(async move { ask(&client, public, &key, &body).await })
        })
        .collect();
    let refused = requests.by_ref().take(993).collect::<Vec<_>>();
    let refused = tokio::time::timeout(TIMEOUT, refused).await;
    let refused = refused.expect("all but seven are refused while seven are running");
    for outcome in refused {
        let outcome = outcome.unwrap();
        let code = Some("payment_required");
        let refusal = outcome.refusal();
        refusal.assert_error(402, "insufficient_credits", code, None);
    }
    refusals_seen.open();
    for outcome in requests.collect::<Vec<_>>().await {
        outcome.unwrap().assert_answered();
    }
    assert_eq!(fleet.upstream.calls(), 7);
    for at in 0..2 {
        fleet.until_charged(at, &account, 7, 0).await;
        assert_eq!(fleet.charged(at, &account).await.len(), 7);
    }
    fleet.ends_clean().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn three_gateways_share_one_window() {
    let fleet = Fleet::of(3).await;
    let account = fleet.account("1000").await;
    let limit = json!({ "account": account.id, "model": MODEL, "rpm": 60 });
    fleet
        .operate(0, Method::PUT, "/operator/limits", limit)
        .await;
    let requests = (0..300).map(|number| fleet.ask(number % 3, &account));
    let (mut answered, mut refused) = (0, 0);
    for outcome in join_all(requests).await {
        match outcome {
            Outcome::Answered => answered += 1,
            Outcome::Refused(answer) => {
                answer.assert_error(429, "rate_limit_exceeded", Some("rpm_exceeded"), None);
                let wait = answer.headers["retry-after"].to_str().unwrap();
                let wait: u64 = wait.parse().unwrap();
                assert!((1..=60).contains(&wait), "{wait}");
                refused += 1;
            }
            Outcome::Broken(why) => panic!("{why}"),
        }
    }
    assert_eq!((answered, refused), (60, 240));
    assert_eq!(fleet.upstream.calls(), 60);
    fleet.until_charged(1, &account, 60, 0).await;
    // Another model has its own window.
    let (public, other) = (fleet.gateways[2].public, hello("svc-native-fast"));
    let other = ask(&fleet.client, public, &account.key, &other).await;
    other.assert_answered();
    fleet.ends_clean().await;
}
