//! The tables and views that operators read: a row for each call, and sums that add up.

use serde_json::json;

use super::*;
use crate::{
    ledger::{Attempt, Call, Step},
    wire::agent::Agent,
};

#[tokio::test]
async fn a_call_is_a_row_that_reads_back() {
    let paying = with(DOLLAR).await;
    let charged = paying.pay().await.unwrap();
    let detailed = Call {
        id: crate::ledger::CallId(charged.id.0 + 1),
        attempts: vec![Attempt {
            upstream: "first".into(),
            failure: "HTTP 500".into(),
            ms: 7,
        }],
        steps: vec![Step::Tool {
            name: "chain_gas".into(),
            arguments_bytes: 2,
            outcome: "ok".into(),
            result_bytes: 3,
            ms: 4,
        }],
        decision: Some(json!({ "scores": [0.25] }).to_string()),
        agent: Some(Arc::new(Agent {
            session: Some("s-1".into()),
            ..Agent::default()
        })),
        outcome: Outcome::NoUsage,
        failure: Some("it said \"no\"".into()),
        charged: None,
        ..charged.clone()
    };
    let stored = detailed.clone();
    let stored = paying
        .embedded()
        .writer
        .run(move |database, _| Ok(database.insert_call(&stored)?));
    stored.await.unwrap();
    paying.days().await; // posts the redo log
    for call in [&charged, &detailed] {
        let read = paying.ledger.call(call.id).await.unwrap().unwrap();
        assert_eq!(format!("{read:?}"), format!("{call:?}"));
    }
    let of =
        |columns: &str, id| paying.sql(&format!("SELECT {columns} FROM calls WHERE id = {id}"));
    assert_eq!(
        of(
            "outcome || ' ' || cost_nano_usd || ' ' || prompt_tokens || ' ' || (detail IS NULL)",
            charged.id.0
        ),
        format!("answered {COST} {COST} 1")
    );
    assert_eq!(
        of(
            "detail ->> '$.attempts[0].failure' || ' ' || (entry_seq IS NULL)",
            detailed.id.0
        ),
        "HTTP 500 1"
    );
}

#[tokio::test]
async fn views_add_up() {
    let paying = with(DOLLAR).await;
    paying.give(500, Some(paying.now() + 5)).await;
    for _ in 0..3 {
        paying.pay().await.unwrap();
    }
    paying.advance(10);
    paying.pay().await.unwrap();
    paying.assert_sound().await;
    let balance = paying.balance().await.to_string();
    let of_account = |view: &str, column: &str| {
        let account_id = &paying.account_id;
        paying.sql(&format!(
            "SELECT {column} FROM {view} WHERE account_id = '{account_id}'"
        ))
    };
    assert_eq!(of_account("ledger", "sum(delta_nano_usd)"), balance);
    assert_eq!(
        paying.sql("SELECT balance_after_nano_usd FROM ledger ORDER BY seq DESC LIMIT 1"),
        balance
    );
    assert_eq!(of_account("balances", "balance_nano_usd"), balance);
    let spent = (4 * COST).to_string();
    for view in ["spend_by_month", "spend_by_key"] {
        assert_eq!(of_account(view, "cost_nano_usd"), spent, "{view}");
    }
    assert_eq!(
        paying.sql("SELECT charged_nano_usd FROM margin_by_model"),
        spent
    );
}

/// What running calls hold is written about every second, and nothing is left of it once they end.
#[tokio::test]
async fn holds_are_shown_while_calls_run() {
    let paying = with(DOLLAR).await;
    let held = "SELECT coalesce(sum(calls) || ' ' || sum(held_nano_usd), 'none') FROM held_now";
    let first = paying.hold(COST, COST, 0).await.unwrap();
    let second = paying.hold(COST, COST, 0).await.unwrap();
    let expected = format!("2 {}", 2 * COST);
    crate::ledger::tests::until("they are written", async || paying.sql(held) == expected).await;
    let available = "SELECT available_nano_usd FROM balances";
    assert_eq!(paying.sql(available), (DOLLAR - 2 * COST).to_string());
    drop((first, second));
    crate::ledger::tests::until("they are gone", async || paying.sql(held) == "none").await;
}
