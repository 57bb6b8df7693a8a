//! Queries of alerts, through small indexes.

use tokio_postgres::types::Type;

use super::{Shared, record::get};
use crate::{
    base::money::NanoUsd,
    db::postgres::Error,
    ledger::{Expiring, ExpiringPage, LedgerError},
};

impl Shared {
    pub(crate) async fn expiring(&self, page: &ExpiringPage) -> Result<Vec<Expiring>, LedgerError> {
        self.wait_until_written().await;
        let limit = page.limit;
        let query = format!(
            r#"SELECT g.account_id, g.id, f.remaining_nano_usd, g.expires_at
             FROM credit_grants g JOIN accounts a ON a.id = g.account_id
                 CROSS JOIN LATERAL unnest(a.funds) AS f
             WHERE g.expires_at > $1 AND g.expires_at <= $2 AND f.grant_id = g.id
                 AND f.remaining_nano_usd > 0
                 AND NOT a.closed
                 AND (g.expires_at, g.id COLLATE "C") > ($3, $4)
             ORDER BY g.expires_at, g.id COLLATE "C" LIMIT {limit}"#
        );
        let (at, id) = page.after.clone().unwrap_or((i64::MIN, String::new()));
        let parameters = [
            (&page.from as _, Type::INT8),
            (&page.until as _, Type::INT8),
            (&at as _, Type::INT8),
            (&id as _, Type::TEXT),
        ];
        let rows = self.inner.pool.query(&query, &parameters).await?;
        let found = rows.iter().map(|row| {
            Ok(Expiring {
                account_id: get(row, 0)?,
                grant_id: get(row, 1)?,
                left: NanoUsd::new(get(row, 2)?),
                expires_at: get(row, 3)?,
            })
        });
        Ok(found.collect::<Result<_, Error>>()?)
    }

    pub(crate) async fn frozen_accounts(&self, limit: usize) -> Result<Vec<String>, LedgerError> {
        let query = format!("SELECT id FROM accounts WHERE frozen ORDER BY id LIMIT {limit}");
        let rows = self.inner.pool.query(&query, &[]).await?;
        let ids = rows.iter().map(|row| get(row, 0));
        Ok(ids.collect::<Result<_, Error>>()?)
    }
}
