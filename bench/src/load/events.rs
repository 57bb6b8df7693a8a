//! A stream as its client sees it: when events were sent, and when they came.

use memchr::memchr;

use crate::{Done, clock, upstream::STAMP};

/// What a whole stream ends with.
const LAST: &[u8] = b"data: [DONE]";

/// Enough for the last words and the empty lines after them.
const TAIL: usize = 24;

#[derive(Default)]
pub struct Events {
    pub count: u64,
    /// When the first one came.
    pub first_at: Option<u64>,
    /// How long each took from the upstream.
    pub delays: Vec<u64>,
    /// The digits of a time, so far; they may come in two pieces.
    stamp: Option<u64>,
    tail: Vec<u8>,
}

impl Events {
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

    /// That all of it has come.
    pub fn check(&self, least: u64) -> Done {
        if self.count < least {
            return Err(format!("a stream with {} events", self.count).into());
        }
        if !self.tail.trim_ascii_end().ends_with(LAST) {
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
    fn times_are_found_however_a_stream_is_cut() {
        let stream = b"data: {\"a\":\"~00000000000000000017~\"}\n\ndata: {\"a\":\"~00000000000000000042~\"}\n\ndata: [DONE]\n\n";
        for size in 1..=stream.len() {
            let mut events = Events::default();
            for piece in stream.chunks(size) {
                events.take(piece);
            }
            events.check(2).unwrap();
            assert!(events.check(3).is_err());
            assert_eq!(events.delays.len(), 2);
            // The first was sent before the second, and so it took longer or came earlier.
            assert!(events.delays.iter().all(|delay| *delay > 0));
        }
    }

    #[test]
    fn a_stream_that_was_cut_off_is_none() {
        let mut events = Events::default();
        events.take(b"data: ~1~\n\n");
        assert!(events.check(1).is_err());
    }
}
