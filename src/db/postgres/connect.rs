//! Connects to the first host of an address that accepts the connection.
//!
//! Connecting fails within the address's timeout. A connection that is lost later is noticed within half a minute.

use std::{ops::Deref, time::Duration};

use tokio::{
    sync::watch,
    time::{Instant, timeout},
};
use tokio_postgres::{
    Client, Config, Connection, NoTls,
    config::{SslMode as Encryption, TargetSessionAttrs},
};
use tokio_util::task::AbortOnDropHandle;

use super::{
    Address, Error,
    address::{Host, HostName},
    tls::SslMode,
};

/// TCP keepalive: an idle connection to a server that vanished is closed within half a minute.
const KEEPALIVE: Duration = Duration::from_secs(10);
const KEEPALIVE_RETRIES: u32 = 3;
/// How long sent data may stay unacknowledged before the connection is closed.
const UNACKNOWLEDGED_TIMEOUT: Duration = Duration::from_secs(10);

/// An open connection; dropping it closes it.
pub(crate) struct Connected {
    client: Client,
    /// Its sender is dropped when the connection is lost.
    closed: watch::Receiver<()>,
    _driving: AbortOnDropHandle<()>,
}

impl Connected {
    /// Waits until the connection is lost.
    pub(crate) async fn closed(&self) {
        let mut closed = self.closed.clone();
        while closed.changed().await.is_ok() {}
    }
}

impl Deref for Connected {
    type Target = Client;

    /// The client, whose `is_closed()` returns whether the connection is lost.
    fn deref(&self) -> &Client {
        &self.client
    }
}

impl Address {
    /// Connects to the first host that accepts the connection and, if the address requires it, is writable.
    pub(crate) async fn connect(&self) -> Result<Connected, Error> {
        let deadline = Instant::now() + self.deadline;
        let mut reasons = Vec::new();
        let mut is_transient = false;
        for (host, after) in self.hosts.iter().zip((0..self.hosts.len()).rev()) {
            // The remaining time is shared evenly, so that a host that hangs leaves time for the others.
            let left = deadline.saturating_duration_since(Instant::now());
            let share = left / u32::try_from(after + 1).unwrap_or(u32::MAX);
            let connected = timeout(share, self.connect_to(host)).await;
            match connected.unwrap_or(Err(Error::TimedOut)) {
                Ok(connected) => return Ok(connected),
                Err(error) => {
                    is_transient |= error.is_transient();
                    reasons.push(format!("{host}: {error}"));
                }
            }
        }
        Err(Error::NotConnected {
            reasons: reasons.join("; "),
            is_transient,
        })
    }

    async fn connect_to(&self, host: &Host) -> Result<Connected, Error> {
        let config = self.config(host);
        if config.get_ssl_mode() == Encryption::Disable {
            let (client, connection) = config.connect(NoTls).await?;
            return Ok(drive(client, connection));
        }
        let (client, connection) = config.connect(self.tls.connector.clone()).await?;
        Ok(drive(client, connection))
    }

    fn config(&self, host: &Host) -> Config {
        let mut config = Config::new();
        config
            .user(&self.user)
            .dbname(&self.database)
            .application_name(&self.application_name)
            .port(host.port)
            .keepalives_idle(KEEPALIVE)
            .keepalives_interval(KEEPALIVE / 2)
            .keepalives_retries(KEEPALIVE_RETRIES)
            .tcp_user_timeout(UNACKNOWLEDGED_TIMEOUT);
        match &host.name {
            HostName::Tcp(name) => config.host(name),
            HostName::Socket(path) => config.host_path(path),
        };
        config.ssl_mode(match (&host.name, self.tls.mode) {
            (HostName::Socket(_), _) | (_, SslMode::Disable) => Encryption::Disable,
            (_, SslMode::Prefer) => Encryption::Prefer,
            _ => Encryption::Require,
        });
        if let Some(password) = &self.password {
            config.password(password.reveal());
        }
        if self.writable_only {
            config.target_session_attrs(TargetSessionAttrs::ReadWrite);
        }
        config
    }
}

/// Spawns the task that runs the connection.
fn drive<S, T>(client: Client, connection: Connection<S, T>) -> Connected
where
    Connection<S, T>: Future<Output = Result<(), tokio_postgres::Error>> + Send + 'static,
{
    let (open, closed) = watch::channel(());
    let driving = tokio::spawn(async move {
        // Pending queries fail with the error, so it need not be reported here.
        let _ = connection.await;
        drop(open);
    });
    Connected {
        client,
        closed,
        _driving: AbortOnDropHandle::new(driving),
    }
}
