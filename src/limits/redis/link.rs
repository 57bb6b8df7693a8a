//! A connection to Redis, and the checks whether its servers can hold the windows.
//!
//! Every function fails within its timeout. No error contains a password.

use std::{
    collections::HashMap,
    time::{Duration, SystemTime},
};

use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionAddr, ErrorKind, IntoConnectionInfo as _,
    RedisConnectionInfo, RedisError, RedisResult, TlsCertificates, TlsMode, Value,
    aio::{ConnectionLike as _, MultiplexedConnection},
    cluster::ClusterClientBuilder,
    cluster_async::ClusterConnection,
    cluster_routing::{MultipleNodeRoutingInfo, RoutingInfo},
    sentinel::{SentinelClientBuilder, SentinelServerType},
};

use super::address::{Address, Kind};

/// Timeout of connecting, which happens in the background: no request waits for it.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// How far the server's clock may be from ours before a warning is logged.
const CLOCKS_APART_MS: u64 = 1_000;

/// One connection to each server, over which all commands are pipelined.
#[derive(Clone)]
pub(crate) enum Link {
    One(MultiplexedConnection),
    Cluster(ClusterConnection),
}

/// The fields of a server's `INFO` reply.
struct Server(HashMap<String, String>);

impl Link {
    pub(crate) async fn to(address: &Address) -> Result<Self, String> {
        tokio::time::timeout(CONNECT_TIMEOUT, connect(address))
            .await
            .unwrap_or_else(|_| {
                Err(RedisError::from((
                    ErrorKind::Io,
                    "no reply within the timeout",
                )))
            })
            .map_err(|error| format!("connecting failed: {error}"))
    }

    /// Sends a command and returns its reply, without a timeout.
    pub(crate) async fn send(&self, command: &Cmd) -> RedisResult<Value> {
        let reply = match self {
            Self::One(connection) => connection.clone().req_packed_command(command).await,
            Self::Cluster(connection) => connection.clone().req_packed_command(command).await,
        };
        // An error reply arrives as a value.
        reply?.extract_error()
    }

    /// Returns the version and role of each server, or why the windows cannot be kept there.
    pub(crate) async fn inspect(&self, reply_timeout: Duration) -> Result<Vec<String>, String> {
        let servers = tokio::time::timeout(reply_timeout, self.servers()).await;
        let servers = servers
            .map_err(|_| "no reply within the timeout".to_owned())?
            .map_err(|error| format!("the command INFO failed: {error}"))?;
        if servers.is_empty() {
            return Err("the cluster has no servers".to_owned());
        }
        servers.iter().map(Server::check).collect()
    }

    /// Writes a probe key that expires at once. A server may reply to reads and yet refuse writes: if its memory or its
    /// disk is full, or if it has too few replicas.
    pub(crate) async fn probe_write(&self, reply_timeout: Duration) -> Result<(), String> {
        let mut write = redis::cmd("SET");
        write.arg("tollgate:{p00}:probe").arg("").arg("PX").arg(1);
        match tokio::time::timeout(reply_timeout, self.send(&write)).await {
            Ok(Ok(Value::Okay)) => Ok(()),
            Ok(Ok(reply)) => Err(format!("it refuses writes: {reply:?}")),
            Ok(Err(error)) => Err(format!("it refuses writes: {error}")),
            Err(_) => Err("no reply within the timeout".to_owned()),
        }
    }

    async fn servers(&self) -> RedisResult<Vec<Server>> {
        let info = redis::cmd("INFO");
        let texts = match self {
            Self::One(_) => vec![self.send(&info).await?],
            Self::Cluster(connection) => {
                let all = RoutingInfo::MultiNode((MultipleNodeRoutingInfo::AllMasters, None));
                let replies = connection.clone().route_command(info, all).await?;
                let replies: HashMap<String, Value> = redis::from_redis_value(replies)?;
                replies.into_values().collect()
            }
        };
        let mut servers = Vec::new();
        for text in texts {
            let mut server = Server::parse(&redis::from_redis_value::<String>(text)?);
            if server.get("maxmemory_policy").is_none() && matches!(self, Self::One(_)) {
                let mut config = redis::cmd("CONFIG");
                config.arg("GET").arg("maxmemory-policy");
                let reply: Vec<String> = redis::from_redis_value(self.send(&config).await?)?;
                if let Some(policy) = reply.into_iter().nth(1) {
                    server.0.insert("maxmemory_policy".to_owned(), policy);
                }
            }
            servers.push(server);
        }
        Ok(servers)
    }

    /// Returns by how many milliseconds the server's clock and ours differ, if that is more than [`CLOCKS_APART_MS`].
    pub(crate) async fn clocks_apart(&self) -> Option<u64> {
        let reply = tokio::time::timeout(CONNECT_TIMEOUT, self.send(&redis::cmd("TIME"))).await;
        let (seconds, micros): (u64, u64) = redis::from_redis_value(reply.ok()?.ok()?).ok()?;
        let ours = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let ours = u64::try_from(ours.unwrap_or_default().as_millis()).unwrap_or(0);
        let apart = ours.abs_diff(seconds * 1_000 + micros / 1_000);
        (apart > CLOCKS_APART_MS).then_some(apart)
    }
}

impl Address {
    /// Connects once and returns a description of the servers, for `tollgate check`.
    pub(crate) async fn probe(&self) -> Result<String, String> {
        let link = Link::to(self).await?;
        let mut lines = link.inspect(CONNECT_TIMEOUT).await?;
        if let Some(ms) = link.clocks_apart().await {
            lines.push(format!("its clock differs from this machine's by {ms} ms"));
        }
        Ok(lines.join("; "))
    }

    fn addresses(&self) -> Vec<ConnectionAddr> {
        let address = |(host, port): &(String, u16)| {
            let (host, port) = (host.clone(), *port);
            if self.tls {
                ConnectionAddr::TcpTls {
                    host,
                    port,
                    insecure: false,
                    tls_params: None,
                }
            } else {
                ConnectionAddr::Tcp(host, port)
            }
        };
        self.hosts.iter().map(address).collect()
    }

    fn login(&self) -> RedisConnectionInfo {
        let mut login = RedisConnectionInfo::default().set_db(self.database);
        if let Some(user) = &self.user {
            login = login.set_username(user);
        }
        if let Some(password) = &self.password {
            login = login.set_password(password);
        }
        login
    }

    /// The CA certificates. Read again for each connection, because they may be replaced while a gateway runs.
    fn certificates(&self) -> RedisResult<Option<TlsCertificates>> {
        let Some(path) = &self.authority else {
            return Ok(None);
        };
        let pem = std::fs::read(path).map_err(|error| {
            let detail = format!("{}: {error}", path.display());
            RedisError::from((ErrorKind::InvalidClientConfig, "the CA", detail))
        })?;
        Ok(Some(TlsCertificates {
            client_tls: None,
            root_cert: Some(pem),
        }))
    }
}

async fn connect(address: &Address) -> RedisResult<Link> {
    let certificates = address.certificates()?;
    // Callers set the timeout of each reply.
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(CONNECT_TIMEOUT))
        .set_response_timeout(None);
    match &address.kind {
        Kind::One => {
            let server = address.addresses().swap_remove(0);
            let server = server
                .into_connection_info()?
                .set_redis_settings(address.login());
            let client = match certificates {
                Some(certificates) => Client::build_with_tls(server, certificates)?,
                None => Client::open(server)?,
            };
            let connection = client.get_multiplexed_async_connection_with_config(&config);
            connection.await.map(Link::One)
        }
        Kind::Cluster => {
            let mut servers = Vec::new();
            for server in address.addresses() {
                let server = server.into_connection_info()?;
                servers.push(server.set_redis_settings(address.login()));
            }
            let mut builder = ClusterClientBuilder::new(servers)
                .retries(2)
                .min_retry_wait(10)
                .max_retry_wait(50)
                .connection_timeout(CONNECT_TIMEOUT)
                .response_timeout(CONNECT_TIMEOUT);
            if let Some(certificates) = certificates {
                builder = builder.certs(certificates);
            }
            let connection = builder.build()?.get_async_connection().await?;
            Ok(Link::Cluster(connection))
        }
        Kind::Sentinel(name) => {
            let sentinels = address.addresses();
            let mut builder =
                SentinelClientBuilder::new(sentinels, name, SentinelServerType::Master)?
                    .set_client_to_redis_db(address.database);
            if let Some(user) = &address.user {
                builder = builder.set_client_to_redis_username(user);
            }
            if let Some(password) = &address.password {
                builder = builder.set_client_to_redis_password(password);
            }
            if address.tls {
                builder = builder.set_client_to_redis_tls_mode(TlsMode::Secure);
            }
            if let Some(certificates) = certificates {
                builder = builder
                    .set_client_to_redis_certificates(certificates.clone())
                    .set_client_to_sentinel_certificates(certificates);
            }
            let mut client = builder.build()?;
            let connection = client.get_async_connection_with_config(&config);
            connection.await.map(Link::One)
        }
    }
}

impl Server {
    fn parse(text: &str) -> Self {
        let fields = text.lines().filter_map(|line| line.split_once(':'));
        Self(fields.map(|(k, v)| (k.into(), v.trim().into())).collect())
    }

    fn get(&self, field: &str) -> Option<&str> {
        self.0.get(field).map(String::as_str)
    }

    /// Returns the version and role, or why the windows cannot be kept on this server.
    fn check(&self) -> Result<String, String> {
        let role = self.get("role").unwrap_or("unknown role");
        if role != "master" {
            return Err(format!("it is a replica, not the primary (role {role})"));
        }
        if self.get("loading").is_some_and(|loading| loading != "0") {
            return Err("it is still loading its data".to_owned());
        }
        if self.get("maxmemory") != Some("0") {
            match self.get("maxmemory_policy") {
                Some("noeviction") => {}
                Some(policy) => {
                    return Err(format!(
                        "its maxmemory-policy is {policy}, which evicts rate-limit windows when memory runs \
                        short; set it to noeviction"
                    ));
                }
                None => return Err("it does not report its maxmemory-policy".to_owned()),
            }
        }
        let version = match self.get("valkey_version") {
            Some(version) => format!("Valkey {version}"),
            None => format!("Redis {}", self.get("redis_version").unwrap_or("?")),
        };
        Ok(format!("{version}, {role}"))
    }
}
