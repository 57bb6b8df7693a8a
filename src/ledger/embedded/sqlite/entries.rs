//! Entries other than charges, posted after the charges that came before them.

use rusqlite::params;

use super::Database;
use crate::{
    base::money::NanoUsd,
    ledger::{
        Grant,
        credit::{Granted, Update},
    },
};

/// A ledger entry.
struct Entry<'a> {
    account_id: &'a str,
    kind: &'static str,
    reference: &'a str,
    delta: i64,
    after: NanoUsd,
    at: i64,
}

impl Database {
    /// Posts a grant, with what is left of it after the debt is paid.
    pub(crate) fn post_grant(
        &self,
        account_id: &str,
        grant: &Grant,
        granted: &Granted,
    ) -> rusqlite::Result<()> {
        self.post_redo_log()?;
        self.connection.execute(
            "INSERT INTO credit_grants
                 (id, account_id, amount_nano_usd, expires_at, reason, created_at, reference, remaining_nano_usd)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
            params![
                grant.id,
                account_id,
                grant.amount.nanos(),
                grant.expires_at,
                grant.reason,
                grant.created_at,
                grant.reference,
                granted.remaining.nanos()
            ],
        )?;
        self.connection.execute(
            "UPDATE accounts SET debt_nano_usd = ?2, lapsed_at = NULL WHERE id = ?1",
            params![account_id, granted.debt.nanos()],
        )?;
        self.post_entry(&Entry {
            account_id,
            kind: "grant",
            reference: &grant.id,
            delta: grant.amount.nanos(),
            after: granted.after,
            at: grant.created_at,
        })
    }

    /// Posts the effects of time: debt that is paid, and credit that has expired.
    pub(crate) fn post_update(
        &self,
        account_id: &str,
        update: &Update,
        at: i64,
    ) -> rusqlite::Result<()> {
        let nothing_left = update.left.is_empty() && update.debt.is_none();
        if nothing_left && update.forfeits.is_empty() {
            return Ok(());
        }
        self.post_redo_log()?;
        for left in &update.left {
            self.set_remaining(&left.grant_id, left.remaining)?;
        }
        if let Some(debt) = update.debt {
            self.set_debt(account_id, debt)?;
        }
        if update.forfeits.is_empty() {
            return Ok(());
        }
        for forfeit in &update.forfeits {
            let left = &forfeit.left;
            self.set_remaining(&left.grant_id, left.remaining)?;
            self.post_entry(&Entry {
                account_id,
                kind: "expiry",
                reference: &left.grant_id,
                delta: -forfeit.amount.nanos(),
                after: forfeit.after,
                at,
            })?;
        }
        self.connection
            .prepare_cached("UPDATE accounts SET lapsed_at = ?2 WHERE id = ?1")?
            .execute(params![account_id, update.lapsed_at])?;
        Ok(())
    }

    pub(super) fn set_debt(&self, account_id: &str, debt: NanoUsd) -> rusqlite::Result<()> {
        self.connection
            .prepare_cached("UPDATE accounts SET debt_nano_usd = ?2 WHERE id = ?1")?
            .execute(params![account_id, debt.nanos()])?;
        Ok(())
    }

    pub(super) fn set_remaining(&self, grant_id: &str, remaining: NanoUsd) -> rusqlite::Result<()> {
        self.connection
            .prepare_cached("UPDATE credit_grants SET remaining_nano_usd = ?2 WHERE id = ?1")?
            .execute(params![grant_id, remaining.nanos()])?;
        Ok(())
    }

    fn post_entry(&self, entry: &Entry<'_>) -> rusqlite::Result<()> {
        self.connection
            .prepare_cached(
                "INSERT INTO ledger_entries
                     (seq, account_id, kind, ref, delta_nano_usd, balance_after_nano_usd, at)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
            )?
            .execute(params![
                self.redo_log.borrow_mut().next_seq(),
                entry.account_id,
                entry.kind,
                entry.reference,
                entry.delta,
                entry.after.nanos(),
                entry.at
            ])?;
        Ok(())
    }
}
