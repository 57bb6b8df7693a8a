//! The spool's part of `tollgate check`.

use std::{fs, io, path::Path};

use super::{record, worker::files_in};
use crate::db::sqlite::probe_folder;

/// Checks that the folder can be written, changing nothing that was there before.
pub(crate) fn probe(folder: &Path) -> Result<String, String> {
    let shown = folder.display();
    if !folder.exists() {
        return probe_folder(folder).map(|()| format!("{shown} will be created"));
    }
    let failed = |error: io::Error| format!("{shown} cannot be written: {error}");
    // Tested by writing, because permissions do not tell whether a disk is mounted read-only.
    let trial = folder.join(format!("check-{}.tmp", std::process::id()));
    fs::write(&trial, b"\n").map_err(failed)?;
    fs::remove_file(&trial).map_err(failed)?;
    Ok(match count(folder).map_err(failed)? {
        0 => format!("{shown} can be written"),
        1 => format!("{shown} can be written; one charge waits in it"),
        count => format!("{shown} can be written; {count} charges wait in it"),
    })
}

/// How many charges wait in the folder, whether or not a process uses it; changes nothing.
pub(crate) fn count(folder: &Path) -> io::Result<usize> {
    if !folder.exists() {
        return Ok(0);
    }
    let mut waiting = 0;
    for file in files_in(folder)? {
        waiting += record::read(&fs::read(file)?).found.len();
    }
    Ok(waiting)
}
