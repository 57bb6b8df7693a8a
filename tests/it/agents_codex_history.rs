//! §4.2 for coding agents: the history that they send back, in every form.

use serde_json::{Value, json};

use crate::support::{
    TestGateway,
    agents::{apply_patch, codex, developer, function, namespace, offered, user},
    responses::{asking, calling, tool_call},
    upstream::completion,
};

/// The messages that a provider gets for this input, without tools.
async fn messages(gateway: &TestGateway, input: Value) -> Value {
    let sent = gateway
        .forwards_response(&asking(json!({ "input": input })))
        .await;
    sent["messages"].clone()
}

#[tokio::test]
async fn the_history_of_codex_is_taken_as_it_is() {
    let gateway = TestGateway::start().await;
    let mut body = codex("Begin");
    body["stream"] = false.into();
    let history = [
        json!({ "type": "reasoning", "id": "rs_1", "summary": [], "content": null,
                "encrypted_content": "gAAA" }),
        json!({ "type": "message", "id": "msg_own", "role": "assistant", "status": "completed",
                "phase": "commentary", "content": [{ "type": "output_text", "text": "Let me see." }] }),
        json!({ "type": "function_call", "id": "fc_own", "call_id": "c1", "name": "add",
                "namespace": "mcp__tiny", "arguments": "{\"a\":1}" }),
        json!({ "type": "custom_tool_call", "id": "ctc_own", "status": "completed", "call_id": "c2",
                "name": "apply_patch", "input": "*** Begin\n" }),
        developer("The sandbox changed."),
        json!({ "type": "function_call_output", "call_id": "c1", "output": [
            { "type": "input_text", "text": "2" },
            { "type": "input_image", "image_url": "data:image/png;base64,AAAA" },
        ] }),
        json!({ "type": "custom_tool_call_output", "call_id": "c2", "output": "running" }),
        json!({ "type": "custom_tool_call_output", "call_id": "c2", "output": "Done." }),
        json!({ "type": "web_search_call", "id": "ws_1", "status": "completed",
                "action": { "type": "search", "query": "x" } }),
        json!({ "type": "function_call", "call_id": "c3", "name": "gone", "arguments": "{}" }),
        json!({ "type": "function_call_output", "call_id": "c3", "output": "aborted" }),
        json!({ "type": "agent_message", "author": "/root/a", "recipient": "/root", "content": [
            { "type": "input_text", "text": "Report:" },
            { "type": "encrypted_content", "encrypted_content": "All is well." },
        ] }),
        user("Go on"),
    ];
    body["input"].as_array_mut().unwrap().extend(history);
    let sent = gateway.forwards_response(&body).await;
    let note = "[The tool returned an image here, which this model cannot read.]";
    assert_eq!(
        sent["messages"],
        json!([
            { "role": "system", "content": "You are a coding agent.\nThe sandbox changed." },
            { "role": "user", "content": "<environment_context/>" },
            { "role": "user", "content": "Begin" },
            { "role": "assistant", "content": "Let me see.", "tool_calls": [
                tool_call("c1", "mcp__tiny__add", "{\"a\":1}"),
                tool_call("c2", "apply_patch", r#"{"input":"*** Begin\n"}"#),
            ] },
            { "role": "tool", "content": format!("2\n{note}"), "tool_call_id": "c1" },
            { "role": "tool", "content": "running\nDone.", "tool_call_id": "c2" },
            { "role": "assistant", "content": null, "tool_calls": [tool_call("c3", "gone", "{}")] },
            { "role": "tool", "content": "aborted", "tool_call_id": "c3" },
            { "role": "user", "content": "Report:\nAll is well." },
            { "role": "user", "content": "Go on" },
        ])
    );
    // A tool that was only called, and not offered, is answered in the caller's terms if the model calls it again.
    let again = [tool_call("d1", "apply_patch", r#"{"input":"x"}"#)];
    gateway.upstream.answer_json(200, &calling(&again));
    let answer = gateway.respond(&body).await;
    let item = &answer.assert_ok()["output"][0];
    assert_eq!(
        (&item["type"], &item["input"]),
        (&json!("custom_tool_call"), &json!("x"))
    );
}

/// A stored conversation goes on from calls of every kind, and each can be referred to by its ID.
#[tokio::test]
async fn stored_calls_are_continued_and_referred_to() {
    let gateway = TestGateway::start().await;
    let tools = json!([apply_patch(), namespace("a", &[function("b")])]);
    let calls = [
        tool_call("c1", "apply_patch", r#"{"input":"*** \"x\""}"#),
        tool_call("c2", "a__b", "{}"),
    ];
    gateway.upstream.answer_json(200, &calling(&calls));
    let answer = gateway.respond(&asking(json!({ "tools": tools }))).await;
    let first = answer.assert_ok().clone();
    gateway.upstream.answer_json(200, &completion("Done"));
    let outputs = [
        json!({ "type": "custom_tool_call_output", "call_id": "c1", "output": "1" }),
        json!({ "type": "function_call_output", "call_id": "c2", "output": "2" }),
    ];
    let expected = json!([
        { "role": "user", "content": "Hello" },
        { "role": "assistant", "content": null, "tool_calls": calls },
        { "role": "tool", "content": "1", "tool_call_id": "c1" },
        { "role": "tool", "content": "2", "tool_call_id": "c2" },
    ]);
    let next = json!({ "previous_response_id": first["id"], "input": outputs });
    let answer = gateway.respond(&asking(next)).await;
    let second = answer.assert_ok()["id"].clone();
    assert_eq!(gateway.upstream.last_body()["messages"], expected);
    // The turn after it: a late report of the first call joins its output.
    let late = json!({ "type": "custom_tool_call_output", "call_id": "c1", "output": "3" });
    let next = json!({ "previous_response_id": second, "input": [late, user("And?")] });
    let sent = gateway.forwards_response(&asking(next)).await;
    assert_eq!(sent["messages"][2]["content"], "1\n3");
    assert_eq!(sent["messages"][5]["content"], "And?");

    let reference =
        |at: usize| json!({ "type": "item_reference", "id": first["output"][at]["id"] });
    let input = json!([
        user("Hello"),
        reference(0),
        reference(1),
        outputs[0],
        outputs[1]
    ]);
    assert_eq!(messages(&gateway, input).await, expected);
    // The items themselves, as a client without storage sends them back.
    let (one, two) = (&first["output"][0], &first["output"][1]);
    let input = json!([user("Hello"), one, two, outputs[0], outputs[1]]);
    assert_eq!(messages(&gateway, input).await, expected);
}

/// A call of a namespace that is not offered does not take the name of a function that is.
#[tokio::test]
async fn an_old_call_never_stands_for_a_tool_of_today() {
    let gateway = TestGateway::start().await;
    let body = asking(json!({
        "tools": [function("a__b")],
        "input": [
            user("Hi"),
            { "type": "function_call", "call_id": "c", "name": "b", "namespace": "a", "arguments": "{}" },
            { "type": "function_call_output", "call_id": "c", "output": "1" },
        ],
    }));
    gateway
        .upstream
        .answer_json(200, &calling(&[tool_call("d", "a__b", "{}")]));
    let answer = gateway.respond(&body).await;
    let item = &answer.assert_ok()["output"][0];
    assert_eq!(item["name"], "a__b");
    assert_eq!(item.get("namespace"), None);
    let sent = gateway.upstream.last_body();
    assert_eq!(offered(&sent), ["a__b"]);
    let old = &sent["messages"][1]["tool_calls"][0]["function"]["name"];
    assert_ne!(*old, "a__b");
}

#[tokio::test]
async fn items_that_are_not_served_are_refused_by_name() {
    let gateway = TestGateway::start().await;
    for kind in [
        "compaction_trigger",
        "compaction",
        "context_compaction",
        "tool_search_call",
        "tool_search_output",
        "local_shell_call",
        "shell_call",
        "apply_patch_call",
        "mcp_call",
        "computer_call",
        "image_generation_call",
        "unheard_of",
    ] {
        let item = json!({ "type": kind, "call_id": "c", "arguments": {}, "action": {} });
        let body = asking(json!({ "input": [user("Hi"), item] }));
        gateway.refuses_response(&body, "input[1].type").await;
        let message = gateway.respond(&body).await.error()["message"].clone();
        assert!(message.as_str().unwrap().contains(&format!("`{kind}`")));
    }
}
