//! A fake OpenID Connect issuer with configurable claims and faults.

use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard},
};

use axum::{
    Router,
    body::Body,
    extract::{Form, State},
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse as _, Response},
    routing::{get, post},
};
use base64::{
    Engine as _,
    prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD},
};
use reqwest::Url;
use ring::{
    digest, hmac,
    rand::SystemRandom,
    signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _},
};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::{
    TestGateway,
    gateway::PROVIDER_KEY,
    portal::{Browser, Seen, encoded},
};

pub const CLIENT: &str = "tollgate client/1";
/// The only secret that gateways under test have in their environment.
pub const SECRET: &str = PROVIDER_KEY;
pub const NAME: &str = "Example ID";

#[derive(Clone)]
pub struct FakeIssuer {
    pub address: SocketAddr,
    state: Arc<Mutex<Shared>>,
}

struct Shared {
    url: String,
    /// Signing keys; the last one signs.
    keys: Vec<Signer>,
    grants: HashMap<String, Grant>,
    given: usize,
    fault: Option<Fault>,
    /// Claims that the userinfo endpoint returns and the token lacks.
    userinfo: Option<Value>,
    /// Requested paths, in order.
    requests: Vec<&'static str>,
}

struct Signer {
    id: String,
    pair: EcdsaKeyPair,
}

/// What an authorization code can be exchanged for, once.
struct Grant {
    challenge: String,
    redirect_uri: String,
    id_token: String,
}

/// Faults of the discovery document.
#[derive(Clone, Debug)]
pub enum Fault {
    Status(u16),
    Redirect(String),
    Body(&'static str),
    Huge,
    /// The document names this issuer instead.
    OtherIssuer(&'static str),
}

/// How a token is signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signed {
    Valid,
    /// A valid signature of another payload.
    OtherPayload,
    /// Unsigned (`alg: none`).
    Unsigned,
    /// With the public key used as an HMAC secret (HS256).
    WithPublicKey,
    /// With a key that the issuer does not publish.
    WithUnknownKey,
}

/// Query parameters of an authorization request.
pub struct AuthorizationRequest(pub HashMap<String, String>);

impl AuthorizationRequest {
    #[track_caller]
    pub fn read(location: &str) -> Self {
        let url = Url::parse(location).unwrap_or_else(|_| panic!("no URL: {location}"));
        Self(url.query_pairs().into_owned().collect())
    }

    pub fn field(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }
}

impl FakeIssuer {
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Shared {
            // The trailing slash is a part of the issuer's identifier.
            url: format!("http://{address}/realm/"),
            keys: vec![Signer::new("first")],
            grants: HashMap::new(),
            given: 0,
            fault: None,
            userinfo: None,
            requests: Vec::new(),
        };
        let issuer = Self {
            address,
            state: Arc::new(Mutex::new(shared)),
        };
        let router = Router::new()
            .route("/realm/.well-known/openid-configuration", get(document))
            .route("/keys", get(keys))
            .route("/token", post(token))
            .route("/userinfo", get(userinfo))
            .with_state(issuer.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        issuer
    }

    /// Starts a gateway that has this issuer configured for sign-in.
    pub async fn gateway(&self, settings: &[(&str, &str)]) -> TestGateway {
        let url = self.url();
        let own = [
            ("PORTAL__OIDC__ISSUER", url.as_str()),
            ("PORTAL__OIDC__CLIENT_ID", CLIENT),
            ("PORTAL__OIDC__CLIENT_SECRET_ENV", "PROVIDER_KEY"),
            ("PORTAL__OIDC__NAME", NAME),
        ];
        TestGateway::start_set(&[&own, settings].concat()).await
    }

    pub fn url(&self) -> String {
        self.state().url.clone()
    }

    pub fn break_with(&self, fault: impl Into<Option<Fault>>) {
        self.state().fault = fault.into();
    }

    pub fn set_userinfo(&self, told: Value) {
        self.state().userinfo = Some(told);
    }

    /// Replaces the signing key; the old key is no longer published.
    pub fn rotate(&self, id: &str) {
        self.state().keys = vec![Signer::new(id)];
    }

    /// The paths requested since the last call.
    pub fn requests(&self) -> Vec<&'static str> {
        std::mem::take(&mut self.state().requests)
    }

    /// An authorization code for a token with these claims; `null` removes a default claim.
    pub fn grant(&self, request: &AuthorizationRequest, claims: &Value, signed: Signed) -> String {
        let mut state = self.state();
        state.given += 1;
        let code = format!("code-canary/{}", state.given);
        let now = tollgate::base::timestamp::now();
        let mut payload = json!({
            "iss": state.url, "aud": CLIENT, "sub": "subject-1", "exp": now + 300, "iat": now,
            "nonce": request.field("nonce"), "email": "ada@example.com", "email_verified": true,
            "name": "Ada",
        });
        let all = payload.as_object_mut().unwrap();
        for (name, value) in claims.as_object().unwrap() {
            all.insert(name.clone(), value.clone());
        }
        all.retain(|_, value| !value.is_null());
        let grant = Grant {
            challenge: request.field("code_challenge").to_owned(),
            redirect_uri: request.field("redirect_uri").to_owned(),
            id_token: state.keys.last().unwrap().token(&payload, signed),
        };
        state.grants.insert(code.clone(), grant);
        code
    }

    /// Signs a browser in: it visits the issuer and returns with a code for these claims.
    pub async fn sign_in(&self, browser: &Browser, claims: &Value) -> Seen {
        let request = start_sign_in(browser, "").await;
        let code = self.grant(&request, claims, Signed::Valid);
        return_with(browser, &code, request.field("state")).await
    }

    fn state(&self) -> MutexGuard<'_, Shared> {
        self.state.lock().unwrap()
    }
}

pub async fn start_sign_in(browser: &Browser, to: &str) -> AuthorizationRequest {
    let start = format!("/portal/oidc/start?{}", encoded(&[("to", to)]));
    let seen = browser.get(&start).await;
    assert_eq!(seen.status, 303, "{}", seen.text);
    AuthorizationRequest::read(seen.header("location"))
}

pub async fn return_with(browser: &Browser, code: &str, state: &str) -> Seen {
    let query = encoded(&[("code", code), ("state", state)]);
    let path = format!("/portal/oidc/callback?{query}");
    browser.get_from_elsewhere(&path).await
}

impl Signer {
    fn new(id: &str) -> Self {
        let (random, kind) = (SystemRandom::new(), &ECDSA_P256_SHA256_FIXED_SIGNING);
        let document = EcdsaKeyPair::generate_pkcs8(kind, &random).unwrap();
        Self {
            id: id.to_owned(),
            pair: EcdsaKeyPair::from_pkcs8(kind, document.as_ref(), &random).unwrap(),
        }
    }

    fn public(&self) -> Value {
        let point = self.pair.public_key().as_ref();
        let text = |bytes: &[u8]| BASE64_URL_SAFE_NO_PAD.encode(bytes);
        json!({
            "kty": "EC", "crv": "P-256", "use": "sig", "alg": "ES256", "kid": self.id,
            "x": text(&point[1..33]), "y": text(&point[33..]),
        })
    }

    fn token(&self, payload: &Value, signed: Signed) -> String {
        let algorithm = match signed {
            Signed::Unsigned => "none",
            Signed::WithPublicKey => "HS256",
            _ => "ES256",
        };
        let part = |value: &Value| BASE64_URL_SAFE_NO_PAD.encode(value.to_string());
        let header = json!({ "alg": algorithm, "kid": self.id, "typ": "JWT" });
        let text = format!("{}.{}", part(&header), part(payload));
        let sign = |pair: &EcdsaKeyPair, text: &str| {
            let signature = pair.sign(&SystemRandom::new(), text.as_bytes()).unwrap();
            signature.as_ref().to_vec()
        };
        let signature = match signed {
            Signed::Valid => sign(&self.pair, &text),
            Signed::OtherPayload => sign(&self.pair, &text[1..]),
            Signed::Unsigned => Vec::new(),
            Signed::WithPublicKey => {
                let key = hmac::Key::new(hmac::HMAC_SHA256, self.pair.public_key().as_ref());
                hmac::sign(&key, text.as_bytes()).as_ref().to_vec()
            }
            Signed::WithUnknownKey => sign(&Self::new("nobody").pair, &text),
        };
        format!("{text}.{}", BASE64_URL_SAFE_NO_PAD.encode(signature))
    }
}

async fn document(State(issuer): State<FakeIssuer>) -> Response {
    let mut state = issuer.state();
    state.requests.push("document");
    let mut name = state.url.clone();
    match &state.fault {
        None => {}
        Some(Fault::Status(status)) => {
            return StatusCode::from_u16(*status).unwrap().into_response();
        }
        Some(Fault::Redirect(to)) => {
            return (StatusCode::FOUND, [(header::LOCATION, to.clone())]).into_response();
        }
        Some(Fault::Body(body)) => return body.into_response(),
        Some(Fault::Huge) => return Body::from("x".repeat(2 << 20)).into_response(),
        Some(Fault::OtherIssuer(other)) => (*other).clone_into(&mut name),
    }
    let at = |path: &str| format!("http://{}/{path}", issuer.address);
    let document = json!({
        "issuer": name,
        "authorization_endpoint": at("authorize?kept=1"),
        "token_endpoint": at("token"),
        "jwks_uri": at("keys"),
        "userinfo_endpoint": at("userinfo"),
    });
    document.to_string().into_response()
}

async fn keys(State(issuer): State<FakeIssuer>) -> Response {
    let mut state = issuer.state();
    state.requests.push("keys");
    let keys: Vec<_> = state.keys.iter().map(Signer::public).collect();
    json!({ "keys": keys }).to_string().into_response()
}

async fn userinfo(State(issuer): State<FakeIssuer>, headers: HeaderMap) -> Response {
    let mut state = issuer.state();
    state.requests.push("userinfo");
    let is_known = headers
        .get(header::AUTHORIZATION)
        .is_some_and(|sent| sent == "Bearer access-canary");
    match &state.userinfo {
        Some(told) if is_known => told.to_string().into_response(),
        _ => StatusCode::UNAUTHORIZED.into_response(),
    }
}

async fn token(
    State(issuer): State<FakeIssuer>,
    headers: HeaderMap,
    Form(sent): Form<HashMap<String, String>>,
) -> Response {
    let mut state = issuer.state();
    state.requests.push("token");
    let field = |name: &str| sent.get(name).map_or("", String::as_str);
    let refused = |error: &str| {
        // Echoes the whole request, secret included, which the gateway must not log or show.
        let body = json!({ "error": error, "error_description": sent });
        (StatusCode::BAD_REQUEST, body.to_string()).into_response()
    };
    let pair = encoded(&[(CLIENT, SECRET)]).replace('=', ":");
    let basic = format!("Basic {}", BASE64_STANDARD.encode(pair));
    let is_client = headers
        .get(header::AUTHORIZATION)
        .is_some_and(|sent| sent == basic.as_str());
    if !is_client {
        return refused("invalid_client");
    }
    let Some(grant) = state.grants.remove(field("code")) else {
        return refused("invalid_grant");
    };
    let verifier = digest::digest(&digest::SHA256, field("code_verifier").as_bytes());
    let is_right = field("grant_type") == "authorization_code"
        && field("redirect_uri") == grant.redirect_uri
        && BASE64_URL_SAFE_NO_PAD.encode(verifier) == grant.challenge;
    if !is_right {
        return refused("invalid_grant");
    }
    let tokens = json!({ "id_token": grant.id_token, "access_token": "access-canary" });
    tokens.to_string().into_response()
}
