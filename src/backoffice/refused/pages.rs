//! Pages of refused requests, newest first, with filters.

use super::{
    super::sql::{Statement, Value, statement},
    Backoffice, BackofficeError, RefusedRequest,
};

/// The most records of all accounts that a page with filters looks at. Few in the tests of this package, whose lists go on
/// where a search has ended.
const MAX_SEARCHED: usize = if cfg!(test) { 30 } else { 100_000 };

/// Filter and cursor of a page of refused requests, newest first.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RefusedPage<'a> {
    pub account_id: Option<&'a str>,
    pub key_id: Option<&'a str>,
    pub model: Option<&'a str>,
    pub project_id: Option<&'a str>,
    pub member_id: Option<&'a str>,
    pub status: Option<u16>,
    pub code: Option<&'a str>,
    /// From this time on, and before that one.
    pub from_ms: Option<i64>,
    pub to_ms: Option<i64>,
    /// Only those of keys of this member, or of these projects.
    pub seen: Option<(&'a str, &'a [String])>,
    /// Cursor: time and ID of the last record of the previous page.
    pub before: Option<(i64, &'a str)>,
    pub limit: usize,
}

/// A page of refused requests.
#[derive(Debug, Default)]
pub(crate) struct RefusedFound {
    /// Newest first.
    pub requests: Vec<RefusedRequest>,
    /// The page looked at [`MAX_SEARCHED`] records, back to this time, and is not full: there may be older ones.
    pub searched_to_ms: Option<i64>,
}

impl RefusedFound {
    /// Cuts the requests to a page of so many. Returns the cursor of the next page, if there may be one.
    pub(crate) fn cut(&mut self, size: usize) -> Option<(i64, String)> {
        let more = self.requests.len() > size;
        self.requests.truncate(size);
        let last = self.requests.last().filter(|_| more);
        let last = last.map(|last| (last.at_ms, last.id.clone()));
        last.or(self.searched_to_ms.map(|ms| (ms, String::new())))
    }
}

impl RefusedPage<'_> {
    /// Whether it has a filter without an index.
    fn is_searched(&self) -> bool {
        let names = [
            self.key_id,
            self.model,
            self.project_id,
            self.member_id,
            self.code,
        ];
        names.iter().any(Option::is_some) || self.status.is_some() || self.seen.is_some()
    }
}

impl Backoffice {
    /// One page of refused requests, newest first. Among those of all accounts a page with filters looks at the newest
    /// [`MAX_SEARCHED`]; an account has few.
    pub(crate) async fn refused_page(
        &self,
        page: &RefusedPage<'_>,
    ) -> Result<RefusedFound, BackofficeError> {
        let floor_ms = match page.account_id {
            None if page.is_searched() => self.refused_floor(page).await?,
            _ => None,
        };
        let requests = self
            .refused_from(&RefusedPage {
                from_ms: page.from_ms.max(floor_ms),
                ..*page
            })
            .await?;
        Ok(RefusedFound {
            searched_to_ms: floor_ms.filter(|_| requests.len() < page.limit),
            requests,
        })
    }

    /// The time of the last record that a page may look at; `None` if there are not so many.
    async fn refused_floor(&self, page: &RefusedPage<'_>) -> Result<Option<i64>, BackofficeError> {
        let (before_ms, _) = page.before.unwrap_or((i64::MAX, ""));
        let select = statement(
            "SELECT at_ms FROM backoffice_refused WHERE at_ms >= $1 AND at_ms < $2 AND at_ms <= $3
             ORDER BY at_ms DESC, id DESC LIMIT 1 OFFSET $4",
            [
                page.from_ms.unwrap_or(i64::MIN).into(),
                page.to_ms.unwrap_or(i64::MAX).into(),
                before_ms.into(),
                i64::try_from(MAX_SEARCHED).unwrap_or(i64::MAX).into(),
            ],
        );
        let row = self.run(vec![select]).await?.into_iter().next();
        row.map(|mut row| row.int()).transpose()
    }

    async fn refused_from(
        &self,
        page: &RefusedPage<'_>,
    ) -> Result<Vec<RefusedRequest>, BackofficeError> {
        let (before_ms, before_id) = page.before.unwrap_or((i64::MAX, ""));
        let (seen_member_id, projects) = match page.seen {
            Some((member_id, projects)) => (Some(member_id), format!(",{},", projects.join(","))),
            None => (None, String::new()),
        };
        let filter: [Value; 13] = [
            page.key_id.into(),
            page.model.into(),
            i64::from(page.status.unwrap_or(0)).into(),
            page.code.into(),
            page.from_ms.unwrap_or(i64::MIN).into(),
            page.to_ms.unwrap_or(i64::MAX).into(),
            seen_member_id.into(),
            projects.as_str().into(),
            page.project_id.into(),
            page.member_id.into(),
            before_ms.into(),
            before_id.into(),
            i64::try_from(page.limit).unwrap_or(i64::MAX).into(),
        ];
        // Two statements, so that each is served by its index.
        let select = match page.account_id {
            None => Statement {
                sql: refused_where!(
                    "($1 IS NULL OR key_id = $1) AND ($2 IS NULL OR model = $2)
                         AND ($3 = 0 OR status = $3) AND ($4 IS NULL OR code = $4)
                         AND at_ms >= $5 AND at_ms < $6
                         AND ($7 IS NULL OR member_id = $7 OR $8 LIKE '%,' || project_id || ',%')
                         AND ($9 IS NULL OR coalesce(project_id, 'default') = $9)
                         AND ($10 IS NULL OR member_id = $10)
                         AND at_ms <= $11 AND (at_ms < $11 OR id < $12)
                     ORDER BY at_ms DESC, id DESC LIMIT $13"
                ),
                values: filter.into(),
            },
            Some(account_id) => Statement {
                sql: refused_where!(
                    "account_id = $1
                         AND ($2 IS NULL OR key_id = $2) AND ($3 IS NULL OR model = $3)
                         AND ($4 = 0 OR status = $4) AND ($5 IS NULL OR code = $5)
                         AND at_ms >= $6 AND at_ms < $7
                         AND ($8 IS NULL OR member_id = $8 OR $9 LIKE '%,' || project_id || ',%')
                         AND ($10 IS NULL OR coalesce(project_id, 'default') = $10)
                         AND ($11 IS NULL OR member_id = $11)
                         AND at_ms <= $12 AND (at_ms < $12 OR id < $13)
                     ORDER BY at_ms DESC, id DESC LIMIT $14"
                ),
                values: std::iter::once(account_id.into()).chain(filter).collect(),
            },
        };
        self.refused_rows(select).await
    }
}
