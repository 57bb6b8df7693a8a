//! The messages of a request as those of a chat, and the order of tool calls and their results.
//!
//! A turn of this API can be several messages of one role, and a user's turn has tool results beside its text. In a chat
//! each result is a message of its own, directly after the calls; so texts and system messages that come before a
//! result that is still missing wait for it.

use serde::Deserialize;

use super::{
    blocks::{Notes, Piece, Place, joined, wrong},
    fields::Content,
    ids,
    open_calls::OpenCalls,
};
use crate::wire::{
    chat::{Message, Role, ToolCall},
    error::GatewayError,
    json_text::JsonText,
};

#[derive(Debug, Deserialize)]
pub(super) struct RawMessage {
    role: RawRole,
    content: Content,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum RawRole {
    User,
    Assistant,
    System,
}

/// The system prompt as one text.
pub(super) fn system_prompt(content: Content) -> Result<JsonText, GatewayError> {
    match content {
        Content::Text(text) => Ok(text),
        Content::Blocks(blocks) => {
            let blocks = blocks.into_iter().enumerate();
            let texts = blocks.map(|(block, content)| {
                let place = Place::System { block };
                if content.kind != "text" {
                    let path = format!("{place}.type");
                    return Err(wrong(
                        path,
                        "a system prompt has blocks of type `text` only.",
                    ));
                }
                content.text(place, &mut Notes::default())
            });
            Ok(joined(texts.collect::<Result<_, _>>()?))
        }
    }
}

/// The messages as those of a chat, after the system prompt.
pub(super) fn conversation(
    system: Option<JsonText>,
    messages: Vec<RawMessage>,
    notes: &mut Notes,
) -> Result<Vec<Message>, GatewayError> {
    let mut chat = Chat {
        messages: Vec::with_capacity(messages.len() + 1),
        ..Chat::default()
    };
    chat.messages
        .extend(system.map(|text| Message::text(Role::System, text)));
    let last = messages.len().checked_sub(1);
    for (at, message) in messages.into_iter().enumerate() {
        let role = message.role;
        chat.add(at, message, notes)?;
        // The last message is not an answer that the model is to continue: the meaning could not be kept.
        if role == RawRole::Assistant && Some(at) == last {
            chat.open.check()?;
            notes.native_only(0, || {
                let reason = "the last message is the assistant's. Beginning the answer for the model \
                              (prefill) is not supported; end with a user message.";
                wrong(format!("messages.{at}"), reason)
            })?;
        }
    }
    chat.open.check()?;
    Ok(chat.messages)
}

/// The conversation so far.
#[derive(Default)]
struct Chat {
    messages: Vec<Message>,
    open: OpenCalls,
    /// Messages that wait for the results of the open calls.
    waiting: Vec<Message>,
    /// Whether the message before is the assistant's.
    after_assistant: bool,
}

impl Chat {
    fn add(
        &mut self,
        at: usize,
        message: RawMessage,
        notes: &mut Notes,
    ) -> Result<(), GatewayError> {
        match message.role {
            RawRole::System => {
                let text = system_text(at, message.content, notes)?;
                self.push(Message::text(Role::System, text));
            }
            RawRole::User => self.add_user(at, message.content, notes)?,
            RawRole::Assistant => self.add_assistant(at, message.content, notes)?,
        }
        self.after_assistant = message.role == RawRole::Assistant;
        Ok(())
    }

    /// Adds a message, or lets it wait for the results of open calls.
    fn push(&mut self, message: Message) {
        if self.open.is_complete() {
            self.messages.push(message);
        } else {
            self.waiting.push(message);
        }
    }

    fn add_user(
        &mut self,
        at: usize,
        content: Content,
        notes: &mut Notes,
    ) -> Result<(), GatewayError> {
        let mut texts = Vec::new();
        for (place, piece) in pieces(at, content, notes)? {
            match piece {
                Piece::Text(text) => texts.push(text),
                Piece::Result { id, content } => {
                    self.open.close(&id, place)?;
                    self.messages.push(Message::tool(ids::inner(&id), content));
                }
                Piece::Call { .. } | Piece::Nothing => {
                    let path = format!("{place}.type");
                    return Err(wrong(
                        path,
                        "only the assistant's messages have such blocks.",
                    ));
                }
            }
        }
        if self.open.is_complete() {
            self.messages.append(&mut self.waiting);
        }
        if !texts.is_empty() {
            self.push(Message::text(Role::User, joined(texts)));
        }
        Ok(())
    }

    fn add_assistant(
        &mut self,
        at: usize,
        content: Content,
        notes: &mut Notes,
    ) -> Result<(), GatewayError> {
        // Several messages of the assistant in a row are one turn.
        if !self.after_assistant {
            self.open.check()?;
            self.open = OpenCalls::default();
        }
        let (mut texts, mut calls) = (Vec::new(), Vec::new());
        for (place, piece) in pieces(at, content, notes)? {
            match piece {
                Piece::Text(text) => texts.push(text),
                Piece::Call { id, call } => {
                    self.open.add(at, id, place)?;
                    calls.push(call);
                }
                Piece::Result { .. } => {
                    let path = format!("{place}.type");
                    return Err(wrong(
                        path,
                        "only the user's messages have `tool_result` blocks.",
                    ));
                }
                Piece::Nothing => {}
            }
        }
        self.extend_turn(texts, calls);
        Ok(())
    }

    /// Adds to the assistant's turn. One that is left empty, because it was thinking only, is not sent.
    fn extend_turn(&mut self, texts: Vec<JsonText>, calls: Vec<ToolCall>) {
        if texts.is_empty() && calls.is_empty() {
            return;
        }
        let last = self.messages.last_mut();
        let last = last.filter(|last| self.after_assistant && last.role == Role::Assistant);
        let Some(last) = last else {
            let text = (!texts.is_empty()).then(|| joined(texts));
            self.messages.push(Message::tool_calls(text, calls));
            return;
        };
        if !texts.is_empty() {
            let all = last.content.iter().chain(&texts);
            last.content = Some(JsonText::join_lines(all));
        }
        last.tool_calls.extend(calls);
    }
}

/// The text of a system message.
fn system_text(at: usize, content: Content, notes: &mut Notes) -> Result<JsonText, GatewayError> {
    let pieces = pieces(at, content, notes)?.into_iter();
    let texts = pieces.map(|(place, piece)| {
        if let Piece::Text(text) = piece {
            return Ok(text);
        }
        let path = format!("{place}.type");
        let reason = "a system message has blocks of type `text` only.";
        Err(wrong(path, reason))
    });
    Ok(joined(texts.collect::<Result<_, _>>()?))
}

/// The blocks of a message, each with its place.
fn pieces(
    message: usize,
    content: Content,
    notes: &mut Notes,
) -> Result<Vec<(Place, Piece)>, GatewayError> {
    let place = |block| Place::Message { message, block };
    let blocks = match content {
        Content::Text(text) => return Ok(vec![(place(0), Piece::Text(text))]),
        Content::Blocks(blocks) => blocks,
    };
    if blocks.is_empty() {
        let path = format!("messages.{message}.content");
        return Err(wrong(
            path,
            "it is empty; send a text or at least one block.",
        ));
    }
    let blocks = blocks.into_iter().enumerate();
    let read = |(block, content): (usize, super::blocks::RawBlock)| {
        let place = place(block);
        Ok((place, content.read(place, notes)?))
    };
    blocks.map(read).collect()
}
