//! Properties of the adapters and of the writers behind them that hold for any bytes. They panic if one does not hold.
//!
//! Each returns a number that stands for what was found in the bytes, so that the driver can keep inputs that show it
//! something new.

use std::{collections::VecDeque, sync::Arc};

use bytes::Bytes;
use serde::de::IgnoredAny;
use serde_json::Value;

use super::{
    anthropic,
    eventstream::{self, Message, MessageError, MessageReader},
    gemini, openai,
    sse::{Event, SseReader},
    stream::{AfterEvent, Framing as _, Translator},
};
use crate::{
    base::{money::NanoUsd, mutation::Random},
    catalog::Catalog,
    prompt::{self, Additions, ChatCall, Route},
    wire::{
        chat::{Answer, Bill, ChatRequest, Frames, Role, ShowUsage},
        json_text::JsonText,
        part::{self, Part},
        responses::{Events, NewResponse, ResponsesRequest, conversation},
        stream_normalizer::StreamNormalizer,
        stream_writer::StreamWriter,
    },
};

/// How many choices are requested.
const CHOICES: u32 = 2;

/// The events in the bytes: how they are split makes no difference, and a reader by the letter of the WHATWG standard
/// finds them too.
pub(crate) fn sse(bytes: &[u8]) -> u64 {
    let whole = read_events(&[bytes]);
    let split = read_events(&Random::of(bytes).pieces(bytes));
    assert_eq!(whole, split, "{}", bytes.escape_ascii());
    let Some(events) = whole else {
        return 1;
    };
    assert_eq!(
        events,
        events_by_the_standard(bytes),
        "{}",
        bytes.escape_ascii()
    );
    let length = events.last().map_or(0, Vec::len).ilog2_or_zero();
    (events.len() as u64) << 8 | length
}

/// All events, with the last one even if its blank line is missing; `None` if one is too long.
fn read_events(pieces: &[&[u8]]) -> Option<Vec<Vec<u8>>> {
    let (mut reader, mut events) = (SseReader::default(), Vec::new());
    for piece in pieces {
        reader.push(piece);
        while let Some(Event(data)) = reader.next_event().ok()? {
            events.push(data);
        }
    }
    events.extend(reader.finish().map(|Event(data)| data));
    Some(events)
}

/// Reads an event stream as section 9.2.6 of the HTML standard describes it, line by line, except that the last event
/// needs no blank line.
fn events_by_the_standard(bytes: &[u8]) -> Vec<Vec<u8>> {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    // Each way to end a line becomes a line feed, and blank lines end the last event.
    let mut text = Vec::new();
    let mut previous = 0;
    for byte in bytes.iter().chain(b"\n\n") {
        match (previous, *byte) {
            (b'\r', b'\n') => {}
            (_, b'\r') => text.push(b'\n'),
            (_, byte) => text.push(byte),
        }
        previous = *byte;
    }
    text.push(b'\n'); // the first of the blank lines may have completed a CR
    let (mut events, mut data) = (Vec::new(), Vec::new());
    for line in text.split(|byte| *byte == b'\n') {
        if line.is_empty() {
            if data.pop().is_some() {
                events.push(std::mem::take(&mut data));
            }
            continue;
        }
        let colon = line.iter().position(|byte| *byte == b':');
        let (field, value) = match colon {
            Some(0) => continue,
            Some(colon) => (&line[..colon], &line[colon + 1..]),
            None => (line, &b""[..]),
        };
        if field == b"data" {
            data.extend_from_slice(value.strip_prefix(b" ").unwrap_or(value));
            data.push(b'\n');
        }
    }
    events
}

/// The messages in a binary stream of AWS: how it is split makes no difference. Mutations rarely leave a checksum right,
/// so the bytes are also read as headers and payload of a message that is sealed here.
pub(crate) fn event_stream(bytes: &[u8]) -> u64 {
    let whole = read_messages(&[bytes]);
    let split = read_messages(&Random::of(bytes).pieces(bytes));
    assert_eq!(whole, split, "{}", bytes.escape_ascii());
    let (length, rest) = bytes.split_first().unwrap_or((&0, bytes));
    let (headers, payload) = rest.split_at(rest.len().min(usize::from(*length)));
    let sealed = eventstream::seal(headers, payload);
    let (messages, error) = read_messages(&[&sealed, &sealed]);
    let is_read = error.is_none();
    assert_eq!(messages.len(), if is_read { 2 } else { 0 });
    assert!(messages.iter().all(|message| message.payload == payload));
    let mut frames = anthropic::BedrockFrames::default();
    frames.push(&sealed);
    let event = frames.next_event();
    let found = match &event {
        Ok(Some(_)) => 3,
        Ok(None) => 2,
        Err(_) => u64::from(is_read),
    };
    (whole.0.len().ilog2_or_zero()) << 8 | found << 4 | u64::from(whole.1.is_some())
}

fn read_messages(pieces: &[&[u8]]) -> (Vec<Message>, Option<MessageError>) {
    let (mut reader, mut messages) = (MessageReader::default(), Vec::new());
    for piece in pieces {
        reader.push(piece);
        loop {
            match reader.next_message() {
                Ok(Some(message)) => messages.push(message),
                Ok(None) => break,
                Err(error) => return (messages, Some(error)),
            }
        }
    }
    (messages, None)
}

/// A provider's stream, read by every adapter: whatever it holds, each frame for the caller is one event of valid JSON.
pub(crate) fn streams(bytes: &[u8]) -> u64 {
    let outcomes = [
        stream(openai::translator(CHOICES), bytes),
        stream(anthropic::translator(), bytes),
        stream(gemini::translator(CHOICES), bytes),
    ];
    outcomes
        .into_iter()
        .fold(0, |all, outcome| all << 20 | outcome)
}

fn stream(mut translator: impl Translator, bytes: &[u8]) -> u64 {
    let mut sse = SseReader::default();
    sse.push(bytes);
    let mut parts = VecDeque::new();
    while let Ok(Some(Event(data))) = sse.next_event() {
        match translator.on_event(&data, &mut parts) {
            Ok(AfterEvent::Continue) => {}
            Ok(AfterEvent::End) | Err(_) => break,
        }
    }
    let usage = ShowUsage {
        at_all: true,
        cached: true,
    };
    let chat = written(Frames::new("id", 1, "model", usage), &parts);
    let events = written(Events::new(new_response(), || 1), &parts);
    (chat & 0x3ff) << 10 | (events & 0x3ff)
}

/// Writes the parts in one of the formats and checks every frame; returns the number of frames and whether the stream
/// was complete.
fn written(writer: impl StreamWriter, parts: &VecDeque<Part>) -> u64 {
    let mut normalizer = StreamNormalizer::new(writer, CHOICES);
    let mut is_complete = true;
    for part in parts {
        is_complete &= normalizer.on_part(part.clone()).is_ok();
    }
    is_complete = is_complete && normalizer.close().is_ok();
    if is_complete {
        let usage = normalizer.usage();
        normalizer.bill(usage.map(|usage| Bill {
            usage,
            cost: NanoUsd::default(),
        }));
        normalizer.end();
    }
    let frames: Vec<Bytes> = normalizer.take_ready().collect();
    for frame in &frames {
        check_frame(frame);
    }
    u64::from(is_complete) << 9 | frames.len().ilog2_or_zero()
}

fn check_frame(frame: &[u8]) {
    let events = read_events(&[frame]).expect("a frame of a moderate size");
    let shown = frame.escape_ascii();
    assert!(frame.ends_with(b"\n\n"), "an open frame: {shown}");
    let [data] = events.as_slice() else {
        panic!("a frame that is not one event: {shown}");
    };
    if data != b"[DONE]" {
        let json = serde_json::from_slice::<Value>(data);
        assert!(json.is_ok_and(|json| json.is_object()), "no JSON: {shown}");
        assert!(!data.contains(&b'\n'), "JSON on several lines: {shown}");
    }
}

/// A provider's whole response, read by every adapter: its text and its calls are in the response for the caller.
pub(crate) fn answers(bytes: &[u8]) -> u64 {
    let answers = [
        openai::answer_of(bytes, CHOICES),
        anthropic::answer_of(bytes),
        gemini::answer_of(bytes, CHOICES),
    ];
    answers.into_iter().fold(0, |all, answer| {
        all << 16 | answer.map_or(0, |answer| check_answer(&answer))
    })
}

fn check_answer(answer: &Answer) -> u64 {
    let bill = answer.usage.map(|usage| Bill {
        usage,
        cost: NanoUsd::default(),
    });
    let json: Value = serde_json::from_slice(&answer.to_json("id", 1, "model", bill, true))
        .expect("the response for the caller is JSON");
    let choices = json["choices"].as_array().expect("choices");
    assert_eq!(choices.len(), answer.choices.len());
    for (written, choice) in choices.iter().zip(&answer.choices) {
        let text = choice.content.as_ref().map(JsonText::decode);
        assert_eq!(written["message"]["content"], Value::from(text));
        let calls = written["message"]["tool_calls"].as_array();
        assert_eq!(calls.map_or(0, Vec::len), choice.tool_calls.len());
    }
    assert_eq!(json.get("usage").is_some(), answer.usage.is_some());
    let parts: VecDeque<Part> = part::of(answer.clone()).collect();
    let frames = written(Events::new(new_response(), || 1), &parts);
    1 + ((choices.len() as u64) << 2) + (frames << 5 & 0xffff)
}

/// A caller's chat request: what every adapter sends for it is JSON with the caller's texts.
pub(crate) fn chat_requests(bytes: &[u8]) -> u64 {
    let Ok(request) = ChatRequest::parse(bytes) else {
        return 0;
    };
    forwarded(request)
}

/// A caller's request to `/v1/responses`, which becomes a chat request.
pub(crate) fn responses_requests(bytes: &[u8]) -> u64 {
    let Ok(mut request) = ResponsesRequest::parse(bytes) else {
        return 0;
    };
    let items = std::mem::take(&mut request.items);
    let messages = conversation(Vec::new(), items, &mut request.names);
    forwarded(request.into_chat(messages))
}

fn forwarded(mut request: Box<ChatRequest>) -> u64 {
    let Some(model) = Catalog::built_in().find("svc-native-fast").cloned() else {
        unreachable!("the catalog has this model");
    };
    if prompt::check_order(&request.messages).is_err() {
        return 1;
    }
    let route = Route::to(model);
    let settings = std::mem::take(&mut request.sampling);
    let Ok(settings) = settings.checked(|parameter| route.drops(parameter)) else {
        return 2;
    };
    let call = prompt::prepare(request, settings, route, Additions::default(), "acct_1");
    let Ok(call) = call else {
        return 3;
    };
    let bodies = [
        openai::body_of(&call),
        anthropic::body_of(&call),
        gemini::body_of(&call),
    ];
    let bodies = bodies.map(|body| {
        let is_json = serde_json::from_slice::<IgnoredAny>(&body);
        is_json.unwrap_or_else(|error| panic!("{error}: {}", body.escape_ascii()));
        body
    });
    // A caller's objects are forwarded unparsed, and a number of any size is JSON: such a body cannot be read here.
    if let Ok(body) = serde_json::from_slice(&bodies[0]) {
        check_chat_body(&body, &call);
    }
    let tools = u64::from(call.tools.is_empty());
    4 + tools + ((call.messages.len().ilog2_or_zero()) << 4) + (u64::from(call.stream) << 12)
}

/// The messages of the body are those of the call, character by character.
fn check_chat_body(body: &Value, call: &ChatCall) {
    let messages = body["messages"].as_array().expect("messages");
    assert_eq!(messages.len(), call.messages.len());
    for (written, message) in messages.iter().zip(&call.messages) {
        let text = message.content.as_ref().map(JsonText::decode);
        assert_eq!(written["content"], Value::from(text));
        let role = serde_json::from_value::<Role>(written["role"].clone());
        assert_eq!(role.ok(), Some(message.role));
        let calls = written["tool_calls"].as_array();
        assert_eq!(calls.map_or(0, Vec::len), message.tool_calls.len());
    }
    assert_eq!(body["user"], "acct_1");
}

/// A response to a request with tools of every kind that is served.
fn new_response() -> Arc<NewResponse> {
    let body = br#"{"model":"m","input":"Hi","tools":[{"type":"custom","name":"f"},
        {"type":"namespace","name":"get","tools":[{"type":"function","name":"weather"}]}]}"#;
    let request = ResponsesRequest::parse(body).expect("a valid request");
    Arc::new(NewResponse {
        id: "resp_1".into(),
        created_at: 1,
        echo: request.echo,
        names: request.names,
    })
}

trait Magnitude {
    /// The number of binary digits, so that similar inputs count as one.
    fn ilog2_or_zero(self) -> u64;
}

impl Magnitude for usize {
    fn ilog2_or_zero(self) -> u64 {
        u64::from(usize::BITS - self.leading_zeros())
    }
}
