//! `/v1/messages` as its clients use it, and the rules that every one of its streams keeps.

use reqwest::Method;
use serde_json::{Value, json};

use super::{Answer, TestGateway, described::read_stream, gateway::answer};

pub const PATH: &str = "/v1/messages";
pub const COUNT: &str = "/v1/messages/count_tokens";
pub const MODEL: &str = "svc-native-fast";

/// The smallest request, with fields added or replaced.
pub fn writing(more: Value) -> Value {
    let mut body = json!({
        "model": MODEL, "max_tokens": 100, "messages": [{ "role": "user", "content": "Hello" }],
    });
    let Value::Object(more) = more else {
        panic!("fields are an object: {more}");
    };
    body.as_object_mut().unwrap().extend(more);
    body
}

/// A request with these messages.
pub fn saying(messages: Value) -> Value {
    writing(json!({ "messages": messages }))
}

/// A request whose user message has this block.
pub fn with_block(block: Value) -> Value {
    saying(json!([{ "role": "user", "content": [block] }]))
}

pub fn tool(name: &str) -> Value {
    json!({ "name": name, "description": "a tool", "input_schema": { "type": "object" } })
}

pub fn tool_use(id: &str, name: &str, input: Value) -> Value {
    json!({ "type": "tool_use", "id": id, "name": name, "input": input })
}

pub fn tool_result(id: &str, content: Value) -> Value {
    json!({ "type": "tool_result", "tool_use_id": id, "content": content })
}

impl Answer {
    /// The error object of this API; asserts its envelope, and that all three request IDs are equal.
    #[track_caller]
    pub fn message_error(&self) -> &Value {
        assert_eq!(self.body["type"], "error", "{:?}", self.body);
        let error = &self.body["error"];
        assert!(error["message"].is_string() && error["type"].is_string());
        let id = self.body["request_id"].as_str().unwrap();
        assert_eq!(self.headers["request-id"], id);
        assert_eq!(self.headers["x-request-id"], id);
        error
    }

    /// Asserts a refusal: its status, type, code and the field it names.
    #[track_caller]
    pub fn assert_message_error(
        &self,
        status: u16,
        kind: &str,
        code: Option<&str>,
        param: Option<&str>,
    ) {
        let error = self.message_error();
        assert_eq!(
            (self.status, error["type"].as_str()),
            (status, Some(kind)),
            "{error}"
        );
        assert_eq!(error["details"]["error_code"].as_str(), code, "{error}");
        assert_eq!(error["details"]["param"].as_str(), param, "{error}");
    }
}

impl TestGateway {
    pub async fn message(&self, body: &Value) -> Answer {
        answer(self.request(Method::POST, PATH).json(body)).await
    }

    /// Sends the body, which must succeed, and returns the body that the provider received.
    pub async fn forwards_message(&self, body: &Value) -> Value {
        let answer = self.message(body).await;
        assert_eq!(answer.status, 200, "{body} gives {}", answer.body);
        self.upstream.last_body()
    }

    /// Asserts that a body is refused with 400 naming `param`, that its message begins with it, and that no request is
    /// sent to a provider.
    pub async fn refuses_message(&self, body: &Value, param: &str) -> String {
        let calls = self.upstream.calls();
        let refused = self.message(body).await;
        assert_eq!(refused.status, 400, "{body} gives {}", refused.body);
        refused.assert_message_error(400, "invalid_request_error", None, Some(param));
        assert_eq!(self.upstream.calls(), calls, "{body} reached a provider");
        let message = refused.message_error()["message"].as_str().unwrap();
        assert!(message.starts_with(&format!("{param}: ")), "{message}");
        message.to_owned()
    }

    pub async fn open_message_events(&self, body: &Value) -> reqwest::Response {
        let mut body = body.clone();
        body["stream"] = true.into();
        let request = self.request(Method::POST, PATH).json(&body);
        request.send().await.unwrap()
    }

    /// Opens a streamed message, which must succeed, and reads it to its end.
    pub async fn message_events(&self, body: &Value) -> MessageEvents {
        let response = self.open_message_events(body).await;
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        let ids = ["request-id", "x-request-id"].map(|name| response.headers()[name].clone());
        assert_eq!(ids[0], ids[1]);
        let text = read_stream(response).await;
        MessageEvents::read(&text)
    }

    /// What the account has left, in US dollars.
    pub async fn balance(&self) -> String {
        let path = format!("/operator/accounts/{}", self.account_id);
        let account = self.operate(Method::GET, &path, None).await;
        account.assert_ok()["balance"].as_str().unwrap().to_owned()
    }
}

/// The events of a stream, whose order has been checked.
#[derive(Debug)]
pub struct MessageEvents(pub Vec<Value>);

impl MessageEvents {
    /// Reads a stream and asserts its order: one start, blocks one after the other, one delta, one stop. A failed stream
    /// ends in an error instead.
    #[track_caller]
    pub fn read(text: &str) -> Self {
        assert!(text.ends_with("\n\n"), "{text:?}");
        let events = text.trim_end().split("\n\n").map(|event| {
            let (name, data) = event.split_once('\n').expect("a name and data");
            let name = name.strip_prefix("event: ").expect(event);
            let data = data.strip_prefix("data: ").expect(event);
            let data: Value = serde_json::from_str(data).expect("an event is JSON");
            assert_eq!(data["type"], name);
            data
        });
        let events = Self(events.collect());
        events.assert_order();
        events
    }

    #[track_caller]
    fn assert_order(&self) {
        let (mut open, mut blocks) = (None, 0);
        let events: Vec<_> = self.0.iter().filter(|e| e["type"] != "ping").collect();
        let last = events.len() - 1;
        for (at, event) in events.iter().enumerate() {
            let index = event["index"].as_u64();
            match event["type"].as_str().unwrap() {
                "message_start" => assert_eq!(at, 0),
                "content_block_start" => {
                    assert_eq!((open, index), (None, Some(blocks)), "{event}");
                    open = index;
                    blocks += 1;
                }
                "content_block_delta" => assert!(open.is_some() && open == index, "{event}"),
                "content_block_stop" => {
                    assert!(open.is_some() && open == index, "{event}");
                    open = None;
                }
                "message_delta" => assert_eq!((open, at), (None, last - 1), "{event}"),
                "message_stop" | "error" => assert_eq!(at, last, "{event}"),
                other => panic!("an unknown event {other}"),
            }
        }
        let end = events[last]["type"].as_str().unwrap();
        assert!(matches!(end, "message_stop" | "error"), "{end}");
    }

    pub fn kinds(&self) -> Vec<&str> {
        self.0.iter().map(|e| e["type"].as_str().unwrap()).collect()
    }

    /// The first event of a kind.
    #[track_caller]
    pub fn first(&self, kind: &str) -> &Value {
        let found = self.0.iter().find(|event| event["type"] == kind);
        found.unwrap_or_else(|| panic!("no {kind} in {:?}", self.kinds()))
    }

    /// The message as clients assemble it.
    pub fn assembled(&self) -> Value {
        let mut message = self.first("message_start")["message"].clone();
        let mut inputs: Vec<String> = Vec::new();
        for event in &self.0 {
            let at = usize::try_from(event["index"].as_u64().unwrap_or(0)).unwrap();
            match event["type"].as_str().unwrap() {
                "content_block_start" => {
                    let content = message["content"].as_array_mut().unwrap();
                    content.push(event["content_block"].clone());
                    inputs.push(String::new());
                }
                "content_block_delta" => {
                    let delta = &event["delta"];
                    if let Some(text) = delta["text"].as_str() {
                        let so_far = message["content"][at]["text"].as_str().unwrap();
                        message["content"][at]["text"] = format!("{so_far}{text}").into();
                    }
                    inputs[at].push_str(delta["partial_json"].as_str().unwrap_or_default());
                }
                "content_block_stop" if !inputs[at].is_empty() => {
                    let input = serde_json::from_str(&inputs[at]).unwrap();
                    message["content"][at]["input"] = input;
                }
                "message_delta" => {
                    message["stop_reason"] = event["delta"]["stop_reason"].clone();
                    message["usage"] = event["usage"].clone();
                }
                _ => {}
            }
        }
        message
    }
}
