//! The playground without scripts: its form gets a page with the answer.

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{
    Gate, RawConnection, Step, TestGateway,
    gateway::until,
    portal::{Browser, FORM, SCRIPT, Seen},
    upstream::{completion, response},
};

const MODEL: &str = "svc-standard";
const PATH: &str = "/portal/playground";

/// Opens the playground and sends a message with these other fields.
async fn send(browser: &Browser, message: &str, more: &[(&str, &str)]) -> Seen {
    browser.get(PATH).await.assert_page();
    send_again(browser, message, more).await
}

/// Sends a message from the page that is open.
async fn send_again(browser: &Browser, message: &str, more: &[(&str, &str)]) -> Seen {
    let model = more.iter().find(|(name, _)| *name == "model");
    let model = model.map_or(MODEL, |(_, model)| model);
    let mut fields = vec![("model", model), ("message", message)];
    fields.extend(more.iter().filter(|(name, _)| *name != "model"));
    browser.post(PATH, &fields).await
}

/// The value of a hidden field, as a browser would send it.
fn hidden(seen: &Seen, name: &str) -> String {
    let before = format!("name=\"{name}\" value=\"");
    let value = seen.between(&before, "\"");
    let value = value.replace("&quot;", "\"").replace("&lt;", "<");
    value.replace("&gt;", ">").replace("&amp;", "&")
}

/// The charge of the call with this request ID, in the ledger.
async fn charged(gateway: &TestGateway, request_id: &str) -> String {
    let path = format!("/operator/requests/{request_id}");
    let found = gateway.operate(Method::GET, &path, None).await;
    let charge = &found.assert_ok()["settlement"]["charge"];
    format!("${}", charge.as_str().unwrap().trim_end_matches('0'))
}

#[tokio::test]
async fn a_form_gets_the_answer_its_cost_and_the_conversation() {
    let gateway = TestGateway::start().await;
    let browser = Browser::signed_in(&gateway).await;
    gateway.upstream.answer_using(1_000, 400, 60, 50);
    let settings = [
        ("system", "Be brief."),
        ("temperature", "0.5"),
        ("max_tokens", "200"),
        ("stop", "END\r\nSTOP"),
        ("json", "on"),
    ];
    let seen = send(&browser, SCRIPT, &settings).await;
    let page = seen.assert_page();
    assert!(!page.contains(SCRIPT), "{page}");
    let sent = gateway.upstream.last_body();
    let messages = sent["messages"].as_array().unwrap();
    assert_eq!(
        messages.last().unwrap(),
        &json!({ "role": "user", "content": SCRIPT })
    );
    let system = messages[0]["content"].as_str().unwrap();
    assert!(system.ends_with("Be brief."), "{system}");
    assert_eq!(sent["temperature"], 0.5);
    assert_eq!(sent["stop"], json!(["END", "STOP"]));
    assert_eq!(sent["response_format"]["type"], "json_object");

    gateway.idle().await;
    let cost = charged(&gateway, seen.header("x-request-id")).await;
    assert_eq!(cost, "$0.00182");
    let shown = seen.between("<p class=\"meta\">", "</p>");
    assert!(
        shown.contains("1,000 tokens in, 60 out (50 reasoning)"),
        "{shown}"
    );
    assert!(shown.contains(&format!(">{cost}</a>")), "{shown}");
    let details = browser
        .get(seen.between(
            "<p class=\"meta\">1,000 tokens in, 60 out (50 reasoning) · <a href=\"",
            "\"",
        ))
        .await;
    assert!(details.assert_page().contains(&cost));

    // The next question has the first one and its answer; the settings are still filled in.
    assert!(seen.text.contains("value=\"0.5\""));
    let conversation = hidden(&seen, "conversation");
    let turns: Vec<Value> = serde_json::from_str(&conversation).unwrap();
    assert_eq!(turns[0]["content"], SCRIPT);
    let next = [("conversation", conversation.as_str())];
    let seen = send_again(&browser, "And now?", &next).await;
    seen.assert_page();
    let sent = gateway.upstream.last_body();
    let said: Vec<_> = sent["messages"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|message| message["role"] != "system")
        .map(|message| message["content"].as_str().unwrap())
        .collect();
    let answer = turns[1]["content"].as_str().unwrap();
    assert_eq!(said, [SCRIPT, answer, "And now?"]);

    // Another model gets the last message too. Both answers have their time, and the cost that the ledger has.
    let first = seen.header("x-request-id").to_owned();
    let conversation = hidden(&seen, "conversation");
    let compared = [
        ("conversation", conversation.as_str()),
        ("compare", "on"),
        ("model", "svc-basic"),
    ];
    let seen = send_again(&browser, "not sent yet", &compared).await;
    seen.assert_page();
    let sent = gateway.upstream.last_body();
    let asked = sent["messages"].as_array().unwrap().last().unwrap();
    assert_eq!(asked["content"], "And now?");
    gateway.idle().await;
    let (_, latest) = seen.text.split_once("And now?</p>").unwrap();
    let metas: Vec<_> = latest.split("<p class=\"meta\">").skip(1).collect();
    let requests = [first.as_str(), seen.header("x-request-id")];
    assert_eq!(metas.len(), requests.len(), "{latest}");
    for (meta, request_id) in metas.iter().zip(requests) {
        let cost = charged(&gateway, request_id).await;
        let meta = meta.split("</p>").next().unwrap();
        assert!(meta.contains(&format!(">{cost}</a> · ")), "{meta}");
        assert!(meta.ends_with("s in total"), "{meta}");
    }
    assert!(latest.contains("<h2>svc-basic</h2>"), "{latest}");
    assert!(seen.text.contains("required>not sent yet</textarea>"));
    gateway.stop().await;
}

#[tokio::test]
async fn a_form_is_sent_once_and_a_wrong_one_not_at_all() {
    let gateway = TestGateway::start().await;
    let browser = Browser::signed_in(&gateway).await;
    let page = browser.get(PATH).await;
    let once = hidden(&page, "once");
    let fields = [("once", once.as_str())];
    send_again(&browser, "Hello", &fields).await.assert_page();
    let again = send_again(&browser, "Hello", &fields).await;
    assert!(again.text.contains("was sent before"), "{}", again.text);
    assert_ne!(hidden(&again, "once"), once);
    assert_eq!(gateway.upstream.calls(), 1);

    for (message, field, said) in [
        ("", ("seed", ""), "Write a message first."),
        (
            "Hello",
            ("temperature", "hot"),
            "Temperature must be a number",
        ),
        ("Hello", ("temperature", "9"), "temperature"),
        (
            "Hello",
            ("conversation", "[{}]"),
            "The conversation could not be read.",
        ),
    ] {
        let refused = send(&browser, message, &[field]).await;
        assert_eq!(refused.status, 400, "{said}");
        let problem = refused.between("<p class=\"problem\" role=\"alert\">", "</p>");
        assert!(problem.contains(said), "{problem}");
        let kept = format!("required>{message}</textarea>");
        assert!(refused.text.contains(&kept), "{}", refused.text);
    }
    let long = "x".repeat(600 << 10);
    assert_eq!(send(&browser, &long, &[]).await.status, 413);
    assert_eq!(gateway.upstream.calls(), 1);

    // It has the status of the endpoint, and the message to send again.
    gateway.upstream.answer(500, "text/plain", "busy");
    let failed = send(&browser, "Hello again", &[]).await;
    assert_eq!(failed.status, 502);
    assert!(failed.text.contains("required>Hello again</textarea>"));
    assert!(
        failed
            .between("role=\"alert\">", "</p>")
            .contains("Retry in a moment")
    );
    gateway.stop().await;
}

/// What the endpoint refuses is listed as if a script had sent it, and the page of the form leads there.
#[tokio::test]
async fn a_refused_form_is_listed_and_leads_to_its_request() {
    let gateway = TestGateway::start().await;
    let browser = Browser::signed_in(&gateway).await;
    let opened = async |refused: &Seen| {
        let problem = refused.between("<p class=\"problem\" role=\"alert\">", "</p>");
        let (_, link) = problem.split_once("<a href=\"").unwrap();
        let (path, link) = link.split_once('"').unwrap();
        assert_eq!(link, ">See the request</a>");
        assert_eq!(
            path,
            format!("/portal/requests/{}", refused.header("x-request-id"))
        );
        let page = browser.get(path).await;
        page.assert_page();
        page.text
    };
    let unknown = send(&browser, "Hello", &[("model", "no-such-model")]).await;
    assert_eq!(unknown.status, 404);
    let page = opened(&unknown).await;
    for told in [
        "Unknown model",
        "<dd>Playground</dd>",
        "<dt>Endpoint</dt><dd>Playground</dd>",
        "<code>no-such-model</code>",
        "Nothing was charged",
    ] {
        assert!(page.contains(told), "{told}: {page}");
    }
    // What is wrong in the form is no request.
    assert_eq!(send(&browser, "", &[]).await.status, 400);
    // A call that failed is a call, and is listed once.
    gateway.upstream.answer(500, "text/plain", "busy");
    let failed = send(&browser, "Hello", &[]).await;
    assert_eq!(failed.status, 502);
    gateway.idle().await;
    assert!(opened(&failed).await.contains("Request <code"));
    // The key of the playground does not work while it is disabled, with and without a script.
    let keys = browser.get("/portal/keys").await;
    let key = format!("key_{}", keys.between("/portal/keys/key_", "\""));
    browser
        .post(&format!("/portal/keys/{key}/disable"), &[])
        .await;
    let disabled = send(&browser, "Hello", &[]).await;
    assert_eq!(disabled.status, 401);
    let page = opened(&disabled).await;
    assert!(page.contains("Invalid API key"), "{page}");
    let run = browser.request(Method::POST, "/portal/playground/run");
    let run = run
        .header("origin", browser.origin())
        .header("x-form-token", browser.token())
        .json(&json!({ "model": MODEL, "messages": [] }));
    assert_eq!(browser.send(run).await.status, 401);
    let list = browser.get("/portal/requests").await;
    let listed = |kind: &str| {
        let links = list.text.split("href=\"/portal/requests/").skip(1);
        links.filter(|link| link.starts_with(kind)).count()
    };
    assert_eq!((listed("refused_"), listed("call_")), (3, 1));
    gateway.stop().await;
}

/// The memory of a form is that of its account's bodies, until the page is made.
#[tokio::test]
async fn a_long_form_counts_as_a_body_of_its_account() {
    // Half of a long form reserves two steps of 256 KiB, six times each, and 64 KiB for its first piece. The share of an
    // account is 6 MiB.
    const HALF: usize = (64 << 10) + 2 * 6 * (256 << 10);
    let gateway = TestGateway::start_set(&[
        ("SERVER__MAX_BODY_BYTES", "2097152"),
        ("SERVER__BODY_MEMORY_BYTES", "25165824"),
        ("SERVER__BODY_MEMORY_SHARE_PERCENT", "25"),
    ])
    .await;
    let reserved = || gateway.inside().body_memory.reserved();
    let browser = Browser::signed_in(&gateway).await;
    let session = browser.cookie("tollgate-session").unwrap();
    let mut stuck = RawConnection::open(gateway.public).await;
    let head = format!(
        "POST {PATH} HTTP/1.1\r\nhost: {}\r\norigin: {}\r\ncookie: tollgate-session={session}\r\n\
         content-type: {FORM}\r\ncontent-length: 520000\r\n\r\n",
        gateway.public,
        browser.origin(),
    );
    stuck.send(head).await;
    stuck.send("x".repeat(450_000)).await;
    until("its memory is reserved", || reserved() == HALF).await;
    let padding = "x".repeat(450_000);
    let long = [("unknown", padding.as_str())];
    let refused = send(&browser, "Hello", &long).await;
    assert_eq!(refused.status, 503, "{}", refused.text);
    assert_eq!(refused.header("retry-after"), "2");
    assert!(refused.text.contains("Too many long forms"));
    assert_eq!(gateway.upstream.calls(), 0);
    until("only the first counts", || reserved() == HALF).await;

    // Other accounts are served, and their forms count while they wait for an answer.
    let gate = Gate::default();
    let answer = completion("Good day").to_string();
    let answer = response(200, "application/json", &answer);
    gateway
        .upstream
        .play(vec![Step::Until(gate.clone()), Step::Send(answer)]);
    let other = Browser::signed_in(&gateway).await;
    let (seen, ()) = tokio::join!(send(&other, "Hello", &long), async {
        until("the model is asked", || gateway.upstream.calls() == 1).await;
        let kept = reserved() - HALF;
        assert!(kept > 6 * (padding.len() - (64 << 10)), "{kept}");
        gate.open();
    });
    assert!(seen.assert_page().contains("Good day"));
    until("its memory is released", || reserved() == HALF).await;
    drop(stuck);
    until("all of it is released", || reserved() == 0).await;
    gateway.stop().await;
}

#[tokio::test]
async fn a_form_of_another_site_or_role_asks_no_model() {
    let gateway = TestGateway::start().await;
    let browser = Browser::signed_in(&gateway).await;
    browser.get(PATH).await.assert_page();
    let body = crate::support::portal::encoded(&[
        ("token", &browser.token()),
        ("model", MODEL),
        ("message", "Hello"),
    ]);
    let foreign = browser
        .request(Method::POST, PATH)
        .header("origin", "https://evil.example")
        .header("content-type", crate::support::portal::FORM)
        .body(body);
    assert_eq!(browser.send(foreign).await.status, 403);
    let viewer = browser.member(&gateway, "viewer").await;
    viewer.get("/portal/settings").await.assert_page();
    assert_eq!(send_again(&viewer, "Hello", &[]).await.status, 403);
    assert_eq!(gateway.upstream.calls(), 0);
    gateway.stop().await;
}

#[tokio::test]
async fn the_playgrounds_key_is_no_first_step() {
    let gateway = TestGateway::start().await;
    let browser = Browser::signed_in(&gateway).await;
    // The key is created before the request is refused, so the account has a key and no calls.
    let refused = send(&browser, "Hello", &[("model", "no-such-model")]).await;
    assert_eq!(refused.status, 404, "{}", refused.text);
    let keys = browser.get("/portal/keys").await;
    assert!(keys.text.contains("Playground</th>"), "{}", keys.text);
    let overview = browser.get("/portal").await;
    assert!(overview.text.contains("Create an API key"));
    assert!(!overview.text.contains("You have an API key"));
    browser.new_key("laptop").await;
    let overview = browser.get("/portal").await;
    assert!(overview.text.contains("You have an API key"));
    gateway.stop().await;
}
