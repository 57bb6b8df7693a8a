//! §4.9: each field of a request of the Messages API reaches the provider, or is refused with its path.

use serde_json::{Value, json};

use crate::support::{
    TestGateway,
    messages::{MODEL, saying, tool, writing},
};

/// What the provider receives for the smallest request, with fields added or replaced.
fn sent(gateway: &TestGateway, more: Value) -> Value {
    let mut sent = json!({
        "model": "vendor-model-9", "stream": false, "user": gateway.account_id, "max_tokens": 100,
        "messages": [{ "role": "user", "content": "Hello" }],
    });
    let more = more.as_object().unwrap().clone();
    sent.as_object_mut().unwrap().extend(more);
    sent
}

#[tokio::test]
async fn each_field_becomes_that_of_a_chat() {
    let gateway = TestGateway::start().await;
    let schema = json!({ "type": "object", "properties": { "a": { "type": "string" } } });
    let format = json!({ "type": "json_schema", "schema": schema });
    let strict = json!({ "response_format": {
        "type": "json_schema",
        "json_schema": { "name": "output", "strict": true, "schema": schema },
    } });
    for (field, expected) in [
        (json!({}), json!({})),
        (
            json!({ "temperature": 1, "top_p": 0.5, "top_k": 3 }),
            json!({ "temperature": 1.0, "top_p": 0.5, "top_k": 3 }),
        ),
        (
            json!({ "stop_sequences": ["a", "b"] }),
            json!({ "stop": ["a", "b"] }),
        ),
        (json!({ "stop_sequences": [] }), json!({})),
        (
            json!({ "output_config": { "effort": "low" } }),
            json!({ "reasoning_effort": "low" }),
        ),
        (
            json!({ "output_config": { "effort": "max" }, "thinking": { "type": "disabled" } }),
            json!({ "reasoning_effort": "high" }),
        ),
        (
            json!({ "thinking": { "type": "disabled" } }),
            json!({ "reasoning_effort": "low" }),
        ),
        (
            json!({ "thinking": { "type": "adaptive", "display": "omitted" } }),
            json!({}),
        ),
        (
            json!({ "thinking": { "type": "between_tools", "display": "updates" } }),
            json!({}),
        ),
        (
            json!({ "thinking": { "type": "enabled", "budget_tokens": 1024 }, "max_tokens": 1025 }),
            json!({ "reasoning_effort": "low", "max_tokens": 1025 }),
        ),
        (
            json!({ "thinking": { "type": "enabled", "budget_tokens": 4096 }, "max_tokens": 5000 }),
            json!({ "reasoning_effort": "medium", "max_tokens": 5000 }),
        ),
        (
            json!({ "thinking": { "type": "enabled", "budget_tokens": 16384 }, "max_tokens": 20000 }),
            json!({ "reasoning_effort": "high", "max_tokens": 20000 }),
        ),
        (
            json!({ "output_config": { "format": format } }),
            strict.clone(),
        ),
        (json!({ "output_format": format }), strict),
        (json!({ "metadata": { "user_id": "someone" } }), json!({})),
        (
            json!({
                "service_tier": "auto", "diagnostics": {}, "user_profile_id": "x", "tags": [1],
                "speed": "standard", "mcp_servers": [], "a_field_of_next_year": { "x": [1] },
                "cache_control": { "type": "ephemeral", "ttl": "1h" },
                "context_management": { "edits": [{ "type": "clear_thinking" }] },
            }),
            json!({}),
        ),
        (
            json!({
                "system": null, "temperature": null, "tools": null, "tool_choice": null,
                "thinking": null, "stop_sequences": null, "stream": null, "metadata": null,
                "output_config": null, "thread": null, "container": null,
            }),
            json!({}),
        ),
    ] {
        let body = gateway.forwards_message(&writing(field.clone())).await;
        assert_eq!(body, sent(&gateway, expected), "{field}");
    }
}

#[tokio::test]
async fn a_wrong_type_is_refused_with_its_path_and_costs_nothing() {
    let gateway = TestGateway::start().await;
    let before = gateway.balance().await;
    for (field, path) in [
        (json!({ "model": 5 }), "model"),
        (json!({ "model": "" }), "model"),
        (json!({ "model": null }), "model"),
        (json!({ "max_tokens": "9" }), "max_tokens"),
        (json!({ "max_tokens": -1 }), "max_tokens"),
        (json!({ "max_tokens": null }), "max_tokens"),
        (json!({ "max_tokens": 0 }), "max_tokens"),
        (json!({ "max_tokens": 10_000_000 }), "max_tokens"),
        (json!({ "messages": [] }), "messages"),
        (json!({ "messages": {} }), "messages"),
        (json!({ "messages": null }), "messages"),
        (json!({ "messages": [5] }), "messages.0"),
        (json!({ "messages": [{ "content": "x" }] }), "messages.0"),
        (json!({ "messages": [{ "role": "user" }] }), "messages.0"),
        (
            json!({ "messages": [{ "role": "tool", "content": "x" }] }),
            "messages.0.role",
        ),
        (
            json!({ "messages": [{ "role": "user", "content": 5 }] }),
            "messages.0.content",
        ),
        (
            json!({ "messages": [{ "role": "user", "content": [] }] }),
            "messages.0.content",
        ),
        (
            json!({ "messages": [{ "role": "user", "content": [{ "type": "text", "text": 5 }] }] }),
            "messages.0.content.0.text",
        ),
        (json!({ "system": 5 }), "system"),
        (json!({ "system": [{ "type": "text" }] }), "system.0.text"),
        (
            json!({ "system": [{ "type": "image", "source": { "type": "url" } }] }),
            "system.0.type",
        ),
        (json!({ "temperature": "1" }), "temperature"),
        (json!({ "temperature": 1.5 }), "temperature"),
        (json!({ "top_p": -0.1 }), "top_p"),
        (json!({ "top_p": [] }), "top_p"),
        (json!({ "top_k": -1 }), "top_k"),
        (json!({ "top_k": 1.5 }), "top_k"),
        (json!({ "stop_sequences": "x" }), "stop_sequences"),
        (json!({ "stop_sequences": ["x", 5] }), "stop_sequences.1"),
        (
            json!({ "stop_sequences": ["x", " \n"] }),
            "stop_sequences.1",
        ),
        (
            json!({ "stop_sequences": ["1", "2", "3", "4", "5"] }),
            "stop_sequences",
        ),
        (json!({ "stream": "yes" }), "stream"),
        (json!({ "thinking": true }), "thinking"),
        (json!({ "thinking": { "type": "deep" } }), "thinking.type"),
        (
            json!({ "thinking": { "type": "enabled" } }),
            "thinking.budget_tokens",
        ),
        (
            json!({ "thinking": { "type": "enabled", "budget_tokens": 1023 }, "max_tokens": 2000 }),
            "thinking.budget_tokens",
        ),
        (
            json!({ "thinking": { "type": "enabled", "budget_tokens": 2000 }, "max_tokens": 2000 }),
            "thinking.budget_tokens",
        ),
        (
            json!({ "thinking": { "type": "adaptive", "display": "all" } }),
            "thinking.display",
        ),
        (json!({ "output_config": 5 }), "output_config"),
        (
            json!({ "output_config": { "effort": "huge" } }),
            "output_config.effort",
        ),
        (
            json!({ "output_config": { "format": { "type": "xml" } } }),
            "output_config.format.type",
        ),
        (
            json!({ "output_config": { "format": { "type": "json_schema" } } }),
            "output_config.format.schema",
        ),
        (
            json!({ "output_format": { "type": "json_schema", "schema": [] } }),
            "output_format.schema",
        ),
        (json!({ "metadata": { "user_id": 5 } }), "metadata.user_id"),
        (
            json!({ "context_management": { "edits": 5 } }),
            "context_management.edits",
        ),
        (json!({ "tools": {} }), "tools"),
        (json!({ "tools": [{ "name": 5 }] }), "tools.0.name"),
        (json!({ "tool_choice": "auto" }), "tool_choice"),
        (json!({ "safeguards": {} }), "safeguards"),
        (json!({ "mcp_servers": [{}] }), "mcp_servers"),
        (json!({ "container": "c" }), "container"),
        (json!({ "speed": "fast" }), "speed"),
        (json!({ "inference_geo": "us" }), "inference_geo"),
        (json!({ "fallbacks": [] }), "fallbacks"),
        (json!({ "compaction": {} }), "compaction"),
    ] {
        gateway.refuses_message(&writing(field), path).await;
    }
    assert_eq!(gateway.balance().await, before);
}

#[tokio::test]
async fn a_body_that_is_not_json_is_refused() {
    let gateway = TestGateway::start().await;
    for body in [
        "",
        "{",
        "[]",
        "null",
        "\u{fe}",
        r#"{"model":"a","model":"b"}"#,
    ] {
        let request = gateway.request(reqwest::Method::POST, "/v1/messages");
        let refused = crate::support::gateway::answer(request.body(body)).await;
        assert_eq!(refused.status, 400, "{body}");
        let error = refused.message_error();
        assert_eq!(error["type"], "invalid_request_error", "{body}");
    }
}

#[tokio::test]
async fn a_budget_above_the_maximum_is_refused_in_words_that_clients_know() {
    let gateway = TestGateway::start().await;
    let body = writing(json!({ "max_tokens": 128_000 }));
    let message = gateway.refuses_message(&body, "max_tokens").await;
    assert_eq!(
        message,
        format!(
            "max_tokens: 128000 > 66000, which is the maximum allowed number of output tokens for {MODEL}"
        )
    );
}

#[tokio::test]
async fn threads_have_a_code_of_their_own() {
    let gateway = TestGateway::start().await;
    for thread in [
        json!({ "type": "create" }),
        json!({ "type": "continue", "id": "t" }),
    ] {
        let refused = gateway.message(&writing(json!({ "thread": thread }))).await;
        let code = Some("thread_unsupported_request");
        refused.assert_message_error(400, "invalid_request_error", code, Some("thread"));
    }
    assert_eq!(gateway.upstream.calls(), 0);
}

#[tokio::test]
async fn the_system_prompt_is_the_first_message_and_later_ones_keep_their_place() {
    let gateway = TestGateway::start().await;
    let system = json!([
        { "type": "text", "text": "one" },
        { "type": "text", "text": "two", "cache_control": { "type": "ephemeral" } },
    ]);
    let mut body = saying(json!([
        { "role": "user", "content": "a" },
        { "role": "system", "content": [{ "type": "text", "text": "now", "cache_control": {} }] },
        { "role": "assistant", "content": "b" },
        { "role": "user", "content": [{ "type": "text", "text": "c" }, { "type": "text", "text": "d" }] },
        { "role": "system", "content": "last" },
    ]));
    body["system"] = system;
    let sent = gateway.forwards_message(&body).await;
    assert_eq!(
        sent["messages"],
        json!([
            { "role": "system", "content": "one\ntwo" },
            { "role": "user", "content": "a" },
            { "role": "system", "content": "now" },
            { "role": "assistant", "content": "b" },
            { "role": "user", "content": "c\nd" },
            { "role": "system", "content": "last" },
        ])
    );
}

#[tokio::test]
async fn the_last_message_is_not_the_assistants() {
    let gateway = TestGateway::start().await;
    let prefilled = saying(json!([
        { "role": "user", "content": "a" }, { "role": "assistant", "content": "I" },
    ]));
    gateway.refuses_message(&prefilled, "messages.1").await;
}

#[tokio::test]
async fn the_query_and_headers_of_clients_have_no_effect() {
    let gateway = TestGateway::start().await;
    let url = gateway.url("/v1/messages?beta=true");
    let request = gateway
        .client
        .post(url)
        .header("x-api-key", &gateway.key)
        .header("anthropic-version", "2030-01-01")
        .header("anthropic-beta", "a-2025-01-01,b")
        .header("anthropic-beta", "c")
        .header("x-stainless-lang", "rust")
        .header("anthropic-dangerous-direct-browser-access", "true")
        .header("anthropic-header-of-next-year", "x")
        .header("x-app", "cli")
        .header("x-claude-code-session-id", "5f0c-1")
        .header("x-claude-code-agent-id", "agent-2")
        .json(&writing(json!({ "tools": [tool("f")] })));
    let answer = crate::support::gateway::answer(request).await;
    answer.assert_ok();
    let head = gateway.upstream.received()[0].head.to_lowercase();
    for name in [
        "anthropic",
        "stainless",
        "x-api-key",
        "x-app",
        "claude-code",
    ] {
        assert!(!head.contains(name), "{name}: {head}");
    }
}
