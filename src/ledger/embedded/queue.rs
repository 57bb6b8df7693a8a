//! The queue of commands to the writer thread.
//!
//! A thread that serves requests often has several responses at once, each with a charge. They are sent as one batch after
//! all ready tasks have run: otherwise the first would get a transaction of its own, and the others would wait for the
//! next.

use std::{
    mem::take,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        mpsc::{self, Receiver, RecvTimeoutError, SendError},
    },
    time::Duration,
    vec,
};

use crate::net::{callbacks, lanes};

/// The sending end, for any thread. When it is dropped it sends the batches that were not sent yet.
pub(crate) struct Sender<Step> {
    /// The batch of each lane; the first is for threads that serve no requests.
    threads: Vec<Arc<Mutex<Batch<Step>>>>,
}

struct Batch<Step> {
    steps: Vec<Step>,
    /// `None` once the sender is dropped.
    to: Option<mpsc::Sender<Vec<Step>>>,
}

/// The receiving end. The commands of one thread arrive in order.
pub(crate) struct Queue<Step> {
    steps: Receiver<Vec<Step>>,
    /// The rest of the batch that is being received.
    left: vec::IntoIter<Step>,
}

pub(crate) fn new<Step: Send + 'static>() -> (Sender<Step>, Queue<Step>) {
    let (to, steps) = mpsc::channel();
    let thread = || {
        Arc::new(Mutex::new(Batch {
            steps: Vec::new(),
            to: Some(to.clone()),
        }))
    };
    let threads = (0..=lanes::lanes()).map(|_| thread()).collect();
    let left = Vec::new().into_iter();
    (Sender { threads }, Queue { steps, left })
}

impl<Step: Send + 'static> Sender<Step> {
    /// Sends a command with the next batch of this thread.
    pub(crate) fn send(&self, step: Step) {
        let batch = self.of_this_thread();
        let is_first = {
            let mut batch = locked(batch);
            batch.steps.push(step);
            batch.steps.len() == 1
        };
        if is_first {
            let batch = batch.clone();
            callbacks::after_ready_tasks(move || locked(&batch).send_batch());
        }
    }

    /// Sends a command at once, after all that any thread has sent before.
    pub(crate) fn send_after_all(&self, step: Step) {
        for batch in &self.threads {
            locked(batch).send_batch();
        }
        let mut batch = locked(self.of_this_thread());
        batch.steps.push(step);
        batch.send_batch();
    }

    fn of_this_thread(&self) -> &Arc<Mutex<Batch<Step>>> {
        &self.threads[lanes::this_lane() % self.threads.len()]
    }
}

impl<Step> Batch<Step> {
    fn send_batch(&mut self) {
        if let Some(to) = self.to.as_ref().filter(|_| !self.steps.is_empty()) {
            // Dropping a command closes its reply channel, so its task gets an error.
            if let Err(SendError(lost)) = to.send(take(&mut self.steps)) {
                let steps = lost.len();
                tracing::error!(
                    steps,
                    "the ledger writer has stopped; operations are refused"
                );
            }
        }
    }
}

impl<Step> Drop for Sender<Step> {
    fn drop(&mut self) {
        for batch in &self.threads {
            let mut batch = locked(batch);
            batch.send_batch();
            batch.to = None;
        }
    }
}

fn locked<Step>(batch: &Mutex<Batch<Step>>) -> MutexGuard<'_, Batch<Step>> {
    batch.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<Step> Queue<Step> {
    /// Waits for the next command, up to `timeout`.
    pub(crate) fn wait(&mut self, timeout: Option<Duration>) -> Result<Step, RecvTimeoutError> {
        loop {
            if let Some(step) = self.left.next() {
                return Ok(step);
            }
            let together = match timeout {
                Some(timeout) => self.steps.recv_timeout(timeout)?,
                None => self.steps.recv()?,
            };
            self.left = together.into_iter();
        }
    }
}

/// The commands that have arrived.
impl<Step> Iterator for Queue<Step> {
    type Item = Step;

    fn next(&mut self) -> Option<Step> {
        loop {
            if let Some(step) = self.left.next() {
                return Some(step);
            }
            self.left = self.steps.try_recv().ok()?.into_iter();
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::task::{LocalSet, spawn_local, yield_now};

    use super::*;
    use crate::net::callbacks::Runner;

    #[test]
    fn steps_arrive_in_order_from_a_thread_without_callbacks() {
        let (sender, mut queue) = new();
        for step in 0..3 {
            sender.send(step);
        }
        assert_eq!(queue.wait(None), Ok(0));
        assert_eq!(queue.by_ref().take(1).collect::<Vec<_>>(), [1]);
        assert_eq!(queue.next(), Some(2));
        assert_eq!(queue.next(), None);
        let soon = Some(Duration::from_millis(1));
        assert_eq!(queue.wait(soon), Err(RecvTimeoutError::Timeout));
        drop(sender);
        assert_eq!(queue.wait(None), Err(RecvTimeoutError::Disconnected));
    }

    #[tokio::test]
    async fn commands_of_several_ready_tasks_are_one_batch() {
        let tasks = async {
            spawn_local(Runner::start());
            let (sender, mut queue) = new();
            let sender = Arc::new(sender);
            for step in 0..5 {
                let sender = sender.clone();
                spawn_local(async move { sender.send(step) });
            }
            let first = loop {
                if let Some(first) = queue.next() {
                    break first;
                }
                yield_now().await;
            };
            assert_eq!((first, queue.left.as_slice()), (0, &[1, 2, 3, 4][..]));
        };
        LocalSet::new().run_until(tasks).await;
    }

    #[tokio::test]
    async fn a_thread_that_ends_sends_its_batch() {
        let runner = Runner::start();
        let (sender, mut queue) = new();
        sender.send(1);
        assert_eq!(queue.next(), None);
        drop(runner);
        assert_eq!(queue.next(), Some(1));
        sender.send(2);
        assert_eq!(queue.next(), Some(2));
    }

    /// Including the unsent batch of another thread.
    #[tokio::test]
    async fn send_after_all_keeps_the_order_of_all_threads() {
        let _runner = Runner::start();
        let (sender, mut queue) = new();
        lanes::set_this_lane(1);
        sender.send(1);
        assert_eq!(queue.next(), None);
        lanes::set_this_lane(0);
        sender.send(2);
        sender.send_after_all(3);
        let mut taken: Vec<_> = queue.by_ref().collect();
        assert_eq!(taken.pop(), Some(3));
        taken.sort_unstable();
        assert_eq!(taken, [1, 2]);
    }

    /// The thread that waits for the end may be the one that would have sent the batch later.
    #[tokio::test]
    async fn a_dropped_sender_sends_its_batch_and_ends_the_queue() {
        let _runner = Runner::start();
        let (sender, mut queue) = new();
        sender.send(1);
        drop(sender);
        assert_eq!(queue.wait(None), Ok(1));
        assert_eq!(queue.wait(None), Err(RecvTimeoutError::Disconnected));
    }
}
