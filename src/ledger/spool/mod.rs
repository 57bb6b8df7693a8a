//! Charges that wait for their store, in a file of the gateway's own.
//!
//! A stream whose response was delivered is owed, though the store cannot be written. Its charge is appended here and
//! flushed to the disk before the stream ends, so that neither a stop nor a crash loses it; once it is settled in the
//! store it is taken out. What a process leaves behind is settled by the next one that is given the folder. The ledger
//! settles a call once, by its number, so a charge that came about after all is not made again.
//!
//! One thread does the writing, and flushes once for all that wait: nothing here is on the path of a normal request.

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
mod worker;

pub use probe::probe;

use self::worker::{Command, Worker};
use crate::{
    base::money::NanoUsd,
    ledger::{CallId, PendingCharge},
};

/// How long a stream's end waits for its charge to be on the disk.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(5);

/// The charges that wait, of this process and of those whose files it has taken over.
pub struct Spool {
    /// Always there until the spool is dropped.
    commands: Option<mpsc::Sender<Command>>,
    thread: Option<JoinHandle<()>>,
    counts: Arc<Counts>,
    folder: PathBuf,
}

/// What others may know without asking the thread.
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
    pub fn new(folder: &Path) -> Self {
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

    /// Takes over the files in the folder that no process holds, and returns the charges in them. They wait here until
    /// [`Self::settled`] says otherwise.
    pub async fn adopt(&self) -> Vec<PendingCharge> {
        let (tell, adopted) = oneshot::channel();
        self.send(Command::Adopt(tell));
        adopted.await.unwrap_or_default()
    }

    /// Writes a charge down; when this returns without an error it is on the disk.
    ///
    /// Dropped before that, or after an error, the charge is not in the spool.
    pub async fn add(&self, owed: &PendingCharge) -> io::Result<()> {
        let (tell, written) = oneshot::channel();
        let withdrawn = Withdrawn {
            spool: self,
            id: Some(owed.call.id),
        };
        self.send(Command::Add {
            id: owed.call.id,
            cost: owed.cost,
            line: record::encode(owed),
            tell,
        });
        let written = timeout(FLUSH_TIMEOUT, written).await;
        let written = written.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?;
        written.map_err(|_| io::Error::other("the spool has stopped"))??;
        withdrawn.keep();
        Ok(())
    }

    /// The charge is settled in the store: it waits no longer.
    pub fn settled(&self, id: CallId) {
        self.send(Command::Remove(id));
    }

    /// How many charges wait, and what they come to.
    pub fn waiting(&self) -> (usize, NanoUsd) {
        let nanos = self.counts.nanos.load(Relaxed);
        (self.counts.waiting.load(Relaxed), NanoUsd::new(nanos))
    }

    /// Once everything that was said before is done: what to tell whoever stopped the gateway, if charges wait.
    pub async fn left_behind(&self) -> Option<String> {
        let (tell, done) = oneshot::channel();
        self.send(Command::Tell(tell));
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
        // Who waits for an answer notices that there will be none.
        if let Some(commands) = &self.commands {
            let _ = commands.send(command);
        }
    }
}

impl Drop for Spool {
    /// Waits for what was said, so that whoever drops the spool can take its file.
    fn drop(&mut self) {
        drop(self.commands.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Takes a charge out again when it is dropped: nobody heard that it was written, so the stream was not finished.
struct Withdrawn<'a> {
    spool: &'a Spool,
    id: Option<CallId>,
}

impl Withdrawn<'_> {
    fn keep(mut self) {
        self.id = None;
    }
}

impl Drop for Withdrawn<'_> {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            self.spool.settled(id);
        }
    }
}
