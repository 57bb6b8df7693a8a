//! Operations on money: how they are encoded for the database, and its replies.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio::sync::oneshot;

use super::record::CallRecord;
use crate::{
    base::money::NanoUsd,
    ledger::{CallId, HoldRefused, LedgerError, Seen, credit::Shortage},
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
pub(crate) struct Reply {
    #[serde(rename = "no")]
    refusal: Option<Refusal>,
    pub expires: Option<i64>,
    #[serde(default)]
    balance: i64,
    #[serde(default)]
    available: i64,
    #[serde(default)]
    held: i64,
    #[serde(default)]
    exposure: i64,
    #[serde(default)]
    usable: i64,
    expired: Option<i64>,
    #[serde(default)]
    pub before: i64,
    #[serde(default)]
    pub after: i64,
    /// The call was charged although its hold was gone.
    #[serde(default)]
    pub late: bool,
}

/// Why an operation was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
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
}

/// The reply to a batch.
#[derive(Deserialize)]
pub(crate) struct BatchReply {
    /// The server's incarnation, which changes with a crash.
    pub life: i64,
    #[serde(rename = "answers")]
    pub replies: Vec<Reply>,
}

/// The terms of a hold or of its extension.
#[derive(Clone, Copy)]
pub(crate) struct HoldTerms<'a> {
    pub id: CallId,
    pub account_id: &'a str,
    pub key_id: &'a str,
    pub amount: NanoUsd,
    pub worst: NanoUsd,
    pub overdraft: NanoUsd,
    pub model: &'a str,
    pub reservations: &'a [i64],
    /// When the call was admitted, in seconds; needed if the hold is restored.
    pub admitted_at: i64,
}

/// An operation's JSON: kind `k`, call `i`, key, version of the settings `s` and of the account `v`, amount or cost
/// `n`, worst case `w`, overdraft `o`, model `m`, reservations `p`, time of admission `t`, and the call's record.
#[derive(Serialize)]
struct Encoded<'a> {
    k: &'static str,
    i: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    s: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    v: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    n: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    w: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    o: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    m: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    p: Option<&'a [i64]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    t: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    call: Option<&'a RawValue>,
}

impl<'a> Encoded<'a> {
    fn new(k: &'static str, id: CallId) -> Self {
        Self {
            k,
            i: id.0,
            key: None,
            s: None,
            v: None,
            n: None,
            w: None,
            o: None,
            m: None,
            p: None,
            t: None,
            call: None,
        }
    }

    fn with_terms(k: &'static str, terms: HoldTerms<'a>) -> Self {
        Self {
            key: Some(terms.key_id),
            n: Some(terms.amount.nanos()),
            w: Some(terms.worst.nanos()),
            o: Some(terms.overdraft.nanos()),
            m: Some(terms.model),
            p: Some(terms.reservations),
            t: Some(terms.admitted_at),
            ..Self::new(k, terms.id)
        }
    }
}

impl Operation {
    pub(crate) fn hold(terms: HoldTerms<'_>, seen: Seen) -> Self {
        let encoded = Encoded {
            // A caller read for this very request is no older than the request. Changes of settings at that moment must
            // not keep the request from starting, over and over while many settings are changed.
            s: (!seen.fresh).then_some(seen.settings),
            v: Some(seen.account),
            ..Encoded::with_terms("h", terms)
        };
        Self::new(Kind::Hold, terms.account_id, terms.id, &encoded)
    }

    pub(crate) fn extend(terms: HoldTerms<'_>) -> Self {
        let encoded = Encoded::with_terms("e", terms);
        Self::new(Kind::Extend, terms.account_id, terms.id, &encoded)
    }

    pub(crate) fn charge(record: &CallRecord<'_>, cost: NanoUsd) -> Self {
        let call = record.to_json();
        let encoded = Encoded {
            n: Some(cost.nanos()),
            call: Some(&call),
            ..Encoded::new("c", record.id())
        };
        Self::new(Kind::Charge, record.account_id(), record.id(), &encoded)
    }

    pub(crate) fn release(record: &CallRecord<'_>) -> Self {
        let call = record.to_json();
        let encoded = Encoded {
            call: Some(&call),
            ..Encoded::new("f", record.id())
        };
        Self::new(Kind::Release, record.account_id(), record.id(), &encoded)
    }

    pub(crate) fn cancel(account_id: &str, id: CallId) -> Self {
        Self::new(Kind::Cancel, account_id, id, &Encoded::new("x", id))
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
            batch.push_str(if is_renewal { "{\"anew\":1," } else { "{" });
            batch.push_str("\"again\":1,");
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

    pub(crate) fn hold_refused(&self) -> Option<HoldRefused> {
        let balance = NanoUsd::new(self.balance);
        Some(match self.refusal? {
            Refusal::Key => HoldRefused::KeyInactive,
            Refusal::Account => HoldRefused::NoAccount { balance },
            Refusal::Hold | Refusal::Lease | Refusal::Frozen => HoldRefused::Unavailable,
            Refusal::Stale => HoldRefused::Stale,
            Refusal::Short => HoldRefused::Short(Shortage {
                balance,
                available: NanoUsd::new(self.available),
                held: NanoUsd::new(self.held),
                exposure: NanoUsd::new(self.exposure),
                usable: NanoUsd::new(self.usable),
                expired_at: self.expired,
            }),
        })
    }

    /// An error if the call has ended without a charge.
    pub(crate) fn charged(self) -> Result<Self, LedgerError> {
        match self.refusal {
            None => Ok(self),
            Some(_) => Err(LedgerError::NoHold),
        }
    }
}
