//! A call as a row: encoded as JSON, which the database turns into columns, and read back.

use std::sync::Arc;

use serde::{Serialize, de::DeserializeOwned};
use serde_json::value::RawValue;
use tokio_postgres::Row;

use crate::{
    base::{
        money::{NanoUsd, TokenPrice},
        rate::Reservation,
    },
    catalog::Prices,
    db::postgres::Error,
    ledger::{Call, CallId, Charged, Outcome},
    wire::chat::Usage,
};

/// In the order in which [`read`] reads them.
pub(crate) const COLUMNS: &str =
    "id, request_id, account_id, key_id, model, routed_model, upstream, stream,
    outcome, failure, reserved_tokens, held, most, input_price, cached_price, output_price,
    admitted_ms, first_byte_ms, ended_ms, prompt, cached, completion, reasoning, cost,
    balance_before, balance_after, attempts, steps, decision, cache_write, cache_write_1h, prices,
    provider_cost";

pub(crate) struct CallRecord<'a> {
    pub call: &'a Call,
    /// Its usage and cost, if it is to be charged.
    pub usage: Option<(Usage, NanoUsd)>,
}

#[derive(Serialize)]
struct Columns<'a> {
    id: u64,
    request_id: String,
    account_id: &'a str,
    key_id: &'a str,
    model: &'a str,
    routed_model: &'a str,
    upstream: Option<&'a str>,
    stream: bool,
    outcome: &'static str,
    failure: Option<String>,
    reserved_tokens: u64,
    held: i64,
    most: i64,
    input_price: i64,
    cached_price: i64,
    output_price: i64,
    admitted_ms: i64,
    first_byte_ms: Option<i64>,
    ended_ms: i64,
    prompt: Option<u32>,
    cached: Option<u32>,
    completion: Option<u32>,
    reasoning: Option<u32>,
    cost: Option<i64>,
    attempts: Option<String>,
    steps: Option<String>,
    decision: Option<String>,
    places: Vec<i64>,
    cache_write: Option<u32>,
    cache_write_1h: Option<u32>,
    prices: Option<String>,
    provider_cost: Option<i64>,
}

impl CallRecord<'_> {
    pub(crate) fn id(&self) -> CallId {
        self.call.id
    }

    pub(crate) fn account_id(&self) -> &str {
        &self.call.account_id
    }

    pub(crate) fn to_json(&self) -> Box<RawValue> {
        let Self { call, usage } = self;
        let (rates, used) = (call.prices.rates, usage.map(|(usage, _)| usage));
        let columns = Columns {
            id: call.id.0,
            request_id: storable(&call.request_id),
            account_id: &call.account_id,
            key_id: &call.key_id,
            model: &call.model,
            routed_model: &call.routed_model,
            upstream: call.upstream.as_deref(),
            stream: call.stream,
            outcome: call.outcome.as_str(),
            failure: call.failure.as_deref().map(storable),
            reserved_tokens: call.reserved_tokens,
            held: call.held.nanos(),
            most: call.most.nanos(),
            input_price: rates.input.picos(),
            cached_price: rates.cached_input.picos(),
            output_price: rates.output.picos(),
            admitted_ms: call.admitted_ms,
            first_byte_ms: call.first_byte_ms,
            ended_ms: call.ended_ms,
            prompt: used.map(|used| used.prompt),
            cached: used.map(|used| used.cached),
            completion: used.map(|used| used.completion),
            reasoning: used.map(|used| used.reasoning),
            cost: usage.map(|(_, cost)| cost.nanos()),
            attempts: list(&call.attempts),
            steps: list(&call.steps),
            decision: call.decision.as_deref().map(storable),
            places: flat(&call.reservations),
            cache_write: used.map(|used| used.cache_write),
            cache_write_1h: used.map(|used| used.cache_write_1h),
            prices: call.prices.to_stored(),
            provider_cost: call.provider_cost.map(|cost| cost.rounded_up().nanos()),
        };
        serde_json::value::to_raw_value(&columns).expect("numbers and strings serialize")
    }
}

/// Encodes reservations as stored: time, tokens and step of each, concatenated.
pub(crate) fn flat(reservations: &[Reservation]) -> Vec<i64> {
    let number = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    reservations
        .iter()
        .flat_map(|reservation| {
            [
                number(reservation.at_ms),
                number(reservation.tokens),
                i64::from(reservation.step),
            ]
        })
        .collect()
}

/// Decodes reservations from [`flat`].
pub(crate) fn unflatten(flat: &[i64]) -> impl Iterator<Item = Reservation> {
    let number = |number: i64| u64::try_from(number).unwrap_or(0);
    flat.chunks_exact(3).map(move |reservation| Reservation {
        at_ms: number(reservation[0]),
        tokens: number(reservation[1]),
        step: u32::try_from(reservation[2]).unwrap_or(0),
    })
}

/// Replaces NUL, which PostgreSQL's `text` cannot store.
fn storable(text: &str) -> String {
    text.replace('\0', "\u{fffd}")
}

/// As JSON; `None` for an empty list.
fn list<T: Serialize>(items: &[T]) -> Option<String> {
    (!items.is_empty()).then(|| storable(&serde_json::to_string(items).unwrap_or_default()))
}

pub(crate) fn read(row: &Row) -> Result<Call, Error> {
    let price = |column| get(row, column).map(TokenPrice::from_picos);
    let amount = |column| get(row, column).map(NanoUsd::new);
    let outcome: String = get(row, 8)?;
    let charged = match get::<Option<i64>>(row, 23)? {
        None => None,
        Some(cost) => {
            let count = |column| {
                let count = get::<Option<i64>>(row, column)?;
                Ok::<_, Error>(u32::try_from(count.unwrap_or(0)).unwrap_or(0))
            };
            Some(Charged {
                usage: Usage {
                    prompt: count(19)?,
                    cached: count(20)?,
                    cache_write: count(29)?,
                    cache_write_1h: count(30)?,
                    completion: count(21)?,
                    reasoning: count(22)?,
                },
                cost: NanoUsd::new(cost),
                balance_before: amount(24)?,
                balance_after: amount(25)?,
            })
        }
    };
    Ok(Call {
        id: CallId(unsigned(get(row, 0)?)),
        request_id: get(row, 1)?,
        account_id: get(row, 2)?,
        key_id: get(row, 3)?,
        model: get(row, 4)?,
        routed_model: get(row, 5)?,
        upstream: get::<Option<String>>(row, 6)?.map(Arc::from),
        stream: get(row, 7)?,
        outcome: Outcome::parse(&outcome).ok_or_else(|| unreadable("an outcome"))?,
        failure: get(row, 9)?,
        reserved_tokens: unsigned(get(row, 10)?),
        held: amount(11)?,
        most: amount(12)?,
        prices: Prices::from_stored(
            (price(13)?, price(15)?, price(14)?),
            get::<Option<&str>>(row, 31)?,
        )
        .ok_or_else(|| unreadable("prices"))?,
        provider_cost: get::<Option<i64>>(row, 32)?.map(|cost| NanoUsd::new(cost).into()),
        admitted_ms: get(row, 16)?,
        first_byte_ms: get(row, 17)?,
        ended_ms: get(row, 18)?,
        attempts: read_list(row, 26)?,
        steps: read_list(row, 27)?,
        decision: get(row, 28)?,
        reservations: Vec::new(),
        charged,
    })
}

pub(crate) fn get<'a, T: tokio_postgres::types::FromSql<'a>>(
    row: &'a Row,
    column: usize,
) -> Result<T, Error> {
    Ok(row.try_get(column)?)
}

pub(crate) fn unreadable(what: &str) -> Error {
    Error::Unexpected(format!("the database has {what} unknown to this version"))
}

pub(crate) fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

fn read_list<T: DeserializeOwned>(row: &Row, column: usize) -> Result<Vec<T>, Error> {
    let list: Option<String> = get(row, column)?;
    let list = list.and_then(|list| serde_json::from_str(&list).ok());
    Ok(list.unwrap_or_default())
}
