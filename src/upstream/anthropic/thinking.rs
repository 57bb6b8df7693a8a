//! Extended thinking: passed on as the caller wrote it, where the API takes it.

use serde::Deserialize;

use crate::{
    prompt::ChatCall,
    wire::chat::{Schema, ToolChoice},
};

/// What goes upstream of the caller's `thinking`.
pub struct Thinking<'a> {
    pub config: Option<&'a Schema>,
    pub is_on: bool,
    /// The tokens of the output that it may take.
    pub budget: u32,
}

impl<'a> Thinking<'a> {
    pub fn of(call: &'a ChatCall) -> Self {
        #[derive(Default, Deserialize)]
        struct Written {
            #[serde(rename = "type")]
            kind: Option<String>,
            budget_tokens: Option<u32>,
        }
        const LEFT_OUT: Thinking = Thinking {
            config: None,
            is_on: false,
            budget: 0,
        };
        let Some(config) = &call.thinking else {
            return LEFT_OUT;
        };
        let written: Written = serde_json::from_str(config.as_json()).unwrap_or_default();
        let is_on = written.kind.as_deref() != Some("disabled");
        if is_on && !is_possible(call) {
            return LEFT_OUT;
        }
        Self {
            config: Some(config),
            is_on,
            budget: written.budget_tokens.filter(|_| is_on).unwrap_or(0),
        }
    }
}

/// A model that thinks wants its signed thoughts back with the calls they led to, which a chat
/// history cannot carry; and it must be free not to call.
fn is_possible(call: &ChatCall) -> bool {
    let called = call.messages.iter().any(|m| !m.tool_calls.is_empty());
    let forced = matches!(
        call.tool_choice,
        Some(ToolChoice::Required | ToolChoice::Named(_))
    );
    !called && !forced
}
