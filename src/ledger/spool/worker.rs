//! The thread that works on the files.

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

pub enum Command {
    Add {
        id: CallId,
        cost: NanoUsd,
        line: Vec<u8>,
        tell: oneshot::Sender<io::Result<()>>,
    },
    Remove(CallId),
    Adopt(oneshot::Sender<Vec<PendingCharge>>),
    /// Someone wants to know when all before it is done.
    Tell(oneshot::Sender<()>),
}

/// A charge that is to be written, and whoever waits for it.
struct New {
    id: CallId,
    cost: NanoUsd,
    line: Vec<u8>,
    tell: oneshot::Sender<io::Result<()>>,
}

pub struct Worker {
    folder: PathBuf,
    counts: Arc<Counts>,
    own: Option<SpoolFile>,
    /// Where in the file each one is, and what it costs.
    waiting: HashMap<CallId, (u64, NanoUsd)>,
}

impl Worker {
    pub fn new(folder: PathBuf, counts: Arc<Counts>) -> Self {
        Self {
            folder,
            counts,
            own: None,
            waiting: HashMap::new(),
        }
    }

    /// Works until the last sender is gone.
    pub fn run(mut self, commands: &Receiver<Command>) {
        while let Ok(first) = commands.recv() {
            let mut new = Vec::new();
            for command in std::iter::once(first).chain(commands.try_iter()) {
                if let Command::Add {
                    id,
                    cost,
                    line,
                    tell,
                } = command
                {
                    new.push(New {
                        id,
                        cost,
                        line,
                        tell,
                    });
                    continue;
                }
                // In order: what is removed may just have been added.
                self.add(std::mem::take(&mut new));
                match command {
                    Command::Add { .. } => {}
                    Command::Remove(id) => self.remove(id),
                    Command::Adopt(tell) => drop(tell.send(self.adopt())),
                    Command::Tell(tell) => {
                        self.tidy_up();
                        let _ = tell.send(());
                    }
                }
            }
            self.add(new);
            self.tidy_up();
        }
    }

    /// A file in which nothing waits is made empty.
    fn tidy_up(&mut self) {
        if self.waiting.is_empty()
            && let Some(own) = &mut self.own
        {
            own.clear();
        }
    }

    /// All with one flush; one by one where that fails, since there may be room for some.
    fn add(&mut self, new: Vec<New>) {
        if new.is_empty() {
            return;
        }
        let lines = new.iter().map(|new| new.line.as_slice());
        match self.append(&lines.collect::<Vec<_>>().concat()) {
            Ok(mut at) => {
                for new in new {
                    let length = position(new.line.len());
                    self.is_added(new, at);
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
                        .tell
                        .send(Err(io::Error::new(error.kind(), error.to_string())));
                }
            }
        }
    }

    fn append(&mut self, lines: &[u8]) -> io::Result<u64> {
        self.own()?.append(lines)
    }

    fn is_added(&mut self, new: New, at: u64) {
        self.waits(new.id, at, new.cost);
        // Who does not hear it takes the charge out again.
        let _ = new.tell.send(Ok(()));
    }

    fn waits(&mut self, id: CallId, at: u64, cost: NanoUsd) {
        // A crash may have left it in two files.
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

    /// The file of this process, made where there is none yet.
    fn own(&mut self) -> io::Result<&mut SpoolFile> {
        if self.own.is_none() {
            make_folder(&self.folder)?;
            let own = SpoolFile::create(&self.folder)?;
            self.take_as_own(own);
        }
        self.own
            .as_mut()
            .ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn take_as_own(&mut self, mut own: SpoolFile) {
        own.reserve();
        *self.counts.file() = Some(own.path.clone());
        self.own = Some(own);
    }

    /// Takes over what nobody holds. The first file becomes this process's own; others are copied into it.
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
                Ok(owed) => adopted.extend(owed),
                Err(error) => {
                    tracing::error!(%error, "the spool {} could not be taken over", path.display());
                }
            }
        }
        if let Err(error) = self.own() {
            let folder = self.folder.display();
            tracing::error!(
                %error,
                "the spool {folder} cannot be written: while the store cannot be written either, streams end with an \
                 error and are not charged"
            );
        }
        adopted
    }

    fn merge(&mut self, file: SpoolFile, contents: Contents) -> io::Result<Vec<PendingCharge>> {
        let mut found = contents.found;
        if self.own.is_none() {
            self.take_as_own(file);
        } else {
            // All of them or none: what is not copied stays where it is.
            let lines: Vec<_> = found.iter().map(|(_, owed)| record::encode(owed)).collect();
            let mut next = self.append(&lines.concat())?;
            for ((at, _), line) in found.iter_mut().zip(lines) {
                *at = next;
                next += position(line.len());
            }
            file.remove()?;
        }
        for (at, owed) in &found {
            self.waits(owed.call.id, *at, owed.cost);
        }
        Ok(found.into_iter().map(|(_, owed)| owed).collect())
    }
}

fn make_folder(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

/// The spools in a folder, in the order of their names.
pub fn files_in(folder: &Path) -> io::Result<Vec<PathBuf>> {
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
