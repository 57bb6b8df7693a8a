//! §7, 502: failing providers, and how much of the failure callers see.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::support::{
    Answer, Step, TestGateway,
    bodies::hello_with,
    gateway::{PROVIDER_KEY, UPSTREAM_MODEL, hello},
    ledger_view,
    upstream::{completion, response},
};

const MODEL: &str = "svc-native-fast";

/// Asserts the one form in which provider failures are reported, and that it reveals nothing about the provider.
#[track_caller]
fn assert_upstream_failed(gateway: &TestGateway, answer: &Answer, code: Option<&str>) {
    answer.assert_error(502, "upstream_error", code, None);
    let (host, port) = (
        gateway.upstream.address.ip().to_string(),
        gateway.upstream.address.port().to_string(),
    );
    // The page of the request is ours.
    let page = answer.body["error"]["request_url"].as_str().unwrap();
    let shown = format!("{}{:?}", answer.body, answer.headers).replace(page, "");
    for secret in [PROVIDER_KEY, UPSTREAM_MODEL, &host, &format!(":{port}")] {
        assert!(!shown.contains(secret), "{secret}: {shown}");
    }
}

#[tokio::test]
async fn a_failing_status_is_the_code() {
    let gateway = TestGateway::start().await;
    for status in [
        301_u16, 302, 307, 400, 401, 403, 404, 408, 409, 413, 422, 429, 500, 502, 503, 504, 529,
    ] {
        for body in [
            json!({ "error": { "message": "no", "type": "x", "code": 5 } }).to_string(),
            json!({ "detail": "no" }).to_string(),
            "<html>no</html>".to_owned(),
            String::new(),
        ] {
            gateway.upstream.answer(status, "application/json", &body);
            let answer = gateway.chat(&hello(MODEL)).await;
            assert_upstream_failed(&gateway, &answer, Some(&status.to_string()));
            // Official clients retry every 5xx. An error in the request will not go away; an error in the operator's
            // configuration may be fixed.
            let expected = match status {
                401 | 403 | 404 => Some("true"),
                400 | 413 | 422 => Some("false"),
                _ => None,
            };
            let retry = answer.headers.get("x-should-retry");
            let retry = retry.map(|value| value.to_str().unwrap());
            assert_eq!(retry, expected, "{status}");
        }
    }
}

#[tokio::test]
async fn a_providers_error_text_is_not_shown() {
    let gateway = TestGateway::start().await;
    let (host, model) = (gateway.upstream.address, UPSTREAM_MODEL);
    let key = PROVIDER_KEY;
    for message in [
        format!("Incorrect API key provided: {key}."),
        format!("Bearer {key}"),
        format!("key=\"{key}\",host=\"{host}\""),
        format!("The model `{model}` does not exist"),
        format!("{model}:latest and {}", model.to_uppercase()),
        format!("http://{host}/v1/chat/completions says no to {model}"),
        format!("connect to {host} failed"),
    ] {
        for status in [400, 401, 403, 404, 413, 422, 429, 500, 503] {
            for body in [
                json!({ "error": { "message": message, "type": model, "code": key } }),
                json!({ "error": message }),
                json!({ "message": message, "object": "error" }),
                json!({ "detail": [{ "msg": message }] }),
                json!(message),
            ] {
                gateway.upstream.answer_json(status, &body);
                let answer = gateway.chat(&hello(MODEL)).await;
                assert_upstream_failed(&gateway, &answer, Some(&status.to_string()));
                let shown = answer.body.to_string().to_lowercase();
                assert!(!shown.contains(UPSTREAM_MODEL), "{shown}");
            }
        }
    }
}

/// Some clients shorten their history when they find these words.
#[tokio::test]
async fn a_context_that_is_too_long_is_explained() {
    let gateway = TestGateway::start().await;
    let openai = format!(
        "{UPSTREAM_MODEL}: This model's maximum context length is 8192 tokens, you sent 9000."
    );
    let coded = |code: &str| json!({ "message": "Too much.", "code": code });
    for (status, error) in [
        (400, json!({ "message": openai })),
        (400, coded("context_length_exceeded")),
        (413, coded("context_length_exceeded")),
        (
            400,
            json!({ "type": "exceed_context_size_error", "message": "no" }),
        ),
        (
            400,
            json!({ "message": "the request exceeds the available context size. try increasing it" }),
        ),
        (
            400,
            json!({ "message": "Prompt contains 40000 tokens, too large for model with 32768 maximum context length" }),
        ),
        (
            400,
            json!({ "message": "the input length exceeds the context length" }),
        ),
        (
            400,
            json!({ "message": "Input is too long for requested model." }),
        ),
    ] {
        let body = json!({ "error": error });
        gateway.upstream.answer_json(status, &body);
        for stream in [false, true] {
            let sent = hello_with(MODEL, json!({ "stream": stream }));
            let answer = gateway.chat(&sent).await;
            answer.assert_error(
                400,
                "invalid_request_error",
                Some("context_length_exceeded"),
                Some("messages"),
            );
            assert_eq!(answer.headers["x-should-retry"], "false");
            let shown = answer.error()["message"].as_str().unwrap();
            assert!(shown.contains("maximum context length"), "{error}: {shown}");
            assert!(!shown.contains(UPSTREAM_MODEL), "{shown}");
        }
    }
    // In a response with status 200, or at the beginning of a stream.
    let coded =
        json!({ "error": { "message": "x", "type": "t", "code": "context_length_exceeded" } });
    gateway.upstream.answer_json(200, &coded);
    let whole = gateway.chat(&hello(MODEL)).await;
    gateway
        .upstream
        .answer_stream(&format!("data: {coded}\n\n"));
    let streamed = gateway
        .chat(&hello_with(MODEL, json!({ "stream": true })))
        .await;
    for answer in [whole, streamed] {
        let code = Some("context_length_exceeded");
        answer.assert_error(400, "invalid_request_error", code, Some("messages"));
        let shown = answer.error()["message"].as_str().unwrap();
        assert!(shown.contains("maximum context length"), "{shown}");
    }
    // Another status class says nothing about the request.
    gateway.upstream.answer_json(500, &coded);
    let answer = gateway.chat(&hello(MODEL)).await;
    assert_upstream_failed(&gateway, &answer, Some("500"));
}

#[tokio::test]
async fn a_success_that_cannot_be_used_is_a_failure() {
    let gateway = TestGateway::start().await;
    let good = completion("Hello").to_string();
    let json_type = "application/json";
    for (content_type, body) in [
        (json_type, String::new()),
        (json_type, "null".to_owned()),
        (json_type, "{}".to_owned()),
        (json_type, "[]".to_owned()),
        (json_type, good[..good.len() - 2].to_owned()),
        (json_type, format!("{good}{good}")),
        (json_type, "<html>Bad gateway</html>".to_owned()),
        ("text/html", "<html>Bad gateway</html>".to_owned()),
        ("text/html; charset=utf-8", good.clone()),
        ("text/event-stream", format!("data: {good}\n\n")),
        (json_type, json!({ "choices": [] }).to_string()),
        (
            json_type,
            json!({ "error": { "message": UPSTREAM_MODEL } }).to_string(),
        ),
        (
            json_type,
            good.replace("\"content\":\"Hello\"", "\"content\":\"\\ud83d\""),
        ),
        (
            json_type,
            good.replace("\"content\":\"Hello\"", "\"content\":5"),
        ),
        (json_type, good.replace("\"message\"", "\"msg\"")),
    ] {
        gateway.upstream.answer(200, content_type, &body);
        let answer = gateway.chat(&hello(MODEL)).await;
        assert_upstream_failed(&gateway, &answer, None);
    }
    // Some servers label their JSON as text.
    gateway.upstream.answer(200, "text/plain", &good);
    gateway.chat(&hello(MODEL)).await.assert_ok();
}

/// The response is delivered without usage and costs nothing, as with streams; its reservation stays in the window.
#[tokio::test]
async fn an_answer_without_its_usage_is_delivered_and_free() {
    let gateway = TestGateway::start().await;
    let customer = gateway.customer().await;
    let mut calls = 0;
    for usage in [
        Value::Null,
        json!({}),
        json!({ "total_tokens": 14 }),
        json!({ "prompt_tokens": 11 }),
        json!({ "completion_tokens": 3 }),
        json!({ "prompt_tokens": -1, "completion_tokens": 3 }),
        json!({ "prompt_tokens": "11", "completion_tokens": 3 }),
        json!({ "prompt_tokens": 11, "completion_tokens": 3,
            "prompt_tokens_details": { "cached_tokens": 12 } }),
    ] {
        let mut upstream = completion("Hello");
        upstream["usage"] = usage.clone();
        gateway.upstream.answer_json(200, &upstream);
        let answer = gateway
            .chat_as(&customer.key, &hello(ledger_view::MODEL))
            .await;
        let body = answer.assert_ok();
        assert_eq!(body["choices"][0]["message"]["content"], "Hello", "{usage}");
        assert_eq!(body.get("usage"), None, "{usage}");
        let id = answer.headers["x-request-id"].to_str().unwrap().to_owned();
        let details = gateway.details(&id).await;
        assert_eq!(details["outcome"], "no_usage", "{usage}");
        assert_eq!(details["settlement"]["charge"], "0.000000", "{usage}");
        let sent = json!({ "model": ledger_view::MODEL, "input": "Hi", "store": false });
        let response = gateway.respond_as(&customer.key, &sent).await;
        assert_eq!(response.assert_ok()["usage"], Value::Null, "{usage}");
        calls += 2;
    }
    customer.ledger_view().await.assert_uncounted(calls);
}

#[tokio::test]
async fn compressed_answers_are_neither_requested_nor_decoded() {
    let gateway = TestGateway::start().await;
    for encoding in ["gzip", "br", "zstd"] {
        let head = format!("HTTP/1.1 200 OK\r\ncontent-encoding: {encoding}\r\ncontent-type: ");
        let plain = response(200, "application/json", &completion("Hello").to_string());
        let plain = String::from_utf8(plain).unwrap();
        let encoded = plain.replace("HTTP/1.1 200 X\r\ncontent-type: ", &head);
        assert!(encoded.contains(encoding));
        gateway
            .upstream
            .play(vec![Step::Send(encoded.into_bytes())]);
        let answer = gateway.chat(&hello(MODEL)).await;
        assert_upstream_failed(&gateway, &answer, None);
    }
    for received in gateway.upstream.received() {
        let accepted = received.header("accept-encoding").unwrap_or("identity");
        assert_eq!(accepted, "identity");
    }
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let gateway = TestGateway::start().await;
    let elsewhere = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let location = elsewhere.local_addr().unwrap();
    for status in [301, 302, 303, 307, 308] {
        let redirect = format!(
            "HTTP/1.1 {status} X\r\nlocation: http://{location}/v1/chat/completions\r\ncontent-length: 0\r\n\r\n"
        );
        gateway
            .upstream
            .play(vec![Step::Send(redirect.into_bytes())]);
        let answer = gateway.chat(&hello(MODEL)).await;
        assert_upstream_failed(&gateway, &answer, Some(&status.to_string()));
    }
    let waiting = tokio::time::timeout(Duration::ZERO, elsewhere.accept()).await;
    assert!(waiting.is_err(), "no connection was made");
}

#[tokio::test]
async fn a_connection_that_ends_early_is_a_failure_without_a_code() {
    let gateway = TestGateway::start().await;
    let whole = response(200, "application/json", &completion("Hello").to_string());
    for sent in [0, 5, 40, whole.len() / 2, whole.len() - 1] {
        for end in [Step::Close, Step::Reset] {
            let steps = vec![Step::Send(whole[..sent].to_vec()), end];
            gateway.upstream.play(steps);
            let answer = gateway.chat(&hello(MODEL)).await;
            assert_upstream_failed(&gateway, &answer, None);
        }
    }
}

#[tokio::test]
async fn an_unreachable_provider_is_a_failure_without_a_code() {
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let nobody = free.local_addr().unwrap();
    drop(free);
    let gateway = TestGateway::start_with(&format!(
        r#"
        [providers.gone]
        kind = "openai"
        base_url = "http://{nobody}/v1"
        [[deployments]]
        model = "{MODEL}"
        provider = "gone"
        upstream_model = "{UPSTREAM_MODEL}"
        "#
    ))
    .await;
    let answer = gateway.chat(&hello(MODEL)).await;
    assert_upstream_failed(&gateway, &answer, None);
    assert!(!answer.body.to_string().contains(&nobody.port().to_string()));
    let other = gateway.chat(&hello("svc-native-light")).await;
    other.assert_ok();
}

#[tokio::test]
async fn a_silent_provider_is_a_failure_without_a_code() {
    let gateway = TestGateway::start().await;
    let silence = Step::Pause(Duration::from_secs(30));
    gateway.upstream.play(vec![silence.clone()]);
    let answer = gateway.chat(&hello(MODEL)).await;
    assert_upstream_failed(&gateway, &answer, None);
    // In the middle of a response, too.
    let whole = response(200, "application/json", &completion("Hello").to_string());
    let half = whole[..whole.len() / 2].to_vec();
    gateway.upstream.play(vec![Step::Send(half), silence]);
    let answer = gateway.chat(&hello(MODEL)).await;
    assert_upstream_failed(&gateway, &answer, None);
}
