//! How requests to a provider are authorised: by API keys in turn, or by tokens of an identity at a cloud.
//!
//! A request first gets a [`Pass`], for which it may have to wait while a token is fetched. The pass writes the header
//! lines once the request is complete. A provider that refuses a pass gets the request again with another one, if there may
//! be a better one.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use axum::http::{HeaderName, HeaderValue};

mod aws;
mod azure;
mod google;
mod http;
mod renewing;
pub(crate) mod sigv4;
mod token;

#[cfg(test)]
mod golden;

use self::{
    aws::{Signer, SigningPass},
    renewing::Lent,
    sigv4::Unsigned,
    token::{Bearer, TokenSource},
};
use crate::{
    config::{Identity, RemoteProvider},
    wire::error::UpstreamError,
};

/// The header in which a provider expects its key, and the prefix before the key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeyHeader<'a> {
    pub name: &'a str,
    pub prefix: &'a str,
}

impl KeyHeader<'static> {
    pub(crate) const BEARER: Self = Self {
        name: "authorization",
        prefix: "Bearer ",
    };
}

/// What authorises the requests to one provider.
pub(crate) enum Auth {
    Keys(Keys),
    Token(Arc<TokenSource>),
    Signer(Signer),
}

/// What authorises one request.
pub(crate) enum Pass<'a> {
    Nothing,
    Key(&'a Key),
    Token(Arc<Lent<Bearer>>),
    Signature(SigningPass<'a>),
}

/// A request as it is sent, for passes that depend on it.
#[derive(Clone, Copy)]
pub(crate) struct Outgoing<'a> {
    pub method: &'a str,
    /// Host and port, as in the `host` header.
    pub host: &'a str,
    /// Path and query, in pieces that are sent one after the other.
    pub target: [&'a str; 4],
    pub body: &'a Payload,
}

/// The body of a request.
#[derive(Default)]
pub(crate) struct Payload {
    pub bytes: Vec<u8>,
    /// SHA-256 of the bytes, for passes that sign it.
    pub digest: Option<[u8; 32]>,
}

impl From<Vec<u8>> for Payload {
    fn from(bytes: Vec<u8>) -> Self {
        Self {
            bytes,
            digest: None,
        }
    }
}

impl Payload {
    fn digest(&self) -> [u8; 32] {
        self.digest.expect("a body that is signed was hashed")
    }
}

/// API keys, which requests use in turn.
pub(crate) struct Keys {
    keys: Vec<Key>,
    next: AtomicUsize,
}

/// A header with a key.
pub(crate) type Key = (HeaderName, HeaderValue);

impl Auth {
    pub(crate) fn new(config: &RemoteProvider, header: KeyHeader<'_>) -> Result<Self, String> {
        match &config.identity {
            Some(Identity::Aws(aws)) => Ok(Self::Signer(Signer::new(aws)?)),
            Some(identity) => Ok(Self::Token(token::source(identity)?)),
            None => Ok(Self::Keys(Keys::new(config, header)?)),
        }
    }

    /// What authorises the next request.
    pub(crate) async fn pass(&self) -> Result<Pass<'_>, UpstreamError> {
        match self {
            Self::Keys(keys) => Ok(keys.next().map_or(Pass::Nothing, Pass::Key)),
            Self::Token(source) => Ok(Pass::Token(source.get().await?)),
            Self::Signer(signer) => Ok(Pass::Signature(signer.pass().await?)),
        }
    }

    /// What to try after the provider refused a pass; `None` if nothing better can be had.
    pub(crate) async fn instead_of(&self, refused: &Pass<'_>) -> Option<Pass<'_>> {
        match (self, refused) {
            (Self::Token(source), Pass::Token(token)) => {
                source.instead_of(token).await.map(Pass::Token)
            }
            (Self::Signer(signer), Pass::Signature(refused)) => {
                signer.instead_of(refused).await.map(Pass::Signature)
            }
            // One that was revoked before it was removed here.
            (Self::Keys(keys), Pass::Key(key)) => keys.after(key).map(Pass::Key),
            _ => None,
        }
    }

    /// Whether a response with this status refuses what authorised its request, so that another pass may help.
    pub(crate) fn is_refusal(&self, status: u16) -> bool {
        match self {
            Self::Keys(_) | Self::Token(_) => status == 401,
            // AWS says 403 of credentials that have ended too.
            Self::Signer(_) => matches!(status, 401 | 403),
        }
    }

    /// Whether there are several keys, so that another one may help where a response with status 400 is about the key:
    /// Gemini says so of a key that was deleted.
    pub(crate) fn has_other_keys(&self) -> bool {
        matches!(self, Self::Keys(keys) if keys.keys.len() > 1)
    }

    /// Whether requests are signed, and with the time at which they are sent.
    pub(crate) fn is_signed(&self) -> bool {
        matches!(self, Self::Signer(_))
    }
}

impl Pass<'_> {
    /// What it is, for the operator.
    pub(crate) fn describe(&self) -> String {
        match self {
            Self::Nothing => "has no key".into(),
            Self::Key(_) => "has a key".into(),
            Self::Token(_) => "has a token".into(),
            Self::Signature(pass) => pass.describe(),
        }
    }

    /// Appends its header lines to the head of this request.
    pub(crate) fn write(&self, head: &mut Vec<u8>, request: &Outgoing<'_>) {
        match self {
            Self::Nothing => {}
            Self::Key((name, value)) => {
                head.extend_from_slice(name.as_str().as_bytes());
                head.extend_from_slice(b": ");
                head.extend_from_slice(value.as_bytes());
                head.extend_from_slice(b"\r\n");
            }
            Self::Token(token) => head.extend_from_slice(token.value.line().as_bytes()),
            Self::Signature(pass) => {
                let target = request.target.concat();
                let (path, query) = target.split_once('?').unwrap_or((&target, ""));
                let unsigned = Unsigned {
                    method: request.method,
                    path,
                    query,
                    host: request.host,
                    content_type: "application/json",
                    body_digest: request.body.digest(),
                };
                head.extend_from_slice(pass.lines(&unsigned).as_bytes());
            }
        }
    }
}

impl Keys {
    fn new(config: &RemoteProvider, header: KeyHeader<'_>) -> Result<Self, String> {
        let name = HeaderName::try_from(header.name)
            .map_err(|_| format!("{:?} is not a valid header name", header.name))?;
        let keys = config.api_keys.iter().map(|key| {
            let value = format!("{}{}", header.prefix, key.reveal());
            let mut value = HeaderValue::try_from(value)
                .map_err(|_| "its API key has characters that a header cannot carry")?;
            value.set_sensitive(true);
            Ok((name.clone(), value))
        });
        Ok(Self {
            keys: keys.collect::<Result<_, String>>()?,
            next: AtomicUsize::new(0),
        })
    }

    /// The key after this one; `None` if it is the only one.
    fn after(&self, key: &Key) -> Option<&Key> {
        let at = self.keys.iter().position(|one| std::ptr::eq(one, key))?;
        let after = (at + 1) % self.keys.len();
        self.keys.get(after).filter(|_| after != at)
    }

    fn next(&self) -> Option<&Key> {
        if self.keys.is_empty() {
            return None;
        }
        let next = self.next.fetch_add(1, Ordering::Relaxed) % self.keys.len();
        self.keys.get(next)
    }
}
