//! §4.9: what a provider of the same API adds to its responses, how it fails, and what only such a provider takes.

use serde_json::{Value, json};

use crate::support::{
    FakeUpstream, Step, TestGateway,
    anthropic::{self, OWN, begun, block, failure, hello_events, message, says, start_own, text},
    gateway::UPSTREAM_MODEL,
    messages::{saying, with_block, writing},
    upstream::{completion, response},
};

/// A request that is forwarded as it is.
fn own(mut body: Value) -> Value {
    body["model"] = OWN.into();
    body
}

/// A provider's response with headers that are between it and the operator.
fn with_their_headers(status: u16, content_type: &str, body: &str) -> Vec<u8> {
    let theirs = "request-id: req_theirs\r\nanthropic-organization-id: org_theirs\r\n\
                  anthropic-ratelimit-requests-limit: 4000\r\nanthropic-ratelimit-unified-status: allowed\r\n\
                  x-should-retry: true\r\n";
    let sent = response(status, content_type, body);
    let sent = String::from_utf8(sent).unwrap();
    let sent = sent.replacen("content-type", &format!("{theirs}content-type"), 1);
    sent.into_bytes()
}

#[tokio::test]
async fn headers_of_the_provider_are_not_passed_on() {
    let gateway = start_own("").await;
    let whole = message(json!([text("Hi")]), "end_turn").to_string();
    let refused = failure("invalid_request_error", "messages: no").to_string();
    let stream = anthropic::events(&hello_events());
    for (status, content_type, body) in [
        (200, "application/json", whole),
        (400, "application/json", refused),
        (200, "text/event-stream", stream),
    ] {
        let bytes = with_their_headers(status, content_type, &body);
        gateway.upstream.play(vec![Step::Send(bytes)]);
        let mut asked = own(writing(json!({})));
        asked["stream"] = (content_type == "text/event-stream").into();
        let request = gateway.request(reqwest::Method::POST, "/v1/messages");
        let answer = request.json(&asked).send().await.unwrap();
        assert_eq!(answer.status(), status);
        let shown = format!("{:?}", answer.headers());
        for name in ["theirs", "ratelimit", "organization"] {
            assert!(!shown.contains(name), "{name}: {shown}");
        }
        let ids = ["request-id", "x-request-id"].map(|name| answer.headers()[name].clone());
        assert_eq!(ids[0], ids[1]);
        if status == 400 {
            assert_eq!(answer.headers()["x-should-retry"], "false");
        }
        let shown = answer.text().await.unwrap();
        assert!(!shown.contains("req_01"), "{shown}");
    }
}

#[tokio::test]
async fn an_error_event_of_the_provider_becomes_ours() {
    let gateway = start_own("").await;
    let before = gateway.balance().await;
    let mut events = vec![begun(json!({ "input_tokens": 10, "output_tokens": 1 }))];
    events.extend(block(0, text(""), &[says("Hi")]));
    events.push(failure("overloaded_error", "Overloaded, says the vendor"));
    gateway.upstream.answer_stream(&anthropic::events(&events));
    let stream = gateway.message_events(&own(writing(json!({})))).await;
    assert_eq!(stream.kinds().last(), Some(&"error"));
    assert!(!stream.kinds().contains(&"message_delta"));
    let error = &stream.first("error")["error"];
    assert_eq!(error["type"], "api_error");
    assert_eq!(error["details"]["error_code"], "stream_interrupted");
    assert!(!error.to_string().contains("vendor"), "{error}");
    gateway.idle().await;
    assert_eq!(gateway.balance().await, before);
}

#[tokio::test]
async fn the_reason_for_which_a_provider_stops_is_kept() {
    let gateway = start_own("").await;
    for (reason, sequence) in [
        ("stop_sequence", json!("END")),
        ("pause_turn", Value::Null),
        ("model_context_window_exceeded", Value::Null),
        ("refusal", Value::Null),
        ("a reason of next year", Value::Null),
    ] {
        let mut given = message(json!([text("Hi")]), reason);
        given["stop_sequence"] = sequence.clone();
        gateway.upstream.answer_json(200, &given);
        let answer = gateway.message(&own(writing(json!({})))).await;
        let message = answer.assert_ok();
        assert_eq!(message["stop_reason"], reason);
        assert_eq!(message["stop_sequence"], sequence);
    }
}

#[tokio::test]
async fn what_only_this_api_has_is_sent_to_no_other_kind_of_provider() {
    let other = FakeUpstream::start().await;
    let more = format!(
        "[providers.other]\nkind = \"openai\"\nbase_url = \"http://{}/v1\"\napi_key_env = \"PROVIDER_KEY\"\n\
         [[deployments]]\nmodel = \"{OWN}\"\nprovider = \"fake\"\nupstream_model = \"{UPSTREAM_MODEL}\"\n\
         [[deployments]]\nmodel = \"{OWN}\"\nprovider = \"other\"\nupstream_model = \"o\"\npriority = 1\n",
        other.address
    );
    let gateway = start_own(&more).await;
    other.answer_json(200, &completion("From the other"));
    let failing = response(500, "application/json", "{}");
    gateway.upstream.play(vec![Step::Send(failing)]);
    let image = json!({ "type": "image", "source": { "type": "url", "url": "https://x" } });
    let pdf = json!({ "type": "document", "source": { "type": "file", "file_id": "f" } });
    let cited = json!({ "type": "document", "citations": { "enabled": true },
        "source": { "type": "text", "data": "d" } });
    let prefill = json!([
        { "role": "user", "content": "a" }, { "role": "assistant", "content": "{" } ]);
    let redacted = json!([
        { "role": "user", "content": "a" },
        { "role": "assistant", "content": [
            { "type": "redacted_thinking", "data": "x" }, { "type": "text", "text": "b" } ] },
        { "role": "user", "content": "c" } ]);
    let bash = json!({ "tools": [{ "type": "bash_20250124", "name": "bash" }] });
    for body in [
        with_block(image),
        with_block(pdf),
        with_block(cited),
        saying(prefill),
        saying(redacted),
        writing(bash),
    ] {
        let failed = gateway.message(&own(body.clone())).await;
        assert_eq!(failed.status, 502, "{body} gives {}", failed.body);
        assert_eq!(other.calls(), 0, "{body}");
    }
    let plain = gateway.message(&own(writing(json!({})))).await;
    plain.assert_ok();
    assert_eq!(other.calls(), 1);
}

#[tokio::test]
async fn what_changes_the_meaning_is_refused_for_every_provider() {
    let gateway = start_own("").await;
    let thread = own(writing(json!({ "thread": { "type": "create" } })));
    let refused = gateway.message(&thread).await;
    let code = Some("thread_unsupported_request");
    refused.assert_message_error(400, "invalid_request_error", code, Some("thread"));
    for (field, path) in [
        (json!({ "safeguards": {} }), "safeguards"),
        (json!({ "mcp_servers": [{}] }), "mcp_servers"),
        (json!({ "inference_geo": "us" }), "inference_geo"),
        (json!({ "fallbacks": [] }), "fallbacks"),
        (json!({ "compaction": {} }), "compaction"),
    ] {
        gateway.refuses_message(&own(writing(field)), path).await;
    }
    for kind in ["web_fetch_20250910", "code_execution_20250825"] {
        let tools = json!({ "tools": [{ "type": kind, "name": "t" }] });
        let body = own(writing(tools));
        gateway.refuses_message(&body, "tools.0.type").await;
    }
    let block = json!({ "type": "server_tool_use", "id": "a", "name": "n", "input": {} });
    let path = "messages.0.content.0.type";
    gateway.refuses_message(&own(with_block(block)), path).await;
}

#[tokio::test]
async fn more_than_four_stop_sequences_are_forwarded() {
    let gateway = start_own("").await;
    let stops = json!(["1", "2", "3", "4", "5"]);
    let body = own(writing(json!({ "stop_sequences": stops })));
    let sent = gateway.forwards_message(&body).await;
    assert_eq!(sent["stop_sequences"], stops);
}

/// It fills the provider's cache and generates nothing.
#[tokio::test]
async fn a_budget_of_zero_is_forwarded() {
    let gateway = start_own("").await;
    let mut warmed = message(json!([]), "max_tokens");
    warmed["usage"] =
        json!({ "input_tokens": 2, "cache_creation_input_tokens": 9, "output_tokens": 0 });
    gateway.upstream.answer_json(200, &warmed);
    let body = own(writing(json!({ "max_tokens": 0 })));
    let sent = gateway.forwards_message(&body).await;
    assert_eq!(sent["max_tokens"], 0);
    let plain = TestGateway::start().await;
    let zero = writing(json!({ "max_tokens": 0 }));
    plain.refuses_message(&zero, "max_tokens").await;
}
