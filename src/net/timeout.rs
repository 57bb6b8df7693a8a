//! A bound on how long something may take, for what seldom has to wait at all.

use std::{
    future::poll_fn,
    pin::{Pin, pin},
    task::{Context, Poll},
};

use tokio::{
    task::unconstrained,
    time::{Instant, Sleep, sleep_until},
};

/// It took too long.
#[derive(Debug)]
pub struct DeadlineExceeded;

/// As [`tokio::time::timeout_at`], but the clock is not looked at, and no timer made, before there is something to wait
/// for.
pub async fn with_deadline<T>(
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
            // Also for work that uses up what a task may do in one go.
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
    async fn what_is_late_is_given_up_on_time() {
        let started = Instant::now();
        let late = with_deadline(in_a_second, sleep(Duration::from_secs(5))).await;
        assert!(late.is_err());
        assert_eq!(started.elapsed().as_secs(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn what_comes_in_time_is_taken() {
        let work = async {
            sleep(Duration::from_millis(900)).await;
            7
        };
        assert_eq!(with_deadline(in_a_second, work).await.unwrap(), 7);
    }

    /// It is woken again and again, and uses up each time what a task may do in one go.
    #[tokio::test]
    async fn work_that_never_rests_is_given_up_too() {
        let busy = poll_fn(|context| {
            while let Poll::Ready(restless) = poll_proceed(context) {
                restless.made_progress();
            }
            Poll::<()>::Pending
        });
        let soon = || Instant::now() + Duration::from_millis(20);
        let given_up = timeout(Duration::from_secs(20), with_deadline(soon, busy)).await;
        assert!(given_up.expect("before somebody else gives up").is_err());
    }

    #[tokio::test]
    async fn nobody_looks_at_the_clock_for_what_is_there() {
        let no_clock = || unreachable!("there is nothing to wait for");
        assert_eq!(with_deadline(no_clock, async { 7 }).await.unwrap(), 7);
    }
}
