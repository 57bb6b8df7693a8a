//! Whether everything adds up: checked every minute and on demand, told loudly, never repaired.
//!
//! An account whose books contradict themselves is frozen: nothing new is begun on it until someone
//! has looked. The others go on.

use std::{collections::BTreeSet, path::Path, sync::atomic::Ordering::Relaxed, time::Instant};

use super::{
    Embedded,
    directory::Shared,
    sqlite::{self, Database, audit::books},
};
use crate::ledger::{Audit, LedgerError, Violation};

/// How many accounts are looked at in one step of the writer's.
const STEP: usize = 500;

/// Looks through a database file, whether or not a gateway is using it; changes nothing.
pub fn audit_file(path: &Path) -> Result<Audit, String> {
    let started = Instant::now();
    let looked = sqlite::read_only(path).and_then(|connection| books(&connection, 0));
    let audit = looked.map_err(|error| format!("{} cannot be audited: {error}", path.display()))?;
    Ok(Audit {
        took: started.elapsed(),
        ..audit
    })
}

impl Embedded {
    /// Looks at everything there is.
    pub async fn audit(&self) -> Result<Audit, LedgerError> {
        let _alone = self.auditing.lock().await;
        self.audit_since(0).await
    }

    /// Looks at what has changed since the last time; the first time at everything.
    pub async fn reconcile(&self) -> Result<Audit, LedgerError> {
        let _alone = self.auditing.lock().await;
        self.audit_since(self.audited_to.load(Relaxed)).await
    }

    /// A file that was opened as the last process had left it is looked through now. Damage that shows up only
    /// here is of the disk: no new call is begun on it.
    async fn check_file(&self) -> Result<(), LedgerError> {
        if self.sound.load(Relaxed) {
            return Ok(());
        }
        match self.reader.query_file(sqlite::check_soundness).await {
            Ok(()) => {
                self.sound.store(true, Relaxed);
                Ok(())
            }
            Err(error) => {
                if sqlite::is_damage(&error) {
                    tracing::error!(%error, "the database is damaged: no call is begun until it is replaced");
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
        let looked = self
            .reader
            .query_file(move |database| books(database, since));
        let mut audit = looked.await?;
        // In small steps: no charge waits long for its turn.
        for accounts in audit.accounts.chunks(STEP) {
            let accounts = accounts.to_vec();
            let compare =
                move |database: &_, directory: &_| compare_memory(database, directory, &accounts);
            audit.violations.extend(self.writer.run(compare).await?);
        }
        audit.took = started.elapsed();
        let found = audit.violations.iter();
        let broken: BTreeSet<_> = found.map(|found| found.account_id.clone()).collect();
        for Violation { account_id, what } in &audit.violations {
            tracing::error!(account.id = account_id, "the books do not add up: {what}");
        }
        // A look at everything is the last word; a look at the news only adds to it.
        let freeze = move |_: &Database, directory: &Shared| {
            directory.write().freeze(broken, since == 0);
            Ok(())
        };
        self.writer.run(freeze).await?;
        self.audited_to.store(audit.last_entry, Relaxed);
        Ok(audit)
    }

    /// How many accounts are frozen because their books do not add up.
    pub fn violations(&self) -> usize {
        self.read().frozen()
    }

    /// Whether nothing new is begun for an account, because its books do not add up.
    pub fn is_frozen(&self, account_id: &str) -> bool {
        self.read().is_frozen(account_id)
    }

    /// Enters what has expired, for every account.
    async fn sweep_expired(&self) -> Result<(), LedgerError> {
        let now = self.clock.now();
        let accounts: Vec<String> = self.read().accounts().map(|one| one.id.clone()).collect();
        for accounts in accounts.chunks(STEP) {
            let accounts = accounts.to_vec();
            let sweep = move |database: &Database, directory: &Shared| {
                for account_id in &accounts {
                    let update = directory.read().credit(account_id).bring_up_to_date(now);
                    database.enter_update(account_id, &update, now)?;
                }
                Ok(())
            };
            self.writer.run(sweep).await?;
        }
        Ok(())
    }
}

/// The copy in memory must say what the database says, and not contradict itself.
fn compare_memory(
    database: &Database,
    directory: &Shared,
    accounts: &[String],
) -> Result<Vec<Violation>, LedgerError> {
    let not_entered = database.not_entered()?;
    let mut violations = Vec::new();
    for account_id in accounts {
        let new = not_entered.get(account_id).copied().unwrap_or(0);
        let stored = database.total(account_id)? + new;
        let (remembered, contradiction) = {
            let directory = directory.read();
            let credit = directory.credit(account_id);
            (credit.total().nanos(), credit.contradiction())
        };
        let differs = (remembered != stored)
            .then(|| format!("{remembered} nano-dollars in memory are {stored} in the database"));
        let found = differs.into_iter().chain(contradiction);
        violations.extend(found.map(|what| Violation {
            account_id: account_id.clone(),
            what,
        }));
    }
    Ok(violations)
}
