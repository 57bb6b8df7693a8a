//! Reloading the configuration of a running process: on SIGHUP, and when its file changes.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use reqwest::Client;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{
    FakeUpstream, Process, Step, bedrock, clouds, stores,
    upstream::{Gate, chunk, completion, events, response, stream_head, usage_chunk},
};

const TOKEN: &str = "7c1f9a04e6b25d83d0487ae1936bf25c";

struct Reloading {
    folder: TempDir,
    process: Process,
    client: Client,
    public: String,
    key: String,
}

impl Reloading {
    async fn start(upstream: &FakeUpstream) -> Self {
        let folder = TempDir::new().unwrap();
        let config = folder.path().join("tollgate.toml");
        write(&folder.path().join("operator.token"), TOKEN);
        write(&config, &text(folder.path(), upstream, ""));
        let (process, public, operator) = Process::serve(&config, &[]).await;
        let client = Client::builder().no_proxy().build().unwrap();
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
            folder,
            process,
            client: client.clone(),
            public: format!("http://{public}"),
            key: key["key"].as_str().unwrap().to_owned(),
        }
    }

    fn config(&self) -> PathBuf {
        self.folder.path().join("tollgate.toml")
    }

    fn change(&self, upstream: &FakeUpstream, more: &str) {
        write(&self.config(), &text(self.folder.path(), upstream, more));
    }

    /// Waits until the log contains `words` `times` times.
    async fn until_logged(&mut self, words: &str, times: usize) {
        let done = |process: &Process| process.stderr().matches(words).count() >= times;
        self.process.until(done).await;
    }

    fn chat(&self, stream: bool) -> reqwest::RequestBuilder {
        let body = json!({
            "model": "svc-standard", "stream": stream,
            "messages": [{ "role": "user", "content": "Hello" }],
        });
        let url = format!("{}/v1/chat/completions", self.public);
        self.client.post(url).bearer_auth(&self.key).json(&body)
    }

    async fn says(&self) -> String {
        let answer = self.chat(false).send().await.unwrap();
        let answer: Value = answer.json().await.unwrap();
        let content = &answer["choices"][0]["message"]["content"];
        content
            .as_str()
            .unwrap_or_else(|| panic!("{answer}"))
            .to_owned()
    }

    async fn models(&self) -> usize {
        let url = format!("{}/v1/models", self.public);
        let models = self.client.get(url).bearer_auth(&self.key).send().await;
        let models: Value = models.unwrap().json().await.unwrap();
        models["data"].as_array().unwrap().len()
    }
}

/// Replaces the file atomically, as editors do, so that no reader sees a half-written one.
fn write(path: &Path, text: &str) {
    let beside = path.with_extension("new");
    std::fs::write(&beside, text).unwrap();
    std::fs::rename(beside, path).unwrap();
}

fn text(folder: &Path, upstream: &FakeUpstream, more: &str) -> String {
    format!(
        "server.listen = \"127.0.0.1:0\"\noperator.listen = \"127.0.0.1:0\"\n\
         operator.token_file = \"operator.token\"\n{}{more}\n[providers.play]\nkind = \"openai\"\n\
         base_url = \"http://{}/v1\"\n[[deployments]]\nmodel = \"*\"\nprovider = \"play\"\n",
        stores::lines(folder),
        upstream.address
    )
}

async fn answering(content: &str) -> FakeUpstream {
    let upstream = FakeUpstream::start().await;
    upstream.answer_json(200, &completion(content));
    upstream
}

#[tokio::test]
async fn a_changed_file_is_read_and_a_bad_one_changes_nothing() {
    let (old, new) = (answering("old").await, answering("new").await);
    let mut running = Reloading::start(&old).await;
    assert_eq!(running.says().await, "old");
    running.change(&new, "");
    running.until_logged("configuration reloaded", 1).await;
    assert_eq!(running.says().await, "new");
    running.change(&old, "limits.rpm = 0\nlimits.tqm = 5");
    running.until_logged("configuration not reloaded", 1).await;
    let log = running.process.stderr();
    for mistake in [
        "2 mistakes",
        "`limits.rpm` is 0",
        "`limits.tqm` is not a setting",
    ] {
        assert!(log.contains(mistake), "{mistake}: {log}");
    }
    assert_eq!(running.says().await, "new");
    running.change(&old, "");
    running.until_logged("configuration reloaded", 2).await;
    assert_eq!(running.says().await, "old");
    assert_eq!(running.process.terminated().await.code, Some(0));
}

/// Keys of providers can be replaced while the gateway runs: their files are watched, and so are those of other secrets.
#[tokio::test]
async fn a_replaced_key_file_is_used_and_other_changes_are_said_to_need_a_restart() {
    let upstream = answering("hi").await;
    let mut running = Reloading::start(&upstream).await;
    let key = running.folder.path().join("play.key");
    write(&key, "first");
    write(&running.folder.path().join("other.key"), "other");
    let with_keys = text(running.folder.path(), &upstream, "").replace(
        "kind = \"openai\"",
        "kind = \"openai\"\napi_key_file = [\"play.key\", \"other.key\"]",
    );
    write(&running.config(), &with_keys);
    running.until_logged("configuration reloaded", 1).await;
    // Keys are used in turn.
    let sent = async |running: &Reloading| {
        running.says().await;
        running.says().await;
        let received = upstream.received();
        let last = received[received.len() - 2..].iter();
        let mut sent: Vec<_> = last.filter_map(|one| one.header("authorization")).collect();
        sent.sort_unstable();
        sent.join(", ")
    };
    assert_eq!(sent(&running).await, "Bearer first, Bearer other");
    write(&key, "second");
    running.until_logged("configuration reloaded", 2).await;
    assert_eq!(sent(&running).await, "Bearer other, Bearer second");
    assert!(!running.process.stderr().contains("restart the gateway"));

    let token = running.folder.path().join("operator.token");
    write(&token, "e24b9d06c1f7583a94d0b2e7816fca35");
    running.until_logged("configuration reloaded", 3).await;
    let words = "restart the gateway to use what has changed in operator.token_file\"";
    running.until_logged(words, 1).await;
    write(&token, TOKEN);
    running.until_logged("configuration reloaded", 4).await;

    let other = with_keys.replace(
        "server.listen = \"127.0.0.1:0\"",
        "server.listen = \"127.0.0.1:1\"\ncredit.max_overdraft = \"1.00\"",
    );
    write(&running.config(), &other);
    running.until_logged("configuration reloaded", 5).await;
    let words =
        "restart the gateway to use what has changed in credit.max_overdraft, server.listen\"";
    running.until_logged(words, 1).await;
}

/// An access key of AWS is two settings, so that both are changed in one save; the key file of a service account is one.
#[tokio::test]
async fn replaced_files_of_aws_and_google_are_used() {
    let (upstream, tokens) = (answering("hi").await, FakeUpstream::start().await);
    tokens.play_for_each(|request| {
        let path = request.head.split(' ').nth(1).unwrap();
        let token = clouds::token(&format!("token-of-{path}")).to_string();
        vec![Step::Send(response(200, "application/json", &token))]
    });
    let mut running = Reloading::start(&upstream).await;
    let file = |name: &str| running.folder.path().join(name);
    let (first, second) = (file("first.secret"), file("second.secret"));
    let (session, google) = (file("session.token"), file("google.json"));
    let with = |settings: &str| {
        text(running.folder.path(), &upstream, "").replace(
            "kind = \"openai\"",
            &format!("kind = \"openai\"\n{settings}"),
        )
    };
    let aws = |id: &str, secret: &str| {
        with(&format!(
            "auth = \"aws\"\nregion = \"{}\"\naccess_key_id = \"{id}\"\n\
             secret_access_key_file = \"{secret}\"\nsession_token_file = \"session.token\"",
            bedrock::REGION
        ))
    };
    let (old, new) = (
        aws("AKIAOLD", "first.secret"),
        aws("AKIANEW", "second.secret"),
    );
    let with_google = with("auth = \"google\"\ncredentials_file = \"google.json\"");
    let config = running.config();
    let last = || upstream.received().pop().unwrap();

    write(&first, "secret-one");
    write(&session, "session-one");
    write(&config, &old);
    running.until_logged("configuration reloaded", 1).await;
    running.says().await;
    bedrock::assert_signed(&last(), "secret-one", Some("session-one"));
    write(&first, "secret-1");
    running.until_logged("configuration reloaded", 2).await;
    running.says().await;
    bedrock::assert_signed(&last(), "secret-1", Some("session-one"));
    write(&session, "session-two");
    running.until_logged("configuration reloaded", 3).await;
    running.says().await;
    bedrock::assert_signed(&last(), "secret-1", Some("session-two"));
    write(&second, "secret-two");
    write(&config, &new);
    running.until_logged("configuration reloaded", 4).await;
    running.says().await;
    bedrock::assert_signed(&last(), "secret-two", Some("session-two"));
    assert_eq!(bedrock::signer(&last()), "AKIANEW");

    let mut account = clouds::service_account(&tokens);
    for (reloads, path) in [(5, "/one"), (6, "/second")] {
        account["token_uri"] = format!("http://{}{path}", tokens.address).into();
        write(&google, &account.to_string());
        write(&config, &with_google);
        running
            .until_logged("configuration reloaded", reloads)
            .await;
        running.says().await;
        let expected = format!("Bearer token-of-{path}");
        assert_eq!(last().header("authorization"), Some(expected.as_str()));
    }
    let log = running.process.stderr();
    for secret in ["secret-", "session-", "token-of", "restart the gateway"] {
        assert!(!log.contains(secret), "{secret}: {log}");
    }
}

/// So can the credentials of identities. The tokens say with which secret they were fetched.
#[tokio::test]
async fn a_replaced_credentials_file_is_used_and_no_secret_is_logged() {
    let (upstream, tokens) = (answering("hi").await, FakeUpstream::start().await);
    tokens.play_for_each(|request| {
        let (_, secret) = request.text.rsplit_once('=').unwrap();
        let token = clouds::token(&format!("token-of-{secret}")).to_string();
        vec![Step::Send(response(200, "application/json", &token))]
    });
    let mut running = Reloading::start(&upstream).await;
    let auth = clouds::azure(&tokens, &running.folder);
    let secret = running.folder.path().join("client.secret");
    write(&secret, "canaryone");
    let with_identity = |more: &str| {
        text(running.folder.path(), &upstream, more)
            .replace("kind = \"openai\"", &format!("kind = \"openai\"\n{auth}"))
    };
    let (plain, changed) = (with_identity(""), with_identity("routing.attempts = 1"));
    write(&running.config(), &plain);
    running.until_logged("configuration reloaded", 1).await;
    let sent = || {
        let received = upstream.received();
        let last = received.last().unwrap();
        last.header("authorization").unwrap().to_owned()
    };
    running.says().await;
    assert_eq!(sent(), "Bearer token-of-canaryone");
    write(&secret, "canarytwo");
    running.until_logged("configuration reloaded", 2).await;
    running.says().await;
    assert_eq!(sent(), "Bearer token-of-canarytwo");
    // A reload that leaves the identity as it is leaves its token too.
    write(&running.config(), &changed);
    running.until_logged("configuration reloaded", 3).await;
    running.says().await;
    assert_eq!(
        (sent().as_str(), tokens.calls()),
        ("Bearer token-of-canarytwo", 2)
    );

    tokens.answer_json(401, &json!({ "error": "invalid_client" }));
    write(&secret, "canarythree");
    running.until_logged("configuration reloaded", 4).await;
    let failed = running.chat(false).send().await.unwrap();
    assert_eq!(failed.status(), 502);
    running
        .until_logged("fetching a token from Azure failed", 1)
        .await;
    let log = running.process.stderr();
    for secret in ["canaryone", "canarytwo", "canarythree", "token-of"] {
        assert!(!log.contains(secret), "{secret}: {log}");
    }
}

#[tokio::test]
async fn a_signal_reloads_and_a_changed_catalog_applies() {
    let upstream = answering("hi").await;
    let mut running = Reloading::start(&upstream).await;
    let all = running.models().await;
    running.process.signal("HUP");
    running.until_logged("configuration reloaded", 1).await;
    assert_eq!(running.models().await, all, "the same file says the same");
    let catalog = running.folder.path().join("catalog.toml");
    let model = |id: &str| {
        format!(
            "[[models]]\nid = \"{id}\"\nname = \"More\"\ndescription = \"One more.\"\n\
             min_tier = \"free\"\ninput = \"1.00\"\noutput = \"2.00\"\n"
        )
    };
    write(&catalog, &model("svc-more"));
    running.change(
        &upstream,
        &format!("catalog.file = \"{}\"", catalog.display()),
    );
    running.until_logged("configuration reloaded", 2).await;
    assert_eq!(running.models().await, all + 1);
    write(&catalog, &(model("svc-more") + &model("svc-still-more")));
    running.until_logged("configuration reloaded", 3).await;
    assert_eq!(
        running.models().await,
        all + 2,
        "the catalog is watched too"
    );
}

#[tokio::test]
async fn changed_aliases_apply() {
    let upstream = answering("hi").await;
    let mut running = Reloading::start(&upstream).await;
    let found = async |running: &Reloading| {
        let url = format!("{}/v1/models/claude-opus-5-5", running.public);
        let found = running.client.get(url).bearer_auth(&running.key).send();
        let found: Value = found.await.unwrap().json().await.unwrap();
        found["alias_of"].clone()
    };
    assert_eq!(found(&running).await, Value::Null);
    running.change(&upstream, "models.aliases.\"claude-*\" = \"svc-pro\"");
    running.until_logged("configuration reloaded", 1).await;
    assert_eq!(found(&running).await, "svc-pro");
    running.change(&upstream, "models.aliases.\"claude-*\" = \"svc-nope\"");
    running.until_logged("configuration not reloaded", 1).await;
    assert_eq!(found(&running).await, "svc-pro");
}

#[tokio::test]
async fn a_missing_file_is_read_when_it_appears() {
    let upstream = answering("hi").await;
    let mut running = Reloading::start(&upstream).await;
    let all = running.models().await;
    let catalog = running.folder.path().join("catalog.toml");
    running.change(
        &upstream,
        &format!("catalog.file = \"{}\"", catalog.display()),
    );
    running.until_logged("configuration not reloaded", 1).await;
    // The file is checked every second, and its absence is logged once.
    tokio::time::sleep(Duration::from_millis(2_200)).await;
    let log = running.process.stderr();
    assert_eq!(
        log.matches("configuration not reloaded").count(),
        1,
        "{log}"
    );
    write(
        &catalog,
        "[[models]]\nid = \"svc-more\"\nname = \"More\"\ndescription = \"One more.\"\n\
         min_tier = \"free\"\ninput = \"1.00\"\noutput = \"2.00\"\n",
    );
    running.until_logged("configuration reloaded", 1).await;
    assert_eq!(running.models().await, all + 1);
}

#[tokio::test]
async fn running_calls_finish_with_the_deployment_they_started_with() {
    let (old, new) = (answering("old").await, answering("new").await);
    let mut running = Reloading::start(&old).await;
    let gate = Gate::default();
    let first = events(&[chunk(json!({ "content": "old " }), None)]);
    let first = first.replace("data: [DONE]\n\n", "");
    let last = events(&[
        chunk(json!({ "content": "end" }), Some("stop")),
        usage_chunk(5, 5),
    ]);
    old.play(vec![
        Step::Send([stream_head(), first.into_bytes()].concat()),
        Step::Until(gate.clone()),
        Step::Send(last.into_bytes()),
        Step::Close,
    ]);
    let stream = running.chat(true).send().await.unwrap();
    running.change(&new, "");
    running.until_logged("configuration reloaded", 1).await;
    assert_eq!(running.says().await, "new");
    gate.open();
    let text = stream.text().await.unwrap();
    assert!(
        text.contains("old ") && text.contains("end") && text.contains("[DONE]"),
        "{text}"
    );
}
