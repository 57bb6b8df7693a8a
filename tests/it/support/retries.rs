//! Requests to the three billed endpoints, for tests of retries.

use reqwest::{RequestBuilder, header::HeaderMap};
use serde_json::{Value, json};

use super::{
    Customer, Gate, Step, TestGateway,
    described::exchange,
    gateway::until,
    ledger_view::MODEL,
    upstream::{Received, chunk, completion, events, response, stream_head, usage_chunk},
};

/// A billed endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Api {
    Chat,
    Responses,
    Messages,
}

pub const ALL: [Api; 3] = [Api::Chat, Api::Responses, Api::Messages];

impl Api {
    pub fn path(self) -> &'static str {
        match self {
            Self::Chat => "/v1/chat/completions",
            Self::Responses => "/v1/responses",
            Self::Messages => "/v1/messages",
        }
    }

    pub fn body(self, question: &str, stream: bool) -> Value {
        let messages = json!([{ "role": "user", "content": question }]);
        match self {
            Self::Chat => json!({ "model": MODEL, "stream": stream, "messages": messages }),
            Self::Responses => json!({ "model": MODEL, "stream": stream, "input": question }),
            Self::Messages => {
                json!({ "model": MODEL, "stream": stream, "max_tokens": 128, "messages": messages })
            }
        }
    }
}

/// A response as its client received it.
#[derive(Clone, Debug)]
pub struct Got {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: String,
}

impl Got {
    pub fn is_replayed(&self) -> bool {
        self.headers
            .get("idempotent-replayed")
            .is_some_and(|value| value == "true")
    }

    #[track_caller]
    pub fn ok(self) -> Self {
        assert_eq!(self.status, 200, "{}", self.body);
        self
    }

    /// Asserts an error of OpenAI's API with this code.
    #[track_caller]
    pub fn assert_refused(&self, status: u16, code: &str) {
        let body: Value = serde_json::from_str(&self.body).unwrap();
        let error = &body["error"];
        let found = (self.status, error["type"].as_str(), error["code"].as_str());
        assert_eq!(
            found,
            (status, Some("invalid_request_error"), Some(code)),
            "{body}"
        );
    }
}

pub async fn got(request: RequestBuilder) -> Got {
    let (status, headers, body) = exchange(request).await;
    Got {
        status,
        headers,
        body,
    }
}

impl TestGateway {
    pub fn asks(&self, api: Api, key: &str, body: &Value) -> RequestBuilder {
        self.client
            .post(self.url(api.path()))
            .bearer_auth(key)
            .json(body)
    }

    /// A request with an idempotency key.
    pub fn keyed(
        &self,
        customer: &Customer<'_>,
        api: Api,
        key: &str,
        body: &Value,
    ) -> RequestBuilder {
        self.asks(api, &customer.key, body)
            .header("idempotency-key", key)
    }
}

/// Sends a request and leaves it once `has_begun`, before it is answered.
pub async fn leave(
    request: RequestBuilder,
    has_begun: impl Fn() -> bool,
    has_left: impl Fn() -> bool,
) {
    let sent = tokio::spawn(got(request));
    until("the request has begun", has_begun).await;
    sent.abort();
    assert!(sent.await.is_err(), "it was answered");
    until("the client has left", has_left).await;
}

/// Sends a request and leaves it once the provider was called.
pub async fn leave_first(gateway: &TestGateway, request: RequestBuilder) {
    let calls = gateway.upstream.calls();
    let abandoned = gateway.inside().abandoned.total();
    let has_left = || gateway.inside().abandoned.total() > abandoned;
    leave(request, || gateway.upstream.calls() > calls, has_left).await;
}

/// Sends a request that attaches to a running call, and opens the gate when it has.
pub async fn attach(gateway: &TestGateway, gate: &Gate, request: RequestBuilder) -> Got {
    let retries = &gateway.inside().retries;
    let before = retries.attached();
    let opening = async {
        until("it has attached", || retries.attached() > before).await;
        gate.open();
    };
    tokio::join!(got(request), opening).0.ok()
}

/// Responses of the provider that use 11 and 3 tokens, and have three words. Streams wait for the gate after the first
/// word, whole responses before their head.
pub fn plays(gate: Gate) -> impl Fn(&Received) -> Vec<Step> + Send + Sync + 'static {
    move |request| {
        if request.body["stream"] != true {
            let whole = completion("one two three").to_string();
            let whole = response(200, "application/json", &whole);
            return vec![Step::Until(gate.clone()), Step::Send(whole)];
        }
        let rest = [word(" two"), word(" three"), end()].concat();
        vec![
            Step::Send(stream_head()),
            Step::Send(word("one")),
            Step::Until(gate.clone()),
            Step::Send(rest),
            Step::Close,
        ]
    }
}

pub fn word(word: &str) -> Vec<u8> {
    let word = chunk(json!({ "content": word }), None);
    format!("data: {word}\n\n").into_bytes()
}

fn end() -> Vec<u8> {
    events(&[chunk(json!({}), Some("stop")), usage_chunk(11, 3)]).into_bytes()
}

/// A gate that is open.
pub fn open() -> Gate {
    let gate = Gate::default();
    gate.open();
    gate
}
