//! What each role sees of the keys, the usage and the requests of others.

use reqwest::Method;
use serde_json::json;

use crate::support::{
    TestGateway,
    admin::links,
    gateway::hello,
    portal::{Browser, Seen},
};

const MODEL: &str = "svc-standard";

/// An account with an owner and two developers, each with a key and a request.
struct Team {
    gateway: TestGateway,
    owner: Browser,
    one: Browser,
    other: Browser,
    /// Key IDs, by name.
    keys: Vec<(&'static str, String, String)>,
}

impl Team {
    async fn new() -> Self {
        let gateway = TestGateway::start().await;
        let owner = Browser::signed_in(&gateway).await;
        let one = owner.member(&gateway, "developer").await;
        let mut other = Browser::new(&gateway);
        other.email = "other@example.com".into();
        let link = owner.invite(&other.email, "developer").await;
        other.join(&link).await.assert_sent_to("/portal");
        let mut keys = Vec::new();
        for (browser, name) in [(&owner, "of-owner"), (&one, "of-one"), (&other, "of-other")] {
            let (id, key) = browser.new_key(name).await;
            gateway.chat_as(&key, &hello(MODEL)).await.assert_ok();
            keys.push((name, id, key));
        }
        gateway.idle().await;
        Self {
            gateway,
            owner,
            one,
            other,
            keys,
        }
    }

    async fn key(&self, browser: &Browser, fields: &[(&str, &str)]) -> String {
        browser.get("/portal/keys").await.assert_page();
        let made = browser.post("/portal/keys", fields).await;
        made.assert_page();
        format!("sk-svc-{}", made.between("id=\"new-key\">sk-svc-", "<"))
    }

    async fn calls(&self, browser: &Browser) -> Vec<String> {
        let list = browser.get("/portal/requests").await;
        links(list.assert_page(), "/portal/requests/call_")
    }
}

fn names(seen: &Seen) -> Vec<&'static str> {
    let all = ["of-owner", "of-one", "of-other", "of-service"];
    let shown = all.into_iter().filter(|name| seen.text.contains(*name));
    shown.collect()
}

#[tokio::test]
async fn developers_manage_their_own_keys_and_owners_all() {
    let team = Team::new().await;
    team.key(&team.owner, &[("name", "of-service"), ("maker", "service")])
        .await;
    let list = team.owner.get("/portal/keys").await;
    assert_eq!(
        names(&list),
        ["of-owner", "of-one", "of-other", "of-service"]
    );
    for maker in [
        &team.owner.email,
        &team.one.email,
        &team.other.email,
        "service key",
    ] {
        assert!(list.text.contains(&format!(">{maker}</td>")), "{maker}");
    }
    let list = team.one.get("/portal/keys").await;
    assert_eq!(names(&list), ["of-one"]);
    assert!(!list.text.contains("Created by") && !list.text.contains("service key"));
    // Only owners make service keys.
    let service = [("name", "forged"), ("maker", "service")];
    let refused = team.one.post("/portal/keys", &service).await;
    assert!(refused.text.contains("Only owners of the account"));
    assert!(!team.owner.get("/portal/keys").await.text.contains("forged"));

    // A key of another is unknown, for every form, and keeps working.
    let (_, id, key) = &team.keys[2];
    for verb in ["disable", "enable", "delete"] {
        let path = format!("/portal/keys/{id}/{verb}");
        assert_eq!(team.one.post(&path, &[]).await.status, 404, "{verb}");
    }
    let confirm = format!("/portal/keys/{id}/delete");
    assert_eq!(team.one.get(&confirm).await.status, 404);
    team.gateway.chat_as(key, &hello(MODEL)).await.assert_ok();
    // Owners manage it, and its maker does.
    team.owner.get("/portal/keys").await.assert_page();
    let disable = format!("/portal/keys/{id}/disable");
    team.owner
        .post(&disable, &[])
        .await
        .assert_sent_to("/portal/keys");
    assert_eq!(team.gateway.chat_as(key, &hello(MODEL)).await.status, 401);
    team.other.get("/portal/keys").await.assert_page();
    team.other
        .post(&confirm, &[])
        .await
        .assert_sent_to("/portal/keys");
    assert_eq!(
        names(&team.other.get("/portal/keys/deleted").await),
        ["of-other"]
    );
    assert!(names(&team.one.get("/portal/keys/deleted").await).is_empty());
    team.gateway.stop().await;
}

#[tokio::test]
async fn developers_see_the_requests_and_usage_of_their_own_keys() {
    let team = Team::new().await;
    let all = team.calls(&team.owner).await;
    assert_eq!(all.len(), 3);
    let own = team.calls(&team.one).await;
    assert_eq!(own.len(), 1);
    for call in &all {
        let expected = if own.contains(call) { 200 } else { 404 };
        assert_eq!(team.one.get(call).await.status, expected, "{call}");
    }
    for (browser, requests, shown) in [
        (&team.owner, "3", &["of-owner", "of-one", "of-other"][..]),
        (&team.one, "1", &["of-one"]),
    ] {
        for page in [
            "/portal",
            "/portal/requests",
            "/portal/requests.csv",
            "/portal/usage?by=key",
            "/portal/usage?range=1h&by=key",
            "/portal/usage.csv",
        ] {
            let seen = browser.get(page).await;
            assert_eq!(names(&seen), shown, "{page}");
        }
        let csv = browser.get("/portal/requests.csv").await;
        let rows = csv.text.lines().count() - 1;
        assert_eq!(rows.to_string(), requests, "{}", csv.text);
        for range in ["days=30", "range=24h"] {
            let usage = browser.get(&format!("/portal/usage?{range}")).await;
            let figure = usage.between("<h2>Requests</h2><p class=\"figure\">", "<");
            assert_eq!(figure, requests, "{range}");
        }
        let overview = browser.get("/portal").await;
        let figure = overview.between("<h2>Requests in 7 days</h2><p class=\"figure\">", "<");
        assert_eq!(figure, requests);
    }
    // By the key of another there is nothing to find.
    let filtered = format!("/portal/requests?key={}", team.keys[2].1);
    let seen = team.one.get(&filtered).await;
    assert_eq!(names(&seen), ["of-one"], "which the filter offers");
    assert!(links(&seen.text, "/portal/requests/call_").is_empty());
    // The playground has a key for each person.
    for browser in [&team.one, &team.other] {
        browser.get("/portal/playground").await.assert_page();
        let request = browser.request(Method::POST, "/portal/playground/run");
        let request = request
            .header("origin", browser.origin())
            .header("x-form-token", browser.token())
            .json(&hello(MODEL));
        let asked = browser.send(request).await;
        assert_eq!(asked.status, 200, "{}", asked.text);
        team.gateway.idle().await;
        let id = asked.header("x-request-id");
        let charge = format!("/portal/playground/charge?request={id}");
        assert_eq!(browser.get(&charge).await.status, 200);
        let stranger = if browser.email == team.one.email {
            &team.other
        } else {
            &team.one
        };
        stranger.get(&charge).await.assert_pending();
    }
    let list = team.owner.get("/portal/keys").await;
    assert_eq!(
        list.text
            .matches("<th scope=\"row\">Playground</th>")
            .count(),
        2
    );
    team.gateway.stop().await;
}

#[tokio::test]
async fn developers_see_the_requests_of_the_projects_of_their_keys() {
    let team = Team::new().await;
    let path = format!("/operator/accounts/{}/projects", team.owner.account_id);
    let made = team
        .gateway
        .operate(Method::POST, &path, Some(json!({ "name": "Search" })))
        .await;
    let project = made.assert_ok()["id"].as_str().unwrap().to_owned();
    let fields = |name| [("name", name), ("project", project.as_str())];
    let theirs = team.key(&team.other, &fields("of-other-2")).await;
    team.gateway
        .chat_as(&theirs, &hello(MODEL))
        .await
        .assert_ok();
    team.gateway.idle().await;
    assert_eq!(
        team.calls(&team.one).await.len(),
        1,
        "not their project yet"
    );
    let list = team.one.get("/portal/keys").await;
    assert!(
        list.assert_page()
            .contains("<option value=\"default\" selected>Default</option>")
    );
    team.key(&team.one, &fields("of-one-2")).await;
    let list = team.one.get("/portal/keys").await;
    assert!(list.text.contains(">Search</td>") && list.text.contains(">Default</td>"));
    let calls = team.calls(&team.one).await;
    assert_eq!(calls.len(), 2);
    for call in &calls {
        // The key of another is shown by its ID alone.
        let details = team.one.get(call).await;
        assert!(!details.assert_page().contains("of-other"));
    }
    let usage = team.one.get("/portal/usage?by=key").await;
    assert_eq!(
        usage.between("<h2>Requests</h2><p class=\"figure\">", "<"),
        "2"
    );
    assert!(!usage.text.contains("of-other") && usage.text.contains("key_"));
    // A project must be one of the account, and open.
    for wrong in ["proj_none", "x"] {
        team.one.get("/portal/keys").await;
        let wrong = [("name", "k"), ("project", wrong)];
        let refused = team.one.post("/portal/keys", &wrong).await;
        assert!(refused.text.contains("There is no such project"));
    }
    team.gateway.stop().await;
}

#[tokio::test]
async fn billing_and_viewers_see_usage_without_keys() {
    let team = Team::new().await;
    for role in ["billing", "viewer"] {
        let browser = team.owner.member(&team.gateway, role).await;
        for page in [
            "/portal",
            "/portal/usage",
            "/portal/usage?by=key",
            "/portal/usage.csv",
        ] {
            let seen = browser.get(page).await;
            assert_eq!(seen.status, 200, "{page}");
            assert!(names(&seen).is_empty(), "{role}: {page}: {}", seen.text);
            assert!(!seen.text.contains(&team.keys[0].2[..12]), "{role}: {page}");
        }
        let usage = browser.get("/portal/usage").await;
        assert_eq!(
            usage.between("<h2>Requests</h2><p class=\"figure\">", "<"),
            "3"
        );
    }
    let billing = Browser::new(&team.gateway);
    let email = format!("billing.of.{}", team.owner.email);
    billing
        .sign_in(&email, crate::support::portal::PASSWORD)
        .await
        .assert_sent_to("/portal");
    let page = billing.get("/portal/billing").await;
    assert!(page.assert_page().contains("Charges for 3 requests"));
    assert!(links(&page.text, "/portal/requests").is_empty());
    let owners = team.owner.get("/portal/billing").await;
    assert_eq!(links(&owners.text, "/portal/requests?from=").len(), 1);
    team.gateway.stop().await;
}
