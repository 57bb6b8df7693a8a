//! Reads the pending charges of a folder for a backup, while a gateway may be using it.

use std::{fs, io, path::Path};

use super::{
    record::{self, Contents},
    worker::files_in,
};

/// The pending charges of a folder.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Waiting {
    /// The contents of a spool file that has all of them.
    pub lines: Vec<u8>,
    pub charges: usize,
    /// Lines that cannot be read, and are not in `lines`.
    pub unreadable: usize,
}

/// Reads the charges in all files of the folder. Nothing is locked: a gateway that starts meanwhile must find its files
/// unlocked.
pub(crate) fn waiting_in(folder: &Path) -> io::Result<Waiting> {
    loop {
        match read_all(folder) {
            // A gateway that has just started has moved the charges of this file to another.
            Err(error) if error.kind() == io::ErrorKind::NotFound && folder.exists() => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(Waiting::default());
            }
            read => return read,
        }
    }
}

fn read_all(folder: &Path) -> io::Result<Waiting> {
    let mut waiting = Waiting::default();
    for file in files_in(folder)? {
        let mut contents = record::read(&fs::read(&file)?);
        if !contents.damaged.is_empty() {
            // Settled lines that are just being emptied look damaged; a second reading tells.
            contents = record::read(&fs::read(&file)?);
        }
        // An incomplete last line is being written: its stream has not ended yet.
        let Contents { found, damaged, .. } = contents;
        waiting.unreadable += damaged.len();
        waiting.charges += found.len();
        for (_, pending) in &found {
            waiting.lines.extend(record::encode(pending));
        }
    }
    Ok(waiting)
}
