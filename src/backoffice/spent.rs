//! One-time tokens, recorded when they are used.

use super::{
    Backoffice, BackofficeError, Digest,
    sql::{Statement, statement, unexpected},
};
use crate::base::{hex::hex, keys::random_id};

impl Backoffice {
    /// Uses the token with this digest; `false` if it was used before, with any gateway.
    ///
    /// The record may be deleted after `expires_at`, so the caller must not accept the token after that time.
    pub(crate) async fn spend(
        &self,
        digest: &Digest,
        expires_at: i64,
    ) -> Result<bool, BackofficeError> {
        let (digest, claim) = (hex(digest), random_id("claim_"));
        let spend = statement(
            "INSERT INTO backoffice_spent (digest, claim, expires_at) VALUES ($1, $2, $3)
             ON CONFLICT (digest) DO NOTHING",
            [
                digest.as_str().into(),
                claim.as_str().into(),
                expires_at.into(),
            ],
        );
        let select = statement(
            "SELECT claim FROM backoffice_spent WHERE digest = $1",
            [digest.as_str().into()],
        );
        let rows = self.run(vec![spend, select]).await?;
        let first = rows.into_iter().next();
        let mut row = first.ok_or_else(|| unexpected("the token that was just used"))?;
        Ok(row.text()? == claim)
    }
}

/// Deletes the records of expired tokens.
pub(crate) fn delete_expired_spent(now: i64) -> Statement {
    statement(
        "DELETE FROM backoffice_spent WHERE expires_at <= $1",
        [now.into()],
    )
}
