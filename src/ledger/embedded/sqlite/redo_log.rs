//! Redo log of finished calls: written with the transaction of the charge, posted soon after.
//!
//! All charges of a transaction are appended to the current page of the log, which is mostly all that the transaction
//! writes. In memory they are kept with their sums and with what they leave of grants. Every second, and before each
//! query, all calls of the log become rows in one transaction. Until then they count when the file is loaded, in queries
//! and in audits.

use std::{collections::HashMap, mem::take};

use rusqlite::{Connection, OptionalExtension as _};

use super::{
    Database, budgets,
    calls::one,
    held_now::{self, HeldNow},
    record::{self, Record, number},
    redo_pages::{Pages, set_last_posted},
    unposted::Unposted,
};
use crate::{
    base::{failpoint, fast_map::FastSet, money::NanoUsd, month::Month},
    ledger::{Call, CallId, Charged, budgets::Counted, credit::Charge, detail::Detail},
};

/// At least this many call IDs are remembered after posting, to recognize a call that is stored twice. That happens
/// while its operation is queued for the writer, or after its hold is gone, which is recognized otherwise.
const REMEMBERED: usize = 32_768;

/// State of the redo log: calls that are not posted yet.
#[derive(Default)]
pub(crate) struct RedoLog {
    pages: Pages,
    unposted: Unposted,
    /// The last sequence number of a call or an entry.
    last_seq: i64,
    /// A query needs the calls to be posted once the open transaction is committed.
    wanted: bool,
    /// The last attempt to post them failed.
    pub behind: bool,
    /// Calls that the open transaction has posted, and those that were posted recently.
    posted: FastSet<i64>,
    remembered: [FastSet<i64>; 2],
    /// The rows of `held_now`; `None` until this process has written them.
    held: Option<Vec<HeldNow>>,
}

impl RedoLog {
    pub(crate) fn begin(&mut self) {
        self.wanted = false;
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.unposted.is_empty()
    }

    pub(crate) fn next_seq(&mut self) -> i64 {
        self.last_seq += 1;
        self.last_seq
    }

    /// Records that all calls were posted, in a transaction that is still open.
    fn clear(&mut self) {
        self.pages.clear();
        self.posted.extend(take(&mut self.unposted).ids);
    }

    /// Records that the open transaction was committed.
    pub(crate) fn committed(&mut self) {
        let [latest, earlier] = &mut self.remembered;
        latest.extend(self.posted.drain());
        if latest.len() >= REMEMBERED {
            *earlier = take(latest);
        }
    }

    fn is_known(&self, id: i64) -> bool {
        let sets = [&self.unposted.ids, &self.posted];
        let mut sets = sets.into_iter().chain(&self.remembered);
        sets.any(|ids| ids.contains(&id))
    }

    /// What is left of a grant, if it differs from the grant's row.
    pub(crate) fn left_of(&self, grant_id: &str) -> Option<NanoUsd> {
        self.unposted.left.get(grant_id).copied()
    }

    pub(crate) fn debt_of(&self, account_id: &str) -> Option<NanoUsd> {
        self.unposted.debts.get(account_id).copied()
    }

    /// Counts the calls of the log in budgets as they are stored.
    pub(super) fn spend_of(
        &mut self,
        budgets: &mut HashMap<String, Vec<Counted>>,
    ) -> rusqlite::Result<()> {
        for framed in self.unposted.records() {
            budgets::spend_record(budgets, &framed?.read()?);
        }
        for counted in budgets.values().flatten() {
            self.unposted.put_spent(counted.spent());
        }
        Ok(())
    }

    /// When the period of a budget began and what was spent in it, if that differs from its row.
    pub(super) fn spent_of(&self, id: &str) -> Option<(i64, i64)> {
        let spent = self.unposted.spent.get(id)?;
        Some((spent.starts_at, spent.nanos))
    }

    /// A budget was set or deleted, and its row with it.
    pub(super) fn forget_budget(&mut self, id: &str) {
        self.unposted.spent.remove(id);
    }
}

impl Database {
    /// Appends the record of a finished call.
    pub(crate) fn insert_call(&self, call: &Call) -> rusqlite::Result<()> {
        self.insert(call, call.charged, None)
    }

    /// Appends the record of a charged call, and the effects of its charge.
    pub(crate) fn insert_charged(
        &self,
        call: &Call,
        charged: Charged,
        charge: &Charge,
    ) -> rusqlite::Result<()> {
        self.insert(call, Some(charged), Some(charge))
    }

    fn insert(
        &self,
        call: &Call,
        charged: Option<Charged>,
        charge: Option<&Charge>,
    ) -> rusqlite::Result<()> {
        let mut log = self.redo_log.borrow_mut();
        if log.is_known(number(call.id)) {
            return match charge {
                // Stored again: the first record counts, because it is the one that was charged.
                None => Ok(()),
                // A second charge: another call with the same ID.
                Some(_) => Err(rusqlite::Error::StatementChangedRows(0)),
            };
        }
        let detail = Detail::to_json(call);
        let record = Record::of(call, charged, charge, detail.as_deref());
        let seq = log.next_seq();
        let RedoLog {
            pages, unposted, ..
        } = &mut *log;
        let bytes = pages.add(|bytes| record.write(bytes, seq))?;
        unposted.add(&record, bytes);
        for spent in charge.into_iter().flat_map(|charge| &charge.budgets) {
            unposted.put_spent(spent.clone());
        }
        Ok(())
    }

    /// Whether a call is stored, posted or not.
    pub(crate) fn has_call(&self, id: CallId) -> rusqlite::Result<bool> {
        Ok(one(&self.connection, id)?.is_some())
    }

    /// Whether a call is of a time whose calls were pruned, so that its row is missing even if it was charged.
    pub(crate) fn is_pruned(&self, call: &Call) -> rusqlite::Result<bool> {
        let opening = "SELECT ref FROM ledger_entries WHERE account_id = ?1 AND kind = 'opening'";
        let mut opening = self.connection.prepare_cached(opening)?;
        let first_day = opening.query_row([&call.account_id], |row| row.get::<_, String>(0));
        let first_kept = first_day.optional()?.and_then(|day| Month::of_day(&day));
        Ok(first_kept.is_some_and(|month| call.id < CallId::first_of(month.first_ms())))
    }

    /// Whether a call is in the redo log, or was posted recently.
    pub(crate) fn has_new_call(&self, id: CallId) -> bool {
        self.redo_log.borrow().is_known(number(id))
    }

    /// Writes the calls of the open transaction to the redo log.
    pub(super) fn write_redo_log(&self) -> rusqlite::Result<()> {
        self.redo_log.borrow_mut().pages.write(&self.connection)
    }

    /// Requests that the redo log is posted after the open transaction is committed, for a query.
    pub(crate) fn want_posting(&self) {
        self.redo_log.borrow_mut().wanted = true;
    }

    pub(crate) fn posting_is_wanted(&self) -> bool {
        self.redo_log.borrow().wanted
    }

    /// How many calls are not posted yet.
    pub(crate) fn unposted(&self) -> usize {
        self.redo_log.borrow().unposted.ids.len()
    }

    /// Whether the last attempt to post them failed.
    pub(crate) fn is_behind(&self) -> bool {
        self.redo_log.borrow().behind
    }

    /// Records that nothing can be posted at present.
    pub(crate) fn fall_behind(&self) {
        let mut log = self.redo_log.borrow_mut();
        log.behind = !log.is_empty();
    }

    /// Posts the whole redo log, within the open transaction.
    pub(crate) fn post_redo_log(&self) -> rusqlite::Result<()> {
        let mut log = self.redo_log.borrow_mut();
        if log.is_empty() {
            return Ok(());
        }
        self.post(&log)?;
        log.clear();
        Ok(())
    }

    /// Posts the whole redo log in a transaction of its own, and updates `held_now` if holds are given. If that fails,
    /// the calls stay for the next attempt.
    pub(crate) fn post_redo_log_alone(&self, held: Option<Vec<HeldNow>>) -> rusqlite::Result<()> {
        let mut log = self.redo_log.borrow_mut();
        let held = held.filter(|held| log.held.as_ref() != Some(held));
        let posted = if log.is_empty() && held.is_none() {
            Ok(())
        } else {
            let transaction = self.connection.unchecked_transaction();
            transaction.and_then(|transaction| {
                self.post(&log)?;
                if let Some(held) = &held {
                    held_now::write(&transaction, held)?;
                }
                transaction.commit()
            })
        };
        log.behind = posted.is_err() && !log.is_empty();
        posted?;
        failpoint::reached("rows_committed");
        if held.is_some() {
            log.held = held;
        }
        log.clear();
        log.committed();
        Ok(())
    }

    fn post(&self, log: &RedoLog) -> rusqlite::Result<()> {
        if log.is_empty() {
            return Ok(());
        }
        let unposted = &log.unposted;
        unposted.post(&self.connection)?;
        for (grant_id, remaining) in &unposted.left {
            self.set_remaining(grant_id, *remaining)?;
        }
        for (account_id, debt) in &unposted.debts {
            self.set_debt(account_id, *debt)?;
        }
        for (id, spent) in &unposted.spent {
            self.set_spent(id, spent)?;
        }
        set_last_posted(&self.connection, log.last_seq)
    }

    /// Reads the redo log from the file, replacing the state in memory.
    pub(super) fn read_redo_log(&self) -> rusqlite::Result<()> {
        let mut unposted = Unposted::default();
        let (written, pages) = Pages::read_closely(&self.connection)?;
        let mut last_seq: i64 = self.connection.query_row(LAST_SEQ, [], |row| row.get(0))?;
        for framed in record::framed(&written) {
            let framed = framed?;
            unposted.add(&framed.read()?, framed.bytes);
            last_seq = last_seq.max(framed.seq);
        }
        // All or nothing: the state in memory must match what was posted.
        let mut log = self.redo_log.borrow_mut();
        log.last_seq = last_seq.max(log.last_seq);
        log.pages = pages;
        log.posted.clear();
        log.unposted = unposted;
        Ok(())
    }

    /// The sum of the charges that are not posted yet, by account.
    pub(crate) fn unposted_sums(&self) -> rusqlite::Result<HashMap<String, i64>> {
        let log = self.redo_log.borrow();
        let mut sums = HashMap::new();
        for framed in log.unposted.records() {
            let record = framed?.read()?;
            *sums.entry(record.account_id.to_owned()).or_default() += record.delta();
        }
        Ok(sums)
    }

    /// The highest call ID in the redo log.
    pub(super) fn last_unposted(&self) -> Option<i64> {
        self.redo_log.borrow().unposted.ids.iter().copied().max()
    }
}

/// The last sequence number of posted calls and of other entries.
const LAST_SEQ: &str = "SELECT max(
    coalesce((SELECT max(seq) FROM ledger_entries), 0), (SELECT last_seq FROM posted))";

/// The records of all calls that are not posted yet, in the order in which they were charged.
pub(crate) fn unposted_records(connection: &Connection) -> rusqlite::Result<Vec<u8>> {
    Ok(Pages::read(connection)?.0)
}

/// The calls that are not posted yet and match, with the position of each in the ledger.
pub(crate) fn unposted_calls(
    connection: &Connection,
    is_wanted: impl Fn(&Record<'_>) -> bool,
) -> rusqlite::Result<Vec<(i64, Call)>> {
    let mut calls = Vec::new();
    for framed in record::framed(&unposted_records(connection)?) {
        let framed = framed?;
        let record = framed.read()?;
        if is_wanted(&record) {
            calls.push((framed.seq, record.call()?));
        }
    }
    Ok(calls)
}
