//! The events of a streamed response, in the order and format that official clients expect.
//!
//! An item is added, filled and closed before the next one is added; the last event has the complete response. Each
//! event is sent in one write, because some clients do not reassemble events that are split.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value, json, value::RawValue};

use super::{
    object::{Ending, NewResponse, status},
    output::{OutputItem, OutputKind, text_part},
};
use crate::wire::{
    chat::{Bill, FinishReason},
    error::{Envelope, REQUEST_URL},
    json_text::JsonText,
    stream_writer::StreamWriter,
};

pub(crate) struct Events {
    response: Arc<NewResponse>,
    sequence: u64,
    items: Vec<OutputItem>,
    /// Whether the last item is not closed yet.
    is_open: bool,
    /// Text that arrived while a tool call was open. It is written after all calls, because more of their arguments may
    /// follow.
    late_text: Vec<JsonText>,
    reason: FinishReason,
    now: fn() -> u64,
    /// When the response was complete. Read once, so that the stored response equals the one sent.
    ended_at: u64,
    stored: bool,
    /// Whether the last event and `[DONE]` are written.
    has_ended: bool,
}

impl Events {
    pub(crate) fn new(response: Arc<NewResponse>, now: fn() -> u64) -> Self {
        Self {
            stored: response.echo.store,
            response,
            sequence: 0,
            items: Vec::new(),
            is_open: false,
            late_text: Vec::new(),
            reason: FinishReason::Stop,
            now,
            ended_at: 0,
            has_ended: false,
        }
    }

    fn event(&mut self, kind: &str, fields: Value, out: &mut Vec<Bytes>) {
        let sequence = self.next_number();
        out.push(event(kind, sequence, fields));
    }

    fn next_number(&mut self) -> u64 {
        let number = self.sequence;
        self.sequence += 1;
        number
    }

    /// Writes a delta, the most frequent event, without building a JSON tree.
    fn delta(&mut self, kind: &str, text: &JsonText, tail: &str, out: &mut Vec<Bytes>) {
        let at = self.items.len() - 1;
        let number = self.next_number();
        let (id, text) = (&self.items[at].id, text.as_json());
        out.push(
            format!(
                "event: {kind}\ndata: {{\"type\":\"{kind}\",\"sequence_number\":{number},\
                 \"item_id\":\"{id}\",\"output_index\":{at},{tail}\"delta\":{text}}}\n\n"
            )
            .into(),
        );
    }

    fn add_item(&mut self, item: OutputItem, out: &mut Vec<Bytes>) {
        self.finish_item(false, out);
        let fields = json!({ "output_index": self.items.len(), "item": item.in_progress() });
        self.items.push(item);
        self.is_open = true;
        self.event("response.output_item.added", fields, out);
    }

    /// Closes the open item, if there is one.
    fn finish_item(&mut self, is_last: bool, out: &mut Vec<Bytes>) {
        if !std::mem::take(&mut self.is_open) {
            return;
        }
        let at = self.items.len() - 1;
        let item = &self.items[at];
        let id = item.id.clone();
        let status = item.status(self.reason, is_last);
        let done = json!({ "output_index": at, "item": item.done(status) });
        match &item.kind {
            OutputKind::Message { text } => {
                let text = JsonText::concat(text);
                let fields = json!({
                    "item_id": id, "output_index": at, "content_index": 0, "text": text,
                    "logprobs": [],
                });
                self.event("response.output_text.done", fields, out);
                let fields = json!({
                    "item_id": id, "output_index": at, "content_index": 0,
                    "part": text_part(&text),
                });
                self.event("response.content_part.done", fields, out);
            }
            OutputKind::Call(call) if call.is_custom() => {
                let fields = json!({ "item_id": id, "output_index": at, "input": call.text() });
                self.event("response.custom_tool_call_input.done", fields, out);
            }
            OutputKind::Call(call) => {
                let fields = json!({
                    "item_id": id, "output_index": at, "name": call.name(),
                    "arguments": call.text(),
                });
                self.event("response.function_call_arguments.done", fields, out);
            }
        }
        self.event("response.output_item.done", done, out);
    }

    /// Appends to the open message, or adds a new one.
    fn write_text(&mut self, text: &JsonText, out: &mut Vec<Bytes>) {
        if !self.is_open {
            let at = self.items.len();
            self.add_item(OutputItem::message(&self.response.id, at), out);
            let fields = json!({
                "item_id": self.items[at].id, "output_index": at, "content_index": 0,
                "part": text_part(&JsonText::new("")),
            });
            self.event("response.content_part.added", fields, out);
        }
        let tail = "\"content_index\":0,\"logprobs\":[],";
        self.delta("response.output_text.delta", text, tail, out);
        if let Some(OutputKind::Message { text: written }) =
            self.items.last_mut().map(|item| &mut item.kind)
        {
            written.push(text.clone());
        }
    }

    fn has_open_call(&self) -> bool {
        let last = self.items.last().filter(|_| self.is_open);
        last.is_some_and(|item| matches!(item.kind, OutputKind::Call(_)))
    }

    fn finished(&self, bill: Option<Bill>) -> Value {
        let ending = Ending {
            reason: self.reason,
            bill,
            at: self.ended_at,
        };
        self.response.finished(&self.items, ending, self.stored)
    }

    /// The items of a response that failed, as far as they have been sent.
    fn received(&self) -> Vec<Value> {
        let last = self.items.len().saturating_sub(1);
        let items = self.items.iter().enumerate();
        let items = items.map(|(at, item)| {
            let is_open = at == last && self.is_open;
            item.done(if is_open {
                "incomplete"
            } else {
                item.status(self.reason, at == last)
            })
        });
        items.collect()
    }
}

impl StreamWriter for Events {
    fn open(&mut self, _: u32, out: &mut Vec<Bytes>) {
        for kind in ["response.created", "response.in_progress"] {
            let fields = json!({ "response": self.response.in_progress() });
            self.event(kind, fields, out);
        }
    }

    fn content(&mut self, _: u32, text: &JsonText, _: Option<&RawValue>, out: &mut Vec<Bytes>) {
        if text.is_empty() {
            return;
        }
        if self.has_open_call() {
            self.late_text.push(text.clone());
        } else {
            self.write_text(text, out);
        }
    }

    fn tool_call(&mut self, _: u32, _: usize, id: &str, name: &str, out: &mut Vec<Bytes>) {
        let (at, response) = (self.items.len(), &self.response);
        let item = OutputItem::call(&response.id, at, id, name, &response.names);
        self.add_item(item, out);
    }

    fn tool_arguments(&mut self, _: u32, _: usize, text: &JsonText, out: &mut Vec<Bytes>) {
        let Some(OutputKind::Call(call)) = self.items.last_mut().map(|item| &mut item.kind) else {
            return;
        };
        let kind = if call.is_custom() {
            "response.custom_tool_call_input.delta"
        } else {
            "response.function_call_arguments.delta"
        };
        if let Some(text) = call.push(text) {
            self.delta(kind, &text, "", out);
        }
    }

    fn ending(&mut self, _: u32, reason: FinishReason) {
        self.reason = reason;
    }

    fn close(&mut self, _: u32, reason: FinishReason, out: &mut Vec<Bytes>) {
        self.reason = reason;
        self.ended_at = (self.now)();
        let late_text = std::mem::take(&mut self.late_text);
        if !late_text.is_empty() {
            self.finish_item(false, out);
            self.write_text(&JsonText::concat(&late_text), out);
        }
        self.finish_item(true, out);
    }

    fn to_store(&self, bill: Option<Bill>) -> Option<String> {
        let wanted = self.response.echo.store;
        wanted.then(|| self.finished(bill).to_string())
    }

    fn not_stored(&mut self) {
        self.stored = false;
    }

    /// Some clients give up on a stream without events, and do not count comments.
    fn keep_alive(&mut self) -> Option<Bytes> {
        let has_begun = self.sequence > 0;
        has_begun.then(|| event("keepalive", self.next_number(), json!({})))
    }

    fn end(&mut self, bill: Option<Bill>, out: &mut Vec<Bytes>) {
        let kind = match status(self.reason) {
            ("completed", _) => "response.completed",
            _ => "response.incomplete",
        };
        let fields = json!({ "response": self.finished(bill) });
        self.event(kind, fields, out);
        out.push(Bytes::from_static(b"data: [DONE]\n\n"));
        self.has_ended = true;
    }

    /// Each frame but `[DONE]` is an event with a number, and the numbers have no gaps.
    fn not_sent(&mut self, frames: usize) {
        let events = frames - usize::from(self.has_ended);
        self.sequence -= events as u64;
    }

    fn fail(&mut self, envelope: &Envelope, out: &mut Vec<Bytes>) {
        let (sequence, output) = (self.sequence, self.received());
        out.extend(failure_events(&self.response, envelope, sequence, &output));
        self.sequence += 2;
    }
}

/// The last two events of a failed stream. Official clients raise the first one and read no further; others wait for the
/// second one, which has the whole response.
pub(crate) fn failure_events(
    response: &NewResponse,
    envelope: &Envelope,
    sequence: u64,
    output: &[Value],
) -> [Bytes; 2] {
    let mut failed = response.failed(output, &envelope.message);
    if let Some(url) = envelope.request_url() {
        failed["error"][REQUEST_URL] = url.clone();
    }
    [
        error_event(envelope, sequence),
        event(
            "response.failed",
            sequence + 1,
            json!({ "response": failed }),
        ),
    ]
}

/// The error, twice for all clients: flat, as this API defines it, and nested in `error`, as official clients read it.
fn error_event(envelope: &Envelope, sequence: u64) -> Bytes {
    let nested: Value = serde_json::from_str(&envelope.to_json()).unwrap_or_default();
    let fields = json!({
        "code": envelope.code,
        "message": envelope.message,
        "param": envelope.param,
        "error": nested["error"],
    });
    event("error", sequence, fields)
}

/// The last event of a stream, written again from the response as it is stored.
pub(crate) fn last_event(sequence: usize, response: &str) -> String {
    #[derive(serde::Deserialize)]
    struct Stored<'a> {
        #[serde(borrow)]
        status: &'a str,
    }
    let stored = serde_json::from_str::<Stored<'_>>(response);
    let kind = match stored {
        Ok(Stored {
            status: "incomplete",
        }) => "response.incomplete",
        _ => "response.completed",
    };
    format!(
        "event: {kind}\ndata: {{\"type\":\"{kind}\",\"sequence_number\":{sequence},\"response\":{response}}}\n\n"
    )
}

/// Writes an event whose fields are an object.
fn event(kind: &str, sequence: u64, mut fields: Value) -> Bytes {
    if let Some(fields) = fields.as_object_mut() {
        fields.shift_insert(0, "type".into(), kind.into());
        fields.shift_insert(1, "sequence_number".into(), sequence.into());
    }
    format!("event: {kind}\ndata: {fields}\n\n").into()
}
