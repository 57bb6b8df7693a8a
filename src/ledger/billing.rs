//! Holds and charges: the steps between a call's admission and its bill.

use std::sync::atomic::Ordering;

use super::{
    Ledger, LedgerError,
    credit::{HoldId, Shortage},
    now,
};
use crate::{
    auth::random_id,
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
}

/// Who pays for a call, and what it may cost.
#[derive(Clone, Copy, Debug)]
pub struct HoldRequest<'a> {
    pub account_id: &'a str,
    pub key_id: &'a str,
    pub amount: NanoUsd,
    /// The most the call can come to.
    pub worst: NanoUsd,
    /// How far an account may go below zero by calls that cost more than they held.
    pub overdraft: NanoUsd,
}

/// Credit that is set aside for a running call.
///
/// Dropped without a charge it is given back, so no ending of a call can strand it.
pub struct Held<'a> {
    ledger: &'a Ledger,
    account_id: String,
    key_id: String,
    id: HoldId,
    /// When the credit it is paid from expires.
    pub expires_at: Option<i64>,
}

/// A call that was answered, as it is charged and remembered.
#[derive(Clone, Debug)]
pub struct UsageRow {
    pub id: String,
    pub account_id: String,
    pub key_id: String,
    pub model: String,
    pub routed_model: String,
    pub usage: Usage,
    pub prices: Prices,
    pub cost: NanoUsd,
    pub stream: bool,
    pub at: i64,
}

impl Ledger {
    /// Sets credit aside, or refuses and changes nothing.
    ///
    /// The key's state is read in the same step: a key that is disabled pays for nothing more,
    /// however lately it was looked up.
    pub fn hold(&self, request: HoldRequest<'_>) -> Result<Held<'_>, HoldRefused> {
        let directory = self.read();
        if !directory.is_active(request.key_id) {
            return Err(HoldRefused::KeyInactive);
        }
        let no_account = |balance| HoldRefused::NoAccount { balance };
        let account = directory.account(request.account_id);
        let account = account.map_err(|_| no_account(NanoUsd::default()))?;
        let now = now();
        let mut credit = directory.credit(request.account_id);
        if account.closed {
            return Err(no_account(credit.balance(now)));
        }
        let id = HoldId(self.holds.fetch_add(1, Ordering::Relaxed));
        let expires_at = credit.expires_at(now);
        credit
            .hold(id, request.amount, request.worst, request.overdraft, now)
            .map_err(HoldRefused::Short)?;
        drop(credit);
        Ok(Held {
            ledger: self,
            account_id: request.account_id.to_owned(),
            key_id: request.key_id.to_owned(),
            id,
            expires_at,
        })
    }

    /// The account's charged calls within these times, newest first.
    pub async fn usage(
        &self,
        account_id: &str,
        from: i64,
        to: i64,
    ) -> Result<Vec<UsageRow>, LedgerError> {
        self.account(account_id)?;
        let account_id = account_id.to_owned();
        self.writer
            .run(move |database, _| Ok(database.usage(&account_id, from, to)?))
            .await
    }
}

impl Held<'_> {
    /// Charges what the call used at the answering model's prices, and gives back the rest.
    ///
    /// It is committed when this returns. A charge that fails to be written changes nothing.
    pub async fn settle(
        self,
        requested: &Model,
        target: &Model,
        usage: Usage,
        stream: bool,
    ) -> Result<NanoUsd, LedgerError> {
        let fresh = usage.prompt.saturating_sub(usage.cached);
        // Reasoning is part of the completion and costs what it costs.
        let output = usage.completion.into();
        let cost = target
            .prices
            .cost(fresh.into(), usage.cached.into(), output);
        let row = UsageRow {
            id: random_id("use_"),
            account_id: self.account_id.clone(),
            key_id: self.key_id.clone(),
            model: requested.id.clone(),
            routed_model: target.id.clone(),
            usage,
            prices: target.prices,
            cost,
            stream,
            at: now(),
        };
        let id = self.id;
        self.ledger
            .writer
            .run(move |database, directory| {
                let planned = directory
                    .read()
                    .credit(&row.account_id)
                    .plan_charge(id, cost, row.at);
                let charge = planned.ok_or(LedgerError::Stopped)?;
                database.insert_charge(&row, &charge)?;
                directory.read().credit(&row.account_id).apply(&charge);
                Ok(cost)
            })
            .await
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        let directory = self.ledger.read();
        directory.credit(&self.account_id).release(self.id);
    }
}
