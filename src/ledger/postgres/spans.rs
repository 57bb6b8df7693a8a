//! Sums by hour or minute, and latencies.

use tokio_postgres::Row;

use super::{
    Shared,
    pages::{parameters, read_sum},
    record::get,
};
use crate::{
    base::timestamp,
    db::postgres::Error,
    ledger::{
        CallsPage, DayUse, LedgerError, Timing,
        conditions::Sql,
        spans::{self, SpansPage},
    },
};

impl Shared {
    pub(crate) async fn usage_spans(&self, page: SpansPage) -> Result<Vec<DayUse>, LedgerError> {
        self.wait_until_written().await;
        let (query, values) = spans::sums(Sql::Postgres, &page);
        let rows = self.inner.pool.query(&query, &parameters(&values)).await?;
        let sums = rows.iter().map(|row| {
            let start_ms: i64 = get(row, 0)?;
            read_sum(row, timestamp::shown(start_ms.div_euclid(1_000)))
        });
        Ok(sums.collect::<Result<_, Error>>()?)
    }

    pub(crate) async fn latest_timings(
        &self,
        page: &CallsPage<'_>,
    ) -> Result<Vec<Timing>, LedgerError> {
        self.wait_until_written().await;
        let (query, values) = spans::timings(Sql::Postgres, page);
        let rows = self.inner.pool.query(&query, &parameters(&values)).await?;
        Ok(rows.iter().map(read).collect::<Result<_, _>>()?)
    }
}

fn read(row: &Row) -> Result<Timing, Error> {
    Ok(Timing {
        key_id: get(row, 0)?,
        project_id: get(row, 1)?,
        model: get(row, 2)?,
        first_ms: get(row, 3)?,
        total_ms: get(row, 4)?,
    })
}
