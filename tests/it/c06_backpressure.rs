//! Backpressure: a slow reader slows the provider down, and nothing accumulates in between.

use std::time::Duration;

use futures_util::StreamExt as _;
use serde_json::json;

use crate::support::{
    FakeUpstream, Step, Stream, TestGateway,
    gateway::hello,
    upstream::{chunk, events, stream_head, usage_chunk},
};

const MODEL: &str = "svc-native-fast";

/// Waits until the provider has sent no byte for a while; returns how many it has sent.
async fn stalled(upstream: &FakeUpstream) -> usize {
    let mut sent = upstream.bytes_sent();
    for _ in 0..600 {
        tokio::time::sleep(Duration::from_millis(300)).await;
        let now = upstream.bytes_sent();
        if now == sent {
            return now;
        }
        sent = now;
    }
    panic!("a reader that does not read must stop the provider; it has sent {sent} bytes");
}

#[tokio::test]
async fn a_reader_that_stops_reading_stops_the_provider() {
    let gateway = TestGateway::start().await;
    let endless = format!(
        "data: {}\n\n",
        chunk(json!({ "content": "x".repeat(1_000) }), None)
    );
    gateway.upstream.play(vec![
        Step::Send(stream_head()),
        Step::Flood(endless.repeat(8).into_bytes()),
    ]);
    let response = gateway.open_stream(&hello(MODEL)).await;
    assert_eq!(response.status(), 200);

    let before = stalled(&gateway.upstream).await;

    // Reading on lets the provider continue.
    let mut body = response.bytes_stream();
    let mut read = 0;
    while read < before + (4 << 20) {
        read += body.next().await.unwrap().unwrap().len();
    }
    assert!(gateway.upstream.bytes_sent() > before);
}

#[tokio::test]
async fn ten_thousand_chunks_arrive_whole() {
    let gateway = TestGateway::start().await;
    let words = (0..10_000).map(|n| chunk(json!({ "content": format!("{n} ") }), None));
    let end = [chunk(json!({}), Some("stop")), usage_chunk(11, 10_000)];
    let chunks: Vec<_> = words.chain(end).collect();
    gateway.upstream.answer_stream(&events(&chunks));
    let response = gateway.open_stream(&hello(MODEL)).await;
    let stream = Stream {
        text: response.text().await.unwrap(),
    };
    assert!(stream.is_done());
    let expected: String = (0..10_000).map(|n| n.to_string() + " ").collect();
    assert_eq!(stream.content(0), expected);
}
