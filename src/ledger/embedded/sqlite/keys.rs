//! Keys in the file, deleted ones too.

use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension as _, Row, params};

use super::{Database, unreadable};
use crate::{
    base::keys::KeyDigest,
    ledger::{Key, KeyFilter, KeyState, KeyTerms, KeysPage, Payer, PreviousSecret},
};

const COLUMNS: &str =
    "id, account_id, name, prefix, state, created_at, digest, project_id, member_id, expires_at,
    models, rpm, tpm, previous_prefix, previous_digest, previous_until";

impl Database {
    pub(crate) fn insert_key(&self, key: &Key) -> rusqlite::Result<()> {
        let insert = format!(
            "INSERT INTO api_keys ({COLUMNS})
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, NULL, NULL, NULL)"
        );
        self.connection.execute(
            &insert,
            params![
                key.id,
                key.account_id,
                key.name,
                key.prefix,
                key.state.as_str(),
                key.created_at,
                key.digest.0,
                key.payer.project_id,
                key.payer.member_id,
                key.terms.expires_at,
                key.terms.models_json(),
                key.terms.rpm,
                key.terms.tpm,
            ],
        )?;
        Ok(())
    }

    pub(crate) fn update_key(&self, key: &Key) -> rusqlite::Result<()> {
        self.connection.execute(
            "UPDATE api_keys SET state = ?2, name = ?3, project_id = ?4, expires_at = ?5, models = ?6, rpm = ?7,
                 tpm = ?8 WHERE id = ?1",
            params![
                key.id,
                key.state.as_str(),
                key.name,
                key.payer.project_id,
                key.terms.expires_at,
                key.terms.models_json(),
                key.terms.rpm,
                key.terms.tpm,
            ],
        )?;
        Ok(())
    }

    /// Stores the digests and prefixes of a key that was rotated.
    pub(crate) fn update_secrets(&self, key: &Key) -> rusqlite::Result<()> {
        let previous = key.previous.as_ref();
        self.connection.execute(
            "UPDATE api_keys SET prefix = ?2, digest = ?3, previous_prefix = ?4, previous_digest = ?5,
                 previous_until = ?6 WHERE id = ?1",
            params![
                key.id,
                key.prefix,
                key.digest.0,
                previous.map(|previous| &previous.prefix),
                previous.map(|previous| previous.digest.0),
                previous.map(|previous| previous.valid_until),
            ],
        )?;
        Ok(())
    }

    pub(crate) fn key(&self, id: &str) -> rusqlite::Result<Option<Key>> {
        one(&self.connection, id)
    }

    /// All keys that are not deleted.
    pub(crate) fn live_keys(&self) -> rusqlite::Result<Vec<Key>> {
        let live = KeyFilter::Live.condition();
        let query = format!("SELECT {COLUMNS} FROM api_keys WHERE {live}");
        let mut keys = self.connection.prepare(&query)?;
        keys.query_map([], read)?.collect()
    }
}

/// A page of the account's keys, newest first.
pub(crate) fn page(connection: &Connection, page: KeysPage<'_>) -> rusqlite::Result<Vec<Key>> {
    let condition = page.filter.condition();
    let query = format!(
        "SELECT {COLUMNS} FROM api_keys
         WHERE account_id = ?1 AND {condition} AND (created_at, id) < (?2, ?3)
             AND (?5 IS NULL OR member_id = ?5)
         ORDER BY created_at DESC, id DESC LIMIT ?4"
    );
    let (created_at, id) = page.before.unwrap_or((i64::MAX, String::new()));
    let limit = i64::try_from(page.limit).unwrap_or(i64::MAX);
    let mut keys = connection.prepare_cached(&query)?;
    let values = params![page.account_id, created_at, id, limit, page.member_id];
    let keys = keys.query_map(values, read)?;
    keys.collect()
}

pub(crate) fn with_ids(connection: &Connection, ids: &[String]) -> rusqlite::Result<Vec<Key>> {
    let keys = ids.iter().map(|id| one(connection, id));
    keys.filter_map(Result::transpose).collect()
}

/// The keys with these secrets, whether or not they are valid.
pub(crate) fn with_digests(
    connection: &Connection,
    digests: &[KeyDigest],
) -> rusqlite::Result<Vec<Key>> {
    let query = format!("SELECT {COLUMNS} FROM api_keys WHERE digest = ?1 OR previous_digest = ?1");
    let mut key = connection.prepare_cached(&query)?;
    let keys = digests
        .iter()
        .map(|digest| key.query_row([digest.0], read).optional());
    keys.filter_map(Result::transpose).collect()
}

fn one(connection: &Connection, id: &str) -> rusqlite::Result<Option<Key>> {
    let query = format!("SELECT {COLUMNS} FROM api_keys WHERE id = ?1");
    let mut key = connection.prepare_cached(&query)?;
    key.query_row([id], read).optional()
}

fn read(row: &Row<'_>) -> rusqlite::Result<Key> {
    let state: String = row.get(4)?;
    let models: Option<String> = row.get(10)?;
    let payer = Payer {
        key_id: row.get(0)?,
        project_id: row.get(7)?,
        member_id: row.get(8)?,
    };
    let terms = KeyTerms {
        expires_at: row.get(9)?,
        models: KeyTerms::read_models(models.as_deref()).map_err(|_| unreadable(10, "models"))?,
        rpm: row.get(11)?,
        tpm: row.get(12)?,
    };
    Ok(Key {
        id: row.get(0)?,
        account_id: row.get(1)?,
        name: row.get(2)?,
        prefix: row.get(3)?,
        state: KeyState::parse(&state).ok_or_else(|| unreadable(4, "state"))?,
        created_at: row.get(5)?,
        digest: KeyDigest(row.get(6)?),
        previous: read_previous(row)?,
        payer: Arc::new(payer),
        terms: Arc::new(terms),
    })
}

fn read_previous(row: &Row<'_>) -> rusqlite::Result<Option<PreviousSecret>> {
    let Some(valid_until) = row.get(15)? else {
        return Ok(None);
    };
    Ok(Some(PreviousSecret {
        prefix: row.get(13)?,
        digest: KeyDigest(row.get(14)?),
        valid_until,
    }))
}
