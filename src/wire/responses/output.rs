//! The output items of a response.

use serde_json::{Value, json};

use crate::wire::{
    chat::{Answer, FinishReason, ToolCall},
    json_text::JsonText,
};

/// An output item, as far as it has been received.
#[derive(Debug)]
pub(crate) struct OutputItem {
    pub id: String,
    pub kind: ItemKind,
}

#[derive(Debug)]
pub(crate) enum ItemKind {
    Message {
        text: Vec<JsonText>,
    },
    Call {
        call_id: String,
        name: String,
        arguments: Vec<JsonText>,
    },
}

/// The ID of the response's item at index `at`. It contains the response's ID, so that a reference to the item leads to
/// the stored response.
pub(crate) fn item_id(prefix: &str, response_id: &str, at: usize) -> String {
    let own = response_id.strip_prefix("resp_").unwrap_or(response_id);
    format!("{prefix}_{own}_{at}")
}

/// The ID of the response that an item belongs to.
pub(crate) fn response_of_item(item_id: &str) -> Option<String> {
    let own = item_id
        .strip_prefix("msg_")
        .or_else(|| item_id.strip_prefix("fc_"))?;
    let (own, at) = own.rsplit_once('_')?;
    at.parse::<usize>().ok()?;
    Some(format!("resp_{own}"))
}

impl OutputItem {
    pub(crate) fn message(response_id: &str, at: usize) -> Self {
        Self {
            id: item_id("msg", response_id, at),
            kind: ItemKind::Message { text: Vec::new() },
        }
    }

    pub(crate) fn call(response_id: &str, at: usize, call_id: &str, name: &str) -> Self {
        Self {
            id: item_id("fc", response_id, at),
            kind: ItemKind::Call {
                call_id: call_id.to_owned(),
                name: name.to_owned(),
                arguments: Vec::new(),
            },
        }
    }

    /// The items of a complete response: the message, then the tool calls.
    pub(crate) fn all_of(answer: &Answer, response_id: &str) -> Vec<Self> {
        let mut items = Vec::new();
        let Some(choice) = answer.choices.first() else {
            return items;
        };
        if choice.content.as_ref().is_some_and(|text| !text.is_empty()) {
            let mut message = Self::message(response_id, 0);
            message.kind = ItemKind::Message {
                text: choice.content.iter().cloned().collect(),
            };
            items.push(message);
        }
        for call in &choice.tool_calls {
            let ToolCall { id, function, .. } = call;
            let mut item = Self::call(response_id, items.len(), id, &function.name);
            if let ItemKind::Call { arguments, .. } = &mut item.kind {
                arguments.push(function.arguments.clone());
            }
            items.push(item);
        }
        items
    }

    /// The item when it is added, without content.
    pub(crate) fn in_progress(&self) -> Value {
        let id = &self.id;
        match &self.kind {
            ItemKind::Message { .. } => json!({
                "id": id, "type": "message", "role": "assistant", "status": "in_progress",
                "content": [],
            }),
            ItemKind::Call { call_id, name, .. } => json!({
                "id": id, "type": "function_call", "status": "in_progress", "call_id": call_id,
                "name": name, "arguments": "",
            }),
        }
    }

    /// The item with its content.
    pub(crate) fn done(&self, status: &str) -> Value {
        let id = &self.id;
        match &self.kind {
            ItemKind::Message { text } => json!({
                "id": id, "type": "message", "role": "assistant", "status": status,
                "content": [text_part(&JsonText::concat(text))],
            }),
            ItemKind::Call {
                call_id,
                name,
                arguments,
            } => json!({
                "id": id, "type": "function_call", "status": status, "call_id": call_id,
                "name": name, "arguments": JsonText::concat(arguments),
            }),
        }
    }
}

pub(crate) fn text_part(text: &JsonText) -> Value {
    json!({ "type": "output_text", "text": text, "annotations": [], "logprobs": [] })
}

/// All items of the finished response. If it was cut off, the last item is incomplete.
pub(crate) fn finished(items: &[OutputItem], reason: FinishReason) -> Vec<Value> {
    let last = items.len().saturating_sub(1);
    let items = items.iter().enumerate();
    let items = items.map(|(at, item)| item.done(item_status(reason, at == last)));
    items.collect()
}

pub(crate) fn item_status(reason: FinishReason, is_last: bool) -> &'static str {
    match reason {
        FinishReason::Length | FinishReason::ContentFilter if is_last => "incomplete",
        _ => "completed",
    }
}
