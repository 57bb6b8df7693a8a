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

impl Shared {
    /// Replaces the names of the account's keys and projects, and drops its responses that are kept for retries.
    pub(crate) async fn erase_names(&self, account_id: &str) -> Result<(), LedgerError> {
        let connection = self.begin().await?;
        let erased = erase_within(&connection, account_id).await;
        self.end(connection, erased).await
    }
}

async fn erase_within(connection: &Connected, account_id: &str) -> Result<(), LedgerError> {
    for statement in STATEMENTS {
        let parameters = [(&account_id as _, Type::TEXT), (&ERASED as _, Type::TEXT)];
        let erased = connection.execute_typed(statement, &parameters).await;
        erased.map_err(Error::from)?;
    }
    Ok(())
}
