//! Throttling of clients behind proxies.

use reqwest::Method;

use crate::support::{
    TestGateway,
    portal::{Browser, FORM, encoded},
};

const FORWARDED: &str = "x-forwarded-for";

/// Signs in with a wrong password and these `X-Forwarded-For` headers; returns the status.
async fn guess(browser: &Browser, forwarded: &[&str]) -> u16 {
    let fields = [
        ("token", browser.token()),
        ("email", "victim@example.com".into()),
        ("password", "a wrong guess".into()),
    ];
    let fields: Vec<_> = fields
        .iter()
        .map(|(name, value)| (*name, value.as_str()))
        .collect();
    let mut request = browser
        .request(Method::POST, "/portal/sign-in")
        .header("origin", browser.origin())
        .header("content-type", FORM);
    for line in forwarded {
        request = request.header(FORWARDED, *line);
    }
    browser.send(request.body(encoded(&fields))).await.status
}

/// Guesses until the client is throttled.
async fn use_up(browser: &Browser, forwarded: &[&str]) {
    for _ in 0..8 {
        assert_eq!(guess(browser, forwarded).await, 401);
    }
    assert_eq!(guess(browser, forwarded).await, 429);
}

#[tokio::test]
async fn behind_a_trusted_proxy_clients_are_counted_and_not_the_proxy() {
    let proxies = ("SERVER__TRUSTED_PROXIES", "127.0.0.0/8, 10.0.0.0/8, ::1");
    let gateway = TestGateway::start_set(&[proxies]).await;
    let browser = Browser::new(&gateway);
    browser.get("/portal/sign-in").await.assert_page();
    use_up(&browser, &["203.0.113.7"]).await;
    // Addresses that the client itself sends are further left in the header and are ignored.
    for same in [
        ["198.51.100.1, 203.0.113.7"].as_slice(),
        &["198.51.100.1", "203.0.113.7"],
        &["198.51.100.1, 203.0.113.7, 10.0.0.1"],
    ] {
        assert_eq!(guess(&browser, same).await, 429, "{same:?}");
    }
    // Other clients, and the proxy itself, are counted separately.
    for other in [["203.0.113.8"].as_slice(), &["203.0.113.7, junk"], &[]] {
        assert_eq!(guess(&browser, other).await, 401, "{other:?}");
    }
    gateway.stop().await;
}

#[tokio::test]
async fn without_the_setting_forwarded_headers_are_ignored() {
    for proxies in [None, Some(("SERVER__TRUSTED_PROXIES", "10.0.0.0/8"))] {
        let gateway = TestGateway::start_set(proxies.as_slice()).await;
        let browser = Browser::new(&gateway);
        browser.get("/portal/sign-in").await.assert_page();
        use_up(&browser, &["203.0.113.7"]).await;
        assert_eq!(guess(&browser, &["203.0.113.8"]).await, 429);
        gateway.stop().await;
    }
}
