//! §4.9: callers of the Messages API whose model is Claude on Amazon Bedrock get its responses as they are.

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{
    Answer, FakeUpstream, Step, TestGateway,
    anthropic::{OWN, begun, block, ended, says, start_own, text},
    bedrock::{self, INVOKE, answer_stream, assert_signed, chunks, exception, failure},
    gateway::{PROVIDER_KEY, answer},
    ledger_view,
    messages::{COUNT, MessageEvents, PATH, writing},
    upstream::response,
};

/// Starts a gateway whose own model is served by the fake Bedrock that is returned.
async fn start() -> (TestGateway, FakeUpstream) {
    let bedrock = FakeUpstream::start().await;
    let more = bedrock::provider(&bedrock).replace(ledger_view::MODEL, OWN);
    (start_own(&more).await, bedrock)
}

async fn send(gateway: &TestGateway, path: &str, body: &str) -> Answer {
    let request = gateway.request(Method::POST, path).body(body.to_owned());
    let request = request.header("anthropic-version", "2023-06-01");
    let betas = "context-1m-2025-08-07, claude-code-20250219";
    let request = request.header("anthropic-beta", betas);
    answer(request.header("anthropic-beta", "effort-2025-11-24")).await
}

async fn spent(gateway: &TestGateway, before: &str) -> i64 {
    let nanos = |amount: &str| {
        let (whole, fraction) = amount.split_once('.').unwrap();
        format!("{whole}{fraction:0<9}").parse::<i64>().unwrap()
    };
    gateway.idle().await;
    nanos(before) - nanos(&gateway.balance().await)
}

#[tokio::test]
async fn the_values_of_a_body_go_out_byte_for_byte() {
    let (gateway, bedrock) = start().await;
    let before = gateway.balance().await;
    let given = r#"{"id":"msg_bdrk_01","type":"message","role":"assistant","model":"claude-sonnet-4-5-20250929",
        "content":[{"type":"thinking","thinking":"hm","signature":"c2ln"},{"type":"text","text":"Hi"}],
        "stop_reason":"end_turn","stop_sequence":null,"new":{"x":[1.0]},
        "usage":{"input_tokens":10,"cache_creation_input_tokens":4,"cache_read_input_tokens":100,"output_tokens":7}}"#;
    bedrock.answer(200, "application/json", given);
    let messages = r#"[{"role":"user","content":"Hi"},
        {"role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":"c2ln"},{"type":"text","text":"Yes"}]},
        {"role":"user","content":[{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AAAA"}}]}]"#;
    let body = format!(
        r#"{{ "max_tokens":1e2, "model" : "{OWN}","a_field_of_next_year":[1.50,"\u00e9"], "messages":{messages} }}"#
    );
    let served = send(&gateway, PATH, &body).await;
    assert_eq!(served.assert_ok()["id"], "msg_bdrk_01");
    assert_eq!(served.body["model"], OWN);
    assert_eq!(served.body["new"], json!({ "x": [1.0] }));
    let sent = bedrock.received().pop().unwrap();
    assert!(
        sent.head.starts_with(&format!("POST {INVOKE} HTTP/1.1")),
        "{}",
        sent.head
    );
    assert_signed(&sent, PROVIDER_KEY, None);
    assert_eq!(
        sent.text,
        format!(
            r#"{{"anthropic_version":"bedrock-2023-05-31","anthropic_beta":["context-1m-2025-08-07","effort-2025-11-24"],"max_tokens":100,"a_field_of_next_year":[1.50,"\u00e9"],"messages":{messages}}}"#
        )
    );
    for name in ["anthropic-version", "anthropic-beta", "x-api-key"] {
        assert_eq!(sent.header(name), None, "{name}");
    }
    // 10 fresh at 1, 4 written at 1.25, 100 read at 0.1, 7 output at 5, in millionths.
    assert_eq!(
        spent(&gateway, &before).await,
        10_000 + 5_000 + 10_000 + 35_000
    );
}

#[tokio::test]
async fn events_come_back_as_they_are() {
    let (gateway, bedrock) = start().await;
    let before = gateway.balance().await;
    let mut events = vec![begun(json!({ "input_tokens": 10, "output_tokens": 1 }))];
    events.extend(block(
        0,
        json!({ "type": "thinking", "thinking": "", "signature": "" }),
        &[
            json!({ "type": "thinking_delta", "thinking": "hm" }),
            json!({ "type": "signature_delta", "signature": "c2ln" }),
        ],
    ));
    events.extend(block(1, text(""), &[says("Hi")]));
    events.extend(ended("end_turn", json!({ "output_tokens": 7 })));
    for piece in [1, 40, 100_000] {
        answer_stream(&bedrock, &chunks(&events), piece);
        let body = writing(json!({ "model": OWN }));
        let MessageEvents(received) = gateway.message_events(&body).await;
        let mut expected = events.clone();
        expected[0]["message"]["model"] = OWN.into();
        assert_eq!(received, expected, "{piece}");
    }
    assert_eq!(spent(&gateway, &before).await, 3 * (10_000 + 35_000));
}

#[tokio::test]
async fn an_exception_ends_the_stream_with_our_error() {
    let (gateway, bedrock) = start().await;
    let before = gateway.balance().await;
    let mut events = vec![begun(json!({ "input_tokens": 10, "output_tokens": 1 }))];
    events.extend(block(0, text(""), &[says("Hi")]));
    let body = [chunks(&events), exception("modelStreamErrorException")].concat();
    answer_stream(&bedrock, &body, 100);
    let stream = gateway
        .message_events(&writing(json!({ "model": OWN })))
        .await;
    let error = stream.first("error");
    assert_eq!(
        error["error"]["details"]["error_code"],
        "stream_interrupted"
    );
    assert!(!error.to_string().contains("canary"), "{error}");
    assert_eq!(spent(&gateway, &before).await, 0);
}

#[tokio::test]
async fn a_mistake_is_reported_in_bedrocks_words() {
    let (gateway, bedrock) = start().await;
    let why = "messages.0.content: Field required";
    bedrock.play(vec![Step::Send(failure(400, "ValidationException", why))]);
    let refused = gateway.message(&writing(json!({ "model": OWN }))).await;
    refused.assert_message_error(400, "invalid_request_error", Some("upstream_error"), None);
    assert_eq!(refused.message_error()["message"], why);
    let why = "Too many tokens, please wait before trying again.";
    bedrock.play(vec![Step::Send(failure(429, "ThrottlingException", why))]);
    let refused = gateway.message(&writing(json!({ "model": OWN }))).await;
    assert_ne!(refused.status, 400, "{}", refused.body);
}

/// A caller of the provider's own API gets the provider's words, but not the operator's account.
#[tokio::test]
async fn the_operators_account_is_shown_to_nobody() {
    let (gateway, bedrock) = start().await;
    for why in [
        "Profile arn:aws:bedrock:eu-central-1:123456789012:inference-profile/x does not take max_tokens",
        "The quota of 123456789012 does not allow these max_tokens",
    ] {
        bedrock.play(vec![Step::Send(failure(400, "ValidationException", why))]);
        let refused = gateway.message(&writing(json!({ "model": OWN }))).await;
        assert_eq!(refused.status, 400, "{}", refused.body);
        let shown = refused.message_error()["message"].to_string();
        assert!(shown.contains("max_tokens"), "{shown}");
        for hidden in ["123456789012", "arn:", "inference-profile"] {
            assert!(!shown.contains(hidden), "{shown}");
        }
    }
}

#[tokio::test]
async fn bedrock_counts_tokens() {
    use base64::{Engine as _, prelude::BASE64_STANDARD};
    let (gateway, bedrock) = start().await;
    bedrock.answer_json(200, &json!({ "inputTokens": 4321 }));
    let body = format!(r#"{{"model":"{OWN}","messages":[{{"role":"user","content":"a"}}]}}"#);
    let counted = send(&gateway, COUNT, &body).await;
    assert_eq!(*counted.assert_ok(), json!({ "input_tokens": 4321 }));
    let sent = bedrock.received().pop().unwrap();
    let path = "POST /model/anthropic.claude-sonnet-4-5-20250929-v1%3A0/count-tokens HTTP/1.1";
    assert!(sent.head.starts_with(path), "{}", sent.head);
    assert_signed(&sent, PROVIDER_KEY, None);
    let inner = sent.body["input"]["invokeModel"]["body"].as_str().unwrap();
    let inner: Value = serde_json::from_slice(&BASE64_STANDARD.decode(inner).unwrap()).unwrap();
    assert_eq!(inner["anthropic_version"], "bedrock-2023-05-31");
    assert_eq!(inner["messages"][0]["content"], "a");
    assert_eq!(inner["max_tokens"], 1, "which Bedrock wants to see");
    assert_eq!(inner.get("model"), None);
    // Where it does not count, there is the gateway's estimate.
    for (status, kind) in [
        (400, "ValidationException"),
        (500, "InternalServerException"),
    ] {
        bedrock.play(vec![Step::Send(failure(status, kind, "no"))]);
        let estimated = send(&gateway, COUNT, &body).await;
        assert!(estimated.assert_ok()["input_tokens"].as_u64().unwrap() < 100);
    }
    bedrock.play(vec![Step::Send(response(200, "application/json", "{}"))]);
    send(&gateway, COUNT, &body).await.assert_ok();
}
