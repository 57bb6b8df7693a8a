//! §4.9: tools and `tool_choice`.

use serde_json::{Value, json};

use crate::support::{
    TestGateway,
    messages::{tool, tool_result, tool_use, writing},
};

fn function(name: &str) -> Value {
    json!({ "type": "function", "function": {
        "name": name, "description": "a tool", "parameters": { "type": "object" } } })
}

#[tokio::test]
async fn tools_become_functions() {
    let gateway = TestGateway::start().await;
    let schema = json!({ "$schema": "http://json-schema.org/draft-07/schema#", "type": "object" });
    for (tool, function) in [
        (
            json!({ "name": "f", "input_schema": schema }),
            json!({ "name": "f", "parameters": schema }),
        ),
        (
            json!({ "type": null, "name": "a-B_9", "input_schema": {}, "strict": true,
                "cache_control": {}, "eager_input_streaming": true, "allowed_callers": ["x", "direct"] }),
            json!({ "name": "a-B_9", "parameters": {}, "strict": true }),
        ),
        (
            json!({ "type": "custom", "name": "f", "description": "d", "input_schema": {},
                "input_examples": [{ "a": 1 }, { "a": 2 }] }),
            json!({ "name": "f", "description": "d\n\nExamples of input:\n{\"a\":1}\n{\"a\":2}", "parameters": {} }),
        ),
    ] {
        let sent = gateway
            .forwards_message(&writing(json!({ "tools": [tool] })))
            .await;
        assert_eq!(
            sent["tools"],
            json!([{ "type": "function", "function": function }])
        );
    }
    let none = gateway
        .forwards_message(&writing(json!({ "tools": [] })))
        .await;
    assert_eq!(none.get("tools"), None);
    let longest = "n".repeat(128);
    let body = writing(json!({ "tools": [tool(&longest)] }));
    let sent = gateway.forwards_message(&body).await;
    assert_eq!(sent["tools"], json!([function(&longest)]));
}

/// Clients turn this refusal into a failed tool result, and the session goes on.
#[tokio::test]
async fn tools_that_this_api_defines_are_refused() {
    let gateway = TestGateway::start().await;
    for kind in [
        "web_search_20250305",
        "web_fetch_20250910",
        "code_execution_20250825",
        "bash_20250124",
        "text_editor_20250728",
        "memory_20250818",
        "computer_20251124",
        "tool_search_tool_bm25_20251119",
        "mcp_toolset",
        "function",
        "",
    ] {
        let tools = json!([tool("f"), { "type": kind, "name": "t", "input_schema": {} }]);
        let body = writing(json!({ "tools": tools }));
        let message = gateway.refuses_message(&body, "tools.1.type").await;
        assert!(message.contains(&format!("`{kind}`")), "{message}");
    }
}

#[tokio::test]
async fn the_choice_is_translated() {
    let gateway = TestGateway::start().await;
    for (choice, sent, parallel) in [
        (json!({ "type": "auto" }), json!("auto"), Value::Null),
        (json!({ "type": "any" }), json!("required"), Value::Null),
        (json!({ "type": "none" }), json!("none"), Value::Null),
        (
            json!({ "type": "tool", "name": "g", "disable_parallel_tool_use": true }),
            json!({ "type": "function", "function": { "name": "g" } }),
            json!(false),
        ),
        (
            json!({ "type": "auto", "disable_parallel_tool_use": false }),
            json!("auto"),
            Value::Null,
        ),
    ] {
        let body = json!({ "tools": [tool("f"), tool("g")], "tool_choice": choice });
        let body = gateway.forwards_message(&writing(body)).await;
        assert_eq!(body["tool_choice"], sent, "{choice}");
        assert_eq!(body["parallel_tool_calls"], parallel, "{choice}");
    }
    // Without tools a choice has no effect.
    for kind in ["auto", "any", "none", "tool"] {
        let choice = json!({ "type": kind, "name": "f", "disable_parallel_tool_use": true });
        let body = writing(json!({ "tools": [], "tool_choice": choice }));
        let sent = gateway.forwards_message(&body).await;
        for field in ["tools", "tool_choice", "parallel_tool_calls"] {
            assert_eq!(sent.get(field), None, "{kind}");
        }
    }
}

#[tokio::test]
async fn a_tool_that_cannot_be_served_is_refused_with_its_path() {
    let gateway = TestGateway::start().await;
    for (second, field) in [
        (json!({ "name": "g" }), "input_schema"),
        (json!({ "name": "g", "input_schema": "x" }), "input_schema"),
        (json!({ "input_schema": {} }), "name"),
        (json!({ "name": "a b", "input_schema": {} }), "name"),
        (
            json!({ "name": "n".repeat(129), "input_schema": {} }),
            "name",
        ),
        (tool("f"), "name"),
        (
            json!({ "name": "g", "input_schema": {}, "allowed_callers": ["code_execution_20250825"] }),
            "allowed_callers",
        ),
        (
            json!({ "type": "web_search_20250305", "name": "web_search" }),
            "type",
        ),
        (json!({ "type": "bash_20250124", "name": "bash" }), "type"),
        (
            json!({ "type": "text_editor_20250728", "name": "e" }),
            "type",
        ),
        (
            json!({ "type": "tool_search_tool_regex_20251119", "name": "t" }),
            "type",
        ),
    ] {
        let body = writing(json!({ "tools": [tool("f"), second] }));
        gateway
            .refuses_message(&body, &format!("tools.1.{field}"))
            .await;
    }
    for (choice, path) in [
        (
            json!({ "type": "tool", "name": "other" }),
            "tool_choice.name",
        ),
        (json!({ "type": "tool" }), "tool_choice.name"),
        (json!({ "type": "some" }), "tool_choice.type"),
        (
            json!({ "type": "auto", "disable_parallel_tool_use": 1 }),
            "tool_choice.disable_parallel_tool_use",
        ),
    ] {
        let body = writing(json!({ "tools": [tool("f")], "tool_choice": choice }));
        gateway.refuses_message(&body, path).await;
    }
    let many: Vec<_> = (0..101).map(|at| tool(&format!("f{at}"))).collect();
    gateway
        .refuses_message(&writing(json!({ "tools": many })), "tools")
        .await;
}

#[tokio::test]
async fn a_deferred_tool_is_offered_once_it_is_loaded() {
    let gateway = TestGateway::start().await;
    let deferred = |name: &str| {
        let mut tool = tool(name);
        tool["defer_loading"] = true.into();
        tool
    };
    let tools = json!([tool("search"), deferred("f"), deferred("g")]);
    let first = gateway
        .forwards_message(&writing(json!({ "tools": tools })))
        .await;
    assert_eq!(first["tools"], json!([function("search")]));
    let reference = json!([{ "type": "tool_reference", "tool_name": "g" }]);
    let found = json!({ "tools": tools, "messages": [
        { "role": "user", "content": "a" },
        { "role": "assistant", "content": [tool_use("toolu_1", "search", json!({}))] },
        { "role": "user", "content": [tool_result("toolu_1", reference)] },
    ] });
    let then = gateway.forwards_message(&writing(found)).await;
    assert_eq!(then["tools"], json!([function("search"), function("g")]));
    assert_eq!(
        then["messages"][2]["content"],
        "The tool `g` is available now."
    );
    // None of them is loaded: the gateway does not offer its own tools instead.
    let none = gateway
        .forwards_message(&writing(json!({ "tools": [deferred("f")] })))
        .await;
    assert_eq!(none.get("tools"), None);
    let forced = json!({ "tools": tools, "tool_choice": { "type": "tool", "name": "f" } });
    let forced = gateway.forwards_message(&writing(forced)).await;
    assert_eq!(forced["tools"], json!([function("search"), function("f")]));
}
