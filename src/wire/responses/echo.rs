//! The fields of a request that its response repeats.

use serde::Serialize;
use serde_json::{Value, json};

use crate::wire::{error::GatewayError, json_text::JsonText};

#[derive(Debug)]
pub(crate) struct Echo {
    pub model: String,
    pub instructions: Option<JsonText>,
    pub max_output_tokens: Option<u64>,
    pub max_tool_calls: Option<u64>,
    pub parallel_tool_calls: bool,
    pub previous_response_id: Option<String>,
    pub prompt_cache_key: Option<JsonText>,
    pub reasoning: Value,
    pub safety_identifier: Option<JsonText>,
    /// Whether the response is to be stored.
    pub store: bool,
    pub temperature: Value,
    pub text: Value,
    pub tool_choice: Value,
    pub tools: Value,
    pub top_logprobs: u64,
    pub top_p: Value,
    pub truncation: String,
    pub(crate) user: Option<JsonText>,
    pub metadata: Value,
}

impl Default for Echo {
    fn default() -> Self {
        Self {
            model: String::new(),
            instructions: None,
            max_output_tokens: None,
            max_tool_calls: None,
            parallel_tool_calls: true,
            previous_response_id: None,
            prompt_cache_key: None,
            reasoning: json!({ "effort": null, "summary": null }),
            safety_identifier: None,
            store: true,
            temperature: json!(1.0),
            text: json!({ "format": { "type": "text" } }),
            tool_choice: json!("auto"),
            tools: json!([]),
            top_logprobs: 0,
            top_p: json!(1.0),
            truncation: "disabled".into(),
            user: None,
            metadata: json!({}),
        }
    }
}

/// A value in the form in which a response repeats it. Schemas are sent upstream unparsed, but a value that cannot be
/// parsed (an unpaired surrogate, a number out of range) cannot be repeated and is refused.
pub(super) fn echo_value(param: &str, sent: &impl Serialize) -> Result<Value, GatewayError> {
    serde_json::to_value(sent).map_err(|_| {
        let message = format!("`{param}` holds a text or a number that cannot be read.");
        GatewayError::invalid(param, message)
    })
}
