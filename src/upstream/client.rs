//! HTTP client for one provider: pooled HTTP/1.1 connections, with timeouts and size limits.
//!
//! Redirects are not followed and compressed bodies are refused. Every failure is an [`UpstreamError`]; a status other
//! than 200 carries the provider's reason, redacted for callers.

use std::{borrow::Cow, sync::Arc, time::Duration};

use axum::http::{StatusCode, Uri};
use sha2::{Digest as _, Sha256};

pub(crate) use super::{auth::KeyHeader, response::Response};
use super::{
    auth::{Auth, Outgoing, Pass, Payload},
    model_reader::ModelReader,
    reason::{self, Redactor},
};
use crate::{
    config::{Identity, RemoteProvider, Timeouts},
    net::{
        http1::client::Pool,
        offload::{LARGE_BYTES, Offload},
    },
    prompt::ChatCall,
    wire::error::UpstreamError,
};

/// Sends requests to one provider.
pub(crate) struct Client {
    pool: Arc<Pool>,
    /// Host and port, as in the `host` header.
    host: String,
    /// Path prefix of every request, from `base_url`.
    base_path: String,
    query: Option<String>,
    /// Header lines sent with every request, each ending in CRLF.
    headers: String,
    /// Further lines, which a request can replace by its own.
    default_lines: String,
    auth: Auth,
    /// Whether the provider has a list of its models where other providers have it.
    lists_models: bool,
    timeouts: Timeouts,
    redactor: Redactor,
    /// Where large bodies are prepared.
    offload: Offload,
}

impl Client {
    pub(crate) fn new(config: &RemoteProvider, key_header: KeyHeader<'_>) -> Result<Self, String> {
        let auth = Auth::new(config, key_header)?;
        let invalid_url = || format!("{:?} is not a valid provider URL", config.base_url);
        let url: Uri = config.base_url.parse().map_err(|_| invalid_url())?;
        let (scheme, host) = url.scheme_str().zip(url.host()).ok_or_else(invalid_url)?;
        let port = url
            .port_u16()
            .map(|port| format!(":{port}"))
            .unwrap_or_default();
        let address = format!("{scheme}://{host}{port}/")
            .parse()
            .map_err(|_| invalid_url())?;
        let agent = concat!("tollgate/", env!("CARGO_PKG_VERSION"));
        Ok(Self {
            pool: Arc::new(Pool::new(address, config.timeouts.connect, config.reuse)?),
            host: format!("{host}{port}"),
            base_path: url.path().trim_end_matches('/').to_owned(),
            query: config.quirks.query.clone(),
            // Metered responses must not be compressed: nothing to unpack, and no decompression bombs.
            headers: format!(
                "host: {host}{port}\r\ncontent-type: application/json\r\naccept-encoding: identity\r\nuser-agent: {agent}\r\n"
            ),
            default_lines: String::new(),
            auth,
            lists_models: !matches!(config.identity, Some(Identity::Google(_))),
            timeouts: config.timeouts,
            redactor: Redactor::new(config),
            offload: Offload::default(),
        })
    }

    /// Uses the slots for long computations that others use too.
    pub(crate) fn share_offload(&mut self, offload: &Offload) {
        self.offload = offload.clone();
    }

    /// Does `work` with the body of a call; with a large one beside the threads that serve requests.
    pub(crate) async fn prepare<T: Send + 'static>(
        &self,
        body: Vec<u8>,
        call: &ChatCall,
        work: impl FnOnce(Vec<u8>) -> T + Send + 'static,
    ) -> Result<T, UpstreamError> {
        if body.len() <= LARGE_BYTES {
            return Ok(work(body));
        }
        // It stays in memory even if the client leaves.
        let memory = call.body_memory.clone();
        let work = move || {
            let _memory = memory;
            work(body)
        };
        let done = self.offload.run(work).await;
        done.ok_or_else(|| UpstreamError::Connect("its request could not be prepared".into()))
    }

    /// The body of a call that is signed: it is hashed once, however often it is signed.
    async fn hashed(&self, body: Vec<u8>, call: &ChatCall) -> Result<Payload, UpstreamError> {
        self.prepare(body, call, |bytes| Payload {
            digest: Some(Sha256::digest(&bytes).into()),
            bytes,
        })
        .await
    }

    /// Adds a header that is sent with every request, except for those that bring their own lines.
    pub(crate) fn with_default_header(mut self, name: &'static str, value: &'static str) -> Self {
        self.default_lines.extend([name, ": ", value, "\r\n"]);
        self
    }

    /// Adds vendor names, in lower case, that are redacted from the reasons shown to callers.
    pub(crate) fn redacting(mut self, names: &[&str]) -> Self {
        self.redactor.redact_also(names);
        self
    }

    /// Posts the body of a call.
    ///
    /// Any status but 200 is [`UpstreamError::Status`], with the redacted reason from the response body.
    pub(crate) async fn post(
        &self,
        path: &str,
        body: Vec<u8>,
        call: &ChatCall,
        model: &str,
    ) -> Result<Response, UpstreamError> {
        let lines = with_trace(&self.default_lines, call);
        self.post_with(path, body, &lines, (call, model), false)
            .await
    }

    /// Posts a request of the caller with header lines of its own. What the provider says about it is not redacted,
    /// because the caller speaks the provider's API.
    pub(crate) async fn post_native(
        &self,
        path: &str,
        body: Vec<u8>,
        lines: &str,
        call: &ChatCall,
        model: &str,
    ) -> Result<Response, UpstreamError> {
        let lines = with_trace(lines, call);
        self.post_with(path, body, &lines, (call, model), true)
            .await
    }

    async fn post_with(
        &self,
        path: &str,
        body: Vec<u8>,
        lines: &str,
        (call, model): (&ChatCall, &str),
        is_native: bool,
    ) -> Result<Response, UpstreamError> {
        let body = if self.auth.is_signed() {
            Box::pin(self.hashed(body, call)).await?
        } else {
            body.into()
        };
        let mut response = self.send("POST", path, &body, lines).await?;
        if response.status != StatusCode::OK {
            return Err(self.refusal(response, call, model, is_native).await);
        }
        response.model = call.trace.as_ref().and_then(ModelReader::of);
        Ok(response)
    }

    /// The error for a response with another status than 200.
    async fn refusal(
        &self,
        mut response: Response,
        call: &ChatCall,
        model: &str,
        is_native: bool,
    ) -> UpstreamError {
        let (status, retry_after) = (response.status.as_u16(), response.retry_after);
        let body = response.error_body().await;
        let is_shown = |message: &String| is_native && !self.redactor.reveals_secret(message);
        if let Some(message) = reason::verbatim(status, &body).filter(is_shown) {
            return UpstreamError::Verbatim { status, message };
        }
        if self.auth.is_signed() && reason::is_about_clock(&body) {
            return UpstreamError::WrongClock(status);
        }
        let requested = call.route.requested_name();
        let reason = self.redactor.public_reason(status, &body, model, requested);
        UpstreamError::Status {
            status,
            reason,
            retry_after: retry_after.or_else(|| retry_delay(&body)),
            about_us: reason::is_operators_fault(&body),
        }
    }

    /// Sends a GET request to a path that costs nothing; the texts are for the operator.
    pub(crate) async fn probe(&self, path: &str) -> Result<String, String> {
        if self.auth.is_signed() {
            return self.probe_identity().await;
        }
        let nothing = Payload::default();
        let response = self.send("GET", path, &nothing, &self.default_lines).await;
        let response = response.map_err(|error| error.to_string())?;
        let status = response.status.as_u16();
        match response.status {
            status if status.is_success() => Ok("answers".into()),
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                Err(format!("refuses our key (status {status})"))
            }
            StatusCode::NOT_FOUND if !self.lists_models => Ok(
                "answers, and there is a token for it; whether `base_url` is right is seen by a call".into(),
            ),
            StatusCode::NOT_FOUND => {
                Err(format!("has no {path} (status 404): is `base_url` right?"))
            }
            _ => Err(format!("fails with status {status}")),
        }
    }

    /// Gets what authorises requests and sends none, for a provider without a request that costs nothing.
    async fn probe_identity(&self) -> Result<String, String> {
        let pass = self.auth.pass().await.map_err(|error| error.to_string())?;
        let described = pass.describe();
        Ok(format!(
            "{described}; no request is sent, because each would cost"
        ))
    }

    async fn send(
        &self,
        method: &str,
        path: &str,
        body: &Payload,
        lines: &str,
    ) -> Result<Response, UpstreamError> {
        let pass = self.auth.pass().await?;
        let mut response = self.send_with(&pass, method, path, body, lines).await?;
        if response.status != StatusCode::OK
            && self.is_refused(&mut response).await
            && let Some(other) = self.auth.instead_of(&pass).await
        {
            // The connection is free for the second request.
            drop(response);
            response = self.send_with(&other, method, path, body, lines).await?;
        }
        Ok(response)
    }

    /// Whether a response refuses what authorised its request, so that another pass may help.
    async fn is_refused(&self, response: &mut Response) -> bool {
        if self.auth.is_refusal(response.status.as_u16()) {
            return true;
        }
        if response.status != StatusCode::BAD_REQUEST || !self.auth.has_other_keys() {
            return false;
        }
        let body = response.error_body().await;
        let refuses_key = reason::refuses_key(&body);
        response.body = Some(body);
        refuses_key
    }

    async fn send_with(
        &self,
        pass: &Pass<'_>,
        method: &str,
        path: &str,
        body: &Payload,
        lines: &str,
    ) -> Result<Response, UpstreamError> {
        let request = self.head(method, path, body, lines, pass)?;
        let first_byte = self.timeouts.first_byte;
        let exchange = async {
            let mut connection = self.pool.take().await?;
            let head = connection.send(&request, &body.bytes).await?;
            Ok((head, connection))
        };
        let exchanged = tokio::time::timeout(first_byte, exchange).await;
        let (head, connection) = exchanged.map_err(|_| UpstreamError::FirstByte(first_byte))??;
        let is_identity = |encoding: &String| encoding.eq_ignore_ascii_case("identity");
        if !head.content_encoding.as_ref().is_none_or(is_identity) {
            return Err(UpstreamError::Malformed(
                "an encoded body, although `accept-encoding: identity` was sent".into(),
            ));
        }
        Ok(Response {
            status: StatusCode::from_u16(head.status)
                .map_err(|_| UpstreamError::Malformed("an invalid HTTP status".into()))?,
            content_type: head.content_type,
            retry_after: head.retry_after.as_deref().and_then(retry_after),
            body: None,
            connection: Some(connection),
            pool: self.pool.clone(),
            idle_timeout: self.timeouts.idle,
            model: None,
        })
    }

    /// Request line and headers.
    fn head(
        &self,
        method: &str,
        path: &str,
        body: &Payload,
        lines: &str,
        pass: &Pass<'_>,
    ) -> Result<Vec<u8>, UpstreamError> {
        let (mark, query) = match self.query.as_deref() {
            Some(query) if path.contains('?') => ("&", query),
            Some(query) => ("?", query),
            None => ("", ""),
        };
        let target = [self.base_path.as_str(), path, mark, query];
        let mut head = Vec::with_capacity(512);
        let mut put = |text: &str| head.extend_from_slice(text.as_bytes());
        // A space or line break in the request line would allow request smuggling.
        if target
            .iter()
            .any(|part| !part.bytes().all(|byte| byte.is_ascii_graphic()))
        {
            let message = "its base_url and model do not form a valid URL".to_owned();
            return Err(UpstreamError::Connect(message));
        }
        put(method);
        put(" ");
        target.into_iter().for_each(&mut put);
        put(" HTTP/1.1\r\n");
        put(&self.headers);
        put(lines);
        let request = Outgoing {
            method,
            host: &self.host,
            target,
            body,
        };
        pass.write(&mut head, &request);
        head.extend_from_slice(b"content-length: ");
        head.extend_from_slice(itoa::Buffer::new().format(body.bytes.len()).as_bytes());
        head.extend_from_slice(b"\r\n\r\n");
        Ok(head)
    }
}

/// Header lines by which the provider's own spans continue the call's trace.
fn with_trace<'a>(lines: &'a str, call: &ChatCall) -> Cow<'a, str> {
    match &call.trace {
        Some(trace) => Cow::Owned(lines.to_owned() + &trace.head_lines()),
        None => Cow::Borrowed(lines),
    }
}

/// Parses `Retry-After` in seconds. Its other form, a date, is ignored.
fn retry_after(seconds: &str) -> Option<Duration> {
    seconds.parse().ok().map(Duration::from_secs)
}

/// The retry delay in the details of a Google error body: `"retryDelay": "37s"`.
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
    use std::thread;

    use serde_json::json;

    use super::*;
    use crate::{config::ProviderKind, upstream::testing};

    #[tokio::test]
    async fn a_large_body_is_prepared_beside_the_threads_that_serve() {
        let config = testing::provider(ProviderKind::Anthropic, "http://127.0.0.1:9/v1");
        let client = Client::new(&config, KeyHeader::BEARER).unwrap();
        let body =
            json!({ "model": testing::MODEL, "messages": [{ "role": "user", "content": "Hi" }] });
        let call = testing::call(body.to_string().as_bytes());
        for (bytes, is_here) in [(LARGE_BYTES, true), (LARGE_BYTES + 1, false)] {
            let prepared = client.prepare(vec![0; bytes], &call, |body| {
                (thread::current().id(), body.len())
            });
            let (thread, length) = prepared.await.unwrap();
            assert_eq!(length, bytes);
            assert_eq!(thread == thread::current().id(), is_here, "{bytes}");
        }
    }

    #[test]
    fn retry_delay_is_read_from_the_body() {
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
