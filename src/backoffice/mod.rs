//! The portal's office: people who sign in, their sessions and links, what they ordered, and what operators
//! did.
//!
//! It is kept apart from the ledger: in a file of its own, or over connections of its own. When it
//! fails, whoever asks hears so within a deadline, and no call is held up. What failed is opened anew
//! at the next use, so it heals without a restart.
//!
//! Each method is one transaction, and can be done twice without harm: where a connection breaks
//! nobody knows whether it was done, and it is done again.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use tokio::time::timeout;

mod actions;
mod alerts;
mod checkouts;
mod deliveries;
mod identities;
mod links;
pub mod mail;
pub mod oidc;
mod password;
pub mod payments;
mod people;
mod postgres;
mod roster;
mod schema;
mod sessions;
mod spent;
mod sql;
mod sqlite;
#[cfg(test)]
mod tests;
mod throttle;
pub mod webhook;

pub use self::{
    actions::{Action, Recorded},
    alerts::{Alert, AlertKind, NewAlert, ToldAlert},
    checkouts::{Checkout, NewCheckout, Payment, Receipt, is_checkout},
    deliveries::{Channel, Delivery, DeliveryState, Event, Route},
    identities::Identity,
    links::{Link, MadeLink, NewLink, Purpose},
    password::{PasswordError, Passwords},
    people::{NewPerson, Person, Role},
    sessions::{Digest, NewSession, Session},
    throttle::{Attempt, Throttle},
};
use self::{
    postgres::InDatabase,
    sql::{Row, Statement},
    sqlite::InFile,
};
use crate::db::postgres::Address;

/// How long anyone waits.
const DEADLINE: Duration = Duration::from_secs(2);

#[derive(Debug, thiserror::Error)]
pub enum BackofficeError {
    #[error("somebody has this e-mail address already")]
    EmailTaken,
    /// Why, for the log. What was asked may still have been done.
    #[error("people and sessions are unavailable: {0}")]
    Unavailable(String),
}

/// Of one gateway, in a file; or of several, in their database.
pub struct Backoffice {
    store: Store,
    deadline: Duration,
    /// Hashing, with one limit for all who ask.
    pub passwords: Passwords,
}

enum Store {
    File(InFile),
    Shared(Box<InDatabase>),
}

/// Looks at the file beside a ledger's database, or at the place where it would be made; changes
/// nothing.
pub fn probe(database: &Path) -> Result<String, String> {
    crate::db::sqlite::probe(&path_beside(database))
}

/// `data/tollgate.db` → `data/tollgate.portal.db`
fn path_beside(database: &Path) -> PathBuf {
    database.with_extension("portal.db")
}

impl Backoffice {
    /// Beside the ledger's database, which one gateway alone has open.
    ///
    /// Never fails: what cannot be opened now is tried again at each use.
    pub fn beside(database: &Path) -> Self {
        let file = InFile::new(&path_beside(database));
        Self::on(Store::File(file), DEADLINE)
    }

    /// In the database of the ledger, which several gateways share; tables are made at the first use.
    ///
    /// Never fails either.
    pub fn shared(address: Address) -> Self {
        let database = InDatabase::new(address, DEADLINE);
        Self::on(Store::Shared(Box::new(database)), DEADLINE)
    }

    fn on(store: Store, deadline: Duration) -> Self {
        Self {
            store,
            deadline,
            passwords: Passwords::default(),
        }
    }

    /// Carries out the statements in one transaction: what the last one answers.
    async fn run(&self, statements: Vec<Statement>) -> Result<Vec<Row>, BackofficeError> {
        let running = async {
            match &self.store {
                Store::File(file) => file.run(statements).await,
                Store::Shared(database) => Ok(database.run(&statements).await?),
            }
        };
        let late = |_| BackofficeError::Unavailable("nothing was answered in time".into());
        timeout(self.deadline, running).await.map_err(late)?
    }
}
