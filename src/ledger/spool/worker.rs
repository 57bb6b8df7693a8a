//! The thread that reads and writes the spool files.

use std::{
    collections::HashMap,
    fs::DirBuilder,
    io,
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
    sync::{Arc, mpsc::Receiver},
};

use tokio::sync::oneshot;

use super::{
    Counts,
    file::SpoolFile,
    record::{self, Contents, position},
};
use crate::{
    base::money::NanoUsd,
    ledger::{CallId, PendingCharge},
};

pub(crate) enum Command {
    Add {
        id: CallId,
        cost: NanoUsd,
        line: Vec<u8>,
        reply: oneshot::Sender<io::Result<()>>,
    },
    Remove(CallId),
    Adopt(oneshot::Sender<Vec<PendingCharge>>),
    /// Replies when all earlier commands are done.
    Barrier(oneshot::Sender<()>),
}

/// A charge to be written.
struct NewCharge {
    id: CallId,
    cost: NanoUsd,
    line: Vec<u8>,
    reply: oneshot::Sender<io::Result<()>>,
}

pub(crate) struct Worker {
    folder: PathBuf,
    counts: Arc<Counts>,
    own: Option<SpoolFile>,
    /// Offset in the file and cost of each pending charge.
    waiting: HashMap<CallId, (u64, NanoUsd)>,
}

impl Worker {
    pub(crate) fn new(folder: PathBuf, counts: Arc<Counts>) -> Self {
        Self {
            folder,
            counts,
            own: None,
            waiting: HashMap::new(),
        }
    }

    /// Runs until all senders are dropped.
    pub(crate) fn run(mut self, commands: &Receiver<Command>) {
        while let Ok(first) = commands.recv() {
            let mut new = Vec::new();
            for command in std::iter::once(first).chain(commands.try_iter()) {
                if let Command::Add {
                    id,
                    cost,
                    line,
                    reply,
                } = command
                {
                    new.push(NewCharge {
                        id,
                        cost,
                        line,
                        reply,
                    });
                    continue;
                }
                // Commands are executed in order: a removal may refer to a charge that was just added.
                self.add(std::mem::take(&mut new));
                match command {
                    Command::Add { .. } => {}
                    Command::Remove(id) => self.remove(id),
                    Command::Adopt(reply) => drop(reply.send(self.adopt())),
                    Command::Barrier(reply) => {
                        self.tidy_up();
                        let _ = reply.send(());
                    }
                }
            }
            self.add(new);
            self.tidy_up();
        }
    }

    /// Empties the file if no charge is pending.
    fn tidy_up(&mut self) {
        if self.waiting.is_empty()
            && let Some(own) = &mut self.own
        {
            own.clear();
        }
    }

    /// Writes all charges with one flush; if that fails, one by one, because there may be space for some.
    fn add(&mut self, new: Vec<NewCharge>) {
        if new.is_empty() {
            return;
        }
        let lines = new.iter().map(|new| new.line.as_slice());
        match self.append(&lines.collect::<Vec<_>>().concat()) {
            Ok(mut at) => {
                for new in new {
                    let length = position(new.line.len());
                    self.confirm(new, at);
                    at += length;
                }
            }
            Err(_) if new.len() > 1 => {
                for new in new {
                    self.add(vec![new]);
                }
            }
            Err(error) => {
                for new in new {
                    let _ = new
                        .reply
                        .send(Err(io::Error::new(error.kind(), error.to_string())));
                }
            }
        }
    }

    fn append(&mut self, lines: &[u8]) -> io::Result<u64> {
        self.own()?.append(lines)
    }

    fn confirm(&mut self, new: NewCharge, at: u64) {
        self.track(new.id, at, new.cost);
        // A caller that no longer waits removes the charge again.
        let _ = new.reply.send(Ok(()));
    }

    fn track(&mut self, id: CallId, at: u64, cost: NanoUsd) {
        // A crash may have left the charge in two files.
        if let Some((_, before)) = self.waiting.insert(id, (at, cost)) {
            self.counts.remove(before);
        }
        self.counts.add(cost);
    }

    fn remove(&mut self, id: CallId) {
        if let Some((at, cost)) = self.waiting.remove(&id) {
            self.counts.remove(cost);
            if let Some(own) = &mut self.own {
                own.settled(at);
            }
        }
    }

    /// The file of this process; creates it if there is none.
    fn own(&mut self) -> io::Result<&mut SpoolFile> {
        if self.own.is_none() {
            make_folder(&self.folder)?;
            let own = SpoolFile::create(&self.folder)?;
            self.set_own(own);
        }
        self.own
            .as_mut()
            .ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn set_own(&mut self, mut own: SpoolFile) {
        own.reserve();
        *self.counts.file() = Some(own.path.clone());
        self.own = Some(own);
    }

    /// Takes over files that no process has locked. The first becomes this process's own; others are copied into it.
    fn adopt(&mut self) -> Vec<PendingCharge> {
        let mut adopted = Vec::new();
        let files = make_folder(&self.folder).and_then(|()| files_in(&self.folder));
        for path in files.unwrap_or_default() {
            if self.own.as_ref().is_some_and(|own| own.path == path) {
                continue;
            }
            let taken = SpoolFile::take(&path);
            let merged = taken.and_then(|taken| {
                taken.map_or(Ok(Vec::new()), |(file, contents)| {
                    self.merge(file, contents)
                })
            });
            match merged {
                Ok(pending) => adopted.extend(pending),
                Err(error) => {
                    tracing::error!(
                        %error,
                        "the spool {} could not be taken over; its charges stay unsettled",
                        path.display()
                    );
                }
            }
        }
        if let Err(error) = self.own() {
            let folder = self.folder.display();
            tracing::error!(
                %error,
                "the spool {folder} cannot be written; if a charge cannot be committed either, its stream ends with an \
                 error and is not charged"
            );
        }
        adopted
    }

    fn merge(&mut self, file: SpoolFile, contents: Contents) -> io::Result<Vec<PendingCharge>> {
        let mut found = contents.found;
        if self.own.is_none() {
            self.set_own(file);
        } else {
            // All or none: if the copy fails, the charges stay in their file.
            let lines: Vec<_> = found
                .iter()
                .map(|(_, pending)| record::encode(pending))
                .collect();
            let mut next = self.append(&lines.concat())?;
            for ((at, _), line) in found.iter_mut().zip(lines) {
                *at = next;
                next += position(line.len());
            }
            file.remove()?;
        }
        for (at, pending) in &found {
            self.track(pending.call.id, *at, pending.cost);
        }
        Ok(found.into_iter().map(|(_, pending)| pending).collect())
    }
}

fn make_folder(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

/// The spool files in a folder, sorted by name.
pub(crate) fn files_in(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|ending| ending == "spool") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}
