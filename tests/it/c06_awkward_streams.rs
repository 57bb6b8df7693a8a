//! §6.1 with unusual provider streams: callers see no difference.

use serde_json::{Value, json};

use crate::support::{
    Step, Stream, TestGateway,
    gateway::hello,
    upstream::{chunk, events, stream_head, usage_chunk},
};

const MODEL: &str = "svc-native-fast";

async fn stream_of(gateway: &TestGateway, chunks: &[Value]) -> Stream {
    gateway.upstream.answer_chunks(chunks);
    let stream = gateway.stream(&hello(MODEL)).await;
    stream.assert_complete(MODEL);
    stream
}

/// Each of these streams says "Hello" and stops, and the caller gets identical frames for all of them.
#[tokio::test]
async fn differently_framed_streams_look_the_same() {
    let gateway = TestGateway::start().await;
    let role = chunk(json!({ "role": "assistant", "content": "" }), None);
    let hello = chunk(json!({ "content": "Hello" }), None);
    let stop = chunk(json!({}), Some("stop"));
    let mut stop_with_usage = stop.clone();
    stop_with_usage["usage"] = usage_chunk(11, 3)["usage"].clone();
    let mut without_index = hello.clone();
    without_index["choices"][0]
        .as_object_mut()
        .unwrap()
        .remove("index");
    let mut without_finish_key = hello.clone();
    without_finish_key["choices"][0]
        .as_object_mut()
        .unwrap()
        .remove("finish_reason");
    let mut null_usage = hello.clone();
    null_usage["usage"] = Value::Null;

    for (what, chunks) in [
        ("plain", vec![role.clone(), hello.clone(), stop.clone()]),
        ("no role at all", vec![hello.clone(), stop.clone()]),
        (
            "a role on every chunk",
            vec![
                chunk(json!({ "role": "assistant", "content": "Hello" }), None),
                chunk(json!({ "role": "assistant", "content": "" }), Some("stop")),
            ],
        ),
        (
            "content null beside the role",
            vec![
                chunk(json!({ "role": "assistant", "content": null }), None),
                hello.clone(),
                stop.clone(),
            ],
        ),
        (
            "content with the finish",
            vec![chunk(json!({ "content": "Hello" }), Some("stop"))],
        ),
        (
            "the finish twice",
            vec![hello.clone(), stop.clone(), stop.clone()],
        ),
        (
            "a finish without its delta",
            vec![
                hello.clone(),
                json!({ "choices": [{ "finish_reason": "stop" }] }),
            ],
        ),
        (
            "another word for stop",
            vec![hello.clone(), chunk(json!({}), Some("eos"))],
        ),
        (
            "an empty finish before the real one",
            vec![chunk(json!({ "content": "Hello" }), Some("")), stop.clone()],
        ),
        (
            "usage with the finish",
            vec![hello.clone(), stop_with_usage],
        ),
        (
            "usage on its own",
            vec![hello.clone(), stop.clone(), usage_chunk(11, 3)],
        ),
        (
            "usage before the finish",
            vec![hello.clone(), usage_chunk(11, 3), stop.clone()],
        ),
        ("usage null on the chunks", vec![null_usage, stop.clone()]),
        ("no index", vec![without_index, stop.clone()]),
        (
            "no finish_reason key",
            vec![without_finish_key, stop.clone()],
        ),
        (
            "reasoning first",
            vec![
                chunk(json!({ "reasoning_content": "Hmm" }), None),
                chunk(json!({ "reasoning": "Hmm" }), None),
                role.clone(),
                hello.clone(),
                stop.clone(),
            ],
        ),
        (
            "a choice that was not requested",
            vec![
                hello.clone(),
                json!({ "choices": [{ "index": 7, "delta": { "content": "!" }, "finish_reason": "stop" }] }),
                stop.clone(),
            ],
        ),
        (
            "an odd chunk without choices",
            vec![
                json!({ "choices": [] }),
                json!({}),
                hello.clone(),
                stop.clone(),
            ],
        ),
    ] {
        let stream = stream_of(&gateway, &chunks).await;
        assert_eq!(stream.content(0), "Hello", "{what}");
        assert_eq!(stream.finish_reason(0).as_deref(), Some("stop"), "{what}");
        assert_eq!(
            stream.events().len(),
            4,
            "role, content, terminal, done: {what}: {}",
            stream.text
        );
    }
}

#[tokio::test]
async fn bytes_may_arrive_in_any_pieces() {
    let gateway = TestGateway::start().await;
    let chunks = [
        chunk(json!({ "content": "Grüß dich 😀\u{2028}\n\"" }), None),
        chunk(json!({}), Some("stop")),
    ];
    let plain = events(&chunks);
    for (what, body) in [
        ("CRLF", plain.replace('\n', "\r\n")),
        ("CR", plain.replace('\n', "\r")),
        ("no space after data:", plain.replace("data: ", "data:")),
        (
            "comments and other fields",
            format!(": hi\n\nevent: x\nid: 1\nretry: 5\n{plain}: bye\n\n"),
        ),
        ("a byte order mark", format!("\u{feff}{plain}")),
        (
            "data over two lines",
            plain.replacen(",\"object\"", ",\ndata: \"object\"", 1),
        ),
        ("blank lines in between", plain.replace("\n\n", "\n\n\n\n")),
        ("no blank line at the end", plain.trim_end().to_owned()),
    ] {
        gateway.upstream.answer_stream(&body);
        let stream = gateway.stream(&hello(MODEL)).await;
        stream.assert_complete(MODEL);
        assert_eq!(stream.content(0), "Grüß dich 😀\u{2028}\n\"", "{what}");
    }
    // One byte per write, which splits multi-byte characters.
    let bytes = plain.as_bytes().iter().map(|byte| Step::Send(vec![*byte]));
    let steps = std::iter::once(Step::Send(stream_head()))
        .chain(bytes)
        .chain([Step::Close]);
    gateway.upstream.play(steps.collect());
    let stream = gateway.stream(&hello(MODEL)).await;
    stream.assert_complete(MODEL);
    assert_eq!(stream.content(0), "Grüß dich 😀\u{2028}\n\"");
}

fn tool_chunk(fragments: Value) -> Value {
    chunk(json!({ "tool_calls": fragments }), None)
}

/// Two calls, sent in the ways that break clients when they are relayed unchanged.
#[tokio::test]
async fn tool_calls_are_rebuilt() {
    let gateway = TestGateway::start().await;
    let stop = chunk(json!({}), Some("tool_calls"));
    let call = |index: u32, id: &str, name: &str, arguments: &str| {
        json!([{ "index": index, "id": id, "type": "function",
                 "function": { "name": name, "arguments": arguments } }])
    };
    let more = |index: u32, arguments: &str| json!([{ "index": index, "function": { "arguments": arguments } }]);
    for (what, chunks) in [
        (
            "as it should be",
            vec![
                tool_chunk(call(0, "call_a", "f", "")),
                tool_chunk(more(0, "{\"a\"")),
                tool_chunk(more(0, ":1}")),
                tool_chunk(call(1, "call_b", "g", "{}")),
                stop.clone(),
            ],
        ),
        (
            "id and name repeated",
            vec![
                tool_chunk(call(0, "call_a", "f", "{\"a\"")),
                tool_chunk(call(0, "call_a", "f", ":1}")),
                tool_chunk(call(1, "call_b", "g", "{}")),
                stop.clone(),
            ],
        ),
        (
            "nulls and empty strings in later fragments",
            vec![
                tool_chunk(call(0, "call_a", "f", "{\"a\"")),
                tool_chunk(json!([{ "index": 0, "id": null, "type": null,
                                    "function": { "name": null, "arguments": ":1}" } }])),
                tool_chunk(
                    json!([{ "index": 0, "id": "", "function": { "name": "", "arguments": "" } }]),
                ),
                tool_chunk(call(1, "call_b", "g", "{}")),
                stop.clone(),
            ],
        ),
        (
            "all in one chunk, with finish stop",
            vec![chunk(
                json!({ "tool_calls": [
                        call(0, "call_a", "f", "{\"a\":1}")[0], call(1, "call_b", "g", "{}")[0],
                    ] }),
                Some("stop"),
            )],
        ),
        (
            "every call in slot 0",
            vec![
                tool_chunk(call(0, "call_a", "f", "{\"a\":1}")),
                tool_chunk(call(0, "call_b", "g", "{}")),
                stop.clone(),
            ],
        ),
        (
            "arguments as an object, or none at all",
            vec![
                tool_chunk(json!([{ "index": 0, "id": "call_a",
                                    "function": { "name": "f", "arguments": { "a": 1 } } }])),
                tool_chunk(json!([{ "index": 1, "id": "call_b", "function": { "name": "g" } }])),
                stop.clone(),
            ],
        ),
        (
            "slots with gaps",
            vec![
                tool_chunk(call(1, "call_a", "f", "{\"a\":1}")),
                tool_chunk(call(4, "call_b", "g", "{}")),
                stop.clone(),
            ],
        ),
        (
            "arguments before the name",
            vec![
                tool_chunk(
                    json!([{ "index": 0, "id": "call_a", "function": { "arguments": "{\"a\"" } }]),
                ),
                tool_chunk(
                    json!([{ "index": 0, "function": { "name": "f", "arguments": ":1}" } }]),
                ),
                tool_chunk(call(1, "call_b", "g", "{}")),
                stop.clone(),
            ],
        ),
    ] {
        let stream = stream_of(&gateway, &chunks).await;
        let expected = [("call_a", "f", "{\"a\":1}"), ("call_b", "g", "{}")];
        let expected =
            expected.map(|(id, name, arguments)| (id.into(), name.into(), arguments.into()));
        assert_eq!(stream.tool_calls(0), expected, "{what}");
        assert_eq!(
            stream.finish_reason(0).as_deref(),
            Some("tool_calls"),
            "{what}"
        );
    }
}

#[tokio::test]
async fn a_tool_call_without_an_id_gets_one() {
    let gateway = TestGateway::start().await;
    let stream = stream_of(
        &gateway,
        &[
            tool_chunk(json!([{ "function": { "name": "f", "arguments": "{}" } }])),
            chunk(json!({}), Some("stop")),
        ],
    )
    .await;
    let calls = stream.tool_calls(0);
    assert!(
        calls[0].0.starts_with("call_") && calls[0].0.len() <= 40,
        "{calls:?}"
    );
}

/// Truncated arguments keep the finish reason `length`.
#[tokio::test]
async fn truncated_tool_arguments_end_with_length() {
    let gateway = TestGateway::start().await;
    let stream = stream_of(
        &gateway,
        &[
            tool_chunk(json!([{ "index": 0, "id": "c", "function": { "name": "f", "arguments": "{\"a" } }])),
            chunk(json!({}), Some("length")),
        ],
    )
    .await;
    assert_eq!(stream.finish_reason(0).as_deref(), Some("length"));
}

#[tokio::test]
async fn several_choices_open_in_order_and_end_once_each() {
    let gateway = TestGateway::start().await;
    let part = |index: u32, text: &str, finish: Option<&str>| json!({ "choices": [{ "index": index, "delta": { "content": text }, "finish_reason": finish }] });
    gateway.upstream.answer_chunks(&[
        part(1, "b", None),
        part(0, "a", None),
        part(1, "B", Some("stop")),
        part(0, "A", Some("length")),
        usage_chunk(11, 4),
    ]);
    let mut request = hello(MODEL);
    request["n"] = 2.into();
    let stream = gateway.stream(&request).await;
    stream.assert_complete(MODEL);
    assert_eq!(
        (stream.content(0), stream.content(1)),
        ("aA".into(), "bB".into())
    );
    assert_eq!(stream.finish_reason(0).as_deref(), Some("length"));
    assert_eq!(stream.finish_reason(1).as_deref(), Some("stop"));
}

#[tokio::test]
async fn log_probabilities_are_relayed_on_request() {
    let gateway = TestGateway::start().await;
    let logprobs = json!({ "content": [{ "token": "Hi", "logprob": -0.1, "top_logprobs": [] }] });
    let mut with_logprobs = chunk(json!({ "content": "Hi" }), None);
    with_logprobs["choices"][0]["logprobs"] = logprobs.clone();
    gateway
        .upstream
        .answer_chunks(&[with_logprobs, chunk(json!({}), Some("stop"))]);
    let mut request = hello(MODEL);
    request["logprobs"] = true.into();
    let stream = gateway.stream(&request).await;
    stream.assert_complete(MODEL);
    assert_eq!(stream.chunks()[1]["choices"][0]["logprobs"], logprobs);
}

/// The last usage before the end counts; everything after `[DONE]` is ignored.
#[tokio::test]
async fn the_last_usage_before_the_end_counts() {
    let gateway = TestGateway::start().await;
    let mut request = hello(MODEL);
    request["stream_options"] = json!({ "include_usage": true });
    let text = chunk(json!({ "content": "Hello" }), Some("stop"));
    let after = format!(
        "{}data: {}\n\n",
        events(std::slice::from_ref(&text)),
        usage_chunk(9, 9)
    );
    for (what, body, total) in [
        (
            "twice",
            events(&[text.clone(), usage_chunk(1, 1), usage_chunk(11, 3)]),
            Some(14),
        ),
        ("after [DONE]", after, None),
        (
            "negative",
            events(&[
                text,
                json!({ "choices": [], "usage": { "prompt_tokens": -1, "completion_tokens": 2 } }),
            ]),
            None,
        ),
    ] {
        gateway.upstream.answer_stream(&body);
        let stream = gateway.stream(&request).await;
        stream.assert_complete(MODEL);
        let usage = stream
            .usage()
            .map(|usage| usage["total_tokens"].as_u64().unwrap());
        assert_eq!(usage, total, "{what}");
    }
}

/// A refusal is reported by its finish reason, whatever the provider calls it; its text is dropped.
#[tokio::test]
async fn a_refusal_ends_as_filtered_content() {
    let gateway = TestGateway::start().await;
    let chunks = [
        chunk(json!({ "role": "assistant", "refusal": "" }), None),
        chunk(json!({ "refusal": "I cannot help with that." }), None),
        chunk(json!({}), Some("stop")),
    ];
    let stream = stream_of(&gateway, &chunks).await;
    assert_eq!(stream.finish_reason(0).as_deref(), Some("content_filter"));
    assert!(!stream.text.contains("cannot help"));
}
