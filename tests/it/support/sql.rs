//! The stores' own command line clients, `sqlite3` and `psql`, and the queries of docs/SQL.md.

use std::{
    io::Write as _,
    path::Path,
    process::{Command, Stdio},
};

use super::{process::text, stores};

/// Between two columns; no value contains it.
const SEPARATOR: &str = "\u{1f}";
const DOCUMENT: &str = include_str!("../../../docs/SQL.md");
/// The heading before the first question.
const FIRST: &str = "## Eleven questions";

/// First lines of queries for one store alone.
const SQLITE: &str = "-- sqlite\n";
const POSTGRES: &str = "-- postgres\n";

/// The result of a query as text; NULL is empty.
#[derive(Debug)]
pub struct Table {
    /// Empty if `sqlite3` found no rows: then it prints no header either.
    pub columns: Vec<String>,
    pub rows: Vec<Vec<String>>,
}

/// A question of the document.
pub struct Question {
    pub title: &'static str,
    /// The query for both stores, or one for each, which begins with a comment that names the store.
    pub queries: Vec<&'static str>,
    /// The header of its example.
    pub columns: Vec<&'static str>,
}

/// All questions of the document, in order.
pub fn questions() -> Vec<Question> {
    let (_, questions) = DOCUMENT.split_once(FIRST).expect("the heading is there");
    let sections = questions.split("\n##").skip(1);
    sections.map(Question::of).collect()
}

impl Question {
    fn of(section: &'static str) -> Self {
        let title = section.lines().next().unwrap();
        let title = title.trim_start_matches('#').trim();
        let example = blocks(section, "text").next();
        let header = example.and_then(|example| example.lines().next());
        let header = header.unwrap_or_else(|| panic!("{title} has no example"));
        Self {
            title,
            queries: blocks(section, "sql").collect(),
            columns: header.split('|').map(str::trim).collect(),
        }
    }

    /// The query for the store of this run of the tests.
    pub fn query(&self) -> &'static str {
        let (this, other) = if stores::are_shared() {
            (POSTGRES, SQLITE)
        } else {
            (SQLITE, POSTGRES)
        };
        match self.queries[..] {
            [both] => {
                assert!(
                    !both.starts_with(this) && !both.starts_with(other),
                    "{both}"
                );
                both
            }
            [sqlite, postgres] => {
                assert!(sqlite.starts_with(SQLITE), "{sqlite}");
                assert!(postgres.starts_with(POSTGRES), "{postgres}");
                let queries = [sqlite, postgres].into_iter();
                let mut of_this = queries.filter(|query| query.starts_with(this));
                of_this.next().unwrap()
            }
            _ => panic!("{} has {} queries", self.title, self.queries.len()),
        }
    }
}

/// The code blocks of a section in this language.
fn blocks(section: &'static str, language: &str) -> impl Iterator<Item = &'static str> {
    let opening = format!("```{language}\n");
    let starts: Vec<_> = section.match_indices(&opening).map(|(at, _)| at).collect();
    starts.into_iter().map(move |at| {
        let block = &section[at + opening.len()..];
        block.split("```").next().unwrap()
    })
}

/// Runs a script with the client of the store that the gateway in this folder uses. It must succeed and print no
/// warning.
pub fn query(folder: &Path, script: &str) -> Table {
    let mut client = client(folder);
    let client = client.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut running = client
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| {
            panic!("{error}; these tests need `sqlite3` and `psql`: scripts/install-servers")
        });
    let mut input = running.stdin.take().unwrap();
    input.write_all(script.as_bytes()).unwrap();
    drop(input);
    let output = running.wait_with_output().unwrap();
    let errors = text(&output.stderr);
    assert!(
        output.status.success() && errors.is_empty(),
        "{script}: {errors}"
    );
    let printed = text(&output.stdout);
    let mut lines = printed.lines().map(|line| {
        let cells = line.split(SEPARATOR);
        cells.map(str::to_owned).collect::<Vec<_>>()
    });
    Table {
        columns: lines.next().unwrap_or_default(),
        rows: lines.collect(),
    }
}

fn client(folder: &Path) -> Command {
    if stores::are_shared() {
        let mut psql = Command::new("psql");
        psql.args(["--no-psqlrc", "--quiet", "--no-align", "-F", SEPARATOR])
            .args(["-P", "footer=off", "-v", "ON_ERROR_STOP=1"])
            .arg(stores::database(folder));
        return psql;
    }
    let mut sqlite = sqlite3(folder);
    sqlite.args(["-header", "-separator", SEPARATOR]);
    sqlite.arg(folder.join("tollgate.db"));
    sqlite
}

/// `sqlite3` without the user's settings, which cannot write and stops at the first error.
pub fn sqlite3(home: &Path) -> Command {
    let mut sqlite = Command::new("sqlite3");
    sqlite
        .env("HOME", home)
        .args(["-readonly", "-batch", "-bail"]);
    sqlite
}
