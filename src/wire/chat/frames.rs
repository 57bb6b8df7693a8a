//! The frames of a streamed chat completion (§2.6): one `data:` event each, written without building a JSON tree.

use bytes::{BufMut as _, Bytes, BytesMut};
use serde_json::value::RawValue;

use super::{Bill, FinishReason};
use crate::wire::{error::Envelope, json_text::JsonText, stream_writer::StreamWriter};

/// Writes the frames of one streamed chat completion. Their common beginning is formatted once.
#[derive(Debug)]
pub(crate) struct Frames {
    /// `data: {"id":…,"object":…,"created":…,"model":…,"choices":[`
    opening: String,
    usage: ShowUsage,
}

/// Which usage a stream shows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ShowUsage {
    /// Whether the caller wants the usage frame (`stream_options.include_usage`).
    pub at_all: bool,
    /// Whether the model advertises prompt caching.
    pub cached: bool,
}

impl Frames {
    pub(crate) fn new(id: &str, created: u64, model: &str, usage: ShowUsage) -> Self {
        let quoted = |text: &str| serde_json::to_string(text).expect("a string serialises");
        let (id, model) = (quoted(id), quoted(model));
        let object = "chat.completion.chunk";
        Self {
            opening: format!(
                r#"data: {{"id":{id},"object":"{object}","created":{created},"model":{model},"choices":["#
            ),
            usage,
        }
    }

    /// The frame with the usage; it has no choices.
    fn usage(&self, bill: Bill) -> Bytes {
        let usage = bill.to_json(self.usage.cached);
        let mut frame = BytesMut::with_capacity(self.opening.len() + usage.len() + 16);
        frame.put_slice(self.opening.as_bytes());
        frame.put_slice(b"],\"usage\":");
        frame.put_slice(usage.as_bytes());
        frame.put_slice(b"}\n\n");
        frame.freeze()
    }

    /// The last event of a response that failed after its head was sent.
    pub(crate) fn error(envelope: &Envelope) -> Bytes {
        format!("data: {}\n\n", envelope.to_json()).into()
    }

    fn delta(
        &self,
        choice: u32,
        fields: &[&str],
        logprobs: Option<&RawValue>,
        finish: Option<FinishReason>,
    ) -> Bytes {
        let size: usize = fields.iter().map(|field| field.len()).sum();
        let mut frame = BytesMut::with_capacity(self.opening.len() + size + 96);
        frame.put_slice(self.opening.as_bytes());
        frame.put_slice(b"{\"index\":");
        put_number(&mut frame, choice);
        frame.put_slice(b",\"delta\":{");
        for field in fields {
            frame.put_slice(field.as_bytes());
        }
        frame.put_slice(b"}");
        if let Some(logprobs) = logprobs {
            frame.put_slice(b",\"logprobs\":");
            frame.put_slice(logprobs.get().as_bytes());
        }
        frame.put_slice(b",\"finish_reason\":");
        match finish {
            None => frame.put_slice(b"null"),
            Some(reason) => {
                frame.put_slice(b"\"");
                frame.put_slice(reason.as_str().as_bytes());
                frame.put_slice(b"\"");
            }
        }
        frame.put_slice(b"}]}\n\n");
        frame.freeze()
    }
}

impl StreamWriter for Frames {
    fn open(&mut self, choice: u32, out: &mut Vec<Bytes>) {
        out.push(self.delta(choice, &[r#""role":"assistant","content":"""#], None, None));
    }

    fn content(
        &mut self,
        choice: u32,
        text: &JsonText,
        logprobs: Option<&RawValue>,
        out: &mut Vec<Bytes>,
    ) {
        let fields = [r#""content":"#, text.as_json()];
        out.push(self.delta(choice, &fields, logprobs, None));
    }

    /// The first fragment of a call, the only one with its ID and name.
    fn tool_call(
        &mut self,
        choice: u32,
        number: usize,
        id: &str,
        name: &str,
        out: &mut Vec<Bytes>,
    ) {
        let (id, name) = (JsonText::new(id), JsonText::new(name));
        let fragment = format!(
            r#"{{"index":{number},"id":{},"type":"function","function":{{"name":{},"arguments":""}}}}"#,
            id.as_json(),
            name.as_json(),
        );
        let fields = [r#""tool_calls":["#, &fragment, "]"];
        out.push(self.delta(choice, &fields, None, None));
    }

    fn tool_arguments(
        &mut self,
        choice: u32,
        number: usize,
        arguments: &JsonText,
        out: &mut Vec<Bytes>,
    ) {
        let opening = format!(r#"{{"index":{number},"function":{{"arguments":"#);
        let fields = [r#""tool_calls":["#, &opening, arguments.as_json(), "}}]"];
        out.push(self.delta(choice, &fields, None, None));
    }

    fn close(&mut self, choice: u32, reason: FinishReason, out: &mut Vec<Bytes>) {
        out.push(self.delta(choice, &[], None, Some(reason)));
    }

    fn end(&mut self, bill: Option<Bill>, out: &mut Vec<Bytes>) {
        if let Some(bill) = bill.filter(|_| self.usage.at_all) {
            out.push(self.usage(bill));
        }
        out.push(Bytes::from_static(b"data: [DONE]\n\n"));
    }

    fn fail(&mut self, envelope: &Envelope, out: &mut Vec<Bytes>) {
        out.push(Self::error(envelope));
    }
}

fn put_number(frame: &mut BytesMut, number: u32) {
    frame.put_slice(itoa::Buffer::new().format(number).as_bytes());
}
