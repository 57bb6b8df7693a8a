//! Versions of what operators changed in the configuration, and which version each gateway uses.
//!
//! A version holds all changes at its time; the newest counts. Versions are never changed. The oldest are removed when
//! there are more than [`KEPT`].

use super::{
    Backoffice, BackofficeError,
    sql::{Row, statement},
};

/// How many versions are kept.
const KEPT: i64 = 1_000;
/// Seconds after which a gateway that has not reported is forgotten.
const FORGOTTEN: i64 = 24 * 3_600;

/// A version as it is listed, without its content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ConfigVersion {
    /// Counted from 1 without a gap.
    pub number: i64,
    pub at_ms: i64,
    pub actor: String,
    /// The reason for it, as the operator wrote it.
    pub note: String,
}

/// A version to be added.
pub(crate) struct NewConfigVersion<'a> {
    /// Makes a retried insert idempotent.
    pub id: &'a str,
    pub at_ms: i64,
    pub actor: &'a str,
    pub note: &'a str,
    /// The changes as JSON.
    pub content: &'a str,
    /// The newest version when the changes were made; 0 if there was none.
    pub based_on: i64,
}

/// What a gateway last reported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GatewayReport {
    pub gateway: String,
    /// The version that it uses.
    pub number: i64,
    /// Why it does not use the newest; `None` if it does.
    pub problem: Option<String>,
    pub seen_at: i64,
}

impl Backoffice {
    /// Adds a version, unless there is a newer one than `based_on`; returns its number, or `None` if there is.
    pub(crate) async fn add_config_version(
        &self,
        new: NewConfigVersion<'_>,
    ) -> Result<Option<i64>, BackofficeError> {
        let number = new.based_on.saturating_add(1);
        let insert = statement(
            "INSERT INTO backoffice_config_versions (number, id, at_ms, actor, note, content)
             SELECT $1, $2, $3, $4, $5, $6
             WHERE (SELECT coalesce(max(number), 0) FROM backoffice_config_versions) = $7
             ON CONFLICT DO NOTHING",
            [
                number.into(),
                new.id.into(),
                new.at_ms.into(),
                new.actor.into(),
                new.note.into(),
                new.content.into(),
                new.based_on.into(),
            ],
        );
        let prune = statement(
            "DELETE FROM backoffice_config_versions
             WHERE number <= (SELECT max(number) FROM backoffice_config_versions) - $1",
            [KEPT.into()],
        );
        let select = statement(
            "SELECT number FROM backoffice_config_versions WHERE id = $1",
            [new.id.into()],
        );
        let added = self.run(vec![insert, prune, select]).await?;
        added
            .into_iter()
            .next()
            .map(|mut row| row.int())
            .transpose()
    }

    /// The number and the content of the newest version, if it is newer than `number`.
    pub(crate) async fn config_newer_than(
        &self,
        number: i64,
    ) -> Result<Option<(i64, String)>, BackofficeError> {
        let select = statement(
            "SELECT number, content FROM backoffice_config_versions
             WHERE number > $1 ORDER BY number DESC LIMIT 1",
            [number.into()],
        );
        let rows = self.run(vec![select]).await?;
        let mut rows = rows.into_iter();
        rows.next()
            .map(|mut row| Ok((row.int()?, row.text()?)))
            .transpose()
    }

    /// A version with its content.
    pub(crate) async fn config_version(
        &self,
        number: i64,
    ) -> Result<Option<(ConfigVersion, String)>, BackofficeError> {
        let select = statement(
            "SELECT number, at_ms, actor, note, content FROM backoffice_config_versions WHERE number = $1",
            [number.into()],
        );
        let rows = self.run(vec![select]).await?;
        let mut rows = rows.into_iter();
        rows.next()
            .map(|mut row| Ok((ConfigVersion::read(&mut row)?, row.text()?)))
            .transpose()
    }

    /// A page of versions, newest first; `before` is the last number of the previous page.
    pub(crate) async fn config_versions(
        &self,
        before: Option<i64>,
        limit: usize,
    ) -> Result<Vec<ConfigVersion>, BackofficeError> {
        let select = statement(
            "SELECT number, at_ms, actor, note FROM backoffice_config_versions
             WHERE number < $1 ORDER BY number DESC LIMIT $2",
            [
                before.unwrap_or(i64::MAX).into(),
                i64::try_from(limit).unwrap_or(i64::MAX).into(),
            ],
        );
        let rows = self.run(vec![select]).await?.into_iter();
        rows.map(|mut row| ConfigVersion::read(&mut row)).collect()
    }

    /// Stores which version a gateway uses, and forgets gateways that are gone.
    pub(crate) async fn report_config(
        &self,
        report: &GatewayReport,
    ) -> Result<(), BackofficeError> {
        let upsert = statement(
            "INSERT INTO backoffice_config_gateways (gateway, number, problem, seen_at)
             VALUES ($1, $2, $3, $4)
             ON CONFLICT (gateway) DO UPDATE SET
                 number = excluded.number, problem = excluded.problem, seen_at = excluded.seen_at",
            [
                report.gateway.as_str().into(),
                report.number.into(),
                report.problem.as_deref().into(),
                report.seen_at.into(),
            ],
        );
        let forget = statement(
            "DELETE FROM backoffice_config_gateways WHERE seen_at < $1",
            [report.seen_at.saturating_sub(FORGOTTEN).into()],
        );
        self.run(vec![upsert, forget]).await?;
        Ok(())
    }

    /// What the gateways reported since a time, by name.
    pub(crate) async fn config_reports(
        &self,
        since: i64,
    ) -> Result<Vec<GatewayReport>, BackofficeError> {
        let select = statement(
            "SELECT gateway, number, problem, seen_at FROM backoffice_config_gateways
             WHERE seen_at >= $1 ORDER BY gateway LIMIT 100",
            [since.into()],
        );
        let rows = self.run(vec![select]).await?.into_iter();
        rows.map(|mut row| {
            Ok(GatewayReport {
                gateway: row.text()?,
                number: row.int()?,
                problem: row.text_or_null()?,
                seen_at: row.int()?,
            })
        })
        .collect()
    }
}

impl ConfigVersion {
    fn read(row: &mut Row) -> Result<Self, BackofficeError> {
        Ok(Self {
            number: row.int()?,
            at_ms: row.int()?,
            actor: row.text()?,
            note: row.text()?,
        })
    }
}
