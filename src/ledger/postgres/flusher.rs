//! Group flush: one flush of the database's disk for everything committed before it.
//!
//! Batches are committed without waiting for the disk. Charges wait here for a flush. Operations that end a call are
//! kept here until a flush; they are not awaited, so they share the flush of the next charge, or get one after a
//! second. If the server has crashed between commit and flush, its incarnation number (`life`) differs from the one in
//! the batch's reply; then all these operations are sent again, and the holds of running calls are renewed.

use std::{
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use tokio::{
    sync::mpsc,
    time::{Instant, timeout, timeout_at},
};

use super::{
    Inner,
    operations::{Operation, Reply},
};
use crate::{
    base::outage::Outage,
    db::postgres::{Connected, Error},
};

/// Timeout of a flush, after which its connection is dropped.
const TIMEOUT: Duration = Duration::from_secs(2);
const TRIAL_INTERVAL: Duration = Duration::from_millis(100);
/// How long operations that are not awaited may stay unflushed.
const LAZY_INTERVAL: Duration = Duration::from_secs(1);
/// The most operations kept for the case of a crash. Beyond it, which takes a disk that hangs, it is left to the audit
/// to find what a crash has undone.
const MAX_KEPT: usize = 50_000;

/// A committed operation that may not be on the disk yet.
enum Unflushed {
    /// A charge, with the reply to send once it is flushed.
    Charge { operation: Operation, reply: Reply },
    /// The end of a call, to be sent again if it is lost.
    End(Operation),
    /// A hold; if it is lost, the list of open calls has it.
    Hold,
}

/// With the server's incarnation in which it was committed.
type Committed = (Unflushed, i64);

/// The sending end of the queue of committed operations.
pub(crate) struct Flusher {
    queue: mpsc::UnboundedSender<Committed>,
    kept: Arc<AtomicUsize>,
    /// A hold is queued for a flush already.
    has_hold: Arc<AtomicBool>,
}

/// The task that flushes, and replies or repeats.
pub(crate) struct FlushTask {
    queue: mpsc::UnboundedReceiver<Committed>,
    kept: Arc<AtomicUsize>,
    has_hold: Arc<AtomicBool>,
}

impl Flusher {
    pub(crate) fn new() -> (Self, FlushTask) {
        let (sender, receiver) = mpsc::unbounded_channel();
        let (kept, has_hold) = (Arc::<AtomicUsize>::default(), Arc::<AtomicBool>::default());
        let task = FlushTask {
            queue: receiver,
            kept: kept.clone(),
            has_hold: has_hold.clone(),
        };
        let flusher = Self {
            queue: sender,
            kept,
            has_hold,
        };
        (flusher, task)
    }

    /// Queues a charge, whose reply is sent once it is on the disk.
    pub(crate) fn flush_then_reply(&self, operation: Operation, reply: Reply, life: i64) {
        let _ = self
            .queue
            .send((Unflushed::Charge { operation, reply }, life));
    }

    /// Keeps the end of a call, whose reply was sent already, until it is flushed.
    pub(crate) fn keep_until_flushed(&self, operation: Operation, life: i64) {
        if self.kept.fetch_add(1, Relaxed) < MAX_KEPT {
            let _ = self.queue.send((Unflushed::End(operation), life));
        } else {
            self.kept.fetch_sub(1, Relaxed);
        }
    }

    /// Records that a hold was placed or changed.
    pub(crate) fn hold_committed(&self, life: i64) {
        if !self.has_hold.swap(true, Relaxed) {
            let _ = self.queue.send((Unflushed::Hold, life));
        }
    }
}

impl FlushTask {
    /// Runs as long as the ledger exists. `submit` takes the operations that a crash may have undone.
    pub(crate) async fn run(mut self, inner: Weak<Inner>, submit: impl Fn(Operation)) {
        let mut connection = None;
        while let Some(waiting) = self.next().await {
            let Some(inner) = inner.upgrade() else { return };
            // Holds that are committed from here on need another flush.
            self.has_hold.store(false, Relaxed);
            let life = until_flushed(&inner, &mut connection).await;
            let (mut ends, mut has_crashed) = (0, false);
            for (unflushed, committed_in) in waiting {
                let is_lost = committed_in != life;
                has_crashed |= is_lost;
                match unflushed {
                    Unflushed::Charge { operation, .. } if is_lost => submit(operation),
                    Unflushed::Charge { operation, reply } => {
                        let _ = operation.complete(Ok(reply));
                    }
                    Unflushed::End(operation) => {
                        self.kept.fetch_sub(1, Relaxed);
                        if is_lost {
                            ends += 1;
                            submit(operation);
                        }
                    }
                    Unflushed::Hold => {}
                }
            }
            if has_crashed {
                let renewals = inner.open_calls.renewals();
                tracing::warn!(
                    ends,
                    holds = renewals.len(),
                    "PostgreSQL has crashed and restarted: the last ends of calls are sent again, and the holds of running \
                    calls are renewed"
                );
                renewals.into_iter().for_each(&submit);
            }
        }
    }

    /// The operations for the next flush: at once if there is a charge among them, else after a moment.
    async fn next(&mut self) -> Option<Vec<Committed>> {
        let first = self.queue.recv().await?;
        let mut is_urgent = matches!(first.0, Unflushed::Charge { .. });
        let mut waiting = vec![first];
        let due = Instant::now() + LAZY_INTERVAL;
        while !is_urgent {
            match timeout_at(due, self.queue.recv()).await {
                Ok(Some(next)) => {
                    is_urgent = matches!(next.0, Unflushed::Charge { .. });
                    waiting.push(next);
                }
                Ok(None) | Err(_) => break,
            }
        }
        while let Ok(next) = self.queue.try_recv() {
            waiting.push(next);
        }
        Some(waiting)
    }
}

/// Flushes, retrying for as long as it takes; returns the server's incarnation.
async fn until_flushed(inner: &Arc<Inner>, connection: &mut Option<Connected>) -> i64 {
    let mut flushing = Outage::new("flushing the database, for which charges wait,");
    loop {
        match flush(inner, connection).await {
            Ok(life) => {
                flushing.works();
                return life;
            }
            Err(error) => {
                *connection = None;
                flushing.fails(&error);
                tokio::time::sleep(TRIAL_INTERVAL).await;
            }
        }
    }
}

async fn flush(inner: &Inner, connection: &mut Option<Connected>) -> Result<i64, Error> {
    let open = match connection.take() {
        Some(open) if !open.is_closed() => open,
        _ => inner.address.connect().await?,
    };
    let query = open.query_typed("SELECT flush_all()", &[]);
    let rows = timeout(TIMEOUT, query)
        .await
        .map_err(|_| Error::TimedOut)??;
    let row = rows.first().ok_or(Error::TimedOut)?;
    let life = row.try_get(0)?;
    *connection = Some(open);
    Ok(life)
}
