//! The one thread that changes anything, and commits in batches.
//!
//! While one transaction is being committed, what arrives waits; then all of it goes into the next
//! one. An idle gateway adds no delay, a busy one flushes hundreds of charges to the disk at once.
//!
//! Where a charge need not be on the disk (`durability = "process"`) and nobody else writes, the thread that asks for
//! it does the work: to wake another, and to be woken by it, takes longer than all else.
//!
//! A transaction that fails has not happened: the copy in memory is made anew from the database,
//! and until a trial transaction goes through, no new call is begun.

use std::{
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc::RecvTimeoutError},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use tokio::sync::oneshot;

use super::{
    directory::Shared,
    queue::{self, Queue, Sender},
    sqlite::Database,
};
use crate::{
    base::{durability::Durability, failpoint},
    ledger::{Health, LedgerError, Misplaced},
    net::mailbox::{self, Letter, Mailbox},
};

/// The most steps in one transaction.
const MAX_BATCH: usize = 512;
/// How often a database that failed is tried again.
const TRIAL_INTERVAL: Duration = Duration::from_millis(200);
/// How often, and at how many of them, calls are entered where they are looked for.
const NEWS_INTERVAL: Duration = Duration::from_secs(1);
const MAX_NEWS: usize = 4_096;
/// How often it is checked that the database's files are where they were.
const FILES_INTERVAL: Duration = Duration::from_secs(1);
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
    steps: Option<Sender<Step>>,
    thread: Option<JoinHandle<()>>,
    health: Arc<Health>,
    /// The thread's, where others may do it.
    work: Option<Arc<Mutex<Work>>>,
}

impl Writer {
    pub fn start(database: Database, directory: Shared, durability: Durability) -> Self {
        let (steps, queue) = queue::new();
        let health = Arc::<Health>::default();
        let is_shared = durability == Durability::Process;
        let work = Arc::new(Mutex::new(Work {
            database,
            directory,
            health: health.clone(),
            is_shared,
            stale: false,
            misplaced: None,
            checked: Instant::now(),
            entered: Instant::now(),
        }));
        let shared = is_shared.then(|| work.clone());
        // It ends when the last sender is dropped. The database closes with the last who works on it.
        let thread = std::thread::Builder::new()
            .name("ledger".into())
            .spawn(move || run(&work, queue))
            .expect("a process that cannot start a thread cannot start at all");
        Self {
            steps: Some(steps),
            thread: Some(thread),
            health,
            work: shared,
        }
    }

    /// Whether a charge that is sent now can be expected to be written down soon.
    pub fn takes_charges(&self) -> bool {
        self.health.takes_charges()
    }

    pub fn health(&self) -> &Health {
        &self.health
    }

    /// Runs one whole step, after all that were sent before; when this returns it is committed, or nothing of it has
    /// happened.
    ///
    /// A step changes the database and the copy in memory. If the transaction fails after all, the
    /// copy is made anew from the database. Once queued a step runs to its end, whether or not
    /// anyone still waits for it.
    pub async fn run<T: Send + 'static>(
        &self,
        step: impl FnOnce(&Database, &Shared) -> Result<T, LedgerError> + Send + 'static,
    ) -> Result<T, LedgerError> {
        let (step, result) = answered(step, |_, _| {});
        self.steps()?.send_after_all(step);
        result.await.map_err(|_| LedgerError::Stopped)?
    }

    /// The same at once where that can be, with something to do in memory once it is committed, before anything else
    /// happens. The step must be a short one.
    pub async fn run_soon<T: Send + 'static>(
        &self,
        step: impl FnOnce(&Database, &Shared) -> Result<T, LedgerError> + Send + 'static,
        then: impl FnOnce(&Shared, &T) + Send + 'static,
    ) -> Result<T, LedgerError> {
        let (step, result) = answered(step, then);
        if let Err(step) = self.take_at_once(step) {
            self.steps()?.send(step);
        }
        result.await.map_err(|_| LedgerError::Stopped)?
    }

    /// Runs a step that nobody waits for.
    pub fn submit(
        &self,
        step: impl FnOnce(&Database, &Shared) -> Result<(), LedgerError> + Send + 'static,
    ) {
        let step = prepared(step, |taken: Result<(), LedgerError>, _| {
            if let Err(error) = taken {
                tracing::error!(%error, "a call could not be written down");
            }
            None
        });
        match self.steps() {
            Ok(steps) => steps.send(step),
            Err(error) => tracing::error!(%error, "a call could not be written down"),
        }
    }

    /// For one step more.
    fn steps(&self) -> Result<&Sender<Step>, LedgerError> {
        let steps = self.steps.as_ref().ok_or(LedgerError::Stopped)?;
        self.health.queued();
        Ok(steps)
    }

    /// Takes a step on this thread, or gives it back where others write or wait.
    fn take_at_once(&self, step: Step) -> Result<(), Step> {
        let work = self.work.as_ref().filter(|_| self.health.is_quiet());
        let Some(Ok(mut work)) = work.map(|work| work.try_lock()) else {
            return Err(step);
        };
        work.commit_at_once(step)
    }
}

/// A step that tells whoever waits for it.
fn answered<T: Send + 'static>(
    step: impl FnOnce(&Database, &Shared) -> Result<T, LedgerError> + Send + 'static,
    then: impl FnOnce(&Shared, &T) + Send + 'static,
) -> (Step, oneshot::Receiver<Result<T, LedgerError>>) {
    let (done, result) = oneshot::channel();
    let mailbox = Mailbox::here();
    let step = prepared(step, move |taken, directory| {
        if let Ok(taken) = &taken {
            then(directory, taken);
        }
        // A thread has no letters to write to itself.
        let elsewhere = mailbox.filter(|mailbox| !mailbox.is_here());
        Letter::to(elsewhere, move || drop(done.send(taken)))
    });
    (step, result)
}

fn prepared<T: Send + 'static>(
    step: impl FnOnce(&Database, &Shared) -> Result<T, LedgerError> + Send + 'static,
    done: impl FnOnce(Result<T, LedgerError>, &Shared) -> Option<Letter> + Send + 'static,
) -> Step {
    Box::new(move |within| {
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
    })
}

/// What the thread works with.
struct Work {
    database: Database,
    directory: Shared,
    health: Arc<Health>,
    /// Others do some of it.
    is_shared: bool,
    /// The copy in memory is ahead of the database and could not be made anew yet.
    stale: bool,
    /// What is wrong with the database's files, and when they were last checked.
    misplaced: Option<Misplaced>,
    checked: Instant,
    /// When calls were last entered.
    entered: Instant,
}

/// What the thread does.
fn run(work: &Mutex<Work>, mut queue: Queue<Step>) {
    let mut last_trial = Instant::now();
    loop {
        let timeout = locked(work).timeout();
        let first = queue.wait(Some(timeout));
        let mut work = locked(work);
        match first {
            Ok(first) => work.commit_batch(first, &mut queue),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return work.enter_news(),
        }
        if work.checked.elapsed() >= FILES_INTERVAL {
            work.check_files();
        }
        if !work.health.is_well() && last_trial.elapsed() >= TRIAL_INTERVAL {
            last_trial = Instant::now();
            work.try_again();
        }
        if work.health.is_well() && work.entered.elapsed() >= NEWS_INTERVAL {
            work.enter_in_time();
        }
    }
}

fn locked(work: &Mutex<Work>) -> MutexGuard<'_, Work> {
    work.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Work {
    /// How long to wait for a step while there is something else to do.
    fn timeout(&self) -> Duration {
        if !self.health.is_well() {
            return TRIAL_INTERVAL;
        }
        let check = FILES_INTERVAL.saturating_sub(self.checked.elapsed());
        // Whoever works beside this thread does not wake it.
        if self.is_shared || self.database.news() > 0 {
            return NEWS_INTERVAL
                .saturating_sub(self.entered.elapsed())
                .min(check);
        }
        check
    }

    /// Stops writing to files that nobody will find, until they are back.
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
    fn commit_batch(&mut self, first: Step, queue: &mut Queue<Step>) {
        self.health.begins();
        let started = Instant::now();
        // What is worked out from a copy that is ahead of the database must not be written.
        if self.stale {
            self.start_over();
        }
        let begun = if self.stale || self.misplaced.is_some() {
            Err(rusqlite::Error::InvalidQuery)
        } else {
            self.database.begin()
        };
        failpoint::reached("batch_begun");
        let waiting = std::iter::once(first).chain(queue);
        self.commit(begun, waiting, started);
        // Those that could not be entered wait for their time.
        if self.database.news() >= MAX_NEWS && !self.database.is_behind() {
            self.enter_in_time();
        }
    }

    /// The same for one step, on the thread of whoever waits for it. What may take longer is left to this one: the step
    /// comes back where others write, where much is to be entered, and where it failed, to be told so once the copy in
    /// memory was made anew.
    fn commit_at_once(&mut self, step: Step) -> Result<(), Step> {
        let started = Instant::now();
        // A step may have to enter them all.
        let is_much = self.database.is_behind() || self.database.news() >= MAX_NEWS;
        if self.stale || is_much || self.database.begin_at_once().is_err() {
            return Err(step);
        }
        self.health.begins();
        failpoint::reached("batch_begun");
        let taken = step(Some((&self.database, &self.directory)));
        failpoint::reached("batch_taken");
        let committed = (!taken.failed).then(|| self.database.commit());
        let is_committed = matches!(committed, Some(Ok(())));
        if !is_committed {
            let error = committed.and_then(Result::err);
            tracing::error!(
                error = error.map(tracing::field::display),
                "a charge was not committed"
            );
            self.database.roll_back();
            self.stale = true;
        }
        self.database.end_at_once();
        failpoint::reached("batch_committed");
        self.health.rests();
        if !is_committed {
            return Err(Box::new(|_| Taken {
                failed: true,
                ..taken
            }));
        }
        self.health.queued();
        self.health.ends(1, started.elapsed());
        mailbox::post((taken.tell)(true, &self.directory));
        Ok(())
    }

    fn commit(
        &mut self,
        begun: rusqlite::Result<()>,
        steps: impl Iterator<Item = Step>,
        started: Instant,
    ) {
        let tried = begun.is_ok();
        let mut taken = Vec::new();
        for step in steps.take(MAX_BATCH) {
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
        self.check_files();
        if self.misplaced.is_some() {
            return;
        }
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
