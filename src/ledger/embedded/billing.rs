//! Holds, and how they end: charged or released.

use std::sync::{Arc, MutexGuard};

use super::{Embedded, command::Command, directory::Directory};
use crate::{
    base::{keys::KeyDigest, money::NanoUsd},
    ledger::{
        Call, Charged, HoldRefused, LedgerError,
        credit::{Credit, Wanted},
    },
    wire::chat::Usage,
};

impl Embedded {
    /// The account's credit, if the call may be charged to it.
    ///
    /// The key's state and its secret are checked in the same step, so a disabled key or a secret that was replaced pays
    /// for nothing, however recently it was looked up.
    fn payable<'a>(
        &self,
        directory: &'a Directory,
        call: &Call,
        secret: KeyDigest,
        now: i64,
    ) -> Result<MutexGuard<'a, Credit>, HoldRefused> {
        if !directory.is_accepted(&call.payer.key_id, secret, now) {
            return Err(HoldRefused::KeyInactive);
        }
        let no_account = |balance| HoldRefused::NoAccount { balance };
        let account = directory.account(&call.account_id);
        let account = account.map_err(|_| no_account(NanoUsd::default()))?;
        let credit = directory.credit(&call.account_id);
        if account.closed {
            return Err(no_account(credit.balance(now)));
        }
        // A call that could not be charged must not start.
        if !self.writer.takes_charges() || directory.is_frozen(&call.account_id) {
            return Err(HoldRefused::Unavailable);
        }
        Ok(credit)
    }

    /// Places the call's hold, or refuses and changes nothing. Returns when the credit that pays for it expires.
    pub(crate) fn hold(
        &self,
        call: &Call,
        secret: KeyDigest,
        overdraft: NanoUsd,
    ) -> Result<Option<i64>, HoldRefused> {
        let directory = self.read();
        let now = call.admitted_ms.div_euclid(1_000);
        let mut credit = self.payable(&directory, call, secret, now)?;
        let expires_at = credit.expires_at(now);
        let wanted = Wanted {
            id: call.id,
            payer: &call.payer,
            amount: call.held,
            worst: call.most,
            overdraft,
        };
        credit.hold(wanted, now)?;
        Ok(expires_at)
    }

    /// Extends the hold, or refuses and keeps it as it is.
    pub(crate) fn extend(
        &self,
        call: &Call,
        secret: KeyDigest,
        amount: NanoUsd,
        worst: NanoUsd,
        overdraft: NanoUsd,
    ) -> Result<(), HoldRefused> {
        let directory = self.read();
        let now = self.clock.now();
        let mut credit = self.payable(&directory, call, secret, now)?;
        let wanted = Wanted {
            id: call.id,
            payer: &call.payer,
            amount,
            worst,
            overdraft,
        };
        Ok(credit.extend(wanted, now)?)
    }

    /// Charges the call. When this returns it is committed, or nothing has changed.
    pub(crate) async fn charge(
        &self,
        call: Arc<Call>,
        usage: Usage,
    ) -> Result<Charged, LedgerError> {
        self.writer
            .execute_soon(|reply| Command::Charge(call, usage, reply))
            .await
    }

    /// Releases the hold of a call and records the call.
    pub(crate) fn free(&self, call: Box<Call>) {
        let was_held = self.release(&call);
        // Without waiting for a reply: it is only a record, and no credit depends on it.
        self.writer
            .submit(Command::RecordReleased { call, was_held });
    }

    /// Releases the hold of a call and records nothing.
    pub(crate) fn cancel(&self, call: &Call) {
        self.release(call);
    }

    fn release(&self, call: &Call) -> bool {
        let directory = self.read();
        directory.credit(&call.account_id).release(call.id)
    }
}
