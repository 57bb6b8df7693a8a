//! The one thread that changes anything.

use std::{panic::AssertUnwindSafe, sync::mpsc, thread::JoinHandle};

use tokio::sync::oneshot;

use super::{LedgerError, directory::Shared, sqlite::Database};

type Step = Box<dyn FnOnce(&Database, &Shared) + Send>;

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
                for step in queue {
                    step(&database, &directory);
                }
            })
            .expect("a process that cannot start a thread cannot start at all");
        Self {
            steps: Some(steps),
            thread: Some(thread),
        }
    }

    /// Runs one whole step: the database first, the copy in memory after it was committed.
    ///
    /// A step that fails in the database has not touched the copy. Once queued it runs to its
    /// end, whether or not anyone still waits for it.
    pub async fn run<T: Send + 'static>(
        &self,
        step: impl FnOnce(&Database, &Shared) -> Result<T, LedgerError> + Send + 'static,
    ) -> Result<T, LedgerError> {
        let (done, result) = oneshot::channel();
        let step: Step = Box::new(move |database, directory| {
            // A step that panics takes its own caller down, not the thread and every later one.
            let step = AssertUnwindSafe(|| step(database, directory));
            if let Ok(result) = std::panic::catch_unwind(step) {
                let _ = done.send(result);
            }
        });
        let steps = self.steps.as_ref().ok_or(LedgerError::Stopped)?;
        steps.send(step).map_err(|_| LedgerError::Stopped)?;
        result.await.map_err(|_| LedgerError::Stopped)?
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
