//! Call history: lists of calls, sums, and reservations.

use tokio_postgres::{Row, types::Type};

use super::{
    Shared,
    pages::Totals,
    record::{self, COLUMNS, get, unsigned},
};
use crate::{
    base::{
        money::NanoUsd,
        rate::{StoredReservation, WINDOW_MS},
    },
    db::postgres::Error,
    ledger::{AnalyticsFilter, AnalyticsRow, Call, CallId, LedgerError},
};

/// The most rows of a list.
const MAX_ROWS: usize = 10_000;

impl Shared {
    pub(crate) async fn usage(
        &self,
        account_id: &str,
        from: i64,
        to: i64,
    ) -> Result<Vec<Call>, LedgerError> {
        self.account(account_id).await?;
        self.wait_until_written().await;
        let (from_ms, to_ms) = (from.saturating_mul(1_000), to.saturating_mul(1_000));
        let columns = record::columns_of_list();
        let query = format!(
            "SELECT {columns} FROM calls WHERE account_id = $1 AND ended_at_ms >= $2 AND ended_at_ms < $3
                 AND cost_nano_usd IS NOT NULL ORDER BY ended_at_ms DESC, id DESC LIMIT {MAX_ROWS}"
        );
        let parameters = [
            (&account_id as _, Type::TEXT),
            (&from_ms as _, Type::INT8),
            (&to_ms as _, Type::INT8),
        ];
        let rows = self.inner.pool.query(&query, &parameters).await?;
        Ok(rows.iter().map(record::read).collect::<Result<_, _>>()?)
    }

    pub(crate) async fn find_calls(&self, id: &str) -> Result<Vec<Call>, LedgerError> {
        self.wait_until_written().await;
        if let Some(number) = CallId::parse(id) {
            let query = format!("SELECT {COLUMNS} FROM calls WHERE id = $1");
            let number = i64::try_from(number.0).unwrap_or(i64::MAX);
            let rows = self
                .inner
                .pool
                .query(&query, &[(&number, Type::INT8)])
                .await?;
            if let Some(row) = rows.first() {
                return Ok(vec![record::read(row)?]);
            }
        }
        let query =
            format!("SELECT {COLUMNS} FROM calls WHERE id = ANY (ARRAY(SELECT id FROM calls WHERE request_id = $1
                UNION SELECT call_id FROM replays WHERE request_id = $1)) ORDER BY id DESC LIMIT 100");
        let rows = self.inner.pool.query(&query, &[(&id, Type::TEXT)]).await?;
        Ok(rows.iter().map(record::read).collect::<Result<_, _>>()?)
    }

    pub(crate) async fn calls_of_request(
        &self,
        account_id: &str,
        id: &str,
    ) -> Result<Vec<Call>, LedgerError> {
        self.wait_until_written().await;
        let query = format!(
            "SELECT {COLUMNS} FROM calls WHERE id = ANY (ARRAY(SELECT id FROM calls WHERE request_id = $1
                UNION SELECT call_id FROM replays WHERE request_id = $1)) AND account_id = $2
             ORDER BY id DESC LIMIT 100"
        );
        let parameters = [(&id as _, Type::TEXT), (&account_id as _, Type::TEXT)];
        let rows = self.inner.pool.query(&query, &parameters).await?;
        Ok(rows.iter().map(record::read).collect::<Result<_, _>>()?)
    }

    pub(crate) async fn analytics(
        &self,
        filter: AnalyticsFilter,
    ) -> Result<Vec<AnalyticsRow>, LedgerError> {
        self.wait_until_written().await;
        let query =
            "SELECT day_of(ended_at_ms) AS day, account_id, model, count(*), count(cost_nano_usd),
                coalesce(sum(prompt_tokens), 0)::bigint, coalesce(sum(cached_tokens), 0)::bigint,
                coalesce(sum(completion_tokens), 0)::bigint, coalesce(sum(reasoning_tokens), 0)::bigint,
                coalesce(sum(cost_nano_usd), 0)::bigint, coalesce(sum(cache_write_tokens), 0)::bigint,
                coalesce(sum(provider_cost_nano_usd), 0)::bigint,
                coalesce(sum(coalesce(cost_nano_usd, 0) - provider_cost_nano_usd), 0)::bigint,
                count(*) FILTER (WHERE coalesce(cost_nano_usd, 0) < provider_cost_nano_usd)
            FROM calls
            WHERE ended_at_ms >= $1 AND ended_at_ms < $2 AND ($3 IS NULL OR account_id = $3)
                AND ($4 IS NULL OR model = $4)
            GROUP BY day, account_id, model ORDER BY day DESC, account_id, model";
        let parameters = [
            (&filter.from_ms as _, Type::INT8),
            (&filter.to_ms as _, Type::INT8),
            (&filter.account_id as _, Type::TEXT),
            (&filter.model as _, Type::TEXT),
        ];
        let rows = self.inner.pool.query(query, &parameters).await?;
        Ok(rows.iter().map(read_analytics).collect::<Result<_, _>>()?)
    }

    /// Every reservation of the current rate-limit window, for a limiter that has lost its state: of running calls with
    /// their reserved tokens, of ended calls with the tokens they used.
    pub(crate) async fn reservations_in_window(
        &self,
    ) -> Result<Vec<StoredReservation>, LedgerError> {
        // The limiter has its own clock: twice the window covers the difference of the two.
        let window = i64::try_from(2 * WINDOW_MS).unwrap_or(i64::MAX);
        let now_ms = self.inner.clock.now_ms();
        let since = now_ms - window;
        // Keys with ceilings of their own have windows of their own, over all models.
        let query = "WITH reserved AS (
                SELECT account_id, key_id, model, id, to_jsonb(reservations)::text AS reservations FROM holds
                UNION ALL
                SELECT account_id, key_id, model, id, (detail -> 'reservations')::text FROM calls
                WHERE ended_at_ms >= $1 AND detail ? 'reservations')
            SELECT account_id, model, id, reservations FROM reserved
            UNION ALL
            SELECT key_id, '*', reserved.id, reservations
            FROM reserved JOIN api_keys ON api_keys.id = key_id WHERE rpm IS NOT NULL OR tpm IS NOT NULL";
        let rows = self
            .inner
            .pool
            .query(query, &[(&since, Type::INT8)])
            .await?;
        let mut reservations = Vec::new();
        for row in &rows {
            let (account, model): (String, String) = (get(row, 0)?, get(row, 1)?);
            let call: i64 = get(row, 2)?;
            let reserved = record::read_reservations(get(row, 3)?)?;
            let call = CallId(unsigned(call));
            // A call ID contains its start time. By the limiter's clock, later steps came this much after the first.
            let age_ms = unsigned(now_ms - call.started_ms());
            let first_ms = reserved.first().map_or(0, |first| first.at_ms);
            reservations.extend(reserved.iter().map(|reservation| StoredReservation {
                account: account.clone(),
                model: model.clone(),
                call: call.0,
                step: reservation.step,
                at_ms: reservation.at_ms,
                age_ms: age_ms.saturating_sub(reservation.at_ms.saturating_sub(first_ms)),
                tokens: reservation.tokens,
            }));
        }
        Ok(reservations)
    }
}

fn read_analytics(row: &Row) -> Result<AnalyticsRow, Error> {
    let totals = Totals::read(row)?;
    Ok(AnalyticsRow {
        day: get(row, 0)?,
        account_id: get(row, 1)?,
        model: get(row, 2)?,
        calls: totals.calls,
        charged: totals.charged,
        prompt: totals.prompt,
        cached: totals.cached,
        completion: totals.completion,
        reasoning: totals.reasoning,
        cost: totals.cost,
        cache_write: unsigned(get(row, 10)?),
        provider_cost: NanoUsd::new(get(row, 11)?),
        margin: NanoUsd::new(get(row, 12)?),
        below_cost: unsigned(get(row, 13)?),
    })
}
