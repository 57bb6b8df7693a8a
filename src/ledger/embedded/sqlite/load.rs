//! Loads everything into the in-memory directory.

use std::sync::Arc;

use rusqlite::Row;

use super::{super::directory::Directory, Database, redo_log::RedoLog, unreadable};
use crate::{
    base::money::NanoUsd,
    catalog::{Plan, Tier, Track},
    ledger::{
        Account, CallId, Grant, LimitRule, ModelSettings,
        credit::{Credit, Funds},
    },
};

impl Database {
    pub(crate) fn load(&self) -> rusqlite::Result<Directory> {
        self.read_redo_log()?;
        let log = self.redo_log.borrow();
        let mut directory = Directory::default();
        let mut accounts = self.connection.prepare(
            "SELECT id, email, name, track, tier, closed, created_at, debt_nano_usd, lapsed_at
             FROM accounts",
        )?;
        for row in
            accounts.query_map([], |row| Ok((read_account(row)?, row.get(7)?, row.get(8)?)))?
        {
            let (account, debt, lapsed_at) = row?;
            let (grants, funds) = self.grants_of(&account.id, &log)?.into_iter().unzip();
            let debt = log.debt_of(&account.id).unwrap_or(NanoUsd::new(debt));
            let credit = Credit::restored(funds, debt, lapsed_at);
            directory.restore_credit(&account.id, grants, credit);
            directory.put_account(account);
        }
        drop(log);
        for counted in self.budgets()?.into_values().flatten() {
            directory.put_budget(counted);
        }
        for project in self.projects()? {
            directory.put_project(project);
        }
        for key in self.live_keys()? {
            directory.put_key(key);
        }
        let mut models = self
            .connection
            .prepare("SELECT model_id, enabled, unlisted FROM model_settings")?;
        let settings = models.query_map([], |row| {
            Ok((
                row.get(0)?,
                ModelSettings {
                    enabled: row.get(1)?,
                    unlisted: row.get(2)?,
                },
            ))
        })?;
        for model in settings {
            let (id, settings) = model?;
            directory.put_model_settings(id, settings);
        }
        let mut limits = self
            .connection
            .prepare("SELECT account_id, model_id, rpm, tpm FROM limits")?;
        for rule in limits.query_map([], read_limit)? {
            directory.put_limit(&rule?);
        }
        Ok(directory)
    }

    /// The account's grants in the order in which they were given, and what is left of each.
    fn grants_of(&self, account_id: &str, log: &RedoLog) -> rusqlite::Result<Vec<(Grant, Funds)>> {
        let mut grants = self.connection.prepare_cached(
            "SELECT id, amount_nano_usd, expires_at, reason, created_at, reference, remaining_nano_usd
             FROM credit_grants
             WHERE account_id = ?1 ORDER BY rowid",
        )?;
        let read = |row: &Row<'_>| {
            let grant = Grant {
                id: row.get(0)?,
                amount: NanoUsd::new(row.get(1)?),
                expires_at: row.get(2)?,
                reason: row.get(3)?,
                created_at: row.get(4)?,
                reference: row.get(5)?,
            };
            let remaining = NanoUsd::new(row.get(6)?);
            let remaining = log.left_of(&grant.id).unwrap_or(remaining);
            let funds = Funds::new(Arc::from(grant.id.as_str()), remaining, grant.expires_at);
            Ok((grant, funds))
        };
        grants.query_map([account_id], read)?.collect()
    }

    /// The highest call ID that is stored.
    pub(crate) fn last_call(&self) -> rusqlite::Result<Option<CallId>> {
        let last = "SELECT max(id) FROM calls";
        let last: Option<i64> = self.connection.query_row(last, [], |row| row.get(0))?;
        let last = last.max(self.last_unposted());
        Ok(last.and_then(|id| u64::try_from(id).ok()).map(CallId))
    }
}

pub(crate) fn read_account(row: &Row<'_>) -> rusqlite::Result<Account> {
    let (track, tier): (String, String) = (row.get(3)?, row.get(4)?);
    let plan = Track::parse(&track).zip(Tier::parse(&tier));
    let plan = plan.and_then(|(track, tier)| Plan::new(track, tier));
    Ok(Account {
        id: row.get(0)?,
        email: row.get(1)?,
        name: row.get(2)?,
        plan: plan.ok_or_else(|| unreadable(3, "track and tier"))?,
        closed: row.get(5)?,
        created_at: row.get(6)?,
    })
}

fn read_limit(row: &Row<'_>) -> rusqlite::Result<LimitRule> {
    let named = |name: String| (!name.is_empty()).then_some(name);
    Ok(LimitRule {
        account: named(row.get(0)?),
        model: named(row.get(1)?),
        requests: row.get(2)?,
        tokens: row.get(3)?,
    })
}
