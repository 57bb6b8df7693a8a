//! The real binary, killed at any moment while clients retry until they have a response: each of their requests is
//! charged once, and each client gets one whole response.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};
use reqwest::{Client, Method};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{
    Process,
    process::{run, text},
    retries::{ALL, Api},
    stores::{self, files_only},
};

const TOKEN: &str = "7c1f9a04e6b25d83d0487ae1936bf25c";
const WORKERS: usize = 6;
const TIMEOUT: Duration = Duration::from_mins(2);
/// Paced, so that a kill often comes in the middle of a response.
const QUESTION: &str = "[[sim tokens=20 delay_ms=4 first_ms=10]]";

/// How often the process is killed; `make retries` sets more.
fn rounds() -> usize {
    let wanted = std::env::var("TOLLGATE_RETRY_ROUNDS");
    wanted.map_or(4, |rounds| rounds.parse().unwrap())
}

/// A request that is sent until it is answered.
struct Intent {
    api: Api,
    stream: bool,
    key: String,
}

impl Intent {
    fn body(&self) -> Value {
        self.api
            .body(&format!("{} {QUESTION}", self.key), self.stream)
    }

    /// The response, if it is whole.
    async fn sent(&self, client: &Client, public: SocketAddr, key: &str) -> Option<String> {
        let request = client.post(format!("http://{public}{}", self.api.path()));
        let request = request.bearer_auth(key).json(&self.body());
        let response = request
            .header("idempotency-key", &self.key)
            .send()
            .await
            .ok()?;
        let status = response.status();
        let body = response.text().await.ok()?;
        assert!(
            status == 200 || status.is_server_error(),
            "{status}: {body}"
        );
        let is_whole = match (self.stream, self.api) {
            (false, _) => body.ends_with('}'),
            (true, Api::Messages) => body.contains("event: message_stop"),
            (true, _) => body.ends_with("data: [DONE]\n\n"),
        };
        (status == 200 && is_whole).then(|| body.replace(": keep-alive\n\n", ""))
    }
}

/// What all workers share.
struct Clients {
    client: Client,
    key: String,
    public: Mutex<SocketAddr>,
    is_over: AtomicBool,
    /// The response of each request, by its key.
    answered: Mutex<BTreeMap<String, (Intent, String)>>,
}

impl Clients {
    async fn work(&self, worker: usize) {
        for number in 0.. {
            if self.is_over.load(SeqCst) {
                return;
            }
            let intent = Intent {
                api: ALL[number % 3],
                stream: (number + worker).is_multiple_of(2),
                key: format!("intent-{worker}-{number}"),
            };
            let begun = Instant::now();
            let body = loop {
                assert!(begun.elapsed() < TIMEOUT, "{} is not answered", intent.key);
                let public = *self.public.lock().unwrap();
                if let Some(body) = intent.sent(&self.client, public, &self.key).await {
                    break body;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            };
            let mut answered = self.answered.lock().unwrap();
            answered.insert(intent.key.clone(), (intent, body));
        }
    }

    fn count(&self) -> usize {
        self.answered.lock().unwrap().len()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_that_retry_pay_once_however_often_the_gateway_is_killed() {
    if files_only("a fleet of gateways that are killed is in tests/fleet") {
        return;
    }
    let folder = TempDir::new().unwrap();
    let config = folder.path().join("tollgate.toml");
    let lines = format!(
        "server.listen = \"127.0.0.1:0\"\noperator.listen = \"127.0.0.1:0\"\n{}\
         limits.rpm = 1000000\nlimits.tpm = 1000000000\n\
         deployments = [{{ model = \"*\", provider = \"play\" }}]\n[providers.play]\nkind = \"simulator\"\n",
        stores::quick_lines(folder.path())
    );
    std::fs::write(&config, lines).unwrap();
    let start = async || {
        let token = [("TOLLGATE_OPERATOR_TOKEN", TOKEN)];
        Process::serve(&config, &token).await
    };
    let client = Client::builder().no_proxy().build().unwrap();
    let operate = async |operator: SocketAddr, method: Method, path: &str, body: Value| -> Value {
        let request = client.request(method, format!("http://{operator}{path}"));
        let response = request.bearer_auth(TOKEN).json(&body).send().await.unwrap();
        assert_eq!(response.status(), 200, "{path}");
        response.json().await.unwrap()
    };
    let (mut process, public, operator) = start().await;
    let account = json!({ "email": "a@example.com", "track": "business", "tier": "flex" });
    let account = operate(operator, Method::POST, "/operator/accounts", account).await;
    let account = format!("/operator/accounts/{}", account["id"].as_str().unwrap());
    let grant = json!({ "amount": "1000" });
    operate(operator, Method::POST, &format!("{account}/grants"), grant).await;
    let key = json!({ "name": "test" });
    let key = operate(operator, Method::POST, &format!("{account}/keys"), key).await;
    let clients = Arc::new(Clients {
        client: client.clone(),
        key: key["key"].as_str().unwrap().to_owned(),
        public: Mutex::new(public),
        is_over: AtomicBool::new(false),
        answered: Mutex::default(),
    });
    let workers: Vec<_> = (0..WORKERS)
        .map(|worker| {
            let clients = clients.clone();
            tokio::spawn(async move { clients.work(worker).await })
        })
        .collect();
    let seed = rand::random();
    println!("seed {seed}");
    let mut random = StdRng::seed_from_u64(seed);
    for _ in 0..rounds() {
        tokio::time::sleep(Duration::from_millis(random.random_range(30..400))).await;
        process.signal("KILL");
        assert_eq!(process.ended().await.code, None);
        let (next, public, _) = start().await;
        process = next;
        *clients.public.lock().unwrap() = public;
    }
    let enough = clients.count() + WORKERS;
    while clients.count() < enough {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    clients.is_over.store(true, SeqCst);
    for worker in workers {
        worker.await.unwrap();
    }
    assert_eq!(process.terminated().await.code, Some(0));
    // A client that sends its request again gets the same response, also from the next process.
    let (process, public, operator) = start().await;
    let answered = std::mem::take(&mut *clients.answered.lock().unwrap());
    for (intent, body) in answered.values() {
        let again = intent.sent(&client, public, &clients.key).await;
        assert_eq!(again.as_ref(), Some(body), "{}", intent.key);
    }
    let (intents, rounds) = (answered.len(), rounds());
    println!("{intents} requests, {rounds} kills");
    let usage = operate(
        operator,
        Method::GET,
        &format!("{account}/usage"),
        Value::Null,
    )
    .await;
    let charges = usage["data"].as_array().unwrap().len();
    assert_eq!(charges, intents, "each is charged once");
    assert_eq!(process.terminated().await.code, Some(0));
    let database = folder.path().join("tollgate.db");
    let audit = run(&["audit", "--database", database.to_str().unwrap()], &[]);
    assert!(audit.status.success(), "{}", text(&audit.stdout));
}
