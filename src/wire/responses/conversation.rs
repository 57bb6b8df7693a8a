//! The messages that items become.

use std::collections::HashMap;

use super::{
    input::{Item, ItemKind},
    tool_names::ToolNames,
};
use crate::wire::{
    chat::{Message, Role, ToolCall},
    json_text::JsonText,
};

/// Appends the items, as messages, to an earlier conversation. References have been resolved before. Tools that are
/// called and were not offered get their names here.
///
/// Adjacent texts and calls of the assistant become one message, because the outputs of its calls must follow it
/// directly. Several outputs of one call become one message: programs report while they run.
pub(crate) fn conversation(
    messages: Vec<Message>,
    items: Vec<Item>,
    names: &mut ToolNames,
) -> Vec<Message> {
    let mut builder = Builder::after(messages);
    for item in items {
        builder.add(item.kind, names);
    }
    builder.finish()
}

struct Builder {
    messages: Vec<Message>,
    /// Assistant texts that follow the calls of the last message.
    late_texts: Vec<JsonText>,
    /// System messages that came between calls and their outputs. Their place does not matter: all of them come first
    /// in the end.
    system: Vec<Message>,
    calls: HashMap<String, CallState>,
    /// Further outputs of a call, with the index of the message that has its first one.
    further_outputs: Vec<(usize, JsonText)>,
}

/// The calls with one ID.
#[derive(Default)]
struct CallState {
    /// How many have no output yet.
    open: usize,
    /// The index of the last message with an output.
    output: Option<usize>,
}

impl Builder {
    fn after(messages: Vec<Message>) -> Self {
        let mut builder = Self {
            messages: Vec::with_capacity(messages.len()),
            late_texts: Vec::new(),
            system: Vec::new(),
            calls: HashMap::new(),
            further_outputs: Vec::new(),
        };
        for message in &messages {
            for call in &message.tool_calls {
                builder.open_call(&call.id);
            }
        }
        for (at, message) in messages.iter().enumerate() {
            let state = message.tool_call_id.as_ref();
            if let Some(state) = state.and_then(|id| builder.calls.get_mut(id)) {
                state.open = state.open.saturating_sub(1);
                state.output = Some(at);
            }
        }
        builder.messages = messages;
        builder
    }

    fn open_call(&mut self, id: &str) {
        self.calls.entry(id.to_owned()).or_default().open += 1;
    }

    fn add(&mut self, item: ItemKind, names: &mut ToolNames) {
        match item {
            ItemKind::Call(call) => {
                self.open_call(&call.id);
                let name = names.add_called(call.tool);
                let call = ToolCall::new(call.id, name, call.arguments);
                match self.messages.last_mut() {
                    Some(last) if last.role == Role::Assistant => last.tool_calls.push(call),
                    _ => self.push(Message::tool_calls(None, vec![call])),
                }
            }
            ItemKind::Message(message) if message.role == Role::System && self.is_in_turn() => {
                self.system.push(message);
            }
            ItemKind::Message(message)
                if message.role == Role::Assistant && self.ends_with_calls() =>
            {
                self.late_texts.extend(message.content);
            }
            ItemKind::Message(message) => self.push(message),
            ItemKind::Output { call_id, text } => self.add_output(call_id, text),
            ItemKind::Reference | ItemKind::Tools(_) | ItemKind::Ignored => {}
        }
    }

    fn add_output(&mut self, call_id: String, text: JsonText) {
        let next = self.messages.len();
        if let Some(state) = self.calls.get_mut(&call_id) {
            if let Some(first) = state.output.filter(|_| state.open == 0) {
                self.further_outputs.push((first, text));
                return;
            }
            state.open = state.open.saturating_sub(1);
            state.output = Some(next);
        }
        self.append_late_texts();
        self.messages.push(Message::tool(call_id, text));
    }

    /// Adds a message that is not part of the turn before it.
    fn push(&mut self, message: Message) {
        self.append_late_texts();
        self.messages.append(&mut self.system);
        self.messages.push(message);
    }

    fn ends_with_calls(&self) -> bool {
        let last = self.messages.last();
        last.is_some_and(|last| last.role == Role::Assistant && !last.tool_calls.is_empty())
    }

    /// Whether outputs of the last calls may follow.
    fn is_in_turn(&self) -> bool {
        let last = self.messages.last();
        self.ends_with_calls() || last.is_some_and(|last| last.role == Role::Tool)
    }

    /// Appends the texts to the message with the calls, all at once: one by one, a long turn would be copied for each
    /// text.
    fn append_late_texts(&mut self) {
        let texts = std::mem::take(&mut self.late_texts);
        if let Some(last) = self.messages.last_mut().filter(|_| !texts.is_empty()) {
            last.content = Some(JsonText::join_lines(last.content.iter().chain(&texts)));
        }
    }

    fn finish(mut self) -> Vec<Message> {
        self.append_late_texts();
        self.messages.append(&mut self.system);
        // Stable, so that the outputs of a call stay in their order.
        self.further_outputs.sort_by_key(|(at, _)| *at);
        for outputs in self.further_outputs.chunk_by(|one, next| one.0 == next.0) {
            let message = &mut self.messages[outputs[0].0];
            let further = outputs.iter().map(|(_, text)| text);
            message.content = Some(JsonText::join_lines(message.content.iter().chain(further)));
        }
        self.messages
    }
}
