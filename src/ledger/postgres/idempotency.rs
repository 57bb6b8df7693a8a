//! Responses that are kept for retries, and the retries that got them.

use std::sync::atomic::Ordering::Relaxed;

use tokio_postgres::types::Type;

use super::{
    Shared,
    record::{get, unreadable, unsigned},
};
use crate::ledger::{
    Call, CallId, IdempotentResponse, LedgerError, MAX_REPLAYS_OF_CALL, Replay, ReplayKind,
    RequestHash,
};

/// Connections that look up keys at the same time.
pub(super) const CONNECTIONS: usize = 4;

impl Shared {
    pub(crate) async fn idempotent_response(
        &self,
        account_id: &str,
        key: &str,
    ) -> Result<Option<IdempotentResponse>, LedgerError> {
        let query =
            "SELECT call_id, encode(request_hash, 'hex'), stream, routed_model, body FROM idempotent_responses
            WHERE account_id = $1 AND key = $2 AND kept_until_ms > $3";
        let now_ms = self.inner.clock.now_ms();
        let parameters = [
            (&account_id as _, Type::TEXT),
            (&key as _, Type::TEXT),
            (&now_ms as _, Type::INT8),
        ];
        let querying = async {
            // Without this, many requests at once would open a connection each.
            let _permit = self.lookups_of_keys.acquire().await;
            self.inner.pool.query(query, &parameters).await
        };
        let rows = tokio::time::timeout(self.inner.deadline, querying).await;
        let rows = rows.map_err(|_| LedgerError::Unavailable)??;
        let Some(row) = rows.first() else {
            return Ok(None);
        };
        let hash: String = get(row, 1)?;
        Ok(Some(IdempotentResponse {
            call_id: CallId(unsigned(get(row, 0)?)),
            request_hash: RequestHash::from_hex(&hash).ok_or_else(|| unreadable("a hash"))?,
            stream: get(row, 2)?,
            routed_model: get(row, 3)?,
            body: get(row, 4)?,
        }))
    }

    /// Counts a stored response, so that room is made in time.
    pub(super) fn count_kept(&self, call: &Call) {
        let body = call.idempotency.as_ref().and_then(|it| it.body.as_ref());
        if let Some(body) = body {
            self.kept_bytes.fetch_add(body.len() as u64, Relaxed);
        }
    }

    /// Bytes of responses that this gateway has stored since it last made room.
    pub(crate) fn kept_bytes(&self) -> u64 {
        self.kept_bytes.load(Relaxed)
    }

    pub(crate) async fn sweep_idempotent_responses(
        &self,
        max_total_bytes: u64,
    ) -> Result<(), LedgerError> {
        self.kept_bytes.store(0, Relaxed);
        let most = i64::try_from(max_total_bytes).unwrap_or(i64::MAX);
        let now_ms = self.inner.clock.now_ms();
        let parameters = [(&now_ms as _, Type::INT8), (&most as _, Type::INT8)];
        let sweep = "SELECT sweep_idempotent_responses($1, $2)";
        self.inner.pool.query(sweep, &parameters).await?;
        Ok(())
    }

    /// In a task of its own: a request does not wait for it.
    pub(crate) fn record_replay(&self, replay: Replay) {
        let (inner, connection) = (self.inner.clone(), self.replays.clone());
        tokio::spawn(async move {
            let _permit = connection.acquire_owned().await;
            let call_id = i64::try_from(replay.call_id.0).unwrap_or(i64::MAX);
            let (kind, most) = (replay.kind.as_str(), i64::from(MAX_REPLAYS_OF_CALL));
            let parameters = [
                (&call_id as _, Type::INT8),
                (&replay.account_id as _, Type::TEXT),
                (&replay.request_id as _, Type::TEXT),
                (&kind as _, Type::TEXT),
                (&replay.at_ms as _, Type::INT8),
                (&most as _, Type::INT8),
            ];
            let record = "SELECT record_replay($1, $2, $3, $4, $5, $6)";
            if let Err(error) = inner.pool.query(record, &parameters).await {
                tracing::warn!(
                    %error,
                    call = %replay.call_id,
                    account.id = replay.account_id,
                    "recording a retry failed; it is missing from the trace of its call"
                );
            }
        });
    }

    pub(crate) async fn replays_of(&self, call_id: CallId) -> Result<Vec<Replay>, LedgerError> {
        let query = "SELECT account_id, request_id, kind, at_ms FROM replays WHERE call_id = $1 ORDER BY id";
        let id = i64::try_from(call_id.0).unwrap_or(i64::MAX);
        let rows = self.inner.pool.query(query, &[(&id, Type::INT8)]).await?;
        let read = |row| {
            let kind: String = get(row, 2)?;
            Ok(Replay {
                call_id,
                account_id: get(row, 0)?,
                request_id: get(row, 1)?,
                kind: ReplayKind::parse(&kind).ok_or_else(|| unreadable("a kind of replay"))?,
                at_ms: get(row, 3)?,
            })
        };
        rows.iter().map(read).collect()
    }

    pub(crate) async fn count_replays(
        &self,
        account_id: &str,
        from_ms: i64,
        to_ms: i64,
    ) -> Result<u64, LedgerError> {
        let query =
            "SELECT count(*) FROM replays WHERE account_id = $1 AND at_ms >= $2 AND at_ms < $3";
        let parameters = [
            (&account_id as _, Type::TEXT),
            (&from_ms as _, Type::INT8),
            (&to_ms as _, Type::INT8),
        ];
        let count: i64 = self.inner.pool.query_one(query, &parameters).await?;
        Ok(unsigned(count))
    }
}
