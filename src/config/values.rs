//! Readers for values that occur in several sections.

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
    path::{Path, PathBuf},
    time::Duration,
};

use axum::http::Uri;

use super::{files::secret_of_file, paths::with_roots_beside};
use crate::base::{
    checked_toml::{self, Section, Value, as_text},
    keys::Secret,
};

pub(crate) type Environment = BTreeMap<String, String>;

/// Reads a secret from the variable named by `{key}_env` or from the file named by `{key}_file`. The secret itself
/// under `key` is a mistake.
pub(crate) fn secret(
    section: &mut Section,
    key: &str,
    default_variable: Option<&str>,
    environment: &Environment,
) -> Option<Secret> {
    let (env_key, file_key) = (format!("{key}_env"), format!("{key}_file"));
    let message = format!("does not belong here: use `{env_key}` or `{file_key}`");
    section.refuse(key, &message);
    let file = section.optional(&file_key, "the path of a readable file", secret_of_file);
    let named = section.text(&env_key, "the name of an environment variable");
    let from = if file.is_some() { &file_key } else { &env_key };
    let text = match (file, named.as_deref().or(default_variable)) {
        (Some(text), _) => text,
        (None, Some(variable)) => {
            let Some(text) = environment.get(variable) else {
                let hint = "which is not set; export it, or name another variable";
                section.mistake(&env_key, &format!("names the variable {variable}, {hint}"));
                return None;
            };
            text.clone()
        }
        (None, None) => return None,
    };
    let text = text.trim();
    if text.is_empty() {
        section.mistake(from, "leads to an empty secret");
        return None;
    }
    Some(Secret::new(text))
}

/// Reads a URL that may contain a password: from the file named by `url_file`, else from the variable named by
/// `url_env`, else from `url` itself. A path in it is relative to the file that it is in.
pub(crate) fn store_url(
    section: &mut Section,
    expected: &str,
    environment: &Environment,
) -> Option<String> {
    let file = section.optional("url_file", "the path of a readable file", |value| {
        let url = secret_of_file(value)?;
        let folder = PathBuf::from(as_text(value)?);
        let folder = folder.parent().unwrap_or(Path::new(""));
        Some(with_roots_beside(&url, folder).into_owned())
    });
    let named = section.text("url_env", "the name of an environment variable");
    let plain = section.optional_secret("url", expected, as_text);
    if file.is_some() {
        return file;
    }
    let Some(variable) = named else {
        return plain;
    };
    let url = environment.get(&variable);
    if url.is_none() {
        let hint = "which is not set; export it, or name another variable";
        section.mistake("url_env", &format!("names the variable {variable}, {hint}"));
    }
    url.map(|url| url.trim().to_owned())
}

pub(crate) fn address(section: &mut Section, default: &str) -> SocketAddr {
    let expected = format!("an IP address and a port, e.g. `{default}`");
    let read = |value: &Value| as_text(value)?.parse().ok();
    let listen = section.optional("listen", &expected, read);
    listen.unwrap_or_else(|| default.parse().expect("a default written here"))
}

pub(crate) fn seconds(
    section: &mut Section,
    key: &str,
    range: std::ops::RangeInclusive<u64>,
) -> Option<Duration> {
    let expected = format!(
        "a number of seconds from {} to {}",
        range.start(),
        range.end()
    );
    section.optional(key, &expected, |value| {
        let seconds: i64 = checked_toml::as_integer(value)?;
        let seconds = u64::try_from(seconds)
            .ok()
            .filter(|seconds| range.contains(seconds))?;
        Some(Duration::from_secs(seconds))
    })
}

pub(crate) fn http_url(value: &Value) -> Option<String> {
    let url = as_text(value)?;
    let uri: axum::http::Uri = url.parse().ok()?;
    let known = matches!(uri.scheme_str(), Some("http" | "https"));
    (known && uri.host().is_some_and(|host| !host.is_empty()) && uri.query().is_none())
        .then(|| url.trim_end_matches('/').to_owned())
}

/// Reads a list; each item that cannot be read is reported as a mistake of its own.
pub(crate) fn list<T>(
    section: &mut Section,
    key: &str,
    expected: &str,
    read: impl Fn(&str) -> Option<T>,
) -> Vec<T> {
    let items = section.optional(key, expected, |value| match value {
        Value::List(items) => items.iter().map(|item| as_text(&item.value)).collect(),
        // From the environment: one text with commas.
        Value::Text(text) => Some(text.split(',').map(|item| item.trim().to_owned()).collect()),
        _ => None,
    });
    let items: Vec<String> = items.unwrap_or_default();
    let read = items.iter().filter_map(|item| {
        let read = read(item);
        if read.is_none() {
            section.mistake(key, &format!("has \"{item}\" in it; expected {expected}"));
        }
        read
    });
    read.collect()
}

/// Whether traffic to this URL cannot be intercepted: it uses TLS or stays on this machine. A URL with a user is not
/// accepted.
pub(crate) fn is_safe_url(url: &str) -> bool {
    let Ok(uri) = url.parse::<Uri>() else {
        return false;
    };
    let Some(host) = uri.host().filter(|host| !host.is_empty()) else {
        return false;
    };
    let has_user = uri.authority().is_some_and(|it| it.as_str().contains('@'));
    let safe = match uri.scheme_str() {
        Some("https") => true,
        Some("http") => is_loopback(host),
        _ => false,
    };
    safe && !has_user
}

/// Whether the host of a URL is this machine.
pub(crate) fn is_loopback(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']');
    let address = address.parse::<IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}
