//! The order of messages and the one system prompt (SPEC §2.2).

use std::collections::HashMap;

use crate::{
    error::GatewayError,
    wire::{
        chat::{Message, Role},
        json_text::JsonText,
    },
};

/// A tool's answer and a call that do not belong together.
#[derive(Debug, PartialEq, Eq)]
pub enum Disorder {
    /// A message answers a call that the assistant message it follows has not made.
    Unasked { at: usize, id: String },
    /// A call is not answered before the conversation goes on.
    Unanswered { at: usize, id: String },
}

impl Disorder {
    /// In the words of a chat completion.
    pub fn of_messages(self) -> GatewayError {
        match self {
            Self::Unasked { at, id } => GatewayError::invalid(
                format!("messages[{at}].tool_call_id"),
                format!(
                    "`messages[{at}]` answers the call `{id}`, but the assistant message it \
                     follows has no such call left to answer."
                ),
            ),
            Self::Unanswered { at, id } => GatewayError::invalid(
                format!("messages[{at}].tool_calls"),
                format!(
                    "`messages[{at}]` calls a tool (`{id}`) that no message answers. Send one \
                     tool message for each call, directly after it."
                ),
            ),
        }
    }

    /// In the words of a response.
    pub fn of_items(self) -> GatewayError {
        let message = match self {
            Self::Unasked { id, .. } => format!(
                "`input` has an output for the call `{id}`, but no such call before it that is \
                 left to answer."
            ),
            Self::Unanswered { id, .. } => format!(
                "The function call `{id}` has no output. Send one `function_call_output` for each \
                 call, directly after it."
            ),
        };
        GatewayError::invalid("input", message)
    }
}

/// Every tool message answers a call of the assistant message it follows, and every call is
/// answered before the conversation goes on.
pub fn check_order(messages: &[Message]) -> Result<(), Disorder> {
    // How often each call is still to be answered: one message may hold a great many.
    let mut open: HashMap<&str, usize> = HashMap::new();
    let mut asked_at = 0;
    for (at, message) in messages.iter().enumerate() {
        if message.role == Role::Tool {
            let id = message.tool_call_id.as_deref().unwrap_or_default();
            let Some(times) = open.get_mut(id).filter(|times| **times > 0) else {
                let id = id.to_owned();
                return Err(Disorder::Unasked { at, id });
            };
            *times -= 1;
            continue;
        }
        all_answered(messages, asked_at, &open)?;
        open.clear();
        for call in &message.tool_calls {
            *open.entry(call.id.as_str()).or_default() += 1;
        }
        asked_at = at;
    }
    all_answered(messages, asked_at, &open)
}

fn all_answered(
    messages: &[Message],
    at: usize,
    open: &HashMap<&str, usize>,
) -> Result<(), Disorder> {
    if open.values().all(|times| *times == 0) {
        return Ok(());
    }
    let mut calls = messages[at].tool_calls.iter();
    let unanswered = calls.find(|call| open.get(call.id.as_str()).is_some_and(|times| *times > 0));
    let id = unanswered.map_or_else(String::new, |call| call.id.clone());
    Err(Disorder::Unanswered { at, id })
}

/// The conversation with one system message, first: the gateway's identity prompt where there is
/// one, then everything the caller wrote as system or developer, a line each.
///
/// Agent frameworks write system messages in the middle of a history; they are moved, not refused.
pub fn with_one_system_prompt(messages: Vec<Message>, identity: Option<&str>) -> Vec<Message> {
    let is_system = |message: &Message| message.role == Role::System;
    let already_so =
        messages.iter().skip(1).all(|message| !is_system(message)) && identity.is_none();
    if already_so {
        return messages;
    }
    let (system, rest): (Vec<_>, Vec<_>) = messages.into_iter().partition(is_system);
    let written = system.into_iter().filter_map(|message| message.content);
    let prompts: Vec<JsonText> = identity
        .map(JsonText::new)
        .into_iter()
        .chain(written)
        .collect();
    let mut conversation = Vec::with_capacity(rest.len() + 1);
    conversation.push(Message::saying(
        Role::System,
        JsonText::join_lines(&prompts),
    ));
    conversation.extend(rest);
    conversation
}
