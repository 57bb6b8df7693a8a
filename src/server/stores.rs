//! Opens the stores, in files or on servers, as the configuration says.

use std::{path::Path, sync::Arc};

use super::StartError;
use crate::{
    backoffice::Backoffice,
    config::{Config, LimiterStore, StoreLocation},
    conversations::Conversations,
    gateway::Stores,
    ledger::{Ledger, spool::Spool},
    limits::{Limiter, Rebuild},
};

impl Stores {
    pub(crate) async fn open(config: &Config) -> Result<Self, StartError> {
        let durability = config.store.durability;
        let (ledger, conversations, backoffice) = match &config.store.location {
            StoreLocation::File(path) => (
                Ledger::open(path, durability)?,
                Conversations::beside(path),
                Backoffice::beside(path),
            ),
            StoreLocation::Postgres { address, deadline } => (
                Ledger::share(address, durability, *deadline).await?,
                Conversations::shared((**address).clone()),
                Backoffice::shared((**address).clone()),
            ),
        };
        let ledger = Arc::new(ledger);
        let limiter = match (&config.store.location, &config.limiter_store) {
            (
                StoreLocation::Postgres { deadline: hold, .. },
                LimiterStore::Redis { address, deadline },
            ) => {
                // The ledger has a call as soon as its hold is placed. That directly follows the reservation and has
                // a deadline of its own.
                let known_within = *hold + *deadline;
                Limiter::share(address, *deadline, known_within, rebuild_from(&ledger)).await
            }
            (StoreLocation::File(path), _) => resume(path, &ledger).await?,
            // The configuration does not allow this pair.
            (StoreLocation::Postgres { .. }, LimiterStore::Memory) => Limiter::default(),
        };
        Ok(Self {
            ledger,
            spool: Spool::new(&config.store.spool),
            limiter: Arc::new(limiter),
            conversations,
            backoffice,
        })
    }
}

/// Returns a function that reads the reservations of the window from the ledger after Redis has lost them.
fn rebuild_from(ledger: &Arc<Ledger>) -> Rebuild {
    let ledger = ledger.clone();
    Box::new(move || {
        let ledger = ledger.clone();
        Box::pin(async move {
            let known = ledger.reservations_in_window().await;
            known.map_err(|error| error.to_string())
        })
    })
}

/// Opens the limiter with the windows that an earlier process left, so that a restart does not reset rate limits.
async fn resume(database: &Path, ledger: &Ledger) -> Result<Limiter, StartError> {
    let failed = |reason: String| StartError::Limits {
        database: database.to_owned(),
        reason,
    };
    let used = ledger.tokens_in_window().await;
    let used = used.map_err(|error| failed(error.to_string()))?;
    Limiter::resume(database, &used).map_err(|error| failed(error.to_string()))
}
