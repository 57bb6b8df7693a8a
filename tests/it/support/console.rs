//! Browsers of operators in the console.

use std::time::Duration;

use tollgate::backoffice::{Action, Role};

use super::{
    TestGateway,
    gateway::OPERATOR_TOKEN,
    portal::{Browser, Seen},
};

pub const PAGES: [&str; 13] = [
    "/portal/console",
    "/portal/console/accounts",
    "/portal/console/people",
    "/portal/console/requests",
    "/portal/console/requests/refused",
    "/portal/console/models",
    "/portal/console/config",
    "/portal/console/limits",
    "/portal/console/deployments",
    "/portal/console/margin",
    "/portal/console/audit",
    "/portal/console/actions",
    "/portal/console/alerts",
];

/// A browser that signed in with the operator token.
pub async fn with_token(gateway: &TestGateway) -> Browser {
    let browser = Browser::new(gateway);
    let signed_in = give_token(&browser, OPERATOR_TOKEN).await;
    signed_in.assert_sent_to("/portal/console");
    browser
}

pub async fn give_token(browser: &Browser, token: &str) -> Seen {
    browser.get("/portal/console/sign-in").await.assert_page();
    let secret = [("secret", token)];
    browser.post("/portal/console/sign-in", &secret).await
}

/// A browser of a person with an account and the operator role.
pub async fn person(gateway: &TestGateway) -> Browser {
    let browser = Browser::signed_in(gateway).await;
    set_role(gateway, &browser, Role::Operator).await;
    browser
}

pub async fn set_role(gateway: &TestGateway, browser: &Browser, role: Role) {
    let backoffice = &gateway.inside().backoffice;
    let person = backoffice.person_by_email(&browser.email).await.unwrap();
    backoffice
        .set_role(&person.unwrap().id, role)
        .await
        .unwrap();
}

/// The recorded operator actions, newest first.
pub async fn actions(gateway: &TestGateway, subject: Option<&str>) -> Vec<Action> {
    let page = gateway
        .inside()
        .backoffice
        .actions_page(subject, None, 1_000);
    let page = page.await.unwrap();
    page.into_iter().map(|recorded| recorded.action).collect()
}

/// Loads a page repeatedly until it contains the text.
pub async fn until_shown(browser: &Browser, path: &str, text: &str) -> Seen {
    for _ in 0..200 {
        let seen = browser.get(path).await;
        if seen.text.contains(text) {
            return seen;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("no {text:?} on {path}");
}
