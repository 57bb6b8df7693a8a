//! Replacing the names of an account that was deleted.

use super::super::{directory::Shared, sqlite::Database};
use crate::ledger::{Key, LedgerError, Project, erasure::ERASED};

/// Replaces the names of the account's keys and projects and the reasons of these grants, and drops its responses that
/// are kept for retries.
pub(crate) fn erase_texts(
    database: &Database,
    directory: &Shared,
    account_id: &str,
    reasons: &[(String, String)],
) -> Result<(), LedgerError> {
    directory.read().account(account_id)?;
    database.erase_names(account_id, ERASED)?;
    for (grant_id, reason) in reasons {
        database.set_reason(account_id, grant_id, reason)?;
    }
    let mut directory = directory.write();
    for project in directory.projects_of(account_id) {
        directory.put_project(Project {
            name: ERASED.to_owned(),
            ..project
        });
    }
    let live: Vec<_> = directory.keys_of(account_id).cloned().collect();
    for key in live {
        directory.put_key(Key {
            name: ERASED.to_owned(),
            ..key
        });
    }
    directory.set_reasons(account_id, reasons);
    Ok(())
}
