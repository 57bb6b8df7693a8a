//! §4.2 for coding agents: tools that are refused, left out, counted, chosen and cut off.

use serde_json::{Value, json};

use crate::support::{
    TestGateway,
    agents::{apply_patch, codex_with_catalog, function, namespace, offered, user},
    responses::{asking, calling, tool_call},
};

/// The item by which Codex offers tools without a configured model.
fn additional(tools: &Value) -> Value {
    json!({ "type": "additional_tools", "role": "developer", "tools": tools })
}

/// They were configured on purpose, so the error says which type to remove.
#[tokio::test]
async fn a_tool_that_is_not_served_is_refused_by_its_type() {
    let gateway = TestGateway::start().await;
    for kind in [
        "tool_search",
        "shell",
        "local_shell",
        "apply_patch",
        "file_search",
        "code_interpreter",
        "computer",
        "computer_use_preview",
        "mcp",
        "unheard_of",
    ] {
        let tool = json!({ "type": kind, "name": kind, "execution": "client" });
        let in_item = json!([additional(&json!([tool])), user("Hi")]);
        for (more, param) in [
            (json!({ "tools": [function("f"), tool] }), "tools[1].type"),
            (json!({ "input": in_item }), "input[0].tools[0].type"),
        ] {
            let body = asking(more);
            gateway.refuses_response(&body, param).await;
            let refused = gateway.respond(&body).await;
            let message = refused.error()["message"].as_str().unwrap();
            assert!(message.contains(&format!("`{kind}`")), "{message}");
        }
    }
}

#[tokio::test]
async fn tools_of_an_item_are_left_out_too_and_cannot_be_forced() {
    let gateway = TestGateway::start().await;
    let hosted = json!([{ "type": "web_search" }, { "type": "image_generation" }]);
    let mut body = asking(json!({
        "model": "svc-basic", "max_output_tokens": 100,
        "input": [additional(&hosted), user("Hi")],
    }));
    let sent = gateway.forwards_response(&body).await;
    assert_eq!(sent.get("tools"), None, "no built-in tools either");
    body["tool_choice"] = "required".into();
    gateway.refuses_response(&body, "tool_choice").await;
    // A function is offered, but the choice is among the tools that are not.
    let choice = json!({ "type": "allowed_tools", "mode": "auto", "tools": hosted });
    let tools = json!([function("f"), { "type": "web_search" }]);
    let body = asking(json!({ "tools": tools, "tool_choice": choice }));
    gateway.refuses_response(&body, "tool_choice").await;
    // An item offers what the request itself does not.
    let body = asking(json!({
        "tools": hosted, "tool_choice": "required",
        "input": [additional(&json!([function("f")])), user("Hi")],
    }));
    let sent = gateway.forwards_response(&body).await;
    assert_eq!(offered(&sent), ["f"]);
    assert_eq!(sent["tool_choice"], "required");
}

#[tokio::test]
async fn tools_of_every_place_count_together() {
    let gateway = TestGateway::start().await;
    let many = |prefix: &str, count: usize| -> Vec<Value> {
        let names = (0..count).map(|at| format!("{prefix}{at}"));
        names.map(|name| function(&name)).collect()
    };
    let body = |in_item: usize| {
        let mut tools = many("plain", 40);
        tools.push(namespace("a", &many("f", 30)));
        tools.push(json!({ "type": "web_search" }));
        let item = additional(&json!([namespace("b", &many("g", in_item))]));
        asking(json!({ "tools": tools, "input": [item, user("Hi")] }))
    };
    let sent = gateway.forwards_response(&body(30)).await;
    assert_eq!(offered(&sent).len(), 100, "what is left out does not count");
    gateway.refuses_response(&body(31), "tools").await;
}

#[tokio::test]
async fn a_choice_among_custom_tools_is_served() {
    let gateway = TestGateway::start().await;
    let tools = json!([
        function("f"),
        apply_patch(),
        namespace("a", &[apply_patch()])
    ]);
    let custom = json!({ "type": "custom", "name": "apply_patch" });
    let mut inside = custom.clone();
    inside["namespace"] = "a".into();
    for (chosen, name) in [(custom, "apply_patch"), (inside, "a__apply_patch")] {
        let called = tool_call("c", name, r#"{"input":"x"}"#);
        gateway.upstream.answer_json(200, &calling(&[called]));
        let choice = json!({ "type": "allowed_tools", "mode": "required", "tools": [chosen] });
        let body = asking(json!({ "tools": tools, "tool_choice": choice }));
        let answer = gateway.respond(&body).await;
        let response = answer.assert_ok();
        assert_eq!(response["tool_choice"], choice);
        assert_eq!(response["tools"], tools, "all of them are repeated");
        let item = &response["output"][0];
        assert_eq!(item["type"], "custom_tool_call");
        assert_eq!(item["name"], "apply_patch");
        assert_eq!(item.get("namespace"), chosen.get("namespace"));
        let sent = gateway.upstream.last_body();
        assert_eq!(offered(&sent), [name]);
        assert_eq!(sent["tool_choice"], "required");
    }
}

/// An agent runs a call that is completed, so one that was cut off must not be.
#[tokio::test]
async fn a_cut_call_of_a_whole_answer_is_incomplete() {
    let gateway = TestGateway::start().await;
    let tools = json!([apply_patch(), function("f")]);
    let calls = [
        ("apply_patch", r#"{"input":"*** Begin"#, "incomplete"),
        ("f", r#"{"a":"#, "incomplete"),
        ("apply_patch", r#"{"patch":"#, "incomplete"),
        ("apply_patch", r#"{"input":"whole"}"#, "completed"),
        ("apply_patch", r#"{"patch":1}"#, "completed"),
        ("f", "{}", "completed"),
        // The last one may be cut off though it looks whole.
        ("apply_patch", r#"{"input":"whole"}"#, "incomplete"),
    ];
    let called = calls.map(|(name, arguments, _)| tool_call(name, name, arguments));
    for (finish, why) in [
        ("length", "max_output_tokens"),
        ("content_filter", "content_filter"),
    ] {
        let mut cut = calling(&called);
        cut["choices"][0]["finish_reason"] = finish.into();
        gateway.upstream.answer_json(200, &cut);
        let answer = gateway.respond(&asking(json!({ "tools": tools }))).await;
        let response = answer.assert_ok();
        assert_eq!(response["status"], "incomplete");
        assert_eq!(response["incomplete_details"]["reason"], why);
        let output = response["output"].as_array().unwrap();
        assert_eq!(output.len(), calls.len());
        for (item, (_, arguments, status)) in output.iter().zip(calls) {
            assert_eq!(item["status"], status, "{arguments}");
        }
        assert_eq!(output[0]["input"], "*** Begin");
        assert_eq!(output[2]["input"], r#"{"patch":"#);
    }
}

/// Otherwise the model would see one tool under two names.
#[tokio::test]
async fn an_earlier_call_has_the_name_that_its_tool_is_offered_by() {
    let gateway = TestGateway::start().await;
    let (long, name) = ("n".repeat(50), "t".repeat(50));
    let (odd, script) = ("my server", "skript für alles");
    let mut custom = apply_patch();
    custom["name"] = script.into();
    let tools = [
        namespace(&long, &[function(&name)]),
        namespace(odd, &[custom]),
    ];
    let output = |id: &str| json!({ "type": "function_call_output", "call_id": id, "output": "1" });
    let input = json!([
        user("Hi"),
        { "type": "function_call", "call_id": "c1", "namespace": long, "name": name,
          "arguments": "{}" },
        { "type": "custom_tool_call", "call_id": "c2", "namespace": odd, "name": script,
          "input": "x" },
        output("c1"),
        output("c2"),
    ]);
    let body = asking(json!({ "tools": tools, "input": input }));
    let sent = gateway.forwards_response(&body).await;
    let calls = &sent["messages"][1]["tool_calls"];
    for (at, name) in offered(&sent).into_iter().enumerate() {
        assert_eq!(calls[at]["function"]["name"], name);
    }
    assert_eq!(calls.as_array().unwrap().len(), 2);
    // A turn that does not offer the tools sends these messages, too.
    let without = gateway
        .forwards_response(&asking(json!({ "input": input })))
        .await;
    assert_eq!(without["messages"], sent["messages"]);
}

/// A large body is prepared on another thread.
#[tokio::test]
async fn a_long_history_keeps_the_callers_tools() {
    let gateway = TestGateway::start().await;
    for bytes in [45 << 10, 300 << 10] {
        let mut body = codex_with_catalog("Hi");
        body["stream"] = false.into();
        let text = "word ".repeat(bytes / 5);
        let input = body["input"].as_array_mut().unwrap();
        input.insert(1, user(&text));
        let called = [
            tool_call("c1", "apply_patch", r#"{"input":"a\nb"}"#),
            tool_call("c2", "mcp__tiny__add", "{}"),
        ];
        gateway.upstream.answer_json(200, &calling(&called));
        let answer = gateway.respond(&body).await;
        let output = &answer.assert_ok()["output"];
        assert_eq!(output[0]["type"], "custom_tool_call");
        assert_eq!(output[0]["input"], "a\nb");
        assert_eq!(output[1]["namespace"], "mcp__tiny");
        assert_eq!(output[1]["name"], "add");
        let sent = gateway.upstream.last_body();
        assert_eq!(sent["messages"][1]["content"], text);
    }
}
