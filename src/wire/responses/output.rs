//! The output items of a response.

use serde::de::IgnoredAny;
use serde_json::{Value, json};

use super::{
    custom_input::InputReader,
    tool_names::{CallerTool, ToolKind, ToolNames},
};
use crate::wire::{
    chat::{Answer, FinishReason, ToolCall},
    json_text::JsonText,
};

/// An output item, as far as it has been received.
#[derive(Debug)]
pub(crate) struct OutputItem {
    pub id: String,
    pub kind: OutputKind,
}

#[derive(Debug)]
pub(crate) enum OutputKind {
    Message { text: Vec<JsonText> },
    Call(OutputCall),
}

/// A call of a tool, in the caller's terms.
#[derive(Debug)]
pub(crate) struct OutputCall {
    call_id: String,
    tool: CallerTool,
    /// The arguments of a function, or the input of a custom tool.
    text: Vec<JsonText>,
    /// Reads the input of a custom tool.
    reader: Option<InputReader>,
}

const PREFIXES: [&str; 3] = ["msg_", "fc_", "ctc_"];

/// The ID of the response's item at index `at`. It contains the response's ID, so that a reference to the item leads to
/// the stored response.
pub(crate) fn item_id(prefix: &str, response_id: &str, at: usize) -> String {
    let own = response_id.strip_prefix("resp_").unwrap_or(response_id);
    format!("{prefix}_{own}_{at}")
}

/// The ID of the response that an item belongs to.
pub(crate) fn response_of_item(item_id: &str) -> Option<String> {
    let mut prefixes = PREFIXES.iter();
    let own = prefixes.find_map(|prefix| item_id.strip_prefix(prefix))?;
    let (own, at) = own.rsplit_once('_')?;
    at.parse::<usize>().ok()?;
    Some(format!("resp_{own}"))
}

impl OutputItem {
    pub(crate) fn message(response_id: &str, at: usize) -> Self {
        Self {
            id: item_id("msg", response_id, at),
            kind: OutputKind::Message { text: Vec::new() },
        }
    }

    /// A call of the tool that the provider calls by `name`.
    pub(crate) fn call(
        response_id: &str,
        at: usize,
        call_id: &str,
        name: &str,
        names: &ToolNames,
    ) -> Self {
        let tool = names.tool(name);
        let (prefix, reader) = match tool.kind {
            ToolKind::Function => ("fc", None),
            ToolKind::Custom => ("ctc", Some(InputReader::default())),
        };
        Self {
            id: item_id(prefix, response_id, at),
            kind: OutputKind::Call(OutputCall {
                call_id: call_id.to_owned(),
                tool,
                text: Vec::new(),
                reader,
            }),
        }
    }

    /// The items of a complete response: the message, then the tool calls.
    pub(crate) fn all_of(answer: &Answer, response_id: &str, names: &ToolNames) -> Vec<Self> {
        let mut items = Vec::new();
        let Some(choice) = answer.choices.first() else {
            return items;
        };
        if choice.content.as_ref().is_some_and(|text| !text.is_empty()) {
            let mut message = Self::message(response_id, 0);
            message.kind = OutputKind::Message {
                text: choice.content.iter().cloned().collect(),
            };
            items.push(message);
        }
        for ToolCall { id, function, .. } in &choice.tool_calls {
            let mut item = Self::call(response_id, items.len(), id, &function.name, names);
            if let OutputKind::Call(call) = &mut item.kind {
                call.push(&function.arguments);
            }
            items.push(item);
        }
        items
    }

    /// The item when it is added, without content.
    pub(crate) fn in_progress(&self) -> Value {
        let id = &self.id;
        match &self.kind {
            OutputKind::Message { .. } => json!({
                "id": id, "type": "message", "role": "assistant", "status": "in_progress",
                "content": [],
            }),
            OutputKind::Call(call) => call.object(id, "in_progress", &JsonText::new("")),
        }
    }

    /// The item with its content.
    pub(crate) fn done(&self, status: &str) -> Value {
        let id = &self.id;
        match &self.kind {
            OutputKind::Message { text } => json!({
                "id": id, "type": "message", "role": "assistant", "status": status,
                "content": [text_part(&JsonText::concat(text))],
            }),
            OutputKind::Call(call) => call.object(id, status, &call.text()),
        }
    }

    /// The status of an item that is done, given why the response ended. A response that was cut off may have cut off
    /// the last item, and calls that were made at the same time.
    pub(crate) fn status(&self, reason: FinishReason, is_last: bool) -> &'static str {
        let is_cut = matches!(reason, FinishReason::Length | FinishReason::ContentFilter);
        let is_whole = || match &self.kind {
            OutputKind::Message { .. } => true,
            OutputKind::Call(call) => call.is_whole(),
        };
        if is_cut && (is_last || !is_whole()) {
            "incomplete"
        } else {
            "completed"
        }
    }
}

impl OutputCall {
    pub(crate) fn is_custom(&self) -> bool {
        self.tool.kind == ToolKind::Custom
    }

    pub(crate) fn name(&self) -> &str {
        &self.tool.name
    }

    /// The arguments, or the input, so far.
    pub(crate) fn text(&self) -> JsonText {
        JsonText::concat(&self.text)
    }

    /// Adds a piece of the arguments; returns what it adds for the caller, if anything.
    pub(crate) fn push(&mut self, arguments: &JsonText) -> Option<JsonText> {
        let text = match &mut self.reader {
            None => arguments.clone(),
            Some(reader) => {
                let mut input = String::new();
                reader.push(&arguments.text(), &mut input);
                if input.is_empty() {
                    return None;
                }
                JsonText::new(&input)
            }
        };
        self.text.push(text.clone());
        Some(text)
    }

    /// Whether all of its arguments have arrived.
    fn is_whole(&self) -> bool {
        let is_json = || serde_json::from_str::<IgnoredAny>(&self.text().text()).is_ok();
        match &self.reader {
            Some(reader) => reader.is_closed() || (reader.has_other_form() && is_json()),
            None => is_json(),
        }
    }

    fn object(&self, id: &str, status: &str, text: &JsonText) -> Value {
        let (kind, field) = if self.is_custom() {
            ("custom_tool_call", "input")
        } else {
            ("function_call", "arguments")
        };
        let mut object = json!({
            "id": id, "type": kind, "status": status, "call_id": self.call_id, "name": self.tool.name,
            field: text,
        });
        if let Some(namespace) = &self.tool.namespace {
            object["namespace"] = namespace.as_str().into();
        }
        object
    }
}

pub(crate) fn text_part(text: &JsonText) -> Value {
    json!({ "type": "output_text", "text": text, "annotations": [], "logprobs": [] })
}

/// All items of the finished response.
pub(crate) fn finished(items: &[OutputItem], reason: FinishReason) -> Vec<Value> {
    let last = items.len().saturating_sub(1);
    let items = items.iter().enumerate();
    let items = items.map(|(at, item)| item.done(item.status(reason, at == last)));
    items.collect()
}
