//! Statements on the responses that are kept for retries, and on the retries that got them.

use rusqlite::{Connection, OptionalExtension as _, params};

use super::{
    Database,
    record::{number, unsigned},
    unreadable,
};
use crate::ledger::{
    Call, CallId, Idempotency, IdempotentResponse, MAX_REPLAYS_OF_CALL, Replay, ReplayKind,
    RequestHash,
};

/// The most responses that one charge deletes or empties, so that no charge takes long.
const STEPS_OF_CHARGE: u32 = 64;
/// The most that one transaction of a sweep deletes, and empties, because charges wait for it.
const STEPS_OF_SWEEP: u32 = 128;

/// The response with this key, unless it is too old.
pub(crate) fn find(
    connection: &Connection,
    account_id: &str,
    key: &str,
    now_ms: i64,
) -> rusqlite::Result<Option<IdempotentResponse>> {
    let query = "SELECT call_id, request_hash, stream, routed_model, body FROM idempotent_responses
        WHERE account_id = ?1 AND key = ?2 AND kept_until_ms > ?3";
    let mut query = connection.prepare_cached(query)?;
    let found = query.query_row(params![account_id, key, now_ms], |row| {
        Ok(IdempotentResponse {
            call_id: CallId(unsigned(row.get(0)?)),
            request_hash: RequestHash(row.get(1)?),
            stream: row.get(2)?,
            routed_model: row.get(3)?,
            body: row.get(4)?,
        })
    });
    found.optional()
}

/// The requests that got the response of this call, oldest first.
pub(crate) fn replays_of(
    connection: &Connection,
    call_id: CallId,
) -> rusqlite::Result<Vec<Replay>> {
    let query =
        "SELECT account_id, request_id, kind, at_ms FROM replays WHERE call_id = ?1 ORDER BY id";
    let mut query = connection.prepare_cached(query)?;
    let replays = query.query_map([number(call_id)], |row| {
        let kind: String = row.get(2)?;
        Ok(Replay {
            call_id,
            account_id: row.get(0)?,
            request_id: row.get(1)?,
            kind: ReplayKind::parse(&kind).ok_or_else(|| unreadable(2, "a kind of replay"))?,
            at_ms: row.get(3)?,
        })
    })?;
    replays.collect()
}

pub(crate) fn count_replays(
    connection: &Connection,
    account_id: &str,
    from_ms: i64,
    to_ms: i64,
) -> rusqlite::Result<u64> {
    let query = "SELECT count(*) FROM replays WHERE account_id = ?1 AND at_ms >= ?2 AND at_ms < ?3";
    let mut query = connection.prepare_cached(query)?;
    query.query_row(params![account_id, from_ms, to_ms], |row| {
        row.get(0).map(unsigned)
    })
}

impl Database {
    /// Whether another call with the same key was charged.
    pub(crate) fn is_key_spent(
        &self,
        call: &Call,
        idempotency: &Idempotency,
    ) -> rusqlite::Result<bool> {
        let query = "SELECT 1 FROM idempotent_responses
            WHERE account_id = ?1 AND key = ?2 AND kept_until_ms > ?3 AND call_id <> ?4";
        let mut query = self.connection.prepare_cached(query)?;
        let key = &idempotency.key.key;
        query.exists(params![
            call.account_id,
            key,
            call.ended_ms,
            number(call.id)
        ])
    }

    /// Stores the response of a charged call, within the transaction of its charge, and makes room for it.
    pub(crate) fn insert_response(
        &self,
        call: &Call,
        idempotency: &Idempotency,
    ) -> rusqlite::Result<()> {
        let mut total = self.response_bytes()?;
        // One that is too old may still be there.
        let replaced = "DELETE FROM idempotent_responses WHERE account_id = ?1 AND key = ?2
            RETURNING iif(body IS NULL, 0, body_bytes)";
        let mut replaced = self.connection.prepare_cached(replaced)?;
        let key = &idempotency.key.key;
        let freed = replaced.query_row(params![call.account_id, key], |row| row.get::<_, i64>(0));
        total -= freed.optional()?.unwrap_or(0);
        let body = idempotency.body.as_deref();
        let bytes = body.map_or(0, |body| i64::try_from(body.len()).unwrap_or(i64::MAX));
        let mut insert = self.connection.prepare_cached(
            "INSERT INTO idempotent_responses VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
        )?;
        insert.execute(params![
            call.account_id,
            key,
            idempotency.key.request_hash.0,
            number(call.id),
            call.ended_ms,
            idempotency.kept_until_ms(call.ended_ms),
            call.stream,
            call.chosen_model(),
            bytes,
            body,
        ])?;
        total += bytes;
        let most = idempotency.limits.max_total_bytes;
        total -= self.empty_oldest(total, most, STEPS_OF_CHARGE)?;
        self.response_bytes.set(Some(total));
        Ok(())
    }

    /// Deletes responses that are too old, and empties the oldest while all take more than `most` bytes, a limited number
    /// of them. Returns whether there may be more.
    pub(crate) fn sweep_responses(&self, now_ms: i64, most: u64) -> rusqlite::Result<bool> {
        let mut delete = self.connection.prepare_cached(
            "DELETE FROM idempotent_responses WHERE rowid IN
                 (SELECT rowid FROM idempotent_responses WHERE kept_until_ms <= ?1 LIMIT ?2)",
        )?;
        let deleted = delete.execute(params![now_ms, STEPS_OF_SWEEP])?;
        if deleted > 0 {
            self.response_bytes.set(None);
        }
        let total = self.response_bytes()?;
        let left = total - self.empty_oldest(total, most, STEPS_OF_SWEEP)?;
        self.response_bytes.set(Some(left));
        let is_too_much = left < total && u64::try_from(left).is_ok_and(|left| left > most);
        Ok(deleted == STEPS_OF_SWEEP as usize || is_too_much)
    }

    /// Removes the bodies of the oldest responses, at most so many, while `total` is above `most`. Returns the bytes that
    /// this frees. The keys stay, so that a retry is not charged again.
    fn empty_oldest(&self, total: i64, most: u64, steps: u32) -> rusqlite::Result<i64> {
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        let mut freed = 0;
        let mut empty = self.connection.prepare_cached(
            "UPDATE idempotent_responses SET body = NULL WHERE rowid =
                 (SELECT rowid FROM idempotent_responses WHERE body IS NOT NULL ORDER BY stored_at_ms LIMIT 1)
             RETURNING body_bytes",
        )?;
        for _ in 0..steps {
            if total - freed <= most {
                break;
            }
            let emptied = empty.query_row([], |row| row.get::<_, i64>(0)).optional()?;
            match emptied {
                Some(bytes) => freed += bytes,
                None => break,
            }
        }
        Ok(freed)
    }

    /// The bytes of all bodies, as of the open transaction.
    fn response_bytes(&self) -> rusqlite::Result<i64> {
        if let Some(bytes) = self.response_bytes.get() {
            return Ok(bytes);
        }
        let sum =
            "SELECT coalesce(sum(body_bytes), 0) FROM idempotent_responses WHERE body IS NOT NULL";
        self.connection.query_row(sum, [], |row| row.get(0))
    }

    /// Records a replay, unless its call has many.
    pub(crate) fn insert_replay(&self, replay: &Replay) -> rusqlite::Result<()> {
        let mut insert = self.connection.prepare_cached(
            "INSERT INTO replays (call_id, account_id, request_id, kind, at_ms) SELECT ?1, ?2, ?3, ?4, ?5
             WHERE (SELECT count(*) FROM replays WHERE call_id = ?1) < ?6",
        )?;
        insert.execute(params![
            number(replay.call_id),
            replay.account_id,
            replay.request_id,
            replay.kind.as_str(),
            replay.at_ms,
            MAX_REPLAYS_OF_CALL,
        ])?;
        Ok(())
    }
}
