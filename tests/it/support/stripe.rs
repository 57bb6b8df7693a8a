//! A fake payment provider with Stripe's API and configurable faults.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use axum::{
    Router,
    extract::{Request, State},
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse as _, Response},
};
use percent_encoding::percent_decode_str;
use ring::hmac;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpListener;

use super::{
    Answer,
    gateway::answer,
    portal::{Browser, Seen},
};

pub const SECRET_KEY: &str = "sk_test_canary_0123456789";
pub const WEBHOOK_SECRET: &str = "whsec_canary_0123456789";

pub struct FakeStripe {
    pub address: SocketAddr,
    state: Arc<Shared>,
    /// The folder with the secret files.
    folder: TempDir,
}

struct Shared {
    address: SocketAddr,
    fault: Mutex<Option<Fault>>,
    requests: Mutex<Vec<CheckoutRequest>>,
}

/// A request to create a checkout session.
pub struct CheckoutRequest {
    pub headers: HeaderMap,
    pub fields: BTreeMap<String, String>,
}

/// What the server does instead of responding normally.
#[derive(Clone, Copy, Debug)]
pub enum Fault {
    /// Never responds.
    Hang,
    Redirect,
    Answer(u16, &'static str),
}

impl FakeStripe {
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(Shared {
            address,
            fault: Mutex::default(),
            requests: Mutex::default(),
        });
        let router = Router::new().fallback(serve).with_state(state.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        let folder = TempDir::new().unwrap();
        for (name, secret) in [("key", SECRET_KEY), ("webhook", WEBHOOK_SECRET)] {
            std::fs::write(folder.path().join(name), format!("{secret}\n")).unwrap();
        }
        Self {
            address,
            state,
            folder,
        }
    }

    /// The configuration section for this provider.
    pub fn section(&self) -> String {
        let folder = self.folder.path().display();
        let address = self.address;
        format!(
            "[payments]\nprovider = \"stripe\"\nbase_url = \"http://{address}\"\n\
             secret_key_file = \"{folder}/key\"\nwebhook_secret_file = \"{folder}/webhook\"\n\
             timeout_seconds = 1\n"
        )
    }

    pub fn break_with(&self, fault: impl Into<Option<Fault>>) {
        *self.state.fault.lock().unwrap() = fault.into();
    }

    /// The requests since the last call.
    pub fn requests(&self) -> Vec<CheckoutRequest> {
        std::mem::take(&mut *self.state.requests.lock().unwrap())
    }

    /// Orders credit and returns the IDs of the checkout and of the session.
    pub async fn order(&self, browser: &Browser, amount: &str) -> (String, String) {
        let seen = order(browser, amount).await;
        seen.assert_page();
        let session = seen.between("/pay/", "\"").to_owned();
        let request = self.requests().pop().expect("it got a request");
        (request.fields["client_reference_id"].clone(), session)
    }
}

/// Orders this amount on the billing page.
pub async fn order(browser: &Browser, amount: &str) -> Seen {
    browser.get("/portal/billing").await.assert_page();
    let fields = [("amount", amount)];
    browser.post("/portal/billing/checkout", &fields).await
}

async fn serve(State(state): State<Arc<Shared>>, request: Request) -> Response {
    assert_eq!(request.method(), "POST");
    assert_eq!(request.uri().path(), "/v1/checkout/sessions");
    let (parts, body) = request.into_parts();
    let body = axum::body::to_bytes(body, 1 << 16).await.unwrap();
    let decoded = |text: &str| percent_decode_str(text).decode_utf8().unwrap().into_owned();
    let body = String::from_utf8(body.to_vec()).unwrap();
    let pairs = body.split('&').map(|pair| pair.split_once('=').unwrap());
    let fields = pairs.map(|(name, value)| (decoded(name), decoded(value)));
    let fields: BTreeMap<_, _> = fields.collect();
    let session = format!("cs_test_{}", &fields["client_reference_id"][9..]);
    state.requests.lock().unwrap().push(CheckoutRequest {
        headers: parts.headers,
        fields,
    });
    let fault = *state.fault.lock().unwrap();
    let here = format!("http://{}/pay/{session}", state.address);
    match fault {
        None => json!({ "id": session, "object": "checkout.session", "url": here })
            .to_string()
            .into_response(),
        Some(Fault::Hang) => std::future::pending().await,
        Some(Fault::Redirect) => (StatusCode::FOUND, [(header::LOCATION, here)]).into_response(),
        Some(Fault::Answer(status, body)) => {
            (StatusCode::from_u16(status).unwrap(), body).into_response()
        }
    }
}

/// The event of a paid checkout.
pub fn paid(checkout: &str, session: &str, cents: i64) -> Value {
    json!({
        "id": "evt_1", "object": "event", "type": "checkout.session.completed",
        "data": { "object": {
            "id": session, "object": "checkout.session", "mode": "payment",
            "client_reference_id": checkout, "payment_status": "paid",
            "amount_total": cents, "currency": "usd",
        } },
    })
}

/// Value of the signature header for a body signed at this time.
pub fn signature(secret: &str, at: i64, body: &str) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    let tag = hmac::sign(&key, format!("{at}.{body}").as_bytes());
    let hex = tag.as_ref().iter().fold(String::new(), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    });
    format!("t={at},v1={hex}")
}

/// Delivers an event, signed now.
pub async fn deliver(public: SocketAddr, event: &Value) -> Answer {
    let body = event.to_string();
    let signature = signature(WEBHOOK_SECRET, tollgate::base::timestamp::now(), &body);
    deliver_as(public, Some(&signature), body).await
}

pub async fn deliver_as(public: SocketAddr, signature: Option<&str>, body: String) -> Answer {
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let mut request = client.post(format!("http://{public}/payments/stripe"));
    if let Some(signature) = signature {
        request = request.header("stripe-signature", signature);
    }
    answer(request.body(body)).await
}
