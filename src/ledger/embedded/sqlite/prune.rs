//! Pruning: old calls and entries are deleted, and each account keeps its balance as one opening entry.
//!
//! It works beside a running gateway: a transaction deletes the oldest few rows of one account and moves its opening
//! entry past them, so that the ledger adds up after each. In between the gateway's writer gets its turn.

use std::{path::Path, time::Instant};

use rusqlite::{Connection, OptionalExtension as _, TransactionBehavior, params};

use super::{open, record::number};
use crate::{
    base::month::Month,
    ledger::{CallId, Pruned},
};

/// How many rows one transaction deletes: it must be short, because the gateway waits for it.
const BATCH: u32 = 500;

/// The last of the account's oldest entries before ?2, and whether it is all that an earlier pruning has left.
const OLDEST: &str =
    "SELECT max(seq), balance_after_nano_usd, at, count(*) = 1 AND kind = 'opening' FROM (
        SELECT seq, kind, balance_after_nano_usd, at FROM ledger
        WHERE account_id = ?1 AND seq < ?2 ORDER BY seq LIMIT ?3)
    HAVING count(*) > 0";

/// The first entry that stays: of the cutoff or later. Entries after it stay too, whatever their times.
const FIRST_KEPT: &str = "SELECT min(seq) FROM (
        SELECT min(seq) AS seq FROM ledger_entries WHERE account_id = ?1 AND at >= ?2 / 1000
        UNION ALL
        SELECT * FROM (SELECT entry_seq FROM calls WHERE account_id = ?1 AND entry_seq > 0
            AND (ended_at_ms >= ?2 OR id >= ?3) ORDER BY entry_seq LIMIT 1))";

const UNCHARGED: &str = "SELECT id FROM calls
    WHERE id > ?1 AND id < ?2 AND entry_seq IS NULL ORDER BY id LIMIT ?3";

/// A connection that disturbs the gateway little: it waits for its turn, and leaves flushing the write-ahead log and
/// copying it into the database to the gateway. A pruning that a power cut undoes can be repeated.
pub(crate) fn connect(path: &Path) -> rusqlite::Result<Connection> {
    let connection = Connection::open(path)?;
    connection.busy_timeout(std::time::Duration::from_secs(10))?;
    connection.pragma_update(None, "synchronous", "NORMAL")?;
    open::set_checkpoint(&connection, 0)?;
    Ok(connection)
}

/// Deletes the calls and entries of the months before this one. `progress` gets the number of deleted calls.
pub(crate) fn prune(
    connection: &mut Connection,
    before: Month,
    progress: &mut dyn FnMut(u64),
) -> rusqlite::Result<Pruned> {
    let mut pruned = Pruned::default();
    let accounts = connection
        .prepare("SELECT id FROM accounts ORDER BY id")?
        .query_map([], |row| row.get(0))?
        .collect::<rusqlite::Result<Vec<String>>>()?;
    for account_id in accounts {
        let kept = first_kept(connection, &account_id, before)?;
        while prune_oldest(connection, &account_id, kept, before, &mut pruned)? {
            progress(pruned.calls);
        }
    }
    let mut last = 0;
    while let Some(id) = prune_uncharged(connection, last, before, &mut pruned)? {
        last = id;
        progress(pruned.calls);
    }
    Ok(pruned)
}

fn first_kept(connection: &Connection, account_id: &str, before: Month) -> rusqlite::Result<i64> {
    let cutoff_ms = before.first_ms();
    let first_call = number(CallId::first_of(cutoff_ms));
    let kept: Option<i64> = connection
        .prepare_cached(FIRST_KEPT)?
        .query_row(params![account_id, cutoff_ms, first_call], |row| row.get(0))?;
    Ok(kept.unwrap_or(i64::MAX))
}

/// Deletes the oldest entries and charged calls of an account; `false` if there are none before `kept`.
fn prune_oldest(
    connection: &mut Connection,
    account_id: &str,
    kept: i64,
    before: Month,
    pruned: &mut Pruned,
) -> rusqlite::Result<bool> {
    let started = Instant::now();
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let read = |row: &rusqlite::Row<'_>| -> rusqlite::Result<(i64, i64, i64, bool)> {
        Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
    };
    let oldest = transaction
        .prepare_cached(OLDEST)?
        .query_row(params![account_id, kept, BATCH], read)
        .optional()?;
    let Some((last, balance, at, false)) = oldest else {
        return Ok(false);
    };
    let calls = transaction
        .prepare_cached("DELETE FROM calls WHERE account_id = ?1 AND entry_seq <= ?2")?
        .execute(params![account_id, last])?;
    // An earlier opening entry is replaced, and counts for nothing.
    transaction
        .prepare_cached("DELETE FROM ledger_entries WHERE account_id = ?1 AND kind = 'opening'")?
        .execute([account_id])?;
    let entries = transaction
        .prepare_cached("DELETE FROM ledger_entries WHERE account_id = ?1 AND seq <= ?2")?
        .execute(params![account_id, last])?;
    transaction
        .prepare_cached("INSERT INTO ledger_entries VALUES (?1, ?2, 'opening', ?3, ?4, ?4, ?5)")?
        .execute(params![last, account_id, before.first_day(), balance, at])?;
    transaction.commit()?;
    pruned.calls += calls as u64;
    pruned.entries += entries as u64;
    give_way(started);
    Ok(true)
}

/// Deletes calls that were not charged, after the one with ID `last`; returns the last of them.
fn prune_uncharged(
    connection: &mut Connection,
    last: i64,
    before: Month,
    pruned: &mut Pruned,
) -> rusqlite::Result<Option<i64>> {
    let started = Instant::now();
    let first_call = number(CallId::first_of(before.first_ms()));
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let ids: Vec<i64> = transaction
        .prepare_cached(UNCHARGED)?
        .query_map(params![last, first_call, BATCH], |row| row.get(0))?
        .collect::<rusqlite::Result<_>>()?;
    for id in &ids {
        let mut delete = transaction.prepare_cached("DELETE FROM calls WHERE id = ?1")?;
        delete.execute([id])?;
    }
    transaction.commit()?;
    pruned.calls += ids.len() as u64;
    give_way(started);
    Ok(ids.last().copied())
}

/// Waits for as long as the last transaction took, so that it takes at most half of the writers' time.
fn give_way(started: Instant) {
    std::thread::sleep(started.elapsed());
}
