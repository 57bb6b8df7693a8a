//! Statements of past months. A statement is stored when it is first issued and never changes.

use super::{
    Backoffice, BackofficeError,
    sql::{Row, statement},
};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StoredStatement {
    /// E.g. `2026-10`.
    pub month: String,
    /// JSON.
    pub content: String,
    pub issued_at: i64,
}

impl Backoffice {
    /// Stores a statement unless one is stored for this account and month. Returns the stored one.
    pub(crate) async fn issue_statement(
        &self,
        account_id: &str,
        new: &StoredStatement,
    ) -> Result<StoredStatement, BackofficeError> {
        let insert = statement(
            "INSERT INTO backoffice_statements (account_id, month, content, issued_at)
             VALUES ($1, $2, $3, $4) ON CONFLICT (account_id, month) DO NOTHING",
            [
                account_id.into(),
                new.month.as_str().into(),
                new.content.as_str().into(),
                new.issued_at.into(),
            ],
        );
        let rows = self.run(vec![insert, one(account_id, &new.month)]).await?;
        let stored = rows.into_iter().next().map(StoredStatement::read);
        stored.unwrap_or_else(|| Ok(new.clone()))
    }

    pub(crate) async fn statement(
        &self,
        account_id: &str,
        month: &str,
    ) -> Result<Option<StoredStatement>, BackofficeError> {
        let rows = self.run(vec![one(account_id, month)]).await?;
        rows.into_iter()
            .next()
            .map(StoredStatement::read)
            .transpose()
    }

    /// The months of an account's stored statements, latest first.
    pub(crate) async fn statement_months(
        &self,
        account_id: &str,
        limit: usize,
    ) -> Result<Vec<String>, BackofficeError> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let select = statement(
            "SELECT month FROM backoffice_statements WHERE account_id = $1 ORDER BY month DESC LIMIT $2",
            [account_id.into(), limit.into()],
        );
        let rows = self.run(vec![select]).await?;
        rows.into_iter().map(|mut row| row.text()).collect()
    }
}

fn one(account_id: &str, month: &str) -> super::sql::Statement {
    statement(
        "SELECT month, content, issued_at FROM backoffice_statements
         WHERE account_id = $1 AND month = $2",
        [account_id.into(), month.into()],
    )
}

impl StoredStatement {
    fn read(mut row: Row) -> Result<Self, BackofficeError> {
        Ok(Self {
            month: row.text()?,
            content: row.text()?,
            issued_at: row.int()?,
        })
    }
}
