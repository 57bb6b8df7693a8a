//! Work that must end before the process does.

use tokio::task::JoinHandle;
use tokio_util::task::{TaskTracker, task_tracker::TaskTrackerToken};

use crate::net::lanes;

/// Counted on each thread for itself: every request is, and threads with one count would wait for each other.
pub struct Tasks(Vec<TaskTracker>);

impl Default for Tasks {
    fn default() -> Self {
        // One more for threads that serve no requests.
        Self((0..=lanes::lanes()).map(|_| TaskTracker::new()).collect())
    }
}

impl Tasks {
    fn here(&self) -> &TaskTracker {
        &self.0[lanes::this_lane() % self.0.len()]
    }

    /// In a task of its own. Needs a runtime.
    pub fn spawn<T: Send + 'static>(
        &self,
        task: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T> {
        self.here().spawn(task)
    }

    /// Counts something that has no task of its own, until what is returned is dropped.
    pub fn counted(&self) -> TaskTrackerToken {
        self.here().token()
    }

    /// From now on [`Self::wait`] ends once there is nothing left.
    pub fn close(&self) {
        for tasks in &self.0 {
            tasks.close();
        }
    }

    pub async fn wait(&self) {
        // What ends on one thread may begin something on another.
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
