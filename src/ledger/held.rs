//! A running call: what is set aside for it, its story so far, and how it ends.

use std::sync::Arc;

use super::{
    Attempt, Call, CallId, Ledger, LedgerError, Outcome, PendingCharge, Seen, Shortage, Step,
    postgres::Pending,
};
use crate::{
    base::{
        money::{NanoUsd, PicoUsd},
        rate::Reservation,
    },
    catalog::{Model, Prices},
    wire::chat::Usage,
};

/// Why nothing was set aside for a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HoldRefused {
    /// The key was disabled or deleted since it was looked up.
    KeyInactive,
    /// The account is closed or gone.
    NoAccount {
        balance: NanoUsd,
    },
    Short(Shortage),
    /// Charges cannot be written just now, or the account's books do not add up.
    Unavailable,
    /// What is remembered of the account or of settings is no longer so: look again.
    Stale,
}

/// Who pays for a call, what it may cost, and what it will be remembered by.
#[derive(Clone, Debug)]
pub struct HoldRequest<'a> {
    /// See [`Ledger::next_call`].
    pub id: CallId,
    /// What is known of the caller is as old as this.
    pub seen: Seen,
    /// Its place in the minute, where the ledger is to remember it.
    pub places: &'a [Reservation],
    pub request_id: &'a str,
    pub account_id: &'a str,
    pub key_id: &'a str,
    pub model: &'a str,
    pub routed_model: &'a str,
    pub prices: Arc<Prices>,
    pub stream: bool,
    pub reserved_tokens: u64,
    pub amount: NanoUsd,
    /// The most the call can come to.
    pub worst: NanoUsd,
    /// How a hybrid came to the model that answers, as JSON.
    pub decision: Option<String>,
    /// How far an account may go below zero by calls that cost more than they held.
    pub overdraft: NanoUsd,
}

/// Credit that is set aside for a running call.
///
/// Dropped without a word it is given back, so no ending of a call can strand it.
pub struct Held {
    ledger: Arc<Ledger>,
    /// Taken when it is said how the call ended. Shared only with a charge that is on its way.
    call: Option<Arc<Call>>,
    /// A charge that is on its way.
    pending: Option<Pending>,
    id: CallId,
    /// Its charge is in the spool: whatever becomes of this, the call is owed.
    is_spooled: bool,
    /// When the credit it is paid from expires.
    pub expires_at: Option<i64>,
}

impl HoldRequest<'_> {
    fn begun(self, admitted_ms: i64) -> Call {
        Call {
            id: self.id,
            request_id: self.request_id.to_owned(),
            account_id: self.account_id.to_owned(),
            key_id: self.key_id.to_owned(),
            model: self.model.to_owned(),
            routed_model: self.routed_model.to_owned(),
            upstream: None,
            stream: self.stream,
            reserved_tokens: self.reserved_tokens,
            held: self.amount,
            most: self.worst,
            prices: self.prices,
            provider_cost: None,
            admitted_ms,
            first_byte_ms: None,
            ended_ms: admitted_ms,
            outcome: Outcome::Lost,
            failure: None,
            attempts: Vec::new(),
            steps: Vec::new(),
            decision: self.decision,
            places: self.places.to_vec(),
            charged: None,
        }
    }
}

impl Ledger {
    /// Sets credit aside, or refuses and changes nothing.
    pub async fn hold(self: &Arc<Self>, request: HoldRequest<'_>) -> Result<Held, HoldRefused> {
        let (id, seen, overdraft) = (request.id, request.seen, request.overdraft);
        let call = Arc::new(request.begun(self.clock().now_ms()));
        let expires_at = match &**self {
            Self::Embedded(ledger) => ledger.hold(&call, overdraft)?,
            // Boxed, here and below, so that a ledger of our own keeps no room for it.
            Self::Shared(ledger) => Box::pin(ledger.hold(&call, seen, overdraft)).await?,
        };
        Ok(Held {
            ledger: self.clone(),
            call: Some(call),
            pending: None,
            id,
            is_spooled: false,
            expires_at,
        })
    }
}

impl Held {
    fn call_mut(&mut self) -> Option<&mut Call> {
        self.call.as_mut().map(Arc::make_mut)
    }

    pub fn id(&self) -> CallId {
        self.id
    }

    /// What is set aside, in nano-dollars.
    #[cfg(test)]
    pub fn amount(&self) -> i64 {
        self.call.as_ref().map_or(0, |call| call.held.nanos())
    }

    /// Which provider is asked.
    pub fn asks(&mut self, upstream: &Arc<str>) {
        if let Some(call) = self.call_mut() {
            call.upstream = Some(upstream.clone());
        }
    }

    /// Which provider was asked last.
    pub fn upstream(&self) -> &str {
        let call = self.call.as_ref();
        call.and_then(|call| call.upstream.as_deref())
            .unwrap_or_default()
    }

    /// Another model answers than was thought.
    pub fn goes_to(&mut self, model: &Model, decision: Option<String>) {
        if let Some(call) = self.call_mut() {
            call.routed_model.clone_from(&model.id);
            call.prices = model.prices.clone();
            call.decision = decision;
        }
    }

    /// A provider charges the operator so much more for this call.
    pub fn adds_provider_cost(&mut self, cost: PicoUsd) {
        if let Some(call) = self.call_mut() {
            call.provider_cost = Some(call.provider_cost.unwrap_or_default() + cost);
        }
    }

    /// What so many tokens of the call are charged.
    pub fn price(&self, usage: Usage) -> NanoUsd {
        let call = self.call.as_ref();
        call.map_or_else(NanoUsd::default, |call| call.price(usage))
    }

    /// It failed, and another may be asked.
    pub fn failed_attempt(&mut self, attempt: Attempt) {
        if let Some(call) = self.call_mut() {
            call.attempts.push(attempt);
        }
    }

    /// A step is over: a provider has answered, or a tool was run.
    pub fn step(&mut self, step: Step) {
        if let Some(call) = self.call_mut() {
            call.steps.push(step);
        }
    }

    /// Where its steps are in the minute by now.
    pub fn is_placed(&mut self, places: &[Reservation]) {
        if let Some(call) = self.call_mut() {
            places.clone_into(&mut call.places);
        }
    }

    /// Sets more aside for the next step, or refuses and keeps what there is. `amount` and `worst`
    /// are for the whole call.
    pub async fn extend(
        &mut self,
        reserved_tokens: u64,
        amount: NanoUsd,
        worst: NanoUsd,
        overdraft: NanoUsd,
    ) -> Result<(), HoldRefused> {
        let Some(call) = self.call.as_mut().map(Arc::make_mut) else {
            return Err(HoldRefused::Unavailable);
        };
        match &*self.ledger {
            Ledger::Embedded(ledger) => ledger.extend(call, amount, worst, overdraft)?,
            Ledger::Shared(ledger) => {
                Box::pin(ledger.extend(call, amount, worst, overdraft)).await?;
            }
        }
        call.reserved_tokens += reserved_tokens;
        call.held = call.held.max(amount);
        call.most = worst;
        Ok(())
    }

    /// The provider has begun to answer.
    pub fn answers(&mut self) {
        let now_ms = self.ledger.clock().now_ms();
        if let Some(call) = self.call_mut() {
            call.first_byte_ms = Some(now_ms);
        }
    }

    /// Charges what the call used at the answering model's prices, and gives back the rest.
    ///
    /// It is committed when this returns. A charge that fails to be written changes nothing: the
    /// credit stays set aside, and the charge can be tried again.
    pub async fn charge(&mut self, usage: Usage, outcome: Outcome) -> Result<Call, LedgerError> {
        let now_ms = self.ledger.clock().now_ms();
        let held = self.call.as_mut().ok_or(LedgerError::NoHold)?;
        let charged = match &*self.ledger {
            Ledger::Embedded(ledger) => {
                // In place: that it ended, and when, is said anew if this comes to nothing.
                Arc::make_mut(held).ends(now_ms, outcome);
                let charged = ledger.charge(held.clone(), usage).await?;
                Arc::make_mut(held).charged = Some(charged);
                self.call.take().map(Arc::unwrap_or_clone)
            }
            Ledger::Shared(ledger) => {
                let mut call = Call::clone(held);
                call.ends(now_ms, outcome);
                call.used(usage.total());
                let charge = ledger.charge(Box::new(call), usage, &mut self.pending);
                let charged = Box::pin(charge).await?;
                self.call = None;
                Some(charged)
            }
        };
        charged.ok_or(LedgerError::NoHold)
    }

    /// The charge, for the spool; `None` once it was made.
    pub fn owed(&self, usage: Usage, outcome: Outcome) -> Option<PendingCharge> {
        let mut call = Box::new(Call::clone(self.call.as_ref()?));
        call.ends(self.ledger.clock().now_ms(), outcome);
        call.used(usage.total());
        let cost = call.price(usage);
        Some(PendingCharge { call, usage, cost })
    }

    /// The charge is in the spool. From now on the call can only be charged: dropped, it leaves that to whoever reads
    /// the spool next, and nothing is written that says otherwise.
    pub fn is_spooled(&mut self) {
        self.is_spooled = true;
    }

    /// Gives everything back: the call came to nothing.
    pub fn free(mut self, outcome: Outcome, failure: Option<String>) -> Option<Call> {
        self.end(outcome, failure)
    }

    /// Gives everything back, and no trace is kept: the call was never begun.
    pub fn cancel(mut self) {
        if let Some(call) = self.call.take() {
            match &*self.ledger {
                Ledger::Embedded(ledger) => ledger.cancel(&call),
                Ledger::Shared(ledger) => ledger.cancel(&call),
            }
        }
    }

    fn end(&mut self, outcome: Outcome, failure: Option<String>) -> Option<Call> {
        let call = self.call.take()?;
        if self.is_spooled {
            return None;
        }
        let mut call = Arc::unwrap_or_clone(call);
        call.ends(self.ledger.clock().now_ms(), outcome);
        call.failure = failure;
        match &*self.ledger {
            Ledger::Embedded(ledger) => ledger.free(Box::new(call.clone())),
            Ledger::Shared(ledger) => ledger.free(&call),
        }
        Some(call)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.end(Outcome::Lost, None);
    }
}
