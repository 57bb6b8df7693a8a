//! Sums of calls by session.

use tokio_postgres::{Row, types::Type};

use super::{
    Shared,
    record::{get, unsigned},
};
use crate::{
    base::money::NanoUsd,
    db::postgres::Error,
    ledger::{LedgerError, SessionUse, SessionsPage},
};

/// Texts are compared by their bytes, whatever the collation of the database.
const PAGE: &str = r#"
    SELECT account_id, detail -> 'agent' ->> 'session' AS session, max(detail -> 'agent' ->> 'client'),
        count(*), count(cost_nano_usd),
        coalesce(sum(prompt_tokens), 0)::bigint, coalesce(sum(cached_tokens), 0)::bigint,
        coalesce(sum(cache_write_tokens), 0)::bigint, coalesce(sum(completion_tokens), 0)::bigint,
        coalesce(sum(reasoning_tokens), 0)::bigint, coalesce(sum(cost_nano_usd), 0)::bigint,
        min(admitted_at_ms), max(ended_at_ms) AS last
    FROM calls
    WHERE ended_at_ms >= $1 AND ended_at_ms < $2 AND ($3 IS NULL OR account_id = $3)
        AND ($8 IS NULL OR member_id = $8 OR project_id = ANY ($9))
        AND detail -> 'agent' ->> 'session' IS NOT NULL
    GROUP BY account_id, session
    HAVING $4 IS NULL OR (max(ended_at_ms), account_id COLLATE "C", (detail -> 'agent' ->> 'session') COLLATE "C")
        < ($4, $5 COLLATE "C", $6 COLLATE "C")
    ORDER BY last DESC, account_id COLLATE "C" DESC, (detail -> 'agent' ->> 'session') COLLATE "C" DESC
    LIMIT $7"#;

impl Shared {
    pub(crate) async fn sessions(
        &self,
        page: SessionsPage,
    ) -> Result<Vec<SessionUse>, LedgerError> {
        self.wait_until_written().await;
        let before = page.before.as_ref();
        let last_ms = before.map(|before| before.last_ms);
        let account_id = before.map(|before| before.account_id.as_str());
        let session = before.map(|before| before.session.as_str());
        let limit = i64::try_from(page.limit).unwrap_or(i64::MAX);
        let seen = page.seen.as_ref();
        let member_id = seen.map(|seen| &seen.member_id);
        let project_ids = seen.map(|seen| &seen.project_ids);
        let parameters = [
            (&page.from_ms as _, Type::INT8),
            (&page.to_ms as _, Type::INT8),
            (&page.account_id as _, Type::TEXT),
            (&last_ms as _, Type::INT8),
            (&account_id as _, Type::TEXT),
            (&session as _, Type::TEXT),
            (&limit as _, Type::INT8),
            (&member_id as _, Type::TEXT),
            (&project_ids as _, Type::TEXT_ARRAY),
        ];
        let rows = self.inner.pool.query(PAGE, &parameters).await?;
        Ok(rows.iter().map(read).collect::<Result<_, _>>()?)
    }
}

fn read(row: &Row) -> Result<SessionUse, Error> {
    let count = |column| get(row, column).map(unsigned);
    Ok(SessionUse {
        account_id: get(row, 0)?,
        session: get(row, 1)?,
        client: get(row, 2)?,
        calls: count(3)?,
        charged: count(4)?,
        prompt: count(5)?,
        cached: count(6)?,
        cache_write: count(7)?,
        completion: count(8)?,
        reasoning: count(9)?,
        cost: NanoUsd::new(get(row, 10)?),
        first_ms: get(row, 11)?,
        last_ms: get(row, 12)?,
    })
}
