//! Redo log of finished calls: written with the transaction of the charge, posted soon after.
//!
//! All charges of a transaction are appended to the current page of the log, which is mostly all that the transaction
//! writes. In memory they are collected in the form in which they will be posted: by account, summed up, with what they
//! leave of grants. Periodically, and before each query, all calls of the log are posted together in one transaction.
//! Until then they are taken into account when the file is loaded, and by audits.

use std::{collections::HashMap, mem::take};

use rusqlite::Connection;

use super::{
    Database,
    calls::one,
    gathered::Gathered,
    new_pages::{Pages, set_last_entered},
    record::{self, Lists, Record, number},
};
use crate::{
    base::{fast_map::FastSet, money::NanoUsd},
    ledger::{Call, CallId, Charged, credit::Charge},
};

/// At least this many call IDs are remembered after posting, to recognize a call that is stored twice. That happens
/// while its operation is queued for the writer, or after its hold is gone, which is recognized otherwise.
const REMEMBERED: usize = 32_768;

/// State of the redo log: calls that are not posted yet.
#[derive(Default)]
pub(crate) struct News {
    pages: Pages,
    gathered: Gathered,
    /// The last sequence number of a call or an entry.
    last_seq: i64,
    /// A query needs them to be posted once the open transaction is committed.
    wanted: bool,
    /// The last attempt to post them failed.
    pub behind: bool,
    /// Calls that the open transaction has posted, and those that were posted recently.
    entered: FastSet<i64>,
    remembered: [FastSet<i64>; 2],
}

impl News {
    pub(crate) fn begin(&mut self) {
        self.wanted = false;
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.gathered.is_empty()
    }

    pub(crate) fn next_seq(&mut self) -> i64 {
        self.last_seq += 1;
        self.last_seq
    }

    /// Records that all calls were posted, in a transaction that is still open.
    fn clear(&mut self) {
        self.pages.clear();
        self.entered.extend(take(&mut self.gathered).ids);
    }

    /// Records that the open transaction was committed.
    pub(crate) fn committed(&mut self) {
        let [latest, earlier] = &mut self.remembered;
        latest.extend(self.entered.drain());
        if latest.len() >= REMEMBERED {
            *earlier = take(latest);
        }
    }

    fn is_known(&self, id: i64) -> bool {
        let sets = [&self.gathered.ids, &self.entered];
        let mut sets = sets.into_iter().chain(&self.remembered);
        sets.any(|ids| ids.contains(&id))
    }

    /// What is left of a grant, if it differs from the grant's row.
    pub(crate) fn left_of(&self, grant_id: &str) -> Option<NanoUsd> {
        self.gathered.left.get(grant_id).copied()
    }

    pub(crate) fn debt_of(&self, account_id: &str) -> Option<NanoUsd> {
        self.gathered.debts.get(account_id).copied()
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
        let mut news = self.news.borrow_mut();
        if news.is_known(number(call.id)) {
            return match charge {
                // Stored again: the first record counts, because it is the one that was charged.
                None => Ok(()),
                // A second charge: another call with the same ID.
                Some(_) => Err(rusqlite::Error::StatementChangedRows(0)),
            };
        }
        let lists = Lists::of(call);
        let record = Record::of(call, charged, charge, &lists);
        let seq = news.next_seq();
        let News {
            pages, gathered, ..
        } = &mut *news;
        let bytes = pages.add(|bytes| record.write(bytes, seq))?;
        gathered.add(seq, &record, bytes);
        Ok(())
    }

    /// Whether a call is stored, posted or not.
    pub(crate) fn has_call(&self, id: CallId) -> rusqlite::Result<bool> {
        Ok(one(&self.connection, id)?.is_some())
    }

    /// Whether a call is in the redo log, or was posted recently.
    pub(crate) fn has_new_call(&self, id: CallId) -> bool {
        self.news.borrow().is_known(number(id))
    }

    /// Writes the calls of the open transaction to the redo log.
    pub(super) fn write_news(&self) -> rusqlite::Result<()> {
        self.news.borrow_mut().pages.write(&self.connection)
    }

    /// Requests that the redo log is posted after the open transaction is committed, for a query.
    pub(crate) fn want_news(&self) {
        self.news.borrow_mut().wanted = true;
    }

    pub(crate) fn news_are_wanted(&self) -> bool {
        self.news.borrow().wanted
    }

    /// How many calls are not posted yet.
    pub(crate) fn news(&self) -> usize {
        self.news.borrow().gathered.ids.len()
    }

    /// Whether the last attempt to post them failed.
    pub(crate) fn is_behind(&self) -> bool {
        self.news.borrow().behind
    }

    /// Records that nothing can be posted at present.
    pub(crate) fn fall_behind(&self) {
        let mut news = self.news.borrow_mut();
        news.behind = !news.is_empty();
    }

    /// Posts the whole redo log, within the open transaction.
    pub(crate) fn enter_news(&self) -> rusqlite::Result<()> {
        let mut news = self.news.borrow_mut();
        if news.is_empty() {
            return Ok(());
        }
        self.enter(&news)?;
        news.clear();
        Ok(())
    }

    /// Posts the whole redo log in a transaction of its own. If that fails, the calls stay for the next attempt.
    pub(crate) fn enter_news_alone(&self) -> rusqlite::Result<()> {
        let mut news = self.news.borrow_mut();
        let entered = if news.is_empty() {
            Ok(())
        } else {
            let transaction = self.connection.unchecked_transaction();
            transaction.and_then(|transaction| {
                self.enter(&news)?;
                transaction.commit()
            })
        };
        news.behind = entered.is_err();
        entered?;
        news.clear();
        news.committed();
        Ok(())
    }

    fn enter(&self, news: &News) -> rusqlite::Result<()> {
        let gathered = &news.gathered;
        gathered.enter(&self.connection)?;
        for (grant_id, remaining) in &gathered.left {
            self.set_remaining(grant_id, *remaining)?;
        }
        for (account_id, debt) in &gathered.debts {
            self.set_debt(account_id, *debt)?;
        }
        set_last_entered(&self.connection, news.last_seq)
    }

    /// Reads the redo log from the file, replacing the state in memory.
    pub(super) fn read_news(&self) -> rusqlite::Result<()> {
        let mut gathered = Gathered::default();
        let (written, pages) = Pages::read_closely(&self.connection)?;
        let mut last_seq: i64 = self.connection.query_row(LAST_SEQ, [], |row| row.get(0))?;
        for framed in record::framed(&written) {
            let framed = framed?;
            gathered.add(framed.seq, &framed.read()?, framed.bytes);
            last_seq = last_seq.max(framed.seq);
        }
        // All or nothing: the state in memory must match what was posted.
        let mut news = self.news.borrow_mut();
        news.last_seq = last_seq.max(news.last_seq);
        news.pages = pages;
        news.entered.clear();
        news.gathered = gathered;
        Ok(())
    }

    /// The sum of the charges that are not posted yet, by account.
    pub(crate) fn not_entered(&self) -> rusqlite::Result<HashMap<String, i64>> {
        let news = self.news.borrow();
        let mut sums = HashMap::new();
        for framed in news.gathered.records() {
            let record = framed?.read()?;
            *sums.entry(record.account_id.to_owned()).or_default() += record.delta();
        }
        Ok(sums)
    }

    /// The highest call ID in the redo log.
    pub(super) fn last_new_call(&self) -> Option<i64> {
        self.news.borrow().gathered.ids.iter().copied().max()
    }
}

/// The last sequence number of posted calls and of other entries.
const LAST_SEQ: &str = "SELECT max(
    coalesce((SELECT max(seq) FROM ledger_entries), 0),
    coalesce((SELECT max(seq) FROM call_blocks), 0),
    (SELECT last_seq FROM entered))";

/// The records of all calls that are not posted yet, in the order in which they were charged.
pub(crate) fn not_entered(connection: &Connection) -> rusqlite::Result<Vec<u8>> {
    Ok(Pages::read(connection)?.0)
}
