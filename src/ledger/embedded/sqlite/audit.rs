//! Whether the books in a database add up.

use std::collections::{BTreeMap, HashMap};

use rusqlite::{Connection, OptionalExtension as _, Row, params};

use super::{calls, fresh};
use crate::ledger::{Audit, CallId, Violation};

/// Each line is of a call that was charged: there is one for each if there are as many, and no two of one call.
const CHARGED_CALLS: &str = "SELECT count(*) FROM main.calls WHERE cost IS NOT NULL";

const CALLS_WITH_ENTRIES: &str = "SELECT count(*) FROM (SELECT 1 FROM main.ledger_entries
    WHERE kind = 'charge' GROUP BY CAST(ref AS INTEGER))";

pub const CALLS_WITHOUT_ENTRY: &str = "SELECT account_id, id FROM main.calls WHERE cost IS NOT NULL
    AND id NOT IN (SELECT CAST(ref AS INTEGER) FROM main.ledger_entries WHERE kind = 'charge')";

/// A line of the books, as it is read back.
struct Entry {
    seq: i64,
    account_id: String,
    kind: String,
    reference: String,
    delta: i64,
    after: i64,
    /// It is a charge that is yet to be entered.
    is_new: bool,
}

/// The books after a line of theirs; then what is about to be entered in them. One after the other: to have both in
/// one order SQLite would sort them all.
const ENTRIES: &str =
    "SELECT seq, account_id, kind, ref, delta, balance_after, 0 FROM main.ledger_entries
    WHERE seq > ?1 ORDER BY seq";

const NEW_ENTRIES: &str =
    "SELECT rowid, account_id, 'charge', CAST(id AS TEXT), balance_after - balance_before,
        balance_after, 1
    FROM fresh WHERE cost IS NOT NULL ORDER BY rowid";

/// What the charges that are not entered yet have changed, by account.
const NOT_ENTERED: &str = "SELECT account_id, sum(balance_after - balance_before) FROM fresh
    WHERE cost IS NOT NULL GROUP BY account_id";

/// Checks every entry after `since`, and the accounts they belong to; all accounts if `since` is
/// zero. It looks at one moment, whatever is written meanwhile.
pub fn books(connection: &Connection, since: i64) -> rusqlite::Result<Audit> {
    let moment = connection.unchecked_transaction()?;
    fresh::show(&moment)?;
    let mut audit = Audit::default();
    let mut sums = BTreeMap::new();
    let mut lines_of_charges: i64 = 0;
    let mut entries = moment.prepare(ENTRIES)?;
    let mut new = moment.prepare(NEW_ENTRIES)?;
    let entries = entries.query_map([since], read_entry)?;
    for entry in entries.chain(new.query_map([], read_entry)?) {
        let entry = entry?;
        if !entry.is_new {
            audit.last_entry = entry.seq;
            lines_of_charges += i64::from(entry.kind == "charge");
        }
        audit.entries += 1;
        if !sums.contains_key(&entry.account_id) {
            let before = balance_at(&moment, &entry.account_id, since)?;
            sums.insert(entry.account_id.clone(), before);
        }
        let sum = sums.entry(entry.account_id.clone()).or_default();
        *sum += entry.delta;
        if *sum != entry.after {
            let (seq, after, sum) = (entry.seq, entry.after, *sum);
            let what = format!("entry {seq} says {after} nano-dollars, and they add up to {sum}");
            audit.violation(&entry.account_id, what);
        }
        if let Some(what) = contradiction(&moment, &entry, &mut audit)? {
            audit.violation(&entry.account_id, what);
        }
    }
    if since == 0 {
        add_quiet_accounts(&moment, &mut sums)?;
        let count = |query| moment.query_row(query, [], |row| row.get::<_, i64>(0));
        let (charged, entered) = (count(CHARGED_CALLS)?, count(CALLS_WITH_ENTRIES)?);
        if charged != lines_of_charges || entered != charged {
            calls_without_entry(&moment, &mut audit)?;
        }
    }
    audit.last_entry = audit.last_entry.max(since);
    let mut not_entered = moment.prepare(NOT_ENTERED)?;
    let read = |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?));
    let not_entered: HashMap<String, i64> =
        not_entered.query_map([], read)?.collect::<Result<_, _>>()?;
    for (account_id, sum) in &sums {
        let new = not_entered.get(account_id).copied().unwrap_or(0);
        if let Some(what) = remains_differ(&moment, account_id, *sum - new)? {
            audit.violation(account_id, what);
        }
    }
    audit.accounts = sums.into_keys().collect();
    Ok(audit)
}

/// What all grants of an account have left, less what it owes.
pub fn total(connection: &Connection, account_id: &str) -> rusqlite::Result<i64> {
    connection
        .prepare_cached(
            "SELECT coalesce((SELECT sum(remaining) FROM credit_grants WHERE account_id = ?1), 0)
                 - coalesce((SELECT debt FROM accounts WHERE id = ?1), 0)",
        )?
        .query_row([account_id], |row| row.get(0))
}

fn balance_at(moment: &Connection, account_id: &str, seq: i64) -> rusqlite::Result<i64> {
    let last = moment
        .prepare_cached(
            "SELECT balance_after FROM main.ledger_entries WHERE account_id = ?1 AND seq <= ?2
             ORDER BY seq DESC LIMIT 1",
        )?
        .query_row(params![account_id, seq], |row| row.get(0))
        .optional()?;
    Ok(last.unwrap_or(0))
}

/// Whether an entry and what it is for say different things.
fn contradiction(
    moment: &Connection,
    entry: &Entry,
    audit: &mut Audit,
) -> rusqlite::Result<Option<String>> {
    let Entry {
        seq,
        account_id,
        reference,
        delta,
        after,
        ..
    } = entry;
    match entry.kind.as_str() {
        "charge" => {
            audit.charges += 1;
            let id = CallId(reference.parse().unwrap_or(0));
            let call = calls::one(moment, id)?;
            let Some((charged, call)) = call.and_then(|call| Some((call.charged?, call))) else {
                return Ok(Some(format!(
                    "entry {seq} charges for a call that is not there"
                )));
            };
            let id = call.id;
            let right = call.account_id == *account_id
                && charged.cost.nanos() == -delta
                && charged.balance_after.nanos() == *after
                && charged.cost == call.price(charged.usage);
            Ok((!right).then(|| format!("entry {seq} is not what call {id} came to")))
        }
        "grant" => {
            let amount: Option<i64> = moment
                .prepare_cached(
                    "SELECT amount FROM credit_grants WHERE id = ?1 AND account_id = ?2",
                )?
                .query_row([reference, account_id], |row| row.get(0))
                .optional()?;
            let right = amount == Some(*delta);
            Ok((!right).then(|| format!("entry {seq} is not what grant {reference} gave")))
        }
        _ => Ok((*delta >= 0).then(|| format!("entry {seq} is an expiry that took nothing"))),
    }
}

/// Accounts that nothing was ever entered for must have nothing.
fn add_quiet_accounts(
    moment: &Connection,
    sums: &mut BTreeMap<String, i64>,
) -> rusqlite::Result<()> {
    let mut accounts = moment.prepare("SELECT id FROM accounts")?;
    for id in accounts.query_map([], |row| row.get(0))? {
        sums.entry(id?).or_insert(0);
    }
    Ok(())
}

fn calls_without_entry(moment: &Connection, audit: &mut Audit) -> rusqlite::Result<()> {
    let mut calls = moment.prepare(CALLS_WITHOUT_ENTRY)?;
    let read = |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?));
    for call in calls.query_map([], read)? {
        let (account_id, id): (String, i64) = call?;
        let id = CallId(u64::try_from(id).unwrap_or(0));
        let what = format!("call {id} was charged, and there is no entry for it");
        audit.violation(&account_id, what);
    }
    Ok(())
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
        return Ok(Some(format!("{impossible} grants have an impossible rest")));
    }
    let left = total(moment, account_id)?;
    Ok((left != sum).then(|| {
        format!("the entries add up to {sum} nano-dollars, and the grants have {left} left")
    }))
}

fn read_entry(row: &Row<'_>) -> rusqlite::Result<Entry> {
    Ok(Entry {
        seq: row.get(0)?,
        account_id: row.get(1)?,
        kind: row.get(2)?,
        reference: row.get(3)?,
        delta: row.get(4)?,
        after: row.get(5)?,
        is_new: row.get(6)?,
    })
}

impl Audit {
    fn violation(&mut self, account_id: &str, what: String) {
        self.violations.push(Violation {
            account_id: account_id.to_owned(),
            what,
        });
    }
}
