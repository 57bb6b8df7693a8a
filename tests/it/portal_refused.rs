//! The portal's and the console's pages of refused requests: who sees which, and how they are found.

use reqwest::Method;
use serde_json::json;

use crate::support::{
    Answer, TestGateway,
    admin::{Admin, links, rows},
    console,
    gateway::{answer, hello},
    portal::{Browser, PASSWORD, SCRIPT, encoded},
    refused::{page_of, request_id},
};

const MODEL: &str = "svc-standard";
const LIST: &str = "/portal/requests";
const REFUSED: &str = "/portal/requests/refused";

async fn send(gateway: &TestGateway, key: &str, id: &str, model: &str) -> Answer {
    let request = gateway.client.post(gateway.url("/v1/chat/completions"));
    let request = request.bearer_auth(key).header("x-request-id", id);
    answer(request.json(&hello(model))).await
}

/// The status of a page of another account's or nobody's request.
async fn status(browser: &Browser, path: &str) -> u16 {
    browser.get(path).await.status
}

#[tokio::test]
async fn a_link_leads_through_signing_in_to_what_was_wrong() {
    let admin = Admin::open().await;
    let refused = send(&admin.gateway, &admin.key, "order 66/ü?", "no-such-model").await;
    let path = page_of(&admin.gateway, refused.error());
    assert_eq!(path, "/portal/requests/order%2066%2F%C3%BC%3F");
    let visitor = Browser::new(&admin.gateway);
    let sign_in = visitor.get(&path).await;
    let to = sign_in.header("location").to_owned();
    assert!(to.starts_with("/portal/sign-in?to="), "{to}");
    let form = visitor.get(&to).await;
    let to = form.between("name=\"to\" value=\"", "\"");
    let fields = [
        ("email", &*admin.browser.email),
        ("password", PASSWORD),
        ("to", to),
    ];
    let signed_in = visitor.post("/portal/sign-in", &fields).await;
    signed_in.assert_sent_to(&path);
    let page = visitor.get(&path).await;
    for told in [
        "Unknown model",
        "no-such-model",
        "See all models",
        "order 66/ü?",
        "laptop",
    ] {
        assert!(page.assert_page().contains(told), "{told}: {}", page.text);
    }
    assert!(
        page.text
            .contains("1 time in the last hour and 1 time in the last 24 hours")
    );
}

#[tokio::test]
async fn requests_are_found_by_their_ids() {
    let admin = Admin::open().await;
    let (gateway, key) = (&admin.gateway, &admin.key);
    send(gateway, key, "only", "nope").await;
    send(gateway, key, "served", MODEL).await.assert_ok();
    for model in [MODEL, "nope", "nope"] {
        send(gateway, key, "retried", model).await;
    }
    gateway.idle().await;
    let console = console::with_token(gateway).await;
    for (browser, list, find) in [
        (&admin.browser, "/portal/requests", "/portal/requests/find"),
        (
            &console,
            "/portal/console/requests",
            "/portal/console/requests",
        ),
    ] {
        let page = browser.get(list).await;
        assert!(page.assert_page().contains("name=\"id\""), "{}", page.text);
        let found = async |id: &str| {
            browser
                .get(&format!("{find}?{}", encoded(&[("id", id)])))
                .await
        };
        for (id, told) in [("only", "Unknown model"), ("served", "Answered")] {
            let sent = found(id).await;
            assert_eq!(sent.status, 303, "{id}: {}", sent.text);
            let page = browser.get(sent.header("location")).await;
            let told = if list.contains("console") && id == "served" {
                "answered"
            } else {
                told
            };
            assert!(page.assert_page().contains(told), "{id}: {}", page.text);
        }
        let several = found("retried").await;
        let page = several.assert_page();
        assert_eq!(rows(page, "Requests, newest first").len(), 2, "{page}");
        assert_eq!(
            rows(page, "Refused requests, newest first").len(),
            3,
            "{page}"
        );
        for unknown in [
            "nothing",
            SCRIPT,
            "\0",
            "call_0000000000000",
            "../../portal",
        ] {
            let page = found(unknown).await;
            assert!(
                page.assert_page().contains("No matching requests"),
                "{unknown}"
            );
            assert!(!page.text.contains(SCRIPT));
        }
    }
    // The page of an ID that several requests have is a list of them.
    let page = admin.page("/portal/requests/retried").await;
    let listed = links(&page, "/portal/requests/refused_");
    assert_eq!(listed.len(), 2);
    assert!(admin.page(&listed[0]).await.contains("retried"));
}

#[tokio::test]
async fn refused_requests_are_seen_by_those_who_see_their_keys() {
    let gateway = TestGateway::start().await;
    let owner = Browser::signed_in(&gateway).await;
    let developer = owner.member(&gateway, "developer").await;
    let viewer = owner.member(&gateway, "viewer").await;
    let stranger = Browser::signed_in(&gateway).await;
    let (_, of_owner) = owner.new_key("of-owner").await;
    let (_, of_developer) = developer.new_key("of-developer").await;
    let (_, of_stranger) = stranger.new_key("of-stranger").await;
    for (key, id) in [
        (&of_owner, "owners"),
        (&of_developer, "developers"),
        (&of_stranger, "strangers"),
    ] {
        let refused = send(&gateway, key, id, "nope").await;
        assert_eq!(refused.status, 404);
        assert_eq!(request_id(&refused), id);
    }
    let page = |id: &str| format!("/portal/requests/{id}");
    for (browser, seen) in [
        (&owner, [200, 200, 404]),
        (&developer, [404, 200, 404]),
        (&viewer, [403, 403, 403]),
        (&stranger, [404, 404, 200]),
    ] {
        for (id, expected) in ["owners", "developers", "strangers"].into_iter().zip(seen) {
            assert_eq!(
                status(browser, &page(id)).await,
                expected,
                "{} {id}",
                browser.email
            );
        }
    }
    assert_eq!(status(&viewer, REFUSED).await, 403);
    let of = |text: &str| links(text, "/portal/requests/refused_");
    let owners = owner.get(REFUSED).await;
    assert_eq!(of(owners.assert_page()).len(), 2);
    let developers = developer.get(REFUSED).await;
    let own = of(developers.assert_page());
    assert_eq!(own.len(), 1);
    let counted = rows(&developers.text, "Refused in the last 24 hours");
    assert_eq!(counted[1], ["Unknown model", "model_not_found", "404", "1"]);
    // By the ID of the record, too.
    for path in of(&owners.text) {
        assert_eq!(status(&stranger, &path).await, 404, "{path}");
        let expected = if path == own[0] { 200 } else { 404 };
        assert_eq!(status(&developer, &path).await, expected, "{path}");
    }
    // The console has all of them, and it is not for customers.
    let list = "/portal/console/requests/refused";
    assert_eq!(status(&owner, list).await, 404);
    let console = console::with_token(&gateway).await;
    let all = console.get(list).await;
    let all = links(all.assert_page(), "/portal/console/requests/refused_");
    assert_eq!(all.len(), 3);
    let details = console.get(&all[0]).await;
    assert!(
        details.assert_page().contains(&stranger.account_id),
        "{}",
        details.text
    );
    for told in ["What to do", "Check the spelling of the model’s name."] {
        assert!(details.text.contains(told), "{told}: {}", details.text);
    }
    let email = owner.email.replace('@', "%40");
    for (query, count) in [
        (format!("account={}", owner.account_id), 2),
        (format!("account={email}&last=1h"), 2),
        (format!("account={email}&to=2020-01-01"), 0),
        ("model=nope&status=404&code=model_not_found".into(), 3),
        ("model=nope&status=429".into(), 0),
    ] {
        let page = console.get(&format!("{list}?{query}")).await;
        let listed = links(page.assert_page(), "/portal/console/requests/refused_");
        assert_eq!(listed.len(), count, "{query}");
    }
    let unclear = console.get(&format!("{list}?account=person")).await;
    assert!(unclear.assert_page().contains("Several accounts match"));
    assert_eq!(status(&owner, &all[0]).await, 404);
}

#[tokio::test]
async fn what_the_playground_was_refused_is_shown_below_the_first_steps() {
    let admin = Admin::open().await;
    refused_playground(&admin).await;
    for (listed, has_steps) in [(1, true), (2, false)] {
        let page = admin.page("/portal").await;
        assert_eq!(page.contains("Your first request"), has_steps, "{page}");
        let latest = rows(&page, "Requests, newest first");
        assert_eq!(latest.len(), 1 + listed, "{latest:?}");
        assert!(latest[listed][7].contains("Invalid request"), "{latest:?}");
        send(&admin.gateway, &admin.key, "order", "nope").await;
    }
}

/// Sends a message to an unknown model in the playground.
async fn refused_playground(admin: &Admin) -> Answer {
    let playground = admin.browser.get("/portal/playground").await;
    let token = playground.between("data-token=\"", "\"").to_owned();
    let run = admin
        .browser
        .request(Method::POST, "/portal/playground/run");
    let run = run
        .header("origin", admin.browser.origin())
        .header("x-form-token", token);
    answer(run.json(&json!({ "model": "nope", "messages": [] }))).await
}

#[tokio::test]
async fn the_list_has_pages_and_filters() {
    let admin = Admin::open().await;
    for number in 0..60 {
        let model = if number % 10 == 0 { "other" } else { SCRIPT };
        send(&admin.gateway, &admin.key, &format!("r{number}"), model).await;
    }
    let request = admin.gateway.client.get(admin.gateway.url("/v1/nope"));
    assert_eq!(answer(request.bearer_auth(&admin.key)).await.status, 404);
    let of = |page: &str| links(page, "/portal/requests/refused_");
    let first = admin.page(REFUSED).await;
    assert!(!first.contains(SCRIPT));
    let older = links(&first, &format!("{REFUSED}?before="));
    let second = admin.page(&older[0]).await;
    let (first_page, second_page) = (of(&first), of(&second));
    assert_eq!((first_page.len(), second_page.len()), (50, 11));
    assert!(first_page.iter().all(|link| !second_page.contains(link)));
    let counted = rows(&first, "Refused in the last 24 hours");
    assert_eq!(counted[1][3], "60");
    assert_eq!(counted[2], ["Unknown path", "route_not_found", "404", "1"]);
    let filter = links(&first, &format!("{REFUSED}?status=404&amp;code=route"));
    assert_eq!(of(&admin.page(&filter[0]).await).len(), 1);
    let row = rows(&first, "Refused requests, newest first").swap_remove(1);
    assert_eq!(row[4..6], ["404", "route_not_found"]);
    assert!(row[6].contains("there is no"), "{row:?}");
    let (advice, reason) = (&row[7], &row[8]);
    assert!(advice.starts_with("Check the base URL"), "{row:?}");
    assert_eq!(reason, "Unknown path");
    for (query, count) in [
        ("model=other".to_owned(), 6),
        ("model=other&last=1h".to_owned(), 6),
        ("model=other&to=2020-01-01".to_owned(), 0),
        (format!("code=route_not_found&key={}", admin.key_id), 1),
        ("key=key_none".to_owned(), 0),
    ] {
        let page = admin.page(&format!("{REFUSED}?{query}")).await;
        assert_eq!(of(&page).len(), count, "{query}");
    }
    // The filter stays in the form.
    let path = format!(
        "{REFUSED}?key={}&status=404&code=x&from=2020-01-01",
        admin.key_id
    );
    let page = admin.page(&path).await;
    for told in [
        "name=\"status\"",
        "value=\"404\"",
        "value=\"x\"",
        "value=\"2020-01-01T00:00:00\"",
        &format!("<option value=\"{}\" selected>", admin.key_id),
    ] {
        assert!(page.contains(told), "{told}: {page}");
    }
    for wrong in ["status=x", "before=x", "status=0", "from=soon"] {
        let refused = admin.browser.get(&format!("{REFUSED}?{wrong}")).await;
        assert_eq!(refused.status, 400, "{wrong}");
    }
    // A key of the playground is a known key.
    let refused = refused_playground(&admin).await;
    let page = admin
        .page(&page_of(&admin.gateway, &refused.body["error"]))
        .await;
    assert!(page.contains("<dd>Playground</dd>"), "{page}");
}

#[tokio::test]
async fn the_list_of_requests_has_served_and_refused_ones_in_their_order() {
    let admin = Admin::open().await;
    let mut sent = Vec::new();
    for number in 0..60 {
        let (id, model) = (
            format!("r{number}"),
            if number % 2 == 0 { MODEL } else { "nope" },
        );
        send(&admin.gateway, &admin.key, &id, model).await;
        sent.push(id);
    }
    admin.gateway.idle().await;
    let mut shown = Vec::new();
    let mut path = LIST.to_owned();
    for on_page in [50, 10] {
        let page = admin.page(&path).await;
        let listed = links(&page, &format!("{LIST}/"));
        let listed: Vec<_> = listed
            .into_iter()
            .filter(|link| link.contains("/call_") || link.contains("/refused_"))
            .collect();
        assert_eq!(listed.len(), on_page, "{path}");
        shown.extend(listed);
        path = links(&page, &format!("{LIST}?before="))
            .pop()
            .unwrap_or_default();
    }
    let kinds: Vec<_> = shown.iter().map(|link| link.contains("/call_")).collect();
    assert_eq!(kinds.iter().filter(|is_call| **is_call).count(), 30);
    shown.sort_unstable();
    shown.dedup();
    assert_eq!(shown.len(), sent.len(), "none twice");
    for (query, count) in [
        ("outcome=errors", 30),
        ("outcome=refused", 30),
        ("outcome=answered", 30),
        ("outcome=refused&model=nope", 30),
        ("outcome=refused&model=other", 0),
        ("outcome=refused&project=default", 30),
        ("outcome=refused&project=proj_other", 0),
        ("outcome=refused&session=none", 0),
        ("outcome=refused&to=2020-01-01", 0),
        ("status=404", 30),
        ("code=model_not_found&model=nope", 30),
        ("status=429", 0),
        ("outcome=answered&status=404", 0),
    ] {
        let page = admin.page(&format!("{LIST}?{query}")).await;
        let listed = links(&page, &format!("{LIST}/"));
        let listed = listed
            .iter()
            .filter(|link| link.contains("/call_") || link.contains("/refused_"));
        assert_eq!(listed.count(), count, "{query}");
    }
    // Not one of another account.
    let other = Browser::signed_in(&admin.gateway).await;
    let page = other.get(&format!("{LIST}?outcome=refused")).await;
    assert!(links(page.assert_page(), &format!("{LIST}/refused_")).is_empty());
}
