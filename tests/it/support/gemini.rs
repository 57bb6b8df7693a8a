//! A provider that speaks Gemini, and what must not be seen of it.

use serde_json::{Value, json};

use super::{
    TestGateway,
    gateway::{PROVIDER_KEY, UPSTREAM_MODEL},
};

/// A gateway whose provider is one.
pub async fn start() -> TestGateway {
    let gateway = TestGateway::start_set(&[("PROVIDERS__FAKE__KIND", "gemini")]).await;
    gateway.upstream.answer_json(200, &said("Hello"));
    gateway
}

/// An answer as Gemini gives it, with everything it adds.
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

/// The responses as events; there is no `[DONE]`.
pub fn events(responses: &[Value]) -> String {
    let mut events = String::new();
    for response in responses {
        events.extend(["data: ", &response.to_string(), "\r\n\r\n"]);
    }
    events
}

/// Nothing that a caller reads tells who answered.
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
