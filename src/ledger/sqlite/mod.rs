//! The database file and its statements.

use std::{fs::File, path::Path};

use rusqlite::{Connection, Row, params};

mod open;

pub use open::probe;

use super::{
    Account, Grant, Key, KeyState, LimitRule, ModelSettings, OpenError, UsageRow,
    credit::{Charge, Credit, Funds},
    directory::Directory,
};
use crate::{
    auth::KeyDigest,
    catalog::{Plan, Prices, Tier, Track},
    config::Durability,
    money::{NanoUsd, TokenPrice},
    wire::chat::Usage,
};

pub struct Database {
    connection: Connection,
    /// Held for as long as the database is open; the system lets go of it when a process dies.
    _lock: File,
}

impl Database {
    /// Opens a database, bringing its tables up to date, and takes it for this process alone.
    pub fn open(path: &Path, durability: Durability) -> Result<Self, OpenError> {
        let lock = open::lock_beside(path)?;
        let connection = open::connect(path, durability)?;
        Ok(Self {
            connection,
            _lock: lock,
        })
    }

    /// Opens the transaction that the next steps belong to.
    pub fn begin(&self) -> rusqlite::Result<()> {
        self.connection.execute_batch("BEGIN IMMEDIATE")
    }

    pub fn commit(&self) -> rusqlite::Result<()> {
        self.connection.execute_batch("COMMIT")
    }

    /// Ends a transaction that failed; SQLite may have ended it already.
    pub fn roll_back(&self) {
        let _ = self.connection.execute_batch("ROLLBACK");
    }

    pub fn load(&self) -> rusqlite::Result<Directory> {
        let mut directory = Directory::default();
        let mut accounts = self.connection.prepare(
            "SELECT id, email, name, track, tier, closed, created_at, debt FROM accounts",
        )?;
        for row in accounts.query_map([], |row| Ok((read_account(row)?, row.get(7)?)))? {
            let (account, debt) = row?;
            let (grants, funds) = self.grants_of(&account.id)?.into_iter().unzip();
            let credit = Credit::restored(funds, NanoUsd::new(debt));
            directory.restore_credit(&account.id, grants, credit);
            directory.put_account(account);
        }
        let mut keys = self.connection.prepare(
            "SELECT id, account_id, name, prefix, state, created_at, digest FROM api_keys",
        )?;
        for key in keys.query_map([], read_key)? {
            directory.put_key(key?);
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

    /// In the order in which they were given.
    /// The account's grants in the order in which they were given, and what is left of each.
    fn grants_of(&self, account_id: &str) -> rusqlite::Result<Vec<(Grant, Funds)>> {
        let mut grants = self.connection.prepare_cached(
            "SELECT id, amount, expires_at, reason, created_at, remaining FROM credit_grants
             WHERE account_id = ?1 ORDER BY rowid",
        )?;
        let read = |row: &Row<'_>| {
            let grant = Grant {
                id: row.get(0)?,
                amount: NanoUsd::new(row.get(1)?),
                expires_at: row.get(2)?,
                reason: row.get(3)?,
                created_at: row.get(4)?,
            };
            let remaining = NanoUsd::new(row.get(5)?);
            let funds = Funds::new(grant.id.clone(), remaining, grant.expires_at);
            Ok((grant, funds))
        };
        grants.query_map([account_id], read)?.collect()
    }

    pub fn insert_account(&self, account: &Account) -> rusqlite::Result<()> {
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

    pub fn update_account(&self, account: &Account) -> rusqlite::Result<()> {
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

    pub fn insert_key(&self, key: &Key) -> rusqlite::Result<()> {
        self.connection.execute(
            "INSERT INTO api_keys (id, account_id, name, prefix, state, created_at, digest)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
            params![
                key.id,
                key.account_id,
                key.name,
                key.prefix,
                key.state.as_str(),
                key.created_at,
                key.digest.0
            ],
        )?;
        Ok(())
    }

    pub fn update_key(&self, key: &Key) -> rusqlite::Result<()> {
        self.connection.execute(
            "UPDATE api_keys SET state = ?2 WHERE id = ?1",
            params![key.id, key.state.as_str()],
        )?;
        Ok(())
    }

    /// A grant with what is left of it once the debt is paid, and its entry in the books.
    pub fn insert_grant(
        &self,
        account_id: &str,
        grant: &Grant,
        remaining: NanoUsd,
        debt: NanoUsd,
        balance_after: NanoUsd,
    ) -> rusqlite::Result<()> {
        let step = &self.connection;
        step.execute(
            "INSERT INTO credit_grants
                 (id, account_id, amount, expires_at, reason, created_at, remaining)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
            params![
                grant.id,
                account_id,
                grant.amount.nanos(),
                grant.expires_at,
                grant.reason,
                grant.created_at,
                remaining.nanos()
            ],
        )?;
        let (delta, at) = (grant.amount.nanos(), grant.created_at);
        enter(
            step,
            account_id,
            "grant",
            &grant.id,
            delta,
            balance_after,
            at,
        )?;
        set_debt(step, account_id, debt)
    }

    /// A charge: what it leaves of the grants, its entry in the books, and the call it is for.
    pub fn insert_charge(&self, row: &UsageRow, charge: &Charge) -> rusqlite::Result<()> {
        let step = &self.connection;
        for (grant_id, remaining) in &charge.remaining {
            step.prepare_cached("UPDATE credit_grants SET remaining = ?2 WHERE id = ?1")?
                .execute(params![grant_id, remaining.nanos()])?;
        }
        let (account, delta) = (&row.account_id, -charge.cost.nanos());
        enter(
            step,
            account,
            "charge",
            &row.id,
            delta,
            charge.balance_after,
            row.at,
        )?;
        set_debt(step, account, charge.debt)?;
        let (usage, prices) = (row.usage, row.prices);
        step.prepare_cached(
            "INSERT INTO usage (id, account_id, key_id, model, routed_model, prompt, cached,
                 completion, reasoning, input_price, cached_price, output_price, cost, stream, at)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)",
        )?
        .execute(params![
            row.id,
            row.account_id,
            row.key_id,
            row.model,
            row.routed_model,
            usage.prompt,
            usage.cached,
            usage.completion,
            usage.reasoning,
            prices.input.picos(),
            prices.cached_input.picos(),
            prices.output.picos(),
            row.cost.nanos(),
            row.stream,
            row.at
        ])?;
        Ok(())
    }

    #[cfg(test)]
    pub fn limit_pages(&self, pages: Option<u32>) -> rusqlite::Result<()> {
        let most = pages.unwrap_or(u32::MAX >> 1);
        let set = |row: &Row<'_>| row.get::<_, i64>(0);
        self.connection
            .query_row(&format!("PRAGMA max_page_count = {most}"), [], set)
            .map(|_| ())
    }

    pub fn usage(&self, account_id: &str, from: i64, to: i64) -> rusqlite::Result<Vec<UsageRow>> {
        let mut rows = self.connection.prepare_cached(
            "SELECT id, account_id, key_id, model, routed_model, prompt, cached, completion,
                 reasoning, input_price, cached_price, output_price, cost, stream, at FROM usage
             WHERE account_id = ?1 AND at >= ?2 AND at < ?3 ORDER BY at DESC, rowid DESC LIMIT 10000",
        )?;
        rows.query_map(params![account_id, from, to], read_usage)?
            .collect()
    }

    pub fn put_limit(&self, rule: &LimitRule) -> rusqlite::Result<()> {
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

    pub fn put_model_settings(&self, id: &str, settings: ModelSettings) -> rusqlite::Result<()> {
        self.connection.execute(
            "INSERT INTO model_settings (model_id, enabled, unlisted) VALUES (?1, ?2, ?3)
             ON CONFLICT (model_id) DO UPDATE SET enabled = ?2, unlisted = ?3",
            params![id, settings.enabled, settings.unlisted],
        )?;
        Ok(())
    }
}

fn enter(
    step: &Connection,
    account_id: &str,
    kind: &str,
    reference: &str,
    delta: i64,
    balance_after: NanoUsd,
    at: i64,
) -> rusqlite::Result<()> {
    step.prepare_cached(
        "INSERT INTO ledger_entries (account_id, kind, ref, delta, balance_after, at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
    )?
    .execute(params![
        account_id,
        kind,
        reference,
        delta,
        balance_after.nanos(),
        at
    ])?;
    Ok(())
}

fn set_debt(step: &Connection, account_id: &str, debt: NanoUsd) -> rusqlite::Result<()> {
    step.prepare_cached("UPDATE accounts SET debt = ?2 WHERE id = ?1 AND debt <> ?2")?
        .execute(params![account_id, debt.nanos()])?;
    Ok(())
}

fn read_usage(row: &Row<'_>) -> rusqlite::Result<UsageRow> {
    let price = |column| row.get(column).map(TokenPrice::from_picos);
    Ok(UsageRow {
        id: row.get(0)?,
        account_id: row.get(1)?,
        key_id: row.get(2)?,
        model: row.get(3)?,
        routed_model: row.get(4)?,
        usage: Usage {
            prompt: row.get(5)?,
            cached: row.get(6)?,
            completion: row.get(7)?,
            reasoning: row.get(8)?,
        },
        prices: Prices {
            input: price(9)?,
            cached_input: price(10)?,
            output: price(11)?,
        },
        cost: NanoUsd::new(row.get(12)?),
        stream: row.get(13)?,
        at: row.get(14)?,
    })
}

fn read_account(row: &Row<'_>) -> rusqlite::Result<Account> {
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

fn read_key(row: &Row<'_>) -> rusqlite::Result<Key> {
    let state: String = row.get(4)?;
    Ok(Key {
        id: row.get(0)?,
        account_id: row.get(1)?,
        name: row.get(2)?,
        prefix: row.get(3)?,
        state: KeyState::parse(&state).ok_or_else(|| unreadable(4, "state"))?,
        created_at: row.get(5)?,
        digest: KeyDigest(row.get(6)?),
    })
}

fn unreadable(column: usize, what: &str) -> rusqlite::Error {
    let message = format!("{what} is none that this version knows");
    rusqlite::Error::FromSqlConversionFailure(column, rusqlite::types::Type::Text, message.into())
}
