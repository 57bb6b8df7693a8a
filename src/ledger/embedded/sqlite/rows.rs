//! Rows that are inserted many at a time: to begin a statement costs as much as two rows.

use std::sync::LazyLock;

use rusqlite::{Connection, Statement};

use super::record::Record;

/// How many rows a statement has.
pub const AT_ONCE: usize = 16;

/// Where rows go, and what of a call they say.
pub struct Rows {
    one: String,
    many: String,
    columns: usize,
    bind: Bind,
}

type Bind = fn(&Record<'_>, usize, &mut Statement<'_>) -> rusqlite::Result<()>;

pub static CALLS: LazyLock<Rows> =
    LazyLock::new(|| Rows::new("INSERT INTO calls", &[ANY; 29], bind_call));

pub static FRESH: LazyLock<Rows> =
    LazyLock::new(|| Rows::new("INSERT OR IGNORE INTO fresh", &[ANY; 29], bind_call));

/// The lines of the books.
pub static LINES: LazyLock<Rows> = LazyLock::new(|| {
    let into = "INSERT INTO ledger_entries (account_id, ref, delta, balance_after, at, kind)";
    let values = [ANY, "CAST(? AS TEXT)", ANY, ANY, ANY, "'charge'"];
    Rows::new(into, &values, bind_line)
});

const ANY: &str = "?";

fn bind_call(record: &Record<'_>, first: usize, to: &mut Statement<'_>) -> rusqlite::Result<()> {
    record.bind_call(first, to)
}

fn bind_line(record: &Record<'_>, first: usize, to: &mut Statement<'_>) -> rusqlite::Result<()> {
    record.bind_line(first, to)
}

impl Rows {
    fn new(into: &str, values: &[&str], bind: Bind) -> Self {
        let row = format!("({})", values.join(", "));
        Self {
            one: format!("{into} VALUES {row}"),
            many: format!("{into} VALUES {}", vec![row.as_str(); AT_ONCE].join(", ")),
            columns: row.matches(ANY).count(),
            bind,
        }
    }

    pub fn insert(&self, connection: &Connection, records: &[&Record<'_>]) -> rusqlite::Result<()> {
        let (statement, rows) = match records.len() {
            AT_ONCE => (&self.many, AT_ONCE),
            _ => (&self.one, 1),
        };
        let mut statement = connection.prepare_cached(statement)?;
        for records in records.chunks(rows) {
            for (row, record) in records.iter().enumerate() {
                (self.bind)(record, 1 + row * self.columns, &mut statement)?;
            }
            statement.raw_execute()?;
        }
        Ok(())
    }
}
