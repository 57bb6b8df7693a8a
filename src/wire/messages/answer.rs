//! A finished message.

use super::{ids::ToolIds, input, usage};
use crate::wire::{
    chat::{Answer, Bill, FinishReason, ToolCall, Usage},
    json_text::JsonText,
    json_writer::JsonWriter,
};

/// Approximate size of a message without its texts, for allocating the buffer.
const MESSAGE_BYTES: usize = 640;

/// What is known of a message before it is written.
#[derive(Debug)]
pub(crate) struct NewMessage {
    pub id: String,
    /// The value of `X-Request-ID`, which an error event repeats.
    pub request_id: String,
    /// Whether the caller asked for edits of the context.
    pub wants_edits: bool,
}

impl NewMessage {
    /// The message up to its content.
    pub(super) fn begin(&self, model: &str, json: &mut JsonWriter) {
        json.raw("{\"id\":").string(&self.id);
        json.raw(",\"type\":\"message\",\"role\":\"assistant\",\"model\":")
            .string(model);
        json.raw(",\"content\":");
    }

    /// The message after its content.
    pub(super) fn end(&self, reason: Option<FinishReason>, used: Usage, json: &mut JsonWriter) {
        json.raw(",\"stop_reason\":");
        match reason {
            Some(reason) => json.raw("\"").raw(stop_reason(reason)).raw("\""),
            None => json.raw("null"),
        };
        json.raw(",\"stop_sequence\":null,\"usage\":");
        usage::write(used, json);
        self.edits(json);
        json.raw("}");
    }

    /// Says that the context was not edited, if the caller asked for that.
    pub(super) fn edits(&self, json: &mut JsonWriter) {
        if self.wants_edits {
            json.raw(",\"context_management\":{\"applied_edits\":[]}");
        }
    }

    /// The body of a message that is not streamed. `bill` is `None` if the provider reported no usage: it is free then,
    /// and all counts are 0, because clients need numbers.
    pub(crate) fn whole(
        &self,
        model: &str,
        answer: &Answer,
        mut ids: ToolIds,
        bill: Option<Bill>,
    ) -> Vec<u8> {
        if let Some(native) = &answer.native {
            return native.with_model(model);
        }
        let choice = answer.choices.first();
        let text = choice.and_then(|choice| choice.content.as_ref());
        let text = text.filter(|text| !text.is_empty());
        let calls = choice.map_or(&[][..], |choice| &choice.tool_calls);
        let bytes = text.map_or(0, |text| text.as_json().len());
        let mut json = JsonWriter::with_capacity(MESSAGE_BYTES + bytes);
        self.begin(model, &mut json);
        json.raw("[");
        if let Some(text) = text {
            write_text(text, &mut json);
        }
        for (at, call) in calls.iter().enumerate() {
            json.raw(if at > 0 || text.is_some() { "," } else { "" });
            write_call(call, &ids.give_out(&call.id), &mut json);
        }
        json.raw("]");
        let used = bill.unwrap_or_default().usage;
        self.end(choice.map(|choice| choice.finish), used, &mut json);
        json.into_bytes()
    }
}

fn write_text(text: &JsonText, json: &mut JsonWriter) {
    json.raw("{\"type\":\"text\",\"text\":")
        .raw(text.as_json())
        .raw("}");
}

fn write_call(call: &ToolCall, id: &str, json: &mut JsonWriter) {
    let input = input::object(&call.function.arguments.decode());
    json.raw("{\"type\":\"tool_use\",\"id\":").string(id);
    json.raw(",\"name\":").string(&call.function.name);
    json.raw(",\"input\":").raw(input.get()).raw("}");
}

/// The stop reason. Which stop sequence was reached, providers do not say, so it is never `stop_sequence`.
pub(super) fn stop_reason(reason: FinishReason) -> &'static str {
    match reason {
        FinishReason::Stop => "end_turn",
        FinishReason::Length => "max_tokens",
        FinishReason::ToolCalls => "tool_use",
        FinishReason::ContentFilter => "refusal",
    }
}
