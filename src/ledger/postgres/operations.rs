//! Operations on money: how they are encoded for the database, and its replies.

use std::{mem::take, sync::Arc};

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio::sync::oneshot;

use super::record::{CallRecord, EncodedReservation};
use crate::{
    base::{keys::KeyDigest, money::NanoUsd, rate::Reservation},
    ledger::{
        BudgetShortage, CallId, HoldRefused, Idempotency, KeyTaken, LedgerError, Payer, Seen,
        budgets::narrowest_first, credit::Shortage,
    },
};

/// An operation on one account.
pub(crate) struct Operation {
    pub account_id: String,
    pub kind: Kind,
    pub id: CallId,
    /// JSON, as the database function reads it.
    text: Arc<str>,
    /// It may have been executed before: no reply was received.
    is_repeat: bool,
    /// Receives the reply; `None` for operations whose result is not awaited.
    reply: Option<oneshot::Sender<Result<Reply, OperationError>>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Hold,
    Extend,
    Charge,
    /// Releases the hold and stores the call's record.
    Release,
    /// Releases the hold and stores nothing.
    Cancel,
    /// Restores the hold of a running call after a crash or a lost lease.
    Renew,
}

/// The database rejected the operation with this error.
#[derive(Clone, Debug)]
pub(crate) struct OperationError(pub String);

/// The result of an operation.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Reply {
    refusal: Option<Refusal>,
    pub expires_at: Option<i64>,
    balance_nano_usd: i64,
    available_nano_usd: i64,
    held_nano_usd: i64,
    exposure_nano_usd: i64,
    usable_nano_usd: i64,
    expired_at: Option<i64>,
    /// The budgets that have refused it.
    budgets: Vec<BudgetShortage>,
    pub balance_before_nano_usd: i64,
    pub balance_after_nano_usd: i64,
    /// The call was charged although its hold was gone.
    pub is_late: bool,
}

/// Why an operation was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Refusal {
    Key,
    Account,
    /// The call has no hold.
    Hold,
    /// This gateway's lease has expired.
    Lease,
    Stale,
    Frozen,
    Short,
    Budget,
    /// Another call with its idempotency key is running or was charged.
    KeyInProgress,
    /// As `KeyInProgress`, but that call is of another request.
    KeyReused,
    /// Another call with its idempotency key was charged, so this one is not.
    KeySpent,
}

/// The reply to a batch.
#[derive(Deserialize)]
pub(crate) struct BatchReply {
    /// The server's incarnation, which changes with a crash.
    pub life: i64,
    pub replies: Vec<Reply>,
}

/// The terms of a hold or of its extension.
#[derive(Clone, Copy)]
pub(crate) struct HoldTerms<'a> {
    pub id: CallId,
    pub account_id: &'a str,
    pub payer: &'a Payer,
    /// Digest of the secret that the request presented.
    pub secret: KeyDigest,
    pub amount: NanoUsd,
    pub worst: NanoUsd,
    pub overdraft: NanoUsd,
    pub model: &'a str,
    pub reservations: &'a [Reservation],
    /// When the call was admitted, in seconds; needed if the hold is restored.
    pub admitted_at: i64,
    pub idempotency: Option<&'a Idempotency>,
}

/// An operation as the database function reads it: the type `batch_step`.
#[derive(Default, Serialize)]
struct Encoded<'a> {
    kind: &'static str,
    account_id: &'a str,
    call_id: u64,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    terms: Option<EncodedTerms<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    settings_version: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    account_version: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    call: Option<&'a RawValue>,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    key: Option<EncodedKey<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    response_body: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    response_until_ms: Option<i64>,
}

#[derive(Serialize)]
struct EncodedKey<'a> {
    idempotency_key: &'a str,
    request_hash: String,
}

#[derive(Serialize)]
struct EncodedTerms<'a> {
    key_id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    project_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    member_id: Option<&'a str>,
    secret: String,
    amount_nano_usd: i64,
    worst_case_nano_usd: i64,
    overdraft_nano_usd: i64,
    model: &'a str,
    reservations: Vec<EncodedReservation>,
    admitted_at: i64,
}

impl<'a> EncodedKey<'a> {
    fn of(idempotency: &'a Idempotency) -> Self {
        let key = &*idempotency.key;
        Self {
            idempotency_key: &key.key,
            request_hash: key.request_hash.to_hex(),
        }
    }
}

impl<'a> Encoded<'a> {
    fn with_terms(kind: &'static str, terms: HoldTerms<'a>) -> Self {
        let reservations = terms.reservations.iter();
        Self {
            kind,
            account_id: terms.account_id,
            call_id: terms.id.0,
            terms: Some(EncodedTerms {
                key_id: &terms.payer.key_id,
                project_id: terms.payer.project_id.as_deref(),
                member_id: terms.payer.member_id.as_deref(),
                secret: terms.secret.to_hex(),
                amount_nano_usd: terms.amount.nanos(),
                worst_case_nano_usd: terms.worst.nanos(),
                overdraft_nano_usd: terms.overdraft.nanos(),
                model: terms.model,
                reservations: reservations.map(EncodedReservation::from).collect(),
                admitted_at: terms.admitted_at,
            }),
            key: terms.idempotency.map(EncodedKey::of),
            ..Self::default()
        }
    }

    fn with_call(kind: &'static str, record: &'a CallRecord<'_>, call: &'a RawValue) -> Self {
        Self {
            kind,
            account_id: record.account_id(),
            call_id: record.id().0,
            call: Some(call),
            ..Self::default()
        }
    }
}

impl Operation {
    pub(crate) fn hold(terms: HoldTerms<'_>, seen: Seen) -> Self {
        let encoded = Encoded {
            // A caller read for this very request is no older than the request. Changes of settings at that moment must
            // not keep the request from starting, over and over while many settings are changed.
            settings_version: (!seen.fresh).then_some(seen.settings),
            account_version: Some(seen.account),
            ..Encoded::with_terms("hold", terms)
        };
        Self::new(Kind::Hold, terms.account_id, terms.id, &encoded)
    }

    pub(crate) fn extend(terms: HoldTerms<'_>) -> Self {
        let encoded = Encoded::with_terms("extend", terms);
        Self::new(Kind::Extend, terms.account_id, terms.id, &encoded)
    }

    /// The record has a cost.
    pub(crate) fn charge(record: &CallRecord<'_>) -> Self {
        let call = record.to_json();
        let idempotency = record.call.idempotency.as_deref();
        let encoded = Encoded {
            key: idempotency.map(EncodedKey::of),
            response_body: idempotency.and_then(|idempotency| idempotency.body.as_deref()),
            response_until_ms: idempotency.map(|it| it.kept_until_ms(record.call.ended_ms)),
            ..Encoded::with_call("charge", record, &call)
        };
        Self::new(Kind::Charge, record.account_id(), record.id(), &encoded)
    }

    pub(crate) fn release(record: &CallRecord<'_>) -> Self {
        let call = record.to_json();
        let encoded = Encoded::with_call("release", record, &call);
        Self::new(Kind::Release, record.account_id(), record.id(), &encoded)
    }

    pub(crate) fn cancel(account_id: &str, id: CallId) -> Self {
        let encoded = Encoded {
            kind: "cancel",
            account_id,
            call_id: id.0,
            ..Encoded::default()
        };
        Self::new(Kind::Cancel, account_id, id, &encoded)
    }

    /// `text` is the JSON of the call's hold or of its last extension.
    pub(crate) fn renew(account_id: &str, id: CallId, text: Arc<str>) -> Self {
        Self {
            kind: Kind::Renew,
            account_id: account_id.to_owned(),
            id,
            text,
            is_repeat: true,
            reply: None,
        }
    }

    fn new(kind: Kind, account_id: &str, id: CallId, encoded: &Encoded<'_>) -> Self {
        let text = serde_json::to_string(encoded);
        Self {
            kind,
            account_id: account_id.to_owned(),
            id,
            text: text.expect("numbers and strings serialize").into(),
            is_repeat: false,
            reply: None,
        }
    }

    /// The operation's JSON.
    pub(crate) fn text(&self) -> Arc<str> {
        self.text.clone()
    }

    /// The length of its JSON.
    pub(crate) fn bytes(&self) -> usize {
        self.text.len()
    }

    /// A copy to execute again in case a crash of the server has undone the operation.
    pub(crate) fn repeat(&self) -> Self {
        Self {
            kind: self.kind,
            account_id: self.account_id.clone(),
            id: self.id,
            text: self.text.clone(),
            is_repeat: true,
            reply: None,
        }
    }

    /// Whether the operation ends its call.
    pub(crate) fn ends_call(&self) -> bool {
        matches!(self.kind, Kind::Charge | Kind::Release | Kind::Cancel)
    }

    /// Returns the receiver of the operation's reply.
    pub(crate) fn expect_reply(&mut self) -> oneshot::Receiver<Result<Reply, OperationError>> {
        let (sender, receiver) = oneshot::channel();
        self.reply = Some(sender);
        receiver
    }

    /// The call's ID, if this is a hold.
    pub(crate) fn hold_id(&self) -> Option<CallId> {
        (self.kind == Kind::Hold).then_some(self.id)
    }

    /// Whether the operation can be dropped: it was not sent yet, and its caller no longer waits.
    pub(crate) fn is_abandoned(&self) -> bool {
        !self.is_repeat && self.reply.as_ref().is_some_and(oneshot::Sender::is_closed)
    }

    /// Marks the operation as sent: from now on it may have been executed.
    pub(crate) fn mark_sent(&mut self) {
        self.is_repeat = true;
    }

    /// Appends the operation to the text of a batch.
    pub(crate) fn write_to(&self, batch: &mut String) {
        if self.is_repeat {
            let is_renewal = self.kind == Kind::Renew;
            batch.push_str(if is_renewal { "{\"renew\":true," } else { "{" });
            batch.push_str("\"repeat\":true,");
            batch.push_str(&self.text[1..]);
        } else {
            batch.push_str(&self.text);
        }
    }

    /// Sends the reply to the caller. Returns a cancellation if this is a hold whose caller no longer waits.
    #[must_use]
    pub(crate) fn complete(self, reply: Result<Reply, OperationError>) -> Option<Self> {
        let is_placed_hold =
            self.kind == Kind::Hold && reply.as_ref().is_ok_and(|it| it.refusal.is_none());
        let Some(sender) = self.reply else {
            if let Err(OperationError(error)) = reply {
                let what = if self.kind == Kind::Renew {
                    "the hold of a running call could not be renewed"
                } else {
                    "the end of a call could not be stored"
                };
                tracing::error!(call = %self.id, error, "{what}");
            }
            return None;
        };
        let is_received = sender.send(reply).is_ok();
        (is_placed_hold && !is_received).then(|| Self::cancel(&self.account_id, self.id))
    }
}

impl Reply {
    /// Whether a new lease is needed first.
    pub(crate) fn needs_lease(&self) -> bool {
        self.refusal == Some(Refusal::Lease)
    }

    pub(crate) fn hold_refused(&mut self) -> Option<HoldRefused> {
        let balance = NanoUsd::new(self.balance_nano_usd);
        Some(match self.refusal? {
            Refusal::Key => HoldRefused::KeyInactive,
            Refusal::Account => HoldRefused::NoAccount { balance },
            Refusal::Hold | Refusal::Lease | Refusal::Frozen => HoldRefused::Unavailable,
            Refusal::Stale => HoldRefused::Stale,
            Refusal::KeyInProgress | Refusal::KeySpent => {
                HoldRefused::KeyTaken(KeyTaken::InProgress)
            }
            Refusal::KeyReused => HoldRefused::KeyTaken(KeyTaken::OtherRequest),
            Refusal::Budget => HoldRefused::OverBudget(narrowest_first(take(&mut self.budgets))),
            Refusal::Short => HoldRefused::Short(Shortage {
                balance,
                available: NanoUsd::new(self.available_nano_usd),
                held: NanoUsd::new(self.held_nano_usd),
                exposure: NanoUsd::new(self.exposure_nano_usd),
                usable: NanoUsd::new(self.usable_nano_usd),
                expired_at: self.expired_at,
            }),
        })
    }

    /// An error if the call has ended without a charge.
    pub(crate) fn charged(self) -> Result<Self, LedgerError> {
        match self.refusal {
            None => Ok(self),
            Some(Refusal::KeySpent) => Err(LedgerError::KeySpent),
            Some(_) => Err(LedgerError::NoHold),
        }
    }
}
