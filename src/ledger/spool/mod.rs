//! The spool: pending charges in a local file, while the store cannot be written.
//!
//! The charge of a delivered stream is pending even if the store cannot commit it. It is appended here and flushed to
//! the disk before the stream ends, so neither a stop nor a crash loses it; once it is settled in the store it is
//! removed. Charges that a process leaves behind are settled by the next process that uses the folder. The ledger
//! settles a call ID at most once, so a charge that was committed after all is not made again.
//!
//! One thread does the writing, with one flush for all queued charges. Requests use the spool only if their charge
//! cannot be committed.

use std::{
    io,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicI64, AtomicUsize, Ordering::Relaxed},
        mpsc,
    },
    thread::JoinHandle,
    time::Duration,
};

use tokio::{sync::oneshot, time::timeout};

mod file;
mod probe;
mod record;
#[cfg(test)]
mod tests;
mod waiting;
mod worker;

pub(crate) use probe::{count, probe};
pub(crate) use waiting::waiting_in;

use self::worker::{Command, Worker};
use crate::{
    base::money::NanoUsd,
    ledger::{CallId, PendingCharge},
};

/// Timeout of writing a charge, during which the end of its stream is withheld.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(5);

/// The pending charges of this process and of those whose files it has taken over.
pub struct Spool {
    /// `None` only while the spool is being dropped.
    commands: Option<mpsc::Sender<Command>>,
    thread: Option<JoinHandle<()>>,
    counts: Arc<Counts>,
    folder: PathBuf,
}

/// Counters that can be read without waiting for the thread.
#[derive(Default)]
struct Counts {
    waiting: AtomicUsize,
    nanos: AtomicI64,
    /// The file of this process, once there is one.
    file: Mutex<Option<PathBuf>>,
}

impl Counts {
    fn add(&self, cost: NanoUsd) {
        self.waiting.fetch_add(1, Relaxed);
        self.nanos.fetch_add(cost.nanos(), Relaxed);
    }

    fn remove(&self, cost: NanoUsd) {
        self.waiting.fetch_sub(1, Relaxed);
        self.nanos.fetch_sub(cost.nanos(), Relaxed);
    }

    fn file(&self) -> std::sync::MutexGuard<'_, Option<PathBuf>> {
        self.file.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Spool {
    /// Starts the thread. No file is touched before [`Self::adopt`] or [`Self::add`].
    pub(crate) fn new(folder: &Path) -> Self {
        let (commands, received) = mpsc::channel();
        let counts = Arc::<Counts>::default();
        let worker = Worker::new(folder.to_owned(), counts.clone());
        let thread = std::thread::Builder::new()
            .name("spool".into())
            .spawn(move || worker.run(&received))
            .expect("a process that cannot start a thread cannot start at all");
        Self {
            commands: Some(commands),
            thread: Some(thread),
            counts,
            folder: folder.to_owned(),
        }
    }

    /// Takes over the files in the folder that no process has locked, and returns the charges in them. They stay in the
    /// spool until they are reported as [`Self::settled`].
    pub(crate) async fn adopt(&self) -> Vec<PendingCharge> {
        let (reply, adopted) = oneshot::channel();
        self.send(Command::Adopt(reply));
        adopted.await.unwrap_or_default()
    }

    /// Writes a charge; when this returns `Ok` it is on the disk.
    ///
    /// If it returns an error, or its future is dropped, the charge is not in the spool.
    pub(crate) async fn add(&self, pending: &PendingCharge) -> io::Result<()> {
        let (reply, written) = oneshot::channel();
        let withdraw = WithdrawOnDrop {
            spool: self,
            id: Some(pending.call.id),
        };
        self.send(Command::Add {
            id: pending.call.id,
            cost: pending.cost,
            line: record::encode(pending),
            reply,
        });
        let written = timeout(FLUSH_TIMEOUT, written).await;
        let written = written.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?;
        written.map_err(|_| io::Error::other("the spool has stopped"))??;
        withdraw.keep();
        Ok(())
    }

    /// Removes a charge that has been settled in the store.
    pub(crate) fn settled(&self, id: CallId) {
        self.send(Command::Remove(id));
    }

    /// The number of pending charges, and their sum.
    pub(crate) fn waiting(&self) -> (usize, NanoUsd) {
        let nanos = self.counts.nanos.load(Relaxed);
        (self.counts.waiting.load(Relaxed), NanoUsd::new(nanos))
    }

    /// Waits until all earlier commands are done, then returns a message for the operator if charges are pending.
    pub(crate) async fn left_behind(&self) -> Option<String> {
        let (reply, done) = oneshot::channel();
        self.send(Command::Barrier(reply));
        let _ = timeout(FLUSH_TIMEOUT, done).await;
        let (count, amount) = self.waiting();
        let noun = match count {
            0 => return None,
            1 => "charge waits",
            _ => "charges wait",
        };
        let file = self.counts.file().clone();
        let file = file.unwrap_or_else(|| self.folder.clone());
        let file = file.display();
        Some(format!(
            "{count} {noun} in {file} ({amount} USD): the store could not be written. Keep the file; the next start \
             settles what is in it"
        ))
    }

    fn send(&self, command: Command) {
        // If the thread is gone, the reply channel is closed, which the caller handles.
        if let Some(commands) = &self.commands {
            let _ = commands.send(command);
        }
    }
}

impl Drop for Spool {
    /// Waits until all commands are done and the file is unlocked, so that it can be opened again.
    fn drop(&mut self) {
        drop(self.commands.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Removes a charge from the spool when dropped: without a confirmed write its stream was not finished.
struct WithdrawOnDrop<'a> {
    spool: &'a Spool,
    id: Option<CallId>,
}

impl WithdrawOnDrop<'_> {
    fn keep(mut self) {
        self.id = None;
    }
}

impl Drop for WithdrawOnDrop<'_> {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            self.spool.settled(id);
        }
    }
}
