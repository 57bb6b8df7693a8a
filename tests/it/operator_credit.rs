//! Credit through the operator API: exact amounts, expiry, and the order of grants.

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{Answer, TestGateway};

struct Account<'a> {
    gateway: &'a TestGateway,
    path: String,
}

impl<'a> Account<'a> {
    async fn new(gateway: &'a TestGateway) -> Self {
        let body = json!({ "email": "a@example.com", "track": "personal", "tier": "free" });
        let made = gateway
            .operate(Method::POST, "/operator/accounts", Some(body))
            .await;
        let id = made.assert_ok()["id"].as_str().unwrap();
        Self {
            gateway,
            path: format!("/operator/accounts/{id}"),
        }
    }

    async fn grant(&self, body: Value) -> Answer {
        let path = format!("{}/grants", self.path);
        self.gateway.operate(Method::POST, &path, Some(body)).await
    }

    async fn get(&self, field: &str) -> Value {
        let account = self.gateway.operate(Method::GET, &self.path, None).await;
        account.assert_ok()[field].clone()
    }
}

#[tokio::test]
async fn grants_add_up_exactly() {
    let gateway = TestGateway::start().await;
    let account = Account::new(&gateway).await;
    for (amount, shown, balance) in [
        ("10.00", "10.000000", "10.000000"),
        ("0.000000001", "0.000000001", "10.000000001"),
        ("0.1", "0.100000", "10.100000001"),
        ("0.2", "0.200000", "10.300000001"),
        ("007", "7.000000", "17.300000001"),
        ("1000000", "1000000.000000", "1000017.300000001"),
    ] {
        let grant = account.grant(json!({ "amount": amount })).await;
        assert_eq!(grant.assert_ok()["amount"], shown);
        assert_eq!(account.get("balance").await, balance, "after {amount}");
        assert_eq!(account.get("available").await, balance, "after {amount}");
        assert_eq!(account.get("held").await, "0.000000");
    }
}

#[tokio::test]
async fn an_invalid_amount_is_refused() {
    let gateway = TestGateway::start().await;
    let account = Account::new(&gateway).await;
    for amount in [
        json!("0"),
        json!("0.00"),
        json!("-1"),
        json!("+1"),
        json!(""),
        json!(" 1"),
        json!("1 "),
        json!("1."),
        json!(".5"),
        json!("1e3"),
        json!("1,000"),
        json!("0x10"),
        json!("$5"),
        json!("NaN"),
        json!("inf"),
        json!("١"),
        json!("0.0000000001"),
        json!("99999999999999999999"),
        json!(10),
        json!(0.5),
        Value::Null,
    ] {
        let refused = account.grant(json!({ "amount": amount })).await;
        refused.assert_error(400, "invalid_request_error", None, Some("amount"));
    }
    let missing = account.grant(json!({})).await;
    assert_eq!(missing.status, 400);
    assert!(
        missing.error()["message"]
            .as_str()
            .unwrap()
            .contains("amount")
    );
    assert_eq!(
        account.get("balance").await,
        "0.000000",
        "nothing was granted"
    );
}

#[tokio::test]
async fn more_than_an_account_can_hold_is_refused_whole() {
    let gateway = TestGateway::start().await;
    let account = Account::new(&gateway).await;
    account
        .grant(json!({ "amount": "9000000000" }))
        .await
        .assert_ok();
    let refused = account.grant(json!({ "amount": "9000000000" })).await;
    refused.assert_error(400, "invalid_request_error", None, Some("amount"));
    assert_eq!(account.get("balance").await, "9000000000.000000");
    account.grant(json!({ "amount": "1" })).await.assert_ok();
}

#[tokio::test]
async fn an_expiry_is_a_time_with_a_zone() {
    let gateway = TestGateway::start().await;
    let account = Account::new(&gateway).await;
    for (written, shown) in [
        ("2099-01-31T00:00:00Z", "2099-01-31T00:00:00Z"),
        ("2099-01-31T02:00:00+02:00", "2099-01-31T00:00:00Z"),
        ("2099-01-31T00:00:00.999Z", "2099-01-31T00:00:00Z"),
        ("2096-02-29T23:59:59-11:00", "2096-03-01T10:59:59Z"),
    ] {
        let body = json!({ "amount": "1", "expires_at": written });
        let grant = account.grant(body).await;
        assert_eq!(grant.assert_ok()["expires_at"], shown, "{written}");
    }
    for written in [
        json!(""),
        json!("tomorrow"),
        json!("2099-01-31"),
        json!("2099-01-31T00:00:00"),
        json!("2099-02-30T00:00:00Z"),
        json!("2099-13-01T00:00:00Z"),
        json!("4073500800"),
        json!(4_073_500_800_u64),
    ] {
        let body = json!({ "amount": "1", "expires_at": written });
        let refused = account.grant(body).await;
        refused.assert_error(400, "invalid_request_error", None, Some("expires_at"));
    }
    let never = account
        .grant(json!({ "amount": "1", "expires_at": null }))
        .await;
    assert_eq!(never.assert_ok()["expires_at"], Value::Null);
    assert_eq!(account.get("balance").await, "5.000000");
}

/// The grant that expires first is used first, so its expiry is the account's.
#[tokio::test]
async fn the_earliest_expiry_still_to_come_is_the_accounts() {
    let gateway = TestGateway::start().await;
    let account = Account::new(&gateway).await;
    for (expires_at, balance, next) in [
        (Value::Null, "1.000000", Value::Null),
        (
            json!("2099-06-01T00:00:00Z"),
            "2.000000",
            json!("2099-06-01T00:00:00Z"),
        ),
        (
            json!("2098-06-01T00:00:00Z"),
            "3.000000",
            json!("2098-06-01T00:00:00Z"),
        ),
        (
            json!("2099-01-01T00:00:00Z"),
            "4.000000",
            json!("2098-06-01T00:00:00Z"),
        ),
        (
            json!("2001-01-01T00:00:00Z"),
            "4.000000",
            json!("2098-06-01T00:00:00Z"),
        ),
    ] {
        let body = json!({ "amount": "1", "expires_at": expires_at });
        account.grant(body).await.assert_ok();
        assert_eq!(account.get("balance").await, balance, "{expires_at}");
        assert_eq!(account.get("credits_expire_at").await, next, "{expires_at}");
    }
}

#[tokio::test]
async fn grants_are_listed_in_order() {
    let gateway = TestGateway::start().await;
    let account = Account::new(&gateway).await;
    let mut given = Vec::new();
    for reason in [json!("welcome"), Value::Null] {
        let grant = account
            .grant(json!({ "amount": "3.25", "reason": reason }))
            .await;
        assert_eq!(grant.assert_ok()["reason"], reason);
        given.push(grant.body);
    }
    let path = format!("{}/grants", account.path);
    let list = gateway.operate(Method::GET, &path, None).await;
    let listed = list.assert_ok()["data"].as_array().unwrap();
    assert_eq!(listed.len(), 2);
    assert!(given.iter().all(|grant| listed.contains(grant)));
    let unknown = account
        .grant(json!({ "amount": "1", "currency": "EUR" }))
        .await;
    assert_eq!(unknown.status, 400);
    assert!(
        unknown.error()["message"]
            .as_str()
            .unwrap()
            .contains("currency")
    );
}

/// A payment that is reported twice gives credit once; a report with other values is refused.
#[tokio::test]
async fn a_reference_gives_credit_once() {
    let gateway = TestGateway::start().await;
    let account = Account::new(&gateway).await;
    let paid = json!({ "amount": "10", "reference": "payment 1" });
    let first = account.grant(paid.clone()).await.assert_ok().clone();
    assert_eq!(first["reference"], "payment 1");
    let again = account.grant(paid.clone()).await.assert_ok().clone();
    assert_eq!(again, first, "the same grant");
    let racing = futures_util::future::join_all((0..20).map(|_| account.grant(paid.clone())));
    for grant in racing.await {
        assert_eq!(grant.assert_ok()["id"], first["id"]);
    }
    assert_eq!(account.get("balance").await, "10.000000");
    let other = json!({ "amount": "11", "reference": "payment 1" });
    let taken = Some("reference_taken");
    let refused = account.grant(other).await;
    refused.assert_error(409, "invalid_request_error", taken, Some("reference"));
    let next = json!({ "amount": "1", "reference": "payment 2" });
    account.grant(next).await.assert_ok();
    let else_where = Account::new(&gateway).await;
    else_where.grant(paid.clone()).await.assert_ok();
    assert_eq!(else_where.get("balance").await, "10.000000");
    assert_eq!(account.get("balance").await, "11.000000");
    let path = account.path.clone();
    let gateway = TestGateway::start_in(gateway.stop().await, "").await;
    let account = Account {
        gateway: &gateway,
        path,
    };
    let again = account.grant(paid).await.assert_ok().clone();
    assert_eq!(again, first, "after a restart too");
    assert_eq!(account.get("balance").await, "11.000000");
}
