//! Projects in the file.

use rusqlite::{Row, params};

use super::Database;
use crate::ledger::Project;

impl Database {
    pub(crate) fn put_project(&self, project: &Project) -> rusqlite::Result<()> {
        self.connection.execute(
            "INSERT INTO projects (id, account_id, name, created_at, archived) VALUES (?1, ?2, ?3, ?4, ?5)
             ON CONFLICT (id) DO UPDATE SET name = excluded.name, archived = excluded.archived",
            params![
                project.id,
                project.account_id,
                project.name,
                project.created_at,
                project.archived
            ],
        )?;
        Ok(())
    }

    pub(crate) fn projects(&self) -> rusqlite::Result<Vec<Project>> {
        let mut projects = self
            .connection
            .prepare("SELECT id, account_id, name, created_at, archived FROM projects")?;
        projects.query_map([], read)?.collect()
    }
}

fn read(row: &Row<'_>) -> rusqlite::Result<Project> {
    Ok(Project {
        id: row.get(0)?,
        account_id: row.get(1)?,
        name: row.get(2)?,
        created_at: row.get(3)?,
        archived: row.get(4)?,
    })
}
