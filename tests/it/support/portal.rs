//! A headless browser: it keeps cookies, and submits forms with the CSRF token of the page they are on.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    net::SocketAddr,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use reqwest::{Method, header::HeaderMap, redirect::Policy};
use serde_json::json;

use super::TestGateway;

pub const PASSWORD: &str = "correct horse battery";
/// Input that must be escaped on every page.
pub const SCRIPT: &str = "<script>alert('x')</script>";

pub struct Browser {
    client: reqwest::Client,
    origin: String,
    cookies: Mutex<BTreeMap<String, String>>,
    /// The CSRF token of the last page with a form.
    token: Mutex<String>,
    pub email: String,
    pub account_id: String,
}

#[derive(Debug)]
pub struct Seen {
    pub status: u16,
    pub headers: HeaderMap,
    pub text: String,
}

impl Seen {
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |it| it.to_str().unwrap())
    }

    #[track_caller]
    pub fn assert_page(&self) -> &str {
        assert_eq!(self.status, 200, "{}", self.text);
        assert!(self.header("content-type").starts_with("text/html"));
        &self.text
    }

    /// Asserts a redirect to `to`.
    #[track_caller]
    pub fn assert_sent_to(&self, to: &str) {
        assert_eq!(self.status, 303, "{}", self.text);
        assert_eq!(self.header("location"), to);
    }

    /// Asserts the response for a charge in the playground that is not known, or not the visitor's.
    #[track_caller]
    pub fn assert_pending(&self) {
        assert_eq!(
            (self.status, self.text.as_str()),
            (202, r#"{"pending":true}"#)
        );
    }

    /// The text between two texts on the page.
    #[track_caller]
    pub fn between(&self, before: &str, after: &str) -> &str {
        let found = self.text.split_once(before).map(|(_, rest)| rest);
        let found = found.and_then(|rest| rest.split_once(after));
        found
            .unwrap_or_else(|| panic!("no {before}…{after} in {}", self.text))
            .0
    }
}

impl Browser {
    /// A browser that is not signed in.
    pub fn new(gateway: &TestGateway) -> Self {
        Self::at(gateway.public)
    }

    /// Like `new`, for a gateway at this address.
    pub fn at(public: SocketAddr) -> Self {
        let client = reqwest::Client::builder()
            .no_proxy()
            .redirect(Policy::none());
        Self::with(client, format!("http://{public}"))
    }

    /// A browser that uses HTTP/2 and another host name than the gateway's.
    pub fn over_http2(gateway: &TestGateway) -> Self {
        let client = reqwest::Client::builder()
            .no_proxy()
            .redirect(Policy::none())
            .http2_prior_knowledge();
        let origin = format!("http://localhost:{}", gateway.public.port());
        Self::with(client, origin)
    }

    fn with(client: reqwest::ClientBuilder, origin: String) -> Self {
        Self {
            client: client.build().unwrap(),
            origin,
            cookies: Mutex::default(),
            token: Mutex::default(),
            email: String::new(),
            account_id: String::new(),
        }
    }

    /// Creates a person with a Business/flex account and 1,000 dollars, and signs them in.
    pub async fn signed_in(gateway: &TestGateway) -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let mut browser = Self::new(gateway);
        browser.email = format!("person{}@example.com", NEXT.fetch_add(1, Relaxed));
        browser
            .sign_up(&browser.email)
            .await
            .assert_sent_to("/portal");
        let settings = browser.get("/portal/settings").await;
        browser.account_id = format!("acct_{}", settings.between(">acct_", "<"));
        let account = format!("/operator/accounts/{}", browser.account_id);
        let flex = json!({ "track": "business", "tier": "flex" });
        gateway
            .operate(Method::PATCH, &account, Some(flex))
            .await
            .assert_ok();
        let credit = json!({ "amount": "1000", "reason": "a gift" });
        let grants = format!("{account}/grants");
        gateway
            .operate(Method::POST, &grants, Some(credit))
            .await
            .assert_ok();
        browser
    }

    pub async fn sign_up(&self, email: &str) -> Seen {
        self.get("/portal/sign-up").await.assert_page();
        let fields = [("email", email), ("password", PASSWORD), ("name", "")];
        self.post("/portal/sign-up", &fields).await
    }

    /// Invites an address to this owner's account and returns the link.
    pub async fn invite(&self, email: &str, role: &str) -> String {
        self.get("/portal/members").await.assert_page();
        let fields = [("email", email), ("role", role)];
        let made = self.post("/portal/members/invitations", &fields).await;
        made.assert_page();
        made.between("id=\"new-link\">", "<").to_owned()
    }

    /// Opens the link of an invitation and joins with a password.
    pub async fn join(&self, link: &str) -> Seen {
        let path = &link[link.find("/portal/").unwrap()..];
        self.get(path).await.assert_page();
        let secret = link.split_once("?link=").unwrap().1;
        let fields = [("link", secret), ("password", PASSWORD)];
        self.post("/portal/welcome", &fields).await
    }

    /// A browser of a new member of this owner's account.
    pub async fn member(&self, gateway: &TestGateway, role: &str) -> Self {
        let mut browser = Self::new(gateway);
        browser.email = format!("{role}.of.{}", self.email);
        browser.account_id.clone_from(&self.account_id);
        let link = self.invite(&browser.email, role).await;
        browser.join(&link).await.assert_sent_to("/portal");
        browser
    }

    pub async fn sign_in(&self, email: &str, password: &str) -> Seen {
        self.get("/portal/sign-in").await.assert_page();
        let fields = [("email", email), ("password", password)];
        self.post("/portal/sign-in", &fields).await
    }

    pub async fn get(&self, path: &str) -> Seen {
        self.send(self.request(Method::GET, path)).await
    }

    /// Submits the form of the last page.
    pub async fn post(&self, path: &str, fields: &[(&str, &str)]) -> Seen {
        self.send(self.filled(path, fields)).await
    }

    /// Like `post`, from a client at this address behind a trusted proxy.
    pub async fn post_from(&self, address: &str, path: &str, fields: &[(&str, &str)]) -> Seen {
        let request = self.filled(path, fields);
        self.send(request.header("x-forwarded-for", address)).await
    }

    fn filled(&self, path: &str, fields: &[(&str, &str)]) -> reqwest::RequestBuilder {
        let token = self.token();
        let with_token: Vec<_> = [("token", token.as_str())]
            .into_iter()
            .chain(fields.iter().copied())
            .collect();
        let origin = self.origin.clone();
        let request = self.request(Method::POST, path).header("origin", origin);
        request
            .header("content-type", FORM)
            .body(encoded(&with_token))
    }

    /// A request with this browser's cookies and no other headers.
    pub fn request(&self, method: Method, path: &str) -> reqwest::RequestBuilder {
        self.request_with(method, path, |_| true)
    }

    /// Loads a page by a link from another site: browsers then send only cookies that are not `SameSite=Strict`.
    pub async fn get_from_elsewhere(&self, path: &str) -> Seen {
        let request = self.request_with(Method::GET, path, |name| name == "tollgate-oidc");
        self.send(request.header("sec-fetch-site", "cross-site"))
            .await
    }

    fn request_with(
        &self,
        method: Method,
        path: &str,
        is_sent: impl Fn(&str) -> bool,
    ) -> reqwest::RequestBuilder {
        let request = self
            .client
            .request(method, format!("{}{path}", self.origin));
        let cookies = self.cookies.lock().unwrap();
        let pairs: Vec<_> = cookies
            .iter()
            .filter(|(name, _)| is_sent(name))
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        if pairs.is_empty() {
            request
        } else {
            request.header("cookie", pairs.join("; "))
        }
    }

    pub async fn send(&self, request: reqwest::RequestBuilder) -> Seen {
        let response = request.send().await.unwrap();
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        for cookie in headers.get_all("set-cookie") {
            let (name, rest) = cookie.to_str().unwrap().split_once('=').unwrap();
            let value = rest.split(';').next().unwrap();
            let mut cookies = self.cookies.lock().unwrap();
            if rest.contains("Max-Age=0") {
                cookies.remove(name);
            } else {
                cookies.insert(name.into(), value.into());
            }
        }
        let text = response.text().await.unwrap();
        if let Some((_, rest)) = text.split_once("name=\"token\" value=\"") {
            let token = rest.split('"').next().unwrap();
            token.clone_into(&mut self.token.lock().unwrap());
        }
        Seen {
            status,
            headers,
            text,
        }
    }

    pub fn token(&self) -> String {
        self.token.lock().unwrap().clone()
    }

    pub fn origin(&self) -> &str {
        &self.origin
    }

    pub fn cookie(&self, name: &str) -> Option<String> {
        self.cookies.lock().unwrap().get(name).cloned()
    }

    pub fn set_cookie(&self, name: &str, value: &str) {
        self.cookies
            .lock()
            .unwrap()
            .insert(name.into(), value.into());
    }

    /// Creates a key on the keys page and returns its ID and secret.
    pub async fn new_key(&self, name: &str) -> (String, String) {
        self.get("/portal/keys").await.assert_page();
        let made = self.post("/portal/keys", &[("name", name)]).await;
        made.assert_page();
        let key = format!("sk-svc-{}", made.between("id=\"new-key\">sk-svc-", "<"));
        let list = self.get("/portal/keys").await;
        let id = format!("key_{}", list.between("/portal/keys/key_", "\""));
        (id, key)
    }
}

pub const FORM: &str = "application/x-www-form-urlencoded";

pub fn encoded(fields: &[(&str, &str)]) -> String {
    let escape = |text: &str| -> String {
        text.bytes().fold(String::new(), |mut out, byte| {
            if byte.is_ascii_alphanumeric() {
                out.push(char::from(byte));
            } else {
                let _ = write!(out, "%{byte:02X}");
            }
            out
        })
    };
    let pairs: Vec<_> = fields
        .iter()
        .map(|(name, value)| format!("{}={}", escape(name), escape(value)))
        .collect();
    pairs.join("&")
}
