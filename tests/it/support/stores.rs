//! Where a gateway under test keeps what it knows: in files, or, when `TOLLGATE_TEST_STORES` says
//! `shared`, in a PostgreSQL database of its own and the test process' one Redis.

use std::path::Path;

use tokio_postgres::NoTls;

use super::{
    PostgresServer, RedisServer,
    process::{run, text},
};

/// Which database goes with a folder: the next gateway in it finds the same one again.
const REMEMBERED: &str = "database-url";

pub fn are_shared() -> bool {
    match std::env::var("TOLLGATE_TEST_STORES").as_deref() {
        Ok("shared") => true,
        Err(_) | Ok("files" | "") => false,
        Ok(other) => panic!("TOLLGATE_TEST_STORES is {other:?}; expected `files` or `shared`"),
    }
}

/// Whether a test is to be left out of this run, because it is about files and `why` says how.
pub fn files_only(why: &str) -> bool {
    assert!(!why.is_empty());
    are_shared()
}

/// The lines of a configuration that say where a gateway in this folder keeps what it knows. They
/// belong before its first section.
pub fn lines(folder: &Path) -> String {
    if are_shared() {
        let (store, limits) = (database(folder), RedisServer::shared().url());
        let spool = folder.join("spool").display().to_string();
        // A machine that is busy with many tests is no store that does not answer.
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

/// The same, not waiting for the disk where that is a setting: a test does not survive its machine.
pub fn quick_lines(folder: &Path) -> String {
    let durability = "store.durability = \"process\"\n";
    lines(folder) + if are_shared() { "" } else { durability }
}

/// The URL of the folder's database, which is made when it is asked for first.
fn database(folder: &Path) -> String {
    let file = folder.join(REMEMBERED);
    if let Ok(url) = std::fs::read_to_string(&file) {
        return url;
    }
    let url = PostgresServer::shared().database();
    remember(folder, &url);
    url
}

/// The gateway in this folder is to be on this database, where stores are shared.
pub fn remember(folder: &Path, url: &str) {
    std::fs::write(folder.join(REMEMBERED), url).unwrap();
}

/// The books of the gateway in this folder add up, whatever is running.
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

/// Everything that is stored, in one piece: every file, or every row as a text.
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

/// Changes the ledger's tables behind the gateway's back.
pub async fn execute(folder: &Path, sql: &str) {
    if are_shared() {
        let client = connect(&database(folder)).await;
        client.batch_execute(sql).await.unwrap();
        return;
    }
    let file = rusqlite::Connection::open(folder.join("tollgate.db")).unwrap();
    file.execute_batch(sql).unwrap();
}

/// Another gateway, in a folder of its own, is on the same database: only where stores are shared.
pub fn same_database(of: &Path, folder: &Path) {
    remember(folder, &database(of));
}

/// How many responses are stored, and how many of them the account has that has the most.
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

/// For a look behind the gateway's back.
pub async fn connect(url: &str) -> tokio_postgres::Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}
