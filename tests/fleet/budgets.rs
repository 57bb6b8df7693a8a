//! Budgets that many calls at several gateways share: never exceeded, whatever is killed meanwhile.

use futures_util::future::join_all;
use reqwest::Method;
use serde_json::json;

use crate::{
    gateways::{Account, Fleet, MODEL, Outcome, ask, eventually},
    support::{
        gateway::hello,
        ledger_view::{PRICE, nanos},
        turns::Turn,
    },
};

const CALLS: usize = 200;

/// Gives the key a budget of what this many calls cost. Running calls hold far more than they cost, so few run at a time.
async fn bound(fleet: &Fleet, account: &Account, calls: i64) -> String {
    let amount = calls * PRICE;
    let body = json!({
        "account": account.id, "scope": "key", "id": account.key_id, "period": "month",
        "amount": format!("0.{amount:09}"),
    });
    let set = fleet.operate(0, Method::PUT, "/operator/budgets", body);
    set.await["id"].as_str().unwrap().to_owned()
}

async fn spent_and_held(fleet: &Fleet, at: usize, account: &Account, id: &str) -> (i64, i64) {
    let path = format!("/operator/accounts/{}/budgets", account.id);
    let listed = fleet.get(at, &path).await;
    let mut budgets = listed["data"].as_array().unwrap().iter();
    let budget = budgets.find(|budget| budget["id"] == id).unwrap();
    (nanos(&budget["spent"]), nanos(&budget["held"]))
}

/// In rounds, until nothing more fits: what is refused is refused for the budget, and what is spent is what was answered.
#[tokio::test(flavor = "multi_thread")]
async fn parallel_calls_at_three_gateways_never_exceed_a_budget() {
    let fleet = Fleet::of(3).await;
    let account = fleet.account("1000").await;
    fleet.upstream.converse([Turn::says("Hi")]);
    let id = bound(&fleet, &account, 2_000).await;
    let mut body = hello(MODEL);
    body["max_tokens"] = 200.into();
    let (mut answered, mut refused) = (0, 0);
    for round in 0.. {
        let calls = (0..CALLS).map(|call| {
            let public = fleet.gateways[call % 3].public;
            ask(&fleet.client, public, &account.key, &body)
        });
        let outcomes = join_all(calls).await;
        let before = answered;
        for outcome in outcomes {
            if matches!(outcome, Outcome::Answered) {
                answered += 1;
                continue;
            }
            refused += 1;
            let refusal = outcome.refusal();
            refusal.assert_error(402, "budget_exceeded", Some("payment_required"), None);
            let budget = &refusal.error()["budget"];
            let counted = nanos(&budget["spent"]) + nanos(&budget["held"]);
            assert!(counted <= nanos(&budget["amount"]), "{budget}");
        }
        let (spent, held) = spent_and_held(&fleet, round % 3, &account, &id).await;
        assert_eq!(
            (spent, held),
            (answered * PRICE, 0),
            "what was charged, exactly"
        );
        assert!(spent <= 2_000 * PRICE);
        if before == answered || round == 20 {
            break;
        }
    }
    assert!(answered > 200, "{answered} calls were answered");
    assert!(refused > 0, "200 calls at once hold more than the budget");
    fleet.ends_clean().await;
}

/// The holds of a killed gateway are released, and what it charged stays spent.
#[tokio::test(flavor = "multi_thread")]
async fn a_killed_gateway_leaves_nothing_held_of_a_budget() {
    let mut fleet = Fleet::of(3).await;
    let account = fleet.account("1000").await;
    fleet.upstream.converse([Turn::says("Hi")]);
    let id = bound(&fleet, &account, 10_000).await;
    let calls: Vec<_> = (0..120)
        .map(|call| {
            let (client, key) = (fleet.client.clone(), account.key.clone());
            let public = fleet.gateways[call % 3].public;
            tokio::spawn(async move {
                let url = format!("http://{public}/v1/chat/completions");
                let request = client.post(url).bearer_auth(key).json(&hello(MODEL));
                let response = request.send().await.ok()?;
                (response.status() == 200).then_some(())?;
                response.text().await.ok().map(drop)
            })
        })
        .collect();
    let killed = fleet.gateways.remove(2);
    killed.process.signal("KILL");
    killed.process.ended().await;
    let answered = join_all(calls).await;
    let sure = answered
        .into_iter()
        .filter(|it| it.as_ref().unwrap().is_some());
    let sure = i64::try_from(sure.count()).unwrap();
    eventually("nothing is held of the budget", async || {
        spent_and_held(&fleet, 0, &account, &id).await.1 == 0
    })
    .await;
    let (spent, _) = spent_and_held(&fleet, 1, &account, &id).await;
    assert!(spent >= sure * PRICE, "{spent} after {sure} responses");
    fleet.ends_clean().await;
}
