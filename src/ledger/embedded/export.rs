//! Exports of a database file, while a gateway may be using it.
//!
//! Each page of rows is a query of its own on a read-only connection. A snapshot that was open for the whole export
//! would keep the gateway from reusing its write-ahead log, which then grows for as long as the reader of the export
//! takes. Pages add up to one export because posted rows are not changed: the key after which the next page begins is
//! that of the last row, and a bound that is read first keeps new calls from prolonging the export.

use std::{fmt::Display, path::Path, time::Duration};

use rusqlite::{Connection, Params, Row, Statement, params, types::ValueRef};

#[cfg(test)]
mod tests;

use super::sqlite;
use crate::{
    db::sqlite::schema,
    ledger::export::{
        Column, ExportError, FIND_ACCOUNT, Selection, Table, TakeRows, Value, only_account,
    },
};

/// Rows of a page: some milliseconds of reading, about a megabyte of text.
const PAGE: u32 = 2_000;
/// Accounts whose IDs are read at once.
const ACCOUNTS: u32 = 1_000;
/// Readers wait for no writer; only a recovery after a crash can hold this up.
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);

/// Sends the selected rows to `rows`.
pub(crate) fn export_file(
    path: &Path,
    selection: &Selection,
    rows: &mut dyn TakeRows,
) -> Result<(), ExportError> {
    let failed = |reason: &dyn Display| ExportError::Store {
        store: path.display().to_string(),
        reason: reason.to_string(),
    };
    let connection = open(path).map_err(|reason| failed(&reason))?;
    let exported = with_account_id(&connection, selection.clone()).and_then(|selection| {
        let export = Export {
            connection: &connection,
            selection: &selection,
            page: PAGE,
        };
        export.run(rows)
    });
    exported.map_err(|error| match error {
        Failure::Database(error) => failed(&error),
        Failure::Export(error) => error,
    })
}

/// The selection with the ID of its account, which may be named by its email.
fn with_account_id(
    connection: &Connection,
    mut selection: Selection,
) -> Result<Selection, Failure> {
    if let Some(given) = &selection.account {
        let mut find = connection.prepare(FIND_ACCOUNT)?;
        let found = find.query_map([given], |row| row.get(0))?;
        let id = only_account(given, found.collect::<Result<_, _>>()?);
        selection.account = Some(id.map_err(Failure::Export)?);
    }
    Ok(selection)
}

fn open(path: &Path) -> Result<Connection, String> {
    let connection = sqlite::read_only(path).map_err(|error| error.to_string())?;
    let checked = connection
        .busy_timeout(LOCK_TIMEOUT)
        .and_then(|()| schema::version(&connection));
    if checked.map_err(|error| error.to_string())? == 0 {
        return Err("it has no tables; is it the database of a gateway?".into());
    }
    sqlite::check_version(path, &connection).map_err(|error| error.to_string())?;
    Ok(connection)
}

enum Failure {
    Database(rusqlite::Error),
    Export(ExportError),
}

impl From<rusqlite::Error> for Failure {
    fn from(error: rusqlite::Error) -> Self {
        Self::Database(error)
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self::Export(error.into())
    }
}

struct Export<'a> {
    connection: &'a Connection,
    selection: &'a Selection,
    /// Rows of a page.
    page: u32,
}

impl Export<'_> {
    fn run(&self, rows: &mut dyn TakeRows) -> Result<(), Failure> {
        match self.selection.table {
            Table::Calls => self.calls(rows),
            Table::Ledger => self.for_each_account(rows, &mut self.entries()?),
            Table::Usage => self.for_each_account(rows, &mut self.days()?),
        }
    }

    fn calls(&self, rows: &mut dyn TakeRows) -> Result<(), Failure> {
        let (from, to) = self.selection.ms();
        let last: i64 = self.connection.query_row(
            "SELECT coalesce(max(ended_at_ms), 0) FROM calls",
            [],
            |row| row.get(0),
        )?;
        let to = to.min(last + 1);
        let mut page = self.connection.prepare(&calls_sql(self.selection))?;
        let key = page.column_count() - 2;
        let (mut ended, mut id): (i64, i64) = (from, -1);
        loop {
            let account = self.selection.account.as_deref();
            let read = self.page(
                &mut page,
                params![ended, id, to, self.page, account],
                rows,
                |row| Ok((row.get(key)?, row.get(key + 1)?)),
            )?;
            match read {
                Some(last) => (ended, id) = last,
                None => return Ok(()),
            }
        }
    }

    /// Calls `export` for the selected account, or for every account in the order of their IDs.
    fn for_each_account(
        &self,
        rows: &mut dyn TakeRows,
        export: &mut ExportAccount<'_>,
    ) -> Result<(), Failure> {
        if let Some(account) = &self.selection.account {
            return export(account, rows);
        }
        let mut ids = self
            .connection
            .prepare("SELECT id FROM accounts WHERE id > ?1 ORDER BY id LIMIT ?2")?;
        let mut last = String::new();
        loop {
            let found = ids.query_map(params![last, ACCOUNTS], |row| row.get(0))?;
            let found = found.collect::<rusqlite::Result<Vec<String>>>()?;
            for account in &found {
                export(account, rows)?;
            }
            match found.into_iter().next_back() {
                Some(account) => last = account,
                None => return Ok(()),
            }
        }
    }

    /// Exports the ledger entries of an account in their order.
    fn entries(&self) -> rusqlite::Result<ExportAccount<'_>> {
        let selection = self.selection;
        let ((from_ms, to_ms), (from, to)) = (selection.ms(), (selection.from, selection.to));
        let mut bounds = self.connection.prepare(bounds_sql(selection))?;
        let mut page = self.connection.prepare(&entries_sql())?;
        Ok(Box::new(move |account, rows| {
            let seqs = if selection.is_of_all_time() {
                bounds.query_row([account], read_bounds)
            } else {
                bounds.query_row(params![account, from, to, from_ms, to_ms], read_bounds)
            };
            let (Some(first), Some(last)) = seqs? else {
                return Ok(());
            };
            let mut after = first - 1;
            loop {
                let bound = params![account, after, last, from, to, self.page];
                match self.page(&mut page, bound, rows, |row| row.get(0))? {
                    Some(seq) => after = seq,
                    None => return Ok(()),
                }
            }
        }))
    }

    /// Exports the days of an account.
    fn days(&self) -> rusqlite::Result<ExportAccount<'_>> {
        let (from, to) = self.selection.days();
        let mut page = self.connection.prepare(&days_sql())?;
        Ok(Box::new(move |account, rows| {
            let mut key = (from.clone(), String::new(), String::new(), String::new());
            loop {
                let (day, model, key_id, project_id) = &key;
                let bound = params![account, day, model, key_id, project_id, to, self.page];
                let read = self.page(&mut page, bound, rows, |row| {
                    Ok((row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?))
                })?;
                match read {
                    Some(last) => key = last,
                    None => return Ok(()),
                }
            }
        }))
    }

    /// Exports a page, and returns the key of its last row; `None` if no page can follow.
    fn page<K>(
        &self,
        statement: &mut Statement<'_>,
        bound: impl Params,
        rows: &mut dyn TakeRows,
        key: impl Fn(&Row<'_>) -> rusqlite::Result<K>,
    ) -> Result<Option<K>, Failure> {
        let columns = self.selection.table.columns();
        let (mut count, mut last) = (0, None);
        let mut found = statement.query(bound)?;
        while let Some(row) = found.next()? {
            let mut values = Vec::with_capacity(columns.len());
            for (at, column) in columns.iter().enumerate() {
                values.push(value(row.get_ref(at)?, column)?);
            }
            rows.row(&values);
            count += 1;
            if count == self.page {
                last = Some(key(row)?);
            }
        }
        drop(found);
        rows.page_end()?;
        Ok(last)
    }
}

/// Exports the rows of one account.
type ExportAccount<'a> = Box<dyn FnMut(&str, &mut dyn TakeRows) -> Result<(), Failure> + 'a>;

/// The key of a page, the end of a call and its number, are selected after the columns.
fn calls_sql(selection: &Selection) -> String {
    let columns = Table::Calls.select_list();
    // Every parameter must be used.
    let account = match selection.account {
        Some(_) => "account_id = ?5",
        None => "?5 IS NULL",
    };
    format!(
        "SELECT {columns}, ended_at_ms, id FROM calls
         WHERE ended_at_ms >= ?1 AND (ended_at_ms, id) > (?1, ?2) AND ended_at_ms < ?3 AND {account}
         ORDER BY ended_at_ms, id LIMIT ?4"
    )
}

/// The first and the last entry of an account in the period. Entries are not in the order of their times, because a
/// call is charged when it ends and posted later.
fn bounds_sql(selection: &Selection) -> &'static str {
    if selection.is_of_all_time() {
        return "SELECT min(seq), max(seq) FROM (
                SELECT seq FROM (SELECT seq FROM ledger WHERE account_id = ?1 ORDER BY seq LIMIT 1)
                UNION ALL
                SELECT seq FROM (SELECT seq FROM ledger WHERE account_id = ?1 ORDER BY seq DESC LIMIT 1))";
    }
    "SELECT min(first), max(last) FROM (
        SELECT min(seq) AS first, max(seq) AS last FROM ledger_entries
            WHERE account_id = ?1 AND at >= ?2 AND at < ?3
        UNION ALL
        SELECT min(entry_seq), max(entry_seq) FROM calls
            WHERE account_id = ?1 AND ended_at_ms >= ?4 AND ended_at_ms < ?5 AND entry_seq IS NOT NULL)"
}

fn entries_sql() -> String {
    let columns = Table::Ledger.select_list();
    format!(
        "SELECT {columns} FROM ledger
         WHERE account_id = ?1 AND seq > ?2 AND seq <= ?3 AND at >= ?4 AND at < ?5 ORDER BY seq LIMIT ?6"
    )
}

fn days_sql() -> String {
    let columns = Table::Usage.select_list();
    format!(
        "SELECT {columns} FROM usage_days
         WHERE account_id = ?1 AND (day, model, key_id, project_id) > (?2, ?3, ?4, ?5) AND day < ?6
         ORDER BY day, model, key_id, project_id LIMIT ?7"
    )
}

fn read_bounds(row: &Row<'_>) -> rusqlite::Result<(Option<i64>, Option<i64>)> {
    Ok((row.get(0)?, row.get(1)?))
}

fn value<'a>(stored: ValueRef<'a>, column: &Column) -> rusqlite::Result<Value<'a>> {
    Ok(match stored {
        ValueRef::Null => Value::Null,
        ValueRef::Integer(number) => Value::of_number(number, column.kind),
        text => Value::of_text(text.as_str()?, column.kind),
    })
}
