//! A copy of the ledger's file while a gateway uses it.

use std::{fmt::Display, path::Path};

use super::sqlite;
use crate::db::sqlite::{back_up, schema};

/// Copies the database to `target`, an empty file. Posted calls, the redo log and balances are of one snapshot, so the
/// copy can be audited and used like the file itself.
pub(crate) fn back_up_file(
    database: &Path,
    target: &Path,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<(), String> {
    let failed = |error: &dyn Display| format!("{} cannot be copied: {error}", database.display());
    let connection = sqlite::read_only(database).map_err(|error| failed(&error))?;
    if schema::version(&connection).map_err(|error| failed(&error))? == 0 {
        return Err(failed(
            &"it has no tables; is it the database of a gateway?",
        ));
    }
    sqlite::check_version(database, &connection).map_err(|error| failed(&error))?;
    drop(connection);
    back_up(database, target, progress).map_err(|error| failed(&error))
}
