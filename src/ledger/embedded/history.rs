//! Queries of past calls: usage and cost.

use std::collections::HashMap;

use super::{
    Embedded,
    command::Command,
    sqlite::{calls, sessions},
};
use crate::{
    base::rate::WINDOW_MS,
    ledger::{AnalyticsFilter, AnalyticsRow, Call, CallId, LedgerError, SessionUse, SessionsPage},
};

/// Upper bound of the time that a call with several steps takes.
const LONGEST_CALL_MS: i64 = 60 * 60 * 1_000;
/// How long before its reservation a call may have got its number.
const NUMBERED_BEFORE_MS: i64 = 10_000;

impl Embedded {
    /// The account's charged calls within these times (in seconds), newest first.
    pub(crate) async fn usage(
        &self,
        account_id: &str,
        from: i64,
        to: i64,
    ) -> Result<Vec<Call>, LedgerError> {
        self.account(account_id)?;
        self.all_written().await;
        let account_id = account_id.to_owned();
        let (from, to) = (from.saturating_mul(1_000), to.saturating_mul(1_000));
        let query = move |database: &_| calls::usage(database, &account_id, from, to);
        Ok(self.reader.query(query).await?)
    }

    /// The calls with this call number or this `X-Request-ID`, newest first.
    pub(crate) async fn find_calls(&self, id: &str) -> Result<Vec<Call>, LedgerError> {
        self.all_written().await;
        let (number, id) = (CallId::parse(id), id.to_owned());
        let query = move |database: &_| {
            let numbered = number.map(|number| calls::one(database, number));
            match numbered.transpose()?.flatten() {
                Some(call) => Ok(vec![call]),
                None => calls::with_request_id(database, None, &id),
            }
        };
        Ok(self.reader.query(query).await?)
    }

    /// The account's calls with this `X-Request-ID`, newest first.
    pub(crate) async fn calls_of_request(
        &self,
        account_id: &str,
        id: &str,
    ) -> Result<Vec<Call>, LedgerError> {
        self.all_written().await;
        let (account_id, id) = (account_id.to_owned(), id.to_owned());
        let query = move |database: &_| calls::with_request_id(database, Some(&account_id), &id);
        Ok(self.reader.query(query).await?)
    }

    /// Totals of calls by day, account and model.
    pub(crate) async fn analytics(
        &self,
        filter: AnalyticsFilter,
    ) -> Result<Vec<AnalyticsRow>, LedgerError> {
        self.all_written().await;
        let query = move |database: &_| calls::analytics(database, &filter);
        Ok(self.reader.query(query).await?)
    }

    /// Totals of calls by session.
    pub(crate) async fn sessions(
        &self,
        page: SessionsPage,
    ) -> Result<Vec<SessionUse>, LedgerError> {
        self.all_written().await;
        let query = move |database: &_| sessions::page(database, &page);
        Ok(self.reader.query(query).await?)
    }

    /// The tokens that calls of the current window used in the end, by call number.
    pub(crate) async fn tokens_in_window(&self) -> Result<HashMap<u64, u64>, LedgerError> {
        let window = i64::try_from(WINDOW_MS).unwrap_or(i64::MAX);
        let since = self
            .clock
            .now_ms()
            .saturating_sub(window + NUMBERED_BEFORE_MS);
        let steps_since = since.saturating_sub(LONGEST_CALL_MS);
        let query = move |database: &_| calls::tokens_since(database, since, steps_since);
        let used = self.reader.query(query).await?;
        Ok(used.into_iter().map(|(id, used)| (id.0, used)).collect())
    }

    /// Returns once everything that was sent to the writer before is posted.
    pub(super) async fn all_written(&self) {
        // If nothing can be written, what is posted can still be read.
        let _ = self.post_redo_log().await;
    }

    /// Posts everything that was sent to the writer before.
    pub(crate) async fn post_redo_log(&self) -> Result<(), LedgerError> {
        self.writer.execute(Command::PostRedoLog).await
    }
}
