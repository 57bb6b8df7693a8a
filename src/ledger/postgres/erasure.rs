//! Replacing the names of an account that was deleted.

use tokio_postgres::types::Type;

use super::Shared;
use crate::{
    db::postgres::{Connected, Error},
    ledger::{LedgerError, erasure::ERASED},
};

const STATEMENTS: [&str; 3] = [
    "UPDATE api_keys SET name = $2 WHERE account_id = $1 AND name <> $2",
    "UPDATE projects SET name = $2 WHERE account_id = $1 AND name <> $2",
    "UPDATE idempotent_responses SET body = NULL WHERE account_id = $1 AND body IS NOT NULL AND $2 <> ''",
];

const REASON: &str = "UPDATE credit_grants SET reason = $3 WHERE account_id = $1 AND id = $2";

impl Shared {
    /// Replaces the names of the account's keys and projects and the reasons of these grants, and drops its responses that
    /// are kept for retries.
    pub(crate) async fn erase_texts(
        &self,
        account_id: &str,
        reasons: &[(String, String)],
    ) -> Result<(), LedgerError> {
        let connection = self.begin().await?;
        let erased = erase_within(&connection, account_id, reasons).await;
        self.end(connection, erased).await
    }
}

async fn erase_within(
    connection: &Connected,
    account_id: &str,
    reasons: &[(String, String)],
) -> Result<(), LedgerError> {
    for statement in STATEMENTS {
        let parameters = [(&account_id as _, Type::TEXT), (&ERASED as _, Type::TEXT)];
        let erased = connection.execute_typed(statement, &parameters).await;
        erased.map_err(Error::from)?;
    }
    for (grant_id, reason) in reasons {
        let parameters = [
            (&account_id as _, Type::TEXT),
            (grant_id as _, Type::TEXT),
            (reason as _, Type::TEXT),
        ];
        let set = connection.execute_typed(REASON, &parameters).await;
        set.map_err(Error::from)?;
    }
    Ok(())
}
