//! `tollgate serve` in a child process, with an account that may call every model.

use std::{
    net::SocketAddr,
    path::Path,
    time::{Duration, Instant},
};

use reqwest::Client;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{FakeUpstream, Process, described::exchange, gateway::answer, process::Ended, stores};

/// Longer than any step takes.
const TIMEOUT: Duration = Duration::from_mins(1);
pub const TOKEN: &str = "7c1f9a04e6b25d83d0487ae1936bf25c";

pub struct Serving {
    pub process: Process,
    pub public: SocketAddr,
    pub client: Client,
    pub operator: SocketAddr,
    /// Path of the account in the operator API.
    account: String,
    pub key: String,
    folder: TempDir,
}

impl Serving {
    /// Starts with the simulator as its provider.
    pub async fn start(grace_seconds: u32) -> Self {
        Self::start_with(grace_seconds, "kind = \"simulator\"", &[]).await
    }

    /// Starts with a fake provider.
    pub async fn start_on(upstream: &FakeUpstream, grace_seconds: u32) -> Self {
        let address = upstream.address;
        let provider = format!("kind = \"openai\"\nbase_url = \"http://{address}/v1\"");
        Self::start_with(grace_seconds, &provider, &[]).await
    }

    /// Starts with this provider and additional environment variables.
    pub async fn start_with(
        grace_seconds: u32,
        provider: &str,
        environment: &[(&str, &str)],
    ) -> Self {
        Self::start_in(
            TempDir::new().unwrap(),
            grace_seconds,
            provider,
            environment,
        )
        .await
    }

    /// Like `start_with`, in an existing folder.
    pub async fn start_in(
        folder: TempDir,
        grace_seconds: u32,
        provider: &str,
        environment: &[(&str, &str)],
    ) -> Self {
        write_config(folder.path(), grace_seconds, provider);
        let (process, public, operator) = serve(folder.path(), environment).await;
        // Every request uses a new connection, because idle connections are closed when the server stops.
        let client = Client::builder().no_proxy().pool_max_idle_per_host(0);
        let client = client.build().unwrap();
        let post = async |path: &str, body: Value| -> Value {
            let url = format!("http://{operator}{path}");
            let request = client.post(url).bearer_auth(TOKEN).json(&body);
            answer(request).await.body
        };
        let account = json!({ "email": "a@example.com", "track": "business", "tier": "flex" });
        let account = post("/operator/accounts", account).await;
        let account = format!("/operator/accounts/{}", account["id"].as_str().unwrap());
        post(&format!("{account}/grants"), json!({ "amount": "100" })).await;
        let key = post(&format!("{account}/keys"), json!({ "name": "test" })).await;
        Self {
            process,
            public,
            client,
            operator,
            account,
            key: key["key"].as_str().unwrap().to_owned(),
            folder,
        }
    }

    /// Starts another gateway with this provider in a folder that has a copy of this one's data.
    pub async fn start_on_copy(&self, folder: TempDir, provider: &str) -> Self {
        write_config(folder.path(), 1, provider);
        let (process, public, operator) = serve(folder.path(), &[]).await;
        Self {
            process,
            public,
            operator,
            client: self.client.clone(),
            account: self.account.clone(),
            key: self.key.clone(),
            folder,
        }
    }

    pub fn account_id(&self) -> &str {
        self.account.rsplit('/').next().unwrap()
    }

    /// Reads from the operator API.
    pub async fn get(&self, path: &str) -> Value {
        let url = format!("http://{}{path}", self.operator);
        let request = self.client.get(url).bearer_auth(TOKEN);
        let answer = answer(request).await;
        assert_eq!(answer.status, 200, "{path}");
        answer.body
    }

    /// Posts to the operator API.
    pub async fn post(&self, path: &str, body: Value) -> Value {
        let url = format!("http://{}{path}", self.operator);
        let request = self.client.post(url).bearer_auth(TOKEN).json(&body);
        let answer = answer(request).await;
        assert_eq!(answer.status, 200, "{path}");
        answer.body
    }

    /// Waits until the process exits by itself, then starts another on its data.
    pub async fn ended_and_restarted(self) -> (Ended, Self) {
        self.ended_and_restarted_after(async {}, &[]).await
    }

    /// Like `ended_and_restarted`, with a step in between and additional environment variables.
    pub async fn ended_and_restarted_after(
        self,
        meanwhile: impl Future<Output = ()>,
        environment: &[(&str, &str)],
    ) -> (Ended, Self) {
        let ended = self.process.ended().await;
        meanwhile.await;
        let (process, public, operator) = serve(self.folder.path(), environment).await;
        let restarted = Self {
            process,
            public,
            operator,
            ..self
        };
        (ended, restarted)
    }

    /// The account's balance and its number of charged calls. Asserts that nothing is held.
    pub async fn ledger_view(&self) -> (String, usize) {
        let get = async |path: &str| -> Value {
            let url = format!("http://{}{}{path}", self.operator, self.account);
            let request = self.client.get(url).bearer_auth(TOKEN);
            answer(request).await.body
        };
        let account = get("").await;
        assert_eq!(account["held"], "0.000000", "nothing is held");
        let charges = get("/usage").await["data"].as_array().unwrap().len();
        (account["balance"].as_str().unwrap().to_owned(), charges)
    }

    /// The folder with the configuration and the data files.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Value of a metric without labels, as text.
    pub async fn metric(&self, name: &str) -> String {
        let url = format!("http://{}/metrics", self.operator);
        let request = self.client.get(url).bearer_auth(TOKEN);
        let (_, _, text) = exchange(request).await;
        let mut lines = text.lines().filter_map(|line| line.split_once(' '));
        let found = lines.find(|(named, _)| *named == name);
        found
            .unwrap_or_else(|| panic!("no {name}: {text}"))
            .1
            .to_owned()
    }

    pub async fn until_metric(&self, name: &str, value: &str) {
        let deadline = Instant::now() + TIMEOUT;
        while self.metric(name).await != value {
            assert!(Instant::now() < deadline, "{name} does not become {value}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    pub fn chat(&self, body: &Value) -> reqwest::RequestBuilder {
        let url = format!("http://{}/v1/chat/completions", self.public);
        self.client.post(url).bearer_auth(&self.key).json(body)
    }
}

async fn serve(folder: &Path, environment: &[(&str, &str)]) -> (Process, SocketAddr, SocketAddr) {
    let environment = [&[("TOLLGATE_OPERATOR_TOKEN", TOKEN)], environment].concat();
    Process::serve(&folder.join("tollgate.toml"), &environment).await
}

fn write_config(folder: &Path, grace_seconds: u32, provider: &str) {
    let text = format!(
        "server.listen = \"127.0.0.1:0\"\noperator.listen = \"127.0.0.1:0\"\n\
         server.shutdown_grace_seconds = {grace_seconds}\n{}\
         limits.rpm = 1000000\nlimits.tpm = 1000000000\n\
         deployments = [{{ model = \"*\", provider = \"play\" }}]\n\
         [providers.play]\n{provider}\n",
        stores::lines(folder)
    );
    std::fs::write(folder.join("tollgate.toml"), text).unwrap();
}
