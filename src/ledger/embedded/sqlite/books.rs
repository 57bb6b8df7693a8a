//! Every change of a balance, entered in the books.

use rusqlite::params;

use super::Database;
use crate::{
    ledger::{
        Call, Grant,
        credit::{Charge, Granted, Update},
    },
    money::NanoUsd,
};

/// A line of the books.
struct Entry<'a> {
    account_id: &'a str,
    kind: &'static str,
    reference: &'a str,
    delta: i64,
    after: NanoUsd,
    at: i64,
}

impl Database {
    /// A grant with what is left of it once the debt is paid.
    pub fn enter_grant(
        &self,
        account_id: &str,
        grant: &Grant,
        granted: &Granted,
    ) -> rusqlite::Result<()> {
        self.connection.execute(
            "INSERT INTO credit_grants
                 (id, account_id, amount, expires_at, reason, created_at, reference, remaining)
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
            "UPDATE accounts SET debt = ?2, lapsed_at = NULL WHERE id = ?1",
            params![account_id, granted.debt.nanos()],
        )?;
        self.enter(&Entry {
            account_id,
            kind: "grant",
            reference: &grant.id,
            delta: grant.amount.nanos(),
            after: granted.after,
            at: grant.created_at,
        })
    }

    /// What time has done: what was owed and is paid, and what an expiry took.
    pub fn enter_update(&self, account_id: &str, update: &Update, at: i64) -> rusqlite::Result<()> {
        for left in &update.left {
            self.leave(left.grant_id.clone(), left.remaining);
        }
        if let Some(debt) = update.debt {
            self.set_debt(account_id, debt)?;
        }
        if update.forfeits.is_empty() {
            return Ok(());
        }
        for forfeit in &update.forfeits {
            let left = &forfeit.left;
            self.leave(left.grant_id.clone(), left.remaining);
            self.enter(&Entry {
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

    /// What a call cost.
    pub fn enter_charge(&self, call: &Call, charge: &Charge, at: i64) -> rusqlite::Result<()> {
        for left in &charge.left {
            self.leave(left.grant_id.clone(), left.remaining);
        }
        if let Some(debt) = charge.debt {
            self.set_debt(&call.account_id, debt)?;
        }
        self.enter(&Entry {
            account_id: &call.account_id,
            kind: "charge",
            reference: &call.id.0.to_string(),
            delta: charge.after.nanos() - charge.before.nanos(),
            after: charge.after,
            at,
        })
    }

    fn set_debt(&self, account_id: &str, debt: NanoUsd) -> rusqlite::Result<()> {
        self.connection
            .prepare_cached("UPDATE accounts SET debt = ?2 WHERE id = ?1")?
            .execute(params![account_id, debt.nanos()])?;
        Ok(())
    }

    /// Remembers what is left of a grant until the transaction ends.
    fn leave(&self, grant_id: std::sync::Arc<str>, remaining: NanoUsd) {
        self.left.borrow_mut().insert(grant_id, remaining);
    }

    fn enter(&self, entry: &Entry<'_>) -> rusqlite::Result<()> {
        self.connection
            .prepare_cached(
                "INSERT INTO ledger_entries (account_id, kind, ref, delta, balance_after, at)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
            )?
            .execute(params![
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
