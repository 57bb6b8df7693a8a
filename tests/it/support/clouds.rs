//! A gateway whose requests are authorised by tokens of a cloud, and the cloud's fake token endpoint.

use serde_json::{Value, json};
use tempfile::TempDir;

use super::{
    FakeUpstream, Step, TestGateway,
    upstream::{Received, response},
};

/// A key that was made for tests and opens nothing.
const KEY: &str = include_str!("../../../src/upstream/auth/google/test_key.pem");
pub const PROJECT: &str = "my-project-4711";
pub const EMAIL: &str = "gateway@my-project-4711.iam.gserviceaccount.com";
pub const CLIENT_SECRET: &str = "client-secret-canary-8Q~";
/// The model that the cloud serves. All others are served by the gateway's usual upstream.
pub const MODEL: &str = "svc-standard";

pub struct Cloud {
    pub gateway: TestGateway,
    pub api: FakeUpstream,
    pub tokens: FakeUpstream,
    /// The credentials.
    _folder: TempDir,
}

impl Cloud {
    /// With the key of a service account. `path` follows the location in the base URL.
    pub async fn google(kind: &str, path: &str, more: &str) -> Self {
        let tokens = FakeUpstream::start().await;
        let folder = TempDir::new().unwrap();
        let file = folder.path().join("google.json");
        std::fs::write(&file, service_account(&tokens).to_string()).unwrap();
        let auth = format!("auth = \"google\"\ncredentials_file = {:?}", file.display());
        let path = format!("/v1/projects/{PROJECT}/locations/europe-west4{path}");
        Self::start(kind, &path, &auth, more, tokens, folder).await
    }

    /// With the secret of an application, and with more settings of the provider.
    pub async fn azure(path: &str, settings: &str) -> Self {
        let tokens = FakeUpstream::start().await;
        let folder = TempDir::new().unwrap();
        let auth = format!("{}\n{settings}", azure(&tokens, &folder));
        Self::start("openai", path, &auth, "", tokens, folder).await
    }

    async fn start(
        kind: &str,
        path: &str,
        auth: &str,
        more: &str,
        tokens: FakeUpstream,
        folder: TempDir,
    ) -> Self {
        let api = FakeUpstream::start().await;
        let config = format!(
            "[providers.cloud]\nkind = \"{kind}\"\nbase_url = \"http://{}{path}\"\n{auth}\n\
             [[deployments]]\nmodel = \"{MODEL}\"\nprovider = \"cloud\"\nupstream_model = \"claude-9@20260101\"\n{more}\n",
            api.address
        );
        issue_numbered(&tokens);
        Self {
            gateway: TestGateway::start_with(&config).await,
            api,
            tokens,
            _folder: folder,
        }
    }

    /// What the gateway's account has spent, in nano-dollars.
    pub async fn spent(&self) -> u64 {
        self.gateway.idle().await;
        let balance = self.gateway.balance().await;
        let (dollars, cents) = balance.split_once('.').unwrap();
        let nanos = format!("{dollars}{cents:0<9}").parse::<u64>().unwrap();
        1_000_000_000_000 - nanos
    }

    /// What authorised each request that the API got.
    pub fn authorizations(&self) -> Vec<String> {
        let received = self.api.received();
        let header = |request: &Received| request.header("authorization").unwrap().to_owned();
        received.iter().map(header).collect()
    }
}

/// A key file of a service account, as Google's console writes it.
pub fn service_account(tokens: &FakeUpstream) -> Value {
    json!({
        "type": "service_account", "project_id": PROJECT, "private_key_id": "key-1", "private_key": KEY,
        "client_email": EMAIL, "client_id": "104711", "universe_domain": "googleapis.com",
        "token_uri": format!("http://{}/token", tokens.address),
    })
}

/// The settings of an application with a secret, whose file is in the folder.
pub fn azure(tokens: &FakeUpstream, folder: &TempDir) -> String {
    let file = folder.path().join("client.secret");
    std::fs::write(&file, CLIENT_SECRET).unwrap();
    format!(
        "auth = \"azure\"\nauthority = \"http://{}\"\ntenant = \"contoso.example\"\nclient_id = \"app-4711\"\n\
         client_secret_file = {:?}",
        tokens.address,
        file.display()
    )
}

pub fn token(text: &str) -> Value {
    json!({ "access_token": text, "expires_in": 3599, "token_type": "Bearer" })
}

/// Issues `ya29.token-1`, `ya29.token-2`, …
fn issue_numbered(tokens: &FakeUpstream) {
    let issued = std::sync::atomic::AtomicUsize::new(0);
    tokens.play_for_each(move |_| {
        let number = issued.fetch_add(1, std::sync::atomic::Ordering::Relaxed) + 1;
        let body = token(&format!("ya29.token-{number}")).to_string();
        vec![Step::Send(response(200, "application/json", &body))]
    });
}
