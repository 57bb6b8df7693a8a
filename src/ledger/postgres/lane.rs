//! A lane: one connection that sends batches. While a batch is under way, operations are queued for the next one.
//!
//! A batch is sent until its reply is received. If the connection breaks, it is unknown whether the batch was executed,
//! so it is sent again, and the database recognizes operations that it has executed before. A hold whose caller no
//! longer waits is dropped or cancelled; operations that end a call are retried for as long as it takes.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use tokio::{
    sync::{mpsc, oneshot},
    time::timeout,
};
use tokio_postgres::types::Type;

use super::{
    Inner,
    operations::{BatchReply, Kind, Operation, OperationError},
};
use crate::{
    base::{durability::Durability, fast_map::FastSet},
    db::postgres::{Connected, Error},
    ledger::CallId,
};

/// The most operations in one batch, and the bytes from which on it takes no further ones: charges may have responses.
const MAX_BATCH: usize = 256;
const MAX_BATCH_BYTES: usize = 4 << 20;
/// Interval of probes of a database that failed.
const TRIAL_INTERVAL: Duration = Duration::from_millis(100);

const EXECUTE_BATCH: &str = "SELECT execute_batch($1, $2, $3, $4, $5, $6, $7::text::jsonb)::text";
const TYPES: [Type; 7] = [
    Type::INT8,
    Type::INT4,
    Type::INT8,
    Type::INT4,
    Type::INT8,
    Type::INT8,
    Type::TEXT,
];

/// A message to a lane's task.
pub(crate) enum Message {
    Operation(Operation),
    /// Replies when everything queued before is done.
    Barrier(oneshot::Sender<()>),
}

/// The sending end of a lane's queue.
pub(crate) struct Lane {
    queue: mpsc::UnboundedSender<Message>,
    /// The last batch failed.
    failing: Arc<AtomicBool>,
}

impl Lane {
    /// Starts the lane's task, which runs until the lane is dropped and all queued operations are done.
    pub(crate) fn start(number: i32, inner: Arc<Inner>) -> Self {
        let (queue, receiver) = mpsc::unbounded_channel();
        let failing = Arc::<AtomicBool>::default();
        let task = LaneTask {
            number,
            inner,
            queue: receiver,
            requeue: queue.downgrade(),
            failing: failing.clone(),
            connection: None,
        };
        tokio::spawn(task.run());
        Self { queue, failing }
    }

    pub(crate) fn is_healthy(&self) -> bool {
        !self.failing.load(Relaxed)
    }

    pub(crate) fn submit(&self, operation: Operation) {
        let _ = self.queue.send(Message::Operation(operation));
    }

    /// Waits until everything queued before is done.
    pub(crate) async fn drained(&self) {
        let (reply, done) = oneshot::channel();
        let _ = self.queue.send(Message::Barrier(reply));
        let _ = done.await;
    }

    /// A sender that does not keep the lane open.
    pub(crate) fn weak(&self) -> mpsc::WeakUnboundedSender<Message> {
        self.queue.downgrade()
    }
}

struct LaneTask {
    number: i32,
    inner: Arc<Inner>,
    queue: mpsc::UnboundedReceiver<Message>,
    requeue: mpsc::WeakUnboundedSender<Message>,
    failing: Arc<AtomicBool>,
    connection: Option<Connected>,
}

impl LaneTask {
    async fn run(mut self) {
        self.probe().await;
        loop {
            let first = if self.failing.load(Relaxed) {
                let Ok(first) = timeout(TRIAL_INTERVAL, self.queue.recv()).await else {
                    self.probe().await;
                    continue;
                };
                first
            } else {
                tokio::select! {
                    biased;
                    first = self.queue.recv() => first,
                    // A closed connection is noticed at once, not by the next batch.
                    () = lost(self.connection.as_ref()) => {
                        self.connection = None;
                        self.set_failing(&Error::Broken("it was closed".into()));
                        continue;
                    }
                }
            };
            let Some(first) = first else { return };
            let (mut batch, mut waiting) = (Vec::new(), Vec::new());
            let (mut next, mut bytes) = (Some(first), 0);
            while let Some(message) = next {
                match message {
                    Message::Operation(operation) => {
                        bytes += operation.bytes();
                        batch.push(operation);
                    }
                    Message::Barrier(reply) => waiting.push(reply),
                }
                next = if batch.len() < MAX_BATCH && bytes < MAX_BATCH_BYTES {
                    self.queue.try_recv().ok()
                } else {
                    None
                };
            }
            let (operations, started) = (batch.len(), Instant::now());
            self.drop_needless_renewals(&mut batch);
            self.inner.health.begins();
            self.execute(batch).await;
            self.inner.health.ends(operations, started.elapsed());
            for reply in waiting {
                let _ = reply.send(());
            }
        }
    }

    /// Removes renewals of calls that have ended or that have another operation in the same batch. Such a renewal would
    /// be applied too late: holds are inserted at the end of a batch, after the operations that end their calls.
    fn drop_needless_renewals(&self, batch: &mut Vec<Operation>) {
        if !batch.iter().any(|operation| operation.kind == Kind::Renew) {
            return;
        }
        let others = batch
            .iter()
            .filter(|operation| operation.kind != Kind::Renew);
        let others: FastSet<CallId> = others.map(|operation| operation.id).collect();
        let mut renewed = FastSet::default();
        batch.retain(|operation| {
            operation.kind != Kind::Renew
                || self.inner.open_calls.contains(operation.id)
                    && !others.contains(&operation.id)
                    && renewed.insert(operation.id)
        });
    }

    /// Sends a batch until its reply is received.
    async fn execute(&mut self, mut batch: Vec<Operation>) {
        loop {
            batch.retain(|operation| !operation.is_abandoned());
            if batch.is_empty() {
                return;
            }
            // Batches lock accounts in the order of their IDs. Replies come in the order of the operations.
            batch.sort_by(|one, other| one.account_id.cmp(&other.account_id));
            match self.send(&mut batch).await {
                Ok(replies) => {
                    self.set_healthy();
                    return self.complete(batch, replies);
                }
                Err(error) if error.is_transient() => {
                    self.connection = None;
                    self.set_failing(&error);
                    tokio::time::sleep(TRIAL_INTERVAL).await;
                }
                // One of the operations is invalid: bisect the batch to find it.
                Err(_) if batch.len() > 1 => {
                    let rest = batch.split_off(batch.len() / 2);
                    Box::pin(self.execute(batch)).await;
                    return Box::pin(self.execute(rest)).await;
                }
                Err(error) => {
                    let operation = batch.remove(0);
                    let _ = operation.complete(Err(OperationError(error.to_string())));
                    return;
                }
            }
        }
    }

    async fn send(&mut self, batch: &mut [Operation]) -> Result<BatchReply, Error> {
        let connection = match self.connection.take() {
            Some(connection) if !connection.is_closed() => connection,
            _ => self.inner.address.connect().await?,
        };
        let text = encode(batch);
        for operation in batch.iter_mut() {
            operation.mark_sent();
        }
        let (number, lease) = (self.inner.next_batch(), self.inner.lease.load());
        let now = self.inner.clock.manual_now();
        let parameters: [&(dyn tokio_postgres::types::ToSql + Sync); 7] = [
            &self.inner.run,
            &self.number,
            &number,
            &lease.slot,
            &lease.epoch,
            &now,
            &text,
        ];
        let typed: Vec<_> = parameters.into_iter().zip(TYPES).collect();
        let query = connection.query_typed(EXECUTE_BATCH, &typed);
        let rows = timeout(self.inner.timeout(), query)
            .await
            .map_err(|_| Error::TimedOut)??;
        self.connection = Some(connection);
        let row = rows.first().ok_or_else(unreadable)?;
        let reply: BatchReply = serde_json::from_str(row.try_get(0)?).map_err(|_| unreadable())?;
        if reply.replies.len() != batch.len() {
            return Err(unreadable());
        }
        Ok(reply)
    }

    fn complete(&self, batch: Vec<Operation>, reply: BatchReply) {
        let life = reply.life;
        for (operation, reply) in batch.into_iter().zip(reply.replies) {
            let flusher = &self.inner.flusher;
            // A charge counts once it is on the disk.
            if operation.kind == Kind::Charge && self.inner.durability == Durability::Power {
                flusher.flush_then_reply(operation, reply, life);
                continue;
            }
            // A crash of the server may undo this operation: keep it until it is on the disk.
            if operation.ends_call() {
                flusher.keep_until_flushed(operation.repeat(), life);
            } else {
                flusher.hold_committed(life);
            }
            if let Some(cancellation) = operation.complete(Ok(reply)) {
                self.submit_again(cancellation);
            }
        }
    }

    fn submit_again(&self, operation: Operation) {
        if let Some(queue) = self.requeue.upgrade() {
            self.inner.health.queued();
            let _ = queue.send(Message::Operation(operation));
        }
    }

    fn set_healthy(&self) {
        if self.failing.swap(false, Relaxed) {
            self.inner.lane_recovered();
        }
    }

    fn set_failing(&self, error: &Error) {
        if !self.failing.swap(true, Relaxed) {
            self.inner.lane_failed(error);
        }
    }

    /// Checks whether the database can be written again; used while there is nothing to write.
    async fn probe(&mut self) {
        let probe = async {
            let connection = match self.connection.take() {
                Some(connection) if !connection.is_closed() => connection,
                _ => self.inner.address.connect().await?,
            };
            let query = connection.query_typed("SELECT flush_all()", &[]);
            timeout(self.inner.timeout(), query)
                .await
                .map_err(|_| Error::TimedOut)??;
            self.connection = Some(connection);
            Ok::<_, Error>(())
        };
        if probe.await.is_ok() {
            self.set_healthy();
        }
    }
}

/// Returns when the connection is lost.
async fn lost(connection: Option<&Connected>) {
    match connection {
        Some(connection) => connection.closed().await,
        None => std::future::pending().await,
    }
}

/// Encodes operations, which are sorted by account, as a list.
fn encode(batch: &[Operation]) -> String {
    let mut text = String::from("[");
    for operation in batch {
        if text.len() > 1 {
            text.push(',');
        }
        operation.write_to(&mut text);
    }
    text.push(']');
    text
}

fn unreadable() -> Error {
    Error::Unexpected("the reply to a batch cannot be parsed by this version".into())
}
