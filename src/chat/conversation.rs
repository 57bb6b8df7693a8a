//! The order of messages and the one system prompt (SPEC §2.2).

use crate::{
    error::GatewayError,
    wire::{
        chat::{Message, Role},
        json_text::JsonText,
    },
};

/// Every tool message answers a call of the assistant message it follows, and every call is
/// answered before the conversation goes on.
pub fn check_order(messages: &[Message]) -> Result<(), GatewayError> {
    let mut unanswered: Vec<&str> = Vec::new();
    let mut asked_at = 0;
    for (at, message) in messages.iter().enumerate() {
        if message.role == Role::Tool {
            let id = message.tool_call_id.as_deref().unwrap_or_default();
            let Some(call) = unanswered.iter().position(|open| *open == id) else {
                let message = format!(
                    "`messages[{at}]` answers the call `{id}`, but the assistant message it follows \
                     has no such call left to answer."
                );
                return Err(GatewayError::invalid(
                    format!("messages[{at}].tool_call_id"),
                    message,
                ));
            };
            unanswered.remove(call);
            continue;
        }
        all_answered(&unanswered, asked_at)?;
        unanswered = message
            .tool_calls
            .iter()
            .map(|call| call.id.as_str())
            .collect();
        asked_at = at;
    }
    all_answered(&unanswered, asked_at)
}

fn all_answered(unanswered: &[&str], asked_at: usize) -> Result<(), GatewayError> {
    let Some(id) = unanswered.first() else {
        return Ok(());
    };
    let message = format!(
        "`messages[{asked_at}]` calls a tool (`{id}`) that no message answers. Send one tool message \
         for each call, directly after it."
    );
    Err(GatewayError::invalid(
        format!("messages[{asked_at}].tool_calls"),
        message,
    ))
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
    conversation.push(Message::system(JsonText::join_lines(&prompts)));
    conversation.extend(rest);
    conversation
}
