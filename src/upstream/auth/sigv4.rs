//! AWS Signature Version 4: header lines that prove to an AWS service who sends a request.
//!
//! A request is written in a canonical form, whose hash is signed with a key that is valid for one day, region and
//! service. The secret access key itself is never sent.

use std::{
    borrow::Cow,
    fmt::{self, Write as _},
    sync::{Mutex, PoisonError},
};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use ring::hmac;
use sha2::{Digest as _, Sha256};

use crate::base::{hex::hex, keys::Secret, timestamp};

const ALGORITHM: &str = "AWS4-HMAC-SHA256";
/// All characters but those that AWS leaves unencoded.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');
const RESERVED_IN_PATH: &AsciiSet = &RESERVED.remove(b'/');

/// An access key, with a session token if it is temporary.
pub(crate) struct Credentials {
    pub access_key_id: String,
    secret_access_key: Secret,
    session_token: Option<Secret>,
    day_key: Mutex<Option<DayKey>>,
}

/// The key with which requests of one day are signed.
struct DayKey {
    scope: String,
    key: hmac::Key,
}

/// The service to which requests go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Service {
    pub region: String,
    pub name: &'static str,
}

/// What is signed of a request. Path and query are those of the request line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unsigned<'a> {
    pub method: &'a str,
    pub path: &'a str,
    pub query: &'a str,
    pub host: &'a str,
    pub content_type: &'a str,
    /// SHA-256 of the body.
    pub body_digest: [u8; 32],
}

impl Credentials {
    /// Fails for what a header cannot carry: a line break would add headers to requests.
    pub(crate) fn new(
        access_key_id: impl Into<String>,
        secret_access_key: Secret,
        session_token: Option<Secret>,
    ) -> Result<Self, String> {
        let access_key_id = access_key_id.into();
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        if access_key_id.is_empty() || !access_key_id.bytes().all(is_plain) {
            return Err("the access key's ID is invalid".into());
        }
        let token = session_token.as_ref().map_or("-", Secret::reveal);
        if token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err("the session token has characters that a header cannot carry".into());
        }
        Ok(Self {
            access_key_id,
            secret_access_key,
            session_token,
            day_key: Mutex::new(None),
        })
    }

    /// The header lines that sign a request, each ending in CRLF. The request must carry `host` and `content-type` as
    /// they are given here.
    pub(crate) fn sign(&self, request: &Unsigned<'_>, service: &Service, now: i64) -> String {
        let time = compact_time(now);
        let payload = hex(&request.body_digest);
        let mut headers = vec![
            ("content-type", request.content_type),
            ("host", request.host),
            ("x-amz-content-sha256", &payload),
            ("x-amz-date", &time),
        ];
        let token = self.session_token.as_ref().map(Secret::reveal);
        headers.extend(token.map(|token| ("x-amz-security-token", token)));
        let canonical = canonical_request(request, &headers, &payload);
        let authorization = self.authorization(&canonical, &headers, service, &time);
        let mut lines = format!(
            "x-amz-date: {time}\r\nx-amz-content-sha256: {payload}\r\nauthorization: {authorization}\r\n"
        );
        if let Some(token) = token {
            lines.extend(["x-amz-security-token: ", token, "\r\n"]);
        }
        lines
    }

    /// The value of `authorization`.
    fn authorization(
        &self,
        canonical: &str,
        headers: &[(&str, &str)],
        service: &Service,
        time: &str,
    ) -> String {
        let scope = scope(service, time);
        let key = self.day_key(service, &scope);
        let signature = hmac::sign(&key, string_to_sign(canonical, time, &scope).as_bytes());
        format!(
            "{ALGORITHM} Credential={}/{scope}, SignedHeaders={}, Signature={}",
            self.access_key_id,
            names(headers),
            hex(signature.as_ref()),
        )
    }

    /// The key of the scope's day, which is derived once a day.
    fn day_key(&self, service: &Service, scope: &str) -> hmac::Key {
        let mut cached = self.day_key.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(cached) = cached.as_ref().filter(|cached| cached.scope == scope) {
            return cached.key.clone();
        }
        let first = format!("AWS4{}", self.secret_access_key.reveal());
        let day = scope.split('/').next().unwrap_or_default();
        let derive = |key: &[u8], text: &str| {
            let key = hmac::Key::new(hmac::HMAC_SHA256, key);
            hmac::sign(&key, text.as_bytes())
        };
        let key = derive(first.as_bytes(), day);
        let key = derive(key.as_ref(), &service.region);
        let key = derive(key.as_ref(), service.name);
        let key = derive(key.as_ref(), "aws4_request");
        let key = hmac::Key::new(hmac::HMAC_SHA256, key.as_ref());
        *cached = Some(DayKey {
            scope: scope.to_owned(),
            key: key.clone(),
        });
        key
    }
}

/// Without the secrets.
impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Credentials({})", self.access_key_id)
    }
}

/// A value as a segment of a path: `a:b/c` → `a%3Ab%2Fc`.
pub(crate) fn path_segment(text: &str) -> Cow<'_, str> {
    utf8_percent_encode(text, RESERVED).into()
}

/// Date, region and service for which a signature is valid.
fn scope(service: &Service, time: &str) -> String {
    let day = time.split('T').next().unwrap_or_default();
    format!("{day}/{}/{}/aws4_request", service.region, service.name)
}

/// The request in the form that is signed. The headers are sorted by name.
fn canonical_request(request: &Unsigned<'_>, headers: &[(&str, &str)], payload: &str) -> String {
    // Encoded once more than in the request line, as every service but S3 expects it.
    let path = utf8_percent_encode(request.path, RESERVED_IN_PATH);
    let mut text = format!(
        "{}\n{path}\n{}\n",
        request.method,
        canonical_query(request.query)
    );
    for (name, value) in headers {
        text.extend([name, ":", value.trim(), "\n"]);
    }
    text.extend(["\n", &names(headers), "\n", payload]);
    text
}

/// The parameters with names and values encoded, sorted by name and then by value.
fn canonical_query(query: &str) -> String {
    let encoded = |text: &str| {
        let decoded = percent_decode_str(text).decode_utf8_lossy();
        utf8_percent_encode(&decoded, RESERVED).to_string()
    };
    let parameters = query.split('&').filter(|parameter| !parameter.is_empty());
    let mut parameters: Vec<_> = parameters
        .map(|parameter| {
            let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            (encoded(name), encoded(value))
        })
        .collect();
    parameters.sort();
    let mut text = String::with_capacity(query.len());
    for (name, value) in parameters {
        let mark = if text.is_empty() { "" } else { "&" };
        let _ = write!(text, "{mark}{name}={value}"); // writing to a string cannot fail
    }
    text
}

fn string_to_sign(canonical: &str, time: &str, scope: &str) -> String {
    let digest = hex(&Sha256::digest(canonical.as_bytes()));
    format!("{ALGORITHM}\n{time}\n{scope}\n{digest}")
}

/// The names of signed headers: `host;x-amz-date`.
fn names(headers: &[(&str, &str)]) -> String {
    let names: Vec<_> = headers.iter().map(|(name, _)| *name).collect();
    names.join(";")
}

/// A time without separators: `20270115T080000Z`.
fn compact_time(unix_seconds: i64) -> String {
    let mut time = timestamp::shown(unix_seconds);
    time.retain(|c| !matches!(c, '-' | ':'));
    time
}

#[cfg(test)]
mod tests;
