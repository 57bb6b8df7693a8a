//! A request to stop: no new work, running answers finish, patience has an end.

use std::{net::SocketAddr, path::Path, time::Duration};

use futures_util::StreamExt as _;
use reqwest::Client;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{
    FakeUpstream, Process, Step, Stream,
    gateway::hello,
    upstream::{completion, response},
};

const TOKEN: &str = "0123456789abcdef";
const MODEL: &str = "svc-native-fast";

struct Serving {
    process: Process,
    public: SocketAddr,
    client: Client,
    key: String,
    _folder: TempDir,
}

impl Serving {
    async fn start(grace_seconds: u32) -> Self {
        Self::start_with(grace_seconds, "kind = \"simulator\"").await
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

    fn chat(&self, body: &Value) -> reqwest::RequestBuilder {
        let url = format!("http://{}/v1/chat/completions", self.public);
        self.client.post(url).bearer_auth(&self.key).json(body)
    }

    /// A stream that has begun: its first bytes, and the rest to come.
    async fn open_stream(&self, directives: &str) -> (Vec<u8>, reqwest::Response) {
        let mut body = hello(MODEL);
        body["stream"] = true.into();
        body["messages"][0]["content"] = format!("[[sim {directives}]]").into();
        let mut response = self.chat(&body).send().await.unwrap();
        assert_eq!(response.status(), 200);
        let first = response
            .chunk()
            .await
            .unwrap()
            .expect("the stream has begun");
        (first.to_vec(), response)
    }

    async fn health(&self) -> (u16, Value) {
        let url = format!("http://{}/health", self.public);
        let response = self.client.get(url).send().await.unwrap();
        (response.status().as_u16(), response.json().await.unwrap())
    }

    /// Until the request to stop has arrived, which takes a signal a moment.
    async fn until_stopping(&mut self) {
        let stopping = |process: &Process| process.stderr().contains("stopping: no new work");
        self.process.until(stopping).await;
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

async fn rest(first: Vec<u8>, response: reqwest::Response) -> Stream {
    let mut text = first;
    let mut chunks = response.bytes_stream();
    while let Some(chunk) = chunks.next().await {
        text.extend_from_slice(&chunk.expect("a stream ends in good order"));
    }
    Stream {
        text: String::from_utf8(text).unwrap(),
    }
}

#[tokio::test]
async fn a_running_stream_finishes_while_new_work_is_refused() {
    let mut serving = Serving::start(60).await;
    assert_eq!(serving.health().await.0, 200);
    let (first, stream) = serving.open_stream("tokens=60 delay_ms=50").await;
    let reading = tokio::spawn(rest(first, stream));
    serving.process.signal("TERM");
    serving.until_stopping().await;

    let (status, body) = serving.health().await;
    assert_eq!(
        (status, &body["status"]),
        (503, &json!("stopping")),
        "not ready at once"
    );
    let refused = serving.chat(&hello(MODEL)).send().await.unwrap();
    assert_eq!(refused.status(), 503);
    assert!(refused.headers().contains_key("x-request-id"));
    let refused: Value = refused.json().await.unwrap();
    assert_eq!(refused["error"]["type"], "service_unavailable");
    let alive = format!("http://{}/health/live", serving.public);
    assert_eq!(
        serving.client.get(alive).send().await.unwrap().status(),
        200
    );
    assert!(
        !reading.is_finished(),
        "all this happened while the stream was running"
    );

    let stream = reading.await.unwrap();
    stream.assert_complete(MODEL);
    assert_eq!(
        stream.content(0).split_whitespace().count(),
        60,
        "to its last word"
    );
    let ended = serving.process.ended().await;
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
}

#[tokio::test]
async fn a_running_answer_that_is_no_stream_finishes_too() {
    let upstream = FakeUpstream::start().await;
    upstream.play(vec![
        Step::Pause(Duration::from_secs(1)),
        Step::Send(response(
            200,
            "application/json",
            &completion("late").to_string(),
        )),
    ]);
    let provider = format!(
        "kind = \"openai\"\nbase_url = \"http://{}/v1\"",
        upstream.address
    );
    let mut serving = Serving::start_with(60, &provider).await;
    let asked = tokio::spawn(serving.chat(&hello(MODEL)).send());
    serving.process.until(|_| upstream.calls() == 1).await;
    serving.process.signal("TERM");
    serving.until_stopping().await;
    let answer = asked.await.unwrap().unwrap();
    assert_eq!(answer.status(), 200);
    let answer: Value = answer.json().await.unwrap();
    assert_eq!(answer["choices"][0]["message"]["content"], "late");
    assert_eq!(serving.process.ended().await.code, Some(0));
}

#[tokio::test]
async fn when_patience_ends_a_stream_is_told_so() {
    let serving = Serving::start(1).await;
    let (first, stream) = serving.open_stream("tokens=4000 delay_ms=50").await;
    serving.process.signal("TERM");
    let stream = rest(first, stream).await;
    stream.assert_interrupted(MODEL);
    assert!(!stream.content(0).is_empty());
    let ended = serving.process.ended().await;
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert!(ended.stderr.contains("cut short"), "{}", ended.stderr);
}

#[tokio::test]
async fn an_idle_gateway_stops_at_once_though_clients_keep_their_connections() {
    let serving = Serving::start(60).await;
    let pooled = Client::builder().no_proxy().build().unwrap();
    let health = pooled.get(format!("http://{}/health", serving.public));
    assert_eq!(health.send().await.unwrap().status(), 200); // and the pool keeps the connection
    let started = std::time::Instant::now();
    let ended = serving.process.terminated().await;
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert!(
        started.elapsed() < Duration::from_secs(30),
        "it did not wait out its patience"
    );
}
