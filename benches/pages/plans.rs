//! Query plans of the statements that a page needed.

use std::{
    collections::BTreeSet,
    fmt::{Debug, Write as _},
    fs::File,
    io::Read as _,
    path::Path,
    sync::{Arc, Mutex},
    time::Duration,
};

use tracing::{Event, Subscriber, field::Field};
use tracing_subscriber::{
    Layer, Registry,
    filter::{LevelFilter, Targets},
    layer::{Context, SubscriberExt as _},
};

use crate::{data, postgres_server::PostgresServer};

/// SQLite statements, with their values.
pub type Statements = Arc<Mutex<Vec<String>>>;

/// Records every statement that the ledger traces.
pub fn listen() -> Statements {
    let statements = Statements::default();
    let told = Targets::new().with_target("tollgate::sql", LevelFilter::TRACE);
    let listener = Listener(statements.clone()).with_filter(told);
    tracing::subscriber::set_global_default(Registry::default().with(listener)).unwrap();
    statements
}

struct Listener(Statements);

impl<S: Subscriber> Layer<S> for Listener {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut statement = String::new();
        event.record(&mut |field: &Field, value: &dyn Debug| {
            if field.name() == "statement" {
                let _ = write!(statement, "{value:?}");
            }
        });
        self.0.lock().unwrap().push(statement);
    }
}

pub fn show_in_file(path: &Path, page: &str, statements: &[String]) {
    println!("\n{page}");
    let connection = rusqlite::Connection::open(path).unwrap();
    for statement in statements.iter().collect::<BTreeSet<_>>() {
        let plan = connection.prepare(&format!("EXPLAIN QUERY PLAN {statement}"));
        // Statements that are not queries have no plan.
        let Ok(mut plan) = plan else { continue };
        let steps = plan.query_map([], |row| row.get::<_, String>(3)).unwrap();
        println!("  {}", short(statement));
        for step in steps {
            println!("      {}", step.unwrap());
        }
    }
}

/// Makes the server log the plan of every statement that takes a millisecond or more; faster ones are not
/// interesting.
pub fn explain_from_now_on(postgres: &PostgresServer, database: &str) {
    for setting in [
        "session_preload_libraries = 'auto_explain'",
        "auto_explain.log_min_duration = '1ms'",
        "auto_explain.log_analyze = on",
        "auto_explain.log_timing = off",
    ] {
        postgres.psql(
            database,
            &format!("ALTER DATABASE {database} SET {setting}"),
        );
    }
}

/// A server's log, read from a position on.
pub struct Log(File);

impl Log {
    pub fn of(postgres: &PostgresServer) -> Self {
        let name = postgres.psql("postgres", "SELECT pg_current_logfile()");
        Self(File::open(data(postgres).join(name.trim())).unwrap())
    }

    /// Skips everything written so far.
    pub fn skip(&mut self) {
        self.rest();
    }

    pub fn show(&mut self, page: &str) {
        println!("\n{page}");
        let rest = self.rest();
        if rest.is_empty() {
            println!("  (every statement took less than a millisecond)");
        }
        for line in rest.lines() {
            println!("  {}", line.trim_end());
        }
    }

    fn rest(&mut self) -> String {
        // The server writes its log a moment later.
        std::thread::sleep(Duration::from_millis(100));
        let mut rest = String::new();
        let _ = self.0.read_to_string(&mut rest);
        rest
    }
}

/// The statement on one line, with some of its columns.
fn short(statement: &str) -> String {
    let words: Vec<&str> = statement.split_whitespace().collect();
    let text = words.join(" ");
    match text.split_once(" FROM ") {
        Some((columns, rest)) if columns.len() > 60 => {
            let columns: String = columns.chars().take(40).collect();
            format!("{columns}… FROM {rest}")
        }
        _ => text,
    }
}
