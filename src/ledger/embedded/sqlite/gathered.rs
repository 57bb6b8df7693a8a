//! Calls of the redo log, collected in memory in the form in which they will be posted together.

use rusqlite::{Connection, params};

use super::{
    blocks::Block,
    days::Sums,
    names,
    record::{self, Framed, Record},
};
use crate::base::{
    fast_map::{FastMap, FastSet},
    money::NanoUsd,
};

#[derive(Default)]
pub(crate) struct Gathered {
    blocks: Vec<Block>,
    /// The block for each account's next call.
    open: FastMap<Box<str>, usize>,
    sums: Sums,
    /// Calls that cannot be found by the time in their request ID.
    named: Vec<(Box<str>, i64)>,
    pub ids: FastSet<i64>,
    /// What the calls have left of grants, and the debts of accounts after them.
    pub left: FastMap<Box<str>, NanoUsd>,
    pub debts: FastMap<Box<str>, NanoUsd>,
}

impl Gathered {
    pub(crate) fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// Adds a call; `bytes` is its record including the header.
    pub(crate) fn add(&mut self, seq: i64, record: &Record<'_>, bytes: &[u8]) {
        self.ids.insert(record.id);
        self.block_for(record, bytes).add(seq, record, bytes);
        self.sums.add(record);
        if !names::says_when(record.request_id, record.id) {
            self.named.push((record.request_id.into(), record.id));
        }
        for (grant_id, remaining) in &record.left {
            put(&mut self.left, grant_id, *remaining);
        }
        if let Some(debt) = record.debt {
            put(&mut self.debts, record.account_id, debt);
        }
    }

    fn block_for(&mut self, record: &Record<'_>, bytes: &[u8]) -> &mut Block {
        let open = self.open.get(record.account_id).copied();
        let open = open.filter(|open| self.blocks[*open].has_room_for(record, bytes));
        let place = open.unwrap_or_else(|| {
            self.blocks.push(Block::for_calls_from(record));
            let place = self.blocks.len() - 1;
            self.open.insert(record.account_id.into(), place);
            place
        });
        &mut self.blocks[place]
    }

    pub(crate) fn records(&self) -> impl Iterator<Item = rusqlite::Result<Framed<'_>>> {
        let blocks = self.blocks.iter();
        blocks.flat_map(|block| record::framed(block.records()))
    }

    /// Posts all of them, within the open transaction.
    pub(crate) fn enter(&self, connection: &Connection) -> rusqlite::Result<()> {
        self.enter_calls(connection)?;
        self.sums.enter(connection)
    }

    /// Posts the calls without their sums.
    pub(crate) fn enter_calls(&self, connection: &Connection) -> rusqlite::Result<()> {
        let mut blocks: Vec<_> = self.blocks.iter().collect();
        blocks.sort_unstable_by_key(|block| block.seq);
        for block in blocks {
            block.insert(connection)?;
        }
        let mut name =
            connection.prepare_cached("INSERT OR IGNORE INTO call_names VALUES (?1, ?2)")?;
        for (request_id, id) in &self.named {
            name.execute(params![request_id, id])?;
        }
        Ok(())
    }
}

fn put(amounts: &mut FastMap<Box<str>, NanoUsd>, id: &str, amount: i64) {
    let amount = NanoUsd::new(amount);
    match amounts.get_mut(id) {
        Some(before) => *before = amount,
        None => drop(amounts.insert(id.into(), amount)),
    }
}
