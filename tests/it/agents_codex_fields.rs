//! §4.2 for coding agents: the fields and headers that they send with every request.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::support::{
    LedgerView, TestGateway,
    agents::{codex, codex_lite, codex_with_catalog, developer, function, user},
    bodies::{hello_with, tool},
    ledger_view::MODEL as PRICED,
    responses::{Events, PATH, tool_call, two_words},
    upstream::events,
};

/// Everything else is dropped, whichever form of request Codex sends.
#[tokio::test]
async fn a_provider_gets_only_what_a_model_reads() {
    let gateway = TestGateway::start().await;
    let always = [
        "messages",
        "model",
        "parallel_tool_calls",
        "stream",
        "tool_choice",
        "tools",
        "user",
    ];
    for (mut body, effort) in [
        (codex("Hi"), Value::Null),
        (codex_with_catalog("Hi"), json!("medium")),
        (codex_lite("Hi"), json!("low")),
    ] {
        let more = json!({
            "stream": false, "truncation": "auto", "service_tier": "priority",
            "prompt_cache_retention": "24h", "stream_options": { "include_obfuscation": false },
            "context_management": [{ "type": "compaction", "compact_threshold": 200_000 }],
        });
        let more = more.as_object().unwrap().clone();
        body.as_object_mut().unwrap().extend(more);
        let answer = gateway.respond(&body).await;
        let response = answer.assert_ok();
        assert_eq!(response["reasoning"]["effort"], effort);
        assert_eq!(response["reasoning"].get("context"), None);
        assert_eq!(response["reasoning"].as_object().unwrap().len(), 2);
        assert_eq!(response["text"]["verbosity"], body["text"]["verbosity"]);
        assert_eq!(response["prompt_cache_key"], "thread-1");
        assert_eq!(response["truncation"], "auto");
        assert_eq!(response["service_tier"], "default");
        for dropped in ["include", "client_metadata", "prompt_cache_retention"] {
            assert_eq!(response.get(dropped), None, "{dropped}");
        }
        let sent = gateway.upstream.last_body();
        let keys: BTreeSet<_> = sent.as_object().unwrap().keys().cloned().collect();
        let mut expected = BTreeSet::from(always.map(str::to_owned));
        if effort.is_string() {
            expected.insert("reasoning_effort".to_owned());
        }
        assert_eq!(keys, expected);
        assert_eq!(sent["reasoning_effort"], effort);
    }
}

#[tokio::test]
async fn codex_without_a_model_is_answered_under_the_name_it_asks_for() {
    let aliases = "[models.aliases]\n\"gpt-*\" = \"svc-native-fast\"\n";
    let gateway = TestGateway::start_with(aliases).await;
    let mut body = codex_lite("Hi");
    body["model"] = "gpt-6.1-sol".into();
    let whole = events(&two_words());
    let broken = events(&two_words()[..3]).replace("data: [DONE]\n\n", "");
    for (upstream, last) in [(whole, "completed"), (broken, "failed")] {
        gateway.upstream.answer_stream(&upstream);
        let stream = gateway.events(&body).await;
        assert_eq!(stream.kinds().last().unwrap(), last);
        let all = stream.all();
        let responses = all.iter().filter_map(|event| event.get("response"));
        for response in responses {
            assert_eq!(response["model"], "gpt-6.1-sol");
        }
    }
}

/// Codex sends one ID with all requests of a thread, so a request is not recognised by it.
#[tokio::test]
async fn requests_of_one_thread_are_separate_calls() {
    let gateway = TestGateway::start().await;
    let customer = gateway.customer().await;
    gateway.upstream.answer_chunks(&two_words());
    let mut body = codex("Hi");
    body["model"] = PRICED.into();
    let (mut requests, mut responses) = (BTreeSet::new(), BTreeSet::new());
    for _ in 0..3 {
        let request = gateway.client.post(gateway.url(PATH));
        let request = request
            .bearer_auth(&customer.key)
            .header("originator", "codex_cli_rs")
            .header("session-id", "0199-own")
            .header("thread-id", "0199-own")
            .header("x-client-request-id", "0199-own")
            .header("x-codex-turn-metadata", r#"{"turn_id":"1"}"#);
        let response = request.json(&body).send().await.unwrap();
        assert_eq!(response.status(), 200);
        let id = response.headers()["x-request-id"].to_str().unwrap();
        requests.insert(id.to_owned());
        let text = response.text().await.unwrap();
        let finished = Events { text }.finished();
        responses.insert(finished["id"].as_str().unwrap().to_owned());
    }
    assert_eq!((requests.len(), responses.len()), (3, 3));
    assert_eq!(customer.ledger_view().await, LedgerView::charged(3));
    for sent in gateway.upstream.received() {
        let sent = format!("{}{}", sent.head, sent.text);
        for own in ["0199-own", "x-codex", "originator"] {
            assert!(!sent.contains(own), "no provider sees `{own}`");
        }
    }
}

/// It names the same budget in every request, whatever the model.
#[tokio::test]
async fn opencode_is_served_by_every_model() {
    let gateway = TestGateway::start().await;
    let listed = gateway.get("/v1/models").await;
    let models = listed.assert_ok()["data"].as_array().unwrap();
    assert!(models.len() > 10, "{models:?}");
    for model in models {
        let id = model["id"].as_str().unwrap();
        let body = json!({
            "model": id, "max_output_tokens": 32_000, "store": false, "prompt_cache_key": "ses_1",
            "input": [developer("You are OpenCode."), user("Hi")],
            "tools": [function("bash"), function("edit")],
        });
        let answer = gateway.respond(&body).await;
        assert_eq!(answer.assert_ok()["max_output_tokens"], 32_000, "{id}");
        let sent = gateway.upstream.last_body();
        assert_eq!(sent["max_tokens"], 32_000, "{id}");
        let chat = json!({
            "max_tokens": 32_000, "store": false, "prompt_cache_key": "ses_1",
            "tools": [tool("bash"), tool("edit")],
        });
        let sent = gateway.forwards(&hello_with(id, chat)).await;
        assert_eq!(sent["max_tokens"], 32_000, "{id}");
    }
}

/// Codex shortens its history with an ordinary request that offers no tools.
#[tokio::test]
async fn a_summary_is_written_without_the_tools_of_its_history() {
    let gateway = TestGateway::start().await;
    let mut body = codex("Summarise.");
    body["tools"] = json!([]);
    let history = [
        json!({ "type": "function_call", "call_id": "c1", "name": "add", "namespace": "mcp__tiny",
                "arguments": "{}" }),
        json!({ "type": "custom_tool_call", "call_id": "c2", "name": "apply_patch", "input": "x" }),
        json!({ "type": "function_call_output", "call_id": "c1", "output": "2" }),
        json!({ "type": "custom_tool_call_output", "call_id": "c2", "output": "Done." }),
    ];
    let input = body["input"].as_array_mut().unwrap();
    input.splice(2..2, history);
    gateway.upstream.answer_chunks(&two_words());
    let response = gateway.events(&body).await.finished();
    assert_eq!(response["status"], "completed");
    assert_eq!(response["tools"], json!([]));
    let sent = gateway.upstream.last_body();
    for field in ["tools", "tool_choice", "parallel_tool_calls"] {
        assert_eq!(sent.get(field), None, "{field}");
    }
    let calls = json!([
        tool_call("c1", "mcp__tiny__add", "{}"),
        tool_call("c2", "apply_patch", r#"{"input":"x"}"#),
    ]);
    assert_eq!(sent["messages"][2]["tool_calls"], calls);
    assert_eq!(sent["messages"][5]["content"], "Summarise.");
}
