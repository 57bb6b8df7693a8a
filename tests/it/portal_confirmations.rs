//! Each form says on the next page what it has done, once; its button undoes it, or a page has asked before.

use reqwest::Method;

use crate::support::{
    TestGateway,
    console::{person, with_token},
    gateway::hello,
    ledger_view::MODEL,
    portal::{Browser, Seen},
};

/// What the page after a form says was done, and the form that undoes it.
struct Done {
    text: String,
    undo: Option<(String, Vec<(String, String)>)>,
}

async fn done(browser: &Browser, sent: &Seen) -> Done {
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

async fn undo(browser: &Browser, done: Done) -> Seen {
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
    assert!(done(&owner, &enabled).await.text.ends_with("enabled."));
    gateway.chat_as(&key, &hello(MODEL)).await.assert_ok();

    owner.get("/portal/projects").await;
    let made = owner.post("/portal/projects", &[("name", "Old")]).await;
    assert_eq!(done(&owner, &made).await.text, "Project Old created.");
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
    assert_eq!(done(&operator, &opened).await.text, "Account opened.");
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
