//! Running one operation with a timeout, without leaving an entry of unknown state behind.
//!
//! If no reply arrives, or the caller goes away before it, an update is queued that undoes the operation.

use std::time::Duration;

use tokio::time::timeout;

use super::{Inner, Link, Reply, Run, Update};

/// There is no usable connection, too many operations are in flight, or the server did not reply.
#[derive(Debug)]
pub(crate) struct NoReply;

/// Queues an update when dropped, unless it was disarmed.
///
/// It covers callers that are dropped or fail before the server's reply has arrived.
pub(crate) struct SendOnDrop<'a> {
    inner: &'a Inner,
    update: Option<Update>,
}

impl<'a> SendOnDrop<'a> {
    pub(crate) fn new(inner: &'a Inner, update: Update) -> Self {
        Self {
            inner,
            update: Some(update),
        }
    }

    pub(crate) fn disarm(mut self) {
        self.update = None;
    }
}

impl Drop for SendOnDrop<'_> {
    fn drop(&mut self) {
        if let Some(update) = self.update.take() {
            self.inner.enqueue(update);
        }
    }
}

impl Inner {
    /// Runs the script and returns its reply and the number of attempts. Queues `on_failure` if there is no reply.
    ///
    /// There is a second attempt if the connection breaks, and none after a timeout: on the same connection it would only
    /// wait behind the first, and be more work for a server that is late already.
    pub(crate) async fn execute(
        &self,
        run: &Run,
        on_failure: Update,
    ) -> Result<(Reply, u32), NoReply> {
        let _permit = self.in_flight.try_acquire().map_err(|_| NoReply)?;
        let mut link = self.link.borrow().clone().map_err(|_| NoReply)?;
        let guard = SendOnDrop::new(self, on_failure);
        for attempt in 1..=2 {
            let times = self.clocks.now_within(run.partition, self.deadline);
            match timeout(self.deadline, run.send_within(&link, times)).await {
                Ok(Ok(not_done @ (Reply::Unmarked | Reply::ClockJumped))) => {
                    self.close_link(not_done.reason());
                    // This attempt changed nothing. An earlier one whose connection broke may have, and must be undone.
                    if attempt == 1 {
                        guard.disarm();
                    }
                    return Err(NoReply);
                }
                Ok(Ok(reply)) => {
                    guard.disarm();
                    return Ok((reply, attempt));
                }
                Ok(Err(error)) => self.close_link(&error.to_string()),
                Err(_) => {
                    self.request_check();
                    return Err(NoReply);
                }
            }
            if attempt == 1 {
                link = self.next_link(self.deadline).await.ok_or(NoReply)?;
            }
        }
        Err(NoReply)
    }

    /// Returns the connection, or waits up to `limit` for the next one.
    pub(crate) async fn next_link(&self, limit: Duration) -> Option<Link> {
        let mut links = self.link.subscribe();
        let open = timeout(limit, links.wait_for(Result::is_ok)).await;
        open.ok()?.ok()?.clone().ok()
    }

    /// Closes the connection for operations until the keeper has reconnected and checked the server.
    pub(crate) fn close_link(&self, why: &str) {
        self.link.send_if_modified(|link| {
            let was_open = link.is_ok();
            if was_open {
                *link = Err(why.to_owned());
            }
            was_open
        });
        self.request_check();
    }

    /// Makes the keeper check the connection now.
    pub(crate) fn request_check(&self) {
        self.check_requests.send_modify(|count| *count += 1);
    }
}
