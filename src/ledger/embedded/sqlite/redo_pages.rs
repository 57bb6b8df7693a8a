//! Redo log of finished calls, in page-sized rows overwritten in place.
//!
//! A transaction writes the pages of its calls, mostly one, and changes nothing else: neither the pages of the table
//! nor the list of free pages. Once all calls are posted, pages are reused from the first on.

use rusqlite::{Connection, Statement, params};

use super::{record::framed, unreadable};

/// As much as one page of the database holds in one row, with some bytes to spare.
const PAGE_BYTES: usize = 4_032;
/// Padding of a page.
static ZEROS: [u8; PAGE_BYTES] = [0; PAGE_BYTES];

/// The page that is being filled, and those that the open transaction filled before it.
#[derive(Default)]
pub(crate) struct Pages {
    /// The row number of the first of them.
    first: i64,
    filled: Vec<Vec<u8>>,
    bytes: Vec<u8>,
    /// Something was added since they were written.
    is_changed: bool,
}

impl Pages {
    /// Adds one record, which `write` appends to the bytes, and returns its bytes.
    pub(crate) fn add(
        &mut self,
        write: impl FnOnce(&mut Vec<u8>) -> rusqlite::Result<()>,
    ) -> rusqlite::Result<&[u8]> {
        let mut start = self.bytes.len();
        write(&mut self.bytes)?;
        self.is_changed = true;
        if start > 0 && self.bytes.len() > PAGE_BYTES {
            let next = self.bytes.split_off(start);
            self.filled.push(std::mem::replace(&mut self.bytes, next));
            start = 0;
        }
        Ok(&self.bytes[start..])
    }

    /// Writes the additions of the open transaction to the table.
    pub(crate) fn write(&mut self, connection: &Connection) -> rusqlite::Result<()> {
        if !self.is_changed {
            return Ok(());
        }
        let mut put = connection.prepare_cached("REPLACE INTO redo_log VALUES (?1, ?2, ?3)")?;
        for mut page in self.filled.drain(..) {
            put_page(&mut put, self.first, &mut page)?;
            self.first += 1;
        }
        put_page(&mut put, self.first, &mut self.bytes)?;
        self.is_changed = false;
        Ok(())
    }

    /// Starts again from the first page: all calls are posted.
    pub(crate) fn clear(&mut self) {
        self.first = 0;
        self.filled.clear();
        self.bytes.clear();
        self.is_changed = false;
    }

    /// The records of all calls that are not posted, in the order in which they were charged; and the pages after
    /// those.
    pub(crate) fn read(connection: &Connection) -> rusqlite::Result<(Vec<u8>, Self)> {
        Self::read_rows(connection, false)
    }

    /// As [`Self::read`], for a file that may be damaged: reads all pages, because a page with old contents would hide
    /// those after it.
    pub(crate) fn read_closely(connection: &Connection) -> rusqlite::Result<(Vec<u8>, Self)> {
        Self::read_rows(connection, true)
    }

    fn read_rows(connection: &Connection, closely: bool) -> rusqlite::Result<(Vec<u8>, Self)> {
        let mut pages = Self::default();
        let mut records = Vec::new();
        let posted = last_posted(connection)?;
        let mut rows = connection.prepare_cached(
            "SELECT page, substr(records, 1, used_bytes) FROM redo_log ORDER BY page",
        )?;
        let mut rows = rows.query([])?;
        while let Some(row) = rows.next()? {
            let before = records.len();
            for framed in framed(row.get_ref(1)?.as_blob()?) {
                let framed = framed?;
                if framed.seq > posted {
                    records.extend_from_slice(framed.bytes);
                }
            }
            let is_used = records.len() > before;
            if is_used && row.get::<_, i64>(0)? != pages.first {
                return Err(unreadable(0, "a page of calls after a page without any"));
            }
            if is_used {
                pages.first += 1;
            } else if !closely {
                break; // they are filled one after the other: what comes now is of earlier times
            }
        }
        Ok((records, pages))
    }
}

/// Writes a page padded to a fixed size, so that its row is overwritten in place; a longer record gets a larger row.
fn put_page(put: &mut Statement<'_>, number: i64, page: &mut Vec<u8>) -> rusqlite::Result<()> {
    let used = page.len();
    page.extend_from_slice(ZEROS.get(used..).unwrap_or_default());
    let stored = i64::try_from(used).unwrap_or(i64::MAX);
    let written = put.execute(params![number, stored, page.as_slice()]);
    page.truncate(used);
    written.map(|_| ())
}

pub(crate) fn last_posted(connection: &Connection) -> rusqlite::Result<i64> {
    let mut last = connection.prepare_cached("SELECT last_seq FROM posted")?;
    last.query_row([], |row| row.get(0))
}

pub(crate) fn set_last_posted(connection: &Connection, seq: i64) -> rusqlite::Result<()> {
    let mut set = connection.prepare_cached("UPDATE posted SET last_seq = ?1")?;
    match set.execute([seq])? {
        1 => Ok(()),
        rows => Err(rusqlite::Error::StatementChangedRows(rows)),
    }
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;
    use crate::ledger::embedded::sqlite::record::HEAD;

    const TABLES: &str = "
        CREATE TABLE redo_log (page INTEGER PRIMARY KEY, used_bytes INTEGER, records BLOB) STRICT;
        CREATE TABLE posted (last_seq INTEGER NOT NULL) STRICT;
        INSERT INTO posted VALUES (0);";

    /// A record of zeros, which is also what follows the last record of a page.
    fn record(seq: i64, length: usize) -> Vec<u8> {
        let mut record = u32::try_from(length).unwrap().to_le_bytes().to_vec();
        record.extend(seq.to_le_bytes());
        record.resize(HEAD + length, 0);
        record
    }

    #[derive(Clone, Debug)]
    enum End {
        Committed,
        RolledBack,
        /// Committed after everything before it was posted.
        Posted,
    }

    fn end() -> impl Strategy<Value = End> {
        prop_oneof![8 => Just(End::Committed), 1 => Just(End::RolledBack), 1 => Just(End::Posted)]
    }

    fn lengths() -> impl Strategy<Value = Vec<usize>> {
        vec(
            prop_oneof![20 => 1..1_000_usize, 1 => 1..20_000_usize],
            0..12,
        )
    }

    proptest! {
        /// Whatever the lengths of records, their number in a transaction, and the transactions that are rolled back,
        /// the log yields exactly what was committed and is not posted.
        #[test]
        fn the_log_yields_what_was_committed_and_is_not_posted(
            transactions in vec((lengths(), end()), 0..60),
        ) {
            let file = Connection::open_in_memory().unwrap();
            file.execute_batch(TABLES).unwrap();
            let (mut pages, mut committed, mut seq) = (Pages::default(), Vec::<u8>::new(), 0);
            for (lengths, end) in transactions {
                file.execute_batch("BEGIN").unwrap();
                let before = committed.len();
                for length in lengths {
                    seq += 1;
                    let record = record(seq, length);
                    let write = |bytes: &mut Vec<u8>| { bytes.extend(&record); Ok(()) };
                    prop_assert_eq!(pages.add(write).unwrap(), &record);
                    committed.extend(&record);
                }
                if let End::Posted = end {
                    set_last_posted(&file, seq).unwrap();
                    pages.clear();
                    committed.clear();
                }
                pages.write(&file).unwrap();
                if let End::RolledBack = end {
                    file.execute_batch("ROLLBACK").unwrap();
                    pages = Pages::read(&file).unwrap().1;
                    committed.truncate(before);
                } else {
                    file.execute_batch("COMMIT").unwrap();
                }
                let (read, after) = Pages::read(&file).unwrap();
                prop_assert!(read == committed, "after call {}", seq);
                prop_assert!(after.first <= pages.first + 1);
            }
        }
    }
}
