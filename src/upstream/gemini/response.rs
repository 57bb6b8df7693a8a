//! The response object, which is also the content of each event of a stream.

use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, value::RawValue};

use super::{
    call_cache::{CallCache, CallMetadata},
    object,
};
use crate::wire::{chat::ToolCall, error::UpstreamError, json_text::JsonText};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Response {
    candidates: Option<Vec<Candidate>>,
    prompt_feedback: Option<PromptFeedback>,
    /// Token counts so far.
    pub usage_metadata: Option<Value>,
    error: Option<Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PromptFeedback {
    block_reason: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Candidate {
    pub index: Option<u32>,
    content: Option<Content>,
    pub finish_reason: Option<String>,
    pub logprobs_result: Option<Value>,
}

#[derive(Deserialize)]
struct Content {
    parts: Option<Vec<Part>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Part {
    text: Option<JsonText>,
    thought: Option<bool>,
    thought_signature: Option<String>,
    function_call: Option<FunctionCall>,
}

#[derive(Deserialize)]
struct FunctionCall {
    id: Option<String>,
    name: String,
    args: Option<Box<RawValue>>,
}

/// The result of a response.
pub(crate) enum Outcome {
    Candidates(Vec<Candidate>),
    /// The prompt was blocked, and there are no candidates.
    PromptBlocked,
}

/// A part of the content that the caller sees.
pub(crate) enum VisiblePart {
    Text(JsonText),
    Call(ToolCall),
}

impl Response {
    /// Parses a response object. Errors may be wrapped in a list of one element.
    pub(crate) fn read(json: &[u8]) -> Result<Self, UpstreamError> {
        let response: Self = if json.trim_ascii_start().starts_with(b"[") {
            let [response] = parse::<[Self; 1]>(json)?;
            response
        } else {
            parse(json)?
        };
        match response.error {
            Some(error) => Err(UpstreamError::reported(&error)),
            None => Ok(response),
        }
    }

    pub(crate) fn outcome(self) -> Outcome {
        let candidates = self.candidates.unwrap_or_default();
        let feedback = self.prompt_feedback;
        let blocked = feedback.is_some_and(|feedback| feedback.block_reason.is_some());
        if candidates.is_empty() && blocked {
            return Outcome::PromptBlocked;
        }
        Outcome::Candidates(candidates)
    }
}

fn parse<T: DeserializeOwned>(json: &[u8]) -> Result<T, UpstreamError> {
    serde_json::from_slice(json).map_err(|error| UpstreamError::unreadable(&error))
}

impl Candidate {
    /// Takes the parts that the caller sees: not thoughts, nor empty texts.
    pub(crate) fn take_visible_parts(&mut self, calls: &CallCache) -> Vec<VisiblePart> {
        let content = self.content.take();
        let parts = content
            .and_then(|content| content.parts)
            .unwrap_or_default();
        let visible = parts.into_iter().filter(|part| part.thought != Some(true));
        visible
            .filter_map(|part| part.into_visible(calls))
            .collect()
    }
}

impl Part {
    /// The text or call. The metadata of a call is cached under the ID that the caller gets.
    fn into_visible(self, calls: &CallCache) -> Option<VisiblePart> {
        let Some(call) = self.function_call else {
            return self
                .text
                .filter(|text| !text.is_empty())
                .map(VisiblePart::Text);
        };
        let arguments = call.args.filter(|args| args.get().starts_with('{'));
        let arguments = arguments.map_or_else(
            || JsonText::new("{}"),
            |arguments| object::to_text(&arguments),
        );
        let id = calls.insert(CallMetadata {
            id: call.id.filter(|id| !id.is_empty()),
            signature: self.thought_signature,
        });
        Some(VisiblePart::Call(ToolCall::new(id, call.name, arguments)))
    }
}
