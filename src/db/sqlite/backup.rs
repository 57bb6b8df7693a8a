//! A consistent copy of a file while another process writes to it.

use std::{path::Path, time::Duration};

use rusqlite::{
    Connection, OpenFlags,
    backup::{Backup, StepResult},
};

/// Pages that are copied between two reports of progress: some milliseconds.
const STEP: std::ffi::c_int = 1_000;
/// Readers wait for no writer; only a recovery after a crash can hold this up.
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);

/// Copies the file at `source` to `target`, an empty file. Calls `progress` with the number of copied pages and of all
/// pages. The copy is not flushed to the disk.
///
/// The process that writes to the file is not held up; until the copy is complete it cannot reuse its write-ahead log.
pub(crate) fn back_up(
    source: &Path,
    target: &Path,
    progress: &mut dyn FnMut(u64, u64),
) -> rusqlite::Result<()> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let source = Connection::open_with_flags(source, flags)?;
    source.busy_timeout(LOCK_TIMEOUT)?;
    // One snapshot for all steps. Without it each step reads its own, and SQLite starts again from the first page
    // whenever the gateway has written in between.
    let snapshot = source.unchecked_transaction()?;
    let any = "SELECT count(*) FROM sqlite_schema";
    snapshot.query_row(any, [], |row| row.get::<_, i64>(0))?;
    let mut copy = Connection::open(target)?;
    // A copy that is interrupted is thrown away.
    copy.pragma_update(None, "journal_mode", "OFF")?;
    copy.pragma_update(None, "synchronous", "OFF")?;
    let backup = Backup::new(&snapshot, &mut copy)?;
    loop {
        let step = backup.step(STEP)?;
        let pages = backup.progress();
        let number = |pages: std::ffi::c_int| u64::try_from(pages).unwrap_or(0);
        progress(
            number(pages.pagecount - pages.remaining),
            number(pages.pagecount),
        );
        match step {
            StepResult::Done => break,
            StepResult::More => {}
            // Neither can happen: readers of a write-ahead log do not wait, and the copy is ours.
            _ => {
                let busy = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_BUSY);
                return Err(rusqlite::Error::SqliteFailure(busy, None));
            }
        }
    }
    drop(backup);
    drop(snapshot);
    copy.close().map_err(|(_, error)| error)?;
    without_log(target)
}

/// Takes away the mark of a write-ahead log that the copy has from its source. A program that reads a file with that mark
/// leaves other files beside it, which would stay behind when the copy is moved.
fn without_log(copy: &Path) -> rusqlite::Result<()> {
    let copy = Connection::open(copy)?;
    copy.pragma_update(None, "journal_mode", "DELETE")?;
    copy.close().map_err(|(_, error)| error)
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;
    use crate::db::sqlite::schema;

    const COUNT: &str = "SELECT count(*) FROM t";

    fn count(file: &Connection) -> i64 {
        file.query_row(COUNT, [], |row| row.get(0)).unwrap()
    }

    /// Rows are written between any two steps; the copy has those that were there at the start, and no others.
    #[test]
    fn a_copy_is_one_snapshot_while_the_file_is_written() {
        let folder = TempDir::new().unwrap();
        let (path, target) = (folder.path().join("a.db"), folder.path().join("b.db"));
        let mut writer = Connection::open(&path).unwrap();
        writer.pragma_update(None, "journal_mode", "WAL").unwrap();
        schema::create(&mut writer, "CREATE TABLE t (a BLOB) STRICT").unwrap();
        let row = "INSERT INTO t VALUES (zeroblob(4096))";
        writer.execute_batch("BEGIN").unwrap();
        for _ in 0..5_000 {
            writer.execute(row, []).unwrap();
        }
        writer.execute_batch("COMMIT").unwrap();
        let mut steps = Vec::new();
        back_up(&path, &target, &mut |done, total| {
            steps.push((done, total));
            writer.execute(row, []).unwrap();
        })
        .unwrap();
        assert!(steps.len() >= 5, "{steps:?}");
        assert!(steps.is_sorted(), "it started again: {steps:?}");
        let (done, total) = steps[steps.len() - 1];
        assert_eq!(done, total);

        let copy = Connection::open(&target).unwrap();
        assert_eq!(count(&copy), 5_000);
        assert_eq!(count(&writer), 5_000 + i64::try_from(steps.len()).unwrap());
        assert_eq!(schema::version(&copy).unwrap(), schema::VERSION);
        assert_eq!(schema::unusable(&copy).unwrap(), None);
        drop(copy);
        let read = Connection::open_with_flags(&target, OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap();
        assert_eq!(count(&read), 5_000);
        drop(read);
        for ending in ["-wal", "-shm", "-journal"] {
            let beside = folder.path().join(format!("b.db{ending}"));
            assert!(!beside.exists(), "{ending}");
        }
    }
}
