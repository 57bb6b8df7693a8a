//! Graceful stop: no new work, running responses finish, and the grace period ends.

use std::time::Duration;

use futures_util::StreamExt as _;
use reqwest::Client;
use serde_json::{Value, json};

use crate::support::{
    FakeUpstream, Process, Serving, Step, Stream,
    gateway::hello,
    upstream::{completion, response},
};

const MODEL: &str = "svc-native-fast";

/// A stream that has begun: its first bytes, and the response.
async fn open_stream(serving: &Serving, directives: &str) -> (Vec<u8>, reqwest::Response) {
    let mut body = hello(MODEL);
    body["stream"] = true.into();
    body["messages"][0]["content"] = format!("[[sim {directives}]]").into();
    let mut response = serving.chat(&body).send().await.unwrap();
    assert_eq!(response.status(), 200);
    let first = response
        .chunk()
        .await
        .unwrap()
        .expect("the stream has begun");
    (first.to_vec(), response)
}

async fn health(serving: &Serving) -> (u16, Value) {
    let url = format!("http://{}/health", serving.public);
    let response = serving.client.get(url).send().await.unwrap();
    (response.status().as_u16(), response.json().await.unwrap())
}

/// Waits until the process has handled the signal.
async fn until_stopping(serving: &mut Serving) {
    let stopping = |process: &Process| process.stderr().contains("stopping: no new work");
    serving.process.until(stopping).await;
}

async fn rest(first: Vec<u8>, response: reqwest::Response) -> Stream {
    let mut text = first;
    let mut chunks = response.bytes_stream();
    while let Some(chunk) = chunks.next().await {
        text.extend_from_slice(&chunk.expect("a stream ends cleanly"));
    }
    Stream {
        text: String::from_utf8(text).unwrap(),
    }
}

#[tokio::test]
async fn a_running_stream_finishes_while_new_work_is_refused() {
    let mut serving = Serving::start(60).await;
    assert_eq!(health(&serving).await.0, 200);
    let (first, stream) = open_stream(&serving, "tokens=60 delay_ms=50").await;
    let reading = tokio::spawn(rest(first, stream));
    serving.process.signal("TERM");
    until_stopping(&mut serving).await;

    let (status, body) = health(&serving).await;
    assert_eq!(
        (status, &body["status"]),
        (503, &json!("stopping")),
        "not ready at once"
    );
    let refused = serving.chat(&hello(MODEL)).send().await.unwrap();
    assert_eq!(refused.status(), 503);
    assert!(refused.headers().contains_key("x-request-id"));
    let refused: Value = refused.json().await.unwrap();
    assert_eq!(refused["error"]["type"], "service_unavailable");
    let alive = format!("http://{}/health/live", serving.public);
    assert_eq!(
        serving.client.get(alive).send().await.unwrap().status(),
        200
    );
    assert!(
        !reading.is_finished(),
        "all this happened while the stream was running"
    );

    let stream = reading.await.unwrap();
    stream.assert_complete(MODEL);
    assert_eq!(
        stream.content(0).split_whitespace().count(),
        60,
        "to its last word"
    );
    let ended = serving.process.ended().await;
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
}

#[tokio::test]
async fn a_running_answer_that_is_no_stream_finishes_too() {
    let upstream = FakeUpstream::start().await;
    upstream.play(vec![
        Step::Pause(Duration::from_secs(1)),
        Step::Send(response(
            200,
            "application/json",
            &completion("late").to_string(),
        )),
    ]);
    let mut serving = Serving::start_on(&upstream, 60).await;
    let pending = tokio::spawn(serving.chat(&hello(MODEL)).send());
    serving.process.until(|_| upstream.calls() == 1).await;
    serving.process.signal("TERM");
    until_stopping(&mut serving).await;
    let answer = pending.await.unwrap().unwrap();
    assert_eq!(answer.status(), 200);
    let answer: Value = answer.json().await.unwrap();
    assert_eq!(answer["choices"][0]["message"]["content"], "late");
    assert_eq!(serving.process.ended().await.code, Some(0));
}

#[tokio::test]
async fn when_the_grace_period_ends_a_stream_gets_an_error() {
    let serving = Serving::start(1).await;
    let (first, stream) = open_stream(&serving, "tokens=4000 delay_ms=50").await;
    serving.process.signal("TERM");
    let stream = rest(first, stream).await;
    stream.assert_interrupted(MODEL);
    assert!(!stream.content(0).is_empty());
    let ended = serving.process.ended().await;
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert!(ended.stderr.contains("are cut off"), "{}", ended.stderr);
}

#[tokio::test]
async fn an_idle_gateway_stops_at_once_though_clients_keep_their_connections() {
    let serving = Serving::start(60).await;
    let pooled = Client::builder().no_proxy().build().unwrap();
    let health = pooled.get(format!("http://{}/health", serving.public));
    assert_eq!(health.send().await.unwrap().status(), 200); // the pool keeps the connection
    let started = std::time::Instant::now();
    let ended = serving.process.terminated().await;
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert!(
        started.elapsed() < Duration::from_secs(30),
        "the stop did not wait for the whole grace period"
    );
}

#[tokio::test]
async fn when_the_grace_period_ends_an_answer_that_has_not_begun_is_refused() {
    let upstream = FakeUpstream::start().await;
    upstream.play(vec![Step::Pause(Duration::from_mins(1))]);
    for stream in [false, true] {
        let mut serving = Serving::start_on(&upstream, 1).await;
        let mut body = hello(MODEL);
        body["stream"] = stream.into();
        let before = upstream.calls();
        let pending = tokio::spawn(serving.chat(&body).send());
        serving
            .process
            .until(|_| upstream.calls() == before + 1)
            .await;
        serving.process.signal("TERM");
        let answer = pending.await.unwrap().unwrap();
        assert_eq!(answer.status(), 503);
        let answer: Value = answer.json().await.unwrap();
        assert_eq!(answer["error"]["type"], "service_unavailable");
        assert_eq!(serving.process.ended().await.code, Some(0));
    }
}
