//! Operators' changes: accounts, grants, models and limits. Each is one transaction, on the disk when it returns,
//! and applies to the next request of every gateway.

use serde::Deserialize;
use tokio_postgres::{Row, types::Type};

use super::{
    Shared,
    cache::{StoredLimit, StoredModel},
    record::{get, unreadable},
};
use crate::{
    base::money::NanoUsd,
    catalog::{Plan, Tier, Track},
    db::postgres::{Connected, Error},
    ledger::{
        Account, AccountChange, Balances, Edit, Grant, LedgerError, LimitRule, ModelSettings,
        credit::{Credit, Funds},
    },
};

pub(crate) const ACCOUNT: &str = "id, email, name, track, tier, closed, created_at";
const GRANT: &str = "id, amount_nano_usd, expires_at, reason, reference, created_at";
pub(crate) const CREDIT: &str = "ARRAY(SELECT grant_id FROM unnest(funds)),
    ARRAY(SELECT remaining_nano_usd FROM unnest(funds)), ARRAY(SELECT f.held_nano_usd FROM unnest(funds) AS f),
    ARRAY(SELECT expires_at FROM unnest(funds)), debt_nano_usd, held_nano_usd, lapsed_at, latest_at";

/// Stands for "never" among the expiries of an account's grants.
const NEVER: i64 = i64::MAX;

/// The reply to a grant.
#[derive(Deserialize)]
struct GrantReply {
    refusal: Option<String>,
    earlier: Option<GrantRow>,
}

#[derive(Deserialize)]
struct GrantRow {
    id: String,
    amount_nano_usd: i64,
    expires_at: Option<i64>,
    reason: Option<String>,
    reference: Option<String>,
    created_at: i64,
}

impl Shared {
    pub(crate) async fn account(&self, id: &str) -> Result<Account, LedgerError> {
        let query = format!("SELECT {ACCOUNT} FROM accounts WHERE id = $1");
        let rows = self.inner.pool.query(&query, &[(&id, Type::TEXT)]).await?;
        let row = rows.first().ok_or_else(|| missing("account", id))?;
        Ok(read_account(row)?)
    }

    /// Oldest first.
    pub(crate) async fn accounts(&self) -> Result<Vec<Account>, LedgerError> {
        let query = format!("SELECT {ACCOUNT} FROM accounts ORDER BY created_at, id");
        let rows = self.inner.pool.query(&query, &[]).await?;
        Ok(rows.iter().map(read_account).collect::<Result<_, _>>()?)
    }

    /// Zero for an unknown account.
    pub(crate) async fn balances(&self, account_id: &str) -> Result<Balances, LedgerError> {
        let credit = self.credit(account_id).await?;
        Ok(credit.balances(self.inner.clock.now()))
    }

    pub(super) async fn credit(&self, account_id: &str) -> Result<Credit, LedgerError> {
        self.wait_until_written().await;
        let query = format!("SELECT {CREDIT} FROM accounts WHERE id = $1");
        let account = [(&account_id as _, Type::TEXT)];
        let rows = self.inner.pool.query(&query, &account).await?;
        let credit = rows.first().map(|row| read_credit(row, 0)).transpose()?;
        Ok(credit.unwrap_or_default())
    }

    pub(crate) async fn grants(&self, account_id: &str) -> Result<Vec<Grant>, LedgerError> {
        self.account(account_id).await?;
        let query = format!("SELECT {GRANT} FROM credit_grants WHERE account_id = $1 ORDER BY seq");
        let rows = self
            .inner
            .pool
            .query(&query, &[(&account_id, Type::TEXT)])
            .await?;
        Ok(rows.iter().map(read_grant).collect::<Result<_, _>>()?)
    }

    pub(crate) async fn create_account(&self, account: Account) -> Result<Account, LedgerError> {
        self.insert_account(&account, "").await?;
        Ok(account)
    }

    /// Creates the account unless it exists.
    pub(crate) async fn ensure_account(&self, account: Account) -> Result<Account, LedgerError> {
        let unless_there = "ON CONFLICT (id) DO NOTHING";
        self.insert_account(&account, unless_there).await?;
        self.account(&account.id).await
    }

    async fn insert_account(&self, account: &Account, or_else: &str) -> Result<(), LedgerError> {
        let insert = format!(
            "INSERT INTO accounts (id, email, name, track, tier, closed, created_at)
             VALUES ($1, $2, $3, $4, $5, $6, $7) {or_else}"
        );
        let (track, tier) = (account.plan.track().as_str(), account.plan.tier().as_str());
        let parameters = [
            (&account.id as _, Type::TEXT),
            (&account.email as _, Type::TEXT),
            (&account.name as _, Type::TEXT),
            (&track as _, Type::TEXT),
            (&tier as _, Type::TEXT),
            (&account.closed as _, Type::BOOL),
            (&account.created_at as _, Type::INT8),
        ];
        self.inner.pool.execute(&insert, &parameters).await?;
        Ok(())
    }

    pub(crate) async fn change_account(
        &self,
        id: &str,
        change: AccountChange,
    ) -> Result<Account, LedgerError> {
        let connection = self.begin().await?;
        let changed = change_within(&connection, id, change).await;
        self.end(connection, changed).await
    }

    /// Begins a transaction.
    pub(super) async fn begin(&self) -> Result<Connected, LedgerError> {
        let connection = self.inner.pool.take().await?;
        // Each statement must see what was committed while it waited for a lock, whatever the server's default is. And
        // charges wait for the lock on an account, so it is not kept for long, even if this gateway is paused.
        let statement = "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL lock_timeout = 1500; \
            SET LOCAL idle_in_transaction_session_timeout = 2000";
        let begun = connection.batch_execute(statement).await;
        begun.map_err(Error::from)?;
        Ok(connection)
    }

    /// Ends a transaction: commits it if its result is `Ok`, and rolls it back otherwise.
    pub(super) async fn end<T>(
        &self,
        connection: Connected,
        result: Result<T, LedgerError>,
    ) -> Result<T, LedgerError> {
        let end = if result.is_ok() { "COMMIT" } else { "ROLLBACK" };
        connection.batch_execute(end).await.map_err(Error::from)?;
        self.inner.pool.put_back(connection);
        result
    }

    pub(crate) async fn add_grant(
        &self,
        account_id: &str,
        grant: Grant,
    ) -> Result<Grant, LedgerError> {
        let amount = grant.amount.nanos();
        let parameters = [
            (&account_id as _, Type::TEXT),
            (&grant.id as _, Type::TEXT),
            (&amount as _, Type::INT8),
            (&grant.expires_at as _, Type::INT8),
            (&grant.reason as _, Type::TEXT),
            (&grant.reference as _, Type::TEXT),
            (&grant.created_at as _, Type::INT8),
        ];
        let query = "SELECT add_grant($1, $2, $3, $4, $5, $6, $7)::text";
        let reply: String = self.inner.pool.query_one(query, &parameters).await?;
        let reply: GrantReply =
            serde_json::from_str(&reply).map_err(|_| unreadable("a reply to a grant"))?;
        match reply.refusal.as_deref() {
            None => Ok(reply.earlier.map_or(grant, Grant::from)),
            Some("account") => Err(missing("account", account_id)),
            Some("reference") => Err(LedgerError::ReferenceTaken {
                reference: grant.reference.unwrap_or_default(),
            }),
            Some(_) => Err(LedgerError::TooMuchCredit),
        }
    }

    pub(crate) async fn set_model(
        &self,
        model_id: &str,
        enabled: Option<bool>,
        unlisted: Option<bool>,
    ) -> Result<ModelSettings, LedgerError> {
        let parameters = [
            (&model_id as _, Type::TEXT),
            (&enabled as _, Type::BOOL),
            (&unlisted as _, Type::BOOL),
        ];
        let query = "SELECT set_model($1, $2, $3)::text";
        let set: String = self.inner.pool.query_one(query, &parameters).await?;
        let set: StoredModel =
            serde_json::from_str(&set).map_err(|_| unreadable("a model's settings"))?;
        self.reload_settings().await?;
        Ok(set.settings())
    }

    pub(crate) async fn set_limit(
        &self,
        account: Option<String>,
        model: Option<String>,
        requests: Edit<u32>,
        tokens: Edit<u32>,
    ) -> Result<LimitRule, LedgerError> {
        let (account, model) = (account.unwrap_or_default(), model.unwrap_or_default());
        let (keep_requests, requests) = kept_or_set(requests);
        let (keep_tokens, tokens) = kept_or_set(tokens);
        let parameters = [
            (&account as _, Type::TEXT),
            (&model as _, Type::TEXT),
            (&keep_requests as _, Type::BOOL),
            (&requests as _, Type::INT8),
            (&keep_tokens as _, Type::BOOL),
            (&tokens as _, Type::INT8),
        ];
        let query = "SELECT set_limit($1, $2, $3, $4, $5, $6)::text";
        let set: String = self.inner.pool.query_one(query, &parameters).await?;
        let set: StoredLimit = serde_json::from_str(&set).map_err(|_| unreadable("a limit"))?;
        self.reload_settings().await?;
        Ok(set.rule())
    }
}

async fn change_within(
    connection: &Connected,
    id: &str,
    change: AccountChange,
) -> Result<Account, LedgerError> {
    let query = format!("SELECT {ACCOUNT} FROM accounts WHERE id = $1 FOR UPDATE");
    let rows = connection.query_typed(&query, &[(&id, Type::TEXT)]).await;
    let rows = rows.map_err(Error::from)?;
    let row = rows.first().ok_or_else(|| missing("account", id))?;
    let account = change.applied_to(&read_account(row)?)?;
    let (track, tier) = (account.plan.track().as_str(), account.plan.tier().as_str());
    let update = "UPDATE accounts SET track = $2, tier = $3, closed = $4, email = $5, name = $6,
        version = version + 1 WHERE id = $1";
    let parameters = [
        (&id as _, Type::TEXT),
        (&track as _, Type::TEXT),
        (&tier as _, Type::TEXT),
        (&account.closed as _, Type::BOOL),
        (&account.email as _, Type::TEXT),
        (&account.name as _, Type::TEXT),
    ];
    let updated = connection.execute_typed(update, &parameters).await;
    updated.map_err(Error::from)?;
    Ok(account)
}

fn kept_or_set(change: Edit<u32>) -> (bool, Option<i64>) {
    match change {
        Edit::Keep => (true, None),
        Edit::Set(ceiling) => (false, Some(i64::from(ceiling))),
        Edit::Clear => (false, None),
    }
}

pub(crate) fn missing(what: &'static str, id: &str) -> LedgerError {
    let id = id.to_owned();
    LedgerError::NotFound { what, id }
}

impl From<GrantRow> for Grant {
    fn from(row: GrantRow) -> Self {
        Self {
            id: row.id,
            amount: NanoUsd::new(row.amount_nano_usd),
            expires_at: row.expires_at,
            reason: row.reason,
            reference: row.reference,
            created_at: row.created_at,
        }
    }
}

pub(crate) fn read_account(row: &Row) -> Result<Account, Error> {
    let (track, tier): (String, String) = (get(row, 3)?, get(row, 4)?);
    let plan = Track::parse(&track).zip(Tier::parse(&tier));
    let plan = plan.and_then(|(track, tier)| Plan::new(track, tier));
    Ok(Account {
        id: get(row, 0)?,
        email: get(row, 1)?,
        name: get(row, 2)?,
        plan: plan.ok_or_else(|| unreadable("a track and tier"))?,
        closed: get(row, 5)?,
        created_at: get(row, 6)?,
    })
}

fn read_grant(row: &Row) -> Result<Grant, Error> {
    Ok(Grant {
        id: get(row, 0)?,
        amount: NanoUsd::new(get(row, 1)?),
        expires_at: get(row, 2)?,
        reason: get(row, 3)?,
        reference: get(row, 4)?,
        created_at: get(row, 5)?,
    })
}

/// Reads the columns [`CREDIT`], which begin at this index.
pub(crate) fn read_credit(row: &Row, at: usize) -> Result<Credit, Error> {
    let (ids, left): (Vec<String>, Vec<i64>) = (get(row, at)?, get(row, at + 1)?);
    let (held, expires): (Vec<i64>, Vec<i64>) = (get(row, at + 2)?, get(row, at + 3)?);
    let numbers = left.into_iter().zip(held).zip(expires);
    let funds = ids
        .into_iter()
        .zip(numbers)
        .map(|(id, ((left, held), expires))| {
            let expires_at = (expires != NEVER).then_some(expires);
            Funds::partly_held(id.into(), NanoUsd::new(left), expires_at, held)
        });
    Ok(Credit::as_of(
        funds.collect(),
        NanoUsd::new(get(row, at + 4)?),
        NanoUsd::new(get(row, at + 5)?),
        get(row, at + 6)?,
        get(row, at + 7)?,
    ))
}
