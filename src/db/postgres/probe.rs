//! A look at the server, for `tollgate check`.

use std::fmt;

use tokio::time::timeout;

use super::{Address, Error};

/// What a server says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probed {
    /// E.g. `16.4`
    pub version: String,
    pub is_read_only: bool,
}

impl Address {
    /// Connects and asks; changes nothing.
    pub async fn probe(&self) -> Result<Probed, Error> {
        let connected = self.connect().await?;
        let question = "SELECT current_setting('server_version'),
                               current_setting('transaction_read_only') = 'on'";
        let asked = timeout(self.deadline, connected.query_typed_one(question, &[])).await;
        let row = asked.map_err(|_| Error::TimedOut)??;
        let version: String = row.try_get(0)?;
        let version = version.split(' ').next().unwrap_or_default().to_owned();
        let is_read_only = row.try_get(1)?;
        Ok(Probed {
            version,
            is_read_only,
        })
    }
}

impl fmt::Display for Probed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PostgreSQL {} answers", self.version)?;
        if self.is_read_only {
            f.write_str(", but is read-only")?;
        }
        Ok(())
    }
}
