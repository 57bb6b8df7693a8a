//! Tests that every text sent upstream is counted in the prompt's estimate and bound, for every provider.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::{anthropic, gemini, openai, testing};
use crate::{
    prompt::ChatCall,
    wire::{chat::Message, json_text::JsonText},
};

/// A request with every kind of text that a caller can send.
fn full_request() -> Value {
    let call = json!({
        "id": "call_1", "type": "function", "function": { "name": "f", "arguments": "{\"a\":\"x\"}" },
    });
    json!({
        "model": testing::MODEL,
        "messages": [
            { "role": "system", "content": "system", "name": "named" },
            { "role": "user", "content": "user", "name": "named" },
            { "role": "assistant", "content": "said", "name": "named", "tool_calls": [call] },
            { "role": "tool", "content": "found", "name": "named", "tool_call_id": "call_1" },
            { "role": "user", "content": [{ "type": "text", "text": "part" }] },
        ],
        "stop": ["end"],
        "logit_bias": { "17": 1 },
        "tools": [{
            "type": "function",
            "function": {
                "name": "f", "description": "does", "strict": true,
                "parameters": { "type": "object", "title": "schema" },
            },
        }],
        "tool_choice": { "type": "function", "function": { "name": "f" } },
        "response_format": {
            "type": "json_schema",
            "json_schema": {
                "name": "format", "description": "how", "strict": true,
                "schema": { "type": "object", "title": "schema" },
            },
        },
        "thinking": { "type": "enabled", "budget_tokens": 1_024, "title": "thought" },
        "reasoning_effort": "low",
        "user": "a-user",
        "metadata": { "key": "value" },
        "prompt_cache_key": "key",
    })
}

/// Collects the JSON pointers of all strings in a request.
fn texts(value: &Value, at: &str, found: &mut Vec<String>) {
    match value {
        Value::String(_) => found.push(at.to_owned()),
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                texts(item, &format!("{at}/{index}"), found);
            }
        }
        Value::Object(fields) => {
            for (name, field) in fields {
                texts(field, &format!("{at}/{name}"), found);
            }
        }
        _ => {}
    }
}

/// The lengths of the upstream bodies, one per provider, and the prompt's bound and estimate.
fn measure(request: &Value) -> ([usize; 3], u64, u64) {
    let call = testing::call(request.to_string().as_bytes());
    let count = call.count();
    let bodies = [
        openai::body_of(&call),
        anthropic::body_of(&call),
        gemini::body_of(&call),
    ];
    (bodies.map(|body| body.len()), count.bound, count.estimate)
}

#[test]
fn every_text_sent_upstream_is_counted() {
    let request = full_request();
    let (before, bound, estimate) = measure(&request);
    let mut places = Vec::new();
    texts(&request, "", &mut places);
    let mut forwarded = 0;
    for place in places {
        // These fields accept fixed values only.
        if place.ends_with("/role") || place.ends_with("/type") || place == "/model" {
            continue;
        }
        if place == "/reasoning_effort" {
            continue;
        }
        let mut longer = request.clone();
        lengthen(&mut longer, &place);
        let (after, longer_bound, longer_estimate) = measure(&longer);
        let grown = after
            .iter()
            .zip(before)
            .map(|(after, before)| after.saturating_sub(before));
        let grown = grown.max().unwrap_or(0) as u64;
        if grown > 0 {
            forwarded += 1;
            assert!(
                longer_bound >= bound + grown.min(EXTRA_TEXT.len() as u64),
                "{place}"
            );
            assert!(longer_estimate > estimate, "{place}");
        }
    }
    assert!(forwarded >= 17, "only {forwarded} texts go upstream");
}

const EXTRA_TEXT: &str = " and many words more, which were not counted until now";

/// Makes the string at `place` longer, and any other string that must be equal to it.
fn lengthen(request: &mut Value, place: &str) {
    let linked: &[&str] = match place {
        "/messages/2/tool_calls/0/id" | "/messages/3/tool_call_id" => {
            &["/messages/2/tool_calls/0/id", "/messages/3/tool_call_id"]
        }
        "/tools/0/function/name" | "/tool_choice/function/name" => {
            &["/tools/0/function/name", "/tool_choice/function/name"]
        }
        _ => &[],
    };
    let arguments = place.ends_with("/arguments");
    for place in std::iter::once(&place).chain(linked.iter().filter(|other| **other != place)) {
        let text = request.pointer_mut(place).unwrap();
        let longer = match text.as_str().unwrap() {
            text if arguments => text.replace('x', EXTRA_TEXT),
            text => format!("{text}{EXTRA_TEXT}"),
        };
        *text = longer.into();
    }
}

/// Object keys that are sent upstream are counted too.
#[test]
fn keys_of_logit_bias_are_counted() {
    let biased = |count: usize| {
        let biases: serde_json::Map<_, _> = (0..count)
            .map(|token| (token.to_string(), json!(1)))
            .collect();
        measure(&json!({
            "model": testing::MODEL, "messages": [{ "role": "user", "content": "Hi" }],
            "logit_bias": biases,
        }))
    };
    let ((before, bound, _), (after, more, _)) = (biased(1), biased(100));
    assert!(after[0] > before[0] + 300);
    assert!(more >= bound + 99 * 2, "{more}");
}

/// A text has one count, whether or not its JSON is escaped.
#[test]
fn text_is_unescaped_before_it_is_counted() {
    let russian = "Шлюз резервирует средства до вызова и рассчитывается, когда поставщик ответил.";
    let escaped = |text: &str| {
        text.encode_utf16().fold(String::new(), |mut json, unit| {
            let _ = write!(json, "\\u{unit:04x}");
            json
        })
    };
    let count = |text: &str| {
        let body = format!(
            r#"{{"model":"{}","messages":[{{"role":"user","content":"{text}","name":"{text}"}}],
                "tools":[{{"type":"function","function":{{"name":"f","description":"{text}",
                "parameters":{{"type":"object","title":"{text}"}}}}}}]}}"#,
            testing::MODEL
        );
        let count = testing::call(body.as_bytes()).count();
        (count.estimate, count.bound)
    };
    assert_eq!(count(&escaped(russian)), count(russian));
}

#[test]
fn a_count_in_advance_includes_messages_that_are_appended_later() {
    let counted = |call: &ChatCall| (call.count().estimate, call.count().bound);
    let mut call = testing::call(full_request().to_string().as_bytes());
    let at_once = counted(&call);
    call.count_in_advance();
    assert_eq!(counted(&call), at_once);
    let text = JsonText::new("What a tool has returned");
    call.messages.push(Message::tool("call_9".into(), text));
    let in_steps = counted(&call);
    call.count_in_advance();
    assert_eq!(counted(&call), in_steps, "as if counted as a whole");
    assert!(in_steps > at_once);
}
