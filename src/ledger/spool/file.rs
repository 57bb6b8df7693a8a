//! One spool file, locked by one process at a time.
//!
//! The file has a reserved length, filled with empty lines, so that charges can be written even if the store has filled
//! up the disk. A charge overwrites empty lines. When it is settled its first byte is changed, a write that a crash
//! cannot leave half done. Once no charge is pending, all lines are emptied again.

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, Read as _, Write as _},
    os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use super::record::{self, Contents, SETTLED, position};

/// Space for about a thousand charges.
const RESERVE: u64 = 1 << 20;
const CHUNK: [u8; 4_096] = [b'\n'; 4_096];

pub(crate) struct SpoolFile {
    file: File,
    pub path: PathBuf,
    /// Offset of the next line.
    end: u64,
    length: u64,
    /// Up to this offset there may be fragments of lines that could not be written.
    dirty_to: u64,
    /// The file has unreadable lines that could not be copied elsewhere; it must not be cleared or removed.
    has_unsaved_damage: bool,
}

impl SpoolFile {
    /// Opens a file that no other process has locked, with the pending charges in it.
    pub(crate) fn take(path: &Path) -> io::Result<Option<(Self, Contents)>> {
        let mut file = OpenOptions::new().read(true).write(true).open(path)?;
        let Some(length) = lock(&file, path)? else {
            return Ok(None);
        };
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        let contents = record::read(&bytes);
        let mut taken = Self::new(file, path, length);
        taken.end = contents.end;
        if let Some(at) = contents.torn {
            tracing::warn!(
                file = %path.display(),
                "the last charge in the spool is incomplete and skipped: the gateway died while writing it, before the \
                 end of its stream was sent"
            );
            taken.end = at;
            taken.dirty_to = contents.end;
        }
        taken.quarantine(&contents.damaged);
        Ok(Some((taken, contents)))
    }

    /// Creates a new file in this folder.
    pub(crate) fn create(folder: &Path) -> io::Result<Self> {
        let mut create = OpenOptions::new();
        let create = create.read(true).write(true).create_new(true).mode(0o600);
        for number in 1_u32.. {
            let path = folder.join(format!("charges-{number}.spool"));
            let file = match create.open(&path) {
                Ok(file) => file,
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                Err(error) => return Err(error),
            };
            // Another process may have locked it first.
            if let Some(length) = lock(&file, &path)? {
                // The directory entry must be on the disk before any contents.
                File::open(folder)?.sync_all()?;
                return Ok(Self::new(file, &path, length));
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    fn new(file: File, path: &Path, length: u64) -> Self {
        Self {
            file,
            path: path.to_owned(),
            end: 0,
            length,
            dirty_to: 0,
            has_unsaved_damage: false,
        }
    }

    /// Copies unreadable lines in the middle of the file to a `.damaged` file, for an operator to examine, and marks
    /// them as settled here.
    fn quarantine(&mut self, damaged: &[(u64, Vec<u8>)]) {
        if damaged.is_empty() {
            return;
        }
        let quarantine_file = self.path.with_extension("damaged");
        let (file, count) = (self.path.display(), damaged.len());
        match append_lines(&quarantine_file, damaged) {
            Ok(()) => {
                tracing::error!(
                    "{count} charges in the spool {file} are damaged and cannot be settled; they were moved to {}",
                    quarantine_file.display()
                );
                for (at, _) in damaged {
                    self.settled(*at);
                }
            }
            Err(error) => {
                tracing::error!(
                    %error,
                    "{count} charges in the spool {file} are damaged and cannot be settled; they stay there"
                );
                self.has_unsaved_damage = true;
            }
        }
    }

    /// Extends the file to its reserved length, as far as there is space on the disk.
    pub(crate) fn reserve(&mut self) {
        let filled = self.fill(self.length, RESERVE);
        match filled {
            Ok(()) => self.length = self.length.max(RESERVE),
            Err(error) => {
                let file = self.path.display();
                tracing::warn!(
                    %error,
                    "no space could be reserved in the spool {file}; charges may not fit on a full disk"
                );
                let _ = self.file.set_len(self.length);
            }
        }
    }

    /// Appends lines, flushes them, and returns their offset. If this fails, none of them is in the file.
    pub(crate) fn append(&mut self, lines: &[u8]) -> io::Result<u64> {
        self.clean()?;
        let (at, end) = (self.end, self.end + position(lines.len()));
        let written = self.file.write_all_at(lines, at);
        if let Err(error) = written.and_then(|()| self.file.sync_data()) {
            self.dirty_to = end;
            if let Err(error) = self.clean() {
                tracing::error!(
                    %error,
                    "an incomplete charge could not be removed from the spool; retrying before the next write"
                );
            }
            return Err(error);
        }
        self.end = end;
        self.length = self.length.max(end);
        Ok(at)
    }

    /// Removes fragments of lines that could not be written.
    fn clean(&mut self) -> io::Result<()> {
        if self.dirty_to == 0 {
            return Ok(());
        }
        if self.file.metadata()?.len() > self.length {
            self.file.set_len(self.length)?;
        }
        self.fill(self.end, self.dirty_to.min(self.length))?;
        self.file.sync_data()?;
        self.dirty_to = 0;
        Ok(())
    }

    /// Marks the charge in the line at this offset as settled. Not flushed: settling it again has no effect.
    pub(crate) fn settled(&mut self, at: u64) {
        if let Err(error) = self.file.write_all_at(&[SETTLED], at) {
            tracing::warn!(
                %error,
                "a settled charge could not be marked in the spool; the next start settles it again, without effect"
            );
        }
    }

    /// Empties all lines; called when no charge is pending.
    pub(crate) fn clear(&mut self) {
        if (self.end == 0 && self.dirty_to == 0) || self.has_unsaved_damage {
            return;
        }
        if let Err(error) = self.try_to_clear() {
            tracing::warn!(%error, "the spool could not be emptied; retrying later");
        }
    }

    fn try_to_clear(&mut self) -> io::Result<()> {
        self.clean()?;
        // The settled marks must be on the disk before lines are overwritten: a half-overwritten line must not look
        // damaged.
        self.file.sync_data()?;
        self.fill(0, self.end)?;
        if self.length > RESERVE {
            self.file.set_len(RESERVE)?;
            self.length = RESERVE;
        }
        self.file.sync_data()?;
        self.end = 0;
        Ok(())
    }

    /// Removes the file, unless it has unreadable lines that are nowhere else.
    pub(crate) fn remove(self) -> io::Result<()> {
        if self.has_unsaved_damage {
            return Ok(());
        }
        fs::remove_file(&self.path)
    }

    fn fill(&self, from: u64, to: u64) -> io::Result<()> {
        let mut at = from;
        while at < to {
            let length = CHUNK
                .len()
                .min(usize::try_from(to - at).unwrap_or(usize::MAX));
            self.file.write_all_at(&CHUNK[..length], at)?;
            at += position(length);
        }
        Ok(())
    }
}

/// Locks the file and returns its length; `None` if another process has locked it or has removed it meanwhile.
fn lock(file: &File, path: &Path) -> io::Result<Option<u64>> {
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Ok(None),
        Err(TryLockError::Error(error)) => return Err(error),
    }
    let (locked, named) = (file.metadata()?, fs::metadata(path));
    if !locked.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    let is_there = named.is_ok_and(|named| named.ino() == locked.ino());
    Ok(is_there.then_some(locked.len()))
}

fn append_lines(path: &Path, lines: &[(u64, Vec<u8>)]) -> io::Result<()> {
    let mut append = OpenOptions::new();
    let mut file = append.append(true).create(true).mode(0o600).open(path)?;
    for (_, line) in lines {
        file.write_all(line)?;
        file.write_all(b"\n")?;
    }
    file.sync_all()
}
