//! Servers with dialects of the OpenAI API: their differences are configuration.

use serde_json::{Value, json};

use crate::support::{
    FakeUpstream, TestGateway,
    bodies::{hello_with, tool},
    upstream::completion,
};

const MODEL: &str = "svc-pro-coding";

/// Starts a gateway whose model is served by a server with these settings.
async fn with(settings: &str) -> (TestGateway, FakeUpstream) {
    let upstream = FakeUpstream::start().await;
    let config = format!(
        "[providers.odd]\nkind = \"openai\"\nbase_url = \"http://{}/openai/v1\"\n\
         api_key_env = \"PROVIDER_KEY\"\n{settings}\n\
         [[deployments]]\nmodel = \"{MODEL}\"\nprovider = \"odd\"\n",
        upstream.address
    );
    (TestGateway::start_with(&config).await, upstream)
}

fn everything() -> Value {
    hello_with(
        MODEL,
        json!({
            "max_tokens": 300, "seed": 7, "temperature": 0.5, "stop": ["x"], "n": 1,
            "frequency_penalty": 1, "logit_bias": { "5": 1 }, "parallel_tool_calls": false,
            "tools": [tool("f")], "reasoning_effort": "low",
        }),
    )
}

#[tokio::test]
async fn the_key_header_and_the_query_are_configurable() {
    let settings = "key_header = \"Api-Key\"\nquery = \"api-version=2026-01-01\"";
    let (gateway, upstream) = with(settings).await;
    gateway.chat(&everything()).await.assert_ok();
    let received = upstream.received().pop().unwrap();
    let line = received.head.lines().next().unwrap();
    let expected = "POST /openai/v1/chat/completions?api-version=2026-01-01 HTTP/1.1";
    assert_eq!(line, expected);
    let key = Some(crate::support::gateway::PROVIDER_KEY);
    assert_eq!(received.header("api-key"), key);
    assert_eq!(received.header("authorization"), None);
}

#[tokio::test]
async fn the_name_of_the_budget_is_configurable() {
    for (settings, name, other) in [
        ("", "max_tokens", "max_completion_tokens"),
        (
            "max_tokens_field = \"max_completion_tokens\"",
            "max_completion_tokens",
            "max_tokens",
        ),
    ] {
        let (gateway, upstream) = with(settings).await;
        gateway.chat(&everything()).await.assert_ok();
        let body = upstream.last_body();
        assert_eq!(
            (&body[name], body.get(other)),
            (&json!(300), None),
            "{settings}"
        );
    }
}

#[tokio::test]
async fn unsupported_fields_are_dropped_and_the_rest_is_unchanged() {
    let (gateway, upstream) = with("").await;
    gateway.chat(&everything()).await.assert_ok();
    let mut expected = upstream.last_body();
    let omitted = [
        "seed",
        "user",
        "parallel_tool_calls",
        "logit_bias",
        "temperature",
    ];
    let names = omitted.map(|name| format!("\"{name}\"")).join(", ");
    let settings = format!("omit = [{names}]\nrename = {{ stop = \"stop_words\" }}");
    let (gateway, upstream) = with(&settings).await;
    gateway.chat(&everything()).await.assert_ok();
    for name in omitted {
        assert!(
            expected.as_object_mut().unwrap().remove(name).is_some(),
            "{name}"
        );
    }
    let fields = expected.as_object_mut().unwrap();
    let stop = fields.remove("stop").unwrap();
    fields.insert("stop_words".into(), stop);
    assert_eq!(upstream.last_body(), expected);
}

/// If a server cannot stream, or reports no usage in streams, the gateway streams plain responses.
#[tokio::test]
async fn plain_responses_are_streamed_for_a_server_that_cannot_stream() {
    let (gateway, upstream) = with("streams = false").await;
    let mut answer = completion("Hello");
    answer["choices"][0]["message"]["tool_calls"] = json!([
        { "id": "call_1", "type": "function", "function": { "name": "f", "arguments": "{\"a\":1}" } },
        { "id": "call_2", "type": "function", "function": { "name": "g", "arguments": "{}" } },
    ]);
    answer["choices"][0]["finish_reason"] = "tool_calls".into();
    upstream.answer_json(200, &answer);
    let mut body = everything();
    body["stream_options"] = json!({ "include_usage": true });
    let stream = gateway.stream(&body).await;
    stream.assert_complete(MODEL);
    assert_eq!(upstream.last_body()["stream"], false);
    assert_eq!(stream.content(0), "Hello");
    assert_eq!(stream.finish_reason(0).as_deref(), Some("tool_calls"));
    let calls = stream.tool_calls(0);
    let call = |id: &str, name: &str, arguments: &str| (id.into(), name.into(), arguments.into());
    assert_eq!(
        calls,
        [call("call_1", "f", "{\"a\":1}"), call("call_2", "g", "{}")]
    );
    assert_eq!(stream.usage().unwrap()["total_tokens"], 14);
    upstream.answer(500, "text/plain", "no");
    let failed = gateway
        .chat(&hello_with(MODEL, json!({ "stream": true })))
        .await;
    failed.assert_error(502, "upstream_error", Some("500"), None);
}

/// A server without tool support is not offered the built-in tools; the caller's tools are forwarded all the same.
#[tokio::test]
async fn a_server_without_tools_is_not_offered_built_in_tools() {
    let hello = hello_with(MODEL, json!({ "parallel_tool_calls": false }));
    for (settings, offered) in [("", true), ("builtin_tools = false", false)] {
        let (gateway, upstream) = with(settings).await;
        gateway.chat(&hello).await.assert_ok();
        let sent = upstream.last_body();
        for field in ["tools", "parallel_tool_calls"] {
            assert_eq!(sent.get(field).is_some(), offered, "{field}: {settings}");
        }
        gateway.chat(&everything()).await.assert_ok();
        assert_eq!(upstream.last_body()["tools"][0]["function"]["name"], "f");
    }
}
