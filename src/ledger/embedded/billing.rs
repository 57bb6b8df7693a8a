//! Holds and charges: the steps between a call's admission and its bill.

use std::sync::{Arc, MutexGuard};

use super::{
    Embedded,
    directory::{Directory, Shared},
    sqlite::Database,
};
use crate::{
    base::money::NanoUsd,
    ledger::{Call, Charged, HoldRefused, LedgerError, credit::Credit},
    wire::chat::Usage,
};

impl Embedded {
    /// The account's credit, if a call may be paid from it.
    ///
    /// The key's state is read in the same step: a key that is disabled pays for nothing more,
    /// however lately it was looked up.
    fn payable<'a>(
        &self,
        directory: &'a Directory,
        call: &Call,
        now: i64,
    ) -> Result<MutexGuard<'a, Credit>, HoldRefused> {
        if !directory.is_active(&call.key_id) {
            return Err(HoldRefused::KeyInactive);
        }
        let no_account = |balance| HoldRefused::NoAccount { balance };
        let account = directory.account(&call.account_id);
        let account = account.map_err(|_| no_account(NanoUsd::default()))?;
        let credit = directory.credit(&call.account_id);
        if account.closed {
            return Err(no_account(credit.balance(now)));
        }
        // What cannot be charged for is not begun.
        if !self.writer.takes_charges() || directory.is_frozen(&call.account_id) {
            return Err(HoldRefused::Unavailable);
        }
        Ok(credit)
    }

    /// Sets aside what the call is to hold, or refuses and changes nothing. Says when the credit it is
    /// paid from expires.
    pub fn hold(&self, call: &Call, overdraft: NanoUsd) -> Result<Option<i64>, HoldRefused> {
        let directory = self.read();
        let now = call.admitted_ms.div_euclid(1_000);
        let mut credit = self.payable(&directory, call, now)?;
        let expires_at = credit.expires_at(now);
        credit
            .hold(call.id, call.held, call.most, overdraft, now)
            .map_err(HoldRefused::Short)?;
        Ok(expires_at)
    }

    /// Sets more aside, or refuses and keeps what there is.
    pub fn extend(
        &self,
        call: &Call,
        amount: NanoUsd,
        worst: NanoUsd,
        overdraft: NanoUsd,
    ) -> Result<(), HoldRefused> {
        let directory = self.read();
        let now = self.clock.now();
        let mut credit = self.payable(&directory, call, now)?;
        credit
            .extend(call.id, amount, worst, overdraft, now)
            .map_err(HoldRefused::Short)
    }

    /// Charges the call. When this returns it is committed, or nothing has changed.
    pub async fn charge(&self, call: Arc<Call>, usage: Usage) -> Result<Charged, LedgerError> {
        let charged = call.clone();
        self.writer
            .run_soon(
                move |database, directory| {
                    let cost = call.price(usage);
                    charge(database, directory, &call, usage, cost)
                },
                // Done with: a later transaction that fails must not hold it again.
                move |directory, _| {
                    let directory = directory.read();
                    directory.credit(&charged.account_id).release(charged.id);
                },
            )
            .await
    }

    /// Gives back what the call held, and remembers it.
    pub fn free(&self, call: Box<Call>) {
        let was_held = self.release(&call);
        // Nobody waits for it: it is a memory, and not money.
        self.writer.submit(move |database, _| {
            // What has no hold any more was charged, or told of before.
            if was_held || !database.has_call(call.id)? {
                database.insert_call(&call)?;
            }
            Ok(())
        });
    }

    /// Gives back what the call held.
    pub fn cancel(&self, call: &Call) {
        self.release(call);
    }

    fn release(&self, call: &Call) -> bool {
        let directory = self.read();
        directory.credit(&call.account_id).release(call.id)
    }
}

/// One step: the account's expired credit goes, the call is paid, and both are written down.
pub fn charge(
    database: &Database,
    directory: &Shared,
    call: &Call,
    usage: Usage,
    cost: NanoUsd,
) -> Result<Charged, LedgerError> {
    let now = call.ended_ms.div_euclid(1_000);
    let (update, charge) = {
        let directory = directory.read();
        let mut credit = directory.credit(&call.account_id);
        let update = credit.bring_up_to_date(now);
        (update, credit.charge(call.id, cost, now))
    };
    database.enter_update(&call.account_id, &update, now)?;
    let charge = charge.ok_or(LedgerError::NoHold)?;
    let charged = Charged {
        usage,
        cost,
        balance_before: charge.before,
        balance_after: charge.after,
    };
    database.insert_charged(call, charged, &charge)?;
    Ok(charged)
}
