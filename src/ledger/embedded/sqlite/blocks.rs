//! Calls of one account that followed each other, stored as one value.
//!
//! A row of its own for every call, a line for its charge, and their indexes took more than all else that was done
//! for it. So calls that are entered together are one row for each account, and the line of the books that a charge is
//! is the record of its call. Few rows have few entries in indexes, which say where to look: what is wanted of a call
//! is then found in its record.

use rusqlite::{Connection, params};

use super::record::Record;

/// A row with more bytes has no room: all of them are read for the one call that is wanted.
const MOST_BYTES: usize = 64 << 10;
/// How far apart the ends of a row's calls are at most, in milliseconds; and their numbers, which begin with the time.
pub const ENDS_APART: i64 = 60_000;
pub const IDS_APART: i64 = (15 * 60_000) << 19;

const INSERT: &str =
    "INSERT INTO call_blocks VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)";

/// A row that is being put together.
pub struct Block {
    account_id: Box<str>,
    /// The number of its last call.
    pub seq: i64,
    calls: i64,
    charges: i64,
    ids: Span,
    ends: Span,
    /// Those that were not answered, and those of several steps.
    odd: i64,
    stepped: i64,
    records: Vec<u8>,
}

#[derive(Clone, Copy)]
struct Span {
    first: i64,
    last: i64,
}

impl Span {
    fn with(self, number: i64) -> Self {
        Self {
            first: self.first.min(number),
            last: self.last.max(number),
        }
    }

    fn is_within(self, most: i64) -> bool {
        self.last.saturating_sub(self.first) <= most
    }
}

impl Block {
    /// For an account's calls from this one on.
    pub fn for_calls_from(record: &Record<'_>) -> Self {
        let only = |number| Span {
            first: number,
            last: number,
        };
        Self {
            account_id: record.account_id.into(),
            seq: 0,
            calls: 0,
            charges: 0,
            ids: only(record.id),
            ends: only(record.ended_ms),
            odd: 0,
            stepped: 0,
            records: Vec::new(),
        }
    }

    pub fn has_room_for(&self, record: &Record<'_>, bytes: &[u8]) -> bool {
        let fits = self.records.len() + bytes.len() <= MOST_BYTES;
        (fits || self.records.is_empty())
            && self.ids.with(record.id).is_within(IDS_APART)
            && self.ends.with(record.ended_ms).is_within(ENDS_APART)
    }

    /// Adds a call of the same account: `bytes` is the record with all that stands before it.
    pub fn add(&mut self, seq: i64, record: &Record<'_>, bytes: &[u8]) {
        self.seq = seq;
        self.calls += 1;
        self.charges += i64::from(record.paid.is_some());
        self.ids = self.ids.with(record.id);
        self.ends = self.ends.with(record.ended_ms);
        self.odd += i64::from(record.outcome != "answered");
        self.stepped += i64::from(!record.steps.is_empty());
        self.records.extend_from_slice(bytes);
    }

    pub fn records(&self) -> &[u8] {
        &self.records
    }

    pub fn insert(&self, connection: &Connection) -> rusqlite::Result<()> {
        let mut insert = connection.prepare_cached(INSERT)?;
        insert.execute(params![
            self.seq,
            self.account_id,
            self.calls,
            self.charges,
            self.ids.first,
            self.ids.last,
            self.ends.first,
            self.ends.last,
            self.odd,
            self.stepped,
            self.records,
        ])?;
        Ok(())
    }
}
