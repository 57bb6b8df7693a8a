//! A call that has ended, and what its charge left, as one value.

use std::ops::Range;

use rusqlite::{Statement, ToSql};
use serde::{Deserialize, Serialize};

use super::unreadable;
use crate::{
    ledger::{Call, credit::Charge},
    money::NanoUsd,
};

/// The first byte of every value. Whoever changes [`Record`] counts on, and reads what was before.
const FORM: u8 = 1;

/// It borrows from a call that is written down, or from the value that is read.
#[derive(Serialize, Deserialize)]
pub struct Record<'a> {
    pub id: i64,
    pub request_id: &'a str,
    pub account_id: &'a str,
    pub key_id: &'a str,
    pub model: &'a str,
    routed_model: &'a str,
    #[serde(borrow)]
    upstream: Option<&'a str>,
    stream: bool,
    outcome: &'a str,
    #[serde(borrow)]
    failure: Option<&'a str>,
    reserved_tokens: i64,
    held: i64,
    most: i64,
    input_price: i64,
    cached_price: i64,
    output_price: i64,
    admitted_ms: i64,
    first_byte_ms: Option<i64>,
    pub ended_ms: i64,
    pub paid: Option<Paid>,
    /// As JSON; empty where there are none.
    attempts: &'a str,
    steps: &'a str,
    #[serde(borrow)]
    decision: Option<&'a str>,
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

/// The bytes of a length.
const LENGTH: usize = size_of::<u32>();

/// Adds a call to the end of `bytes`, its length before it; says where it is.
pub fn write(
    bytes: &mut Vec<u8>,
    call: &Call,
    charge: Option<&Charge>,
) -> rusqlite::Result<Range<usize>> {
    let left = charge.map_or(&[][..], |charge| &charge.left);
    let (attempts, steps) = (json_list(&call.attempts), json_list(&call.steps));
    let record = Record {
        id: i64::try_from(call.id.0).unwrap_or(i64::MAX),
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
        paid: call.charged.map(|charged| Paid {
            prompt: charged.usage.prompt,
            cached: charged.usage.cached,
            completion: charged.usage.completion,
            reasoning: charged.usage.reasoning,
            cost: charged.cost.nanos(),
            before: charged.balance_before.nanos(),
            after: charged.balance_after.nanos(),
        }),
        attempts: &attempts,
        steps: &steps,
        decision: call.decision.as_deref(),
        left: left
            .iter()
            .map(|left| (&*left.grant_id, left.remaining.nanos()))
            .collect(),
        debt: charge.and_then(|charge| charge.debt).map(NanoUsd::nanos),
    };
    let before = bytes.len();
    let start = before + LENGTH;
    bytes.resize(start + 1 + record.room(), 0);
    bytes[start] = FORM;
    let written = postcard::to_slice(&record, &mut bytes[start + 1..]);
    let length = written.ok().map(|written| written.len() + 1);
    let stored = length.and_then(|length| u32::try_from(length).ok());
    let (Some(length), Some(stored)) = (length, stored) else {
        bytes.truncate(before);
        let what = "a call that is too long to be written down";
        return Err(rusqlite::Error::ToSqlConversionFailure(what.into()));
    };
    bytes[before..start].copy_from_slice(&stored.to_le_bytes());
    bytes.truncate(start + length);
    Ok(start..start + length)
}

/// Where the records among these bytes are.
pub fn places(bytes: &[u8]) -> rusqlite::Result<Vec<Range<usize>>> {
    let mut places = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let length = bytes[at..].first_chunk::<LENGTH>();
        let start = at + LENGTH;
        let end = length.map(|length| start + u32::from_le_bytes(*length) as usize);
        let end = end.filter(|end| *end <= bytes.len());
        at = end.ok_or_else(|| unreadable(0, "the length of a call that is not entered"))?;
        places.push(start..at);
    }
    Ok(places)
}

pub fn read(bytes: &[u8]) -> rusqlite::Result<Record<'_>> {
    let record = bytes.split_first().filter(|(form, _)| **form == FORM);
    let record = record.and_then(|(_, record)| postcard::from_bytes(record).ok());
    record.ok_or_else(|| unreadable(0, "a call that is not entered"))
}

impl Record<'_> {
    /// What its value takes at the most: ten bytes for a number or a length.
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

    /// What it did to the balance.
    pub fn delta(&self) -> i64 {
        self.paid.map_or(0, |paid| paid.after - paid.before)
    }

    /// Binds the columns of a call, in their order, from parameter `first` on.
    pub fn bind_call(&self, first: usize, statement: &mut Statement<'_>) -> rusqlite::Result<()> {
        let paid = self.paid.as_ref();
        let values: [&dyn ToSql; 29] = [
            &self.id,
            &self.request_id,
            &self.account_id,
            &self.key_id,
            &self.model,
            &self.routed_model,
            &self.upstream,
            &self.stream,
            &self.outcome,
            &self.failure,
            &self.reserved_tokens,
            &self.held,
            &self.most,
            &self.input_price,
            &self.cached_price,
            &self.output_price,
            &self.admitted_ms,
            &self.first_byte_ms,
            &self.ended_ms,
            &paid.map(|paid| paid.prompt),
            &paid.map(|paid| paid.cached),
            &paid.map(|paid| paid.completion),
            &paid.map(|paid| paid.reasoning),
            &paid.map(|paid| paid.cost),
            &paid.map(|paid| paid.before),
            &paid.map(|paid| paid.after),
            &some(self.attempts),
            &some(self.steps),
            &self.decision,
        ];
        bind(first, statement, &values)
    }

    /// The same for the line of the books that a charge is.
    pub fn bind_line(&self, first: usize, statement: &mut Statement<'_>) -> rusqlite::Result<()> {
        let at = self.ended_ms.div_euclid(1_000);
        let after = self.paid.map(|paid| paid.after);
        let values: [&dyn ToSql; 5] = [&self.account_id, &self.id, &self.delta(), &after, &at];
        bind(first, statement, &values)
    }
}

fn bind(
    first: usize,
    statement: &mut Statement<'_>,
    values: &[&dyn ToSql],
) -> rusqlite::Result<()> {
    for (place, value) in (first..).zip(values) {
        statement.raw_bind_parameter(place, value)?;
    }
    Ok(())
}

fn some(text: &str) -> Option<&str> {
    (!text.is_empty()).then_some(text)
}

/// As JSON; nothing for none.
fn json_list<T: Serialize>(items: &[T]) -> String {
    if items.is_empty() {
        return String::new();
    }
    serde_json::to_string(items).unwrap_or_default()
}
