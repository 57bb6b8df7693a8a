//! `tollgate serve` in a process of its own, with an account that may call everything.

use std::{net::SocketAddr, path::Path};

use reqwest::Client;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{FakeUpstream, Process};

const TOKEN: &str = "0123456789abcdef";

pub struct Serving {
    pub process: Process,
    pub public: SocketAddr,
    pub client: Client,
    key: String,
    _folder: TempDir,
}

impl Serving {
    /// On the simulator.
    pub async fn start(grace_seconds: u32) -> Self {
        Self::start_with(grace_seconds, "kind = \"simulator\"").await
    }

    /// On a provider that does as it is told.
    pub async fn start_on(upstream: &FakeUpstream, grace_seconds: u32) -> Self {
        let address = upstream.address;
        let provider = format!("kind = \"openai\"\nbase_url = \"http://{address}/v1\"");
        Self::start_with(grace_seconds, &provider).await
    }

    async fn start_with(grace_seconds: u32, provider: &str) -> Self {
        let folder = TempDir::new().unwrap();
        let config = write_config(folder.path(), grace_seconds, provider);
        let environment = [("TOLLGATE_OPERATOR_TOKEN", TOKEN)];
        let (process, public, operator) = Process::serve(&config, &environment).await;
        // Every request on a connection of its own: those that were idle are closed by a stop.
        let client = Client::builder().no_proxy().pool_max_idle_per_host(0);
        let client = client.build().unwrap();
        let post = async |path: &str, body: Value| -> Value {
            let url = format!("http://{operator}{path}");
            let request = client.post(url).bearer_auth(TOKEN).json(&body);
            request.send().await.unwrap().json().await.unwrap()
        };
        let account = json!({ "email": "a@example.com", "track": "business", "tier": "flex" });
        let account = post("/operator/accounts", account).await;
        let path = format!("/operator/accounts/{}", account["id"].as_str().unwrap());
        post(&format!("{path}/grants"), json!({ "amount": "100" })).await;
        let key = post(&format!("{path}/keys"), json!({ "name": "test" })).await;
        Self {
            process,
            public,
            client,
            key: key["key"].as_str().unwrap().to_owned(),
            _folder: folder,
        }
    }

    pub fn chat(&self, body: &Value) -> reqwest::RequestBuilder {
        let url = format!("http://{}/v1/chat/completions", self.public);
        self.client.post(url).bearer_auth(&self.key).json(body)
    }
}

fn write_config(folder: &Path, grace_seconds: u32, provider: &str) -> std::path::PathBuf {
    let config = folder.join("tollgate.toml");
    let text = format!(
        "server.listen = \"127.0.0.1:0\"\noperator.listen = \"127.0.0.1:0\"\n\
         server.shutdown_grace_seconds = {grace_seconds}\nstore.url = \"sqlite:{}\"\n\
         deployments = [{{ model = \"*\", provider = \"play\" }}]\n\
         [providers.play]\n{provider}\n",
        folder.join("tollgate.db").display()
    );
    std::fs::write(&config, text).unwrap();
    config
}
