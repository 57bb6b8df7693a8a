//! The order of messages and the one system prompt (SPEC §2.2).

use std::collections::HashMap;

use crate::wire::{
    chat::{Message, Role, ToolCall},
    error::GatewayError,
    json_text::JsonText,
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
    let mut turn = Turn::default();
    for (at, message) in messages.iter().enumerate() {
        if message.role == Role::Tool {
            let id = message.tool_call_id.as_deref().unwrap_or_default();
            turn.answer(id).ok_or_else(|| Disorder::Unasked {
                at,
                id: id.to_owned(),
            })?;
            continue;
        }
        turn.is_over()?;
        turn = Turn::asked(at, &message.tool_calls);
    }
    turn.is_over()
}

/// A message and its calls, of which some are not answered yet. Looked up by ID: a turn may be as
/// long as a body can hold.
#[derive(Default)]
struct Turn<'a> {
    at: usize,
    calls: &'a [ToolCall],
    unanswered: HashMap<&'a str, usize>,
}

impl<'a> Turn<'a> {
    fn asked(at: usize, calls: &'a [ToolCall]) -> Self {
        let mut unanswered = HashMap::new();
        for call in calls {
            *unanswered.entry(call.id.as_str()).or_default() += 1;
        }
        Self {
            at,
            calls,
            unanswered,
        }
    }

    fn answer(&mut self, id: &str) -> Option<()> {
        let left = self.unanswered.get_mut(id)?;
        *left -= 1;
        if *left == 0 {
            self.unanswered.remove(id);
        }
        Some(())
    }

    fn is_over(&self) -> Result<(), Disorder> {
        if self.unanswered.is_empty() {
            return Ok(());
        }
        let mut calls = self.calls.iter();
        let open = calls.find(|call| self.unanswered.contains_key(call.id.as_str()));
        open.map_or(Ok(()), |call| {
            let (at, id) = (self.at, call.id.clone());
            Err(Disorder::Unanswered { at, id })
        })
    }
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

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    fn turn(calls: impl IntoIterator<Item = usize>) -> Message {
        let calls = calls
            .into_iter()
            .map(|number| ToolCall::new(format!("call_{number}"), "f".into(), JsonText::new("{}")));
        Message::calling(None, calls.collect())
    }

    fn answer(number: usize) -> Message {
        Message::tool(format!("call_{number}"), JsonText::new("1"))
    }

    #[test]
    fn a_turn_as_long_as_a_body_can_hold_is_checked_at_once() {
        let many = 100_000;
        let mut messages = vec![turn(0..many)];
        messages.extend((0..many).rev().map(answer));
        let started = Instant::now();
        assert_eq!(check_order(&messages), Ok(()));
        messages.pop();
        let id = "call_0".to_owned();
        assert_eq!(
            check_order(&messages),
            Err(Disorder::Unanswered { at: 0, id })
        );
        assert!(started.elapsed() < Duration::from_secs(5));
    }

    #[test]
    fn calls_of_the_same_id_are_answered_one_by_one() {
        let twice = || turn([7, 7]);
        assert_eq!(check_order(&[twice(), answer(7), answer(7)]), Ok(()));
        let id = || "call_7".to_owned();
        assert_eq!(
            check_order(&[twice(), answer(7)]),
            Err(Disorder::Unanswered { at: 0, id: id() })
        );
        assert_eq!(
            check_order(&[twice(), answer(7), answer(7), answer(7)]),
            Err(Disorder::Unasked { at: 3, id: id() })
        );
    }
}
