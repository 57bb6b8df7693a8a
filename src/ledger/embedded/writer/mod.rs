//! The writer thread: the only one that changes the ledger, in batches of commands.
//!
//! Commands that arrive while a transaction is being committed go into the next one (group commit): an idle gateway adds
//! no delay, a busy one flushes hundreds of charges to the disk at once.
//!
//! With `durability = "process"`, a charge that need not wait for the disk is committed by the thread that sent it, if no
//! other command is running: waking the writer and being woken by it would take longer than the charge.
//!
//! After a failed transaction nothing has happened: the memory is read again from the database, and no new call is
//! admitted until a trial transaction succeeds.

mod work;

use std::{
    sync::{Arc, Mutex},
    thread::JoinHandle,
};

use tokio::sync::oneshot;

use self::work::Work;
use super::{
    command::{Command, Reply},
    directory::Shared,
    queue::{self, Sender},
    sqlite::Database,
};
use crate::{
    base::durability::Durability,
    ledger::{Health, LedgerError},
};

pub(crate) struct Writer {
    /// `Some` until the writer is dropped.
    commands: Option<Sender<Command>>,
    thread: Option<JoinHandle<()>>,
    health: Arc<Health>,
    /// Writer state; `Some` when request threads may commit directly.
    work: Option<Arc<Mutex<Work>>>,
}

impl Writer {
    pub(crate) fn start(database: Database, directory: Shared, durability: Durability) -> Self {
        let (commands, queue) = queue::new();
        let health = Arc::<Health>::default();
        let is_shared = durability == Durability::Process;
        let work = Work::new(database, directory, health.clone(), is_shared);
        let work = Arc::new(Mutex::new(work));
        let shared = is_shared.then(|| work.clone());
        // It ends when the last sender is dropped. The database closes with the last reference to `work`.
        let thread = std::thread::Builder::new()
            .name("ledger".into())
            .spawn(move || work::run(&work, queue))
            .expect("a process that cannot start a thread cannot start at all");
        Self {
            commands: Some(commands),
            thread: Some(thread),
            health,
            work: shared,
        }
    }

    /// Whether a charge that is sent now can be expected to be committed soon.
    pub(crate) fn takes_charges(&self) -> bool {
        self.health.takes_charges()
    }

    pub(crate) fn health(&self) -> &Health {
        &self.health
    }

    /// Sends a command after all that any thread sent before, and returns its result once it is committed.
    ///
    /// A command that was sent runs to its end, even if this future is dropped.
    pub(crate) async fn execute<T: Send + 'static>(
        &self,
        command: impl FnOnce(Reply<T>) -> Command,
    ) -> Result<T, LedgerError> {
        let (reply, result) = Reply::here();
        self.sender()?.send_after_all(command(reply));
        received(result).await
    }

    /// Executes a short command: on this thread if no other is running, else with the next batch.
    pub(crate) async fn execute_soon<T: Send + 'static>(
        &self,
        command: impl FnOnce(Reply<T>) -> Command,
    ) -> Result<T, LedgerError> {
        let (reply, result) = Reply::here();
        if let Err(command) = self.commit_here(command(reply)) {
            self.sender()?.send(command);
        }
        received(result).await
    }

    /// Sends a command without a reply.
    pub(crate) fn submit(&self, command: Command) {
        match self.sender() {
            Ok(commands) => commands.send(command),
            Err(error) => {
                tracing::error!(%error, "the ledger writer has stopped; a call is missing from the history");
            }
        }
    }

    /// Counts a command as queued.
    fn sender(&self) -> Result<&Sender<Command>, LedgerError> {
        let commands = self.commands.as_ref().ok_or(LedgerError::Stopped)?;
        self.health.queued();
        Ok(commands)
    }

    /// Commits a command on this thread, or returns it if another one is running or waiting.
    #[expect(
        clippy::result_large_err,
        reason = "the error is the command, which goes on to the queue"
    )]
    fn commit_here(&self, command: Command) -> Result<(), Command> {
        let work = self.work.as_ref().filter(|_| self.health.is_quiet());
        let Some(Ok(mut work)) = work.map(|work| work.try_lock()) else {
            return Err(command);
        };
        work.commit_at_once(command)
    }
}

async fn received<T>(result: oneshot::Receiver<Result<T, LedgerError>>) -> Result<T, LedgerError> {
    result.await.map_err(|_| LedgerError::Stopped)?
}

#[cfg(test)]
impl Writer {
    /// Runs any step in a transaction of the writer.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        step: impl FnOnce(&Database, &Shared) -> Result<T, LedgerError> + Send + 'static,
    ) -> Result<T, LedgerError> {
        let (send, value) = oneshot::channel();
        let step = Box::new(move |database: &Database, directory: &Shared| {
            step(database, directory).map(|value| drop(send.send(value)))
        });
        self.execute(|reply| Command::Test(step, reply)).await?;
        value.await.map_err(|_| LedgerError::Stopped)
    }
}

impl Drop for Writer {
    /// Waits for the commands that were sent, so that the database can be opened again afterwards.
    fn drop(&mut self) {
        drop(self.commands.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
