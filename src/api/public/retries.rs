//! Requests that get the response of another call: by `Idempotency-Key`, or as a retry of a call whose client has left
//! (§4.11).
//!
//! A request that cannot get one runs as any other. A response is given only to a key that is valid now.

use std::{
    convert::Infallible,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use axum::{
    body::{Body, HttpBody},
    http::{HeaderMap, HeaderName, HeaderValue},
    response::Response,
};
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use memchr::memmem;
use tokio::sync::mpsc;

use super::{call::ROUTED_MODEL, confirm::fresh_caller, sse};
use crate::{
    api::{access_log::RequestLog, body::ReceivedBody, departure::Departure, json_response},
    gateway::{
        Gateway,
        retries::{Begin, Begun, More, RecordedCall, Recording, Reservation},
    },
    ledger::{CallId, Caller, IdempotencyKey, IdempotentResponse, ReplayKind, RequestHash},
    metered::{Ending, Facts, Frame as StreamFrame},
    wire::{error::GatewayError, stream_style::StreamStyle},
};

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// How often the client has sent the request before; official clients set it.
const RETRY_COUNT: HeaderName = HeaderName::from_static("x-stainless-retry-count");
/// On a response that another call had, after that call was over.
const REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");
const MAX_KEY_BYTES: usize = 255;
/// Bytes of a response that are passed to the connection at once.
const PIECE_BYTES: usize = 16 << 10;
/// Frames that may wait for a slow client that reads another call's stream.
const FRAMES_IN_FLIGHT: usize = 16;

/// The headers of a request that concern retries.
#[derive(Default)]
pub(crate) struct RetryHeaders {
    key: Option<HeaderValue>,
    /// Whether more than one key was sent.
    has_more: bool,
    is_retry: bool,
}

impl RetryHeaders {
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let mut keys = headers.get_all(IDEMPOTENCY_KEY).iter();
        let (key, has_more) = (keys.next().cloned(), keys.next().is_some());
        let count = headers
            .get(RETRY_COUNT)
            .and_then(|count| count.to_str().ok());
        let count = count.and_then(|count| count.parse::<u32>().ok());
        Self {
            key,
            has_more,
            is_retry: count.is_some_and(|count| count > 0),
        }
    }

    /// The key, if the client has sent one.
    fn key(&self) -> Result<Option<&str>, GatewayError> {
        let Some(value) = &self.key else {
            return Ok(None);
        };
        let key = value.to_str().ok().filter(|key| {
            !self.has_more
                && (1..=MAX_KEY_BYTES).contains(&key.len())
                && key.bytes().all(|byte| byte.is_ascii_graphic())
        });
        let message = "Send one `Idempotency-Key` of 1 to 255 visible ASCII characters, or none.";
        key.map(Some)
            .ok_or_else(|| GatewayError::invalid("Idempotency-Key", message))
    }
}

/// What becomes of a request.
pub(crate) enum Turn {
    /// It runs, and is recorded if retries are served.
    Run(Option<Arc<RecordedCall>>),
    /// It gets the response of another call.
    Other(Response),
}

/// A request to a billed endpoint.
pub(crate) struct Sent<'a> {
    pub path: &'static str,
    pub headers: &'a RetryHeaders,
    pub body: &'a ReceivedBody,
}

impl Sent<'_> {
    /// Hashes a large body on a thread of its own, so that other requests do not wait for it.
    async fn hash(&self, gateway: &Gateway) -> Result<RequestHash, GatewayError> {
        if !self.body.is_large() {
            return Ok(RequestHash::of(self.path, self.body.bytes()));
        }
        let (path, body) = (self.path, self.body.clone());
        let hashing = gateway
            .offload
            .run(move || RequestHash::of(path, body.bytes()));
        Box::pin(hashing).await.ok_or(GatewayError::Internal)
    }
}

/// Decides whether a request runs or gets the response of another call, which it then waits for.
pub(crate) async fn take_turn(
    gateway: &Arc<Gateway>,
    caller: &Caller,
    log: &RequestLog,
    sent: Sent<'_>,
) -> Result<Turn, GatewayError> {
    let retries = &gateway.retries;
    if !retries.is_enabled() {
        return Ok(Turn::Run(None));
    }
    if let Some(key) = sent.headers.key()? {
        let key = key.to_owned();
        let keyed = async {
            let request_hash = sent.hash(gateway).await?;
            with_key(gateway, caller, log, IdempotencyKey { key, request_hash }).await
        };
        return Box::pin(keyed).await;
    }
    if !retries.attaches() {
        return Ok(Turn::Run(None));
    }
    if sent.headers.is_retry
        && retries.is_left()
        && let Some(response) = Box::pin(left_by_client(gateway, caller, log, &sent)).await?
    {
        return Ok(Turn::Other(response));
    }
    let recorded = retries.record(&caller.account_id);
    on_leave(gateway, caller, log, &sent, recorded.recording());
    Ok(Turn::Run(Some(recorded)))
}

/// A request with an idempotency key.
async fn with_key(
    gateway: &Arc<Gateway>,
    caller: &Caller,
    log: &RequestLog,
    key: IdempotencyKey,
) -> Result<Turn, GatewayError> {
    loop {
        match gateway.retries.begin(&caller.account_id, key.clone()) {
            Begun::OtherRequest => return Err(GatewayError::IdempotencyKeyReused),
            Begun::Running(recording) => {
                confirm(gateway, caller).await?;
                match attached(gateway, caller, log, &recording).await {
                    Ok(Some(response)) => return Ok(Turn::Other(response)),
                    Ok(None) => {}
                    // Whether it is stored is known when it is over.
                    Err(GatewayError::AnswerNotKept) => {
                        return Err(GatewayError::IdempotencyInProgress);
                    }
                    Err(error) => return Err(error),
                }
                // It failed without a charge: this request may be the next to run.
            }
            Begun::First(recorded) => {
                let finding = gateway
                    .ledger
                    .idempotent_response(&caller.account_id, &key.key);
                let found = finding.await.map_err(|error| {
                    tracing::debug!(%error, "looking up an idempotency key failed; the request is refused");
                    GatewayError::CreditUnavailable
                })?;
                let Some(found) = found else {
                    return Ok(Turn::Run(Some(recorded)));
                };
                if found.request_hash != key.request_hash {
                    return Err(GatewayError::IdempotencyKeyReused);
                }
                confirm(gateway, caller).await?;
                return replayed(gateway, caller, log, found).map(Turn::Other);
            }
        }
    }
}

/// The response of the same request whose client has left, if there is one that has not failed.
async fn left_by_client(
    gateway: &Arc<Gateway>,
    caller: &Caller,
    log: &RequestLog,
    sent: &Sent<'_>,
) -> Result<Option<Response>, GatewayError> {
    let hash = sent.hash(gateway).await?;
    // Before anything is taken, so that an error loses nothing.
    confirm(gateway, caller).await?;
    while let Some(recording) = gateway.retries.take_left(&caller.payer.key_id, hash) {
        // If this client leaves too, its next retry takes the response again.
        on_leave(gateway, caller, log, sent, &recording);
        match attached(gateway, caller, log, &recording).await {
            Ok(Some(response)) => return Ok(Some(response)),
            Ok(None) | Err(GatewayError::AnswerNotKept) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

/// Offers the response to a retry if the client leaves before its end.
fn on_leave(
    gateway: &Arc<Gateway>,
    caller: &Caller,
    log: &RequestLog,
    sent: &Sent<'_>,
    recording: &Arc<Recording>,
) {
    log.on_leave(Departure {
        retries: gateway.retries.clone(),
        recording: recording.clone(),
        payer: caller.payer.clone(),
        path: sent.path,
        body: sent.body.clone(),
    });
}

/// Re-reads a cached caller: a response is not given to a key that was disabled meanwhile, or to a closed account.
async fn confirm(gateway: &Gateway, caller: &Caller) -> Result<(), GatewayError> {
    let now = fresh_caller(gateway, caller.digest).await?;
    if now.account_closed {
        let balance = gateway.ledger.balances(&now.account_id).await;
        return Err(GatewayError::NoAccount {
            balance: balance.map(|balances| balances.balance).unwrap_or_default(),
            billing_url: gateway.links.billing.clone(),
        });
    }
    Ok(())
}

/// The response of another call, which may be running; `None` if it has failed.
async fn attached(
    gateway: &Arc<Gateway>,
    caller: &Caller,
    log: &RequestLog,
    recording: &Arc<Recording>,
) -> Result<Option<Response>, GatewayError> {
    let was_complete = recording.is_complete();
    if !was_complete {
        gateway.retries.attach();
    }
    let response = match recording.begun().await {
        Begin::Failed => return Ok(None),
        Begin::TooLong => return Err(GatewayError::AnswerNotKept),
        Begin::Whole { head, body } => {
            let routed = head.routed.as_ref().map(|model| model.id.as_str());
            let mut response = whole(head.stream.is_some(), routed, body, None);
            if was_complete {
                mark_replayed(&mut response);
            }
            response
        }
        Begin::Stream { style, routed } => {
            let mut response = running(gateway, recording, style, 0, log);
            mark_routed(
                &mut response,
                routed.as_ref().map(|model| model.id.as_str()),
            );
            response
        }
    };
    let kind = if was_complete {
        ReplayKind::Replayed
    } else {
        ReplayKind::Attached
    };
    if let Some(call) = recording.call() {
        count(gateway, caller, log, call, kind);
    }
    Ok(Some(response))
}

/// Counts, logs and records a replay.
fn count(gateway: &Gateway, caller: &Caller, log: &RequestLog, call: CallId, kind: ReplayKind) {
    log.replay(kind, call);
    gateway.metrics.replayed(kind);
    gateway
        .ledger
        .record_replay(call, &caller.account_id, &log.request_id(), kind);
}

/// The stored response of a charged call.
fn replayed(
    gateway: &Gateway,
    caller: &Caller,
    log: &RequestLog,
    found: IdempotentResponse,
) -> Result<Response, GatewayError> {
    let body = found.body.ok_or(GatewayError::AnswerNotKept)?;
    let memory = gateway.retries.reserve(&caller.account_id, body.len());
    let memory = memory.ok_or(GatewayError::BodyMemoryExhausted)?;
    let routed = found.routed_model.as_deref();
    let mut response = whole(found.stream, routed, body.into(), Some(memory));
    mark_replayed(&mut response);
    count(gateway, caller, log, found.call_id, ReplayKind::Replayed);
    Ok(response)
}

/// A response that is known as a whole. `memory` is what its body takes, unless a recording has it.
fn whole(
    is_stream: bool,
    routed: Option<&str>,
    body: Bytes,
    memory: Option<Reservation>,
) -> Response {
    let body = Body::new(WholeBody {
        body,
        _memory: memory,
    });
    let mut response = if is_stream {
        sse::with_headers(body)
    } else {
        json_response(body)
    };
    mark_routed(&mut response, routed);
    response
}

/// A body in pieces: a client that leaves in the middle of it has not received it.
struct WholeBody {
    body: Bytes,
    _memory: Option<Reservation>,
}

impl HttpBody for WholeBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.body.is_empty() {
            return Poll::Ready(None);
        }
        let length = self.body.len().min(PIECE_BYTES);
        Poll::Ready(Some(Ok(Frame::data(self.body.split_to(length)))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.body.len() as u64)
    }
}

fn mark_routed(response: &mut Response, routed: Option<&str>) {
    if let Some(routed) = routed.and_then(|id| HeaderValue::try_from(id).ok()) {
        response.headers_mut().insert(ROUTED_MODEL, routed);
    }
}

fn mark_replayed(response: &mut Response) {
    let headers = response.headers_mut();
    headers.insert(REPLAYED, HeaderValue::from_static("true"));
}

/// The stream of another call, without its first events, so many.
///
/// A task of its own reads the recording, so that a slow client delays no other one.
pub(crate) fn running(
    gateway: &Gateway,
    recording: &Arc<Recording>,
    style: StreamStyle,
    skipped: u64,
    log: &RequestLog,
) -> Response {
    let (sender, frames) = mpsc::channel(FRAMES_IN_FLIGHT);
    let recording = recording.clone();
    let (own_style, request_id) = (style.clone(), log.request_id());
    let pages = gateway.portal.request_pages.clone();
    let url = pages.clone();
    tokio::spawn(async move {
        let url = || url.url(&request_id);
        relay(&recording, skipped, &sender, (&own_style, &request_id), url).await;
    });
    sse::response(frames, (log.clone(), pages), style, skipped)
}

/// Sends the events of a recording until it ends or the client leaves.
async fn relay(
    recording: &Recording,
    mut skipped: u64,
    frames: &mpsc::Sender<StreamFrame>,
    (style, request_id): (&StreamStyle, &str),
    request_url: impl Fn() -> Option<String>,
) {
    let (mut position, mut sent) = (0, skipped);
    loop {
        let more = tokio::select! {
            more = recording.after(position) => more,
            () = frames.closed() => return,
        };
        let mut bytes = match more {
            More::Bytes(bytes) => bytes,
            More::End => {
                let ending = Ending::Finished {
                    usage: None,
                    facts: Facts::default(),
                };
                let _ = frames.send(StreamFrame::End(ending)).await;
                return;
            }
            // The body writes the last events, as it does for the client of the call.
            More::Died => return,
            More::TooLong => {
                let error = GatewayError::RecordingCut;
                let event = error.event().with_request_url(request_url());
                let events = style.error.write(&event, sent, request_id);
                let _ = frames.send(StreamFrame::Data(events)).await;
                let cause = error.to_string();
                let _ = frames
                    .send(StreamFrame::End(Ending::Interrupted {
                        cause,
                        facts: Facts::default(),
                    }))
                    .await;
                return;
            }
        };
        position += bytes.len();
        while !bytes.is_empty() {
            // Recordings grow by whole events.
            let end = memmem::find(&bytes, b"\n\n").map_or(bytes.len(), |at| at + 2);
            let event = bytes.split_to(end);
            if skipped > 0 {
                skipped -= 1;
                continue;
            }
            sent += 1;
            if frames.send(StreamFrame::Data(event)).await.is_err() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> RetryHeaders {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            let value = HeaderValue::from_bytes(value.as_bytes()).unwrap();
            headers.append(*name, value);
        }
        RetryHeaders::of(&headers)
    }

    #[test]
    fn a_key_is_one_to_255_visible_ascii_characters() {
        let longest = "k".repeat(255);
        for key in ["k", "a-B_c.1~!", &longest] {
            assert_eq!(
                headers(&[("idempotency-key", key)]).key().unwrap(),
                Some(key)
            );
        }
        let too_long = "k".repeat(256);
        for key in ["", "a b", "ä", "a\tb", &too_long] {
            let error = headers(&[("idempotency-key", key)]).key().unwrap_err();
            assert!(
                matches!(error, GatewayError::InvalidRequest { .. }),
                "{key}"
            );
        }
        let two = [("idempotency-key", "a"), ("idempotency-key", "a")];
        assert!(headers(&two).key().is_err());
        assert_eq!(headers(&[]).key().unwrap(), None);
    }

    #[test]
    fn a_retry_is_marked_by_a_number_above_zero() {
        for (count, is_retry) in [
            ("0", false),
            ("1", true),
            ("12", true),
            ("x", false),
            ("-1", false),
        ] {
            assert_eq!(
                headers(&[("x-stainless-retry-count", count)]).is_retry,
                is_retry,
                "{count}"
            );
        }
        assert!(!headers(&[]).is_retry);
    }
}
