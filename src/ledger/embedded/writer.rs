//! The one thread that changes anything, and commits in batches.
//!
//! While one transaction is being committed, what arrives waits; then all of it goes into the next
//! one. An idle gateway adds no delay, a busy one flushes hundreds of charges to the disk at once.
//!
//! A transaction that fails has not happened: the copy in memory is made anew from the database,
//! and until a trial transaction goes through, no new call is begun.

use std::{
    panic::AssertUnwindSafe,
    sync::{
        Arc,
        mpsc::{self, Receiver, RecvTimeoutError},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use tokio::sync::oneshot;

use super::{directory::Shared, sqlite::Database};
use crate::{
    failpoint,
    ledger::{Health, LedgerError},
    mailbox::{self, Letter, Mailbox},
};

/// The most steps in one transaction.
const MAX_BATCH: usize = 512;
/// How often a database that failed is tried again.
const TRIAL_INTERVAL: Duration = Duration::from_millis(200);
/// How often, and at how many of them, calls are entered where they are looked for.
const NEWS_INTERVAL: Duration = Duration::from_secs(1);
const MAX_NEWS: usize = 1_024;
/// With more of them that cannot be entered, no new call is begun: they are kept in memory.
const MOST_NEWS: usize = 100_000;

/// Taken within an open transaction, or told that there is none.
type Step = Box<dyn FnOnce(Option<(&Database, &Shared)>) -> Taken + Send>;

type Tell = Box<dyn FnOnce(bool, &Shared) -> Option<Letter> + Send>;

/// A step that was taken within a transaction that is still open.
struct Taken {
    /// The database refused something: the whole transaction is off.
    failed: bool,
    /// Tells whoever waits, once it is known whether the transaction was committed: at once, or by a letter.
    tell: Tell,
}

pub struct Writer {
    /// Always there until the writer is dropped.
    steps: Option<mpsc::Sender<Step>>,
    thread: Option<JoinHandle<()>>,
    health: Arc<Health>,
}

impl Writer {
    pub fn start(database: Database, directory: Shared) -> Self {
        let (steps, queue) = mpsc::channel::<Step>();
        let health = Arc::<Health>::default();
        let mut work = Work {
            database,
            directory,
            health: health.clone(),
            stale: false,
            entered: Instant::now(),
        };
        // It ends when the last sender is dropped, and the database closes with it.
        let thread = std::thread::Builder::new()
            .name("ledger".into())
            .spawn(move || work.run(&queue))
            .expect("a process that cannot start a thread cannot start at all");
        Self {
            steps: Some(steps),
            thread: Some(thread),
            health,
        }
    }

    /// Whether a charge that is sent now can be expected to be written down soon.
    pub fn takes_charges(&self) -> bool {
        self.health.takes_charges()
    }

    pub fn health(&self) -> &Health {
        &self.health
    }

    /// Runs one whole step; when this returns it is committed, or nothing of it has happened.
    ///
    /// A step changes the database and the copy in memory. If the transaction fails after all, the
    /// copy is made anew from the database. Once queued a step runs to its end, whether or not
    /// anyone still waits for it.
    pub async fn run<T: Send + 'static>(
        &self,
        step: impl FnOnce(&Database, &Shared) -> Result<T, LedgerError> + Send + 'static,
    ) -> Result<T, LedgerError> {
        self.run_then(step, |_, _| {}).await
    }

    /// The same, with something to do in memory once it is committed, before anything else happens.
    pub async fn run_then<T: Send + 'static>(
        &self,
        step: impl FnOnce(&Database, &Shared) -> Result<T, LedgerError> + Send + 'static,
        then: impl FnOnce(&Shared, &T) + Send + 'static,
    ) -> Result<T, LedgerError> {
        let (done, result) = oneshot::channel();
        let mailbox = Mailbox::here();
        self.queue(step, move |taken, directory| {
            if let Ok(taken) = &taken {
                then(directory, taken);
            }
            Letter::to(mailbox, move || drop(done.send(taken)))
        })?;
        result.await.map_err(|_| LedgerError::Stopped)?
    }

    /// Runs a step that nobody waits for.
    pub fn submit(
        &self,
        step: impl FnOnce(&Database, &Shared) -> Result<(), LedgerError> + Send + 'static,
    ) {
        let queued = self.queue(step, |taken: Result<(), LedgerError>, _| {
            if let Err(error) = taken {
                tracing::error!(%error, "a call could not be written down");
            }
            None
        });
        if let Err(error) = queued {
            tracing::error!(%error, "a call could not be written down");
        }
    }

    fn queue<T: Send + 'static>(
        &self,
        step: impl FnOnce(&Database, &Shared) -> Result<T, LedgerError> + Send + 'static,
        done: impl FnOnce(Result<T, LedgerError>, &Shared) -> Option<Letter> + Send + 'static,
    ) -> Result<(), LedgerError> {
        let step: Step = Box::new(move |within| {
            // A step that panics takes its own caller down, not the thread and every later one.
            let taken = within.map(|(database, directory)| {
                std::panic::catch_unwind(AssertUnwindSafe(|| step(database, directory)))
                    .unwrap_or(Err(LedgerError::Stopped))
            });
            let taken = taken.unwrap_or(Err(LedgerError::NotCommitted));
            let failed = matches!(taken, Err(LedgerError::Database(_) | LedgerError::Stopped));
            let tell = move |committed: bool, directory: &Shared| {
                let taken = match taken {
                    Ok(_) if !committed => Err(LedgerError::NotCommitted),
                    other => other,
                };
                done(taken, directory)
            };
            Taken {
                failed,
                tell: Box::new(tell),
            }
        });
        let steps = self.steps.as_ref().ok_or(LedgerError::Stopped)?;
        self.health.queued();
        steps.send(step).map_err(|_| LedgerError::Stopped)
    }
}

/// What the thread works with.
struct Work {
    database: Database,
    directory: Shared,
    health: Arc<Health>,
    /// The copy in memory is ahead of the database and could not be made anew yet.
    stale: bool,
    /// When calls were last entered.
    entered: Instant,
}

impl Work {
    fn run(&mut self, queue: &Receiver<Step>) {
        let mut last_trial = Instant::now();
        loop {
            let first = match self.patience() {
                Some(patience) => queue.recv_timeout(patience),
                None => queue.recv().map_err(RecvTimeoutError::from),
            };
            match first {
                Ok(first) => self.commit_batch(first, queue),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return self.enter_news(),
            }
            if !self.health.is_well() && last_trial.elapsed() >= TRIAL_INTERVAL {
                last_trial = Instant::now();
                self.try_again();
            }
            if self.health.is_well() && self.entered.elapsed() >= NEWS_INTERVAL {
                self.enter_in_time();
            }
        }
    }

    /// How long to wait for a step while there is something else to do.
    fn patience(&self) -> Option<Duration> {
        if !self.health.is_well() {
            return Some(TRIAL_INTERVAL);
        }
        let due = NEWS_INTERVAL.saturating_sub(self.entered.elapsed());
        (self.database.news() > 0).then_some(due)
    }

    /// While somebody looks at how long it takes.
    fn enter_in_time(&mut self) {
        self.health.begins();
        self.enter_news();
        self.health.rests();
    }

    /// In a transaction of their own: charges are written down though they cannot be entered.
    fn enter_news(&mut self) {
        self.entered = Instant::now();
        if self.stale {
            return; // what is known of them may not be so
        }
        if let Err(error) = self.database.enter_news_alone() {
            tracing::warn!(%error, "calls could not be entered yet");
        }
        if self.database.news() >= MOST_NEWS && self.health.is_well() {
            tracing::error!(
                "too many calls wait to be entered: no new call is begun until they are"
            );
            self.health.set_well(false);
        }
    }

    /// Takes what is waiting, commits it together, and tells everyone.
    fn commit_batch(&mut self, first: Step, queue: &Receiver<Step>) {
        self.health.begins();
        let started = Instant::now();
        // What is worked out from a copy that is ahead of the database must not be written.
        if self.stale {
            self.start_over();
        }
        let begun = if self.stale {
            Err(rusqlite::Error::InvalidQuery)
        } else {
            self.database.begin()
        };
        let tried = begun.is_ok();
        failpoint::reached("batch_begun");
        let waiting = std::iter::once(first).chain(queue.try_iter());
        let mut taken = Vec::new();
        for step in waiting.take(MAX_BATCH) {
            let within = begun.is_ok().then_some((&self.database, &self.directory));
            taken.push(step(within));
            if taken.last().is_some_and(|step| step.failed) {
                break;
            }
        }
        let sound = taken.iter().all(|step| !step.failed);
        failpoint::reached("batch_taken");
        let committed = match begun {
            Ok(()) if sound => self.database.commit(),
            other => other,
        };
        let is_committed = sound && committed.is_ok();
        if !is_committed {
            let error = committed.err().map(|error| error.to_string());
            self.fail(taken.len(), error.as_deref(), tried);
        }
        failpoint::reached("batch_committed");
        if is_committed && self.database.news_are_wanted() {
            self.enter_news();
        }
        self.health.ends(taken.len(), started.elapsed());
        let tell = |step: Taken| (step.tell)(is_committed, &self.directory);
        let letters: Vec<_> = taken.into_iter().filter_map(tell).collect();
        mailbox::post(letters);
        // Those that could not be entered wait for their time.
        if self.database.news() >= MAX_NEWS && !self.database.is_behind() {
            self.enter_in_time();
        }
    }

    /// `tried` says whether any step was taken: if not, the copy in memory is as it was.
    fn fail(&mut self, steps: usize, error: Option<&str>, tried: bool) {
        if self.health.is_well() {
            tracing::error!(
                steps,
                error,
                "a transaction of the ledger was not committed: no new call is begun until one is",
            );
        }
        self.health.set_well(false);
        if tried {
            self.database.roll_back();
            self.stale = true;
            self.start_over();
        }
        self.database.fall_behind();
    }

    /// Makes the copy in memory anew from the database.
    fn start_over(&mut self) {
        match self.database.load() {
            Ok(stored) => {
                let before = self.directory.write().restore(stored);
                self.stale = false;
                drop(before); // not while everyone waits
            }
            Err(error) => tracing::error!(%error, "the ledger could not be read back"),
        }
    }

    fn try_again(&mut self) {
        if self.stale {
            self.start_over();
        }
        if self.database.news() >= MOST_NEWS {
            self.enter_news();
        }
        let has_room = self.database.news() < MOST_NEWS;
        if !self.stale && has_room && self.database.try_to_write().is_ok() {
            tracing::info!("the ledger can be written again");
            self.health.set_well(true);
        }
    }
}

impl Drop for Writer {
    /// Waits for the steps that were queued, so that whoever drops the ledger can open its
    /// database again.
    fn drop(&mut self) {
        drop(self.steps.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
