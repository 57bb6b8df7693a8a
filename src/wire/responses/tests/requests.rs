//! Fields of a request and the chat request they become.

use serde_json::{Value, json};

use super::{
    super::{output::item_id, response_of_item},
    messages_json, parse, refused,
};
use crate::wire::{
    chat::{ToolChoice, ToolExecution},
    error::GatewayError,
    responses::ResponsesRequest,
};

/// The value of `field` in the response to a request with these fields.
#[track_caller]
fn echoed(more: Value, field: &str) -> Value {
    let response = super::NewResponse {
        echo: parse(more).unwrap().echo,
        ..super::new_response()
    };
    response.in_progress()[field].clone()
}

#[test]
fn every_field_is_repeated_as_it_was_sent_or_as_it_is_without() {
    let schema = json!({ "type": "object" });
    for (field, sent, otherwise) in [
        ("instructions", json!("Be brief.\u{0}"), json!(null)),
        ("max_output_tokens", json!(5), json!(null)),
        ("max_tool_calls", json!(2), json!(null)),
        ("parallel_tool_calls", json!(false), json!(true)),
        ("previous_response_id", json!("resp_0"), json!(null)),
        ("prompt_cache_key", json!("k"), json!(null)),
        ("safety_identifier", json!("s"), json!(null)),
        ("store", json!(false), json!(true)),
        ("temperature", json!(0.25), json!(1.0)),
        ("top_p", json!(0), json!(1.0)),
        ("top_logprobs", json!(3), json!(0)),
        ("truncation", json!("auto"), json!("disabled")),
        ("user", json!("me"), json!(null)),
        ("metadata", json!({ "b": "1", "a": "2" }), json!({})),
        ("model", json!("other"), json!("m")),
        (
            "reasoning",
            json!({ "effort": "low", "summary": "auto" }),
            json!({ "effort": null, "summary": null }),
        ),
        (
            "text",
            json!({ "format": { "type": "json_object" }, "verbosity": "low" }),
            json!({ "format": { "type": "text" } }),
        ),
        (
            "text",
            json!({ "format": {
                "type": "json_schema", "name": "n", "description": null, "schema": schema,
                "strict": true,
            } }),
            json!({ "format": { "type": "text" } }),
        ),
        ("tool_choice", json!("required"), json!("auto")),
        (
            "tools",
            json!([{
                "type": "function", "name": "f", "description": null, "parameters": schema,
                "strict": false,
            }]),
            json!([]),
        ),
    ] {
        assert_eq!(echoed(json!({ field: sent }), field), sent, "{field}");
        assert_eq!(echoed(json!({}), field), otherwise, "{field}");
        if field != "model" {
            let null = echoed(json!({ field: null }), field);
            assert_eq!(null, otherwise, "null is the same as absent: {field}");
        }
    }
    // Optional fields that a tool was sent without are repeated as null.
    let bare = json!([{ "type": "function", "name": "f" }]);
    let shown = json!([{
        "type": "function", "name": "f", "description": null, "parameters": null, "strict": null,
    }]);
    assert_eq!(echoed(json!({ "tools": bare }), "tools"), shown);
}

#[test]
fn fields_become_those_of_a_chat_request() {
    let request = parse(json!({
        "stream": true, "max_output_tokens": 5, "temperature": 0.5, "top_p": 0.25,
        "parallel_tool_calls": false, "reasoning": { "effort": "high", "summary": "auto" },
        "tool_execution": "passthrough", "instructions": "Be brief.", "user": "me",
        "tools": [{ "type": "function", "name": "f", "description": null, "strict": true }],
        "text": { "format": { "type": "json_object" } },
    }));
    let chat = request.unwrap();
    let chat = chat.into_chat(Vec::new());
    assert!(chat.stream);
    assert_eq!(chat.max_output_tokens, Some(5));
    assert_eq!(chat.sampling.temperature, Some(json!(0.5)));
    assert_eq!(chat.sampling.top_p, Some(json!(0.25)));
    assert_eq!(chat.parallel_tool_calls, Some(false));
    assert_eq!(chat.reasoning_effort.as_deref(), Some("high"));
    assert_eq!(chat.tool_execution, ToolExecution::Passthrough);
    assert_eq!(
        json!(chat.tools),
        json!([{ "type": "function", "function": { "name": "f", "strict": true } }])
    );
    assert_eq!(
        json!(chat.response_format),
        json!({ "type": "json_object" })
    );
    assert_eq!(
        messages_json(&chat.messages),
        json!([{ "role": "system", "content": "Be brief." }])
    );
}

#[test]
fn fields_that_change_nothing_here_are_accepted_whatever_they_hold() {
    for more in [
        json!({ "include": [] }),
        json!({ "include": ["reasoning.encrypted_content"] }),
        json!({ "stream_options": { "include_obfuscation": false } }),
        json!({ "service_tier": "flex" }),
        json!({ "prompt_cache_retention": "24h" }),
        json!({ "context_management": [{ "type": "compaction" }] }),
        json!({ "background": false }),
        json!({ "background": null, "conversation": null, "prompt": null }),
        json!({ "reasoning": {} }),
        json!({ "text": {} }),
        json!({ "text": { "format": null, "verbosity": null } }),
        json!({ "tools": [] }),
        json!({ "client_metadata": { "a": "b" } }),
        json!({ "reasoning": { "effort": "low", "context": "all_turns" } }),
        json!({ "unheard_of": { "deep": [1] } }),
    ] {
        parse(more).unwrap();
    }
}

#[test]
fn unsupported_fields_are_refused_by_name() {
    let tool = |kind: &str| json!({ "tools": [{ "type": kind }] });
    let format = |format: Value| json!({ "text": { "format": format } });
    for (more, param) in [
        (json!({ "model": null }), "model"),
        (json!({ "model": "" }), "model"),
        (json!({ "model": 5 }), "model"),
        (json!({ "background": true }), "background"),
        (json!({ "background": "yes" }), "background"),
        (json!({ "conversation": "conv_1" }), "conversation"),
        (json!({ "conversation": { "id": "c" } }), "conversation"),
        (json!({ "prompt": { "id": "p" } }), "prompt"),
        (tool("file_search"), "tools[0].type"),
        (tool("mcp"), "tools[0].type"),
        (tool("code_interpreter"), "tools[0].type"),
        (tool("computer_use_preview"), "tools[0].type"),
        (tool("tool_search"), "tools[0].type"),
        (tool("shell"), "tools[0].type"),
        (tool("local_shell"), "tools[0].type"),
        (tool("apply_patch"), "tools[0].type"),
        (json!({ "tools": [{ "name": "f" }] }), "tools[0].type"),
        (tool("custom"), "tools[0].name"),
        (tool("namespace"), "tools[0].name"),
        (tool("function"), "tools[0].name"),
        (json!({ "tools": {} }), "tools"),
        (
            json!({ "tools": [{ "type": "function", "name": 5 }] }),
            "tools[0].name",
        ),
        (
            json!({ "tools": [{ "type": "function", "name": "f", "parameters": "x" }] }),
            "tools[0].parameters",
        ),
        (
            // The nested form of chat completions.
            json!({ "tools": [{ "type": "function", "function": { "name": "f" } }] }),
            "tools[0].name",
        ),
        (format(json!({ "type": "xml" })), "text.format.type"),
        (
            format(json!({ "type": "json_schema", "schema": {} })),
            "text.format.name",
        ),
        (
            format(json!({ "type": "json_schema", "name": "n" })),
            "text.format.schema",
        ),
        (
            format(json!({ "type": "json_schema", "name": "n", "schema": 5 })),
            "text.format.schema",
        ),
        (json!({ "max_output_tokens": -1 }), "max_output_tokens"),
        (json!({ "max_output_tokens": 1.5 }), "max_output_tokens"),
        (json!({ "store": "yes" }), "store"),
        (json!({ "stream": 1 }), "stream"),
        (json!({ "instructions": 5 }), "instructions"),
        (json!({ "metadata": [] }), "metadata"),
        (json!({ "previous_response_id": 5 }), "previous_response_id"),
        (json!({ "reasoning": { "effort": 5 } }), "reasoning.effort"),
        (json!({ "tool_execution": "never" }), "tool_execution"),
        (json!({ "truncation": 5 }), "truncation"),
    ] {
        assert_eq!(refused(more.clone()), param, "{more}");
    }
}

/// Schemas are sent upstream unparsed, but a response repeats them.
#[test]
fn values_that_cannot_be_repeated_are_refused() {
    for bad in [r#""\ud800""#, "1e999"] {
        for (more, param) in [
            (
                r#""tools":[{"type":"function","name":"f","parameters":{"a":BAD}}]"#,
                "tools",
            ),
            (r#""metadata":{"a":BAD}"#, "metadata"),
            (
                r#""text":{"format":{"type":"json_schema","name":"n","schema":{"a":BAD}}}"#,
                "text.format",
            ),
        ] {
            let body = format!(r#"{{"model":"m","input":"Hi",{more}}}"#).replace("BAD", bad);
            let error = ResponsesRequest::parse(body.as_bytes()).unwrap_err();
            let named = matches!(
                &error,
                GatewayError::InvalidRequest { param: Some(named), .. } if named == param
            );
            assert!(named, "{body}: {error:?}");
        }
    }
}

#[test]
fn fields_that_are_only_repeated_have_size_limits() {
    let text = |bytes: usize| json!("x".repeat(bytes - 2));
    let map = |bytes: usize| json!({ "k": "x".repeat(bytes - 8) });
    let choice = |bytes: usize| json!({ "type": "function", "name": "x".repeat(bytes - 29) });
    for (field, most) in [
        ("metadata", 16_384),
        ("user", 1_024),
        ("safety_identifier", 1_024),
        ("prompt_cache_key", 1_024),
        ("tool_choice", 65_536),
    ] {
        for (bytes, taken) in [(most, true), (most + 1, false)] {
            let value = match field {
                "metadata" => map(bytes),
                "tool_choice" => choice(bytes),
                _ => text(bytes),
            };
            assert_eq!(value.to_string().len(), bytes, "{field}");
            let body = json!({ "model": "m", "input": "Hi", field: value });
            let read = ResponsesRequest::parse(body.to_string().as_bytes());
            let param = read.err().and_then(|error| error.envelope().param);
            assert_eq!(param.is_none(), taken, "{field} of {bytes}");
            assert!(taken || param.as_deref() == Some(field));
        }
    }
    // The value may be anything, because the model may drop the parameter.
    assert_eq!(echoed(json!({ "temperature": "x" }), "temperature"), 1.0);
}

#[test]
fn the_choice_of_a_tool_has_five_forms() {
    let function = |name: &str| json!({ "type": "function", "name": name });
    let allowed = |mode: &str| json!({ "type": "allowed_tools", "mode": mode, "tools": [function("f"), function("g")] });
    for (sent, read) in [
        (json!("auto"), ToolChoice::Auto),
        (json!("none"), ToolChoice::None),
        (json!("required"), ToolChoice::Required),
        (function("f"), ToolChoice::Named("f".into())),
    ] {
        let request = parse(json!({ "tool_choice": sent })).unwrap();
        assert_eq!(request.chat.tool_choice, Some(read), "{sent}");
        assert_eq!(request.echo.tool_choice, sent);
    }
    for (mode, required) in [("auto", false), ("required", true)] {
        let request = parse(json!({ "tool_choice": allowed(mode) })).unwrap();
        let Some(ToolChoice::Allowed(some)) = request.chat.tool_choice else {
            panic!("{mode}");
        };
        assert_eq!(some.required, required);
        assert_eq!(some.names, ["f", "g"]);
    }
    for sent in [
        json!("any"),
        json!(5),
        json!([]),
        json!({}),
        json!({ "type": "function" }),
        json!({ "type": "function", "function": { "name": "f" } }),
        json!({ "type": "web_search" }),
        json!({ "type": "allowed_tools", "mode": "none", "tools": [] }),
        json!({ "type": "allowed_tools", "mode": "auto" }),
        json!({ "type": "allowed_tools", "mode": "auto", "tools": [{ "type": "mcp" }] }),
    ] {
        let param = refused(json!({ "tool_choice": sent }));
        assert_eq!(param, "tool_choice", "{sent}");
    }
}

#[test]
fn structured_output_is_nested_as_chat_has_it() {
    for (format, nested) in [
        (json!({ "type": "text" }), json!(null)),
        (
            json!({ "type": "json_object" }),
            json!({ "type": "json_object" }),
        ),
        (
            json!({
                "type": "json_schema", "name": "n", "description": "d", "strict": true,
                "schema": { "type": "object" },
            }),
            json!({ "type": "json_schema", "json_schema": {
                "name": "n", "description": "d", "strict": true, "schema": { "type": "object" },
            } }),
        ),
        (
            json!({ "type": "json_schema", "name": "n", "schema": {}, "strict": null }),
            json!({ "type": "json_schema", "json_schema": { "name": "n", "schema": {} } }),
        ),
    ] {
        let request = parse(json!({ "text": { "format": format } })).unwrap();
        assert_eq!(json!(request.chat.response_format), nested, "{format}");
    }
}

#[test]
fn an_items_id_leads_to_its_response() {
    for prefix in ["msg", "fc", "ctc"] {
        for response in ["resp_abc", "resp_a_b", "resp__", "resp_"] {
            for at in [0, 7, 511] {
                let id = item_id(prefix, response, at);
                assert_eq!(response_of_item(&id).as_deref(), Some(response), "{id}");
            }
        }
    }
    assert_eq!(item_id("msg", "resp_abc", 0), "msg_abc_0");
    for id in [
        "",
        "msg_",
        "msg_abc",
        "msg_abc_",
        "msg_abc_x",
        "rs_abc_0",
        "abc_0",
        "resp_abc",
    ] {
        assert_eq!(response_of_item(id), None, "{id}");
    }
}
