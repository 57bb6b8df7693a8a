//! Calls and refused requests in one list, newest first; at the same time calls come first.

use std::iter::Peekable;

use super::filter::{Cursor, Ended, Filter, RowId};
use crate::{
    backoffice::{RefusedPage, RefusedRequest},
    base::timestamp,
    gateway::Gateway,
    ledger::{Call, CallId, CallsFound, CallsPage, LedgerError, SeenCalls},
    portal::{error::PortalError, paging},
};

#[derive(Debug)]
pub(crate) enum Listed {
    Call(Box<Call>),
    Refused(Box<RefusedRequest>),
}

/// A page of requests.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    pub rows: Vec<Listed>,
    /// The search for calls went back to this time and stopped there: there may be older ones.
    pub searched_to_ms: Option<i64>,
    more: bool,
}

/// Whose requests are listed: those of one account or of all, as far as the reader sees them.
#[derive(Clone, Copy, Default)]
pub(crate) struct Of<'a> {
    pub account_id: Option<&'a str>,
    pub seen: Option<&'a SeenCalls>,
}

impl Requests {
    /// The page that a filter selects.
    pub(crate) async fn read(
        gateway: &Gateway,
        filter: &Filter<'_>,
        of: Of<'_>,
    ) -> Result<Self, PortalError> {
        let now = timestamp::now();
        let (calls, refused) = tokio::try_join!(
            calls(gateway, filter, of, now),
            refused(gateway, filter, of, now)
        )?;
        Ok(Self::merged(calls, refused))
    }

    /// Merges a page of calls with one of refused requests, each of at most [`paging::QUERIED`] rows.
    fn merged(found: CallsFound, refused: Vec<RefusedRequest>) -> Self {
        let searched_to_ms = found.searched_to_ms;
        // Refused requests from before the end of the search belong to the next page, as calls do that were not found yet.
        let is_in_reach = |one: &RefusedRequest| searched_to_ms.is_none_or(|to| one.at_ms > to);
        let mut calls = found.calls.into_iter().peekable();
        let mut refused = refused.into_iter().filter(is_in_reach).peekable();
        let mut rows = Vec::with_capacity(paging::QUERIED);
        while rows.len() < paging::QUERIED
            && let Some(row) = later(&mut calls, &mut refused)
        {
            rows.push(row);
        }
        let more = rows.len() > paging::PAGE_SIZE;
        rows.truncate(paging::PAGE_SIZE);
        Self {
            rows,
            searched_to_ms: searched_to_ms.filter(|_| !more),
            more,
        }
    }

    /// Where the next page begins, if there is one.
    pub(crate) fn next(&self) -> Option<Cursor<'_>> {
        let searched_to = self.searched_to_ms.map(|ended_ms| Cursor {
            ended_ms,
            id: RowId::Call(CallId(0)),
        });
        let last = self.rows.last().filter(|_| self.more).map(Listed::cursor);
        last.or(searched_to)
    }

    pub(crate) fn key_ids(&self) -> impl Iterator<Item = &str> {
        self.rows.iter().map(|row| match row {
            Listed::Call(call) => call.payer.key_id.as_str(),
            Listed::Refused(one) => one.key_id.as_str(),
        })
    }

    pub(crate) fn account_ids(&self) -> impl Iterator<Item = &str> {
        self.rows.iter().map(|row| match row {
            Listed::Call(call) => call.account_id.as_str(),
            Listed::Refused(one) => one.account_id.as_str(),
        })
    }
}

impl Listed {
    fn cursor(&self) -> Cursor<'_> {
        match self {
            Self::Call(call) => Cursor {
                ended_ms: call.ended_ms,
                id: RowId::Call(call.id),
            },
            Self::Refused(one) => Cursor {
                ended_ms: one.at_ms,
                id: RowId::Refused(&one.id),
            },
        }
    }
}

/// The later one of the first call and the first refused request.
fn later(
    calls: &mut Peekable<impl Iterator<Item = Call>>,
    refused: &mut Peekable<impl Iterator<Item = RefusedRequest>>,
) -> Option<Listed> {
    let call_ms = calls.peek().map(|call| call.ended_ms);
    let refused_ms = refused.peek().map(|one| one.at_ms);
    if call_ms.is_some() && call_ms >= refused_ms {
        return calls.next().map(|call| Listed::Call(Box::new(call)));
    }
    refused.next().map(|one| Listed::Refused(Box::new(one)))
}

async fn calls(
    gateway: &Gateway,
    filter: &Filter<'_>,
    of: Of<'_>,
    now: i64,
) -> Result<CallsFound, PortalError> {
    if filter.ended == Ended::Refused {
        return Ok(CallsFound::default());
    }
    let page = CallsPage {
        account_id: of.account_id,
        seen: of.seen,
        ..filter.page(now, paging::QUERIED)
    };
    Ok(gateway.ledger.calls_page(&page).await?)
}

/// None where the filter asks for what only calls have.
async fn refused(
    gateway: &Gateway,
    filter: &Filter<'_>,
    of: Of<'_>,
    now: i64,
) -> Result<Vec<RefusedRequest>, PortalError> {
    let is_of_calls = filter.session.or(filter.upstream).is_some();
    if is_of_calls || matches!(filter.ended, Ended::With(_)) {
        return Ok(Vec::new());
    }
    // The records of a key are found through its account.
    let owner = match (of.account_id, filter.key) {
        (None, Some(key_id)) => match gateway.ledger.key(key_id).await {
            Ok(key) => Some(key.account_id),
            Err(LedgerError::NotFound { .. }) => return Ok(Vec::new()),
            Err(error) => return Err(error.into()),
        },
        _ => None,
    };
    let (from_ms, to_ms) = filter.times.bounds(now);
    let seen = of.seen;
    let page = RefusedPage {
        account_id: of.account_id.or(owner.as_deref()),
        key_id: filter.key,
        model: filter.model,
        project_id: filter.project,
        member_id: filter.member,
        from_ms,
        to_ms,
        seen: seen.map(|seen| (seen.member_id.as_str(), seen.project_ids.as_slice())),
        before: filter.before.map(Cursor::before_refused),
        limit: paging::QUERIED,
        ..RefusedPage::default()
    };
    gateway.write_refused_now().await;
    Ok(gateway.backoffice.refused_page(&page).await?)
}
