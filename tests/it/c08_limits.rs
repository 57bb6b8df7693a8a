//! §8.1, §8.2 and the headers of §8.5: requests and tokens per minute.

use std::time::{Duration, SystemTime};

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{
    Answer, Plan, Step, TestGateway,
    bodies::{hello_with, long},
    gateway::hello,
    upstream::{chunk, completion, events, stream_head, usage_chunk},
};

const MODEL: &str = "svc-native-fast";
const HEADERS: [&str; 6] = [
    "x-ratelimit-limit",
    "x-ratelimit-remaining",
    "x-ratelimit-reset",
    "x-ratelimit-limit-tokens",
    "x-ratelimit-remaining-tokens",
    "retry-after",
];

fn number(answer: &Answer, header: &str) -> u64 {
    let value = answer
        .headers
        .get(header)
        .unwrap_or_else(|| panic!("{header}"));
    value.to_str().unwrap().parse().unwrap()
}

fn assert_refused(answer: &Answer, code: &str) {
    answer.assert_error(429, "rate_limit_exceeded", Some(code), None);
    let (wait, reset) = (
        number(answer, "retry-after"),
        number(answer, "x-ratelimit-reset"),
    );
    assert!((1..=60).contains(&wait), "{wait}");
    let now = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap();
    let left = reset.saturating_sub(now.as_secs());
    assert!(left.abs_diff(wait) <= 1, "they agree: {left} and {wait}");
}

/// Asserts a refusal for more tokens than the ceiling: waiting never helps, and the response has no Retry-After.
fn assert_never_fits(answer: &Answer) {
    answer.assert_error(429, "rate_limit_exceeded", Some("tpm_exceeded"), None);
    assert!(!answer.headers.contains_key("retry-after"));
    assert_eq!(answer.headers["x-should-retry"], "false");
    let message = answer.error()["message"].as_str().unwrap();
    assert!(message.contains("never fit"), "{message}");
}

async fn tokens_left(gateway: &TestGateway) -> u64 {
    gateway.idle().await;
    let probe = hello_with(MODEL, json!({ "max_tokens": 66_000 }));
    let refused = gateway.chat(&probe).await;
    assert_never_fits(&refused);
    number(&refused, "x-ratelimit-remaining-tokens")
}

#[tokio::test]
async fn requests_a_minute_are_counted_per_account_and_model() {
    let gateway = TestGateway::start_set(&[("LIMITS__RPM", "3")]).await;
    let (_, second_key) = gateway.new_key(&gateway.account_id).await;
    for key in [&gateway.key, &second_key, &gateway.key] {
        let answer = gateway.chat_as(key, &hello(MODEL)).await;
        answer.assert_ok();
        for header in HEADERS {
            assert_eq!(
                answer.headers.get(header),
                None,
                "{header} is for 429 alone"
            );
        }
    }
    for key in [&gateway.key, &second_key] {
        let refused = gateway.chat_as(key, &hello(MODEL)).await;
        assert_refused(&refused, "rpm_exceeded");
        assert_eq!(number(&refused, "x-ratelimit-limit"), 3);
        assert_eq!(number(&refused, "x-ratelimit-remaining"), 0);
    }
    assert_eq!(gateway.upstream.calls(), 3, "what is refused goes nowhere");
    gateway.chat(&hello("svc-native-light")).await.assert_ok();
    let (_, other) = gateway.account(Plan::FREE).await;
    gateway.chat_as(&other, &hello(MODEL)).await.assert_ok();
}

/// A hybrid's own window counts, not its target's.
#[tokio::test]
async fn the_requested_model_counts() {
    let gateway = TestGateway::start_set(&[("LIMITS__RPM", "1")]).await;
    gateway.chat(&hello("svc-hybrid-cost")).await.assert_ok();
    gateway.chat(&hello(MODEL)).await.assert_ok();
    let refused = gateway.chat(&hello("svc-hybrid-cost")).await;
    assert_refused(&refused, "rpm_exceeded");
}

#[tokio::test]
async fn requests_refused_for_other_reasons_do_not_count() {
    let gateway = TestGateway::start_set(&[("LIMITS__RPM", "1")]).await;
    let (_, free) = gateway.account(Plan::FREE).await;
    for _ in 0..3 {
        let wrong = hello_with("svc-pro", json!({ "max_tokens": 1 }));
        assert_eq!(gateway.chat(&wrong).await.status, 400);
        assert_eq!(gateway.chat_as(&free, &hello("svc-pro")).await.status, 403);
    }
    gateway.chat(&hello("svc-pro")).await.assert_ok();
}

#[tokio::test]
async fn a_budget_is_reserved_and_replaced_by_actual_usage() {
    let gateway = TestGateway::start_set(&[("LIMITS__TPM", "10000")]).await;
    // Two reservations of 4,096 tokens fit and three do not, but each call releases its unused tokens at its end.
    for _ in 0..5 {
        gateway.chat(&hello(MODEL)).await.assert_ok();
    }
    assert_eq!(
        tokens_left(&gateway).await,
        10_000 - 5 * 14,
        "the provider counts 14 each"
    );
    let larger = hello_with(MODEL, json!({ "max_tokens": 9_900, "n": 1 }));
    gateway.chat(&larger).await.assert_ok();
    let twice = hello_with(MODEL, json!({ "max_tokens": 5_000, "n": 2 }));
    assert_never_fits(&gateway.chat(&twice).await);
}

#[tokio::test]
async fn a_request_above_the_ceiling_is_never_told_to_retry() {
    let gateway = TestGateway::start_set(&[("LIMITS__TPM", "1000")]).await;
    let refused = gateway.chat(&hello(MODEL)).await;
    assert_never_fits(&refused);
    let small = hello_with(MODEL, json!({ "max_tokens": 100 }));
    gateway.chat(&small).await.assert_ok();
    let wide = hello_with(
        MODEL,
        json!({ "max_tokens": 100, "tools": [{
        "type": "function", "function": { "name": "f", "parameters": {
            "type": "object", "description": "many words ".repeat(1_000),
        } },
    }] }),
    );
    assert_never_fits(&gateway.chat(&wide).await);
}

#[tokio::test]
async fn a_failed_call_counts_as_a_request_and_releases_its_tokens() {
    let gateway = TestGateway::start_set(&[("LIMITS__RPM", "3"), ("LIMITS__TPM", "10000")]).await;
    gateway.upstream.answer_json(529, &json!({}));
    for _ in 0..2 {
        assert_eq!(gateway.chat(&hello(MODEL)).await.status, 502);
    }
    assert_eq!(tokens_left(&gateway).await, 10_000);
    gateway
        .upstream
        .answer_chunks(&[chunk(json!({ "content": "cut" }), None)]);
    gateway
        .stream(&hello(MODEL))
        .await
        .assert_interrupted(MODEL);
    gateway.idle().await;
    let refused = gateway.chat(&hello(MODEL)).await;
    assert_refused(&refused, "rpm_exceeded");
    assert_eq!(number(&refused, "x-ratelimit-remaining-tokens"), 10_000);
}

/// Leaving early saves nothing: the provider's response is read until its usage.
#[tokio::test]
async fn a_client_that_leaves_is_counted_in_full() {
    let gateway = TestGateway::start_set(&[("LIMITS__TPM", "10000")]).await;
    let word = format!("data: {}\n\n", chunk(json!({ "content": "word" }), None));
    let rest = events(&[chunk(json!({}), Some("stop")), usage_chunk(1_000, 234)]);
    // The stream continues after the client has left, because the gateway notices a disconnect when it writes.
    let mut steps = vec![Step::Send(stream_head())];
    for _ in 0..10 {
        steps.push(Step::Send(word.clone().into_bytes()));
        steps.push(Step::Pause(Duration::from_millis(50)));
    }
    steps.extend([Step::Send(rest.into_bytes()), Step::Close]);
    gateway.upstream.play(steps);
    let mut response = gateway.open_stream(&long(MODEL, 1_000)).await;
    response.chunk().await.unwrap().expect("it has begun");
    drop(response);
    for _ in 0..100 {
        if tokens_left(&gateway).await == 10_000 - 1_234 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{} tokens are left", tokens_left(&gateway).await);
}

async fn set_limit(gateway: &TestGateway, limit: Value) -> Answer {
    gateway
        .operate(Method::PUT, "/operator/limits", Some(limit))
        .await
}

#[tokio::test]
async fn ceilings_set_by_the_operator_persist() {
    let gateway = TestGateway::start().await;
    let account = gateway.account_id.clone();
    let set = set_limit(&gateway, json!({ "model": MODEL, "rpm": 5, "tpm": 50_000 })).await;
    let expected = json!({
        "object": "limit", "account": null, "model": MODEL, "rpm": 5, "tpm": 50_000,
    });
    assert_eq!(set.assert_ok(), &expected);
    set_limit(
        &gateway,
        json!({ "account": account, "model": MODEL, "rpm": 1 }),
    )
    .await
    .assert_ok();
    gateway.chat(&hello(MODEL)).await.assert_ok();
    let refused = gateway.chat(&hello(MODEL)).await;
    assert_refused(&refused, "rpm_exceeded");
    assert_eq!(
        number(&refused, "x-ratelimit-limit"),
        1,
        "the most specific one"
    );
    assert_eq!(
        number(&refused, "x-ratelimit-limit-tokens"),
        50_000,
        "each for itself"
    );

    let gateway = TestGateway::start_in(gateway.stop().await, "").await;
    let list = gateway.operate(Method::GET, "/operator/limits", None).await;
    assert_eq!(list.assert_ok()["data"].as_array().unwrap().len(), 2);
    assert_eq!(tokens_left(&gateway).await, 50_000);
    let gone = json!({ "model": MODEL, "rpm": null, "tpm": null });
    set_limit(&gateway, gone).await.assert_ok();
    let list = gateway.operate(Method::GET, "/operator/limits", None).await;
    assert_eq!(list.assert_ok()["data"].as_array().unwrap().len(), 1);
    gateway.chat(&hello(MODEL)).await.assert_ok();
}

#[tokio::test]
async fn an_invalid_ceiling_is_refused() {
    let gateway = TestGateway::start().await;
    for (limit, status, param) in [
        (json!({ "model": MODEL, "rpm": 0 }), 400, Some("rpm")),
        (json!({ "model": MODEL, "tpm": "many" }), 400, Some("tpm")),
        (json!({ "rpms": 5 }), 400, Some("rpms")),
        (json!({ "model": "nope", "rpm": 5 }), 404, None),
        (json!({ "account": "nobody", "rpm": 5 }), 404, None),
    ] {
        let refused = set_limit(&gateway, limit.clone()).await;
        assert_eq!(refused.status, status, "{limit}");
        assert_eq!(refused.error()["param"].as_str(), param, "{limit}");
    }
}

/// A response without usage keeps its reservation, plain or streamed, and after a restart too.
#[tokio::test]
async fn an_answer_without_usage_keeps_its_reservation() {
    let gateway = TestGateway::start().await;
    let limit = json!({ "model": MODEL, "rpm": 100, "tpm": 10_000 });
    set_limit(&gateway, limit).await.assert_ok();
    for stream in [false, true] {
        let mut whole = completion("Hi");
        whole.as_object_mut().unwrap().remove("usage");
        let streamed = events(&[chunk(json!({ "content": "Hi" }), Some("stop"))]);
        if stream {
            gateway.upstream.answer_stream(&streamed);
            gateway
                .stream(&hello_with(MODEL, json!({ "max_tokens": 3_000 })))
                .await;
        } else {
            gateway.upstream.answer_json(200, &whole);
            let body = hello_with(MODEL, json!({ "max_tokens": 3_000 }));
            gateway.chat(&body).await.assert_ok();
        }
    }
    let left = tokens_left(&gateway).await;
    assert!((3_900..4_000).contains(&left), "{left}");
    let account = gateway.account_id.clone();
    let gateway = TestGateway::start_in(gateway.stop().await, "").await;
    let (_, key) = gateway.new_key(&account).await;
    let probe = hello_with(MODEL, json!({ "max_tokens": 66_000 }));
    let refused = gateway.chat_as(&key, &probe).await;
    assert_never_fits(&refused);
    assert_eq!(number(&refused, "x-ratelimit-remaining-tokens"), left);
}
