//! The stores of a gateway under test: files, or, if `TOLLGATE_TEST_STORES` is `shared`, its own PostgreSQL database
//! and the test process's Redis.

use std::{path::Path, thread, time::Duration};

use rusqlite::types::ValueRef;
use tokio::runtime::Runtime;
use tokio_postgres::NoTls;
use tollgate::{base::durability::Durability, db::postgres::Address, ledger::Ledger};

use super::{
    PostgresServer, RedisServer,
    process::{run, text},
};

/// File in a gateway's folder that names its database, so that the next gateway in the folder uses it again.
const REMEMBERED: &str = "database-url";

pub fn are_shared() -> bool {
    match std::env::var("TOLLGATE_TEST_STORES").as_deref() {
        Ok("shared") => true,
        Err(_) | Ok("files" | "") => false,
        Ok(other) => panic!("TOLLGATE_TEST_STORES is {other:?}; expected `files` or `shared`"),
    }
}

/// Whether to skip a test in this run because it is about files; `why` gives the reason.
pub fn files_only(why: &str) -> bool {
    assert!(!why.is_empty());
    are_shared()
}

/// Configuration lines with the stores of the gateway in this folder. They must come before the first section.
pub fn lines(folder: &Path) -> String {
    // Tests share the machine with one another and run without optimisation: a busy moment is no overload.
    let patient = "overload.max_lag_ms = 60000\noverload.max_wait_ms = 60000\n";
    patient.to_owned() + &store_lines(folder)
}

fn store_lines(folder: &Path) -> String {
    if are_shared() {
        let (store, limits) = (database(folder), RedisServer::shared().url());
        let spool = folder.join("spool").display().to_string();
        // Long deadlines: while many tests run, slow replies do not mean that a store is down.
        return format!(
            "store.url = \"{store}\"\nstore.deadline_ms = 5000\nstore.spool = \"{spool}\"\n\
             limits.url = \"{limits}\"\nlimits.deadline_ms = 5000\n"
        );
    }
    format!(
        "store.url = \"sqlite:{}\"\n",
        folder.join("tollgate.db").display()
    )
}

/// Like `lines`, without waiting for the disk in files: tests need not survive a crash of the machine.
pub fn quick_lines(folder: &Path) -> String {
    let durability = "store.durability = \"process\"\n";
    lines(folder) + if are_shared() { "" } else { durability }
}

/// URL of the folder's database, which is created at the first call; only if stores are shared.
pub fn database(folder: &Path) -> String {
    let file = folder.join(REMEMBERED);
    if let Ok(url) = std::fs::read_to_string(&file) {
        return url;
    }
    let url = PostgresServer::shared().copy_of(create_tables);
    remember(folder, &url);
    url
}

/// Creates the tables of a ledger, as the first gateway on a database does.
fn create_tables(url: &str) {
    let create = async {
        let address = Address::parse(url).unwrap();
        let deadline = Duration::from_secs(30);
        let ledger = Ledger::share(&address, Durability::Process, deadline).await;
        ledger.unwrap().close().await;
    };
    // On a thread of its own, because this one may be running a test's tasks.
    thread::scope(|scope| {
        scope.spawn(|| Runtime::new().unwrap().block_on(create));
    });
}

/// Sets the database of the gateway in this folder, if stores are shared.
pub fn remember(folder: &Path, url: &str) {
    std::fs::write(folder.join(REMEMBERED), url).unwrap();
}

/// Asserts that the ledger of the gateway in this folder adds up; calls may be running.
pub fn assert_sound(folder: &Path) {
    if !are_shared() {
        let audit = tollgate::ledger::audit_file(&folder.join("tollgate.db")).unwrap();
        assert_eq!(audit.violations, []);
        return;
    }
    let audit = run(&["audit", "--database", &database(folder)], &[]);
    let said = text(&audit.stdout) + &text(&audit.stderr);
    assert!(audit.status.success(), "{said}");
}

/// Everything that is stored, concatenated: every file, or every row as text.
pub async fn bytes(folder: &Path) -> Vec<u8> {
    if !are_shared() {
        let folders = [folder.to_owned(), folder.join("spool")];
        let entries = folders
            .iter()
            .flat_map(|folder| std::fs::read_dir(folder).unwrap());
        let files = entries
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.is_file());
        return files
            .flat_map(|file| std::fs::read(file).unwrap())
            .collect();
    }
    let tables = "SELECT quote_ident(table_schema) || '.' || quote_ident(table_name) \
        FROM information_schema.tables \
        WHERE table_type = 'BASE TABLE' \
          AND table_schema NOT IN ('pg_catalog', 'information_schema')";
    let client = connect(&database(folder)).await;
    let mut all = Vec::new();
    for table in client.query(tables, &[]).await.unwrap() {
        let rows = format!("SELECT t::text FROM {} t", table.get::<_, &str>(0));
        for row in client.query(&rows, &[]).await.unwrap() {
            all.extend_from_slice(row.get::<_, &str>(0).as_bytes());
            all.push(b'\n');
        }
    }
    all
}

/// Changes the ledger's tables directly, bypassing the gateway.
pub async fn execute(folder: &Path, sql: &str) {
    if are_shared() {
        let client = connect(&database(folder)).await;
        client.batch_execute(sql).await.unwrap();
        return;
    }
    let file = rusqlite::Connection::open(folder.join("tollgate.db")).unwrap();
    file.execute_batch(sql).unwrap();
}

/// Changes the portal's tables directly, bypassing the gateway: with the first text in files, with the second in
/// PostgreSQL.
pub async fn execute_in_portal(folder: &Path, [sqlite, postgres]: [&str; 2]) {
    if are_shared() {
        let client = connect(&database(folder)).await;
        client.batch_execute(postgres).await.unwrap();
        return;
    }
    let file = rusqlite::Connection::open(folder.join("tollgate.portal.db")).unwrap();
    file.busy_timeout(Duration::from_secs(20)).unwrap();
    file.execute_batch(sqlite).unwrap();
}

/// All rows of all stores that contain this text in any column, whatever its case: the table and the row as text.
pub async fn rows_with(folder: &Path, text: &str) -> Vec<(String, String)> {
    let rows = if are_shared() {
        rows_of_database(folder).await
    } else {
        rows_of_files(folder)
    };
    let text = text.to_lowercase();
    let has = |(_, row): &(String, String)| row.to_lowercase().contains(&text);
    rows.into_iter().filter(has).collect()
}

async fn rows_of_database(folder: &Path) -> Vec<(String, String)> {
    let tables = "SELECT quote_ident(table_name) FROM information_schema.tables
        WHERE table_type = 'BASE TABLE' AND table_schema NOT IN ('pg_catalog', 'information_schema')";
    let client = connect(&database(folder)).await;
    let mut all = Vec::new();
    for table in client.query(tables, &[]).await.unwrap() {
        let table: String = table.get(0);
        let rows = format!("SELECT t::text FROM {table} t");
        let rows = client.query(&rows, &[]).await.unwrap();
        all.extend(rows.iter().map(|row| (table.clone(), row.get(0))));
    }
    assert!(!all.is_empty());
    all
}

fn rows_of_files(folder: &Path) -> Vec<(String, String)> {
    let mut all = Vec::new();
    for file in ["tollgate.db", "tollgate.portal.db", "tollgate.responses.db"] {
        let file = rusqlite::Connection::open(folder.join(file)).unwrap();
        let tables =
            "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%'";
        let mut tables = file.prepare(tables).unwrap();
        let tables = tables.query_map([], |row| row.get(0)).unwrap();
        let tables: Vec<String> = tables.map(Result::unwrap).collect();
        assert!(!tables.is_empty());
        for table in tables {
            let mut select = file.prepare(&format!("SELECT * FROM {table}")).unwrap();
            let columns = select.column_count();
            let shown = |row: &rusqlite::Row<'_>| {
                let values = (0..columns).map(|at| shown(row.get_ref(at).unwrap()));
                Ok((table.clone(), values.collect::<Vec<_>>().join(" | ")))
            };
            all.extend(select.query_map([], shown).unwrap().map(Result::unwrap));
        }
    }
    all
}

fn shown(value: ValueRef<'_>) -> String {
    match value {
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => String::from_utf8_lossy(bytes).into(),
        ValueRef::Integer(number) => number.to_string(),
        ValueRef::Real(number) => number.to_string(),
        ValueRef::Null => String::new(),
    }
}

/// The first column of the rows that a query of the ledger's tables returns; it must be text.
pub async fn texts(folder: &Path, sql: &str) -> Vec<String> {
    if are_shared() {
        let client = connect(&database(folder)).await;
        let rows = client.query(sql, &[]).await.unwrap();
        return rows.iter().map(|row| row.get(0)).collect();
    }
    let file = rusqlite::Connection::open(folder.join("tollgate.db")).unwrap();
    let mut query = file.prepare(sql).unwrap();
    let rows = query.query_map([], |row| row.get(0)).unwrap();
    rows.map(Result::unwrap).collect()
}

/// Puts the gateway in `folder` on the database of the gateway in `of`; only if stores are shared.
pub fn same_database(of: &Path, folder: &Path) {
    remember(folder, &database(of));
}

/// Number of stored responses, and the highest number of one account.
pub async fn responses(folder: &Path) -> (i64, i64) {
    let sql = "SELECT coalesce(CAST(sum(n) AS BIGINT), 0), coalesce(max(n), 0) FROM \
        (SELECT count(*) AS n FROM responses GROUP BY account_id) AS accounts";
    if are_shared() {
        let row = connect(&database(folder)).await.query_one(sql, &[]).await;
        let row = row.unwrap();
        return (row.get(0), row.get(1));
    }
    let file = folder.join("tollgate.responses.db");
    let connection = rusqlite::Connection::open(file).unwrap();
    let counted = connection.query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?)));
    counted.unwrap()
}

/// A direct connection to the database, bypassing the gateway.
pub async fn connect(url: &str) -> tokio_postgres::Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}
