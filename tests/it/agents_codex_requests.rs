//! §4.2 for coding agents: their requests are served as they are, with tools of every kind that they send.

use serde_json::{Value, json};

use crate::support::{
    LedgerView, TestGateway,
    agents::{
        apply_patch, cline, codex, codex_lite, codex_with_catalog, function, namespace, offered,
    },
    ledger_view::MODEL as PRICED,
    responses::{asking, calling, tool_call, two_words},
    upstream::{chunk, usage_chunk},
};

/// Chunks of a stream with these calls: ID, name and arguments.
fn calls(calls: &[(&str, &str, &str)]) -> Vec<Value> {
    let mut chunks = Vec::new();
    for (slot, (id, name, arguments)) in calls.iter().enumerate() {
        let call = json!({ "index": slot, "id": id, "type": "function",
                           "function": { "name": name, "arguments": "" } });
        chunks.push(chunk(json!({ "tool_calls": [call] }), None));
        for piece in arguments.as_bytes().chunks(5) {
            let piece = String::from_utf8_lossy(piece);
            let call = json!({ "index": slot, "function": { "arguments": piece } });
            chunks.push(chunk(json!({ "tool_calls": [call] }), None));
        }
    }
    chunks.extend([chunk(json!({}), Some("tool_calls")), usage_chunk(11, 3)]);
    chunks
}

#[tokio::test]
async fn codex_with_an_unknown_model_is_served() {
    let gateway = TestGateway::start().await;
    gateway.upstream.answer_chunks(&calls(&[
        ("c1", "exec_command", r#"{"a":"ls"}"#),
        ("c2", "mcp__tiny__add", r#"{"a":"1"}"#),
    ]));
    let body = codex("Hi");
    let response = gateway.events(&body).await.finished();
    let sent = gateway.upstream.last_body();
    assert_eq!(
        offered(&sent),
        [
            "exec_command",
            "write_stdin",
            "update_plan",
            "multi_agent_v1__spawn_agent",
            "multi_agent_v1__wait_agent",
            "mcp__tiny__add",
        ]
    );
    assert_eq!(sent["tool_choice"], "auto");
    assert_eq!(sent["messages"][0]["role"], "system");
    assert_eq!(sent["messages"][2]["content"], "Hi");
    let mut echoed = body["tools"].as_array().unwrap().clone();
    echoed.retain(|tool| tool["type"] != "web_search");
    assert_eq!(response["tools"], json!(echoed), "namespaces are nested");
    assert_eq!(response["prompt_cache_key"], "thread-1");
    let [first, second] = response["output"].as_array().unwrap().as_slice() else {
        panic!("{response}");
    };
    assert_eq!(first["type"], "function_call");
    assert_eq!(first["name"], "exec_command");
    assert_eq!(first.get("namespace"), None);
    assert_eq!(second["type"], "function_call");
    assert!(second["id"].as_str().unwrap().starts_with("fc_"));
    assert_eq!(second["namespace"], "mcp__tiny");
    assert_eq!(second["name"], "add");
    assert_eq!(second["arguments"], r#"{"a":"1"}"#);
    assert_eq!(second["call_id"], "c2");
}

#[tokio::test]
async fn codex_with_a_catalog_calls_a_tool_of_free_text() {
    let gateway = TestGateway::start().await;
    let patch = "*** Begin Patch\n*** Add File: \"ü\"\n+😀\\\n*** End Patch";
    let arguments = json!({ "input": patch }).to_string();
    gateway
        .upstream
        .answer_chunks(&calls(&[("c1", "apply_patch", &arguments)]));
    let body = codex_with_catalog("Hi");
    let stream = gateway.events(&body).await;
    let response = stream.finished();
    let item = &response["output"][0];
    assert_eq!(item["type"], "custom_tool_call");
    assert!(item["id"].as_str().unwrap().starts_with("ctc_"));
    assert_eq!(item["call_id"], "c1");
    assert_eq!(item["name"], "apply_patch");
    assert_eq!(item["input"], patch);
    assert_eq!(item["status"], "completed");
    let kinds = stream.kinds();
    assert!(kinds.contains(&"custom_tool_call_input.delta".to_owned()));
    let all = stream.all();
    let mut done = all.iter();
    let done = done.find(|event| event["type"] == "response.custom_tool_call_input.done");
    assert_eq!(done.unwrap()["input"], patch);
    assert!(!stream.text.contains("function_call"), "{}", stream.text);
    let sent = gateway.upstream.last_body();
    let tool = sent["tools"].as_array().unwrap().last().unwrap();
    let description = tool["function"]["description"].as_str().unwrap();
    assert!(description.starts_with("Edits files."), "{description}");
    assert!(description.contains("start: begin_patch hunk+ end_patch"));
    assert_eq!(tool["function"]["parameters"]["required"], json!(["input"]));
    let echoed = response["tools"].as_array().unwrap();
    assert_eq!(echoed.last(), Some(&apply_patch()));
    assert_eq!(response["text"]["verbosity"], "low");
    assert_eq!(sent["reasoning_effort"], "medium");
}

#[tokio::test]
async fn codex_without_a_model_has_its_tools_in_an_item() {
    let gateway = TestGateway::start().await;
    gateway.upstream.answer_chunks(&calls(&[
        ("c1", "functions__exec", r#"{"input":"ls()"}"#),
        ("c2", "clock__now", "{}"),
    ]));
    let response = gateway.events(&codex_lite("Hi")).await.finished();
    let sent = gateway.upstream.last_body();
    assert_eq!(
        offered(&sent),
        [
            "functions__exec",
            "functions__wait",
            "clock__now",
            "collaboration__ask"
        ]
    );
    assert_eq!(sent["parallel_tool_calls"], false);
    assert_eq!(response["tools"], json!([]), "they are not echoed");
    let output = &response["output"];
    assert_eq!(output[0]["type"], "custom_tool_call");
    assert_eq!(output[0]["namespace"], "functions");
    assert_eq!(output[0]["name"], "exec");
    assert_eq!(output[0]["input"], "ls()");
    assert_eq!(output[1]["namespace"], "clock");
    assert_eq!(output[1]["name"], "now");
}

#[tokio::test]
async fn cline_is_served_without_the_tools_it_always_adds() {
    let gateway = TestGateway::start().await;
    gateway.upstream.answer_chunks(&two_words());
    let response = gateway.events(&cline("Hi")).await.finished();
    let sent = gateway.upstream.last_body();
    assert_eq!(offered(&sent), ["read_file", "write_file"]);
    assert_eq!(response["tools"].as_array().unwrap().len(), 2);
    assert_eq!(response["truncation"], "auto");
    let id = response["id"].as_str().unwrap();
    assert_eq!(*gateway.shown(id).await.assert_ok(), response, "as stored");
}

/// A whole answer, and the stored one, use the same names as a stream.
#[tokio::test]
async fn answers_in_one_piece_have_the_callers_tools_too() {
    let gateway = TestGateway::start().await;
    let long = namespace(&"n".repeat(50), &[function(&"t".repeat(50))]);
    let tools = json!([
        apply_patch(),
        long,
        namespace("my server", &[function("päth")])
    ]);
    gateway.upstream.answer_json(200, &calling(&[]));
    let sent = gateway
        .forwards_response(&asking(json!({ "tools": tools })))
        .await;
    let names: Vec<String> = offered(&sent).into_iter().map(str::to_owned).collect();
    for name in &names {
        let accepted = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        assert!(name.len() <= 64 && name.chars().all(accepted), "{name}");
    }
    let called = [
        tool_call("c1", &names[0], r#"{"input":"a\nb"}"#),
        tool_call("c2", &names[1], "{}"),
        tool_call("c3", &names[2], "{}"),
        tool_call("c4", &names[0], "no JSON"),
        tool_call("c5", "invented", "{}"),
    ];
    gateway.upstream.answer_json(200, &calling(&called));
    let answer = gateway.respond(&asking(json!({ "tools": tools }))).await;
    let response = answer.assert_ok();
    let output = response["output"].as_array().unwrap();
    let brief: Vec<_> = output
        .iter()
        .map(|item| {
            let text = item.get("input").or(item.get("arguments")).unwrap();
            (
                item["type"].as_str().unwrap(),
                item["namespace"].as_str(),
                item["name"].as_str().unwrap(),
                text.as_str().unwrap(),
            )
        })
        .collect();
    let (namespace, name) = ("n".repeat(50), "t".repeat(50));
    assert_eq!(
        brief,
        [
            ("custom_tool_call", None, "apply_patch", "a\nb"),
            ("function_call", Some(&*namespace), &*name, "{}"),
            ("function_call", Some("my server"), "päth", "{}"),
            ("custom_tool_call", None, "apply_patch", "no JSON"),
            ("function_call", None, "invented", "{}"),
        ]
    );
    assert_eq!(response["tools"], tools);
    let id = response["id"].as_str().unwrap();
    assert_eq!(gateway.shown(id).await.assert_ok(), response);
}

#[tokio::test]
async fn a_name_of_two_tools_never_gives_a_wrong_call() {
    let gateway = TestGateway::start().await;
    let tools = json!([namespace("a", &[function("b")]), function("a__b")]);
    gateway.upstream.answer_json(200, &calling(&[]));
    let sent = gateway
        .forwards_response(&asking(json!({ "tools": tools })))
        .await;
    let names: Vec<String> = offered(&sent).into_iter().map(str::to_owned).collect();
    assert_eq!(names[1], "a__b", "a plain function keeps its name");
    let called = [
        tool_call("c1", &names[0], "{}"),
        tool_call("c2", &names[1], "{}"),
    ];
    gateway.upstream.answer_json(200, &calling(&called));
    let answer = gateway.respond(&asking(json!({ "tools": tools }))).await;
    let output = &answer.assert_ok()["output"];
    assert_eq!(
        (&output[0]["namespace"], &output[0]["name"]),
        (&json!("a"), &json!("b"))
    );
    assert_eq!(output[1].get("namespace"), None);
    assert_eq!(output[1]["name"], "a__b");
}

#[tokio::test]
async fn tools_that_are_left_out_cannot_be_forced_and_switch_nothing_on() {
    let gateway = TestGateway::start().await;
    let search = json!([{ "type": "web_search" }]);
    let body = asking(json!({ "model": "svc-basic", "tools": search, "max_output_tokens": 100 }));
    let sent = gateway.forwards_response(&body).await;
    assert_eq!(sent.get("tools"), None, "no built-in tools either");
    for choice in [
        json!("required"),
        json!({ "type": "web_search" }),
        json!({ "type": "allowed_tools", "mode": "auto", "tools": search }),
    ] {
        let mut body = body.clone();
        body["tool_choice"] = choice;
        gateway.refuses_response(&body, "tool_choice").await;
    }
    // A choice among the others goes by the provider's names.
    let tools = json!([{ "type": "web_search" }, apply_patch(), namespace("a", &[function("b")])]);
    let forced = json!({ "type": "custom", "name": "apply_patch" });
    let sent = gateway
        .forwards_response(&asking(json!({ "tools": tools, "tool_choice": forced })))
        .await;
    let named = json!({ "type": "function", "function": { "name": "apply_patch" } });
    assert_eq!(sent["tool_choice"], named);
    let one = json!({ "type": "function", "name": "b", "namespace": "a" });
    let allowed = json!({ "type": "allowed_tools", "mode": "required", "tools": [one] });
    let sent = gateway
        .forwards_response(&asking(json!({ "tools": tools, "tool_choice": allowed })))
        .await;
    assert_eq!(offered(&sent), ["a__b"]);
    assert_eq!(sent["tool_choice"], "required");
}

#[tokio::test]
async fn each_tool_of_a_namespace_counts() {
    let gateway = TestGateway::start().await;
    let tools = |count: usize| {
        let functions: Vec<_> = (0..count).map(|at| function(&format!("f{at}"))).collect();
        asking(json!({ "tools": [namespace("a", &functions)] }))
    };
    let sent = gateway.forwards_response(&tools(100)).await;
    assert_eq!(offered(&sent).len(), 100);
    gateway.refuses_response(&tools(101), "tools").await;
}

/// What is refused is not charged, and says first what to do.
#[tokio::test]
async fn refusals_are_short_and_free() {
    let gateway = TestGateway::start().await;
    let customer = gateway.customer().await;
    let long = "x".repeat(100_000);
    for more in [
        json!({ "tools": [{ "type": "mcp", "server_url": long }] }),
        json!({ "tools": [{ "type": long }] }),
        json!({ "tools": [{ "type": "custom" }] }),
        json!({ "tools": [apply_patch(), apply_patch()] }),
        json!({ "input": [{ "type": "compaction_trigger" }] }),
        json!({ "input": [{ "type": "\u{1}".repeat(5_000) }] }),
        json!({ "tools": [function("f")], "tool_choice": { "type": "custom", "name": long } }),
        json!({ "model": long }),
    ] {
        let body = asking(more);
        let refused = gateway.respond_as(&customer.key, &body).await;
        assert!(matches!(refused.status, 400 | 404), "{}", refused.body);
        let bytes = refused.body.to_string().len();
        assert!(bytes < 1_000, "{bytes} bytes: {}", refused.body);
    }
    assert_eq!(customer.ledger_view().await, LedgerView::default());
    gateway.upstream.answer_chunks(&two_words());
    let mut body = codex("Hi");
    body["model"] = PRICED.into();
    let request = gateway.client.post(gateway.url("/v1/responses"));
    let request = request.bearer_auth(&customer.key).json(&body);
    request.send().await.unwrap().text().await.unwrap();
    assert_eq!(customer.ledger_view().await, LedgerView::charged(1));
}
