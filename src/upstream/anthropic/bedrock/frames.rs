//! Streams of Bedrock: messages of AWS's event stream, each with one event of the Messages API in base64.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde::Deserialize;
use serde_json::Value;

use crate::{
    upstream::{
        eventstream::{MAX_MESSAGE_BYTES, Message, MessageError, MessageReader},
        reason,
        stream::Framing,
    },
    wire::error::UpstreamError,
};

/// Finds events in the bytes of a stream.
#[derive(Default)]
pub(crate) struct BedrockFrames(MessageReader);

impl Framing for BedrockFrames {
    const CONTENT_TYPE: &'static str = "application/vnd.amazon.eventstream";

    fn push(&mut self, bytes: &[u8]) {
        self.0.push(bytes);
    }

    fn next_event(&mut self) -> Result<Option<Vec<u8>>, UpstreamError> {
        while let Some(message) = self.0.next_message().map_err(unreadable)? {
            if let Some(event) = event(&message)? {
                return Ok(Some(event));
            }
        }
        Ok(None)
    }

    /// A message that was cut off has no checksum, so nothing of it is used.
    fn finish(self) -> Option<Vec<u8>> {
        None
    }
}

fn unreadable(error: MessageError) -> UpstreamError {
    match error {
        MessageError::TooLong => UpstreamError::TooLarge(MAX_MESSAGE_BYTES),
        MessageError::Checksum => {
            UpstreamError::Malformed("a message of the stream with a wrong checksum".into())
        }
        MessageError::Malformed => {
            UpstreamError::Malformed("a message of the stream that contradicts itself".into())
        }
    }
}

/// The event in a message; `None` if it has none.
fn event(message: &Message) -> Result<Option<Vec<u8>>, UpstreamError> {
    #[derive(Deserialize)]
    struct Chunk<'a> {
        #[serde(borrow)]
        bytes: std::borrow::Cow<'a, str>,
    }
    match message.kind.as_str() {
        "exception" | "error" => return Err(exception(message)),
        "event" if message.name == "chunk" => {}
        _ => return Ok(None), // added in the future
    }
    let chunk: Chunk<'_> = serde_json::from_slice(&message.payload)
        .map_err(|error| UpstreamError::unreadable(&error))?;
    let event = STANDARD.decode(chunk.bytes.as_bytes());
    let event = event.map_err(|_| UpstreamError::Malformed("an event that is no base64".into()))?;
    Ok(Some(event))
}

/// The failure that a message reports. Its text may quote the request, so that only its kind is kept.
fn exception(message: &Message) -> UpstreamError {
    let status = |status| UpstreamError::Status {
        status,
        reason: None,
        retry_after: None,
        about_us: false,
    };
    match message.name.as_str() {
        "throttlingException" => status(429),
        "internalServerException" => status(500),
        "serviceUnavailableException" => status(503),
        "modelTimeoutException" => status(408),
        "validationException" if reason::is_overflow(&message.payload) => {
            UpstreamError::reported(&serde_json::json!({
                "type": message.name, "code": "context_length_exceeded",
            }))
        }
        "validationException" => status(400),
        // `modelStreamErrorException`, and what is added in the future.
        name => UpstreamError::reported(&serde_json::json!({
            "type": name, "code": original_status(&message.payload),
        })),
    }
}

/// The status with which the model's own server failed.
fn original_status(payload: &[u8]) -> Value {
    let mut payload: Value = serde_json::from_slice(payload).unwrap_or_default();
    let status = payload.get_mut("originalStatusCode").map(Value::take);
    status.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upstream::eventstream::write;

    fn chunk(event: &str) -> Vec<u8> {
        let payload = format!(r#"{{"bytes":"{}","p":"abcdef"}}"#, STANDARD.encode(event));
        write(
            &[(":message-type", "event"), (":event-type", "chunk")],
            payload.as_bytes(),
        )
    }

    fn failing(kind: &str, header: &str, name: &str, payload: &str) -> UpstreamError {
        let mut frames = BedrockFrames::default();
        frames.push(&chunk("{}"));
        frames.push(&write(
            &[(":message-type", kind), (header, name)],
            payload.as_bytes(),
        ));
        assert_eq!(frames.next_event().unwrap().unwrap(), b"{}");
        frames.next_event().unwrap_err()
    }

    #[test]
    fn events_are_taken_out_of_their_messages() {
        let mut frames = BedrockFrames::default();
        let other = write(&[(":message-type", "event"), (":event-type", "new")], b"?");
        frames.push(&[chunk("{\"a\":1}"), other, chunk("ü")].concat());
        assert_eq!(frames.next_event().unwrap().unwrap(), b"{\"a\":1}");
        assert_eq!(frames.next_event().unwrap().unwrap(), "ü".as_bytes());
        assert_eq!(frames.next_event().unwrap(), None);
        assert_eq!(frames.finish(), None);
    }

    #[test]
    fn exceptions_are_failures() {
        for (name, status) in [
            ("throttlingException", 429),
            ("internalServerException", 500),
            ("serviceUnavailableException", 503),
            ("modelTimeoutException", 408),
            ("validationException", 400),
        ] {
            let error = failing("exception", ":exception-type", name, r#"{"message":"x"}"#);
            assert_eq!(error.status(), Some(status), "{name}");
            assert_eq!(error.is_worth_another_try(), status != 400, "{name}");
        }
        let payload = r#"{"message":"secret","originalStatusCode":529,"originalMessage":"x"}"#;
        let name = "modelStreamErrorException";
        let error = failing("exception", ":exception-type", name, payload);
        let text = "reported a failure in the response: type modelStreamErrorException, code 529";
        assert_eq!(error.to_string(), text);
        let error = failing("error", ":error-code", "InternalError", "not JSON");
        let text = "reported a failure in the response: type InternalError, code ?";
        assert_eq!(error.to_string(), text);
        let payload = r#"{"message":"Input is too long for requested model."}"#;
        let error = failing(
            "exception",
            ":exception-type",
            "validationException",
            payload,
        );
        assert!(error.is_context_overflow());
    }

    #[test]
    fn what_cannot_be_read_is_malformed() {
        for payload in ["", "{}", r#"{"bytes":7}"#, r#"{"bytes":"%"}"#] {
            let mut frames = BedrockFrames::default();
            let headers = [(":message-type", "event"), (":event-type", "chunk")];
            frames.push(&write(&headers, payload.as_bytes()));
            let error = frames.next_event().unwrap_err();
            assert!(matches!(error, UpstreamError::Malformed(_)), "{payload}");
        }
        let mut bytes = chunk("{}");
        *bytes.last_mut().unwrap() ^= 1;
        let mut frames = BedrockFrames::default();
        frames.push(&bytes);
        assert!(matches!(
            frames.next_event(),
            Err(UpstreamError::Malformed(_))
        ));
    }
}
