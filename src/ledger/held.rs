//! A running call: its hold, its record so far, and how it ends.

use std::sync::Arc;

use super::{
    Attempt, BudgetShortage, Call, CallId, Idempotency, KeyTaken, Ledger, LedgerError, Outcome,
    Payer, PendingCharge, Seen, Shortage, Step, credit::Refused, postgres::Pending,
};
use crate::{
    base::{
        keys::KeyDigest,
        money::{NanoUsd, PicoUsd},
        rate::Reservation,
    },
    catalog::{Model, Prices},
    wire::{agent::Agent, chat::Usage},
};

/// Why no hold was placed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HoldRefused {
    /// The key was disabled, deleted or rotated since it was looked up, or it has expired.
    KeyInactive,
    /// The account is closed or unknown.
    NoAccount {
        balance: NanoUsd,
    },
    Short(Shortage),
    /// These budgets have no room for it, the narrowest first.
    OverBudget(Vec<BudgetShortage>),
    /// Charges cannot be committed at present, or the account is frozen.
    Unavailable,
    /// The cached account or settings are out of date: look the caller up again.
    Stale,
    /// Another call has its idempotency key.
    KeyTaken(KeyTaken),
}

impl From<Refused> for HoldRefused {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Short(shortage) => Self::Short(shortage),
            Refused::OverBudget(budgets) => Self::OverBudget(budgets),
        }
    }
}

/// A hold to place: the account, the amounts, and the beginning of the call's record.
#[derive(Clone, Debug)]
pub struct HoldRequest<'a> {
    /// From [`Ledger::next_call`].
    pub id: CallId,
    /// The versions the caller was read at.
    pub seen: Seen,
    /// Rate-limit reservations for the ledger to store; empty if the limiter stores them itself.
    pub reservations: &'a [Reservation],
    pub request_id: &'a str,
    pub account_id: &'a str,
    pub payer: &'a Arc<Payer>,
    /// Digest of the key's secret that the request presented.
    pub secret: KeyDigest,
    pub model: &'a str,
    pub routed_model: &'a str,
    pub prices: Arc<Prices>,
    pub stream: bool,
    pub reserved_tokens: u64,
    pub amount: NanoUsd,
    /// The most that the call can cost.
    pub worst: NanoUsd,
    /// How a hybrid chose the routed model, as JSON.
    pub decision: Option<String>,
    /// The coding agent that sent the request.
    pub agent: Option<Arc<Agent>>,
    /// The client's idempotency key.
    pub idempotency: Option<Box<Idempotency>>,
    /// How far below zero the account may go by calls that cost more than they held.
    pub overdraft: NanoUsd,
}

/// The hold of a running call.
///
/// Dropping it releases the hold, so no way of ending a call can leak it.
pub struct Held {
    ledger: Arc<Ledger>,
    /// Taken when the call has ended. The reference is shared only with a charge in flight.
    call: Option<Arc<Call>>,
    /// A charge in flight, which a repeated [`Self::charge`] waits for.
    pending: Option<Pending>,
    id: CallId,
    /// Digest of the secret that the request presented; each extension checks it again.
    secret: KeyDigest,
    /// The charge is in the spool, so the call will be charged whatever happens to this hold.
    is_spooled: bool,
    /// When the credit that pays for the call expires.
    pub expires_at: Option<i64>,
}

impl HoldRequest<'_> {
    fn into_call(self, admitted_ms: i64) -> Call {
        Call {
            id: self.id,
            request_id: self.request_id.to_owned(),
            account_id: self.account_id.to_owned(),
            payer: self.payer.clone(),
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
            agent: self.agent,
            reservations: self.reservations.to_vec(),
            idempotency: self.idempotency,
            charged: None,
        }
    }
}

impl Ledger {
    /// Places a hold, or refuses and changes nothing.
    pub async fn hold(self: &Arc<Self>, request: HoldRequest<'_>) -> Result<Held, HoldRefused> {
        let (id, seen, overdraft) = (request.id, request.seen, request.overdraft);
        let secret = request.secret;
        let call = Arc::new(request.into_call(self.clock().now_ms()));
        let expires_at = match &**self {
            Self::Embedded(ledger) => ledger.hold(&call, secret, overdraft)?,
            // Boxed here and below, so that futures of the embedded ledger do not reserve space for it.
            Self::Shared(ledger) => Box::pin(ledger.hold(&call, secret, seen, overdraft)).await?,
        };
        Ok(Held {
            ledger: self.clone(),
            call: Some(call),
            pending: None,
            id,
            secret,
            is_spooled: false,
            expires_at,
        })
    }
}

impl Held {
    fn call_mut(&mut self) -> Option<&mut Call> {
        self.call.as_mut().map(Arc::make_mut)
    }

    pub(crate) fn id(&self) -> CallId {
        self.id
    }

    /// The request's `X-Request-ID`, as it is stored.
    pub(crate) fn request_id(&self) -> &str {
        let call = self.call.as_ref();
        call.map(|call| call.request_id.as_str())
            .unwrap_or_default()
    }

    /// The held amount in nano-dollars.
    pub(crate) fn amount(&self) -> i64 {
        self.call.as_ref().map_or(0, |call| call.held.nanos())
    }

    /// Records the deployment that the next attempt uses.
    pub(crate) fn set_deployment(&mut self, upstream: &Arc<str>) {
        if let Some(call) = self.call_mut() {
            call.upstream = Some(upstream.clone());
        }
    }

    /// The deployment of the last attempt.
    pub(crate) fn upstream(&self) -> &str {
        self.deployment().map_or("", |upstream| upstream)
    }

    pub(crate) fn deployment(&self) -> Option<&Arc<str>> {
        self.call.as_ref()?.upstream.as_ref()
    }

    /// Milliseconds from the admission to the provider's first byte.
    pub(crate) fn first_byte_after(&self) -> Option<u64> {
        let call = self.call.as_ref()?;
        u64::try_from(call.first_byte_ms? - call.admitted_ms).ok()
    }

    /// Records that another model than planned serves the call.
    pub(crate) fn set_route(&mut self, model: &Model, decision: Option<String>) {
        if let Some(call) = self.call_mut() {
            call.routed_model.clone_from(&model.id);
            call.prices = model.prices.clone();
            call.decision = decision;
        }
    }

    /// Adds what a provider charges the operator for a step.
    pub(crate) fn add_provider_cost(&mut self, cost: PicoUsd) {
        if let Some(call) = self.call_mut() {
            call.provider_cost = Some(call.provider_cost.unwrap_or_default() + cost);
        }
    }

    /// What this usage of the call is charged.
    pub(crate) fn price(&self, usage: Usage) -> NanoUsd {
        let call = self.call.as_ref();
        call.map_or_else(NanoUsd::default, |call| call.price(usage))
    }

    /// Records a failed attempt; another may follow.
    pub(crate) fn failed_attempt(&mut self, attempt: Attempt) {
        if let Some(call) = self.call_mut() {
            call.attempts.push(attempt);
        }
    }

    /// Records a finished step: of a provider or of a tool.
    pub(crate) fn step(&mut self, step: Step) {
        if let Some(call) = self.call_mut() {
            call.steps.push(step);
        }
    }

    /// Records the rate-limit reservations of all steps so far.
    pub(crate) fn set_reservations(&mut self, reservations: &[Reservation]) {
        if let Some(call) = self.call_mut() {
            reservations.clone_into(&mut call.reservations);
        }
    }

    /// Raises the hold for the next step, or refuses and changes nothing. `amount` and `worst` are for the whole call.
    pub(crate) async fn extend(
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
            Ledger::Embedded(ledger) => {
                ledger.extend(call, self.secret, amount, worst, overdraft)?;
            }
            Ledger::Shared(ledger) => {
                Box::pin(ledger.extend(call, self.secret, amount, worst, overdraft)).await?;
            }
        }
        call.reserved_tokens += reserved_tokens;
        call.held = call.held.max(amount);
        call.most = worst;
        Ok(())
    }

    /// Sets the response to store with the charge of a call with an idempotency key; `None` if it is too long.
    pub(crate) fn set_response(&mut self, body: Option<Arc<str>>) {
        if let Some(idempotency) = self.call_mut().and_then(|call| call.idempotency.as_mut()) {
            idempotency.body = body;
        }
    }

    /// Records when the provider's response began.
    pub(crate) fn first_byte(&mut self) {
        let now_ms = self.ledger.clock().now_ms();
        if let Some(call) = self.call_mut() {
            call.first_byte_ms = Some(now_ms);
        }
    }

    /// Settles the call: charges its usage at the routed model's prices, and releases the hold.
    ///
    /// The charge is committed when this returns `Ok`. A charge that fails changes nothing: the hold stays, and the
    /// charge can be repeated.
    pub async fn charge(&mut self, usage: Usage, outcome: Outcome) -> Result<Call, LedgerError> {
        let now_ms = self.ledger.clock().now_ms();
        let call = self.call.as_mut().ok_or(LedgerError::NoHold)?;
        let charged = match &*self.ledger {
            Ledger::Embedded(ledger) => {
                // Changed in place: a repeated charge overwrites time and outcome.
                Arc::make_mut(call).end(now_ms, outcome);
                let charged = ledger.charge(call.clone(), usage).await?;
                Arc::make_mut(call).charged = Some(charged);
                self.call.take().map(Arc::unwrap_or_clone)
            }
            Ledger::Shared(ledger) => {
                let mut call = Call::clone(call);
                call.end(now_ms, outcome);
                call.set_tokens_used(usage.total());
                let charge = ledger.charge(Box::new(call), usage, &mut self.pending);
                let charged = Box::pin(charge).await?;
                self.call = None;
                Some(charged)
            }
        };
        charged.ok_or(LedgerError::NoHold)
    }

    /// The charge, to be spooled; `None` once it has been made.
    pub(crate) fn pending_charge(&self, usage: Usage, outcome: Outcome) -> Option<PendingCharge> {
        let mut call = Box::new(Call::clone(self.call.as_ref()?));
        call.end(self.ledger.clock().now_ms(), outcome);
        call.set_tokens_used(usage.total());
        let cost = call.price(usage);
        Some(PendingCharge { call, usage, cost })
    }

    /// Records that the charge is in the spool. From now on the call can only be charged: when dropped, it keeps its
    /// hold for the spool's reader and writes no record of another outcome.
    pub(crate) fn mark_spooled(&mut self) {
        self.is_spooled = true;
    }

    /// Records that the charge was removed from the spool without having been made.
    pub(crate) fn unmark_spooled(&mut self) {
        self.is_spooled = false;
    }

    /// Releases the hold without a charge, and stores the call's record.
    pub fn release(mut self, outcome: Outcome, failure: Option<String>) -> Option<Call> {
        self.end(outcome, failure)
    }

    /// Releases the hold and stores no record: the call was never started.
    pub(crate) fn cancel(mut self) {
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
        call.end(self.ledger.clock().now_ms(), outcome);
        call.failure = failure;
        match &*self.ledger {
            Ledger::Embedded(ledger) => ledger.free(Box::new(call.clone())),
            Ledger::Shared(ledger) => ledger.release(&call),
        }
        Some(call)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.end(Outcome::Lost, None);
    }
}
