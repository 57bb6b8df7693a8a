//! Each form says on the next page what it has done, once; its button undoes it, or a page has asked before.

use reqwest::Method;
use serde_json::json;

use crate::support::{
    TestGateway,
    console::{person, with_token},
    gateway::hello,
    ledger_view::MODEL,
    portal::{Browser, Seen},
};

/// What the page after a form says was done, and the form that undoes it.
pub(crate) struct Done {
    pub text: String,
    pub undo: Option<(String, Vec<(String, String)>)>,
}

pub(crate) async fn done(browser: &Browser, sent: &Seen) -> Done {
    assert_eq!(sent.status, 303, "{}", sent.text);
    let to = sent.header("location");
    let page = browser.get(to).await;
    page.assert_page();
    let notice = page.between("<div class=\"notice done\" role=\"status\">", "</div>");
    let text = notice.split("<p>").nth(1).unwrap();
    let text = text.split("</p>").next().unwrap().to_owned();
    let undo = notice.split_once("action=\"").map(|(_, form)| {
        let path = form.split('"').next().unwrap().to_owned();
        let fields = form.split("<input type=\"hidden\" name=\"").skip(1);
        let fields = fields.map(|field| {
            let (name, rest) = field.split_once("\" value=\"").unwrap();
            (name.to_owned(), rest.split('"').next().unwrap().to_owned())
        });
        let fields = fields.filter(|(name, _)| name != "token");
        (path, fields.collect())
    });
    let again = browser.get(to).await;
    assert!(!again.assert_page().contains("notice done"), "shown once");
    Done { text, undo }
}

pub(crate) async fn undo(browser: &Browser, done: Done) -> Seen {
    let (path, fields) = done.undo.expect("it can be undone");
    let fields: Vec<_> = fields
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect();
    browser.post(&path, &fields).await
}

#[tokio::test]
async fn changes_in_the_portal_are_confirmed_and_undone() {
    let gateway = TestGateway::start().await;
    let owner = Browser::signed_in(&gateway).await;
    let (id, key) = owner.new_key("the <b> key").await;
    owner.get("/portal/keys").await;
    let disabled = owner.post(&format!("/portal/keys/{id}/disable"), &[]).await;
    let disabled = done(&owner, &disabled).await;
    assert!(
        disabled.text.starts_with("Key the &lt;b&gt; key disabled"),
        "{}",
        disabled.text
    );
    assert_eq!(gateway.chat_as(&key, &hello(MODEL)).await.status, 401);
    let enabled = undo(&owner, disabled).await;
    let enabled = done(&owner, &enabled).await;
    assert!(enabled.text.ends_with("enabled."));
    gateway.chat_as(&key, &hello(MODEL)).await.assert_ok();
    let disabled = undo(&owner, enabled).await;
    done(&owner, &disabled).await;
    assert_eq!(gateway.chat_as(&key, &hello(MODEL)).await.status, 401);

    owner.get("/portal/projects").await;
    let made = owner.post("/portal/projects", &[("name", "Old")]).await;
    assert_eq!(done(&owner, &made).await.text, "Project Old created.");
    let mistaken = owner.post("/portal/projects", &[("name", "Odl")]).await;
    let mistaken = done(&owner, &mistaken).await;
    let archived = undo(&owner, mistaken).await;
    assert_eq!(done(&owner, &archived).await.text, "Project Odl archived.");
    let list = owner.get("/portal/projects").await;
    let project = format!("proj_{}", list.between("/portal/projects/proj_", "/"));
    let rename = format!("/portal/projects/{project}/rename");
    let renamed = owner.post(&rename, &[("name", "New")]).await;
    let renamed = done(&owner, &renamed).await;
    assert_eq!(renamed.text, "Project Old is now called New.");
    let back = undo(&owner, renamed).await;
    let back = done(&owner, &back).await.text;
    assert_eq!(back, "Project New is now called Old.");

    let member = owner.member(&gateway, "developer").await;
    let list = owner.get("/portal/members").await;
    let member_id = list.text.split("/portal/members/person_");
    let roles = member_id
        .skip(1)
        .map(|rest| rest.split('/').next().unwrap());
    let backoffice = &gateway.inside().backoffice;
    let found = backoffice.person_by_email(&member.email).await.unwrap();
    let found = found.unwrap().id;
    assert!(roles.map(|id| format!("person_{id}")).any(|id| id == found));
    let role = format!("/portal/members/{found}/role");
    let changed = owner.post(&role, &[("role", "billing")]).await;
    let changed = done(&owner, &changed).await;
    assert!(changed.text.ends_with("is now a billing member."));
    assert_eq!(member.get("/portal/keys").await.status, 403);
    let back = undo(&owner, changed).await;
    assert!(done(&owner, &back).await.text.ends_with("a developer."));
    member.get("/portal/keys").await.assert_page();
    gateway.stop().await;
}

/// The text of the page after a form, whose button then undoes it.
async fn undone(browser: &Browser, sent: &Seen) -> String {
    let done = done(browser, sent).await;
    let text = done.text.clone();
    let back = undo(browser, done).await;
    assert_eq!(back.status, 303, "{}", back.text);
    text
}

#[tokio::test]
async fn the_earlier_settings_of_keys_and_budgets_come_back() {
    let gateway = TestGateway::start().await;
    let owner = Browser::signed_in(&gateway).await;
    let (id, _) = owner.new_key("plain").await;
    let shown = async || {
        let keys = format!("/operator/accounts/{}/keys", owner.account_id);
        let keys = gateway.operate(Method::GET, &keys, None).await;
        let key = &keys.assert_ok()["data"][0];
        ["name", "project", "expires_at", "models", "rpm", "tpm"].map(|field| key[field].clone())
    };
    // A moment that no form can name, and that is over.
    let terms = json!({
        "expires_at": "2020-01-31T12:34:56Z", "models": ["svc-pro", "svc-standard"], "rpm": 7, "tpm": 9000,
    });
    let key = format!("/operator/keys/{id}");
    gateway
        .operate(Method::PATCH, &key, Some(terms))
        .await
        .assert_ok();
    let bound = shown().await;
    let key = format!("/portal/keys/{id}");
    owner.get(&key).await.assert_page();
    let saved = owner.post(&key, &[("name", "free")]).await;
    assert_eq!(undone(&owner, &saved).await, "Key free saved.");
    assert_eq!(shown().await, bound);

    let budgets = async || {
        let path = format!("/operator/accounts/{}/budgets", owner.account_id);
        let budgets = gateway.operate(Method::GET, &path, None).await;
        budgets.assert_ok()["data"].clone()
    };
    let path = "/portal/budgets";
    let first = [
        ("place", format!("key:{id}")),
        ("amount", "1234.000005".into()),
        ("period", "week".into()),
        ("timezone", "Europe/Berlin".into()),
        ("anchor", "3".into()),
        ("soft", "yes".into()),
    ];
    let first: Vec<_> = first
        .iter()
        .map(|(name, value)| (*name, value.as_str()))
        .collect();
    let none = budgets().await;
    let set = owner.post(path, &first).await;
    undone(&owner, &set).await;
    assert_eq!(budgets().await, none);
    owner.post(path, &first).await.assert_sent_to(path);
    let before = budgets().await;
    let second = [first[0], ("amount", "5"), first[2]];
    let set = owner.post(path, &second).await;
    assert_ne!(budgets().await, before);
    undone(&owner, &set).await;
    assert_eq!(budgets().await, before);
    gateway.stop().await;
}

#[tokio::test]
async fn owners_are_asked_before_they_give_up_their_role() {
    let gateway = TestGateway::start().await;
    let owner = Browser::signed_in(&gateway).await;
    let other = owner.member(&gateway, "owner").await;
    let backoffice = &gateway.inside().backoffice;
    let id = async |browser: &Browser| {
        let found = backoffice.person_by_email(&browser.email).await.unwrap();
        found.unwrap().id
    };
    let path = format!("/portal/members/{}/role", id(&owner).await);
    let asked = owner.post(&path, &[("role", "viewer")]).await;
    assert!(
        asked.assert_page().contains("Become a viewer?"),
        "{}",
        asked.text
    );
    owner.get("/portal/keys").await.assert_page();
    let confirmed = [("role", "viewer"), ("confirmed", "yes")];
    let given = owner.post(&path, &confirmed).await;
    let given = done(&owner, &given).await;
    assert!(given.text.ends_with("is now a viewer.") && given.undo.is_none());
    assert_eq!(owner.get("/portal/keys").await.status, 403);
    // The last owner is refused, not asked.
    other.get("/portal/members").await.assert_page();
    let path = format!("/portal/members/{}/role", id(&other).await);
    assert_eq!(other.post(&path, &[("role", "viewer")]).await.status, 409);
    gateway.stop().await;
}

#[tokio::test]
async fn what_cannot_be_undone_in_the_portal_is_asked_about_first() {
    let gateway = TestGateway::start().await;
    let owner = Browser::signed_in(&gateway).await;
    let fields = [("place", "account"), ("amount", "20"), ("period", "month")];
    owner.get("/portal/budgets").await;
    let set = owner.post("/portal/budgets", &fields).await;
    assert!(done(&owner, &set).await.text.starts_with("Budget saved."));
    let list = owner.get("/portal/budgets").await;
    let remove = format!(
        "/portal/budgets/{}/remove",
        list.between("/portal/budgets/", "/")
    );
    let question = owner.get(&remove).await;
    assert!(
        question
            .assert_page()
            .contains("Remove budget: Whole account?")
    );
    assert!(
        question.text.contains("$20.00 a month"),
        "{}",
        question.text
    );
    let other = Browser::signed_in(&gateway).await;
    assert_eq!(other.get(&remove).await.status, 404);
    let removed = owner.post(&remove, &[]).await;
    let removed = done(&owner, &removed).await;
    assert_eq!(removed.text, "Budget removed: Whole account.");
    assert!(removed.undo.is_none());
    gateway.stop().await;
}

#[tokio::test]
async fn changes_in_the_console_are_confirmed_and_undone_or_asked_about() {
    let gateway = TestGateway::start().await;
    let operator = person(&gateway).await;
    let id = gateway.account_id.as_str();
    let account = format!("/portal/console/accounts/{id}");
    operator.get(&account).await.assert_page();
    let close = [("state", "closed")];
    let closed = operator.post(&format!("{account}/state"), &close).await;
    let closed = done(&operator, &closed).await;
    assert!(closed.text.starts_with("Account closed"));
    assert_eq!(gateway.chat(&hello(MODEL)).await.status, 402);
    let opened = undo(&operator, closed).await;
    let opened = done(&operator, &opened).await;
    assert_eq!(opened.text, "Account opened.");
    assert!(opened.undo.is_some());
    gateway.chat(&hello(MODEL)).await.assert_ok();

    // Credit cannot be taken back, so it is asked about; the form of the question grants it.
    let page = operator.get(&account).await;
    let reference = page.between("name=\"reference\" value=\"", "\"").to_owned();
    let mut fields = vec![
        ("amount", "12.5"),
        ("reason", "by transfer"),
        ("until", ""),
        ("reference", reference.as_str()),
    ];
    let grants = format!("{account}/grants");
    let before = gateway.inside().ledger.balances(id).await.unwrap().balance;
    let asked = operator.post(&grants, &fields).await;
    assert!(asked.assert_page().contains("Grant $12.50 to "));
    let balance = gateway.inside().ledger.balances(id).await.unwrap().balance;
    assert_eq!(balance, before);
    fields.push(("confirmed", "yes"));
    let granted = operator.post(&grants, &fields).await;
    assert_eq!(done(&operator, &granted).await.text, "$12.50 granted.");
    let balance = gateway.inside().ledger.balances(id).await.unwrap().balance;
    assert_eq!(balance.nanos() - before.nanos(), 12_500_000_000);
    gateway.stop().await;
}

#[tokio::test]
async fn a_removed_limit_is_restored_as_it_was() {
    let gateway = TestGateway::start().await;
    let operator = with_token(&gateway).await;
    let id = gateway.account_id.as_str();
    let limits = "/portal/console/limits";
    operator.get(limits).await.assert_page();
    let rule = [
        ("account", id),
        ("model", MODEL),
        ("rpm", "7"),
        ("tpm", "9000"),
    ];
    operator.post(limits, &rule).await.assert_sent_to(limits);
    let rules = async || {
        gateway
            .operate(Method::GET, "/operator/limits", None)
            .await
            .assert_ok()
            .clone()
    };
    let before = rules().await;
    let removed = operator.post(limits, &rule[..2]).await;
    let removed = done(&operator, &removed).await;
    assert_eq!(removed.text, "Limit removed.");
    assert_ne!(rules().await, before);
    let restored = undo(&operator, removed).await;
    assert!(
        done(&operator, &restored)
            .await
            .text
            .starts_with("Limit saved.")
    );
    assert_eq!(rules().await, before);
    gateway.stop().await;
}
