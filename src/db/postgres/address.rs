//! Parses database URLs as libpq does: `postgres://user:password@host1:5432,host2/database?sslmode=verify-full`.

use std::{fmt, path::PathBuf, time::Duration};

use percent_encoding::percent_decode_str;

use super::tls::{SslMode, Tls};
use crate::base::keys::Secret;

/// Default timeout of connecting, for all hosts together.
const DEADLINE: Duration = Duration::from_secs(2);

/// A parsed database URL. `Display` and `Debug` leave the password out.
#[derive(Clone)]
pub struct Address {
    pub(super) user: String,
    pub(super) password: Option<Secret>,
    /// At least one host, in the order in which they are tried.
    pub(super) hosts: Vec<Host>,
    pub(super) database: String,
    pub(super) application_name: String,
    /// Timeout of connecting, for all hosts together.
    pub(super) deadline: Duration,
    /// Whether read-only hosts are skipped.
    pub(super) writable_only: bool,
    pub(super) tls: Tls,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Host {
    pub name: HostName,
    pub port: u16,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum HostName {
    Tcp(String),
    /// The directory of a Unix socket.
    Socket(PathBuf),
}

impl Address {
    /// Parses a URL. The error completes the sentence "the URL …" and does not quote the URL, which has a password.
    pub fn parse(url: &str) -> Result<Self, String> {
        let rest = url
            .strip_prefix("postgres://")
            .or_else(|| url.strip_prefix("postgresql://"))
            .ok_or("does not start with `postgres://`")?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, database) = rest.split_once('/').unwrap_or((rest, ""));
        let (login, hosts) = authority.rsplit_once('@').unwrap_or(("", authority));
        let (user, password) = match login.split_once(':') {
            Some((user, password)) => (user, Some(Secret::new(decoded("password", password)?))),
            None => (login, None),
        };
        let user = decoded("user", user)?;
        if user.is_empty() {
            return Err("names no user, as in `postgres://user@host/database`".into());
        }
        let database = match decoded("database", database)? {
            none if none.is_empty() => user.clone(),
            database => database,
        };
        let hosts: Vec<_> = hosts.split(',').map(host).collect::<Result<_, _>>()?;
        let settings = Settings::parse(query)?;
        Ok(Self {
            user,
            password,
            database,
            application_name: settings.application_name.unwrap_or("tollgate".into()),
            deadline: settings.deadline.unwrap_or(DEADLINE),
            // Of several hosts, all but one are usually read-only replicas.
            writable_only: settings.writable_only.unwrap_or(hosts.len() > 1),
            hosts,
            tls: Tls::new(settings.mode.unwrap_or(SslMode::Prefer), settings.roots)?,
        })
    }
}

fn host(text: &str) -> Result<Host, String> {
    let bad_port = "has a port that is not a number from 1 to 65535";
    let (name, port) = match text.strip_prefix('[') {
        // An IPv6 address contains colons.
        Some(bracketed) => bracketed
            .split_once(']')
            .ok_or("has a host with `[` and without `]`")?,
        None => text.find(':').map_or((text, ""), |at| text.split_at(at)),
    };
    let port = match port.strip_prefix(':').unwrap_or(port) {
        "" => 5432,
        port => port.parse().ok().filter(|port| *port > 0).ok_or(bad_port)?,
    };
    let name = decoded("host", name)?;
    let name = match name {
        none if none.is_empty() => return Err("names no host".into()),
        path if path.starts_with('/') => HostName::Socket(path.into()),
        name => HostName::Tcp(name),
    };
    Ok(Host { name, port })
}

/// The parameters after the `?`.
#[derive(Default)]
struct Settings {
    mode: Option<SslMode>,
    roots: Option<PathBuf>,
    writable_only: Option<bool>,
    deadline: Option<Duration>,
    application_name: Option<String>,
}

impl Settings {
    fn parse(query: &str) -> Result<Self, String> {
        let mut settings = Self::default();
        for setting in query.split('&').filter(|setting| !setting.is_empty()) {
            let (key, value) = setting.split_once('=').unwrap_or((setting, ""));
            let value = decoded(key, value)?;
            settings.set(key, value)?;
        }
        Ok(settings)
    }

    fn set(&mut self, key: &str, value: String) -> Result<(), String> {
        match key {
            "sslmode" => {
                let mode = SslMode::parse(&value).ok_or(
                    "has an `sslmode` that is not `disable`, `prefer`, `require`, `verify-ca` \
                     or `verify-full`",
                )?;
                self.mode = Some(mode);
            }
            "sslrootcert" => self.roots = Some(value.into()),
            "target_session_attrs" => {
                self.writable_only = Some(match value.as_str() {
                    "any" => false,
                    "read-write" | "primary" => true,
                    _ => {
                        let mistake = "has a `target_session_attrs` that is not `any`, `read-write` \
                                       or `primary`; the other values allow hosts that refuse writes";
                        return Err(mistake.into());
                    }
                });
            }
            "connect_timeout" => {
                let seconds = value.parse().ok().filter(|seconds| *seconds > 0);
                let seconds: u32 =
                    seconds.ok_or("has a `connect_timeout` that is not a number of seconds")?;
                self.deadline = Some(Duration::from_secs(seconds.into()));
            }
            "application_name" => self.application_name = Some(value),
            _ => {
                // Not quoted: part of a password with an unescaped `?` would end up here.
                let mistake = "has a setting that is not known; known are `sslmode`, `sslrootcert`, \
                               `target_session_attrs`, `connect_timeout` and `application_name`";
                return Err(mistake.into());
            }
        }
        Ok(())
    }
}

fn decoded(what: &str, text: &str) -> Result<String, String> {
    let decoded = percent_decode_str(text).decode_utf8();
    let decoded = decoded.map_err(|_| format!("has a {what} that is not UTF-8"))?;
    if decoded.contains('\0') {
        return Err(format!("has a {what} with a zero byte"));
    }
    Ok(decoded.into_owned())
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            HostName::Tcp(name) if name.contains(':') => write!(f, "[{name}]:{}", self.port),
            HostName::Tcp(name) => write!(f, "{name}:{}", self.port),
            HostName::Socket(path) => write!(f, "{}:{}", path.display(), self.port),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "postgres://{}@", self.user)?;
        for (number, host) in self.hosts.iter().enumerate() {
            let comma = if number > 0 { "," } else { "" };
            write!(f, "{comma}{host}")?;
        }
        write!(f, "/{}", self.database)
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Address({self})")
    }
}
