//! Chat request bodies, and assertions that a body is refused or how it is forwarded.

use serde_json::{Value, json};

use super::{TestGateway, gateway::hello};

/// The smallest request, with fields added or replaced.
pub fn hello_with(model: &str, more: Value) -> Value {
    let mut body = hello(model);
    let Value::Object(more) = more else {
        panic!("fields are an object: {more}");
    };
    body.as_object_mut().unwrap().extend(more);
    body
}

/// A request of at least `bytes` bytes. Providers can count as many tokens in it, though it has far fewer.
pub fn long(model: &str, bytes: usize) -> Value {
    let content = "word ".repeat(bytes.div_ceil(5));
    json!({ "model": model, "messages": [{ "role": "user", "content": content }] })
}

/// A function tool that accepts any arguments.
pub fn tool(name: &str) -> Value {
    json!({ "type": "function", "function": { "name": name, "parameters": { "type": "object" } } })
}

impl TestGateway {
    /// Sends the body, which must succeed, and returns the body that the provider received.
    pub async fn forwards(&self, body: &Value) -> Value {
        let answer = self.chat(body).await;
        assert_eq!(answer.status, 200, "{body} gives {}", answer.body);
        self.upstream.last_body()
    }

    /// Asserts that a body is refused with 400 naming `param`, and that no request is sent to a provider.
    pub async fn refuses(&self, body: &Value, param: &str) {
        self.refuses_text(body.to_string(), Some(param)).await;
    }

    /// Like `refuses`, for a body that need not be JSON.
    pub async fn refuses_text(&self, body: impl Into<Vec<u8>>, param: Option<&str>) {
        let (body, calls) = (body.into(), self.upstream.calls());
        let answer = self.chat_text(body.clone()).await;
        let start = String::from_utf8_lossy(&body[..body.len().min(500)]).into_owned();
        let error = answer.error();
        let found = (answer.status, error["type"].as_str(), &error["code"]);
        let expected = (400, Some("invalid_request_error"), &Value::Null);
        assert_eq!(found, expected, "{start} gives {error}");
        assert_eq!(error["param"].as_str(), param, "{start} gives {error}");
        assert_eq!(self.upstream.calls(), calls, "{start} reached a provider");
    }
}
