//! The server: starts the gateway, its two listeners and its jobs, reloads the configuration, and stops it all.
//!
//! A start that fails returns a [`StartError`]. A stop lets running responses finish within the grace period, then
//! cuts them off and closes the ledger. A reload that fails changes nothing, and a job that fails is repeated.
//!
//! Uses portal, api, gateway, backoffice, config, ledger, limits, conversations and net. Only cli uses it.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use axum::Router;
use tokio::{net::TcpListener, task::JoinHandle};

mod changes;
mod connections;
mod jobs;
mod listener;
mod reload;
mod stores;
mod tls;

pub use changes::UnreadableChanges;
pub(crate) use changes::{describe, refusal};
pub(crate) use reload::ConfigFiles;

use self::connections::ConnectionLimit;
use crate::{
    api::{self, TrustedProxies, operator, public::Front},
    config::{Config, TlsFiles},
    gateway::{Gateway, Stores},
    ledger::OpenError,
    net::lanes::Lanes,
    portal,
};

/// How long a gateway that stops tries to write its last refused requests.
const LAST_WRITE: Duration = Duration::from_secs(5);

/// Why a gateway did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("cannot listen on {address}: {source}")]
    Listen {
        address: SocketAddr,
        source: std::io::Error,
    },
    #[error(transparent)]
    Store(#[from] OpenError),
    #[error("{file}: {reason}")]
    Certificate { file: PathBuf, reason: String },
    #[error("the rate-limit windows of {database} cannot be restored: {reason}")]
    Limits { database: PathBuf, reason: String },
    #[error("the threads that serve requests did not start: {0}")]
    Threads(std::io::Error),
    #[error("{0}")]
    Provider(String),
    /// The changes that were made in the console do not fit the file.
    #[error("{0}")]
    Changes(String),
    /// The changes that were made in the console cannot be read. The message is for a gateway with a configuration file.
    #[error(
        "the changes that were made in the console cannot be read: {reason}\n\
         Without them, calls would be charged the prices of the file. Make the store readable (for a damaged file, \
         restore its backup), or serve the file alone until it is with \
         `tollgate serve --config FILE --without-console-changes`."
    )]
    UnreadableChanges { reason: String },
}

pub struct Running {
    pub gateway: Arc<Gateway>,
    pub public: SocketAddr,
    pub operator: SocketAddr,
    /// URL of the public listener from this machine, `http://…` or `https://…`.
    pub origin: String,
    grace: Duration,
    accepting: Vec<JoinHandle<()>>,
    lanes: Arc<Lanes>,
}

/// Returns what the public listener serves: the API, and the portal unless it is disabled.
pub fn public_front(gateway: &Arc<Gateway>) -> Front {
    let pages = if gateway.portal.enabled {
        portal::router(gateway)
    } else {
        Router::new()
    };
    api::public::public(gateway, pages)
}

/// Starts everything and returns once both listeners accept connections.
///
/// It fails if the changes of the console cannot be read.
pub async fn start(config: Config) -> Result<Running, StartError> {
    // Boxed, because it is large.
    Box::pin(start_with(config, UnreadableChanges::Fail)).await
}

/// Like [`start`], with a decision about changes of the console that cannot be read.
pub async fn start_with(
    config: Config,
    unreadable: UnreadableChanges,
) -> Result<Running, StartError> {
    let tls = config
        .server
        .tls
        .as_ref()
        .map(tls::Certificate::load)
        .transpose()?;
    let public = bind(config.server.listen).await?;
    let operator = bind(config.operator.listen).await?;
    let lanes = Arc::new(Lanes::start(config.overload.max_lag).map_err(StartError::Threads)?);
    let stores = Stores::open(&config).await?;
    let config = changes::applied(config, &stores.backoffice, unreadable).await?;
    let (public_address, operator_address) = (local(&public), local(&operator));
    let scheme = if tls.is_some() { "https" } else { "http" };
    let origin = format!("{scheme}://{}", reachable(public_address));
    let (grace, timeouts) = (config.server.shutdown_grace, config.server.client_timeouts);
    let proxies = TrustedProxies::new(&config.server.trusted_proxies);
    let most = ConnectionLimit::new(config.server.max_connections);
    let keep_months = config.store.keep_months;
    let gateway = Gateway::new(config, stores, &origin).map_err(StartError::Provider)?;
    let gateway = Arc::new(gateway);
    let _ = gateway.lags.set(lanes.lags());
    if let Some(certificate) = &tls {
        gateway.background.spawn(
            certificate
                .clone()
                .reload_on_change(gateway.shutdown.clone()),
        );
    }
    let inherited = jobs::settler::Inherited::settled_at_start(&gateway).await;
    gateway
        .background
        .spawn(jobs::settler::run(gateway.clone(), inherited));
    gateway
        .background
        .spawn(jobs::reconciler::run(gateway.clone()));
    gateway.background.spawn(jobs::pruner::run(gateway.clone()));
    gateway
        .background
        .spawn(jobs::retention::run(gateway.clone(), keep_months));
    gateway
        .background
        .spawn(jobs::retries::run(gateway.clone()));
    gateway
        .background
        .spawn(jobs::refused::run(gateway.clone()));
    gateway
        .background
        .spawn(jobs::sampler::run(gateway.clone()));
    gateway
        .background
        .spawn(jobs::alerter::run(gateway.clone()));
    gateway
        .background
        .spawn(jobs::top_ups::run(gateway.clone()));
    if let Some(telemetry) = gateway.telemetry.clone() {
        // It ends when the gateway has stopped, with the last spans.
        tokio::spawn(telemetry.run());
    }
    gateway
        .background
        .spawn(jobs::telemetry::run(gateway.clone()));
    let name = jobs::configuration::name(public_address);
    gateway
        .background
        .spawn(jobs::configuration::run(gateway.clone(), name));
    let acceptor = tls.map(|certificate| certificate.acceptor());
    let serve = |listener, limit, front, acceptor| {
        tokio::spawn(listener::serve(
            (listener, limit),
            lanes.clone(),
            front,
            acceptor,
            timeouts,
            proxies.clone(),
            gateway.shutdown.clone(),
        ))
    };
    let accepting = vec![
        serve(public, most, public_front(&gateway), acceptor),
        serve(
            operator,
            ConnectionLimit::unbounded(),
            Front::new(operator::router(&gateway)),
            None,
        ),
    ];
    Ok(Running {
        gateway,
        public: public_address,
        operator: operator_address,
        origin,
        grace,
        accepting,
        lanes,
    })
}

impl Running {
    /// Reloads models and upstreams on SIGHUP and whenever one of these files changes.
    pub(crate) fn reload_from(&self, files: ConfigFiles) {
        let watching = reload::on_change(self.gateway.clone(), files);
        self.gateway.background.spawn(watching);
    }

    /// Makes the gateway refuse new work from now on.
    pub(crate) fn begin_to_stop(&self) {
        self.gateway.shutdown.request();
    }

    /// Stops the gateway. It is not ready at once and takes no new work; running responses finish within the grace
    /// period.
    pub async fn stop(self) {
        self.begin_to_stop();
        let shutdown = self.gateway.shutdown.clone();
        self.gateway.tasks.close();
        self.gateway.background.close();
        let finished = async {
            for accepting in self.accepting {
                let _ = accepting.await;
            }
            self.gateway.tasks.wait().await;
            self.gateway.background.wait().await;
            self.gateway.limiter.drain().await;
        };
        tokio::pin!(finished);
        if tokio::time::timeout(self.grace, &mut finished)
            .await
            .is_err()
        {
            tracing::warn!(
                "responses still running after the grace period of {:?} are cut off",
                self.grace
            );
            shutdown.end_grace_period();
            // Long enough to send the last event of a stream. Clients that do not read get no more time.
            let _ = tokio::time::timeout(Duration::from_secs(2), &mut finished).await;
        }
        let last_refused = self.gateway.write_refused_requests();
        match tokio::time::timeout(LAST_WRITE, last_refused).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::warn!(%error, "the last refused requests could not be written");
            }
            Err(_) => {
                tracing::warn!("the last refused requests could not be written in {LAST_WRITE:?}");
            }
        }
        jobs::telemetry::close(&self.gateway).await;
        self.gateway.ledger.close().await;
        // A thread that hangs must not delay the end of the process.
        let ended = tokio::task::spawn_blocking(move || drop(self.lanes));
        let _ = tokio::time::timeout(Duration::from_secs(1), ended).await;
    }
}

async fn bind(address: SocketAddr) -> Result<TcpListener, StartError> {
    TcpListener::bind(address)
        .await
        .map_err(|source| StartError::Listen { address, source })
}

fn local(listener: &TcpListener) -> SocketAddr {
    listener
        .local_addr()
        .expect("a bound socket has an address")
}

/// Returns the address to connect to from this machine: localhost if the listener is bound to all addresses.
pub(crate) fn reachable(mut address: SocketAddr) -> SocketAddr {
    match address.ip() {
        IpAddr::V4(Ipv4Addr::UNSPECIFIED) => address.set_ip(Ipv4Addr::LOCALHOST.into()),
        IpAddr::V6(Ipv6Addr::UNSPECIFIED) => address.set_ip(Ipv6Addr::LOCALHOST.into()),
        _ => {}
    }
    address
}

/// Checks that a certificate and its key can be loaded.
pub(crate) fn probe_certificate(files: &TlsFiles) -> Result<String, String> {
    let loaded = tls::Certificate::load(files).map_err(|error| error.to_string());
    loaded.map(|_| "can be served".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_of_all_addresses_is_reached_at_localhost_of_its_family() {
        for (listener, reached) in [
            ("0.0.0.0:8080", "127.0.0.1:8080"),
            ("[::]:8080", "[::1]:8080"),
            ("10.0.0.1:8080", "10.0.0.1:8080"),
            ("[fd00::1]:8080", "[fd00::1]:8080"),
        ] {
            let address = reachable(listener.parse().unwrap());
            assert_eq!(address.to_string(), reached);
        }
    }
}
