//! Sums by hour or minute, and latencies.

use super::{Embedded, sqlite::spans as sqlite};
use crate::ledger::{
    CallsPage, DayUse, LedgerError, Timing,
    conditions::Sql,
    spans::{self, SpansPage},
};

impl Embedded {
    pub(crate) async fn usage_spans(&self, page: SpansPage) -> Result<Vec<DayUse>, LedgerError> {
        self.all_written().await;
        let query = move |database: &_| sqlite::sums(database, &page);
        Ok(self.reader.query(query).await?)
    }

    pub(crate) async fn latest_timings(
        &self,
        page: &CallsPage<'_>,
    ) -> Result<Vec<Timing>, LedgerError> {
        self.all_written().await;
        let (query, values) = spans::timings(Sql::Lite, page);
        let query = move |database: &_| sqlite::timings(database, &query, &values);
        Ok(self.reader.query(query).await?)
    }
}
