//! Rows that are inserted many at a time: to begin a statement costs as much as two rows.
//!
//! `OR FAIL`, because whoever enters rows takes back the whole transaction where one is refused: else SQLite would keep
//! a copy of every page that a statement changes, to take back that statement alone. It does so for calls all the same,
//! whose numbers are given to it.

use std::sync::LazyLock;

use rusqlite::{Connection, Statement};

use super::record::Record;

/// How many rows a statement has: many, and the rest one by one. With more of them SQLite would run out of the memory that
/// it has ready for short texts.
const AT_ONCE: [usize; 2] = [16, 1];

/// Where rows go, and what of a call they say.
pub struct Rows {
    statements: [String; AT_ONCE.len()],
    columns: usize,
    bind: Bind,
}

type Bind = fn(&Record<'_>, usize, &mut Statement<'_>) -> rusqlite::Result<()>;

pub static CALLS: LazyLock<Rows> =
    LazyLock::new(|| Rows::new("INSERT OR FAIL INTO calls", &[ANY; 29], bind_call));

pub static FRESH: LazyLock<Rows> =
    LazyLock::new(|| Rows::new("INSERT OR IGNORE INTO fresh", &[ANY; 29], bind_call));

/// The lines of the books.
pub static LINES: LazyLock<Rows> = LazyLock::new(|| {
    let into =
        "INSERT OR FAIL INTO ledger_entries (account_id, ref, delta, balance_after, at, kind)";
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
            statements: AT_ONCE.map(|rows| {
                let rows = vec![row.as_str(); rows].join(", ");
                format!("{into} VALUES {rows}")
            }),
            columns: row.matches(ANY).count(),
            bind,
        }
    }

    pub fn insert(&self, connection: &Connection, records: &[&Record<'_>]) -> rusqlite::Result<()> {
        let mut left = records;
        for (rows, statement) in AT_ONCE.into_iter().zip(&self.statements) {
            let (now, later) = left.split_at(left.len() - left.len() % rows);
            left = later;
            if now.is_empty() {
                continue;
            }
            let mut statement = connection.prepare_cached(statement)?;
            for records in now.chunks_exact(rows) {
                for (row, record) in records.iter().enumerate() {
                    (self.bind)(record, 1 + row * self.columns, &mut statement)?;
                }
                statement.raw_execute()?;
            }
        }
        Ok(())
    }
}
