//! Changes of the configuration in the console: prices, the preview, conflicts, and going back.

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{
    Step, TestGateway,
    config_form::{FORM, MODELS, PAGE, change, filled, post},
    console::{actions, person},
    gateway::hello,
    portal::{Browser, SCRIPT},
    upstream::{Gate, chunk, completion, events, stream_head, usage_chunk},
};

const MODEL: &str = "svc-standard";

async fn balance(gateway: &TestGateway) -> i64 {
    gateway.idle().await;
    let path = format!("/operator/accounts/{}", gateway.account_id);
    let account = gateway.operate(Method::GET, &path, None).await;
    let text = account.assert_ok()["balance"].as_str().unwrap().to_owned();
    let (whole, decimals) = text.split_once('.').unwrap();
    format!("{whole}{decimals:0<9}").parse().unwrap()
}

/// The price of a model's output, as callers see it.
async fn output_price(gateway: &TestGateway) -> String {
    let model = gateway.get(&format!("/v1/models/{MODEL}")).await;
    model.assert_ok()["pricing"]["completion"]
        .as_str()
        .unwrap()
        .to_owned()
}

fn answering(gateway: &TestGateway) {
    let mut whole = completion("Hi");
    whole["usage"] = json!({ "prompt_tokens": 5, "completion_tokens": 100 });
    gateway.upstream.answer_json(200, &whole);
}

async fn charge_of_a_call(gateway: &TestGateway) -> i64 {
    let before = balance(gateway).await;
    gateway.chat(&hello(MODEL)).await.assert_ok();
    before - balance(gateway).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_price_is_previewed_applied_charged_kept_and_rolled_back() {
    let gateway = TestGateway::start().await;
    answering(&gateway);
    let browser = person(&gateway).await;
    let page = browser.get(PAGE).await;
    assert!(
        page.assert_page()
            .contains("No changes: the file is used as it is.")
    );
    assert_eq!(charge_of_a_call(&gateway).await, 5 * 2_000 + 100 * 9_000);

    let page = browser.get(FORM).await;
    let fields = filled(
        page.assert_page(),
        &[("f.output", "90.00"), ("note", SCRIPT)],
    );
    let shown = post(&browser, MODELS, &fields, "preview").await;
    let shown = shown.assert_page();
    for line in [
        "Removed: </span>output = &quot;9.00&quot;</del>",
        "Added: </span>output = &quot;90.00&quot;</ins>",
    ] {
        assert!(shown.contains(line), "{line} in {shown}");
    }
    assert!(!shown.contains(SCRIPT));
    assert_eq!(
        output_price(&gateway).await,
        "0.000009",
        "a preview changes nothing"
    );

    // A call that runs while the price changes is charged as it was admitted.
    let gate = Gate::default();
    let first = events(&[chunk(json!({ "content": "Hi" }), None)]).replace("data: [DONE]\n\n", "");
    let last = events(&[chunk(json!({}), Some("stop")), usage_chunk(5, 100)]);
    gateway.upstream.play(vec![
        Step::Send(stream_head()),
        Step::Send(first.into_bytes()),
        Step::Until(gate.clone()),
        Step::Send(last.into_bytes()),
        Step::Close,
    ]);
    let before = balance(&gateway).await;
    let mut body = hello(MODEL);
    body["stream"] = json!(true);
    let running = gateway.open_stream(&body).await;
    let applied = post(&browser, MODELS, &fields, "apply").await;
    applied.assert_sent_to(PAGE);
    assert_eq!(output_price(&gateway).await, "0.00009");
    gate.open();
    running.text().await.unwrap();
    assert_eq!(before - balance(&gateway).await, 5 * 2_000 + 100 * 9_000);
    answering(&gateway);
    assert_eq!(charge_of_a_call(&gateway).await, 5 * 2_000 + 100 * 90_000);

    let page = browser.get(PAGE).await;
    let page = page.assert_page();
    for text in [
        "Version 1 of the configuration is in use",
        "Undo",
        "Changed here",
        "output = &quot;9.00&quot;\n</pre>",
        "output = &quot;90.00&quot;\n</pre>",
    ] {
        assert!(page.contains(text), "{text} in {page}");
    }
    let done = actions(&gateway, Some(MODEL)).await;
    let [done] = done.as_slice() else {
        panic!("one action: {done:?}")
    };
    assert_eq!(
        (&*done.what, &*done.actor),
        ("config.change", &*browser.email)
    );
    let after: Value = serde_json::from_str(done.after.as_deref().unwrap()).unwrap();
    assert_eq!(after["model svc-standard output"], "90.00");
    assert_eq!(
        (&after["version"], &after["note"]),
        (&json!(1), &json!(SCRIPT))
    );

    let (key, account, email) = (
        gateway.key.clone(),
        gateway.account_id.clone(),
        browser.email.clone(),
    );
    let data = gateway.stop().await;
    let mut gateway = TestGateway::start_in(data, "").await;
    (gateway.key, gateway.account_id) = (key, account);
    answering(&gateway);
    assert_eq!(
        charge_of_a_call(&gateway).await,
        5 * 2_000 + 100 * 90_000,
        "a restart keeps it"
    );

    let browser = Browser::new(&gateway);
    browser
        .sign_in(&email, crate::support::portal::PASSWORD)
        .await
        .assert_sent_to("/portal");
    let history = browser.get(&format!("{PAGE}/history")).await;
    assert!(history.assert_page().contains("Version 1"));
    assert!(!history.text.contains(SCRIPT));
    let back = [("to", "0"), ("based_on", "1")];
    let back = browser.post(&format!("{PAGE}/rollback"), &back).await;
    back.assert_sent_to(PAGE);
    assert_eq!(charge_of_a_call(&gateway).await, 5 * 2_000 + 100 * 9_000);
    let seen = browser.get(&format!("{PAGE}/history/2")).await;
    assert!(
        seen.assert_page()
            .contains("Added: </span>output = &quot;9.00&quot;")
    );
    gateway.stop().await;
}

#[tokio::test]
async fn of_two_operators_the_second_is_told_and_loses_nothing() {
    let gateway = TestGateway::start().await;
    let (first, second) = (person(&gateway).await, person(&gateway).await);
    let page = second.get(FORM).await;
    let mine = filled(page.assert_page(), &[("f.output", "77.00")]);
    change(&first, FORM, MODELS, &[("f.input", "3.00")])
        .await
        .assert_sent_to(PAGE);
    for step in ["preview", "apply"] {
        let refused = post(&second, MODELS, &mine, step).await;
        assert_eq!(refused.status, 409, "{}", refused.text);
        for text in [
            "changed in the meantime",
            &first.email,
            "value=\"77.00\"",
            "name=\"based_on\" value=\"1\"",
        ] {
            assert!(refused.text.contains(text), "{text} in {}", refused.text);
        }
    }
    assert_eq!(output_price(&gateway).await, "0.000009");
    let body = json!({ "changes": {}, "based_on": 0 });
    let stale = gateway
        .operate(Method::PUT, "/operator/config", Some(body))
        .await;
    stale.assert_error(
        409,
        "invalid_request_error",
        Some("configuration_changed"),
        Some("based_on"),
    );
    let stale = second
        .post(
            &format!("{PAGE}/rollback"),
            &[("to", "0"), ("based_on", "0")],
        )
        .await;
    assert_eq!(stale.status, 400);
    gateway.stop().await;
}

#[tokio::test]
async fn providers_deployments_and_aliases_are_added_and_removed() {
    let gateway = TestGateway::start().await;
    let browser = person(&gateway).await;
    let other = crate::support::FakeUpstream::start().await;
    other.answer_json(200, &completion("from the other"));
    let url = format!("http://{}/v1", other.address);
    let added = [
        (
            "providers",
            vec![
                ("name", "other"),
                ("f.kind", "openai"),
                ("f.base_url", &*url),
                ("f.timeouts.idle_seconds", "7"),
            ],
        ),
        (
            "deployments",
            vec![
                ("f.model", MODEL),
                ("f.provider", "other"),
                ("f.upstream_model", "theirs"),
            ],
        ),
        ("aliases", vec![("name", "gpt-*"), ("f.model", MODEL)]),
    ];
    for (based_on, (kind, fields)) in added.into_iter().enumerate() {
        let based_on = based_on.to_string();
        browser
            .get(&format!("{PAGE}/{kind}/new"))
            .await
            .assert_page();
        let mut all = vec![("based_on", &*based_on), ("new", "yes"), ("do", "apply")];
        all.extend(fields);
        browser
            .post(&format!("{PAGE}/{kind}"), &all)
            .await
            .assert_sent_to(PAGE);
    }
    let said = gateway.chat(&hello("gpt-9")).await;
    assert_eq!(
        said.assert_ok()["choices"][0]["message"]["content"],
        "from the other"
    );
    assert_eq!(other.last_body()["model"], "theirs");
    let page = browser.get(PAGE).await;
    for text in [
        "svc-standard@other/theirs",
        "Added here",
        "openai at http://127.0.0.1",
    ] {
        assert!(page.assert_page().contains(text), "{text}");
    }
    let gone = [
        ("name", "other"),
        ("intent", "revert"),
        ("based_on", "3"),
        ("do", "apply"),
    ];
    let refused = browser.post(&format!("{PAGE}/providers"), &gone).await;
    assert_eq!(refused.status, 400, "a deployment needs it");
    let gone = [
        ("name", "svc-standard@other/theirs"),
        ("intent", "revert"),
        ("based_on", "3"),
        ("do", "apply"),
    ];
    browser
        .post(&format!("{PAGE}/deployments"), &gone)
        .await
        .assert_sent_to(PAGE);
    answering(&gateway);
    let said = gateway.chat(&hello("gpt-9")).await;
    assert_eq!(said.assert_ok()["choices"][0]["message"]["content"], "Hi");
    let gone = [
        ("name", "svc-pro"),
        ("intent", "remove"),
        ("based_on", "4"),
        ("do", "preview"),
    ];
    let refused = browser.post(MODELS, &gone).await;
    assert_eq!(refused.status, 400, "hybrids choose it");
    assert!(
        refused
            .text
            .contains("has the target `svc-pro`, which is no plain model"),
        "{}",
        refused.text
    );
    let gone = [
        ("name", "svc-flex-beta-3.6"),
        ("intent", "remove"),
        ("based_on", "4"),
        ("do", "apply"),
    ];
    browser.post(MODELS, &gone).await.assert_sent_to(PAGE);
    assert_eq!(gateway.chat(&hello("svc-flex-beta-3.6")).await.status, 404);
    gateway.stop().await;
}
