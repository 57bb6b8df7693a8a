//! A call that has ended, and what its charge left, as bytes.

use rusqlite::Error;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::unreadable;
use crate::{
    catalog::Prices,
    ledger::{Call, CallId, Charged, Outcome, Step, credit::Charge},
    money::{NanoUsd, TokenPrice},
    wire::chat::Usage,
};

/// The first byte of every record. Whoever changes [`Record`] counts on, and reads what was before.
const FORM: u8 = 1;

/// It borrows from a call that is written down, or from the value that is read.
#[derive(Serialize, Deserialize)]
pub struct Record<'a> {
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
    /// As JSON; empty where there are none.
    pub attempts: &'a str,
    pub steps: &'a str,
    #[serde(borrow)]
    pub decision: Option<&'a str>,
    /// What the charge left of grants.
    #[serde(borrow)]
    pub left: Vec<(&'a str, i64)>,
    /// What is owed since, where that changed.
    pub debt: Option<i64>,
}

/// What was used, and what it cost.
#[derive(Clone, Copy, Serialize, Deserialize)]
pub struct Paid {
    pub prompt: u32,
    pub cached: u32,
    pub completion: u32,
    pub reasoning: u32,
    pub cost: i64,
    pub before: i64,
    pub after: i64,
}

/// What stands before a record: its length, and what is wanted of many that are not read. All in bytes of eight, but
/// for the length.
const LENGTH: usize = size_of::<u32>();
pub const HEAD: usize = LENGTH + 3 * size_of::<u64>();

/// A record among others.
#[derive(Clone, Copy)]
pub struct Framed<'a> {
    /// The number of its line in the books. A call that was not charged has one too, and no line.
    pub seq: i64,
    pub id: i64,
    /// Its tokens, or those of the steps that came before it failed.
    pub used: u64,
    /// The record with all that stands before it.
    pub bytes: &'a [u8],
}

/// The lists of a call, as JSON; empty where there is nothing in them.
pub struct Lists {
    attempts: String,
    steps: String,
}

impl Lists {
    pub fn of(call: &Call) -> Self {
        Self {
            attempts: json_list(&call.attempts),
            steps: json_list(&call.steps),
        }
    }
}

impl<'a> Record<'a> {
    pub fn of(
        call: &'a Call,
        charged: Option<Charged>,
        charge: Option<&'a Charge>,
        lists: &'a Lists,
    ) -> Self {
        let left = charge.map_or(&[][..], |charge| &charge.left);
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
            input_price: call.prices.input.picos(),
            cached_price: call.prices.cached_input.picos(),
            output_price: call.prices.output.picos(),
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
        }
    }

    /// Adds it to the end of `bytes`, or leaves them as they are.
    pub fn write(&self, bytes: &mut Vec<u8>, seq: i64) -> rusqlite::Result<()> {
        let before = bytes.len();
        let start = before + HEAD;
        bytes.resize(start + 1 + self.room(), 0);
        bytes[start] = FORM;
        let written = postcard::to_slice(self, &mut bytes[start + 1..]);
        let length = written.ok().map(|written| written.len() + 1);
        let stored = length.and_then(|length| u32::try_from(length).ok());
        let (Some(length), Some(stored)) = (length, stored) else {
            bytes.truncate(before);
            let what = "a call that is too long to be written down";
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

    /// What its bytes take at the most: ten for a number or a length.
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
        texts + left.sum::<usize>() + 10 * NUMBERS
    }

    /// What it used in the end; where nothing was charged, what the steps used that came before the failure.
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
        steps.sum()
    }

    /// What it did to the balance.
    pub fn delta(&self) -> i64 {
        self.paid.map_or(0, |paid| paid.after - paid.before)
    }

    /// The call as it was.
    pub fn call(&self) -> rusqlite::Result<Call> {
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
            prices: self.prices(),
            admitted_ms: self.admitted_ms,
            first_byte_ms: self.first_byte_ms,
            ended_ms: self.ended_ms,
            attempts: read_list(self.attempts),
            steps: read_list(self.steps),
            decision: self.decision.map(str::to_owned),
            places: Vec::new(),
            charged: self.paid.map(|paid| Charged {
                usage: paid.usage(),
                cost: NanoUsd::new(paid.cost),
                balance_before: NanoUsd::new(paid.before),
                balance_after: NanoUsd::new(paid.after),
            }),
        })
    }

    /// The answering model's, as they were then.
    pub fn prices(&self) -> Prices {
        Prices {
            input: TokenPrice::from_picos(self.input_price),
            cached_input: TokenPrice::from_picos(self.cached_price),
            output: TokenPrice::from_picos(self.output_price),
        }
    }
}

impl Paid {
    pub fn usage(&self) -> Usage {
        Usage {
            prompt: self.prompt,
            cached: self.cached,
            completion: self.completion,
            reasoning: self.reasoning,
        }
    }
}

impl<'a> Framed<'a> {
    pub fn read(&self) -> rusqlite::Result<Record<'a>> {
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

/// The records that these bytes are; the first that cannot be read is the last.
pub fn framed(bytes: &[u8]) -> impl Iterator<Item = rusqlite::Result<Framed<'_>>> {
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

/// Without what stands before it.
pub fn read(bytes: &[u8]) -> rusqlite::Result<Record<'_>> {
    let record = bytes.split_first().filter(|(form, _)| **form == FORM);
    let record = record.and_then(|(_, record)| postcard::from_bytes(record).ok());
    record.ok_or_else(|| unreadable(0, "a call that was written down"))
}

pub fn number(id: CallId) -> i64 {
    i64::try_from(id.0).unwrap_or(i64::MAX)
}

fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

/// As JSON; nothing for none.
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
