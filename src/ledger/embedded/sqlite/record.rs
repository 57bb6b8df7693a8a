//! The binary record of a finished call and of the effects of its charge.

use std::{borrow::Cow, sync::Arc};

use rusqlite::Error;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::unreadable;
use crate::{
    base::money::{NanoUsd, TokenPrice},
    catalog::Prices,
    ledger::{Call, CallId, Charged, Outcome, Step, bill::price, credit::Charge},
    wire::chat::Usage,
};

/// Version, the first byte of every record. Increase it when [`Record`] changes, and keep reading earlier versions.
const FORM: u8 = 1;
/// Version of a record that is followed by [`More`].
const FORM_WITH_MORE: u8 = 2;

/// Borrows from a call that is being stored, or from the stored value.
#[derive(Serialize, Deserialize)]
pub(crate) struct Record<'a> {
    pub id: i64,
    pub request_id: &'a str,
    pub account_id: &'a str,
    pub key_id: &'a str,
    pub model: &'a str,
    pub routed_model: &'a str,
    #[serde(borrow)]
    pub upstream: Option<&'a str>,
    pub stream: bool,
    pub outcome: &'a str,
    #[serde(borrow)]
    pub failure: Option<&'a str>,
    pub reserved_tokens: i64,
    pub held: i64,
    pub most: i64,
    pub input_price: i64,
    pub cached_price: i64,
    pub output_price: i64,
    pub admitted_ms: i64,
    pub first_byte_ms: Option<i64>,
    pub ended_ms: i64,
    pub paid: Option<Paid>,
    /// As JSON; empty if there are none.
    pub attempts: &'a str,
    pub steps: &'a str,
    #[serde(borrow)]
    pub decision: Option<&'a str>,
    /// What the charge left of grants.
    #[serde(borrow)]
    pub left: Vec<(&'a str, i64)>,
    /// The new debt, if it has changed.
    pub debt: Option<i64>,
    /// Appended if it is not empty.
    #[serde(skip)]
    pub more: More<'a>,
}

/// Fields that only some calls have.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct More<'a> {
    pub cache_write: u32,
    pub cache_write_1h: u32,
    /// See [`Prices::to_stored`].
    #[serde(borrow)]
    pub prices: Option<Cow<'a, str>>,
    /// In nano-dollars, rounded up.
    pub provider_cost: Option<i64>,
}

/// The usage and cost of a charged call.
#[derive(Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Paid {
    pub prompt: u32,
    pub cached: u32,
    pub completion: u32,
    pub reasoning: u32,
    pub cost: i64,
    pub before: i64,
    pub after: i64,
}

/// Record header: u32 length, then sequence, call ID and tokens as little-endian u64. Queries of many calls read only
/// the header.
const LENGTH: usize = size_of::<u32>();
pub(crate) const HEAD: usize = LENGTH + 3 * size_of::<u64>();

/// A record with its header, within a sequence of records.
#[derive(Clone, Copy)]
pub(crate) struct Framed<'a> {
    /// Sequence number of its ledger entry. A call that was not charged has a number too, but no entry.
    pub seq: i64,
    pub id: i64,
    /// The call's tokens, or those of the steps before it failed.
    pub(crate) used: u64,
    /// The record including the header.
    pub bytes: &'a [u8],
}

/// The lists of a call as JSON; empty strings if they are empty.
pub(crate) struct Lists {
    attempts: String,
    steps: String,
}

impl Lists {
    pub(crate) fn of(call: &Call) -> Self {
        Self {
            attempts: json_list(&call.attempts),
            steps: json_list(&call.steps),
        }
    }
}

impl<'a> Record<'a> {
    pub(crate) fn of(
        call: &'a Call,
        charged: Option<Charged>,
        charge: Option<&'a Charge>,
        lists: &'a Lists,
    ) -> Self {
        let left = charge.map_or(&[][..], |charge| &charge.left);
        let usage = charged.map_or_else(Usage::default, |charged| charged.usage);
        Self {
            id: number(call.id),
            request_id: &call.request_id,
            account_id: &call.account_id,
            key_id: &call.key_id,
            model: &call.model,
            routed_model: &call.routed_model,
            upstream: call.upstream.as_deref(),
            stream: call.stream,
            outcome: call.outcome.as_str(),
            failure: call.failure.as_deref(),
            reserved_tokens: i64::try_from(call.reserved_tokens).unwrap_or(i64::MAX),
            held: call.held.nanos(),
            most: call.most.nanos(),
            input_price: call.prices.rates.input.picos(),
            cached_price: call.prices.rates.cached_input.picos(),
            output_price: call.prices.rates.output.picos(),
            admitted_ms: call.admitted_ms,
            first_byte_ms: call.first_byte_ms,
            ended_ms: call.ended_ms,
            paid: charged.map(|charged| Paid {
                prompt: charged.usage.prompt,
                cached: charged.usage.cached,
                completion: charged.usage.completion,
                reasoning: charged.usage.reasoning,
                cost: charged.cost.nanos(),
                before: charged.balance_before.nanos(),
                after: charged.balance_after.nanos(),
            }),
            attempts: &lists.attempts,
            steps: &lists.steps,
            decision: call.decision.as_deref(),
            left: left
                .iter()
                .map(|left| (&*left.grant_id, left.remaining.nanos()))
                .collect(),
            debt: charge.and_then(|charge| charge.debt).map(NanoUsd::nanos),
            more: More {
                cache_write: usage.cache_write,
                cache_write_1h: usage.cache_write_1h,
                prices: call.prices.to_stored().map(Cow::Owned),
                provider_cost: call.provider_cost.map(|cost| cost.rounded_up().nanos()),
            },
        }
    }

    /// Appends the record to `bytes`; on an error `bytes` is unchanged.
    pub(crate) fn write(&self, bytes: &mut Vec<u8>, seq: i64) -> rusqlite::Result<()> {
        let before = bytes.len();
        let start = before + HEAD;
        bytes.resize(start + 1 + self.room(), 0);
        let has_more = self.more != More::default();
        bytes[start] = if has_more { FORM_WITH_MORE } else { FORM };
        let written = postcard::to_slice(self, &mut bytes[start + 1..]);
        let mut length = written.ok().map(|written| written.len() + 1);
        if has_more {
            length = length.and_then(|length| {
                let more = postcard::to_slice(&self.more, &mut bytes[start + length..]).ok()?;
                Some(length + more.len())
            });
        }
        let stored = length.and_then(|length| u32::try_from(length).ok());
        let (Some(length), Some(stored)) = (length, stored) else {
            bytes.truncate(before);
            let what = "the record of the call is too long";
            return Err(Error::ToSqlConversionFailure(what.into()));
        };
        let head = &mut bytes[before..start];
        head[..LENGTH].copy_from_slice(&stored.to_le_bytes());
        head[LENGTH..LENGTH + 8].copy_from_slice(&seq.to_le_bytes());
        head[LENGTH + 8..LENGTH + 16].copy_from_slice(&self.id.to_le_bytes());
        head[LENGTH + 16..].copy_from_slice(&self.used().to_le_bytes());
        bytes.truncate(start + length);
        Ok(())
    }

    /// Upper bound of the encoded length: ten bytes for each number or length.
    fn room(&self) -> usize {
        const NUMBERS: usize = 40;
        let texts = [
            self.request_id,
            self.account_id,
            self.key_id,
            self.model,
            self.routed_model,
            self.upstream.unwrap_or_default(),
            self.outcome,
            self.failure.unwrap_or_default(),
            self.attempts,
            self.steps,
            self.decision.unwrap_or_default(),
        ];
        let texts: usize = texts.iter().map(|text| text.len()).sum();
        let left = self.left.iter().map(|(grant_id, _)| grant_id.len() + 20);
        let prices = self.more.prices.as_ref().map_or(0, |prices| prices.len());
        texts + prices + left.sum::<usize>() + 10 * NUMBERS
    }

    /// The tokens that the call used; if nothing was charged, those of the steps before the failure. If no usage was
    /// reported, the reserved tokens.
    fn used(&self) -> u64 {
        if let Some(paid) = self.paid {
            return u64::from(paid.prompt) + u64::from(paid.completion);
        }
        let steps = read_list(self.steps).into_iter().map(|step| match step {
            Step::Provider {
                prompt_tokens,
                completion_tokens,
                ..
            } => u64::from(prompt_tokens) + u64::from(completion_tokens),
            Step::Tool { .. } => 0,
        });
        let counted = steps.sum();
        if self.outcome == Outcome::NoUsage.as_str() {
            return unsigned(self.reserved_tokens).max(counted);
        }
        counted
    }

    /// The change of the balance.
    pub(crate) fn delta(&self) -> i64 {
        self.paid.map_or(0, |paid| paid.after - paid.before)
    }

    /// Decodes the call.
    pub(crate) fn call(&self) -> rusqlite::Result<Call> {
        let outcome = Outcome::parse(self.outcome).ok_or_else(|| unreadable(0, "outcome"))?;
        Ok(Call {
            id: CallId(unsigned(self.id)),
            request_id: self.request_id.to_owned(),
            account_id: self.account_id.to_owned(),
            key_id: self.key_id.to_owned(),
            model: self.model.to_owned(),
            routed_model: self.routed_model.to_owned(),
            upstream: self.upstream.map(Into::into),
            stream: self.stream,
            outcome,
            failure: self.failure.map(str::to_owned),
            reserved_tokens: unsigned(self.reserved_tokens),
            held: NanoUsd::new(self.held),
            most: NanoUsd::new(self.most),
            prices: self.prices()?,
            provider_cost: self
                .more
                .provider_cost
                .map(|cost| NanoUsd::new(cost).into()),
            admitted_ms: self.admitted_ms,
            first_byte_ms: self.first_byte_ms,
            ended_ms: self.ended_ms,
            attempts: read_list(self.attempts),
            steps: read_list(self.steps),
            decision: self.decision.map(str::to_owned),
            reservations: Vec::new(),
            charged: self.paid.map(|paid| Charged {
                usage: self.usage(&paid),
                cost: NanoUsd::new(paid.cost),
                balance_before: NanoUsd::new(paid.before),
                balance_after: NanoUsd::new(paid.after),
            }),
        })
    }

    /// The routed model's prices when the call was admitted.
    fn prices(&self) -> rusqlite::Result<Arc<Prices>> {
        let [input, output, cached_input] =
            [self.input_price, self.output_price, self.cached_price].map(TokenPrice::from_picos);
        let prices =
            Prices::from_stored((input, output, cached_input), self.more.prices.as_deref());
        prices.ok_or_else(|| unreadable(0, "prices"))
    }

    fn usage(&self, paid: &Paid) -> Usage {
        Usage {
            prompt: paid.prompt,
            cached: paid.cached,
            cache_write: self.more.cache_write,
            cache_write_1h: self.more.cache_write_1h,
            completion: paid.completion,
            reasoning: paid.reasoning,
        }
    }

    /// The cost recomputed from the stored usage and prices.
    pub(crate) fn price(&self) -> rusqlite::Result<Option<NanoUsd>> {
        let Some(paid) = &self.paid else {
            return Ok(None);
        };
        let (prices, steps) = (self.prices()?, read_list(self.steps));
        Ok(Some(price(&prices, &steps, self.usage(paid))))
    }
}

impl<'a> Framed<'a> {
    pub(crate) fn read(&self) -> rusqlite::Result<Record<'a>> {
        read(&self.bytes[HEAD..])
    }

    fn first_of(bytes: &'a [u8]) -> Option<Self> {
        let (length, rest) = bytes.split_first_chunk::<LENGTH>()?;
        let (seq, rest) = rest.split_first_chunk()?;
        let (id, rest) = rest.split_first_chunk()?;
        let used = rest.first_chunk()?;
        let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
        let framed = Self {
            seq: i64::from_le_bytes(*seq),
            id: i64::from_le_bytes(*id),
            used: u64::from_le_bytes(*used),
            bytes: bytes.get(..HEAD + length)?,
        };
        Some(framed)
    }
}

/// Iterates over concatenated records; it ends after the first unreadable one.
pub(crate) fn framed(bytes: &[u8]) -> impl Iterator<Item = rusqlite::Result<Framed<'_>>> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let Some(framed) = Framed::first_of(rest) else {
            rest = &[];
            return Some(Err(unreadable(0, "the length of a call")));
        };
        rest = &rest[framed.bytes.len()..];
        Some(Ok(framed))
    })
}

/// Decodes a record without its header.
pub(crate) fn read(bytes: &[u8]) -> rusqlite::Result<Record<'_>> {
    let record = match bytes.split_first() {
        Some((&FORM, record)) => postcard::from_bytes(record).ok(),
        Some((&FORM_WITH_MORE, record)) => read_with_more(record),
        _ => None,
    };
    record.ok_or_else(|| unreadable(0, "the record of a call"))
}

fn read_with_more(bytes: &[u8]) -> Option<Record<'_>> {
    let (record, more) = postcard::take_from_bytes::<Record<'_>>(bytes).ok()?;
    let more = postcard::from_bytes(more).ok()?;
    Some(Record { more, ..record })
}

pub(crate) fn number(id: CallId) -> i64 {
    i64::try_from(id.0).unwrap_or(i64::MAX)
}

fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

/// As JSON; an empty string for an empty list.
fn json_list<T: Serialize>(items: &[T]) -> String {
    if items.is_empty() {
        return String::new();
    }
    serde_json::to_string(items).unwrap_or_default()
}

fn read_list<T: DeserializeOwned>(list: &str) -> Vec<T> {
    if list.is_empty() {
        return Vec::new();
    }
    serde_json::from_str(list).unwrap_or_default()
}
