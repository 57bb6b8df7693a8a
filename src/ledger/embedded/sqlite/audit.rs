//! The audit of the database: whether the entries add up.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap, HashMap},
    iter::Peekable,
};

use rusqlite::{Connection, MappedRows, OptionalExtension as _, Row, params};

use super::{
    calls::one,
    new_calls::not_entered,
    new_pages::Pages,
    record::{Framed, Record, framed},
};
use crate::{
    base::money::NanoUsd,
    ledger::{Audit, CallId, Violation},
};

/// Entries other than charges, after a sequence number.
const LINES: &str = "SELECT seq, account_id, kind, ref, delta, balance_after FROM ledger_entries
    WHERE seq > ?1 ORDER BY seq";

/// Blocks of calls, after a sequence number.
const BLOCKS: &str =
    "SELECT seq, calls, records, account_id FROM call_blocks WHERE seq > ?1 ORDER BY seq";

/// All blocks, ordered by their first call ID.
const BY_FIRST_ID: &str = "SELECT first_id, records FROM call_blocks INDEXED BY blocks_by_id
    ORDER BY first_id";

/// An entry other than a charge.
struct Line {
    seq: i64,
    account_id: String,
    kind: String,
    reference: String,
    delta: i64,
    after: i64,
}

/// Checks every entry after `since` and the accounts of these entries; all accounts if `since` is zero. It reads one
/// snapshot, whatever is written meanwhile.
pub(crate) fn audit_entries(connection: &Connection, since: i64) -> rusqlite::Result<Audit> {
    let moment = connection.unchecked_transaction()?;
    let mut look = Look {
        moment: &moment,
        since,
        sums: BTreeMap::new(),
        audit: Audit::default(),
    };
    look.at_entries()?;
    let new = look.at_new_charges()?;
    if since == 0 {
        look.at_quiet_accounts()?;
        look.for_calls_that_are_there_twice()?;
    }
    look.at_what_is_left(&new)?;
    let Look { sums, audit, .. } = look;
    Ok(Audit {
        last_entry: audit.last_entry.max(since),
        accounts: sums.into_keys().collect(),
        ..audit
    })
}

struct Look<'a> {
    moment: &'a Connection,
    since: i64,
    /// The sum of each account's entries.
    sums: BTreeMap<String, i64>,
    audit: Audit,
}

impl Look<'_> {
    /// Checks blocks of calls and other entries, in the order in which they were posted.
    fn at_entries(&mut self) -> rusqlite::Result<()> {
        let mut lines = self.moment.prepare(LINES)?;
        let read: ReadLine = read_line;
        let mut lines = lines.query_map([self.since], read)?.peekable();
        let mut blocks = self.moment.prepare(BLOCKS)?;
        let mut blocks = blocks.query([self.since])?;
        while let Some(block) = blocks.next()? {
            let (seq, calls): (i64, i64) = (block.get(0)?, block.get(1)?);
            self.at_lines_before(seq, &mut lines)?;
            let account_id = block.get_ref(3)?.as_str()?;
            let mut found = 0;
            for framed in framed(block.get_ref(2)?.as_blob()?) {
                let read = framed.and_then(|framed| Ok((framed, framed.read()?)));
                let Ok((framed, record)) = read else {
                    let what = format!("row {seq} has a call that cannot be read");
                    self.violation(account_id, what);
                    continue;
                };
                self.at_call(framed, &record)?;
                found += 1;
            }
            if found != calls {
                let what = format!("row {seq} has {found} calls, but its count is {calls}");
                self.violation(account_id, what);
            }
            self.audit.last_entry = seq;
        }
        self.at_lines_before(i64::MAX, &mut lines)
    }

    fn at_lines_before(
        &mut self,
        seq: i64,
        lines: &mut Peekable<Lines<'_>>,
    ) -> rusqlite::Result<()> {
        while let Some(line) = lines.next_if(|line| line.as_ref().is_ok_and(|one| one.seq < seq)) {
            let line = line?;
            self.audit.last_entry = line.seq;
            self.add(line.seq, &line.account_id, line.delta, line.after)?;
            if let Some(what) = self.contradiction(&line)? {
                self.violation(&line.account_id, what);
            }
        }
        match lines.next_if(Result::is_err) {
            Some(Err(error)) => Err(error),
            _ => Ok(()),
        }
    }

    /// Checks that the entry of a charged call matches the call's cost.
    fn at_call(&mut self, framed: Framed<'_>, record: &Record<'_>) -> rusqlite::Result<()> {
        let Some(paid) = record.paid else {
            return Ok(());
        };
        let (seq, id) = (framed.seq, record.id);
        self.audit.charges += 1;
        self.add(seq, record.account_id, record.delta(), paid.after)?;
        let right = framed.id == id
            && record.delta() == -paid.cost
            && record.price()? == Some(NanoUsd::new(paid.cost));
        if !right {
            let id = CallId(u64::try_from(id).unwrap_or(0));
            let what = format!("entry {seq} differs from the cost of call {id}");
            self.violation(record.account_id, what);
        }
        Ok(())
    }

    /// Adds an entry to its account's sum, and compares the sum with the entry's balance.
    fn add(&mut self, seq: i64, account_id: &str, delta: i64, after: i64) -> rusqlite::Result<()> {
        self.audit.entries += 1;
        if !self.sums.contains_key(account_id) {
            let before = balance_at(self.moment, account_id, self.since)?;
            self.sums.insert(account_id.to_owned(), before);
        }
        let sum = self.sums.get_mut(account_id).map_or(0, |sum| {
            *sum += delta;
            *sum
        });
        if sum != after {
            let what = format!(
                "entry {seq} has balance {after} nano-dollars, but the entries add up to {sum}"
            );
            self.violation(account_id, what);
        }
        Ok(())
    }

    /// Checks charges of the redo log. Returns their sum by account.
    fn at_new_charges(&mut self) -> rusqlite::Result<HashMap<String, i64>> {
        let mut new = HashMap::new();
        let (records, _) = Pages::read_closely(self.moment)?;
        for framed in framed(&records) {
            let framed = framed?;
            let record = framed.read()?;
            self.at_call(framed, &record)?;
            *new.entry(record.account_id.to_owned()).or_default() += record.delta();
        }
        Ok(new)
    }

    /// Accounts without entries must have no credit.
    fn at_quiet_accounts(&mut self) -> rusqlite::Result<()> {
        let mut accounts = self.moment.prepare("SELECT id FROM accounts")?;
        for id in accounts.query_map([], |row| row.get(0))? {
            self.sums.entry(id?).or_insert(0);
        }
        Ok(())
    }

    /// Blocks are ordered by their first call ID: smaller IDs have all been read by then, and are compared in order.
    fn for_calls_that_are_there_twice(&mut self) -> rusqlite::Result<()> {
        let mut rows = self.moment.prepare(BY_FIRST_ID)?;
        let mut rows = rows.query([])?;
        let (mut ids, mut last) = (BinaryHeap::new(), None);
        let mut twice = Vec::new();
        let mut take = |ids: &mut BinaryHeap<Reverse<i64>>, until: i64| {
            while let Some(Reverse(id)) = ids.peek().copied().filter(|Reverse(id)| *id < until) {
                ids.pop();
                twice.extend((last == Some(id)).then_some(id));
                last = Some(id);
            }
        };
        while let Some(row) = rows.next()? {
            take(&mut ids, row.get(0)?);
            // An unreadable record was reported before.
            for framed in framed(row.get_ref(1)?.as_blob()?).map_while(Result::ok) {
                ids.push(Reverse(framed.id));
            }
        }
        for framed in framed(&not_entered(self.moment)?) {
            ids.push(Reverse(framed?.id));
        }
        take(&mut ids, i64::MAX);
        for id in twice {
            let id = CallId(u64::try_from(id).unwrap_or(0));
            let account_id = one(self.moment, id)?.map(|call| call.account_id);
            let what = format!("call {id} is stored twice");
            self.violation(&account_id.unwrap_or_default(), what);
        }
        Ok(())
    }

    /// Grants must have left what the entries add up to, not counting the redo log.
    fn at_what_is_left(&mut self, new: &HashMap<String, i64>) -> rusqlite::Result<()> {
        for (account_id, sum) in self.sums.clone() {
            let new = new.get(&account_id).copied().unwrap_or(0);
            if let Some(what) = remains_differ(self.moment, &account_id, sum - new)? {
                self.violation(&account_id, what);
            }
        }
        Ok(())
    }

    /// Describes how an entry differs from its grant, if it does.
    fn contradiction(&self, line: &Line) -> rusqlite::Result<Option<String>> {
        let Line {
            seq,
            account_id,
            reference,
            delta,
            ..
        } = line;
        let found = match line.kind.as_str() {
            // Charges that have a call were checked with it.
            "charge" => Some(format!("entry {seq} charges a call that does not exist")),
            "grant" => {
                let amount: Option<i64> = self
                    .moment
                    .prepare_cached(
                        "SELECT amount FROM credit_grants WHERE id = ?1 AND account_id = ?2",
                    )?
                    .query_row([reference, account_id], |row| row.get(0))
                    .optional()?;
                let right = amount == Some(*delta);
                (!right)
                    .then(|| format!("entry {seq} differs from the amount of grant {reference}"))
            }
            _ => (*delta >= 0).then(|| format!("entry {seq} is an expiry that deducts nothing")),
        };
        Ok(found)
    }

    fn violation(&mut self, account_id: &str, what: String) {
        self.audit.violations.push(Violation {
            account_id: account_id.to_owned(),
            what,
        });
    }
}

type ReadLine = fn(&Row<'_>) -> rusqlite::Result<Line>;
type Lines<'a> = MappedRows<'a, ReadLine>;

/// What all grants of an account have left, less its debt.
pub(crate) fn total(connection: &Connection, account_id: &str) -> rusqlite::Result<i64> {
    connection
        .prepare_cached(
            "SELECT coalesce((SELECT sum(remaining) FROM credit_grants WHERE account_id = ?1), 0)
                 - coalesce((SELECT debt FROM accounts WHERE id = ?1), 0)",
        )?
        .query_row([account_id], |row| row.get(0))
}

/// The balance after the last entry up to this one.
fn balance_at(moment: &Connection, account_id: &str, seq: i64) -> rusqlite::Result<i64> {
    let line = moment
        .prepare_cached(
            "SELECT seq, balance_after FROM ledger_entries WHERE account_id = ?1 AND seq <= ?2
             ORDER BY seq DESC LIMIT 1",
        )?
        .query_row(params![account_id, seq], |row| {
            Ok((row.get(0)?, row.get(1)?))
        })
        .optional()?;
    let charge = moment
        .prepare_cached(
            "SELECT records FROM call_blocks INDEXED BY blocks_with_charges
             WHERE account_id = ?1 AND charges > 0 AND seq <= ?2 ORDER BY seq DESC LIMIT 1",
        )?
        .query_row(params![account_id, seq], |row| row.get::<_, Vec<u8>>(0))
        .optional()?;
    let mut last: (i64, i64) = line.unwrap_or_default();
    for framed in framed(&charge.unwrap_or_default()) {
        let framed = framed?;
        if let Some(paid) = framed.read()?.paid {
            last = last.max((framed.seq, paid.after));
        }
    }
    Ok(last.1)
}

fn remains_differ(
    moment: &Connection,
    account_id: &str,
    sum: i64,
) -> rusqlite::Result<Option<String>> {
    let impossible: i64 = moment
        .prepare_cached(
            "SELECT count(*) FROM credit_grants
             WHERE account_id = ?1 AND (remaining < 0 OR remaining > amount)",
        )?
        .query_row([account_id], |row| row.get(0))?;
    if impossible > 0 {
        return Ok(Some(format!(
            "{impossible} grants have an invalid remaining amount"
        )));
    }
    let left = total(moment, account_id)?;
    Ok((left != sum).then(|| {
        format!("the entries add up to {sum} nano-dollars, and the grants have {left} left")
    }))
}

fn read_line(row: &Row<'_>) -> rusqlite::Result<Line> {
    Ok(Line {
        seq: row.get(0)?,
        account_id: row.get(1)?,
        kind: row.get(2)?,
        reference: row.get(3)?,
        delta: row.get(4)?,
        after: row.get(5)?,
    })
}
