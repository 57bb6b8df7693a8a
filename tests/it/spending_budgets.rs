//! Budgets (§8.7): what they refuse, what the refusal says, and who may see and set them.

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{
    Answer, Gate, Step, TestGateway,
    bodies::hello_with,
    console::actions,
    gateway::{answer, hello, until},
    ledger_view::{MODEL, PRICE, nanos},
    upstream::{chunk, completion, events, response, stream_head, usage_chunk},
};

/// Bounded output, so that what a call may cost is near to what it holds.
fn ask(tokens: u64) -> Value {
    hello_with(
        MODEL,
        json!({ "max_tokens": tokens, "tool_execution": "passthrough" }),
    )
}

async fn set(gateway: &TestGateway, body: Value) -> Answer {
    gateway
        .operate(Method::PUT, "/operator/budgets", Some(body))
        .await
}

async fn budgets(gateway: &TestGateway, account: &str) -> Vec<Value> {
    let path = format!("/operator/accounts/{account}/budgets");
    let listed = gateway.operate(Method::GET, &path, None).await;
    listed.assert_ok()["data"].as_array().unwrap().clone()
}

async fn call(gateway: &TestGateway, key: &str, body: &Value) -> Answer {
    gateway.chat_as(key, body).await
}

async fn key_itself(gateway: &TestGateway, key: &str) -> Value {
    let request = gateway.client.get(gateway.url("/v1/key")).bearer_auth(key);
    answer(request).await.assert_ok().clone()
}

#[tokio::test]
async fn a_refusal_explains_itself_with_the_figures_of_the_ledger() {
    let gateway = TestGateway::start_with("[credit]\nmax_overdraft = \"0\"").await;
    let customer = gateway.customer().await;
    let (key_id, key) = gateway.new_key(&customer.id).await;
    let budget = json!({
        "account": customer.id, "scope": "key", "id": key_id, "amount": "0.02", "period": "week",
        "timezone": "Europe/Berlin", "anchor": 7,
    });
    let made = set(&gateway, budget).await;
    let made = made.assert_ok().clone();
    assert_eq!(
        (&made["object"], &made["scope"]),
        (&json!("budget"), &json!("key"))
    );
    assert_eq!(
        (&made["scope_id"], &made["name"]),
        (&json!(key_id), &json!("test"))
    );
    assert_eq!(
        (&made["hard"], &made["thresholds"]),
        (&json!(true), &json!([50, 80, 100]))
    );
    call(&gateway, &key, &ask(128)).await.assert_ok();

    let refused = call(&gateway, &key, &ask(60_000)).await;
    refused.assert_error(402, "budget_exceeded", Some("payment_required"), None);
    let error = refused.error();
    let expected = json!({
        "scope": "key", "scope_id": key_id, "id": made["id"], "name": "test", "amount": "0.020000",
        "period": "week", "spent": "0.000049", "held": "0.000000",
        "resets_at": made["resets_at"],
    });
    assert_eq!(error["budget"], expected);
    assert_eq!(nanos(&expected["spent"]), PRICE);
    assert_eq!(refused.headers["x-should-retry"], "false");
    assert!(!refused.headers.contains_key("retry-after"));
    // It would not fit into the next week either.
    let message = |refused: &Answer| refused.error()["message"].as_str().unwrap().to_owned();
    let says = message(&refused);
    assert!(
        says.starts_with("Lower max_tokens, or ask") && says.contains("`test`"),
        "{says}"
    );
    // What fits, fits; one token more does not.
    let fits = error["max_tokens_that_fit"].as_u64().unwrap();
    assert!((1_000..2_300).contains(&fits), "{fits}");
    let beyond = call(&gateway, &key, &ask(fits + 1)).await;
    assert_eq!(beyond.error()["max_tokens_that_fit"], fits);
    let until = format!("Wait until {}, or", made["resets_at"].as_str().unwrap());
    assert!(message(&beyond).starts_with(&until), "{}", message(&beyond));
    call(&gateway, &key, &ask(fits)).await.assert_ok();
    // The Messages API has its own envelope, with the same figures.
    let body = json!({ "model": MODEL, "max_tokens": 60_000, "messages": [{ "role": "user", "content": "Hi" }] });
    let request = gateway
        .client
        .post(gateway.url("/v1/messages"))
        .bearer_auth(&key);
    let refused = answer(request.json(&body)).await;
    let kind = &refused.body["error"]["type"];
    assert_eq!((refused.status, kind), (402, &json!("billing_error")));
    // Other keys of the account are not bound, and the account's credit is what it was.
    call(&gateway, &customer.key, &ask(60_000))
        .await
        .assert_ok();
    let view = customer.ledger_view().await;
    assert_eq!((view.charges, view.spent), (3, 3 * PRICE));
    assert_eq!(
        nanos(&budgets(&gateway, &customer.id).await[0]["spent"]),
        2 * PRICE
    );
}

#[tokio::test]
async fn where_only_running_calls_stand_in_the_way_a_retry_is_told() {
    let gateway = TestGateway::start_with("[credit]\nmax_overdraft = \"0\"").await;
    let customer = gateway.customer().await;
    let body =
        json!({ "account": customer.id, "scope": "account", "amount": 0.02, "period": "total" });
    set(&gateway, body).await.assert_ok();
    let gate = Gate::default();
    let wait = gate.clone();
    gateway.upstream.play_for_each(move |_| {
        let done = response(200, "application/json", &completion("Hi").to_string());
        vec![Step::Until(wait.clone()), Step::Send(done)]
    });
    let running = tokio::spawn(answer(customer.request(&ask(1_500))));
    until("it runs", || gateway.upstream.calls() == 1).await;
    let refused = answer(customer.request(&ask(1_500))).await;
    refused.assert_error(402, "budget_exceeded", Some("payment_required"), None);
    assert_eq!(refused.headers["x-should-retry"], "true");
    assert_eq!(refused.headers["retry-after"], "1");
    let budget = &refused.error()["budget"];
    assert!(nanos(&budget["held"]) >= 1_500 * 9_000, "{budget}");
    assert_eq!(
        (nanos(&budget["spent"]), &budget["resets_at"]),
        (0, &Value::Null)
    );
    let itself = key_itself(&gateway, &customer.key).await;
    let shown = &itself["budgets"][0];
    assert_eq!(
        (&shown["held"], &shown["spent"]),
        (&budget["held"], &budget["spent"])
    );
    gate.open();
    running.await.unwrap().assert_ok();
    answer(customer.request(&ask(1_500))).await.assert_ok();
    assert_eq!(customer.ledger_view().await.charges, 2);
    let spent = budgets(&gateway, &customer.id).await;
    assert_eq!(
        (nanos(&spent[0]["spent"]), nanos(&spent[0]["held"])),
        (2 * PRICE, 0)
    );
}

#[tokio::test]
async fn a_key_sees_the_budgets_above_it() {
    let gateway = TestGateway::start().await;
    let customer = gateway.customer().await;
    let path = format!("/operator/accounts/{}/projects", customer.id);
    let project = gateway
        .operate(Method::POST, &path, Some(json!({ "name": "Search" })))
        .await;
    let project = project.assert_ok()["id"].as_str().unwrap().to_owned();
    let path = format!("/operator/accounts/{}/keys", customer.id);
    let made = gateway
        .operate(
            Method::POST,
            &path,
            Some(json!({ "name": "k", "project": project })),
        )
        .await;
    let key = made.assert_ok()["key"].as_str().unwrap().to_owned();
    let key_id = made.assert_ok()["id"].as_str().unwrap().to_owned();
    assert_eq!(key_itself(&gateway, &key).await["budgets"], json!([]));
    for (scope, id, amount) in [
        ("account", None, "30"),
        ("project", Some("default".to_owned()), "10"),
        ("project", Some(project), "20"),
        ("key", Some(key_id), "5.5"),
    ] {
        let body = json!({ "account": customer.id, "scope": scope, "id": id, "amount": amount, "period": "month", "hard": scope != "account" });
        set(&gateway, body).await.assert_ok();
    }
    call(&gateway, &key, &hello(MODEL)).await.assert_ok();
    let itself = key_itself(&gateway, &key).await;
    let shown = itself["budgets"].as_array().unwrap();
    let scopes: Vec<_> = shown
        .iter()
        .map(|it| (&it["scope"], &it["name"], &it["hard"]))
        .collect();
    let expected = json!([
        ["account", "Account", false],
        ["project", "Search", true],
        ["key", "k", true]
    ]);
    assert_eq!(json!(scopes), expected);
    for it in shown {
        let [amount, spent, held, remaining] =
            ["amount", "spent", "held", "remaining"].map(|name| nanos(&it[name]));
        assert_eq!((spent, held, remaining), (PRICE, 0, amount - PRICE), "{it}");
        assert!(
            it["resets_at"].is_string() && it["timezone"] == "UTC",
            "{it}"
        );
    }
    assert_eq!(budgets(&gateway, &customer.id).await.len(), 4);
}

#[tokio::test]
async fn changes_apply_to_the_next_request_and_are_recorded() {
    let gateway = TestGateway::start().await;
    let customer = gateway.customer().await;
    let body = |amount: &str| json!({ "account": customer.id, "scope": "account", "amount": amount, "period": "day" });
    let made = set(&gateway, body("0.000000001")).await;
    let id = made.assert_ok()["id"].as_str().unwrap().to_owned();
    let refused = answer(customer.request(&hello(MODEL))).await;
    assert_eq!(refused.status, 402);
    let raised = set(&gateway, body("5")).await;
    assert_eq!(
        raised.assert_ok()["id"],
        id,
        "one for each place and period"
    );
    answer(customer.request(&hello(MODEL))).await.assert_ok();
    let soft = json!({ "account": customer.id, "scope": "account", "amount": "0.000000001", "period": "day", "hard": false });
    assert_eq!(set(&gateway, soft).await.assert_ok()["hard"], false);
    answer(customer.request(&hello(MODEL))).await.assert_ok();
    set(&gateway, body("0.000000001")).await.assert_ok();
    assert_eq!(answer(customer.request(&hello(MODEL))).await.status, 402);
    let path = format!("/operator/budgets/{id}");
    let removed = gateway.operate(Method::DELETE, &path, None).await;
    assert_eq!(removed.assert_ok()["deleted"], true);
    answer(customer.request(&hello(MODEL))).await.assert_ok();
    assert_eq!(
        gateway.operate(Method::DELETE, &path, None).await.status,
        404
    );
    let done = actions(&gateway, Some(&id)).await;
    let done: Vec<_> = done.iter().map(|action| &*action.what).collect();
    assert_eq!(
        done,
        [
            "budget.remove",
            "budget.set",
            "budget.set",
            "budget.set",
            "budget.set"
        ]
    );
    assert_eq!(customer.ledger_view().await.charges, 3);
}

/// Each is refused with 400 or 404 that names the field, and nothing changes.
#[tokio::test]
async fn bad_budgets_are_refused() {
    let gateway = TestGateway::start().await;
    let customer = gateway.customer().await;
    let other = gateway.customer().await;
    let (others_key, _) = gateway.new_key(&other.id).await;
    let right =
        json!({ "account": customer.id, "scope": "account", "amount": "1", "period": "day" });
    for (field, value, status, param) in [
        ("amount", json!("-1"), 400, Some("amount")),
        ("amount", json!(-1), 400, Some("amount")),
        ("amount", json!("0"), 400, Some("amount")),
        ("amount", json!("NaN"), 400, Some("amount")),
        ("amount", json!("1e3"), 400, Some("amount")),
        ("amount", json!(1e300), 400, Some("amount")),
        ("amount", json!("1000000000.000000001"), 400, Some("amount")),
        (
            "amount",
            json!("99999999999999999999999"),
            400,
            Some("amount"),
        ),
        ("amount", json!(null), 400, Some("amount")),
        ("period", json!("year"), 400, Some("period")),
        ("scope", json!("team"), 400, Some("scope")),
        ("timezone", json!("Mars/Olympus"), 400, Some("timezone")),
        ("timezone", json!("../../etc/passwd"), 400, Some("timezone")),
        ("anchor", json!(1), 400, Some("anchor")),
        ("thresholds", json!([0]), 400, Some("thresholds")),
        ("thresholds", json!([101]), 400, Some("thresholds")),
        (
            "thresholds",
            json!([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]),
            400,
            Some("thresholds"),
        ),
        ("name", json!(""), 400, Some("name")),
        ("name", json!("x".repeat(101)), 400, Some("name")),
        ("account", json!("acct_0"), 404, None),
        ("id", json!(other.id), 404, None),
        ("unknown", json!(1), 400, Some("unknown")),
    ] {
        let mut body = right.clone();
        body[field] = value;
        let refused = set(&gateway, body.clone()).await;
        assert_eq!(refused.status, status, "{body} gives {}", refused.body);
        if status == 400 && field != "unknown" {
            assert_eq!(refused.error()["param"], json!(param), "{body}");
        }
    }
    for (scope, id) in [
        ("key", None),
        ("project", None),
        ("member", None),
        ("key", Some(others_key.as_str())),
        ("key", Some("key_0")),
        ("project", Some("proj_0")),
        ("member", Some("person_0")),
    ] {
        let mut body = right.clone();
        (body["scope"], body["id"]) = (scope.into(), json!(id));
        let refused = set(&gateway, body.clone()).await;
        let status = if id.is_none() { 400 } else { 404 };
        assert_eq!(refused.status, status, "{body} gives {}", refused.body);
    }
    assert!(budgets(&gateway, &customer.id).await.is_empty());
    assert!(budgets(&gateway, &other.id).await.is_empty());
    let path = "/operator/accounts/acct_0/budgets";
    assert_eq!(gateway.operate(Method::GET, path, None).await.status, 404);
    let week = |anchor: u64| json!({ "account": customer.id, "scope": "account", "amount": "1", "period": "week", "anchor": anchor });
    assert_eq!(set(&gateway, week(8)).await.status, 400);
    set(&gateway, week(7)).await.assert_ok();
    answer(customer.request(&hello(MODEL))).await.assert_ok();
}

#[tokio::test]
async fn a_stream_that_began_is_charged_whatever_becomes_of_its_budget() {
    let gateway = TestGateway::start().await;
    let customer = gateway.customer().await;
    let body = |amount: &str| json!({ "account": customer.id, "scope": "account", "amount": amount, "period": "month" });
    set(&gateway, body("1")).await.assert_ok();
    let gate = Gate::default();
    let wait = gate.clone();
    gateway.upstream.play_for_each(move |_| {
        let first = chunk(json!({ "role": "assistant", "content": "Hi" }), None);
        let first = format!("data: {first}\n\n");
        let last = events(&[chunk(json!({}), Some("stop")), usage_chunk(11, 3)]);
        vec![
            Step::Send(stream_head()),
            Step::Send(first.into_bytes()),
            Step::Until(wait.clone()),
            Step::Send(last.into_bytes()),
            Step::Close,
        ]
    });
    let mut streamed = hello(MODEL);
    streamed["stream"] = true.into();
    let running = tokio::spawn(customer.request(&streamed).send());
    let running = running.await.unwrap().unwrap();
    set(&gateway, body("0.000000001")).await.assert_ok();
    gate.open();
    let text = running.text().await.unwrap();
    assert!(text.ends_with("data: [DONE]\n\n"), "{text}");
    assert_eq!(customer.ledger_view().await.charges, 1);
    let spent = budgets(&gateway, &customer.id).await;
    assert_eq!(nanos(&spent[0]["spent"]), PRICE);
    assert!(
        nanos(&spent[0]["remaining"]) < 0,
        "lowered below what was spent"
    );
}
