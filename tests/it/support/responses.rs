//! `/v1/responses` as its clients use it, and the rules that every one of its streams keeps.

use reqwest::Method;
use serde_json::{Value, json};

use super::{
    Answer, TestGateway,
    described::read_stream,
    gateway::answer,
    upstream::{chunk, usage_chunk},
};

pub const PATH: &str = "/v1/responses";
pub const MODEL: &str = "svc-native-fast";

/// The smallest request, with fields added or replaced.
pub fn asking(more: Value) -> Value {
    let mut body = json!({ "model": MODEL, "input": "Hello" });
    let Value::Object(more) = more else {
        panic!("fields are an object: {more}");
    };
    body.as_object_mut().unwrap().extend(more);
    body
}

/// A function tool in this endpoint's form.
pub fn function(name: &str) -> Value {
    json!({ "type": "function", "name": name, "parameters": { "type": "object" } })
}

/// A function call in the provider's form.
pub fn tool_call(id: &str, name: &str, arguments: &str) -> Value {
    json!({ "id": id, "type": "function", "function": { "name": name, "arguments": arguments } })
}

/// A provider's response with function calls and no text.
pub fn calling(calls: &[Value]) -> Value {
    json!({
        "choices": [{
            "index": 0, "finish_reason": "tool_calls",
            "message": { "role": "assistant", "content": null, "tool_calls": calls },
        }],
        "usage": { "prompt_tokens": 11, "completion_tokens": 3, "total_tokens": 14 },
    })
}

/// A well-formed stream: role, two words, finish reason, usage.
pub fn two_words() -> Vec<Value> {
    vec![
        chunk(json!({ "role": "assistant", "content": "" }), None),
        chunk(json!({ "content": "Grüß " }), None),
        chunk(json!({ "content": "dich 😀" }), None),
        chunk(json!({}), Some("stop")),
        usage_chunk(11, 3),
    ]
}

impl TestGateway {
    pub async fn respond(&self, body: &Value) -> Answer {
        self.respond_as(&self.key, body).await
    }

    pub async fn respond_as(&self, key: &str, body: &Value) -> Answer {
        let request = self.client.post(self.url(PATH)).bearer_auth(key).json(body);
        answer(request).await
    }

    /// Sends the body and returns the response's ID.
    pub async fn response_id(&self, body: &Value) -> String {
        let answer = self.respond(body).await;
        answer.assert_ok()["id"].as_str().unwrap().to_owned()
    }

    /// Sends the body, which must succeed, and returns the body that the provider received.
    pub async fn forwards_response(&self, body: &Value) -> Value {
        let answer = self.respond(body).await;
        assert_eq!(answer.status, 200, "{body} gives {}", answer.body);
        self.upstream.last_body()
    }

    /// Asserts that a body is refused with 400 naming `param`, and that no request is sent to a provider.
    pub async fn refuses_response(&self, body: &Value, param: &str) {
        let calls = self.upstream.calls();
        let refused = self.respond(body).await;
        assert_eq!(refused.status, 400, "{body} gives {}", refused.body);
        refused.assert_error(400, "invalid_request_error", None, Some(param));
        assert_eq!(self.upstream.calls(), calls, "{body} reached a provider");
    }

    pub async fn open_events(&self, body: &Value) -> reqwest::Response {
        let mut body = body.clone();
        body["stream"] = true.into();
        let request = self.request(Method::POST, PATH).json(&body);
        request.send().await.unwrap()
    }

    /// Opens a streamed response, which must succeed, and reads it to its end.
    pub async fn events(&self, body: &Value) -> Events {
        let response = self.open_events(body).await;
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        assert!(response.headers().contains_key("x-request-id"));
        Events {
            text: read_stream(response).await,
        }
    }

    pub async fn shown(&self, id: &str) -> Answer {
        self.get(&format!("{PATH}/{id}")).await
    }

    pub async fn deleted(&self, id: &str) -> Answer {
        answer(self.request(Method::DELETE, &format!("{PATH}/{id}"))).await
    }
}

/// Asserts 404 for a response or an item that does not exist.
#[track_caller]
pub fn assert_not_found(answer: &Answer) {
    let code = Some("previous_response_not_found");
    answer.assert_error(404, "invalid_request_error", code, None);
}

/// The whole text of a streamed response.
#[derive(Clone, Debug)]
pub struct Events {
    pub text: String,
}

impl Events {
    pub fn is_done(&self) -> bool {
        self.text.ends_with("\n\ndata: [DONE]\n\n")
    }

    /// The data of each event but `[DONE]`. Asserts that each event is an `event:` and a `data:` line, numbered
    /// without gaps.
    #[track_caller]
    pub fn all(&self) -> Vec<Value> {
        let text = self.text.strip_suffix("data: [DONE]\n\n");
        let text = text.unwrap_or(&self.text);
        assert!(text.ends_with("\n\n"), "{text:?}");
        let mut all = Vec::new();
        for frame in text.split_terminator("\n\n") {
            let (event, data) = frame.split_once('\n').expect("two lines");
            let data = data.strip_prefix("data: ").expect("data");
            let data: Value = serde_json::from_str(data).expect("data is JSON in one line");
            assert_eq!(event.strip_prefix("event: "), data["type"].as_str());
            assert_eq!(data["sequence_number"], all.len(), "{frame}");
            all.push(data);
        }
        all
    }

    pub fn kinds(&self) -> Vec<String> {
        let all = self.all();
        let kinds = all.iter().map(|event| event["type"].as_str().unwrap());
        kinds
            .map(|kind| kind.trim_start_matches("response.").to_owned())
            .collect()
    }

    /// The finished response; asserts all events that led to it.
    #[track_caller]
    pub fn finished(&self) -> Value {
        assert!(self.is_done(), "ends with [DONE]: {}", self.text);
        let all = self.all();
        let last = &all.last().unwrap()["response"];
        let mut items: Vec<(Value, String)> = Vec::new();
        let mut done = 0;
        for event in &all {
            match event["type"].as_str().unwrap() {
                "response.created" | "response.in_progress" => {
                    let response = &event["response"];
                    assert_eq!(response["id"], last["id"]);
                    assert_eq!(response["status"], "in_progress");
                    assert_eq!(response["output"], json!([]));
                    assert_eq!(response["usage"], Value::Null);
                }
                "response.output_item.added" => {
                    assert_eq!(done, items.len(), "one item after the other");
                    assert_eq!(event["output_index"], items.len());
                    items.push((event["item"]["id"].clone(), String::new()));
                }
                "response.output_item.done" => {
                    assert_eq!(event["output_index"], done);
                    assert_eq!(event["item"]["id"], items[done].0);
                    assert_eq!(event["item"], last["output"][done]);
                    done += 1;
                }
                "response.completed" | "response.incomplete" => {
                    assert_eq!(event, all.last().unwrap());
                }
                _ => {
                    let (id, text) = items.last_mut().expect("an item first");
                    assert_eq!(event["item_id"], *id);
                    if let Some(delta) = event["delta"].as_str() {
                        text.push_str(delta);
                    }
                }
            }
        }
        let output = last["output"].as_array().unwrap();
        assert_eq!(output.len(), done);
        for (item, (_, text)) in output.iter().zip(items) {
            let whole = item.get("arguments").or(item.get("input"));
            let whole = whole.unwrap_or(&item["content"][0]["text"]);
            assert_eq!(*whole, text, "what was told in pieces is the whole");
        }
        last.clone()
    }
}
