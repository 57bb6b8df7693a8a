//! Calls that have just ended: written down at once, entered where they are looked for soon after.
//!
//! All charges of a transaction go on the page that the last one began, which is mostly all that it writes. In memory they
//! are gathered as they will be entered: by account, added up, with what they leave of grants. Once in a while, and
//! before anybody looks, all that is new is entered together in one transaction. Until then it counts wherever
//! something is added up: when the file is loaded, and in an audit.

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

/// So many calls at the least are remembered after they were entered: whoever tells of one again does so while its step
/// waits for the writer, or after its hold is gone, which is another way to know it.
const REMEMBERED: usize = 32_768;

/// What is known of calls that are not entered yet.
#[derive(Default)]
pub struct News {
    pages: Pages,
    gathered: Gathered,
    /// The last number that a call or a line of the books has.
    last_seq: i64,
    /// Someone wants to read them once the open transaction is committed.
    wanted: bool,
    /// The last time they could not be entered.
    pub behind: bool,
    /// Those that the open transaction entered, and those that were entered lately.
    entered: FastSet<i64>,
    remembered: [FastSet<i64>; 2],
}

impl News {
    pub fn begin(&mut self) {
        self.wanted = false;
    }

    pub fn is_empty(&self) -> bool {
        self.gathered.is_empty()
    }

    pub fn next_seq(&mut self) -> i64 {
        self.last_seq += 1;
        self.last_seq
    }

    /// They were entered, in a transaction that is still open.
    fn clear(&mut self) {
        self.pages.clear();
        self.entered.extend(take(&mut self.gathered).ids);
    }

    /// The open transaction was committed.
    pub fn committed(&mut self) {
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

    /// What is left of a grant, where it is not what the grant's own row says.
    pub fn left_of(&self, grant_id: &str) -> Option<NanoUsd> {
        self.gathered.left.get(grant_id).copied()
    }

    pub fn debt_of(&self, account_id: &str) -> Option<NanoUsd> {
        self.gathered.debts.get(account_id).copied()
    }
}

impl Database {
    /// Writes down how a call ended.
    pub fn insert_call(&self, call: &Call) -> rusqlite::Result<()> {
        self.insert(call, call.charged, None)
    }

    /// Writes down how a call ended that was charged, and what its charge did.
    pub fn insert_charged(
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
                // Told again, the first telling counts: it is the one that was charged.
                None => Ok(()),
                // A second charge of one call: this is another call of the same number.
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

    /// Whether a call is entered.
    pub fn has_call(&self, id: CallId) -> rusqlite::Result<bool> {
        Ok(one(&self.connection, id)?.is_some())
    }

    /// Whether a call is written down and not entered yet, or was entered lately.
    pub fn has_new_call(&self, id: CallId) -> bool {
        self.news.borrow().is_known(number(id))
    }

    /// Puts the calls of the open transaction into the table.
    pub(super) fn write_news(&self) -> rusqlite::Result<()> {
        self.news.borrow_mut().pages.write(&self.connection)
    }

    /// Within the open transaction: what was written before it, and in it, is wanted where it is looked for.
    pub fn want_news(&self) {
        self.news.borrow_mut().wanted = true;
    }

    pub fn news_are_wanted(&self) -> bool {
        self.news.borrow().wanted
    }

    /// How many are not entered yet.
    pub fn news(&self) -> usize {
        self.news.borrow().gathered.ids.len()
    }

    /// Whether they could not be entered the last time.
    pub fn is_behind(&self) -> bool {
        self.news.borrow().behind
    }

    /// Nothing can be entered just now.
    pub fn fall_behind(&self) {
        let mut news = self.news.borrow_mut();
        news.behind = !news.is_empty();
    }

    /// Enters all of them, within the open transaction.
    pub fn enter_news(&self) -> rusqlite::Result<()> {
        let mut news = self.news.borrow_mut();
        if news.is_empty() {
            return Ok(());
        }
        self.enter(&news)?;
        news.clear();
        Ok(())
    }

    /// The same, in a transaction of its own. Where that fails, they stay for the next time.
    pub fn enter_news_alone(&self) -> rusqlite::Result<()> {
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

    /// Finds out anew what is not entered, from the file.
    pub(super) fn read_news(&self) -> rusqlite::Result<()> {
        let mut gathered = Gathered::default();
        let (written, pages) = Pages::read_closely(&self.connection)?;
        let mut last_seq: i64 = self.connection.query_row(LAST_SEQ, [], |row| row.get(0))?;
        for framed in record::framed(&written) {
            let framed = framed?;
            gathered.add(framed.seq, &framed.read()?, framed.bytes);
            last_seq = last_seq.max(framed.seq);
        }
        // All of them or none: what is known must be what is entered.
        let mut news = self.news.borrow_mut();
        news.last_seq = last_seq.max(news.last_seq);
        news.pages = pages;
        news.entered.clear();
        news.gathered = gathered;
        Ok(())
    }

    /// What the charges that are not entered yet have changed, by account.
    pub fn not_entered(&self) -> rusqlite::Result<HashMap<String, i64>> {
        let news = self.news.borrow();
        let mut sums = HashMap::new();
        for framed in news.gathered.records() {
            let record = framed?.read()?;
            *sums.entry(record.account_id.to_owned()).or_default() += record.delta();
        }
        Ok(sums)
    }

    /// The last call of those that are not entered.
    pub(super) fn last_new_call(&self) -> Option<i64> {
        self.news.borrow().gathered.ids.iter().copied().max()
    }
}

/// Of those that are entered, and of lines that are no calls.
const LAST_SEQ: &str = "SELECT max(
    coalesce((SELECT max(seq) FROM ledger_entries), 0),
    coalesce((SELECT max(seq) FROM call_blocks), 0),
    (SELECT last_seq FROM entered))";

/// The records of all calls that are not entered yet, in the order in which they were paid.
pub fn not_entered(connection: &Connection) -> rusqlite::Result<Vec<u8>> {
    Ok(Pages::read(connection)?.0)
}
