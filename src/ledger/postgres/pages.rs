//! Queries for pages. They wait until this gateway's queued operations are written.

use std::collections::HashMap;

use tokio_postgres::{
    Row,
    types::{ToSql, Type},
};

use super::{
    Shared,
    admin::{ACCOUNT, CREDIT, read_account, read_credit},
    pool::Parameter,
    record::{self, COLUMNS, get, unreadable, unsigned},
};
use crate::{
    base::money::NanoUsd,
    db::postgres::Error,
    ledger::{
        Account, AccountFound, Call, CallId, CallsFound, CallsPage, DayUse, Entry, EntryKind,
        GrantLeft, LedgerError, SumsOf,
        calls_page::CallsQuery,
        conditions::{Conditions, Sql, Value},
    },
};

impl Shared {
    pub(crate) async fn usage_days(
        &self,
        account_id: &str,
        (from_day, to_day): (&str, &str),
        sums_of: SumsOf,
    ) -> Result<Vec<DayUse>, LedgerError> {
        self.wait_until_written().await;
        let query = sums_of.query(Sql::Postgres);
        let parameters = [
            (&account_id as _, Type::TEXT),
            (&from_day as _, Type::TEXT),
            (&to_day as _, Type::TEXT),
        ];
        let rows = self.inner.pool.query(&query, &parameters).await?;
        Ok(rows.iter().map(read_day).collect::<Result<_, _>>()?)
    }

    pub(crate) async fn last_used(
        &self,
        account_id: &str,
    ) -> Result<HashMap<String, i64>, LedgerError> {
        self.wait_until_written().await;
        let query = "SELECT key_id, max(last_ended_at_ms) FROM usage_days WHERE account_id = $1 GROUP BY key_id";
        let account = [(&account_id as _, Type::TEXT)];
        let rows = self.inner.pool.query(query, &account).await?;
        let used = rows
            .iter()
            .map(|row| Ok((get(row, 0)?, get(row, 1)?)))
            .collect::<Result<_, Error>>();
        Ok(used?)
    }

    pub(crate) async fn calls_page(&self, page: &CallsPage<'_>) -> Result<CallsFound, LedgerError> {
        self.wait_until_written().await;
        let pool = &self.inner.pool;
        let mut page = *page;
        if let Some(sums) = Conditions::of_sums(Sql::Postgres, &page) {
            let parameters = parameters(&sums.values);
            let rows = pool.query(&sums.first_and_last(), &parameters).await?;
            let Some(row) = rows.first() else {
                return Ok(CallsFound::default());
            };
            let (Some(first), Some(last)) = (get(row, 0)?, get(row, 1)?) else {
                return Ok(CallsFound::default());
            };
            page = page.within(first, last);
        }
        let mut floor_ms = None;
        if let Some(CallsQuery { text, values }) = page.floor_query(Sql::Postgres) {
            let rows = pool.query(&text, &parameters(&values)).await?;
            floor_ms = rows.first().map(|row| get(row, 0)).transpose()?;
        }
        let columns = record::columns_of_list();
        let CallsQuery { text, values } = page.down_to(floor_ms).query(Sql::Postgres, &columns);
        let rows = pool.query(&text, &parameters(&values)).await?;
        let calls = rows.iter().map(record::read).collect::<Result<_, _>>()?;
        Ok(CallsFound::new(calls, page.limit, floor_ms))
    }

    pub(crate) async fn call(&self, id: CallId) -> Result<Option<Call>, LedgerError> {
        self.wait_until_written().await;
        let query = format!("SELECT {COLUMNS} FROM calls WHERE id = $1");
        let id = i64::try_from(id.0).unwrap_or(i64::MAX);
        let rows = self.inner.pool.query(&query, &[(&id, Type::INT8)]).await?;
        Ok(rows.first().map(record::read).transpose()?)
    }

    pub(crate) async fn entries_page(
        &self,
        account_id: &str,
        before: i64,
        limit: usize,
    ) -> Result<Vec<Entry>, LedgerError> {
        self.wait_until_written().await;
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let query = "SELECT seq, kind, ref, delta_nano_usd, balance_after_nano_usd, at
            FROM entries_before($1, $2, $3)";
        let parameters = [
            (&account_id as _, Type::TEXT),
            (&before as _, Type::INT8),
            (&limit as _, Type::INT8),
        ];
        let rows = self.inner.pool.query(query, &parameters).await?;
        Ok(rows.iter().map(read_entry).collect::<Result<_, _>>()?)
    }

    pub(crate) async fn grants_left(
        &self,
        account_id: &str,
    ) -> Result<Vec<GrantLeft>, LedgerError> {
        let credit = self.credit(account_id).await?;
        Ok(credit.grants_left(self.inner.clock.now()))
    }

    pub(crate) async fn find_accounts(
        &self,
        text: &str,
        before: Option<(i64, String)>,
        limit: usize,
    ) -> Result<Vec<AccountFound>, LedgerError> {
        self.wait_until_written().await;
        let wanted = Conditions::of_accounts(Sql::Postgres, text, before);
        let (conditions, order) = (&wanted.text, wanted.newest_first("created_at"));
        let query = format!(
            "SELECT {ACCOUNT}, frozen, {CREDIT} FROM accounts {conditions} {order} LIMIT {limit}"
        );
        let parameters = parameters(&wanted.values);
        let rows = self.inner.pool.query(&query, &parameters).await?;
        let now = self.inner.clock.now();
        let found = rows.iter().map(|row| {
            Ok(AccountFound {
                account: read_account(row)?,
                frozen: get(row, 7)?,
                balances: read_credit(row, 8)?.balances(now),
            })
        });
        Ok(found.collect::<Result<_, Error>>()?)
    }

    pub(crate) async fn accounts_with_ids(
        &self,
        ids: &[&str],
    ) -> Result<Vec<Account>, LedgerError> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let query = format!("SELECT {ACCOUNT} FROM accounts WHERE id = ANY($1)");
        let ids = [(&ids as _, Type::TEXT_ARRAY)];
        let rows = self.inner.pool.query(&query, &ids).await?;
        Ok(rows.iter().map(read_account).collect::<Result<_, _>>()?)
    }
}

pub(crate) fn parameters(values: &[Value]) -> Vec<Parameter<'_>> {
    values
        .iter()
        .map(|value| match value {
            Value::Text(text) => (text as &(dyn ToSql + Sync), Type::TEXT),
            Value::Number(number) => (number as &(dyn ToSql + Sync), Type::INT8),
        })
        .collect()
}

fn read_day(row: &Row) -> Result<DayUse, Error> {
    read_sum(row, get(row, 0)?)
}

/// Reads the columns after the first, which is the day or another span.
pub(crate) fn read_sum(row: &Row, day: String) -> Result<DayUse, Error> {
    let totals = Totals::read(row)?;
    Ok(DayUse {
        day,
        key_id: get(row, 1)?,
        model: get(row, 2)?,
        calls: totals.calls,
        charged: totals.charged,
        prompt: totals.prompt,
        cached: totals.cached,
        completion: totals.completion,
        reasoning: totals.reasoning,
        cost: totals.cost,
        last_ms: get(row, 10)?,
        project_id: get(row, 11)?,
    })
}

/// Totals of calls, in the columns that follow the three they are grouped by.
pub(crate) struct Totals {
    pub calls: u64,
    pub charged: u64,
    pub prompt: u64,
    pub cached: u64,
    pub completion: u64,
    pub reasoning: u64,
    pub cost: NanoUsd,
}

impl Totals {
    pub(crate) fn read(row: &Row) -> Result<Self, Error> {
        let count = |column| get(row, column).map(unsigned);
        Ok(Self {
            calls: count(3)?,
            charged: count(4)?,
            prompt: count(5)?,
            cached: count(6)?,
            completion: count(7)?,
            reasoning: count(8)?,
            cost: NanoUsd::new(get(row, 9)?),
        })
    }
}

fn read_entry(row: &Row) -> Result<Entry, Error> {
    let kind: String = get(row, 1)?;
    let kind = EntryKind::parse(&kind).ok_or_else(|| unreadable("a kind of entry"))?;
    Ok(Entry {
        seq: get(row, 0)?,
        kind,
        reference: kind.shown(get(row, 2)?),
        delta: NanoUsd::new(get(row, 3)?),
        balance_after: NanoUsd::new(get(row, 4)?),
        at: get(row, 5)?,
    })
}
