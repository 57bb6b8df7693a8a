//! §4.9: a provider of kind `anthropic` gets the caller's bytes, and its responses come back as they are.

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{
    Answer, FakeUpstream, Step, TestGateway,
    anthropic::{self, OWN, begun, block, ended, failure, says, start_own, text},
    gateway::{UPSTREAM_MODEL, answer},
    messages::{COUNT, MessageEvents, PATH, saying, tool, with_block, writing},
    upstream::{completion, response, stream_head},
};

/// Starts a gateway whose provider has kind `anthropic`.
async fn start() -> TestGateway {
    start_own("").await
}

/// Sends a body in these bytes.
async fn send(gateway: &TestGateway, body: &str) -> Answer {
    let request = gateway.request(Method::POST, PATH).body(body.to_owned());
    let request = request.header("anthropic-version", "2026-10-21");
    let request = request.header("anthropic-beta", "a-2025-01-01,b");
    answer(request.header("anthropic-beta", "c")).await
}

#[tokio::test]
async fn the_body_goes_out_byte_for_byte() {
    let gateway = start().await;
    let body = format!(
        r#"{{ "max_tokens":1e2, "model" : "{OWN}","a_field_of_next_year":[1.50,"\u00e9"],
        "system":[{{"type":"text","text":"x-anthropic-billing-header: a","z":1}},{{"type":"text","text":"b","cache_control":{{"type":"ephemeral"}}}}],
        "metadata":{{"user_id":"me","more":true}},
        "thinking":{{"type":"adaptive","display":"summarized"}},
        "messages":[{{"role":"user","content":"Hi"}},
          {{"role":"assistant","content":[{{"type":"thinking","thinking":"hm","signature":"c2ln"}},{{"type":"text","text":"Yes"}}]}},
          {{"role":"user","content":[{{"type":"image","source":{{"type":"base64","media_type":"image/png","data":"AAAA"}}}}]}}]}}"#
    );
    send(&gateway, &body).await.assert_ok();
    let sent = gateway.upstream.received().pop().unwrap();
    let expected = body
        .replace(&format!("\"{OWN}\""), &format!("\"{UPSTREAM_MODEL}\""))
        .replace("\"me\"", &format!("\"{}\"", gateway.account_id))
        .replace("1e2", "100");
    assert_eq!(sent.text, expected);
    assert_eq!(sent.header("anthropic-version"), Some("2026-10-21"));
    let betas = sent
        .head
        .lines()
        .filter(|line| line.starts_with("anthropic-beta"));
    assert_eq!(
        betas.collect::<Vec<_>>(),
        ["anthropic-beta: a-2025-01-01,b", "anthropic-beta: c"]
    );
    assert!(!sent.head.contains(&gateway.key));
}

#[tokio::test]
async fn a_message_comes_back_as_it_is_and_is_charged() {
    let gateway = start().await;
    let before = nanos(&gateway.balance().await);
    let given = r#"{"model":"vendor-model-9", "id":"msg_01X","type":"message","role":"assistant","content":[
        {"type":"thinking","thinking":"hm","signature":"c2ln"},{"type":"text","text":"Hi","citations":null},
        {"type":"tool_use","id":"toolu_01A","name":"f","input":{"a":1.0}}],
        "stop_reason":"tool_use","stop_sequence":null,"new":{"x":[1]},
        "usage":{"input_tokens":10,"cache_creation_input_tokens":4,"cache_read_input_tokens":100,"output_tokens":7,"iterations":null}}"#;
    gateway.upstream.answer(200, "application/json", given);
    let url = gateway.url(PATH);
    let request = gateway.client.post(url).header("x-api-key", &gateway.key);
    let body = writing(json!({ "model": OWN, "tools": [tool("f")] }));
    let response = request.json(&body).send().await.unwrap();
    assert_eq!(response.status(), 200);
    let text = response.text().await.unwrap();
    assert_eq!(
        text,
        given.replace("\"vendor-model-9\"", &format!("\"{OWN}\""))
    );
    gateway.idle().await;
    // 10 fresh at 1, 4 written at 1.25, 100 read at 0.1, 7 output at 5, in millionths.
    assert_eq!(
        before - nanos(&gateway.balance().await),
        10_000 + 5_000 + 10_000 + 35_000
    );
}

#[tokio::test]
async fn events_come_back_as_they_are_and_the_last_ones_after_the_charge() {
    let gateway = start().await;
    let before = nanos(&gateway.balance().await);
    let mut events = vec![
        begun(json!({ "input_tokens": 10, "cache_read_input_tokens": 100, "output_tokens": 1 })),
        json!({ "type": "ping" }),
    ];
    events.extend(block(
        0,
        json!({ "type": "thinking", "thinking": "", "signature": "" }),
        &[
            json!({ "type": "thinking_delta", "thinking": "hm" }),
            json!({ "type": "signature_delta", "signature": "c2ln" }),
        ],
    ));
    events.extend(block(
        1,
        json!({ "type": "redacted_thinking", "data": "x" }),
        &[],
    ));
    events.extend(block(
        2,
        text(""),
        &[
            says("Hi"),
            json!({ "type": "citations_delta", "citation": { "a": 1 } }),
        ],
    ));
    events.extend(ended(
        "end_turn",
        json!({ "output_tokens": 7, "iterations": [1] }),
    ));
    gateway.upstream.answer_stream(&anthropic::events(&events));
    let stream = gateway
        .message_events(&writing(json!({ "model": OWN })))
        .await;
    let MessageEvents(received) = &stream;
    events[0]["message"]["model"] = OWN.into();
    assert_eq!(*received, events);
    gateway.idle().await;
    assert_eq!(
        before - nanos(&gateway.balance().await),
        10_000 + 10_000 + 35_000
    );
}

#[tokio::test]
async fn a_stream_that_breaks_off_ends_with_our_error_and_is_free() {
    let gateway = start().await;
    let before = gateway.balance().await;
    let mut events = vec![begun(json!({ "input_tokens": 10, "output_tokens": 1 }))];
    events.extend(block(0, text(""), &[says("Hi")]));
    let cut = anthropic::events(&events);
    gateway.upstream.play(vec![
        Step::Send(stream_head()),
        Step::Send(cut.into_bytes()),
        Step::Reset,
    ]);
    let stream = gateway
        .message_events(&writing(json!({ "model": OWN })))
        .await;
    let code = &stream.first("error")["error"]["details"]["error_code"];
    assert_eq!(code, "stream_interrupted");
    gateway.idle().await;
    assert_eq!(gateway.balance().await, before);
}

#[tokio::test]
async fn a_refusal_keeps_the_providers_words() {
    let gateway = start().await;
    for (status, words) in [
        (
            400,
            "messages.1.content.0: Invalid `signature` in `thinking` block of claude-x",
        ),
        (413, "Request exceeds the maximum size"),
    ] {
        let refused = failure("invalid_request_error", words);
        gateway.upstream.answer_json(status, &refused);
        let refused = gateway.message(&writing(json!({ "model": OWN }))).await;
        let code = Some("upstream_error");
        refused.assert_message_error(400, "invalid_request_error", code, None);
        assert_eq!(refused.message_error()["message"], words);
        assert_eq!(refused.headers["x-should-retry"], "false");
    }
    // What concerns the operator's account is not the caller's business.
    let ours = failure(
        "invalid_request_error",
        "Your credit balance is too low to access the API",
    );
    gateway.upstream.answer_json(400, &ours);
    let failed = gateway.message(&writing(json!({ "model": OWN }))).await;
    failed.assert_message_error(502, "api_error", Some("upstream_error"), None);
    assert!(!failed.body.to_string().contains("balance"));
}

#[tokio::test]
async fn what_has_no_price_stays_refused() {
    let gateway = start().await;
    for (field, path) in [
        (
            json!({ "tools": [{ "type": "web_search_20250305", "name": "w" }] }),
            "tools.0.type",
        ),
        (json!({ "container": "c" }), "container"),
        (json!({ "speed": "fast" }), "speed"),
    ] {
        let mut body = writing(field);
        body["model"] = OWN.into();
        gateway.refuses_message(&body, path).await;
    }
    let mut bash = writing(
        json!({ "tools": [{ "type": "bash_20250124", "name": "bash" }, tool("f")],
        "tool_choice": { "type": "tool", "name": "bash" } }),
    );
    bash["model"] = OWN.into();
    gateway.message(&bash).await.assert_ok();
    let mut prefill = saying(json!([
        { "role": "user", "content": "a" }, { "role": "assistant", "content": "{" } ]));
    prefill["model"] = OWN.into();
    gateway.message(&prefill).await.assert_ok();
}

#[tokio::test]
async fn images_are_counted_and_other_models_refuse_them() {
    let gateway = start().await;
    let mut image =
        with_block(json!({ "type": "image", "source": { "type": "url", "url": "https://x" } }));
    image["model"] = OWN.into();
    // The provider gives no count, so the gateway estimates.
    let counted = answer(gateway.request(Method::POST, COUNT).json(&image)).await;
    assert!(counted.assert_ok()["input_tokens"].as_u64().unwrap() >= 5_000);
    gateway.message(&image).await.assert_ok();
    // This model has an identity prompt, so its requests are rewritten.
    image["model"] = "svc-basic".into();
    gateway
        .refuses_message(&image, "messages.0.content.0.image")
        .await;
}

#[tokio::test]
async fn the_provider_counts_tokens_itself() {
    let gateway = start().await;
    gateway
        .upstream
        .answer_json(200, &json!({ "input_tokens": 4321 }));
    let body = format!(r#"{{"model" : "{OWN}", "messages":[{{"role":"user","content":"a"}}]}}"#);
    let count = |body: String| answer(gateway.request(Method::POST, COUNT).body(body));
    let counted = count(body.clone()).await;
    assert_eq!(*counted.assert_ok(), json!({ "input_tokens": 4321 }));
    let sent = gateway.upstream.received().pop().unwrap();
    assert!(
        sent.head.starts_with("POST /v1/messages/count_tokens "),
        "{}",
        sent.head
    );
    assert_eq!(sent.text, body.replace(OWN, UPSTREAM_MODEL));
    // Without its count there is the gateway's.
    gateway.upstream.answer_json(500, &json!({}));
    let estimated = count(body.clone()).await;
    assert!(estimated.assert_ok()["input_tokens"].as_u64().unwrap() < 100);
    gateway
        .upstream
        .answer_json(400, &failure("invalid_request_error", "messages: no"));
    let refused = count(body).await;
    let code = Some("upstream_error");
    refused.assert_message_error(400, "invalid_request_error", code, None);
}

#[tokio::test]
async fn another_kind_of_provider_gets_the_translated_request() {
    let other = FakeUpstream::start().await;
    let more = format!(
        "[providers.other]\nkind = \"openai\"\nbase_url = \"http://{}/v1\"\napi_key_env = \"PROVIDER_KEY\"\n\
         [[deployments]]\nmodel = \"{OWN}\"\nprovider = \"fake\"\nupstream_model = \"{UPSTREAM_MODEL}\"\n\
         [[deployments]]\nmodel = \"{OWN}\"\nprovider = \"other\"\nupstream_model = \"o\"\npriority = 1\n",
        other.address
    );
    let gateway = start_own(&more).await;
    other.answer_json(200, &completion("From the other"));
    let overloaded = response(529, "application/json", "{}");
    gateway.upstream.play(vec![Step::Send(overloaded)]);
    let plain = writing(json!({ "model": OWN }));
    let served = gateway.message(&plain).await;
    assert_eq!(served.assert_ok()["content"][0]["text"], "From the other");
    assert_eq!(other.last_body()["messages"][0]["content"], "Hello");
    // Signed thinking means nothing to the other one: the call fails instead.
    let thinking = json!({ "type": "thinking", "thinking": "hm", "signature": "s" });
    let mut signed = saying(json!([
        { "role": "user", "content": "a" },
        { "role": "assistant", "content": [thinking, { "type": "text", "text": "b" }] },
        { "role": "user", "content": "c" },
    ]));
    signed["model"] = OWN.into();
    let calls = other.calls();
    let failed: Value = gateway.message(&signed).await.body;
    assert_eq!(failed["error"]["type"], "overloaded_error", "{failed}");
    assert_eq!(other.calls(), calls);
}

/// A decimal amount in billionths.
fn nanos(amount: &str) -> u64 {
    let (whole, fraction) = amount.split_once('.').unwrap_or((amount, ""));
    let fraction = format!("{fraction:0<9}");
    whole.parse::<u64>().unwrap() * 1_000_000_000 + fraction.parse::<u64>().unwrap()
}
