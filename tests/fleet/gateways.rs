//! Gateways that share their stores, and requests of callers and an operator to any of them.

use std::{
    net::SocketAddr,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use futures_util::future::join_all;
use reqwest::{Client, Method};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{
    Answer, FakeUpstream, PostgresServer, Process, RedisServer, gateway::hello, turns::Turn,
};

pub use crate::support::ledger_view::{MODEL, PRICE};

pub const TOKEN: &str = "7c1f9a04e6b25d83d0487ae1936bf25c";
/// Longer than any step without a bound of its own takes.
pub const TIMEOUT: Duration = Duration::from_mins(1);
/// A store that accepts connections again is in use again within this time. Two seconds are promised on an idle
/// machine; this allows for a busy one.
pub const RECOVERY: Duration = Duration::from_secs(4);
/// So large that a request can exceed it only on purpose: the refusal's headers then show what is left of the window.
const TPM: u64 = 8_000_000;
const RPM: u64 = 1_000_000;

/// The stores that gateways share.
#[derive(Clone)]
pub struct Stores {
    pub postgres: String,
    pub redis: String,
    /// Store deadlines, as configuration lines. They are long where many requests run at once, because slow replies
    /// on a busy machine do not mean that a store is down. A store
    /// behind a proxy keeps its default deadline.
    deadlines: &'static str,
    /// Bounds of an overload, as configuration lines. Gateways of a test share the machine with all others and are built
    /// without optimisation, so a busy moment is no overload.
    overload: &'static str,
}

const LONG_POSTGRES_DEADLINE: &str = "store.deadline_ms = 5000\n";
const LONG_REDIS_DEADLINE: &str = "limits.deadline_ms = 2000\n";
const PATIENT: &str = "overload.max_lag_ms = 60000\noverload.max_wait_ms = 60000\n";
const LONG_DEADLINES: &str = "store.deadline_ms = 5000\nlimits.deadline_ms = 2000\n";

impl Stores {
    /// A new database on the servers that the test process shares.
    pub fn new() -> Self {
        Self::on(PostgresServer::shared(), RedisServer::shared())
    }

    pub fn on(postgres: &PostgresServer, redis: &RedisServer) -> Self {
        Self {
            postgres: postgres.database(),
            redis: redis.url(),
            deadlines: LONG_DEADLINES,
            overload: PATIENT,
        }
    }

    /// These stores with the default deadlines, and the default bound of the queue for them.
    pub fn with_default_deadlines(self) -> Self {
        Self {
            deadlines: "",
            overload: "overload.max_lag_ms = 60000\n",
            ..self
        }
    }

    /// The database reached through another address, e.g. a proxy.
    pub fn postgres_by(&self, address: SocketAddr) -> Self {
        let (head, database) = self.postgres.rsplit_once('/').unwrap();
        let (user, _) = head.rsplit_once('@').unwrap();
        Self {
            postgres: format!("{user}@{address}/{database}"),
            redis: self.redis.clone(),
            deadlines: LONG_REDIS_DEADLINE,
            overload: self.overload,
        }
    }

    /// The limiter reached through another address, e.g. a proxy.
    pub fn redis_by(&self, address: SocketAddr) -> Self {
        Self {
            postgres: self.postgres.clone(),
            redis: format!("redis://{address}"),
            deadlines: LONG_POSTGRES_DEADLINE,
            overload: self.overload,
        }
    }
}

pub struct Gateway {
    pub process: Process,
    pub public: SocketAddr,
    pub operator: SocketAddr,
}

pub struct Fleet {
    pub upstream: FakeUpstream,
    pub gateways: Vec<Gateway>,
    /// Opens a connection for every request, so that no response comes from a gateway that has been replaced.
    pub client: Client,
    stores: Stores,
    folder: TempDir,
    configs: AtomicUsize,
}

/// An account with credit.
#[derive(Clone)]
pub struct Account {
    pub id: String,
    pub key: String,
    pub key_id: String,
    /// In nano-dollars.
    granted: i64,
}

impl Account {
    pub fn path(&self) -> String {
        format!("/operator/accounts/{}", self.id)
    }
}

/// The result of a request for its caller.
#[derive(Debug)]
pub enum Outcome {
    /// A complete response.
    Answered,
    Refused(Answer),
    /// The connection failed or broke.
    Broken(String),
}

impl Outcome {
    #[track_caller]
    pub fn assert_answered(&self) {
        assert!(matches!(self, Self::Answered), "{self:?}");
    }

    #[track_caller]
    pub fn refusal(&self) -> &Answer {
        let Self::Refused(answer) = self else {
            panic!("{self:?} is no refusal");
        };
        answer
    }
}

/// What is wrong with a 503 that §7 lets callers retry, or `None` if the response conforms.
pub fn store_refusal_is_wrong(answer: &Answer) -> Option<String> {
    let error = &answer.body["error"];
    let word = |key: &str| error[key].as_str().unwrap_or_default();
    let known = matches!(
        (word("type"), word("code")),
        (
            "service_unavailable",
            "rate_limit_unavailable" | "overloaded"
        ) | (
            "server_error",
            "credit_reservation_unavailable" | "admission_state_unavailable"
        )
    );
    let wait = answer.headers.get("retry-after");
    let wait: Option<u64> = wait.and_then(|wait| wait.to_str().ok()?.parse().ok());
    let waits = wait.is_some_and(|wait| (1..=60).contains(&wait));
    let is_right = answer.status == 503 && known && waits;
    (!is_right).then(|| format!("{answer:?}"))
}

#[track_caller]
pub fn assert_store_refusal(answer: &Answer, kind: &str, code: &str) {
    answer.assert_error(503, kind, Some(code), None);
    assert_eq!(store_refusal_is_wrong(answer), None);
}

impl Fleet {
    /// Starts this many gateways on new stores.
    pub async fn of(gateways: usize) -> Self {
        Self::on(Stores::new(), gateways).await
    }

    /// Starts this many gateways at the same moment.
    pub async fn on(stores: Stores, gateways: usize) -> Self {
        let upstream = FakeUpstream::start().await;
        upstream.converse([Turn::says("Hi")]);
        let client = Client::builder().no_proxy().pool_max_idle_per_host(0);
        let mut fleet = Self {
            upstream,
            gateways: Vec::new(),
            client: client.build().unwrap(),
            stores,
            folder: TempDir::new().unwrap(),
            configs: AtomicUsize::new(0),
        };
        let started = join_all((0..gateways).map(|_| fleet.started(&fleet.stores, &[]))).await;
        fleet.gateways = started;
        fleet
    }

    /// Reuses connections from now on, for tests in which no gateway is replaced.
    pub fn keep_connections(&mut self) {
        self.client = Client::builder().no_proxy().build().unwrap();
    }

    /// Adds a gateway that reaches the fleet's stores at these addresses.
    pub async fn add_on(&mut self, stores: &Stores) {
        let gateway = self.started(stores, &[]).await;
        self.gateways.push(gateway);
    }

    /// Starts a gateway that is not yet one of the fleet.
    pub async fn started(&self, stores: &Stores, environment: &[(&str, &str)]) -> Gateway {
        let config = self.config(stores);
        let environment = [&[("TOLLGATE_OPERATOR_TOKEN", TOKEN)], environment].concat();
        let (process, public, operator) = Process::serve(&config, &environment).await;
        Gateway {
            process,
            public,
            operator,
        }
    }

    pub async fn one_more(&self) -> Gateway {
        self.started(&self.stores, &[]).await
    }

    /// Starts a gateway that aborts at this failpoint, named as in `TOLLGATE_DIE_AT`.
    pub async fn one_that_aborts_at(&self, at: &str) -> Gateway {
        let die_at = [("TOLLGATE_DIE_AT", at)];
        self.started(&self.stores, &die_at).await
    }

    fn config(&self, stores: &Stores) -> PathBuf {
        let text = format!(
            "server.listen = \"127.0.0.1:0\"\noperator.listen = \"127.0.0.1:0\"\n\
             server.shutdown_grace_seconds = 60\n\
             store.url = \"{}\"\nstore.spool = \"{}\"\nlimits.url = \"{}\"\nlimits.rpm = {RPM}\nlimits.tpm = {TPM}\n{}{}\
             limits.refused_per_account = 0\nlimits.refused_per_address = 0\n\
             deployments = [{{ model = \"*\", provider = \"fake\" }}]\n\
             [providers.fake]\nkind = \"openai\"\nbase_url = \"http://{}/v1\"\n\
             timeouts = {{ connect_seconds = 5, first_byte_seconds = 120, idle_seconds = 120 }}\n",
            stores.postgres,
            self.folder.path().join("spool").display(),
            stores.redis,
            stores.deadlines,
            stores.overload,
            self.upstream.address
        );
        let number = self.configs.fetch_add(1, Relaxed);
        let path = self.folder.path().join(format!("{number}.toml"));
        std::fs::write(&path, text).unwrap();
        path
    }

    /// Creates an account that may call every model, with this many dollars.
    pub async fn account(&self, dollars: &str) -> Account {
        self.account_on("business", "flex", dollars).await
    }

    pub async fn account_on(&self, track: &str, tier: &str, dollars: &str) -> Account {
        let body = json!({ "email": "a@example.com", "track": track, "tier": tier });
        let made = self
            .operate(0, Method::POST, "/operator/accounts", body)
            .await;
        let mut account = Account {
            id: made["id"].as_str().unwrap().to_owned(),
            key: String::new(),
            key_id: String::new(),
            granted: nanos(&json!(dollars)),
        };
        let grants = format!("{}/grants", account.path());
        let amount = json!({ "amount": dollars });
        self.operate(0, Method::POST, &grants, amount).await;
        (account.key_id, account.key) = self.new_key(&account).await;
        // Audits compare what was spent of it with its calls.
        let budget = json!({
            "account": account.id, "scope": "account", "amount": "1000000", "period": "day",
        });
        self.operate(0, Method::PUT, "/operator/budgets", budget)
            .await;
        account
    }

    /// Creates a key of the account and returns its ID and secret.
    pub async fn new_key(&self, account: &Account) -> (String, String) {
        let path = format!("{}/keys", account.path());
        let made = self.operate(0, Method::POST, &path, json!({ "name": "test" }));
        let made = made.await;
        let word = |name: &str| made[name].as_str().unwrap().to_owned();
        (word("id"), word("key"))
    }

    /// Sends an operator request to one of the gateways and asserts that it succeeds.
    pub async fn operate(&self, at: usize, method: Method, path: &str, body: Value) -> Value {
        let url = format!("http://{}{path}", self.gateways[at].operator);
        let mut request = self.client.request(method, url).bearer_auth(TOKEN);
        if !body.is_null() {
            request = request.json(&body);
        }
        let response = request.send().await.unwrap();
        let status = response.status();
        let text = response.text().await.unwrap();
        assert_eq!(status, 200, "{path}: {text}");
        serde_json::from_str(&text).unwrap()
    }

    pub async fn get(&self, at: usize, path: &str) -> Value {
        self.operate(at, Method::GET, path, Value::Null).await
    }

    /// Sends a small request to one of the gateways.
    pub async fn ask(&self, at: usize, account: &Account) -> Outcome {
        ask(
            &self.client,
            self.gateways[at].public,
            &account.key,
            &hello(MODEL),
        )
        .await
    }

    /// The status codes of `/health` and `/health/live`.
    pub async fn health(&self, at: usize) -> (u16, u16) {
        let status = async |path: &str| {
            let url = format!("http://{}{path}", self.gateways[at].public);
            let answer = self.client.get(url).send().await;
            answer.unwrap().status().as_u16()
        };
        (status("/health").await, status("/health/live").await)
    }

    /// Waits until `/health` has this status at every gateway; asserts that `/health/live` is always 200.
    pub async fn until_health(&self, status: u16) {
        for at in 0..self.gateways.len() {
            eventually(&format!("gateway {at} says {status}"), async || {
                let (ready, alive) = self.health(at).await;
                assert_eq!(alive, 200, "it is alive");
                ready == status
            })
            .await;
        }
    }

    /// Waits until every gateway serves this account; returns the number of served requests and the time that this
    /// took.
    pub async fn until_answering(&self, account: &Account) -> (usize, Duration) {
        let (started, mut answered) = (Instant::now(), 0);
        for at in 0..self.gateways.len() {
            eventually(&format!("gateway {at} answers"), async || {
                matches!(self.ask(at, account).await, Outcome::Answered)
            })
            .await;
            answered += 1;
        }
        let took = started.elapsed();
        self.until_health(200).await;
        (answered, took)
    }

    /// The amounts spent and held, in nano-dollars.
    pub async fn spent_and_held(&self, at: usize, account: &Account) -> (i64, i64) {
        let shown = self.get(at, &account.path()).await;
        let spent = account.granted - nanos(&shown["balance"]);
        (spent, nanos(&shown["held"]))
    }

    /// The IDs of the charged requests; asserts that each was charged once.
    pub async fn charged(&self, at: usize, account: &Account) -> Vec<String> {
        let usage = self.get(at, &format!("{}/usage", account.path())).await;
        let rows = usage["data"].as_array().unwrap().iter();
        let mut ids: Vec<_> = rows
            .map(|row| row["request_id"].as_str().unwrap().to_owned())
            .collect();
        ids.sort();
        let all = ids.len();
        ids.dedup();
        assert_eq!(ids.len(), all, "no request is charged twice");
        ids
    }

    /// Waits until nothing is held and the account was charged for `sure` to `sure + unsure` small responses;
    /// `unsure` counts requests whose outcome the caller cannot know.
    pub async fn until_charged(&self, at: usize, account: &Account, sure: usize, unsure: usize) {
        let price = |answers: usize| i64::try_from(answers).unwrap() * PRICE;
        let paid = price(sure)..=price(sure + unsure);
        let what = format!("{sure} answers, perhaps {unsure} more, are charged");
        eventually(&what, async || {
            let (spent, held) = self.spent_and_held(at, account).await;
            held == 0 && paid.contains(&spent) && spent % PRICE == 0
        })
        .await;
    }

    /// Number of requests in the account's window, read from the headers of a refusal.
    pub async fn counted(&self, at: usize, account: &Account) -> u64 {
        let mut body = hello(MODEL);
        (body["max_tokens"], body["n"]) = (66_000.into(), 128.into());
        let public = self.gateways[at].public;
        let refused = ask(&self.client, public, &account.key, &body).await;
        let refused = refused.refusal();
        refused.assert_error(429, "rate_limit_exceeded", Some("tpm_exceeded"), None);
        let left = refused.headers["x-ratelimit-remaining"].to_str().unwrap();
        RPM - left.parse::<u64>().unwrap()
    }

    /// Asserts at the end of every test that nothing is held, that the ledger adds up at every gateway, and that each
    /// gateway stops on request.
    pub async fn ends_clean(self) {
        let accounts = self.get(0, "/operator/accounts").await;
        let accounts = accounts["data"].as_array().unwrap();
        for account in accounts {
            let path = format!("/operator/accounts/{}", account["id"].as_str().unwrap());
            eventually("nothing is held", async || {
                let shown = self.get(0, &path).await;
                assert_eq!(shown["frozen"], false, "{shown}");
                nanos(&shown["held"]) == 0
            })
            .await;
        }
        for at in 0..self.gateways.len() {
            let audit = self.operate(at, Method::POST, "/operator/audit", json!({}));
            let audit = audit.await;
            assert_eq!(audit["ok"], true, "{audit}");
            eventually("no hold is open", async || {
                let url = format!("http://{}/metrics", self.gateways[at].operator);
                let metrics = self.client.get(url).bearer_auth(TOKEN).send().await;
                let metrics = metrics.unwrap().text().await.unwrap();
                metrics.lines().any(|line| line == "tollgate_holds 0")
            })
            .await;
        }
        let ended = self.gateways.into_iter().map(|gateway| gateway.process);
        for ended in join_all(ended.map(Process::terminated)).await {
            assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        }
    }
}

/// Sends a request and reads the response to its end, streamed or not.
pub async fn ask(client: &Client, public: SocketAddr, key: &str, body: &Value) -> Outcome {
    let url = format!("http://{public}/v1/chat/completions");
    outcome_of(client.post(url).bearer_auth(key).json(body)).await
}

pub async fn outcome_of(request: reqwest::RequestBuilder) -> Outcome {
    let response = match request.send().await {
        Ok(response) => response,
        Err(error) => return Outcome::Broken(format!("{error:?}")),
    };
    let (status, headers) = (response.status().as_u16(), response.headers().clone());
    let text = match response.text().await {
        Ok(text) => text,
        Err(error) => return Outcome::Broken(format!("{status}, {error:?}")),
    };
    if status == 200 {
        let stream = headers["content-type"] == "text/event-stream";
        return if !stream || text.ends_with("data: [DONE]\n\n") {
            Outcome::Answered
        } else {
            Outcome::Broken(text)
        };
    }
    let body = serde_json::from_str(&text).unwrap_or_else(|_| panic!("{status} not JSON: {text}"));
    Outcome::Refused(Answer {
        status,
        headers,
        body,
    })
}

/// Waits until the condition holds; panics when the time is up.
pub async fn eventually(what: &str, come: impl AsyncFn() -> bool) {
    within(TIMEOUT, what, come).await;
}

/// Like `eventually` with a bound; returns how long it took.
pub async fn within(bound: Duration, what: &str, come: impl AsyncFn() -> bool) -> Duration {
    let started = Instant::now();
    while !come().await {
        assert!(started.elapsed() < bound, "still waiting until {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    started.elapsed()
}

/// Runs blocking work off the async threads.
pub async fn run_blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(work).await.unwrap()
}

/// Servers that a test may kill.
pub struct Servers {
    pub postgres: Arc<PostgresServer>,
    pub redis: Arc<RedisServer>,
}

impl Servers {
    pub async fn start() -> Self {
        Self::start_with(&[]).await
    }

    /// Starts them with these PostgreSQL settings.
    pub async fn start_with(settings: &'static [&'static str]) -> Self {
        let start = || (PostgresServer::own_with(settings), RedisServer::own());
        let (postgres, redis) = run_blocking(start).await;
        Self {
            postgres: Arc::new(postgres),
            redis: Arc::new(redis),
        }
    }

    /// Stores with the default deadlines, because the restoration of windows after a restart of Redis depends on
    /// them.
    pub fn stores(&self) -> Stores {
        Stores {
            deadlines: "",
            ..Stores::on(&self.postgres, &self.redis)
        }
    }

    pub async fn kill(&self, store: Store) {
        let (postgres, redis) = (self.postgres.clone(), self.redis.clone());
        run_blocking(move || match store {
            Store::Postgres => postgres.kill(),
            Store::Redis => redis.kill(),
        })
        .await;
    }

    /// Restarts a store. It accepts connections when this returns.
    pub async fn start_again(&self, store: Store) {
        let (postgres, redis) = (self.postgres.clone(), self.redis.clone());
        run_blocking(move || match store {
            Store::Postgres => postgres.start(),
            Store::Redis => redis.start(),
        })
        .await;
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Store {
    Postgres,
    Redis,
}

impl Store {
    /// Type and code of a refusal because this store is unavailable.
    pub fn refusal(self) -> (&'static str, &'static str) {
        match self {
            Self::Postgres => ("server_error", "credit_reservation_unavailable"),
            Self::Redis => ("service_unavailable", "rate_limit_unavailable"),
        }
    }
}

/// Parses a decimal amount of dollars into nano-dollars.
fn nanos(amount: &Value) -> i64 {
    let amount = amount.as_str().expect("money is a text");
    let (whole, fraction) = amount.split_once('.').unwrap_or((amount, ""));
    format!("{whole}{fraction:0<9}").parse().unwrap()
}
