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
    /// Responses to payments with a saved card, by idempotency key.
    charges: Mutex<BTreeMap<String, (u16, Value)>>,
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
    /// Knows no payment and no customer, as with a key of another account.
    Unknown,
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
            charges: Mutex::default(),
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

    /// The saved card's successful payments in cents, by checkout.
    pub fn charged(&self) -> BTreeMap<String, i64> {
        let charges = self.state.charges.lock().unwrap();
        let paid = charges.iter().filter(|(_, (status, _))| *status == 200);
        paid.map(|(key, (_, intent))| (key.clone(), intent["amount_received"].as_i64().unwrap()))
            .collect()
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
    let path = request.uri().path().to_owned();
    if request.method() == "GET" {
        if let Some(Fault::Unknown) = *state.fault.lock().unwrap() {
            let missing = r#"{"error":{"type":"invalid_request_error","code":"resource_missing"}}"#;
            return (StatusCode::NOT_FOUND, missing).into_response();
        }
        return look_up(&state, &path).to_string().into_response();
    }
    assert_eq!(request.method(), "POST");
    let (parts, body) = request.into_parts();
    let body = axum::body::to_bytes(body, 1 << 16).await.unwrap();
    let decoded = |text: &str| percent_decode_str(text).decode_utf8().unwrap().into_owned();
    let body = String::from_utf8(body.to_vec()).unwrap();
    let pairs = body.split('&').map(|pair| pair.split_once('=').unwrap());
    let fields = pairs.map(|(name, value)| (decoded(name), decoded(value)));
    let fields: BTreeMap<_, _> = fields.collect();
    if path == "/v1/payment_intents" {
        return charge(&state, parts.headers, fields).await;
    }
    assert_eq!(path, "/v1/checkout/sessions");
    let session = format!("cs_test_{}", &fields["client_reference_id"][9..]);
    state.requests.lock().unwrap().push(CheckoutRequest {
        headers: parts.headers,
        fields,
    });
    let fault = *state.fault.lock().unwrap();
    let here = format!("http://{}/pay/{session}", state.address);
    match fault {
        None | Some(Fault::Unknown) => {
            json!({ "id": session, "object": "checkout.session", "url": here })
                .to_string()
                .into_response()
        }
        Some(Fault::Hang) => std::future::pending().await,
        Some(Fault::Redirect) => (StatusCode::FOUND, [(header::LOCATION, here)]).into_response(),
        Some(Fault::Answer(status, body)) => {
            (StatusCode::from_u16(status).unwrap(), body).into_response()
        }
    }
}

/// A payment intent, or the list of those that have succeeded. Any other is the one with which the card was saved.
fn look_up(state: &Shared, path: &str) -> Value {
    let charges = state.charges.lock().unwrap();
    let mut paid = charges.values().filter(|(status, _)| *status == 200);
    if path == "/v1/payment_intents" {
        let intents: Vec<_> = paid.map(|(_, intent)| intent.clone()).collect();
        return json!({ "object": "list", "data": intents, "has_more": false });
    }
    let id = path.strip_prefix("/v1/payment_intents/").unwrap();
    match paid.find(|(_, intent)| intent["id"] == id) {
        Some((_, intent)) => intent.clone(),
        None => json!({ "id": id, "status": "succeeded", "payment_method": "pm_1" }),
    }
}

/// Charges the saved card once for each idempotency key, also if the response is then lost.
async fn charge(state: &Shared, headers: HeaderMap, fields: BTreeMap<String, String>) -> Response {
    let fault = *state.fault.lock().unwrap();
    let key = headers["idempotency-key"].to_str().unwrap().to_owned();
    let (status, body) = {
        let mut charges = state.charges.lock().unwrap();
        let new = || {
            if let Some(Fault::Answer(status, body)) = fault {
                return (status, serde_json::from_str(body).unwrap());
            }
            let cents: i64 = fields["amount"].parse().unwrap();
            let paid = json!({
                "id": format!("pi_{}", &key["checkout_".len()..]), "status": "succeeded",
                "amount_received": cents, "currency": fields["currency"],
                "metadata": { "top_up": fields["metadata[top_up]"] },
            });
            (200, paid)
        };
        charges.entry(key.clone()).or_insert_with(new).clone()
    };
    state
        .requests
        .lock()
        .unwrap()
        .push(CheckoutRequest { headers, fields });
    if let Some(Fault::Hang) = fault {
        std::future::pending::<()>().await;
    }
    (StatusCode::from_u16(status).unwrap(), body.to_string()).into_response()
}

/// The event of a paid checkout that saved the card.
pub fn paid_and_saved(checkout: &str, session: &str, cents: i64) -> Value {
    let mut event = paid(checkout, session, cents);
    event["data"]["object"]["customer"] = "cus_1".into();
    event["data"]["object"]["payment_intent"] = "pi_1".into();
    event
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
