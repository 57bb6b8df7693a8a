//! The one thread that uses the file, and the queue before it.
//!
//! The queue is bounded and each caller's patience too, so a disk that hangs holds nobody up for
//! long and nothing piles up behind it. What was queued is done, even if nobody waits any more.

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

/// Says whether it went well.
type Step = Box<dyn FnOnce(&mut File) -> bool + Send>;

pub struct Worker {
    /// Always there until the worker is dropped.
    steps: Option<SyncSender<Step>>,
    /// Closed when the thread has ended. Only a mutex lets a receiver be shared; nobody waits at it.
    ended: Mutex<Receiver<()>>,
    health: Arc<Health>,
    deadline: Duration,
}

impl Worker {
    /// `upkeep` is done at once, then from time to time.
    pub fn start(
        file: File,
        settings: Settings,
        upkeep: impl FnMut(&mut Connection) -> rusqlite::Result<()> + Send + 'static,
    ) -> Self {
        let (steps, queue) = mpsc::sync_channel::<Step>(settings.waiting);
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

    /// Does some work on the connection in its turn.
    pub async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, StorageError> {
        let result = self.queue(work)?;
        let Ok(answer) = tokio::time::timeout(self.deadline, result).await else {
            self.health.fails(&StorageError::TimedOut);
            return Err(StorageError::TimedOut);
        };
        Ok(answer.unwrap_or(Err(Cause::Stopped))?)
    }

    fn queue<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<oneshot::Receiver<Result<T, Cause>>, Cause> {
        let (done, result) = oneshot::channel();
        let health = self.health.clone();
        let step: Step = Box::new(move |file| {
            let worked = file.run(work).map_err(Cause::from);
            let went_well = worked.is_ok();
            if let Err(cause) = &worked {
                health.fails(cause);
            }
            let _ = done.send(worked);
            went_well
        });
        let steps = self.steps.as_ref().ok_or(Cause::Stopped)?;
        steps.try_send(step).map_err(|refused| {
            let cause = match refused {
                TrySendError::Full(_) => Cause::QueueFull,
                TrySendError::Disconnected(_) => Cause::Stopped,
            };
            self.health.fails(&cause);
            cause
        })?;
        Ok(result)
    }

    #[cfg(test)]
    pub fn is_failing(&self) -> bool {
        self.health.is_failing()
    }
}

impl Drop for Worker {
    /// Waits for the steps that were queued, but not for a disk that hangs: the gateway must stop.
    fn drop(&mut self) {
        drop(self.steps.take());
        if let Ok(ended) = self.ended.get_mut() {
            let _ = ended.recv_timeout(self.deadline);
        }
    }
}

/// What the thread works with.
struct Work<Upkeep> {
    file: File,
    health: Arc<Health>,
    queue: Receiver<Step>,
    upkeep: Upkeep,
    upkeep_every: Duration,
    /// Dropped last, when the file is closed.
    _ends: SyncSender<()>,
}

impl<Upkeep: FnMut(&mut Connection) -> rusqlite::Result<()>> Work<Upkeep> {
    /// Ends when the last sender is dropped and the queue is empty.
    fn run(&mut self) {
        let mut went_well = self.look_after();
        let mut looked_after = Instant::now();
        loop {
            match self.next(went_well, looked_after) {
                Ok(step) => went_well = self.take(step),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            if looked_after.elapsed() >= self.upkeep_every {
                went_well = self.look_after();
                looked_after = Instant::now();
            }
        }
    }

    fn next(&self, went_well: bool, looked_after: Instant) -> Result<Step, RecvTimeoutError> {
        match self.queue.try_recv() {
            Ok(step) => return Ok(step),
            Err(TryRecvError::Disconnected) => return Err(RecvTimeoutError::Disconnected),
            Err(TryRecvError::Empty) => {}
        }
        // Not before the queue is empty, or a gateway under too much load would log at every turn.
        if went_well {
            self.health.works();
        }
        let rest = self.upkeep_every.saturating_sub(looked_after.elapsed());
        self.queue.recv_timeout(rest)
    }

    fn take(&mut self, step: Step) -> bool {
        // A step that panics takes its own caller down, not the thread and every later one.
        let taken = std::panic::catch_unwind(AssertUnwindSafe(|| step(&mut self.file)));
        taken.unwrap_or_else(|_| {
            self.health.fails(&Cause::Stopped);
            false
        })
    }

    fn look_after(&mut self) -> bool {
        let done = self.file.run(&mut self.upkeep);
        if let Err(cause) = &done {
            self.health.fails(cause);
        }
        done.is_ok()
    }
}
