//! The ledger of an account by day.

use tokio_postgres::{Row, types::Type};

use super::{
    Shared,
    record::{get, unreadable},
};
use crate::{
    base::timestamp,
    db::postgres::Error,
    ledger::{
        AccountDays, DayRange, HistoryEdges, LedgerError,
        account_days::{DAYS, EDGES, MAX_ENTRIES, Read},
    },
};

impl Shared {
    pub(crate) async fn account_days(
        &self,
        account_id: &str,
        range: &DayRange,
    ) -> Result<AccountDays, LedgerError> {
        self.wait_until_written().await;
        let (from, until) = range.seconds();
        let (from_day, to_day) = (range.first_day(), range.to_day());
        let parameters = [
            (&account_id as _, Type::TEXT),
            (&from_day as _, Type::TEXT),
            (&to_day as _, Type::TEXT),
            (&from as _, Type::INT8),
            (&until as _, Type::INT8),
            (&MAX_ENTRIES as _, Type::INT8),
        ];
        let rows = self.inner.pool.query(DAYS, &parameters).await?;
        let rows = rows.iter().map(read).collect::<Result<Vec<_>, _>>()?;
        Ok(AccountDays::of(rows))
    }

    pub(crate) async fn history_edges(
        &self,
        account_id: &str,
        before: i64,
    ) -> Result<HistoryEdges, LedgerError> {
        self.wait_until_written().await;
        let day = timestamp::day(before);
        let parameters = [
            (&account_id as _, Type::TEXT),
            (&day as _, Type::TEXT),
            (&before as _, Type::INT8),
        ];
        let rows = self.inner.pool.query(EDGES, &parameters).await?;
        let Some(row) = rows.first() else {
            return Ok(HistoryEdges::default());
        };
        Ok(HistoryEdges::of(get(row, 0)?, get(row, 1)?, get(row, 2)?))
    }
}

fn read(row: &Row) -> Result<Read, Error> {
    let kind: String = get(row, 0)?;
    let names = (get(row, 1)?, get(row, 2)?);
    let place = (get(row, 3)?, get(row, 4)?);
    let numbers = [get(row, 5)?, get(row, 6)?, get(row, 7)?, get(row, 8)?];
    Read::of(&kind, names, place, numbers).ok_or_else(|| unreadable("a kind of entry"))
}
