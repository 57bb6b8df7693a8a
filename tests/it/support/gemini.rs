//! A fake provider of the Gemini API, and an assertion that callers see nothing of it.

use serde_json::{Value, json};

use super::{
    TestGateway,
    gateway::{PROVIDER_KEY, UPSTREAM_MODEL},
};

/// Starts a gateway whose provider has kind `gemini`.
pub async fn start() -> TestGateway {
    let gateway = TestGateway::start_set(&[("PROVIDERS__FAKE__KIND", "gemini")]).await;
    gateway.upstream.answer_json(200, &said("Hello"));
    gateway
}

/// A response as Gemini sends it, with all of its additional fields.
pub fn generated(parts: Value, finish: Option<&str>) -> Value {
    let mut candidate = json!({
        "content": { "parts": parts, "role": "model" }, "index": 0,
        "safetyRatings": [{ "category": "HARM_CATEGORY_HARASSMENT", "probability": "LOW" }],
    });
    if let Some(finish) = finish {
        candidate["finishReason"] = finish.into();
    }
    json!({
        "candidates": [candidate], "modelVersion": UPSTREAM_MODEL, "responseId": "gemini-id",
        "usageMetadata": {
            "promptTokenCount": 11, "candidatesTokenCount": 3, "totalTokenCount": 14,
            "promptTokensDetails": [{ "modality": "TEXT", "tokenCount": 11 }],
        },
    })
}

pub fn said(text: &str) -> Value {
    generated(json!([{ "text": text }]), Some("STOP"))
}

/// Serializes the responses as events; Gemini sends no `[DONE]`.
pub fn events(responses: &[Value]) -> String {
    let mut events = String::new();
    for response in responses {
        events.extend(["data: ", &response.to_string(), "\r\n\r\n"]);
    }
    events
}

/// Asserts that nothing visible to the caller reveals which provider served the request.
#[track_caller]
pub fn assert_anonymous(shown: &str) {
    let shown = shown.to_lowercase();
    for name in [
        "gemini",
        "google",
        "vertex",
        "vendor",
        "generatecontent",
        "thought",
        PROVIDER_KEY,
    ] {
        assert!(!shown.contains(name), "{name}: {shown}");
    }
}
