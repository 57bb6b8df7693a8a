//! Incremental parser of `application/vnd.amazon.eventstream`, the binary form in which AWS streams events.
//!
//! A message is its length and that of its headers (u32, big-endian), a checksum of these, headers, payload, and a
//! checksum of everything before it. No byte of a message is used before its checksum was compared. After an error the
//! rest of the stream cannot be read, because the next message could begin anywhere.

use bytes::{Buf as _, Bytes, BytesMut};
use flate2::Crc;

/// Size limit of a message. AWS allows 16 MiB; an event of a model is much shorter.
pub(crate) const MAX_MESSAGE_BYTES: usize = 1 << 21;
/// The two lengths and their checksum.
const PRELUDE: usize = 12;
/// The prelude and the checksum at the end.
const OVERHEAD: usize = PRELUDE + 4;

/// A message with the headers that say what it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Message {
    /// `:message-type`: `event`, `exception` or `error`.
    pub kind: String,
    /// `:event-type`, `:exception-type` or `:error-code`, depending on the kind.
    pub name: String,
    pub payload: Bytes,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MessageError {
    /// A message is longer than [`MAX_MESSAGE_BYTES`].
    TooLong,
    Checksum,
    /// Lengths or headers contradict each other.
    Malformed,
}

/// Buffers bytes and returns messages as they become complete. The result does not depend on how the bytes are split.
#[derive(Debug, Default)]
pub(crate) struct MessageReader {
    buffer: BytesMut,
}

impl MessageReader {
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// The next complete message; `None` if more bytes are needed.
    pub(crate) fn next_message(&mut self) -> Result<Option<Message>, MessageError> {
        let Some(prelude) = self.buffer.first_chunk::<PRELUDE>() else {
            return Ok(None);
        };
        let (length, headers) = lengths(prelude)?;
        if self.buffer.len() < length {
            return Ok(None);
        }
        let mut message = self.buffer.split_to(length).freeze();
        let checksum = message.split_off(length - 4).get_u32();
        if crc(&message) != checksum {
            return Err(MessageError::Checksum);
        }
        message.advance(PRELUDE);
        let headers = message.split_to(headers);
        read(&headers, message).map(Some)
    }
}

/// The lengths of a message and of its headers.
fn lengths(prelude: &[u8; PRELUDE]) -> Result<(usize, usize), MessageError> {
    if crc(&prelude[..8]).to_be_bytes() != prelude[8..] {
        return Err(MessageError::Checksum);
    }
    let mut prelude = &prelude[..];
    let mut next = || usize::try_from(prelude.get_u32()).unwrap_or(usize::MAX);
    let (length, headers) = (next(), next());
    if length > MAX_MESSAGE_BYTES {
        return Err(MessageError::TooLong);
    }
    let fits = length.checked_sub(OVERHEAD);
    fits.filter(|rest| headers <= *rest)
        .ok_or(MessageError::Malformed)?;
    Ok((length, headers))
}

fn crc(bytes: &[u8]) -> u32 {
    let mut crc = Crc::new();
    crc.update(bytes);
    crc.sum()
}

/// Reads the headers of a message: each a name, a type and a value.
fn read(mut headers: &[u8], payload: Bytes) -> Result<Message, MessageError> {
    let mut message = Message {
        payload,
        ..Message::default()
    };
    while !headers.is_empty() {
        let (name, value) = header(&mut headers).ok_or(MessageError::Malformed)?;
        let Some(value) = value else { continue };
        match name {
            b":message-type" => message.kind = text(value)?,
            b":event-type" | b":exception-type" | b":error-code" => message.name = text(value)?,
            _ => {} // `:content-type`, and others
        }
    }
    Ok(message)
}

fn text(value: &[u8]) -> Result<String, MessageError> {
    let text = std::str::from_utf8(value).map_err(|_| MessageError::Malformed)?;
    Ok(text.to_owned())
}

/// Takes the next header: its name, and its value if that is a text. `None` if it is cut off or of an unknown type.
fn header<'a>(bytes: &mut &'a [u8]) -> Option<(&'a [u8], Option<&'a [u8]>)> {
    let length = bytes.split_off_first()?;
    let name = bytes.split_off(..usize::from(*length))?;
    let kind = bytes.split_off_first()?;
    let length = match kind {
        0 | 1 => 0, // true, false
        2 => 1,     // a byte
        3 => 2,     // a short
        4 => 4,     // an integer
        5 | 8 => 8, // a long, a time
        9 => 16,    // a UUID
        6 | 7 => {
            let length = bytes.split_off(..2)?;
            usize::from(u16::from_be_bytes([length[0], length[1]]))
        }
        _ => return None,
    };
    let value = bytes.split_off(..length)?;
    Some((name, (*kind == 7).then_some(value)))
}

/// Writes a message with texts as its headers.
#[cfg(test)]
pub(crate) fn write(headers: &[(&str, &str)], payload: &[u8]) -> Vec<u8> {
    let mut written = Vec::new();
    for (name, value) in headers {
        let length = |text: &str| u16::try_from(text.len()).unwrap_or(u16::MAX).to_be_bytes();
        written.push(length(name)[1]);
        written.extend_from_slice(name.as_bytes());
        written.push(7);
        written.extend_from_slice(&length(value));
        written.extend_from_slice(value.as_bytes());
    }
    seal(&written, payload)
}

/// Writes a message with these headers, which need not be valid.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn seal(headers: &[u8], payload: &[u8]) -> Vec<u8> {
    let size = |bytes: usize| u32::try_from(bytes).unwrap_or(u32::MAX).to_be_bytes();
    let mut message = size(OVERHEAD + headers.len() + payload.len()).to_vec();
    message.extend_from_slice(&size(headers.len()));
    message.extend_from_slice(&crc(&message).to_be_bytes());
    message.extend_from_slice(headers);
    message.extend_from_slice(payload);
    message.extend_from_slice(&crc(&message).to_be_bytes());
    message
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// All messages of a stream, and how it ended.
    fn messages(pieces: &[&[u8]]) -> (Vec<Message>, Option<MessageError>) {
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

    fn chunk(payload: &[u8]) -> Vec<u8> {
        let headers = [
            (":event-type", "chunk"),
            (":content-type", "application/json"),
            (":message-type", "event"),
        ];
        write(&headers, payload)
    }

    fn event(payload: &'static [u8]) -> Message {
        Message {
            kind: "event".into(),
            name: "chunk".into(),
            payload: Bytes::from_static(payload),
        }
    }

    /// Messages as other implementations encode them.
    #[test]
    fn known_messages_are_read() {
        let empty = b"\x00\x00\x00\x10\x00\x00\x00\x00\x05\xc2\x48\xeb\x7d\x98\xc8\xff";
        let (read, end) = messages(&[empty]);
        assert_eq!((read, end), (vec![Message::default()], None));
        let payload =
            b"\x00\x00\x00\x1d\x00\x00\x00\x00\xfd\x52\x8c\x5a{'foo':'bar'}\xc3\x65\x39\x36";
        let (read, end) = messages(&[payload]);
        assert_eq!(end, None);
        assert_eq!(read[0].payload, &b"{'foo':'bar'}"[..]);
        assert_eq!(write(&[], b"{'foo':'bar'}"), payload);
    }

    #[test]
    fn headers_of_every_type_are_skipped() {
        let values: [&[u8]; 10] = [
            b"\x00",
            b"\x01",
            b"\x02x",
            b"\x03xx",
            b"\x04xxxx",
            b"\x05xxxxxxxx",
            b"\x06\x00\x03xxx",
            b"\x07\x00\x01x",
            b"\x08xxxxxxxx",
            b"\x09xxxxxxxxxxxxxxxx",
        ];
        let mut headers = Vec::new();
        for value in values {
            headers.extend_from_slice(b"\x01n");
            headers.extend_from_slice(value);
        }
        headers.extend_from_slice(b"\x0d:message-type\x07\x00\x05event");
        let read = read(&headers, Bytes::new()).unwrap();
        assert_eq!(read.kind, "event");
        // Each of these is cut off within a header.
        let starts: Vec<_> = (1..headers.len())
            .filter(|cut| super::read(&headers[..*cut], Bytes::new()).is_ok())
            .collect();
        assert_eq!(starts.len(), values.len(), "{starts:?}");
        let unknown = super::read(b"\x01n\x0a", Bytes::new());
        assert_eq!(unknown, Err(MessageError::Malformed));
    }

    #[test]
    fn broken_messages_are_refused() {
        let good = chunk(b"{}");
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 0x10;
            let (read, end) = messages(&[&bad]);
            assert_eq!((read, end), (vec![], Some(MessageError::Checksum)), "{at}");
        }
        let prelude = |length: u32, headers: u32| {
            let mut bytes = [length.to_be_bytes(), headers.to_be_bytes()].concat();
            bytes.extend(crc(&bytes).to_be_bytes());
            messages(&[&bytes]).1
        };
        assert_eq!(prelude(15, 0), Some(MessageError::Malformed));
        assert_eq!(prelude(100, 85), Some(MessageError::Malformed));
        assert_eq!(prelude(100, 84), None);
        assert_eq!(prelude(u32::MAX, 0), Some(MessageError::TooLong));
    }

    proptest! {
        /// The messages do not depend on how the bytes are split.
        #[test]
        fn any_split_gives_the_same_messages(
            cuts in prop::collection::vec(0_usize..500, 0..12),
        ) {
            let stream = [chunk(b"{\"bytes\":\"e30=\"}"), chunk(b""), chunk(b"{}")].concat();
            let mut cuts: Vec<_> = cuts.into_iter().map(|cut| cut.min(stream.len())).collect();
            cuts.extend([0, stream.len()]);
            cuts.sort_unstable();
            let pieces: Vec<_> = cuts.windows(2).map(|cut| &stream[cut[0]..cut[1]]).collect();
            let expected = vec![event(b"{\"bytes\":\"e30=\"}"), event(b""), event(b"{}")];
            prop_assert_eq!(messages(&pieces), (expected.clone(), None));
            let single: Vec<_> = stream.chunks(1).collect();
            prop_assert_eq!(messages(&single), (expected, None));
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = messages(&[&bytes]);
            let _ = read(&bytes, Bytes::new());
            let with_headers = write(&[(":event-type", "x")], &bytes);
            prop_assert_eq!(messages(&[&with_headers]).0.len(), 1);
        }
    }
}
