//! What may be used once.

use super::{
    Backoffice, BackofficeError, Digest,
    sessions::hex,
    sql::{Statement, statement, unexpected},
};
use crate::base::keys::random_id;

impl Backoffice {
    /// Uses what has this digest; false where it has been used before, with whichever gateway.
    ///
    /// After `expires_at` it is forgotten, so it must not be taken any more by then.
    pub async fn spend(&self, digest: &Digest, expires_at: i64) -> Result<bool, BackofficeError> {
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
        let look = statement(
            "SELECT claim FROM backoffice_spent WHERE digest = $1",
            [digest.as_str().into()],
        );
        let rows = self.run(vec![spend, look]).await?;
        let first = rows.into_iter().next();
        let mut row = first.ok_or_else(|| unexpected("what was just used"))?;
        Ok(row.text()? == claim)
    }
}

pub fn expired_spent(now: i64) -> Statement {
    statement(
        "DELETE FROM backoffice_spent WHERE expires_at <= $1",
        [now.into()],
    )
}
