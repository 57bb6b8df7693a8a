//! §4.9, §7: requests of the Messages API to a gateway that is stopping or overloaded.

use std::time::Duration;

use reqwest::{RequestBuilder, Response};
use serde_json::{Value, json};

use crate::support::{
    Answer, FakeUpstream, Process, RawConnection, Serving, Step, TestGateway,
    gateway::answer,
    messages::{COUNT, MessageEvents, PATH, writing},
    raw::message_request,
};

fn post(serving: &Serving, path: &str, body: &Value) -> RequestBuilder {
    let url = format!("http://{}{path}", serving.public);
    let request = serving.client.post(url).header("x-api-key", &serving.key);
    request.json(body)
}

/// Opens a stream of the simulator and waits for its first bytes.
async fn open(serving: &Serving, directives: &str) -> (Vec<u8>, Response) {
    let user = json!({ "role": "user", "content": format!("[[sim {directives}]]") });
    let body = json!({ "messages": [user], "max_tokens": 5_000, "stream": true });
    let request = post(serving, PATH, &writing(body));
    let mut response = request.send().await.unwrap();
    assert_eq!(response.status(), 200);
    let first = response.chunk().await.unwrap();
    (first.expect("the stream has begun").to_vec(), response)
}

/// Reads a stream to its end, which must be in order.
async fn rest(mut text: Vec<u8>, mut response: Response) -> MessageEvents {
    while let Some(bytes) = response.chunk().await.unwrap() {
        text.extend_from_slice(&bytes);
    }
    MessageEvents::read(&String::from_utf8(text).unwrap())
}

async fn until_stopping(serving: &mut Serving) {
    let stopping = |process: &Process| process.stderr().contains("stopping: no new work");
    serving.process.until(stopping).await;
}

#[track_caller]
fn assert_stopping(refused: &Answer) {
    refused.assert_message_error(503, "api_error", Some("stopping"), None);
    assert_eq!(refused.headers["retry-after"], "1");
}

#[tokio::test]
async fn a_stopping_gateway_finishes_streams_and_refuses_new_requests() {
    let mut serving = Serving::start(60).await;
    let (first, stream) = open(&serving, "tokens=60 delay_ms=50").await;
    let reading = tokio::spawn(rest(first, stream));
    serving.process.signal("TERM");
    until_stopping(&mut serving).await;
    for path in [PATH, COUNT] {
        assert_stopping(&answer(post(&serving, path, &writing(json!({})))).await);
    }
    let models = format!("http://{}/v1/models", serving.public);
    let models = serving.client.get(models);
    assert_stopping(&answer(models.header("anthropic-version", "2023-06-01")).await);
    assert!(!reading.is_finished(), "the stream was running meanwhile");
    let message = reading.await.unwrap().assembled();
    let text = message["content"][0]["text"].as_str().unwrap();
    assert_eq!(text.split_whitespace().count(), 60, "to its last word");
    assert_eq!(message["stop_reason"], "end_turn");
    assert_eq!(serving.process.ended().await.code, Some(0));
}

#[tokio::test]
async fn a_stream_that_outlasts_the_grace_period_ends_with_an_error() {
    let serving = Serving::start(1).await;
    let (first, stream) = open(&serving, "tokens=4000 delay_ms=50").await;
    let id = stream.headers()["request-id"].to_str().unwrap().to_owned();
    serving.process.signal("TERM");
    let events = rest(first, stream).await;
    let error = events.first("error");
    assert_eq!(error["error"]["type"], "api_error");
    let code = &error["error"]["details"]["error_code"];
    assert_eq!(code, "stream_interrupted");
    assert_eq!(error["request_id"], id);
    assert!(!events.kinds().contains(&"message_delta"));
    assert_eq!(serving.process.ended().await.code, Some(0));
}

#[tokio::test]
async fn a_request_that_outlasts_the_grace_period_is_refused() {
    let upstream = FakeUpstream::start().await;
    upstream.play(vec![Step::Pause(Duration::from_mins(1))]);
    for streamed in [false, true] {
        let mut serving = Serving::start_on(&upstream, 1).await;
        let before = upstream.calls();
        let body = writing(json!({ "stream": streamed }));
        let pending = tokio::spawn(answer(post(&serving, PATH, &body)));
        serving
            .process
            .until(|_| upstream.calls() == before + 1)
            .await;
        serving.process.signal("TERM");
        assert_stopping(&pending.await.unwrap());
        assert_eq!(serving.process.ended().await.code, Some(0));
    }
}

#[tokio::test]
async fn an_overloaded_gateway_refuses_and_says_when_to_retry() {
    let gateway = TestGateway::start_set(&[("SERVER__MAX_CONNECTIONS", "3")]).await;
    let mut within = Vec::new();
    for _ in 0..3 {
        let mut connection = RawConnection::open(gateway.public).await;
        let live = "GET /health/live HTTP/1.1\r\nhost: gateway\r\n\r\n";
        connection.send(live).await;
        connection.answer().await.assert_ok();
        within.push(connection);
    }
    for path in [PATH, COUNT] {
        let body = writing(json!({}));
        let request = message_request(path, &gateway.key, "x-request-id: mine\r\n", &body);
        let mut extra = RawConnection::open(gateway.public).await;
        extra.send(&request).await;
        let refused = extra.answer().await;
        refused.assert_message_error(503, "api_error", Some("overloaded"), None);
        assert_eq!(refused.headers["retry-after"], "1");
        assert_eq!(refused.headers["x-should-retry"], "true");
        assert_eq!(refused.body["request_id"], "mine");
        within[0].send(&request).await;
        within[0].answer().await.assert_ok();
    }
    assert_eq!(gateway.upstream.calls(), 1, "counting asks no provider");
    gateway.stop().await;
}
