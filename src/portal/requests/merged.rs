//! Calls and refused requests in one list, newest first; at the same time calls come first.

use std::iter::Peekable;

use super::filter::{Cursor, Ended, Filter, RowId};
use crate::{
    backoffice::{RefusedFound, RefusedPage, RefusedRequest},
    base::timestamp,
    gateway::Gateway,
    ledger::{Call, CallId, CallsFound, CallsPage, LedgerError, SeenCalls},
    portal::error::PortalError,
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
    /// The page of so many rows that a filter selects.
    pub(crate) async fn read(
        gateway: &Gateway,
        filter: &Filter<'_>,
        of: Of<'_>,
        size: usize,
    ) -> Result<Self, PortalError> {
        // One more tells whether there is a next page.
        let span = Span {
            now: timestamp::now(),
            limit: size + 1,
        };
        let (calls, refused) = tokio::try_join!(
            calls(gateway, filter, of, span),
            refused(gateway, filter, of, span)
        )?;
        Ok(Self::merged(calls, refused, size))
    }

    /// Merges a page of calls with one of refused requests, each of at most one row more than `size`.
    fn merged(calls: CallsFound, refused: RefusedFound, size: usize) -> Self {
        let searched_to_ms = calls.searched_to_ms.max(refused.searched_to_ms);
        // What is from before the end of one search belongs to the next page, as what was not found yet does.
        let to_ms = searched_to_ms.unwrap_or(i64::MIN);
        let calls = calls
            .calls
            .into_iter()
            .filter(|call| call.ended_ms >= to_ms);
        let refused = refused.requests.into_iter().filter(|one| one.at_ms > to_ms);
        let (mut calls, mut refused) = (calls.peekable(), refused.peekable());
        let mut rows = Vec::with_capacity(size + 1);
        while rows.len() <= size
            && let Some(row) = later(&mut calls, &mut refused)
        {
            rows.push(row);
        }
        let more = rows.len() > size;
        rows.truncate(size);
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

/// What is read for a page.
#[derive(Clone, Copy)]
struct Span {
    now: i64,
    limit: usize,
}

/// None where the filter asks for what only refused requests have.
async fn calls(
    gateway: &Gateway,
    filter: &Filter<'_>,
    of: Of<'_>,
    span: Span,
) -> Result<CallsFound, PortalError> {
    if filter.is_of_refused() {
        return Ok(CallsFound::default());
    }
    let page = CallsPage {
        account_id: of.account_id,
        seen: of.seen,
        ..filter.page(span.now, span.limit)
    };
    Ok(gateway.ledger.calls_page(&page).await?)
}

/// None where the filter asks for what only calls have.
async fn refused(
    gateway: &Gateway,
    filter: &Filter<'_>,
    of: Of<'_>,
    span: Span,
) -> Result<RefusedFound, PortalError> {
    let is_of_calls = filter.session.or(filter.upstream).is_some();
    if is_of_calls || matches!(filter.ended, Ended::With(_)) {
        return Ok(RefusedFound::default());
    }
    // The records of a key are found through its account.
    let owner = match (of.account_id, filter.key) {
        (None, Some(key_id)) => match gateway.ledger.key(key_id).await {
            Ok(key) => Some(key.account_id),
            Err(LedgerError::NotFound { .. }) => return Ok(RefusedFound::default()),
            Err(error) => return Err(error.into()),
        },
        _ => None,
    };
    let (seen, account_id) = (of.seen, of.account_id.or(owner.as_deref()));
    let page = RefusedPage {
        seen: seen.map(|seen| (seen.member_id.as_str(), seen.project_ids.as_slice())),
        ..filter.refused_page(account_id, span.now, span.limit)
    };
    gateway.write_refused_now().await;
    Ok(gateway.backoffice.refused_page(&page).await?)
}
