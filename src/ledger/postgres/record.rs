//! A call as a row: encoded as JSON, which the database turns into columns, and read back.

use std::sync::Arc;

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Map, Value, value::RawValue};
use tokio_postgres::Row;

use crate::{
    base::{
        money::{NanoUsd, TokenPrice},
        rate::Reservation,
    },
    catalog::Prices,
    db::postgres::{Error, storable},
    ledger::{Attempt, Call, CallId, Charged, Outcome, Payer, Step},
    wire::{agent::Agent, chat::Usage},
};

/// In the order in which [`read`] reads them.
pub(crate) const COLUMNS: &str =
    "id, request_id, account_id, key_id, model, routed_model, upstream, stream, outcome, failure,
    admitted_at_ms, first_byte_at_ms, ended_at_ms, reserved_tokens, held_nano_usd, worst_case_nano_usd,
    input_pico_usd, cached_input_pico_usd, output_pico_usd, prompt_tokens, cached_tokens, cache_write_tokens,
    cache_write_1h_tokens, completion_tokens, reasoning_tokens, cost_nano_usd, balance_after_nano_usd,
    provider_cost_nano_usd, (detail - '{paid,reservations}'::text[])::text, project_id, member_id";

/// [`COLUMNS`] for lists of calls, which omit the decisions of hybrids, because these are long.
pub(crate) fn columns_of_list() -> String {
    COLUMNS.replace("{paid,", "{decision,paid,")
}

pub(crate) struct CallRecord<'a> {
    pub call: &'a Call,
    /// Its usage and cost, if it is to be charged.
    pub usage: Option<(Usage, NanoUsd)>,
}

/// The columns of `calls`, except those that the database sets.
#[derive(Serialize)]
struct Columns<'a> {
    id: u64,
    request_id: &'a str,
    account_id: &'a str,
    key_id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    project_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    member_id: Option<&'a str>,
    model: &'a str,
    routed_model: &'a str,
    upstream: Option<&'a str>,
    stream: bool,
    outcome: &'static str,
    failure: Option<&'a str>,
    admitted_at_ms: i64,
    first_byte_at_ms: Option<i64>,
    ended_at_ms: i64,
    reserved_tokens: u64,
    held_nano_usd: i64,
    worst_case_nano_usd: i64,
    input_pico_usd: i64,
    cached_input_pico_usd: i64,
    output_pico_usd: i64,
    prompt_tokens: Option<u32>,
    cached_tokens: Option<u32>,
    cache_write_tokens: Option<u32>,
    cache_write_1h_tokens: Option<u32>,
    completion_tokens: Option<u32>,
    reasoning_tokens: Option<u32>,
    cost_nano_usd: Option<i64>,
    provider_cost_nano_usd: Option<i64>,
    /// Absent, not null, if it is empty: a charge adds to it.
    #[serde(skip_serializing_if = "Detail::is_empty")]
    detail: Detail<'a>,
}

/// What few calls have, in the column `detail`.
#[derive(Serialize)]
struct Detail<'a> {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    attempts: Vec<Attempt>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    steps: Vec<Step>,
    #[serde(skip_serializing_if = "Option::is_none")]
    decision: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    agent: Option<&'a Agent>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prices: Option<Value>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    reservations: Vec<EncodedReservation>,
}

/// A reservation with numbers that the database can store: the type `reservation`.
#[derive(Serialize, Deserialize)]
pub(crate) struct EncodedReservation {
    at_ms: i64,
    tokens: i64,
    step: i32,
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
            request_id: &call.request_id,
            account_id: &call.account_id,
            key_id: &call.payer.key_id,
            project_id: call.payer.project_id.as_deref(),
            member_id: call.payer.member_id.as_deref(),
            model: &call.model,
            routed_model: &call.routed_model,
            upstream: call.upstream.as_deref(),
            stream: call.stream,
            outcome: call.outcome.as_str(),
            failure: call.failure.as_deref(),
            admitted_at_ms: call.admitted_ms,
            first_byte_at_ms: call.first_byte_ms,
            ended_at_ms: call.ended_ms,
            reserved_tokens: call.reserved_tokens,
            held_nano_usd: call.held.nanos(),
            worst_case_nano_usd: call.most.nanos(),
            input_pico_usd: rates.input.picos(),
            cached_input_pico_usd: rates.cached_input.picos(),
            output_pico_usd: rates.output.picos(),
            prompt_tokens: used.map(|used| used.prompt),
            cached_tokens: used.map(|used| used.cached),
            cache_write_tokens: used.map(|used| used.cache_write),
            cache_write_1h_tokens: used.map(|used| used.cache_write_1h),
            completion_tokens: used.map(|used| used.completion),
            reasoning_tokens: used.map(|used| used.reasoning),
            cost_nano_usd: usage.map(|(_, cost)| cost.nanos()),
            provider_cost_nano_usd: call.provider_cost.map(|cost| cost.rounded_up().nanos()),
            detail: Detail::of(call),
        };
        let json = serde_json::to_string(&columns).expect("numbers and strings serialize");
        RawValue::from_string(storable::json(&json).into_owned())
            .expect("an escape replaces an escape")
    }
}

impl<'a> Detail<'a> {
    fn of(call: &'a Call) -> Self {
        // The JSON as such, so that queries can read it.
        let value = |json: &str| serde_json::from_str(json).unwrap_or_else(|_| json.into());
        Self {
            attempts: call.attempts.clone(),
            steps: call.steps.clone(),
            decision: call.decision.as_deref().map(value),
            agent: call.agent.as_deref(),
            prices: call.prices.to_stored().as_deref().map(value),
            reservations: call.reservations.iter().map(From::from).collect(),
        }
    }

    fn is_empty(&self) -> bool {
        let no_values = self.decision.is_none() && self.agent.is_none() && self.prices.is_none();
        no_values
            && self.attempts.is_empty()
            && self.steps.is_empty()
            && self.reservations.is_empty()
    }
}

impl From<&Reservation> for EncodedReservation {
    fn from(reservation: &Reservation) -> Self {
        Self {
            at_ms: i64::try_from(reservation.at_ms).unwrap_or(i64::MAX),
            tokens: i64::try_from(reservation.tokens).unwrap_or(i64::MAX),
            step: i32::try_from(reservation.step).unwrap_or(i32::MAX),
        }
    }
}

/// Reads reservations from a JSON list.
pub(crate) fn read_reservations(json: &str) -> Result<Vec<Reservation>, Error> {
    let list: Vec<EncodedReservation> =
        serde_json::from_str(json).map_err(|_| unreadable("reservations"))?;
    let reservations = list.into_iter().map(|encoded| Reservation {
        at_ms: unsigned(encoded.at_ms),
        tokens: unsigned(encoded.tokens),
        step: u32::try_from(encoded.step).unwrap_or(0),
    });
    Ok(reservations.collect())
}

pub(crate) fn read(row: &Row) -> Result<Call, Error> {
    let price = |column| get(row, column).map(TokenPrice::from_picos);
    let amount = |column| get(row, column).map(NanoUsd::new);
    let outcome: String = get(row, 8)?;
    let mut detail = read_detail(get(row, 28)?)?;
    let prices = detail.get("prices").map(Value::to_string);
    let rates = (price(16)?, price(18)?, price(17)?);
    Ok(Call {
        id: CallId(unsigned(get(row, 0)?)),
        request_id: get(row, 1)?,
        account_id: get(row, 2)?,
        payer: Arc::new(Payer {
            key_id: get(row, 3)?,
            project_id: get(row, 29)?,
            member_id: get(row, 30)?,
        }),
        model: get(row, 4)?,
        routed_model: get(row, 5)?,
        upstream: get::<Option<String>>(row, 6)?.map(Arc::from),
        stream: get(row, 7)?,
        outcome: Outcome::parse(&outcome).ok_or_else(|| unreadable("an outcome"))?,
        failure: get(row, 9)?,
        admitted_ms: get(row, 10)?,
        first_byte_ms: get(row, 11)?,
        ended_ms: get(row, 12)?,
        reserved_tokens: unsigned(get(row, 13)?),
        held: amount(14)?,
        most: amount(15)?,
        prices: Prices::from_stored(rates, prices.as_deref())
            .ok_or_else(|| unreadable("prices"))?,
        charged: read_charge(row)?,
        provider_cost: get::<Option<i64>>(row, 27)?.map(|cost| NanoUsd::new(cost).into()),
        decision: detail.remove("decision").map(|decision| match decision {
            Value::String(text) => text,
            json => json.to_string(),
        }),
        agent: take(&mut detail, "agent").map(Arc::new),
        attempts: take_list(&mut detail, "attempts"),
        steps: take_list(&mut detail, "steps"),
        reservations: Vec::new(),
        idempotency: None,
    })
}

fn read_detail(json: Option<&str>) -> Result<Map<String, Value>, Error> {
    let parsed = json.map_or(Ok(Map::new()), serde_json::from_str);
    parsed.map_err(|_| unreadable("details of a call"))
}

/// `None` if it is missing, or if another version has stored it so that this one cannot parse it.
fn take<T: DeserializeOwned>(detail: &mut Map<String, Value>, name: &str) -> Option<T> {
    let value = detail.remove(name).map(serde_json::from_value);
    value.and_then(Result::ok)
}

fn take_list<T: DeserializeOwned>(detail: &mut Map<String, Value>, name: &str) -> Vec<T> {
    take(detail, name).unwrap_or_default()
}

fn read_charge(row: &Row) -> Result<Option<Charged>, Error> {
    let Some(cost) = get::<Option<i64>>(row, 25)? else {
        return Ok(None);
    };
    let count = |column| {
        let count = get::<Option<i64>>(row, column)?;
        Ok::<_, Error>(u32::try_from(count.unwrap_or(0)).unwrap_or(0))
    };
    let balance_after: i64 = get(row, 26)?;
    Ok(Some(Charged {
        usage: Usage {
            prompt: count(19)?,
            cached: count(20)?,
            cache_write: count(21)?,
            cache_write_1h: count(22)?,
            completion: count(23)?,
            reasoning: count(24)?,
        },
        cost: NanoUsd::new(cost),
        balance_before: NanoUsd::new(balance_after.saturating_add(cost)),
        balance_after: NanoUsd::new(balance_after),
    }))
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
