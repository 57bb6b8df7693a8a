//! One file of charges, held by one process at a time.
//!
//! It is kept at a certain length, filled with empty lines: the disk that a store has filled up has room for its charges
//! all the same. A charge is written over empty lines; one that is settled has its first byte changed, which no crash
//! can do by half; and once nothing waits, all lines are made empty again.

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, Read as _, Write as _},
    os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use super::record::{self, Contents, SETTLED, position};

/// Room for about a thousand charges.
const RESERVE: u64 = 1 << 20;
const CHUNK: [u8; 4_096] = [b'\n'; 4_096];

pub struct SpoolFile {
    file: File,
    pub path: PathBuf,
    /// Where the next line goes.
    end: u64,
    length: u64,
    /// Up to here there may be parts of lines that could not be written.
    spoilt_to: u64,
    /// Lines that could not be read are in it, and nowhere else.
    is_evidence: bool,
}

impl SpoolFile {
    /// Takes a file that no process holds, with the charges in it.
    pub fn take(path: &Path) -> io::Result<Option<(Self, Contents)>> {
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
                "the last charge in the spool is not whole: the gateway died while it was written, before the end of \
                 its stream was sent, and it is skipped"
            );
            taken.end = at;
            taken.spoilt_to = contents.end;
        }
        taken.put_aside(&contents.damaged);
        Ok(Some((taken, contents)))
    }

    /// Makes a new file in this folder.
    pub fn create(folder: &Path) -> io::Result<Self> {
        let mut create = OpenOptions::new();
        let create = create.read(true).write(true).create_new(true).mode(0o600);
        for number in 1_u32.. {
            let path = folder.join(format!("charges-{number}.spool"));
            let file = match create.open(&path) {
                Ok(file) => file,
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                Err(error) => return Err(error),
            };
            // Another process may have been quicker.
            if let Some(length) = lock(&file, &path)? {
                // Its name is on the disk before anything in it is.
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
            spoilt_to: 0,
            is_evidence: false,
        }
    }

    /// Lines in the middle that cannot be read are kept for whoever looks into it, and passed over from now on.
    fn put_aside(&mut self, damaged: &[(u64, Vec<u8>)]) {
        if damaged.is_empty() {
            return;
        }
        let aside = self.path.with_extension("damaged");
        let (file, count) = (self.path.display(), damaged.len());
        match append_lines(&aside, damaged) {
            Ok(()) => {
                tracing::error!(
                    "{count} charges in the spool {file} are damaged and cannot be settled; they were put into {}",
                    aside.display()
                );
                for (at, _) in damaged {
                    self.settled(*at);
                }
            }
            Err(error) => {
                tracing::error!(%error, "{count} charges in the spool {file} are damaged and cannot be settled");
                self.is_evidence = true;
            }
        }
    }

    /// Fills the file up, as far as there is room.
    pub fn reserve(&mut self) {
        let filled = self.fill(self.length, RESERVE);
        match filled {
            Ok(()) => self.length = self.length.max(RESERVE),
            Err(error) => {
                let file = self.path.display();
                tracing::warn!(%error, "no room could be reserved in the spool {file}");
                let _ = self.file.set_len(self.length);
            }
        }
    }

    /// Appends lines and flushes them; says where they begin. Where that fails, none of them is there.
    pub fn append(&mut self, lines: &[u8]) -> io::Result<u64> {
        self.clean()?;
        let (at, end) = (self.end, self.end + position(lines.len()));
        let written = self.file.write_all_at(lines, at);
        if let Err(error) = written.and_then(|()| self.file.sync_data()) {
            self.spoilt_to = end;
            if let Err(error) = self.clean() {
                tracing::error!(%error, "the spool could not be cleaned of a charge that was not written");
            }
            return Err(error);
        }
        self.end = end;
        self.length = self.length.max(end);
        Ok(at)
    }

    /// Removes what is left of lines that could not be written.
    fn clean(&mut self) -> io::Result<()> {
        if self.spoilt_to == 0 {
            return Ok(());
        }
        if self.file.metadata()?.len() > self.length {
            self.file.set_len(self.length)?;
        }
        self.fill(self.end, self.spoilt_to.min(self.length))?;
        self.file.sync_data()?;
        self.spoilt_to = 0;
        Ok(())
    }

    /// The charge in the line that begins here waits no longer. Not flushed: to settle it again changes nothing.
    pub fn settled(&mut self, at: u64) {
        if let Err(error) = self.file.write_all_at(&[SETTLED], at) {
            tracing::warn!(%error, "a charge that is settled stays in the spool");
        }
    }

    /// Nothing waits any more: makes all lines empty.
    pub fn clear(&mut self) {
        if (self.end == 0 && self.spoilt_to == 0) || self.is_evidence {
            return;
        }
        if let Err(error) = self.try_to_clear() {
            tracing::warn!(%error, "the spool could not be emptied yet");
        }
    }

    fn try_to_clear(&mut self) -> io::Result<()> {
        self.clean()?;
        // What is settled is so on the disk before lines are overwritten: half of one must not look damaged.
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

    /// Removes the file, unless something in it is nowhere else.
    pub fn remove(self) -> io::Result<()> {
        if self.is_evidence {
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

/// Locks the file and returns its length; `None` where another process holds it, or has removed it meanwhile.
fn lock(file: &File, path: &Path) -> io::Result<Option<u64>> {
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Ok(None),
        Err(TryLockError::Error(error)) => return Err(error),
    }
    let (locked, named) = (file.metadata()?, fs::metadata(path));
    if !locked.is_file() {
        return Err(io::Error::other("it is no file"));
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
