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
            "UPDATE accounts SET track = ?2, tier = ?3, closed = ?4 WHERE id = ?1",
            params![
                account.id,
                account.plan.track().as_str(),
                account.plan.tier().as_str(),
                account.closed
            ],
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
