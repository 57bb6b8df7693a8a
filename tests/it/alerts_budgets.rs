//! Alerts of budgets: each share is announced once in a period, to owners, billing people and the webhook.

use reqwest::Method;
use serde_json::{Value, json};
use tollgate::backoffice::{NewPerson, Role, TeamRole};

use crate::support::{
    alerts::Watched,
    gateway::{OPERATOR_TOKEN, hello},
    ledger_view::PRICE,
    smtp::FakeSmtp,
};

const MODEL: &str = "svc-standard";

async fn budget(watched: &Watched, account: &str, calls: i64, hard: bool) -> Value {
    let nanos = calls * PRICE;
    let body = json!({
        "account": account, "scope": "account", "amount": format!("0.{nanos:09}"), "period": "month",
        "name": "team", "hard": hard,
    });
    let path = "/operator/budgets";
    let set = watched.gateway.operate(Method::PUT, path, Some(body)).await;
    set.assert_ok().clone()
}

async fn person(watched: &Watched, account: &str, role: TeamRole) {
    let new = NewPerson {
        email: format!("{}@example.com", role.as_str()),
        name: None,
        password: None,
        role: Role::Customer,
        account_id: account.to_owned(),
        team_role: role,
        now: watched.now,
    };
    let added = watched.gateway.inside().backoffice.add_person(new).await;
    added.unwrap();
}

#[tokio::test]
async fn each_share_is_announced_once_to_owners_and_billing_people() {
    let smtp = FakeSmtp::start().await;
    let more = format!(
        "enabled = false\ntell_customers = false\nmail_to = [\"ops@example.com\"]\n{}",
        smtp.section()
    );
    let watched = Watched::start_with(&more).await;
    let (id, key) = watched.account_with("1000").await;
    for role in [
        TeamRole::Owner,
        TeamRole::Billing,
        TeamRole::Developer,
        TeamRole::Viewer,
    ] {
        person(&watched, &id, role).await;
    }
    let set = budget(&watched, &id, 10, false).await;
    let spend = async |calls: usize| {
        for _ in 0..calls {
            watched
                .gateway
                .chat_as(&key, &hello(MODEL))
                .await
                .assert_ok();
        }
        watched.gateway.idle().await;
    };
    let mails = async |count: usize| {
        let mut mails = Vec::new();
        for _ in 0..count {
            mails.push(smtp.next_mail().await);
        }
        mails.sort_unstable_by(|one, other| one.to.cmp(&other.to));
        assert!(smtp.is_empty());
        mails
    };
    spend(4).await;
    watched.check(0).await;
    assert_eq!(watched.notifications(), [], "40 %");
    spend(1).await;
    for seconds in [30, 60] {
        watched.check(seconds).await;
    }
    let told = mails(2).await;
    let to: Vec<_> = told.iter().map(|mail| &*mail.to).collect();
    assert_eq!(to, ["billing@example.com", "owner@example.com"]);
    let text = &told[0].text;
    assert!(
        text.contains("Subject: 50% of the budget team is spent"),
        "{text}"
    );
    assert!(
        text.contains(
            "The budget of the account `team` is $0.00049 a month, and $0.000245 of it is spent."
        ),
        "{text}"
    );
    assert!(
        text.contains("Requests continue: this budget only warns."),
        "{text}"
    );
    let received = watched.hook.received();
    let data = &received[0].body["data"];
    assert_eq!(
        (received.len(), &data["kind"]),
        (1, &json!("budget.reached"))
    );
    let detail = &data["detail"];
    let figures = [
        "account",
        "budget",
        "scope",
        "amount",
        "spent",
        "percent",
        "resets_at",
    ]
    .map(|name| &detail[name]);
    let expected = [
        json!(id),
        set["id"].clone(),
        json!("account"),
        json!("0.000490"),
        json!("0.000245"),
        json!(50),
        set["resets_at"].clone(),
    ];
    assert_eq!(figures, expected.each_ref());
    // Both shares at once: the higher one. That the lower one is over is no news.
    spend(5).await;
    watched.check(90).await;
    let told = mails(2).await;
    assert!(
        told[0].text.contains("Subject: The budget team is used up"),
        "{}",
        told[0].text
    );
    let kinds: Vec<_> = watched
        .notifications()
        .into_iter()
        .map(|(what, kind, _)| (what, kind))
        .collect();
    let opened = ("alert.opened".to_owned(), "budget.reached".to_owned());
    assert_eq!(kinds, [opened.clone(), opened]);
    let (open, past) = watched.alerts().await;
    assert_eq!((open.len(), past.len()), (1, 1));
    let url = format!("http://{}/metrics", watched.gateway.operator);
    let metrics = watched.gateway.client.get(url).bearer_auth(OPERATOR_TOKEN);
    let metrics = metrics.send().await.unwrap().text().await.unwrap();
    let used_up = metrics
        .lines()
        .any(|line| line == "tollgate_budgets_used_up 1");
    assert!(used_up, "{metrics}");
    // Raised, nothing is reached any more.
    budget(&watched, &id, 100, true).await;
    watched.check(120).await;
    assert!(smtp.is_empty());
    assert_eq!(watched.alerts().await.0.len(), 0);
    watched.gateway.stop().await;
}

/// What is left of a hard budget may be too little for any call.
#[tokio::test]
async fn a_budget_that_refuses_is_used_up() {
    let watched = Watched::start().await;
    let (id, key) = watched.account_with("1000").await;
    budget(&watched, &id, 20, false).await;
    for _ in 0..19 {
        watched
            .gateway
            .chat_as(&key, &hello(MODEL))
            .await
            .assert_ok();
    }
    watched.gateway.idle().await;
    watched.check(0).await;
    budget(&watched, &id, 20, true).await;
    watched.check(30).await;
    let told = |at: usize| watched.hook.received()[at].body["data"]["detail"]["percent"].clone();
    assert_eq!((watched.notifications().len(), told(0)), (1, json!(80)));
    let refused = watched.gateway.chat_as(&key, &hello(MODEL)).await;
    refused.assert_error(402, "budget_exceeded", Some("payment_required"), None);
    for seconds in [60, 90] {
        watched.check(seconds).await;
    }
    assert_eq!((watched.notifications().len(), told(1)), (2, json!(100)));
    watched.gateway.stop().await;
}
