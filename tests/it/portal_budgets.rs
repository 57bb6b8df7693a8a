//! Budgets in the portal: set by owners and billing people, seen with keys, recorded, and lifted by nobody whom they bind.

use crate::support::{
    TestGateway,
    console::actions,
    gateway::hello,
    portal::{Browser, Seen},
};

const MODEL: &str = "svc-standard";
const PATH: &str = "/portal/budgets";

async fn set(browser: &Browser, fields: &[(&str, &str)]) -> Seen {
    browser.get(PATH).await.assert_page();
    let mut all = vec![
        ("place", "account"),
        ("amount", "1"),
        ("period", "month"),
        ("timezone", "UTC"),
    ];
    for (name, value) in fields {
        all.retain(|(field, _)| field != name);
        all.push((name, value));
    }
    browser.post(PATH, &all).await
}

#[tokio::test]
async fn billing_sets_a_budget_that_refuses_and_is_seen_with_the_key() {
    let gateway = TestGateway::start().await;
    let owner = Browser::signed_in(&gateway).await;
    let billing = owner.member(&gateway, "billing").await;
    let (key_id, key) = owner.new_key("laptop").await;
    gateway.chat_as(&key, &hello(MODEL)).await.assert_ok();
    gateway.idle().await;
    let place = format!("key:{key_id}");
    let made = set(
        &billing,
        &[
            ("place", &place),
            ("amount", " $0.00005 "),
            ("period", "week"),
            ("anchor", "7"),
        ],
    )
    .await;
    made.assert_sent_to(PATH);
    let refused = gateway.chat_as(&key, &hello(MODEL)).await;
    refused.assert_error(402, "budget_exceeded", Some("payment_required"), None);
    assert_eq!(refused.error()["budget"]["name"], "laptop");
    let page = owner.get(PATH).await;
    let page = page.assert_page();
    assert!(
        page.contains("Key laptop") && page.contains("$0.000049 of $0.00005 a week"),
        "{page}"
    );
    let keys = owner.get("/portal/keys").await;
    assert!(keys.assert_page().contains("$0.000049 of $0.00005 a week"));
    let one = owner.get(&format!("/portal/keys/{key_id}")).await;
    assert!(one.assert_page().contains("$0.000049 of $0.00005 a week"));
    let budget_id = page
        .split("/portal/budgets/")
        .nth(1)
        .unwrap()
        .split('/')
        .next()
        .unwrap();
    let removed = owner.post(&format!("{PATH}/{budget_id}/remove"), &[]).await;
    removed.assert_sent_to(PATH);
    gateway.chat_as(&key, &hello(MODEL)).await.assert_ok();
    let done = actions(&gateway, Some(budget_id)).await;
    let done: Vec<_> = done.iter().map(|it| (&*it.what, &*it.actor)).collect();
    assert_eq!(
        done,
        [
            ("budget.remove", &*owner.email),
            ("budget.set", &*billing.email)
        ]
    );
    gateway.stop().await;
}

#[tokio::test]
async fn what_is_wrong_is_said_and_nothing_is_set() {
    let gateway = TestGateway::start().await;
    let owner = Browser::signed_in(&gateway).await;
    let stranger = Browser::new(&gateway);
    stranger.sign_up("eve@example.com").await;
    stranger.get("/portal").await.assert_page();
    let (strangers_key, _) = stranger.new_key("theirs").await;
    for (fields, says) in [
        (vec![("amount", "-1")], "US dollars above zero"),
        (vec![("amount", "")], "US dollars above zero"),
        (vec![("amount", "2000000000")], "at most a billion"),
        (vec![("period", "year")], "Choose from the lists"),
        (vec![("place", "everyone")], "Choose from the lists"),
        (vec![("timezone", "Mars/Olympus")], "is not a time zone"),
        (vec![("anchor", "29")], "first day of the week"),
        (vec![("anchor", "soon")], "first day of the week"),
    ] {
        let refused = set(&owner, &fields).await;
        assert!(
            refused.assert_page().contains(says),
            "{fields:?}: {}",
            refused.text
        );
    }
    for place in [
        format!("key:{strangers_key}"),
        "key:key_0".into(),
        "member:person_0".into(),
        "project:proj_0".into(),
    ] {
        let refused = set(&owner, &[("place", &place)]).await;
        assert_eq!(refused.status, 404, "{place}");
    }
    assert!(
        owner
            .get(PATH)
            .await
            .assert_page()
            .contains("No budgets yet")
    );
    // A day has no first day, whatever the field says.
    set(&owner, &[("period", "day"), ("anchor", "3")])
        .await
        .assert_sent_to(PATH);
    // Another account's budget is not there.
    let page = owner.get(PATH).await;
    let id = page
        .text
        .split("/portal/budgets/")
        .nth(1)
        .unwrap()
        .split('/')
        .next()
        .unwrap();
    stranger.get(PATH).await.assert_page();
    let missing = stranger.post(&format!("{PATH}/{id}/remove"), &[]).await;
    assert_eq!(missing.status, 404);
    assert!(owner.get(PATH).await.text.contains(id));
    gateway.stop().await;
}

#[tokio::test]
async fn a_refused_form_keeps_what_was_typed() {
    let gateway = TestGateway::start().await;
    let owner = Browser::signed_in(&gateway).await;
    let (key_id, _) = owner.new_key("laptop").await;
    let form = async || {
        let page = owner.get(PATH).await;
        page.between("Applies to", "</form>").to_owned()
    };
    let empty = form().await;
    for told in [
        "value=\"month\" selected>",
        "name=\"timezone\" value=\"UTC\"",
        "name=\"soft\" value=\"yes\">",
    ] {
        assert!(empty.contains(told), "{told}: {empty}");
    }
    let place = format!("key:{key_id}");
    let typed = [
        ("place", place.as_str()),
        ("amount", "12.34"),
        ("period", "week"),
        ("timezone", "Mars/<Olympus>"),
        ("anchor", "3"),
        ("soft", "yes"),
    ];
    // One is refused by the form, the other by what sets the budget.
    for (field, wrong) in [("amount", "<12>"), ("timezone", "Mars/<Olympus>")] {
        let mut typed = typed.to_vec();
        typed.retain(|(name, _)| *name != field);
        typed.push((field, wrong));
        let refused = set(&owner, &typed).await;
        refused.assert_page();
        let form = refused.between("Applies to", "</form>");
        let amount = if field == "amount" {
            "&lt;12&gt;"
        } else {
            "12.34"
        };
        for told in [
            &*format!("<option value=\"{place}\" selected>"),
            &format!("value=\"{amount}\""),
            "value=\"week\" selected>",
            "value=\"Mars/&lt;Olympus&gt;\"",
            "placeholder=\"1\" value=\"3\"",
            "value=\"yes\" checked>",
        ] {
            assert!(form.contains(told), "{told}: {form}");
        }
        assert_eq!(form.matches(" selected").count(), 2, "{form}");
    }
    assert_eq!(form().await, empty);
    gateway.stop().await;
}

/// A developer renames and rotates their key, and lifts nothing that binds it.
#[tokio::test]
async fn nobody_lifts_the_limits_that_bind_them() {
    let gateway = TestGateway::start().await;
    let owner = Browser::signed_in(&gateway).await;
    let developer = owner.member(&gateway, "developer").await;
    let (key_id, _) = developer.new_key("ci").await;
    let path = format!("/portal/keys/{key_id}");
    let terms = [
        ("name", "ci"),
        ("project", "default"),
        ("rpm", "5"),
        ("expires", "2099-12-31"),
    ];
    owner.get(&path).await.assert_page();
    owner
        .post(&path, &terms)
        .await
        .assert_sent_to("/portal/keys");
    developer.get(&path).await.assert_page();
    let lifted = [
        ("name", "mine"),
        ("project", "default"),
        ("rpm", ""),
        ("expires", ""),
    ];
    developer
        .post(&path, &lifted)
        .await
        .assert_sent_to("/portal/keys");
    let page = owner.get(&path).await;
    let page = page.assert_page();
    for kept in ["value=\"mine\"", "value=\"5\"", "value=\"2099-12-31\""] {
        assert!(page.contains(kept), "{kept}: {page}");
    }
    gateway.stop().await;
}
