//! Translates chat messages into `contents`: parts, with the roles user and model in turn.

use std::collections::{HashMap, VecDeque};

use serde::Serialize;
use serde_json::value::RawValue;

use super::{
    call_cache::{CallCache, CallMetadata, PLACEHOLDER_SIGNATURE},
    object::{self, ARGUMENTS, RESULT},
};
use crate::wire::{
    chat::{Message, Role, ToolCall},
    json_text::JsonText,
};

#[derive(Serialize)]
pub(crate) struct Content<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<ContentRole>,
    parts: Vec<Part<'a>>,
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum ContentRole {
    User,
    Model,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
enum Part<'a> {
    Text(&'a JsonText),
    /// Text of a user content that only exists because Gemini requires one.
    #[serde(rename = "text")]
    Placeholder(&'static str),
    FunctionResponse(FunctionResponse<'a>),
    #[serde(untagged)]
    Call(FunctionCallPart<'a>),
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct FunctionCallPart<'a> {
    function_call: FunctionCall<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    thought_signature: Option<String>,
}

#[derive(Serialize)]
struct FunctionCall<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    name: &'a str,
    args: Box<RawValue>,
}

#[derive(Serialize)]
struct FunctionResponse<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    name: &'a str,
    response: Box<RawValue>,
}

/// The first system message, unless it is empty.
pub(crate) fn system(messages: &[Message]) -> Option<Content<'_>> {
    let first = messages.first();
    let first = first.filter(|message| message.role == Role::System);
    let prompt = first?.content.as_ref()?;
    let parts = vec![Part::Text(prompt)];
    (!prompt.is_empty()).then_some(Content { role: None, parts })
}

/// All messages but the system prompt. With `needs_signatures`, calls without a signature get the placeholder.
pub(crate) fn contents<'a>(
    messages: &'a [Message],
    calls: &CallCache,
    needs_signatures: bool,
) -> Vec<Content<'a>> {
    let mut contents = Vec::new();
    let mut at = 0;
    while let Some(message) = messages.get(at) {
        at += 1;
        match message.role {
            // The system prompt has its own field; results are taken together with their calls, below.
            Role::System if at == 1 => {}
            Role::Tool => {}
            // Gemini has no other place for a system message in the middle.
            Role::User | Role::System => {
                push_parts(&mut contents, ContentRole::User, text(message));
            }
            Role::Assistant => {
                let metadata: Vec<_> = message
                    .tool_calls
                    .iter()
                    .map(|call| calls.get(&call.id))
                    .collect();
                push_parts(&mut contents, ContentRole::Model, text(message));
                let calls_made = call_parts(&message.tool_calls, &metadata, needs_signatures);
                push_parts(&mut contents, ContentRole::Model, calls_made);
                let results = messages[at..].iter();
                let count = results
                    .take_while(|message| message.role == Role::Tool)
                    .count();
                let results = &messages[at..at + count];
                at += count;
                let parts = result_parts(&message.tool_calls, &metadata, results);
                if !parts.is_empty() {
                    contents.push(Content {
                        role: Some(ContentRole::User),
                        parts,
                    });
                }
            }
        }
    }
    if contents.first().and_then(|first| first.role) != Some(ContentRole::User) {
        // Gemini requires the user first, even if a chat has only a system prompt.
        let parts = vec![Part::Placeholder(" ")];
        let role = Some(ContentRole::User);
        contents.insert(0, Content { role, parts });
    }
    contents
}

/// Adds parts to the last content if it has this role, or begins a new one.
///
/// Function results stay in a content of their own: there must be as many of them as calls.
fn push_parts<'a>(contents: &mut Vec<Content<'a>>, role: ContentRole, parts: Vec<Part<'a>>) {
    if parts.is_empty() {
        return;
    }
    match contents.last_mut() {
        Some(last) if last.role == Some(role) && !last.has_results() => last.parts.extend(parts),
        _ => contents.push(Content {
            role: Some(role),
            parts,
        }),
    }
}

impl Content<'_> {
    fn has_results(&self) -> bool {
        let mut parts = self.parts.iter();
        parts.any(|part| matches!(part, Part::FunctionResponse(_)))
    }
}

/// A message's text as a part; none if it is empty, because Gemini refuses empty texts.
fn text(message: &Message) -> Vec<Part<'_>> {
    let text = message.content.as_ref().filter(|text| !text.is_empty());
    text.map(Part::Text).into_iter().collect()
}

/// The calls of a message. Gemini signs only the first of parallel calls, so only the first needs the placeholder.
fn call_parts<'a>(
    calls: &'a [ToolCall],
    metadata: &[CallMetadata],
    needs_signatures: bool,
) -> Vec<Part<'a>> {
    let part = |(at, (call, metadata)): (usize, (&'a ToolCall, &CallMetadata))| {
        let placeholder =
            || (at == 0 && needs_signatures).then(|| PLACEHOLDER_SIGNATURE.to_owned());
        Part::Call(FunctionCallPart {
            function_call: FunctionCall {
                id: metadata.id.clone(),
                name: &call.function.name,
                args: object::from_text(&call.function.arguments, ARGUMENTS),
            },
            thought_signature: metadata.signature.clone().or_else(placeholder),
        })
    };
    calls.iter().zip(metadata).enumerate().map(part).collect()
}

/// The results in the order of their calls, which is how Gemini matches them.
fn result_parts<'a>(
    calls: &'a [ToolCall],
    metadata: &[CallMetadata],
    results: &'a [Message],
) -> Vec<Part<'a>> {
    // By the IDs of their calls, because a turn may have thousands; calls with equal IDs get their results in order.
    let mut by_call: HashMap<&str, VecDeque<&Message>> = HashMap::new();
    for result in results {
        let id = result.tool_call_id.as_deref().unwrap_or_default();
        by_call.entry(id).or_default().push_back(result);
    }
    let part = |(call, metadata): (&'a ToolCall, &CallMetadata)| {
        let result = by_call.get_mut(call.id.as_str())?.pop_front()?;
        Some(Part::FunctionResponse(FunctionResponse {
            id: metadata.id.clone(),
            name: &call.function.name,
            response: object::from_text(result.content.as_ref()?, RESULT),
        }))
    };
    calls.iter().zip(metadata).filter_map(part).collect()
}
