//! A call while its client waits: in the client's own task, and in one of its own as soon as nobody waits any more.
//!
//! A task for every call would have to be made and woken, and most calls are over before anyone has left.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    task::{Context, Poll},
};

use tokio::runtime::Handle;
use tokio_util::task::task_tracker::TaskTrackerToken;

use crate::gateway::Tasks;

type Call = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Dropped before it is over, the call goes on by itself.
pub struct Running<'a> {
    /// `None` when it is over.
    call: Option<Call>,
    tasks: &'a Tasks,
    /// The process does not end before it, wherever it runs.
    _counted: TaskTrackerToken,
}

impl<'a> Running<'a> {
    pub fn new(call: impl Future<Output = ()> + Send + 'static, tasks: &'a Tasks) -> Self {
        Self {
            call: Some(Box::pin(call)),
            tasks,
            _counted: tasks.counted(),
        }
    }

    /// A call that panics is over too: it takes nobody down with it.
    pub fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let Some(call) = &mut self.call else {
            return Poll::Ready(());
        };
        // The panic hook has logged where it happened.
        let polled = catch_unwind(AssertUnwindSafe(|| call.as_mut().poll(context)));
        if !matches!(polled, Ok(Poll::Pending)) {
            self.call = None;
            return Poll::Ready(());
        }
        Poll::Pending
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        // Where there is no runtime any more, nothing can go on.
        if let (Some(call), Ok(_)) = (self.call.take(), Handle::try_current()) {
            self.tasks.spawn(call);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        future::poll_fn,
        sync::{
            Arc,
            atomic::{AtomicBool, Ordering::Relaxed},
        },
    };

    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn a_call_that_nobody_waits_for_goes_on() {
        let tasks = Tasks::default();
        let (answer, answered) = oneshot::channel::<()>();
        let over = Arc::<AtomicBool>::default();
        let ends = over.clone();
        let call = async move {
            let _ = answered.await;
            ends.store(true, Relaxed);
        };
        let mut running = Running::new(call, &tasks);
        let is_over = poll_fn(|context| Poll::Ready(running.poll(context).is_ready()));
        assert!(!is_over.await);
        assert!(
            !tasks.is_empty(),
            "its client waits, and so does the process"
        );
        drop(running);
        assert!(!tasks.is_empty(), "it goes on");
        tasks.close();
        answer.send(()).unwrap();
        tasks.wait().await;
        assert!(over.load(Relaxed));
    }

    #[tokio::test]
    async fn a_call_that_panics_is_over_and_takes_nobody_down() {
        let tasks = Tasks::default();
        let mut running = Running::new(async { panic!("of the call") }, &tasks);
        poll_fn(|context| running.poll(context)).await;
        drop(running);
        assert!(tasks.is_empty());
    }
}
