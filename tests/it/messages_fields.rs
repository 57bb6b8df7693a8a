//! §4.9: fields of every wrong type, `null`, and values at the edge of what is allowed.

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{
    TestGateway,
    gateway::answer,
    messages::{PATH, with_block, writing},
};

#[tokio::test]
async fn every_field_of_a_wrong_type_is_refused_with_its_path() {
    let gateway = TestGateway::start().await;
    for (field, path) in [
        (json!({ "max_tokens": 1.5 }), "max_tokens"),
        (json!({ "max_tokens": true }), "max_tokens"),
        (json!({ "messages": "x" }), "messages"),
        (
            json!({ "messages": [{ "role": 5, "content": "x" }] }),
            "messages.0.role",
        ),
        (
            json!({ "messages": [{ "role": "user", "content": {} }] }),
            "messages.0.content",
        ),
        (
            json!({ "messages": [{ "role": "user", "content": [5] }] }),
            "messages.0.content.0",
        ),
        (json!({ "system": {} }), "system"),
        (json!({ "system": [5] }), "system.0"),
        (json!({ "system": [{ "text": "a" }] }), "system.0"),
        (
            json!({ "system": [{ "type": "text", "text": 5 }] }),
            "system.0.text",
        ),
        (json!({ "temperature": true }), "temperature"),
        (json!({ "temperature": -0.1 }), "temperature"),
        (json!({ "top_p": "x" }), "top_p"),
        (json!({ "top_p": 1.1 }), "top_p"),
        (json!({ "top_k": "x" }), "top_k"),
        (json!({ "stop_sequences": {} }), "stop_sequences"),
        (json!({ "stop_sequences": [""] }), "stop_sequences.0"),
        (json!({ "stream": 1 }), "stream"),
        (json!({ "thinking": {} }), "thinking"),
        (json!({ "thinking": { "type": 5 } }), "thinking.type"),
        (
            json!({ "thinking": { "type": "enabled", "budget_tokens": "x" } }),
            "thinking.budget_tokens",
        ),
        (
            json!({ "thinking": { "type": "enabled", "budget_tokens": -1 } }),
            "thinking.budget_tokens",
        ),
        (
            json!({ "thinking": { "type": "adaptive", "display": 5 } }),
            "thinking.display",
        ),
        (
            json!({ "output_config": { "effort": 5 } }),
            "output_config.effort",
        ),
        (
            json!({ "output_config": { "format": 5 } }),
            "output_config.format",
        ),
        (
            json!({ "output_config": { "format": {} } }),
            "output_config.format",
        ),
        (
            json!({ "output_config": { "format": { "type": 5 } } }),
            "output_config.format.type",
        ),
        (
            json!({ "output_config": { "format": { "type": "json_schema", "schema": "x" } } }),
            "output_config.format.schema",
        ),
        (json!({ "output_format": 5 }), "output_format"),
        (
            json!({ "output_format": { "type": "xml" } }),
            "output_format.type",
        ),
        (
            json!({ "output_format": { "type": "json_schema" } }),
            "output_format.schema",
        ),
        (json!({ "metadata": 5 }), "metadata"),
        (json!({ "context_management": 5 }), "context_management"),
        (json!({ "speed": 5 }), "speed"),
        (json!({ "mcp_servers": {} }), "mcp_servers"),
        (json!({ "tools": [5] }), "tools.0"),
        (json!({ "tool_choice": {} }), "tool_choice"),
        (json!({ "tool_choice": { "type": 5 } }), "tool_choice.type"),
        (
            json!({ "tool_choice": { "type": "tool", "name": 5 } }),
            "tool_choice.name",
        ),
    ] {
        gateway.refuses_message(&writing(field), path).await;
    }
}

#[tokio::test]
async fn every_field_of_a_tool_and_a_block_is_checked() {
    let gateway = TestGateway::start().await;
    for (field, value, path) in [
        ("type", json!(5), "type"),
        ("name", json!(5), "name"),
        ("name", json!(""), "name"),
        ("description", json!(5), "description"),
        ("input_schema", json!([]), "input_schema"),
        ("strict", json!("x"), "strict"),
        ("defer_loading", json!("x"), "defer_loading"),
        ("allowed_callers", json!("direct"), "allowed_callers"),
        ("allowed_callers", json!([5]), "allowed_callers.0"),
        ("input_examples", json!({}), "input_examples"),
        ("input_examples", json!([5]), "input_examples.0"),
    ] {
        let mut tool = json!({ "name": "f", "input_schema": {} });
        tool[field] = value;
        let body = writing(json!({ "tools": [tool] }));
        let path = format!("tools.0.{path}");
        gateway.refuses_message(&body, &path).await;
    }
    let source = |source: Value| json!({ "type": "document", "source": source });
    for (block, path) in [
        (json!({ "type": "text", "citations": 5 }), "citations"),
        (
            json!({ "type": "document", "citations": { "enabled": 5 } }),
            "citations.enabled",
        ),
        (json!({ "type": "tool_use", "id": 5 }), "id"),
        (json!({ "type": "tool_use", "name": 5 }), "name"),
        (json!({ "type": "tool_use", "input": "x" }), "input"),
        (
            json!({ "type": "tool_result", "tool_use_id": 5 }),
            "tool_use_id",
        ),
        (
            json!({ "type": "tool_result", "tool_use_id": "" }),
            "tool_use_id",
        ),
        (json!({ "type": "tool_result", "content": 5 }), "content"),
        (
            json!({ "type": "tool_result", "content": [5] }),
            "content.0",
        ),
        (
            json!({ "type": "tool_result", "content": [{ "type": "text", "text": 5 }] }),
            "content.0.text",
        ),
        (json!({ "type": "tool_result", "is_error": 1 }), "is_error"),
        (
            json!({ "type": "tool_reference", "tool_name": 5 }),
            "tool_name",
        ),
        (json!({ "type": "tool_reference" }), "tool_name"),
        (source(json!(5)), "source"),
        (source(json!({})), "source"),
        (source(json!({ "type": 5 })), "source.type"),
        (source(json!({ "type": "text", "data": 5 })), "source.data"),
        (
            source(json!({ "type": "content", "content": 5 })),
            "source.content",
        ),
        (source(json!({ "type": "content" })), "source.content"),
        (json!({ "type": "document", "title": 5 }), "title"),
        (json!({ "type": "document", "context": 5 }), "context"),
        (json!({ "type": "thinking", "thinking": 5 }), "thinking"),
        (json!({ "type": "thinking", "signature": 5 }), "signature"),
        (json!({ "type": "redacted_thinking", "data": 5 }), "data"),
    ] {
        let path = format!("messages.0.content.0.{path}");
        gateway.refuses_message(&with_block(block), &path).await;
    }
}

#[tokio::test]
async fn null_is_absent_in_every_object() {
    let gateway = TestGateway::start().await;
    let body = writing(json!({
        "top_p": null, "top_k": null, "output_format": null, "context_management": null, "speed": null,
        "safeguards": null, "mcp_servers": null, "inference_geo": null, "fallbacks": null, "compaction": null,
        "metadata": { "user_id": null },
        "output_config": { "effort": null, "format": null },
        "thinking": { "type": "adaptive", "budget_tokens": null, "display": null },
        "tools": [{ "type": null, "name": "f", "description": null, "input_schema": {}, "strict": null,
            "defer_loading": null, "allowed_callers": null, "input_examples": null }],
        "tool_choice": { "type": "auto", "name": null, "disable_parallel_tool_use": null },
        "messages": [{ "role": "user", "content": [
            { "type": "text", "text": "Hello", "citations": null, "source": null, "content": null } ] }],
    }));
    let sent = gateway.forwards_message(&body).await;
    let function = json!({ "name": "f", "parameters": {} });
    let expected = json!({
        "model": "vendor-model-9", "stream": false, "user": gateway.account_id, "max_tokens": 100,
        "messages": [{ "role": "user", "content": "Hello" }],
        "tools": [{ "type": "function", "function": function }], "tool_choice": "auto",
    });
    assert_eq!(sent, expected);
}

#[tokio::test]
async fn effort_is_the_nearest_and_wins_over_the_thinking_budget() {
    let gateway = TestGateway::start().await;
    let thinking = |budget: u64| json!({ "type": "enabled", "budget_tokens": budget });
    for (field, effort) in [
        (json!({ "output_config": { "effort": "low" } }), "low"),
        (json!({ "output_config": { "effort": "medium" } }), "medium"),
        (json!({ "output_config": { "effort": "high" } }), "high"),
        (json!({ "output_config": { "effort": "xhigh" } }), "high"),
        (json!({ "output_config": { "effort": "max" } }), "high"),
        (json!({ "thinking": thinking(4_095) }), "low"),
        (json!({ "thinking": thinking(16_383) }), "medium"),
        (
            json!({ "thinking": thinking(16_384), "output_config": { "effort": "low" } }),
            "low",
        ),
    ] {
        let mut body = writing(field.clone());
        body["max_tokens"] = 20_000.into();
        let sent = gateway.forwards_message(&body).await;
        assert_eq!(sent["reasoning_effort"], effort, "{field}");
    }
}

#[tokio::test]
async fn sampling_is_taken_under_every_version() {
    let gateway = TestGateway::start().await;
    let body = writing(json!({ "temperature": 0.5, "top_p": 0.25, "top_k": 0 }));
    for version in [None, Some("2023-06-01"), Some("2026-10-21"), Some("later")] {
        let mut request = gateway.request(Method::POST, PATH).json(&body);
        if let Some(version) = version {
            request = request.header("anthropic-version", version);
        }
        answer(request).await.assert_ok();
        let sent = gateway.upstream.last_body();
        assert_eq!(sent["temperature"], 0.5, "{version:?}");
        assert_eq!((&sent["top_p"], &sent["top_k"]), (&json!(0.25), &json!(0)));
    }
}

#[tokio::test]
async fn a_budget_has_the_models_minimum() {
    let gateway = TestGateway::start().await;
    let least = writing(json!({ "max_tokens": 1 }));
    assert_eq!(gateway.forwards_message(&least).await["max_tokens"], 1);
    let below = writing(json!({ "model": "svc-standard", "max_tokens": 127 }));
    let message = gateway.refuses_message(&below, "max_tokens").await;
    assert!(
        message.contains("`svc-standard` takes from 128 to 66000"),
        "{message}"
    );
}

#[tokio::test]
async fn a_number_that_no_provider_takes_is_refused_with_its_path() {
    let gateway = TestGateway::start().await;
    let body = writing(json!({ "top_k": u64::MAX }));
    gateway.refuses_message(&body, "top_k").await;
}

#[tokio::test]
async fn a_body_of_too_many_values_is_refused_with_the_field() {
    let gateway = TestGateway::start().await;
    let many = vec![0; 100_001];
    for field in ["messages", "tools", "a_field_of_next_year"] {
        let body = writing(json!({ field: many }));
        gateway.refuses_message(&body, field).await;
    }
}
