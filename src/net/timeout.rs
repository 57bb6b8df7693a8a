//! A deadline for work that seldom has to wait.

use std::{
    future::poll_fn,
    pin::{Pin, pin},
    task::{Context, Poll},
};

use tokio::{
    task::unconstrained,
    time::{Instant, Sleep, sleep_until},
};

/// The work was not done by its deadline.
#[derive(Debug)]
pub(crate) struct DeadlineExceeded;

/// Like [`tokio::time::timeout_at`], but reads the clock and creates a timer only if the work is not ready at once.
///
/// `deadline` is called when the work has to wait for the first time.
pub(crate) async fn with_deadline<T>(
    deadline: impl FnOnce() -> Instant,
    work: impl Future<Output = T>,
) -> Result<T, DeadlineExceeded> {
    let mut work = pin!(work);
    let mut timer = pin!(None);
    let mut deadline = Some(deadline);
    poll_fn(|context| {
        if let Poll::Ready(done) = work.as_mut().poll(context) {
            return Poll::Ready(Ok(done));
        }
        if let Some(deadline) = deadline.take() {
            timer.set(Some(sleep_until(deadline())));
        }
        match timer.as_mut().as_pin_mut() {
            // Unconstrained, so that the timer fires also if the work has used up the task's cooperative budget.
            Some(timer) => unconstrained_poll(timer, context).map(|()| Err(DeadlineExceeded)),
            None => Poll::Pending,
        }
    })
    .await
}

fn unconstrained_poll(timer: Pin<&mut Sleep>, context: &mut Context<'_>) -> Poll<()> {
    pin!(unconstrained(timer)).poll(context)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::{
        task::coop::poll_proceed,
        time::{sleep, timeout},
    };

    use super::*;

    fn in_a_second() -> Instant {
        Instant::now() + Duration::from_secs(1)
    }

    #[tokio::test(start_paused = true)]
    async fn late_work_fails_at_its_deadline() {
        let started = Instant::now();
        let late = with_deadline(in_a_second, sleep(Duration::from_secs(5))).await;
        assert!(late.is_err());
        assert_eq!(started.elapsed().as_secs(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn work_before_the_deadline_returns_its_result() {
        let work = async {
            sleep(Duration::from_millis(900)).await;
            7
        };
        assert_eq!(with_deadline(in_a_second, work).await.unwrap(), 7);
    }

    /// The work is polled again and again, and uses up the task's cooperative budget each time.
    #[tokio::test]
    async fn work_that_never_yields_fails_too() {
        let busy = poll_fn(|context| {
            while let Poll::Ready(progress) = poll_proceed(context) {
                progress.made_progress();
            }
            Poll::<()>::Pending
        });
        let soon = || Instant::now() + Duration::from_millis(20);
        let ended = timeout(Duration::from_secs(20), with_deadline(soon, busy)).await;
        assert!(ended.expect("an end before the test's timeout").is_err());
    }

    #[tokio::test]
    async fn work_that_is_ready_reads_no_clock() {
        let no_clock = || unreachable!("there is nothing to wait for");
        assert_eq!(with_deadline(no_clock, async { 7 }).await.unwrap(), 7);
    }
}
