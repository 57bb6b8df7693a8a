//! A conversation as Gemini reads it: two roles that take turns, and parts.

use serde::Serialize;
use serde_json::value::RawValue;

use super::{
    calls::{Calls, Origin, UNKNOWN},
    object::{self, ARGUMENTS, RESULT},
};
use crate::wire::{
    chat::{Message, Role, ToolCall},
    json_text::JsonText,
};

#[derive(Serialize)]
pub struct Content<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<Speaker>,
    parts: Vec<Part<'a>>,
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Speaker {
    User,
    Model,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
enum Part<'a> {
    Text(&'a JsonText),
    /// Where something must be said and there is nothing to say.
    #[serde(rename = "text")]
    Blank(&'static str),
    FunctionResponse(Returned<'a>),
    #[serde(untagged)]
    Call(CallPart<'a>),
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct CallPart<'a> {
    function_call: Call<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    thought_signature: Option<String>,
}

#[derive(Serialize)]
struct Call<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    name: &'a str,
    args: Box<RawValue>,
}

#[derive(Serialize)]
struct Returned<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    name: &'a str,
    response: Box<RawValue>,
}

/// The system prompt, if there is one with something in it.
pub fn system(messages: &[Message]) -> Option<Content<'_>> {
    let mut prompts = messages
        .iter()
        .filter(|message| message.role == Role::System);
    let prompt = prompts.next()?.content.as_ref()?;
    let parts = vec![Part::Text(prompt)];
    (!prompt.is_empty()).then_some(Content { role: None, parts })
}

/// Everything that was said, less the system prompt.
pub fn contents<'a>(messages: &'a [Message], calls: &Calls, sign: bool) -> Vec<Content<'a>> {
    let mut contents = Vec::new();
    let mut at = 0;
    while let Some(message) = messages.get(at) {
        at += 1;
        match message.role {
            // The system prompt stands elsewhere; results are taken with their calls, below.
            Role::System | Role::Tool => {}
            Role::User => say(&mut contents, Speaker::User, text(message)),
            Role::Assistant => {
                let origins: Vec<_> = message
                    .tool_calls
                    .iter()
                    .map(|call| calls.find(&call.id))
                    .collect();
                say(&mut contents, Speaker::Model, text(message));
                let made = call_parts(&message.tool_calls, &origins, sign);
                say(&mut contents, Speaker::Model, made);
                let results = messages[at..].iter();
                let results: Vec<_> = results
                    .take_while(|message| message.role == Role::Tool)
                    .collect();
                at += results.len();
                let parts = result_parts(&message.tool_calls, &origins, results);
                if !parts.is_empty() {
                    contents.push(Content {
                        role: Some(Speaker::User),
                        parts,
                    });
                }
            }
        }
    }
    if contents.first().and_then(|first| first.role) != Some(Speaker::User) {
        // The user speaks first, even where a chat has nothing but a system prompt.
        let parts = vec![Part::Blank(" ")];
        let role = Some(Speaker::User);
        contents.insert(0, Content { role, parts });
    }
    contents
}

/// Adds to what the same speaker is saying, or begins a new turn.
///
/// Results of functions stay a turn of their own: there must be as many of them as calls.
fn say<'a>(contents: &mut Vec<Content<'a>>, speaker: Speaker, parts: Vec<Part<'a>>) {
    if parts.is_empty() {
        return;
    }
    match contents.last_mut() {
        Some(last) if last.role == Some(speaker) && !last.has_results() => last.parts.extend(parts),
        _ => contents.push(Content {
            role: Some(speaker),
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

/// An empty text is no part: Gemini refuses one.
fn text(message: &Message) -> Vec<Part<'_>> {
    let text = message.content.as_ref().filter(|text| !text.is_empty());
    text.map(Part::Text).into_iter().collect()
}

/// Of calls made at once Gemini signs the first one only, so that is where a signature is missed.
fn call_parts<'a>(calls: &'a [ToolCall], origins: &[Origin], sign: bool) -> Vec<Part<'a>> {
    let part = |(at, (call, origin)): (usize, (&'a ToolCall, &Origin))| {
        let stand_in = || (at == 0 && sign).then(|| UNKNOWN.to_owned());
        Part::Call(CallPart {
            function_call: Call {
                id: origin.id.clone(),
                name: &call.function.name,
                args: object::from_text(&call.function.arguments, ARGUMENTS),
            },
            thought_signature: origin.signature.clone().or_else(stand_in),
        })
    };
    calls.iter().zip(origins).enumerate().map(part).collect()
}

/// The results in the order of their calls, by which Gemini knows which is whose.
fn result_parts<'a>(
    calls: &'a [ToolCall],
    origins: &[Origin],
    mut results: Vec<&'a Message>,
) -> Vec<Part<'a>> {
    let part = |(call, origin): (&'a ToolCall, &Origin)| {
        let answers = |result: &&Message| result.tool_call_id.as_deref() == Some(&call.id);
        let result = results.remove(results.iter().position(answers)?);
        Some(Part::FunctionResponse(Returned {
            id: origin.id.clone(),
            name: &call.function.name,
            response: object::from_text(result.content.as_ref()?, RESULT),
        }))
    };
    calls.iter().zip(origins).filter_map(part).collect()
}
