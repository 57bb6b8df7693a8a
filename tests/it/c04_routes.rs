//! §4.3, §4.7, §4.8: served routes, unserved routes, and immediate responses for both.

use std::time::Duration;

use reqwest::Method;
use serde_json::json;

use crate::support::{
    RawConnection, TestGateway,
    gateway::{answer, hello},
};

const MODEL: &str = "svc-native-fast";

const UNIMPLEMENTED: [(&str, &str); 10] = [
    ("POST", "/v1/embeddings"),
    ("POST", "/v1/images/generations"),
    ("POST", "/v1/audio/speech"),
    ("POST", "/v1/audio/transcriptions"),
    ("POST", "/v1/moderations"),
    ("POST", "/v1/files"),
    ("POST", "/v1/batches"),
    ("POST", "/v1/fine_tuning/jobs"),
    ("GET", "/v1/assistants"),
    ("POST", "/v1/completions"),
];

fn method(name: &str) -> Method {
    name.parse().unwrap()
}

#[tokio::test]
async fn an_unimplemented_route_is_not_found_whatever_is_sent_to_it() {
    let gateway = TestGateway::start().await;
    let multipart = "--x\r\ncontent-disposition: form-data; name=\"file\"; filename=\"a.bin\"\r\n\
        \r\n\0\u{1}\u{2}\r\n--x--\r\n";
    for (name, path) in UNIMPLEMENTED {
        for (content_type, body) in [
            ("application/json", r#"{"model":"svc-pro","input":"Hello"}"#),
            ("application/json", "not JSON at all"),
            ("multipart/form-data; boundary=x", multipart),
            ("application/octet-stream", "\0\u{1}"),
            ("", ""),
        ] {
            let request = gateway.request(method(name), path);
            let request = request.header("content-type", content_type).body(body);
            let refused = answer(request).await;
            refused.assert_error(404, "not_found", Some("route_not_found"), None);
            assert_eq!(refused.headers["content-type"], "application/json");
            let message = refused.error()["message"].as_str().unwrap();
            assert!(message.contains(path), "{message}");
        }
    }
    assert_eq!(gateway.upstream.calls(), 0);
}

#[tokio::test]
async fn a_wrong_method_on_a_served_path_is_not_found() {
    let gateway = TestGateway::start().await;
    for (name, path) in [
        ("GET", "/v1/chat/completions"),
        ("PUT", "/v1/chat/completions"),
        ("DELETE", "/v1/chat/completions"),
        ("OPTIONS", "/v1/chat/completions"),
        ("POST", "/v1/models"),
        ("DELETE", "/v1/models/svc-native-fast"),
        ("PATCH", "/v1/provider"),
        ("BREW", "/v1/models"),
    ] {
        let refused = answer(gateway.request(method(name), path)).await;
        refused.assert_error(404, "not_found", Some("route_not_found"), None);
        let anonymous = gateway.client.request(method(name), gateway.url(path));
        let anonymous = answer(anonymous).await;
        let code = Some("missing_api_key");
        anonymous.assert_error(401, "authentication_error", code, None);
    }
}

#[tokio::test]
async fn an_unknown_path_is_not_found() {
    let gateway = TestGateway::start().await;
    for path in [
        "/v1",
        "/v1/",
        "/v1/chat",
        "/v1/chat/completions/",
        "/v1/chat/completions/chatcmpl-1",
        "/v1//chat/completions",
        "/V1/chat/completions",
        "/v1/models/svc-native-fast/versions",
        "/v2/chat/completions",
        "/v1/chat%2Fcompletions",
        "/v1/%FF",
        "/",
        "/chat/completions",
        "/health/ready",
        "/operator/accounts",
        "/metrics",
    ] {
        for name in ["GET", "POST"] {
            let refused = answer(gateway.request(method(name), path)).await;
            let found = (refused.status, refused.error()["code"].as_str());
            assert_eq!(found, (404, Some("route_not_found")), "{name} {path}");
            assert_eq!(refused.error()["type"], "not_found", "{name} {path}");
        }
    }
}

#[tokio::test]
async fn paths_outside_the_prefix_need_no_key() {
    let gateway = TestGateway::start().await;
    for path in ["/", "/favicon.ico", "/operator/accounts"] {
        let answer = answer(gateway.client.get(gateway.url(path))).await;
        answer.assert_error(404, "not_found", Some("route_not_found"), None);
    }
    let posted = answer(gateway.client.post(gateway.url("/health"))).await;
    posted.assert_error(404, "not_found", Some("route_not_found"), None);
}

/// A client that writes its whole body before it reads must find the response, not a reset.
#[tokio::test]
async fn a_large_unread_body_gets_its_response() {
    let gateway = TestGateway::start().await;
    let body = vec![b'x'; 20 << 20];
    for (path, key, status) in [
        ("/v1/files", Some(&gateway.key), 404),
        ("/v1/files", None, 401),
        ("/v1/chat/completions", None, 401),
    ] {
        let mut connection = RawConnection::open(gateway.public).await;
        let authorization = key.map_or(String::new(), |key| {
            format!("authorization: Bearer {key}\r\n")
        });
        let length = body.len();
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: gateway\r\n{authorization}content-length: {length}\r\n\r\n"
        );
        connection.send(head).await;
        connection.send(&body).await;
        let refused = connection.answer().await;
        assert_eq!(refused.status, status, "{path}: {}", refused.body);
        refused.error();
        // The connection stays usable.
        connection
            .send("GET /health/live HTTP/1.1\r\nhost: gateway\r\n\r\n")
            .await;
        assert_eq!(connection.answer().await.assert_ok()["status"], "alive");
    }
}

/// The response does not wait for a slow body.
#[tokio::test]
async fn an_unserved_route_is_answered_before_its_body_arrives() {
    let gateway = TestGateway::start().await;
    let mut connection = RawConnection::open(gateway.public).await;
    let head = format!(
        "POST /v1/files HTTP/1.1\r\nhost: gateway\r\nauthorization: Bearer {}\r\n\
         content-length: 1000000\r\n\r\n",
        gateway.key
    );
    connection.send(head).await;
    let refused = tokio::time::timeout(Duration::from_secs(5), connection.answer()).await;
    let refused = refused.expect("before the body");
    refused.assert_error(404, "not_found", Some("route_not_found"), None);
}

#[tokio::test]
async fn health_says_ready_and_alive_to_anyone() {
    let gateway = TestGateway::start().await;
    let get = |path: &str| gateway.client.get(gateway.url(path));
    for request in [
        get("/health"),
        get("/health").bearer_auth("nonsense"),
        get("/health?x=1"),
    ] {
        let ready = answer(request).await;
        let version = env!("CARGO_PKG_VERSION");
        let expected = json!({ "status": "ready", "service": "tollgate", "version": version });
        assert_eq!(ready.assert_ok(), &expected);
        assert_eq!(ready.headers["content-type"], "application/json");
    }
    let alive = answer(get("/health/live")).await;
    assert_eq!(alive.assert_ok(), &json!({ "status": "alive" }));
}

#[tokio::test]
async fn chat_reads_its_body_whatever_the_content_type_says() {
    let gateway = TestGateway::start().await;
    for content_type in [
        None,
        Some("application/json"),
        Some("application/json; charset=utf-8"),
        Some("application/x-www-form-urlencoded"),
        Some("text/plain"),
        Some("multipart/form-data; boundary=x"),
        Some("nonsense"),
        Some(""),
    ] {
        let mut request = gateway
            .request(Method::POST, "/v1/chat/completions")
            .body(hello(MODEL).to_string());
        if let Some(content_type) = content_type {
            request = request.header("content-type", content_type);
        }
        let reply = answer(request).await;
        assert_eq!(reply.assert_ok()["model"], MODEL, "{content_type:?}");
        assert_eq!(reply.headers["content-type"], "application/json");
    }
}

/// Clients send `Accept: application/json` even for streams; there is no content negotiation.
#[tokio::test]
async fn the_accept_header_is_ignored() {
    let gateway = TestGateway::start().await;
    for (name, value) in [
        ("accept", "application/json"),
        ("accept", "text/html"),
        ("accept", "image/png;q=0"),
        ("accept-encoding", "gzip, deflate, br"),
        ("openai-organization", "org-1"),
        ("openai-beta", "assistants=v2"),
        ("idempotency-key", "abc"),
        ("x-stainless-retry-count", "2"),
    ] {
        let request = gateway.request(Method::POST, "/v1/chat/completions");
        let reply = answer(request.header(name, value).json(&hello(MODEL))).await;
        reply.assert_ok();
        assert_eq!(reply.headers["content-type"], "application/json", "{name}");
        assert_eq!(reply.headers.get("content-encoding"), None, "{name}");
    }
}
