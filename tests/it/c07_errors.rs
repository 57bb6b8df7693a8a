//! §7 and §8.5: one envelope for every failure, one ID on every response.

use bytes::Bytes;
use futures_util::stream;
use reqwest::Method;
use serde_json::json;

use crate::support::{
    Answer, Plan, RawConnection, TestGateway,
    gateway::{OPERATOR_TOKEN, answer, hello},
    upstream::chunk,
};

const MODEL: &str = "svc-native-fast";

fn chat_head(gateway: &TestGateway, more: &str) -> String {
    format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: gateway\r\nauthorization: Bearer {}\r\n{more}\r\n",
        gateway.key
    )
}

/// A request for every kind of response.
fn requests(gateway: &TestGateway) -> Vec<(&'static str, u16, reqwest::RequestBuilder)> {
    let client = &gateway.client;
    let public = |path: &str| gateway.url(path);
    let chat = || gateway.request(Method::POST, "/v1/chat/completions");
    let operator = |path: &str| format!("http://{}{path}", gateway.operator);
    let mut streamed = hello(MODEL);
    streamed["stream"] = true.into();
    vec![
        ("a chat", 200, chat().json(&hello(MODEL))),
        ("a failed stream", 502, chat().json(&streamed)),
        ("a bad body", 400, chat().body("{")),
        ("an unknown model", 404, chat().json(&hello("nope"))),
        ("no key", 401, client.post(public("/v1/chat/completions"))),
        ("no route", 404, gateway.request(Method::POST, "/v1/files")),
        ("a list", 200, client.get(public("/v1/models"))),
        (
            "a missing model",
            404,
            client.get(public("/v1/models/nope")),
        ),
        ("the provider", 200, client.get(public("/v1/provider"))),
        ("health", 200, client.get(public("/health"))),
        ("liveness", 200, client.get(public("/health/live"))),
        ("another path", 404, client.get(public("/nowhere"))),
        (
            "an operator's list",
            200,
            client
                .get(operator("/operator/accounts"))
                .bearer_auth(OPERATOR_TOKEN),
        ),
        (
            "a stranger at the operator's",
            401,
            client.get(operator("/operator/accounts")),
        ),
        (
            "an operator's mistake",
            404,
            client
                .get(operator("/operator/accounts/nope"))
                .bearer_auth(OPERATOR_TOKEN),
        ),
    ]
}

#[tokio::test]
async fn the_callers_request_id_is_echoed_to_the_byte_on_every_answer() {
    let gateway = TestGateway::start().await;
    let long = "i".repeat(8 << 10);
    for id in [
        "my-id-1",
        "a b\tc",
        "\"quoted\" {json} <tag> %41",
        long.as_str(),
    ] {
        for (what, status, request) in requests(&gateway) {
            let reply = answer(request.header("x-request-id", id)).await;
            assert_eq!(reply.status, status, "{what}: {}", reply.body);
            let echoed: Vec<_> = reply.headers.get_all("x-request-id").iter().collect();
            assert_eq!(echoed, [id], "{what}");
        }
    }
}

#[tokio::test]
async fn an_id_that_is_not_ascii_is_echoed_as_it_came() {
    let gateway = TestGateway::start().await;
    let id = b"gr\xfc\xdf-\xf0\x9f\x98\x80-\xff";
    let mut connection = RawConnection::open(gateway.public).await;
    connection
        .send(b"GET /v1/models HTTP/1.1\r\nhost: gateway\r\nx-request-id: ")
        .await;
    connection.send(id).await;
    connection.send("\r\n\r\n").await;
    let reply = connection.answer().await;
    reply.assert_ok();
    assert_eq!(reply.headers["x-request-id"].as_bytes(), id);
}

#[tokio::test]
async fn without_an_id_every_answer_gets_a_generated_one() {
    let gateway = TestGateway::start().await;
    let mut seen = std::collections::BTreeSet::new();
    for sent in [None, Some("")] {
        for (what, status, request) in requests(&gateway) {
            let request = match sent {
                Some(empty) => request.header("x-request-id", empty),
                None => request,
            };
            let reply = answer(request).await;
            assert_eq!(reply.status, status, "{what}: {}", reply.body);
            let id = reply.headers["x-request-id"].to_str().unwrap().to_owned();
            assert!(id.starts_with("req_"), "{what}: {id}");
            if let Some(completion) = reply.body["id"].as_str() {
                assert_ne!(completion, id, "a completion's ID is another thing (§2.5)");
            }
            assert!(seen.insert(id), "{what}: an ID comes once");
        }
    }
}

#[tokio::test]
async fn an_opened_stream_carries_the_id_too() {
    let gateway = TestGateway::start().await;
    gateway.upstream.answer_chunks(&[
        chunk(json!({ "content": "Hi" }), None),
        chunk(json!({}), Some("stop")),
    ]);
    let mut body = hello(MODEL);
    body["stream"] = true.into();
    let request = gateway
        .request(Method::POST, "/v1/chat/completions")
        .json(&body);
    let stream = request.header("x-request-id", "mine").send().await.unwrap();
    assert_eq!(
        (stream.status().as_u16(), &stream.headers()["x-request-id"]),
        (200, &"mine".parse().unwrap())
    );
    assert!(stream.text().await.unwrap().ends_with("data: [DONE]\n\n"));
}

/// Always the four keys, always JSON, and rate-limit headers only where they belong (§8.5).
#[tokio::test]
async fn every_failure_has_the_same_envelope() {
    let gateway = TestGateway::start().await;
    for (what, status, request) in requests(&gateway) {
        let reply = answer(request).await;
        assert_eq!(reply.headers["content-type"], "application/json", "{what}");
        for name in reply.headers.keys() {
            assert!(!name.as_str().starts_with("x-ratelimit"), "{what}: {name}");
        }
        if status < 400 {
            assert_eq!(reply.body.get("error"), None, "{what}");
            continue;
        }
        let error = reply.error();
        assert_eq!(reply.body.as_object().unwrap().len(), 1, "{what}");
        assert!(error["type"].is_string(), "{what}");
        for key in ["code", "param"] {
            assert!(
                error[key].is_string() || error[key].is_null(),
                "{what}: {key}"
            );
        }
        assert_ne!(error["message"], "", "{what}");
    }
}

/// A body over the limit, declared by Content-Length or found while reading.
#[tokio::test]
async fn a_body_over_the_limit_is_413_announced_or_not() {
    let gateway = TestGateway::start_set(&[("SERVER__MAX_BODY_BYTES", "4096")]).await;
    let body_of = |bytes: usize| {
        let empty = hello(MODEL).to_string().len();
        let mut body = hello(MODEL);
        body["user"] = json!("");
        let padding = bytes - (body.to_string().len());
        body["user"] = json!("x".repeat(padding));
        let text = body.to_string();
        assert!(text.len() == bytes && empty < bytes);
        text
    };
    let chunked = |body: String| {
        let pieces: Vec<_> = body
            .as_bytes()
            .chunks(500)
            .map(Bytes::copy_from_slice)
            .collect();
        let pieces = pieces.into_iter().map(Ok::<_, std::io::Error>);
        reqwest::Body::wrap_stream(stream::iter(pieces))
    };
    gateway.chat_text(body_of(4096)).await.assert_ok();
    gateway.chat_text(chunked(body_of(4096))).await.assert_ok();
    let over = |answer: &Answer| {
        answer.assert_error(413, "invalid_request_error", None, None);
        assert!(answer.error()["message"].as_str().unwrap().contains("4096"));
    };
    over(&gateway.chat_text(body_of(4097)).await);
    over(&gateway.chat_text(chunked(body_of(4097))).await);
    over(&gateway.chat_text(chunked(body_of(1 << 20))).await);
    assert_eq!(gateway.upstream.calls(), 2);
}

#[tokio::test]
async fn an_announced_body_over_the_limit_is_refused_before_it_is_sent() {
    let gateway = TestGateway::start().await;
    let mut connection = RawConnection::open(gateway.public).await;
    let head = chat_head(&gateway, "content-length: 1000000000\r\n");
    connection.send(head).await;
    let refused = connection.answer().await;
    refused.assert_error(413, "invalid_request_error", None, None);
}

#[tokio::test]
async fn headers_over_64_kib_are_431_and_those_below_are_served() {
    let gateway = TestGateway::start().await;
    for (bytes, status) in [(60 << 10, 200), (70 << 10, 431), (300 << 10, 431)] {
        let mut connection = RawConnection::open(gateway.public).await;
        let line = format!("x-padding: {}\r\n", "p".repeat((8 << 10) - 20));
        let padding = line.repeat(bytes / (8 << 10));
        let body = hello(MODEL).to_string();
        let length = format!(
            "content-length: {}\r\nx-request-id: mine\r\n{padding}",
            body.len()
        );
        connection.send(chat_head(&gateway, &length)).await;
        connection.send(body).await;
        let reply = connection.answer().await;
        assert_eq!(reply.status, status, "{bytes}: {}", reply.body);
        assert_eq!(reply.headers["x-request-id"], "mine");
        if status == 431 {
            reply.assert_error(431, "invalid_request_error", None, None);
        }
    }
}

#[tokio::test]
async fn a_closed_account_is_402_no_account_until_it_is_opened_again() {
    let gateway =
        TestGateway::start_set(&[("SERVER__PUBLIC_URL", "https://llm.example.com")]).await;
    let (account_id, key) = gateway.account(Plan::MAX).await;
    let path = format!("/operator/accounts/{account_id}");
    for _ in 0..10 {
        gateway.chat_as(&key, &hello(MODEL)).await.assert_ok();
        let close = Some(json!({ "closed": true }));
        assert_eq!(
            gateway
                .operate(Method::PATCH, &path, close)
                .await
                .assert_ok()["closed"],
            true
        );
        let calls = gateway.upstream.calls();
        let refused = gateway.chat_as(&key, &hello(MODEL)).await;
        refused.assert_error(402, "no_account", Some("payment_required"), None);
        let error = refused.error();
        let balance = error["balance"]
            .as_str()
            .expect("money is a decimal string");
        assert!(
            balance.parse::<f64>().is_ok() && balance.contains('.'),
            "{balance}"
        );
        assert_eq!(
            error["billing_url"],
            "https://llm.example.com/portal/billing"
        );
        assert_eq!(gateway.upstream.calls(), calls);
        let reopen = Some(json!({ "closed": false }));
        gateway
            .operate(Method::PATCH, &path, reopen)
            .await
            .assert_ok();
    }
    gateway.chat_as(&key, &hello(MODEL)).await.assert_ok();
}

/// Pipelined requests of several kinds in one write get their responses in order.
#[tokio::test]
async fn pipelined_requests_are_answered_in_order() {
    let gateway = TestGateway::start().await;
    let mut written = String::new();
    let mut expected = Vec::new();
    for round in 0..10 {
        let body = hello(MODEL).to_string();
        let mut ask = |name: &str, status: u16, request: &dyn Fn(&str) -> String| {
            let id = format!("{name}-{round}");
            written.push_str(&request(&format!("x-request-id: {id}\r\n")));
            expected.push((id, status));
        };
        ask("chat", 200, &|id| {
            let length = format!("content-length: {}\r\n{id}", body.len());
            format!("{}{body}", chat_head(&gateway, &length))
        });
        let get =
            |path: &str, id: &str| format!("GET {path} HTTP/1.1\r\nhost: gateway\r\n{id}\r\n");
        ask("live", 200, &|id| get("/health/live", id));
        ask("none", 404, &|id| get("/v1/models/nope", id));
        ask("nokey", 401, &|id| {
            format!(
                "POST /v1/files HTTP/1.1\r\nhost: gateway\r\n{id}content-length: 5\r\n\r\nunrea"
            )
        });
    }
    let mut connection = RawConnection::open(gateway.public).await;
    connection.send(written).await;
    for (id, status) in expected {
        let reply = connection.answer().await;
        let found = (
            reply.headers["x-request-id"].to_str().unwrap(),
            reply.status,
        );
        assert_eq!(found, (id.as_str(), status), "{}", reply.body);
    }
}
