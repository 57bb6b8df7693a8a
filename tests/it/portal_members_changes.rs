//! Members come and go in the portal: invitations, roles, removal and leaving.

use reqwest::Method;
use serde_json::json;

use crate::support::{
    Gate, TestGateway,
    admin::{links, rows},
    console::{actions, person},
    gateway::hello,
    members::{members, roles},
    portal::Browser,
    smtp::FakeSmtp,
    upstream::{chunk, stream_until, usage_chunk},
};

const MODEL: &str = "svc-standard";
const MEMBERS: &str = "Members, oldest first";
const OPEN: &str = "Pending invitations";

async fn id_of(gateway: &TestGateway, browser: &Browser) -> String {
    let people = &gateway.inside().backoffice;
    let person = people.person_by_email(&browser.email).await.unwrap();
    person.unwrap().id
}

async fn key_named(gateway: &TestGateway, account_id: &str, name: &str) -> String {
    let path = format!("/operator/accounts/{account_id}/keys");
    let list = gateway.operate(Method::GET, &path, None).await;
    let keys = list.assert_ok()["data"].as_array().unwrap();
    let key = keys.iter().find(|key| key["name"] == name).unwrap();
    key["id"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn an_owner_invites_withdraws_and_changes_roles() {
    let gateway = TestGateway::start().await;
    let owner = Browser::signed_in(&gateway).await;
    let viewer = owner.member(&gateway, "viewer").await;
    let withdrawn = owner.invite("late@example.com", "billing").await;
    let page = owner.get("/portal/members").await;
    let listed = rows(page.assert_page(), MEMBERS);
    let role_of = |email: &str| {
        let row = listed.iter().find(|row| row[0].starts_with(email));
        row.unwrap_or_else(|| panic!("{listed:?}"))[2].clone()
    };
    assert_eq!(role_of(&format!("{} you", owner.email)), "owner");
    assert_eq!(role_of(&viewer.email), "viewer");
    let open = rows(&page.text, OPEN);
    assert_eq!(open[1][..2], ["late@example.com", "billing"]);
    // Others see who is there, and nothing to change it with.
    let seen = viewer.get("/portal/members").await;
    assert!(seen.assert_page().contains(&owner.email));
    assert!(!seen.text.contains("late@example.com") && !seen.text.contains("Invite"));
    assert!(links(&seen.text, "/portal/members/person_").is_empty());

    let address = [("email", "late@EXAMPLE.com")];
    let path = "/portal/members/invitations/withdraw";
    owner.get("/portal/members").await;
    owner
        .post(path, &address)
        .await
        .assert_sent_to("/portal/members");
    assert_eq!(owner.post(path, &address).await.status, 404);
    let dead = Browser::new(&gateway);
    let link = &withdrawn[withdrawn.find("/portal/").unwrap()..];
    assert_eq!(dead.get(link).await.status, 410);

    // An address that has an account here already; and what is no address.
    for (email, problem) in [
        (viewer.email.as_str(), "already in use"),
        ("nobody", "not an email address"),
    ] {
        let fields = [("email", email), ("role", "viewer")];
        let refused = owner.post("/portal/members/invitations", &fields).await;
        assert_eq!(refused.status, 400, "{email}");
        assert!(refused.text.contains(problem), "{email}: {}", refused.text);
    }
    let fields = [("email", "x@example.com"), ("role", "operator")];
    let refused = owner.post("/portal/members/invitations", &fields).await;
    assert_eq!(refused.status, 400, "members make no operators");

    let id = id_of(&gateway, &viewer).await;
    let path = format!("/portal/members/{id}/role");
    let changed = owner.post(&path, &[("role", "developer")]).await;
    changed.assert_sent_to("/portal/members");
    viewer.get("/portal/keys").await.assert_page();
    // Another account's owner has nothing to do with them.
    let stranger = Browser::signed_in(&gateway).await;
    assert_eq!(
        stranger.post(&path, &[("role", "viewer")]).await.status,
        404
    );
    let remove = format!("/portal/members/{id}/remove");
    assert_eq!(stranger.get(&remove).await.status, 404);
    stranger.get("/portal/members").await;
    assert_eq!(stranger.post(&remove, &[]).await.status, 404);

    let done = actions(&gateway, Some(&id)).await;
    assert_eq!(
        (&*done[0].what, &done[0].actor),
        ("member.change", &owner.email)
    );
    assert!(
        done[0]
            .before
            .as_ref()
            .unwrap()
            .contains("\"team_role\":\"viewer\"")
    );
    assert!(
        done[0]
            .after
            .as_ref()
            .unwrap()
            .contains("\"team_role\":\"developer\"")
    );
    let done = actions(&gateway, Some(&owner.account_id)).await;
    let what: Vec<_> = done.iter().map(|action| &*action.what).collect();
    assert_eq!(
        what[..3],
        ["person.uninvite", "person.invite", "person.invite"]
    );
    assert!(done[..3].iter().all(|done| done.actor == owner.email));
    assert!(
        done[1]
            .after
            .as_ref()
            .unwrap()
            .contains("\"team_role\":\"billing\"")
    );
    gateway.stop().await;
}

/// The link proves who owns the address, so the owner who invites does not see it.
#[tokio::test]
async fn with_a_mail_server_the_link_is_only_in_the_email() {
    let smtp = FakeSmtp::start().await;
    let gateway = TestGateway::start_with(&smtp.section()).await;
    let path = format!("/operator/accounts/{}/invitations", gateway.account_id);
    let body = json!({ "email": "ada@example.com" });
    let made = gateway.operate(Method::POST, &path, Some(body)).await;
    smtp.next_mail().await;
    let owner = Browser::new(&gateway);
    let link = made.assert_ok()["link"].as_str().unwrap();
    owner.join(link).await.assert_sent_to("/portal");
    owner.get("/portal/members").await;
    let fields = [("email", "bob@example.com"), ("role", "developer")];
    let made = owner.post("/portal/members/invitations", &fields).await;
    assert!(made.assert_page().contains("We sent an email to"));
    assert!(!made.text.contains("welcome?link="), "{}", made.text);
    let bob = Browser::new(&gateway);
    bob.join(&smtp.next_mail().await.link())
        .await
        .assert_sent_to("/portal");
    smtp.refuse(true);
    let fields = [("email", "eve@example.com"), ("role", "developer")];
    let failed = owner.post("/portal/members/invitations", &fields).await;
    assert!(failed.assert_page().contains("could not be sent"));
    assert!(!failed.text.contains("welcome?link="));
    // A mailbox gets at most five in a quarter of an hour.
    smtp.refuse(false);
    let mut statuses = Vec::new();
    for _ in 0..5 {
        statuses.push(
            owner
                .post("/portal/members/invitations", &fields)
                .await
                .status,
        );
    }
    assert_eq!(statuses, [200, 200, 200, 200, 429]);
    gateway.stop().await;
}

#[tokio::test]
async fn a_member_is_removed_while_their_stream_runs() {
    let gateway = TestGateway::start_with_long_timeouts().await;
    let owner = Browser::signed_in(&gateway).await;
    let member = owner.member(&gateway, "developer").await;
    let (_, key) = member.new_key("laptop").await;
    member.new_key("old").await;
    let id = key_named(&gateway, &owner.account_id, "laptop").await;
    let old = key_named(&gateway, &owner.account_id, "old").await;
    let disable = format!("/portal/keys/{old}/disable");
    member
        .post(&disable, &[])
        .await
        .assert_sent_to("/portal/keys");
    let (_, owners_key) = owner.new_key("owner's").await;
    let go_on = Gate::default();
    gateway.upstream.play(stream_until(&go_on));
    let mut body = hello(MODEL);
    body["stream"] = true.into();
    let request = gateway.client.post(gateway.url("/v1/chat/completions"));
    let stream = request.bearer_auth(&key).json(&body).send().await.unwrap();
    assert_eq!(stream.status(), 200);

    let person = id_of(&gateway, &member).await;
    let remove = format!("/portal/members/{person}/remove");
    let asking = owner.get(&remove).await;
    assert!(asking.assert_page().contains(&member.email));
    owner
        .post(&remove, &[])
        .await
        .assert_sent_to("/portal/members");
    assert_eq!(member.get("/portal").await.status, 303, "signed out");
    assert_eq!(gateway.chat_as(&key, &hello(MODEL)).await.status, 401);
    go_on.open();
    let text = stream.text().await.unwrap();
    assert_eq!(text.matches("word ").count(), 2, "{text}");
    assert!(text.trim_end().ends_with("data: [DONE]"), "{text}");
    gateway.idle().await;
    let usage = format!("/operator/accounts/{}/usage", owner.account_id);
    let usage = gateway.operate(Method::GET, &usage, None).await;
    assert_eq!(usage.assert_ok()["data"][0]["key_id"], *id);

    // Their keys are deleted for good, and only theirs; what they used stays.
    let deleted = owner.get("/portal/keys/deleted").await;
    assert!(deleted.text.contains("laptop") && deleted.text.contains("old"));
    owner.get("/portal/keys").await;
    let enable = format!("/portal/keys/{id}/enable");
    assert_eq!(owner.post(&enable, &[]).await.status, 404);
    gateway
        .upstream
        .answer_chunks(&[chunk(json!({}), Some("stop")), usage_chunk(11, 3)]);
    gateway.idle().await;
    let list = owner.get("/portal/requests").await;
    assert!(list.assert_page().contains("laptop"));
    assert!(
        owner
            .get("/portal/keys")
            .await
            .text
            .contains(&owners_key[..12])
    );
    assert_eq!(
        member
            .sign_in(&member.email, crate::support::portal::PASSWORD)
            .await
            .status,
        401
    );
    let done = actions(&gateway, Some(&person)).await;
    assert_eq!(
        (&*done[0].what, &done[0].actor),
        ("member.remove", &owner.email)
    );
    assert!(done[0].after.as_ref().unwrap().contains(&id));
    gateway.stop().await;
}

#[tokio::test]
async fn of_two_owners_who_remove_each_other_one_stays() {
    let gateway = TestGateway::start().await;
    for _ in 0..5 {
        let one = Browser::signed_in(&gateway).await;
        let other = one.member(&gateway, "owner").await;
        let keys = [one.new_key("one").await.1, other.new_key("other").await.1];
        let path = async |browser: &Browser| {
            format!("/portal/members/{}/remove", id_of(&gateway, browser).await)
        };
        let (to_one, to_other) = (path(&one).await, path(&other).await);
        tokio::join!(one.get("/portal/members"), other.get("/portal/members"));
        let sent = tokio::join!(one.post(&to_other, &[]), other.post(&to_one, &[]));
        let left = members(&gateway, &one.account_id).await;
        assert_eq!(roles(&left), ["owner"], "{sent:?}");
        // The one who stays keeps their key.
        let stays = usize::from(left[0]["email"] == other.email.as_str());
        gateway
            .chat_as(&keys[stays], &hello(MODEL))
            .await
            .assert_ok();
        assert_eq!(
            gateway
                .chat_as(&keys[1 - stays], &hello(MODEL))
                .await
                .status,
            401
        );
    }
    gateway.stop().await;
}

#[tokio::test]
async fn members_leave_unless_they_are_the_last_owner() {
    let gateway = TestGateway::start().await;
    let owner = Browser::signed_in(&gateway).await;
    let (_, key) = owner.new_key("owner's").await;
    let member = owner.member(&gateway, "developer").await;
    let (_, theirs) = member.new_key("laptop").await;
    owner.get("/portal/members/leave").await.assert_page();
    let refused = owner.post("/portal/members/leave", &[]).await;
    assert_eq!(refused.status, 409);
    assert!(
        refused.text.contains("make another member an owner first"),
        "{}",
        refused.text
    );
    let id = id_of(&gateway, &owner).await;
    let path = format!("/portal/members/{id}/role");
    let refused = owner.post(&path, &[("role", "viewer")]).await;
    assert_eq!(refused.status, 409);
    gateway.chat_as(&key, &hello(MODEL)).await.assert_ok();

    member.get("/portal/members/leave").await.assert_page();
    let left = member.post("/portal/members/leave", &[]).await;
    left.assert_sent_to("/portal/sign-in");
    assert_eq!(member.get("/portal").await.status, 303);
    assert_eq!(gateway.chat_as(&theirs, &hello(MODEL)).await.status, 401);
    let done = actions(&gateway, None).await;
    assert_eq!(
        (&*done[0].what, &done[0].actor),
        ("member.remove", &member.email)
    );
    assert_eq!(members(&gateway, &owner.account_id).await.len(), 1);

    // Operators of the gateway are not changed by customers, and do not remove themselves.
    let operator = person(&gateway).await;
    let customer = operator.member(&gateway, "owner").await;
    let id = id_of(&gateway, &operator).await;
    for (form, fields) in [("role", &[("role", "viewer")][..]), ("remove", &[])] {
        customer.get("/portal/members").await;
        let refused = customer
            .post(&format!("/portal/members/{id}/{form}"), fields)
            .await;
        assert_eq!(refused.status, 400, "{form}");
        assert!(
            refused.text.contains("Only an operator"),
            "{}",
            refused.text
        );
    }
    operator.get("/portal/members").await;
    let refused = operator.post("/portal/members/leave", &[]).await;
    assert_eq!(refused.status, 400);
    assert_eq!(members(&gateway, &operator.account_id).await.len(), 2);
    gateway.stop().await;
}
