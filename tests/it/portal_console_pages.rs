//! The contents of console pages.

use reqwest::Method;
use serde_json::json;

use crate::support::{
    FakeUpstream, TestGateway,
    admin::links,
    console::{until_shown, with_token},
    gateway::hello,
    portal::SCRIPT,
};

const MODEL: &str = "svc-standard";

#[tokio::test]
async fn accounts_are_found_by_id_address_and_name() {
    let gateway = TestGateway::start().await;
    let browser = with_token(&gateway).await;
    for (email, name) in [("anna@example.com", "Anna"), ("otto@example.com", SCRIPT)] {
        let body = json!({ "email": email, "track": "personal", "tier": "free", "name": name });
        let made = gateway
            .operate(Method::POST, "/operator/accounts", Some(body))
            .await;
        made.assert_ok();
    }
    let found = async |text: &str| {
        let page = browser
            .get(&format!("/portal/console/accounts?text={text}"))
            .await;
        page.assert_page();
        assert!(!page.text.contains(SCRIPT));
        let listed = links(&page.text, "/portal/console/accounts/acct");
        (listed.len(), page.text)
    };
    assert_eq!(found("").await.0, 3);
    let (count, page) = found("ANNA").await;
    assert!(count == 1 && page.contains("anna@example.com"), "{page}");
    assert_eq!(found("otto%40").await.0, 1);
    assert_eq!(found(&gateway.account_id[..12]).await.0, 1);
    let (count, page) = found("nobody").await;
    assert!(
        count == 0 && page.contains("No matching accounts"),
        "{page}"
    );
    for wrong in ["before=x", "before=1"] {
        let page = browser
            .get(&format!("/portal/console/accounts?{wrong}"))
            .await;
        assert_eq!(page.status, 400, "{wrong}");
    }
    gateway.stop().await;
}

#[tokio::test]
async fn a_key_is_made_suspended_and_deleted_for_its_owner() {
    let gateway = TestGateway::start().await;
    let browser = with_token(&gateway).await;
    let account = format!("/portal/console/accounts/{}", gateway.account_id);
    browser.get(&account).await.assert_page();
    let made = browser
        .post(&format!("{account}/keys"), &[("name", SCRIPT)])
        .await;
    assert!(!made.assert_page().contains(SCRIPT));
    let key = format!("sk-svc-{}", made.between("id=\"new-key\">sk-svc-", "<"));
    gateway.chat_as(&key, &hello(MODEL)).await.assert_ok();
    let page = browser.get(&account).await;
    assert!(!page.assert_page().contains(&key), "a key is shown once");
    let (_, after) = page.text.split_once(&key[..12]).unwrap();
    let id = after
        .split_once("<code>key_")
        .unwrap()
        .1
        .split('<')
        .next()
        .unwrap();
    let state = format!("/portal/console/keys/key_{id}/state");
    let set = async |to: &str| browser.post(&state, &[("state", to)]).await.status;
    assert_eq!(set("disabled").await, 303);
    assert_eq!(gateway.chat_as(&key, &hello(MODEL)).await.status, 401);
    assert_eq!(set("active").await, 303);
    gateway.chat_as(&key, &hello(MODEL)).await.assert_ok();
    assert_eq!(set("lost").await, 400);
    assert_eq!(set("deleted").await, 303);
    assert_eq!(gateway.chat_as(&key, &hello(MODEL)).await.status, 401);
    assert_eq!(set("active").await, 400, "it does not come back");
    gateway.stop().await;
}

#[tokio::test]
async fn limits_are_set_listed_and_removed() {
    let gateway = TestGateway::start().await;
    let browser = with_token(&gateway).await;
    let id = gateway.account_id.as_str();
    browser.get("/portal/console/limits").await.assert_page();
    let set = async |account: &str, model: &str, rpm: &str| {
        let fields = [
            ("account", account),
            ("model", model),
            ("rpm", rpm),
            ("tpm", ""),
        ];
        browser.post("/portal/console/limits", &fields).await.status
    };
    assert_eq!(set(id, MODEL, "1").await, 303);
    gateway.chat(&hello(MODEL)).await.assert_ok();
    assert_eq!(gateway.chat(&hello(MODEL)).await.status, 429);
    let page = browser.get(&format!("/portal/console/accounts/{id}")).await;
    assert!(page.assert_page().contains("Remove"));
    for (account, model, rpm) in [
        (id, "", "0"),
        (id, "", "many"),
        ("acct_none", "", "1"),
        (id, "svc-nothing", "1"),
        // An email has to be whole.
        ("dev@example", "", "1"),
    ] {
        assert_eq!(
            set(account, model, rpm).await,
            400,
            "{account} {model} {rpm}"
        );
    }
    assert_eq!(set("Dev@example.com", "", "9").await, 303);
    let page = browser.get("/portal/console/limits").await;
    assert_eq!(page.assert_page().matches(">Remove<").count(), 2);
    assert_eq!(set("dev@example.com", "", "").await, 303);
    // The fields that the Remove button of a rule submits.
    let remove = [("account", id), ("model", MODEL)];
    assert_eq!(
        browser.post("/portal/console/limits", &remove).await.status,
        303
    );
    gateway.chat(&hello(MODEL)).await.assert_ok();
    let page = browser.get("/portal/console/limits").await;
    assert!(page.assert_page().contains("No limits set"));
    gateway.stop().await;
}

#[tokio::test]
async fn a_request_is_found_by_either_id_with_details_hidden_from_customers() {
    let second = FakeUpstream::start().await;
    let config = format!(
        "[providers.second]\nkind = \"openai\"\nbase_url = \"http://{}/v1\"\n\
         [[deployments]]\nmodel = \"*\"\nprovider = \"second\"\npriority = 1\n",
        second.address
    );
    let gateway = TestGateway::start_with(&config).await;
    let browser = with_token(&gateway).await;
    gateway
        .upstream
        .answer(503, "text/plain", "out of order <b>");
    let request = gateway.request(Method::POST, "/v1/chat/completions");
    let answer = request
        .header("x-request-id", "order 66")
        .json(&hello(MODEL));
    let answer = answer.send().await.unwrap();
    assert_eq!(answer.status(), 200);
    answer.bytes().await.unwrap();
    gateway.idle().await;

    let found = browser.get("/portal/console/requests?id=order+66").await;
    assert_eq!(found.status, 303, "{}", found.text);
    let details = browser.get(found.header("location")).await;
    let page = details.assert_page();
    for told in [
        "order 66",
        "answered",
        "fake",
        "second",
        "503",
        &gateway.account_id,
        "Failed attempts",
    ] {
        assert!(page.contains(told), "no {told} in {page}");
    }
    assert!(!page.contains("<b>"));
    let id = found.header("location").rsplit('/').next().unwrap();
    let again = browser
        .get(&format!("/portal/console/requests?id={id}"))
        .await;
    assert_eq!(again.header("location"), found.header("location"));
    let none = browser.get("/portal/console/requests?id=order+67").await;
    assert!(none.assert_page().contains("No matching requests"));

    for (query, count) in [
        ("", 1),
        ("?model=svc-standard&outcome=answered", 1),
        ("?outcome=stopped", 0),
        (&format!("?account={}", gateway.account_id), 1),
        ("?account=acct_none", 0),
    ] {
        let page = browser
            .get(&format!("/portal/console/requests{query}"))
            .await;
        let listed = links(page.assert_page(), "/portal/console/requests/call_");
        assert_eq!(listed.len(), count, "{query}");
    }
    assert_eq!(
        browser
            .get("/portal/console/requests?outcome=odd")
            .await
            .status,
        400
    );
    assert_eq!(
        browser.get("/portal/console/requests/call_0").await.status,
        404
    );

    let page = browser.get("/portal/console/deployments").await;
    let page = page.assert_page();
    assert!(page.contains("second") && page.contains("503"), "{page}");
    gateway.stop().await;
}

#[tokio::test]
async fn the_last_seconds_are_counted() {
    let gateway = TestGateway::start().await;
    let browser = with_token(&gateway).await;
    let page = browser.get("/portal/console").await;
    let text = page.assert_page();
    for part in [
        "hx-trigger=\"every 2s\"",
        "htmx-config",
        "/portal/assets/htmx-",
        "<svg",
    ] {
        assert!(text.contains(part), "no {part} in {text}");
    }
    gateway.upstream.answer_using(1_000, 400, 60, 50);
    for _ in 0..3 {
        gateway.chat(&hello(MODEL)).await.assert_ok();
    }
    gateway.chat(&hello("svc-nothing")).await;
    gateway.upstream.answer(500, "text/plain", "no");
    gateway.chat(&hello(MODEL)).await;
    let part = until_shown(&browser, "/portal/console/live", "; 5 in five minutes").await;
    assert!(part.text.contains("1 refused, 1 failed"), "{}", part.text);
    // Each call used 1,060 tokens and cost 1,820,000 nano-dollars.
    for told in [
        "40.0 %",
        "3,180 in five minutes",
        "$0.00546 in five minutes",
    ] {
        assert!(part.text.contains(told), "no {told} in {}", part.text);
    }
    assert!(!part.text.contains("<html"), "it is a part of a page");
    gateway.idle().await;
    // The requests themselves, refused ones among them, with the names of their columns for phones.
    let is_refused = |link: &String| link.contains("/refused_");
    for (query, count, refused) in [
        ("", 5, 1),
        ("?outcome=refused", 1, 1),
        ("?outcome=errors", 2, 1),
        ("?outcome=answered", 3, 0),
        ("?model=svc-nothing", 1, 1),
        ("?upstream=fake&outcome=answered", 3, 0),
        ("?upstream=other", 0, 0),
        ("?outcome=errors&paused=yes", 2, 1),
    ] {
        let path = format!("/portal/console/live/requests{query}");
        let tail = browser.get(&path).await;
        assert_eq!(tail.status, 200, "{query}");
        let is_labelled = tail.text.contains("data-label=\"Cost\"");
        assert_eq!(is_labelled, count > 0, "{}", tail.text);
        let listed = links(&tail.text, "/portal/console/requests/");
        let of_them = listed.iter().filter(|link| is_refused(link)).count();
        assert_eq!((listed.len(), of_them), (count, refused), "{query}");
    }
    let page = browser.get("/portal/console?outcome=refused&paused=yes");
    let page = page.await;
    let form = page.between("action=\"/portal/console#latest\"", "</form>");
    for told in [
        "Outcome<select",
        "\"errors\">Errors only",
        "\"refused\" selected",
        // Another filter leaves it paused.
        "name=\"paused\" value=\"yes\"",
        "href=\"/portal/console?paused=yes#latest\">Show all",
    ] {
        assert!(form.contains(told), "no {told} in {form}");
    }
    let resume = page.between("<p><a class=\"button\" href=\"", "\"");
    assert_eq!(resume, "/portal/console?outcome=refused#latest");
    let wrong = browser.get("/portal/console/live/requests?outcome=odd");
    assert_eq!(wrong.await.status, 400);
    let script = format!(
        "/portal/assets/htmx-{}",
        page.between("/portal/assets/htmx-", "\"")
    );
    let script = browser.get(&script).await;
    assert!(script.text.starts_with("/* htmx 4.0.0"));
    assert!(script.header("content-type").starts_with("text/javascript"));
    gateway.stop().await;
}

#[tokio::test]
async fn the_audit_page_shows_its_counts() {
    let gateway = TestGateway::start().await;
    let browser = with_token(&gateway).await;
    let page = browser.get("/portal/console/audit").await;
    assert!(!page.assert_page().contains("adds up</h2>"));
    let run = browser.post("/portal/console/audit", &[]).await;
    assert!(run.assert_page().contains("Everything adds up"));
    let page = browser.get("/portal/console/actions").await;
    let page = page.assert_page();
    for told in [
        "audit.run",
        "account.create",
        "key.create",
        "operator token",
    ] {
        assert!(page.contains(told), "no {told} in {page}");
    }
    let page = browser.get("/portal/console/actions?subject=ledger").await;
    assert!(page.assert_page().contains("audit.run"));
    assert!(!page.text.contains("key.create"));
    gateway.stop().await;
}

/// Charges compared with the configured cost of the deployment.
#[tokio::test]
async fn the_margin_is_shown_by_model_account_and_day() {
    let deployment = r#"
        [[deployments]]
        model = "svc-standard"
        provider = "fake"
        cost = { input = "1.00", output = "20.00" }
    "#;
    let gateway = TestGateway::start_with(deployment).await;
    let browser = with_token(&gateway).await;
    let page = browser.get("/portal/console/margin").await;
    assert!(page.assert_page().contains("No calls in this period."));
    // Charged: 11 × 2 + 3 × 9 micro-dollars; the provider charges 11 × 1 + 3 × 20. The other model's cost is
    // unknown.
    let answer = gateway.chat(&hello(MODEL)).await;
    answer.assert_ok();
    gateway.chat(&hello("svc-native-fast")).await.assert_ok();
    for query in ["", "?days=7", "?days=30", "?days=90"] {
        let page = browser.get(&format!("/portal/console/margin{query}")).await;
        let page = page.assert_page();
        for told in [
            "$0.0000536",
            "$0.000071",
            "−$0.000022",
            "unknown",
            &gateway.account_id,
        ] {
            assert!(page.contains(told), "no {told} in {page}");
        }
    }
    let id = answer.headers["x-request-id"].to_str().unwrap();
    gateway.idle().await;
    let found = browser
        .get(&format!("/portal/console/requests?id={id}"))
        .await;
    let details = browser.get(found.header("location")).await;
    assert!(
        details.assert_page().contains("Provider cost"),
        "{}",
        details.text
    );
    assert!(details.text.contains("$0.000071"), "{}", details.text);
    let wrong = browser.get("/portal/console/margin?days=8").await;
    assert_eq!(wrong.status, 400);
    gateway.stop().await;
}
