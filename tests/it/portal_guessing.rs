//! Guessing of passwords: slow from any number of addresses, and no means to lock out others.

use crate::support::{
    TestGateway,
    portal::{Browser, PASSWORD, Seen},
};

/// Clients are told apart by the `X-Forwarded-For` header, as behind a proxy.
async fn behind_a_proxy() -> TestGateway {
    TestGateway::start_set(&[("SERVER__TRUSTED_PROXIES", "127.0.0.0/8")]).await
}

async fn change_password(browser: &Browser, address: &str, present: &str) -> Seen {
    browser.get("/portal/settings").await.assert_page();
    let fields = [("present", present), ("new", "another password")];
    let path = "/portal/settings/password";
    browser.post_from(address, path, &fields).await
}

/// Opens the sign-in page and submits it from this address.
async fn sign_in_from(browser: &Browser, address: &str, email: &str, password: &str) -> Seen {
    browser.get("/portal/sign-in").await.assert_page();
    let fields = [("email", email), ("password", password)];
    browser.post_from(address, "/portal/sign-in", &fields).await
}

#[tokio::test]
async fn guesses_at_ones_own_password_do_not_lock_out_others() {
    let gateway = behind_a_proxy().await;
    let owner = Browser::signed_in(&gateway).await;
    let mut stranger = Browser::new(&gateway);
    // Together they exceed what their network may guess at passwords.
    for _ in 0..8 {
        stranger = Browser::signed_in(&gateway).await;
        for _ in 0..8 {
            let refused = change_password(&stranger, "203.0.113.7", "a wrong guess").await;
            assert_eq!(refused.status, 400, "{}", refused.text);
        }
    }
    // A person is counted at all addresses together.
    let refused = change_password(&stranger, "203.0.113.99", PASSWORD).await;
    assert_eq!(refused.status, 429);
    assert!(!refused.header("retry-after").is_empty());
    // Others are not, not even at the stranger's address.
    let changed = change_password(&owner, "203.0.113.7", PASSWORD).await;
    changed.assert_sent_to("/portal/settings");
    gateway.stop().await;
}

#[tokio::test]
async fn guesses_from_many_addresses_are_slowed_and_known_browsers_are_not() {
    let gateway = behind_a_proxy().await;
    let owner = Browser::signed_in(&gateway).await;
    owner.post("/portal/sign-out", &[]).await;
    // An address without an account is slowed alike, so that this does not reveal which addresses have one.
    for email in [owner.email.as_str(), "nobody@example.com"] {
        let guesser = Browser::new(&gateway);
        let mut statuses = Vec::new();
        for number in 0..18 {
            let address = format!("198.51.100.{number}");
            let seen = sign_in_from(&guesser, &address, email, "a wrong guess").await;
            if seen.status == 429 {
                let seconds: u64 = seen.header("retry-after").parse().unwrap();
                assert!((1..=300).contains(&seconds), "{seconds}");
            }
            statuses.push(seen.status);
        }
        assert_eq!(statuses, [[401; 16].as_slice(), &[429; 2]].concat());
    }
    // An unknown browser waits, even with the right password and another person's cookie of a known browser.
    let other = Browser::signed_in(&gateway).await;
    let unknown = Browser::new(&gateway);
    unknown.set_cookie("tollgate-device", &other.cookie("tollgate-device").unwrap());
    let seen = sign_in_from(&unknown, "203.0.113.1", &owner.email, PASSWORD).await;
    assert_eq!(seen.status, 429);
    // The owner's browser does not, at any address.
    for address in ["203.0.113.2", "198.51.100.1"] {
        let seen = sign_in_from(&owner, address, &owner.email, PASSWORD).await;
        seen.assert_sent_to("/portal");
    }
    gateway.stop().await;
}

/// The store finds a person whatever space is around the address.
#[tokio::test]
async fn spaces_around_an_address_do_not_make_another_counter() {
    let gateway = TestGateway::start().await;
    let owner = Browser::signed_in(&gateway).await;
    let guesser = Browser::new(&gateway);
    let mut statuses = Vec::new();
    for number in 1..10 {
        // Longer than an address may be: what is cut off ends with other characters than space.
        let space = "\u{2003}".repeat(number) + &" ".repeat(300);
        let email = format!("{}{space}x", owner.email);
        statuses.push(guesser.sign_in(&email, "a wrong guess").await.status);
    }
    assert_eq!(statuses, [[401; 8].as_slice(), &[429; 1]].concat());
    gateway.stop().await;
}
