//! Blocks: consecutive calls of one account, stored as one row.
//!
//! A row for every call, an entry for its charge, and their index entries cost more than everything else that was done
//! for a call. So calls that are posted together are one row for each account, and the record of a charged call is also
//! its ledger entry. Fewer rows have fewer index entries, which tell the blocks to read; conditions on a call are then
//! evaluated on its record.

use rusqlite::{Connection, params};

use super::record::Record;

/// The largest size of a block: all of it is read for each call in it.
const MOST_BYTES: usize = 64 << 10;
/// The largest distance between the ends of a block's calls in milliseconds, and between their IDs, which begin with
/// the time.
pub(crate) const ENDS_APART: i64 = 60_000;
pub(crate) const IDS_APART: i64 = (15 * 60_000) << 19;

const INSERT: &str =
    "INSERT INTO call_blocks VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)";

/// A block that is being built.
pub(crate) struct Block {
    account_id: Box<str>,
    /// The sequence number of its last call.
    pub seq: i64,
    calls: i64,
    charges: i64,
    ids: Span,
    ends: Span,
    /// Calls with another outcome than answered, and calls with several steps.
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
    /// Starts a block for an account's calls, beginning with this one.
    pub(crate) fn for_calls_from(record: &Record<'_>) -> Self {
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

    pub(crate) fn has_room_for(&self, record: &Record<'_>, bytes: &[u8]) -> bool {
        let fits = self.records.len() + bytes.len() <= MOST_BYTES;
        (fits || self.records.is_empty())
            && self.ids.with(record.id).is_within(IDS_APART)
            && self.ends.with(record.ended_ms).is_within(ENDS_APART)
    }

    /// Adds a call of this account; `bytes` is its record including the header.
    pub(crate) fn add(&mut self, seq: i64, record: &Record<'_>, bytes: &[u8]) {
        self.seq = seq;
        self.calls += 1;
        self.charges += i64::from(record.paid.is_some());
        self.ids = self.ids.with(record.id);
        self.ends = self.ends.with(record.ended_ms);
        self.odd += i64::from(record.outcome != "answered");
        self.stepped += i64::from(!record.steps.is_empty());
        self.records.extend_from_slice(bytes);
    }

    pub(crate) fn records(&self) -> &[u8] {
        &self.records
    }

    pub(crate) fn insert(&self, connection: &Connection) -> rusqlite::Result<()> {
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
