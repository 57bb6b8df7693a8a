//! The gateway under test, and requests to it.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use reqwest::{Method, header::HeaderMap};
use serde_json::{Value, json};
use tempfile::TempDir;
use tollgate::{
    config::Config,
    gateway::Gateway,
    server::{self, Running},
};

use super::{
    FakeUpstream, RedisServer, Stream,
    described::{exchange, read_stream},
    stores,
};

pub const OPERATOR_TOKEN: &str = "d41c7b09e2a58f36c9f013ab67e48d52";
pub const PROVIDER_KEY: &str = "provider-key-canary-0123456789";
pub const UPSTREAM_MODEL: &str = "vendor-model-9";

/// A plan: its track and its tier.
#[derive(Clone, Copy, Debug)]
pub struct Plan(pub &'static str, pub &'static str);

impl Plan {
    pub const FREE: Self = Self("personal", "free");
    pub const MAX: Self = Self("personal", "max");
    pub const FLEX: Self = Self("business", "flex");
}

pub struct TestGateway {
    pub upstream: FakeUpstream,
    pub public: SocketAddr,
    pub operator: SocketAddr,
    pub client: reqwest::Client,
    /// Key of a Business/flex account, which may call every model.
    pub key: String,
    pub account_id: String,
    pub data: TempDir,
    running: Option<Running>,
}

/// A response that is not a stream.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Value,
}

impl Answer {
    /// The error object; asserts that it has the four keys of every error.
    #[track_caller]
    pub fn error(&self) -> &Value {
        let error = &self.body["error"];
        assert!(error["message"].is_string(), "{:?}", self.body);
        for key in ["type", "code", "param"] {
            assert!(error.get(key).is_some(), "`{key}` is always there: {error}");
        }
        assert!(self.headers.contains_key("x-request-id"));
        error
    }

    /// Asserts a refusal: its status, type, code and the field it names.
    #[track_caller]
    pub fn assert_error(&self, status: u16, kind: &str, code: Option<&str>, param: Option<&str>) {
        let error = self.error();
        let found = (self.status, error["type"].as_str(), error["code"].as_str());
        assert_eq!(found, (status, Some(kind), code), "{error}");
        assert_eq!(error["param"].as_str(), param, "{error}");
    }

    #[track_caller]
    pub fn assert_ok(&self) -> &Value {
        assert_eq!(self.status, 200, "{}", self.body);
        &self.body
    }
}

impl TestGateway {
    pub async fn start() -> Self {
        Self::start_with("").await
    }

    /// Starts with additional configuration: whole TOML sections.
    pub async fn start_with(more: &str) -> Self {
        let data = TempDir::new().unwrap();
        Self::start_in(data, more).await
    }

    /// Starts with single settings replaced, e.g. `("SERVER__MAX_BODY_BYTES", "2048")`.
    pub async fn start_set(settings: &[(&str, &str)]) -> Self {
        Self::start_with_all(TempDir::new().unwrap(), "", settings, "*").await
    }

    /// Starts with additional configuration, and with single settings replaced.
    pub async fn start_with_settings(more: &str, settings: &[(&str, &str)]) -> Self {
        Self::start_with_all(TempDir::new().unwrap(), more, settings, "*").await
    }

    /// Starts with a deployment for one model only.
    pub async fn start_serving(model: &str) -> Self {
        Self::start_with_all(TempDir::new().unwrap(), "", &[], model).await
    }

    /// Starts with long upstream timeouts, for tests that delay the provider.
    pub async fn start_with_long_timeouts() -> Self {
        let first_byte = "PROVIDERS__FAKE__TIMEOUTS__FIRST_BYTE_SECONDS";
        let idle = "PROVIDERS__FAKE__TIMEOUTS__IDLE_SECONDS";
        Self::start_set(&[(first_byte, "120"), (idle, "120")]).await
    }

    /// Starts on the data of an earlier gateway.
    pub async fn start_in(data: TempDir, more: &str) -> Self {
        Self::start_with_all(data, more, &[], "*").await
    }

    /// Starts on PostgreSQL and Redis, whatever the stores of this run are. The folder has the files of an earlier
    /// gateway, which are not used.
    pub async fn start_on_servers(data: TempDir, database: &str, more: &str) -> Self {
        let (limits, spool) = (RedisServer::shared().url(), data.path().join("spool"));
        let settings = [
            ("STORE__URL", database),
            ("STORE__DEADLINE_MS", "5000"),
            ("STORE__SPOOL", spool.to_str().unwrap()),
            ("LIMITS__URL", &limits),
            ("LIMITS__DEADLINE_MS", "5000"),
        ];
        Self::start_with_all(data, more, &settings, "*").await
    }

    /// Starts with additional configuration, and with variables in its environment.
    pub async fn start_with_variables(more: &str, variables: &[(&str, &str)]) -> Self {
        let data = TempDir::new().unwrap();
        Self::start_in_environment(data, more, &[], variables, "*").await
    }

    async fn start_with_all(
        data: TempDir,
        more: &str,
        settings: &[(&str, &str)],
        model: &str,
    ) -> Self {
        Self::start_in_environment(data, more, settings, &[], model).await
    }

    async fn start_in_environment(
        data: TempDir,
        more: &str,
        settings: &[(&str, &str)],
        variables: &[(&str, &str)],
        model: &str,
    ) -> Self {
        let upstream = FakeUpstream::start().await;
        let text = format!(
            r#"
            server.listen = "127.0.0.1:0"
            operator.listen = "127.0.0.1:0"
            {stores}
            limits.rpm = 1000000
            limits.tpm = 1000000000
            portal.sign_up = "open"
            [providers.fake]
            kind = "openai"
            base_url = "http://{address}/v1"
            api_key_env = "PROVIDER_KEY"
            timeouts = {{ connect_seconds = 2, first_byte_seconds = 2, idle_seconds = 2 }}
            [[deployments]]
            model = "{model}"
            provider = "fake"
            upstream_model = "{UPSTREAM_MODEL}"
            {more}
            "#,
            stores = stores::quick_lines(data.path()),
            address = upstream.address,
        );
        let mut environment = BTreeMap::from([
            (
                "TOLLGATE_OPERATOR_TOKEN".to_owned(),
                OPERATOR_TOKEN.to_owned(),
            ),
            ("PROVIDER_KEY".to_owned(), PROVIDER_KEY.to_owned()),
        ]);
        let variables = variables.iter();
        environment.extend(variables.map(|(name, value)| ((*name).into(), (*value).into())));
        let settings = settings.iter();
        environment.extend(
            settings.map(|(name, value)| (format!("TOLLGATE__{name}"), (*value).to_owned())),
        );
        let config = Config::parse("test.toml", &text, &environment).unwrap();
        let running = server::start(config).await.unwrap();
        let mut gateway = Self {
            upstream,
            public: running.public,
            operator: running.operator,
            client: reqwest::Client::builder().no_proxy().build().unwrap(),
            key: String::new(),
            account_id: String::new(),
            data,
            running: Some(running),
        };
        (gateway.account_id, gateway.key) = gateway.account(Plan::FLEX).await;
        gateway
    }

    /// Stops the gateway and returns its data directory for the next one.
    pub async fn stop(mut self) -> TempDir {
        let running = self.running.take().unwrap();
        let gateway = running.gateway.clone();
        running.stop().await;
        assert_nothing_held(&gateway);
        stores::assert_sound(self.data.path());
        drop(gateway);
        std::mem::replace(&mut self.data, TempDir::new().unwrap())
    }

    /// Creates an account with credit on this plan and returns its ID and a key.
    pub async fn account(&self, Plan(track, tier): Plan) -> (String, String) {
        let body = json!({ "email": "dev@example.com", "track": track, "tier": tier });
        let account = self
            .operate(Method::POST, "/operator/accounts", Some(body))
            .await;
        let id = account.assert_ok()["id"].as_str().unwrap().to_owned();
        let grants = format!("/operator/accounts/{id}/grants");
        self.operate(Method::POST, &grants, Some(json!({ "amount": "1000" })))
            .await
            .assert_ok();
        let (_, key) = self.new_key(&id).await;
        (id, key)
    }

    /// Creates a key of the account and returns its ID and secret.
    pub async fn new_key(&self, account_id: &str) -> (String, String) {
        let path = format!("/operator/accounts/{account_id}/keys");
        let made = self
            .operate(Method::POST, &path, Some(json!({ "name": "test" })))
            .await;
        let made = made.assert_ok();
        (
            made["id"].as_str().unwrap().to_owned(),
            made["key"].as_str().unwrap().to_owned(),
        )
    }

    pub async fn operate(&self, method: Method, path: &str, body: Option<Value>) -> Answer {
        let url = format!("http://{}{path}", self.operator);
        let mut request = self.client.request(method, url).bearer_auth(OPERATOR_TOKEN);
        if let Some(body) = body {
            request = request.json(&body);
        }
        answer(request).await
    }

    /// The state that the gateway's requests share, for assertions that the API does not allow.
    pub fn inside(&self) -> &Arc<Gateway> {
        &self.running.as_ref().unwrap().gateway
    }

    /// Waits until no call is running, whether or not its client is still connected, and until the stores have
    /// recorded each result: shared stores do so shortly after the response.
    pub async fn idle(&self) {
        let inside = self.inside();
        until("no call is running", || inside.tasks.is_empty()).await;
        inside.limiter.drain().await;
        if stores::are_shared() {
            until("nothing is held", || inside.ledger.all_held().0 == 0).await;
        }
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.public)
    }

    /// A request with the gateway's default key.
    pub fn request(&self, method: Method, path: &str) -> reqwest::RequestBuilder {
        self.client
            .request(method, self.url(path))
            .bearer_auth(&self.key)
    }

    pub async fn get(&self, path: &str) -> Answer {
        answer(self.request(Method::GET, path)).await
    }

    pub async fn chat(&self, body: &Value) -> Answer {
        self.chat_as(&self.key, body).await
    }

    pub async fn chat_as(&self, key: &str, body: &Value) -> Answer {
        let url = self.url("/v1/chat/completions");
        answer(self.client.post(url).bearer_auth(key).json(body)).await
    }

    /// Sends a body that need not be JSON.
    pub async fn chat_text(&self, body: impl Into<reqwest::Body>) -> Answer {
        answer(
            self.request(Method::POST, "/v1/chat/completions")
                .body(body),
        )
        .await
    }

    /// Opens a streamed chat, which must succeed, and reads it to its end.
    pub async fn stream(&self, body: &Value) -> Stream {
        let response = self.open_stream(body).await;
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        assert!(response.headers().contains_key("x-request-id"));
        Stream {
            text: read_stream(response).await,
        }
    }

    pub async fn open_stream(&self, body: &Value) -> reqwest::Response {
        let mut body = body.clone();
        body["stream"] = true.into();
        self.request(Method::POST, "/v1/chat/completions")
            .json(&body)
            .send()
            .await
            .unwrap()
    }
}

impl Drop for TestGateway {
    /// Audits the ledger at the end of every test, and asserts that no credit is held if no call is running.
    fn drop(&mut self) {
        let running = self.running.take().filter(|_| !std::thread::panicking());
        if let Some(running) = running {
            stores::assert_sound(self.data.path());
            if running.gateway.tasks.is_empty() {
                assert_nothing_held(&running.gateway);
            }
        }
    }
}

fn assert_nothing_held(gateway: &Gateway) {
    let (calls, held) = gateway.ledger.all_held();
    assert_eq!((calls, held.nanos()), (0, 0), "nothing is held");
}

/// Waits until the condition holds; panics after a minute.
pub async fn until(what: &str, come: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_mins(1);
    while !come() {
        assert!(Instant::now() < deadline, "still waiting until {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

pub async fn answer(request: reqwest::RequestBuilder) -> Answer {
    let (status, headers, text) = exchange(request).await;
    let body = serde_json::from_str(&text).unwrap_or_else(|_| panic!("{status} not JSON: {text}"));
    Answer {
        status,
        headers,
        body,
    }
}

/// The smallest chat request.
pub fn hello(model: &str) -> Value {
    json!({ "model": model, "messages": [{ "role": "user", "content": "Hello" }] })
}
