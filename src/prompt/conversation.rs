//! The order of tool calls and their outputs, and the single system prompt (§2.2).

use std::collections::HashMap;

use crate::wire::{
    chat::{Message, Role, ToolCall},
    error::GatewayError,
    json_text::JsonText,
};

/// A tool call and a tool output that do not match.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ToolOrderError {
    /// A tool message whose call is not in the assistant message before it, or already has an output.
    UnknownCall { at: usize, id: String },
    /// A call without an output before the next message.
    MissingOutput { at: usize, id: String },
}

impl ToolOrderError {
    /// The error in terms of chat completions.
    pub(crate) fn into_chat_error(self) -> GatewayError {
        match self {
            Self::UnknownCall { at, id } => GatewayError::invalid(
                format!("messages[{at}].tool_call_id"),
                format!(
                    "`messages[{at}]` answers the call `{id}`, but the assistant message it \
                     follows has no such call left to answer."
                ),
            ),
            Self::MissingOutput { at, id } => GatewayError::invalid(
                format!("messages[{at}].tool_calls"),
                format!(
                    "`messages[{at}]` calls a tool (`{id}`) that no message answers. Send one \
                     tool message for each call, directly after it."
                ),
            ),
        }
    }

    /// The error in terms of the Responses API.
    pub(crate) fn into_responses_error(self) -> GatewayError {
        let message = match self {
            Self::UnknownCall { id, .. } => format!(
                "Send a call before its output: `input` has an output for the call `{id}`, but no such \
                 call before it."
            ),
            Self::MissingOutput { id, .. } => {
                format!("Send an output for the call `{id}`, directly after it: it has none.")
            }
        };
        GatewayError::invalid("input", message)
    }
}

/// Checks that every tool message has the output of a call of the assistant message before it, and that every call has
/// its output before the next message.
pub(crate) fn check_order(messages: &[Message]) -> Result<(), ToolOrderError> {
    let mut turn = Turn::default();
    for (at, message) in messages.iter().enumerate() {
        if message.role == Role::Tool {
            let id = message.tool_call_id.as_deref().unwrap_or_default();
            turn.answer(id).ok_or_else(|| ToolOrderError::UnknownCall {
                at,
                id: id.to_owned(),
            })?;
            continue;
        }
        turn.check_complete()?;
        turn = Turn::new(at, &message.tool_calls);
    }
    turn.check_complete()
}

/// A message with its calls, and those of them without output. They are looked up by ID, because a turn may be as long
/// as a body allows.
#[derive(Default)]
struct Turn<'a> {
    at: usize,
    calls: &'a [ToolCall],
    open: HashMap<&'a str, usize>,
}

impl<'a> Turn<'a> {
    fn new(at: usize, calls: &'a [ToolCall]) -> Self {
        let mut open = HashMap::new();
        for call in calls {
            *open.entry(call.id.as_str()).or_default() += 1;
        }
        Self { at, calls, open }
    }

    fn answer(&mut self, id: &str) -> Option<()> {
        let left = self.open.get_mut(id)?;
        *left -= 1;
        if *left == 0 {
            self.open.remove(id);
        }
        Some(())
    }

    fn check_complete(&self) -> Result<(), ToolOrderError> {
        if self.open.is_empty() {
            return Ok(());
        }
        let mut calls = self.calls.iter();
        let call = calls.find(|call| self.open.contains_key(call.id.as_str()));
        call.map_or(Ok(()), |call| {
            let (at, id) = (self.at, call.id.clone());
            Err(ToolOrderError::MissingOutput { at, id })
        })
    }
}

/// Merges all system messages into one at the start: the gateway's identity prompt if there is one, then the caller's
/// system and developer messages, joined with line breaks.
///
/// Agent frameworks put system messages in the middle of a history; they are moved and not refused.
pub(crate) fn with_one_system_prompt(
    messages: Vec<Message>,
    identity: Option<&str>,
) -> Vec<Message> {
    let is_system = |message: &Message| message.role == Role::System;
    let is_merged =
        messages.iter().skip(1).all(|message| !is_system(message)) && identity.is_none();
    if is_merged {
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
    conversation.push(Message::text(Role::System, JsonText::join_lines(&prompts)));
    conversation.extend(rest);
    conversation
}

/// Merges the system messages at the start into one, after the gateway's identity prompt if there is one. Later ones
/// stay where they are: clients of the Messages API put them next to what they are about, and caches depend on it.
pub(crate) fn with_first_system_prompt(
    messages: Vec<Message>,
    identity: Option<&str>,
) -> Vec<Message> {
    let leading = messages.iter();
    let leading = leading
        .take_while(|message| message.role == Role::System)
        .count();
    if leading < 2 && identity.is_none() {
        return messages;
    }
    let mut rest = messages;
    let later = rest.split_off(leading);
    let mut conversation = with_one_system_prompt(rest, identity);
    conversation.extend(later);
    conversation
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    fn turn(calls: impl IntoIterator<Item = usize>) -> Message {
        let calls = calls
            .into_iter()
            .map(|number| ToolCall::new(format!("call_{number}"), "f".into(), JsonText::new("{}")));
        Message::tool_calls(None, calls.collect())
    }

    fn answer(number: usize) -> Message {
        Message::tool(format!("call_{number}"), JsonText::new("1"))
    }

    #[test]
    fn a_very_long_turn_is_checked_quickly() {
        let many = 100_000;
        let mut messages = vec![turn(0..many)];
        messages.extend((0..many).rev().map(answer));
        let started = Instant::now();
        assert_eq!(check_order(&messages), Ok(()));
        messages.pop();
        let id = "call_0".to_owned();
        assert_eq!(
            check_order(&messages),
            Err(ToolOrderError::MissingOutput { at: 0, id })
        );
        assert!(started.elapsed() < Duration::from_secs(5));
    }

    #[test]
    fn calls_with_equal_ids_need_one_output_each() {
        let twice = || turn([7, 7]);
        assert_eq!(check_order(&[twice(), answer(7), answer(7)]), Ok(()));
        let id = || "call_7".to_owned();
        assert_eq!(
            check_order(&[twice(), answer(7)]),
            Err(ToolOrderError::MissingOutput { at: 0, id: id() })
        );
        assert_eq!(
            check_order(&[twice(), answer(7), answer(7), answer(7)]),
            Err(ToolOrderError::UnknownCall { at: 3, id: id() })
        );
    }
}
