//! `tollgate import`: a gateway on PostgreSQL continues where a gateway on SQLite has stopped.

use reqwest::Method;
use serde_json::{Value, json};
use tempfile::TempDir;
use tollgate::backoffice::Action;

use crate::support::{
    PostgresServer, TestGateway,
    bodies::{hello_with, long},
    console::{actions, with_token},
    gateway::{answer, hello},
    imports::{import, shown},
    portal::{Browser, PASSWORD},
    process::{run, text},
    responses::asking,
    stores::files_only,
    stripe::{FakeStripe, deliver, paid},
    turns::{CONVERT, Turn},
    upstream::{chunk, completion, events, usage_chunk},
};

const MODEL: &str = "svc-standard";
const HYBRID: &str = "svc-hybrid-tiered";

/// A gateway on files, after calls of all kinds.
struct Used {
    gateway: TestGateway,
    stripe: FakeStripe,
    /// A customer who signed up, and bought credit.
    browser: Browser,
    /// Signed in with the operator token.
    operator: Browser,
    /// All accounts: the gateway's, and those below.
    accounts: Vec<String>,
    indebted: Account,
    lapsed: Account,
    closed: Account,
    disabled_key: (String, String),
    deleted_key: String,
    /// A stored response.
    response: String,
    invitation: String,
}

struct Account {
    id: String,
    key: String,
}

const REQUESTS: [&str; 7] = [
    "plain",
    "stream",
    "failed",
    "tools",
    "hybrid",
    "uncounted",
    "nul",
];

async fn operate(gateway: &TestGateway, method: Method, path: &str, body: Value) -> Value {
    let answer = gateway.operate(method, path, Some(body)).await;
    answer.assert_ok().clone()
}

async fn account(gateway: &TestGateway, grants: &[Value]) -> Account {
    let body = json!({ "email": "a@example.com", "track": "business", "tier": "flex" });
    let made = operate(gateway, Method::POST, "/operator/accounts", body).await;
    let id = made["id"].as_str().unwrap().to_owned();
    for grant in grants {
        let path = format!("/operator/accounts/{id}/grants");
        operate(gateway, Method::POST, &path, grant.clone()).await;
    }
    let (_, key) = gateway.new_key(&id).await;
    Account { id, key }
}

/// Sends a chat with a request ID and reads the response to its end; returns its status.
async fn ask(gateway: &TestGateway, id: &str, body: Value) -> u16 {
    let request = gateway.request(Method::POST, "/v1/chat/completions");
    let request = request.header("x-request-id", id).json(&body);
    let response = request.send().await.unwrap();
    let status = response.status().as_u16();
    response.bytes().await.unwrap();
    status
}

async fn calls_of_all_kinds(gateway: &TestGateway) {
    let upstream = &gateway.upstream;
    upstream.answer_using(1_000, 400, 60, 50);
    assert_eq!(ask(gateway, "plain", hello(MODEL)).await, 200);
    let streamed = || hello_with(MODEL, json!({ "stream": true }));
    let said = chunk(json!({ "content": "Hi" }), Some("stop"));
    upstream.answer_stream(&events(&[said.clone(), usage_chunk(11, 3)]));
    assert_eq!(ask(gateway, "stream", streamed()).await, 200);
    upstream.answer_stream(&events(&[said]));
    assert_eq!(ask(gateway, "uncounted", streamed()).await, 200);
    upstream.answer(529, "text/plain", "busy");
    assert_eq!(ask(gateway, "failed", hello(MODEL)).await, 502);
    upstream.converse([Turn::calls(&[CONVERT]), Turn::says("A billion.")]);
    assert_eq!(ask(gateway, "tools", hello(MODEL)).await, 200);
    // NUL in what a model calls: SQLite stores it, PostgreSQL cannot.
    let with_nul = ("call_nul", "convert_units", r#"{"amount":"\u0000"}"#);
    upstream.converse([Turn::calls(&[with_nul]), Turn::says("No.")]);
    assert_eq!(ask(gateway, "nul", hello(MODEL)).await, 200);
    upstream.answer_json(200, &completion("Hi"));
    assert_eq!(ask(gateway, "hybrid", hello(HYBRID)).await, 200);
}

async fn used() -> Used {
    let stripe = FakeStripe::start().await;
    let gateway = TestGateway::start_with(&stripe.section()).await;
    calls_of_all_kinds(&gateway).await;
    let response = gateway
        .response_id(&asking(json!({ "input": "Remember 7." })))
        .await;

    // Grants in another order than that of their use.
    let rich = [
        json!({ "amount": "2" }),
        json!({ "amount": "1", "expires_at": "2099-01-01T00:00:00Z", "reason": "a gift" }),
        json!({ "amount": "0.00001", "expires_at": "2090-01-01T00:00:00Z", "reference": "inv-1" }),
    ];
    let rich = account(&gateway, &rich).await;
    gateway.chat_as(&rich.key, &hello(MODEL)).await.assert_ok();
    let indebted = account(&gateway, &[json!({ "amount": "0.05" })]).await;
    gateway.upstream.answer_using(100_000, 0, 10, 0);
    let expensive = long(MODEL, 100_000);
    gateway.chat_as(&indebted.key, &expensive).await.assert_ok();
    gateway.upstream.answer_json(200, &completion("Hi"));
    let old = json!({ "amount": "5", "expires_at": "2026-01-01T00:00:00Z" });
    let lapsed = account(&gateway, &[old]).await;
    let refused = gateway.chat_as(&lapsed.key, &hello(MODEL)).await;
    assert_eq!(refused.status, 402);
    let closed = account(&gateway, &[json!({ "amount": "3" })]).await;
    let path = format!("/operator/accounts/{}", closed.id);
    operate(&gateway, Method::PATCH, &path, json!({ "closed": true })).await;

    let disabled_key = gateway.new_key(&rich.id).await;
    let path = format!("/operator/keys/{}/disable", disabled_key.0);
    operate(&gateway, Method::POST, &path, json!({})).await;
    let (deleted_id, deleted_key) = gateway.new_key(&rich.id).await;
    let path = format!("/operator/keys/{deleted_id}");
    operate(&gateway, Method::DELETE, &path, json!({})).await;
    let limit = json!({ "account": rich.id, "model": MODEL, "rpm": 1 });
    operate(&gateway, Method::PUT, "/operator/limits", limit).await;
    let disabled = json!({ "enabled": false });
    operate(
        &gateway,
        Method::PUT,
        "/operator/models/svc-basic",
        disabled,
    )
    .await;

    let browser = Browser::signed_in(&gateway).await;
    let (checkout, session) = stripe.order(&browser, "25.000000").await;
    let delivered = deliver(gateway.public, &paid(&checkout, &session, 2_500)).await;
    assert_eq!(delivered.status, 200);
    let path = format!("/operator/accounts/{}/invitations", browser.account_id);
    let invited = json!({ "email": "friend@example.com" });
    let invited = operate(&gateway, Method::POST, &path, invited).await;
    let operator = with_token(&gateway).await;

    let accounts = [&gateway.account_id, &rich.id, &indebted.id, &lapsed.id];
    let accounts = accounts
        .into_iter()
        .chain([&closed.id, &browser.account_id]);
    Used {
        accounts: accounts.cloned().collect(),
        invitation: invited["link"].as_str().unwrap().to_owned(),
        gateway,
        stripe,
        browser,
        operator,
        indebted,
        lapsed,
        closed,
        disabled_key,
        deleted_key,
        response,
    }
}

async fn balance(gateway: &TestGateway, id: &str) -> Value {
    let path = format!("/operator/accounts/{id}");
    let account = gateway.operate(Method::GET, &path, None).await;
    account.assert_ok()["balance"].clone()
}

fn whats(actions: &[Action]) -> Vec<String> {
    actions.iter().map(|action| format!("{action:?}")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_on_servers_continues_after_one_on_files() {
    if files_only("it imports files") {
        return;
    }
    let used = used().await;
    used.gateway.idle().await;
    let before = shown(&used.gateway, &used.accounts, &REQUESTS).await;
    let acted = whats(&actions(&used.gateway, None).await);
    let (account_id, key) = (used.gateway.account_id.clone(), used.gateway.key.clone());
    let folder = used.gateway.stop().await;
    let database = PostgresServer::shared().database();
    let report = import(folder.path(), &database);
    let report = report.assert_ok();
    assert!(
        report.contains("are equal in both, and both add up"),
        "{report}"
    );
    for (table, rows) in [("accounts", 6), ("backoffice_people", 1), ("responses", 1)] {
        let line = report.lines().find(|line| line.starts_with(table)).unwrap();
        assert_eq!(line.split_whitespace().last(), Some(&*rows.to_string()));
    }
    for audited in [
        folder.path().join("tollgate.db").to_str().unwrap(),
        &database,
    ] {
        let audit = run(&["audit", "--database", audited], &[]);
        assert!(audit.status.success(), "{}", text(&audit.stdout));
    }

    let gateway = TestGateway::start_on_servers(folder, &database, &used.stripe.section()).await;
    let after = shown(&gateway, &used.accounts, &REQUESTS).await;
    for ((path, before), (_, after)) in before.iter().zip(&after) {
        let before = before.to_string().replace("\\u0000", "\u{fffd}");
        let before: Value = serde_json::from_str(&before).unwrap();
        assert_eq!(*after, before, "{path}");
    }
    let acts = whats(&actions(&gateway, None).await);
    assert!(acts.ends_with(&acted), "{acts:#?}");

    // Keys work, or are refused, as before, and calls are charged.
    let ask = async |key: &str| gateway.chat_as(key, &hello(MODEL)).await;
    let before = balance(&gateway, &account_id).await;
    ask(&key).await.assert_ok();
    gateway.idle().await;
    assert_ne!(balance(&gateway, &account_id).await, before);
    for (key, status) in [
        (&used.indebted.key, 402),
        (&used.lapsed.key, 402),
        (&used.closed.key, 402),
        (&used.disabled_key.1, 401),
        (&used.deleted_key, 401),
    ] {
        let refused = ask(key).await;
        assert_eq!(refused.status, status, "{}", refused.body);
    }
    let path = format!("/operator/keys/{}/enable", used.disabled_key.0);
    operate(&gateway, Method::POST, &path, json!({})).await;
    ask(&used.disabled_key.1).await.assert_ok();
    let limited = ask(&used.disabled_key.1).await;
    assert_eq!(limited.status, 429, "one request per minute");
    let path = format!("/operator/accounts/{}/grants", used.indebted.id);
    operate(&gateway, Method::POST, &path, json!({ "amount": "1" })).await;
    assert_eq!(balance(&gateway, &used.indebted.id).await, "0.849910");
    ask(&used.indebted.key).await.assert_ok();

    // The stored response, continued with its own key.
    let next = json!({ "previous_response_id": used.response, "input": "Which number?" });
    let request = gateway.client.post(gateway.url("/v1/responses"));
    let continued = answer(request.bearer_auth(&key).json(&asking(next))).await;
    continued.assert_ok();
    let sent = gateway.upstream.last_body();
    assert_eq!(sent["messages"][0]["content"], "Remember 7.");

    people_are_known(&gateway, &used.browser, &used.invitation).await;
    operator_is_known(&gateway, &used.operator).await;
    gateway.idle().await;
    let audit = gateway
        .operate(Method::POST, "/operator/audit", Some(json!({})))
        .await;
    assert_eq!(audit.assert_ok()["ok"], true, "{}", audit.body);
}

/// Sessions go on, passwords are valid, and links can be followed.
async fn people_are_known(gateway: &TestGateway, before: &Browser, invitation: &str) {
    let session = Browser::new(gateway);
    let cookie = before.cookie("tollgate-session").unwrap();
    session.set_cookie("tollgate-session", &cookie);
    let settings = session.get("/portal/settings").await;
    assert!(settings.assert_page().contains(&before.account_id));
    let billing = session.get("/portal/billing").await;
    assert!(billing.assert_page().contains("$25.00"), "{}", billing.text);
    let browser = Browser::new(gateway);
    let signed_in = browser.sign_in(&before.email, PASSWORD).await;
    signed_in.assert_sent_to("/portal");
    let invited = Browser::new(gateway);
    let at = invitation.find("/portal/").unwrap();
    let page = invited.get(&invitation[at..]).await;
    assert!(page.assert_page().contains("friend@example.com"));
}

/// A session of the operator token goes on, so the secret that signs cookies was copied.
async fn operator_is_known(gateway: &TestGateway, before: &Browser) {
    let session = Browser::new(gateway);
    let cookie = before.cookie("tollgate-session").unwrap();
    session.set_cookie("tollgate-session", &cookie);
    session.get("/portal/console").await.assert_page();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_that_was_killed_is_imported_with_its_redo_log() {
    if files_only("it imports files") {
        return;
    }
    let folder = TempDir::new().unwrap();
    let (process, dev) = crate::support::Process::dev(folder.path()).await;
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let url = format!("{}/chat/completions", dev["OPENAI_BASE_URL"]);
    for _ in 0..20 {
        let request = client.post(&url).bearer_auth(&dev["OPENAI_API_KEY"]);
        let response = request.json(&hello(MODEL)).send().await.unwrap();
        assert_eq!(response.status(), 200);
        response.bytes().await.unwrap();
    }
    process.signal("KILL");
    process.ended().await;
    let database = PostgresServer::shared().database();
    let report = import(folder.path(), &database);
    assert!(
        report.assert_ok().contains("(20 of them charges)"),
        "{}",
        report.stdout
    );
}
