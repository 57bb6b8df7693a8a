//! The steps that money takes, as the database is told them and as it answers.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio::sync::oneshot;

use super::record::CallRecord;
use crate::{
    base::money::NanoUsd,
    ledger::{CallId, HoldRefused, LedgerError, Seen, credit::Shortage},
};

/// What is to be done for one account.
pub struct Step {
    pub account_id: String,
    pub kind: Kind,
    pub id: CallId,
    /// As the database reads it.
    text: Arc<str>,
    /// It may have been done before: the answer was not heard.
    again: bool,
    /// Whoever waits for the answer; nobody for what must only be done.
    tell: Option<oneshot::Sender<Result<Answer, StepError>>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Hold,
    Extend,
    Charge,
    /// Gives everything back and writes down how it ended.
    Free,
    /// Gives everything back and leaves no trace.
    Forget,
    /// Makes sure of the hold of a running call after a crash or a lost lease.
    Renew,
}

/// Why a step was not taken at all: the database would not have it.
#[derive(Clone, Debug)]
pub struct StepError(pub String);

/// What became of a step.
#[derive(Debug, Default, Deserialize)]
pub struct Answer {
    no: Option<No>,
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
    /// The call was charged though its hold was gone.
    #[serde(default)]
    pub late: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum No {
    Key,
    Account,
    /// Nothing is held any more.
    Hold,
    /// This gateway's lease has run out.
    Lease,
    Stale,
    Frozen,
    Short,
}

/// What the database answers to a batch.
#[derive(Deserialize)]
pub struct Answers {
    pub life: i64,
    pub answers: Vec<Answer>,
}

/// What a hold or its extension asks for.
#[derive(Clone, Copy)]
pub struct Wanted<'a> {
    pub id: CallId,
    pub account_id: &'a str,
    pub key_id: &'a str,
    pub amount: NanoUsd,
    pub worst: NanoUsd,
    pub overdraft: NanoUsd,
    pub model: &'a str,
    pub places: &'a [i64],
    /// When the call was admitted, in seconds: a hold that is made again has to know.
    pub admitted_at: i64,
}

#[derive(Serialize)]
struct Written<'a> {
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

impl<'a> Written<'a> {
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

    fn wanted(k: &'static str, wanted: Wanted<'a>) -> Self {
        Self {
            key: Some(wanted.key_id),
            n: Some(wanted.amount.nanos()),
            w: Some(wanted.worst.nanos()),
            o: Some(wanted.overdraft.nanos()),
            m: Some(wanted.model),
            p: Some(wanted.places),
            t: Some(wanted.admitted_at),
            ..Self::new(k, wanted.id)
        }
    }
}

impl Step {
    pub fn hold(wanted: Wanted<'_>, seen: Seen) -> Self {
        let written = Written {
            // What was looked up for this very request is no older than the request. Whoever changes settings
            // at that moment must not keep it from beginning, again and again while they change many.
            s: (!seen.fresh).then_some(seen.settings),
            v: Some(seen.account),
            ..Written::wanted("h", wanted)
        };
        Self::new(Kind::Hold, wanted.account_id, wanted.id, &written)
    }

    pub fn extend(wanted: Wanted<'_>) -> Self {
        let written = Written::wanted("e", wanted);
        Self::new(Kind::Extend, wanted.account_id, wanted.id, &written)
    }

    pub fn charge(record: &CallRecord<'_>, cost: NanoUsd) -> Self {
        let call = record.to_json();
        let written = Written {
            n: Some(cost.nanos()),
            call: Some(&call),
            ..Written::new("c", record.id())
        };
        Self::new(Kind::Charge, record.account_id(), record.id(), &written)
    }

    pub fn free(record: &CallRecord<'_>) -> Self {
        let call = record.to_json();
        let written = Written {
            call: Some(&call),
            ..Written::new("f", record.id())
        };
        Self::new(Kind::Free, record.account_id(), record.id(), &written)
    }

    pub fn forget(account_id: &str, id: CallId) -> Self {
        Self::new(Kind::Forget, account_id, id, &Written::new("x", id))
    }

    /// `text` is that of the call's hold, or of its last extension.
    pub fn renew(account_id: &str, id: CallId, text: Arc<str>) -> Self {
        Self {
            kind: Kind::Renew,
            account_id: account_id.to_owned(),
            id,
            text,
            again: true,
            tell: None,
        }
    }

    fn new(kind: Kind, account_id: &str, id: CallId, written: &Written<'_>) -> Self {
        let text = serde_json::to_string(written);
        Self {
            kind,
            account_id: account_id.to_owned(),
            id,
            text: text.expect("numbers and texts can be written").into(),
            again: false,
            tell: None,
        }
    }

    /// The step as the database reads it.
    pub fn text(&self) -> Arc<str> {
        self.text.clone()
    }

    /// The same step to be taken once more, should a crash of the server have undone it.
    pub fn repetition(&self) -> Self {
        Self {
            kind: self.kind,
            account_id: self.account_id.clone(),
            id: self.id,
            text: self.text.clone(),
            again: true,
            tell: None,
        }
    }

    /// Whether the call is over with it.
    pub fn ends_call(&self) -> bool {
        matches!(self.kind, Kind::Charge | Kind::Free | Kind::Forget)
    }

    /// What will be answered.
    pub fn listen(&mut self) -> oneshot::Receiver<Result<Answer, StepError>> {
        let (tell, answer) = oneshot::channel();
        self.tell = Some(tell);
        answer
    }

    /// The call whose hold it is, if it is one.
    pub fn held(&self) -> Option<CallId> {
        (self.kind == Kind::Hold).then_some(self.id)
    }

    /// Whether it need not be done, because nobody has heard of it and nobody waits for it any more.
    pub fn is_idle(&self) -> bool {
        !self.again && self.tell.as_ref().is_some_and(oneshot::Sender::is_closed)
    }

    /// It is on its way: from now on it may have been done.
    pub fn is_sent(&mut self) {
        self.again = true;
    }

    /// As it is written into a batch.
    pub fn write_to(&self, batch: &mut String) {
        if self.again {
            let is_renewal = self.kind == Kind::Renew;
            batch.push_str(if is_renewal { "{\"anew\":1," } else { "{" });
            batch.push_str("\"again\":1,");
            batch.push_str(&self.text[1..]);
        } else {
            batch.push_str(&self.text);
        }
    }

    /// Tells whoever waits. A hold that nobody waits for any more has to be forgotten.
    #[must_use]
    pub fn tell(self, answer: Result<Answer, StepError>) -> Option<Self> {
        let forget = self.kind == Kind::Hold && answer.as_ref().is_ok_and(|it| it.no.is_none());
        let Some(tell) = self.tell else {
            if let Err(StepError(error)) = answer {
                let what = if self.kind == Kind::Renew {
                    "the hold of a running call could not be renewed"
                } else {
                    "the end of a call could not be written down"
                };
                tracing::error!(call = %self.id, error, "{what}");
            }
            return None;
        };
        let heard = tell.send(answer).is_ok();
        (forget && !heard).then(|| Self::forget(&self.account_id, self.id))
    }
}

impl Answer {
    /// Whether the lease has to be taken anew first.
    pub fn needs_lease(&self) -> bool {
        self.no == Some(No::Lease)
    }

    pub fn refusal(&self) -> Option<HoldRefused> {
        let balance = NanoUsd::new(self.balance);
        Some(match self.no? {
            No::Key => HoldRefused::KeyInactive,
            No::Account => HoldRefused::NoAccount { balance },
            No::Hold | No::Lease | No::Frozen => HoldRefused::Unavailable,
            No::Stale => HoldRefused::Stale,
            No::Short => HoldRefused::Short(Shortage {
                balance,
                available: NanoUsd::new(self.available),
                held: NanoUsd::new(self.held),
                exposure: NanoUsd::new(self.exposure),
                usable: NanoUsd::new(self.usable),
                expired_at: self.expired,
            }),
        })
    }

    /// A call that has ended otherwise cannot be charged.
    pub fn charged(self) -> Result<Self, LedgerError> {
        match self.no {
            None => Ok(self),
            Some(_) => Err(LedgerError::NoHold),
        }
    }
}
