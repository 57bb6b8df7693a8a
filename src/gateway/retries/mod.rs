//! Retries: requests that get the response of another call instead of a call of their own.
//!
//! A request with an `Idempotency-Key` gets the response of the running call with that key. Without a key, a request that
//! its client marks as a retry gets the response of the same request whose client has left. Both read a [`Recording`],
//! which a call writes while it runs, and which is bounded in memory. What is stored with charges is the ledger's part.
//!
//! A call that ends without a complete response leaves nothing behind: the next request runs.

mod keyed;
mod left;
mod memory;
mod recording;

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

pub(crate) use self::memory::Reservation;
pub(crate) use self::{
    keyed::Begun,
    recording::{Begin, Head, More, Recording},
};
use self::{keyed::KeyedCalls, left::LeftCalls, memory::RecordingMemory};
use crate::{
    config,
    ledger::{CallId, Idempotency, IdempotencyKey, KeepLimits, RequestHash},
};

/// How long the response of a call whose client has left can be taken.
const TAKEN_WITHIN: Duration = Duration::from_mins(10);

pub struct Retries {
    settings: config::Retries,
    memory: Arc<RecordingMemory>,
    keyed: KeyedCalls,
    left: LeftCalls,
    /// Streams that are stored, by the IDs of their responses.
    responses: keyed::RunningResponses,
    /// How many requests have attached to a running call.
    attached: AtomicU64,
}

impl Retries {
    pub(crate) fn new(settings: config::Retries) -> Arc<Self> {
        Arc::new(Self {
            memory: Arc::new(RecordingMemory::new(settings.memory_bytes)),
            settings,
            keyed: KeyedCalls::default(),
            left: LeftCalls::default(),
            responses: keyed::RunningResponses::default(),
            attached: AtomicU64::default(),
        })
    }

    /// Whether `Idempotency-Key` is served.
    pub(crate) fn is_enabled(&self) -> bool {
        self.settings.enabled
    }

    /// Whether the response of a call whose client has left can be taken.
    pub(crate) fn attaches(&self) -> bool {
        self.settings.attach
    }

    /// How much room stored responses may take.
    pub(crate) fn max_total_bytes(&self) -> u64 {
        self.settings.max_total_bytes
    }

    /// Begins a call with a key, or finds the one that is running.
    pub(crate) fn begin(self: &Arc<Self>, account_id: &str, key: IdempotencyKey) -> Begun {
        self.keyed.begin(account_id, key, |key| RecordedCall {
            recording: self.recording(account_id, usize::MAX),
            retries: self.clone(),
            account_id: account_id.into(),
            key: Some(key),
            response_id: OnceLock::new(),
        })
    }

    /// Begins to record a call without a key, up to the size of a response that would be stored: most are not needed.
    pub(crate) fn record(self: &Arc<Self>, account_id: &str) -> Arc<RecordedCall> {
        Arc::new(RecordedCall {
            recording: self.recording(account_id, self.settings.max_bytes),
            retries: self.clone(),
            account_id: account_id.into(),
            key: None,
            response_id: OnceLock::new(),
        })
    }

    fn recording(&self, account_id: &str, most: usize) -> Arc<Recording> {
        Arc::new(Recording::new(self.memory.begin(account_id), most))
    }

    /// Offers the response of a call whose client has left.
    pub(crate) fn leave(&self, key_id: &str, request: RequestHash, recording: Arc<Recording>) {
        if !recording.is_lost() {
            self.left.add(key_id, request, recording);
        }
    }

    /// Reserves memory for a stored response while it is sent; `None` if there is no room.
    pub(crate) fn reserve(&self, account_id: &str, bytes: usize) -> Option<Reservation> {
        let mut reservation = self.memory.begin(account_id);
        reservation.grow(bytes).then_some(reservation)
    }

    /// Whether some call's client has left lately, and its response was not taken.
    pub fn is_left(&self) -> bool {
        !self.left.is_empty()
    }

    /// Takes the response of a call of this API key with the same request whose client has left; the oldest first.
    pub(crate) fn take_left(&self, key_id: &str, request: RequestHash) -> Option<Arc<Recording>> {
        self.left.take(key_id, request)
    }

    /// The recording of a stream that is running and will be stored as this response.
    pub(crate) fn running_response(&self, account_id: &str, id: &str) -> Option<Arc<Recording>> {
        self.responses.find(account_id, id)
    }

    /// Counts a request that reads the response of a running call, or waits for it.
    pub(crate) fn attach(&self) {
        self.attached.fetch_add(1, Relaxed);
    }

    /// How many requests have attached to a running call so far.
    pub fn attached(&self) -> u64 {
        self.attached.load(Relaxed)
    }

    /// Forgets calls whose clients left too long ago.
    pub(crate) fn sweep(&self) {
        self.left.sweep();
    }

    /// Bytes of memory that recordings take.
    pub fn recorded_bytes(&self) -> usize {
        self.memory.reserved()
    }
}

/// A call that is recorded, held by all that work on it. When the last of them drops it, the call is over: if its
/// response is not complete by then, requests that wait for it run themselves.
pub(crate) struct RecordedCall {
    recording: Arc<Recording>,
    retries: Arc<Retries>,
    account_id: Box<str>,
    key: Option<Arc<IdempotencyKey>>,
    response_id: OnceLock<String>,
}

impl RecordedCall {
    pub(crate) fn recording(&self) -> &Arc<Recording> {
        &self.recording
    }

    pub(crate) fn is_keyed(&self) -> bool {
        self.key.is_some()
    }

    /// For the ledger: the key, and how long its response is kept.
    pub(crate) fn idempotency(&self) -> Option<Box<Idempotency>> {
        let settings = &self.retries.settings;
        let key = self.key.clone()?;
        Some(Box::new(Idempotency {
            key,
            limits: KeepLimits {
                keep: settings.keep,
                max_total_bytes: settings.max_total_bytes,
            },
            body: None,
        }))
    }

    /// The response as it is stored: what was recorded and `rest`; `None` if it is too long.
    pub(crate) fn to_store(&self, rest: &[bytes::Bytes]) -> Option<Arc<str>> {
        self.recording
            .with_rest(rest, self.retries.settings.max_bytes)
    }

    /// Most bytes of a response that is stored.
    pub(crate) fn max_bytes(&self) -> usize {
        self.retries.settings.max_bytes
    }

    /// Records that the call has failed, after the error at the end of a stream. The key is free from now on, though the
    /// call may still wait for its client to read.
    pub(crate) fn fail(&self) {
        self.free_key();
        self.recording.fail();
    }

    /// First the key, then the recording: a request that finds a recording that has failed finds the key free.
    fn free_key(&self) {
        if let Some(key) = &self.key {
            let (account_id, recording) = (&self.account_id, &self.recording);
            self.retries.keyed.end(account_id, &key.key, recording);
        }
    }

    pub(crate) fn admitted(&self, call: CallId) {
        self.recording.set_call(call);
    }

    /// Makes the stream findable by the ID of its response, until the call is over.
    pub(crate) fn will_be_stored(self: &Arc<Self>, response_id: &str) {
        if self.response_id.set(response_id.to_owned()).is_ok() {
            let (account_id, recording) = (&self.account_id, &self.recording);
            self.retries
                .responses
                .add(account_id, response_id, recording);
        }
    }
}

impl Drop for RecordedCall {
    fn drop(&mut self) {
        self.free_key();
        if let Some(id) = self.response_id.get() {
            self.retries.responses.remove(id);
        }
        self.recording.end();
    }
}
