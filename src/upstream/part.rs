//! A piece of a streamed answer, as an adapter hands it on.

use serde_json::value::RawValue;

use crate::wire::{
    chat::{FinishReason, Usage},
    json_text::JsonText,
};

#[derive(Clone, Debug)]
pub enum Part {
    Content {
        choice: u32,
        text: JsonText,
        logprobs: Option<Box<RawValue>>,
    },
    /// A fragment of a tool call. Providers repeat, omit and null these fields as they please;
    /// `slot` is their own number for the call.
    ToolCall {
        choice: u32,
        slot: u32,
        id: Option<String>,
        name: Option<String>,
        arguments: Option<JsonText>,
    },
    Finish {
        choice: u32,
        reason: FinishReason,
    },
    Usage(Usage),
    /// The provider is at work but has nothing to show yet.
    Silence,
}
