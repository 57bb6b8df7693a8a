//! Bounds how many calls are being admitted at a time with shared stores.
//!
//! Without a bound, all requests of a busy moment would queue at Redis and PostgreSQL, where each of them has a
//! deadline: with more requests than the stores serve within it, every one would miss it, after having cost the stores
//! their work. So calls queue here, first in first out, before anything is sent. While the queue takes too long, new
//! calls are refused at once and leave no trace in the stores.
//!
//! The embedded stores need no such bound: a call is admitted there without waiting.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use tokio::sync::oneshot;

mod limit;
#[cfg(test)]
mod tests;

use self::limit::{ConcurrencyLimit, Ended};

/// More calls arrive than can be admitted.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Overloaded;

/// The calls that are being admitted, and those that wait for it.
pub(crate) struct Admissions {
    state: Mutex<State>,
    /// The first call of the queue has waited too long; the same as [`State::is_late`] when it was last looked at.
    is_full: AtomicBool,
    /// How long the first call of the queue may have waited before new ones are refused. A call that has waited twice
    /// as long is refused as well.
    max_wait: Duration,
}

struct State {
    running: usize,
    limit: ConcurrencyLimit,
    /// In the order of their arrival. While there are any, as many calls are running as the limit allows.
    queue: VecDeque<Waiting>,
}

struct Waiting {
    since: Instant,
    permit: oneshot::Sender<Permit>,
}

/// Allows one call to be admitted; dropping it lets the next one in.
pub(crate) struct Permit {
    /// `None` for a permit that was not given to anyone.
    admissions: Option<Arc<Admissions>>,
    since: Instant,
    is_admitted: bool,
}

enum Entry {
    Permit(Permit),
    Queued(oneshot::Receiver<Permit>),
}

impl Admissions {
    pub(crate) fn new(max_wait: Duration) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(State {
                running: 0,
                limit: ConcurrencyLimit::default(),
                queue: VecDeque::new(),
            }),
            is_full: AtomicBool::new(false),
            max_wait,
        })
    }

    /// Whether a call that arrives now would be refused. Costs nothing: it can be asked before a request is read.
    pub(crate) fn is_full(&self) -> bool {
        self.is_full.load(Relaxed)
    }

    /// Waits for a permit. Returns an error, mostly at once, if that would take too long.
    pub(crate) async fn enter(self: &Arc<Self>) -> Result<Permit, Overloaded> {
        let queued = match self.permit_or_queue(Instant::now())? {
            Entry::Permit(permit) => return Ok(permit),
            Entry::Queued(queued) => queued,
        };
        // Boxed, so that calls that need not wait reserve no memory for it.
        let waiting = Box::pin(tokio::time::timeout(2 * self.max_wait, queued));
        match waiting.await {
            Ok(Ok(permit)) => Ok(permit),
            Ok(Err(_)) | Err(_) => Err(Overloaded),
        }
    }

    /// Numbers of calls that are being admitted and that wait for it.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let state = self.state();
        (state.running, state.queue.len())
    }

    fn permit_or_queue(self: &Arc<Self>, now: Instant) -> Result<Entry, Overloaded> {
        let mut state = self.state();
        state.forget_departed();
        if state.running < state.limit.get() {
            state.running += 1;
            return Ok(Entry::Permit(self.permit(now)));
        }
        let is_late = state.is_late(now, self.max_wait);
        self.is_full.store(is_late, Relaxed);
        if is_late {
            return Err(Overloaded);
        }
        let (permit, queued) = oneshot::channel();
        state.queue.push_back(Waiting { since: now, permit });
        Ok(Entry::Queued(queued))
    }

    fn permit(self: &Arc<Self>, since: Instant) -> Permit {
        Permit {
            admissions: Some(self.clone()),
            since,
            is_admitted: false,
        }
    }

    /// Ends an admission, and lets in as many calls as the limit allows.
    fn release(self: &Arc<Self>, ended: Ended) {
        let now = ended.at;
        let mut state = self.state();
        state.running -= 1;
        let others_wait = !state.queue.is_empty();
        state.limit.adjust(ended, others_wait);
        while state.running < state.limit.get() {
            let Some(next) = state.queue.pop_front() else {
                break;
            };
            match next.permit.send(self.permit(now)) {
                Ok(()) => state.running += 1,
                // The caller has left. One that leaves before it has taken its permit drops it.
                Err(permit) => permit.disarm(),
            }
        }
        state.forget_departed();
        let is_late = state.is_late(now, self.max_wait);
        self.is_full.store(is_late, Relaxed);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Whether the first call of the queue has waited for longer than `max_wait`.
    fn is_late(&self, now: Instant, max_wait: Duration) -> bool {
        let first = self.queue.front();
        first.is_some_and(|first| now - first.since > max_wait)
    }

    /// Removes calls from the head of the queue whose callers have left.
    fn forget_departed(&mut self) {
        while let Some(first) = self.queue.front()
            && first.permit.is_closed()
        {
            self.queue.pop_front();
        }
    }
}

impl Permit {
    /// Ends the permit of a call that was admitted.
    pub(crate) fn admitted(mut self) {
        self.is_admitted = true;
    }

    fn disarm(mut self) {
        self.admissions = None;
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(admissions) = self.admissions.take() {
            let at = Instant::now();
            admissions.release(Ended {
                took: at - self.since,
                at,
                is_admitted: self.is_admitted,
            });
        }
    }
}
