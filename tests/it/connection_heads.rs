//! Ambiguous requests, which two servers could read differently: refused with an error envelope, and the connection
//! is closed.

use std::{fmt::Write as _, time::Duration};

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::support::{
    Answer, RawConnection, TestGateway,
    gateway::{answer, hello},
    tls::{self, Certificate},
};

const MODEL: &str = "svc-native-fast";
const GOOD: &str = "GET /health/live HTTP/1.1\r\nhost: gateway\r\n\r\n";

/// A chat request with these headers and this body.
fn chat(gateway: &TestGateway, headers: &str, body: &str) -> String {
    format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: gateway\r\nauthorization: Bearer {}\r\n\
         x-request-id: mine\r\n{headers}\r\n{body}",
        gateway.key
    )
}

/// Sends these bytes after a valid request: both get a response, and then the connection closes.
async fn last_answer(gateway: &TestGateway, bytes: &str) -> Answer {
    let mut connection = RawConnection::open(gateway.public).await;
    connection.send(format!("{GOOD}{bytes}")).await;
    connection.answer().await.assert_ok();
    let answer = connection.answer().await;
    let rest = connection.rest().await;
    let rest = String::from_utf8_lossy(&rest);
    assert_eq!(rest, "", "closed after {}", answer.body);
    answer
}

#[track_caller]
fn assert_refused(answer: &Answer, status: u16, what: &str) {
    assert_eq!(answer.status, status, "{what:.200}: {}", answer.body);
    answer.assert_error(status, "invalid_request_error", None, None);
    assert_eq!(answer.body.as_object().unwrap().len(), 1);
    assert_eq!(answer.headers["content-type"], "application/json");
}

#[tokio::test]
async fn an_ambiguous_request_is_400_and_the_end_of_its_connection() {
    let gateway = TestGateway::start().await;
    let body = hello(MODEL).to_string();
    let (length, smuggled) = (
        body.len(),
        "GET /v1/models HTTP/1.1\r\nhost: gateway\r\n\r\n",
    );
    let in_chunks = format!("{length:x}\r\n{body}\r\n0\r\n\r\n");
    let with = |headers: &str, body: &str| chat(&gateway, headers, body);
    for request in [
        with(
            &format!("content-length: {length}\r\ntransfer-encoding: chunked\r\n"),
            &in_chunks,
        ),
        with(
            &format!("transfer-encoding: chunked\r\ncontent-length: {length}\r\n"),
            &in_chunks,
        ),
        with(
            &format!("content-length: {length}\r\ncontent-length: {length}\r\n"),
            &body,
        ),
        with(
            &format!("content-length: {length}\r\ncontent-length: 0\r\n"),
            &body,
        ),
        with(&format!("content-length: {length}, {length}\r\n"), &body),
        with(&format!("content-length: +{length}\r\n"), &body),
        with(&format!("content-length : {length}\r\n"), &body),
        with(
            "transfer-encoding: chunked\r\ntransfer-encoding: identity\r\n",
            &in_chunks,
        ),
        with("transfer-encoding: gzip, chunked\r\n", &in_chunks),
        with("transfer-encoding : chunked\r\n", &in_chunks),
        with(
            &format!("x: a\r\n b\r\ncontent-length: {length}\r\n"),
            &body,
        ),
        with(&format!("x: a\ncontent-length: {length}\r\n"), &body),
        with(&format!("x: a\0b\r\ncontent-length: {length}\r\n"), &body),
        with(
            &format!("host: another\r\ncontent-length: {length}\r\n"),
            &body,
        ),
        with(&format!("content-length: {length}\r\n"), &body).replace("\r\n", "\n"),
        with(&format!("content-length: {length}\r\n"), &body).replace("HTTP/1.1", "HTTP/1.9"),
        with(&format!("content-length: {length}\r\n"), &body).replace("host: gateway\r\n", ""),
    ] {
        let answer = last_answer(&gateway, &format!("{request}{smuggled}")).await;
        assert_refused(&answer, 400, &request);
        assert_eq!(answer.headers["connection"], "close", "{request}");
        assert_eq!(answer.headers["x-request-id"], "mine", "{request}");
    }
    for request in [
        "G\u{7}T / HTTP/1.1\r\n\r\n",
        "GET /\r\n\r\n",
        "\u{16}\u{3}\u{1}",
        "{}\n",
    ] {
        let answer = last_answer(&gateway, request).await;
        assert_refused(&answer, 400, request);
        let id = answer.headers["x-request-id"].to_str().unwrap();
        assert!(id.starts_with("req_"), "{id}");
    }
    assert_eq!(gateway.upstream.calls(), 0);
}

#[tokio::test]
async fn too_large_heads_are_431_and_the_end_of_their_connection() {
    let gateway = TestGateway::start().await;
    let many = |count: usize| format!("x-request-id: mine\r\n{}", "a: b\r\n".repeat(count - 2));
    let padded = |bytes: usize| format!("x-request-id: mine\r\nx: {}\r\n", "x".repeat(bytes));
    let get = |path: &str, headers: &str| {
        format!("GET {path} HTTP/1.1\r\nhost: gateway\r\n{headers}\r\n")
    };
    let long_path = format!("/{}", "a".repeat(70 << 10));
    for request in [
        get("/health/live", &many(101)),
        get("/health/live", &many(5_000)),
        get("/health/live", &padded(64 << 10)),
        get("/health/live", &padded(2 << 20)),
        get(&long_path, ""),
        "A".repeat(70 << 10),
    ] {
        let answer = last_answer(&gateway, &request).await;
        assert_refused(&answer, 431, &request);
        assert_eq!(answer.headers["connection"], "close");
        if request.contains("mine") {
            assert_eq!(answer.headers["x-request-id"], "mine");
        }
    }
    // Heads just within the limits are accepted.
    let mut connection = RawConnection::open(gateway.public).await;
    let long_path = format!("/{}", "a".repeat(60 << 10));
    for (request, status) in [
        (get("/health/live", &many(100)), 200),
        (get("/health/live", &padded(60 << 10)), 200),
        (get(&long_path, ""), 404),
    ] {
        connection.send(request).await;
        assert_eq!(connection.answer().await.status, status);
    }
}

#[tokio::test]
async fn a_body_with_a_bad_chunk_is_400_and_the_end_of_its_connection() {
    let gateway = TestGateway::start().await;
    let body = hello(MODEL).to_string();
    let size = format!("{:x}", body.len());
    for chunks in [
        format!("{size}\n{body}\r\n0\r\n\r\n"),
        format!("{size} \r\n{body}\r\n0\r\n\r\n"),
        format!("0x{size}\r\n{body}\r\n0\r\n\r\n"),
        format!("-{size}\r\n{body}\r\n0\r\n\r\n"),
        format!("{size}\r\n{body}0\r\n\r\n"),
        format!("{size}\r\n{body}\n0\r\n\r\n"),
        format!("{size}\r\n{body}\r\n0\r\n\n{GOOD}"),
        format!("{size}\r\n{body}\r\n0\r\na: b\nc: d\r\n\r\n"),
        format!("{size};\0\r\n{body}\r\n0\r\n\r\n"),
        format!("10000000000000000\r\n{body}\r\n0\r\n\r\n"),
        format!("{size}\r\n{body}\r\nzero\r\n\r\n"),
    ] {
        let request = chat(&gateway, "transfer-encoding: chunked\r\n", &chunks);
        let answer = last_answer(&gateway, &format!("{request}{GOOD}")).await;
        assert_refused(&answer, 400, &chunks);
        assert_eq!(answer.headers["x-request-id"], "mine");
    }
    assert_eq!(gateway.upstream.calls(), 0);
    // The body in valid chunks, including extensions and trailers.
    let chunks = format!("{size};a=\"b\"\r\n{body}\r\n0\r\nx: y\r\n\r\n");
    let request = chat(&gateway, "transfer-encoding: chunked\r\n", &chunks);
    let mut connection = RawConnection::open(gateway.public).await;
    connection.send(format!("{request}{GOOD}")).await;
    connection.answer().await.assert_ok();
    connection.answer().await.assert_ok();
}

/// Requests that pass the gateway's parser must pass the HTTP library's as well, because that one's own error
/// responses have no body.
#[tokio::test]
async fn every_parsed_request_gets_an_answer_of_the_gateway() {
    let gateway = TestGateway::start().await;
    for line in [
        "GET http://gateway/health/live HTTP/1.1",
        "GET //health HTTP/1.1",
        "GET /%00%zz?a=b&c HTTP/1.1",
        "GET /\"{}|^`~\\ HTTP/1.1",
        "GET /a#b HTTP/1.1",
        "GET /gr\u{fc}\u{df}e HTTP/1.1",
        "OPTIONS * HTTP/1.1",
        "CONNECT gateway:80 HTTP/1.1",
        "get /health/live HTTP/1.1",
        "A!#$%&'*+-.^_`|~1 /health/live HTTP/1.1",
        "GET gateway HTTP/1.1",
        "GET : HTTP/1.1",
        "GET http:// HTTP/1.1",
        "GET ftp://a@b:99999/c HTTP/1.1",
        "REFUSED / HTTP/1.1",
        "REFUSED /host HTTP/1.1",
        "GET /health/live HTTP/1.0",
    ] {
        let mut connection = RawConnection::open(gateway.public).await;
        connection
            .send(format!(
                "{line}\r\nhost: gateway\r\nexpect: x\r\nupgrade: h2c\r\n\r\n"
            ))
            .await;
        let answer = connection.answer().await;
        assert!(
            matches!(answer.status, 200 | 400 | 404),
            "{line}: {}",
            answer.status
        );
        assert!(answer.headers.contains_key("x-request-id"), "{line}");
    }
}

/// However the bytes are split.
#[tokio::test]
async fn requests_in_pieces_are_assembled() {
    let gateway = TestGateway::start().await;
    let body = hello(MODEL).to_string();
    let length = format!("content-length: {}\r\n", body.len());
    let in_chunks = format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
    let good = [
        chat(&gateway, &length, &body),
        chat(&gateway, "transfer-encoding: chunked\r\n", &in_chunks),
        GOOD.to_owned(),
    ];
    let bad = chat(&gateway, &format!("{length}{length}"), &body);
    for size in [1, 7, 100] {
        let mut connection = RawConnection::open(gateway.public).await;
        let written = good.concat() + &bad;
        for piece in written.as_bytes().chunks(size) {
            connection.send(piece).await;
            tokio::task::yield_now().await;
        }
        for request in &good {
            let answer = connection.answer().await;
            assert_eq!(answer.status, 200, "{size}: {request}: {}", answer.body);
        }
        assert_refused(&connection.answer().await, 400, &bad);
    }
    assert_eq!(gateway.upstream.calls(), 6);
}

/// Large bodies, one after the other on the same connection.
#[tokio::test]
async fn large_uploads_arrive_whole() {
    let gateway = TestGateway::start_with_long_timeouts().await;
    let mut connection = RawConnection::open(gateway.public).await;
    for megabytes in [1, 8, 3] {
        let mut body = hello(MODEL);
        let text = "x\r\n\r\n\n ".repeat(megabytes << 17);
        body["messages"][0]["content"] = json!(text);
        let body = body.to_string();
        let length = format!("content-length: {}\r\n", body.len());
        connection.send(chat(&gateway, &length, &body)).await;
        connection.answer().await.assert_ok();
        let sent: Value = gateway.upstream.last_body();
        assert_eq!(sent["messages"][0]["content"].as_str(), Some(text.as_str()));
        let mut chunks = String::new();
        for chunk in body.as_bytes().chunks(100_000) {
            let text = std::str::from_utf8(chunk).unwrap();
            write!(chunks, "{:x}\r\n{text}\r\n", chunk.len()).unwrap();
        }
        chunks.push_str("0\r\n\r\n");
        connection
            .send(chat(&gateway, "transfer-encoding: chunked\r\n", &chunks))
            .await;
        connection.answer().await.assert_ok();
        assert_eq!(gateway.upstream.last_body(), sent);
    }
}

#[tokio::test]
async fn ambiguous_requests_are_refused_under_tls_too() {
    let (folder, certificate) = (TempDir::new().unwrap(), Certificate::generate());
    let (cert, key) = (
        folder.path().join("cert.pem"),
        folder.path().join("key.pem"),
    );
    certificate.write(&cert, &key);
    let gateway = TestGateway::start_set(&[
        ("SERVER__TLS__CERT", cert.to_str().unwrap()),
        ("SERVER__TLS__KEY", key.to_str().unwrap()),
    ])
    .await;
    let mut connection = tls::connect(gateway.public, &certificate, &["http/1.1"])
        .await
        .unwrap();
    let body = hello(MODEL).to_string();
    let length = format!("content-length: {}\r\n", body.len());
    let good = chat(&gateway, &length, &body);
    let bad = chat(&gateway, &format!("{length}{length}"), &body);
    let written = format!("{good}{bad}{GOOD}");
    connection.write_all(written.as_bytes()).await.unwrap();
    let mut answers = String::new();
    let read = connection.read_to_string(&mut answers);
    let read = tokio::time::timeout(Duration::from_secs(20), read).await;
    read.expect("closed in time").expect("with a goodbye");
    assert_eq!(answers.matches("HTTP/1.1 ").count(), 2, "{answers}");
    assert!(answers.starts_with("HTTP/1.1 200 OK"), "{answers}");
    assert!(answers.contains("HTTP/1.1 400 Bad Request"), "{answers}");
    let error =
        "\"type\":\"invalid_request_error\",\"code\":null,\"param\":null,\"request_url\":\"";
    assert!(
        answers.contains(error) && answers.ends_with("\"}}"),
        "{answers}"
    );
}

#[tokio::test]
async fn http2_has_its_own_frames_and_the_same_limits() {
    let gateway = TestGateway::start_with_long_timeouts().await;
    let client = reqwest::Client::builder().no_proxy();
    let client = client.http2_prior_knowledge().build().unwrap();
    let ask = |padding: usize, body: String| {
        let mut request = client.post(gateway.url("/v1/chat/completions"));
        for _ in 0..padding / (8 << 10) {
            request = request.header("x-padding", "p".repeat((8 << 10) - 20));
        }
        let request = request.bearer_auth(&gateway.key).body(body);
        answer(request.header("x-request-id", "mine"))
    };
    let mut large = hello(MODEL);
    large["messages"][0]["content"] = json!("x\n\n".repeat(1 << 20));
    for _ in 0..2 {
        ask(0, hello(MODEL).to_string()).await.assert_ok();
        ask(48 << 10, large.to_string()).await.assert_ok();
        for bytes in [72 << 10, 100 << 10] {
            let refused = ask(bytes, hello(MODEL).to_string()).await;
            assert_refused(&refused, 431, "HTTP/2");
            assert_eq!(refused.headers["x-request-id"], "mine");
        }
        // The HTTP/2 library refuses larger ones itself.
        let mut request = client.get(gateway.url("/health/live"));
        for _ in 0..18 {
            request = request.header("x-padding", "p".repeat(8 << 10));
        }
        let refused = request.send().await.unwrap();
        assert_eq!(refused.status(), 431);
    }
    let mut request = client.get(gateway.url("/health/live"));
    for _ in 0..=100 {
        request = request.header("a", "b");
    }
    assert_refused(&answer(request).await, 431, "101 headers");
}
