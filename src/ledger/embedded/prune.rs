//! Pruning of old months in the database file, beside the writer or without a gateway.

use std::path::Path;

use super::{
    Embedded,
    sqlite::{self, prune},
};
use crate::{
    base::month::Month,
    ledger::{LedgerError, Pruned},
};

/// Prunes a database file, whether or not a gateway is using it. `progress` gets the number of removed calls.
pub(crate) fn prune_file(
    path: &Path,
    before: Month,
    progress: &mut dyn FnMut(u64),
) -> Result<Pruned, String> {
    let failed = |error: &dyn std::fmt::Display| {
        let shown = path.display();
        format!(
            "{shown} cannot be pruned: {error}; what was removed so far is consistent, run the command again"
        )
    };
    let mut connection = prune::connect(path).map_err(|error| failed(&error))?;
    sqlite::check_version(path, &connection).map_err(|error| failed(&error))?;
    prune::prune(&mut connection, before, progress).map_err(|error| failed(&error))
}

impl Embedded {
    pub(crate) async fn prune(&self, before: Month) -> Result<Pruned, LedgerError> {
        self.all_written().await;
        let reader = self.reader.clone();
        let pruned = tokio::task::spawn_blocking(move || {
            let mut connection = prune::connect(reader.readable_path()?)?;
            prune::prune(&mut connection, before, &mut |_| {})
        });
        Ok(pruned.await.map_err(|_| LedgerError::Stopped)??)
    }
}
