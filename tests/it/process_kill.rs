//! The real binary, killed at any moment under load: no delivered response goes uncharged, nothing is charged twice,
//! nothing stays held, and rate-limit windows continue.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use tempfile::TempDir;
use tollgate::base::failpoint;

use crate::support::{
    Process,
    process::{run, text},
    stores::{self, files_only},
};

const TOKEN: &str = "7c1f9a04e6b25d83d0487ae1936bf25c";
const MODEL: &str = "svc-standard";
/// Makes the gateway run a built-in tool between two provider steps.
const CALLS_A_TOOL: &str = r#"[[sim tool=convert_units {"amount":"1","from":"ether","to":"wei"}]]"#;
const WORKERS: usize = 8;
const CREDIT_NANOS: i64 = 1_000_000_000_000;
/// Higher than any window gets, however often the process is killed in it.
const RPM: u64 = 100_000;

/// Rounds per failpoint; a long run sets more.
fn rounds() -> u32 {
    let wanted = std::env::var("TOLLGATE_KILL_ROUNDS");
    wanted.map_or(3, |rounds| rounds.parse().unwrap())
}

/// A gateway that is killed and restarted, and everything that its clients have recorded.
struct KillableGateway {
    folder: TempDir,
    client: reqwest::Client,
    account_id: String,
    key: String,
    /// IDs of completely received responses, with their request time and tokens.
    answered: Arc<Mutex<BTreeMap<String, (Instant, u64)>>>,
    sent: Arc<AtomicUsize>,
}

struct Alive {
    process: Process,
    public: SocketAddr,
    operator: SocketAddr,
}

impl KillableGateway {
    async fn create() -> Self {
        let folder = TempDir::new().unwrap();
        let config = format!(
            "server.listen = \"127.0.0.1:0\"\noperator.listen = \"127.0.0.1:0\"\n\
             {}\
             limits.rpm = {RPM}\nlimits.tpm = 1000000000\n\
             deployments = [{{ model = \"*\", provider = \"play\" }}]\n\
             [providers.play]\nkind = \"simulator\"\n",
            stores::quick_lines(folder.path())
        );
        std::fs::write(folder.path().join("tollgate.toml"), config).unwrap();
        let mut gateway = Self {
            folder,
            client: client(),
            account_id: String::new(),
            key: String::new(),
            answered: Arc::default(),
            sent: Arc::default(),
        };
        let alive = gateway.start(None).await;
        let body = json!({ "email": "a@example.com", "track": "business", "tier": "flex" });
        let account = gateway
            .operate(&alive, "POST", "/operator/accounts", body)
            .await;
        gateway.account_id = account["id"].as_str().unwrap().to_owned();
        let path = format!("/operator/accounts/{}", gateway.account_id);
        let grant = json!({ "amount": (CREDIT_NANOS / 1_000_000_000).to_string() });
        gateway
            .operate(&alive, "POST", &format!("{path}/grants"), grant)
            .await;
        let name = json!({ "name": "test" });
        let key = gateway
            .operate(&alive, "POST", &format!("{path}/keys"), name)
            .await;
        gateway.key = key["key"].as_str().unwrap().to_owned();
        // Audits compare what was spent of it with its calls.
        let budget = json!({
            "account": gateway.account_id, "scope": "key", "id": key["id"],
            "amount": (CREDIT_NANOS / 1_000_000_000).to_string(), "period": "day",
        });
        gateway
            .operate(&alive, "PUT", "/operator/budgets", budget)
            .await;
        assert_eq!(alive.process.terminated().await.code, Some(0));
        gateway
    }

    fn database(&self) -> PathBuf {
        self.folder.path().join("tollgate.db")
    }

    async fn start(&self, die_at: Option<&str>) -> Alive {
        let config = self.folder.path().join("tollgate.toml");
        let mut environment = vec![("TOLLGATE_OPERATOR_TOKEN", TOKEN)];
        environment.extend(die_at.map(|point| ("TOLLGATE_DIE_AT", point)));
        let (process, public, operator) = Process::serve(&config, &environment).await;
        Alive {
            process,
            public,
            operator,
        }
    }

    async fn operate(&self, alive: &Alive, method: &str, path: &str, body: Value) -> Value {
        let url = format!("http://{}{path}", alive.operator);
        let method = method.parse().unwrap();
        let request = self.client.request(method, url).bearer_auth(TOKEN);
        let response = request.json(&body).send().await.unwrap();
        assert_eq!(response.status(), 200, "{path}");
        response.json().await.unwrap()
    }

    /// Sends requests from all workers until the process has ended.
    async fn load_until_death(&self, public: SocketAddr) {
        let workers = (0..WORKERS).map(|worker| {
            let (client, key) = (self.client.clone(), self.key.clone());
            let (answered, sent) = (self.answered.clone(), self.sent.clone());
            tokio::spawn(async move {
                loop {
                    let number = sent.fetch_add(1, Relaxed);
                    let id = format!("ask-{number}");
                    let (stream, sent_at) = (worker % 2 == 0, Instant::now());
                    let said = if worker % 4 < 2 {
                        "Hello"
                    } else {
                        CALLS_A_TOOL
                    };
                    let Some(tokens) = ask(&client, public, &key, &id, said, stream).await else {
                        return;
                    };
                    let mut answered = answered.lock().unwrap();
                    answered.insert(id, (sent_at, tokens));
                }
            })
        });
        for worker in workers.collect::<Vec<_>>() {
            worker.await.unwrap();
        }
    }

    /// Asserts the state of the database that a killed process left, and of the next process on it.
    async fn examine(&self, killed: &str) {
        let audit = run(&["audit", "--database", path_text(&self.database())], &[]);
        assert!(audit.status.success(), "{killed}: {}", text(&audit.stdout));
        let alive = self.start(None).await;
        let path = format!("/operator/accounts/{}", self.account_id);
        let account = self.operate(&alive, "GET", &path, Value::Null).await;
        assert_eq!(account["held"], "0.000000", "{killed}");
        let usage = self
            .operate(&alive, "GET", &format!("{path}/usage"), Value::Null)
            .await;
        let rows = usage["data"].as_array().unwrap();
        let mut charged = BTreeSet::new();
        let mut spent = 0;
        let answered = self.answered.lock().unwrap().clone();
        for row in rows {
            let id = row["request_id"].as_str().unwrap();
            assert!(
                charged.insert(id.to_owned()),
                "{killed}: {id} was charged twice"
            );
            let count = |key: &str| row[key].as_u64().unwrap();
            if let Some((_, tokens)) = answered.get(id) {
                assert_eq!(count("prompt_tokens") + count("completion_tokens"), *tokens);
            }
            spent += nanos(&row["cost"]);
        }
        for id in answered.keys() {
            assert!(
                charged.contains(id),
                "{killed}: {id} was answered and is not charged"
            );
        }
        assert_eq!(nanos(&account["balance"]), CREDIT_NANOS - spent, "{killed}");
        self.examine_window(&alive, killed).await;
        let audit = self
            .operate(&alive, "POST", "/operator/audit", json!({}))
            .await;
        assert_eq!(audit["ok"], true, "{killed}: {audit}");
        assert_eq!(alive.process.terminated().await.code, Some(0));
    }

    fn assert_was_busy(&self) {
        let answered = self.answered.lock().unwrap().len();
        assert!(answered > 20, "only {answered} answers: that is no load");
    }

    /// Asserts that every call admitted in the last 60 seconds is still in the window.
    async fn examine_window(&self, alive: &Alive, killed: &str) {
        let url = format!("http://{}/v1/chat/completions", alive.public);
        // A request above the ceiling is refused without being counted, and its headers show what is left.
        let limits = json!({ "account": self.account_id, "model": MODEL, "tpm": 10 });
        self.operate(alive, "PUT", "/operator/limits", limits).await;
        let body = json!({ "model": MODEL, "messages": [{ "role": "user", "content": "Hello" }] });
        let request = self.client.post(url).bearer_auth(&self.key).json(&body);
        let refused = request.send().await.unwrap();
        assert_eq!(refused.status(), 429);
        let left = refused.headers()["x-ratelimit-remaining"].to_str().unwrap();
        let counted = RPM - left.parse::<u64>().unwrap();
        let answered = self.answered.lock().unwrap().clone();
        let sent = answered.values().map(|(sent_at, _)| sent_at.elapsed());
        let least = sent.filter(|ago| *ago < Duration::from_mins(1)).count() as u64;
        let most = self.sent.load(Relaxed) as u64;
        assert!(
            (least..=most).contains(&counted),
            "{killed}: {counted} are remembered of {least} to {most}"
        );
        let none = json!({ "account": self.account_id, "model": MODEL, "tpm": null });
        self.operate(alive, "PUT", "/operator/limits", none).await;
    }
}

/// A client with a timeout: a response that never arrives is a failure.
fn client() -> reqwest::Client {
    let builder = reqwest::Client::builder().no_proxy();
    builder.timeout(Duration::from_mins(1)).build().unwrap()
}

/// The response's tokens, if it arrived completely; `None` if the process died before.
async fn ask(
    client: &reqwest::Client,
    public: SocketAddr,
    key: &str,
    id: &str,
    said: &str,
    stream: bool,
) -> Option<u64> {
    let body = json!({
        "model": MODEL, "stream": stream, "stream_options": { "include_usage": true },
        "messages": [{ "role": "user", "content": said }],
    });
    let request = client.post(format!("http://{public}/v1/chat/completions"));
    let request = request
        .bearer_auth(key)
        .header("x-request-id", id)
        .json(&body);
    let response = unless_it_died(request.send().await)?;
    assert_eq!(response.status(), 200);
    let text = unless_it_died(response.text().await)?;
    let last = if stream {
        let whole = text.strip_suffix("data: [DONE]\n\n")?;
        whole.trim_end().rsplit("data: ").next()?
    } else {
        &text
    };
    let answer: Value = serde_json::from_str(last).ok()?;
    answer["usage"]["total_tokens"].as_u64()
}

fn unless_it_died<T>(result: reqwest::Result<T>) -> Option<T> {
    let result = result.inspect_err(|error| assert!(!error.is_timeout(), "no answer: {error:?}"));
    result.ok()
}

fn nanos(money: &Value) -> i64 {
    let text = money.as_str().unwrap();
    let (whole, decimals) = text.split_once('.').unwrap();
    format!("{whole}{decimals:0<9}").parse().unwrap()
}

fn path_text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn aborting_at_any_failpoint_loses_nothing() {
    if files_only(
        "a next gateway frees what a dead one held only when its lease is over: see tests/fleet",
    ) {
        return;
    }
    for round in 0..rounds() {
        let gateway = KillableGateway::create().await;
        for (at, point) in (0_u32..).zip(failpoint::POINTS) {
            // Early, and later when many calls are at different failpoints; not before the process is ready.
            let times = 5 + (round * 37 + at * 11) % 60;
            let die_at = format!("{point}:{times}");
            let alive = gateway.start(Some(&die_at)).await;
            gateway.load_until_death(alive.public).await;
            let ended = alive.process.ended().await;
            assert_eq!(
                ended.code, None,
                "{die_at}: it was to be killed, not to exit"
            );
            gateway.examine(&die_at).await;
        }
        gateway.assert_was_busy();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn being_killed_at_any_moment_loses_nothing() {
    if files_only(
        "a next gateway frees what a dead one held only when its lease is over: see tests/fleet",
    ) {
        return;
    }
    for round in 0..rounds() {
        let gateway = KillableGateway::create().await;
        let alive = gateway.start(None).await;
        let kill = async {
            let enough = 21 + round as usize * 13 % 100;
            while gateway.answered.lock().unwrap().len() < enough {
                tokio::time::sleep(Duration::from_micros(700)).await;
            }
            alive.process.signal("KILL");
        };
        tokio::join!(kill, gateway.load_until_death(alive.public));
        let ended = alive.process.ended().await;
        assert_eq!(ended.code, None);
        gateway.examine("at any moment").await;
        gateway.assert_was_busy();
    }
}

/// A damaged page is found at the start: the gateway does not serve from a corrupt ledger.
#[tokio::test]
async fn a_damaged_database_is_not_served() {
    if files_only("it damages the database's file") {
        return;
    }
    let gateway = KillableGateway::create().await;
    let alive = gateway.start(None).await;
    for number in 0..50 {
        let id = number.to_string();
        let sent = ask(
            &gateway.client,
            alive.public,
            &gateway.key,
            &id,
            "Hello",
            false,
        );
        sent.await.unwrap();
    }
    assert_eq!(alive.process.terminated().await.code, Some(0));
    let mut bytes = std::fs::read(gateway.database()).unwrap();
    let pages = bytes.len() / 4096;
    // The last page belongs to one of the growing tables.
    bytes[(pages - 1) * 4096..].fill(0xA5);
    std::fs::write(gateway.database(), bytes).unwrap();
    let config = gateway.folder.path().join("tollgate.toml");
    let environment = [("TOLLGATE_OPERATOR_TOKEN", TOKEN)];
    for time in ["the first", "the second, as after a restart"] {
        let refused = run(&["serve", "--config", path_text(&config)], &environment);
        assert_eq!(refused.status.code(), Some(1), "{time}");
        let words = text(&refused.stderr);
        assert!(words.contains("tollgate.db cannot be used"), "{words}");
        assert!(
            words.contains("malformed") || words.contains("Tree"),
            "{words}"
        );
    }
    let audit = run(
        &["audit", "--database", path_text(&gateway.database())],
        &[],
    );
    assert_eq!(audit.status.code(), Some(1), "{}", text(&audit.stdout));
}

#[tokio::test]
async fn an_audit_of_a_file_reports_what_is_wrong() {
    if files_only("it writes into the database's file") {
        return;
    }
    let gateway = KillableGateway::create().await;
    let arguments = ["audit", "--database", path_text(&gateway.database())].map(str::to_owned);
    let audit = |more: &[&str]| {
        let mut arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        arguments.extend(more);
        let done = run(&arguments, &[]);
        (done.status.code(), text(&done.stdout), text(&done.stderr))
    };
    let (code, told, _) = audit(&[]);
    assert_eq!(code, Some(0));
    assert!(
        told.starts_with("1 accounts, 1 entries, 0 of them charges"),
        "{told}"
    );
    assert!(told.ends_with("Everything adds up.\n"), "{told}");
    let stranger = rusqlite::Connection::open(gateway.database()).unwrap();
    stranger
        .execute(
            "UPDATE ledger_entries SET delta_nano_usd = delta_nano_usd + 1",
            [],
        )
        .unwrap();
    drop(stranger);
    let (code, told, problem) = audit(&[]);
    assert_eq!(code, Some(1));
    assert!(
        told.contains(&gateway.account_id) && told.contains("add up to"),
        "{told}"
    );
    assert_eq!(problem, "tollgate: the ledger does not add up\n");
    let (code, json, _) = audit(&["--json"]);
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!((code, &json["ok"]), (Some(1), &json!(false)));
    assert_eq!(
        json["violations"][0]["account_id"],
        gateway.account_id.as_str()
    );
    let missing = run(&["audit", "--database", "/nowhere/at.db"], &[]);
    assert_eq!(missing.status.code(), Some(1));
    assert!(text(&missing.stderr).contains("/nowhere/at.db cannot be audited"));
}
