//! The cost of shared stores: `cargo bench --bench shared`, with private servers.
//!
//! Measures first the ledger alone: holds and charges in PostgreSQL, flushed to the disk. Then whole requests through a
//! gateway on PostgreSQL and Redis, with the CPU time of all three; and for comparison through a gateway on files.
//! Everything runs on one machine and shares its cores.

#![expect(clippy::cast_precision_loss, reason = "approximate figures are enough")]

use std::{
    path::Path,
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use tempfile::TempDir;
use tollgate::{
    base::durability::Durability,
    catalog::Catalog,
    db::postgres::Address,
    ledger::{self, Caller, Ledger, Outcome},
};

#[path = "../src/db/testing/postgres_server.rs"]
mod postgres_server;
#[allow(dead_code, reason = "tests use more of it")]
#[path = "../tests/it/support/redis_server.rs"]
mod redis_server;
mod support;

use postgres_server::PostgresServer;
use redis_server::RedisServer;

/// How long each measurement takes.
const MEASURED_FOR: Duration = Duration::from_secs(4);
const TOKEN: &str = "7c1f9a04e6b25d83d0487ae1936bf25c";
/// Accounts of the measurement with many of them.
const MANY: usize = 1_000;

fn main() {
    // `cargo test --benches` only checks that it compiles, because running it needs servers.
    if std::env::args().any(|argument| argument == "--test") {
        return;
    }
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let postgres = PostgresServer::own_with(&["fsync=on", "autovacuum=on", "shared_buffers=256MB"]);
    runtime.block_on(ledger_alone(&postgres));
    let redis = RedisServer::own();
    runtime.block_on(requests(&postgres, &redis));
}

async fn ledger_alone(postgres: &PostgresServer) {
    println!("ledger on PostgreSQL: calls held and charged per second, flushed to the disk");
    for (name, accounts) in [("one account", 1), ("1,000 accounts", MANY)] {
        for callers in [1, 64, 256] {
            let database = postgres.database();
            let address = Address::parse(&database).unwrap();
            let ledger = Ledger::share(&address, Durability::Power, ledger::DEADLINE * 10).await;
            let ledger = Arc::new(ledger.unwrap());
            let paying = with_credit(&ledger, accounts).await;
            let before = Server::of(postgres, &database);
            let (done, took) = hold_and_charge(&ledger, &paying, callers).await;
            let used = Server::of(postgres, &database).since(&before);
            println!(
                "  {name:15} {callers:4} callers {:7.0} calls/s   {:5.2} transactions and {:5.0} bytes of WAL per call",
                done as f64 / took,
                used.transactions / done as f64,
                used.wal / done as f64,
            );
            ledger.close().await;
        }
    }
}

/// Creates accounts with credit and a key each.
async fn with_credit(ledger: &Ledger, accounts: usize) -> Vec<Caller> {
    let mut callers = Vec::new();
    for _ in 0..accounts {
        let customers = support::customer(ledger, "bench@example.com", 1).await;
        callers.extend(customers.into_iter().map(|(caller, _)| caller));
    }
    callers
}

/// Holds and charges calls with this many concurrent tasks. Returns the number of calls and the seconds it took.
async fn hold_and_charge(ledger: &Arc<Ledger>, paying: &[Caller], callers: usize) -> (u64, f64) {
    let model = Catalog::built_in().find("svc-standard").unwrap().clone();
    let (started, next) = (Instant::now(), Arc::new(AtomicUsize::new(0)));
    let tasks = (0..callers).map(|_| {
        let (ledger, model, next) = (ledger.clone(), model.clone(), next.clone());
        let paying = paying.to_vec();
        tokio::spawn(async move {
            let mut done = 0_u64;
            while started.elapsed() < MEASURED_FOR {
                let caller = &paying[next.fetch_add(1, Relaxed) % paying.len()];
                let request = support::hold_request(
                    ledger.next_call(),
                    caller,
                    &model,
                    "req_0123456789abcdefghijklmn",
                );
                let mut held = ledger.hold(request).await.expect("there is credit");
                // A charge without a response within the timeout is repeated until it has one.
                while held
                    .charge(support::USAGE, Outcome::Answered)
                    .await
                    .is_err()
                {}
                done += 1;
            }
            done
        })
    });
    let mut done = 0;
    for task in tasks.collect::<Vec<_>>() {
        done += task.await.unwrap();
    }
    (done, started.elapsed().as_secs_f64())
}

/// Counters of the PostgreSQL server since its start.
struct Server {
    transactions: f64,
    /// Bytes.
    wal: f64,
    /// Seconds.
    cpu: f64,
}

impl Server {
    fn of(postgres: &PostgresServer, database: &str) -> Self {
        let name = database.rsplit_once('/').unwrap().1;
        let row = postgres.psql(
            "postgres",
            &format!(
                "SELECT (SELECT xact_commit FROM pg_stat_database WHERE datname = '{name}')
                    || ' ' || pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')"
            ),
        );
        let mut numbers = row.split_whitespace().map(|text| text.parse().unwrap());
        let pid = std::fs::read_to_string(postgres.folder().join("data/postmaster.pid")).unwrap();
        Self {
            transactions: numbers.next().unwrap(),
            wal: numbers.next().unwrap(),
            cpu: cpu_of_family(pid.lines().next().unwrap().trim()),
        }
    }

    fn since(&self, before: &Self) -> Self {
        Self {
            transactions: self.transactions - before.transactions,
            wal: self.wal - before.wal,
            cpu: self.cpu - before.cpu,
        }
    }
}

async fn requests(postgres: &PostgresServer, redis: &RedisServer) {
    println!("whole requests through one gateway, 64 at a time, a simulated provider");
    for accounts in [1, 200] {
        let database = postgres.database();
        let lines = format!(
            "store.url = \"{database}\"\nstore.spool = \"FOLDER/spool\"\nlimits.url = \"{}\"\n",
            redis.url()
        );
        let gateway = Gateway::start(&lines).await;
        let keys = gateway.keys(accounts).await;
        gateway.send_for(Duration::from_secs(1), &keys).await;
        let (cpu, server) = (gateway.cpu(), Server::of(postgres, &database));
        let (scripts, redis_cpu) = redis_work(redis);
        let (done, took) = gateway.send_for(MEASURED_FOR, &keys).await;
        let used = Server::of(postgres, &database).since(&server);
        let (scripts_after, redis_cpu_after) = redis_work(redis);
        let each = |all: f64| all / done as f64;
        println!(
            "  PostgreSQL + Redis {accounts:4} accounts {:7.0} per second; CPU of the gateway {:4.0} µs, PostgreSQL {:4.0} µs, \
             Redis {:3.0} µs; {:4.2} transactions, {:4.2} scripts, {:5.0} bytes of WAL per request",
            done as f64 / took,
            each(gateway.cpu() - cpu) * 1e6,
            each(used.cpu) * 1e6,
            each(redis_cpu_after - redis_cpu) * 1e6,
            each(used.transactions),
            each(scripts_after - scripts),
            each(used.wal),
        );
        gateway.assert_sound().await;
    }
    for accounts in [1, 200] {
        let gateway = Gateway::start("store.url = \"sqlite:FOLDER/t.db\"\n").await;
        let keys = gateway.keys(accounts).await;
        gateway.send_for(Duration::from_secs(1), &keys).await;
        let cpu = gateway.cpu();
        let (done, took) = gateway.send_for(MEASURED_FOR, &keys).await;
        println!(
            "  SQLite + memory    {accounts:4} accounts {:7.0} per second; CPU of the gateway {:4.0} µs",
            done as f64 / took,
            (gateway.cpu() - cpu) / done as f64 * 1e6,
        );
        gateway.assert_sound().await;
    }
}

/// A running `tollgate serve` process.
struct Gateway {
    process: Child,
    folder: TempDir,
    client: reqwest::Client,
    public: u16,
    operator: u16,
}

impl Gateway {
    /// Starts the process with these lines of store configuration, and waits until it is ready.
    async fn start(stores: &str) -> Self {
        let folder = TempDir::new().unwrap();
        let [public, operator] = [free_port(), free_port()];
        let stores = stores.replace("FOLDER", &folder.path().display().to_string());
        let config = format!(
            "server.listen = \"127.0.0.1:{public}\"\noperator.listen = \"127.0.0.1:{operator}\"\n{stores}\
             limits.rpm = 100000000\nlimits.tpm = 4000000000\nlog.level = \"warn\"\n\
             deployments = [{{ model = \"*\", provider = \"s\" }}]\n[providers.s]\nkind = \"simulator\"\n"
        );
        let file = folder.path().join("tollgate.toml");
        std::fs::write(&file, config).unwrap();
        let process = Command::new(env!("CARGO_BIN_EXE_tollgate"))
            .args(["serve", "--config"])
            .arg(&file)
            .env("TOLLGATE_OPERATOR_TOKEN", TOKEN)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let gateway = Self {
            process,
            folder,
            client,
            public,
            operator,
        };
        let health = format!("http://127.0.0.1:{public}/health");
        let ready = async |gateway: &Self| {
            let response = gateway.client.get(&health).send().await;
            response.is_ok_and(|response| response.status() == 200)
        };
        while !ready(&gateway).await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        gateway
    }

    /// Posts to the operator API and returns the response.
    async fn operate(&self, path: &str, body: Value) -> Value {
        let url = format!("http://127.0.0.1:{}/operator/{path}", self.operator);
        let request = self.client.post(url).bearer_auth(TOKEN).json(&body);
        request.send().await.unwrap().json().await.unwrap()
    }

    /// Creates accounts with credit and returns a key of each.
    async fn keys(&self, accounts: usize) -> Vec<String> {
        let mut keys = Vec::new();
        for _ in 0..accounts {
            let account = json!({ "email": "a@example.com", "track": "business", "tier": "flex" });
            let account = self.operate("accounts", account).await;
            let account = format!("accounts/{}", account["id"].as_str().unwrap());
            self.operate(&format!("{account}/grants"), json!({ "amount": "100000" }))
                .await;
            let key = self
                .operate(&format!("{account}/keys"), json!({ "name": "bench" }))
                .await;
            keys.push(key["key"].as_str().unwrap().to_owned());
        }
        keys
    }

    /// Sends requests for this time. Returns how many succeeded, and the seconds it took.
    async fn send_for(&self, time: Duration, keys: &[String]) -> (u64, f64) {
        let url = format!("http://127.0.0.1:{}/v1/chat/completions", self.public);
        let body = json!({ "model": "svc-native-fast", "max_tokens": 16,
            "messages": [{ "role": "user", "content": "Hello" }] })
        .to_string();
        let (started, next) = (Instant::now(), Arc::new(AtomicUsize::new(0)));
        let tasks = (0..64).map(|_| {
            let (client, url, body) = (self.client.clone(), url.clone(), body.clone());
            let (keys, next) = (keys.to_vec(), next.clone());
            tokio::spawn(async move {
                let mut done = 0_u64;
                while started.elapsed() < time {
                    let key = &keys[next.fetch_add(1, Relaxed) % keys.len()];
                    let request = client.post(&url).bearer_auth(key).body(body.clone());
                    let response = request.send().await.unwrap();
                    let status = response.status();
                    let text = response.text().await.unwrap();
                    // A store that is slow for a moment causes a 503, which a client may retry.
                    assert!(status == 200 || status == 503, "{text}");
                    done += u64::from(status == 200);
                }
                done
            })
        });
        let mut done = 0;
        for task in tasks.collect::<Vec<_>>() {
            done += task.await.unwrap();
        }
        (done, started.elapsed().as_secs_f64())
    }

    /// CPU seconds of the process so far.
    fn cpu(&self) -> f64 {
        cpu_of(&self.process.id().to_string()).map_or(0.0, |(cpu, _)| cpu)
    }

    /// Audits the ledger and asserts that it adds up.
    async fn assert_sound(&self) {
        let audit = self.operate("audit", json!({})).await;
        assert_eq!(audit["ok"], true, "{audit}");
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = &self.folder;
    }
}

/// How many scripts Redis has run, and its CPU seconds.
fn redis_work(redis: &RedisServer) -> (f64, f64) {
    let info = redis.command(&["INFO", "everything"]).unwrap();
    let number = |name: &str| -> f64 {
        let found = info.lines().find_map(|line| line.strip_prefix(name));
        let digits = found.unwrap_or("0").split(',').next().unwrap_or("0");
        digits.trim().parse().unwrap_or(0.0)
    };
    let cpu = number("used_cpu_user:") + number("used_cpu_sys:");
    (number("cmdstat_evalsha:calls="), cpu)
}

fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

/// The CPU seconds of a process, and the ID of its parent.
fn cpu_of(pid: &str) -> Option<(f64, String)> {
    let stat = std::fs::read_to_string(Path::new("/proc").join(pid).join("stat")).ok()?;
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = |at: usize| fields.get(at).and_then(|field| field.parse::<f64>().ok());
    Some((
        (ticks(11)? + ticks(12)?) / 100.0,
        fields.get(1)?.to_string(),
    ))
}

/// The CPU seconds of a process and its children.
fn cpu_of_family(pid: &str) -> f64 {
    let all = std::fs::read_dir("/proc").unwrap();
    let all = all.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let family =
        all.filter_map(|one| cpu_of(&one).filter(|(_, parent)| parent == pid || one == pid));
    family.map(|(cpu, _)| cpu).sum()
}
