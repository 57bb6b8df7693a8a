//! A call runs in the task of its client, and moves to a task of its own when the client leaves.
//!
//! A task for every call would have to be created and woken, and most calls end before their client leaves.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    task::{Context, Poll},
};

use tokio::runtime::Handle;
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::client::Client;
use crate::gateway::Tasks;

/// Runs a call and returns its result, or `None` if it panicked. Dropped before that, it spawns the rest of the call.
pub(crate) struct Detachable<'a, F>
where
    F: Future<Output: Send> + Send + 'static,
{
    /// `None` once the call is over.
    call: Option<Pin<Box<F>>>,
    client: Client,
    tasks: &'a Tasks,
    /// The process waits for the call before it ends.
    _counted: TaskTrackerToken,
}

impl<'a, F> Detachable<'a, F>
where
    F: Future<Output: Send> + Send + 'static,
{
    /// `client` is marked as left when the call is detached.
    pub(crate) fn new(call: F, client: Client, tasks: &'a Tasks) -> Self {
        Self {
            call: Some(Box::pin(call)),
            client,
            tasks,
            _counted: tasks.counted(),
        }
    }
}

impl<F> Future for Detachable<'_, F>
where
    F: Future<Output: Send> + Send + 'static,
{
    type Output = Option<F::Output>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(call) = &mut self.call else {
            return Poll::Ready(None);
        };
        // A panic ends the call and nothing else. The panic hook has logged where it happened.
        let done = match catch_unwind(AssertUnwindSafe(|| call.as_mut().poll(context))) {
            Ok(Poll::Pending) => return Poll::Pending,
            Ok(Poll::Ready(result)) => Some(result),
            Err(_) => None,
        };
        self.call = None;
        Poll::Ready(done)
    }
}

impl<F> Drop for Detachable<'_, F>
where
    F: Future<Output: Send> + Send + 'static,
{
    fn drop(&mut self) {
        // Without a runtime nothing can run on.
        if let (Some(call), Ok(_)) = (self.call.take(), Handle::try_current()) {
            self.client.leave();
            self.tasks.spawn(call);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{future::poll_fn, sync::Arc};

    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn a_call_whose_client_left_goes_on() {
        let tasks = Tasks::default();
        let (answer, answered) = oneshot::channel::<()>();
        let client = Client::default();
        let seen_left = Arc::new(std::sync::Mutex::new(None));
        let (seen, client_seen) = (seen_left.clone(), client.clone());
        let call = async move {
            let _ = answered.await;
            *seen.lock().unwrap() = Some(client_seen.has_left());
        };
        let mut detachable = Detachable::new(call, client, &tasks);
        let is_over = poll_fn(|context| {
            let polled = Pin::new(&mut detachable).poll(context);
            Poll::Ready(polled.is_ready())
        });
        assert!(!is_over.await);
        assert!(!tasks.is_empty(), "the process waits for it");
        drop(detachable);
        assert!(!tasks.is_empty(), "it goes on");
        tasks.close();
        answer.send(()).unwrap();
        tasks.wait().await;
        assert_eq!(*seen_left.lock().unwrap(), Some(true));
    }

    #[tokio::test]
    async fn a_call_that_is_over_has_a_result_and_no_task() {
        let tasks = Tasks::default();
        let client = Client::default();
        let detachable = Detachable::new(async { 7 }, client.clone(), &tasks);
        assert_eq!(detachable.await, Some(7));
        assert!(tasks.is_empty());
        assert!(!client.has_left());
    }

    #[tokio::test]
    async fn a_call_that_panics_ends_without_a_result() {
        let tasks = Tasks::default();
        let call = async { panic!("of the call") };
        let result: Option<()> = Detachable::new(call, Client::default(), &tasks).await;
        assert_eq!(result, None);
        assert!(tasks.is_empty());
    }
}
