//! §4.1 in the form of §4.2: the caller's functions, and the built-in tools that callers never see.

use serde_json::json;

use crate::support::{
    Step, TestGateway,
    responses::{MODEL, asking, calling, function, tool_call},
    upstream::{completion, response},
};

#[tokio::test]
async fn functions_are_offered_called_and_answered() {
    let gateway = TestGateway::start().await;
    let tools = json!([
        { "type": "function", "name": "f", "description": "Looks.", "strict": true,
          "parameters": { "type": "object", "properties": { "a": { "type": "string" } } } },
        { "type": "function", "name": "g", "description": null, "parameters": null, "strict": null },
    ]);
    let calls = [
        tool_call("c1", "f", "{\"a\":\"ü\"}"),
        tool_call("c2", "g", "{}"),
    ];
    gateway.upstream.answer_json(200, &calling(&calls));
    let more = json!({ "tools": tools, "tool_choice": "required", "parallel_tool_calls": true });
    let answer = gateway.respond(&asking(more)).await;
    let response = answer.assert_ok();
    assert_eq!(response["tools"], tools);
    assert_eq!(response["tool_choice"], "required");
    assert_eq!(response["status"], "completed");
    let own = response["id"]
        .as_str()
        .unwrap()
        .strip_prefix("resp_")
        .unwrap();
    assert_eq!(
        response["output"],
        json!([
            { "id": format!("fc_{own}_0"), "type": "function_call", "status": "completed",
              "call_id": "c1", "name": "f", "arguments": "{\"a\":\"ü\"}" },
            { "id": format!("fc_{own}_1"), "type": "function_call", "status": "completed",
              "call_id": "c2", "name": "g", "arguments": "{}" },
        ])
    );
    let sent = gateway.upstream.last_body();
    assert_eq!(
        sent["tools"],
        json!([
            { "type": "function", "function": {
                "name": "f", "description": "Looks.", "strict": true,
                "parameters": { "type": "object", "properties": { "a": { "type": "string" } } },
            } },
            { "type": "function", "function": { "name": "g" } },
        ])
    );
    assert_eq!(sent["tool_choice"], "required");
    assert_eq!(sent["parallel_tool_calls"], true);
    // The client keeps the conversation itself and sends the output items back as input.
    gateway.upstream.answer_json(200, &completion("Done"));
    let mut input = vec![json!({ "role": "user", "content": "Hello" })];
    input.extend(response["output"].as_array().unwrap().clone());
    for (id, output) in [("c1", "1"), ("c2", "2")] {
        input.push(json!({ "type": "function_call_output", "call_id": id, "output": output }));
    }
    let more = json!({ "input": input, "tools": tools });
    let sent = gateway.forwards_response(&asking(more)).await;
    let expected = json!({ "role": "assistant", "content": null, "tool_calls": calls });
    assert_eq!(sent["messages"][1], expected);
    assert_eq!(sent["messages"][3]["tool_call_id"], "c2");
}

#[tokio::test]
async fn the_choice_among_functions_goes_upstream_in_chats_form() {
    let gateway = TestGateway::start().await;
    let tools = json!([function("f"), function("g")]);
    let named = json!({ "type": "function", "name": "g" });
    let some = |mode: &str| json!({ "type": "allowed_tools", "mode": mode, "tools": [named] });
    for (choice, sent, offered) in [
        (json!("auto"), json!("auto"), 2),
        (json!("none"), json!("none"), 2),
        (json!("required"), json!("required"), 2),
        (
            named.clone(),
            json!({ "type": "function", "function": { "name": "g" } }),
            2,
        ),
        (some("auto"), json!("auto"), 1),
        (some("required"), json!("required"), 1),
    ] {
        let body = asking(json!({ "tools": tools, "tool_choice": choice }));
        let answer = gateway.respond(&body).await;
        assert_eq!(answer.assert_ok()["tool_choice"], choice);
        assert_eq!(answer.body["tools"].as_array().unwrap().len(), 2);
        let upstream = gateway.upstream.last_body();
        assert_eq!(upstream["tool_choice"], sent, "{choice}");
        assert_eq!(upstream["tools"].as_array().unwrap().len(), offered);
    }
}

#[tokio::test]
async fn built_in_tools_are_run_here_too_and_stay_invisible() {
    let gateway = TestGateway::start().await;
    let used = tool_call(
        "u1",
        "convert_units",
        r#"{"amount":"1","from":"ether","to":"gwei"}"#,
    );
    let (first, last) = (calling(&[used]), completion("It is 1000000000 gwei."));
    gateway.upstream.play_for_each(move |request| {
        let messages = request.body["messages"].as_array().unwrap();
        let is_first = messages.last().unwrap()["role"] == "user";
        let body = if is_first { &first } else { &last };
        let body = body.to_string();
        vec![Step::Send(response(200, "application/json", &body))]
    });
    let body = asking(json!({ "model": "svc-basic", "max_output_tokens": 100 }));
    let answer = gateway.respond(&body).await;
    let response = answer.assert_ok();
    assert_eq!(gateway.upstream.calls(), 2, "the tool was run in between");
    assert_eq!(response["tools"], json!([]));
    assert_eq!(response["output"].as_array().unwrap().len(), 1);
    let said = &response["output"][0]["content"][0]["text"];
    assert_eq!(*said, "It is 1000000000 gwei.");
    assert_eq!(response["usage"]["input_tokens"], 22, "both steps");
    assert!(!answer.body.to_string().contains("convert_units"));
    // A continuation contains no trace of the tool either.
    let next = json!({ "model": "svc-basic", "previous_response_id": response["id"] });
    gateway.respond(&asking(next)).await.assert_ok();
    let sent = &gateway.upstream.received()[2].body;
    assert!(!sent["messages"].to_string().contains("convert_units"));
    let first = &gateway.upstream.received()[0].body;
    assert_eq!(first["messages"][0]["role"], "system");
    assert_eq!(sent["messages"][0], first["messages"][0], "sent once");

    for more in [
        json!({ "tool_execution": "passthrough" }),
        json!({ "tool_choice": "none" }),
        json!({ "model": MODEL }),
    ] {
        let mut body = body.clone();
        body.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        let offered = gateway.upstream.calls();
        gateway.respond(&body).await.assert_ok();
        let sent = &gateway.upstream.received()[offered].body;
        assert_eq!(sent.get("tools"), None, "{more}");
    }
}
