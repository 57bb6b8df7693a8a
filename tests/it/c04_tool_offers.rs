//! §4.1, tool systems: which requests are offered the built-in tools.

use serde_json::json;

use crate::support::{
    TestGateway,
    bodies::{hello_with, tool},
    gateway::hello,
    ledger_view::MODEL,
    models::{MODELS, has_identity_prompt},
    turns::{BUILT_IN, CONVERT, Turn, calls_json, offered},
};

#[tokio::test]
async fn the_tools_are_offered_on_catalog_models_alone() {
    let gateway = TestGateway::start().await;
    for model in MODELS {
        let sent = gateway.forwards(&hello(model)).await;
        let expected: &[&str] = if has_identity_prompt(model) {
            &BUILT_IN
        } else {
            &[]
        };
        assert_eq!(offered(&sent), expected, "{model}");
        assert_eq!(sent.get("tool_choice"), None, "{model}");
    }
    gateway.upstream.converse([Turn::says("Hi")]);
    for model in [MODEL, "svc-native-fast"] {
        gateway.stream(&hello(model)).await.assert_complete(model);
        let expected: &[&str] = if model == MODEL { &BUILT_IN } else { &[] };
        assert_eq!(offered(&gateway.upstream.last_body()), expected, "{model}");
    }
}

#[tokio::test]
async fn the_tools_are_offered_unless_the_caller_has_tools_or_wants_none() {
    let gateway = TestGateway::start().await;
    let ours: &[&str] = &BUILT_IN;
    for (more, expected) in [
        (json!({}), ours),
        (json!({ "tools": [] }), ours),
        (json!({ "tools": null }), ours),
        (json!({ "tool_execution": "execute" }), ours),
        (json!({ "tool_choice": "auto" }), ours),
        (json!({ "tool_execution": "passthrough" }), &[]),
        (json!({ "tool_choice": "none" }), &[]),
        (json!({ "tools": [], "tool_choice": "none" }), &[]),
        (json!({ "tools": [tool("mine")] }), &["mine"]),
        (
            json!({ "tools": [tool("mine")], "tool_choice": "none" }),
            &["mine"],
        ),
        (
            json!({ "tools": [tool("convert_units")], "tool_execution": "execute" }),
            &["convert_units"],
        ),
    ] {
        let sent = gateway.forwards(&hello_with(MODEL, more.clone())).await;
        assert_eq!(offered(&sent), expected, "{more}");
        assert_eq!(sent.get("tool_execution"), None, "{more}");
    }
}

#[tokio::test]
async fn disabled_tools_are_not_offered() {
    let gateway = TestGateway::start_with("[tools]\nenabled = false").await;
    let sent = gateway.forwards(&hello(MODEL)).await;
    assert_eq!(sent.get("tools"), None);
}

/// The caller runs its own tools, even one with the name of a built-in tool.
#[tokio::test]
async fn a_call_of_the_callers_tool_is_passed_to_the_caller() {
    let gateway = TestGateway::start().await;
    gateway.upstream.converse([Turn::calls(&[CONVERT])]);
    let body = hello_with(MODEL, json!({ "tools": [tool("convert_units")] }));
    let answer = gateway.chat(&body).await;
    let choice = &answer.assert_ok()["choices"][0];
    assert_eq!(choice["finish_reason"], "tool_calls");
    assert_eq!(choice["message"]["tool_calls"], calls_json(&[CONVERT]));
    let stream = gateway.stream(&body).await;
    assert_eq!(stream.tool_calls(0).len(), 1);
    assert_eq!(gateway.upstream.calls(), 2);
}
