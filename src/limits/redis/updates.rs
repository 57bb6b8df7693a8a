//! Updates of reservations (settle, cancel, bury), sent to the server in the background.
//!
//! No request waits for them, so a server that is down delays none. Updates are retried in order until the server has
//! them, and dropped after a minute, when their entries have left the window anyway.

use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::future::join_all;
use tokio::{
    sync::mpsc::UnboundedReceiver,
    time::{sleep, timeout},
};

use super::{
    Inner,
    link::Link,
    script::{Reply, Run, WindowKeys},
};

/// How many updates are sent at once.
const BATCH: usize = 256;
const REPLY_TIMEOUT: Duration = Duration::from_secs(1);
const RETRY_AFTER: Duration = Duration::from_millis(50);
/// Age at which an update is dropped.
const MAX_AGE: Duration = Duration::from_mins(1);

/// A run of the script that is sent in the background.
pub(crate) struct Update {
    run: Run,
    queued_at: Instant,
}

impl Update {
    pub(crate) fn settle(window: &WindowKeys, entry: &str, tokens: u64) -> Self {
        Self::new(Run::settle(window, entry, tokens))
    }

    pub(crate) fn cancel(window: &WindowKeys, entry: &str) -> Self {
        Self::new(Run::cancel(window, entry))
    }

    pub(crate) fn bury(window: &WindowKeys, entry: &str) -> Self {
        Self::new(Run::bury(window, entry))
    }

    fn new(run: Run) -> Self {
        Self {
            run,
            queued_at: Instant::now(),
        }
    }

    /// Sends the update and returns whether the server has carried it out.
    async fn send(&self, inner: &Inner, link: &Link) -> bool {
        let times = inner.clocks.now_within(self.run.partition, REPLY_TIMEOUT);
        match timeout(REPLY_TIMEOUT, self.run.send_within(link, times)).await {
            Ok(Ok(not_done @ (Reply::Unmarked | Reply::ClockJumped))) => {
                inner.close_link(not_done.reason());
                false
            }
            Ok(Ok(_)) => true,
            Ok(Err(error)) => {
                inner.close_link(&error.to_string());
                false
            }
            Err(_) => {
                inner.request_check();
                false
            }
        }
    }
}

/// Sends the queued updates for as long as the limiter exists.
pub(super) async fn send_all(inner: Arc<Inner>, mut queue: UnboundedReceiver<Update>) {
    let mut backlog = VecDeque::new();
    loop {
        if backlog.is_empty() {
            match queue.recv().await {
                Some(update) => backlog.push_back(update),
                None => return,
            }
        }
        while let Ok(update) = queue.try_recv() {
            backlog.push_back(update);
        }
        let before = backlog.len();
        backlog.retain(|update| update.queued_at.elapsed() < MAX_AGE);
        let mut all_sent = true;
        if let Some(link) = inner.next_link(REPLY_TIMEOUT).await {
            let batch: Vec<Update> = backlog.drain(..backlog.len().min(BATCH)).collect();
            let sent = join_all(batch.iter().map(|update| update.send(&inner, &link))).await;
            let failed: Vec<Update> = batch
                .into_iter()
                .zip(sent)
                .filter(|(_, sent)| !sent)
                .map(|(update, _)| update)
                .collect();
            all_sent = failed.is_empty();
            // Back to the front, so that the order is kept.
            failed
                .into_iter()
                .rev()
                .for_each(|update| backlog.push_front(update));
        }
        let done = before - backlog.len();
        if done > 0 {
            inner.pending_updates.send_modify(|count| *count -= done);
        }
        if !all_sent {
            sleep(RETRY_AFTER).await;
        }
    }
}
