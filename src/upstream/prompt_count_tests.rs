//! Everything that goes upstream is counted, whichever provider it goes to.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::{anthropic, gemini, openai, testing};

/// A request with every text in it that a caller can send.
fn with_everything() -> Value {
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
        "user": "somebody",
        "metadata": { "key": "value" },
        "prompt_cache_key": "key",
    })
}

/// The places of all texts in a request, as JSON pointers.
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

/// How long the bodies are that go upstream, and what they are counted for.
fn measured(request: &Value) -> ([usize; 3], u64, u64) {
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
fn whatever_makes_a_request_longer_is_counted() {
    let request = with_everything();
    let (before, bound, estimate) = measured(&request);
    let mut places = Vec::new();
    texts(&request, "", &mut places);
    let mut forwarded = 0;
    for place in places {
        // These have to say something certain.
        if place.ends_with("/role") || place.ends_with("/type") || place == "/model" {
            continue;
        }
        if place == "/reasoning_effort" {
            continue;
        }
        let mut longer = request.clone();
        lengthen(&mut longer, &place);
        let (after, longer_bound, longer_estimate) = measured(&longer);
        let grown = after
            .iter()
            .zip(before)
            .map(|(after, before)| after.saturating_sub(before));
        let grown = grown.max().unwrap_or(0) as u64;
        if grown > 0 {
            forwarded += 1;
            assert!(
                longer_bound >= bound + grown.min(WORDS.len() as u64),
                "{place}"
            );
            assert!(longer_estimate > estimate, "{place}");
        }
    }
    assert!(forwarded >= 17, "only {forwarded} texts go upstream");
}

const WORDS: &str = " and many words more, which nobody has counted until now";

/// Makes the text at this place longer, and others that must be the same.
fn lengthen(request: &mut Value, place: &str) {
    let twins: &[&str] = match place {
        "/messages/2/tool_calls/0/id" | "/messages/3/tool_call_id" => {
            &["/messages/2/tool_calls/0/id", "/messages/3/tool_call_id"]
        }
        "/tools/0/function/name" | "/tool_choice/function/name" => {
            &["/tools/0/function/name", "/tool_choice/function/name"]
        }
        _ => &[],
    };
    let arguments = place.ends_with("/arguments");
    for place in std::iter::once(&place).chain(twins.iter().filter(|twin| **twin != place)) {
        let text = request.pointer_mut(place).unwrap();
        let longer = match text.as_str().unwrap() {
            said if arguments => said.replace('x', WORDS),
            said => format!("{said}{WORDS}"),
        };
        *text = longer.into();
    }
}

/// Keys of objects that go upstream are texts as well.
#[test]
fn tokens_that_are_biased_are_counted() {
    let biased = |count: usize| {
        let biases: serde_json::Map<_, _> = (0..count)
            .map(|token| (token.to_string(), json!(1)))
            .collect();
        measured(&json!({
            "model": testing::MODEL, "messages": [{ "role": "user", "content": "Hi" }],
            "logit_bias": biases,
        }))
    };
    let ((before, bound, _), (after, more, _)) = (biased(1), biased(100));
    assert!(after[0] > before[0] + 300);
    assert!(more >= bound + 99 * 2, "{more}");
}

/// The same text, however it was escaped.
#[test]
fn escapes_are_undone_before_anything_is_counted() {
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
