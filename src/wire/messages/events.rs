//! The events of a streamed message.
//!
//! A block is started, filled and stopped before the next one starts. The input is estimated at the start, because some
//! clients read it there only; the last but one event has the exact usage. There is no `[DONE]`.

use bytes::Bytes;
use serde_json::{Value, json, value::RawValue};

use super::{NativeEvent, NewMessage, answer::stop_reason, ids::ToolIds, usage};
use crate::wire::{
    chat::{Bill, FinishReason, Usage},
    error::{Envelope, REQUEST_URL},
    json_text::JsonText,
    json_writer::JsonWriter,
    stream_writer::StreamWriter,
};

/// The event that is sent while a provider is silent.
pub(crate) const PING: &[u8] = b"event: ping\ndata: {\"type\":\"ping\"}\n\n";

pub(crate) struct Events {
    message: NewMessage,
    model: String,
    ids: ToolIds,
    /// Estimated tokens of the input, for the first event.
    estimate: u32,
    /// Number of blocks started so far.
    blocks: u32,
    open: Option<Open>,
    /// Text that arrived while a tool call was open. It is written after all calls, because more of their input may
    /// follow.
    late_text: Vec<JsonText>,
    reason: FinishReason,
    /// Whether the provider's own events are relayed.
    is_native: bool,
    /// The provider's last events, which are sent once the message is charged.
    last: Vec<Bytes>,
}

/// The kind of the block that is not stopped yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Open {
    Text,
    Call,
}

impl Events {
    pub(crate) fn new(message: NewMessage, model: String, ids: ToolIds, estimate: u64) -> Self {
        Self {
            message,
            model,
            ids,
            estimate: u32::try_from(estimate).unwrap_or(u32::MAX),
            blocks: 0,
            open: None,
            late_text: Vec::new(),
            reason: FinishReason::Stop,
            is_native: false,
            last: Vec::new(),
        }
    }

    fn start_block(&mut self, kind: Open, block: &str, out: &mut Vec<Bytes>) {
        self.stop_block(out);
        let index = self.blocks;
        self.open = Some(kind);
        self.blocks += 1;
        let fields = format!("\"index\":{index},\"content_block\":{block}");
        out.push(event("content_block_start", &fields));
    }

    /// Stops the open block, if there is one.
    fn stop_block(&mut self, out: &mut Vec<Bytes>) {
        if self.open.take().is_some() {
            let fields = format!("\"index\":{}", self.blocks - 1);
            out.push(event("content_block_stop", &fields));
        }
    }

    fn delta(&self, kind: &str, field: &str, text: &JsonText, out: &mut Vec<Bytes>) {
        let (index, text) = (self.blocks.saturating_sub(1), text.as_json());
        let fields =
            format!("\"index\":{index},\"delta\":{{\"type\":\"{kind}\",\"{field}\":{text}}}");
        out.push(event("content_block_delta", &fields));
    }

    fn write_text(&mut self, text: &JsonText, out: &mut Vec<Bytes>) {
        if self.open != Some(Open::Text) {
            self.start_block(Open::Text, "{\"type\":\"text\",\"text\":\"\"}", out);
        }
        self.delta("text_delta", "text", text, out);
    }
}

fn event(kind: &str, fields: &str) -> Bytes {
    format!("event: {kind}\ndata: {{\"type\":\"{kind}\",{fields}}}\n\n").into()
}

impl StreamWriter for Events {
    fn open(&mut self, _: u32, out: &mut Vec<Bytes>) {
        if self.is_native {
            return;
        }
        let mut json = JsonWriter::with_capacity(640);
        json.raw("\"message\":");
        self.message.begin(&self.model, &mut json);
        json.raw("[]");
        let estimated = Usage {
            prompt: self.estimate,
            ..Usage::default()
        };
        self.message.end(None, estimated, &mut json);
        out.push(event("message_start", &json.into_string()));
    }

    fn content(&mut self, _: u32, text: &JsonText, _: Option<&RawValue>, out: &mut Vec<Bytes>) {
        if text.is_empty() {
            return;
        }
        if self.open == Some(Open::Call) {
            self.late_text.push(text.clone());
        } else {
            self.write_text(text, out);
        }
    }

    fn tool_call(&mut self, _: u32, _: usize, id: &str, name: &str, out: &mut Vec<Bytes>) {
        let mut json = JsonWriter::with_capacity(96);
        json.raw("{\"type\":\"tool_use\",\"id\":")
            .string(&self.ids.give_out(id));
        json.raw(",\"name\":").string(name).raw(",\"input\":{}}");
        self.start_block(Open::Call, &json.into_string(), out);
    }

    fn tool_arguments(&mut self, _: u32, _: usize, text: &JsonText, out: &mut Vec<Bytes>) {
        self.delta("input_json_delta", "partial_json", text, out);
    }

    fn close(&mut self, _: u32, reason: FinishReason, out: &mut Vec<Bytes>) {
        self.reason = reason;
        let late_text = std::mem::take(&mut self.late_text);
        if !late_text.is_empty() {
            self.write_text(&JsonText::concat(&late_text), out);
        }
        self.stop_block(out);
    }

    fn native(&mut self, event: &NativeEvent, out: &mut Vec<Bytes>) {
        self.is_native = true;
        let frame = event.frame(&self.model);
        if event.is_end() {
            self.last.push(frame);
        } else {
            out.push(frame);
        }
    }

    fn end(&mut self, bill: Option<Bill>, out: &mut Vec<Bytes>) {
        if self.is_native {
            out.append(&mut self.last);
            return;
        }
        let mut json = JsonWriter::with_capacity(400);
        json.raw("\"delta\":{\"stop_reason\":\"")
            .raw(stop_reason(self.reason))
            .raw("\",\"stop_sequence\":null},\"usage\":");
        usage::write(bill.unwrap_or_default().usage, &mut json);
        self.message.edits(&mut json);
        out.push(event("message_delta", &json.into_string()));
        out.push(Bytes::from_static(
            b"event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
        ));
    }

    fn fail(&mut self, envelope: &Envelope, out: &mut Vec<Bytes>) {
        out.push(error_event(envelope, &self.message.request_id));
    }
}

/// The last event of a failed stream.
pub(crate) fn error_event(envelope: &Envelope, request_id: &str) -> Bytes {
    let (kind, code) = match envelope.status.as_u16() {
        // What is called a type elsewhere is the code in this API.
        402 => ("billing_error", Some(envelope.kind)),
        429 => ("rate_limit_error", envelope.code.as_deref()),
        _ => ("api_error", envelope.code.as_deref()),
    };
    let mut details = envelope.extra.clone();
    let request_url = details.remove(REQUEST_URL);
    details.insert("error_code".into(), json!(code));
    // Some clients show the message alone.
    let page = details.get("billing_url").and_then(Value::as_str);
    let message = match page {
        Some(page) => format!("{} {page}", envelope.message),
        None => envelope.message.clone(),
    };
    let mut error = json!({
        "type": "error",
        "error": { "type": kind, "message": message, "details": details },
        "request_id": request_id,
    });
    if let Some(url) = request_url {
        error["error"][REQUEST_URL] = url;
    }
    format!("event: error\ndata: {error}\n\n").into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        base::{
            money::NanoUsd,
            rate::{Ceilings, Limit, Refusal, WindowOf},
        },
        wire::error::{GatewayError, Unpaid},
    };

    /// The error event of a call whose next step was refused.
    fn event_of(error: &GatewayError) -> Value {
        let event = error_event(&error.event(), "req_1");
        let event = std::str::from_utf8(&event).unwrap();
        let data = event.strip_prefix("event: error\ndata: ").unwrap();
        let event: Value = serde_json::from_str(data.strip_suffix("\n\n").unwrap()).unwrap();
        assert_eq!(event["type"], "error");
        assert_eq!(event["request_id"], "req_1");
        event["error"].clone()
    }

    #[test]
    fn a_step_that_is_refused_has_the_type_and_code_of_its_error() {
        let limited = GatewayError::RateLimited(Refusal {
            of: WindowOf::Account,
            limit: Limit::Requests,
            ceilings: Ceilings {
                requests: 1,
                tokens: 10,
            },
            requests_left: 0,
            tokens_left: 10,
            wait_ms: Some(3_000),
        });
        let event = event_of(&limited);
        assert_eq!(event["type"], "rate_limit_error");
        assert_eq!(event["details"]["error_code"], "rpm_exceeded");
        assert_eq!(event["details"]["retry_after"], 3);
        let event = event_of(&GatewayError::AdmissionLost);
        assert_eq!(event["type"], "api_error");
        let code = &event["details"]["error_code"];
        assert_eq!(code, "admission_state_unavailable");
    }

    #[test]
    fn a_step_that_is_unpaid_names_its_kind_and_the_billing_page() {
        let (zero, url) = (NanoUsd::new(0), "https://gateway.example/portal/billing");
        let event = event_of(&GatewayError::InsufficientCredits(Box::new(Unpaid {
            balance: zero,
            needed: NanoUsd::new(5),
            available: zero,
            held: zero,
            max_tokens_that_fit: None,
            is_temporary: false,
            billing_url: url.into(),
        })));
        assert_eq!(event["type"], "billing_error");
        assert_eq!(event["details"]["error_code"], "insufficient_credits");
        assert_eq!(event["details"]["billing_url"], url);
        assert!(event["message"].as_str().unwrap().contains(url), "{event}");
    }
}
