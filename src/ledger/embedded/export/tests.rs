//! Exports of a file that is written to between pages.

use std::{cell::Cell, io};

use rusqlite::Connection;
use tempfile::TempDir;

use super::*;

/// Numbers of calls are large: they begin with a time.
const FIRST_ID: i64 = 941_093_696_867_663_872;

/// Collects rows as text; `between` runs between pages.
struct Collected<'a> {
    rows: Vec<String>,
    between: &'a mut dyn FnMut(),
}

impl TakeRows for Collected<'_> {
    fn row(&mut self, values: &[Value<'_>]) {
        let names = self.rows.len();
        let first = match &values[0] {
            Value::Call(id) => (id.0 - FIRST_ID.unsigned_abs()).to_string(),
            Value::Integer(number) => number.to_string(),
            Value::Text(text) => (*text).to_owned(),
            other => panic!("row {names} begins with {other:?}"),
        };
        self.rows.push(first);
    }

    fn page_end(&mut self) -> io::Result<()> {
        (self.between)();
        Ok(())
    }
}

struct File {
    folder: TempDir,
    writer: Connection,
}

impl File {
    /// A ledger with two accounts.
    fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("t.db");
        let mut writer = Connection::open(&path).unwrap();
        writer.pragma_update(None, "journal_mode", "WAL").unwrap();
        schema::create(&mut writer, include_str!("../schema.sql")).unwrap();
        for account in ["acct_a", "acct_b"] {
            let sql = "INSERT INTO accounts (id, email, track, tier, created_at) VALUES (?1, 'e', 'p', 'f', 0)";
            writer.execute(sql, [account]).unwrap();
        }
        Self { folder, writer }
    }

    fn path(&self) -> std::path::PathBuf {
        self.folder.path().join("t.db")
    }

    /// Exports in pages of three rows.
    fn export(&self, selection: &Selection, between: &mut dyn FnMut()) -> Vec<String> {
        let connection = open(&self.path()).unwrap();
        let mut rows = Collected {
            rows: Vec::new(),
            between,
        };
        let export = Export {
            connection: &connection,
            selection,
            page: 3,
        };
        assert!(export.run(&mut rows).is_ok());
        rows.rows
    }
}

/// Posts the call with this number after the first; charged, if it has an entry.
fn post(writer: &Connection, id: i64, account: &str, entry: Option<i64>, ended_ms: i64) {
    let sql = "INSERT INTO calls (id, entry_seq, request_id, account_id, key_id, model, routed_model, stream, outcome,
            admitted_at_ms, ended_at_ms, reserved_tokens, held_nano_usd, worst_case_nano_usd, input_pico_usd,
            cached_input_pico_usd, output_pico_usd, cost_nano_usd, balance_after_nano_usd)
        VALUES (?1, ?2, 'r', ?3, 'k', 'm', 'm', 0, 'answered', ?4, ?4, 1, 1, 1, 1, 1, 1, ?5, ?5)";
    writer
        .execute(
            sql,
            params![FIRST_ID + id, entry, account, ended_ms, entry.map(|_| 5)],
        )
        .unwrap();
}

fn numbers(range: impl Iterator<Item = i64>) -> Vec<String> {
    range.map(|number| number.to_string()).collect()
}

/// New calls are posted, and the write-ahead log is emptied, between any two pages.
#[test]
fn calls_are_exported_once_while_others_are_posted() {
    let file = File::new();
    for id in 1..=20 {
        // Four calls end in the same millisecond, more than a page has.
        post(&file.writer, id, "acct_a", None, 10 + id / 4);
    }
    let writer = Connection::open(file.path()).unwrap();
    let next = Cell::new(100);
    let mut busy = Vec::new();
    let rows = file.export(&Selection::all(Table::Calls), &mut || {
        // One that ends after all others, and one among those that were read already.
        let id = next.replace(next.get() + 2);
        post(&writer, id, "acct_a", None, 1_000 + id);
        post(&writer, id + 1, "acct_a", None, 9);
        let checkpoint = "PRAGMA wal_checkpoint(TRUNCATE)";
        busy.push(writer.query_row(checkpoint, [], |row| row.get::<_, i64>(0)));
    });
    // A call that is posted meanwhile may be exported, if its time was not passed yet.
    let (earlier, meanwhile): (Vec<_>, Vec<_>) = rows
        .into_iter()
        .partition(|id| id.parse::<i64>().unwrap() <= 20);
    assert_eq!(earlier, numbers(1..=20));
    assert!(
        meanwhile.is_sorted_by(|one, next| one < next),
        "{meanwhile:?}"
    );
    assert!(busy.len() >= 7, "{busy:?}");
    assert!(
        busy.iter().all(|busy| busy == &Ok(0)),
        "a snapshot was open: {busy:?}"
    );
}

#[test]
fn entries_are_exported_by_account_in_their_order() {
    let file = File::new();
    let grant = "INSERT INTO ledger_entries VALUES (?1, ?2, 'grant', ?1, 100, 100, ?3)";
    for (seq, account, at) in [(1, "acct_a", 1), (2, "acct_b", 1), (9, "acct_b", 9)] {
        file.writer
            .execute(grant, params![seq, account, at])
            .unwrap();
    }
    // Posted in the order of their entries, which is not that of their numbers or their ends.
    for (seq, ended) in (3..9).zip([8, 3, 5, 4, 7, 6]) {
        post(&file.writer, 100 - seq, "acct_b", Some(seq), ended * 1_000);
    }
    post(&file.writer, 200, "acct_b", None, 5_000);
    let mut all = Selection::all(Table::Ledger);
    assert_eq!(
        file.export(&all, &mut || {}),
        numbers([1, 2, 3, 4, 5, 6, 7, 8, 9].into_iter())
    );
    (all.from, all.to) = (4, 8);
    assert_eq!(
        file.export(&all, &mut || {}),
        numbers([5, 6, 7, 8].into_iter())
    );
    all.account = Some("acct_a".into());
    assert_eq!(file.export(&all, &mut || {}), Vec::<String>::new());
}

#[test]
fn days_are_exported_by_account() {
    let file = File::new();
    for account in ["acct_b", "acct_a"] {
        for (day, key) in (1..=9).flat_map(|day| [(day, "k"), (day, "j")]) {
            let sql = "INSERT INTO usage_days VALUES (?1, ?2, 'm', ?3, 'default', 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1)";
            let day = format!("2026-11-0{day}");
            file.writer
                .execute(sql, params![account, day, key])
                .unwrap();
        }
    }
    let mut selection = Selection::all(Table::Usage);
    let expected = [vec!["acct_a"; 18], vec!["acct_b"; 18]].concat();
    assert_eq!(file.export(&selection, &mut || {}), expected);
    // 2026-11-03 and 04.
    (selection.from, selection.to) = (1_793_664_000, 1_793_836_800);
    let expected = [vec!["acct_a"; 4], vec!["acct_b"; 4]].concat();
    assert_eq!(file.export(&selection, &mut || {}), expected);
}

/// A page costs as much as its rows, however many there are: no table is scanned, no history sorted.
#[test]
fn pages_are_read_from_indexes() {
    let file = File::new();
    let mut selection = Selection::all(Table::Calls);
    let mut statements = vec![calls_sql(&selection), entries_sql(), days_sql()];
    statements.push(bounds_sql(&selection).to_owned());
    (selection.from, selection.account) = (1, Some("acct_a".into()));
    statements.extend([calls_sql(&selection), bounds_sql(&selection).to_owned()]);
    for sql in statements {
        let explain = format!("EXPLAIN QUERY PLAN {sql}");
        let mut explained = file.writer.prepare(&explain).unwrap();
        let steps = explained.raw_query().mapped(|row| row.get::<_, String>(3));
        let steps: Vec<_> = steps.map(Result::unwrap).collect();
        let is_slow = |step: &String| {
            step.contains("TEMP B-TREE")
                || ["SCAN calls", "SCAN ledger_entries", "SCAN usage_days"].contains(&step.as_str())
        };
        assert!(!steps.iter().any(is_slow), "{sql}\n{steps:#?}");
    }
}

#[test]
fn a_file_without_tables_or_of_another_version_is_named() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("t.db");
    let mut nothing = || {};
    let mut rows = Collected {
        rows: Vec::new(),
        between: &mut nothing,
    };
    let error = |rows: &mut Collected<'_>| {
        let exported = export_file(&path, &Selection::all(Table::Calls), rows);
        exported.unwrap_err().to_string()
    };
    let shown = path.display();
    let missing = error(&mut rows);
    assert!(
        missing.starts_with(&format!("{shown} cannot be read")),
        "{missing}"
    );
    let file = Connection::open(&path).unwrap();
    assert!(error(&mut rows).contains("it has no tables"));
    file.pragma_update(None, "user_version", 99).unwrap();
    assert!(error(&mut rows).contains("another version of tollgate"));
}
