//! Tables of months: a gateway creates them in advance, and pruning removes old ones.
//!
//! Pruning can be interrupted and repeated at any time: each of its transactions leaves a ledger that adds up. Gateways
//! may be running.

use std::time::Duration;

use serde::Deserialize;
use tokio_postgres::{Row, types::Type};

use super::{
    Shared,
    pool::Parameter,
    record::{get, unreadable, unsigned},
};
use crate::{
    base::month::Month,
    db::postgres::{Address, Connected, Error},
    ledger::{LedgerError, prune::Pruned},
};

/// Creates the tables of the present month and of the two after it.
pub(super) const ADD: &str = "SELECT add_months(3)";
/// For how many accounts entries are replaced in one transaction.
const ACCOUNTS: i32 = 100;
/// How many calls without a table of their month are removed in one transaction.
const CALLS: i32 = 10_000;
/// Delay before a transaction that waited too long for a lock is repeated; it doubles with each trial up to the longest.
/// An audit can hold the locks for minutes, and other transactions wait behind one that waits.
const RETRY_DELAY: Duration = Duration::from_millis(500);
const MAX_RETRY_DELAY: Duration = Duration::from_secs(10);
const MAX_TRIALS: u32 = 60;

impl Shared {
    /// Creates the tables of the months to come. Without its table, a month's calls are stored with those of other
    /// months, so a failure is no reason to stop.
    pub(crate) async fn add_months(&self) -> Result<(), LedgerError> {
        let _added: i32 = self.inner.pool.query_one(ADD, &[]).await?;
        Ok(())
    }

    pub(crate) async fn prune(&self, before: Month) -> Result<Pruned, LedgerError> {
        self.wait_until_written().await;
        Ok(prune_database(&self.inner.address, before.first_ms(), false).await?)
    }
}

/// Removes the months that have ended by this time, and the ledger entries before it. With `keep_tables` the tables of
/// these months are kept, but no longer used.
pub(crate) async fn prune_database(
    address: &Address,
    before_ms: i64,
    keep_tables: bool,
) -> Result<Pruned, Error> {
    let pruning = Pruning::begin(address, before_ms).await?;
    let mut pruned = Pruned {
        entries: pruning.open_accounts().await?,
        ..Pruned::default()
    };
    if keep_tables {
        let add = "SELECT add_months_before($1::date)";
        pruning.retried(add, &[pruning.cutoff()]).await?;
    }
    let months = "SELECT month::text FROM months_before($1::date) AS month";
    let months = pruning.retried(months, &[pruning.cutoff()]).await?;
    for month in &months {
        let month: String = get(month, 0)?;
        pruned.calls += pruning.remove_month(&month, keep_tables).await?;
        pruned.months.push(month[..7].to_owned());
    }
    pruned.calls += pruning.remove_other_calls().await?;
    Ok(pruned)
}

struct Pruning {
    connection: Connected,
    /// The first day that is kept, which is the first of a month.
    cutoff: String,
}

/// The reply to `open_accounts`.
#[derive(Deserialize)]
struct Opened {
    last: Option<String>,
    entries: u64,
}

impl Pruning {
    async fn begin(address: &Address, before_ms: i64) -> Result<Self, Error> {
        let connection = address.connect().await?;
        let query = "SELECT month_of_call($1 << 19)::text";
        let rows = connection
            .query_typed(query, &[(&before_ms, Type::INT8)])
            .await?;
        let cutoff = get(only(&rows)?, 0)?;
        Ok(Self { connection, cutoff })
    }

    fn cutoff(&self) -> Parameter<'_> {
        (&self.cutoff, Type::TEXT)
    }

    /// Posts an opening entry for each account that had entries before the cutoff. Returns how many entries are gone.
    async fn open_accounts(&self) -> Result<u64, Error> {
        let query = "SELECT open_accounts($1, $2, $3::date)::text";
        let (mut after, mut entries) = (String::new(), 0);
        loop {
            let parameters = [
                (&after as _, Type::TEXT),
                (&ACCOUNTS as _, Type::INT4),
                self.cutoff(),
            ];
            let rows = self.retried(query, &parameters).await?;
            let opened: Opened = serde_json::from_str(get(only(&rows)?, 0)?)
                .map_err(|_| unreadable("a reply to pruning"))?;
            entries += opened.entries;
            let Some(last) = opened.last else {
                return Ok(entries);
            };
            after = last;
        }
    }

    /// Returns how many calls are gone.
    async fn remove_month(&self, month: &str, keep_table: bool) -> Result<u64, Error> {
        // Counted before the table is locked. Names of tables cannot be parameters; this one is made of digits.
        let table = format!("calls_{}", month[..7].replace('-', "_"));
        let count = format!("SELECT count(*) FROM {table}");
        let rows = match self.retried(&count, &[]).await {
            // Another gateway has removed it.
            Err(error) if error.code() == Some("42P01") => return Ok(0),
            rows => rows?,
        };
        let calls: i64 = get(only(&rows)?, 0)?;
        let prune = "SELECT prune_month($1::date, $2)";
        let parameters = [(&month as _, Type::TEXT), (&keep_table as _, Type::BOOL)];
        let rows = match self.retried(prune, &parameters).await {
            Err(error) if error.code() == Some("42P01") => return Ok(0),
            rows => rows?,
        };
        let moved: i64 = get(only(&rows)?, 0)?;
        Ok(unsigned(calls - moved))
    }

    /// Returns how many calls are gone.
    async fn remove_other_calls(&self) -> Result<u64, Error> {
        let mut calls = 0;
        loop {
            let prune = "SELECT prune_other_calls($1, $2::date)";
            let parameters = [(&CALLS as _, Type::INT4), self.cutoff()];
            let rows = self.retried(prune, &parameters).await?;
            let removed: i64 = get(only(&rows)?, 0)?;
            calls += unsigned(removed);
            if removed < CALLS.into() {
                return Ok(calls);
            }
        }
    }

    /// Executes a statement, which is a transaction, again if it could not get a lock.
    async fn retried(&self, query: &str, parameters: &[Parameter<'_>]) -> Result<Vec<Row>, Error> {
        let mut delay = RETRY_DELAY;
        for _ in 1..MAX_TRIALS {
            let error = match self.connection.query_typed(query, parameters).await {
                Ok(rows) => return Ok(rows),
                Err(error) => Error::from(error),
            };
            // Lock not available; deadlock.
            if !matches!(error.code(), Some("55P03" | "40P01")) {
                return Err(error);
            }
            tracing::info!(%error, "pruning waits for other transactions");
            tokio::time::sleep(delay).await;
            delay = (2 * delay).min(MAX_RETRY_DELAY);
        }
        Ok(self.connection.query_typed(query, parameters).await?)
    }
}

fn only(rows: &[Row]) -> Result<&Row, Error> {
    rows.first()
        .ok_or_else(|| Error::Unexpected("the query returned no row".into()))
}
