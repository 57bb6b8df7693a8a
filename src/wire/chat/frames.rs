//! The frames of a streamed answer (SPEC §2.6): one `data:` event each, written without a tree.

use bytes::{BufMut as _, Bytes, BytesMut};
use serde_json::value::RawValue;

use super::{FinishReason, Usage};
use crate::{error::Envelope, wire::json_text::JsonText};

/// Writes the frames of one answer: what they have in common is written once.
#[derive(Debug)]
pub struct Frames {
    /// `data: {"id":…,"object":…,"created":…,"model":…,"choices":[`
    opening: String,
}

impl Frames {
    pub fn new(id: &str, created: u64, model: &str) -> Self {
        let quoted = |text: &str| serde_json::to_string(text).expect("a string serialises");
        let (id, model) = (quoted(id), quoted(model));
        let object = "chat.completion.chunk";
        Self {
            opening: format!(
                r#"data: {{"id":{id},"object":"{object}","created":{created},"model":{model},"choices":["#
            ),
        }
    }

    pub fn role(&self, choice: u32) -> Bytes {
        self.delta(choice, &[r#""role":"assistant","content":"""#], None, None)
    }

    pub fn content(&self, choice: u32, text: &JsonText, logprobs: Option<&RawValue>) -> Bytes {
        self.delta(choice, &[r#""content":"#, text.as_json()], logprobs, None)
    }

    /// The first fragment of a tool call: the only one with its ID and name.
    pub fn tool_call(&self, choice: u32, index: usize, id: &str, name: &str) -> Bytes {
        let (id, name) = (JsonText::new(id), JsonText::new(name));
        let fragment = format!(
            r#"{{"index":{index},"id":{},"type":"function","function":{{"name":{},"arguments":""}}}}"#,
            id.as_json(),
            name.as_json(),
        );
        self.delta(choice, &[r#""tool_calls":["#, &fragment, "]"], None, None)
    }

    pub fn tool_arguments(&self, choice: u32, index: usize, arguments: &JsonText) -> Bytes {
        let opening = format!(r#"{{"index":{index},"function":{{"arguments":"#);
        let parts = [r#""tool_calls":["#, &opening, arguments.as_json(), "}}]"];
        self.delta(choice, &parts, None, None)
    }

    pub fn terminal(&self, choice: u32, reason: FinishReason) -> Bytes {
        self.delta(choice, &[], None, Some(reason))
    }

    /// The frame without choices that brings the usage, for callers who asked for it.
    pub fn usage(&self, usage: Usage, show_cached: bool) -> Bytes {
        let usage = usage.to_json(show_cached);
        let mut frame = BytesMut::with_capacity(self.opening.len() + usage.len() + 16);
        frame.put_slice(self.opening.as_bytes());
        frame.put_slice(b"],\"usage\":");
        frame.put_slice(usage.as_bytes());
        frame.put_slice(b"}\n\n");
        frame.freeze()
    }

    pub fn done() -> Bytes {
        Bytes::from_static(b"data: [DONE]\n\n")
    }

    /// The last event of an answer that failed after its head was sent.
    pub fn error(envelope: &Envelope) -> Bytes {
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

fn put_number(frame: &mut BytesMut, number: u32) {
    use std::fmt::Write as _;
    write!(frame, "{number}").expect("a buffer that grows takes any number");
}
