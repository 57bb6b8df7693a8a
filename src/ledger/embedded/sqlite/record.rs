//! The columns of a finished call, borrowed from the call, from its row, or from the redo log; and the binary form in
//! which the redo log has them, with the effects of the charge.

use std::sync::Arc;

use rusqlite::{Error, Row, Statement, params};
use serde::{Deserialize, Serialize};

use super::unreadable;
use crate::{
    base::money::{NanoUsd, TokenPrice},
    ledger::{
        Call, CallId, Charged, Outcome, Payer, Step, bill::price, credit::Charge, detail::Detail,
    },
    wire::chat::Usage,
};

/// Version, the first byte of every record. Increase it when [`Record`] changes, and keep reading earlier versions:
/// a redo log may be left by an earlier version of the program.
const FORM: u8 = 3;

/// In the order of [`Record::from_row`].
pub(crate) const COLUMNS: &str = "id, entry_seq, request_id, account_id, key_id, model, routed_model, upstream, stream,
    outcome, failure, admitted_at_ms, first_byte_at_ms, ended_at_ms, reserved_tokens, held_nano_usd,
    worst_case_nano_usd, input_pico_usd, cached_input_pico_usd, output_pico_usd, prompt_tokens, cached_tokens,
    cache_write_tokens, cache_write_1h_tokens, completion_tokens, reasoning_tokens, cost_nano_usd,
    balance_after_nano_usd, provider_cost_nano_usd, detail, project_id, member_id, held_at";

/// Inserts a row of [`COLUMNS`].
pub(crate) fn insert() -> String {
    format!(
        "INSERT INTO calls ({COLUMNS}) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14,
        ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22, ?23, ?24, ?25, ?26, ?27, ?28, ?29, ?30, ?31, ?32, ?33)"
    )
}

/// For lists, which omit the decisions of hybrids: they are long.
pub(crate) fn list_columns() -> String {
    COLUMNS.replace("detail", "json_remove(detail, '$.decision')")
}

#[derive(Serialize, Deserialize)]
pub(crate) struct Record<'a> {
    pub id: i64,
    pub request_id: &'a str,
    pub account_id: &'a str,
    pub key_id: &'a str,
    #[serde(borrow)]
    pub project_id: Option<&'a str>,
    #[serde(borrow)]
    pub member_id: Option<&'a str>,
    pub model: &'a str,
    pub routed_model: &'a str,
    #[serde(borrow)]
    pub upstream: Option<&'a str>,
    pub stream: bool,
    pub outcome: &'a str,
    #[serde(borrow)]
    pub failure: Option<&'a str>,
    pub admitted_at_ms: i64,
    pub first_byte_at_ms: Option<i64>,
    pub ended_at_ms: i64,
    pub reserved_tokens: i64,
    /// Amounts are in nano-dollars, prices in pico-dollars.
    pub held: i64,
    pub worst_case: i64,
    pub input_price: i64,
    pub cached_input_price: i64,
    pub output_price: i64,
    pub paid: Option<Paid>,
    /// Rounded up.
    pub provider_cost: Option<i64>,
    /// See [`Detail`].
    #[serde(borrow)]
    pub detail: Option<&'a str>,
    /// What the charge left of grants. Not in the row, like the debt.
    #[serde(borrow)]
    pub left: Vec<(&'a str, i64)>,
    /// The new debt, if it has changed.
    pub debt: Option<i64>,
}

/// The usage and cost of a charged call.
#[derive(Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Paid {
    pub prompt: u32,
    pub cached: u32,
    pub cache_write: u32,
    pub cache_write_1h: u32,
    pub completion: u32,
    pub reasoning: u32,
    pub cost: i64,
    /// The balance after it.
    pub after: i64,
    /// When its credit was held, in seconds: this decides the period of budgets.
    pub held_at: i64,
}

/// Record header: u32 length, then the sequence number as u64, little-endian.
const LENGTH: usize = size_of::<u32>();
pub(crate) const HEAD: usize = LENGTH + size_of::<u64>();

/// A record with its header, within a sequence of records.
#[derive(Clone, Copy)]
pub(crate) struct Framed<'a> {
    /// The position of its charge in the ledger. A call that was not charged has a number too, but no entry.
    pub seq: i64,
    /// The record including the header.
    pub bytes: &'a [u8],
}

impl<'a> Record<'a> {
    /// `detail` is the call's [`Detail::to_json`].
    pub(crate) fn of(
        call: &'a Call,
        charged: Option<Charged>,
        charge: Option<&'a Charge>,
        detail: Option<&'a str>,
    ) -> Self {
        let left = charge.map_or(&[][..], |charge| &charge.left);
        Self {
            id: number(call.id),
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
            reserved_tokens: i64::try_from(call.reserved_tokens).unwrap_or(i64::MAX),
            held: call.held.nanos(),
            worst_case: call.most.nanos(),
            input_price: call.prices.rates.input.picos(),
            cached_input_price: call.prices.rates.cached_input.picos(),
            output_price: call.prices.rates.output.picos(),
            paid: charged.map(|charged| Paid {
                prompt: charged.usage.prompt,
                cached: charged.usage.cached,
                cache_write: charged.usage.cache_write,
                cache_write_1h: charged.usage.cache_write_1h,
                completion: charged.usage.completion,
                reasoning: charged.usage.reasoning,
                cost: charged.cost.nanos(),
                after: charged.balance_after.nanos(),
                held_at: charge.map_or(call.admitted_ms.div_euclid(1_000), |it| it.held_at),
            }),
            provider_cost: call.provider_cost.map(|cost| cost.rounded_up().nanos()),
            detail,
            left: left
                .iter()
                .map(|left| (&*left.grant_id, left.remaining.nanos()))
                .collect(),
            debt: charge.and_then(|charge| charge.debt).map(NanoUsd::nanos),
        }
    }

    /// Reads a row of [`COLUMNS`].
    pub(crate) fn from_row(row: &'a Row<'_>) -> rusqlite::Result<Self> {
        let text = |column| Ok::<_, Error>(row.get_ref(column)?.as_str()?);
        let maybe_text = |column| Ok::<_, Error>(row.get_ref(column)?.as_str_or_null()?);
        let paid = match row.get(26)? {
            None => None,
            Some(cost) => Some(Paid {
                prompt: row.get(20)?,
                cached: row.get(21)?,
                cache_write: row.get(22)?,
                cache_write_1h: row.get(23)?,
                completion: row.get(24)?,
                reasoning: row.get(25)?,
                cost,
                after: row.get(27)?,
                held_at: row.get(32)?,
            }),
        };
        Ok(Self {
            id: row.get(0)?,
            request_id: text(2)?,
            account_id: text(3)?,
            key_id: text(4)?,
            model: text(5)?,
            routed_model: text(6)?,
            upstream: maybe_text(7)?,
            stream: row.get(8)?,
            outcome: text(9)?,
            failure: maybe_text(10)?,
            admitted_at_ms: row.get(11)?,
            first_byte_at_ms: row.get(12)?,
            ended_at_ms: row.get(13)?,
            reserved_tokens: row.get(14)?,
            held: row.get(15)?,
            worst_case: row.get(16)?,
            input_price: row.get(17)?,
            cached_input_price: row.get(18)?,
            output_price: row.get(19)?,
            paid,
            provider_cost: row.get(28)?,
            detail: maybe_text(29)?,
            project_id: maybe_text(30)?,
            member_id: maybe_text(31)?,
            left: Vec::new(),
            debt: None,
        })
    }

    /// Inserts the call as a row, by the statement of [`insert`]. `seq` is the position of its charge, if it was charged.
    pub(crate) fn insert(&self, insert: &mut Statement<'_>, seq: i64) -> rusqlite::Result<()> {
        let paid = self.paid;
        insert.execute(params![
            self.id,
            paid.map(|_| seq),
            self.request_id,
            self.account_id,
            self.key_id,
            self.model,
            self.routed_model,
            self.upstream,
            self.stream,
            self.outcome,
            self.failure,
            self.admitted_at_ms,
            self.first_byte_at_ms,
            self.ended_at_ms,
            self.reserved_tokens,
            self.held,
            self.worst_case,
            self.input_price,
            self.cached_input_price,
            self.output_price,
            paid.map(|paid| paid.prompt),
            paid.map(|paid| paid.cached),
            paid.map(|paid| paid.cache_write),
            paid.map(|paid| paid.cache_write_1h),
            paid.map(|paid| paid.completion),
            paid.map(|paid| paid.reasoning),
            paid.map(|paid| paid.cost),
            paid.map(|paid| paid.after),
            self.provider_cost,
            self.detail,
            self.project_id,
            self.member_id,
            paid.map(|paid| paid.held_at),
        ])?;
        Ok(())
    }

    /// Appends the record to `bytes`; on an error `bytes` is unchanged.
    pub(crate) fn write(&self, bytes: &mut Vec<u8>, seq: i64) -> rusqlite::Result<()> {
        let before = bytes.len();
        let start = before + HEAD;
        bytes.resize(start + 1 + self.room(), 0);
        bytes[start] = FORM;
        let written = postcard::to_slice(self, &mut bytes[start + 1..]);
        let length = written.ok().map(|written| written.len() + 1);
        let stored = length.and_then(|length| u32::try_from(length).ok());
        let (Some(length), Some(stored)) = (length, stored) else {
            bytes.truncate(before);
            let what = "the record of the call is too long";
            return Err(Error::ToSqlConversionFailure(what.into()));
        };
        let head = &mut bytes[before..start];
        head[..LENGTH].copy_from_slice(&stored.to_le_bytes());
        head[LENGTH..].copy_from_slice(&seq.to_le_bytes());
        bytes.truncate(start + length);
        Ok(())
    }

    /// Upper bound of the encoded length: ten bytes for each number or length.
    fn room(&self) -> usize {
        const NUMBERS: usize = 41;
        let texts = [
            self.request_id,
            self.account_id,
            self.key_id,
            self.project_id.unwrap_or_default(),
            self.member_id.unwrap_or_default(),
            self.model,
            self.routed_model,
            self.upstream.unwrap_or_default(),
            self.outcome,
            self.failure.unwrap_or_default(),
            self.detail.unwrap_or_default(),
        ];
        let texts: usize = texts.iter().map(|text| text.len()).sum();
        let left = self.left.iter().map(|(grant_id, _)| grant_id.len() + 20);
        texts + left.sum::<usize>() + 10 * NUMBERS
    }

    /// The tokens that the call used; if nothing was charged, those of the steps before the failure. If no usage was
    /// reported, the reserved tokens.
    pub(crate) fn used_tokens(&self) -> rusqlite::Result<u64> {
        if let Some(paid) = self.paid {
            return Ok(u64::from(paid.prompt) + u64::from(paid.completion));
        }
        let steps = self
            .read_detail()?
            .steps
            .into_iter()
            .map(|step| match step {
                Step::Provider {
                    prompt_tokens,
                    completion_tokens,
                    ..
                } => u64::from(prompt_tokens) + u64::from(completion_tokens),
                Step::Tool { .. } => 0,
            });
        let counted = steps.sum();
        if self.outcome == Outcome::NoUsage.as_str() {
            return Ok(unsigned(self.reserved_tokens).max(counted));
        }
        Ok(counted)
    }

    /// Whether the call had steps of built-in tools.
    pub(crate) fn has_steps(&self) -> rusqlite::Result<bool> {
        Ok(!self.read_detail()?.steps.is_empty())
    }

    /// What the call was charged to.
    pub(crate) fn payer(&self) -> Payer {
        Payer {
            key_id: self.key_id.to_owned(),
            project_id: self.project_id.map(str::to_owned),
            member_id: self.member_id.map(str::to_owned),
        }
    }

    /// The change of the balance.
    pub(crate) fn delta(&self) -> i64 {
        self.paid.map_or(0, |paid| -paid.cost)
    }

    /// Decodes the call.
    pub(crate) fn call(&self) -> rusqlite::Result<Call> {
        let outcome = Outcome::parse(self.outcome).ok_or_else(|| unreadable(9, "outcome"))?;
        let detail = self.read_detail()?;
        Ok(Call {
            id: CallId(unsigned(self.id)),
            request_id: self.request_id.to_owned(),
            account_id: self.account_id.to_owned(),
            payer: Arc::new(Payer {
                key_id: self.key_id.to_owned(),
                project_id: self.project_id.map(str::to_owned),
                member_id: self.member_id.map(str::to_owned),
            }),
            model: self.model.to_owned(),
            routed_model: self.routed_model.to_owned(),
            upstream: self.upstream.map(Into::into),
            stream: self.stream,
            outcome,
            failure: self.failure.map(str::to_owned),
            reserved_tokens: unsigned(self.reserved_tokens),
            held: NanoUsd::new(self.held),
            most: NanoUsd::new(self.worst_case),
            prices: detail
                .prices(self.token_prices())
                .ok_or_else(|| unreadable(29, "prices"))?,
            provider_cost: self.provider_cost.map(|cost| NanoUsd::new(cost).into()),
            admitted_ms: self.admitted_at_ms,
            first_byte_ms: self.first_byte_at_ms,
            ended_ms: self.ended_at_ms,
            decision: detail.decision(),
            agent: detail.agent.map(Arc::new),
            attempts: detail.attempts,
            steps: detail.steps,
            reservations: Vec::new(),
            idempotency: None,
            charged: self.paid.map(|paid| Charged {
                usage: paid.usage(),
                cost: NanoUsd::new(paid.cost),
                balance_before: NanoUsd::new(paid.after.saturating_add(paid.cost)),
                balance_after: NanoUsd::new(paid.after),
            }),
        })
    }

    fn read_detail(&self) -> rusqlite::Result<Detail> {
        Detail::read(self.detail).ok_or_else(|| unreadable(29, "the detail of a call"))
    }

    /// Input, output and cached input.
    fn token_prices(&self) -> (TokenPrice, TokenPrice, TokenPrice) {
        let price = TokenPrice::from_picos;
        (
            price(self.input_price),
            price(self.output_price),
            price(self.cached_input_price),
        )
    }

    /// The cost recomputed from the stored usage and prices.
    pub(crate) fn price(&self) -> rusqlite::Result<Option<NanoUsd>> {
        let Some(paid) = &self.paid else {
            return Ok(None);
        };
        let detail = self.read_detail()?;
        let prices = detail.prices(self.token_prices());
        let prices = prices.ok_or_else(|| unreadable(29, "prices"))?;
        Ok(Some(price(&prices, &detail.steps, paid.usage())))
    }
}

impl Paid {
    fn usage(&self) -> Usage {
        Usage {
            prompt: self.prompt,
            cached: self.cached,
            cache_write: self.cache_write,
            cache_write_1h: self.cache_write_1h,
            completion: self.completion,
            reasoning: self.reasoning,
        }
    }
}

impl<'a> Framed<'a> {
    pub(crate) fn read(&self) -> rusqlite::Result<Record<'a>> {
        let record = match self.bytes[HEAD..].split_first() {
            Some((&FORM, record)) => postcard::from_bytes(record).ok(),
            _ => None,
        };
        record.ok_or_else(|| unreadable(0, "the record of a call"))
    }

    fn first_of(bytes: &'a [u8]) -> Option<Self> {
        let (length, rest) = bytes.split_first_chunk::<LENGTH>()?;
        let seq = rest.first_chunk()?;
        let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
        let framed = Self {
            seq: i64::from_le_bytes(*seq),
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

pub(crate) fn number(id: CallId) -> i64 {
    i64::try_from(id.0).unwrap_or(i64::MAX)
}

pub(crate) fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}
