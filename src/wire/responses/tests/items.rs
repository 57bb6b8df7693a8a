//! Items and the messages they become.

use serde_json::{Value, json};

use super::{super::conversation, messages_json, parse, refused};
use crate::wire::chat::Message;

/// The messages that these items become.
#[track_caller]
fn messages(items: Value) -> Value {
    after(Vec::new(), items)
}

#[track_caller]
fn after(earlier: Vec<Message>, items: Value) -> Value {
    let mut request = parse(json!({ "input": items })).unwrap();
    messages_json(&conversation(earlier, request.items, &mut request.names))
}

fn call(id: &str) -> Value {
    json!({ "type": "function_call", "call_id": id, "name": "f", "arguments": "{}" })
}

fn called(id: &str) -> Value {
    json!({ "id": id, "type": "function", "function": { "name": "f", "arguments": "{}" } })
}

fn custom_call(id: &str) -> Value {
    json!({ "type": "custom_tool_call", "call_id": id, "name": "patch", "input": "*** \"a\"\n" })
}

fn output(id: &str) -> Value {
    json!({ "type": "function_call_output", "call_id": id, "output": "1" })
}

fn tool(id: &str) -> Value {
    json!({ "role": "tool", "content": "1", "tool_call_id": id })
}

#[test]
fn every_way_to_write_a_message_is_read() {
    for (item, role, content) in [
        (json!({ "role": "user", "content": "a" }), "user", "a"),
        (
            json!({ "type": null, "role": "user", "content": "a" }),
            "user",
            "a",
        ),
        (
            json!({ "type": "message", "role": "user", "content": "a" }),
            "user",
            "a",
        ),
        (json!({ "role": "system", "content": "a" }), "system", "a"),
        (
            json!({ "role": "developer", "content": "a" }),
            "system",
            "a",
        ),
        (
            json!({ "role": "assistant", "content": "a" }),
            "assistant",
            "a",
        ),
        (json!({ "role": "user", "content": "" }), "user", ""),
        (json!({ "role": "user", "content": [] }), "user", ""),
        (
            json!({ "role": "user", "content": [
                { "type": "input_text", "text": "a" },
                { "type": "input_image", "image_url": "data:image/png;base64,AA==" },
                { "type": "input_file", "file_id": "file_1", "filename": "a.pdf" },
                { "type": "input_audio", "input_audio": { "data": "AA==", "format": "mp3" } },
                { "type": "input_text", "text": "b" },
            ] }),
            "user",
            "a\nb",
        ),
        (
            json!({ "role": "user", "content": [{ "type": "text", "text": "a" }] }),
            "user",
            "a",
        ),
        // An output item of an earlier response, sent back.
        (
            json!({
                "id": "msg_1_0", "type": "message", "role": "assistant", "status": "completed",
                "content": [{
                    "type": "output_text", "text": "a", "annotations": [], "logprobs": [],
                }],
            }),
            "assistant",
            "a",
        ),
        (
            json!({ "role": "assistant", "content": [{ "type": "refusal", "refusal": "no" }] }),
            "assistant",
            "no",
        ),
        (
            json!({ "role": "user", "content": "\u{0} ü \u{1f600} \" \\ \n" }),
            "user",
            "\u{0} ü \u{1f600} \" \\ \n",
        ),
    ] {
        let expected = json!([{ "role": role, "content": content }]);
        assert_eq!(messages(json!([item])), expected, "{item}");
    }
    assert_eq!(
        messages(json!("\u{0} ü")),
        json!([{ "role": "user", "content": "\u{0} ü" }])
    );
}

#[test]
fn a_functions_output_is_a_text_or_parts_of_one() {
    for (output, content) in [
        (json!("1"), "1"),
        (json!(""), ""),
        (json!([]), ""),
        (
            json!([
                { "type": "input_text", "text": "a" }, { "type": "input_image", "file_id": "f" },
                { "type": "input_text", "text": "b" },
            ]),
            "a\n[The tool returned an image here, which this model cannot read.]\nb",
        ),
        (
            json!([{ "type": "input_file", "file_id": "f" }, { "type": "refusal", "refusal": "no" }]),
            "[The tool returned a file here, which this model cannot read.]\nno",
        ),
    ] {
        for kind in ["function_call_output", "custom_tool_call_output"] {
            let item = json!({ "type": kind, "call_id": "c", "output": output });
            let expected = json!([{ "role": "tool", "content": content, "tool_call_id": "c" }]);
            assert_eq!(messages(json!([item])), expected);
        }
    }
}

#[test]
fn calls_belong_to_the_assistants_message_beside_them() {
    let assistant = |text: &str| json!({ "role": "assistant", "content": text });
    let calling = |content: Value, ids: &[&str]| {
        let calls: Vec<_> = ids.iter().map(|id| called(id)).collect();
        json!({ "role": "assistant", "content": content, "tool_calls": calls })
    };
    let thought = json!({ "type": "reasoning", "id": "rs_1", "summary": [] });
    for (items, expected) in [
        (json!([call("a")]), json!([calling(Value::Null, &["a"])])),
        (
            json!([call("a"), call("b"), output("b"), output("a")]),
            json!([calling(Value::Null, &["a", "b"]), tool("b"), tool("a")]),
        ),
        (
            json!([assistant("x"), call("a"), output("a")]),
            json!([calling(json!("x"), &["a"]), tool("a")]),
        ),
        // Text after the calls belongs to the same turn: the outputs follow it.
        (
            json!([call("a"), assistant("x"), output("a")]),
            json!([calling(json!("x"), &["a"]), tool("a")]),
        ),
        (
            json!([
                assistant("x"),
                call("a"),
                assistant("y"),
                call("b"),
                output("a"),
                output("b")
            ]),
            json!([calling(json!("x\ny"), &["a", "b"]), tool("a"), tool("b")]),
        ),
        (
            json!([
                call("a"),
                output("a"),
                call("b"),
                output("b"),
                assistant("x")
            ]),
            json!([
                calling(Value::Null, &["a"]),
                tool("a"),
                calling(Value::Null, &["b"]),
                tool("b"),
                assistant("x"),
            ]),
        ),
        (
            json!([thought, call("a"), thought, call("b"), thought]),
            json!([calling(Value::Null, &["a", "b"])]),
        ),
        (
            json!([
                call("a"),
                assistant("x"),
                assistant("y"),
                output("a"),
                assistant("z"),
                assistant("w")
            ]),
            json!([
                calling(json!("x\ny"), &["a"]),
                tool("a"),
                assistant("z"),
                assistant("w"),
            ]),
        ),
        (
            json!([assistant("x"), assistant("y")]),
            json!([assistant("x"), assistant("y")]),
        ),
    ] {
        assert_eq!(messages(items.clone()), expected, "{items}");
    }
}

#[test]
fn calls_of_other_tools_become_calls_of_functions() {
    let called = |id: &str, name: &str, arguments: &str| json!({ "id": id, "type": "function", "function": { "name": name, "arguments": arguments } });
    let mut namespaced = call("b");
    namespaced["namespace"] = "mcp__tiny".into();
    let mut inside = custom_call("c");
    inside["namespace"] = "functions".into();
    let items = json!([custom_call("a"), namespaced, inside, output("b")]);
    let input = r#"{"input":"*** \"a\"\n"}"#;
    let expected = json!([
        called("a", "patch", input),
        called("b", "mcp__tiny__f", "{}"),
        called("c", "functions__patch", input),
    ]);
    assert_eq!(messages(items)[0]["tool_calls"], expected);
}

#[test]
fn several_outputs_of_a_call_become_one() {
    let output = |id: &str, text: &str| json!({ "type": "custom_tool_call_output", "call_id": id, "output": text });
    let tool =
        |id: &str, text: &str| json!({ "role": "tool", "content": text, "tool_call_id": id });
    let said = |role: &str| json!({ "role": role, "content": "x" });
    let calls = |ids: &[&str]| {
        let calls: Vec<_> = ids.iter().map(|id| called(id)).collect();
        json!({ "role": "assistant", "content": null, "tool_calls": calls })
    };
    for (items, expected) in [
        (
            json!([
                call("a"),
                output("a", "1"),
                output("a", "2"),
                output("a", "3")
            ]),
            json!([calls(&["a"]), tool("a", "1\n2\n3")]),
        ),
        (
            json!([
                call("a"),
                call("b"),
                output("a", "1"),
                output("b", "2"),
                output("a", "3")
            ]),
            json!([calls(&["a", "b"]), tool("a", "1\n3"), tool("b", "2")]),
        ),
        // Reports that come after later turns.
        (
            json!([
                call("a"),
                output("a", "1"),
                said("user"),
                output("a", "2"),
                call("b"),
                output("a", "3"),
                output("b", "4"),
                output("b", "5")
            ]),
            json!([
                calls(&["a"]),
                tool("a", "1\n2\n3"),
                said("user"),
                calls(&["b"]),
                tool("b", "4\n5")
            ]),
        ),
        // Two calls with one ID have an output each.
        (
            json!([
                call("a"),
                call("a"),
                output("a", "1"),
                output("a", "2"),
                output("a", "3")
            ]),
            json!([calls(&["a", "a"]), tool("a", "1"), tool("a", "2\n3")]),
        ),
        (
            json!([call("a"), output("a", "1"), call("a"), output("a", "2")]),
            json!([calls(&["a"]), tool("a", "1"), calls(&["a"]), tool("a", "2")]),
        ),
    ] {
        assert_eq!(messages(items.clone()), expected, "{items}");
    }
    let stored = json!([calls(&["a"]), tool("a", "1")]);
    let earlier: Vec<Message> = serde_json::from_str(&stored.to_string()).unwrap();
    let all = after(earlier, json!([output("a", "2")]));
    assert_eq!(all, json!([calls(&["a"]), tool("a", "1\n2")]));
}

#[test]
fn a_developers_message_does_not_come_between_a_call_and_its_output() {
    let developer = json!({ "role": "developer", "content": "x" });
    let system = json!({ "role": "system", "content": "x" });
    let calls = |ids: &[&str]| {
        let calls: Vec<_> = ids.iter().map(|id| called(id)).collect();
        json!({ "role": "assistant", "content": null, "tool_calls": calls })
    };
    for (items, expected) in [
        (
            json!([call("a"), developer, output("a")]),
            json!([calls(&["a"]), tool("a"), system]),
        ),
        (
            json!([
                call("a"),
                developer,
                call("b"),
                output("a"),
                developer,
                output("b")
            ]),
            json!([calls(&["a", "b"]), tool("a"), tool("b"), system, system]),
        ),
        (
            json!([call("a"), output("a"), developer, call("b"), output("b")]),
            json!([calls(&["a"]), tool("a"), system, calls(&["b"]), tool("b")]),
        ),
    ] {
        assert_eq!(messages(items.clone()), expected, "{items}");
    }
}

#[test]
fn a_message_between_agents_is_one_of_the_user() {
    let message = json!({
        "type": "agent_message", "id": "am_1", "author": "/root", "recipient": "/root/a",
        "content": [
            { "type": "input_text", "text": "From /root:" },
            { "type": "encrypted_content", "encrypted_content": "Count the files." },
        ],
    });
    let searched =
        json!({ "type": "web_search_call", "id": "ws_1", "action": { "type": "search" } });
    assert_eq!(
        messages(json!([searched, message])),
        json!([{ "role": "user", "content": "From /root:\nCount the files." }])
    );
}

#[test]
fn items_go_on_where_an_earlier_conversation_ended() {
    let stored = json!([
        { "role": "user", "content": "Hi" },
        { "role": "assistant", "content": null, "tool_calls": [called("a")] },
    ]);
    let earlier: Vec<Message> = serde_json::from_str(&stored.to_string()).unwrap();
    assert_eq!(messages_json(&earlier), stored, "it is stored as it is");
    let all = after(earlier, json!([output("a")]));
    assert_eq!(all, json!([stored[0], stored[1], tool("a")]));
}

#[test]
fn an_item_that_is_only_named_is_a_reference() {
    for item in [
        json!({ "type": "item_reference", "id": "msg_1_0" }),
        json!({ "id": "msg_1_0" }),
        json!({ "type": null, "id": "msg_1_0" }),
    ] {
        let request = parse(json!({ "input": [item] })).unwrap();
        assert_eq!(request.items[0].reference(), Some("msg_1_0"), "{item}");
    }
    let whole = json!({ "id": "msg_1_0", "role": "assistant", "content": "a" });
    let request = parse(json!({ "input": [whole] })).unwrap();
    assert_eq!(request.items[0].reference(), None);
    assert_eq!(request.items[0].id(), Some("msg_1_0"));
}

#[test]
fn errors_name_the_item_by_its_index() {
    let without = |mut item: Value, field: &str| {
        item.as_object_mut().unwrap().remove(field);
        item
    };
    for (item, field) in [
        (json!({}), "role"),
        (json!({ "content": "a" }), "role"),
        (
            json!({ "type": "message", "id": "x", "content": "a" }),
            "role",
        ),
        (json!({ "role": "tool", "content": "a" }), "role"),
        (json!({ "role": "User", "content": "a" }), "role"),
        (json!({ "role": "", "content": "a" }), "role"),
        (json!({ "role": 5, "content": "a" }), "role"),
        (json!({ "role": "user" }), "content"),
        (json!({ "role": "user", "content": null }), "content"),
        (json!({ "role": "user", "content": 5 }), "content"),
        (json!({ "role": "user", "content": {} }), "content"),
        (json!({ "role": "user", "content": ["a"] }), "content"),
        (
            json!({ "role": "user", "content": [{ "type": "input_text", "text": 5 }] }),
            "content",
        ),
        (without(call("a"), "call_id"), "call_id"),
        (without(call("a"), "name"), "name"),
        (without(call("a"), "arguments"), "arguments"),
        (
            json!({ "type": "function_call", "call_id": "a", "name": "f", "arguments": {} }),
            "arguments",
        ),
        (without(output("a"), "call_id"), "call_id"),
        (without(output("a"), "output"), "output"),
        (json!({ "type": "item_reference" }), "id"),
        (json!({ "type": "item_reference", "id": null }), "id"),
        (json!({ "type": "computer_call_output" }), "type"),
        (json!({ "type": "compaction_trigger" }), "type"),
        (
            json!({ "type": "compaction", "encrypted_content": "x" }),
            "type",
        ),
        (
            json!({ "type": "tool_search_call", "call_id": "c", "arguments": {} }),
            "type",
        ),
        (
            json!({ "type": "mcp_list_tools", "tools": [{ "name": "f", "input_schema": {} }] }),
            "type",
        ),
        (without(custom_call("a"), "call_id"), "call_id"),
        (without(custom_call("a"), "name"), "name"),
        (without(custom_call("a"), "input"), "input"),
        (
            json!({ "type": "custom_tool_call_output", "output": "1" }),
            "call_id",
        ),
        (json!({ "type": "agent_message", "author": "a" }), "content"),
        (
            json!({ "type": "additional_tools", "role": "developer" }),
            "tools",
        ),
        (
            json!({ "type": "", "role": "user", "content": "a" }),
            "type",
        ),
        (json!({ "type": 5 }), "type"),
    ] {
        let first = json!({ "role": "user", "content": "a" });
        let param = refused(json!({ "input": [first, item] }));
        assert_eq!(param, format!("input[1].{field}"), "{item}");
    }
    assert_eq!(refused(json!({ "input": ["Hi"] })), "input[0]");
    let thought = json!([{ "type": "reasoning", "id": "rs_1", "summary": [] }]);
    for input in [
        json!(null),
        json!([]),
        json!(5),
        json!({}),
        json!(true),
        thought,
    ] {
        assert_eq!(refused(json!({ "input": input })), "input", "{input}");
    }
    // `input` is not needed if the request continues an earlier response.
    let more = json!({ "input": null, "previous_response_id": "resp_1" });
    assert!(parse(more).unwrap().items.is_empty());
}
