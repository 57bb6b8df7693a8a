//! §4.1 (d) and §6: streams in which the gateway runs tools. Only the final response is streamed, as soon as it is
//! recognized as final.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{
    Customer, Gate, LedgerView, Step, Stream, TestGateway,
    bodies::{hello_with, long},
    gateway::hello,
    ledger_view::MODEL,
    turns::{CONVERT, Turn, calls_json, open_events, usage},
    upstream::{chunk, events, stream_head, usage_chunk},
};

/// Longer than the text that precedes a tool call.
const LONG: usize = 600;

fn streaming() -> Value {
    hello_with(MODEL, json!({ "stream": true }))
}

/// Reads a stream to its end, whether or not it is complete.
async fn read(customer: &Customer<'_>, id: &str) -> Stream {
    let request = customer.request(&streaming()).header("x-request-id", id);
    let response = request.send().await.unwrap();
    assert_eq!(response.status(), 200);
    Stream {
        text: response.text().await.unwrap(),
    }
}

/// The chunks, then `last`.
fn broken(chunks: &[Value], last: Step) -> Turn {
    let chunks = Step::Send(open_events(chunks));
    Turn::plays(vec![Step::Send(stream_head()), chunks, last])
}

fn word(text: &str) -> Value {
    chunk(json!({ "content": text }), None)
}

/// The beginning of a turn that calls a tool: half of its arguments are missing.
fn half_a_call() -> Vec<Value> {
    let mut chunks = Turn::calls(&[CONVERT]).chunks();
    chunks.truncate(chunks.len() / 2);
    chunks
}

#[tokio::test]
async fn text_before_a_tool_call_is_not_streamed() {
    for stream in [false, true] {
        let gateway = TestGateway::start().await;
        let customer = gateway.customer().await;
        let preamble = "Let me check that for you.";
        gateway.upstream.converse([
            Turn::says_and_calls(preamble, &[CONVERT]),
            Turn::says_and_calls("And once more.", &[CONVERT]),
            Turn::says("A billion."),
        ]);
        let reply = customer
            .send("preamble", &hello(MODEL), stream)
            .await
            .unwrap();
        assert_eq!(reply.choices, [("A billion.".into(), "stop".into())]);
        assert_eq!(reply.usage, usage(33, 9));
        let messages = gateway.upstream.messages();
        let added = &messages[1][messages[0].len()..];
        assert_eq!(added[0]["content"], preamble, "the model is reminded of it");
        assert_eq!(added[0]["tool_calls"], calls_json(&[CONVERT]));
        assert_eq!(customer.ledger_view().await, LedgerView::charged_steps(3));
    }
}

#[tokio::test]
async fn usage_is_streamed_on_request_and_is_the_sum() {
    let gateway = TestGateway::start().await;
    let customer = gateway.customer().await;
    let turns = [Turn::calls(&[CONVERT]), Turn::says("Done.")];
    gateway.upstream.converse(turns.clone());
    let stream = read(&customer, "without").await;
    stream.assert_complete(MODEL);
    assert_eq!(stream.usage(), None);
    gateway.upstream.converse(turns);
    let reply = customer.send("with", &hello(MODEL), true).await.unwrap();
    assert_eq!(reply.usage, usage(22, 6));
    for request in gateway.upstream.received() {
        let include_usage = &request.body["stream_options"]["include_usage"];
        assert_eq!(
            include_usage, true,
            "usage is always requested from a provider"
        );
    }
}

/// Reads a stream until `words` have arrived `times` times.
async fn until_received(response: &mut reqwest::Response, words: &str, times: usize) -> String {
    let mut text = String::new();
    while text.matches(words).count() < times {
        let chunk = tokio::time::timeout(Duration::from_secs(20), response.chunk()).await;
        let chunk = chunk.expect("it comes before the end").unwrap();
        text.push_str(std::str::from_utf8(&chunk.expect("more")).unwrap());
    }
    text
}

/// A provider's long response is streamed while it is being written.
#[tokio::test]
async fn a_long_answer_begins_to_arrive_before_it_is_over() {
    let trickle = [
        Step::Pause(Duration::from_millis(50)),
        Step::Send(open_events(&[word(".")])),
    ];
    let end = [chunk(json!({}), Some("stop")), usage_chunk(11, 3)];
    let long = [
        vec![
            Step::Send(stream_head()),
            Step::Send(open_events(&[word(&"x".repeat(LONG))])),
        ],
        vec![trickle; 60].concat(),
        vec![Step::Send(events(&end).into_bytes()), Step::Close],
    ];
    for before in 0..2 {
        let gateway = TestGateway::start().await;
        let customer = gateway.customer().await;
        let mut turns = vec![Turn::calls(&[CONVERT]); before];
        turns.push(Turn::plays(long.concat()));
        gateway.upstream.converse(turns);
        let mut response = customer.request(&streaming()).send().await.unwrap();
        let reply = until_received(&mut response, "xxx", 1).await;
        let sent = gateway.upstream.bytes_sent();
        let text = reply + &response.text().await.unwrap();
        assert!(gateway.upstream.bytes_sent() > sent, "it was not over");
        let stream = Stream { text };
        stream.assert_complete(MODEL);
        assert_eq!(stream.content(0).len(), LONG + 60);
        let steps = u32::try_from(before + 1).unwrap();
        assert_eq!(
            customer.ledger_view().await,
            LedgerView::charged_steps(steps)
        );
    }
}

#[tokio::test]
async fn a_short_text_is_streamed_once_nothing_follows_it() {
    let gateway = TestGateway::start_with_long_timeouts().await;
    let (customer, gate) = (gateway.customer().await, Gate::default());
    let end = [chunk(json!({}), Some("stop")), usage_chunk(11, 3)];
    gateway.upstream.play(vec![
        Step::Send(stream_head()),
        Step::Send(open_events(&[word("Hmm.")])),
        Step::Until(gate.clone()),
        Step::Send(events(&end).into_bytes()),
        Step::Close,
    ]);
    let mut response = customer.request(&streaming()).send().await.unwrap();
    let text = until_received(&mut response, "Hmm.", 1).await;
    gate.open();
    let text = text + &response.text().await.unwrap();
    let stream = Stream { text };
    stream.assert_complete(MODEL);
    assert_eq!(stream.content(0), "Hmm.");
    assert_eq!(customer.ledger_view().await, LedgerView::charged(1));
}

/// §6.2: an interrupted stream creates no charge, whichever step it was in.
#[tokio::test]
async fn a_text_that_breaks_off_is_an_error_event_and_free() {
    let long = "x".repeat(LONG);
    for before in 0..3 {
        for (text, last) in [
            ("Short", Step::Close),
            ("Short", Step::Reset),
            (&long, Step::Close),
            (&long, Step::Reset),
        ] {
            let gateway = TestGateway::start().await;
            let customer = gateway.customer().await;
            let mut turns = vec![Turn::calls(&[CONVERT]); before];
            turns.push(broken(&[word(text)], last));
            gateway.upstream.converse(turns);
            let stream = read(&customer, "broken").await;
            stream.assert_interrupted(MODEL);
            assert_eq!(stream.content(0), text);
            let steps = u32::try_from(before).unwrap();
            assert_eq!(
                customer.ledger_view().await,
                LedgerView::free_after_steps(steps)
            );
            let details = gateway.details("broken").await;
            assert_eq!(details["outcome"], "interrupted");
            assert_eq!(gateway.upstream.calls(), before + 1);
        }
    }
}

#[tokio::test]
async fn a_break_before_the_first_event_has_an_error_status() {
    let said_and_called = [vec![word("Let me see")], half_a_call()].concat();
    for before in 0..3 {
        for chunks in [half_a_call(), said_and_called.clone(), vec![]] {
            for last in [Step::Close, Step::Reset] {
                let gateway = TestGateway::start().await;
                let customer = gateway.customer().await;
                let mut turns = vec![Turn::calls(&[CONVERT]); before];
                turns.push(broken(&chunks, last));
                gateway.upstream.converse(turns);
                let failed = customer.send("cut", &hello(MODEL), true).await.unwrap_err();
                failed.assert_error(502, "upstream_error", None, None);
                let steps = u32::try_from(before).unwrap();
                assert_eq!(
                    customer.ledger_view().await,
                    LedgerView::free_after_steps(steps)
                );
                assert_eq!(gateway.details("cut").await["outcome"], "provider_failed");
                assert_eq!(gateway.steps("cut").await.len(), 2 * before);
            }
        }
    }
}

/// Text that was streamed as the final response, and then continues with a tool call, cannot be taken back: the final
/// response follows in the same stream.
#[tokio::test]
async fn after_a_long_text_a_call_is_run_and_the_stream_goes_on() {
    let long = "x".repeat(LONG);
    let gateway = TestGateway::start().await;
    let customer = gateway.customer().await;
    gateway.upstream.converse([
        Turn::says_and_calls(&long, &[CONVERT]),
        Turn::says_and_calls("Hm.", &[CONVERT]),
        Turn::says("A billion."),
    ]);
    let reply = customer.send("long", &hello(MODEL), true).await.unwrap();
    let text = format!("{long}A billion.");
    assert_eq!(reply.choices, [(text, "stop".into())]);
    assert_eq!(reply.usage, usage(33, 9));
    assert_eq!(customer.ledger_view().await, LedgerView::charged_steps(3));
    let steps = [
        "fake tool_calls 11+3",
        "convert_units done",
        "fake tool_calls 11+3",
        "convert_units done",
        "fake stop 11+3",
    ];
    assert_eq!(gateway.steps("long").await, steps);
}

/// Like above, with a short text that was followed by a pause.
#[tokio::test]
async fn after_a_short_text_and_a_silence_a_call_is_run_and_the_stream_goes_on() {
    let gateway = TestGateway::start_with_long_timeouts().await;
    let (customer, gate) = (gateway.customer().await, Gate::default());
    let mut call = Turn::calls(&[CONVERT]).chunks();
    call.push(usage_chunk(11, 3));
    let hesitant = Turn::plays(vec![
        Step::Send(stream_head()),
        Step::Send(open_events(&[word("Hmm. ")])),
        Step::Until(gate.clone()),
        Step::Send(events(&call).into_bytes()),
        Step::Close,
    ]);
    gateway
        .upstream
        .converse([hesitant, Turn::says("A billion.")]);
    let mut response = customer.request(&streaming()).send().await.unwrap();
    let text = until_received(&mut response, "Hmm. ", 1).await;
    gate.open();
    let text = text + &response.text().await.unwrap();
    let stream = Stream { text };
    stream.assert_complete(MODEL);
    assert_eq!(stream.content(0), "Hmm. A billion.");
    assert_eq!(stream.tool_calls(0), []);
    assert_eq!(customer.ledger_view().await, LedgerView::charged_steps(2));
}

/// After the stream has begun, a status can no longer be sent: the error is the last event.
#[tokio::test]
async fn a_step_that_is_refused_after_a_long_text_is_an_error_event_and_free() {
    let gateway = TestGateway::start_with("[credit]\nmax_overdraft = \"0\"").await;
    let customer = gateway.customer_with("0.01", 1_000).await;
    let long = Turn::says_and_calls(&"x".repeat(LONG), &[CONVERT]).using(100, 200);
    gateway.upstream.converse([long, Turn::says("Done.")]);
    let body = hello_with(MODEL, json!({ "stream": true, "max_tokens": 200 }));
    let response = customer.request(&body).send().await.unwrap();
    assert_eq!(response.status(), 200);
    let text = response.text().await.unwrap();
    let stream = Stream { text };
    assert!(!stream.is_done(), "{}", stream.text);
    assert_eq!(stream.finish_reason(0), None);
    let error = stream.error().unwrap();
    assert_eq!(error["type"], "insufficient_credits");
    assert_eq!(error["code"], "payment_required");
    assert_eq!(gateway.upstream.calls(), 1);
    let expected = LedgerView {
        requests: 1,
        tokens: 300,
        ..LedgerView::default()
    };
    assert_eq!(customer.ledger_view().await, expected);
}

#[tokio::test]
async fn a_failure_after_a_long_text_and_a_call_is_an_error_event_and_free() {
    let long = "x".repeat(LONG);
    for failure in [
        Turn::fails(500),
        broken(&half_a_call(), Step::Reset),
        broken(&[word("And")], Step::Close),
    ] {
        let gateway = TestGateway::start().await;
        let customer = gateway.customer().await;
        gateway
            .upstream
            .converse([Turn::says_and_calls(&long, &[CONVERT]), failure]);
        let stream = read(&customer, "late").await;
        stream.assert_interrupted(MODEL);
        assert!(stream.content(0).starts_with(&long));
        assert_eq!(
            customer.ledger_view().await,
            LedgerView::free_after_steps(1)
        );
        assert_eq!(gateway.details("late").await["outcome"], "interrupted");
    }
}

/// Without the usage of each step there is no sum to charge.
#[tokio::test]
async fn a_step_that_calls_tools_without_usage_is_a_failure() {
    for stream in [false, true] {
        for before in 0..2 {
            let gateway = TestGateway::start().await;
            let customer = gateway.customer().await;
            let mut turns = vec![Turn::calls(&[CONVERT]); before];
            turns.push(Turn::calls(&[CONVERT]).uncounted());
            turns.push(Turn::says("Done."));
            gateway.upstream.converse(turns);
            let failed = customer.send("uncounted", &hello(MODEL), stream).await;
            failed
                .unwrap_err()
                .assert_error(502, "upstream_error", None, None);
            assert_eq!(
                gateway.upstream.calls(),
                before + 1,
                "no further request is sent"
            );
            customer.ledger_view().await.assert_uncounted(1);
        }
    }
    let gateway = TestGateway::start().await;
    let customer = gateway.customer().await;
    let long = "x".repeat(LONG);
    let turn = Turn::says_and_calls(&long, &[CONVERT]).uncounted();
    gateway.upstream.converse([turn, Turn::says("Done.")]);
    let stream = read(&customer, "midway").await;
    stream.assert_interrupted(MODEL);
    customer.ledger_view().await.assert_uncounted(1);
}

#[tokio::test]
async fn an_answer_without_usage_is_delivered_and_free_with_all_its_steps() {
    for uncounted in [
        Turn::says("Done.").uncounted(),
        Turn::says("Done.").using(4_000_000_000, 1), // more than any model can read
    ] {
        let gateway = TestGateway::start().await;
        let customer = gateway.customer().await;
        gateway
            .upstream
            .converse([Turn::calls(&[CONVERT]), uncounted]);
        let reply = customer.send("free", &hello(MODEL), true).await.unwrap();
        assert_eq!(reply.choices, [("Done.".into(), "stop".into())]);
        assert_eq!(reply.usage, Value::Null);
        customer.ledger_view().await.assert_uncounted(1);
        assert_eq!(gateway.details("free").await["outcome"], "no_usage");
    }
}

/// If a step is refused after the stream was opened, one event carries everything that the refusal would have
/// contained.
#[tokio::test]
async fn a_refusal_between_steps_is_an_event_that_says_when_to_retry() {
    let gateway = TestGateway::start().await;
    let limit = json!({ "model": MODEL, "rpm": 10, "tpm": 10_000 });
    let limit = gateway.operate(Method::PUT, "/operator/limits", Some(limit));
    limit.await.assert_ok();
    let mut body = long(MODEL, 3_000);
    body["stream"] = json!(true);
    let first = Turn::says_and_calls(&"x".repeat(LONG), &[CONVERT]).using(5_900, 100);
    gateway.upstream.converse([first, Turn::says("Done.")]);
    let url = gateway.url("/v1/chat/completions");
    let response = gateway
        .client
        .post(url)
        .bearer_auth(&gateway.key)
        .json(&body);
    let response = response.send().await.unwrap();
    assert_eq!(response.status(), 200);
    let text = response.text().await.unwrap();
    let last = text.trim_end().lines().last().unwrap();
    let event: Value = serde_json::from_str(last.strip_prefix("data: ").unwrap()).unwrap();
    let error = &event["error"];
    assert_eq!(error["type"], "rate_limit_exceeded", "{error}");
    assert_eq!(error["code"], "tpm_exceeded", "{error}");
    let seconds = error["retry_after"].as_u64().unwrap();
    assert!((1..=60).contains(&seconds), "{error}");
    assert_eq!(text.matches("\"error\"").count(), 1, "{text}");
    assert_eq!(gateway.upstream.calls(), 1);
    gateway.idle().await;
}
