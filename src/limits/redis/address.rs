//! URL of Redis: one server, a cluster, or Sentinels that name the primary.

use std::{fmt, path::PathBuf};

use percent_encoding::percent_decode_str;

const EXAMPLE: &str = "e.g. `redis://user:password@host:6379/0`";

/// A parsed and checked URL. `Display` and `Debug` leave the user and the password out.
#[derive(Clone)]
pub struct Address {
    pub(super) kind: Kind,
    pub(super) tls: bool,
    pub(super) hosts: Vec<(String, u16)>,
    pub(super) user: Option<String>,
    pub(super) password: Option<String>,
    pub(super) database: i64,
    /// Path of the CA certificates to trust in place of the system's.
    pub(super) authority: Option<PathBuf>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    One,
    Cluster,
    /// The name of the master group that the Sentinels monitor.
    Sentinel(String),
}

impl Address {
    /// Parses a URL. The errors quote no part of it, which could be a password.
    pub(crate) fn parse(url: &str) -> Result<Self, String> {
        let (scheme, rest) = url
            .split_once("://")
            .ok_or_else(|| format!("is not a URL, {EXAMPLE}"))?;
        let (tls, form) = match scheme.strip_prefix("rediss") {
            Some(form) => (true, form),
            None => (false, scheme.strip_prefix("redis").unwrap_or("?")),
        };
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        // The last `@` ends the login, because a password may contain an unescaped `@` or `/`.
        let (login, location) = match rest.rsplit_once('@') {
            Some((login, location)) => (Some(login), location),
            None => (None, rest),
        };
        let (hosts, path) = location.split_once('/').unwrap_or((location, ""));
        let path = decoded(path)?;
        let (kind, default_port, database) = match form {
            "" => (Kind::One, 6379, database(&path)?),
            "-cluster" if path.is_empty() || path == "0" => (Kind::Cluster, 6379, 0),
            "-cluster" => {
                return Err("has a database number, which a cluster does not support".to_owned());
            }
            "-sentinel" => {
                let (name, number) = path.split_once('/').unwrap_or((&path, ""));
                if name.is_empty() {
                    return Err(
                        "lacks the name of the master group that the Sentinels monitor, \
                        e.g. `redis-sentinel://host1:26379,host2:26379/mymaster`"
                            .to_owned(),
                    );
                }
                (Kind::Sentinel(name.to_owned()), 26379, database(number)?)
            }
            _ => {
                return Err(
                    "must start with `redis://`, `rediss://`, `redis-cluster://`, \
                    `rediss-cluster://`, `redis-sentinel://` or `rediss-sentinel://`"
                        .to_owned(),
                );
            }
        };
        let hosts: Vec<_> = hosts
            .split(',')
            .map(|text| host(text, default_port))
            .collect::<Result<_, _>>()?;
        if kind == Kind::One && hosts.len() > 1 {
            return Err(
                "has several hosts; only a cluster or Sentinels may have several".to_owned(),
            );
        }
        let (user, password) = match login {
            Some(login) => {
                let (user, password) = login
                    .split_once(':')
                    .ok_or("has a user but no password; `:password@` needs no user")?;
                let user = Some(decoded(user)?).filter(|user| !user.is_empty());
                (user, Some(decoded(password)?))
            }
            None => (None, None),
        };
        let authority = match query.split_once('=') {
            None if query.is_empty() => None,
            Some(("ca", path)) if tls => Some(PathBuf::from(decoded(path)?)),
            _ => {
                return Err(
                    "has an unknown parameter; the only one is `?ca=PATH`, with TLS".to_owned(),
                );
            }
        };
        Ok(Self {
            kind,
            tls,
            hosts,
            user,
            password,
            database,
            authority,
        })
    }
}

fn decoded(text: &str) -> Result<String, String> {
    let text = percent_decode_str(text).decode_utf8();
    text.map(String::from)
        .map_err(|_| "is not UTF-8 once decoded".to_owned())
}

fn database(text: &str) -> Result<i64, String> {
    match text {
        "" => Ok(0),
        text => (text.parse().ok())
            .filter(|number| *number >= 0)
            .ok_or_else(|| format!("does not end in a database number, {EXAMPLE}")),
    }
}

fn host(text: &str, default_port: u16) -> Result<(String, u16), String> {
    let bracketed = text.strip_prefix('[').and_then(|text| text.split_once(']'));
    let (host, port) = match bracketed {
        Some((host, port)) => (host, port.strip_prefix(':')),
        None => match text.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        },
    };
    let port = port.map_or(Ok(default_port), str::parse);
    match port {
        Ok(port) if !host.is_empty() && port > 0 => Ok((host.to_owned(), port)),
        _ => Err(format!("has an invalid host or port, {EXAMPLE}")),
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.tls { "rediss" } else { "redis" })?;
        f.write_str(match self.kind {
            Kind::One => "://",
            Kind::Cluster => "-cluster://",
            Kind::Sentinel(_) => "-sentinel://",
        })?;
        for (at, (host, port)) in self.hosts.iter().enumerate() {
            let comma = if at > 0 { "," } else { "" };
            if host.contains(':') {
                write!(f, "{comma}[{host}]:{port}")?;
            } else {
                write!(f, "{comma}{host}:{port}")?;
            }
        }
        if let Kind::Sentinel(name) = &self.kind {
            write!(f, "/{name}")?;
        }
        if self.database > 0 {
            write!(f, "/{}", self.database)?;
        }
        Ok(())
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Address({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_is_read_and_prints_without_its_password() {
        for (url, printed) in [
            ("redis://h", "redis://h:6379"),
            ("redis://u:s3cret@h:1/2", "redis://h:1/2"),
            ("redis://:s3c%40r/e@t@[::1]:7", "redis://[::1]:7"),
            ("rediss://:s3cret@h?ca=/a/b.pem", "rediss://h:6379"),
            ("redis-cluster://a:1,b", "redis-cluster://a:1,b:6379"),
            ("rediss-cluster://a", "rediss-cluster://a:6379"),
            (
                "redis-sentinel://:s3cret@a,b:2/main",
                "redis-sentinel://a:26379,b:2/main",
            ),
            ("rediss-sentinel://a/m/3", "rediss-sentinel://a:26379/m/3"),
        ] {
            let address = Address::parse(url).unwrap();
            assert_eq!(address.to_string(), printed);
            assert_eq!(format!("{address:?}"), format!("Address({printed})"));
        }
        let address = Address::parse("redis://u:p%40%3a@h").unwrap();
        assert_eq!(address.user.as_deref(), Some("u"));
        assert_eq!(address.password.as_deref(), Some("p@:"));
    }

    #[test]
    fn errors_do_not_quote_the_password() {
        for url in [
            "s3cret",
            "http://h",
            "redis-tower://:s3cret@h",
            "redis://:s3cret@",
            "redis://:s3cret@h:port",
            "redis://:s3cret@h:0",
            "redis://:s3cret@h/x",
            "redis://:s3cret@a,b",
            "redis://s3cret@h",
            "redis://:s3cret@h?ca=/x",
            "rediss://:s3cret@h?s3cret",
            "redis-cluster://:s3cret@h/1",
            "redis-sentinel://:s3cret@h",
        ] {
            let error = Address::parse(url).unwrap_err();
            assert!(!error.contains("s3cret"), "{error}");
        }
    }
}
