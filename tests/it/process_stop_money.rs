//! Charges around a stop: finished responses are charged, interrupted ones are free, also in the next process.

use futures_util::future::join_all;
use reqwest::Response;
use serde_json::{Value, json};

use crate::support::{
    FakeUpstream, Gate, Process, Serving, Step, Stream,
    gateway::hello,
    upstream::{chunk, completion, events, response, stream_head, usage_chunk},
};

/// Costs 0.20 / 0.80 dollars per million tokens: 11 input and 3 output tokens cost 4,600 nano-dollars.
pub const MODEL: &str = "svc-native-fast";
pub const STREAMS: usize = 100;

/// A provider that starts its responses at once and finishes them when the gate opens.
pub async fn slow_upstream() -> (FakeUpstream, Gate) {
    let (upstream, gate) = (FakeUpstream::start().await, Gate::default());
    let word = format!("data: {}\n\n", chunk(json!({ "content": "word " }), None));
    let end = events(&[chunk(json!({}), Some("stop")), usage_chunk(11, 3)]);
    let whole = response(200, "application/json", &completion("late").to_string());
    let until = Step::Until(gate.clone());
    upstream.play_for_each(move |request| {
        if request.body["stream"] == false {
            return vec![until.clone(), Step::Send(whole.clone())];
        }
        vec![
            Step::Send(stream_head()),
            Step::Send(word.clone().into_bytes()),
            until.clone(),
            Step::Send(format!("{word}{end}").into_bytes()),
            Step::Close,
        ]
    });
    (upstream, gate)
}

/// Opens a hundred streams and reads the beginning of each.
pub async fn begun(serving: &Serving) -> Vec<Response> {
    let mut body = hello(MODEL);
    body["stream"] = true.into();
    let opened = (0..STREAMS).map(|_| serving.chat(&body).send());
    let opened = join_all(opened).await.into_iter().map(Result::unwrap);
    let opened: Vec<_> = opened.collect();
    assert!(opened.iter().all(|response| response.status() == 200));
    opened
}

pub async fn read(streams: Vec<Response>) -> Vec<Stream> {
    let texts = join_all(streams.into_iter().map(Response::text)).await;
    let texts = texts.into_iter().map(|text| text.expect("to its end"));
    texts.map(|text| Stream { text }).collect()
}

async fn until_stopping(serving: &mut Serving) {
    serving.process.signal("TERM");
    let stopping = |process: &Process| process.stderr().contains("stopping: no new work");
    serving.process.until(stopping).await;
}

#[tokio::test]
async fn a_stop_with_a_hundred_streams_running_loses_none_and_charges_all() {
    let (upstream, gate) = slow_upstream().await;
    let mut serving = Serving::start_on(&upstream, 60).await;
    let streams = begun(&serving).await;
    let whole = tokio::spawn(serving.chat(&hello(MODEL)).send());
    serving
        .process
        .until(|_| upstream.calls() == STREAMS + 1)
        .await;
    until_stopping(&mut serving).await;
    let refused = serving.chat(&hello(MODEL)).send().await.unwrap();
    assert_eq!(refused.status(), 503, "no new work");
    gate.open();
    for stream in read(streams).await {
        stream.assert_complete(MODEL);
        assert_eq!(stream.content(0), "word word ");
    }
    let whole: Value = whole.await.unwrap().unwrap().json().await.unwrap();
    assert_eq!(whole["choices"][0]["message"]["content"], "late");
    let (ended, restarted) = serving.ended_and_restarted().await;
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    // 101 × 4,600 nano-dollars.
    let expected = ("99.9995354".to_owned(), STREAMS + 1);
    assert_eq!(restarted.ledger_view().await, expected);
}

#[tokio::test]
async fn streams_interrupted_by_a_stop_are_free() {
    let (upstream, _never) = slow_upstream().await;
    let mut serving = Serving::start_on(&upstream, 1).await;
    let streams = begun(&serving).await;
    let whole = tokio::spawn(serving.chat(&hello(MODEL)).send());
    serving
        .process
        .until(|_| upstream.calls() == STREAMS + 1)
        .await;
    until_stopping(&mut serving).await;
    for stream in read(streams).await {
        stream.assert_interrupted(MODEL);
        assert_eq!(stream.content(0), "word ");
    }
    assert_eq!(whole.await.unwrap().unwrap().status(), 503);
    let (ended, restarted) = serving.ended_and_restarted().await;
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert_eq!(restarted.ledger_view().await, ("100.000000".to_owned(), 0));
}
