//! A gateway whose alert checks run when a test calls them, and a webhook receiver for its alerts.

use std::net::SocketAddr;

use base64::{Engine as _, prelude::BASE64_STANDARD};
use reqwest::Method;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tempfile::TempDir;
use tollgate::{backoffice::AlertWithDeliveries, base::timestamp, gateway::alerts};

use super::{FakeUpstream, TestGateway, upstream::Received};

/// The key bytes that [`SECRET`] encodes after its prefix.
const KEY: &[u8; 32] = b"alert-secret-canary-0123456789ab";
pub const SECRET: &str = "whsec_YWxlcnQtc2VjcmV0LWNhbmFyeS0wMTIzNDU2Nzg5YWI=";
/// A secret part of the webhook's URL, which must not appear in logs or on pages.
pub const PLACE: &str = "place-canary";

pub struct Watched {
    pub gateway: TestGateway,
    pub hook: FakeUpstream,
    /// Start time of the test, as a Unix timestamp.
    pub now: i64,
}

impl Watched {
    /// Starts with automatic checks and deliveries disabled.
    pub async fn start() -> Self {
        Self::start_with("enabled = false").await
    }

    /// Adds `more` to the `[alerts]` section; `more` may add further sections.
    pub async fn start_with(more: &str) -> Self {
        let hook = FakeUpstream::start().await;
        let section = section(hook.address, more);
        Self::start_in(TempDir::new().unwrap(), &section, hook).await
    }

    pub async fn start_in(data: TempDir, section: &str, hook: FakeUpstream) -> Self {
        let secret = data.path().join("webhook-secret");
        std::fs::write(&secret, SECRET).unwrap();
        let section = section.replace("FILE", secret.to_str().unwrap());
        Self {
            gateway: TestGateway::start_in(data, &section).await,
            hook,
            now: timestamp::now(),
        }
    }

    /// Checks all alert conditions as if `seconds` had passed since the start, and delivers the notifications due by
    /// then.
    pub async fn check(&self, seconds: i64) {
        let looked = alerts::check(self.gateway.inside(), self.now + seconds).await;
        looked.unwrap();
        self.deliver(seconds).await;
    }

    pub async fn deliver(&self, seconds: i64) {
        let told = alerts::deliver(self.gateway.inside(), self.now + seconds).await;
        told.unwrap();
    }

    /// Type, kind and subject of each received notification; each one's signature and form are asserted.
    pub fn notifications(&self) -> Vec<(String, String, String)> {
        let notifications = self.hook.received();
        let told = notifications.iter().map(|message| {
            assert_signed(message);
            let text = |value: &Value| value.as_str().unwrap().to_owned();
            let (body, data) = (&message.body, &message.body["data"]);
            (
                text(&body["type"]),
                text(&data["kind"]),
                text(&data["subject"]),
            )
        });
        told.collect()
    }

    /// Open alerts and closed alerts.
    pub async fn alerts(&self) -> (Vec<AlertWithDeliveries>, Vec<AlertWithDeliveries>) {
        let backoffice = &self.gateway.inside().backoffice;
        (
            backoffice.open_alerts_with_deliveries(100).await.unwrap(),
            backoffice
                .closed_alerts_with_deliveries(None, 100)
                .await
                .unwrap(),
        )
    }

    /// Creates an account with this much credit and returns its ID and a key.
    pub async fn account_with(&self, dollars: &str) -> (String, String) {
        let body = json!({ "email": "owner@example.com", "track": "business", "tier": "flex" });
        let made = self
            .gateway
            .operate(Method::POST, "/operator/accounts", Some(body));
        let id = made.await.assert_ok()["id"].as_str().unwrap().to_owned();
        self.give(&id, json!({ "amount": dollars })).await;
        let (_, key) = self.gateway.new_key(&id).await;
        (id, key)
    }

    pub async fn give(&self, account_id: &str, grant: Value) -> String {
        let path = format!("/operator/accounts/{account_id}/grants");
        let given = self.gateway.operate(Method::POST, &path, Some(grant)).await;
        given.assert_ok()["id"].as_str().unwrap().to_owned()
    }
}

/// The `[alerts]` section with a webhook at this address. The secret is in a file that is written later.
pub fn section(hook: SocketAddr, more: &str) -> String {
    format!(
        "[alerts]\nwebhook_url = \"http://{hook}/{PLACE}?key={PLACE}\"\n\
         webhook_secret_file = \"FILE\"\n{more}\n"
    )
}

/// Verifies the signature independently of the gateway's code, as a receiver with the secret does.
#[track_caller]
pub fn assert_signed(message: &Received) {
    let header = |name: &str| message.header(name).unwrap_or_else(|| panic!("no {name}"));
    let signed = format!(
        "{}.{}.{}",
        header("webhook-id"),
        header("webhook-timestamp"),
        message.text
    );
    let padded = |byte: u8| -> Vec<u8> {
        let key = KEY.iter().copied().chain(std::iter::repeat(0)).take(64);
        key.map(|one| one ^ byte).collect()
    };
    let inner = Sha256::digest([padded(0x36).as_slice(), signed.as_bytes()].concat());
    let outer = Sha256::digest([padded(0x5c).as_slice(), inner.as_slice()].concat());
    let expected = format!("v1,{}", BASE64_STANDARD.encode(outer));
    assert_eq!(header("webhook-signature"), expected);
    assert_eq!(header("content-type"), "application/json");
}
