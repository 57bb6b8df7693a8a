//! What Gemini answers with, whole or in pieces: the same object.

use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, value::RawValue};

use super::{
    calls::{Calls, Origin},
    object,
};
use crate::wire::{chat::ToolCall, error::UpstreamError, json_text::JsonText};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Response {
    candidates: Option<Vec<Candidate>>,
    prompt_feedback: Option<PromptFeedback>,
    /// Everything that was used so far.
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
pub struct Candidate {
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

/// What a response says, as a whole.
pub enum Said {
    Candidates(Vec<Candidate>),
    /// The prompt was refused: no candidate will come.
    Blocked,
}

/// What a part says.
pub enum Piece {
    Text(JsonText),
    Call(ToolCall),
}

impl Response {
    /// Reads a response, which in a failure may be the only element of a list.
    pub fn read(json: &[u8]) -> Result<Self, UpstreamError> {
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

    pub fn said(self) -> Said {
        let candidates = self.candidates.unwrap_or_default();
        let feedback = self.prompt_feedback;
        let blocked = feedback.is_some_and(|feedback| feedback.block_reason.is_some());
        if candidates.is_empty() && blocked {
            return Said::Blocked;
        }
        Said::Candidates(candidates)
    }
}

fn parse<T: DeserializeOwned>(json: &[u8]) -> Result<T, UpstreamError> {
    serde_json::from_slice(json).map_err(|error| UpstreamError::unreadable(&error))
}

impl Candidate {
    /// What the caller is to see of it. Thoughts are not, nor are empty texts.
    pub fn take_pieces(&mut self, calls: &Calls) -> Vec<Piece> {
        let content = self.content.take();
        let parts = content
            .and_then(|content| content.parts)
            .unwrap_or_default();
        let shown = parts.into_iter().filter(|part| part.thought != Some(true));
        shown.filter_map(|part| part.shown(calls)).collect()
    }
}

impl Part {
    fn shown(self, calls: &Calls) -> Option<Piece> {
        let Some(call) = self.function_call else {
            return self.text.filter(|text| !text.is_empty()).map(Piece::Text);
        };
        let arguments = call.args.filter(|args| args.get().starts_with('{'));
        let arguments = arguments.map_or_else(
            || JsonText::new("{}"),
            |arguments| object::to_text(&arguments),
        );
        let id = calls.keep(Origin {
            id: call.id.filter(|id| !id.is_empty()),
            signature: self.thought_signature,
        });
        Some(Piece::Call(ToolCall::new(id, call.name, arguments)))
    }
}
