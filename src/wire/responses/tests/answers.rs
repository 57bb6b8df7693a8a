//! The response object of a response that is not streamed.

use serde_json::{Value, json};

use super::{BILL, USAGE, new_response};
use crate::wire::{
    chat::{Answer, Choice, FinishReason, ToolCall},
    json_text::JsonText,
};

fn answer(content: Option<&str>, calls: &[(&str, &str)], finish: FinishReason) -> Value {
    let calls = calls
        .iter()
        .map(|(id, name)| ToolCall::new((*id).into(), (*name).into(), JsonText::new("{\"a\":1}")));
    let choice = Choice {
        index: 0,
        content: content.map(JsonText::new),
        tool_calls: calls.collect(),
        finish,
        logprobs: None,
    };
    let answer = Answer {
        choices: vec![choice],
        usage: Some(USAGE),
        native: None,
    };
    new_response().whole(&answer, Some(BILL), 200, true)
}

#[test]
fn a_response_has_every_field_always() {
    let all = answer(Some("Hello"), &[], FinishReason::Stop);
    insta::assert_snapshot!(serde_json::to_string_pretty(&all).unwrap());
    let keys = |object: &Value| -> Vec<String> {
        let keys = object.as_object().unwrap().keys();
        keys.cloned().collect()
    };
    assert_eq!(keys(&new_response().in_progress()), keys(&all));
}

#[test]
fn text_comes_before_tool_calls() {
    use FinishReason::{ContentFilter, Length, Stop, ToolCalls};

    let calls: &[_] = &[("call_a", "f"), ("call_b", "g")];
    let message = |status: &str| {
        json!({
            "id": "msg_1_0", "type": "message", "role": "assistant", "status": status,
            "content": [{
                "type": "output_text", "text": "Hi", "annotations": [], "logprobs": [],
            }],
        })
    };
    let call = |at: u32, id: &str, name: &str, status: &str| {
        json!({
            "id": format!("fc_1_{at}"), "type": "function_call", "status": status, "call_id": id,
            "name": name, "arguments": "{\"a\":1}",
        })
    };
    let cut = json!("incomplete");
    for (content, calls, finish, output) in [
        (Some("Hi"), &[][..], Stop, vec![message("completed")]),
        (Some("Hi"), &[], Length, vec![message("incomplete")]),
        (Some("Hi"), &[], ContentFilter, vec![message("incomplete")]),
        (None, &[], Stop, vec![]),
        (Some(""), &[], ContentFilter, vec![]),
        (
            None,
            calls,
            ToolCalls,
            vec![
                call(0, "call_a", "f", "completed"),
                call(1, "call_b", "g", "completed"),
            ],
        ),
        (
            Some(""),
            &calls[..1],
            ToolCalls,
            vec![call(0, "call_a", "f", "completed")],
        ),
        (
            Some("Hi"),
            calls,
            ToolCalls,
            vec![
                message("completed"),
                call(1, "call_a", "f", "completed"),
                call(2, "call_b", "g", "completed"),
            ],
        ),
        (
            Some("Hi"),
            &calls[..1],
            Length,
            vec![message("completed"), call(1, "call_a", "f", "incomplete")],
        ),
    ] {
        let object = answer(content, calls, finish);
        assert_eq!(object["output"], json!(output), "{content:?} {finish:?}");
        let (status, why, at) = match finish {
            Stop | ToolCalls => (json!("completed"), json!(null), json!(200)),
            Length => (
                cut.clone(),
                json!({ "reason": "max_output_tokens" }),
                json!(null),
            ),
            ContentFilter => (
                cut.clone(),
                json!({ "reason": "content_filter" }),
                json!(null),
            ),
        };
        assert_eq!(object["status"], status);
        assert_eq!(object["incomplete_details"], why);
        assert_eq!(object["completed_at"], at);
    }
}
