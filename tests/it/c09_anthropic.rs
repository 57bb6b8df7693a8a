//! A provider of Anthropic's Messages API: callers see no difference.

use serde_json::{Value, json};
use tollgate::{
    base::keys::Secret,
    config::{Dialect, ProviderKind, RemoteProvider, Reuse, Timeouts},
    upstream::Provider,
};

use crate::support::{
    FakeUpstream, LedgerView, Stream, TestGateway, View,
    anthropic::{
        assert_anonymous, assert_anonymous_answer, begun, block, ended, events, failure,
        hello_events, message, says, start, text,
    },
    bodies::{hello_with, tool},
    gateway::{PROVIDER_KEY, UPSTREAM_MODEL, hello},
    ledger_view,
    upstream::Received,
};

const MODEL: &str = "svc-native-fast";

async fn stream_of(gateway: &TestGateway, body: &Value, upstream: &[Value]) -> Stream {
    gateway.upstream.answer_stream(&events(upstream));
    let stream = gateway.stream(body).await;
    stream.assert_complete(MODEL);
    assert_anonymous(gateway, &stream.text);
    stream
}

#[tokio::test]
async fn a_plain_question_and_its_answer() {
    let gateway = start().await;
    let upstream = message(json!([text("Grüß "), text("dich 😀")]), "end_turn");
    gateway.upstream.answer_json(200, &upstream);
    let mut body = hello_with(
        MODEL,
        json!({ "temperature": 2, "seed": 7, "user": "mallory" }),
    );
    let messages = body["messages"].as_array_mut().unwrap();
    messages.insert(0, json!({ "role": "system", "content": "Be brief." }));
    let answer = gateway.chat(&body).await;
    let choices = &answer.assert_ok()["choices"];
    assert_eq!(choices[0]["message"]["content"], "Grüß dich 😀");
    assert_eq!(choices[0]["finish_reason"], "stop");
    assert_eq!(answer.body["model"], MODEL);
    assert_eq!(answer.body["usage"]["total_tokens"], 14);
    assert_anonymous_answer(&gateway, &answer);
    let expected = json!({
        "model": UPSTREAM_MODEL, "max_tokens": 4_096, "stream": false, "system": "Be brief.",
        "messages": [{ "role": "user", "content": [text("Hello")] }],
        "temperature": 1.0, "metadata": { "user_id": gateway.account_id },
    });
    assert_eq!(gateway.upstream.last_body(), expected);
}

/// The API's headers, and no others that could reveal more.
#[tokio::test]
async fn requests_carry_the_headers_of_the_api() {
    let gateway = start().await;
    gateway
        .upstream
        .answer_json(200, &message(json!([text("Hi")]), "end_turn"));
    gateway.chat(&hello(MODEL)).await.assert_ok();
    let received = gateway.upstream.received().pop().unwrap();
    assert_eq!(head_line(&received), "POST /v1/messages HTTP/1.1");
    assert_eq!(received.header("x-api-key"), Some(PROVIDER_KEY));
    assert_eq!(received.header("anthropic-version"), Some("2023-06-01"));
    assert_eq!(received.header("content-type"), Some("application/json"));
    assert_eq!(received.header("authorization"), None);
    assert!(!received.head.contains(&gateway.key));
    let known = [
        "x-api-key",
        "anthropic-version",
        "content-type",
        "content-length",
        "accept-encoding",
        "user-agent",
        "host",
    ];
    for line in received
        .head
        .lines()
        .skip(1)
        .filter(|line| !line.is_empty())
    {
        let name = line.split(':').next().unwrap().to_ascii_lowercase();
        assert!(known.contains(&name.as_str()), "{line}");
    }
}

fn head_line(received: &Received) -> &str {
    received.head.lines().next().unwrap()
}

/// `tollgate check` sends a free request with the same headers.
#[tokio::test]
async fn a_check_lists_the_models() {
    let upstream = FakeUpstream::start().await;
    let provider = Provider::remote(&RemoteProvider {
        kind: ProviderKind::Anthropic,
        dialect: Dialect::Anthropic,
        betas: Vec::new(),
        base_url: format!("http://{}/v1", upstream.address),
        api_keys: vec![Secret::new(PROVIDER_KEY)],
        identity: None,
        quirks: tollgate::config::Quirks::default(),
        timeouts: Timeouts::default(),
        reuse: Reuse::Pooled,
    });
    let provider = provider.unwrap();
    for (status, answers) in [(200, true), (401, false), (404, false), (529, false)] {
        upstream.answer_json(status, &json!({ "data": [] }));
        assert_eq!(provider.probe().await.is_ok(), answers, "{status}");
        let received = upstream.received().pop().unwrap();
        assert_eq!(head_line(&received), "GET /v1/models HTTP/1.1");
        assert_eq!(received.header("x-api-key"), Some(PROVIDER_KEY));
        assert_eq!(received.header("anthropic-version"), Some("2023-06-01"));
    }
}

#[tokio::test]
async fn a_stream() {
    let gateway = start().await;
    let body = hello_with(
        MODEL,
        json!({ "stream_options": { "include_usage": true } }),
    );
    let stream = stream_of(&gateway, &body, &hello_events()).await;
    assert_eq!(stream.content(0), "Hello");
    assert_eq!(stream.finish_reason(0).as_deref(), Some("stop"));
    assert_eq!(stream.usage().unwrap()["total_tokens"], 14);
    assert_eq!(gateway.upstream.last_body()["stream"], true);
}

/// If a request asks for several completions, the API returns one, and one is charged.
#[tokio::test]
async fn several_completions_are_one() {
    let gateway = start().await;
    let body = hello_with(
        MODEL,
        json!({ "n": 3, "logprobs": true, "logit_bias": { "1": 5 } }),
    );
    let stream = stream_of(&gateway, &body, &hello_events()).await;
    assert_eq!(stream.content(0), "Hello");
    gateway
        .upstream
        .answer_json(200, &message(json!([text("Hi")]), "end_turn"));
    let received = gateway.forwards(&body).await;
    for field in ["n", "logprobs", "logit_bias"] {
        assert_eq!(received.get(field), None, "{field}");
    }
}

fn calls_of(answer: &Value) -> Vec<(&str, &str, &str)> {
    let calls = answer["choices"][0]["message"]["tool_calls"].as_array();
    let calls = calls.unwrap().iter().map(|call| {
        let function = &call["function"];
        let (name, arguments) = (function["name"].as_str(), function["arguments"].as_str());
        (
            call["id"].as_str().unwrap(),
            name.unwrap(),
            arguments.unwrap(),
        )
    });
    calls.collect()
}

/// A whole tool loop: calls, results, final response.
#[tokio::test]
async fn a_tool_loop() {
    let gateway = start().await;
    let calls = json!([
        text("Let me look."),
        { "type": "tool_use", "id": "toolu_01", "name": "f", "input": { "a": 1 } },
        { "type": "tool_use", "id": "toolu_02", "name": "g", "input": {} },
    ]);
    gateway
        .upstream
        .answer_json(200, &message(calls, "tool_use"));
    let tools = json!([tool("f"), tool("g")]);
    let mut body = hello_with(
        MODEL,
        json!({ "tools": tools, "parallel_tool_calls": true }),
    );
    let answer = gateway.chat(&body).await;
    assert_eq!(
        answer.assert_ok()["choices"][0]["finish_reason"],
        "tool_calls"
    );
    let expected = [("call_01", "f", r#"{"a":1}"#), ("call_02", "g", "{}")];
    assert_eq!(calls_of(&answer.body), expected);
    assert_anonymous_answer(&gateway, &answer);

    // The caller sends back the message with the calls, and the results of its tools.
    let messages = body["messages"].as_array_mut().unwrap();
    messages.push(answer.body["choices"][0]["message"].clone());
    for (id, result) in [("call_01", "one"), ("call_02", "two")] {
        messages.push(json!({ "role": "tool", "tool_call_id": id, "content": result }));
    }
    gateway
        .upstream
        .answer_json(200, &message(json!([text("Done.")]), "end_turn"));
    let received = gateway.forwards(&body).await;
    let use_of = |id: &str, name: &str, input: Value| json!({ "type": "tool_use", "id": id, "name": name, "input": input });
    let result =
        |id: &str, text: &str| json!({ "type": "tool_result", "tool_use_id": id, "content": text });
    assert_eq!(
        received["messages"],
        json!([
            { "role": "user", "content": [text("Hello")] },
            { "role": "assistant", "content": [
                text("Let me look."),
                use_of("call_01", "f", json!({ "a": 1 })), use_of("call_02", "g", json!({})),
            ] },
            { "role": "user", "content": [result("call_01", "one"), result("call_02", "two")] },
        ]),
    );
}

#[tokio::test]
async fn streamed_tool_calls_are_numbered_from_zero() {
    let gateway = start().await;
    let thought = json!({ "type": "thinking_delta", "thinking": "Hmm" });
    let piece = |json: &str| json!({ "type": "input_json_delta", "partial_json": json });
    let use_of =
        |id: &str, name: &str| json!({ "type": "tool_use", "id": id, "name": name, "input": {} });
    let mut upstream = vec![begun(json!({ "input_tokens": 11, "output_tokens": 1 }))];
    upstream.extend(block(
        0,
        json!({ "type": "thinking", "thinking": "" }),
        &[thought],
    ));
    upstream.extend(block(1, text(""), &[says("Let me look.")]));
    upstream.extend(block(
        2,
        use_of("toolu_01", "f"),
        &[piece(""), piece("{\"a\""), piece(":1}")],
    ));
    upstream.extend(block(3, use_of("toolu_02", "g"), &[]));
    upstream.extend(ended("tool_use", json!({ "output_tokens": 3 })));
    let body = hello_with(MODEL, json!({ "tools": [tool("f"), tool("g")] }));
    let stream = stream_of(&gateway, &body, &upstream).await;
    let expected = [("call_01", "f", "{\"a\":1}"), ("call_02", "g", "{}")];
    let expected = expected.map(|(id, name, json)| (id.into(), name.into(), json.into()));
    assert_eq!(stream.tool_calls(0), expected);
    assert_eq!(stream.content(0), "Let me look.");
    assert_eq!(stream.finish_reason(0).as_deref(), Some("tool_calls"));
    assert!(!stream.text.contains("Hmm"), "thoughts stay behind");
}

/// Events after `message_stop` are not read.
#[tokio::test]
async fn a_stream_ends_with_message_stop() {
    let gateway = start().await;
    let customer = gateway.customer().await;
    let after = failure("api_error", "too late");
    let stream = [hello_events(), vec![after]].concat();
    gateway.upstream.answer_stream(&events(&stream));
    assert_eq!(customer.ask("Hello", true).await, View::Finished);
    assert_eq!(customer.ledger_view().await, LedgerView::charged(1));
}

/// 600 × 2,000 + 400 × 200 + 10 × 9,000: cache writes are ordinary input, cache reads are not.
const CACHED_PRICE: i64 = 1_200_000 + 80_000 + 90_000;

#[tokio::test]
async fn cached_input_is_charged_at_its_own_price() {
    let gateway = start().await;
    let counts = |output: u32| {
        json!({ "input_tokens": 100, "cache_creation_input_tokens": 500,
            "cache_read_input_tokens": 400, "output_tokens": output })
    };
    let expected = |calls: u32| LedgerView {
        spent: i64::from(calls) * CACHED_PRICE,
        charges: calls as usize,
        requests: calls.into(),
        tokens: u64::from(calls) * 1_010,
    };
    let customer = gateway.customer().await;
    let mut whole = message(json!([text("Hi")]), "end_turn");
    whole["usage"] = counts(10);
    gateway.upstream.answer_json(200, &whole);
    let answer = gateway
        .chat_as(&customer.key, &hello(ledger_view::MODEL))
        .await;
    let usage = json!({ "prompt_tokens": 1_000, "completion_tokens": 10, "total_tokens": 1_010,
        "cost": "0.001370",
        "prompt_tokens_details": { "cached_tokens": 400, "cache_write_tokens": 500 } });
    assert_eq!(answer.assert_ok()["usage"], usage);
    assert_eq!(customer.ledger_view().await, expected(1));

    let mut stream = vec![begun(counts(1))];
    stream.extend(block(0, text(""), &[says("Hi")]));
    stream.extend(ended("end_turn", json!({ "output_tokens": 10 })));
    gateway.upstream.answer_stream(&events(&stream));
    assert_eq!(customer.ask("Hello", true).await, View::Finished);
    assert_eq!(customer.ledger_view().await, expected(2));
}

/// A stream without a final output count is free; the count at its beginning is not used as a price.
#[tokio::test]
async fn a_stream_without_final_counts_is_free() {
    let gateway = start().await;
    let customer = gateway.customer().await;
    for usage in [
        Value::Null,
        json!({}),
        json!({ "output_tokens": null }),
        json!({ "output_tokens": -3 }),
        json!([3]),
    ] {
        let mut stream = hello_events();
        let at = stream.len() - 2;
        stream[at]["usage"] = usage.clone();
        gateway.upstream.answer_stream(&events(&stream));
        assert_eq!(customer.ask("Hello", true).await, View::Finished, "{usage}");
    }
    customer.ledger_view().await.assert_uncounted(5);
}

#[tokio::test]
async fn a_refusal_by_the_model_is_filtered_content() {
    let gateway = start().await;
    gateway
        .upstream
        .answer_json(200, &message(json!([]), "refusal"));
    let answer = gateway.chat(&hello(MODEL)).await;
    let choice = &answer.assert_ok()["choices"][0];
    assert_eq!(choice["finish_reason"], "content_filter");
    assert_eq!(choice["message"]["content"], Value::Null);
    let mut upstream = vec![begun(json!({ "input_tokens": 11, "output_tokens": 1 }))];
    upstream.extend(ended("refusal", json!({ "output_tokens": 1 })));
    let stream = stream_of(&gateway, &hello(MODEL), &upstream).await;
    assert_eq!(stream.finish_reason(0).as_deref(), Some("content_filter"));
}
