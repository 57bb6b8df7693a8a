//! One flush of the database's disk for all that was committed before it.
//!
//! Batches are committed without waiting for the disk. Charges wait here for a flush. The steps that end
//! a call are kept here until one: nobody waits for them, so they go along with the next charge or after
//! a second. If the server crashed between commit and flush it has another life than the batch was told;
//! then all of them are taken once more, and the holds of running calls are renewed.

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
    steps::{Answer, Step},
};
use crate::db::postgres::{Connected, Error};

/// How long a flush may take before its connection is given up.
const TIMEOUT: Duration = Duration::from_secs(2);
const TRIAL_INTERVAL: Duration = Duration::from_millis(100);
/// How long what nobody waits for may stay unflushed.
const LAZY_INTERVAL: Duration = Duration::from_secs(1);
/// The most steps that are kept for the case of a crash. Beyond it, which takes a disk that hangs, what a
/// crash undoes is left to the audit.
const MOST_KEPT: usize = 50_000;

/// Something that is committed and may not be on the disk yet.
enum Unflushed {
    /// A charge, and whoever waits for it.
    Charge { step: Step, answer: Answer },
    /// The end of a call, to be taken once more if it is lost.
    End(Step),
    /// A hold, which its call knows of.
    Hold,
}

/// With the server's life in which it was committed.
type Committed = (Unflushed, i64);

/// Where they wait.
pub struct Flusher {
    queue: mpsc::UnboundedSender<Committed>,
    kept: Arc<AtomicUsize>,
    /// A hold is waiting for a flush already.
    has_hold: Arc<AtomicBool>,
}

/// What becomes of them.
pub struct Waiting {
    queue: mpsc::UnboundedReceiver<Committed>,
    kept: Arc<AtomicUsize>,
    has_hold: Arc<AtomicBool>,
}

impl Flusher {
    pub fn new() -> (Self, Waiting) {
        let (sender, receiver) = mpsc::unbounded_channel();
        let (kept, has_hold) = (Arc::<AtomicUsize>::default(), Arc::<AtomicBool>::default());
        let waiting = Waiting {
            queue: receiver,
            kept: kept.clone(),
            has_hold: has_hold.clone(),
        };
        let flusher = Self {
            queue: sender,
            kept,
            has_hold,
        };
        (flusher, waiting)
    }

    /// A charge that is answered once it is on the disk.
    pub fn wait_for(&self, step: Step, answer: Answer, life: i64) {
        let _ = self.queue.send((Unflushed::Charge { step, answer }, life));
    }

    /// The end of a call that was answered already.
    pub fn remember(&self, step: Step, life: i64) {
        if self.kept.fetch_add(1, Relaxed) < MOST_KEPT {
            let _ = self.queue.send((Unflushed::End(step), life));
        } else {
            self.kept.fetch_sub(1, Relaxed);
        }
    }

    /// A hold was made or changed.
    pub fn has_news(&self, life: i64) {
        if !self.has_hold.swap(true, Relaxed) {
            let _ = self.queue.send((Unflushed::Hold, life));
        }
    }
}

impl Waiting {
    /// Works as long as the ledger lives. `hand_in` takes the steps that a crash may have undone.
    pub async fn run(mut self, inner: Weak<Inner>, hand_in: impl Fn(Step)) {
        let mut connection = None;
        while let Some(waiting) = self.next().await {
            let Some(inner) = inner.upgrade() else { return };
            // What is committed from here on needs a flush of its own.
            self.has_hold.store(false, Relaxed);
            let life = until_flushed(&inner, &mut connection).await;
            let (mut ends, mut has_crashed) = (0, false);
            for (unflushed, committed_in) in waiting {
                let is_lost = committed_in != life;
                has_crashed |= is_lost;
                match unflushed {
                    Unflushed::Charge { step, .. } if is_lost => hand_in(step),
                    Unflushed::Charge { step, answer } => {
                        let _ = step.tell(Ok(answer));
                    }
                    Unflushed::End(step) => {
                        self.kept.fetch_sub(1, Relaxed);
                        if is_lost {
                            ends += 1;
                            hand_in(step);
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
                    "PostgreSQL crashed and is back: the last ends of calls are sent again, and the holds of \
                    running calls are renewed"
                );
                renewals.into_iter().for_each(&hand_in);
            }
        }
    }

    /// What one flush is for: at once where somebody waits for it, else after a moment.
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

/// Flushes, however long it takes; says in which life of the server that was.
async fn until_flushed(inner: &Arc<Inner>, connection: &mut Option<Connected>) -> i64 {
    let mut is_first = true;
    loop {
        match flush(inner, connection).await {
            Ok(life) => return life,
            Err(error) => {
                *connection = None;
                if std::mem::take(&mut is_first) {
                    tracing::warn!(%error, "what was committed waits for the database to flush its disk");
                }
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
    let asked = open.query_typed("SELECT flush_all()", &[]);
    let rows = timeout(TIMEOUT, asked)
        .await
        .map_err(|_| Error::TimedOut)??;
    let row = rows.first().ok_or(Error::TimedOut)?;
    let life = row.try_get(0)?;
    *connection = Some(open);
    Ok(life)
}
