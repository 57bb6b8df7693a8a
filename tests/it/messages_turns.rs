//! §4.9, §8.6: a coding agent's session of twenty turns, with a provider that keeps a cache.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::support::{
    Step, TestGateway,
    messages::{MessageEvents, tool, tool_result, writing},
    upstream::{chunk, events, stream_head},
};

/// Prices of the model in billionths of a dollar per token: input, cached input, output.
const INPUT: u64 = 200;
const CACHED: u64 = 20;
const OUTPUT: u64 = 800;

/// A provider that caches each prompt: what it saw before is read from the cache. It calls a tool on every turn but the
/// last. Tokens are bytes of the messages.
fn caching_provider(gateway: &TestGateway, turns: usize) -> Arc<Mutex<Vec<(u64, u64)>>> {
    let seen: Arc<Mutex<String>> = Arc::default();
    let bills: Arc<Mutex<Vec<(u64, u64)>>> = Arc::default();
    let report = bills.clone();
    gateway.upstream.play_for_each(move |request| {
        let prompt = request.body["messages"].to_string();
        let prompt = prompt.trim_end_matches(']').to_owned();
        let mut seen = seen.lock().unwrap();
        let common = seen.bytes().zip(prompt.bytes());
        let cached = common.take_while(|(one, other)| one == other).count() as u64;
        // A twentieth of the bytes, so that the counts are plausible.
        let (all, cached) = (prompt.len() as u64 / 20 + 1, cached / 20);
        *seen = prompt;
        let mut bills = bills.lock().unwrap();
        let turn = bills.len();
        bills.push((all, cached));
        let (delta, finish) = if turn + 1 < turns {
            let function = json!({ "name": "read", "arguments": format!("{{\"line\":{turn}}}") });
            let call = json!({ "index": 0, "id": "call_0", "function": function });
            (json!({ "tool_calls": [call] }), "tool_calls")
        } else {
            (json!({ "content": "Done." }), "stop")
        };
        let mut last = chunk(json!({}), Some(finish));
        last["usage"] = json!({
            "prompt_tokens": all, "completion_tokens": 7, "total_tokens": all + 7,
            "prompt_tokens_details": { "cached_tokens": cached },
        });
        let stream = events(&[chunk(delta, None), last]);
        vec![
            Step::Send(stream_head()),
            Step::Send(stream.into_bytes()),
            Step::Close,
        ]
    });
    report
}

#[tokio::test]
async fn twenty_turns_cost_what_the_provider_reported() {
    const TURNS: usize = 20;
    let gateway = TestGateway::start().await;
    let bills = caching_provider(&gateway, TURNS);
    let before = nanos(&gateway.balance().await);
    let mut messages = vec![json!({ "role": "user", "content": "Fix the test." })];
    let mut seen_ids = std::collections::HashSet::new();
    for turn in 0..TURNS {
        let reminder = json!({ "role": "system", "content": "Be careful.", "cache_control": {} });
        let mut sent = messages.clone();
        sent.push(reminder);
        let body = writing(json!({
            "messages": sent, "tools": [tool("read")], "system": "You write code.",
            "metadata": { "user_id": "u" }, "thinking": { "type": "adaptive" },
        }));
        let events: MessageEvents = gateway.message_events(&body).await;
        let message = events.assembled();
        let (all, cached) = bills.lock().unwrap()[turn];
        let usage = &message["usage"];
        assert_eq!(usage["cache_read_input_tokens"], cached);
        assert_eq!(usage["input_tokens"], all - cached);
        messages.push(json!({ "role": "assistant", "content": message["content"] }));
        if turn + 1 == TURNS {
            assert_eq!(
                message["content"],
                json!([{ "type": "text", "text": "Done." }])
            );
            break;
        }
        let call = &message["content"][0];
        assert_eq!(call["input"], json!({ "line": turn }));
        // The provider gives every call the same ID; a client would take them for one.
        let id = call["id"].as_str().unwrap().to_owned();
        assert!(seen_ids.insert(id.clone()), "{id} was given out before");
        let result = tool_result(&id, Value::from(format!("line {turn} of the file")));
        messages.push(json!({ "role": "user", "content": [result] }));
    }
    gateway.idle().await;
    let bills = bills.lock().unwrap().clone();
    let cost: u64 = bills
        .iter()
        .map(|(all, cached)| (all - cached) * INPUT + cached * CACHED + 7 * OUTPUT)
        .sum();
    assert!(
        bills.iter().any(|(_, cached)| *cached > 0),
        "the cache is used"
    );
    assert_eq!(before - nanos(&gateway.balance().await), cost);
}

/// A decimal amount in billionths.
fn nanos(amount: &str) -> u64 {
    let (whole, fraction) = amount.split_once('.').unwrap_or((amount, ""));
    let fraction = format!("{fraction:0<9}");
    whole.parse::<u64>().unwrap() * 1_000_000_000 + fraction.parse::<u64>().unwrap()
}
