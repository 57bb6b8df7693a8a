//! SQL statements on stored responses, including evictions.
//!
//! Each uses an index, or scans the entries of an index of at most 1,000 records.

use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension as _, TransactionBehavior, params};

use super::{Record, Settings};

/// Inserts a record, unless its ID exists, and evicts others above the limits.
pub(crate) fn store(
    connection: &mut Connection,
    record: &Record,
    settings: &Settings,
    now_ms: i64,
) -> rusqlite::Result<()> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    delete_expired(&transaction, now_ms - settings.retention_ms)?;
    if insert(&transaction, record, now_ms)? {
        evict_of_account(&transaction, &record.account_id, settings.per_account)?;
        evict_of_all(&transaction, settings.in_all)?;
    } else {
        tracing::error!(
            response.id = record.id,
            "a stored response with this ID exists already; the new one is dropped"
        );
    }
    transaction.commit()
}

pub(crate) fn find(
    connection: &Connection,
    account_id: &str,
    id: &str,
    expired_ms: i64,
) -> rusqlite::Result<Option<Record>> {
    connection
        .prepare_cached(
            "SELECT id, account_id, response, input, events FROM responses
             WHERE id = ?1 AND account_id = ?2 AND stored_ms > ?3",
        )?
        .query_row(params![id, account_id, expired_ms], |row| {
            Ok(Record {
                id: row.get(0)?,
                account_id: row.get(1)?,
                response: row.get(2)?,
                input: row.get(3)?,
                events: row.get::<_, Option<String>>(4)?.map(Arc::from),
            })
        })
        .optional()
}

pub(crate) fn delete(
    connection: &Connection,
    account_id: &str,
    id: &str,
    expired_ms: i64,
) -> rusqlite::Result<bool> {
    let deleted = connection
        .prepare_cached(
            "DELETE FROM responses WHERE id = ?1 AND account_id = ?2 AND stored_ms > ?3",
        )?
        .execute(params![id, account_id, expired_ms])?;
    Ok(deleted > 0)
}

pub(crate) fn delete_all_of(connection: &Connection, account_id: &str) -> rusqlite::Result<()> {
    connection
        .prepare_cached("DELETE FROM responses WHERE account_id = ?1")?
        .execute([account_id])?;
    Ok(())
}

/// Deletes expired records, also if no more are stored.
pub(crate) fn sweep(connection: &mut Connection, expired_ms: i64) -> rusqlite::Result<()> {
    delete_expired(connection, expired_ms)
}

fn delete_expired(connection: &Connection, expired_ms: i64) -> rusqlite::Result<()> {
    connection
        .prepare_cached("DELETE FROM responses WHERE stored_ms <= ?1")?
        .execute([expired_ms])?;
    Ok(())
}

/// Inserts a record; returns false if the ID exists.
fn insert(connection: &Connection, record: &Record, now_ms: i64) -> rusqlite::Result<bool> {
    let inserted = connection
        .prepare_cached(
            "INSERT INTO responses (id, account_id, stored_ms, response, input, events)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT (id) DO NOTHING",
        )?
        .execute(params![
            record.id,
            record.account_id,
            now_ms,
            record.response,
            record.input,
            record.events
        ])?;
    Ok(inserted > 0)
}

/// Evicts all but the newest `most` records of an account.
fn evict_of_account(connection: &Connection, account_id: &str, most: u32) -> rusqlite::Result<()> {
    connection
        .prepare_cached(
            "DELETE FROM responses WHERE sequence IN
             (SELECT sequence FROM responses WHERE account_id = ?1
              ORDER BY sequence DESC LIMIT -1 OFFSET ?2)",
        )?
        .execute(params![account_id, most])?;
    Ok(())
}

/// While there are more than `most` records, evicts the oldest record of the account that has the most; among equals, of
/// the account with the oldest record.
///
/// So an account that stores without end displaces its own records, and not those of accounts with few.
fn evict_of_all(connection: &Connection, most: u32) -> rusqlite::Result<()> {
    let mut count = connection.prepare_cached("SELECT count(*) FROM responses")?;
    let mut evict = connection.prepare_cached(
        "DELETE FROM responses WHERE sequence =
         (SELECT min(sequence) FROM responses GROUP BY account_id
          ORDER BY count(*) DESC, min(sequence) LIMIT 1)",
    )?;
    while count.query_row([], |row| row.get::<_, u32>(0))? > most {
        evict.execute([])?;
    }
    Ok(())
}
