//! Calls that have just ended: written down at once, entered where they are looked for soon after.
//!
//! A call has its place in the list of calls, in the books and in the sums of its day, each with its indexes.
//! To write a page of every one of them for a single charge would cost more than all else that is done for it.
//! So all charges of a transaction become one value at the end of one table, which is all that it writes, and a
//! copy of it stays in memory. Once in a while, and before anybody looks, all that is new is entered together in
//! one transaction. Until then it counts wherever something is added up: when the file is loaded, and in an audit.

use std::{
    collections::HashMap,
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use rusqlite::{Connection, params};

use super::{
    Database,
    days::Sums,
    record::{self, Record},
    rows,
};
use crate::{
    fast_map::{FastMap, FastSet},
    ledger::{Call, CallId, credit::Charge},
    money::NanoUsd,
};

/// How many calls are read back together: so many that they are in order, and not so many that they take much memory.
const READ_AT_ONCE: usize = 1_024;

/// What is known of calls that are not entered yet.
#[derive(Default)]
pub struct News {
    /// One behind the other, each with its length before it, and where each is.
    bytes: Vec<u8>,
    records: Vec<Range<usize>>,
    ids: FastSet<i64>,
    /// So many of the bytes are in the table.
    written: usize,
    last_seq: i64,
    /// What they leave of grants, and what accounts owe since.
    left: FastMap<Box<str>, NanoUsd>,
    debts: FastMap<Box<str>, NanoUsd>,
    /// Someone wants to read them once the open transaction is committed.
    wanted: bool,
    /// The last time they could not be entered: whoever reads has to look at them as well.
    pub behind: Arc<AtomicBool>,
}

impl News {
    pub fn begin(&mut self) {
        self.wanted = false;
    }

    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// There are none any more.
    fn clear(&mut self) {
        self.bytes.clear();
        self.records.clear();
        self.ids.clear();
        self.written = 0;
        self.left.clear();
        self.debts.clear();
    }

    /// Takes note of what a charge has left.
    fn leave<'a>(
        &mut self,
        account_id: &str,
        left: impl Iterator<Item = (&'a str, NanoUsd)>,
        debt: Option<NanoUsd>,
    ) {
        for (grant_id, remaining) in left {
            put(&mut self.left, grant_id, remaining);
        }
        if let Some(debt) = debt {
            put(&mut self.debts, account_id, debt);
        }
    }

    fn records(&self) -> impl Iterator<Item = rusqlite::Result<Record<'_>>> {
        self.records.iter().map(|at| self.read(at))
    }

    fn read(&self, at: &Range<usize>) -> rusqlite::Result<Record<'_>> {
        record::read(&self.bytes[at.clone()])
    }

    /// What is left of a grant, where it is not what the grant's own row says.
    pub fn left_of(&self, grant_id: &str) -> Option<NanoUsd> {
        self.left.get(grant_id).copied()
    }

    pub fn debt_of(&self, account_id: &str) -> Option<NanoUsd> {
        self.debts.get(account_id).copied()
    }
}

fn put(amounts: &mut FastMap<Box<str>, NanoUsd>, id: &str, amount: NanoUsd) {
    match amounts.get_mut(id) {
        Some(before) => *before = amount,
        None => drop(amounts.insert(id.into(), amount)),
    }
}

impl Database {
    /// Writes down how a call ended, and what its charge did.
    pub fn insert_call(&self, call: &Call, charge: Option<&Charge>) -> rusqlite::Result<()> {
        let id = number(call.id);
        if charge.is_none() && self.is_written(id)? {
            // Told again, the first telling counts: it is the one that was charged.
            return Ok(());
        }
        let mut news = self.news.borrow_mut();
        if !news.ids.insert(id) {
            // A second charge of one call: this is another call of the same number.
            return Err(rusqlite::Error::StatementChangedRows(0));
        }
        let at = record::write(&mut news.bytes, call, charge)?;
        news.records.push(at);
        if let Some(charge) = charge {
            let left = charge.left.iter();
            let left = left.map(|left| (&*left.grant_id, left.remaining));
            news.leave(&call.account_id, left, charge.debt);
        }
        Ok(())
    }

    /// Puts what calls have left since the last time into the table, as a part of the open transaction.
    pub(super) fn write_news(&self) -> rusqlite::Result<()> {
        let mut news = self.news.borrow_mut();
        let new = &news.bytes[news.written..];
        if new.is_empty() {
            return Ok(());
        }
        self.connection
            .prepare_cached("INSERT INTO new_calls VALUES (?1, ?2)")?
            .execute(params![news.last_seq + 1, new])?;
        news.last_seq += 1;
        news.written = news.bytes.len();
        Ok(())
    }

    fn is_written(&self, id: i64) -> rusqlite::Result<bool> {
        let known = "SELECT 1 FROM calls WHERE id = ?1";
        let is_new = self.news.borrow().ids.contains(&id);
        Ok(is_new || self.connection.prepare_cached(known)?.exists([id])?)
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
        self.news.borrow().records.len()
    }

    /// Whether they could not be entered the last time.
    pub fn is_behind(&self) -> bool {
        self.news.borrow().behind.load(Relaxed)
    }

    /// Nothing can be entered just now.
    pub fn fall_behind(&self) {
        let news = self.news.borrow();
        news.behind.store(!news.is_empty(), Relaxed);
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
        news.behind.store(entered.is_err(), Relaxed);
        entered?;
        news.clear();
        Ok(())
    }

    fn enter(&self, news: &News) -> rusqlite::Result<()> {
        let mut sums = Sums::default();
        for some in news.records.chunks(READ_AT_ONCE) {
            let records = some.iter().map(|at| news.read(at));
            let records: Vec<_> = records.collect::<Result<_, _>>()?;
            for record in &records {
                sums.add(record);
            }
            // Lines in the order in which they were paid; calls in that of their numbers, in which their table is:
            // what is added at its end needs no room made for it.
            let paid = records.iter().filter(|record| record.paid.is_some());
            rows::LINES.insert(&self.connection, &paid.collect::<Vec<_>>())?;
            let mut calls: Vec<_> = records.iter().collect();
            calls.sort_unstable_by_key(|call| call.id);
            rows::CALLS.insert(&self.connection, &calls)?;
        }
        sums.enter(&self.connection)?;
        for (grant_id, remaining) in &news.left {
            self.set_remaining(grant_id, *remaining)?;
        }
        for (account_id, debt) in &news.debts {
            self.set_debt(account_id, *debt)?;
        }
        let mut forget = self.connection.prepare_cached("DELETE FROM new_calls")?;
        forget.execute([]).map(|_| ())
    }

    /// Finds out anew what is not entered, from the rows themselves.
    pub(super) fn read_news(&self) -> rusqlite::Result<()> {
        let mut found = News::default();
        let mut rows = self
            .connection
            .prepare_cached("SELECT seq, records FROM new_calls ORDER BY seq")?;
        let mut rows = rows.query([])?;
        while let Some(row) = rows.next()? {
            found.last_seq = row.get(0)?;
            let (start, bytes) = (found.bytes.len(), row.get_ref(1)?.as_blob()?);
            found.bytes.extend(bytes);
            for at in record::places(bytes)? {
                let record = record::read(&bytes[at.clone()])?;
                let left = record.left.iter();
                let left = left.map(|&(grant_id, left)| (grant_id, NanoUsd::new(left)));
                found.leave(record.account_id, left, record.debt.map(NanoUsd::new));
                found.records.push(start + at.start..start + at.end);
                found.ids.insert(record.id);
            }
        }
        found.written = found.bytes.len();
        // All of them or none: what is known must be what is entered.
        let mut news = self.news.borrow_mut();
        found.last_seq = found.last_seq.max(news.last_seq);
        found.behind = news.behind.clone();
        *news = found;
        Ok(())
    }

    /// What the charges that are not entered yet have changed, by account.
    pub fn not_entered(&self) -> rusqlite::Result<HashMap<String, i64>> {
        let news = self.news.borrow();
        let mut sums = HashMap::new();
        for record in news.records() {
            let record = record?;
            *sums.entry(record.account_id.to_owned()).or_default() += record.delta();
        }
        Ok(sums)
    }

    /// The last call of those that are not entered.
    pub(super) fn last_new_call(&self) -> Option<i64> {
        self.news.borrow().ids.iter().copied().max()
    }
}

fn number(id: CallId) -> i64 {
    i64::try_from(id.0).unwrap_or(i64::MAX)
}

/// Copies the calls that are not entered yet into a table of their own, in the order in which they were paid.
pub fn copy_to_fresh(connection: &Connection) -> rusqlite::Result<()> {
    let mut rows = connection.prepare("SELECT records FROM main.new_calls ORDER BY seq")?;
    let mut rows = rows.query([])?;
    while let Some(row) = rows.next()? {
        let bytes = row.get_ref(0)?.as_blob()?;
        for at in record::places(bytes)? {
            rows::FRESH.insert(connection, &[&record::read(&bytes[at])?])?;
        }
    }
    Ok(())
}
