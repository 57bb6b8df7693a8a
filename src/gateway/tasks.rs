//! Tracks work that must finish before the process exits.

use tokio::task::JoinHandle;
use tokio_util::task::{TaskTracker, task_tracker::TaskTrackerToken};

use crate::net::lanes;

/// Task trackers, one for each lane. Every request is tracked, and a shared counter would make the threads contend.
pub struct Tasks(Vec<TaskTracker>);

impl Default for Tasks {
    fn default() -> Self {
        // Lanes are numbered from 1; tracker 0 is for threads that serve no requests.
        Self((0..=lanes::lanes()).map(|_| TaskTracker::new()).collect())
    }
}

impl Tasks {
    fn here(&self) -> &TaskTracker {
        &self.0[lanes::this_lane() % self.0.len()]
    }

    /// Spawns a tracked task. Must be called within a Tokio runtime.
    pub(crate) fn spawn<T: Send + 'static>(
        &self,
        task: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T> {
        self.here().spawn(task)
    }

    /// Tracks work without a task of its own until the returned token is dropped.
    pub(crate) fn counted(&self) -> TaskTrackerToken {
        self.here().token()
    }

    /// Lets [`Self::wait`] return once no tracked work is left. New work can still be tracked.
    pub(crate) fn close(&self) {
        for tasks in &self.0 {
            tasks.close();
        }
    }

    pub(crate) async fn wait(&self) {
        // Work that ends on one lane may have started work on another.
        while !self.is_empty() {
            for tasks in &self.0 {
                tasks.wait().await;
            }
        }
    }

    pub fn is_empty(&self) -> bool {
        self.0.iter().all(TaskTracker::is_empty)
    }
}
