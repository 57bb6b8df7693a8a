//! Tests of the whole store on real SQLite files and PostgreSQL servers, with faults.

use std::{path::PathBuf, sync::Arc};

use tempfile::TempDir;

use super::{
    Action, Backoffice, BackofficeError, Digest, NewPerson, NewSession, Person, RecordedAction,
    Role, Session, Store, TeamRole,
    postgres::PostgresStore,
    sql::{Row, statement},
    sqlite::SqliteStore,
};
use crate::{
    base::keys::random_id,
    db::{postgres::Address, testing::postgres_server::PostgresServer},
};

impl Backoffice {
    /// Records an action under a new ID.
    async fn record(&self, action: &Action) -> Result<(), BackofficeError> {
        self.record_once(&random_id("action_"), action).await
    }
}

/// Runs every case on SQLite and on PostgreSQL.
macro_rules! contract {
    ($($case:ident),+ $(,)?) => {
        mod sqlite {
            $(#[tokio::test] async fn $case() { super::$case(super::Given::sqlite()).await })+
        }
        mod postgres {
            $(#[tokio::test(flavor = "multi_thread")] async fn $case() {
                super::$case(super::Given::postgres()).await
            })+
        }
    };
}

mod actions;
mod addresses;
mod alerts;
mod checkouts;
mod configurations;
mod cookie_secret;
mod documents;
mod erasure;
mod identities;
mod links;
mod members;
mod people;
mod postgres;
mod refused;
mod second_factor;
mod sessions;
mod sqlite;
mod starter_credit;
mod top_ups;

const NOW: i64 = 1_800_000_000;

/// A long deadline, because test machines are busy; tests of deadlines set their own.
const TIMEOUT: std::time::Duration = std::time::Duration::from_secs(20);

/// A backoffice in an empty store.
struct Given {
    place: Place,
    backoffice: Arc<Backoffice>,
}

enum Place {
    Folder(TempDir),
    Database(Address),
}

impl Given {
    fn sqlite() -> Self {
        Self::at(Place::Folder(TempDir::new().unwrap()))
    }

    fn postgres() -> Self {
        Self::on(PostgresServer::shared())
    }

    fn on(server: &PostgresServer) -> Self {
        let address = Address::parse(&server.database()).unwrap();
        Self::at(Place::Database(address))
    }

    fn at(place: Place) -> Self {
        let backoffice = Arc::new(place.open());
        Self { place, backoffice }
    }

    fn restart(self) -> Self {
        drop(self.backoffice);
        Self::at(self.place)
    }

    async fn person(&self, email: &str) -> Person {
        self.backoffice.add_person(new_person(email)).await.unwrap()
    }

    /// Begins a session that expires after a thousand seconds.
    async fn session(&self, number: u8, person: &Person, now: i64) -> Digest {
        let new = new_session(number, Some(person), now);
        let digest = new.digest;
        self.backoffice.begin_session(new).await.unwrap();
        digest
    }

    async fn is_in(&self, digest: &Digest) -> bool {
        let session = self.backoffice.session(digest, NOW).await.unwrap();
        session.is_some()
    }

    /// The number that a query returns in its only row.
    async fn count(&self, sql: &'static str) -> i64 {
        let mut rows = self.backoffice.run(vec![statement(sql, [])]).await.unwrap();
        rows[0].int().unwrap()
    }

    async fn run(&self, sql: &'static str) -> Vec<Row> {
        self.backoffice.run(vec![statement(sql, [])]).await.unwrap()
    }
}

impl Place {
    fn open(&self) -> Backoffice {
        let store = match self {
            Self::Folder(folder) => Store::File(SqliteStore::new(&file_in(folder))),
            Self::Database(address) => {
                let database = PostgresStore::new(address.clone(), TIMEOUT);
                Store::Shared(Box::new(database))
            }
        };
        Backoffice::on(store, TIMEOUT)
    }
}

fn file_in(folder: &TempDir) -> PathBuf {
    folder.path().join("store/t.portal.db")
}

fn new_person(email: &str) -> NewPerson {
    NewPerson {
        email: email.into(),
        name: Some("Ada".into()),
        password: Some("$argon2id$…".into()),
        role: Role::Customer,
        account_id: "acct_1".into(),
        team_role: TeamRole::Owner,
        now: NOW,
    }
}

fn new_session(number: u8, person: Option<&Person>, now: i64) -> NewSession {
    NewSession {
        digest: [number; 32],
        person_id: person.map(|person| person.id.clone()),
        role: Role::Customer,
        agent: format!("browser {number}"),
        now,
        expires_at: now + 1_000,
    }
}

fn is_unavailable<T>(result: &Result<T, BackofficeError>) -> bool {
    matches!(result, Err(BackofficeError::Unavailable(_)))
}
