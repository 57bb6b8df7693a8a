//! The connection to a provider: pooled, bounded in time, never redirected.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use axum::http::{HeaderName, HeaderValue, StatusCode, Uri};
use bytes::Bytes;
use tokio::time::Instant;

use super::reason::{self, Cleaner};
use crate::{
    config::{RemoteProvider, Timeouts},
    net::{
        http1::client::{Connection, Pool},
        timeout::{DeadlineExceeded, with_deadline},
    },
    prompt::ChatCall,
    wire::error::UpstreamError,
};

/// The largest whole answer that is read.
const MAX_ANSWER_BYTES: usize = 32 << 20;
/// How much of an answer is kept in one piece while it is read.
const PIECE_BYTES: usize = 1 << 20;
/// The most of a refusal's body that is read for its reason.
const MAX_REFUSAL_BYTES: usize = 64 << 10;
/// A refusal's body is worth a moment, not a timeout.
const REFUSAL_TIMEOUT: Duration = Duration::from_secs(5);

pub struct Client {
    pool: Arc<Pool>,
    /// What stands before every path.
    base_path: String,
    query: Option<String>,
    /// What every request carries, as lines.
    headers: String,
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
    /// Until the body was read to its end.
    connection: Option<Box<Connection>>,
    pool: Arc<Pool>,
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
        let no_url = || format!("{:?} is no URL of a provider", config.base_url);
        let url: Uri = config.base_url.parse().map_err(|_| no_url())?;
        let (scheme, host) = url.scheme_str().zip(url.host()).ok_or_else(no_url)?;
        let port = url
            .port_u16()
            .map(|port| format!(":{port}"))
            .unwrap_or_default();
        let address = format!("{scheme}://{host}{port}/")
            .parse()
            .map_err(|_| no_url())?;
        let agent = concat!("tollgate/", env!("CARGO_PKG_VERSION"));
        Ok(Self {
            pool: Arc::new(Pool::new(address, config.timeouts.connect)?),
            base_path: url.path().trim_end_matches('/').to_owned(),
            query: config.quirks.query.clone(),
            // An answer that we meter must come as it is: no encoding to unpack, no bomb in it.
            headers: format!(
                "host: {host}{port}\r\ncontent-type: application/json\r\naccept-encoding: identity\r\nuser-agent: {agent}\r\n"
            ),
            keys: keys.collect::<Result<_, String>>()?,
            turn: AtomicUsize::new(0),
            timeouts: config.timeouts,
            reasons: Cleaner::new(&config.base_url, &config.api_keys),
        })
    }

    /// With a header that every request carries.
    pub fn with_header(mut self, name: &'static str, value: &'static str) -> Self {
        self.headers.extend([name, ": ", value, "\r\n"]);
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
        let reply = self.send("POST", path, &body).await?;
        if reply.status == StatusCode::OK {
            return Ok(reply);
        }
        let (status, in_head) = (reply.status.as_u16(), reply.retry_after);
        let reading = tokio::time::timeout(REFUSAL_TIMEOUT, reply.body_up_to(MAX_REFUSAL_BYTES));
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
        let reply = self.send("GET", path, &[]).await;
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

    async fn send(&self, method: &str, path: &str, body: &[u8]) -> Result<Reply, UpstreamError> {
        let request = self.head(method, path, body)?;
        let first_byte = self.timeouts.first_byte;
        let asked = async {
            let mut connection = self.pool.take().await?;
            let head = connection.ask(&request, body).await?;
            Ok((head, connection))
        };
        let answered = tokio::time::timeout(first_byte, asked).await;
        let (head, connection) = answered.map_err(|_| UpstreamError::FirstByte(first_byte))??;
        let is_plain = |encoding: &String| encoding.eq_ignore_ascii_case("identity");
        if !head.content_encoding.as_ref().is_none_or(is_plain) {
            return Err(UpstreamError::Malformed(
                "an encoded body nobody asked for".into(),
            ));
        }
        Ok(Reply {
            status: StatusCode::from_u16(head.status)
                .map_err(|_| UpstreamError::Malformed("a status that is none".into()))?,
            content_type: head.content_type,
            retry_after: head.retry_after.as_deref().and_then(retry_after),
            connection: Some(connection),
            pool: self.pool.clone(),
            idle: self.timeouts.idle,
        })
    }

    /// The head of a request.
    fn head(&self, method: &str, path: &str, body: &[u8]) -> Result<Vec<u8>, UpstreamError> {
        let mark = if path.contains('?') { '&' } else { '?' };
        let query = self.query.as_deref();
        let mut head = Vec::with_capacity(512);
        let mut put = |text: &str| head.extend_from_slice(text.as_bytes());
        // What stands in the first line must not end it.
        let parts = [self.base_path.as_str(), path, query.unwrap_or_default()];
        if parts
            .iter()
            .any(|part| !part.bytes().all(|byte| byte.is_ascii_graphic()))
        {
            let message = "its base_url and its model make no URL".to_owned();
            return Err(UpstreamError::Connect(message));
        }
        put(method);
        put(" ");
        put(&self.base_path);
        put(path);
        if let Some(query) = query {
            put(mark.encode_utf8(&mut [0; 4]));
            put(query);
        }
        put(" HTTP/1.1\r\n");
        put(&self.headers);
        if !self.keys.is_empty() {
            let turn = self.turn.fetch_add(1, Ordering::Relaxed) % self.keys.len();
            let (name, value) = &self.keys[turn];
            put(name.as_str());
            put(": ");
            head.extend_from_slice(value.as_bytes());
            head.extend_from_slice(b"\r\n");
        }
        head.extend_from_slice(b"content-length: ");
        head.extend_from_slice(itoa::Buffer::new().format(body.len()).as_bytes());
        head.extend_from_slice(b"\r\n\r\n");
        Ok(head)
    }
}

impl Reply {
    /// The next bytes of the body; `None` at its end.
    pub async fn next(&mut self) -> Result<Option<Bytes>, UpstreamError> {
        self.next_within(self.idle).await
    }

    pub async fn next_within(&mut self, timeout: Duration) -> Result<Option<Bytes>, UpstreamError> {
        let Some(connection) = &mut self.connection else {
            return Ok(None);
        };
        let next = with_deadline(|| Instant::now() + timeout, connection.next()).await;
        let next = next.map_err(|DeadlineExceeded| UpstreamError::Idle(timeout))?;
        if !matches!(next, Ok(Some(_))) {
            self.let_go();
        }
        next
    }

    /// What matters of the body has been read, though not its end.
    pub fn has_said_all(&mut self) {
        if let Some(mut connection) = self.connection.take() {
            connection.skip_end();
            if connection.is_free() {
                self.pool.give_back(connection);
            } else {
                self.pool.give_back_soon(connection);
            }
        }
    }

    /// The connection can be used for something else, if it was read to its end.
    fn let_go(&mut self) {
        if let Some(mut connection) = self.connection.take() {
            connection.skip_end();
            self.pool.give_back(connection);
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

impl Drop for Reply {
    fn drop(&mut self) {
        self.let_go();
    }
}

/// How long the provider asks us to wait, in seconds; its other form, a date, is not worth a clock.
fn retry_after(seconds: &str) -> Option<Duration> {
    seconds.parse().ok().map(Duration::from_secs)
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
