//! The bytes of responses in OpenAI's format, built once.

use std::{fmt::Write as _, sync::OnceLock};

use serde_json::{Value, json};

use crate::clock;

/// Events with contents in each stream, except held ones.
pub const EVENTS: u32 = 64;

/// Delimits the send time of an event in its contents, which arrive unchanged through any gateway.
pub const STAMP: u8 = b'~';

pub const STREAM_HEAD: &[u8] =
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncache-control: no-cache\r\ntransfer-encoding: chunked\r\n\r\n";

pub const RELEASED: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";

/// As many digits as the largest time has, so that all events have the same length.
const DIGITS: usize = 20;

/// The event of one connection; the send time is written into it each time.
pub struct Answers {
    event: Vec<u8>,
    stamp_at: usize,
}

impl Answers {
    pub fn new() -> Self {
        let blank = "0".repeat(DIGITS);
        let stamp = char::from(STAMP);
        let delta = json!({ "content": format!(" the {stamp}{blank}{stamp}") });
        let event = in_chunk(&chunk(&delta, &Value::Null));
        let stamp_at = memchr::memchr(STAMP, &event).map_or(0, |at| at + 1);
        Self { event, stamp_at }
    }

    /// The next event, stamped with the current time.
    pub fn event(&mut self) -> &[u8] {
        let mut left = clock::now();
        for digit in self.event[self.stamp_at..][..DIGITS].iter_mut().rev() {
            *digit = b'0' + (left % 10) as u8;
            left /= 10;
        }
        &self.event
    }

    /// The end of a stream: finish reason, usage, and `[DONE]`.
    pub fn stream_end() -> &'static [u8] {
        static END: OnceLock<Vec<u8>> = OnceLock::new();
        END.get_or_init(|| {
            let mut end = in_chunk(&chunk(&json!({}), &json!("stop")));
            let mut count = head_of_chunk();
            count["choices"] = json!([]);
            count["usage"] = usage();
            end.extend(in_chunk(&format!("data: {count}\n\n")));
            end.extend(in_chunk("data: [DONE]\n\n"));
            end.extend(b"0\r\n\r\n");
            end
        })
    }

    pub fn whole() -> &'static [u8] {
        static WHOLE: OnceLock<Vec<u8>> = OnceLock::new();
        WHOLE.get_or_init(|| {
            let contents = "The teeth of the curved blade are hardened, so it cannot be sharpened at home; it is \
                meant to be replaced. The longer blade fits the same handle: loosen the screw by the joint, keep \
                the washer, and wear gloves.";
            let message = json!({ "role": "assistant", "content": contents });
            let body = json!({
                "id": "chatcmpl-0123456789abcdef0123456789ab",
                "object": "chat.completion",
                "created": 1_767_225_600,
                "model": "model",
                "choices": [{ "index": 0, "message": message, "finish_reason": "stop" }],
                "usage": usage(),
            })
            .to_string();
            let mut whole = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n".to_owned();
            let _ = write!(whole, "content-length: {}\r\n\r\n{body}", body.len());
            whole.into_bytes()
        })
    }
}

fn usage() -> Value {
    json!({ "prompt_tokens": 212, "completion_tokens": 64, "total_tokens": 276 })
}

fn head_of_chunk() -> Value {
    json!({
        "id": "chatcmpl-0123456789abcdef0123456789ab",
        "object": "chat.completion.chunk",
        "created": 1_767_225_600,
        "model": "model",
    })
}

/// A server-sent event.
fn chunk(delta: &Value, finish_reason: &Value) -> String {
    let mut chunk = head_of_chunk();
    chunk["choices"] = json!([{ "index": 0, "delta": delta, "finish_reason": finish_reason }]);
    format!("data: {chunk}\n\n")
}

/// An HTTP chunk.
fn in_chunk(event: &str) -> Vec<u8> {
    format!("{:x}\r\n{event}\r\n", event.len()).into_bytes()
}
