//! §4.2: the Responses API is translated to chat completions, both ways.

use serde_json::{Value, json};

use crate::support::{
    TestGateway,
    responses::{MODEL, asking, function, tool_call},
    upstream::completion,
};

/// The upstream body of a plain request, with one field added or replaced.
async fn sent_with(gateway: &TestGateway, field: &str, value: Value) -> Value {
    let mut plain = gateway.forwards_response(&asking(json!({}))).await;
    plain[field] = value;
    plain
}

#[tokio::test]
async fn a_text_input_is_a_user_message() {
    let gateway = TestGateway::start().await;
    let answer = gateway.respond(&asking(json!({}))).await;
    let response = answer.assert_ok();
    assert!(answer.headers.contains_key("x-request-id"));
    assert_eq!(response["status"], "completed");
    let id = response["id"].as_str().unwrap();
    let item = &response["output"][0];
    let expected = json!({
        "id": format!("msg_{}_0", id.strip_prefix("resp_").unwrap()), "type": "message",
        "role": "assistant", "status": "completed",
        "content": [{
            "type": "output_text", "text": "Hello from upstream", "annotations": [],
            "logprobs": [],
        }],
    });
    assert_eq!(*item, expected);
    let sent = gateway.upstream.last_body();
    assert_eq!(
        sent,
        json!({
            "model": "vendor-model-9", "stream": false, "user": gateway.account_id,
            "messages": [{ "role": "user", "content": "Hello" }],
        })
    );
    assert!(!answer.body.to_string().contains("vendor"));
}

#[tokio::test]
async fn every_key_is_there_with_the_type_that_clients_expect() {
    let gateway = TestGateway::start().await;
    let answer = gateway.respond(&asking(json!({}))).await;
    let response = answer.assert_ok().as_object().unwrap();
    let nullable = [
        "error",
        "incomplete_details",
        "instructions",
        "max_output_tokens",
        "max_tool_calls",
        "previous_response_id",
        "prompt_cache_key",
        "safety_identifier",
        "user",
    ];
    for key in nullable {
        assert_eq!(response.get(key), Some(&Value::Null), "{key}");
    }
    let given = [
        ("object", json!("response")),
        ("status", json!("completed")),
        ("background", json!(false)),
        ("model", json!(MODEL)),
        ("parallel_tool_calls", json!(true)),
        ("reasoning", json!({ "effort": null, "summary": null })),
        ("service_tier", json!("default")),
        ("store", json!(true)),
        ("temperature", json!(1.0)),
        ("text", json!({ "format": { "type": "text" } })),
        ("tool_choice", json!("auto")),
        ("tools", json!([])),
        ("top_logprobs", json!(0)),
        ("top_p", json!(1.0)),
        ("presence_penalty", json!(0)),
        ("frequency_penalty", json!(0)),
        ("truncation", json!("disabled")),
        ("metadata", json!({})),
        (
            "usage",
            json!({
                "input_tokens": 11,
                "input_tokens_details": { "cached_tokens": 0, "cache_write_tokens": 0 },
                "output_tokens": 3, "output_tokens_details": { "reasoning_tokens": 0 },
                "total_tokens": 14, "cost": "0.0000046",
            }),
        ),
    ];
    for (key, value) in &given {
        assert_eq!(response[*key], *value, "{key}");
    }
    let (created, completed) = (&response["created_at"], &response["completed_at"]);
    assert!(created.as_u64().unwrap() <= completed.as_u64().unwrap());
    assert!(response["id"].as_str().unwrap().starts_with("resp_"));
    assert!(response["output"].is_array());
    assert_eq!(response.len(), nullable.len() + given.len() + 4);
}

#[tokio::test]
async fn usage_is_the_providers_under_other_names() {
    let gateway = TestGateway::start().await;
    let mut counted = completion("Hi");
    counted["usage"] = json!({
        "prompt_tokens": 30, "completion_tokens": 9, "total_tokens": 39,
        "prompt_tokens_details": { "cached_tokens": 20 },
        "completion_tokens_details": { "reasoning_tokens": 5 },
    });
    gateway.upstream.answer_json(200, &counted);
    let answer = gateway.respond(&asking(json!({}))).await;
    assert_eq!(
        answer.assert_ok()["usage"],
        json!({
            "input_tokens": 30,
            "input_tokens_details": { "cached_tokens": 20, "cache_write_tokens": 0 },
            "output_tokens": 9, "output_tokens_details": { "reasoning_tokens": 5 },
            "total_tokens": 39, "cost": "0.0000096",
        })
    );
}

#[tokio::test]
async fn the_finish_reason_becomes_the_status() {
    let gateway = TestGateway::start().await;
    for (finish, status, why) in [
        ("stop", "completed", None),
        ("length", "incomplete", Some("max_output_tokens")),
        ("content_filter", "incomplete", Some("content_filter")),
    ] {
        let mut ended = completion("Hi");
        ended["choices"][0]["finish_reason"] = finish.into();
        gateway.upstream.answer_json(200, &ended);
        let answer = gateway.respond(&asking(json!({}))).await;
        let response = answer.assert_ok();
        assert_eq!(response["status"], status);
        assert_eq!(response["output"][0]["status"], status);
        assert_eq!(response["completed_at"].is_null(), why.is_some());
        let why = why.map_or(Value::Null, |reason| json!({ "reason": reason }));
        assert_eq!(response["incomplete_details"], why);
        assert_eq!(response["error"], Value::Null);
    }
}

#[tokio::test]
async fn fields_shared_with_chat_are_forwarded_and_echoed() {
    let gateway = TestGateway::start().await;
    for (field, value, upstream, sent) in [
        ("max_output_tokens", json!(50), "max_tokens", json!(50)),
        ("temperature", json!(0.5), "temperature", json!(0.5)),
        ("top_p", json!(0.25), "top_p", json!(0.25)),
        (
            "text",
            json!({ "format": {
                "type": "json_schema", "name": "n", "description": null, "schema": {},
                "strict": true,
            } }),
            "response_format",
            json!({ "type": "json_schema", "json_schema": {
                "name": "n", "schema": {}, "strict": true,
            } }),
        ),
        (
            "text",
            json!({ "format": { "type": "json_object" } }),
            "response_format",
            json!({ "type": "json_object" }),
        ),
        (
            "reasoning",
            json!({ "effort": "low", "summary": null }),
            "reasoning_effort",
            json!("low"),
        ),
        (
            "instructions",
            json!("Be brief."),
            "messages",
            json!([
                { "role": "system", "content": "Be brief." },
                { "role": "user", "content": "Hello" },
            ]),
        ),
    ] {
        let expected = sent_with(&gateway, upstream, sent).await;
        let answer = gateway.respond(&asking(json!({ field: value }))).await;
        assert_eq!(answer.assert_ok()[field], value, "{field}");
        assert_eq!(gateway.upstream.last_body(), expected, "{field}");
    }
}

#[tokio::test]
async fn fields_that_are_only_echoed_are_not_forwarded() {
    let gateway = TestGateway::start().await;
    let plain = gateway.forwards_response(&asking(json!({}))).await;
    for (field, value, shown) in [
        ("metadata", json!({ "a": "1" }), json!({ "a": "1" })),
        ("truncation", json!("auto"), json!("auto")),
        ("user", json!("me"), json!("me")),
        ("parallel_tool_calls", json!(false), json!(false)),
        ("prompt_cache_key", json!("k"), json!("k")),
        ("safety_identifier", json!("s"), json!("s")),
        ("max_tool_calls", json!(3), json!(3)),
        ("top_logprobs", json!(2), json!(2)),
        ("service_tier", json!("priority"), json!("default")),
        ("include", json!([]), json!(null)),
        (
            "include",
            json!(["message.output_text.logprobs"]),
            json!(null),
        ),
        (
            "stream_options",
            json!({ "include_obfuscation": true }),
            json!(null),
        ),
        ("context_management", json!([{ "type": "x" }]), json!(null)),
        ("unheard_of", json!({ "api_key": "x" }), json!(null)),
        // Names of chat fields have no meaning here.
        ("messages", json!([{ "role": "nobody" }]), json!(null)),
        ("response_format", json!("x"), json!(null)),
        ("n", json!(1), json!(null)),
        ("stop", json!(""), json!(null)),
        ("seed", json!(7), json!(null)),
        ("frequency_penalty", json!(2), json!(0)),
        ("logit_bias", json!({ "1": 5 }), json!(null)),
        (
            "text",
            json!({ "verbosity": "low" }),
            json!({ "format": { "type": "text" }, "verbosity": "low" }),
        ),
        (
            "text",
            json!({ "format": { "type": "text" } }),
            json!({ "format": { "type": "text" } }),
        ),
        ("tool_choice", json!("required"), json!("required")),
        ("tools", json!([]), json!([])),
    ] {
        let answer = gateway.respond(&asking(json!({ field: value }))).await;
        assert_eq!(answer.assert_ok()[field], shown, "{field}");
        assert_eq!(gateway.upstream.last_body(), plain, "{field}");
    }
}

#[tokio::test]
async fn null_is_the_same_as_absent() {
    let gateway = TestGateway::start().await;
    let plain = gateway.respond(&asking(json!({}))).await;
    let sent = gateway.upstream.last_body();
    let mut all = asking(json!({}));
    for field in [
        "instructions",
        "max_output_tokens",
        "max_tool_calls",
        "temperature",
        "top_p",
        "top_logprobs",
        "tools",
        "tool_choice",
        "parallel_tool_calls",
        "text",
        "reasoning",
        "metadata",
        "user",
        "safety_identifier",
        "prompt_cache_key",
        "store",
        "previous_response_id",
        "stream",
        "stream_options",
        "truncation",
        "tool_execution",
        "background",
        "conversation",
        "prompt",
        "include",
        "service_tier",
    ] {
        all[field] = Value::Null;
    }
    let nulls = gateway.respond(&all).await;
    assert_eq!(gateway.upstream.last_body(), sent);
    for (key, value) in plain.assert_ok().as_object().unwrap() {
        let differs = ["id", "created_at", "completed_at", "output"].contains(&key.as_str());
        assert!(differs || nulls.assert_ok()[key] == *value, "{key}");
    }
}

#[tokio::test]
async fn items_of_every_kind_form_one_conversation() {
    let gateway = TestGateway::start().await;
    let input = json!([
        { "role": "developer", "content": "Be kind." },
        { "role": "user", "content": [
            { "type": "input_text", "text": "What is" },
            { "type": "input_image", "image_url": "data:image/png;base64,AA==" },
            { "type": "input_text", "text": "this?" },
        ] },
        { "type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x" },
        { "type": "message", "id": "msg_x_0", "status": "completed", "role": "assistant", "content": [
            { "type": "output_text", "text": "Let me see.", "annotations": [], "logprobs": [] },
        ] },
        { "type": "function_call", "id": "fc_x_1", "call_id": "c1", "name": "f", "arguments": "{}" },
        { "type": "function_call", "call_id": "c2", "name": "g", "arguments": "{\"a\":1}",
          "status": "completed" },
        { "type": "function_call_output", "call_id": "c2", "output": [
            { "type": "input_text", "text": "2" },
        ] },
        { "type": "function_call_output", "call_id": "c1", "output": "1" },
        { "role": "assistant", "content": [{ "type": "refusal", "refusal": "I cannot." }] },
        { "role": "user", "content": "Why?" },
    ]);
    let more = json!({ "input": input, "instructions": "Be brief.", "tools": [function("f")] });
    let sent = gateway.forwards_response(&asking(more)).await;
    assert_eq!(
        sent["messages"],
        json!([
            { "role": "system", "content": "Be brief.\nBe kind." },
            { "role": "user", "content": "What is\nthis?" },
            { "role": "assistant", "content": "Let me see.", "tool_calls": [
                tool_call("c1", "f", "{}"), tool_call("c2", "g", "{\"a\":1}"),
            ] },
            { "role": "tool", "content": "2", "tool_call_id": "c2" },
            { "role": "tool", "content": "1", "tool_call_id": "c1" },
            { "role": "assistant", "content": "I cannot." },
            { "role": "user", "content": "Why?" },
        ])
    );
}
