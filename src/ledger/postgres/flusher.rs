//! One flush of the database's disk for all charges that wait for one.
//!
//! Batches are committed without waiting for the disk. A flush afterwards covers all that were committed
//! before it, unless the server crashed in between: then it has another life than the batch was told,
//! and the charge is made again.

use std::sync::Arc;

use tokio::{sync::mpsc, time::timeout};

use super::{
    Inner,
    steps::{Answer, Step},
};
use crate::postgres::{Connected, Error};

/// How long a flush may take before its connection is given up.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(2);
const TRIAL_INTERVAL: std::time::Duration = std::time::Duration::from_millis(100);

/// A charge that is committed and may not be on the disk yet.
pub struct Unflushed {
    pub step: Step,
    pub answer: Answer,
    /// The server's, when it was committed.
    pub life: i64,
}

/// Where charges wait.
pub struct Flusher(mpsc::UnboundedSender<Unflushed>);

/// What becomes of them.
pub struct Waiting(mpsc::UnboundedReceiver<Unflushed>);

impl Flusher {
    pub fn new() -> (Self, Waiting) {
        let (sender, receiver) = mpsc::unbounded_channel();
        (Self(sender), Waiting(receiver))
    }

    pub fn wait_for(&self, charge: Unflushed) {
        let _ = self.0.send(charge);
    }
}

impl Waiting {
    /// Works as long as the ledger lives. `make_again` takes charges that a crash may have undone.
    pub async fn run(mut self, inner: std::sync::Weak<Inner>, make_again: impl Fn(Step)) {
        let mut connection = None;
        while let Some(first) = self.0.recv().await {
            let mut waiting = vec![first];
            while let Ok(charge) = self.0.try_recv() {
                waiting.push(charge);
            }
            let Some(inner) = inner.upgrade() else { return };
            let life = until_flushed(&inner, &mut connection).await;
            for Unflushed {
                step,
                answer,
                life: committed_in,
            } in waiting
            {
                if committed_in == life {
                    let _ = step.tell(Ok(answer));
                } else {
                    make_again(step);
                }
            }
        }
    }
}

/// Flushes, however long it takes; says in which life of the server that was.
async fn until_flushed(inner: &Arc<Inner>, connection: &mut Option<Connected>) -> i64 {
    loop {
        match flush(inner, connection).await {
            Ok(life) => return life,
            Err(error) => {
                *connection = None;
                tracing::warn!(%error, "charges wait for the database to flush its disk");
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
    let rows = timeout(PATIENCE, asked)
        .await
        .map_err(|_| Error::TimedOut)??;
    let row = rows.first().ok_or(Error::TimedOut)?;
    let life = row.try_get(0)?;
    *connection = Some(open);
    Ok(life)
}
