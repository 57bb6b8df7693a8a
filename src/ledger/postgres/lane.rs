//! One stream of batches: while one is under way, what arrives waits; then all of it goes into the next.
//!
//! A batch is sent until it is heard. When the connection breaks nobody knows whether it was done, so it
//! is sent again, and the database knows what it has done before. A hold that nobody waits for any
//! more is forgotten; what must only be done (the end of a call) is done however long it takes.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
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
    steps::{Answers, Kind, Step, StepError},
};
use crate::{
    base::{durability::Durability, fast_map::FastSet},
    db::postgres::{Connected, Error},
    ledger::CallId,
};

/// The most steps in one batch.
const MAX_BATCH: usize = 256;
/// How often a database that failed is tried again.
const TRIAL_INTERVAL: Duration = Duration::from_millis(100);

const TAKE_STEPS: &str = "SELECT take_steps($1, $2, $3, $4, $5, $6, $7::text::jsonb)::text";
const TYPES: [Type; 7] = [
    Type::INT8,
    Type::INT4,
    Type::INT8,
    Type::INT4,
    Type::INT8,
    Type::INT8,
    Type::TEXT,
];

/// What a lane is told.
pub enum Told {
    Step(Step),
    /// Someone wants to know when all before it is done.
    Tell(oneshot::Sender<()>),
}

/// Where steps are handed in.
pub struct Lane {
    queue: mpsc::UnboundedSender<Told>,
    /// The last batch failed.
    unwell: Arc<AtomicBool>,
}

impl Lane {
    /// Works until the lane is dropped and all that was handed in is done.
    pub fn start(number: i32, inner: Arc<Inner>) -> Self {
        let (queue, steps) = mpsc::unbounded_channel();
        let unwell = Arc::<AtomicBool>::default();
        let work = Work {
            number,
            inner,
            steps,
            again: queue.downgrade(),
            unwell: unwell.clone(),
            connection: None,
        };
        tokio::spawn(work.run());
        Self { queue, unwell }
    }

    pub fn is_well(&self) -> bool {
        !self.unwell.load(Relaxed)
    }

    pub fn hand_in(&self, step: Step) {
        let _ = self.queue.send(Told::Step(step));
    }

    /// Returns once everything that was handed in before is done.
    pub async fn all_done(&self) {
        let (tell, done) = oneshot::channel();
        let _ = self.queue.send(Told::Tell(tell));
        let _ = done.await;
    }

    /// For whoever must not keep the lane open.
    pub fn weak(&self) -> mpsc::WeakUnboundedSender<Told> {
        self.queue.downgrade()
    }
}

struct Work {
    number: i32,
    inner: Arc<Inner>,
    steps: mpsc::UnboundedReceiver<Told>,
    again: mpsc::WeakUnboundedSender<Told>,
    unwell: Arc<AtomicBool>,
    connection: Option<Connected>,
}

impl Work {
    async fn run(mut self) {
        self.try_again().await;
        loop {
            let first = if self.unwell.load(Relaxed) {
                let Ok(first) = timeout(TRIAL_INTERVAL, self.steps.recv()).await else {
                    self.try_again().await;
                    continue;
                };
                first
            } else {
                tokio::select! {
                    biased;
                    first = self.steps.recv() => first,
                    // Nobody need ask to know that nobody would answer.
                    () = lost(self.connection.as_ref()) => {
                        self.connection = None;
                        self.is_unwell(&Error::Broken("it was closed".into()));
                        continue;
                    }
                }
            };
            let Some(first) = first else { return };
            let (mut batch, mut waiting) = (Vec::new(), Vec::new());
            let mut next = Some(first);
            while let Some(told) = next {
                match told {
                    Told::Step(step) => batch.push(step),
                    Told::Tell(tell) => waiting.push(tell),
                }
                next = if batch.len() < MAX_BATCH {
                    self.steps.try_recv().ok()
                } else {
                    None
                };
            }
            let (steps, started) = (batch.len(), Instant::now());
            self.drop_needless_renewals(&mut batch);
            self.inner.health.begins();
            self.take(batch).await;
            self.inner.health.ends(steps, started.elapsed());
            for tell in waiting {
                let _ = tell.send(());
            }
        }
    }

    /// A renewal is for a call that runs. Where the call has ended, or has another step in the same batch, the
    /// renewal would come too late: holds are written at the end of a batch, after what ends their call.
    fn drop_needless_renewals(&self, batch: &mut Vec<Step>) {
        if !batch.iter().any(|step| step.kind == Kind::Renew) {
            return;
        }
        let others = batch.iter().filter(|step| step.kind != Kind::Renew);
        let others: FastSet<CallId> = others.map(|step| step.id).collect();
        let mut renewed = FastSet::default();
        batch.retain(|step| {
            step.kind != Kind::Renew
                || self.inner.open_calls.contains(step.id)
                    && !others.contains(&step.id)
                    && renewed.insert(step.id)
        });
    }

    /// Sends a batch until it is heard.
    async fn take(&mut self, mut batch: Vec<Step>) {
        loop {
            batch.retain(|step| !step.is_idle());
            if batch.is_empty() {
                return;
            }
            // The answers come in the order in which the steps are sent.
            batch.sort_by(|one, other| one.account_id.cmp(&other.account_id));
            match self.send(&mut batch).await {
                Ok(answers) => {
                    self.is_well();
                    return self.tell(batch, answers);
                }
                Err(error) if error.is_transient() => {
                    self.connection = None;
                    self.is_unwell(&error);
                    tokio::time::sleep(TRIAL_INTERVAL).await;
                }
                // One of them is a step that the database will not have, whichever it is.
                Err(_) if batch.len() > 1 => {
                    let rest = batch.split_off(batch.len() / 2);
                    Box::pin(self.take(batch)).await;
                    return Box::pin(self.take(rest)).await;
                }
                Err(error) => {
                    let step = batch.remove(0);
                    let _ = step.tell(Err(StepError(error.to_string())));
                    return;
                }
            }
        }
    }

    async fn send(&mut self, batch: &mut [Step]) -> Result<Answers, Error> {
        let connection = match self.connection.take() {
            Some(connection) if !connection.is_closed() => connection,
            _ => self.inner.address.connect().await?,
        };
        let text = written(batch);
        for step in batch.iter_mut() {
            step.is_sent();
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
        let asked = connection.query_typed(TAKE_STEPS, &typed);
        let rows = timeout(self.inner.timeout(), asked)
            .await
            .map_err(|_| Error::TimedOut)??;
        self.connection = Some(connection);
        let row = rows.first().ok_or_else(unreadable)?;
        let answers: Answers = serde_json::from_str(row.try_get(0)?).map_err(|_| unreadable())?;
        if answers.answers.len() != batch.len() {
            return Err(unreadable());
        }
        Ok(answers)
    }

    fn tell(&self, batch: Vec<Step>, answers: Answers) {
        let life = answers.life;
        for (step, answer) in batch.into_iter().zip(answers.answers) {
            let flusher = &self.inner.flusher;
            // A charge counts once it is on the disk.
            if step.kind == Kind::Charge && self.inner.durability == Durability::Power {
                flusher.wait_for(step, answer, life);
                continue;
            }
            // What a crash of the server may undo is kept until it is on the disk.
            if step.ends_call() {
                flusher.remember(step.repetition(), life);
            } else {
                flusher.has_news(life);
            }
            if let Some(forget) = step.tell(Ok(answer)) {
                self.hand_in_again(forget);
            }
        }
    }

    fn hand_in_again(&self, step: Step) {
        if let Some(queue) = self.again.upgrade() {
            self.inner.health.queued();
            let _ = queue.send(Told::Step(step));
        }
    }

    fn is_well(&self) {
        if self.unwell.swap(false, Relaxed) {
            self.inner.lane_is_well();
        }
    }

    fn is_unwell(&self, error: &Error) {
        if !self.unwell.swap(true, Relaxed) {
            self.inner.lane_is_unwell(error);
        }
    }

    /// Whether the database can be written again, while nothing is to be written.
    async fn try_again(&mut self) {
        let tried = async {
            let connection = match self.connection.take() {
                Some(connection) if !connection.is_closed() => connection,
                _ => self.inner.address.connect().await?,
            };
            let asked = connection.query_typed("SELECT flush_all()", &[]);
            timeout(self.inner.timeout(), asked)
                .await
                .map_err(|_| Error::TimedOut)??;
            self.connection = Some(connection);
            Ok::<_, Error>(())
        };
        if tried.await.is_ok() {
            self.is_well();
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

/// The steps by account, accounts in order: `[{"a": "acct_…", "s": […]}, …]`.
fn written(batch: &[Step]) -> String {
    let mut by_account: BTreeMap<&str, Vec<&Step>> = BTreeMap::new();
    for step in batch {
        by_account.entry(&step.account_id).or_default().push(step);
    }
    let mut text = String::from("[");
    for (account_id, steps) in by_account {
        if text.len() > 1 {
            text.push(',');
        }
        // Account IDs are ours: letters and digits.
        let _ = write!(text, "{{\"a\":{},\"s\":[", serde_json::json!(account_id));
        for (at, step) in steps.into_iter().enumerate() {
            if at > 0 {
                text.push(',');
            }
            step.write_to(&mut text);
        }
        text.push_str("]}");
    }
    text.push(']');
    text
}

fn unreadable() -> Error {
    Error::Unexpected("a batch was answered in words that this version does not know".into())
}
