//! The response of a call as it is written, for other requests to read: from its first byte on, and then as it grows.

use std::{
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
};

use bytes::Bytes;
use memchr::memmem;
use tokio::sync::Notify;

use super::memory::{Reservation, UNCOUNTED_BYTES};
use crate::{catalog::Model, ledger::CallId, wire::stream_style::StreamStyle};

/// Bytes that are allocated first.
const FIRST_BYTES: usize = UNCOUNTED_BYTES;
/// Most bytes that a reader copies at once, unless an event is longer.
const PIECE_BYTES: usize = 64 << 10;
const EVENT_END: &[u8] = b"\n\n";

pub(crate) struct Recording {
    state: Mutex<State>,
    changed: Notify,
    /// Set once the call is admitted.
    call: OnceLock<CallId>,
}

struct State {
    head: Option<Head>,
    bytes: Vec<u8>,
    /// In place of `bytes` once the response is complete: all readers share it.
    all: Option<Bytes>,
    memory: Reservation,
    /// Most bytes that are recorded.
    most: usize,
    status: Status,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Status {
    Running,
    Complete,
    /// The call has failed. A stream ends with the error.
    Failed,
    /// The call ended in another way, e.g. by a panic. A stream has no last events.
    Died,
    /// There was no room for all of it.
    TooLong,
}

/// How a response begins.
#[derive(Clone)]
pub(crate) struct Head {
    /// What its body writes by itself, if it is a stream.
    pub stream: Option<StreamStyle>,
    /// The model that a hybrid chose.
    pub routed: Option<Arc<Model>>,
}

/// How a request that waits for a recorded response goes on.
pub(crate) enum Begin {
    /// All of a response.
    Whole { head: Head, body: Bytes },
    /// A stream that is running.
    Stream {
        style: StreamStyle,
        routed: Option<Arc<Model>>,
    },
    /// There is none: the request runs itself.
    Failed,
    /// There is one, but no room for it.
    TooLong,
}

/// What comes after a position of a stream.
pub(crate) enum More {
    Bytes(Bytes),
    End,
    /// The task of the call died, so the last events are missing.
    Died,
    /// There was no room for the rest.
    TooLong,
}

impl Recording {
    /// `most` bytes are recorded, if there is memory for them.
    pub(crate) fn new(memory: Reservation, most: usize) -> Self {
        let state = State {
            head: None,
            bytes: Vec::new(),
            all: None,
            memory,
            most,
            status: Status::Running,
        };
        Self {
            state: Mutex::new(state),
            changed: Notify::new(),
            call: OnceLock::new(),
        }
    }

    pub(super) fn set_call(&self, call: CallId) {
        let _ = self.call.set(call);
    }

    /// The call whose response it is; `None` until it is admitted.
    pub(crate) fn call(&self) -> Option<CallId> {
        self.call.get().copied()
    }

    /// Whether the response is complete.
    pub(crate) fn is_complete(&self) -> bool {
        self.lock().status == Status::Complete
    }

    /// Records how a stream begins. It is readable from now on, if there is room for its first events.
    pub(crate) fn begin(&self, head: Head) {
        let mut state = self.lock();
        state.make_room(FIRST_BYTES);
        state.head = Some(head);
        drop(state);
        self.changed.notify_waiters();
    }

    /// Records the next bytes of a stream.
    pub(crate) fn write(&self, bytes: &[u8]) {
        self.lock().write(bytes);
        self.changed.notify_waiters();
    }

    /// Records that the response is complete.
    pub(crate) fn complete(&self) {
        self.end_as(Status::Complete);
    }

    /// Whether the call is over without a response.
    pub(super) fn is_lost(&self) -> bool {
        let status = self.lock().status;
        matches!(status, Status::Failed | Status::Died | Status::TooLong)
    }

    /// Records that the call has failed, after the error at the end of a stream.
    pub(super) fn fail(&self) {
        self.end_as(Status::Failed);
    }

    /// Records a response in one piece.
    pub(crate) fn complete_whole(&self, head: Head, body: &[u8]) {
        let mut state = self.lock();
        state.write(body);
        state.head = Some(head);
        drop(state);
        self.complete();
    }

    /// Records that the call is over, if nothing was recorded of how it ended.
    pub(super) fn end(&self) {
        self.end_as(Status::Died);
    }

    fn end_as(&self, status: Status) {
        let mut state = self.lock();
        if state.status == Status::Running {
            state.status = status;
            if status == Status::Complete {
                state.all = Some(Bytes::from(std::mem::take(&mut state.bytes)));
            }
        }
        drop(state);
        self.changed.notify_waiters();
    }

    /// What was recorded so far and the rest; `None` if that is more than `most` bytes, or not text.
    pub(super) fn with_rest(&self, rest: &[Bytes], most: usize) -> Option<Arc<str>> {
        let state = self.lock();
        let length = state.len() + rest.iter().map(Bytes::len).sum::<usize>();
        if state.status == Status::TooLong || length > most {
            return None;
        }
        let mut all = Vec::with_capacity(length);
        all.extend_from_slice(&state.bytes);
        drop(state);
        for bytes in rest {
            all.extend_from_slice(bytes);
        }
        String::from_utf8(all).ok().map(Arc::from)
    }

    /// Waits for the beginning of a stream, or for a whole response.
    pub(crate) async fn begun(&self) -> Begin {
        self.when(|state| match (state.status, &state.head) {
            (Status::TooLong, _) => Some(Begin::TooLong),
            (Status::Complete, Some(head)) => Some(Begin::Whole {
                head: head.clone(),
                body: state.all.clone().unwrap_or_default(),
            }),
            (
                Status::Running,
                Some(Head {
                    stream: Some(style),
                    routed,
                }),
            ) => Some(Begin::Stream {
                style: style.clone(),
                routed: routed.clone(),
            }),
            (Status::Running, _) => None,
            _ => Some(Begin::Failed),
        })
        .await
    }

    /// Waits for what comes after this position of a stream.
    pub(crate) async fn after(&self, position: usize) -> More {
        self.when(|state| match state.status {
            Status::TooLong => Some(More::TooLong),
            _ if state.len() > position => Some(More::Bytes(state.piece(position))),
            Status::Running => None,
            Status::Complete | Status::Failed => Some(More::End),
            Status::Died => Some(More::Died),
        })
        .await
    }

    async fn when<T>(&self, ready: impl Fn(&State) -> Option<T>) -> T {
        loop {
            let mut changed = pin!(self.changed.notified());
            // From here on no change is missed.
            changed.as_mut().enable();
            if let Some(ready) = ready(&self.lock()) {
                return ready;
            }
            changed.await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn len(&self) -> usize {
        self.all.as_ref().map_or(self.bytes.len(), Bytes::len)
    }

    /// Some whole events after this position. Few enough that the call waits only briefly for the lock.
    fn piece(&self, position: usize) -> Bytes {
        if let Some(all) = &self.all {
            return all.slice(position..);
        }
        let rest = &self.bytes[position..];
        let Some(first) = rest.get(..PIECE_BYTES) else {
            return Bytes::copy_from_slice(rest);
        };
        let end = match memmem::rfind(first, EVENT_END) {
            Some(end) => end + EVENT_END.len(),
            None => memmem::find(rest, EVENT_END).map_or(rest.len(), |end| end + EVENT_END.len()),
        };
        Bytes::copy_from_slice(&rest[..end])
    }

    fn write(&mut self, bytes: &[u8]) {
        if self.status != Status::Running {
            return;
        }
        if self.make_room(bytes.len()) {
            self.bytes.extend_from_slice(bytes);
        }
    }

    /// Returns whether there is room for so many bytes more. Without it, what was recorded is dropped.
    fn make_room(&mut self, bytes: usize) -> bool {
        let needed = self.bytes.len() + bytes;
        let capacity = self.bytes.capacity();
        if needed <= capacity {
            return true;
        }
        let grown = needed.max(2 * capacity).max(FIRST_BYTES);
        if needed > self.most || !self.memory.cover(grown) {
            self.status = Status::TooLong;
            self.bytes = Vec::new();
            self.memory.release();
            return false;
        }
        self.bytes.reserve_exact(grown - self.bytes.len());
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{gateway::retries::memory::RecordingMemory, wire::stream_style::ErrorWriter};

    fn recording(limit: usize) -> (Arc<RecordingMemory>, Arc<Recording>) {
        let memory = Arc::new(RecordingMemory::new(limit));
        let recording = Arc::new(Recording::new(memory.begin("a"), 4 << 20));
        (memory, recording)
    }

    fn stream() -> Head {
        let style = StreamStyle {
            error: ErrorWriter::Chat,
            keep_alive: b"",
        };
        Head {
            stream: Some(style),
            routed: None,
        }
    }

    /// Reads a stream to its end.
    async fn read(recording: &Recording) -> Option<Vec<u8>> {
        let mut all = Vec::new();
        loop {
            match recording.after(all.len()).await {
                More::Bytes(bytes) => all.extend_from_slice(&bytes),
                More::End => return Some(all),
                More::Died | More::TooLong => return None,
            }
        }
    }

    #[tokio::test]
    async fn each_reader_gets_everything_whenever_it_begins() {
        let (_memory, recording) = recording(1 << 20);
        let mut readers = Vec::new();
        let mut written = Vec::new();
        recording.begin(stream());
        for piece in 0..200_u32 {
            if piece % 50 == 0 {
                let recording = recording.clone();
                readers.push(tokio::spawn(async move { read(&recording).await }));
            }
            let piece = piece.to_string().into_bytes();
            recording.write(&piece);
            written.extend(piece);
            tokio::task::yield_now().await;
        }
        recording.complete();
        for reader in readers {
            assert_eq!(reader.await.unwrap().as_ref(), Some(&written));
        }
        let Begin::Whole { body, .. } = recording.begun().await else {
            panic!("it is complete");
        };
        assert_eq!(body, written);
        recording.end();
        assert!(recording.is_complete());
    }

    #[tokio::test]
    async fn a_reader_gets_a_long_stream_in_pieces_of_whole_events() {
        let (_memory, recording) = recording(8 << 20);
        recording.begin(stream());
        let long = [vec![b'y'; 2 * PIECE_BYTES], EVENT_END.to_vec()].concat();
        let mut written = Vec::new();
        for number in 0..400_usize {
            let event = [vec![b'x'; number], EVENT_END.to_vec()].concat();
            recording.write(&event);
            written.extend(event);
            if number == 200 {
                recording.write(&long);
                written.extend(&long);
            }
        }
        let mut read = Vec::new();
        while read.len() < written.len() {
            let More::Bytes(piece) = recording.after(read.len()).await else {
                panic!("there is more");
            };
            assert!(piece.ends_with(EVENT_END));
            assert!(piece.len() <= PIECE_BYTES || piece.len() == long.len());
            read.extend_from_slice(&piece);
        }
        assert_eq!(read, written);
    }

    #[tokio::test]
    async fn a_call_that_fails_before_its_response_has_none() {
        let (_memory, recording) = recording(1 << 20);
        let waiting = {
            let recording = recording.clone();
            tokio::spawn(async move { matches!(recording.begun().await, Begin::Failed) })
        };
        tokio::task::yield_now().await;
        recording.end();
        assert!(waiting.await.unwrap());
    }

    #[tokio::test]
    async fn a_stream_that_fails_is_read_up_to_its_error() {
        let (_memory, recording) = recording(1 << 20);
        recording.begin(stream());
        recording.write(b"some");
        assert!(matches!(recording.begun().await, Begin::Stream { .. }));
        recording.write(b" error");
        recording.fail();
        recording.end();
        assert_eq!(read(&recording).await.unwrap(), b"some error");
        let begun = recording.begun().await;
        assert!(
            matches!(begun, Begin::Failed),
            "later requests run themselves"
        );
    }

    #[tokio::test]
    async fn a_stream_whose_task_died_is_cut() {
        let (_memory, recording) = recording(1 << 20);
        recording.begin(stream());
        recording.write(b"some");
        recording.end();
        assert!(matches!(recording.begun().await, Begin::Failed));
        assert!(matches!(recording.after(0).await, More::Bytes(_)));
        assert!(matches!(recording.after(4).await, More::Died));
    }

    #[tokio::test]
    async fn what_does_not_fit_is_dropped_and_its_memory_freed() {
        let (memory, recording) = recording(8 * FIRST_BYTES);
        recording.begin(stream());
        recording.write(b"some");
        assert_eq!(memory.reserved(), 0);
        recording.write(&vec![b'x'; 2 * FIRST_BYTES]);
        assert_eq!(memory.reserved(), 4 + FIRST_BYTES);
        recording.write(&vec![b'x'; FIRST_BYTES]);
        assert_eq!(memory.reserved(), 0);
        assert!(read(&recording).await.is_none());
        recording.write(b"more");
        recording.complete();
        assert!(matches!(recording.begun().await, Begin::TooLong));
        assert!(recording.is_lost());
        assert!(recording.with_rest(&[], 1 << 20).is_none());
        assert_eq!(memory.reserved(), 0);
    }

    #[test]
    fn the_stored_response_is_what_was_recorded_and_the_rest() {
        let (_memory, recording) = recording(1 << 20);
        recording.write(b"ab");
        let rest = [Bytes::from_static(b"c"), Bytes::from_static(b"d")];
        assert_eq!(recording.with_rest(&rest, 4).as_deref(), Some("abcd"));
        assert!(recording.with_rest(&rest, 3).is_none());
        recording.write(&[0xff]);
        assert!(recording.with_rest(&rest, 9).is_none(), "it is no text");
    }
}
