//! Whether everything adds up: checked every minute and on demand, told loudly, never repaired.
//!
//! An account whose books contradict themselves is frozen: nothing new is begun on it until someone
//! has looked. The others go on.

use std::{
    collections::BTreeSet,
    path::Path,
    sync::atomic::Ordering::Relaxed,
    time::{Duration, Instant},
};

use super::{
    Ledger, LedgerError,
    directory::Shared,
    sqlite::{self, Database, audit::books},
};

/// What an audit found.
#[derive(Clone, Debug, Default)]
pub struct Audit {
    /// How many of each were looked at.
    pub accounts: usize,
    pub entries: u64,
    pub charges: u64,
    /// The last entry that was looked at.
    pub last_entry: i64,
    pub violations: Vec<Violation>,
    pub took: Duration,
}

/// Something that does not add up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    pub account_id: String,
    pub what: String,
}

/// Looks through a database file, whether or not a gateway is using it; changes nothing.
pub fn audit_file(path: &Path) -> Result<Audit, String> {
    let started = Instant::now();
    let looked = sqlite::open_to_read(path).and_then(|connection| books(&connection, 0));
    let audit = looked.map_err(|error| format!("{} cannot be audited: {error}", path.display()))?;
    Ok(Audit {
        took: started.elapsed(),
        ..audit
    })
}

impl Ledger {
    /// Looks at everything there is.
    pub async fn audit(&self) -> Result<Audit, LedgerError> {
        self.audit_since(0).await
    }

    /// Looks at what has changed since the last time; the first time at everything.
    pub async fn reconcile(&self) -> Result<Audit, LedgerError> {
        self.audit_since(self.audited_to.load(Relaxed)).await
    }

    async fn audit_since(&self, since: i64) -> Result<Audit, LedgerError> {
        let started = Instant::now();
        self.sweep_expired().await?;
        let mut audit = self
            .reader
            .query(move |database| books(database, since))
            .await?;
        let memory = self.writer.run(compare_memory);
        audit.violations.extend(memory.await?);
        audit.took = started.elapsed();
        let accounts = audit.violations.iter();
        let broken: BTreeSet<_> = accounts.map(|found| found.account_id.clone()).collect();
        for found in &audit.violations {
            let Violation { account_id, what } = found;
            tracing::error!(account.id = account_id, "the books do not add up: {what}");
        }
        // A look at everything is the last word; a look at the news only adds to it.
        self.directory.write().freeze(broken, since == 0);
        self.audited_to.store(audit.last_entry, Relaxed);
        Ok(audit)
    }

    /// How many accounts are frozen because their books do not add up.
    pub fn violations(&self) -> usize {
        self.read().frozen()
    }

    /// Enters what has expired, for every account.
    async fn sweep_expired(&self) -> Result<(), LedgerError> {
        let now = self.clock.now();
        let sweep = move |database: &Database, directory: &Shared| {
            let directory = directory.read();
            for account in directory.accounts() {
                let (forfeits, lapsed_at) = {
                    let mut credit = directory.credit(&account.id);
                    (credit.forfeit(now), credit.lapsed_at())
                };
                database.enter_forfeits(&account.id, &forfeits, lapsed_at, now)?;
            }
            Ok(())
        };
        self.writer.run(sweep).await
    }
}

/// The copy in memory must say what the database says, and not contradict itself.
fn compare_memory(database: &Database, directory: &Shared) -> Result<Vec<Violation>, LedgerError> {
    database.write_what_is_left()?;
    let directory = directory.read();
    let mut violations = Vec::new();
    for account in directory.accounts() {
        let stored = database.total(&account.id)?;
        let credit = directory.credit(&account.id);
        let remembered = credit.total().nanos();
        let differs = (remembered != stored)
            .then(|| format!("{remembered} nano-dollars in memory are {stored} in the database"));
        let found = differs.into_iter().chain(credit.contradiction());
        violations.extend(found.map(|what| Violation {
            account_id: account.id.clone(),
            what,
        }));
    }
    Ok(violations)
}
