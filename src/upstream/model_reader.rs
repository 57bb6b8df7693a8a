//! The model that a response names, for the span of its attempt.

use std::sync::Arc;

use serde::Deserialize;

use crate::telemetry::Trace;

/// How many events of a stream are searched. The first one has the model, but for a ping before it.
const EVENTS: u32 = 4;

/// Reads the model from a response whose trace is recorded; nothing is read for others.
pub(crate) struct ModelReader {
    trace: Arc<Trace>,
    left: u32,
}

/// A response or an event of any of the APIs, as far as it names its model.
#[derive(Deserialize)]
struct Named {
    /// In a response or a chunk of OpenAI's API, and in a message of Anthropic's.
    model: Option<String>,
    /// In the first event of Anthropic's API.
    message: Option<Message>,
    /// In a response or an event of Gemini's API.
    #[serde(rename = "modelVersion")]
    version: Option<String>,
}

#[derive(Deserialize)]
struct Message {
    model: Option<String>,
}

impl ModelReader {
    pub(crate) fn of(trace: &Arc<Trace>) -> Option<Self> {
        trace.is_recorded().then(|| Self {
            trace: trace.clone(),
            left: EVENTS,
        })
    }

    /// Reads a whole response, or one event.
    pub(crate) fn read(&mut self, json: &[u8]) {
        if self.left == 0 {
            return;
        }
        self.left -= 1;
        if let Some(model) = named(json) {
            self.trace.answered_by(&model);
            self.left = 0;
        }
    }
}

fn named(json: &[u8]) -> Option<String> {
    let Named {
        model,
        message,
        version,
    } = serde_json::from_slice(json).ok()?;
    let model = model.or_else(|| message?.model).or(version);
    model.filter(|model| !model.is_empty())
}

#[cfg(test)]
mod tests {
    use super::named;

    #[test]
    fn each_api_names_its_model() {
        for json in [
            r#"{"object":"chat.completion","model":"m-1","choices":[{"message":{"content":"Hi"}}]}"#,
            r#"{"object":"chat.completion.chunk","model":"m-1","choices":[]}"#,
            r#"{"type":"message","model":"m-1","content":[]}"#,
            r#"{"type":"message_start","message":{"id":"x","model":"m-1","content":[]}}"#,
            r#"{"candidates":[{"content":{"parts":[]}}],"modelVersion":"m-1"}"#,
        ] {
            assert_eq!(named(json.as_bytes()).as_deref(), Some("m-1"), "{json}");
        }
        for json in [
            "",
            "[]",
            "{}",
            r#"{"model":""}"#,
            r#"{"model":7}"#,
            r#"{"type":"ping"}"#,
        ] {
            assert_eq!(named(json.as_bytes()), None, "{json}");
        }
    }
}
