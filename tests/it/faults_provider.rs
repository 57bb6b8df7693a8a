//! Providers that fail in various ways: one 502 or one error event, and no charge.
//!
//! These tests run on several threads, because providers that never stop sending would starve everything else on one.

use std::{collections::HashMap, time::Duration};

use futures_util::future::join_all;
use serde_json::json;
use tokio::net::TcpListener;

use crate::support::{
    LedgerView, Step, TestGateway, View,
    gateway::UPSTREAM_MODEL,
    upstream::{chunk, completion, events, response, stream_head, usage_chunk},
};

/// Longer than any timeout of the gateway in these tests.
const SILENCE: Step = Step::Pause(Duration::from_mins(1));

/// Failures before the response, which plain responses and streams share.
fn before_the_answer() -> Vec<(String, Vec<Step>, View)> {
    let send = |bytes: Vec<u8>| vec![Step::Send(bytes)];
    let refusal = json!({ "error": { "message": "no such thing" } });
    let mut cases: Vec<(String, Vec<Step>, View)> = Vec::new();
    for status in [400_u16, 401, 403, 404, 413, 422, 429, 500, 502, 503, 529] {
        let answer = response(status, "application/json", &refusal.to_string());
        let view = View::Failed(Some(status.to_string()));
        cases.push((format!("status {status}"), vec![Step::Send(answer)], view));
    }
    let busy = "HTTP/1.1 429 X\r\nretry-after: 7\r\nx-ratelimit-remaining: 0\r\n\
                content-length: 0\r\n\r\n";
    let busy_view = View::Failed(Some("429".into()));
    cases.push((
        "429, and when to come back".into(),
        send(busy.into()),
        busy_view,
    ));
    let gzip =
        "HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-type: application/json\r\n\r\n";
    let bomb = [gzip.as_bytes(), b"\x1f\x8b\x08\0\0\0\0\0\0\x03"].concat();
    let more_zeros = Step::Flood(vec![0; 64 << 10]);
    for (what, steps) in [
        ("closed at once", vec![Step::Close]),
        ("reset at once", vec![Step::Reset]),
        ("no answer", vec![SILENCE]),
        (
            "half a head, then silence",
            vec![Step::Send(b"HTTP/1.1 200 OK\r\ncon".to_vec()), SILENCE],
        ),
        ("not HTTP", send(b"SSH-2.0-OpenSSH_9.2\r\n".to_vec())),
        (
            "endless headers",
            vec![
                Step::Send(b"HTTP/1.1 200 OK\r\nx: ".to_vec()),
                Step::Flood(vec![b'x'; 64 << 10]),
            ],
        ),
        (
            "on and on to continue",
            vec![Step::Flood(b"HTTP/1.1 100 Continue\r\n\r\n".repeat(100))],
        ),
        ("a coding that is not text", send(with_coding(b"\xe9"))),
        ("an unknown coding", send(with_coding(b"gzip"))),
        (
            "chunks announced twice",
            send(with_coding(b"chunked\r\ntransfer-encoding: chunked")),
        ),
        (
            "HTML",
            send(response(200, "text/html", "<html>Bad gateway</html>")),
        ),
        ("a bomb", vec![Step::Send(bomb), more_zeros]),
        (
            "an empty answer",
            send(response(200, "application/json", "")),
        ),
        (
            "nothing to see",
            send(response(204, "application/json", "")),
        ),
    ] {
        let view = match what {
            "nothing to see" => View::Failed(Some("204".into())),
            _ => View::FAILED,
        };
        cases.push((what.into(), steps, view));
    }
    cases
}

/// A response that is complete by its length, with a `Transfer-Encoding` beside it.
fn with_coding(coding: &[u8]) -> Vec<u8> {
    let whole = response(200, "application/json", &completion("Hi").to_string());
    let headers = whole.strip_prefix(b"HTTP/1.1 200 X\r\n").unwrap();
    let line = b"HTTP/1.1 200 X\r\ntransfer-encoding: ";
    [&line[..], coding, b"\r\n", headers].concat()
}

fn in_a_whole_answer() -> Vec<(String, Vec<Step>, View)> {
    let good = completion("Hi").to_string();
    let json = |body: &str| vec![Step::Send(response(200, "application/json", body))];
    let head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n{\"id\":\"";
    let whole = response(200, "application/json", &good);
    let half = whole[..whole.len() / 2].to_vec();
    let cases = [
        (
            "half an answer, then silence",
            vec![Step::Send(half), SILENCE],
        ),
        (
            "an endless answer",
            vec![Step::Send(head.to_vec()), Step::Flood(vec![b'x'; 1 << 20])],
        ),
        ("no JSON", json("Bad gateway")),
        ("JSON cut short", json(&good[..good.len() - 2])),
        ("two answers in one", json(&format!("{good}{good}"))),
        ("no choices", json(&good.replace("choices", "options"))),
        (
            "half a surrogate",
            json(&good.replace("\"Hi\"", "\"\\ud83d\"")),
        ),
        (
            "usage beside a failure",
            json(&json!({ "error": {}, "usage": completion("")["usage"] }).to_string()),
        ),
        (
            "an end that is a failure",
            json(&good.replace("\"stop\"", "\"error\"")),
        ),
        (
            "numbers that cannot be read",
            json(&good.replace("\"prompt_tokens\":11", "\"prompt_tokens\":1e999")),
        ),
    ];
    cases
        .map(|(what, steps)| (what.into(), steps, View::FAILED))
        .into()
}

fn in_a_stream() -> Vec<(String, Vec<Step>, View)> {
    let word = chunk(json!({ "content": "Hi" }), None);
    let begun = format!("data: {word}\n\n").repeat(3);
    let good = events(&[chunk(json!({}), Some("stop")), usage_chunk(11, 3)]);
    let stream = |body: String| vec![Step::Send(stream_head()), Step::Send(body.into_bytes())];
    let then = |body: &str, last: Step| [stream(body.to_owned()), vec![last]].concat();
    let after = |event: &str| then(&format!("{begun}{event}\n\n{good}"), Step::Close);
    let data_line = b"data: 0123456789\n".repeat(4_096);
    let mut cases = vec![
        (
            "silence before the first word",
            then(": ping\n\n", SILENCE),
            View::FAILED,
        ),
        (
            "an endless line at first",
            then("data: ", Step::Flood(vec![b'x'; 64 << 10])),
            View::FAILED,
        ),
        (
            "silence in the middle",
            then(&begun, SILENCE),
            View::Interrupted,
        ),
        (
            "an endless line",
            then(&format!("{begun}data: "), Step::Flood(vec![b'x'; 64 << 10])),
            View::Interrupted,
        ),
        (
            "an endless event",
            then(&begun, Step::Flood(data_line)),
            View::Interrupted,
        ),
        ("a reset", then(&begun, Step::Reset), View::Interrupted),
        (
            "an end without an end",
            then(&begun, Step::Close),
            View::Interrupted,
        ),
    ];
    for (what, event) in [
        ("broken JSON", "data: {\"choices\":["),
        ("no JSON", "data: Bad gateway"),
        ("a reported failure", "data: {\"error\":{\"code\":529}}"),
        (
            "invalid content",
            "data: {\"choices\":[{\"delta\":{\"content\":5}}]}",
        ),
        (
            "half a surrogate",
            "data: {\"choices\":[{\"delta\":{\"content\":\"\\ud83d\"}}]}",
        ),
        (
            "a number that cannot be read",
            "data: {\"usage\":{\"prompt_tokens\":1e999}}",
        ),
    ] {
        cases.push((what, after(event), View::Interrupted));
    }
    let invalid = [
        begun.as_bytes(),
        b"data: {\"choices\":[{\"delta\":{\"content\":\"\xff\"}}]}\n\n",
        good.as_bytes(),
    ]
    .concat();
    let invalid = vec![Step::Send(stream_head()), Step::Send(invalid), Step::Close];
    cases.push(("bytes that are no text", invalid, View::Interrupted));
    cases
        .into_iter()
        .map(|(what, steps, view)| (what.into(), steps, view))
        .collect()
}

/// Runs all cases, each with its own account. They run concurrently, except those that never end, which would starve
/// the others on a small machine.
async fn check(gateway: &TestGateway, cases: Vec<(String, Vec<Step>, View)>, stream: bool) {
    let scripts = cases
        .iter()
        .map(|(what, steps, _)| (what.clone(), steps.clone()));
    let scripts: HashMap<_, _> = scripts.collect();
    let expected_calls = gateway.upstream.calls() + cases.len();
    gateway
        .upstream
        .play_for_each(move |request| scripts[request.question()].clone());
    let ask = async |(what, _, view): (String, Vec<Step>, View)| {
        let customer = gateway.customer().await;
        assert_eq!(customer.ask(&what, stream).await, view, "{what}");
        assert_eq!(customer.ledger_view().await, LedgerView::free(1), "{what}");
    };
    let is_endless = |steps: &[Step]| steps.iter().any(|step| matches!(step, Step::Flood(_)));
    let (endless, others): (Vec<_>, Vec<_>) = cases
        .into_iter()
        .partition(|(_, steps, _)| is_endless(steps));
    join_all(others.into_iter().map(&ask)).await;
    for case in endless {
        ask(case).await;
    }
    assert_eq!(gateway.upstream.calls(), expected_calls, "one request each");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_provider_that_fails_before_it_answers_is_a_502_and_free() {
    let gateway = TestGateway::start().await;
    check(&gateway, before_the_answer(), false).await;
    check(&gateway, before_the_answer(), true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_whole_answer_that_cannot_be_used_is_a_502_and_free() {
    let gateway = TestGateway::start().await;
    check(&gateway, in_a_whole_answer(), false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_failing_stream_ends_with_an_error_and_is_free() {
    let gateway = TestGateway::start().await;
    check(&gateway, in_a_stream(), true).await;
}

/// A port without a listener, and an invalid host name: one with a label that is too long.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_provider_that_cannot_be_reached_is_a_502_and_free() {
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let refused = free.local_addr().unwrap().to_string();
    drop(free);
    let nowhere = format!("{}.invalid", "x".repeat(70));
    for (what, host) in [("connection refused", refused), ("no such name", nowhere)] {
        let gateway = TestGateway::start_with(&format!(
            r#"
            [providers.gone]
            kind = "openai"
            base_url = "http://{host}/v1"
            [[deployments]]
            model = "svc-standard"
            provider = "gone"
            upstream_model = "{UPSTREAM_MODEL}"
            "#
        ))
        .await;
        let customer = gateway.customer().await;
        for stream in [false, true] {
            assert_eq!(customer.ask(what, stream).await, View::FAILED, "{what}");
        }
        assert_eq!(customer.ledger_view().await, LedgerView::free(2), "{what}");
        assert_eq!(gateway.upstream.calls(), 0, "{what}");
    }
}
