//! Incremental parser of server-sent events.

use bytes::{Buf as _, BytesMut};
use memchr::memchr2;

/// One event: its `data` lines joined by newlines. Other fields are ignored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Event(pub Vec<u8>);

/// Size limit of an event; a chat chunk is never that long.
pub(crate) const MAX_EVENT_BYTES: usize = 1 << 20;

/// Buffers bytes and returns events as they become complete.
///
/// Lines end in LF, CRLF or CR. Comments and unknown fields are skipped, the space after `data:` is optional, and the
/// stream may start with a byte order mark. The result does not depend on how the bytes are split.
#[derive(Debug, Default)]
pub(crate) struct SseReader {
    buffer: BytesMut,
    /// Length of the prefix of `buffer` that is known to contain no line ending.
    searched: usize,
    data: Vec<u8>,
    has_data: bool,
    started: bool,
}

/// An event or line is longer than [`MAX_EVENT_BYTES`].
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooLong;

impl SseReader {
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// The next complete event; `None` if more bytes are needed.
    pub(crate) fn next_event(&mut self) -> Result<Option<Event>, TooLong> {
        while let Some(length) = self.line_length() {
            let line = self.buffer.split_to(length.text);
            self.buffer.advance(length.ending);
            self.searched = 0;
            if let Some(event) = self.on_line(&line) {
                return Ok(Some(event));
            }
            if self.data.len() > MAX_EVENT_BYTES {
                return Err(TooLong);
            }
        }
        if self.buffer.len() > MAX_EVENT_BYTES {
            return Err(TooLong);
        }
        Ok(None)
    }

    /// The last event, if the stream ended without the blank line after it.
    pub(crate) fn finish(mut self) -> Option<Event> {
        let last = std::mem::take(&mut self.buffer);
        let last = last.strip_suffix(b"\r").unwrap_or(&last);
        // If the bytes end with a line ending, `last` is empty and acts as the blank line.
        let ended = self.on_line(last);
        ended.or_else(|| self.has_data.then_some(Event(self.data)))
    }

    /// The length of the first line and of its ending; `None` until both are known.
    fn line_length(&mut self) -> Option<Line> {
        if !self.started {
            self.skip_byte_order_mark()?;
        }
        let Some(found) = memchr2(b'\n', b'\r', &self.buffer[self.searched..]) else {
            self.searched = self.buffer.len();
            return None;
        };
        let text = self.searched + found;
        self.searched = text;
        match (self.buffer[text], self.buffer.get(text + 1)) {
            (b'\n', _) => Some(Line { text, ending: 1 }),
            (_, Some(b'\n')) => Some(Line { text, ending: 2 }),
            (_, Some(_)) => Some(Line { text, ending: 1 }),
            (_, None) => None, // a CR; its LF may be in the next bytes
        }
    }

    fn skip_byte_order_mark(&mut self) -> Option<()> {
        const MARK: &[u8] = "\u{feff}".as_bytes();
        if self.buffer.len() < MARK.len() && MARK.starts_with(&self.buffer) {
            return None;
        }
        if self.buffer.starts_with(MARK) {
            self.buffer.advance(MARK.len());
        }
        self.started = true;
        Some(())
    }

    fn on_line(&mut self, line: &[u8]) -> Option<Event> {
        if line.is_empty() {
            let data = std::mem::take(&mut self.data);
            return std::mem::take(&mut self.has_data).then_some(Event(data));
        }
        // A field without a colon has an empty value.
        let data = match line {
            b"data" => Some(&b""[..]),
            line => line.strip_prefix(b"data:"),
        };
        if let Some(data) = data {
            if self.has_data {
                self.data.push(b'\n');
            }
            self.has_data = true;
            self.data
                .extend_from_slice(data.strip_prefix(b" ").unwrap_or(data));
        }
        None
    }
}

/// Lengths of a line's text and of its ending, in bytes.
struct Line {
    text: usize,
    ending: usize,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn events(pieces: &[&[u8]]) -> Vec<String> {
        let mut reader = SseReader::default();
        let mut events = Vec::new();
        for piece in pieces {
            reader.push(piece);
            while let Some(Event(data)) = reader.next_event().unwrap() {
                events.push(String::from_utf8_lossy(&data).into_owned());
            }
        }
        events.extend(
            reader
                .finish()
                .map(|Event(data)| String::from_utf8_lossy(&data).into()),
        );
        events
    }

    #[test]
    fn awkward_but_legal_streams_are_read() {
        for (stream, read) in [
            ("data: a\n\ndata: b\n\n", vec!["a", "b"]),
            ("data:a\r\n\r\ndata: b\r\rdata: c\n\n", vec!["a", "b", "c"]),
            (
                ": ping\n\nevent: x\nid: 7\nretry: 3\ndata: a\n\n",
                vec!["a"],
            ),
            ("data: a\ndata: b\n\n", vec!["a\nb"]),
            ("\u{feff}data: a\n\n", vec!["a"]),
            ("data: a\n\ndata: b", vec!["a", "b"]),
            ("data: a\n\ndata: b\n", vec!["a", "b"]),
            ("data: a\r\n\r\ndata: b\r\n", vec!["a", "b"]),
            ("data: a\r\rdata: b\r", vec!["a", "b"]),
            ("data\n\n\n\ndata:\n\n", vec!["", ""]),
            ("data: a\ndata\ndata: b\n\n", vec!["a\n\nb"]),
            ("data:  a\n\n", vec![" a"]),
        ] {
            assert_eq!(events(&[stream.as_bytes()]), read, "{stream:?}");
        }
    }

    #[test]
    fn an_endless_line_is_refused() {
        let mut reader = SseReader::default();
        reader.push(&vec![b'a'; MAX_EVENT_BYTES + 1]);
        assert_eq!(reader.next_event(), Err(TooLong));

        let mut reader = SseReader::default();
        reader.push(&b"data: 0123456789\n".repeat(MAX_EVENT_BYTES / 10));
        assert_eq!(reader.next_event(), Err(TooLong));
    }

    proptest! {
        /// The events do not depend on how the bytes are split.
        #[test]
        fn any_split_gives_the_same_events(
            lines in prop::collection::vec(
                prop::sample::select(vec![
                    "data: {\"a\":\"ü😀\"}", "data:x", ": note", "event: e", "", "", "data", "\u{feff}",
                ]),
                0..24,
            ),
            ending in prop::sample::select(vec!["\n", "\r\n", "\r"]),
            cuts in prop::collection::vec(0_usize..400, 0..12),
        ) {
            let stream = lines.join(ending) + ending;
            let bytes = stream.as_bytes();
            let mut cuts: Vec<_> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            let pieces: Vec<_> = cuts.windows(2).map(|cut| &bytes[cut[0]..cut[1]]).collect();
            prop_assert_eq!(events(&pieces), events(&[bytes]));
            let single: Vec<_> = bytes.chunks(1).collect();
            prop_assert_eq!(events(&single), events(&[bytes]));
        }
    }
}
