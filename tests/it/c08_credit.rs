//! §8.6, §6.2 and the 402 rows of §7: holds, charges, and calls that are free.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{
    Answer, Step, TestGateway,
    bodies::{hello_with, long},
    gateway::{answer, hello},
    upstream::{chunk, completion, events, stream_head, usage_chunk},
};

/// Costs 2.00 / 9.00 / 0.20 dollars per million tokens: 2,000 / 9,000 / 200 nano-dollars a token.
const MODEL: &str = "svc-standard";

/// Creates a Business account with only this credit and returns its ID and a key.
async fn account_with(gateway: &TestGateway, grants: &[Value]) -> (String, String) {
    let body = json!({ "email": "a@example.com", "track": "business", "tier": "flex" });
    let made = gateway
        .operate(Method::POST, "/operator/accounts", Some(body))
        .await;
    let id = made.assert_ok()["id"].as_str().unwrap().to_owned();
    for grant in grants {
        give(gateway, &id, grant.clone()).await;
    }
    let (_, key) = gateway.new_key(&id).await;
    (id, key)
}

async fn give(gateway: &TestGateway, id: &str, grant: Value) {
    let path = format!("/operator/accounts/{id}/grants");
    let given = gateway.operate(Method::POST, &path, Some(grant)).await;
    given.assert_ok();
}

async fn account(gateway: &TestGateway, id: &str) -> Value {
    let path = format!("/operator/accounts/{id}");
    gateway
        .operate(Method::GET, &path, None)
        .await
        .assert_ok()
        .clone()
}

/// The balance once nothing is held.
async fn settled_balance(gateway: &TestGateway, id: &str) -> String {
    for _ in 0..200 {
        let account = account(gateway, id).await;
        if account["held"] == "0.000000" {
            assert_eq!(account["balance"], account["available"]);
            return account["balance"].as_str().unwrap().to_owned();
        }
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
    panic!("something is still held: {}", account(gateway, id).await);
}

async fn usage(gateway: &TestGateway, id: &str) -> Vec<Value> {
    let path = format!("/operator/accounts/{id}/usage");
    let rows = gateway.operate(Method::GET, &path, None).await;
    rows.assert_ok()["data"].as_array().unwrap().clone()
}

fn counted(prompt: u32, cached: u32, tokens: u32, reasoning: u32) -> Value {
    let mut answer = completion("Hi");
    answer["usage"] = json!({
        "prompt_tokens": prompt, "completion_tokens": tokens, "total_tokens": prompt + tokens,
        "prompt_tokens_details": { "cached_tokens": cached },
        "completion_tokens_details": { "reasoning_tokens": reasoning },
    });
    answer
}

fn assert_short(answer: &Answer, kind: &str, balance: &str) {
    answer.assert_error(402, kind, Some("payment_required"), None);
    assert_eq!(answer.error()["balance"], balance);
    assert!(
        answer.error()["billing_url"]
            .as_str()
            .unwrap()
            .starts_with("http")
    );
}

#[tokio::test]
async fn a_call_costs_exactly_its_usage() {
    let gateway = TestGateway::start().await;
    for (prompt, cached, tokens, reasoning, left) in [
        (11, 0, 3, 0, "0.999951"),       // 11 × 2,000 + 3 × 9,000
        (1_000, 400, 10, 0, "0.998630"), // 600 × 2,000 + 400 × 200 + 10 × 9,000
        (10, 0, 60, 50, "0.999440"),     // reasoning is part of the 60
    ] {
        let (id, key) = account_with(&gateway, &[json!({ "amount": "1" })]).await;
        gateway
            .upstream
            .answer_json(200, &counted(prompt, cached, tokens, reasoning));
        gateway.chat_as(&key, &hello(MODEL)).await.assert_ok();
        assert_eq!(settled_balance(&gateway, &id).await, left);
        let rows = usage(&gateway, &id).await;
        assert_eq!(rows.len(), 1);
        assert_eq!(rows[0]["model"], MODEL);
        assert_eq!(rows[0]["prompt_tokens"], prompt);
        assert_eq!(rows[0]["cached_tokens"], cached);
        assert_eq!(rows[0]["completion_tokens"], tokens);
        assert_eq!(rows[0]["prices"]["completion"], "0.000009");
    }
}

#[tokio::test]
async fn a_hybrid_is_charged_at_its_targets_price() {
    let gateway = TestGateway::start().await;
    let (id, key) = account_with(&gateway, &[json!({ "amount": "1" })]).await;
    gateway
        .upstream
        .answer_json(200, &counted(1_000, 0, 1_000, 0));
    gateway
        .chat_as(&key, &hello("svc-hybrid-semantic"))
        .await
        .assert_ok();
    assert_eq!(
        settled_balance(&gateway, &id).await,
        "0.999000",
        "svc-native-fast: 0.20 / 0.80"
    );
    let rows = usage(&gateway, &id).await;
    assert_eq!(rows[0]["model"], "svc-hybrid-semantic");
    assert_eq!(rows[0]["routed_model"], "svc-native-fast");
}

#[tokio::test]
async fn a_call_without_sufficient_credit_is_refused() {
    let gateway = TestGateway::start().await;
    let (id, key) = account_with(&gateway, &[]).await;
    assert_short(
        &gateway.chat_as(&key, &hello(MODEL)).await,
        "insufficient_credits",
        "0.000000",
    );
    let (poor_id, poor) = account_with(&gateway, &[json!({ "amount": "0.01" })]).await;
    let large = hello_with(MODEL, json!({ "max_tokens": 4_096 }));
    let refused = gateway.chat_as(&poor, &large).await;
    assert_short(&refused, "insufficient_credits", "0.010000");
    assert_eq!(gateway.upstream.calls(), 0);
    // A smaller budget fits.
    let small = hello_with(MODEL, json!({ "max_tokens": 200 }));
    gateway.chat_as(&poor, &small).await.assert_ok();
    assert_eq!(settled_balance(&gateway, &poor_id).await, "0.009951");
    assert_eq!(settled_balance(&gateway, &id).await, "0.000000");
}

/// A refusal by a later check undoes the reservations of earlier ones.
#[tokio::test]
async fn a_call_that_cannot_be_paid_does_not_count_as_a_request() {
    let gateway = TestGateway::start_set(&[("LIMITS__RPM", "1")]).await;
    let (id, key) = account_with(&gateway, &[]).await;
    for _ in 0..3 {
        let refused = gateway.chat_as(&key, &hello(MODEL)).await;
        assert_short(&refused, "insufficient_credits", "0.000000");
    }
    give(&gateway, &id, json!({ "amount": "1" })).await;
    gateway.chat_as(&key, &hello(MODEL)).await.assert_ok();
}

#[tokio::test]
async fn expired_credit_is_distinguished_from_spent_credit() {
    let gateway = TestGateway::start().await;
    let lapsed = json!({ "amount": "5", "expires_at": "2026-01-01T00:00:00Z" });
    let (_, key) = account_with(&gateway, &[lapsed]).await;
    let refused = gateway.chat_as(&key, &hello(MODEL)).await;
    assert_short(&refused, "credits_expired", "0.000000");
    assert_eq!(refused.error()["expired_at"], "2026-01-01T00:00:00Z");
}

#[tokio::test]
async fn the_credit_that_expires_first_is_used_first_and_named() {
    let gateway = TestGateway::start().await;
    let grants = [
        json!({ "amount": "1" }),
        json!({ "amount": "0.00001", "expires_at": "2090-01-01T00:00:00Z" }),
        json!({ "amount": "1", "expires_at": "2099-01-01T00:00:00Z" }),
    ];
    let (id, key) = account_with(&gateway, &grants).await;
    assert_eq!(
        account(&gateway, &id).await["credits_expire_at"],
        "2090-01-01T00:00:00Z"
    );
    let answer = gateway.chat_as(&key, &hello(MODEL)).await;
    answer.assert_ok();
    assert_eq!(
        answer.headers["x-credits-expire-at"],
        "2090-01-01T00:00:00Z"
    );
    assert_eq!(settled_balance(&gateway, &id).await, "1.999961");
    let answer = gateway.chat_as(&key, &hello(MODEL)).await;
    assert_eq!(
        answer.headers["x-credits-expire-at"],
        "2099-01-01T00:00:00Z"
    );
    let (_, other) = account_with(&gateway, &[json!({ "amount": "1" })]).await;
    let answer = gateway.chat_as(&other, &hello(MODEL)).await;
    assert_eq!(answer.headers.get("x-credits-expire-at"), None);
}

/// Calls that the provider or the gateway failed to deliver are free.
#[tokio::test]
async fn a_failed_call_is_free() {
    let gateway = TestGateway::start().await;
    let (id, key) = account_with(&gateway, &[json!({ "amount": "1" })]).await;
    let mut stream = hello(MODEL);
    stream["stream"] = true.into();
    let cut = format!("data: {}\n\n", chunk(json!({ "content": "Hi" }), None));
    let no_usage = events(&[chunk(json!({ "content": "Hi" }), Some("stop"))]);
    let absurd = events(&[
        chunk(json!({ "content": "Hi" }), Some("stop")),
        usage_chunk(11, 1_000_000),
    ]);
    for body in [cut, no_usage, absurd] {
        gateway.upstream.answer_stream(&body);
        let url = gateway.url("/v1/chat/completions");
        let request = gateway.client.post(url).bearer_auth(&key).json(&stream);
        request.send().await.unwrap().text().await.unwrap();
        assert_eq!(settled_balance(&gateway, &id).await, "1.000000");
    }
    for (status, body, shown) in [
        (529, json!({}), 502),
        (200, json!({}), 502),
        (200, counted(11, 0, 1_000_000, 0), 200),
    ] {
        gateway.upstream.answer_json(status, &body);
        assert_eq!(gateway.chat_as(&key, &hello(MODEL)).await.status, shown);
        assert_eq!(settled_balance(&gateway, &id).await, "1.000000");
    }
    assert!(usage(&gateway, &id).await.is_empty());
}

/// For each number of chunks after which the client leaves: charged once, in full.
#[tokio::test]
async fn leaving_early_is_not_a_discount() {
    let gateway = TestGateway::start().await;
    let words: Vec<_> = (0..5)
        .map(|_| chunk(json!({ "content": "word " }), None))
        .collect();
    let end = [chunk(json!({}), Some("stop")), usage_chunk(1_000, 1_000)];
    let mut steps = vec![Step::Send(stream_head())];
    for part in words.iter().chain(&end) {
        steps.push(Step::Send(format!("data: {part}\n\n").into_bytes()));
        steps.push(Step::Pause(Duration::from_millis(20)));
    }
    steps.push(Step::Close);
    gateway.upstream.play(steps);
    for read in 0..6 {
        let (id, key) = account_with(&gateway, &[json!({ "amount": "1" })]).await;
        let body = hello_with(MODEL, json!({ "stream": true, "max_tokens": 1_000 }));
        let url = gateway.url("/v1/chat/completions");
        let request = gateway.client.post(url).bearer_auth(&key).json(&body);
        let mut response = request.send().await.unwrap();
        for _ in 0..read {
            response.chunk().await.unwrap();
        }
        drop(response);
        assert_eq!(
            settled_balance(&gateway, &id).await,
            "0.989000",
            "after {read} chunks"
        );
        assert_eq!(usage(&gateway, &id).await.len(), 1);
    }
}

/// A call that costs more than its hold is charged in full; the next grant pays the debt.
#[tokio::test]
async fn a_balance_below_zero_is_paid_by_the_next_grant() {
    let gateway = TestGateway::start().await;
    let (id, key) = account_with(&gateway, &[json!({ "amount": "0.05" })]).await;
    gateway
        .upstream
        .answer_json(200, &counted(100_000, 0, 10, 0));
    // Its estimated hold is about 0.04, but a provider can count one token per character.
    let long = long(MODEL, 100_000);
    gateway.chat_as(&key, &long).await.assert_ok();
    assert_eq!(settled_balance(&gateway, &id).await, "-0.150090");
    let refused = gateway.chat_as(&key, &hello(MODEL)).await;
    assert_short(&refused, "insufficient_credits", "-0.150090");

    let gateway = TestGateway::start_in(gateway.stop().await, "").await;
    assert_eq!(
        settled_balance(&gateway, &id).await,
        "-0.150090",
        "the debt is remembered"
    );
    give(&gateway, &id, json!({ "amount": "1" })).await;
    assert_eq!(settled_balance(&gateway, &id).await, "0.849910");
    gateway.chat_as(&key, &hello(MODEL)).await.assert_ok();
    let gateway = TestGateway::start_in(gateway.stop().await, "").await;
    assert_eq!(settled_balance(&gateway, &id).await, "0.849861");
    assert_eq!(usage(&gateway, &id).await.len(), 2);
}

/// Without a budget a call may cost far more than it holds: 66,000 output tokens, of which 4,096 are held.
/// `credit.max_overdraft` sets how much of the difference an account may owe.
#[tokio::test]
async fn how_far_a_balance_may_go_below_zero_is_a_setting() {
    // At 30.00 dollars per million, 4,096 output tokens cost 0.12288 and 66,000 cost 1.98; the input's bound is below
    // 0.02.
    let model = "svc-basic";
    for (max_overdraft, credit, starts) in [
        ("0", "0.20", false),
        ("0", "2.00", true),
        ("1.80", "0.20", true),
        ("1.78", "0.20", false),
    ] {
        let setting = [("CREDIT__MAX_OVERDRAFT", max_overdraft)];
        let gateway = TestGateway::start_set(&setting).await;
        let (_, key) = account_with(&gateway, &[json!({ "amount": credit })]).await;
        let answer = gateway.chat_as(&key, &hello(model)).await;
        let started = answer.status == 200;
        assert_eq!(
            started, starts,
            "{max_overdraft} with {credit}: {}",
            answer.body
        );
        let bounded = hello_with(model, json!({ "max_tokens": 200 }));
        gateway.chat_as(&key, &bounded).await.assert_ok();
    }
}

#[tokio::test]
async fn usage_is_listed_by_time() {
    let gateway = TestGateway::start().await;
    let (id, key) = account_with(&gateway, &[json!({ "amount": "1" })]).await;
    gateway.chat_as(&key, &hello(MODEL)).await.assert_ok();
    for (times, rows) in [
        ("", 1),
        ("?from=2020-01-01T00:00:00Z", 1),
        ("?from=2099-01-01T00:00:00Z", 0),
        ("?to=2020-01-01T00:00:00%2B02:00", 0),
    ] {
        let path = format!("/operator/accounts/{id}/usage{times}");
        let listed = gateway.operate(Method::GET, &path, None).await;
        assert_eq!(
            listed.assert_ok()["data"].as_array().unwrap().len(),
            rows,
            "{times}"
        );
    }
    let path = format!("/operator/accounts/{id}/usage?from=yesterday");
    let refused = gateway.operate(Method::GET, &path, None).await;
    refused.assert_error(400, "invalid_request_error", None, Some("from"));
}

/// §8.5: on every response to a known account, whatever its status.
#[tokio::test]
async fn every_answer_carries_the_expiry_of_credit() {
    const AT: &str = "2090-01-01T00:00:00Z";
    let gateway = TestGateway::start().await;
    let (id, key) = account_with(&gateway, &[json!({ "amount": "1", "expires_at": AT })]).await;
    let limit = json!({ "account": id, "model": "svc-native-light", "rpm": 1 });
    gateway
        .operate(Method::PUT, "/operator/limits", Some(limit))
        .await
        .assert_ok();
    let chat = |body: Value| {
        gateway
            .client
            .post(gateway.url("/v1/chat/completions"))
            .bearer_auth(&key)
            .json(&body)
    };
    let get = |path: &str| gateway.client.get(gateway.url(path)).bearer_auth(&key);
    let mut large = hello(MODEL);
    large["max_tokens"] = json!(66_000);
    large["n"] = json!(128);
    let said = |request, status| async move {
        let answer = answer(request).await;
        assert_eq!(answer.status, status, "{}", answer.body);
        let expiry = answer.headers.get("x-credits-expire-at");
        assert_eq!(
            expiry.map(|value| value.to_str().unwrap()),
            Some(AT),
            "{status}"
        );
    };
    said(chat(hello(MODEL)), 200).await;
    said(chat(json!({ "model": MODEL })), 400).await;
    said(chat(large), 402).await;
    said(chat(hello("no-such-model")), 404).await;
    said(chat(hello("svc-native-light")), 200).await;
    said(chat(hello("svc-native-light")), 429).await;
    said(get("/v1/models"), 200).await;
    said(get("/v1/models/no-such-model"), 404).await;
    said(get("/v1/responses/resp_none"), 404).await;
    said(get("/v1/assistants"), 404).await;
    gateway.upstream.answer_json(529, &json!({}));
    said(chat(hello(MODEL)), 502).await;
    // A wrong key identifies no account.
    let unknown = gateway
        .client
        .get(gateway.url("/v1/assistants"))
        .bearer_auth("sk-svc-x");
    let unknown = answer(unknown).await;
    assert_eq!(
        (unknown.status, unknown.headers.get("x-credits-expire-at")),
        (401, None)
    );
}
