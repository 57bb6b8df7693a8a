//! A stream as its client receives it: the send and arrival times of its events.

use memchr::memchr;

use crate::{Done, chat::Api, clock, upstream::STAMP};

/// Enough for the last event and the empty lines after it.
const TAIL: usize = 32;

#[derive(Default)]
pub struct Events {
    api: Api,
    pub count: u64,
    /// Arrival time of the first event.
    pub first_at: Option<u64>,
    /// Delay of each event from the upstream, in nanoseconds.
    pub delays: Vec<u64>,
    /// The digits of a timestamp so far, which may arrive in two pieces.
    stamp: Option<u64>,
    tail: Vec<u8>,
}

impl Events {
    pub fn of(api: Api) -> Self {
        Self {
            api,
            ..Self::default()
        }
    }

    /// The end of a complete stream.
    fn last(&self) -> &'static [u8] {
        match self.api {
            Api::Chat => b"data: [DONE]",
            Api::Messages => br#"{"type":"message_stop"}"#,
        }
    }

    pub fn take(&mut self, bytes: &[u8]) {
        let now = clock::now();
        let mut rest = bytes;
        while let Some(at) = memchr(STAMP, rest) {
            self.digits(&rest[..at]);
            match self.stamp.take() {
                None => self.stamp = Some(0),
                Some(sent) => self.arrived(sent, now),
            }
            rest = &rest[at + 1..];
        }
        self.digits(rest);
        self.tail
            .extend_from_slice(&bytes[bytes.len().saturating_sub(TAIL)..]);
        self.tail.drain(..self.tail.len().saturating_sub(TAIL));
    }

    /// Checks that the stream is complete.
    pub fn check(&self, least: u64) -> Done {
        if self.count < least {
            return Err(format!("a stream with {} events", self.count).into());
        }
        if !self.tail.trim_ascii_end().ends_with(self.last()) {
            return Err("a stream that does not say that it is whole".into());
        }
        Ok(())
    }

    fn digits(&mut self, bytes: &[u8]) {
        if let Some(stamp) = &mut self.stamp {
            let digits = bytes.iter().map(|byte| u64::from(byte.wrapping_sub(b'0')));
            *stamp = digits.fold(*stamp, |all, digit| {
                all.wrapping_mul(10).wrapping_add(digit)
            });
        }
    }

    fn arrived(&mut self, sent: u64, now: u64) {
        self.count += 1;
        self.first_at.get_or_insert(now);
        self.delays.push(now.saturating_sub(sent));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_are_found_however_a_stream_is_split() {
        let stream = b"data: {\"a\":\"~00000000000000000017~\"}\n\ndata: {\"a\":\"~00000000000000000042~\"}\n\ndata: [DONE]\n\n";
        for size in 1..=stream.len() {
            let mut events = Events::default();
            for piece in stream.chunks(size) {
                events.take(piece);
            }
            events.check(2).unwrap();
            assert!(events.check(3).is_err());
            assert_eq!(events.delays.len(), 2);
            assert!(events.delays.iter().all(|delay| *delay > 0));
        }
    }

    #[test]
    fn a_stream_ends_as_its_api_says() {
        let mut events = Events::of(Api::Messages);
        events.take(b"data: ~1~\n\n");
        assert!(events.check(1).is_err());
        events.take(b"event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n");
        events.check(1).unwrap();
    }

    #[test]
    fn an_incomplete_stream_is_an_error() {
        let mut events = Events::default();
        events.take(b"data: ~1~\n\n");
        assert!(events.check(1).is_err());
    }
}
