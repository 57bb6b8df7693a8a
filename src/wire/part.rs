//! A piece of a streamed response in the gateway's own form, as provider adapters produce it.

use serde_json::value::RawValue;

use crate::wire::{
    chat::{Answer, FinishReason, Usage},
    json_text::JsonText,
    messages::NativeEvent,
};

#[derive(Clone, Debug)]
pub(crate) enum Part {
    Content {
        choice: u32,
        text: JsonText,
        logprobs: Option<Box<RawValue>>,
    },
    /// A fragment of a tool call. Providers may repeat, omit or null these fields; `slot` is the provider's number of
    /// the call.
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
    /// An event that is relayed as it came, because the caller speaks the provider's API.
    Native(NativeEvent),
    /// A sign of life from the provider without content, such as a ping.
    Silence,
}

impl Part {
    /// Whether it is output of the model: text, a tool call, or, in an event that is relayed as it came, the beginning of any
    /// block of content, thinking included. The beginning of a message and a ping are not.
    pub(crate) fn is_token(&self) -> bool {
        match self {
            Self::Content { .. } | Self::ToolCall { .. } => true,
            Self::Native(event) => event.is_content(),
            Self::Finish { .. } | Self::Usage(_) | Self::Silence => false,
        }
    }
}

/// The parts of a response that was not streamed.
pub(crate) fn of(answer: Answer) -> impl Iterator<Item = Part> + Send {
    let choices = answer.choices.into_iter().flat_map(|choice| {
        let index = choice.index;
        let content = choice.content.filter(|text| !text.is_empty());
        let content = content.map(|text| Part::Content {
            choice: index,
            text,
            logprobs: choice.logprobs,
        });
        let calls = (0..)
            .zip(choice.tool_calls)
            .map(move |(slot, call)| Part::ToolCall {
                choice: index,
                slot,
                id: Some(call.id),
                name: Some(call.function.name),
                arguments: Some(call.function.arguments),
            });
        let finish = Part::Finish {
            choice: index,
            reason: choice.finish,
        };
        content.into_iter().chain(calls).chain([finish])
    });
    choices.chain(answer.usage.map(Part::Usage))
}
