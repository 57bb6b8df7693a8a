//! What the writer thread does: commits batches, posts the redo log, checks its files, recovers after failures.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc::RecvTimeoutError},
    time::{Duration, Instant},
};

use crate::{
    base::failpoint,
    ledger::{
        Health, Misplaced,
        embedded::{
            command::{Command, Executed},
            directory::Shared,
            queue::Queue,
            sqlite::{Database, HeldNow},
        },
    },
    net::callbacks,
};

/// The most commands in one transaction.
const MAX_BATCH: usize = 512;
/// How often a database that failed is tried again.
const TRIAL_INTERVAL: Duration = Duration::from_millis(200);
/// How often the redo log is posted, and at how many calls it is posted sooner.
const POST_INTERVAL: Duration = Duration::from_secs(1);
const POST_AT: usize = 4_096;
/// How often the database's files are checked to be where they were.
const FILES_INTERVAL: Duration = Duration::from_secs(1);
/// With more calls in the redo log that cannot be posted, no new call is admitted: they are kept in memory.
const MAX_UNPOSTED: usize = 100_000;

/// The state of the writer.
pub(crate) struct Work {
    database: Database,
    directory: Shared,
    health: Arc<Health>,
    /// Request threads commit charges too.
    is_shared: bool,
    /// The memory is ahead of the database and has not been read again yet.
    stale: bool,
    /// What is wrong with the database's files, and when they were last checked.
    misplaced: Option<Misplaced>,
    checked: Instant,
    /// When the redo log was last posted.
    posted: Instant,
}

/// The loop of the writer thread; it ends when the last sender is dropped.
pub(crate) fn run(work: &Mutex<Work>, mut queue: Queue<Command>) {
    let mut last_trial = Instant::now();
    loop {
        let timeout = locked(work).timeout();
        let first = queue.wait(Some(timeout));
        let mut work = locked(work);
        match first {
            Ok(first) => work.commit_batch(first, &mut queue),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return work.post_timed(),
        }
        if work.checked.elapsed() >= FILES_INTERVAL {
            work.check_files();
        }
        if !work.health.is_well() && last_trial.elapsed() >= TRIAL_INTERVAL {
            last_trial = Instant::now();
            work.try_again();
        }
        if work.health.is_well() && work.posted.elapsed() >= POST_INTERVAL {
            work.post_timed();
        }
    }
}

fn locked(work: &Mutex<Work>) -> MutexGuard<'_, Work> {
    work.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Work {
    pub(crate) fn new(
        database: Database,
        directory: Shared,
        health: Arc<Health>,
        is_shared: bool,
    ) -> Self {
        Self {
            database,
            directory,
            health,
            is_shared,
            stale: false,
            misplaced: None,
            checked: Instant::now(),
            posted: Instant::now(),
        }
    }

    /// How long to wait for a command before there is something else to do.
    fn timeout(&self) -> Duration {
        if !self.health.is_well() {
            return TRIAL_INTERVAL;
        }
        let check = FILES_INTERVAL.saturating_sub(self.checked.elapsed());
        // Request threads that commit charges do not wake this one.
        if self.is_shared || self.database.unposted() > 0 {
            return POST_INTERVAL
                .saturating_sub(self.posted.elapsed())
                .min(check);
        }
        check
    }

    /// Stops writing to files that were moved or replaced, until they are back.
    fn check_files(&mut self) {
        self.checked = Instant::now();
        let misplaced = self.database.misplaced();
        if misplaced == self.misplaced {
            return;
        }
        self.misplaced = misplaced;
        self.health.set_misplaced(misplaced);
        if let Some(misplaced) = misplaced {
            let advice = misplaced.advice();
            tracing::error!("{misplaced}: nothing is written and no new call is begun; {advice}");
            self.health.set_well(false);
        }
    }

    /// Posts the redo log and what is held now, and counts as busy meanwhile.
    fn post_timed(&mut self) {
        self.health.begins();
        let held = self.directory.read().held_now();
        self.post(Some(held));
        self.health.rests();
    }

    /// Posts the redo log in a transaction of its own: charges are committed even if they cannot be posted.
    fn post_redo_log(&mut self) {
        self.post(None);
    }

    fn post(&mut self, held: Option<Vec<HeldNow>>) {
        self.posted = Instant::now();
        if self.stale {
            return; // the memory's view of the redo log may be wrong
        }
        if let Err(error) = self.database.post_redo_log_alone(held) {
            let retry_ms = POST_INTERVAL.as_millis();
            tracing::warn!(%error, "posting calls from the redo log failed; retrying in {retry_ms} ms");
        }
        if self.database.unposted() >= MAX_UNPOSTED && self.health.is_well() {
            tracing::error!(
                calls = self.database.unposted(),
                "the redo log is full; no new call is admitted until it can be posted"
            );
            self.health.set_well(false);
        }
    }

    /// Executes the commands that are waiting in one transaction, and replies to them.
    fn commit_batch(&mut self, first: Command, queue: &mut Queue<Command>) {
        self.health.begins();
        let started = Instant::now();
        // Nothing may be computed from a memory that is ahead of the database.
        if self.stale {
            self.reload();
        }
        let begun = if self.stale || self.misplaced.is_some() {
            Err(rusqlite::Error::InvalidQuery)
        } else {
            self.database.begin()
        };
        failpoint::reached("batch_begun");
        let waiting = std::iter::once(first).chain(queue);
        self.commit(begun, waiting, started);
        // After a failure the redo log is posted at its next interval.
        if self.database.unposted() >= POST_AT && !self.database.is_behind() {
            self.post_timed();
        }
    }

    /// Commits one command on the thread that sent it.
    ///
    /// Returns the command to be queued if that might take long (another process writes, or the redo log is due), or if
    /// the commit failed: the writer thread then reads the memory again before it replies.
    #[expect(
        clippy::result_large_err,
        reason = "the error is the command, which goes on to the queue"
    )]
    pub(crate) fn commit_at_once(&mut self, command: Command) -> Result<(), Command> {
        let started = Instant::now();
        let is_much = self.database.is_behind() || self.database.unposted() >= POST_AT;
        if self.stale || is_much || self.database.begin_at_once().is_err() {
            return Err(command);
        }
        self.health.begins();
        failpoint::reached("batch_begun");
        let executed = command.execute(Some((&self.database, &self.directory)));
        failpoint::reached("batch_taken");
        let committed = (!executed.failed).then(|| self.database.commit());
        let is_committed = matches!(committed, Some(Ok(())));
        if !is_committed {
            let error = committed.and_then(Result::err);
            tracing::error!(
                error = error.map(tracing::field::display),
                "committing a charge failed; the ledger is read again and the charge retried"
            );
            self.database.roll_back();
            self.stale = true;
        }
        self.database.end_at_once();
        failpoint::reached("batch_committed");
        self.health.rests();
        if !is_committed {
            return Err(Command::Failed(executed));
        }
        self.health.queued();
        self.health.ends(1, started.elapsed());
        callbacks::deliver(executed.reply(true, &self.directory));
        Ok(())
    }

    fn commit(
        &mut self,
        begun: rusqlite::Result<()>,
        commands: impl Iterator<Item = Command>,
        started: Instant,
    ) {
        let was_begun = begun.is_ok();
        let mut batch = Vec::new();
        for command in commands.take(MAX_BATCH) {
            let within = was_begun.then_some((&self.database, &self.directory));
            batch.push(command.execute(within));
            if batch.last().is_some_and(|executed| executed.failed) {
                break;
            }
        }
        let sound = batch.iter().all(|executed| !executed.failed);
        failpoint::reached("batch_taken");
        let committed = match begun {
            Ok(()) if sound => self.database.commit(),
            other => other,
        };
        let is_committed = sound && committed.is_ok();
        if !is_committed {
            let error = committed.err().map(|error| error.to_string());
            self.fail(batch.len(), error.as_deref(), was_begun);
        }
        failpoint::reached("batch_committed");
        if is_committed && self.database.posting_is_wanted() {
            self.post_redo_log();
        }
        self.health.ends(batch.len(), started.elapsed());
        let reply = |executed: Executed| executed.reply(is_committed, &self.directory);
        let replies: Vec<_> = batch.into_iter().filter_map(reply).collect();
        callbacks::deliver(replies);
    }

    /// After a failed transaction. If it was begun, commands may have changed the memory, which is read again.
    fn fail(&mut self, commands: usize, error: Option<&str>, was_begun: bool) {
        if self.health.is_well() {
            tracing::error!(
                commands,
                error,
                "committing to the ledger failed; no new call is admitted until a trial transaction succeeds",
            );
        }
        self.health.set_well(false);
        if was_begun {
            self.database.roll_back();
            self.stale = true;
            self.reload();
        }
        self.database.fall_behind();
    }

    /// Reads the memory again from the database.
    fn reload(&mut self) {
        match self.database.load() {
            Ok(stored) => {
                let before = self.directory.write().restore(stored);
                self.stale = false;
                drop(before); // after the lock is released, because it takes long
            }
            Err(error) => tracing::error!(%error, "reading the ledger again failed; retrying"),
        }
    }

    fn try_again(&mut self) {
        self.check_files();
        if self.misplaced.is_some() {
            return;
        }
        if self.stale {
            self.reload();
        }
        if self.database.unposted() >= MAX_UNPOSTED {
            self.post_redo_log();
        }
        let has_room = self.database.unposted() < MAX_UNPOSTED;
        if !self.stale && has_room && self.database.try_to_write().is_ok() {
            tracing::info!("the ledger can be written again; new calls are admitted");
            self.health.set_well(true);
        }
    }
}
