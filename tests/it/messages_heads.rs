//! §4.9, §7: heads that cannot be read, in the envelope of the API that they were sent to.

use serde_json::json;

use crate::support::{
    Answer, RawConnection, TestGateway,
    gateway::answer,
    messages::{COUNT, PATH, writing},
    raw::message_request,
};

/// A path of both APIs, for which the header decides.
const MODELS: &str =
    "GET /v1/models HTTP/1.1\r\nhost: gateway\r\nanthropic-version: 2023-06-01\r\n";

/// The response to these bytes, after which the connection is closed.
async fn refused(gateway: &TestGateway, bytes: &str) -> Answer {
    let mut connection = RawConnection::open(gateway.public).await;
    connection.send(bytes).await;
    let answer = connection.answer().await;
    assert_eq!(answer.headers["connection"], "close");
    assert_eq!(connection.rest().await, b"");
    answer
}

#[tokio::test]
async fn a_head_that_is_too_large_is_told_in_this_envelope() {
    let gateway = TestGateway::start().await;
    let many = "a: b\r\n".repeat(101);
    let padded = format!("x: {}\r\n", "x".repeat(70 << 10));
    for headers in [many, padded] {
        let headers = format!("x-request-id: mine\r\n{headers}");
        for path in [PATH, COUNT, "/v1/messages?beta=true"] {
            let request = message_request(path, &gateway.key, &headers, &writing(json!({})));
            let answer = refused(&gateway, &request).await;
            answer.assert_message_error(431, "invalid_request_error", None, None);
            assert_eq!(answer.body["request_id"], "mine");
        }
        let answer = refused(&gateway, &format!("{MODELS}{headers}\r\n")).await;
        answer.assert_message_error(431, "invalid_request_error", None, None);
    }
}

#[tokio::test]
async fn a_head_that_is_too_slow_is_told_in_this_envelope() {
    let gateway = TestGateway::start_set(&[("SERVER__HEAD_SECONDS", "1")]).await;
    for head in [
        format!("POST {PATH} HTTP/1.1\r\nhost: gateway\r\n"),
        MODELS.to_owned(),
    ] {
        let answer = refused(&gateway, &head).await;
        answer.assert_message_error(408, "timeout_error", None, None);
    }
}

#[tokio::test]
async fn a_head_that_is_ambiguous_is_told_in_this_envelope() {
    let gateway = TestGateway::start().await;
    let twice = message_request(PATH, &gateway.key, "content-length: 0\r\n", &json!({}));
    let answer = refused(&gateway, &twice).await;
    answer.assert_message_error(400, "invalid_request_error", None, None);
    // A path of OpenAI's API, and one that cannot be seen, have OpenAI's envelope.
    let twice = twice.replace(PATH, "/v1/chat/completions");
    let answer = refused(&gateway, &twice).await;
    answer.assert_error(400, "invalid_request_error", None, None);
    let answer = refused(&gateway, "{}\n").await;
    answer.assert_error(400, "invalid_request_error", None, None);
}

#[tokio::test]
async fn over_http_2_a_large_head_is_told_in_this_envelope_too() {
    let gateway = TestGateway::start().await;
    let client = reqwest::Client::builder().no_proxy();
    let client = client.http2_prior_knowledge().build().unwrap();
    for path in [PATH, COUNT] {
        let mut request = client.post(gateway.url(path)).json(&writing(json!({})));
        for _ in 0..9 {
            request = request.header("x-padding", "p".repeat((8 << 10) - 20));
        }
        let answer = answer(request.header("x-api-key", &gateway.key)).await;
        answer.assert_message_error(431, "invalid_request_error", None, None);
    }
}
