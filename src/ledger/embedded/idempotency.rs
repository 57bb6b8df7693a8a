//! Responses that are kept for retries, and the retries that got them.

use super::{Embedded, command::Command, sqlite::idempotency};
use crate::ledger::{CallId, IdempotentResponse, LedgerError, Replay};

impl Embedded {
    pub(crate) async fn idempotent_response(
        &self,
        account_id: &str,
        key: &str,
    ) -> Result<Option<IdempotentResponse>, LedgerError> {
        let (account_id, key, now_ms) =
            (account_id.to_owned(), key.to_owned(), self.clock.now_ms());
        let query = move |database: &_| idempotency::find(database, &account_id, &key, now_ms);
        Ok(self.reader.query(query).await?)
    }

    pub(crate) async fn sweep_idempotent_responses(
        &self,
        max_total_bytes: u64,
    ) -> Result<(), LedgerError> {
        let now_ms = self.clock.now_ms();
        loop {
            let sweep = |reply| Command::SweepResponses(now_ms, max_total_bytes, reply);
            if !self.writer.execute(sweep).await? {
                return Ok(());
            }
        }
    }

    pub(crate) fn record_replay(&self, replay: Replay) {
        self.writer.submit(Command::RecordReplay(Box::new(replay)));
    }

    pub(crate) async fn replays_of(&self, call_id: CallId) -> Result<Vec<Replay>, LedgerError> {
        self.all_written().await;
        let query = move |database: &_| idempotency::replays_of(database, call_id);
        Ok(self.reader.query(query).await?)
    }

    pub(crate) async fn count_replays(
        &self,
        account_id: &str,
        from_ms: i64,
        to_ms: i64,
    ) -> Result<u64, LedgerError> {
        self.all_written().await;
        let account_id = account_id.to_owned();
        let query =
            move |database: &_| idempotency::count_replays(database, &account_id, from_ms, to_ms);
        Ok(self.reader.query(query).await?)
    }
}
