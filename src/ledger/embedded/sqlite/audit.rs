//! The audit of the database: whether the entries add up.

use std::collections::{BTreeMap, HashMap};

use rusqlite::{Connection, OptionalExtension as _, Rows, params};

use super::{
    budgets::{spent_by_all_calls, stored_budgets},
    record::{COLUMNS, Record, framed},
    redo_pages::Pages,
};
use crate::{
    base::money::NanoUsd,
    ledger::{Audit, CallId, Violation, budgets::Budgets},
};

/// Entries other than charges after a sequence number, by account.
const ENTRIES: &str =
    "SELECT account_id, seq, kind, ref, delta_nano_usd, balance_after_nano_usd FROM ledger_entries
    WHERE seq > ?1 ORDER BY account_id, seq";

/// Charged calls, by account. There is no index of all sequence numbers: those after one are looked up for each account.
fn charges(since: i64) -> String {
    if since == 0 {
        return format!(
            "SELECT {COLUMNS} FROM calls INDEXED BY calls_by_entry WHERE entry_seq > ?1
             ORDER BY account_id, entry_seq"
        );
    }
    let columns = COLUMNS.replace("id, entry_seq,", "calls.id, entry_seq,");
    format!(
        "SELECT {columns} FROM accounts CROSS JOIN calls INDEXED BY calls_by_entry
             ON account_id = accounts.id AND entry_seq > ?1
         ORDER BY accounts.id, entry_seq"
    )
}

/// An entry other than a charge.
struct Line {
    account_id: String,
    seq: i64,
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
        look.at_calls_stored_twice()?;
        look.at_budgets()?;
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
    /// Checks charged calls and other entries: account by account, in the order in which they were posted.
    fn at_entries(&mut self) -> rusqlite::Result<()> {
        let mut lines = self.moment.prepare(ENTRIES)?;
        let mut lines = lines.query([self.since])?;
        let mut line = next_line(&mut lines)?;
        let mut charges = self.moment.prepare(&charges(self.since))?;
        let mut charges = charges.query([self.since])?;
        while let Some(charge) = charges.next()? {
            let (account_id, seq) = (charge.get_ref(3)?.as_str()?, charge.get(1)?);
            while let Some(earlier) =
                line.take_if(|line| (line.account_id.as_str(), line.seq) < (account_id, seq))
            {
                self.at_line(&earlier)?;
                line = next_line(&mut lines)?;
            }
            if let Ok(record) = Record::from_row(charge) {
                self.at_call(seq, &record)?;
            } else {
                let what = format!("the call of entry {seq} cannot be read");
                self.violation(account_id, what);
            }
            self.audit.last_entry = self.audit.last_entry.max(seq);
        }
        while let Some(last) = line {
            self.at_line(&last)?;
            line = next_line(&mut lines)?;
        }
        Ok(())
    }

    fn at_line(&mut self, line: &Line) -> rusqlite::Result<()> {
        self.audit.last_entry = self.audit.last_entry.max(line.seq);
        self.add(line.seq, &line.account_id, line.delta, line.after)?;
        if let Some(what) = self.contradiction(line)? {
            self.violation(&line.account_id, what);
        }
        Ok(())
    }

    /// Checks a charged call: its cost against its usage and prices, and its balance.
    fn at_call(&mut self, seq: i64, record: &Record<'_>) -> rusqlite::Result<()> {
        let Some(paid) = record.paid else {
            return Ok(());
        };
        self.audit.charges += 1;
        self.add(seq, record.account_id, record.delta(), paid.after)?;
        if record.price().ok().flatten() != Some(NanoUsd::new(paid.cost)) {
            let id = CallId(u64::try_from(record.id).unwrap_or(0));
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
            self.at_call(framed.seq, &record)?;
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

    /// A call of the redo log must not have a row yet. Rows are unique by their key.
    fn at_calls_stored_twice(&mut self) -> rusqlite::Result<()> {
        let (records, _) = Pages::read_closely(self.moment)?;
        for framed in framed(&records) {
            let record = framed?.read()?;
            let stored = "SELECT 1 FROM calls WHERE id = ?1";
            if self.moment.prepare_cached(stored)?.exists([record.id])? {
                let id = CallId(u64::try_from(record.id).unwrap_or(0));
                let what = format!("call {id} is stored twice");
                self.violation(record.account_id, what);
            }
        }
        Ok(())
    }

    /// What was spent of a budget must be the cost of its calls, as far as they are posted. Of an account whose history was
    /// pruned, some of them may be gone.
    fn at_budgets(&mut self) -> rusqlite::Result<()> {
        for (account_id, stored) in stored_budgets(self.moment)? {
            let mut budgets = Budgets::default();
            for counted in stored {
                budgets.put(counted);
            }
            let by_calls = spent_by_all_calls(self.moment, &account_id, &budgets)?;
            let pruned = "SELECT 1 FROM ledger_entries WHERE account_id = ?1 AND kind = 'opening'";
            let mut pruned = self.moment.prepare_cached(pruned)?;
            let is_pruned = pruned.exists([&account_id])?;
            for counted in budgets.all() {
                let spent = counted.spent;
                let cost = by_calls.get(&counted.budget).map_or(0, |it| it.spent);
                if spent != cost && !(is_pruned && spent > cost) {
                    let id = &counted.budget.id;
                    let what = format!(
                        "{spent} nano-dollars were spent of budget {id}, and its calls have cost {cost}"
                    );
                    self.violation(&account_id, what);
                }
            }
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
            "opening" => (*delta != line.after).then(|| {
                format!("entry {seq} brings a balance forward, and is not the account's first")
            }),
            "grant" => {
                let amount: Option<i64> = self
                    .moment
                    .prepare_cached(
                        "SELECT amount_nano_usd FROM credit_grants WHERE id = ?1 AND account_id = ?2",
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

/// What all grants of an account have left, less its debt.
pub(crate) fn total(connection: &Connection, account_id: &str) -> rusqlite::Result<i64> {
    connection
        .prepare_cached(
            "SELECT coalesce((SELECT sum(remaining_nano_usd) FROM credit_grants WHERE account_id = ?1), 0)
                 - coalesce((SELECT debt_nano_usd FROM accounts WHERE id = ?1), 0)",
        )?
        .query_row([account_id], |row| row.get(0))
}

/// The balance after the last entry up to this one.
fn balance_at(moment: &Connection, account_id: &str, seq: i64) -> rusqlite::Result<i64> {
    let last = moment
        .prepare_cached(
            "SELECT seq, balance_after_nano_usd FROM ledger_entries WHERE account_id = ?1 AND seq <= ?2
             UNION ALL
             SELECT entry_seq, balance_after_nano_usd FROM calls WHERE account_id = ?1 AND entry_seq <= ?2
             ORDER BY 1 DESC LIMIT 1",
        )?
        .query_row(params![account_id, seq], |row| row.get(1))
        .optional()?;
    Ok(last.unwrap_or(0))
}

fn remains_differ(
    moment: &Connection,
    account_id: &str,
    sum: i64,
) -> rusqlite::Result<Option<String>> {
    let impossible: i64 = moment
        .prepare_cached(
            "SELECT count(*) FROM credit_grants
             WHERE account_id = ?1
                 AND (remaining_nano_usd < 0 OR remaining_nano_usd > amount_nano_usd)",
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

fn next_line(rows: &mut Rows<'_>) -> rusqlite::Result<Option<Line>> {
    let Some(row) = rows.next()? else {
        return Ok(None);
    };
    Ok(Some(Line {
        account_id: row.get(0)?,
        seq: row.get(1)?,
        kind: row.get(2)?,
        reference: row.get(3)?,
        delta: row.get(4)?,
        after: row.get(5)?,
    }))
}
