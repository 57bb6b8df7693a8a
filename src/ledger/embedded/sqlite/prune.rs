//! Pruning: old calls and entries are deleted, and each account keeps its balance as one opening entry.
//!
//! It works beside a running gateway: a transaction deletes the oldest few rows of one account and moves its opening
//! entry past them, so that the ledger adds up after each. In between the gateway's writer gets its turn.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use rusqlite::{Connection, Row, Transaction, TransactionBehavior, params};

use super::{
    open::{CHECKPOINT_PAGES, set_checkpoint},
    record::number,
};
use crate::{
    base::month::Month,
    ledger::{CallId, Pruned},
};

/// How long a transaction should take. The gateway's charges wait for it, for up to 100 ms.
const TARGET: Duration = Duration::from_millis(10);
/// How many rows a transaction deletes at first, and at most.
const FIRST_BATCH: u32 = 20;
const MAX_BATCH: u32 = 500;

/// The account's oldest entries in order, and whether each is of the cutoff or later.
const OLDEST: &str = "
    SELECT seq, balance_after_nano_usd, at, kind = 'opening', at >= ?2 / 1000 FROM ledger_entries
    WHERE account_id = ?1
    UNION ALL
    SELECT entry_seq, balance_after_nano_usd, ended_at_ms / 1000, false, ended_at_ms >= ?2 OR id >= ?3 FROM calls
    WHERE account_id = ?1 AND entry_seq > 0
    ORDER BY 1 LIMIT ?4";

const UNCHARGED: &str = "SELECT id FROM calls
    WHERE id > ?1 AND id < ?2 AND entry_seq IS NULL ORDER BY id LIMIT ?3";

/// A connection that disturbs the gateway little: it waits for its turn, and its commits do not wait for the disk. A
/// pruning that a power cut undoes can be repeated.
pub(crate) fn connect(path: &Path) -> rusqlite::Result<Connection> {
    let connection = Connection::open(path)?;
    connection.busy_timeout(Duration::from_secs(10))?;
    connection.pragma_update(None, "synchronous", "NORMAL")?;
    set_checkpoint(&connection, CHECKPOINT_PAGES)?;
    Ok(connection)
}

/// Deletes the calls and entries of the months before this one. `progress` gets the number of deleted calls after each
/// transaction.
pub(crate) fn prune(
    connection: &mut Connection,
    before: Month,
    progress: &mut dyn FnMut(u64),
) -> rusqlite::Result<Pruned> {
    let mut pruning = Pruning {
        before,
        first_call: number(CallId::first_of(before.first_ms())),
        batch: FIRST_BATCH,
        pruned: Pruned::default(),
    };
    let accounts = connection
        .prepare("SELECT id FROM accounts ORDER BY id")?
        .query_map([], |row| row.get(0))?
        .collect::<rusqlite::Result<Vec<String>>>()?;
    for account_id in accounts {
        while pruning.step(connection, |pruning, transaction| {
            pruning.oldest(transaction, &account_id)
        })? {
            progress(pruning.pruned.calls);
        }
    }
    let mut last = 0;
    while pruning.step(connection, |pruning, transaction| {
        pruning.uncharged(transaction, &mut last)
    })? {
        progress(pruning.pruned.calls);
    }
    while pruning.step(connection, |pruning, transaction| {
        pruning.replays(transaction)
    })? {}
    Ok(pruning.pruned)
}

struct Pruning {
    before: Month,
    /// The lowest ID of calls that are admitted in the first month that stays.
    first_call: i64,
    /// How many rows the next transaction deletes.
    batch: u32,
    pruned: Pruned,
}

/// An entry, as far as pruning is concerned.
struct Entry {
    seq: i64,
    balance: i64,
    at: i64,
    is_opening: bool,
    stays: bool,
}

impl Pruning {
    /// Runs one transaction; `delete` returns `false` if there was nothing to delete.
    fn step(
        &mut self,
        connection: &mut Connection,
        delete: impl FnOnce(&mut Self, &Transaction<'_>) -> rusqlite::Result<bool>,
    ) -> rusqlite::Result<bool> {
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let started = Instant::now();
        let has_deleted = delete(self, &transaction)?;
        transaction.commit()?;
        let took = started.elapsed();
        // Rows that are far apart on a slow disk take long: fewer next time.
        self.batch = if took > TARGET {
            (self.batch / 2).max(1)
        } else {
            (self.batch * 2).min(MAX_BATCH)
        };
        if has_deleted {
            std::thread::sleep(took); // at most half of the time belongs to pruning
        }
        Ok(has_deleted)
    }

    /// Deletes the account's oldest entries and charged calls, up to the first one that stays. Those after it stay too,
    /// whatever their times, so that entries have no gap.
    fn oldest(
        &mut self,
        transaction: &Transaction<'_>,
        account_id: &str,
    ) -> rusqlite::Result<bool> {
        let read = |row: &Row<'_>| {
            Ok(Entry {
                seq: row.get(0)?,
                balance: row.get(1)?,
                at: row.get(2)?,
                is_opening: row.get(3)?,
                stays: row.get(4)?,
            })
        };
        // One more than are deleted, because an opening entry is replaced.
        let wanted = params![
            account_id,
            self.before.first_ms(),
            self.first_call,
            self.batch + 1
        ];
        let oldest = transaction
            .prepare_cached(OLDEST)?
            .query_map(wanted, read)?
            .collect::<rusqlite::Result<Vec<_>>>()?;
        let Some(last) = oldest.iter().take_while(|entry| !entry.stays).last() else {
            return Ok(false);
        };
        if last.is_opening {
            return Ok(false); // all that was left by an earlier pruning
        }
        let calls = transaction
            .prepare_cached("DELETE FROM calls WHERE account_id = ?1 AND entry_seq <= ?2")?
            .execute(params![account_id, last.seq])?;
        // An earlier opening entry is replaced, and counts for nothing.
        transaction
            .prepare_cached(
                "DELETE FROM ledger_entries WHERE account_id = ?1 AND kind = 'opening'",
            )?
            .execute([account_id])?;
        let entries = transaction
            .prepare_cached("DELETE FROM ledger_entries WHERE account_id = ?1 AND seq <= ?2")?
            .execute(params![account_id, last.seq])?;
        transaction
            .prepare_cached(
                "INSERT INTO ledger_entries VALUES (?1, ?2, 'opening', ?3, ?4, ?4, ?5)",
            )?
            .execute(params![
                last.seq,
                account_id,
                self.before.first_day(),
                last.balance,
                last.at
            ])?;
        self.pruned.calls += calls as u64;
        self.pruned.entries += entries as u64;
        Ok(true)
    }

    /// Deletes replays of calls that were pruned.
    fn replays(&mut self, transaction: &Transaction<'_>) -> rusqlite::Result<bool> {
        let delete = "DELETE FROM replays WHERE id IN
            (SELECT id FROM replays WHERE call_id < ?1 ORDER BY call_id LIMIT ?2)";
        let mut delete = transaction.prepare_cached(delete)?;
        Ok(delete.execute(params![self.first_call, self.batch])? > 0)
    }

    /// Deletes calls that were not charged, after the one with ID `last`.
    fn uncharged(
        &mut self,
        transaction: &Transaction<'_>,
        last: &mut i64,
    ) -> rusqlite::Result<bool> {
        let ids: Vec<i64> = transaction
            .prepare_cached(UNCHARGED)?
            .query_map(params![*last, self.first_call, self.batch], |row| {
                row.get(0)
            })?
            .collect::<rusqlite::Result<_>>()?;
        let mut delete = transaction.prepare_cached("DELETE FROM calls WHERE id = ?1")?;
        for id in &ids {
            delete.execute([id])?;
        }
        self.pruned.calls += ids.len() as u64;
        *last = ids.last().copied().unwrap_or(*last);
        Ok(!ids.is_empty())
    }
}
