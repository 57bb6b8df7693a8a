//! Deleting an account in the settings: what ends, what stays, and who may do it.

use reqwest::Method;
use serde_json::{Value, json};
use tollgate::backoffice::Role;

use crate::support::{
    Gate, TestGateway,
    console::{self, actions, set_role},
    gateway::hello,
    portal::{Browser, PASSWORD},
    upstream::stream_until,
};

const MODEL: &str = "svc-standard";
const PATH: &str = "/portal/settings/delete";

async fn answer(gateway: &TestGateway, path: &str) -> Value {
    let answer = gateway.operate(Method::GET, path, None).await;
    answer.assert_ok().clone()
}

#[tokio::test]
async fn only_an_owner_deletes_the_account_and_after_proofs() {
    let gateway = TestGateway::start().await;
    let owner = Browser::signed_in(&gateway).await;
    let member = owner.member(&gateway, "billing").await;
    assert_eq!(member.get(PATH).await.status, 403);
    let settings = member.get("/portal/settings").await;
    assert!(settings.assert_page().contains("Leave this account"));
    let right = [("email", owner.email.as_str()), ("present", PASSWORD)];
    assert_eq!(member.post(PATH, &right).await.status, 403);
    let page = owner.get(PATH).await;
    let page = page.assert_page();
    assert!(
        page.contains("$1,000.00") && page.contains("Members (2)"),
        "{page}"
    );
    for wrong in [
        [("email", ""), ("present", PASSWORD)],
        [("email", member.email.as_str()), ("present", PASSWORD)],
        [
            ("email", owner.email.as_str()),
            ("present", "not the password"),
        ],
        [("email", owner.email.as_str()), ("x", "")],
    ] {
        let refused = owner.post(PATH, &wrong).await;
        assert_eq!(refused.status, 400, "{wrong:?}");
    }
    let forged = owner
        .request(Method::POST, PATH)
        .header("origin", "https://evil.example")
        .body("");
    assert_eq!(owner.send(forged).await.status, 403);
    // While an operator is among its people, it stays.
    set_role(&gateway, &member, Role::Operator).await;
    owner.get(PATH).await.assert_page();
    let refused = owner.post(PATH, &right).await;
    assert_eq!(refused.status, 400);
    assert!(refused.text.contains("operator of this gateway"));
    owner.get("/portal").await.assert_page();
    gateway.stop().await;
}

#[tokio::test]
async fn a_deleted_account_keeps_its_entries_and_nothing_of_its_people() {
    let gateway = TestGateway::start_with_long_timeouts().await;
    let owner = Browser::signed_in(&gateway).await;
    let member = owner.member(&gateway, "developer").await;
    let invitation = owner.invite("late@example.com", "viewer").await;
    let (_, key) = owner.new_key("Ada's laptop").await;
    let (_, theirs) = member.new_key("Grace's laptop").await;
    owner.get("/portal/projects").await.assert_page();
    let project = [("name", "Ada's project")];
    assert_eq!(owner.post("/portal/projects", &project).await.status, 303);
    owner.get("/portal/settings").await.assert_page();
    let name = [("name", "Ada Lovelace")];
    owner
        .post("/portal/settings/profile", &name)
        .await
        .assert_sent_to("/portal/settings");
    let charged = gateway.chat_as(&theirs, &hello(MODEL)).await;
    charged.assert_ok();
    let mut stored = json!({ "model": MODEL, "input": "hello" });
    stored["store"] = true.into();
    let respond = |method: Method, path: &str, key: &str| {
        let request = gateway.client.request(method, gateway.url(path));
        request.bearer_auth(key)
    };
    let response = respond(Method::POST, "/v1/responses", &key).json(&stored);
    assert_eq!(response.send().await.unwrap().status(), 200);

    // A stream runs while the account is deleted.
    let go_on = Gate::default();
    gateway.upstream.play(stream_until(&go_on));
    let mut body = hello(MODEL);
    body["stream"] = true.into();
    let stream = respond(Method::POST, "/v1/chat/completions", &key).json(&body);
    let stream = stream.send().await.unwrap();
    assert_eq!(stream.status(), 200);

    owner.get(PATH).await.assert_page();
    let email = owner.email.to_uppercase();
    let right = [("email", email.as_str()), ("present", PASSWORD)];
    let done = owner.post(PATH, &right).await;
    assert!(done.assert_page().contains("Your account is deleted"));
    assert_eq!(owner.cookie("tollgate-session"), None);
    for key in [&key, &theirs] {
        assert_eq!(gateway.chat_as(key, &hello(MODEL)).await.status, 401);
    }
    go_on.open();
    let text = stream.text().await.unwrap();
    assert_eq!(text.matches("word ").count(), 2, "{text}");
    gateway.idle().await;
    assert_eq!(member.get("/portal").await.status, 303);
    let link = &invitation[invitation.find("/portal/").unwrap()..];
    assert_eq!(Browser::new(&gateway).get(link).await.status, 410);
    for email in [&owner.email, &member.email] {
        assert_eq!(member.sign_in(email, PASSWORD).await.status, 401);
    }

    // Operators see it as deleted, with its entries, the last call among them.
    let account = format!("/operator/accounts/{}", owner.account_id);
    let shown = answer(&gateway, &account).await;
    assert_eq!(shown["email"], "deleted account");
    assert_eq!(
        (&shown["name"], &shown["closed"]),
        (&Value::Null, &json!(true))
    );
    let usage = answer(&gateway, &format!("{account}/usage")).await;
    assert_eq!(usage["data"].as_array().unwrap().len(), 3, "{usage}");
    let mut kept = String::new();
    for path in [
        "",
        "/keys",
        "/people",
        "/invitations",
        "/projects",
        "/members",
    ] {
        kept += &answer(&gateway, &format!("{account}{path}"))
            .await
            .to_string();
    }
    let recorded = actions(&gateway, None).await;
    kept.extend([format!("{recorded:?}")]);
    for gone in [
        owner.email.as_str(),
        &member.email,
        "late@example.com",
        "Ada",
        "Grace",
    ] {
        assert!(!kept.contains(gone), "{gone} in {kept}");
    }
    let deletion = recorded
        .iter()
        .find(|it| it.what == "account.delete")
        .unwrap();
    assert_eq!(deletion.subject, owner.account_id);
    assert!(deletion.actor.starts_with("person_"), "{deletion:?}");
    let reopen = json!({ "closed": false });
    let reopened = gateway.operate(Method::PATCH, &account, Some(reopen)).await;
    assert_eq!(reopened.status, 400);
    let invite = json!({ "email": "eve@example.com" });
    let invited = format!("{account}/invitations");
    let invited = gateway.operate(Method::POST, &invited, Some(invite)).await;
    assert_eq!(invited.status, 400);
    let operator = console::person(&gateway).await;
    let page = operator
        .get(&format!("/portal/console/accounts/{}", owner.account_id))
        .await;
    assert!(page.assert_page().contains("An owner deleted this account"));

    // The same address can sign up again, with another account.
    let again = Browser::new(&gateway);
    again.sign_up(&owner.email).await.assert_sent_to("/portal");
    let settings = again.get("/portal/settings").await;
    assert!(!settings.assert_page().contains(&owner.account_id));
    gateway.stop().await;
}
