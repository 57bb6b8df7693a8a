//! Refused requests of accounts: the last ones of each account in full, and how many there were by minute.
//!
//! Gateways write them in batches, each under a name of its own. A batch can be written twice: records have IDs, and
//! counts are totals by writer and minute.

use super::{
    Backoffice, BackofficeError,
    sql::{Row, Statement, statement, unexpected},
};

/// How many records of an account are kept.
pub(crate) const KEPT_OF_ACCOUNT: usize = 1_000;
/// The code of requests that were refused because too many were before.
pub(crate) const BLOCKED: &str = "refusals_exceeded";
/// How many of those are kept of an account, so that they do not replace the requests that led to them.
const KEPT_BLOCKED: i64 = 100;
/// Most records that are trimmed from an account at once.
const MOST_TRIMMED: i64 = 10_000;
/// Most rows that are deleted in one statement.
const PRUNED_AT_ONCE: i64 = 5_000;
/// Most records that share a request ID and are shown.
const MAX_OF_REQUEST: usize = 100;

/// A request that got an error and was not admitted as a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedRequest {
    /// `refused_…`, rising with time.
    pub id: String,
    pub at_ms: i64,
    /// The `X-Request-ID`, as it is logged.
    pub request_id: String,
    pub account_id: String,
    pub key_id: String,
    /// The project and the member of the key at that time.
    pub project_id: Option<String>,
    pub member_id: Option<String>,
    pub path: String,
    /// The model that was asked for, if the request was read that far.
    pub model: Option<String>,
    pub status: u16,
    /// The code of the error, or its type if that says more.
    pub code: String,
    pub param: Option<String>,
    pub message: String,
    /// The coding agent that sent it, if it named itself.
    pub agent: Option<String>,
    pub took_ms: i64,
}

/// What refused requests are counted by.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct RefusedKind {
    pub account_id: String,
    pub key_id: String,
    pub status: u16,
    pub code: String,
    /// Minutes since 1970.
    pub minute: i64,
}

/// How often a key was refused for a reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RefusedCount {
    pub key_id: String,
    pub status: u16,
    pub code: String,
    pub requests: i64,
}

macro_rules! refused_where {
    ($condition:literal) => {
        concat!(
            "SELECT id, at_ms, request_id, account_id, key_id, project_id, member_id, path, model, status, code,
                 param, message, agent, took_ms
             FROM backoffice_refused WHERE ",
            $condition
        )
    };
}

mod pages;

pub(crate) use pages::{RefusedFound, RefusedPage};

impl Backoffice {
    /// Writes records, and deletes those of their accounts that are too many.
    pub(crate) async fn write_refused(
        &self,
        records: &[RefusedRequest],
    ) -> Result<(), BackofficeError> {
        let mut accounts: Vec<_> = records.iter().map(|record| &*record.account_id).collect();
        accounts.sort_unstable();
        accounts.dedup();
        let trims = accounts.into_iter().flat_map(|account_id| {
            let kept = i64::try_from(KEPT_OF_ACCOUNT).unwrap_or(i64::MAX);
            [
                trim(account_id, Some(BLOCKED), KEPT_BLOCKED),
                trim(account_id, None, kept),
            ]
        });
        let statements: Vec<_> = records.iter().map(insert).chain(trims).collect();
        if !statements.is_empty() {
            self.run(statements).await?;
        }
        Ok(())
    }

    /// Sets how many requests of each kind a writer has counted.
    pub(crate) async fn write_refused_counts(
        &self,
        writer: &str,
        counts: &[(RefusedKind, i64)],
    ) -> Result<(), BackofficeError> {
        let upserts = counts.iter().map(|(kind, requests)| {
            statement(
                "INSERT INTO backoffice_refused_counts
                     (account_id, minute, key_id, status, code, writer, requests)
                 VALUES ($1, $2, $3, $4, $5, $6, $7)
                 ON CONFLICT (account_id, minute, key_id, status, code, writer)
                 DO UPDATE SET requests = excluded.requests
                 WHERE backoffice_refused_counts.requests < excluded.requests",
                [
                    kind.account_id.as_str().into(),
                    kind.minute.into(),
                    kind.key_id.as_str().into(),
                    i64::from(kind.status).into(),
                    kind.code.as_str().into(),
                    writer.into(),
                    (*requests).into(),
                ],
            )
        });
        let upserts: Vec<_> = upserts.collect();
        if !upserts.is_empty() {
            self.run(upserts).await?;
        }
        Ok(())
    }

    /// The refused requests with this ID, or with this `X-Request-ID`, newest first: of all accounts, or of one.
    pub(crate) async fn find_refused(
        &self,
        id: &str,
        account_id: Option<&str>,
    ) -> Result<Vec<RefusedRequest>, BackofficeError> {
        let limit = i64::try_from(MAX_OF_REQUEST).unwrap_or(i64::MAX);
        self.refused_rows(statement(
            refused_where!(
                "id IN (SELECT id FROM backoffice_refused WHERE id = $1
                     UNION SELECT id FROM backoffice_refused WHERE request_id = $1)
                     AND ($2 IS NULL OR account_id = $2)
                 ORDER BY at_ms DESC, id DESC LIMIT $3"
            ),
            [id.into(), account_id.into(), limit.into()],
        ))
        .await
    }

    /// How many requests were refused since a minute, by key, status and code: of all accounts, or of one.
    pub(crate) async fn refused_counts(
        &self,
        account_id: Option<&str>,
        since_minute: i64,
    ) -> Result<Vec<RefusedCount>, BackofficeError> {
        let select = match account_id {
            // Keys are many; what operators look for is the reason.
            None => statement(
                "SELECT '', status, code, CAST(sum(requests) AS BIGINT) FROM backoffice_refused_counts
                 WHERE minute >= $1 GROUP BY status, code ORDER BY 4 DESC, status, code",
                [since_minute.into()],
            ),
            Some(account_id) => statement(
                "SELECT key_id, status, code, CAST(sum(requests) AS BIGINT) FROM backoffice_refused_counts
                 WHERE account_id = $1 AND minute >= $2
                 GROUP BY key_id, status, code ORDER BY 4 DESC, status, code, key_id",
                [account_id.into(), since_minute.into()],
            ),
        };
        let rows = self.run(vec![select]).await?;
        rows.into_iter().map(RefusedCount::read).collect()
    }

    /// Deletes records that are older than a time in milliseconds, and counts of before a minute. In slices, so that none
    /// takes long.
    pub(crate) async fn prune_refused(
        &self,
        before_ms: i64,
        before_minute: i64,
    ) -> Result<(), BackofficeError> {
        self.prune_slices(
            "DELETE FROM backoffice_refused WHERE id IN (
                 SELECT id FROM backoffice_refused WHERE at_ms < $1 LIMIT $2) RETURNING at_ms",
            before_ms,
        )
        .await?;
        self.prune_slices(
            "DELETE FROM backoffice_refused_counts
             WHERE (account_id, minute, key_id, status, code, writer) IN (
                 SELECT account_id, minute, key_id, status, code, writer FROM backoffice_refused_counts
                 WHERE minute < $1 LIMIT $2) RETURNING minute",
            before_minute,
        )
        .await
    }

    async fn prune_slices(&self, sql: &'static str, before: i64) -> Result<(), BackofficeError> {
        loop {
            let slice = statement(sql, [before.into(), PRUNED_AT_ONCE.into()]);
            let pruned = self.run(vec![slice]).await?.len();
            if i64::try_from(pruned).unwrap_or(0) < PRUNED_AT_ONCE {
                return Ok(());
            }
        }
    }

    async fn refused_rows(
        &self,
        select: Statement,
    ) -> Result<Vec<RefusedRequest>, BackofficeError> {
        let rows = self.run(vec![select]).await?;
        rows.into_iter().map(RefusedRequest::read).collect()
    }
}

/// Deletes an account's records, of a code or all, except for the newest.
fn trim(account_id: &str, code: Option<&str>, kept: i64) -> Statement {
    statement(
        "DELETE FROM backoffice_refused WHERE id IN (
             SELECT id FROM backoffice_refused WHERE account_id = $1 AND ($2 IS NULL OR code = $2)
             ORDER BY at_ms DESC, id DESC LIMIT $3 OFFSET $4)",
        [
            account_id.into(),
            code.into(),
            MOST_TRIMMED.into(),
            kept.into(),
        ],
    )
}

fn insert(record: &RefusedRequest) -> Statement {
    statement(
        "INSERT INTO backoffice_refused
             (id, at_ms, request_id, account_id, key_id, project_id, member_id, path, model, status, code, param,
              message, agent, took_ms)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)
         ON CONFLICT (id) DO NOTHING",
        [
            record.id.as_str().into(),
            record.at_ms.into(),
            record.request_id.as_str().into(),
            record.account_id.as_str().into(),
            record.key_id.as_str().into(),
            record.project_id.as_deref().into(),
            record.member_id.as_deref().into(),
            record.path.as_str().into(),
            record.model.as_deref().into(),
            i64::from(record.status).into(),
            record.code.as_str().into(),
            record.param.as_deref().into(),
            record.message.as_str().into(),
            record.agent.as_deref().into(),
            record.took_ms.into(),
        ],
    )
}

impl RefusedRequest {
    fn read(mut row: Row) -> Result<Self, BackofficeError> {
        Ok(Self {
            id: row.text()?,
            at_ms: row.int()?,
            request_id: row.text()?,
            account_id: row.text()?,
            key_id: row.text()?,
            project_id: row.text_or_null()?,
            member_id: row.text_or_null()?,
            path: row.text()?,
            model: row.text_or_null()?,
            status: status(&mut row)?,
            code: row.text()?,
            param: row.text_or_null()?,
            message: row.text()?,
            agent: row.text_or_null()?,
            took_ms: row.int()?,
        })
    }
}

impl RefusedCount {
    fn read(mut row: Row) -> Result<Self, BackofficeError> {
        Ok(Self {
            key_id: row.text()?,
            status: status(&mut row)?,
            code: row.text()?,
            requests: row.int()?,
        })
    }
}

fn status(row: &mut Row) -> Result<u16, BackofficeError> {
    u16::try_from(row.int()?).map_err(|_| unexpected("an HTTP status"))
}
