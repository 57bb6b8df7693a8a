//! §6 and §3.2: streams of every kind of provider.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::{
    Step, Stream, TestGateway,
    gateway::hello,
    upstream::{chunk, events, stream_head, usage_chunk},
};

const MODEL: &str = "svc-native-fast";

/// A well-formed stream: role, two words, finish reason, usage.
fn plain() -> Vec<Value> {
    vec![
        chunk(json!({ "role": "assistant", "content": "" }), None),
        chunk(json!({ "content": "Grüß " }), None),
        chunk(json!({ "content": "dich 😀" }), None),
        chunk(json!({}), Some("stop")),
        usage_chunk(11, 3),
    ]
}

async fn stream_of(gateway: &TestGateway, chunks: &[Value]) -> Stream {
    gateway.upstream.answer_chunks(chunks);
    gateway.stream(&hello(MODEL)).await
}

#[tokio::test]
async fn a_plain_stream_keeps_every_rule() {
    let gateway = TestGateway::start().await;
    let stream = stream_of(&gateway, &plain()).await;
    stream.assert_complete(MODEL);
    assert_eq!(stream.content(0), "Grüß dich 😀");
    assert_eq!(stream.finish_reason(0).as_deref(), Some("stop"));
    assert_eq!(stream.usage(), None, "usage only on request");
    assert!(!stream.text.contains("vendor") && !stream.text.contains("fp_upstream"));
    let sent = gateway.upstream.last_body();
    assert_eq!(
        sent["stream_options"],
        json!({ "include_usage": true }),
        "usage is always requested upstream"
    );
}

#[tokio::test]
async fn usage_comes_last_on_request() {
    let gateway = TestGateway::start().await;
    gateway.upstream.answer_chunks(&plain());
    let mut body = hello(MODEL);
    body["stream_options"] = json!({ "include_usage": true });
    let stream = gateway.stream(&body).await;
    stream.assert_complete(MODEL);
    let chunks = stream.chunks();
    let last = chunks.last().unwrap();
    assert_eq!(last["choices"], json!([]));
    assert_eq!(last["usage"]["prompt_tokens"], 11);
    assert_eq!(last["usage"]["completion_tokens"], 3);
    assert_eq!(last["usage"]["total_tokens"], 14);
    assert!(
        chunks[..chunks.len() - 1]
            .iter()
            .all(|chunk| chunk.get("usage").is_none())
    );
}

#[tokio::test]
async fn silence_in_the_middle_is_an_interruption() {
    let gateway = TestGateway::start().await;
    let body = events(&plain()[..3]).replace("data: [DONE]\n\n", "");
    gateway.upstream.play(vec![
        Step::Send(stream_head()),
        Step::Send(body.into_bytes()),
        Step::Pause(Duration::from_secs(30)),
    ]);
    gateway
        .stream(&hello(MODEL))
        .await
        .assert_interrupted(MODEL);
}

/// A connection that closes in order without a terminal chunk is still an interruption.
#[tokio::test]
async fn a_clean_end_without_a_finish_reason_is_an_interruption() {
    let gateway = TestGateway::start().await;
    let unfinished = [&plain()[..3], &[usage_chunk(11, 3)]].concat();
    for ending in ["", "data: [DONE]\n\n"] {
        let body = events(&unfinished).replace("data: [DONE]\n\n", ending);
        gateway.upstream.answer_stream(&body);
        gateway
            .stream(&hello(MODEL))
            .await
            .assert_interrupted(MODEL);
    }
}

#[tokio::test]
async fn a_terminal_chunk_without_done_is_a_finish() {
    let gateway = TestGateway::start().await;
    let body = events(&plain()).replace("data: [DONE]\n\n", "");
    gateway.upstream.answer_stream(&body);
    let mut request = hello(MODEL);
    request["stream_options"] = json!({ "include_usage": true });
    let stream = gateway.stream(&request).await;
    stream.assert_complete(MODEL);
    assert_eq!(stream.usage().unwrap()["total_tokens"], 14);
}

/// If a provider has finished and keeps the connection open, the caller does not wait long.
#[tokio::test]
async fn a_finished_answer_does_not_wait_for_the_connection() {
    let gateway = TestGateway::start().await;
    let body = events(&plain()).replace("data: [DONE]\n\n", "");
    gateway.upstream.play(vec![
        Step::Send(stream_head()),
        Step::Send(body.into_bytes()),
        Step::Pause(Duration::from_mins(1)),
    ]);
    let request = hello(MODEL);
    let stream = tokio::time::timeout(Duration::from_secs(30), gateway.stream(&request));
    stream.await.unwrap().assert_complete(MODEL);
}

#[tokio::test]
async fn a_stream_that_never_begins_is_an_ordinary_error() {
    let gateway = TestGateway::start().await;
    let error_event = r#"data: {"error":{"message":"overloaded","code":529}}"#;
    for (body, what) in [
        ("", "an empty stream"),
        ("data: [DONE]\n\n", "only the end"),
        (": ping\n\n", "only a comment"),
        ("data: {\"choices\":[\n\n", "broken JSON"),
        (&format!("{error_event}\n\n"), "an error object"),
        (
            &format!("data: {}\n\n{error_event}\n\n", plain()[0]),
            "a role and an error object",
        ),
    ] {
        gateway.upstream.answer_stream(body);
        let response = gateway.open_stream(&hello(MODEL)).await;
        assert_eq!(response.status(), 502, "{what}");
        let body: Value = response.json().await.unwrap();
        assert_eq!(body["error"]["type"], "upstream_error", "{what}");
        assert_eq!(body["error"]["code"], Value::Null, "{what}");
    }
}

#[tokio::test]
async fn an_error_event_of_the_provider_is_an_interruption() {
    let gateway = TestGateway::start().await;
    let begun = &plain()[..2];
    for last in [
        json!({ "error": { "message": "vendor-model-9 is overloaded", "code": 529 } }),
        chunk(json!({}), Some("error")),
        json!({ "choices": [{ "index": 0, "delta": { "content": 5 } }] }),
    ] {
        let stream = stream_of(&gateway, &[begun, &[last]].concat()).await;
        stream.assert_interrupted(MODEL);
        assert!(!stream.text.contains("vendor-model-9"));
    }
}
