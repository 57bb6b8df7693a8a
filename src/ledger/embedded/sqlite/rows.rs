//! Rows that are inserted many at a time: to begin a statement costs as much as two rows.
//!
//! `OR FAIL`, because whoever enters rows takes back the whole transaction where one is refused: else SQLite would keep
//! a copy of every page that a statement changes, to take back that statement alone. It does so for calls all the same,
//! whose numbers are given to it.

use std::sync::LazyLock;

use rusqlite::{Connection, Statement};

use super::record::Record;

/// How many rows a statement has.
const AT_ONCE: usize = 16;

/// Where rows go, and what of a call they say.
pub struct Rows {
    one: String,
    many: String,
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
            one: format!("{into} VALUES {row}"),
            many: format!("{into} VALUES {}", vec![row.as_str(); AT_ONCE].join(", ")),
            columns: row.matches(ANY).count(),
            bind,
        }
    }

    pub fn insert(&self, connection: &Connection, records: &[&Record<'_>]) -> rusqlite::Result<()> {
        let (many, few) = records.as_chunks::<AT_ONCE>();
        if !many.is_empty() {
            let mut statement = connection.prepare_cached(&self.many)?;
            for records in many {
                self.execute(&mut statement, records)?;
            }
        }
        if !few.is_empty() {
            let mut statement = connection.prepare_cached(&self.one)?;
            for record in few {
                self.execute(&mut statement, std::slice::from_ref(record))?;
            }
        }
        Ok(())
    }

    fn execute(
        &self,
        statement: &mut Statement<'_>,
        records: &[&Record<'_>],
    ) -> rusqlite::Result<()> {
        for (row, record) in records.iter().enumerate() {
            (self.bind)(record, 1 + row * self.columns, statement)?;
        }
        statement.raw_execute().map(|_| ())
    }
}
