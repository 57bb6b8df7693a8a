//! A failing provider of the Messages API: the errors that callers get, and that the calls are free.

use serde_json::json;

use crate::support::{
    LedgerView, Step, View,
    anthropic::{
        assert_anonymous_answer, ended, events, failure, hello_events, message, start, text,
    },
    bodies::hello_with,
    gateway::{PROVIDER_KEY, UPSTREAM_MODEL, hello},
    ledger_view,
    upstream::stream_head,
};

const MODEL: &str = "svc-native-fast";

/// Each status becomes the caller's error code, the call is free, and nothing of the provider shows.
#[tokio::test]
async fn failing_statuses() {
    let gateway = start().await;
    let customer = gateway.customer().await;
    for (status, kind) in [
        (400, "invalid_request_error"),
        (401, "authentication_error"),
        (403, "permission_error"),
        (404, "not_found_error"),
        (413, "request_too_large"),
        (429, "rate_limit_error"),
        (500, "api_error"),
        (529, "overloaded_error"),
    ] {
        let words = format!("{UPSTREAM_MODEL}: Claude (Anthropic) says no to {PROVIDER_KEY}");
        gateway.upstream.answer_json(status, &failure(kind, &words));
        for stream in [false, true] {
            let body = hello_with(ledger_view::MODEL, json!({ "stream": stream }));
            let answer = gateway.chat_as(&customer.key, &body).await;
            answer.assert_error(502, "upstream_error", Some(&status.to_string()), None);
            assert_anonymous_answer(&gateway, &answer);
        }
    }
    assert_eq!(customer.ledger_view().await, LedgerView::free(16));
}

/// The API's complaints about a request are passed on to the caller.
#[tokio::test]
async fn a_refusal_is_explained() {
    let gateway = start().await;
    for (words, shown) in [
        ("messages.1: all is wrong", "messages.1: all is wrong"),
        (
            "prompt is too long: 210000 tokens > 200000 maximum",
            "The model's maximum context length is exceeded: \
             prompt is too long: 210000 tokens > 200000 maximum",
        ),
        ("Claude Opus cannot do that", "[...] Opus cannot do that"),
    ] {
        let upstream = failure("invalid_request_error", words);
        gateway.upstream.answer_json(400, &upstream);
        for stream in [false, true] {
            let body = hello_with(MODEL, json!({ "stream": stream }));
            let answer = gateway.chat(&body).await;
            if words.starts_with("prompt is too long") {
                let code = Some("context_length_exceeded");
                answer.assert_error(400, "invalid_request_error", code, Some("messages"));
            } else {
                answer.assert_error(502, "upstream_error", Some("400"), None);
            }
            let message = answer.error()["message"].as_str().unwrap();
            assert!(message.ends_with(shown), "{message}");
            assert_eq!(answer.headers["x-should-retry"], "false");
        }
    }
}

/// Streams that fail on the way are distinguished from finished ones, and are free.
#[tokio::test]
async fn a_stream_that_fails_is_interrupted_and_free() {
    let gateway = start().await;
    let customer = gateway.customer().await;
    let overloaded = failure("overloaded_error", "Overloaded");
    let hello = hello_events();
    let without_end = &hello[..hello.len() - 1];
    let cut = &hello[..4];
    // An error event is final, whatever follows it.
    let with_error = [cut, std::slice::from_ref(&overloaded), &hello[4..]].concat();
    let mut without_reason = hello.clone();
    without_reason.remove(hello.len() - 2);
    let mut failed = hello[..hello.len() - 2].to_vec();
    failed.extend(ended("error", json!({ "output_tokens": 3 })));
    for (what, upstream) in [
        ("an error event", events(&with_error)),
        ("cut in a block", events(cut)),
        ("cut before the last word", events(without_end)),
        ("no stop reason", events(&without_reason)),
        ("a word of failure", events(&failed)),
        (
            "what is no JSON",
            format!("{}data: <html>\n\n", events(cut)),
        ),
    ] {
        gateway.upstream.answer_stream(&upstream);
        assert_eq!(
            customer.ask("Hello", true).await,
            View::Interrupted,
            "{what}"
        );
    }
    assert_eq!(customer.ledger_view().await, LedgerView::free(6));

    gateway.upstream.answer_stream(&events(&[overloaded]));
    assert_eq!(
        customer.ask("Hello", true).await,
        View::FAILED,
        "an error at once"
    );
    gateway.upstream.play(vec![
        Step::Send(stream_head()),
        Step::Send(events(cut).into_bytes()),
        Step::Reset,
    ]);
    assert_eq!(
        customer.ask("Hello", true).await,
        View::Interrupted,
        "a reset"
    );
    assert_eq!(customer.ledger_view().await, LedgerView::free(8));
}

/// An unusable response is a failure, whatever its status.
#[tokio::test]
async fn a_success_that_cannot_be_used_is_a_failure() {
    let gateway = start().await;
    let good = message(json!([text("Hi")]), "end_turn");
    let without = |key: &str| {
        let mut body = good.clone();
        body.as_object_mut().unwrap().remove(key);
        body
    };
    for body in [
        json!({}),
        json!([]),
        without("content"),
        failure("api_error", UPSTREAM_MODEL),
        message(json!([text("Hi")]), "error"),
        message(
            json!([{ "type": "tool_use", "id": "toolu_01", "input": {} }]),
            "tool_use",
        ),
    ] {
        gateway.upstream.answer_json(200, &body);
        let answer = gateway.chat(&hello(MODEL)).await;
        answer.assert_error(502, "upstream_error", None, None);
        assert_anonymous_answer(&gateway, &answer);
    }
}
