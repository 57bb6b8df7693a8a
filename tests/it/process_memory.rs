//! Memory of a stream: a few buffers, however long it is and however slowly it is read.

use std::time::Duration;

use reqwest::Response;
use serde_json::{Value, json};

use crate::support::{
    FakeUpstream, Serving, Step,
    gateway::hello,
    upstream::{chunk, events, stream_head},
};

const MEGABYTE: usize = 1 << 20;
/// Allows for buffers of sockets and of the allocator; a buffered stream would be many times as large.
const ALLOWED_GROWTH: usize = 12 * MEGABYTE;

async fn open_stream(serving: &Serving) -> Response {
    let mut body = hello("svc-native-fast");
    body["stream"] = true.into();
    let response = serving.chat(&body).send().await.unwrap();
    assert_eq!(response.status(), 200);
    response
}

/// Reads a stream to its end; returns its bytes and the peak memory.
async fn read_to_end(serving: &Serving) -> (usize, usize) {
    let mut response = open_stream(serving).await;
    let (mut read, mut most, mut pieces) = (0, 0, 0_u32);
    while let Some(bytes) = response.chunk().await.unwrap() {
        read += bytes.len();
        pieces += 1;
        if pieces.is_multiple_of(500) {
            most = most.max(serving.process.memory());
        }
    }
    (read, most.max(serving.process.memory()))
}

fn kilobyte_chunk() -> Value {
    chunk(json!({ "content": "x".repeat(1_000) }), None)
}

#[tokio::test]
async fn ten_thousand_chunks_do_not_grow_memory() {
    let upstream = FakeUpstream::start().await;
    let serving = Serving::start_on(&upstream, 1).await;
    let answer = |length: usize| {
        let mut chunks = vec![kilobyte_chunk(); length];
        chunks.push(chunk(json!({}), Some("stop")));
        events(&chunks)
    };
    // The first response allocates everything that is allocated once.
    upstream.answer_stream(&answer(100));
    let (_, before) = read_to_end(&serving).await;
    // Repeated, because leaks would add up.
    upstream.answer_stream(&answer(10_000));
    for _ in 0..4 {
        let (read, most) = read_to_end(&serving).await;
        assert!(read > 10 * MEGABYTE, "{read}");
        let growth = most.saturating_sub(before);
        assert!(growth < ALLOWED_GROWTH, "{growth} bytes for {read}");
    }
}

#[tokio::test]
async fn a_stalled_reader_does_not_grow_memory() {
    let upstream = FakeUpstream::start().await;
    let serving = Serving::start_on(&upstream, 1).await;
    let endless = format!("data: {}\n\n", kilobyte_chunk()).repeat(8);
    upstream.play(vec![
        Step::Send(stream_head()),
        Step::Flood(endless.into_bytes()),
    ]);
    let before = serving.process.memory();
    let unread = open_stream(&serving).await;
    let mut sent = usize::MAX;
    while upstream.bytes_sent() != sent {
        sent = upstream.bytes_sent();
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    let growth = serving.process.memory().saturating_sub(before);
    assert!(growth < ALLOWED_GROWTH, "{growth} bytes for {sent} sent");
    drop(unread);
}

/// The largest accepted response is 32 MiB, and the longest line of a stream 1 MiB. A provider that sends more is
/// disconnected; the call costs little memory and is free.
#[tokio::test]
async fn an_endless_answer_is_cut_off_and_free() {
    let upstream = FakeUpstream::start().await;
    let serving = Serving::start_on(&upstream, 1).await;
    let head = |more: &str| {
        let head = format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n{more}\r\n");
        Step::Send(head.into_bytes())
    };
    let begun = format!("data: {}\n\ndata: ", kilobyte_chunk());
    let begun = Step::Send([stream_head(), begun.into_bytes()].concat());
    let flood = |bytes: &[u8]| Step::Flood(bytes.repeat(MEGABYTE / bytes.len()));
    let line = b"data: 0123456789abcdef\n";
    for (what, steps, stream, allowed) in [
        (
            "a bomb",
            vec![head("content-encoding: gzip\r\n"), flood(b"\0")],
            false,
            ALLOWED_GROWTH,
        ),
        (
            "a line",
            vec![begun.clone(), flood(b"x")],
            true,
            ALLOWED_GROWTH,
        ),
        ("an event", vec![begun, flood(line)], true, ALLOWED_GROWTH),
        (
            "a header",
            vec![Step::Send(b"HTTP/1.1 200 OK\r\nx: ".to_vec()), flood(b"x")],
            false,
            ALLOWED_GROWTH,
        ),
        (
            "an answer",
            vec![head(""), flood(b"x")],
            false,
            2 * 32 * MEGABYTE,
        ),
    ] {
        upstream.play(steps);
        let before = serving.process.most_memory();
        let mut body = hello("svc-native-fast");
        body["stream"] = stream.into();
        let reply = serving.chat(&body).send().await.unwrap();
        assert_eq!(reply.status(), if stream { 200 } else { 502 }, "{what}");
        let text = reply.text().await.unwrap();
        let error = if stream {
            "stream_interrupted"
        } else {
            "upstream_error"
        };
        assert!(text.contains(error), "{what}: {text}");
        // The kernel adds up the counters of threads now and then only, so that even the peak can seem to fall.
        let growth = serving.process.most_memory().saturating_sub(before);
        assert!(growth < allowed, "{what}: {growth} bytes");
    }
    assert_eq!(serving.ledger_view().await, ("100.000000".to_owned(), 0));
}
