//! Fuzzing: properties that must hold for any bytes, and a driver that mutates a corpus of recorded messages.
//!
//! It exists in tests and with the feature `fuzzing` only. The corpus is in `fuzz/corpus`, a folder for each target.
//! Tests run each target on its corpus and on some thousand mutations; `make fuzz` runs them for as long as wanted, and
//! cargo-fuzz runs the same functions with the coverage of a nightly compiler. A property that does not hold panics, and
//! the driver prints the input.
//!
//! It may use every room; it uses `upstream`, `net` and `base`.

mod driver;
#[cfg(test)]
mod tests;

pub use driver::{Report, Until, run};

use crate::{net::http1::codec::fuzz_targets as codec, upstream::fuzz_targets as upstream};

/// A property of any bytes.
#[derive(Clone, Copy)]
pub struct Target {
    /// Its name, which is that of its folder in the corpus.
    pub name: &'static str,
    /// Panics if the property does not hold. Returns a number that stands for what was found in the bytes.
    pub check: fn(&[u8]) -> u64,
    /// Words that change the meaning of such bytes.
    dictionary: &'static [&'static [u8]],
    /// Folders with fixtures of other tests, which are inputs too.
    fixtures: &'static [&'static str],
}

impl std::fmt::Debug for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

/// All targets.
pub const TARGETS: [Target; 9] = [
    Target {
        name: "requests",
        check: codec::requests,
        dictionary: HTTP,
        fixtures: &[],
    },
    Target {
        name: "responses",
        check: codec::responses,
        dictionary: HTTP,
        fixtures: &[],
    },
    Target {
        name: "chunks",
        check: codec::chunks,
        dictionary: CHUNKS,
        fixtures: &[],
    },
    Target {
        name: "sse",
        check: upstream::sse,
        dictionary: SSE,
        fixtures: &["src/upstream/openai/fixtures/streams"],
    },
    Target {
        name: "eventstream",
        check: upstream::event_stream,
        dictionary: EVENT_STREAM,
        fixtures: &[],
    },
    Target {
        name: "streams",
        check: upstream::streams,
        dictionary: JSON,
        fixtures: &[
            "src/upstream/openai/fixtures/streams",
            "src/upstream/anthropic/fixtures/streams",
            "src/upstream/gemini/fixtures/streams",
        ],
    },
    Target {
        name: "answers",
        check: upstream::answers,
        dictionary: JSON,
        fixtures: &[
            "src/upstream/openai/fixtures/answers",
            "src/upstream/anthropic/fixtures/answers",
            "src/upstream/gemini/fixtures/answers",
        ],
    },
    Target {
        name: "chat_requests",
        check: upstream::chat_requests,
        dictionary: JSON,
        fixtures: &[
            "src/upstream/openai/fixtures/requests",
            "src/upstream/anthropic/fixtures/requests",
            "src/upstream/gemini/fixtures/requests",
        ],
    },
    Target {
        name: "responses_requests",
        check: upstream::responses_requests,
        dictionary: JSON,
        fixtures: &[],
    },
];

/// Runs one target on one input; for cargo-fuzz.
///
/// Panics if the property does not hold, or if there is no such target.
pub fn check(name: &str, bytes: &[u8]) {
    let target = TARGETS.iter().find(|target| target.name == name);
    (target.expect("a target of this name").check)(bytes);
}

const HTTP: &[&[u8]] = &[
    b"\r\n",
    b"\r\n\r\n",
    b"\n",
    b"\r",
    b"\0",
    b" ",
    b"\t",
    b":",
    b",",
    b"\xe9",
    b"HTTP/1.0",
    b"HTTP/1.1",
    b"HTTP/1.1 100 Continue\r\n\r\n",
    b"HTTP/1.1 204 No Content\r\n",
    b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
    b"Host: a\r\n",
    b"Content-Length: 5\r\n",
    b"Content-Length: 0\r\n",
    b"Content-Length: 18446744073709551615\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"Transfer-Encoding: gzip, chunked\r\n",
    b"Connection: close\r\n",
    b"Connection: keep-alive\r\n",
    b"Expect: 100-continue\r\n",
    b"0\r\n\r\n",
    b"5\r\nhello\r\n",
    b"FFFFFFFFFFFFFFFF\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
];

const CHUNKS: &[&[u8]] = &[
    b"\r\n",
    b"\n",
    b"\r",
    b";",
    b" ",
    b"0",
    b"0\r\n\r\n",
    b"0\r\na: b\r\n\r\n",
    b"5\r\nhello\r\n",
    b"1;name=\"value\"\r\nx\r\n",
    b"FFFFFFFFFFFFFFFF",
    b"10000000000000000",
    b"0x",
    b"-1",
    b":",
];

const SSE: &[&[u8]] = &[
    b"data:",
    b"data: ",
    b"data",
    b"event: x\n",
    b"id: 1\n",
    b"retry: 3\n",
    b": ping\n",
    b"\n",
    b"\r",
    b"\r\n",
    b"\n\n",
    b"\r\n\r\n",
    b"\xef\xbb\xbf",
    b"data: [DONE]\n\n",
    b"data: {}\n\n",
    b"\0",
];

const EVENT_STREAM: &[&[u8]] = &[
    b"\x0d:message-type\x07\x00\x05event",
    b"\x0d:message-type\x07\x00\x09exception",
    b"\x0b:event-type\x07\x00\x05chunk",
    b"\x0f:exception-type\x07\x00\x13throttlingException",
    b"{\"bytes\":\"e30=\"}",
    b"\x00\x00\x00\x10\x00\x00\x00\x00\x05\xc2\x48\xeb\x7d\x98\xc8\xff",
    b"\x00\x00\x00\x00",
    b"\xff\xff\xff\xff",
    b"\x07\x00\x01",
    b"\x06\xff\xff",
    b"\x09",
];

const JSON: &[&[u8]] = &[
    b"{}",
    b"[]",
    b"null",
    b"true",
    b"0",
    b"-1",
    b"1e999",
    b"1.5",
    b"18446744073709551616",
    b"\"\"",
    b"\"\\ud83d\"",
    b"\"\\ud83d\\ude00\"",
    b"\"\\u0000\"",
    b"\\n",
    b"\\",
    b"\"",
    b",",
    b":",
    b"{\"a\":1}",
    b"\n",
    b"\r\n",
    b"\xe2\x80\xa8",
    b"data: ",
    b"data: [DONE]\n\n",
    b"\n\n",
    b"\"index\":1",
    b"\"finish_reason\":\"stop\"",
    b"\"tool_calls\"",
    b"\"arguments\":\"{}\"",
    b"\"content\":null",
    b"\"usage\":null",
    b"\"logprobs\":{\"content\":[]}",
    b"\"stream\":true",
    b"\"role\":\"tool\"",
    b"\"type\":\"message_stop\"",
    b"\"finishReason\":\"STOP\"",
];
