//! The audit: checks every minute and on demand that everything adds up. Violations are logged and never repaired.
//!
//! An account that does not add up is frozen: it starts no new call until an operator has looked. The others go on.

use std::{
    collections::BTreeSet, fmt::Display, path::Path, sync::atomic::Ordering::Relaxed, time::Instant,
};

use super::{
    Embedded,
    command::Command,
    sqlite::{self, audit::audit_entries},
    steps::Frozen,
};
use crate::ledger::{Audit, LedgerError, Violation};

/// How many accounts one command of the writer covers.
const STEP: usize = 500;

/// Audits a database file without changing it, whether or not a gateway is using it.
pub fn audit_file(path: &Path) -> Result<Audit, String> {
    let started = Instant::now();
    let failed = |error: &dyn Display| format!("{} cannot be audited: {error}", path.display());
    let connection = sqlite::read_only(path).map_err(|error| failed(&error))?;
    sqlite::check_version(path, &connection).map_err(|error| failed(&error))?;
    let audit = audit_entries(&connection, 0).map_err(|error| failed(&error))?;
    Ok(Audit {
        took: started.elapsed(),
        ..audit
    })
}

impl Embedded {
    /// Audits all entries.
    pub(crate) async fn audit(&self) -> Result<Audit, LedgerError> {
        let _alone = self.auditing.lock().await;
        self.audit_since(0).await
    }

    /// Audits the entries since the last audit; the first time, all of them.
    pub(crate) async fn reconcile(&self) -> Result<Audit, LedgerError> {
        let _alone = self.auditing.lock().await;
        self.audit_since(self.audited_to.load(Relaxed)).await
    }

    /// Checks a file for damage that was opened as the last process left it. Damage found here is the disk's: no new
    /// call is admitted.
    async fn check_file(&self) -> Result<(), LedgerError> {
        if self.is_checked.load(Relaxed) {
            return Ok(());
        }
        match self.reader.query_file(sqlite::check_soundness).await {
            Ok(()) => {
                self.is_checked.store(true, Relaxed);
                Ok(())
            }
            Err(error) => {
                if sqlite::is_damage(&error) {
                    tracing::error!(%error, "the database is damaged; no call is admitted until it is replaced");
                    self.usable.store(false, Relaxed);
                    self.writer.health().set_damaged();
                }
                Err(error.into())
            }
        }
    }

    async fn audit_since(&self, since: i64) -> Result<Audit, LedgerError> {
        let started = Instant::now();
        self.check_file().await?;
        self.sweep_expired().await?;
        self.all_written().await;
        let audited = self
            .reader
            .query_file(move |database| audit_entries(database, since));
        let mut audit = audited.await?;
        // In small commands, so that no charge waits long.
        for accounts in audit.accounts.chunks(STEP) {
            let accounts = accounts.to_vec();
            let compare = |reply| Command::CompareMemory(accounts, reply);
            audit.violations.extend(self.writer.execute(compare).await?);
        }
        audit.took = started.elapsed();
        let found = audit.violations.iter();
        let broken: BTreeSet<_> = found.map(|found| found.account_id.clone()).collect();
        for Violation { account_id, what } in &audit.violations {
            tracing::error!(
                account.id = account_id,
                "the ledger does not add up: {what}; the account is frozen"
            );
        }
        // A full audit replaces the frozen accounts; one of recent entries only adds to them.
        let frozen = Frozen {
            accounts: broken,
            replaces: since == 0,
        };
        self.writer
            .execute(|reply| Command::Freeze(frozen, reply))
            .await?;
        self.audited_to.store(audit.last_entry, Relaxed);
        Ok(audit)
    }

    /// How many accounts are frozen because they do not add up.
    pub(crate) fn violations(&self) -> usize {
        self.read().frozen()
    }

    /// Whether an account is frozen because it does not add up.
    pub(crate) fn is_frozen(&self, account_id: &str) -> bool {
        self.read().is_frozen(account_id)
    }

    /// Posts the expiries of all accounts.
    async fn sweep_expired(&self) -> Result<(), LedgerError> {
        let now = self.clock.now();
        let accounts: Vec<String> = self.read().accounts().map(|one| one.id.clone()).collect();
        for accounts in accounts.chunks(STEP) {
            let accounts = accounts.to_vec();
            self.writer
                .execute(|reply| Command::PostExpiries(accounts, now, reply))
                .await?;
        }
        Ok(())
    }
}
