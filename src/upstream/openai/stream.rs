//! A streamed answer: the provider's chunks → [`Part`]s.

use std::{collections::VecDeque, time::Duration};

use futures_util::Stream;
use serde::Deserialize;
use serde_json::{Value, value::RawValue};

use super::{
    client::Reply,
    words::{self, Arguments},
};
use crate::{
    error::UpstreamError,
    upstream::{Event, Part, SseReader, sse::MAX_EVENT_BYTES},
    wire::json_text::JsonText,
};

/// How long a provider that has finished may take to say so or to report its usage.
const TAIL: Duration = Duration::from_secs(5);

/// The parts of an answer of `n` choices.
pub fn parts(reply: Reply, n: u32) -> impl Stream<Item = Result<Part, UpstreamError>> + Send {
    futures_util::stream::unfold(Some(Reading::new(reply, n)), |reading| async {
        let mut reading = reading?;
        match reading.next().await {
            Ok(Some(part)) => Some((Ok(part), Some(reading))),
            Ok(None) => None,
            Err(error) => Some((Err(error), None)),
        }
    })
}

struct Reading {
    reply: Reply,
    sse: Option<SseReader>,
    chunks: Chunks,
    ready: VecDeque<Part>,
}

impl Reading {
    fn new(reply: Reply, n: u32) -> Self {
        let chunks = Chunks {
            n,
            called_tools: Vec::new(),
            finished: Vec::new(),
        };
        Self {
            reply,
            sse: Some(SseReader::default()),
            chunks,
            ready: VecDeque::new(),
        }
    }

    async fn next(&mut self) -> Result<Option<Part>, UpstreamError> {
        loop {
            if let Some(part) = self.ready.pop_front() {
                return Ok(Some(part));
            }
            let Some(sse) = &mut self.sse else {
                return Ok(None);
            };
            let event = sse
                .next_event()
                .map_err(|_| UpstreamError::TooLarge(MAX_EVENT_BYTES))?;
            if let Some(Event(data)) = event {
                self.on_event(&data)?;
            } else if let Some(bytes) = self.read().await? {
                sse_push(&mut self.sse, &bytes);
            } else if let Some(Event(data)) = self.sse.take().and_then(SseReader::finish) {
                // Half an event is what a broken connection leaves. Whether the answer was
                // complete without it is judged like any other end.
                let _ = self.on_event(&data);
            }
        }
    }

    /// More bytes; `None` when there are none to wait for.
    ///
    /// An answer that has finished is not undone by how the connection ends.
    async fn read(&mut self) -> Result<Option<bytes::Bytes>, UpstreamError> {
        if !self.chunks.all_finished() {
            return self.reply.next().await;
        }
        Ok(self.reply.next_within(TAIL).await.unwrap_or_default())
    }

    fn on_event(&mut self, data: &[u8]) -> Result<(), UpstreamError> {
        if data.trim_ascii() == b"[DONE]" {
            self.sse = None; // whatever follows is not part of the answer
            return Ok(());
        }
        if data.is_empty() {
            return Ok(());
        }
        self.chunks.read(data, &mut self.ready)
    }
}

fn sse_push(sse: &mut Option<SseReader>, bytes: &[u8]) {
    if let Some(sse) = sse {
        sse.push(bytes);
    }
}

/// What must be remembered from one chunk to the next.
struct Chunks {
    n: u32,
    /// The choices that have called a tool.
    called_tools: Vec<u32>,
    /// The choices that have ended.
    finished: Vec<u32>,
}

#[derive(Deserialize)]
struct Chunk<'a> {
    #[serde(borrow)]
    choices: Option<Vec<ChunkChoice<'a>>>,
    usage: Option<Value>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct ChunkChoice<'a> {
    index: Option<u32>,
    #[serde(borrow)]
    delta: Option<Delta<'a>>,
    finish_reason: Option<String>,
    logprobs: Option<Box<RawValue>>,
}

#[derive(Deserialize)]
struct Delta<'a> {
    content: Option<JsonText>,
    #[serde(borrow)]
    refusal: Option<&'a RawValue>,
    tool_calls: Option<Vec<ToolDelta>>,
}

#[derive(Deserialize)]
struct ToolDelta {
    index: Option<u32>,
    id: Option<String>,
    function: Option<FunctionDelta>,
}

#[derive(Deserialize)]
struct FunctionDelta {
    name: Option<String>,
    arguments: Option<Arguments>,
}

impl Chunks {
    fn all_finished(&self) -> bool {
        self.finished.len() >= self.n as usize
    }

    fn read(&mut self, data: &[u8], parts: &mut VecDeque<Part>) -> Result<(), UpstreamError> {
        let chunk: Chunk =
            serde_json::from_slice(data).map_err(|error| UpstreamError::unreadable(&error))?;
        if let Some(error) = chunk.error {
            let error = serde_json::from_str(error.get()).unwrap_or_default();
            return Err(UpstreamError::reported(&error));
        }
        for choice in chunk.choices.unwrap_or_default() {
            self.on_choice(choice, parts)?;
        }
        parts.extend(
            chunk
                .usage
                .as_ref()
                .and_then(words::read_usage)
                .map(Part::Usage),
        );
        if parts.is_empty() {
            parts.push_back(Part::Silence);
        }
        Ok(())
    }

    fn on_choice(
        &mut self,
        choice: ChunkChoice<'_>,
        parts: &mut VecDeque<Part>,
    ) -> Result<(), UpstreamError> {
        let index = choice.index.unwrap_or(0);
        let mut refused = false;
        if let Some(delta) = choice.delta {
            refused = delta.refusal.is_some_and(|text| text.get() != "\"\"");
            let logprobs = choice.logprobs.map(on_one_line);
            match delta.content {
                Some(text) if !text.is_empty() || logprobs.is_some() => {
                    parts.push_back(Part::Content {
                        choice: index,
                        text,
                        logprobs,
                    });
                }
                _ => {}
            }
            for call in delta.tool_calls.unwrap_or_default() {
                note(&mut self.called_tools, index);
                parts.push_back(tool_fragment(index, call));
            }
        }
        let called_tools = self.called_tools.contains(&index);
        let reason = words::finish_reason(choice.finish_reason.as_deref(), called_tools)?;
        if let Some(reason) = reason {
            note(&mut self.finished, index);
            parts.push_back(Part::Finish {
                choice: index,
                reason,
            });
        } else if refused {
            let reason = crate::wire::chat::FinishReason::ContentFilter;
            parts.push_back(Part::Finish {
                choice: index,
                reason,
            });
        }
        Ok(())
    }
}

/// Remembers a choice; a provider that makes up choices without end is not followed.
fn note(choices: &mut Vec<u32>, choice: u32) {
    if choices.len() < 128 && !choices.contains(&choice) {
        choices.push(choice);
    }
}

fn tool_fragment(choice: u32, call: ToolDelta) -> Part {
    let (name, arguments) = call.function.map_or((None, None), |function| {
        (
            function.name,
            function.arguments.map(|Arguments(text)| text),
        )
    });
    Part::ToolCall {
        choice,
        slot: call.index.unwrap_or(0),
        id: call.id.filter(|id| !id.is_empty()),
        name: name.filter(|name| !name.is_empty()),
        arguments: arguments.filter(|arguments| !arguments.is_empty()),
    }
}

/// The same JSON without line breaks, which would end our own event early.
fn on_one_line(raw: Box<RawValue>) -> Box<RawValue> {
    if !raw.get().contains(['\n', '\r']) {
        return raw;
    }
    let value: Value = serde_json::from_str(raw.get()).unwrap_or_default();
    serde_json::value::to_raw_value(&value).unwrap_or(raw)
}
