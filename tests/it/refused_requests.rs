//! Refused requests are kept with what was wrong, and their errors name the page that shows it.

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{
    Answer, RawConnection, Step, TestGateway,
    bodies::hello_with,
    gateway::{answer, hello, until},
    messages::{self, writing},
    portal::Browser,
    refused::{page_of, request_id, stored},
    responses::asking,
    upstream::{chunk, events, stream_head},
};

const MODEL: &str = "svc-native-fast";
const CHAT: &str = "/v1/chat/completions";
/// An account has memory for one large body at a time.
const LITTLE_MEMORY: [(&str, &str); 3] = [
    ("SERVER__MAX_BODY_BYTES", "2097152"),
    ("SERVER__BODY_MEMORY_BYTES", "25165824"),
    ("SERVER__BODY_MEMORY_SHARE_PERCENT", "25"),
];

struct Customer {
    gateway: TestGateway,
    browser: Browser,
}

impl Customer {
    async fn new(settings: &[(&str, &str)]) -> Self {
        let gateway = TestGateway::start_set(settings).await;
        let browser = Browser::signed_in(&gateway).await;
        Self { gateway, browser }
    }

    /// Creates a key with these terms and returns its ID and secret.
    async fn key(&self, terms: Value) -> (String, String) {
        let mut body = json!({ "name": "laptop" });
        let Value::Object(terms) = terms else {
            panic!("terms are an object");
        };
        body.as_object_mut().unwrap().extend(terms);
        let path = format!("/operator/accounts/{}/keys", self.browser.account_id);
        let made = self.operate(Method::POST, &path, body).await;
        let text = |field: &str| made[field].as_str().unwrap().to_owned();
        (text("id"), text("key"))
    }

    async fn operate(&self, method: Method, path: &str, body: Value) -> Value {
        let answer = self.gateway.operate(method, path, Some(body)).await;
        answer.assert_ok().clone()
    }

    async fn send(&self, key: &str, path: &str, body: &Value) -> Answer {
        let request = self.gateway.client.post(self.gateway.url(path));
        answer(request.bearer_auth(key).json(body)).await
    }

    /// The page of a refused request; asserts what is on every one.
    async fn page(&self, path: &str, refused: &Answer) -> String {
        let page = self.browser.get(path).await;
        let text = page.assert_page();
        for told in [
            request_id(refused),
            "What to do",
            "Nothing was charged",
            "How often",
        ] {
            assert!(text.contains(told), "{told}: {text}");
        }
        page.text
    }
}

/// A request that takes memory, because the rest of its large body does not come.
async fn half_sent(gateway: &TestGateway, key: &str) -> RawConnection {
    let mut connection = RawConnection::open(gateway.public).await;
    let head = format!(
        "POST {CHAT} HTTP/1.1\r\nhost: gateway\r\nauthorization: Bearer {key}\r\ncontent-length: 2000000\r\n\r\n"
    );
    connection.send(head).await;
    connection.send("x".repeat(1_500_000)).await;
    let reserved = || gateway.inside().body_memory.reserved();
    until("its memory is reserved", || reserved() > 4_000_000).await;
    connection
}

#[tokio::test]
async fn every_refusal_is_kept_with_its_code_and_message() {
    let customer = Customer::new(&LITTLE_MEMORY).await;
    let (_, plain) = customer.key(json!({})).await;
    let (_, one_model) = customer.key(json!({ "models": ["svc-pro"] })).await;
    let (_, slow) = customer.key(json!({ "rpm": 1 })).await;
    let (poor_id, poor) = customer.key(json!({})).await;
    let budget = json!({
        "account": customer.browser.account_id, "scope": "key", "id": poor_id, "amount": "0.000001",
        "period": "day", "hard": true,
    });
    customer
        .operate(Method::PUT, "/operator/budgets", budget)
        .await;
    customer.send(&slow, CHAT, &hello(MODEL)).await.assert_ok();
    let wrong = hello_with(MODEL, json!({ "temperature": 99 }));
    let _half_sent = half_sent(&customer.gateway, &plain).await;
    let large = hello_with(MODEL, json!({ "padding": "x".repeat(1_500_000) }));

    for (status, code, told, key, path, body) in [
        (
            400,
            "invalid_request_error",
            "temperature",
            &plain,
            CHAT,
            &wrong,
        ),
        (
            402,
            "budget_exceeded",
            "Open Budgets",
            &poor,
            CHAT,
            &hello(MODEL),
        ),
        (
            403,
            "model_not_allowed",
            "Open the key",
            &one_model,
            CHAT,
            &hello(MODEL),
        ),
        (
            404,
            "model_not_found",
            "no-such-model",
            &plain,
            CHAT,
            &hello("no-such-model"),
        ),
        (
            404,
            "route_not_found",
            "/v1/embeddings",
            &plain,
            "/v1/embeddings",
            &json!({}),
        ),
        (
            404,
            "previous_response_not_found",
            "Response not found",
            &plain,
            "/v1/responses",
            &asking(json!({ "previous_response_id": "resp_0" })),
        ),
        (
            429,
            "rpm_exceeded",
            "Open Plan and limits",
            &slow,
            CHAT,
            &hello(MODEL),
        ),
        (
            503,
            "body_memory_exhausted",
            "Temporarily unavailable",
            &plain,
            CHAT,
            &large,
        ),
    ] {
        let refused = customer.send(key, path, body).await;
        assert_eq!(refused.status, status, "{code}: {}", refused.body);
        let error = refused.error();
        let page = customer
            .page(&page_of(&customer.gateway, error), &refused)
            .await;
        let status = format!("<dd>{status}</dd>");
        let shown_code = format!("<code>{code}</code>");
        for told in [told, &*status, &*shown_code] {
            assert!(page.contains(told), "{told}: {page}");
        }
        // The message as it was sent, escaped.
        let message = error["message"].as_str().unwrap();
        let start = message.split(['`', '"', '&', '<']).next().unwrap();
        assert!(page.contains(start), "{message}: {page}");
    }
    let list = customer.browser.get("/portal/requests/refused").await;
    assert_eq!(
        list.assert_page()
            .matches("href=\"/portal/requests/refused_")
            .count(),
        8
    );
    assert_eq!(stored(customer.gateway.data.path()).await, (8, 8));
}

#[tokio::test]
async fn the_account_sees_requests_with_its_former_keys() {
    let customer = Customer::new(&[]).await;
    let mut ids = Vec::new();
    for state in ["disable", "delete", "expire", "rotate"] {
        let (id, key) = customer.key(json!({})).await;
        match state {
            "expire" => {
                let path = format!("/operator/keys/{id}");
                let expiry = json!({ "expires_at": "2020-01-01T00:00:00Z" });
                customer.operate(Method::PATCH, &path, expiry).await;
            }
            "delete" => {
                let path = format!("/operator/keys/{id}");
                let deleted = customer.gateway.operate(Method::DELETE, &path, None).await;
                assert_eq!(deleted.status, 200, "{}", deleted.body);
            }
            "rotate" => {
                let path = format!("/operator/keys/{id}/rotate");
                customer
                    .operate(Method::POST, &path, json!({ "grace_seconds": 0 }))
                    .await;
            }
            verb => {
                let path = format!("/operator/keys/{id}/{verb}");
                customer.operate(Method::POST, &path, json!({})).await;
            }
        }
        let refused = customer.send(&key, CHAT, &hello(MODEL)).await;
        refused.assert_error(401, "authentication_error", Some("invalid_api_key"), None);
        // It has a page as with any key, and does not say whether this one was ever valid.
        let path = page_of(&customer.gateway, refused.error());
        assert_eq!(path, format!("/portal/requests/{}", request_id(&refused)));
        if state == "rotate" {
            continue; // nothing is known of a secret that was replaced without a grace
        }
        let page = customer.page(&path, &refused).await;
        assert!(
            page.contains("Invalid API key") && page.contains("laptop"),
            "{state}: {page}"
        );
        ids.push(request_id(&refused).to_owned());
    }
    // Other endpoints, and the header of the Messages API.
    let (id, key) = customer.key(json!({})).await;
    let path = format!("/operator/keys/{id}/disable");
    customer.operate(Method::POST, &path, json!({})).await;
    let client = &customer.gateway.client;
    let url = |path: &str| customer.gateway.url(path);
    for request in [
        client.get(url("/v1/key")).bearer_auth(&key),
        client.post(url("/v1/nope")).bearer_auth(&key),
        client
            .post(url(messages::PATH))
            .header("x-api-key", &key)
            .json(&writing(json!({}))),
    ] {
        let refused = answer(request).await;
        assert_eq!(refused.status, 401);
        customer
            .page(
                &format!("/portal/requests/{}", request_id(&refused)),
                &refused,
            )
            .await;
    }
    // A key of nobody is in no list.
    let unknown = format!("sk-svc-{}", "0".repeat(48));
    let refused = customer.send(&unknown, CHAT, &hello(MODEL)).await;
    assert_eq!(refused.status, 401);
    let path = page_of(&customer.gateway, refused.error());
    let page = customer.browser.get(&path).await;
    assert_eq!(page.status, 404);
    for told in [
        "The last 1,000 refused requests of an account are kept",
        "at most 30 days",
        "Request ID or call ID",
    ] {
        assert!(page.text.contains(told), "{told}: {}", page.text);
    }
    assert_eq!(stored(customer.gateway.data.path()).await, (6, 6));
}

#[tokio::test]
async fn every_form_of_an_error_names_the_page_of_the_request() {
    let customer = Customer::new(&[]).await;
    let (_, key) = customer.key(json!({})).await;
    let wrong = hello_with(MODEL, json!({ "temperature": 99 }));
    let chat = customer.send(&key, CHAT, &wrong).await;
    let response = customer
        .send(&key, "/v1/responses", &asking(json!({ "model": "nope" })))
        .await;
    let message = customer
        .send(&key, messages::PATH, &writing(json!({ "model": "nope" })))
        .await;
    let count = customer
        .send(&key, messages::COUNT, &writing(json!({ "model": "nope" })))
        .await;
    for refused in [&chat, &response, &message, &count] {
        let path = page_of(&customer.gateway, &refused.body["error"]);
        assert_eq!(path, format!("/portal/requests/{}", request_id(refused)));
        customer.page(&path, refused).await;
    }
    assert_eq!(message.message_error()["details"].get("request_url"), None);

    // A call that fails is not among the refused ones; its error leads to the call.
    customer.gateway.upstream.answer(529, "text/plain", "busy");
    let failed = customer.send(&key, CHAT, &hello(MODEL)).await;
    assert_eq!(failed.status, 502);
    customer.gateway.idle().await;
    let path = page_of(&customer.gateway, failed.error());
    let page = customer.browser.get(&path).await;
    assert!(
        page.assert_page().contains("The model could not answer"),
        "{}",
        page.text
    );
    assert_eq!(stored(customer.gateway.data.path()).await, (4, 4));

    // So do errors without a key, of paths outside of the API, and of heads that are refused.
    let client = &customer.gateway.client;
    let url = |path: &str| customer.gateway.url(path);
    let many = (0..=100).fold(client.get(url(CHAT)), |many, _| many.header("a", "b"));
    for request in [
        client.post(url(CHAT)).json(&hello(MODEL)),
        client.get(url("/nowhere")),
        many,
    ] {
        let nobody = answer(request).await;
        let path = page_of(&customer.gateway, nobody.error());
        assert_eq!(path, format!("/portal/requests/{}", request_id(&nobody)));
    }
    assert_eq!(stored(customer.gateway.data.path()).await, (4, 4));
}

/// The error events of a stream that breaks off in the middle.
async fn broken_stream(customer: &Customer, key: &str, path: &str, body: &Value) -> Vec<Value> {
    let head = String::from_utf8(stream_head()).unwrap();
    let begun = events(&[chunk(json!({ "content": "Hal" }), None)]);
    let begun = begun.strip_suffix("data: [DONE]\n\n").unwrap_or(&begun);
    let cut = Step::Send(format!("{head}{begun}").into_bytes());
    customer.gateway.upstream.play(vec![cut, Step::Reset]);
    let request = customer.gateway.client.post(customer.gateway.url(path));
    let request = request
        .bearer_auth(key)
        .header("x-request-id", format!("cut {path}"));
    let response = request.json(body).send().await.unwrap();
    assert_eq!(response.status(), 200);
    let text = response.text().await.unwrap();
    let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
    let events = data.map(|data| serde_json::from_str::<Value>(data).unwrap());
    events
        .filter(|event| event.to_string().contains("request_url"))
        .collect()
}

#[tokio::test]
async fn error_events_of_streams_name_the_page_of_the_call() {
    let customer = Customer::new(&[]).await;
    let (_, key) = customer.key(json!({})).await;
    for (path, body, count) in [
        (CHAT, hello_with(MODEL, json!({ "stream": true })), 1),
        ("/v1/responses", asking(json!({ "stream": true })), 2),
        (messages::PATH, writing(json!({ "stream": true })), 1),
    ] {
        let events = broken_stream(&customer, &key, path, &body).await;
        assert_eq!(events.len(), count, "{path}: {events:?}");
        customer.gateway.idle().await;
        for event in &events {
            let error = event.get("error").unwrap_or(&event["response"]["error"]);
            let page = customer
                .browser
                .get(&page_of(&customer.gateway, error))
                .await;
            assert!(
                page.assert_page().contains(&format!("cut {path}")),
                "{}",
                page.text
            );
            assert!(page.text.contains("broke off"), "{}", page.text);
        }
    }
}

#[tokio::test]
async fn what_was_refused_last_is_written_when_the_gateway_stops() {
    let gateway = TestGateway::start().await;
    let refused = gateway.chat(&hello("no-such-model")).await;
    assert_eq!(refused.status, 404);
    let data = gateway.stop().await;
    assert_eq!(stored(data.path()).await, (1, 1));
}
