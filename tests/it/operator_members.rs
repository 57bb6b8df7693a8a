//! Members by the operator API and with `tollgate member`: roles, removal, and the role of an invitation.

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{
    TestGateway,
    console::actions,
    gateway::{OPERATOR_TOKEN, hello},
    members::{members, roles},
    portal::Browser,
    process::{run, text},
};

const MODEL: &str = "svc-standard";

#[tokio::test]
async fn the_operator_api_lists_changes_and_removes_members() {
    let gateway = TestGateway::start().await;
    let account = gateway.account_id.clone();
    let invitations = format!("/operator/accounts/{account}/invitations");
    // The first person of an account is its owner, whatever the invitation says.
    for (email, role, expected) in [
        ("a@example.com", Some("viewer"), ("customer", "owner")),
        (
            "b@example.com",
            Some("developer"),
            ("customer", "developer"),
        ),
        ("c@example.com", Some("customer"), ("customer", "owner")),
        ("d@example.com", None, ("customer", "owner")),
        ("e@example.com", Some("operator"), ("operator", "owner")),
    ] {
        let body = json!({ "email": email, "role": role });
        let made = gateway
            .operate(Method::POST, &invitations, Some(body))
            .await;
        let link = made.assert_ok()["link"].as_str().unwrap();
        let joined = Browser::new(&gateway).join(link).await;
        joined.assert_sent_to("/portal");
        let path = format!("/operator/accounts/{account}/people");
        let people = gateway.operate(Method::GET, &path, None).await;
        let people = people.assert_ok()["data"].as_array().unwrap().clone();
        let person = people
            .iter()
            .find(|person| person["email"] == email)
            .unwrap();
        assert_eq!(
            (&person["role"], &person["team_role"]),
            (&json!(expected.0), &json!(expected.1))
        );
    }
    let list = members(&gateway, &account).await;
    assert_eq!(list[0]["object"], "member");
    assert_eq!(list[0]["account_id"], *account);
    assert_eq!(list[0]["email"], "a@example.com");
    assert!(list[0]["created_at"].as_str().unwrap().ends_with('Z'));
    assert_eq!(
        roles(&list).iter().filter(|role| **role == "owner").count(),
        4
    );
    let ids: Vec<_> = list
        .iter()
        .map(|member| member["id"].as_str().unwrap())
        .collect();
    let one = |id: &str| format!("/operator/members/{id}");
    let change =
        async |id: &str, body: Value| gateway.operate(Method::PATCH, &one(id), Some(body)).await;
    for wrong in ["operator", "customer", ""] {
        let refused = change(ids[1], json!({ "role": wrong })).await;
        refused.assert_error(400, "invalid_request_error", None, Some("role"));
    }
    let refused = change(ids[1], json!({})).await;
    assert_eq!(refused.status, 400);
    for path in [one("person_none"), "/operator/members/%00".into()] {
        let body = Some(json!({ "role": "owner" }));
        let refused = gateway.operate(Method::PATCH, &path, body).await;
        refused.assert_error(404, "not_found", None, None);
        let refused = gateway.operate(Method::DELETE, &path, None).await;
        refused.assert_error(404, "not_found", None, None);
    }
    let nowhere = "/operator/accounts/acct_none/members";
    let refused = gateway.operate(Method::GET, nowhere, None).await;
    refused.assert_error(404, "not_found", None, None);

    let changed = change(ids[1], json!({ "role": "billing" })).await;
    assert_eq!(changed.assert_ok()["role"], "billing");
    change(ids[1], json!({ "role": "billing" }))
        .await
        .assert_ok();
    for id in [ids[0], ids[2], ids[3]] {
        change(id, json!({ "role": "viewer" })).await.assert_ok();
    }
    let refused = change(ids[4], json!({ "role": "viewer" })).await;
    refused.assert_error(409, "invalid_request_error", Some("last_owner"), None);
    let refused = gateway.operate(Method::DELETE, &one(ids[4]), None).await;
    refused.assert_error(409, "invalid_request_error", Some("last_owner"), None);
    let key = json!({ "name": "k", "member": ids[1] });
    let keys = format!("/operator/accounts/{account}/keys");
    let made = gateway.operate(Method::POST, &keys, Some(key)).await;
    let key = made.assert_ok()["key"].as_str().unwrap().to_owned();
    gateway.chat_as(&key, &hello(MODEL)).await.assert_ok();
    let removed = gateway.operate(Method::DELETE, &one(ids[1]), None).await;
    assert_eq!(removed.assert_ok()["email"], list[1]["email"]);
    assert_eq!(gateway.chat_as(&key, &hello(MODEL)).await.status, 401);
    assert_eq!(members(&gateway, &account).await.len(), 4);
    let done = actions(&gateway, Some(ids[1])).await;
    let what: Vec<_> = done.iter().map(|action| &*action.what).collect();
    assert_eq!(what, ["member.remove", "member.change"]);
    assert!(done.iter().all(|done| done.actor == "operator token"));
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_lists_changes_and_removes_members() {
    let gateway = TestGateway::start().await;
    let owner = Browser::signed_in(&gateway).await;
    let url = format!("http://{}", gateway.operator);
    let command = |arguments: &[&str]| {
        let environment = [
            ("TOLLGATE_OPERATOR_URL", url.as_str()),
            ("TOLLGATE_OPERATOR_TOKEN", OPERATOR_TOKEN),
        ];
        tokio::task::block_in_place(|| run(arguments, &environment))
    };
    let said = |arguments: &[&str]| {
        let output = command(arguments);
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    let account = owner.account_id.as_str();
    let invite = [
        "account",
        "invite",
        account,
        "bob@example.com",
        "--role",
        "viewer",
        "--json",
    ];
    let made: Value = serde_json::from_str(&said(&invite)).unwrap();
    let joined = Browser::new(&gateway)
        .join(made["link"].as_str().unwrap())
        .await;
    joined.assert_sent_to("/portal");
    let list = said(&["member", "list", account]);
    assert!(
        list.contains("bob@example.com") && list.contains("viewer"),
        "{list}"
    );
    let team = members(&gateway, account).await;
    let (first, bob) = (
        team[1]["id"].as_str().unwrap(),
        team[0]["id"].as_str().unwrap(),
    );
    assert!(said(&["member", "change", bob, "developer"]).contains("developer"));
    let refused = command(&["member", "remove", first]);
    assert!(!refused.status.success());
    assert!(
        text(&refused.stderr).contains("its last one"),
        "{}",
        text(&refused.stderr)
    );
    assert!(said(&["member", "remove", bob]).contains("bob@example.com"));
    assert_eq!(roles(&members(&gateway, account).await), ["owner"]);
    gateway.stop().await;
}
