//! Keys. Each change is one transaction and applies to the next request of every gateway.

use std::sync::Arc;

use serde_json::Value;
use tokio_postgres::{Row, types::Type};

use super::{
    Shared,
    admin::missing,
    record::{get, unreadable},
};
use crate::{
    base::keys::KeyDigest,
    db::postgres::Error,
    ledger::{
        Edit, Key, KeyChange, KeyState, KeyTerms, KeysPage, LedgerError, Payer, PreviousSecret,
        rotation::Rotation,
    },
};

const COLUMNS: &str =
    "id, account_id, name, prefix, state, created_at, digest, project_id, member_id, expires_at,
    models, rpm, tpm, previous_prefix, previous_digest, previous_until";

impl Shared {
    /// Stores an active key by its digest, unless the account has `max` live keys.
    pub(crate) async fn create_key(&self, key: Key, max: u32) -> Result<Key, LedgerError> {
        let (digest, most) = (key.digest.0.as_slice(), i64::from(max));
        let (payer, terms) = (&key.payer, &key.terms);
        let (models, rpm, tpm) = (
            terms.models_json(),
            terms.rpm.map(i64::from),
            terms.tpm.map(i64::from),
        );
        let parameters = [
            (&key.account_id as _, Type::TEXT),
            (&key.id as _, Type::TEXT),
            (&key.name as _, Type::TEXT),
            (&key.prefix as _, Type::TEXT),
            (&key.created_at as _, Type::INT8),
            (&digest as _, Type::BYTEA),
            (&most as _, Type::INT8),
            (&payer.project_id as _, Type::TEXT),
            (&payer.member_id as _, Type::TEXT),
            (&terms.expires_at as _, Type::INT8),
            (&models as _, Type::TEXT),
            (&rpm as _, Type::INT8),
            (&tpm as _, Type::INT8),
        ];
        let query = "SELECT create_key(
            ROW($2, $1, $3, $4, 'active', $5, $6, $8, $9, $10, $11, $12, $13, NULL, NULL, NULL)::api_keys, $7)";
        let created: String = self.inner.pool.query_one(query, &parameters).await?;
        match created.as_str() {
            "created" => Ok(key),
            "full" => Err(LedgerError::TooManyKeys { max }),
            "project" => Err(missing_project(payer.project_id.as_deref())),
            _ => Err(missing("account", &key.account_id)),
        }
    }

    pub(crate) async fn set_key_state(
        &self,
        id: &str,
        state: KeyState,
    ) -> Result<Key, LedgerError> {
        let query = format!(
            "UPDATE api_keys SET state = $2 WHERE id = $1 AND (state <> 'deleted' OR $2 = 'deleted')
             RETURNING {COLUMNS}"
        );
        let text = state.as_str();
        let parameters = [(&id as _, Type::TEXT), (&text as _, Type::TEXT)];
        let rows = self.inner.pool.query(&query, &parameters).await?;
        let Some(row) = rows.first() else {
            return Err(self.not_live(id).await);
        };
        let key = read(row)?;
        if state != KeyState::Active {
            self.forget_callers(&key);
        }
        Ok(key)
    }

    /// Gives a live key a new secret. The server's clock decides how long the present one stays valid.
    pub(crate) async fn rotate_key(&self, id: &str, new: Rotation) -> Result<Key, LedgerError> {
        let query = format!(
            "UPDATE api_keys SET prefix = $2, digest = $3,
                 previous_prefix = CASE WHEN $4 > 0 THEN prefix END,
                 previous_digest = CASE WHEN $4 > 0 THEN digest END,
                 previous_until = CASE WHEN $4 > 0 THEN present_second($5) + $4 END
             WHERE id = $1 AND state <> 'deleted' RETURNING {COLUMNS}"
        );
        let (digest, grace) = (new.digest.0.as_slice(), i64::from(new.grace));
        let now = self.inner.clock.manual_now();
        let parameters = [
            (&id as _, Type::TEXT),
            (&new.prefix as _, Type::TEXT),
            (&digest as _, Type::BYTEA),
            (&grace as _, Type::INT8),
            (&now as _, Type::INT8),
        ];
        let rows = self.inner.pool.query(&query, &parameters).await?;
        match rows.first() {
            Some(row) => Ok(read(row)?),
            None => Err(self.not_live(id).await),
        }
    }

    /// Why a live key was not found.
    async fn not_live(&self, id: &str) -> LedgerError {
        let there = "SELECT 1 FROM api_keys WHERE id = $1";
        match self.inner.pool.query(there, &[(&id, Type::TEXT)]).await {
            Ok(there) if there.is_empty() => missing("key", id),
            Ok(_) => LedgerError::KeyDeleted,
            Err(error) => error.into(),
        }
    }

    /// Removes the callers of a key from the cache.
    fn forget_callers(&self, key: &Key) {
        for digest in key.digests() {
            self.cache.put_caller(digest, None);
        }
    }

    pub(crate) async fn change_key(&self, id: &str, change: KeyChange) -> Result<Key, LedgerError> {
        let project_id = match &change.project_id {
            Edit::Set(id) => Some(id.clone()),
            Edit::Keep | Edit::Clear => None,
        };
        let json = to_json(change).to_string();
        let parameters = [(&id as _, Type::TEXT), (&json as _, Type::TEXT)];
        let query = "SELECT change_key($1, $2::jsonb)";
        let changed: String = self.inner.pool.query_one(query, &parameters).await?;
        match changed.as_str() {
            "changed" => {}
            "deleted" => return Err(LedgerError::KeyDeleted),
            "project" => return Err(missing_project(project_id.as_deref())),
            _ => return Err(missing("key", id)),
        }
        let query = format!("SELECT {COLUMNS} FROM api_keys WHERE id = $1");
        let rows = self.inner.pool.query(&query, &[(&id, Type::TEXT)]).await?;
        let key = read(rows.first().ok_or_else(|| missing("key", id))?)?;
        self.forget_callers(&key);
        Ok(key)
    }

    /// The account's live keys, oldest first.
    pub(crate) async fn keys(&self, account_id: &str) -> Result<Vec<Key>, LedgerError> {
        self.account(account_id).await?;
        let query = format!(
            "SELECT {COLUMNS} FROM api_keys WHERE account_id = $1 AND state <> 'deleted' ORDER BY created_at, id"
        );
        let account = [(&account_id as _, Type::TEXT)];
        let rows = self.inner.pool.query(&query, &account).await?;
        Ok(rows.iter().map(read).collect::<Result<_, _>>()?)
    }

    pub(crate) async fn keys_page(&self, page: KeysPage<'_>) -> Result<Vec<Key>, LedgerError> {
        self.account(page.account_id).await?;
        let (condition, limit) = (page.filter.condition(), page.limit);
        let query = format!(
            "SELECT {COLUMNS} FROM api_keys
             WHERE account_id = $1 AND {condition} AND (created_at, id) < ($2, $3)
                 AND ($4 IS NULL OR member_id = $4)
             ORDER BY created_at DESC, id DESC LIMIT {limit}"
        );
        let (created_at, id) = page.before.unwrap_or((i64::MAX, String::new()));
        let parameters = [
            (&page.account_id as _, Type::TEXT),
            (&created_at as _, Type::INT8),
            (&id as _, Type::TEXT),
            (&page.member_id as _, Type::TEXT),
        ];
        let rows = self.inner.pool.query(&query, &parameters).await?;
        Ok(rows.iter().map(read).collect::<Result<_, _>>()?)
    }

    pub(crate) async fn keys_with_ids(&self, ids: Vec<String>) -> Result<Vec<Key>, LedgerError> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let query = format!("SELECT {COLUMNS} FROM api_keys WHERE id = ANY($1)");
        let ids = [(&ids as _, Type::TEXT_ARRAY)];
        let rows = self.inner.pool.query(&query, &ids).await?;
        Ok(rows.iter().map(read).collect::<Result<_, _>>()?)
    }

    /// The keys with these secrets, whether or not they are valid.
    pub(crate) async fn keys_with_digests(
        &self,
        digests: Vec<KeyDigest>,
    ) -> Result<Vec<Key>, LedgerError> {
        let query = format!(
            "SELECT {COLUMNS} FROM api_keys WHERE digest = ANY($1) OR previous_digest = ANY($1)"
        );
        let digests: Vec<&[u8]> = digests.iter().map(|digest| digest.0.as_slice()).collect();
        let digests = [(&digests as _, Type::BYTEA_ARRAY)];
        let rows = self.inner.pool.query(&query, &digests).await?;
        Ok(rows.iter().map(read).collect::<Result<_, _>>()?)
    }
}

fn missing_project(id: Option<&str>) -> LedgerError {
    missing("project", id.unwrap_or_default())
}

/// The columns to set, as the database function reads them.
fn to_json(change: KeyChange) -> Value {
    let columns = [
        ("name", change.name.map(Value::from)),
        ("project_id", column(change.project_id)),
        ("expires_at", column(change.expires_at)),
        (
            "models",
            column(change.models.map(|models| Value::from(models).to_string())),
        ),
        ("rpm", column(change.rpm)),
        ("tpm", column(change.tpm)),
    ];
    let set = columns
        .into_iter()
        .filter_map(|(name, value)| Some((name.to_owned(), value?)));
    Value::Object(set.collect())
}

/// `None` if the column keeps its value.
fn column<T: Into<Value>>(edit: Edit<T>) -> Option<Value> {
    match edit {
        Edit::Keep => None,
        Edit::Set(value) => Some(value.into()),
        Edit::Clear => Some(Value::Null),
    }
}

fn read(row: &Row) -> Result<Key, Error> {
    let (state, digest): (String, Vec<u8>) = (get(row, 4)?, get(row, 6)?);
    let ceiling = |column| {
        let ceiling: Option<i64> = get(row, column)?;
        Ok::<_, Error>(ceiling.and_then(|ceiling| u32::try_from(ceiling).ok()))
    };
    let payer = Payer {
        key_id: get(row, 0)?,
        project_id: get(row, 7)?,
        member_id: get(row, 8)?,
    };
    let terms = KeyTerms {
        expires_at: get(row, 9)?,
        models: KeyTerms::read_models(get(row, 10)?).map_err(|_| unreadable("a key's models"))?,
        rpm: ceiling(11)?,
        tpm: ceiling(12)?,
    };
    Ok(Key {
        id: get(row, 0)?,
        account_id: get(row, 1)?,
        name: get(row, 2)?,
        prefix: get(row, 3)?,
        state: KeyState::parse(&state).ok_or_else(|| unreadable("a key's state"))?,
        created_at: get(row, 5)?,
        digest: read_digest(digest)?,
        previous: read_previous(row)?,
        payer: Arc::new(payer),
        terms: Arc::new(terms),
    })
}

fn read_digest(digest: Vec<u8>) -> Result<KeyDigest, Error> {
    let digest = digest.try_into().map_err(|_| unreadable("a digest"))?;
    Ok(KeyDigest(digest))
}

fn read_previous(row: &Row) -> Result<Option<PreviousSecret>, Error> {
    let Some(valid_until) = get(row, 15)? else {
        return Ok(None);
    };
    Ok(Some(PreviousSecret {
        prefix: get(row, 13)?,
        digest: read_digest(get(row, 14)?)?,
        valid_until,
    }))
}
