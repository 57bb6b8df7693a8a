//! Projects in the shared database.

use tokio_postgres::{Row, types::Type};

use super::{Shared, admin::missing, record::get};
use crate::{
    db::postgres::Error,
    ledger::{LedgerError, Project},
};

const COLUMNS: &str = "id, account_id, name, created_at, archived";

impl Shared {
    pub(crate) async fn create_project(&self, project: Project) -> Result<Project, LedgerError> {
        let query = "INSERT INTO projects (id, account_id, name, created_at)
            SELECT $1, id, $3, $4 FROM accounts WHERE id = $2 RETURNING id";
        let parameters = [
            (&project.id as _, Type::TEXT),
            (&project.account_id as _, Type::TEXT),
            (&project.name as _, Type::TEXT),
            (&project.created_at as _, Type::INT8),
        ];
        let made = self.inner.pool.query(query, &parameters).await?;
        if made.is_empty() {
            return Err(missing("account", &project.account_id));
        }
        Ok(project)
    }

    pub(crate) async fn rename_project(
        &self,
        id: &str,
        name: String,
    ) -> Result<Project, LedgerError> {
        let query = format!("UPDATE projects SET name = $2 WHERE id = $1 RETURNING {COLUMNS}");
        let parameters = [(&id as _, Type::TEXT), (&name as _, Type::TEXT)];
        let rows = self.inner.pool.query(&query, &parameters).await?;
        let row = rows.first().ok_or_else(|| missing("project", id))?;
        Ok(read(row)?)
    }

    pub(crate) async fn archive_project(&self, id: &str) -> Result<Project, LedgerError> {
        let query = "SELECT archive_project($1)";
        let done: String = self
            .inner
            .pool
            .query_one(query, &[(&id, Type::TEXT)])
            .await?;
        match done.as_str() {
            "archived" => {}
            "in use" => return Err(LedgerError::ProjectInUse),
            _ => return Err(missing("project", id)),
        }
        let query = format!("SELECT {COLUMNS} FROM projects WHERE id = $1");
        let rows = self.inner.pool.query(&query, &[(&id, Type::TEXT)]).await?;
        let row = rows.first().ok_or_else(|| missing("project", id))?;
        Ok(read(row)?)
    }

    /// The account's projects, oldest first.
    pub(crate) async fn projects(&self, account_id: &str) -> Result<Vec<Project>, LedgerError> {
        self.account(account_id).await?;
        let query =
            format!("SELECT {COLUMNS} FROM projects WHERE account_id = $1 ORDER BY created_at, id");
        let account = [(&account_id as _, Type::TEXT)];
        let rows = self.inner.pool.query(&query, &account).await?;
        Ok(rows.iter().map(read).collect::<Result<_, _>>()?)
    }
}

fn read(row: &Row) -> Result<Project, Error> {
    Ok(Project {
        id: get(row, 0)?,
        account_id: get(row, 1)?,
        name: get(row, 2)?,
        created_at: get(row, 3)?,
        archived: get(row, 4)?,
    })
}
