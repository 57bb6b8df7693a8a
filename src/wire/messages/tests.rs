//! Properties of parsing: no body makes it panic, and what is refused is refused as the caller's mistake.

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::{MessagesRequest, Purpose};
use crate::wire::{chat::Role, error::GatewayError};

/// Names and texts that mean something, so that bodies get far.
const NAMES: [&str; 34] = [
    "type",
    "text",
    "role",
    "content",
    "id",
    "name",
    "input",
    "tool_use_id",
    "is_error",
    "source",
    "data",
    "title",
    "context",
    "thinking",
    "signature",
    "citations",
    "enabled",
    "tools",
    "system",
    "messages",
    "tool_choice",
    "input_schema",
    "max_tokens",
    "stop_sequences",
    "output_config",
    "format",
    "schema",
    "effort",
    "metadata",
    "user_id",
    "budget_tokens",
    "defer_loading",
    "tool_name",
    "thread",
];
const TEXTS: [&str; 22] = [
    "text",
    "user",
    "assistant",
    "system",
    "tool_use",
    "tool_result",
    "image",
    "document",
    "thinking",
    "redacted_thinking",
    "search_result",
    "tool_reference",
    "base64",
    "content",
    "toolu_1",
    "f",
    "auto",
    "tool",
    "enabled",
    "json_schema",
    "bash_20250124",
    "",
];

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-2_i64..5_000).prop_map(Value::from),
        prop::sample::select(&TEXTS[..]).prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 48, 6, |inner| {
        let name = prop::sample::select(&NAMES[..]);
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((name, inner), 0..6).prop_map(|fields| {
                let fields = fields
                    .into_iter()
                    .map(|(name, value)| (name.to_owned(), value));
                Value::Object(fields.collect::<Map<_, _>>())
            }),
        ]
    })
}

/// A message whose blocks are mostly well-formed.
fn any_message() -> impl Strategy<Value = Value> {
    let id = prop::sample::select(&["toolu_1", "toolu_2"][..]);
    let block = prop_oneof![
        3 => Just(json!({ "type": "text", "text": "a" })),
        2 => id.clone().prop_map(|id| json!({ "type": "tool_use", "id": id, "name": "f", "input": {} })),
        2 => id.prop_map(|id| json!({ "type": "tool_result", "tool_use_id": id, "content": "r" })),
        1 => Just(json!({ "type": "thinking", "thinking": "t", "signature": "s" })),
        1 => Just(json!({ "type": "image", "source": { "type": "url", "url": "x" } })),
        1 => any_json(),
    ];
    let role = prop::sample::select(&["user", "assistant", "system"][..]);
    (role, prop::collection::vec(block, 0..4))
        .prop_map(|(role, content)| json!({ "role": role, "content": content }))
}

/// Parses and converts; returns the error, if there is one.
fn refusal(body: &Value, takes_native: bool) -> Option<GatewayError> {
    let parsed = MessagesRequest::parse(body.to_string().as_bytes(), Purpose::Answer);
    let converted = parsed.and_then(|request| request.into_chat(takes_native));
    let converted = match converted {
        Ok(converted) => converted,
        Err(error) => return Some(error),
    };
    // What passes is a conversation that providers take: each call is directly followed by its result.
    let mut open: Vec<&str> = Vec::new();
    for message in &converted.chat.messages {
        if message.role == Role::Tool {
            let id = message.tool_call_id.as_deref().unwrap();
            let at = open.iter().position(|call| *call == id);
            open.remove(at.expect("a result has its call"));
            continue;
        }
        assert!(open.is_empty(), "{open:?} have no result in {body}");
        assert!(message.wrong_field().is_none(), "{message:?}");
        open.extend(message.tool_calls.iter().map(|call| call.id.as_str()));
    }
    assert!(open.is_empty());
    None
}

fn is_callers_mistake(error: &GatewayError) -> bool {
    matches!(
        error,
        GatewayError::InvalidRequest { .. } | GatewayError::ThreadUnsupported
    )
}

proptest! {
    #[test]
    fn any_body_is_taken_or_refused(fields in prop::collection::vec((prop::sample::select(&NAMES[..]), any_json()), 0..8), native in any::<bool>()) {
        let mut body = json!({ "model": "m", "max_tokens": 9, "messages": [{ "role": "user", "content": "a" }] });
        for (name, value) in fields {
            body[name] = value;
        }
        if let Some(error) = refusal(&body, native) {
            prop_assert!(is_callers_mistake(&error), "{:?}", error);
        }
    }

    #[test]
    fn any_conversation_is_in_order_or_refused(messages in prop::collection::vec(any_message(), 0..7), native in any::<bool>()) {
        let body = json!({ "model": "m", "max_tokens": 9, "messages": messages });
        if let Some(error) = refusal(&body, native) {
            prop_assert!(is_callers_mistake(&error), "{:?}", error);
        }
    }
}
