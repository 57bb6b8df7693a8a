//! Accounts, limits and models.

use rusqlite::params;

use super::Database;
use crate::ledger::{Account, LimitRule, ModelSettings};

impl Database {
    pub(crate) fn insert_account(&self, account: &Account) -> rusqlite::Result<()> {
        self.connection.execute(
            "INSERT INTO accounts (id, email, name, track, tier, closed, created_at)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
            params![
                account.id,
                account.email,
                account.name,
                account.plan.track().as_str(),
                account.plan.tier().as_str(),
                account.closed,
                account.created_at
            ],
        )?;
        Ok(())
    }

    pub(crate) fn update_account(&self, account: &Account) -> rusqlite::Result<()> {
        self.connection.execute(
            "UPDATE accounts SET email = ?2, name = ?3, track = ?4, tier = ?5, closed = ?6 WHERE id = ?1",
            params![
                account.id,
                account.email,
                account.name,
                account.plan.track().as_str(),
                account.plan.tier().as_str(),
                account.closed
            ],
        )?;
        Ok(())
    }

    /// Sets the names of all keys and projects of an account, and drops the bodies of its responses for retries.
    pub(crate) fn erase_names(&self, account_id: &str, name: &str) -> rusqlite::Result<()> {
        for named in [
            "UPDATE api_keys SET name = ?2 WHERE account_id = ?1",
            "UPDATE projects SET name = ?2 WHERE account_id = ?1",
        ] {
            self.connection.execute(named, params![account_id, name])?;
        }
        self.connection.execute(
            "UPDATE idempotent_responses SET body = NULL WHERE account_id = ?1 AND body IS NOT NULL",
            params![account_id],
        )?;
        Ok(())
    }

    pub(crate) fn set_reason(
        &self,
        account_id: &str,
        grant_id: &str,
        reason: &str,
    ) -> rusqlite::Result<()> {
        self.connection.execute(
            "UPDATE credit_grants SET reason = ?3 WHERE id = ?2 AND account_id = ?1",
            params![account_id, grant_id, reason],
        )?;
        Ok(())
    }

    pub(crate) fn put_limit(&self, rule: &LimitRule) -> rusqlite::Result<()> {
        let account = rule.account.as_deref().unwrap_or_default();
        let model = rule.model.as_deref().unwrap_or_default();
        if rule.requests.is_none() && rule.tokens.is_none() {
            let delete = "DELETE FROM limits WHERE account_id = ?1 AND model_id = ?2";
            self.connection.execute(delete, params![account, model])?;
            return Ok(());
        }
        self.connection.execute(
            "INSERT INTO limits (account_id, model_id, rpm, tpm) VALUES (?1, ?2, ?3, ?4)
             ON CONFLICT (account_id, model_id) DO UPDATE SET rpm = ?3, tpm = ?4",
            params![account, model, rule.requests, rule.tokens],
        )?;
        Ok(())
    }

    pub(crate) fn put_model_settings(
        &self,
        id: &str,
        settings: ModelSettings,
    ) -> rusqlite::Result<()> {
        self.connection.execute(
            "INSERT INTO model_settings (model_id, enabled, unlisted) VALUES (?1, ?2, ?3)
             ON CONFLICT (model_id) DO UPDATE SET enabled = ?2, unlisted = ?3",
            params![id, settings.enabled, settings.unlisted],
        )?;
        Ok(())
    }
}
