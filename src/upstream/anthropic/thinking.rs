//! Extended thinking: sent as the caller wrote it, unless the API would refuse it.

use serde::Deserialize;

use crate::{
    prompt::ChatCall,
    wire::chat::{Schema, ToolChoice},
};

/// The thinking configuration to send.
pub(crate) struct Thinking<'a> {
    pub config: Option<&'a Schema>,
    pub is_on: bool,
    /// Output tokens that thinking may use.
    pub budget: u32,
}

impl<'a> Thinking<'a> {
    pub(crate) fn of(call: &'a ChatCall) -> Self {
        #[derive(Default, Deserialize)]
        struct WireThinking {
            #[serde(rename = "type")]
            kind: Option<String>,
            budget_tokens: Option<u32>,
        }
        const OMITTED: Thinking = Thinking {
            config: None,
            is_on: false,
            budget: 0,
        };
        let Some(config) = &call.thinking else {
            return OMITTED;
        };
        let written: WireThinking = serde_json::from_str(config.as_json()).unwrap_or_default();
        let is_on = written.kind.as_deref() != Some("disabled");
        if is_on && !is_supported(call) {
            return OMITTED;
        }
        Self {
            config: Some(config),
            is_on,
            budget: written.budget_tokens.filter(|_| is_on).unwrap_or(0),
        }
    }
}

/// Whether the API accepts thinking for this call. A history with tool calls must contain the signed thinking blocks
/// that led to them, which a chat history cannot carry; and thinking does not allow forced tool calls.
fn is_supported(call: &ChatCall) -> bool {
    let called = call.messages.iter().any(|m| !m.tool_calls.is_empty());
    let forced = matches!(
        call.tool_choice,
        Some(ToolChoice::Required | ToolChoice::Named(_))
    );
    !called && !forced
}
