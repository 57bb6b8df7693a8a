//! Holds and charges: the steps between a call's admission and its bill.

use std::sync::{Arc, MutexGuard};

use super::{
    Attempt, Call, CallId, Charged, Ledger, LedgerError, Outcome, Step,
    credit::{Credit, Shortage},
    directory::{Directory, Shared},
    sqlite::Database,
};
use crate::{
    catalog::{Model, Prices},
    money::NanoUsd,
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
}

/// Who pays for a call, what it may cost, and what it will be remembered by.
#[derive(Clone, Debug)]
pub struct HoldRequest<'a> {
    pub request_id: &'a str,
    pub account_id: &'a str,
    pub key_id: &'a str,
    pub model: &'a str,
    pub routed_model: &'a str,
    pub prices: Prices,
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
    /// Taken when it is said how the call ended.
    call: Option<Box<Call>>,
    id: CallId,
    account_id: String,
    /// When the credit it is paid from expires.
    pub expires_at: Option<i64>,
}

impl Ledger {
    /// The account's credit, if a call may be paid from it.
    ///
    /// The key's state is read in the same step: a key that is disabled pays for nothing more,
    /// however lately it was looked up.
    fn payable<'a>(
        &self,
        directory: &'a Directory,
        account_id: &str,
        key_id: &str,
        now: i64,
    ) -> Result<MutexGuard<'a, Credit>, HoldRefused> {
        if !directory.is_active(key_id) {
            return Err(HoldRefused::KeyInactive);
        }
        let no_account = |balance| HoldRefused::NoAccount { balance };
        let account = directory.account(account_id);
        let account = account.map_err(|_| no_account(NanoUsd::default()))?;
        let credit = directory.credit(account_id);
        if account.closed {
            return Err(no_account(credit.balance(now)));
        }
        // What cannot be charged for is not begun.
        if !self.writer.takes_charges() || directory.is_frozen(account_id) {
            return Err(HoldRefused::Unavailable);
        }
        Ok(credit)
    }

    /// Sets credit aside, or refuses and changes nothing.
    pub fn hold(self: &Arc<Self>, request: HoldRequest<'_>) -> Result<Held, HoldRefused> {
        let directory = self.read();
        let now_ms = self.clock.now_ms();
        let now = now_ms.div_euclid(1_000);
        let mut credit = self.payable(&directory, request.account_id, request.key_id, now)?;
        let id = self.ids.next(now_ms);
        let expires_at = credit.expires_at(now);
        credit
            .hold(id, request.amount, request.worst, request.overdraft, now)
            .map_err(HoldRefused::Short)?;
        drop(credit);
        Ok(Held {
            ledger: self.clone(),
            account_id: request.account_id.to_owned(),
            call: Some(Box::new(begun(id, now_ms, request))),
            id,
            expires_at,
        })
    }
}

fn begun(id: CallId, admitted_ms: i64, request: HoldRequest<'_>) -> Call {
    Call {
        id,
        request_id: request.request_id.to_owned(),
        account_id: request.account_id.to_owned(),
        key_id: request.key_id.to_owned(),
        model: request.model.to_owned(),
        routed_model: request.routed_model.to_owned(),
        upstream: None,
        stream: request.stream,
        reserved_tokens: request.reserved_tokens,
        held: request.amount,
        most: request.worst,
        prices: request.prices,
        admitted_ms,
        first_byte_ms: None,
        ended_ms: admitted_ms,
        outcome: Outcome::Lost,
        failure: None,
        attempts: Vec::new(),
        steps: Vec::new(),
        decision: request.decision,
        charged: None,
    }
}

impl Held {
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
        if let Some(call) = &mut self.call {
            call.upstream = Some(upstream.clone());
        }
    }

    /// Another model answers than was thought.
    pub fn goes_to(&mut self, model: &Model, decision: Option<String>) {
        if let Some(call) = &mut self.call {
            call.routed_model.clone_from(&model.id);
            call.prices = model.prices;
            call.decision = decision;
        }
    }

    /// It failed, and another may be asked.
    pub fn failed_attempt(&mut self, attempt: Attempt) {
        if let Some(call) = &mut self.call {
            call.attempts.push(attempt);
        }
    }

    /// A step is over: a provider has answered, or a tool was run.
    pub fn step(&mut self, step: Step) {
        if let Some(call) = &mut self.call {
            call.steps.push(step);
        }
    }

    /// Sets more aside for the next step, or refuses and keeps what there is. `amount` and `worst`
    /// are for the whole call.
    pub fn extend(
        &mut self,
        reserved_tokens: u64,
        amount: NanoUsd,
        worst: NanoUsd,
        overdraft: NanoUsd,
    ) -> Result<(), HoldRefused> {
        let Some(call) = &mut self.call else {
            return Err(HoldRefused::Unavailable);
        };
        let directory = self.ledger.read();
        let now = self.ledger.clock.now();
        let mut credit = self
            .ledger
            .payable(&directory, &self.account_id, &call.key_id, now)?;
        credit
            .extend(self.id, amount, worst, overdraft, now)
            .map_err(HoldRefused::Short)?;
        call.reserved_tokens += reserved_tokens;
        call.held = call.held.max(amount);
        call.most = worst;
        Ok(())
    }

    /// The provider has begun to answer.
    pub fn answers(&mut self) {
        let now_ms = self.ledger.clock.now_ms();
        if let Some(call) = &mut self.call {
            call.first_byte_ms = Some(now_ms);
        }
    }

    /// Charges what the call used at the answering model's prices, and gives back the rest.
    ///
    /// It is committed when this returns. A charge that fails to be written changes nothing: the
    /// credit stays set aside, and the charge can be tried again.
    pub async fn charge(&mut self, usage: Usage, outcome: Outcome) -> Result<Call, LedgerError> {
        let mut call = self.call.clone().ok_or(LedgerError::NoHold)?;
        call.ended_ms = self.ledger.clock.now_ms();
        call.outcome = outcome;
        let charged = self
            .ledger
            .writer
            .run_then(
                move |database, directory| charge(database, directory, *call, usage),
                // Done with: a later transaction that fails must not hold it again.
                |directory, call| directory.read().credit(&call.account_id).release(call.id),
            )
            .await?;
        self.call = None;
        Ok(charged)
    }

    /// Gives everything back: the call came to nothing.
    pub fn free(mut self, outcome: Outcome, failure: Option<String>) -> Option<Call> {
        self.end(outcome, failure)
    }

    /// Gives everything back, and no trace is kept: the call was never begun.
    pub fn cancel(mut self) {
        self.call = None;
    }

    fn end(&mut self, outcome: Outcome, failure: Option<String>) -> Option<Call> {
        let mut call = self.call.take()?;
        call.ended_ms = self.ledger.clock.now_ms();
        call.outcome = outcome;
        call.failure = failure;
        let row = call.clone();
        // Nobody waits for it: it is a memory, and not money.
        self.ledger
            .writer
            .submit(move |database, _| Ok(database.insert_call(&row)?));
        Some(*call)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.end(Outcome::Lost, None);
        let directory = self.ledger.read();
        directory.credit(&self.account_id).release(self.id);
    }
}

/// One step: the account's expired credit goes, the call is paid, both are entered in the books.
fn charge(
    database: &Database,
    directory: &Shared,
    mut call: Call,
    usage: Usage,
) -> Result<Call, LedgerError> {
    let (now, cost) = (call.ended_ms.div_euclid(1_000), call.price(usage));
    let (update, charge) = {
        let directory = directory.read();
        let mut credit = directory.credit(&call.account_id);
        let update = credit.bring_up_to_date(now);
        (update, credit.charge(call.id, cost, now))
    };
    database.enter_update(&call.account_id, &update, now)?;
    let charge = charge.ok_or(LedgerError::NoHold)?;
    call.charged = Some(Charged {
        usage,
        cost,
        balance_before: charge.before,
        balance_after: charge.after,
    });
    database.enter_charge(&call, &charge, now)?;
    database.insert_call(&call)?;
    Ok(call)
}
