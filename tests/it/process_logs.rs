//! The logs of a whole session: one line per request, without secrets or content.

use std::net::SocketAddr;

use reqwest::Client;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{
    FakeUpstream, Process, Step, stores,
    upstream::{chunk, completion, events, response, stream_head, usage_chunk},
};

const TOKEN: &str = "operator-token-canary-9c41e07ab35df826c01b7e94";
const PROVIDER_KEY: &str = "provider-key-canary-0123456789";
/// Content of a request and of a response.
const QUESTION: &str = "heliotrope marmalade";
const ANSWER: &str = "periwinkle saxophone";
const MODEL: &str = "svc-native-fast";

/// A request that was sent.
struct Made {
    id: String,
    status: u16,
    account: bool,
    model: Option<&'static str>,
}

struct Session {
    client: Client,
    public: SocketAddr,
    operator: SocketAddr,
    upstream: FakeUpstream,
    made: Vec<Made>,
}

impl Session {
    /// Sends a request with a new ID and reads its response to the end.
    async fn send(
        &mut self,
        request: reqwest::RequestBuilder,
        status: u16,
        account: bool,
        model: Option<&'static str>,
    ) -> String {
        let id = format!("task-{}", self.made.len());
        let response = request.header("x-request-id", &id).send().await.unwrap();
        assert_eq!(response.status(), status, "{id}");
        self.made.push(Made {
            id,
            status,
            account,
            model,
        });
        response.text().await.unwrap()
    }

    async fn operate(&mut self, path: &str, body: Value) -> Value {
        let url = format!("http://{}{path}", self.operator);
        let request = self.client.post(url).bearer_auth(TOKEN).json(&body);
        let answer = self.send(request, 200, false, None).await;
        serde_json::from_str(&answer).unwrap()
    }

    fn chat(&self, key: &str, stream: bool) -> reqwest::RequestBuilder {
        let url = format!("http://{}/v1/chat/completions", self.public);
        let body = json!({
            "model": MODEL, "stream": stream,
            "messages": [{ "role": "user", "content": QUESTION }],
        });
        self.client.post(url).bearer_auth(key).json(&body)
    }
}

/// A provider's refusal that contains secrets and content.
fn indiscreet() -> Value {
    let message = format!("`{QUESTION}` was sent with {PROVIDER_KEY}, and {ANSWER} to you");
    json!({ "error": { "message": message, "type": "invalid_request_error", "code": "bad" } })
}

/// Provider failures and the resulting status for the caller.
fn failures() -> Vec<(bool, u16, Vec<Step>)> {
    let json = |status: u16, body: &Value| {
        vec![Step::Send(response(
            status,
            "application/json",
            &body.to_string(),
        ))]
    };
    let stream = |body: String| {
        vec![
            Step::Send(stream_head()),
            Step::Send(body.into_bytes()),
            Step::Close,
        ]
    };
    let begun =
        events(&[chunk(json!({ "content": ANSWER }), None)]).replace("data: [DONE]\n\n", "");
    vec![
        (false, 502, json(400, &indiscreet())),
        (false, 502, json(401, &indiscreet())),
        (false, 502, json(500, &indiscreet())),
        (false, 502, json(200, &indiscreet())),
        (false, 502, json(200, &json!({ "choices": ANSWER }))),
        (
            false,
            502,
            vec![Step::Send(response(200, "text/html", QUESTION))],
        ),
        (true, 502, json(400, &indiscreet())),
        (true, 502, stream(format!("data: {}\n\n", indiscreet()))),
        (
            true,
            200,
            stream(format!("{begun}data: {}\n\n", indiscreet())),
        ),
        (
            true,
            200,
            stream(format!("{begun}data: {{\"choices\": \"{ANSWER}\"}}\n\n")),
        ),
        (true, 200, stream(format!("{begun}data: {ANSWER}\n\n"))),
        (true, 200, stream(begun)),
    ]
}

#[tokio::test]
async fn a_session_logs_one_line_per_request_and_no_secret_or_body() {
    let folder = TempDir::new().unwrap();
    let upstream = FakeUpstream::start().await;
    let config = folder.path().join("tollgate.toml");
    let text = format!(
        "server.listen = \"127.0.0.1:0\"\noperator.listen = \"127.0.0.1:0\"\n\
         {}log = {{ format = \"json\", level = \"debug\" }}\n\
         deployments = [{{ model = \"*\", provider = \"fake\" }}]\n\
         [providers.fake]\nkind = \"openai\"\nbase_url = \"http://{}/v1\"\napi_key_env = \"KEY\"\n",
        stores::lines(folder.path()),
        upstream.address,
    );
    std::fs::write(&config, text).unwrap();
    let environment = [("TOLLGATE_OPERATOR_TOKEN", TOKEN), ("KEY", PROVIDER_KEY)];
    let (process, public, operator) = Process::serve(&config, &environment).await;
    let client = Client::builder().no_proxy().build().unwrap();
    let mut session = Session {
        client,
        public,
        operator,
        upstream,
        made: Vec::new(),
    };
    let (account_id, keys) = script(&mut session).await;
    let ended = process.terminated().await;
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert_eq!(ended.stdout, "", "logs go to standard error alone");

    let lines: Vec<Value> = ended
        .stderr
        .lines()
        .map(|line| serde_json::from_str(line).expect(line))
        .collect();
    for made in &session.made {
        let own: Vec<_> = lines
            .iter()
            .filter(|line| line["request_id"] == *made.id)
            .collect();
        let [line] = own.as_slice() else {
            panic!("one line for {}: {own:?}", made.id)
        };
        assert_eq!(line["status"], made.status, "{line}");
        assert!(line["duration_ms"].is_u64(), "{line}");
        assert!(
            line["method"].is_string() && line["path"].is_string(),
            "{line}"
        );
        let account = made.account.then_some(account_id.as_str());
        assert_eq!(line["account.id"].as_str(), account, "{line}");
        assert_eq!(line["model"].as_str(), made.model, "{line}");
        // Also of a call that failed before its response or in the middle of it.
        let upstream = (made.model == Some(MODEL)).then_some("fake");
        assert_eq!(line["upstream"].as_str(), upstream, "{line}");
        if line["path"].as_str().unwrap().starts_with("/v1/") {
            assert_eq!(line["client"], "127.0.0.1", "{line}");
        }
        if let Some(prefix) = line["key.prefix"].as_str() {
            assert!(
                made.account && keys.iter().any(|key| key[..12] == *prefix),
                "{line}"
            );
        }
    }
    let answered: Vec<_> = lines
        .iter()
        .filter(|line| line["cost"].is_string())
        .collect();
    assert!(
        answered.iter().any(|line| line["stream"] == true)
            && answered.iter().any(|line| line["stream"] == false)
    );
    for line in answered {
        assert_eq!(line["upstream"], "fake", "{line}");
        assert!(
            line["first_byte_ms"].is_u64() && line["key.prefix"].is_string(),
            "{line}"
        );
    }
    let secrets = [TOKEN, PROVIDER_KEY, QUESTION, ANSWER];
    for secret in secrets.into_iter().chain(keys.iter().map(String::as_str)) {
        let found = ended.stderr.lines().find(|line| line.contains(secret));
        assert_eq!(found, None, "{secret} is not for the log");
    }
}

/// Sends every kind of request; returns the account and every key used.
async fn script(session: &mut Session) -> (String, Vec<String>) {
    let account = json!({ "email": "a@example.com", "track": "business", "tier": "flex" });
    let account = session.operate("/operator/accounts", account).await;
    let account_id = account["id"].as_str().unwrap().to_owned();
    let path = format!("/operator/accounts/{account_id}");
    session
        .operate(&format!("{path}/grants"), json!({ "amount": "100" }))
        .await;
    let mut keys = Vec::new();
    let mut key_ids = Vec::new();
    for _ in 0..2 {
        let made = session
            .operate(&format!("{path}/keys"), json!({ "name": "x" }))
            .await;
        keys.push(made["key"].as_str().unwrap().to_owned());
        key_ids.push(made["id"].as_str().unwrap().to_owned());
    }
    session
        .operate(&format!("/operator/keys/{}/disable", key_ids[1]), json!({}))
        .await;
    let stranger = session
        .client
        .get(format!("http://{}/operator/accounts", session.operator));
    session
        .send(stranger.bearer_auth(&keys[0]), 401, false, None)
        .await;

    session.upstream.answer_json(200, &completion(ANSWER));
    session
        .send(session.chat(&keys[0], false), 200, true, Some(MODEL))
        .await;
    session.upstream.answer_chunks(&[
        chunk(json!({ "role": "assistant", "content": ANSWER }), None),
        chunk(json!({}), Some("stop")),
        usage_chunk(5, 6),
    ]);
    let stream = session
        .send(session.chat(&keys[0], true), 200, true, Some(MODEL))
        .await;
    assert!(stream.contains(ANSWER));
    for (streamed, status, steps) in failures() {
        session.upstream.play(steps);
        session
            .send(session.chat(&keys[0], streamed), status, true, Some(MODEL))
            .await;
    }

    session
        .send(session.chat(&keys[1], false), 401, false, None)
        .await;
    let url = |path: &str| format!("http://{}{path}", session.public);
    let posted = |path: &str| session.client.post(url(path)).bearer_auth(&keys[0]);
    let in_query = format!("/v1/chat/completions?api_key={}&q={QUESTION}", keys[0]);
    let malformed = format!("{{\"model\": \"{MODEL}\", \"messages\": \"{QUESTION}\"}}");
    let no_model =
        json!({ "model": "nope", "messages": [{ "role": "user", "content": QUESTION }] });
    let mut key_as_model = no_model.clone();
    key_as_model["model"] = keys[0].as_str().into();
    let in_path = format!("/v1/{}", keys[0]);
    let as_model_id = format!("/v1/models/{}", keys[0]);
    let requests = [
        (
            session.client.post(url(&in_query)).body(QUESTION),
            401,
            false,
            None,
        ),
        (
            posted("/v1/chat/completions").body(QUESTION),
            400,
            true,
            None,
        ),
        (
            posted("/v1/chat/completions").body(malformed),
            400,
            true,
            None,
        ),
        (
            posted("/v1/chat/completions").json(&no_model),
            404,
            true,
            Some("nope"),
        ),
        (
            posted("/v1/chat/completions").json(&key_as_model),
            404,
            true,
            Some(""),
        ),
        (posted(&in_path).body(QUESTION), 404, true, None),
        (session.client.get(url(&as_model_id)), 404, false, None),
        (posted("/v1/embeddings").body(QUESTION), 404, true, None),
        (
            session.client.get(url("/v1/models")).bearer_auth(&keys[0]),
            200,
            true,
            None,
        ),
        (session.client.get(url("/health")), 200, false, None),
    ];
    for (request, status, account, model) in requests {
        session.send(request, status, account, model).await;
    }
    (account_id, keys)
}

/// `dev` prints its key in the welcome message on stdout; its log contains no secret.
#[tokio::test]
async fn dev_shows_its_key_in_the_welcome_and_nowhere_else() {
    let data = TempDir::new().unwrap();
    let (process, environment) = Process::dev(data.path()).await;
    let (key, token) = (
        &environment["OPENAI_API_KEY"],
        &environment["TOLLGATE_OPERATOR_TOKEN"],
    );
    let client = Client::builder().no_proxy().build().unwrap();
    let url = format!("{}/chat/completions", environment["OPENAI_BASE_URL"]);
    let body = json!({ "model": MODEL, "messages": [{ "role": "user", "content": QUESTION }] });
    let answer = client
        .post(url)
        .bearer_auth(key)
        .json(&body)
        .send()
        .await
        .unwrap();
    assert_eq!(answer.status(), 200);
    let url = format!("{}/operator/accounts", environment["TOLLGATE_OPERATOR_URL"]);
    let answer = client.get(url).bearer_auth(token).send().await.unwrap();
    assert_eq!(answer.status(), 200);
    let ended = process.terminated().await;
    assert_eq!(
        ended.stdout.matches(key.as_str()).count(),
        2,
        "as it is, and in the curl"
    );
    assert!(
        ended
            .stderr
            .contains("path=\"/v1/chat/completions\" status=200"),
        "{}",
        ended.stderr
    );
    for secret in [key.as_str(), token.as_str(), QUESTION] {
        assert!(!ended.stderr.contains(secret), "{secret}: {}", ended.stderr);
    }
    assert!(!ended.stdout.contains(token.as_str()) && !ended.stdout.contains(QUESTION));
}
