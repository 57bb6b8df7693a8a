//! Idempotency keys: at most one call with a key is charged, and its response is stored in the transaction of its
//! charge.
//!
//! Which call with a key runs is decided before the ledger is asked (`gateway/retries`), and among gateways by its hold.
//! But a hold can be lost: with its process, or with the lease of a gateway that was paused. So the charge itself is
//! refused if another call with the key was charged meanwhile.

use std::{fmt, sync::Arc, time::Duration};

use super::{Call, CallId, Ledger, LedgerError};
use crate::base::hex::hex;

/// The key that a client has sent with a request, and what it was sent with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdempotencyKey {
    pub key: String,
    pub request_hash: RequestHash,
}

/// SHA-256 of a request's path and body.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct RequestHash(pub [u8; 32]);

/// How long responses are kept for retries, and how much room all of them may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeepLimits {
    pub keep: Duration,
    pub max_total_bytes: u64,
}

/// The key of a call, and the response that is stored with its charge.
#[derive(Clone, Debug)]
pub struct Idempotency {
    pub key: Arc<IdempotencyKey>,
    pub limits: KeepLimits,
    /// `None` until the call is over, or if the response is too long to be kept.
    pub body: Option<Arc<str>>,
}

/// The stored response of a charged call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct IdempotentResponse {
    pub call_id: CallId,
    pub request_hash: RequestHash,
    pub stream: bool,
    /// The model that a hybrid chose.
    pub routed_model: Option<String>,
    /// `None` if it was too long, or had to make room for others.
    pub body: Option<String>,
}

/// Why a call with an idempotency key gets no hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyTaken {
    /// Another call with it is running, or was charged a moment ago: a retry gets its response.
    InProgress,
    /// It was sent with another request.
    OtherRequest,
}

/// A request that got the response of another call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Replay {
    pub call_id: CallId,
    pub account_id: String,
    pub request_id: String,
    pub kind: ReplayKind,
    pub at_ms: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReplayKind {
    /// It got the response of a call that was still running.
    Attached,
    /// It got the response of a call that was over.
    Replayed,
}

/// Most replays that are recorded for one call; a client can ask for any number.
pub(crate) const MAX_REPLAYS_OF_CALL: u32 = 20;

impl RequestHash {
    pub(crate) fn of(path: &str, body: &[u8]) -> Self {
        let mut hash = ring::digest::Context::new(&ring::digest::SHA256);
        hash.update(path.as_bytes());
        hash.update(&[0]);
        hash.update(body);
        let mut bytes = [0; 32];
        bytes.copy_from_slice(hash.finish().as_ref());
        Self(bytes)
    }

    /// In hexadecimal digits.
    pub(super) fn to_hex(self) -> String {
        hex(&self.0)
    }

    pub(super) fn from_hex(text: &str) -> Option<Self> {
        let mut bytes = [0; 32];
        if text.len() != 2 * bytes.len() || !text.is_ascii() {
            return None;
        }
        for (at, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).ok()?;
        }
        Some(Self(bytes))
    }
}

impl fmt::Debug for RequestHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_hex())
    }
}

impl Idempotency {
    /// Until when the response of a call that ended then is kept.
    pub(super) fn kept_until_ms(&self, ended_ms: i64) -> i64 {
        let keep = i64::try_from(self.limits.keep.as_millis()).unwrap_or(i64::MAX);
        ended_ms.saturating_add(keep)
    }
}

impl Call {
    /// The routed model, if a hybrid chose it.
    pub(super) fn chosen_model(&self) -> Option<&str> {
        (self.routed_model != self.model).then_some(&*self.routed_model)
    }
}

impl ReplayKind {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Attached => "attached",
            Self::Replayed => "replayed",
        }
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        [Self::Attached, Self::Replayed]
            .into_iter()
            .find(|kind| kind.as_str() == text)
    }
}

impl Ledger {
    /// The response of the charged call of this account with this key, unless it is too old.
    pub(crate) async fn idempotent_response(
        &self,
        account_id: &str,
        key: &str,
    ) -> Result<Option<IdempotentResponse>, LedgerError> {
        match self {
            Self::Embedded(ledger) => ledger.idempotent_response(account_id, key).await,
            Self::Shared(ledger) => ledger.idempotent_response(account_id, key).await,
        }
    }

    /// Deletes responses that are too old, and makes room if they take more than `max_total_bytes`.
    pub async fn make_room_for_retries(&self, max_total_bytes: u64) -> Result<(), LedgerError> {
        match self {
            Self::Embedded(ledger) => ledger.sweep_idempotent_responses(max_total_bytes).await,
            Self::Shared(ledger) => ledger.sweep_idempotent_responses(max_total_bytes).await,
        }
    }

    /// Bytes of responses that this gateway has stored since it last made room. The embedded ledger makes room with each
    /// response.
    pub(crate) fn kept_bytes(&self) -> u64 {
        match self {
            Self::Embedded(_) => 0,
            Self::Shared(ledger) => ledger.kept_bytes(),
        }
    }

    /// Records a replay, without waiting for it: no credit depends on it.
    pub(crate) fn record_replay(
        &self,
        call_id: CallId,
        account_id: &str,
        request_id: &str,
        kind: ReplayKind,
    ) {
        let replay = Replay {
            call_id,
            account_id: account_id.to_owned(),
            request_id: request_id.to_owned(),
            kind,
            at_ms: self.clock().now_ms(),
        };
        match self {
            Self::Embedded(ledger) => ledger.record_replay(replay),
            Self::Shared(ledger) => ledger.record_replay(replay),
        }
    }

    /// The requests that got the response of this call, oldest first; at most [`MAX_REPLAYS_OF_CALL`].
    pub(crate) async fn replays_of(&self, call_id: CallId) -> Result<Vec<Replay>, LedgerError> {
        match self {
            Self::Embedded(ledger) => ledger.replays_of(call_id).await,
            Self::Shared(ledger) => ledger.replays_of(call_id).await,
        }
    }

    /// How many requests of an account got the response of another call, between two times in seconds.
    pub(crate) async fn count_replays(
        &self,
        account_id: &str,
        from: i64,
        to: i64,
    ) -> Result<u64, LedgerError> {
        let (from_ms, to_ms) = (from.saturating_mul(1_000), to.saturating_mul(1_000));
        match self {
            Self::Embedded(ledger) => ledger.count_replays(account_id, from_ms, to_ms).await,
            Self::Shared(ledger) => ledger.count_replays(account_id, from_ms, to_ms).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_depends_on_path_and_body_and_survives_its_text() {
        let of = RequestHash::of;
        assert_eq!(of("/a", b"body"), of("/a", b"body"));
        assert_ne!(of("/a", b"body"), of("/b", b"body"));
        assert_ne!(of("/a", b"body"), of("/a", b"bodY"));
        assert_ne!(of("/a", b"b"), of("/ab", b""));
        let hash = of("/v1/messages", b"{}");
        assert_eq!(RequestHash::from_hex(&hash.to_hex()), Some(hash));
        for text in ["", "00", &"g".repeat(64), &"é".repeat(32)] {
            assert_eq!(RequestHash::from_hex(text), None, "{text}");
        }
    }
}
