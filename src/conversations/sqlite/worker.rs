//! The thread that owns the file, and its queue.
//!
//! The queue is bounded and each caller has a deadline, so a disk that hangs delays callers only briefly and operations do
//! not pile up. A queued operation is executed even if its caller has timed out.

use std::{
    panic::AssertUnwindSafe,
    sync::{
        Arc, Mutex,
        mpsc::{self, Receiver, RecvTimeoutError, SyncSender, TryRecvError, TrySendError},
    },
    time::{Duration, Instant},
};

use rusqlite::Connection;
use tokio::sync::oneshot;

use super::{Cause, Settings, StorageError, health::Health};
use crate::db::sqlite::File;

/// A queued operation; returns whether it succeeded.
type Step = Box<dyn FnOnce(&mut File) -> bool + Send>;

pub(crate) struct Worker {
    /// `Some` until the worker is dropped.
    steps: Option<SyncSender<Step>>,
    /// Disconnected when the thread has ended. In a mutex only because a `Receiver` is not `Sync`; it is never contended.
    ended: Mutex<Receiver<()>>,
    health: Arc<Health>,
    deadline: Duration,
}

impl Worker {
    /// Starts the thread, which runs `upkeep` at once and then at intervals.
    pub(crate) fn start(
        file: File,
        settings: Settings,
        upkeep: impl FnMut(&mut Connection) -> rusqlite::Result<()> + Send + 'static,
    ) -> Self {
        let (steps, queue) = mpsc::sync_channel::<Step>(settings.max_waiting);
        let (ends, ended) = mpsc::sync_channel(0);
        let health = Arc::<Health>::default();
        let mut work = Work {
            file,
            health: health.clone(),
            queue,
            upkeep,
            upkeep_every: settings.sweep_every,
            _ends: ends,
        };
        std::thread::Builder::new()
            .name("responses".into())
            .spawn(move || work.run())
            .expect("a process that cannot start a thread cannot start at all");
        Self {
            steps: Some(steps),
            ended: Mutex::new(ended),
            health,
            deadline: settings.deadline,
        }
    }

    /// Queues work on the connection and waits for its result.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, StorageError> {
        let result = self.queue(work)?;
        let Ok(done) = tokio::time::timeout(self.deadline, result).await else {
            self.health.report_failure(&StorageError::TimedOut);
            return Err(StorageError::TimedOut);
        };
        Ok(done.unwrap_or(Err(Cause::Stopped))?)
    }

    fn queue<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<oneshot::Receiver<Result<T, Cause>>, Cause> {
        let (done, result) = oneshot::channel();
        let health = self.health.clone();
        let step: Step = Box::new(move |file| {
            let worked = file.run(work).map_err(Cause::from);
            let succeeded = worked.is_ok();
            if let Err(cause) = &worked {
                health.report_failure(cause);
            }
            let _ = done.send(worked);
            succeeded
        });
        let steps = self.steps.as_ref().ok_or(Cause::Stopped)?;
        steps.try_send(step).map_err(|refused| {
            let cause = match refused {
                TrySendError::Full(_) => Cause::QueueFull,
                TrySendError::Disconnected(_) => Cause::Stopped,
            };
            self.health.report_failure(&cause);
            cause
        })?;
        Ok(result)
    }

    #[cfg(test)]
    pub(crate) fn is_failing(&self) -> bool {
        self.health.is_failing()
    }
}

impl Drop for Worker {
    /// Waits for the queued steps, but no longer than the deadline: a disk that hangs must not keep the gateway from
    /// stopping.
    fn drop(&mut self) {
        drop(self.steps.take());
        if let Ok(ended) = self.ended.get_mut() {
            let _ = ended.recv_timeout(self.deadline);
        }
    }
}

/// State of the thread.
struct Work<Upkeep> {
    file: File,
    health: Arc<Health>,
    queue: Receiver<Step>,
    upkeep: Upkeep,
    upkeep_every: Duration,
    /// Dropped last, after the file is closed, which disconnects `Worker::ended`.
    _ends: SyncSender<()>,
}

impl<Upkeep: FnMut(&mut Connection) -> rusqlite::Result<()>> Work<Upkeep> {
    /// Executes steps until the sender is dropped and the queue is empty.
    fn run(&mut self) {
        let mut succeeded = self.run_upkeep();
        let mut last_upkeep = Instant::now();
        loop {
            match self.next(succeeded, last_upkeep) {
                Ok(step) => succeeded = self.execute(step),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            if last_upkeep.elapsed() >= self.upkeep_every {
                succeeded = self.run_upkeep();
                last_upkeep = Instant::now();
            }
        }
    }

    fn next(&self, succeeded: bool, last_upkeep: Instant) -> Result<Step, RecvTimeoutError> {
        match self.queue.try_recv() {
            Ok(step) => return Ok(step),
            Err(TryRecvError::Disconnected) => return Err(RecvTimeoutError::Disconnected),
            Err(TryRecvError::Empty) => {}
        }
        // Only when the queue is empty: under overload, successes and failures alternate, and each change would be
        // logged.
        if succeeded {
            self.health.report_success();
        }
        let rest = self.upkeep_every.saturating_sub(last_upkeep.elapsed());
        self.queue.recv_timeout(rest)
    }

    fn execute(&mut self, step: Step) -> bool {
        // A panic fails the step's own caller; the thread goes on with the next step.
        let executed = std::panic::catch_unwind(AssertUnwindSafe(|| step(&mut self.file)));
        executed.unwrap_or_else(|_| {
            self.health.report_failure(&Cause::Stopped);
            false
        })
    }

    fn run_upkeep(&mut self) -> bool {
        let done = self.file.run(&mut self.upkeep);
        if let Err(cause) = &done {
            self.health.report_failure(cause);
        }
        done.is_ok()
    }
}
