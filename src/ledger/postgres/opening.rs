//! The first steps on a database: a connection, the tables, and the lease of a gateway.

use std::time::{Duration, Instant};

use super::{
    START_TIMEOUT,
    lease::{Lease, Times},
    pool::Pool,
    schema::{self, Found},
};
use crate::{
    base::outage::Outage,
    db::postgres::{Address, Connected, Error},
    ledger::{OpenError, import::IS_UNFINISHED},
};

/// Connects and creates the tables if there are none.
pub(crate) async fn connect(address: &Address) -> Result<Connected, OpenError> {
    let failed = |error| failed(address, error);
    let connection = connect_retrying(address).await.map_err(failed)?;
    let found = schema::create_if_new(&connection).await.map_err(failed)?;
    if let Found::OtherVersion { found, known } = found {
        let number = |version| u32::try_from(version).unwrap_or(0);
        return Err(OpenError::OtherVersion {
            path: address.to_string(),
            found: number(found),
            known: number(known),
        });
    }
    Ok(connection)
}

/// Takes a lease, unless an import into the database is not finished.
pub(super) async fn begin_lease(
    pool: &Pool,
    address: &Address,
    times: Times,
) -> Result<Lease, OpenError> {
    let failed = |error| failed(address, error);
    let is_unfinished = || pool.query_one::<bool>(IS_UNFINISHED, &[]);
    let unfinished = || OpenError::UnfinishedImport {
        address: address.to_string(),
    };
    if is_unfinished().await.map_err(failed)? {
        return Err(unfinished());
    }
    let lease = Lease::begin(pool, times).await.map_err(failed)?;
    // An import that began after the first check has not seen this gateway.
    if is_unfinished().await.map_err(failed)? {
        let _ = lease.end(pool, 0).await;
        return Err(unfinished());
    }
    Ok(lease)
}

pub(super) fn failed(address: &Address, source: Error) -> OpenError {
    OpenError::Postgres {
        address: address.to_string(),
        source,
    }
}

/// Connects, retrying up to the start timeout, because the database may be starting too.
async fn connect_retrying(address: &Address) -> Result<Connected, Error> {
    let started = Instant::now();
    let mut connecting = Outage::new("connecting to the database");
    loop {
        match address.connect().await {
            Err(error) if error.is_transient() && started.elapsed() < START_TIMEOUT => {
                connecting.fails(&error);
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
            Ok(connected) => {
                connecting.works();
                return Ok(connected);
            }
            Err(error) => return Err(error),
        }
    }
}
