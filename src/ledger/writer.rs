//! The one thread that changes anything, and commits in batches.
//!
//! While one transaction is being committed, what arrives waits; then all of it goes into the next
//! one. An idle gateway adds no delay, a busy one flushes hundreds of charges to the disk at once.

use std::{
    panic::AssertUnwindSafe,
    sync::mpsc::{self, Receiver},
    thread::JoinHandle,
};

use tokio::sync::oneshot;

use super::{LedgerError, directory::Shared, sqlite::Database};

/// The most steps in one transaction.
const MAX_BATCH: usize = 512;

type Step = Box<dyn FnOnce(&Database, &Shared) -> Taken + Send>;

/// A step that was taken within a transaction that is still open.
struct Taken {
    /// The database refused something: the whole transaction is off.
    failed: bool,
    /// Tells whoever waits, once it is known whether the transaction was committed.
    tell: Box<dyn FnOnce(bool) + Send>,
}

pub struct Writer {
    /// Always there until the writer is dropped.
    steps: Option<mpsc::Sender<Step>>,
    thread: Option<JoinHandle<()>>,
}

impl Writer {
    pub fn start(database: Database, directory: Shared) -> Self {
        let (steps, queue) = mpsc::channel::<Step>();
        // It ends when the last sender is dropped, and the database closes with it.
        let thread = std::thread::Builder::new()
            .name("ledger".into())
            .spawn(move || {
                while let Ok(first) = queue.recv() {
                    commit_batch(first, &queue, &database, &directory);
                }
            })
            .expect("a process that cannot start a thread cannot start at all");
        Self {
            steps: Some(steps),
            thread: Some(thread),
        }
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
        let (done, result) = oneshot::channel();
        let step: Step = Box::new(move |database, directory| {
            // A step that panics takes its own caller down, not the thread and every later one.
            let taken = std::panic::catch_unwind(AssertUnwindSafe(|| step(database, directory)));
            let taken = taken.unwrap_or(Err(LedgerError::Stopped));
            let failed = matches!(taken, Err(LedgerError::Database(_) | LedgerError::Stopped));
            let tell = move |committed: bool| {
                let result = match taken {
                    Ok(_) if !committed => Err(LedgerError::NotCommitted),
                    other => other,
                };
                let _ = done.send(result);
            };
            Taken {
                failed,
                tell: Box::new(tell),
            }
        });
        let steps = self.steps.as_ref().ok_or(LedgerError::Stopped)?;
        steps.send(step).map_err(|_| LedgerError::Stopped)?;
        result.await.map_err(|_| LedgerError::Stopped)?
    }
}

/// Takes what is waiting, commits it together, and tells everyone.
fn commit_batch(first: Step, queue: &Receiver<Step>, database: &Database, directory: &Shared) {
    let begun = database.begin();
    let waiting = std::iter::once(first).chain(queue.try_iter());
    let mut taken = Vec::new();
    for step in waiting.take(MAX_BATCH) {
        taken.push(step(database, directory));
        if taken.last().is_some_and(|step| step.failed) {
            break;
        }
    }
    let sound = taken.iter().all(|step| !step.failed);
    let committed = begun.is_ok() && sound && database.commit().is_ok();
    if !committed {
        tracing::error!(
            steps = taken.len(),
            "a transaction of the ledger was not committed"
        );
        database.roll_back();
        match database.load() {
            Ok(stored) => directory.write().restore(stored),
            Err(error) => tracing::error!(%error, "the ledger could not be read back"),
        }
    }
    for step in taken {
        (step.tell)(committed);
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
