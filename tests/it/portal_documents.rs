//! Billing history, receipts, statements and starter credit: every figure is the ledger's, to the nano-dollar.

use std::path::Path;

use reqwest::Method;
use serde_json::json;
use tollgate::base::{money::NanoUsd, timestamp};

use crate::support::{
    TestGateway,
    admin::{Admin, not_at_midnight, rows},
    gateway::hello,
    portal::{Browser, PASSWORD},
    stores,
    stripe::{FakeStripe, deliver, paid},
};

const MODEL: &str = "svc-standard";
const HISTORY: &str = "Everything that changed the balance, newest first; days in UTC";
const STATEMENT: &str = "All amounts in US dollars; days in UTC";

/// The nano-dollars of an amount on a page.
fn nanos(text: &str) -> i64 {
    let negative = text.contains('−');
    let plain = text.replace(['+', '−', '$', ','], "");
    let amount = NanoUsd::parse(&plain)
        .unwrap_or_else(|| panic!("{text}"))
        .nanos();
    if negative { -amount } else { amount }
}

/// Moves an account's past by some days, as if it had happened then. The gateway is stopped meanwhile.
async fn age(folder: &Path, account: &str, days: i64) {
    let seconds = days * 86_400;
    let day = day_of(timestamp::now() - seconds);
    for sql in [
        format!("UPDATE accounts SET created_at = created_at - {seconds} WHERE id = '{account}'"),
        format!("UPDATE ledger_entries SET at = at - {seconds} WHERE account_id = '{account}'"),
        format!("UPDATE usage_days SET day = '{day}' WHERE account_id = '{account}'"),
    ] {
        stores::execute(folder, &sql).await;
    }
}

fn day_of(at: i64) -> String {
    timestamp::shown(at)[..10].to_owned()
}

async fn call(gateway: &TestGateway, key: &str, prompt: u32) {
    gateway.upstream.answer_using(prompt, 0, 7, 0);
    gateway.chat_as(key, &hello(MODEL)).await.assert_ok();
    gateway.idle().await;
}

async fn balance(gateway: &TestGateway, account: &str) -> i64 {
    let balances = gateway.inside().ledger.balances(account).await;
    balances.unwrap().balance.nanos()
}

#[tokio::test]
async fn the_history_adds_up_row_by_row() {
    not_at_midnight().await;
    let admin = Admin::open().await;
    call(&admin.gateway, &admin.key, 1_001).await;
    call(&admin.gateway, &admin.key, 13).await;
    admin
        .grant(json!({ "amount": "0.000000007", "reason": "tiny" }))
        .await;
    let page = admin.page("/portal/billing").await;
    let history = rows(&page, HISTORY);
    assert_eq!(history[1][1..3], ["Charges for 2 requests", "1,028"]);
    let day = day_of(timestamp::now());
    let link = format!("/portal/requests?from={day}&amp;to={day}");
    assert!(page.contains(&link), "{page}");
    let mut expected = balance(&admin.gateway, &admin.account_id).await;
    for row in &history[1..] {
        let [amount, after] = [&row[row.len() - 2], &row[row.len() - 1]];
        assert_eq!(nanos(after), expected, "{history:?}");
        expected -= nanos(amount);
    }
    assert_eq!(expected, 0, "the first row begins with nothing");
    assert_eq!(
        admin
            .browser
            .get("/portal/billing?before=never")
            .await
            .status,
        400
    );
    admin.gateway.stop().await;
}

#[tokio::test]
async fn a_statement_adds_up_and_never_changes() {
    not_at_midnight().await;
    let admin = Admin::open().await;
    let (account, key, email) = (admin.account_id, admin.key, admin.browser.email);
    call(&admin.gateway, &key, 1_001).await;
    let data = admin.gateway.stop().await;
    age(data.path(), &account, 40).await;
    let gateway = TestGateway::start_in(data, "").await;
    let browser = Browser::new(&gateway);
    browser
        .sign_in(&email, PASSWORD)
        .await
        .assert_sent_to("/portal");
    let month = day_of(timestamp::now() - 40 * 86_400)[..7].to_owned();
    let path = format!("/portal/billing/statements/{month}");
    let statements = browser.get("/portal/billing/statements").await;
    assert!(
        statements.assert_page().contains(&path),
        "{}",
        statements.text
    );
    let first = browser.get(&path).await;
    let lines = rows(first.assert_page(), STATEMENT);
    let last = |line: &Vec<String>| nanos(line.last().unwrap());
    let sum = |lines: &[Vec<String>]| lines[2..lines.len() - 1].iter().map(last).sum::<i64>();
    let (opening, closing) = (last(&lines[1]), last(&lines[lines.len() - 1]));
    assert_eq!((opening, closing), (0, sum(&lines)));
    assert_eq!(closing, balance(&gateway, &account).await);
    let of_model = lines.iter().find(|line| line.contains(&MODEL.to_owned()));
    assert_eq!(of_model.unwrap()[1..4], [MODEL, "1", "1,008"]);
    let number = format!("Statement S-{month}-");
    assert!(first.text.contains(&number), "{}", first.text);

    // What is posted late for that month is on the next statement.
    let grants = format!("/operator/accounts/{account}/grants");
    let tiny = Some(json!({ "amount": "0.000000007" }));
    let given = gateway.operate(Method::POST, &grants, tiny).await;
    given.assert_ok();
    let late = "UPDATE ledger_entries SET at = at - 40 * 86400 WHERE delta_nano_usd = 7";
    stores::execute(gateway.data.path(), late).await;
    let again = browser.get(&path).await;
    assert_eq!(rows(again.assert_page(), STATEMENT), lines);
    call(&gateway, &key, 13).await;
    let (now, mut previous) = (day_of(timestamp::now()), closing);
    for month in months_after(&month, &now[..7]) {
        let path = format!("/portal/billing/statements/{month}");
        let page = browser.get(&path).await;
        let lines = rows(page.assert_page(), STATEMENT);
        if previous == closing {
            assert_eq!(
                lines[2],
                ["Posted late, for earlier months", "+$0.000000007"]
            );
        }
        assert_eq!(last(&lines[1]), previous, "{month}");
        previous = last(&lines[lines.len() - 1]);
        assert_eq!(previous, last(&lines[1]) + sum(&lines));
    }
    assert_eq!(previous, balance(&gateway, &account).await);
    for none in ["2020-01", "2999-01", "2026-13", "x"] {
        let path = format!("/portal/billing/statements/{none}");
        assert_eq!(browser.get(&path).await.status, 404, "{none}");
    }
    gateway.stop().await;
}

#[tokio::test]
async fn a_statement_continues_one_whose_month_was_pruned() {
    not_at_midnight().await;
    let admin = Admin::open().await;
    let (account, email) = (admin.account_id, admin.browser.email);
    let data = admin.gateway.stop().await;
    age(data.path(), &account, 40).await;
    let month = day_of(timestamp::now() - 40 * 86_400)[..7].to_owned();
    let now = day_of(timestamp::now());
    let next = months_after(&month, &now[..7]).remove(0);
    let gateway = TestGateway::start_in(data, "").await;
    let path = format!("/portal/billing/statements/{month}");
    let issued = signed_in(&gateway, &email).await.get(&path).await;
    let closing = rows(issued.assert_page(), STATEMENT).pop().unwrap();
    // Something is posted late for that month. Then its entries are pruned: the account's months begin with the next.
    let grants = format!("/operator/accounts/{account}/grants");
    let tiny = Some(json!({ "amount": "0.000000007" }));
    let given = gateway.operate(Method::POST, &grants, tiny).await;
    given.assert_ok();
    let data = gateway.stop().await;
    let late = "UPDATE ledger_entries SET at = at - 40 * 86400 WHERE delta_nano_usd = 7";
    stores::execute(data.path(), late).await;
    let mut days = (0..62).map(|days| timestamp::now() - days * 86_400);
    let first = days.find(|at| day_of(*at) == format!("{next}-01")).unwrap();
    let pruned = format!("UPDATE accounts SET created_at = {first} WHERE id = '{account}'");
    stores::execute(data.path(), &pruned).await;
    let gateway = TestGateway::start_in(data, "").await;
    let browser = signed_in(&gateway, &email).await;
    let again = browser.get(&path).await;
    let lines = rows(again.assert_page(), STATEMENT);
    assert_eq!(lines.last(), Some(&closing));
    let path = format!("/portal/billing/statements/{next}");
    let page = browser.get(&path).await;
    let lines = rows(page.assert_page(), STATEMENT);
    let (opening, late) = (lines[1].last(), &lines[2]);
    assert_eq!(opening, closing.last());
    assert_eq!(late, &["Posted late, for earlier months", "+$0.000000007"]);
    gateway.stop().await;
}

async fn signed_in(gateway: &TestGateway, email: &str) -> Browser {
    let browser = Browser::new(gateway);
    let seen = browser.sign_in(email, PASSWORD).await;
    seen.assert_sent_to("/portal");
    browser
}

/// The months after one, up to another.
fn months_after(month: &str, last: &str) -> Vec<String> {
    let (year, number) = month.split_once('-').unwrap();
    let start: i32 = year.parse::<i32>().unwrap() * 12 + number.parse::<i32>().unwrap();
    let months =
        (start..start + 24).map(|index| format!("{:04}-{:02}", index / 12, index % 12 + 1));
    months.take_while(|month| month.as_str() <= last).collect()
}

#[tokio::test]
async fn a_receipt_names_both_parties_and_is_its_accounts_own() {
    let stripe = FakeStripe::start().await;
    let seller = [("PORTAL__SELLER", "Gate <Ltd>\nVAT GB 123")];
    let gateway = TestGateway::start_with_settings(&stripe.section(), &seller).await;
    let (ada, eve) = (
        Browser::signed_in(&gateway).await,
        Browser::signed_in(&gateway).await,
    );
    let (checkout, session) = stripe.order(&ada, "19.99").await;
    let event = paid(&checkout, &session, 1_999);
    deliver(gateway.public, &event).await.assert_ok();
    ada.get("/portal/billing/details").await.assert_page();
    let saved = [("bill_to", "Ada & Sons\r\n1 High Street  \r\n")];
    ada.post("/portal/billing/details", &saved)
        .await
        .assert_sent_to("/portal/billing");
    let billing = ada.get("/portal/billing").await;
    assert!(billing.assert_page().contains("Billing details saved."));
    let number = billing
        .between("/portal/billing/receipts/", "\"")
        .to_owned();
    assert!(
        number.starts_with("R-20") && number.ends_with("-000001"),
        "{number}"
    );
    let path = format!("/portal/billing/receipts/{number}");
    let receipt = ada.get(&path).await;
    for told in [
        &format!("Receipt {number}"),
        "Gate &lt;Ltd&gt;<br>VAT GB 123",
        "Ada &amp; Sons<br>1 High Street<br>",
        "$19.99",
        &session,
    ] {
        assert!(
            receipt.assert_page().contains(told),
            "{told}: {}",
            receipt.text
        );
    }
    assert_eq!(eve.get(&path).await.status, 404);
    assert_eq!(
        ada.get("/portal/billing/receipts/R-2020-000001")
            .await
            .status,
        404
    );
    ada.get("/portal/billing/details").await.assert_page();
    let long = "x".repeat(501);
    for wrong in [long.as_str(), "a\u{7}b", &"\na".repeat(13)] {
        let refused = ada
            .post("/portal/billing/details", &[("bill_to", wrong)])
            .await;
        assert_eq!(refused.status, 400);
    }
    gateway.stop().await;
}

#[tokio::test]
async fn starter_credit_is_given_once_to_those_who_sign_up() {
    let settings = [
        ("PORTAL__STARTER_CREDIT", "2.50"),
        ("PORTAL__STARTER_CREDIT_DAYS", "30"),
    ];
    let gateway = TestGateway::start_set(&settings).await;
    let mut browser = Browser::new(&gateway);
    browser.email = "new@example.com".into();
    browser
        .sign_up(&browser.email)
        .await
        .assert_sent_to("/portal");
    let overview = browser.get("/portal").await;
    assert!(
        overview
            .assert_page()
            .contains("Your account starts with $2.50 of credit.")
    );
    let settings_page = browser.get("/portal/settings").await;
    let account = format!("acct_{}", settings_page.between(">acct_", "<"));
    for _ in 0..2 {
        let again = Browser::new(&gateway);
        let seen = again.sign_in(&browser.email, PASSWORD).await;
        seen.assert_sent_to("/portal");
    }
    let ledger = &gateway.inside().ledger;
    let grants = ledger.grants(&account).await.unwrap();
    let [grant] = grants.as_slice() else {
        panic!("one grant: {grants:?}")
    };
    assert_eq!(grant.amount, NanoUsd::new(2_500_000_000));
    // The gateway decides when it expires, and the ledger when it was made: a moment apart.
    let lasts = grant.expires_at.unwrap() - grant.created_at;
    assert!((30 * 86_400 - 60..=30 * 86_400).contains(&lasts), "{lasts}");
    let billing = browser.get("/portal/billing").await;
    assert!(billing.assert_page().contains("Starter credit"));
    // A member who is invited later brings none.
    browser
        .member(&gateway, "owner")
        .await
        .get("/portal")
        .await
        .assert_page();
    assert_eq!(ledger.grants(&account).await.unwrap().len(), 1);
    gateway.stop().await;
}

#[tokio::test]
async fn starter_credit_is_not_given_again_after_deleting_the_account() {
    let settings = [("PORTAL__STARTER_CREDIT", "2.50")];
    let gateway = TestGateway::start_set(&settings).await;
    let grants = async |browser: &Browser| {
        let page = browser.get("/portal/settings").await;
        let account = format!("acct_{}", page.between(">acct_", "<"));
        let ledger = &gateway.inside().ledger;
        ledger.grants(&account).await.unwrap().len()
    };
    let first = Browser::new(&gateway);
    let email = "new@example.com";
    first.sign_up(email).await.assert_sent_to("/portal");
    assert_eq!(grants(&first).await, 1);
    let asked = first.get("/portal/settings/delete").await;
    assert!(asked.assert_page().contains("not get starter credit again"));
    let right = [("email", email), ("present", PASSWORD)];
    let deleted = first.post("/portal/settings/delete", &right).await;
    assert!(deleted.assert_page().contains("Your account is deleted"));
    let again = Browser::new(&gateway);
    again
        .sign_up("New@Example.com")
        .await
        .assert_sent_to("/portal");
    assert_eq!(grants(&again).await, 0);
    let other = Browser::new(&gateway);
    other
        .sign_up("other@example.com")
        .await
        .assert_sent_to("/portal");
    assert_eq!(grants(&other).await, 1);
    gateway.stop().await;
}

#[tokio::test]
async fn every_receipt_is_on_a_page_of_payments() {
    let stripe = FakeStripe::start().await;
    let gateway = TestGateway::start_with(&stripe.section()).await;
    let ada = Browser::signed_in(&gateway).await;
    let path = "/portal/billing/payments";
    assert!(
        ada.get(path)
            .await
            .assert_page()
            .contains("No payments yet.")
    );
    for _ in 0..52 {
        let (checkout, session) = stripe.order(&ada, "5").await;
        let event = paid(&checkout, &session, 500);
        deliver(gateway.public, &event).await.assert_ok();
    }
    let billing = ada.get("/portal/billing").await;
    assert_eq!(
        rows(billing.assert_page(), "Latest payments, newest first").len(),
        21
    );
    assert!(billing.text.contains(&format!("{path}\">All payments")));
    let mut receipts = Vec::new();
    let first = ada.get(path).await;
    let older = first.between("rel=\"next\" href=\"", "\"").to_owned();
    let second = ada.get(&older).await;
    assert!(second.assert_page().contains("Newest payments"));
    for page in [&first, &second] {
        let payments = rows(page.assert_page(), "All payments, newest first");
        receipts.extend(payments[1..].iter().map(|row| row[4].clone()));
    }
    receipts.sort_unstable();
    receipts.dedup();
    assert_eq!(receipts.len(), 52, "{receipts:?}");
    let oldest = format!("/portal/billing/receipts/{}", receipts[0]);
    ada.get(&oldest).await.assert_page();
    assert_eq!(ada.get(&format!("{path}?before=x")).await.status, 400);
    let eve = Browser::signed_in(&gateway).await;
    assert!(
        eve.get(&older)
            .await
            .assert_page()
            .contains("No payments yet.")
    );
    gateway.stop().await;
}
