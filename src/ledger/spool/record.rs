//! A charge as a line: form, checksum, JSON. Lines are found again behind one that is damaged.

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::{
    base::{
        money::{NanoUsd, TokenPrice},
        rate::Reservation,
    },
    catalog::Prices,
    ledger::{Attempt, Call, CallId, Outcome, PendingCharge, Step},
    wire::chat::Usage,
};

/// The first byte of every line. Whoever changes [`Line`] in a way that an earlier version misreads counts on.
const FORM: u8 = b'1';
/// In place of the form: the charge waits no longer.
pub const SETTLED: u8 = b'#';
/// Hexadecimal digits: enough to notice damage, which is all it is for.
const CHECKSUM: usize = 16;
/// What stands before the JSON: the form, the checksum, and a space behind each.
const HEAD: usize = 1 + 1 + CHECKSUM + 1;

#[derive(Serialize, Deserialize)]
struct Line {
    call: u64,
    request_id: String,
    account_id: String,
    key_id: String,
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
    /// Time, tokens and step of each.
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

/// What a file has in it.
#[derive(Default)]
pub struct Contents {
    /// Each with the place of its line.
    pub found: Vec<(u64, PendingCharge)>,
    /// The places of lines that cannot be read, with lines behind them that can.
    pub damaged: Vec<(u64, Vec<u8>)>,
    /// The place of a last line that is not whole: its writer died before it was flushed.
    pub torn: Option<u64>,
    /// Where the last line ends.
    pub end: u64,
}

/// The charge as one line, its end included.
pub fn encode(owed: &PendingCharge) -> Vec<u8> {
    let PendingCharge { call, usage, cost } = owed;
    let line = Line {
        call: call.id.0,
        request_id: call.request_id.clone(),
        account_id: call.account_id.clone(),
        key_id: call.key_id.clone(),
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
        places: call.places.iter().map(flat).collect(),
        prompt: usage.prompt,
        cached: usage.cached,
        cache_write: usage.cache_write,
        cache_write_1h: usage.cache_write_1h,
        completion: usage.completion,
        reasoning: usage.reasoning,
        cost: cost.nanos(),
    };
    let json = serde_json::to_vec(&line).expect("numbers and texts can be written");
    let mut bytes = Vec::with_capacity(HEAD + json.len() + 1);
    bytes.extend([FORM, b' ']);
    bytes.extend(checksum(&json));
    bytes.push(b' ');
    bytes.extend(json);
    bytes.push(b'\n');
    bytes
}

/// The charge of a line, without its end; `None` where it is damaged, or of a version to come.
fn decode(line: &[u8]) -> Option<PendingCharge> {
    let (head, json) = line.split_at_checked(HEAD)?;
    let is_whole =
        head[..2] == [FORM, b' '] && head[2..HEAD - 1] == checksum(json) && head[HEAD - 1] == b' ';
    if !is_whole {
        return None;
    }
    let line: Line = serde_json::from_slice(json).ok()?;
    let outcome = Outcome::parse(&line.outcome)?;
    let [input, output, cached_input] =
        [line.input_price, line.output_price, line.cached_price].map(TokenPrice::from_picos);
    let call = Call {
        id: CallId(line.call),
        request_id: line.request_id,
        account_id: line.account_id,
        key_id: line.key_id,
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
        places: line.places.into_iter().map(place).collect(),
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

/// Reads a whole file. Empty lines are room for more, and what is settled is passed over.
pub fn read(bytes: &[u8]) -> Contents {
    let mut contents = Contents::default();
    let mut at = 0;
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        let begins = at;
        at += position(line.len());
        let Some(whole) = line.strip_suffix(b"\n") else {
            contents.torn = Some(begins);
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
            Some(owed) => contents.found.push((begins, owed)),
            None => contents.damaged.push((begins, whole.to_vec())),
        }
    }
    // The last one of all that cannot be read was never finished. One that ends where the room for more begins may
    // have been overwritten in part only, so its own end says nothing.
    let last = contents.damaged.last();
    let is_last =
        |(begins, line): &(u64, Vec<u8>)| begins + position(line.len()) + 1 == contents.end;
    if contents.torn.is_none() && last.is_some_and(is_last) {
        contents.torn = contents.damaged.pop().map(|(begins, _)| begins);
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

fn flat(place: &Reservation) -> (u64, u64, u32) {
    (place.at_ms, place.tokens, place.step)
}

fn place((at_ms, tokens, step): (u64, u64, u32)) -> Reservation {
    Reservation {
        at_ms,
        tokens,
        step,
    }
}

pub fn position(bytes: usize) -> u64 {
    u64::try_from(bytes).unwrap_or(u64::MAX)
}
