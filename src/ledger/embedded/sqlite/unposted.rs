//! The calls of the redo log in memory, until they are posted together: their records, sums, and what they leave of
//! grants.

use rusqlite::Connection;

use super::{
    days::Sums,
    record::{self, Framed, Record},
};
use crate::{
    base::{
        failpoint,
        fast_map::{FastMap, FastSet},
        money::NanoUsd,
    },
    ledger::budgets::Spent,
};

#[derive(Default)]
pub(crate) struct Unposted {
    /// Concatenated, in the order in which they were charged.
    records: Vec<u8>,
    sums: Sums,
    pub ids: FastSet<i64>,
    /// What the calls have left of grants, and the debts of accounts after them.
    pub left: FastMap<Box<str>, NanoUsd>,
    pub debts: FastMap<Box<str>, NanoUsd>,
    /// What was spent of budgets after them. Not in the log: it is computed again from the calls.
    pub spent: FastMap<Box<str>, Spent>,
}

impl Unposted {
    pub(crate) fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// Adds a call; `bytes` is its record including the header.
    pub(crate) fn add(&mut self, record: &Record<'_>, bytes: &[u8]) {
        self.ids.insert(record.id);
        self.records.extend_from_slice(bytes);
        self.sums.add(record);
        for (grant_id, remaining) in &record.left {
            put(&mut self.left, grant_id, *remaining);
        }
        if let Some(debt) = record.debt {
            put(&mut self.debts, record.account_id, debt);
        }
    }

    pub(crate) fn put_spent(&mut self, spent: Spent) {
        match self.spent.get_mut(&*spent.budget.id) {
            Some(before) => *before = spent,
            None => drop(self.spent.insert(spent.budget.id.as_str().into(), spent)),
        }
    }

    pub(crate) fn records(&self) -> impl Iterator<Item = rusqlite::Result<Framed<'_>>> {
        record::framed(&self.records)
    }

    /// Posts all of them, within the open transaction: in the order of their IDs, and so at the end of their table.
    pub(crate) fn post(&self, connection: &Connection) -> rusqlite::Result<()> {
        let calls = self.records().map(|framed| {
            let framed = framed?;
            Ok((framed.read()?, framed.seq))
        });
        let mut calls = calls.collect::<rusqlite::Result<Vec<_>>>()?;
        calls.sort_unstable_by_key(|(record, _)| record.id);
        let mut insert = connection.prepare_cached(&record::insert())?;
        for (call, seq) in calls {
            call.insert(&mut insert, seq)?;
        }
        failpoint::reached("rows_inserted");
        self.sums.post(connection)
    }
}

fn put(amounts: &mut FastMap<Box<str>, NanoUsd>, id: &str, amount: i64) {
    let amount = NanoUsd::new(amount);
    match amounts.get_mut(id) {
        Some(before) => *before = amount,
        None => drop(amounts.insert(id.into(), amount)),
    }
}
