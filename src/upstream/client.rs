//! The connection to a provider: pooled, bounded in time, never redirected.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, Uri, header};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy;

use super::reason::{self, Cleaner};
use crate::{
    chat::ChatCall,
    config::{RemoteProvider, Timeouts},
    error::UpstreamError,
    outgoing::{self, chain},
};

/// The largest whole answer that is read.
const MAX_ANSWER_BYTES: usize = 32 << 20;
/// How much of an answer is kept in one piece while it is read.
const PIECE_BYTES: usize = 1 << 20;
/// The most of a refusal's body that is read for its reason.
const MAX_REFUSAL_BYTES: usize = 64 << 10;
/// A refusal's body is worth a moment, not a timeout.
const REFUSAL_PATIENCE: Duration = Duration::from_secs(5);

pub struct Client {
    http: outgoing::Clients,
    base_url: String,
    query: Option<String>,
    /// What every request carries.
    headers: HeaderMap,
    /// One of these on each request, in turn.
    keys: Vec<(HeaderName, HeaderValue)>,
    turn: AtomicUsize,
    timeouts: Timeouts,
    reasons: Cleaner,
}

/// How a provider wants its key: the header, and what stands before the key in it.
#[derive(Clone, Copy, Debug)]
pub struct KeyHeader<'a> {
    pub name: &'a str,
    pub prefix: &'a str,
}

impl KeyHeader<'static> {
    pub const BEARER: Self = Self {
        name: "authorization",
        prefix: "Bearer ",
    };
}

/// The head of an answer, and its body still to come.
pub struct Reply {
    pub status: StatusCode,
    pub content_type: String,
    retry_after: Option<Duration>,
    body: Incoming,
    idle: Duration,
}

impl Client {
    pub fn new(config: &RemoteProvider, key_header: KeyHeader<'_>) -> Result<Self, String> {
        let name = HeaderName::try_from(key_header.name)
            .map_err(|_| format!("{:?} is no name of a header", key_header.name))?;
        let keys = config.api_keys.iter().map(|key| {
            let value = format!("{}{}", key_header.prefix, key.reveal());
            let mut value = HeaderValue::try_from(value)
                .map_err(|_| "its key has characters that a header cannot carry")?;
            value.set_sensitive(true);
            Ok((name.clone(), value))
        });
        Ok(Self {
            http: outgoing::Clients::new(config.timeouts.connect)?,
            base_url: config.base_url.clone(),
            query: config.quirks.query.clone(),
            headers: HeaderMap::new(),
            keys: keys.collect::<Result<_, String>>()?,
            turn: AtomicUsize::new(0),
            timeouts: config.timeouts,
            reasons: Cleaner::new(&config.base_url, &config.api_keys),
        })
    }

    /// With a header that every request carries.
    pub fn with_header(mut self, name: &'static str, value: &'static str) -> Self {
        let (name, value) = (
            HeaderName::from_static(name),
            HeaderValue::from_static(value),
        );
        self.headers.insert(name, value);
        self
    }

    /// With words of the provider's that no caller gets to read, in lower case.
    pub fn hiding(mut self, words: &[&str]) -> Self {
        self.reasons.hide(words);
        self
    }

    /// Asks for an answer to a call; what is not a success is a failure with its reason.
    pub async fn ask(
        &self,
        path: &str,
        body: Vec<u8>,
        call: &ChatCall,
        model: &str,
    ) -> Result<Reply, UpstreamError> {
        let reply = self.send(Method::POST, path, body.into()).await?;
        if reply.status == StatusCode::OK {
            return Ok(reply);
        }
        let (status, in_head) = (reply.status.as_u16(), reply.retry_after);
        let reading = tokio::time::timeout(REFUSAL_PATIENCE, reply.body_up_to(MAX_REFUSAL_BYTES));
        let body = reading.await.ok().and_then(Result::ok).unwrap_or_default();
        let requested = &call.route.requested.id;
        let reason = self.reasons.for_caller(status, &body, model, requested);
        Err(UpstreamError::Status {
            status,
            reason,
            retry_after: in_head.or_else(|| retry_delay(&body)),
            about_us: reason::is_about_us(&body),
        })
    }

    /// Asks for something that costs nothing; says what was wrong.
    pub async fn probe(&self, path: &str) -> Result<String, String> {
        let reply = self.send(Method::GET, path, Bytes::new()).await;
        let reply = reply.map_err(|error| error.to_string())?;
        let status = reply.status.as_u16();
        match reply.status {
            status if status.is_success() => Ok("answers".into()),
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                Err(format!("refuses our key (status {status})"))
            }
            StatusCode::NOT_FOUND => {
                Err(format!("has no {path} (status 404): is `base_url` right?"))
            }
            _ => Err(format!("fails with status {status}")),
        }
    }

    async fn send(&self, method: Method, path: &str, body: Bytes) -> Result<Reply, UpstreamError> {
        let mark = if path.contains('?') { '&' } else { '?' };
        let uri = match &self.query {
            None => format!("{}{path}", self.base_url),
            Some(query) => format!("{}{path}{mark}{query}", self.base_url),
        };
        let uri: Uri = uri
            .parse()
            .map_err(|_| UpstreamError::Connect("its base_url makes no URL".into()))?;
        let mut request = Request::builder()
            .method(method)
            .uri(uri)
            .header(header::CONTENT_TYPE, "application/json")
            // An answer that we meter must come as it is: no encoding to unpack, no bomb in it.
            .header(header::ACCEPT_ENCODING, "identity")
            .header(
                header::USER_AGENT,
                concat!("tollgate/", env!("CARGO_PKG_VERSION")),
            );
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        if !self.keys.is_empty() {
            let turn = self.turn.fetch_add(1, Ordering::Relaxed) % self.keys.len();
            let (name, value) = &self.keys[turn];
            request = request.header(name, value);
        }
        let request = request
            .body(Full::new(body))
            .expect("a request made of checked parts");
        let first_byte = self.timeouts.first_byte;
        let response = tokio::time::timeout(first_byte, self.http.here().request(request))
            .await
            .map_err(|_| UpstreamError::FirstByte(first_byte))?
            .map_err(|error| failure(&error))?;
        let (head, body) = response.into_parts();
        let encoding = head.headers.get(header::CONTENT_ENCODING);
        if encoding.is_some_and(|encoding| encoding != "identity") {
            return Err(UpstreamError::Malformed(
                "an encoded body nobody asked for".into(),
            ));
        }
        let content_type = head.headers.get(header::CONTENT_TYPE);
        let content_type = content_type
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default();
        let content_type = content_type.to_ascii_lowercase();
        Ok(Reply {
            status: head.status,
            content_type,
            retry_after: retry_after(&head.headers),
            body,
            idle: self.timeouts.idle,
        })
    }
}

impl Reply {
    /// The next bytes of the body; `None` at its end.
    pub async fn next(&mut self) -> Result<Option<Bytes>, UpstreamError> {
        self.next_within(self.idle).await
    }

    pub async fn next_within(
        &mut self,
        patience: Duration,
    ) -> Result<Option<Bytes>, UpstreamError> {
        loop {
            let frame = tokio::time::timeout(patience, self.body.frame())
                .await
                .map_err(|_| UpstreamError::Idle(patience))?;
            match frame {
                None => return Ok(None),
                Some(Err(error)) => return Err(UpstreamError::Broken(chain(&error))),
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        return Ok(Some(data));
                    }
                }
            }
        }
    }

    /// A whole answer's body. Some servers label JSON as text; a page of HTML is no answer,
    /// whatever its status.
    pub async fn json(self) -> Result<Bytes, UpstreamError> {
        let kind = &self.content_type;
        if kind.starts_with("text/html") || kind.starts_with("text/event-stream") {
            let message = format!("an answer of type {kind:?}");
            return Err(UpstreamError::Malformed(message));
        }
        self.body_up_to(MAX_ANSWER_BYTES).await
    }

    async fn body_up_to(mut self, limit: usize) -> Result<Bytes, UpstreamError> {
        let first = self.next().await?.unwrap_or_default();
        // In pieces that are put together at the end: a buffer that grows is there twice each time.
        let mut pieces: Vec<Vec<u8>> = Vec::new();
        let mut length = first.len();
        while let Some(data) = self.next().await? {
            length += data.len();
            if length > limit {
                return Err(UpstreamError::TooLarge(limit));
            }
            match pieces.last_mut() {
                Some(piece) if piece.capacity() - piece.len() >= data.len() => {
                    piece.extend_from_slice(&data);
                }
                _ => {
                    let mut piece = Vec::with_capacity(data.len().max(length).min(PIECE_BYTES));
                    piece.extend_from_slice(&data);
                    pieces.push(piece);
                }
            }
        }
        if length > limit {
            return Err(UpstreamError::TooLarge(limit));
        }
        // Most come in one piece, which is then taken as it is.
        if pieces.is_empty() {
            return Ok(first);
        }
        let mut whole = Vec::with_capacity(length);
        whole.extend_from_slice(&first);
        for piece in &pieces {
            whole.extend_from_slice(piece);
        }
        Ok(whole.into())
    }
}

/// How long the provider asks us to wait, in seconds; its other form, a date, is not worth a clock.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(header::RETRY_AFTER)?.to_str().ok()?;
    seconds.trim().parse().ok().map(Duration::from_secs)
}

/// The same, where it is said in the error's details: `"retryDelay": "37s"`.
fn retry_delay(body: &[u8]) -> Option<Duration> {
    let body: serde_json::Value = serde_json::from_slice(body).ok()?;
    let body = body.get(0).unwrap_or(&body);
    let mut details = body.pointer("/error/details")?.as_array()?.iter();
    let delay = details.find_map(|detail| detail.get("retryDelay")?.as_str())?;
    let seconds: f64 = delay.strip_suffix('s')?.parse().ok()?;
    Duration::try_from_secs_f64(seconds).ok()
}

fn failure(error: &legacy::Error) -> UpstreamError {
    if error.is_connect() {
        UpstreamError::Connect(chain(error))
    } else {
        UpstreamError::Broken(chain(error))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_wait_may_be_asked_for_in_the_body() {
        let wait = |delay: &str| {
            let details =
                json!([{ "@type": "Help" }, { "@type": "RetryInfo", "retryDelay": delay }]);
            let body = json!({ "error": { "code": 429, "details": details } });
            let wait = retry_delay(body.to_string().as_bytes());
            assert_eq!(wait, retry_delay(json!([body]).to_string().as_bytes()));
            wait
        };
        assert_eq!(wait("37s"), Some(Duration::from_secs(37)));
        assert_eq!(wait("0.5s"), Some(Duration::from_millis(500)));
        for nonsense in ["", "s", "-3s", "soon", "37", "NaNs", "1e300s"] {
            assert_eq!(wait(nonsense), None, "{nonsense}");
        }
        assert_eq!(retry_delay(b"{\"error\":{\"details\":\"37s\"}}"), None);
        assert_eq!(retry_delay(b"<html>"), None);
    }
}
