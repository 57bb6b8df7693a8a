//! What becomes of a body: refused, or forwarded as another one.

use serde_json::{Value, json};

use super::{TestGateway, gateway::hello};

/// The smallest request with more fields, or other ones.
pub fn hello_with(model: &str, more: Value) -> Value {
    let mut body = hello(model);
    let Value::Object(more) = more else {
        panic!("fields are an object: {more}");
    };
    body.as_object_mut().unwrap().extend(more);
    body
}

/// A request of at least so many bytes: providers can count as many tokens in it, though it has far fewer.
pub fn long(model: &str, bytes: usize) -> Value {
    let content = "word ".repeat(bytes.div_ceil(5));
    json!({ "model": model, "messages": [{ "role": "user", "content": content }] })
}

/// A function tool that takes anything.
pub fn tool(name: &str) -> Value {
    json!({ "type": "function", "function": { "name": name, "parameters": { "type": "object" } } })
}

impl TestGateway {
    /// The body that goes upstream for this one, which is answered.
    pub async fn forwards(&self, body: &Value) -> Value {
        let answer = self.chat(body).await;
        assert_eq!(answer.status, 200, "{body} gives {}", answer.body);
        self.upstream.last_body()
    }

    /// Asserts that a body is refused with 400 and the name of a field, and that no provider
    /// hears of it.
    pub async fn refuses(&self, body: &Value, param: &str) {
        self.refuses_text(body.to_string(), Some(param)).await;
    }

    /// The same for a body that need not be JSON.
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
