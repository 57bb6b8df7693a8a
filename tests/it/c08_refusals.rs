//! Bounds on refused requests, by account and by address.

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{
    Answer, Plan, RawConnection, TestGateway,
    gateway::{OPERATOR_TOKEN, answer, hello},
    stores,
};

const MODEL: &str = "svc-native-fast";
/// Refusals a minute. One is refilled after twelve seconds, far longer than a test takes between two requests.
const LIMIT: usize = 5;
const PER_ACCOUNT: (&str, &str) = ("LIMITS__REFUSED_PER_ACCOUNT", "5");
const PER_ADDRESS: (&str, &str) = ("LIMITS__REFUSED_PER_ADDRESS", "5");

#[track_caller]
fn assert_blocked(refused: &Answer) -> u64 {
    refused.assert_error(429, "rate_limit_exceeded", Some("refusals_exceeded"), None);
    for name in refused.headers.keys() {
        let name = name.as_str();
        assert!(!name.starts_with("x-ratelimit"), "{name}");
        assert_ne!(name, "x-should-retry");
    }
    refused.headers["retry-after"]
        .to_str()
        .unwrap()
        .parse()
        .unwrap()
}

async fn metrics(gateway: &TestGateway) -> String {
    let url = format!("http://{}/metrics", gateway.operator);
    let request = gateway.client.get(url).bearer_auth(OPERATOR_TOKEN);
    request.send().await.unwrap().text().await.unwrap()
}

/// A bare account: no credit, and the smallest plan.
async fn bare_account(gateway: &TestGateway) -> String {
    let account = json!({ "email": "a@example.com", "track": "personal", "tier": "free" });
    let path = "/operator/accounts";
    let made = gateway.operate(Method::POST, path, Some(account)).await;
    gateway
        .new_key(made.assert_ok()["id"].as_str().unwrap())
        .await
        .1
}

#[tokio::test]
async fn every_kind_of_refusal_of_an_account_is_bounded() {
    let body_limit = ("SERVER__MAX_BODY_BYTES", "2048");
    let gateway = TestGateway::start_set(&[PER_ACCOUNT, body_limit]).await;
    let chat = "/v1/chat/completions";
    let long = json!({ "model": MODEL, "messages": "x".repeat(4_000) });
    let kinds: [(u16, Method, &str, Value); 9] = [
        (400, Method::POST, chat, json!([])),
        (400, Method::POST, "/v1/responses", json!({})),
        (402, Method::POST, chat, hello(MODEL)),
        (403, Method::POST, chat, hello("svc-pro")),
        (404, Method::POST, chat, hello("nope")),
        (404, Method::POST, "/v1/nope", json!({})),
        (404, Method::GET, "/v1/responses/nope", json!({})),
        (404, Method::GET, "/v1/models/nope", json!({})),
        (413, Method::POST, chat, long),
    ];
    for (status, method, path, body) in kinds {
        let key = bare_account(&gateway).await;
        let send = async || {
            let request = gateway.client.request(method.clone(), gateway.url(path));
            answer(request.bearer_auth(&key).json(&body)).await
        };
        for _ in 0..LIMIT {
            assert_eq!(send().await.status, status, "{method} {path}");
        }
        assert_blocked(&send().await);
    }
    // Unlike those, requests that are served are not bounded.
    for _ in 0..LIMIT * 3 {
        gateway.chat(&hello(MODEL)).await.assert_ok();
    }
}

#[tokio::test]
async fn a_blocked_account_is_refused_before_its_body_is_read_and_others_are_served() {
    let gateway = TestGateway::start_set(&[PER_ACCOUNT]).await;
    let (_, other) = gateway.account(Plan::FLEX).await;
    for _ in 0..LIMIT {
        assert_eq!(gateway.chat_text("{").await.status, 400);
    }
    let wait = assert_blocked(&gateway.chat(&hello(MODEL)).await);
    // The body never comes.
    let mut connection = RawConnection::open(gateway.public).await;
    let key = &gateway.key;
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: gateway\r\nauthorization: Bearer {key}\r\n\
         content-length: 100\r\n\r\n"
    );
    connection.send(head).await;
    assert_blocked(&connection.answer().await);
    // Blocked requests do not prolong the block.
    for _ in 0..LIMIT * 4 {
        assert!(assert_blocked(&gateway.chat_text("{").await) <= wait);
    }
    assert_blocked(&gateway.get("/v1/responses/resp_1").await);
    gateway.chat_as(&other, &hello(MODEL)).await.assert_ok();
    gateway.get("/v1/models").await.assert_ok();
    let metrics = metrics(&gateway).await;
    for line in [
        "tollgate_blocked_clients{by=\"account\"} 1",
        "tollgate_blocked_clients{by=\"address\"} 0",
        "tollgate_refusals_total{code=\"refusals_exceeded\"} 23",
    ] {
        assert!(metrics.lines().any(|found| found == line), "{metrics}");
    }
}

#[tokio::test]
async fn a_block_ends_after_the_time_in_retry_after() {
    let gateway = TestGateway::start_set(&[("LIMITS__REFUSED_PER_ACCOUNT", "60")]).await;
    let wait = loop {
        let refused = gateway.chat_text("{").await;
        if refused.status != 400 {
            break assert_blocked(&refused);
        }
    };
    tokio::time::sleep(std::time::Duration::from_secs(wait)).await;
    gateway.chat(&hello(MODEL)).await.assert_ok();
    assert_eq!(gateway.chat_text("{").await.status, 400);
}

/// Clients are told to send these again, so they count a tenth.
#[tokio::test]
async fn refusals_by_the_window_are_bounded_too() {
    let gateway = TestGateway::start_set(&[PER_ACCOUNT]).await;
    let limit = json!({ "account": gateway.account_id, "rpm": 1 });
    let set = gateway.operate(Method::PUT, "/operator/limits", Some(limit));
    set.await.assert_ok();
    gateway.chat(&hello(MODEL)).await.assert_ok();
    let mut refused = 0;
    loop {
        let answer = gateway.chat(&hello(MODEL)).await;
        if answer.error()["code"] != "rpm_exceeded" {
            assert_blocked(&answer);
            break;
        }
        refused += 1;
    }
    // 5 × 10, less what is not enough for one more; a slow machine refills a few.
    assert!((41..60).contains(&refused), "{refused}");
}

#[tokio::test]
async fn without_bounds_nothing_is_blocked() {
    let off = [
        ("LIMITS__REFUSED_PER_ACCOUNT", "0"),
        ("LIMITS__REFUSED_PER_ADDRESS", "0"),
    ];
    let gateway = TestGateway::start_set(&off).await;
    for _ in 0..LIMIT * 4 {
        assert_eq!(gateway.chat_text("{").await.status, 400);
        assert_eq!(gateway.chat_as("none", &hello(MODEL)).await.status, 401);
    }
}

/// Sends one request without a valid key of each kind; returns their responses.
async fn strangers(gateway: &TestGateway) -> Vec<Answer> {
    let get = |path: &str| gateway.client.get(gateway.url(path));
    let unknown = format!("sk-svc-{}", "x".repeat(48));
    let mut malformed = RawConnection::open(gateway.public).await;
    malformed.send("GET / HTTP/1.1\r\n\r\n").await;
    vec![
        answer(get("/v1/chat/completions")).await,
        gateway.chat_as(&unknown, &hello(MODEL)).await,
        answer(get("/nowhere")).await,
        answer(get("/v1/models/nope")).await,
        malformed.answer().await,
    ]
}

#[tokio::test]
async fn requests_without_a_valid_key_are_bounded_by_address() {
    let gateway = TestGateway::start_set(&[PER_ADDRESS]).await;
    gateway.chat(&hello(MODEL)).await.assert_ok();
    let statuses: Vec<_> = strangers(&gateway).await;
    let statuses: Vec<_> = statuses.iter().map(|answer| answer.status).collect();
    assert_eq!(statuses, [401, 401, 404, 404, 400]);
    for refused in strangers(&gateway).await {
        assert_blocked(&refused);
    }
    // What needs no key, and requests with a valid key, are served; those are bounded by account.
    for path in ["/health", "/health/live", "/v1/models", "/v1/provider"] {
        let request = gateway.client.get(gateway.url(path));
        assert_eq!(request.send().await.unwrap().status(), 200, "{path}");
    }
    gateway.chat(&hello(MODEL)).await.assert_ok();
    assert_eq!(gateway.chat_text("{").await.status, 400);
    // The operator's listener has no such bound.
    for _ in 0..LIMIT * 2 {
        let url = format!("http://{}/operator/accounts", gateway.operator);
        assert_eq!(answer(gateway.client.get(url)).await.status, 401);
    }
    // A key that this gateway has not seen yet: nothing is looked up in a shared store.
    let (_, new) = gateway.new_key(&gateway.account_id).await;
    let first = gateway.chat_as(&new, &hello(MODEL)).await;
    if stores::are_shared() {
        assert_blocked(&first);
    } else {
        first.assert_ok();
    }
}

#[tokio::test]
async fn clients_behind_a_proxy_are_bounded_one_by_one() {
    let proxies = ("SERVER__TRUSTED_PROXIES", "127.0.0.1");
    let gateway = TestGateway::start_set(&[PER_ADDRESS, proxies]).await;
    let send = async |client: &str| {
        let request = gateway.client.post(gateway.url("/v1/chat/completions"));
        let request = request.header("x-forwarded-for", client);
        answer(request.json(&hello(MODEL))).await
    };
    for (client, neighbour, other) in [
        ("203.0.113.1", "::ffff:203.0.113.1", "203.0.113.2"),
        // All addresses of a /64 are one customer.
        ("2001:db8:1:2::1", "2001:db8:1:2:ffff::9", "2001:db8:1:3::1"),
    ] {
        for _ in 0..LIMIT {
            assert_eq!(send(client).await.status, 401, "{client}");
        }
        assert_blocked(&send(client).await);
        assert_blocked(&send(neighbour).await);
        assert_eq!(send(other).await.status, 401, "{other}");
    }
}
