//! A pending charge as one line of text: version, checksum, JSON. Lines after a damaged one can still be read.

use std::{sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::{
    base::{
        money::{NanoUsd, TokenPrice},
        rate::Reservation,
    },
    catalog::Prices,
    ledger::{
        Attempt, Call, CallId, Idempotency, IdempotencyKey, KeepLimits, Outcome, Payer,
        PendingCharge, RequestHash, Step,
    },
    wire::{agent::Agent, chat::Usage},
};

/// Version of the format, the first byte of every line. Increase it if a change of [`Record`] makes earlier versions
/// misread lines.
const VERSION: u8 = b'1';
/// Replaces the version when the charge is settled.
pub(crate) const SETTLED: u8 = b'#';
/// Length of the checksum in hexadecimal digits: enough to detect accidental damage.
const CHECKSUM: usize = 16;
/// Length of the header before the JSON: version and checksum, each followed by a space.
const HEADER: usize = 1 + 1 + CHECKSUM + 1;

#[derive(Serialize, Deserialize)]
struct Record {
    call: u64,
    request_id: String,
    account_id: String,
    key_id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    project_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    member_id: Option<String>,
    model: String,
    routed_model: String,
    upstream: Option<String>,
    stream: bool,
    outcome: String,
    failure: Option<String>,
    reserved_tokens: u64,
    held: i64,
    most: i64,
    input_price: i64,
    cached_price: i64,
    output_price: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    prices: Option<String>,
    /// In nano-dollars, rounded up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    provider_cost: Option<i64>,
    admitted_ms: i64,
    first_byte_ms: Option<i64>,
    ended_ms: i64,
    attempts: Vec<Attempt>,
    steps: Vec<Step>,
    decision: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    agent: Option<Agent>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    idempotency: Option<SpooledResponse>,
    /// Time, tokens and step of each reservation.
    places: Vec<(u64, u64, u32)>,
    prompt: u32,
    cached: u32,
    #[serde(default)]
    cache_write: u32,
    #[serde(default)]
    cache_write_1h: u32,
    completion: u32,
    reasoning: u32,
    cost: i64,
}

/// The response that is stored with the charge, for retries.
#[derive(Serialize, Deserialize)]
struct SpooledResponse {
    key: String,
    request_hash: String,
    keep_seconds: u64,
    max_total_bytes: u64,
    body: Option<String>,
}

/// Longer responses are not spooled with their charges, so that a full disk has room for the charges of others.
const MAX_BODY_BYTES: usize = 256 << 10;

/// The contents of a spool file.
#[derive(Default)]
pub(crate) struct Contents {
    /// Pending charges with the offsets of their lines.
    pub found: Vec<(u64, PendingCharge)>,
    /// Unreadable lines, with their offsets, that have readable lines after them.
    pub damaged: Vec<(u64, Vec<u8>)>,
    /// Offset of an incomplete last line: its writer died before it was flushed.
    pub torn: Option<u64>,
    /// Where the last line ends.
    pub end: u64,
}

impl SpooledResponse {
    fn of(idempotency: &Idempotency) -> Self {
        let Idempotency { key, limits, body } = idempotency;
        Self {
            key: key.key.clone(),
            request_hash: key.request_hash.to_hex(),
            keep_seconds: limits.keep.as_secs(),
            max_total_bytes: limits.max_total_bytes,
            body: body
                .as_deref()
                .filter(|body| body.len() <= MAX_BODY_BYTES)
                .map(str::to_owned),
        }
    }

    fn read(self) -> Option<Idempotency> {
        Some(Idempotency {
            key: Arc::new(IdempotencyKey {
                key: self.key,
                request_hash: RequestHash::from_hex(&self.request_hash)?,
            }),
            limits: KeepLimits {
                keep: Duration::from_secs(self.keep_seconds),
                max_total_bytes: self.max_total_bytes,
            },
            body: self.body.map(Arc::from),
        })
    }
}

/// Encodes the charge as one line, including the line end.
pub(crate) fn encode(pending: &PendingCharge) -> Vec<u8> {
    let PendingCharge { call, usage, cost } = pending;
    let line = Record {
        call: call.id.0,
        request_id: call.request_id.clone(),
        account_id: call.account_id.clone(),
        key_id: call.payer.key_id.clone(),
        project_id: call.payer.project_id.clone(),
        member_id: call.payer.member_id.clone(),
        model: call.model.clone(),
        routed_model: call.routed_model.clone(),
        upstream: call.upstream.as_deref().map(str::to_owned),
        stream: call.stream,
        outcome: call.outcome.as_str().to_owned(),
        failure: call.failure.clone(),
        reserved_tokens: call.reserved_tokens,
        held: call.held.nanos(),
        most: call.most.nanos(),
        input_price: call.prices.rates.input.picos(),
        cached_price: call.prices.rates.cached_input.picos(),
        output_price: call.prices.rates.output.picos(),
        prices: call.prices.to_stored(),
        provider_cost: call.provider_cost.map(|cost| cost.rounded_up().nanos()),
        admitted_ms: call.admitted_ms,
        first_byte_ms: call.first_byte_ms,
        ended_ms: call.ended_ms,
        attempts: call.attempts.clone(),
        steps: call.steps.clone(),
        decision: call.decision.clone(),
        agent: call.agent.as_deref().cloned(),
        idempotency: call.idempotency.as_deref().map(SpooledResponse::of),
        places: call.reservations.iter().map(flat).collect(),
        prompt: usage.prompt,
        cached: usage.cached,
        cache_write: usage.cache_write,
        cache_write_1h: usage.cache_write_1h,
        completion: usage.completion,
        reasoning: usage.reasoning,
        cost: cost.nanos(),
    };
    let json = serde_json::to_vec(&line).expect("numbers and strings serialize");
    let mut bytes = Vec::with_capacity(HEADER + json.len() + 1);
    bytes.extend([VERSION, b' ']);
    bytes.extend(checksum(&json));
    bytes.push(b' ');
    bytes.extend(json);
    bytes.push(b'\n');
    bytes
}

/// Decodes a line without its line end; `None` if it is damaged, or of a later version.
fn decode(line: &[u8]) -> Option<PendingCharge> {
    let (head, json) = line.split_at_checked(HEADER)?;
    let is_whole = head[..2] == [VERSION, b' ']
        && head[2..HEADER - 1] == checksum(json)
        && head[HEADER - 1] == b' ';
    if !is_whole {
        return None;
    }
    let line: Record = serde_json::from_slice(json).ok()?;
    let outcome = Outcome::parse(&line.outcome)?;
    let [input, output, cached_input] =
        [line.input_price, line.output_price, line.cached_price].map(TokenPrice::from_picos);
    let call = Call {
        id: CallId(line.call),
        request_id: line.request_id,
        account_id: line.account_id,
        payer: Arc::new(Payer {
            key_id: line.key_id,
            project_id: line.project_id,
            member_id: line.member_id,
        }),
        model: line.model,
        routed_model: line.routed_model,
        upstream: line.upstream.map(Into::into),
        stream: line.stream,
        reserved_tokens: line.reserved_tokens,
        held: NanoUsd::new(line.held),
        most: NanoUsd::new(line.most),
        prices: Prices::from_stored((input, output, cached_input), line.prices.as_deref())?,
        provider_cost: line.provider_cost.map(|cost| NanoUsd::new(cost).into()),
        admitted_ms: line.admitted_ms,
        first_byte_ms: line.first_byte_ms,
        ended_ms: line.ended_ms,
        outcome,
        failure: line.failure,
        attempts: line.attempts,
        steps: line.steps,
        decision: line.decision,
        agent: line.agent.map(Arc::new),
        reservations: line.places.into_iter().map(reservation).collect(),
        idempotency: line
            .idempotency
            .and_then(SpooledResponse::read)
            .map(Box::new),
        charged: None,
    };
    Some(PendingCharge {
        call: Box::new(call),
        usage: Usage {
            prompt: line.prompt,
            cached: line.cached,
            cache_write: line.cache_write,
            cache_write_1h: line.cache_write_1h,
            completion: line.completion,
            reasoning: line.reasoning,
        },
        cost: NanoUsd::new(line.cost),
    })
}

/// Reads a whole file. Empty lines are reserved space; settled charges are skipped.
pub(crate) fn read(bytes: &[u8]) -> Contents {
    let mut contents = Contents::default();
    let mut at = 0;
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        let start = at;
        at += position(line.len());
        let Some(whole) = line.strip_suffix(b"\n") else {
            contents.torn = Some(start);
            contents.end = at;
            break;
        };
        if whole.is_empty() {
            continue;
        }
        contents.end = at;
        if whole[0] == SETTLED {
            continue;
        }
        match decode(whole) {
            Some(pending) => contents.found.push((start, pending)),
            None => contents.damaged.push((start, whole.to_vec())),
        }
    }
    // An unreadable last line was never completely written. Its line end is no proof of the contrary, because it may be
    // that of the reserved space behind it.
    let last = contents.damaged.last();
    let is_last = |(start, line): &(u64, Vec<u8>)| start + position(line.len()) + 1 == contents.end;
    if contents.torn.is_none() && last.is_some_and(is_last) {
        contents.torn = contents.damaged.pop().map(|(start, _)| start);
    }
    contents
}

fn checksum(json: &[u8]) -> [u8; CHECKSUM] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digest = Sha256::digest(json);
    let mut hex = [0; CHECKSUM];
    for (pair, byte) in hex.chunks_exact_mut(2).zip(digest) {
        pair[0] = DIGITS[usize::from(byte >> 4)];
        pair[1] = DIGITS[usize::from(byte & 15)];
    }
    hex
}

fn flat(reservation: &Reservation) -> (u64, u64, u32) {
    (reservation.at_ms, reservation.tokens, reservation.step)
}

fn reservation((at_ms, tokens, step): (u64, u64, u32)) -> Reservation {
    Reservation {
        at_ms,
        tokens,
        step,
    }
}

pub(crate) fn position(bytes: usize) -> u64 {
    u64::try_from(bytes).unwrap_or(u64::MAX)
}
