//! What the stores have of the people of a deleted account, and deletions that are interrupted.

use reqwest::Method;
use serde_json::json;
use tollgate::backoffice::{NewLink, Purpose, Role, TeamRole};

use crate::support::{
    TestGateway,
    console::{self, actions},
    gateway::hello,
    portal::{Browser, PASSWORD},
    smtp::FakeSmtp,
    stores,
    stripe::{FakeStripe, deliver, paid, paid_and_saved},
};

const DELETE: &str = "/portal/settings/delete";
/// They name the customer, and are kept for that: docs/PRIVACY.md.
const KEPT: [&str; 2] = ["backoffice_billing_details", "backoffice_statements"];

async fn post(browser: &Browser, path: &str, fields: &[(&str, &str)]) {
    let page = path
        .trim_end_matches("/top-up")
        .trim_end_matches("/checkout");
    browser.get(page).await;
    let done = browser.post(path, fields).await;
    assert!(done.status < 400, "{path}: {} {}", done.status, done.text);
}

async fn change_email(browser: &mut Browser, email: &str) {
    let fields = [("email", email), ("present", PASSWORD)];
    browser.get("/portal/settings").await;
    let changed = browser.post("/portal/settings/email", &fields).await;
    changed.assert_sent_to("/portal/settings");
    browser.email = email.into();
}

async fn id_of(gateway: &TestGateway, browser: &Browser) -> String {
    let person = gateway
        .inside()
        .backoffice
        .person_by_email(&browser.email)
        .await;
    person.unwrap().unwrap().id
}

/// Deletes the account, as its owner does.
async fn delete(owner: &Browser) -> u16 {
    owner.get(DELETE).await.assert_page();
    let fields = [("email", owner.email.as_str()), ("present", PASSWORD)];
    owner.post(DELETE, &fields).await.status
}

/// Payments, an automatic top-up and billing details of this owner.
async fn pay(gateway: &TestGateway, stripe: &FakeStripe, owner: &Browser) {
    let (checkout, session) = stripe.order(owner, "25.000000").await;
    let event = paid(&checkout, &session, 2_500);
    deliver(gateway.public, &event).await.assert_ok();
    let bill_to = format!("Ada Lovelace\n{}", owner.email);
    post(owner, "/portal/billing/details", &[("bill_to", &bill_to)]).await;
    owner.get("/portal/billing/top-up").await.assert_page();
    let fields = [
        ("threshold", "5"),
        ("amount", "20"),
        ("monthly_max", "50"),
        ("consent", "yes"),
    ];
    let leaving = owner.post("/portal/billing/top-up", &fields).await;
    leaving.assert_page();
    let session = leaving.between("/pay/", "\"").to_owned();
    let request = stripe.requests().pop().unwrap();
    let checkout = &request.fields["client_reference_id"];
    let event = paid_and_saved(checkout, &session, 2_000);
    deliver(gateway.public, &event).await.assert_ok();
}

/// Keys, projects and budgets with names, some of which are removed again.
async fn name_things(owner: &Browser) {
    let (key, _) = owner.new_key("Lovelace's laptop").await;
    post(owner, &format!("/portal/keys/{key}/delete"), &[]).await;
    owner.new_key("Lovelace's phone").await;
    post(owner, "/portal/projects", &[("name", "Lovelace's engine")]).await;
    let list = owner.get("/portal/projects").await;
    let project = format!("proj_{}", list.between("/portal/projects/proj_", "/"));
    let rename = format!("/portal/projects/{project}/rename");
    post(owner, &rename, &[("name", "Lovelace's mill")]).await;
    let budget = [("place", "account"), ("amount", "20"), ("period", "month")];
    post(owner, "/portal/budgets", &budget).await;
    let list = owner.get("/portal/budgets").await;
    let budget = list.between("/portal/budgets/", "/").to_owned();
    post(owner, &format!("/portal/budgets/{budget}/remove"), &[]).await;
}

#[tokio::test]
async fn no_table_has_a_person_of_a_deleted_account() {
    let stripe = FakeStripe::start().await;
    let gateway = TestGateway::start_with(&stripe.section()).await;
    let mut owner = Browser::signed_in(&gateway).await;
    let operator = console::person(&gateway).await;
    let mut addresses = vec![owner.email.clone()];
    pay(&gateway, &stripe, &owner).await;
    name_things(&owner).await;
    post(
        &owner,
        "/portal/settings/profile",
        &[("name", "Ada Lovelace")],
    )
    .await;
    let (_, key) = owner.new_key("Lovelace's tablet").await;
    gateway
        .chat_as(&key, &hello("svc-standard"))
        .await
        .assert_ok();

    // A member who was removed, and had another address before; one who stays; and one who never came.
    let mut former = owner.member(&gateway, "developer").await;
    addresses.push(former.email.clone());
    former.new_key("theirs").await;
    change_email(&mut former, "former@second.example").await;
    former.new_key("theirs, later").await;
    let id = id_of(&gateway, &former).await;
    post(&owner, &format!("/portal/members/{id}/remove"), &[]).await;
    let member = owner.member(&gateway, "billing").await;
    owner.invite("late@example.com", "viewer").await;
    addresses.extend([former.email, member.email, "late@example.com".into()]);

    for email in ["Ada@Second.example", "ada@third.example"] {
        change_email(&mut owner, email).await;
        owner.new_key("after it").await;
        addresses.push(email.to_owned());
    }
    let account = format!("/portal/console/accounts/{}", owner.account_id);
    operator.get(&account).await.assert_page();
    let reason = format!("for {} and {}.", addresses[0], owner.email);
    let grant = json!({ "amount": "1", "reason": reason });
    let grants = format!("/operator/accounts/{}/grants", owner.account_id);
    let granted = gateway.operate(Method::POST, &grants, Some(grant)).await;
    granted.assert_ok();
    gateway.idle().await;

    let folder = gateway.data.path();
    for address in &addresses {
        assert!(!stores::rows_with(folder, address).await.is_empty());
    }
    assert_eq!(delete(&owner).await, 200);
    gateway.idle().await;
    for gone in addresses.iter().map(String::as_str).chain(["Lovelace"]) {
        let mut found = stores::rows_with(folder, gone).await;
        found.retain(|(table, _)| !KEPT.contains(&table.as_str()));
        assert!(found.is_empty(), "{gone}: {found:?}");
    }
    let kept = stores::rows_with(folder, "Ada Lovelace").await;
    assert!(!kept.is_empty(), "billing details stay");
    // What an operator did is still theirs, and so are other accounts.
    let other = stores::rows_with(folder, &operator.email).await;
    assert!(!other.is_empty());
    operator.get(&account).await.assert_page();
    gateway.stop().await;
}

#[tokio::test]
async fn an_interrupted_deletion_is_finished_by_the_next_start() {
    let smtp = FakeSmtp::start().await;
    let gateway = TestGateway::start_with(&smtp.section()).await;
    let mut owner = Browser::new(&gateway);
    owner.email = "ada@example.com".into();
    owner.account_id.clone_from(&gateway.account_id);
    let invitations = format!("/operator/accounts/{}/invitations", gateway.account_id);
    let body = json!({ "email": owner.email });
    let made = gateway.operate(Method::POST, &invitations, Some(body));
    made.await.assert_ok();
    let link = smtp.next_mail().await.link();
    owner.join(&link).await.assert_sent_to("/portal");
    let stays = [
        "CREATE TRIGGER stays BEFORE DELETE ON backoffice_people
         BEGIN SELECT RAISE(ABORT, 'the disk is full'); END",
        "CREATE FUNCTION stays() RETURNS trigger LANGUAGE plpgsql AS
             $$ BEGIN RAISE EXCEPTION 'the disk is full'; END $$;
         CREATE TRIGGER stays BEFORE DELETE ON backoffice_people
             FOR EACH ROW EXECUTE FUNCTION stays()",
    ];
    stores::execute_in_portal(gateway.data.path(), stays).await;
    assert_eq!(delete(&owner).await, 503);
    // It has begun, so the account is closed, and its people see nothing of it any more.
    assert_eq!(owner.get("/portal").await.status, 303);
    let path = format!("/operator/accounts/{}", gateway.account_id);
    let account = gateway.operate(Method::GET, &path, None).await;
    assert_eq!(account.assert_ok()["email"], "deleted account");
    assert!(smtp.is_empty());
    let goes = [
        "DROP TRIGGER stays",
        "DROP TRIGGER stays ON backoffice_people",
    ];
    stores::execute_in_portal(gateway.data.path(), goes).await;

    let account_id = gateway.account_id.clone();
    let folder = gateway.stop().await;
    let gateway = TestGateway::start_in(folder, &smtp.section()).await;
    let told = smtp.next_mail().await;
    assert_eq!(told.to, owner.email);
    assert!(told.text.contains("was deleted by an owner"));
    let found = stores::rows_with(gateway.data.path(), &owner.email).await;
    assert!(found.is_empty(), "{found:?}");
    let recorded = actions(&gateway, Some(&account_id)).await;
    let deletions = recorded.iter().filter(|it| it.what == "account.delete");
    assert_eq!(deletions.count(), 1);
    gateway.stop().await;
}

#[tokio::test]
async fn an_invitation_to_a_deleted_account_is_of_no_use() {
    let gateway = TestGateway::start().await;
    let owner = Browser::signed_in(&gateway).await;
    let early = owner.invite("early@example.com", "owner").await;
    assert_eq!(delete(&owner).await, 200);
    // One that was made while the account was being deleted.
    let new = NewLink {
        email: "late@example.com".into(),
        purpose: Purpose::Invitation {
            account_id: owner.account_id.clone(),
            role: Role::Customer,
            team_role: TeamRole::Owner,
        },
        made_by: Some(owner.email.clone()),
        now: tollgate::base::timestamp::now(),
    };
    let late = gateway.inside().backoffice.make_link(new).await.unwrap();
    let late = format!("/portal/welcome?link={}", late.secret.reveal());
    for link in [early, late] {
        let visitor = Browser::new(&gateway);
        let link = &link[link.find("/portal/").unwrap()..];
        assert_eq!(visitor.get(link).await.status, 410);
        visitor.get("/portal/sign-in").await.assert_page();
        let secret = link.split_once("?link=").unwrap().1;
        let fields = [("link", secret), ("password", PASSWORD)];
        let joined = visitor.post("/portal/welcome", &fields).await;
        assert_eq!(joined.status, 410);
        assert_eq!(visitor.cookie("tollgate-session"), None);
    }
    gateway.stop().await;
}

#[tokio::test]
async fn the_page_says_that_billing_details_are_kept() {
    let gateway = TestGateway::start().await;
    let owner = Browser::signed_in(&gateway).await;
    let page = owner.get(DELETE).await;
    let said = "Billing details, receipts and monthly statements are kept";
    assert!(page.assert_page().contains(said));
    gateway.stop().await;
}
