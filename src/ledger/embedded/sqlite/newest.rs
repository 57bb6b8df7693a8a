//! Lists of calls, newest first: blocks are read from the latest on, until no further one can have a call of the list.

use std::{cmp::Reverse, ops::RangeInclusive};

use rusqlite::{Connection, ToSql};

use super::{
    blocks::ENDS_APART,
    new_calls::not_entered,
    record::{Record, framed},
};
use crate::ledger::Call;

/// Selects the blocks that may have calls of a list.
pub(crate) struct Wanted<'a> {
    pub account_id: Option<&'a str>,
    /// Only calls with another outcome than answered.
    pub only_odd: bool,
    /// When the posted calls ended; `None` if there are none.
    pub entered: Option<RangeInclusive<i64>>,
}

impl Wanted<'_> {
    pub(crate) fn query(&self) -> String {
        let (index, account_id) = match self.account_id {
            None => ("blocks_by_time", ""),
            Some(_) => ("blocks_by_account", "account_id = ?3 AND "),
        };
        let (kind, odd) = if self.only_odd {
            ("odd_", "odd > 0 AND ")
        } else {
            ("", "")
        };
        format!(
            "SELECT last_ms, records FROM call_blocks INDEXED BY {kind}{index}
             WHERE {account_id}{odd}last_ms >= ?1 AND last_ms <= ?2 + {ENDS_APART} AND first_ms <= ?2
             ORDER BY last_ms DESC"
        )
    }
}

/// The newest calls found so far.
pub(crate) struct Newest {
    most: usize,
    /// Sorted, and no longer than `most`, after each `add`.
    calls: Vec<Call>,
}

impl Newest {
    pub(crate) fn find(
        connection: &Connection,
        wanted: &Wanted<'_>,
        most: usize,
        is_wanted: impl Fn(&Record<'_>) -> bool,
    ) -> rusqlite::Result<Vec<Call>> {
        let calls = Vec::new();
        let mut newest = Self { most, calls };
        newest.add(&not_entered(connection)?, &is_wanted)?;
        let Some(entered) = &wanted.entered else {
            return Ok(newest.calls);
        };
        // No block ends that late, and the sum in the query must not overflow.
        let last = *entered.end().min(&(i64::MAX - ENDS_APART));
        let mut params: Vec<&dyn ToSql> = vec![entered.start(), &last];
        if let Some(account_id) = &wanted.account_id {
            params.push(account_id);
        }
        let mut rows = connection.prepare_cached(&wanted.query())?;
        let mut rows = rows.query(&*params)?;
        while let Some(row) = rows.next()? {
            if newest.are_later_than(row.get(0)?) {
                break;
            }
            newest.add(row.get_ref(1)?.as_blob()?, &is_wanted)?;
        }
        Ok(newest.calls)
    }

    /// Whether the list is full, and calls that ended at this time would not be on it.
    fn are_later_than(&self, ended_ms: i64) -> bool {
        let last = self.calls.last();
        self.calls.len() == self.most && last.is_none_or(|last| last.ended_ms > ended_ms)
    }

    fn add(
        &mut self,
        records: &[u8],
        is_wanted: impl Fn(&Record<'_>) -> bool,
    ) -> rusqlite::Result<()> {
        let before = self.calls.len();
        for framed in framed(records) {
            let record = framed?.read()?;
            if is_wanted(&record) {
                // Lists omit the decisions of hybrids, which are long.
                let decision = None;
                let short = Record { decision, ..record };
                self.calls.push(short.call()?);
            }
        }
        let place = |call: &Call| Reverse((call.ended_ms, call.id));
        let (found, new) = self.calls.split_at_mut(before);
        new.sort_unstable_by_key(place);
        let in_order = found.last().map(place) <= new.first().map(place);
        if !in_order && !new.is_empty() {
            self.calls.sort_by_key(place); // two lists that are in order take little
        }
        self.calls.truncate(self.most);
        Ok(())
    }
}
