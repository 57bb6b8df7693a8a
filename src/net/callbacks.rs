//! Callbacks that one thread runs for another.
//!
//! Waking a task of a sleeping thread takes a system call for each task. So each thread that serves requests has a queue
//! of callbacks and one task that runs them: a thread that has many results for another wakes that task once, and the
//! callbacks wake the other tasks locally.
//!
//! The same task runs work that a thread postpones until its other tasks have had their turn ([`after_ready_tasks`]).

use std::{
    cell::RefCell,
    mem::take,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
};

use futures_util::task::AtomicWaker;

thread_local! {
    static QUEUE: RefCell<Option<Arc<Queue>>> = const { RefCell::new(None) };
    static POSTPONED: RefCell<Vec<Box<dyn FnOnce()>>> = const { RefCell::new(Vec::new()) };
}

type Run = Box<dyn FnOnce() + Send>;

/// The callbacks that wait for one thread.
#[derive(Default)]
pub(crate) struct Queue {
    waiting: Mutex<Vec<Run>>,
    runner: AtomicWaker,
}

/// A callback and the thread that it is for.
pub(crate) struct Callback {
    to: Arc<Queue>,
    run: Run,
}

/// The task that runs the callbacks of its thread.
pub(crate) struct Runner(Arc<Queue>);

impl Queue {
    /// The queue of this thread, if it has one.
    pub(crate) fn of_this_thread() -> Option<Arc<Self>> {
        QUEUE.with_borrow(Clone::clone)
    }

    pub(crate) fn is_of_this_thread(self: &Arc<Self>) -> bool {
        QUEUE.with_borrow(|here| here.as_ref().is_some_and(|here| Arc::ptr_eq(here, self)))
    }

    fn waiting(&self) -> MutexGuard<'_, Vec<Run>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Runner {
    /// Gives this thread a queue.
    pub(crate) fn start() -> Self {
        let queue = Arc::<Queue>::default();
        QUEUE.set(Some(queue.clone()));
        Self(queue)
    }
}

impl Future for Runner {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        self.0.runner.register(context.waker());
        let waiting = take(&mut *self.0.waiting());
        for run in waiting {
            run();
        }
        run_postponed();
        Poll::Pending
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        let _ = QUEUE.try_with(RefCell::take);
        run_postponed();
    }
}

/// Runs something on this thread after the tasks that are ready now; at once if the thread has no queue.
pub(crate) fn after_ready_tasks(work: impl FnOnce() + 'static) {
    let Ok(Some(here)) = QUEUE.try_with(|here| here.borrow().clone()) else {
        return work();
    };
    POSTPONED.with_borrow_mut(|postponed| postponed.push(Box::new(work)));
    here.runner.wake();
}

fn run_postponed() {
    let postponed = POSTPONED.try_with(RefCell::take).unwrap_or_default();
    for work in postponed {
        work();
    }
}

impl Callback {
    /// A callback for that thread. Without a queue it runs at once, and `None` is returned.
    pub(crate) fn to(
        queue: Option<Arc<Queue>>,
        run: impl FnOnce() + Send + 'static,
    ) -> Option<Self> {
        let Some(to) = queue else {
            run();
            return None;
        };
        let run = Box::new(run);
        Some(Self { to, run })
    }
}

/// Queues callbacks, with one wake-up for each thread.
pub(crate) fn deliver(callbacks: impl IntoIterator<Item = Callback>) {
    let mut to_wake = Vec::new();
    for Callback { to, run } in callbacks {
        let is_first = {
            let mut waiting = to.waiting();
            waiting.push(run);
            waiting.len() == 1
        };
        if is_first {
            to_wake.push(to);
        }
    }
    for queue in to_wake {
        queue.runner.wake();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    use futures_util::task::{ArcWake, waker};
    use tokio::sync::oneshot;

    use super::*;

    #[derive(Default)]
    struct Wakes(AtomicUsize);

    impl ArcWake for Wakes {
        fn wake_by_ref(wakes: &Arc<Self>) {
            wakes.0.fetch_add(1, Relaxed);
        }
    }

    #[test]
    fn many_callbacks_wake_once() {
        let count = Arc::<Wakes>::default();
        let waker = waker(count.clone());
        let mut context = Context::from_waker(&waker);
        let mut opening = std::pin::pin!(Runner::start());
        assert!(opening.as_mut().poll(&mut context).is_pending());
        let opened = Arc::<AtomicUsize>::default();
        let callbacks = |number: usize| {
            let (to, opened) = (Queue::of_this_thread(), opened.clone());
            (0..number).filter_map(move |_| {
                let opened = opened.clone();
                Callback::to(to.clone(), move || {
                    opened.fetch_add(1, Relaxed);
                })
            })
        };
        for round in 1..=2 {
            std::thread::scope(|scope| {
                let callbacks = callbacks(10);
                scope.spawn(move || deliver(callbacks));
            });
            assert_eq!(count.0.load(Relaxed), round);
            assert_eq!(
                opened.load(Relaxed),
                (round - 1) * 10,
                "not by the thread that queued them"
            );
            assert!(opening.as_mut().poll(&mut context).is_pending());
            assert_eq!(opened.load(Relaxed), round * 10);
        }
    }

    #[tokio::test]
    async fn a_waiting_task_gets_a_result() {
        tokio::spawn(Runner::start());
        let (send, received) = oneshot::channel();
        let to = Queue::of_this_thread();
        std::thread::spawn(move || {
            deliver(Callback::to(to, move || send.send(7).unwrap()));
        });
        assert_eq!(received.await, Ok(7));
    }
}
