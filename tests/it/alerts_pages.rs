//! Alerts on pages, by the operator API and in the metrics.

use reqwest::Method;
use serde_json::json;

use crate::support::{
    alerts::Watched,
    console::{actions, person, until_shown},
    gateway::{OPERATOR_TOKEN, hello, until},
    portal::Browser,
};

const MODEL: &str = "svc-standard";
const PAGE: &str = "/portal/console/alerts";

#[tokio::test]
async fn an_operator_sees_open_and_closed_alerts_and_their_deliveries() {
    let watched = Watched::start().await;
    let gateway = &watched.gateway;
    let browser = person(gateway).await;
    let page = browser.get(PAGE).await;
    assert!(page.assert_page().contains("No open alerts"));
    let (id, key) = watched.account_with("1").await;
    gateway.chat_as(&key, &hello(MODEL)).await.assert_ok();
    gateway.idle().await;
    watched.hook.answer(500, "text/plain", "<b>no</b>");
    watched.check(0).await;

    let page = browser.get(PAGE).await;
    let text = page.assert_page();
    let account = format!("/portal/console/accounts/{}", id.replace('_', "%5F"));
    for shown in [
        account.as_str(),
        "less than $5.00",
        "Grant the account credit",
        "waiting",
        "the endpoint returned status 500",
        "Alerts <span class=\"badge bad\">1<span class=\"unseen\"> open</span></span>",
    ] {
        assert!(text.contains(shown), "{shown} in {text}");
    }
    let other = browser.get("/portal/console/limits").await;
    assert!(other.assert_page().contains("> open</span>"));
    let listed = gateway.operate(Method::GET, "/operator/alerts", None).await;
    let listed = &listed.assert_ok()["data"];
    assert_eq!(listed[0]["kind"], "balance.low");
    assert_eq!(
        (&listed[0]["subject"], &listed[0]["closed_at"]),
        (&json!(id), &json!(null))
    );
    assert_eq!(listed[0]["deliveries"][0]["state"], "waiting");
    assert_eq!(listed[0]["detail"]["threshold"], "5.000000");
    let metrics = async || {
        let url = format!("http://{}/metrics", gateway.operator);
        let request = gateway.client.get(url).bearer_auth(OPERATOR_TOKEN);
        request.send().await.unwrap().text().await.unwrap()
    };
    let counted = metrics().await;
    for line in [
        "tollgate_alerts_open{kind=\"balance.low\"} 1\n",
        "tollgate_alerts_open{kind=\"audit.mismatch\"} 0\n",
        "tollgate_alert_deliveries_total{channel=\"webhook\",outcome=\"failed\"} 1\n",
    ] {
        assert!(counted.contains(line), "{line} in {counted}");
    }

    watched.give(&id, json!({ "amount": "10" })).await;
    watched.hook.answer(200, "text/plain", "");
    watched.check(30).await;
    let page = browser.get(PAGE).await;
    let text = page.assert_page();
    assert!(
        text.contains("No open alerts") && text.contains("Webhook, resolved"),
        "{text}"
    );
    assert!(!text.contains("> open</span>"), "{text}");
    assert_eq!(browser.get(&format!("{PAGE}?before=x")).await.status, 400);
    let none = browser.get(&format!("{PAGE}?before=0")).await;
    assert!(none.assert_page().contains("No resolved alerts"));
    watched.gateway.stop().await;
}

#[tokio::test]
async fn a_test_alert_is_delivered_at_once_and_recorded() {
    let watched = Watched::start_with("").await;
    let gateway = &watched.gateway;
    let customer = Browser::signed_in(gateway).await;
    customer.get("/portal/settings").await.assert_page();
    let test = format!("{PAGE}/test");
    assert_eq!(customer.post(&test, &[]).await.status, 404);
    let browser = person(gateway).await;
    let page = browser.get(PAGE).await;
    assert!(page.assert_page().contains("Send test alert"));
    browser.post(&test, &[]).await.assert_sent_to(PAGE);
    until("it is delivered", || watched.hook.calls() == 1).await;
    browser.post(&test, &[]).await.assert_sent_to(PAGE);
    until("it is delivered again", || watched.hook.calls() == 2).await;
    let told: Vec<_> = watched
        .notifications()
        .into_iter()
        .map(|(what, kind, _)| (what, kind))
        .collect();
    let expected = ("alert.opened".to_owned(), "alert.test".to_owned());
    assert_eq!(told, [expected.clone(), expected]);
    until_shown(&browser, PAGE, "delivered").await;
    let done = actions(gateway, Some("alerts")).await;
    assert_eq!(
        (done.len(), &*done[0].what, &*done[0].actor),
        (2, "alert.test", &*browser.email)
    );
    watched.gateway.stop().await;
}

#[tokio::test]
async fn owners_see_a_low_balance_and_expiring_credit() {
    let watched = Watched::start_with("low_balance = \"1001.00\"").await;
    let gateway = &watched.gateway;
    let browser = Browser::signed_in(gateway).await;
    let notices = async |path: &str| {
        let page = browser.get(path).await;
        let text = page.assert_page();
        (
            text.contains("Low balance: $1,000.00 left"),
            text.contains("Credit expires soon: $5.00 expires"),
        )
    };
    assert_eq!(
        notices("/portal").await,
        (false, false),
        "it is not used yet"
    );
    assert_eq!(notices("/portal/billing").await, (true, false));
    let (_, key) = browser.new_key("laptop").await;
    gateway.chat_as(&key, &hello(MODEL)).await.assert_ok();
    let until = tollgate::base::timestamp::shown(watched.now + 3 * 86_400);
    let grant = json!({ "amount": "5", "expires_at": until });
    watched.give(&browser.account_id, grant).await;
    for path in ["/portal", "/portal/billing"] {
        assert_eq!(notices(path).await, (false, true), "{path}");
    }
    watched.gateway.stop().await;
}
