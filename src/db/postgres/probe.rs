//! Probes the server, for `tollgate check`.

use std::fmt;

use tokio::time::timeout;

use super::{Address, Error};

/// The version and the mode of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServerInfo {
    /// For example `16.4`.
    pub version: String,
    pub is_read_only: bool,
}

impl Address {
    /// Connects and queries the server's version and mode; changes nothing.
    pub(crate) async fn probe(&self) -> Result<ServerInfo, Error> {
        let connected = self.connect().await?;
        let query = "SELECT current_setting('server_version'),
                            current_setting('transaction_read_only') = 'on'";
        let result = timeout(self.deadline, connected.query_typed_one(query, &[])).await;
        let row = result.map_err(|_| Error::TimedOut)??;
        let version: String = row.try_get(0)?;
        let version = version.split(' ').next().unwrap_or_default().to_owned();
        let is_read_only = row.try_get(1)?;
        Ok(ServerInfo {
            version,
            is_read_only,
        })
    }
}

impl fmt::Display for ServerInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PostgreSQL {} answers", self.version)?;
        if self.is_read_only {
            f.write_str(", but is read-only")?;
        }
        Ok(())
    }
}
