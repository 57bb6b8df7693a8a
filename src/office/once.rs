//! Forms that count once, however often a browser sends them.

use super::{Office, OfficeError, sql::statement};
use crate::auth::random_id;

/// A browser that brings back an old page does so within a month.
const KEPT: i64 = 30 * 24 * 3_600;

impl Office {
    /// Whether a form with this number comes for the first time.
    pub async fn is_first(&self, number: &str, now: i64) -> Result<bool, OfficeError> {
        let taker = random_id("taker_");
        let take = statement(
            "INSERT INTO office_forms (number, taker, expires_at) VALUES ($1, $2, $3)
             ON CONFLICT (number) DO NOTHING",
            [number.into(), taker.as_str().into(), (now + KEPT).into()],
        );
        let look = statement(
            "SELECT taker FROM office_forms WHERE number = $1",
            [number.into()],
        );
        let rows = self.run(vec![take, look]).await?;
        let first = rows.into_iter().next().map(|mut row| row.text());
        Ok(first.transpose()?.is_some_and(|first| first == taker))
    }
}
