//! A failing provider of the Gemini API: callers see the usual errors and pay nothing.

use serde_json::json;

use crate::support::{
    LedgerView, Step, View,
    gateway::hello,
    gemini::{assert_anonymous, events, generated, said, start},
    upstream::{response, stream_head},
};

const MODEL: &str = "svc-native-fast";

#[tokio::test]
async fn a_failing_status_is_the_code_and_free() {
    let gateway = start().await;
    let customer = gateway.customer().await;
    let mut calls = 0;
    for (status, word) in [
        (401, "UNAUTHENTICATED"),
        (403, "PERMISSION_DENIED"),
        (404, "NOT_FOUND"),
        (429, "RESOURCE_EXHAUSTED"),
        (500, "INTERNAL"),
        (503, "UNAVAILABLE"),
        (504, "DEADLINE_EXCEEDED"),
    ] {
        let message = "The model models/vendor-model-9 of Gemini by Google is overloaded.";
        let error = json!({ "error": { "code": status, "message": message, "status": word } });
        for body in [error.clone(), json!([error])] {
            gateway.upstream.answer_json(status, &body);
            for stream in [false, true] {
                let view = View::Failed(Some(status.to_string()));
                assert_eq!(customer.ask(word, stream).await, view);
                calls += 1;
            }
            let answer = gateway.chat(&hello(MODEL)).await;
            assert_anonymous(&format!("{}{:?}", answer.body, answer.headers));
        }
    }
    assert_eq!(customer.ledger_view().await, LedgerView::free(calls));
}

#[tokio::test]
async fn a_reason_is_shown_if_the_caller_caused_it() {
    let gateway = start().await;
    for (message, details, shown) in [
        (
            "The input token count (1200000) exceeds the maximum number of tokens allowed.",
            json!([]),
            Some("maximum context length"),
        ),
        (
            "* GenerateContentRequest.tools[0]: Gemini (vendor-model-9) has no `x`, says Google.",
            json!([]),
            Some("has no `x`, says [...]"),
        ),
        (
            "API key not valid. Please pass a valid API key.",
            json!([{ "reason": "API_KEY_INVALID", "domain": "googleapis.com" }]),
            None,
        ),
    ] {
        let error = json!({ "code": 400, "status": "INVALID_ARGUMENT", "message": message,
            "details": details });
        for body in [json!({ "error": error }), json!([{ "error": error }])] {
            gateway.upstream.answer_json(400, &body);
            let answer = gateway.chat(&hello(MODEL)).await;
            if message.starts_with("The input token count") {
                let code = Some("context_length_exceeded");
                answer.assert_error(400, "invalid_request_error", code, Some("messages"));
            } else {
                answer.assert_error(502, "upstream_error", Some("400"), None);
            }
            let text = answer.error()["message"].as_str().unwrap();
            match shown {
                Some(words) => assert!(text.contains(words), "{text}"),
                None => assert!(!text.contains("key"), "{text}"),
            }
            assert_anonymous(&answer.body.to_string());
        }
    }
}

/// Streams that break off: the caller gets an error, and nothing is charged.
#[tokio::test]
async fn an_interrupted_stream_is_free() {
    let gateway = start().await;
    let begun = events(&[generated(json!([{ "text": "Hel" }]), None)]);
    let error = json!({ "error": { "code": 503, "status": "UNAVAILABLE",
        "message": "Gemini is overloaded." } });
    for (what, then) in [
        (
            "an error",
            vec![Step::Send(events(std::slice::from_ref(&error)).into())],
        ),
        (
            "an error in a list",
            vec![Step::Send(events(&[json!([error])]).into())],
        ),
        ("a polite end", vec![Step::Close]),
        ("a reset", vec![Step::Reset]),
        ("no JSON", vec![Step::Send(b"data: <html>\n\n".to_vec())]),
    ] {
        let customer = gateway.customer().await;
        let mut steps = vec![Step::Send(stream_head()), Step::Send(begun.clone().into())];
        steps.extend(then);
        steps.push(Step::Close);
        gateway.upstream.play(steps.clone());
        let (view, text) = customer.ask_for_text(what, true).await;
        assert_eq!((view, text.as_str()), (View::Interrupted, "Hel"), "{what}");
        assert_eq!(customer.ledger_view().await, LedgerView::free(1), "{what}");
        let stream = gateway.stream(&hello(MODEL)).await;
        stream.assert_interrupted(MODEL);
        assert_anonymous(&stream.text);
    }
}

/// Before the first event, a failure still has an HTTP status.
#[tokio::test]
async fn a_stream_that_fails_at_once_is_an_error() {
    let gateway = start().await;
    let customer = gateway.customer().await;
    let error = json!({ "error": { "code": 503, "status": "UNAVAILABLE", "message": "no" } });
    for (calls, events) in (1..).zip([
        events(&[error]),
        events(&[generated(json!([]), Some("MALFORMED_FUNCTION_CALL"))]),
        String::new(),
    ]) {
        gateway.upstream.answer_stream(&events);
        assert_eq!(customer.ask("now", true).await, View::FAILED);
        assert_eq!(customer.ledger_view().await, LedgerView::free(calls));
    }
}

/// After every candidate has a finish reason, an unclean end of the connection changes nothing.
#[tokio::test]
async fn a_finished_stream_stays_finished() {
    let gateway = start().await;
    for (what, end) in [("a close", Step::Close), ("a reset", Step::Reset)] {
        let customer = gateway.customer().await;
        gateway.upstream.play(vec![
            Step::Send(stream_head()),
            Step::Send(events(&[said("Hello")]).into()),
            end,
        ]);
        let (view, text) = customer.ask_for_text(what, true).await;
        assert_eq!((view, text.as_str()), (View::Finished, "Hello"), "{what}");
        assert_eq!(
            customer.ledger_view().await,
            LedgerView::charged(1),
            "{what}"
        );
    }
}

/// Status 200 with an unusable body.
#[tokio::test]
async fn a_success_that_cannot_be_used_is_a_failure() {
    let gateway = start().await;
    let customer = gateway.customer().await;
    let good = said("Hello").to_string();
    let error = json!({ "error": { "code": 500, "status": "INTERNAL", "message": "no" } });
    let mut calls = 0;
    for (content_type, body) in [
        ("application/json", String::new()),
        ("application/json", "{}".to_owned()),
        ("application/json", "[]".to_owned()),
        ("application/json", good[..good.len() - 2].to_owned()),
        ("application/json", error.to_string()),
        ("application/json", json!([error]).to_string()),
        ("application/json", json!({ "candidates": [] }).to_string()),
        ("text/html", good.clone()),
    ] {
        gateway
            .upstream
            .play(vec![Step::Send(response(200, content_type, &body))]);
        assert_eq!(customer.ask("whole", false).await, View::FAILED, "{body}");
        calls += 1;
    }
    // Gemini sends a list instead of events if `alt=sse` is lost on the way.
    gateway
        .upstream
        .answer(200, "application/json", &format!("[{good}]"));
    assert_eq!(customer.ask("stream", true).await, View::FAILED);
    assert_eq!(customer.ledger_view().await, LedgerView::free(calls + 1));
}
