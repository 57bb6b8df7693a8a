//! Steps on their way to the thread that takes them.
//!
//! A thread that serves requests has often many answers at once, each with a charge. They are handed over together, when
//! all of them had their turn: else the first one would set off a transaction for itself, and the others wait for the
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

use crate::net::{lanes, mailbox};

/// Where steps are put in, on any thread. Dropped, it hands over what was put in.
pub struct Sender<Step> {
    /// What each thread has gathered; the first is for all that serve no requests.
    threads: Vec<Arc<Mutex<Gathered<Step>>>>,
}

struct Gathered<Step> {
    steps: Vec<Step>,
    /// `None` when nothing more comes.
    to: Option<mpsc::Sender<Vec<Step>>>,
}

/// Where they are taken out, in the order in which each thread has put them in.
pub struct Queue<Step> {
    steps: Receiver<Vec<Step>>,
    /// Of those that came together, the ones that are left.
    left: vec::IntoIter<Step>,
}

pub fn new<Step: Send + 'static>() -> (Sender<Step>, Queue<Step>) {
    let (to, steps) = mpsc::channel();
    let thread = || {
        Arc::new(Mutex::new(Gathered {
            steps: Vec::new(),
            to: Some(to.clone()),
        }))
    };
    let threads = (0..=lanes::lanes()).map(|_| thread()).collect();
    let left = Vec::new().into_iter();
    (Sender { threads }, Queue { steps, left })
}

impl<Step: Send + 'static> Sender<Step> {
    /// Together with others of this thread, soon.
    pub fn send(&self, step: Step) {
        let gathered = self.of_this_thread();
        let is_first = {
            let mut gathered = locked(gathered);
            gathered.steps.push(step);
            gathered.steps.len() == 1
        };
        if is_first {
            let gathered = gathered.clone();
            mailbox::after_others(move || locked(&gathered).hand_over());
        }
    }

    /// At once, after all that any thread has sent before.
    pub fn send_after_all(&self, step: Step) {
        for gathered in &self.threads {
            locked(gathered).hand_over();
        }
        let mut gathered = locked(self.of_this_thread());
        gathered.steps.push(step);
        gathered.hand_over();
    }

    fn of_this_thread(&self) -> &Arc<Mutex<Gathered<Step>>> {
        &self.threads[lanes::this_lane() % self.threads.len()]
    }
}

impl<Step> Gathered<Step> {
    fn hand_over(&mut self) {
        if let Some(to) = self.to.as_ref().filter(|_| !self.steps.is_empty()) {
            // Whoever waits for one of them hears of it when it is dropped.
            if let Err(SendError(lost)) = to.send(take(&mut self.steps)) {
                let steps = lost.len();
                tracing::error!(steps, "nobody writes to the ledger any more");
            }
        }
    }
}

impl<Step> Drop for Sender<Step> {
    fn drop(&mut self) {
        for gathered in &self.threads {
            let mut gathered = locked(gathered);
            gathered.hand_over();
            gathered.to = None;
        }
    }
}

fn locked<Step>(gathered: &Mutex<Gathered<Step>>) -> MutexGuard<'_, Gathered<Step>> {
    gathered.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<Step> Queue<Step> {
    /// The next one, as soon as there is one; no longer than for `patience`, if there is a bound.
    pub fn wait(&mut self, timeout: Option<Duration>) -> Result<Step, RecvTimeoutError> {
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

/// Those that are there.
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
    use crate::net::mailbox::Postman;

    #[test]
    fn steps_come_in_order_from_a_thread_without_a_mailbox() {
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
    async fn what_many_tasks_have_in_one_turn_is_handed_over_together() {
        let tasks = async {
            spawn_local(Postman::start());
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

    /// A thread that ends hands over what it has gathered.
    #[tokio::test]
    async fn nothing_is_left_behind_by_a_thread_that_ends() {
        let postman = Postman::start();
        let (sender, mut queue) = new();
        sender.send(1);
        assert_eq!(queue.next(), None);
        drop(postman);
        assert_eq!(queue.next(), Some(1));
        sender.send(2);
        assert_eq!(queue.next(), Some(2));
    }

    /// Of another thread too, which has gathered them and not had the time to hand them over.
    #[tokio::test]
    async fn what_was_sent_before_is_taken_before() {
        let _postman = Postman::start();
        let (sender, mut queue) = new();
        lanes::this_thread_is(1);
        sender.send(1);
        assert_eq!(queue.next(), None);
        lanes::this_thread_is(0);
        sender.send(2);
        sender.send_after_all(3);
        let mut taken: Vec<_> = queue.by_ref().collect();
        assert_eq!(taken.pop(), Some(3));
        taken.sort_unstable();
        assert_eq!(taken, [1, 2]);
    }

    /// Whoever waits for the end of the queue may be on the thread that would have handed over later.
    #[tokio::test]
    async fn a_sender_that_is_dropped_hands_over_and_is_the_end() {
        let _postman = Postman::start();
        let (sender, mut queue) = new();
        sender.send(1);
        drop(sender);
        assert_eq!(queue.wait(None), Ok(1));
        assert_eq!(queue.wait(None), Err(RecvTimeoutError::Disconnected));
    }
}
