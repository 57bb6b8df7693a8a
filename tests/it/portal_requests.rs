//! Portal pages about requests and money: amounts agree on all pages, and each account sees only its own.

use serde_json::{Value, json};

use crate::support::{
    Plan, Step,
    admin::{Admin, links, rows},
    bodies::hello_with,
    gateway::hello,
    turns::{CONVERT, Turn},
    upstream::{chunk, events, stream_head},
};

const MODEL: &str = "svc-standard";

/// Sends a chat completion with this `X-Request-ID`.
async fn chat_with_id(admin: &Admin, id: &str, body: &Value) -> u16 {
    let url = admin.gateway.url("/v1/chat/completions");
    let request = admin.gateway.client.post(url).bearer_auth(&admin.key);
    let response = request.header("x-request-id", id).json(body).send().await;
    let response = response.unwrap();
    let status = response.status().as_u16();
    response.bytes().await.unwrap();
    status
}

/// The details page of the only request.
async fn request_page(admin: &Admin) -> String {
    admin.gateway.idle().await;
    let listed = admin.listed("/portal/requests").await;
    assert_eq!(listed.len(), 1, "{listed:?}");
    admin.page(&listed[0]).await
}

#[tokio::test]
async fn request_details_are_exact_to_the_nano_dollar() {
    let admin = Admin::open().await;
    admin.gateway.upstream.answer_using(1_000, 400, 60, 50);
    let body = hello_with(MODEL, json!({ "max_tokens": 200 }));
    assert_eq!(chat_with_id(&admin, "order 66", &body).await, 200);
    let page = request_page(&admin).await;
    // 600 × 2,000 + 400 × 200 + 60 × 9,000 nano-dollars.
    let expected = [
        vec!["Tokens", "Count", "Rate per million", "Amount"],
        vec!["Input", "600", "$2.00", "$0.0012"],
        vec!["Cached input", "400", "$0.20", "$0.00008"],
        vec!["Output (50 of them reasoning)", "60", "$9.00", "$0.00054"],
        vec!["Charged", "$0.00182"],
    ];
    assert_eq!(rows(&page, "Cost breakdown"), expected);
    for told in [
        "order 66",
        "laptop",
        &admin.key[..12],
        MODEL,
        "$1,000.00",
        "$999.99818",
        "The model answered in full.",
        "Not streamed",
    ] {
        assert!(page.contains(told), "{told}: {page}");
    }
    // Customers do not see the provider, and no page shows content or keys.
    for inner in ["fake", "vendor-model", "Hello", "Hi<", &admin.key[12..]] {
        assert!(!page.contains(inner), "{inner}: {page}");
    }
    let listed = rows(
        &admin.page("/portal/requests").await,
        "Requests, newest first",
    );
    assert_eq!(listed.len(), 2);
    assert_eq!(listed[1][2..6], [MODEL, "1,000", "60", "$0.00182"]);
    let history = rows(
        &admin.page("/portal/billing").await,
        "Everything that changed the balance, newest first; days in UTC",
    );
    assert_eq!(
        history[1][1..],
        ["Charges for 1 request", "1,060", "−$0.00182", "$999.99818"]
    );
    assert_eq!(
        history[2][1..],
        ["Credit added: a gift", "+$1,000.00", "$1,000.00"]
    );
}

#[tokio::test]
async fn outcomes_are_shown_without_internal_details() {
    let admin = Admin::open().await;
    admin.gateway.upstream.answer(529, "text/plain", "busy");
    assert_eq!(chat_with_id(&admin, "failed", &hello(MODEL)).await, 502);
    let page = request_page(&admin).await;
    for told in [
        "The model could not answer",
        "Nothing was charged.",
        "No response",
    ] {
        assert!(page.contains(told), "{told}: {page}");
    }
    for inner in ["status 529", "fake", "busy", "attempt"] {
        assert!(!page.contains(inner), "{inner}: {page}");
    }
    let head = String::from_utf8(stream_head()).unwrap();
    let begun = events(&[chunk(json!({ "content": "Hal" }), None)]);
    let begun = begun.strip_suffix("data: [DONE]\n\n").unwrap_or(&begun);
    let cut = Step::Send(format!("{head}{begun}").into_bytes());
    admin.gateway.upstream.play(vec![cut, Step::Reset]);
    let stream = hello_with(MODEL, json!({ "stream": true }));
    assert_eq!(chat_with_id(&admin, "cut", &stream).await, 200);
    admin.gateway.idle().await;
    let listed = admin.listed("/portal/requests?outcome=interrupted").await;
    let page = admin.page(&listed[0]).await;
    let again = "It is safe to send the whole request again.";
    for told in ["broke off before its end", "Streamed", again] {
        assert!(page.contains(told), "{told}: {page}");
    }
    // The provider says in the middle that the conversation is too long.
    let too_long =
        json!({ "error": { "code": "context_length_exceeded", "message": "Too long." } });
    let cut = Step::Send(format!("{head}{begun}data: {too_long}\n\n").into_bytes());
    admin.gateway.upstream.play(vec![cut, Step::Reset]);
    assert_eq!(chat_with_id(&admin, "long", &stream).await, 200);
    admin.gateway.idle().await;
    let listed = admin.listed("/portal/requests?outcome=interrupted").await;
    let page = admin.page(&listed[0]).await;
    assert!(page.contains("it will fail again"), "{page}");
    assert!(!page.contains("safe to send"), "{page}");
}

#[tokio::test]
async fn tools_are_named_without_their_results() {
    let admin = Admin::open().await;
    let turns = [Turn::calls(&[CONVERT]), Turn::says("A billion.")];
    admin.gateway.upstream.converse(turns);
    admin
        .gateway
        .chat_as(&admin.key, &hello(MODEL))
        .await
        .assert_ok();
    let page = request_page(&admin).await;
    let steps = rows(&page, "Steps, in order");
    let told: Vec<_> = steps[1..]
        .iter()
        .map(|step| (step[0].as_str(), step[1].as_str()))
        .collect();
    let expected = [
        ("The model answered", "11 tokens in, 3 out"),
        ("Tool convert_units", "Done"),
        ("The model answered", "11 tokens in, 3 out"),
    ];
    assert_eq!(told, expected);
    for content in ["gwei", "ether", "billion.", "fake"] {
        assert!(!page.contains(content), "{content}: {page}");
    }
}

#[tokio::test]
async fn another_accounts_request_is_not_found() {
    let admin = Admin::open().await;
    let (account, key) = admin.gateway.account(Plan::FLEX).await;
    admin.gateway.chat_as(&key, &hello(MODEL)).await.assert_ok();
    admin.gateway.idle().await;
    let theirs = admin.gateway.inside().ledger.usage(&account, 0, i64::MAX);
    let theirs = theirs.await.unwrap().remove(0);
    let mut pages = Vec::new();
    let foreign = format!("/portal/requests/{}", theirs.id);
    for path in [
        foreign.as_str(),
        "/portal/requests/call_0000000000000",
        "/portal/requests/call_zzzzzzzzzzzzz",
        "/portal/requests/%FF",
        "/portal/requests/nonsense",
    ] {
        let page = admin.browser.get(path).await;
        assert_eq!(page.status, 404, "{path}");
        // The token of the forms is masked anew in each page.
        let token = page.between("name=\"token\" value=\"", "\"").to_owned();
        pages.push(page.text.replace(&token, ""));
    }
    assert!(
        pages.iter().all(|page| *page == pages[0]),
        "no page tells more than another"
    );
    let key = format!("/portal/requests?key={}", theirs.payer.key_id);
    assert!(admin.listed(&key).await.is_empty());
    assert!(admin.listed("/portal/requests").await.is_empty());
}

#[tokio::test]
async fn requests_are_filtered_by_key_model_and_outcome() {
    let admin = Admin::open().await;
    let (second_id, second) = admin.new_key("server").await;
    admin
        .gateway
        .chat_as(&admin.key, &hello(MODEL))
        .await
        .assert_ok();
    admin
        .gateway
        .chat_as(&second, &hello(MODEL))
        .await
        .assert_ok();
    admin
        .gateway
        .chat_as(&second, &hello("svc-basic"))
        .await
        .assert_ok();
    admin.gateway.upstream.answer(500, "text/plain", "no");
    assert_eq!(
        admin.gateway.chat_as(&second, &hello(MODEL)).await.status,
        502
    );
    admin.gateway.idle().await;
    for (query, expected) in [
        (String::new(), 4),
        ("?key=&model=&outcome=".into(), 4),
        (format!("?key={second_id}"), 3),
        (format!("?key={}", admin.key_id), 1),
        ("?model=svc-basic".into(), 1),
        (format!("?model={MODEL}&key={second_id}"), 2),
        ("?outcome=provider_failed".into(), 1),
        (
            format!("?outcome=answered&key={second_id}&model={MODEL}"),
            1,
        ),
        ("?model=nothing".into(), 0),
        ("?key=key_nobodys".into(), 0),
        ("?model=%00".into(), 0),
    ] {
        let listed = admin.listed(&format!("/portal/requests{query}")).await;
        assert_eq!(listed.len(), expected, "{query}");
    }
    for query in ["?outcome=splendid", "?before=yesterday", "?key=a&key=b"] {
        let page = admin.browser.get(&format!("/portal/requests{query}")).await;
        assert_eq!(page.status, 400, "{query}");
    }
}

#[tokio::test]
async fn pages_of_requests_follow_each_other_without_a_gap() {
    let admin = Admin::open().await;
    for _ in 0..53 {
        admin
            .gateway
            .chat_as(&admin.key, &hello(MODEL))
            .await
            .assert_ok();
    }
    admin.gateway.idle().await;
    for (start, next) in [("/portal/requests?model=svc-standard", "/portal/requests?")] {
        let first = admin.page(start).await;
        let mut all = links(&first, "/portal/requests/call_");
        assert_eq!(all.len(), 50, "{start}");
        let onward = links(&first, next);
        let onward = onward.iter().find(|link| link.contains("before=")).unwrap();
        // A new request does not shift the following pages.
        admin
            .gateway
            .chat_as(&admin.key, &hello(MODEL))
            .await
            .assert_ok();
        admin.gateway.idle().await;
        let second = admin.page(onward).await;
        let further = links(&second, next);
        assert!(
            !further.iter().any(|link| link.contains("before=")),
            "{second}"
        );
        all.extend(links(&second, "/portal/requests/call_"));
        let shown = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), shown, "{start}: none twice");
        assert!((53..=54).contains(&shown), "{start}: {shown}");
    }
}

#[tokio::test]
async fn expiring_credit_is_shown_with_its_reason_and_date() {
    let admin = Admin::open().await;
    admin
        .grant(json!({
            "amount": "5.50", "reason": "Trial <b>week</b>", "expires_at": "2099-01-31T12:30:00Z",
        }))
        .await;
    let page = admin.page("/portal/billing").await;
    let left = rows(&page, "Credit that expires first is used first");
    assert_eq!(
        left[1],
        [
            "Trial &lt;b&gt;week&lt;/b&gt;",
            "$5.50",
            "$0.00",
            "31 Jan 2099, 12:30:00 UTC"
        ]
    );
    assert_eq!(left[2], ["a gift", "$1,000.00", "$0.00", "Never"]);
    assert!(page.contains("$1,005.50"), "{page}");
    let bad = admin.browser.get("/portal/billing?before=never").await;
    assert_eq!(bad.status, 400);
}
