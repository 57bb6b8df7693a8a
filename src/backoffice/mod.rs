//! The backoffice stores everything the portal needs beside the ledger: people who sign in, their sessions, one-time
//! links, OpenID Connect identities and the secret that signs cookies, checkouts, operator actions, refused requests, and alerts with their deliveries. It also has the
//! clients for the services that these depend on: SMTP, webhooks, OpenID Connect issuers and payment providers.
//!
//! The store is separate from the ledger, in an SQLite file or over PostgreSQL connections of its own, so a failure here
//! never delays a call. An operation fails with [`BackofficeError::Unavailable`] within a deadline of two seconds, and
//! the file or connection that failed is reopened at the next operation, without a restart. Each method is one
//! transaction and idempotent: when a connection breaks it is unknown whether the transaction was committed, so the
//! method is executed again.
//!
//! It may use the rooms after it in `src/lib.rs`; in fact it uses `config`, `db`, `net` and `base`.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use tokio::time::timeout;

mod actions;
mod addresses;
mod alerts;
mod billing_details;
mod checkouts;
mod configurations;
mod configurations_probe;
mod cookie_secret;
mod deliveries;
mod erasure;
mod identities;
pub(crate) mod import;
mod links;
pub(crate) mod mail;
mod members;
pub(crate) mod oidc;
mod password;
pub(crate) mod payments;
mod people;
mod postgres;
mod refused;
mod roster;
mod schema;
mod second_factor;
mod sessions;
mod spent;
mod sql;
mod sqlite;
mod starter_credit;
mod statements;
#[cfg(test)]
mod tests;
mod throttle;
mod top_ups;
pub(crate) mod webhook;

pub use self::{
    actions::Action,
    alerts::AlertWithDeliveries,
    deliveries::{DeliveryState, Event},
    links::{MadeLink, NewLink, Purpose},
    members::TeamRole,
    people::{NewPerson, Role},
    refused::RefusedRequest,
    sessions::{Digest, NewSession},
};
pub(crate) use self::{
    actions::RecordedAction,
    alerts::{Alert, AlertKind, NewAlert},
    checkouts::{Checkout, NewCheckout, Payment, Receipt, is_checkout},
    configurations::{ConfigVersion, GatewayReport, NewConfigVersion},
    configurations_probe::newest_config,
    cookie_secret::{COOKIES, CookieSecret, Signed},
    deliveries::{Channel, Delivery, Route},
    erasure::deletion_id,
    identities::Identity,
    links::Link,
    password::Passwords,
    people::{Person, email_key},
    refused::{BLOCKED, KEPT_OF_ACCOUNT, RefusedCount, RefusedFound, RefusedKind, RefusedPage},
    second_factor::{CodeCheck, UsedCode, is_recovery_code},
    sessions::Session,
    statements::StoredStatement,
    throttle::{Attempt, Throttle},
    top_ups::{Bought, NewTopUp, TopUp, TopUpState, UNKNOWN},
};
use self::{
    postgres::PostgresStore,
    sql::{Row, Statement},
    sqlite::SqliteStore,
};
use crate::db::postgres::Address;

/// Deadline of one operation.
const DEADLINE: Duration = Duration::from_secs(2);

#[derive(Debug, thiserror::Error)]
pub enum BackofficeError {
    #[error("this email address is already in use")]
    EmailTaken,
    #[error(
        "an account needs an owner, and this is its last one; make another member an owner first"
    )]
    LastOwner,
    /// The store failed; the text is the reason, for the log. The transaction may still have been committed.
    #[error("the backoffice store is unavailable: {0}")]
    Unavailable(String),
    /// The file was made by another version of tollgate, so trying again does not help.
    #[error("the backoffice store is unavailable: {0}")]
    OtherVersion(String),
}

/// The store of one gateway, in an SQLite file, or of several gateways, in their PostgreSQL database.
pub struct Backoffice {
    store: Store,
    deadline: Duration,
    /// Password hashing; one limit on concurrency applies to the whole process.
    pub passwords: Passwords,
}

enum Store {
    File(SqliteStore),
    Shared(Box<PostgresStore>),
}

/// Checks the file beside a ledger's database, or the folder in which it would be created; changes nothing.
pub(crate) fn probe(database: &Path) -> Result<String, String> {
    crate::db::sqlite::probe(&path_beside(database))
}

/// `data/tollgate.db` → `data/tollgate.portal.db`
pub(crate) fn path_beside(database: &Path) -> PathBuf {
    database.with_extension("portal.db")
}

impl Backoffice {
    /// A backoffice in a file beside the ledger's SQLite database, which only one gateway has open.
    ///
    /// Never fails: the file is opened at the first operation, and again at each operation after a failure.
    pub(crate) fn beside(database: &Path) -> Self {
        let file = SqliteStore::new(&path_beside(database));
        Self::on(Store::File(file), DEADLINE)
    }

    /// A backoffice in the ledger's PostgreSQL database, which several gateways share.
    ///
    /// Never fails: connections are opened and tables created at the first operation.
    pub(crate) fn shared(address: Address) -> Self {
        let database = PostgresStore::new(address, DEADLINE);
        Self::on(Store::Shared(Box::new(database)), DEADLINE)
    }

    fn on(store: Store, deadline: Duration) -> Self {
        Self {
            store,
            deadline,
            passwords: Passwords::default(),
        }
    }

    /// Executes the statements in one transaction and returns the rows of the last one.
    async fn run(&self, statements: Vec<Statement>) -> Result<Vec<Row>, BackofficeError> {
        let running = async {
            match &self.store {
                Store::File(file) => file.run(statements).await,
                Store::Shared(database) => Ok(database.run(&statements).await?),
            }
        };
        let timed_out = |_| BackofficeError::Unavailable("the operation timed out".into());
        timeout(self.deadline, running).await.map_err(timed_out)?
    }
}
