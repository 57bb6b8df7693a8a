//! The sessions of coding agents: stored with each call, shown to operators and customers.

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{
    TestGateway,
    admin::{Admin, not_at_midnight, rows},
    gateway::hello,
    responses::{PATH, asking},
};

const CHAT: &str = "/v1/chat/completions";
const MODEL: &str = "svc-standard";

type Headers = [(&'static str, &'static str)];

async fn send(gateway: &TestGateway, key: &str, path: &str, headers: &Headers, body: Value) -> u16 {
    let mut request = gateway.client.post(gateway.url(path)).bearer_auth(key);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let response = request.json(&body).send().await.unwrap();
    let status = response.status().as_u16();
    response.bytes().await.unwrap();
    status
}

async fn chat(gateway: &TestGateway, headers: &Headers) {
    let sent = send(gateway, &gateway.key, CHAT, headers, hello(MODEL));
    assert_eq!(sent.await, 200);
    gateway.idle().await;
}

async fn get(gateway: &TestGateway, path: &str) -> Value {
    let answer = gateway.operate(Method::GET, path, None).await;
    answer.assert_ok().clone()
}

#[tokio::test]
async fn a_request_shows_the_agent_that_sent_it() {
    let gateway = TestGateway::start().await;
    gateway.upstream.answer_using(1_000, 400, 60, 0);
    chat(
        &gateway,
        &[
            ("x-request-id", "claude"),
            ("x-claude-code-session-id", "5f0c-1"),
            ("x-claude-code-agent-id", "agent-2"),
            ("x-claude-code-parent-agent-id", "agent-1"),
        ],
    )
    .await;
    let request = get(&gateway, "/operator/requests/claude").await;
    let expected = json!({
        "client": "claude-code", "session": "5f0c-1", "id": "agent-2", "parent_id": "agent-1",
    });
    assert_eq!(request["agent"], expected);
    let sent = gateway.upstream.received().pop().unwrap();
    assert!(!sent.head.contains("5f0c-1"), "no provider sees it");
    assert!(!sent.text.contains("5f0c-1"));

    let headers = [
        ("x-request-id", "codex"),
        ("originator", "codex_cli_rs"),
        ("session-id", "0199-1"),
        ("thread-id", "0199-2"),
        ("x-openai-subagent", "review"),
    ];
    let sent = send(&gateway, &gateway.key, PATH, &headers, asking(json!({})));
    assert_eq!(sent.await, 200);
    gateway.idle().await;
    let request = get(&gateway, "/operator/requests/codex").await;
    let expected = json!({
        "client": "codex_cli_rs", "session": "0199-1", "id": "0199-2", "role": "review",
    });
    assert_eq!(request["agent"], expected);
    let path = format!("/operator/accounts/{}/usage", gateway.account_id);
    let usage = get(&gateway, &path).await;
    let sessions = usage["data"].as_array().unwrap().iter();
    let sessions: Vec<_> = sessions.map(|call| call["session"].clone()).collect();
    assert_eq!(sessions, ["0199-1", "5f0c-1"]);
}

#[tokio::test]
async fn odd_headers_are_ignored_and_refuse_nothing() {
    let gateway = TestGateway::start().await;
    for bad in ["two words", "sk-svc-0123456789", &"x".repeat(129), "grün"] {
        let request = gateway.request(Method::POST, CHAT).json(&hello(MODEL));
        let request = request.header("x-request-id", "odd");
        let sent = request.header("session-id", bad.as_bytes()).send().await;
        assert_eq!(sent.unwrap().status(), 200, "{bad}");
        gateway.idle().await;
        let request = get(&gateway, "/operator/requests/odd").await;
        assert_eq!(request["agent"], Value::Null, "{bad}");
    }
    let sessions = get(&gateway, "/operator/sessions").await;
    assert_eq!(sessions["data"], json!([]));
}

#[tokio::test]
async fn operators_see_usage_by_session() {
    let gateway = TestGateway::start().await;
    gateway.upstream.answer_using(1_000, 400, 60, 50);
    let claude = [("x-claude-code-session-id", "s-1")];
    chat(&gateway, &claude).await;
    chat(&gateway, &claude).await;
    gateway.upstream.answer(500, "text/plain", "no");
    let failed = send(&gateway, &gateway.key, CHAT, &claude, hello(MODEL));
    assert_eq!(failed.await, 502);
    gateway.upstream.answer_using(10, 0, 1, 0);
    chat(&gateway, &[("session-id", "s-2")]).await;
    chat(&gateway, &[]).await;

    let page = get(&gateway, "/operator/sessions").await;
    let [latest, first] = page["data"].as_array().unwrap().as_slice() else {
        panic!("two sessions: {page}");
    };
    assert_eq!(
        (&page["has_more"], &page["next"]),
        (&json!(false), &Value::Null)
    );
    assert_eq!(latest["session"], "s-2");
    assert_eq!(latest["client"], Value::Null);
    let mut first = first.clone();
    let times = ["first_at", "last_at"].map(|name| {
        let time = first.as_object_mut().unwrap().remove(name);
        time.unwrap().as_str().unwrap().to_owned()
    });
    assert!(times[0] < times[1], "{times:?}");
    // 600 × 2,000 + 400 × 200 + 60 × 9,000 nano-dollars, twice.
    let expected = json!({
        "object": "session", "session": "s-1", "account_id": gateway.account_id,
        "client": "claude-code", "requests": 3, "charged_requests": 2,
        "prompt_tokens": 2_000, "cached_tokens": 800, "cache_write_tokens": 0,
        "completion_tokens": 120, "reasoning_tokens": 100,
        "cache_hit_rate": 0.4, "cost": "0.003640",
    });
    assert_eq!(first, expected);

    let newest = get(&gateway, "/operator/sessions?limit=1").await;
    assert_eq!(newest["data"], json!([latest]));
    assert_eq!(newest["has_more"], true);
    let next = newest["next"].as_str().unwrap();
    let next = get(
        &gateway,
        &format!("/operator/sessions?limit=1&before={next}"),
    )
    .await;
    assert_eq!(next["data"][0]["session"], "s-1");
    assert_eq!(next["has_more"], false);

    let path = format!("/operator/sessions?account={}", gateway.account_id);
    assert_eq!(get(&gateway, &path).await, page);
    let nobody = get(&gateway, "/operator/sessions?account=acct_0").await;
    assert_eq!(nobody["data"], json!([]));
    let earlier = get(&gateway, "/operator/sessions?to=2026-01-01T00:00:00Z").await;
    assert_eq!(earlier["data"], json!([]));
    for (query, param) in [
        ("limit=0", "limit"),
        ("limit=1000", "limit"),
        ("before=x", "before"),
        ("from=x", "from"),
    ] {
        let path = format!("/operator/sessions?{query}");
        let refused = gateway.operate(Method::GET, &path, None).await;
        assert_eq!(
            (refused.status, &refused.body["error"]["param"]),
            (400, &json!(param))
        );
    }
}

#[tokio::test]
async fn customers_see_their_usage_by_session() {
    not_at_midnight().await;
    let admin = Admin::open().await;
    let gateway = &admin.gateway;
    gateway.upstream.answer_using(1_000, 400, 60, 50);
    let empty = admin.page("/portal/usage?by=session").await;
    assert!(
        empty.contains("No coding agent named its session"),
        "{empty}"
    );
    let claude = [
        ("x-request-id", "r-1"),
        ("x-claude-code-session-id", "s-<1>"),
    ];
    for _ in 0..2 {
        let sent = send(gateway, &admin.key, CHAT, &claude, hello(MODEL));
        assert_eq!(sent.await, 200);
    }
    chat(gateway, &[("session-id", "of-another-account")]).await;
    let page = admin.page("/portal/usage?by=session").await;
    let table = rows(&page, "Usage by session of a coding agent");
    let [_, row] = table.as_slice() else {
        panic!("one session: {table:?}");
    };
    assert_eq!(row[0], "s-&lt;1&gt; claude-code");
    assert_eq!(row[2..], ["2", "2,000", "40.0 %", "120", "$0.00364"]);
    assert!(!page.contains("of-another-account"));
    assert!(page.contains("Usage by day"));
}

#[tokio::test]
async fn customers_page_through_their_sessions() {
    not_at_midnight().await;
    let admin = Admin::open().await;
    let gateway = &admin.gateway;
    gateway.upstream.answer_using(10, 0, 1, 0);
    for at in 0..51 {
        let request = gateway
            .client
            .post(gateway.url(CHAT))
            .bearer_auth(&admin.key);
        let request = request.header("session-id", format!("s-{at:02}"));
        let sent = request.json(&hello(MODEL)).send().await.unwrap();
        assert_eq!(sent.status(), 200);
    }
    gateway.idle().await;
    let page = admin.page("/portal/usage?days=7&by=session").await;
    assert!(!page.contains("s-00"), "the oldest is on the next page");
    let older = page.split("rel=\"next\" href=\"").nth(1).unwrap();
    let older = older.split('"').next().unwrap().replace("&amp;", "&");
    let older = admin.page(&older).await;
    let table = rows(&older, "Usage by session of a coding agent");
    assert_eq!(table.len(), 2, "{table:?}");
    assert_eq!(table[1][0], "s-00");
    assert!(older.contains("Newest sessions"));
}
