//! Sums of calls by the session of a coding agent.

use super::{Call, Charged, Ledger, LedgerError, SeenCalls, pages::has_nul};
use crate::base::money::NanoUsd;

/// The most rows of a page.
const MAX_ROWS: usize = 1_000;

/// Filter and cursor of a page of sessions; the session that was used last comes first.
#[derive(Clone, Debug, Default)]
pub(crate) struct SessionsPage {
    /// `None` for all accounts.
    pub account_id: Option<String>,
    /// Only calls that this member sees.
    pub seen: Option<SeenCalls>,
    /// Calls count by the time of their end.
    pub from_ms: i64,
    pub to_ms: i64,
    /// The last session of the previous page.
    pub before: Option<SessionCursor>,
    pub limit: usize,
}

/// The position of a session in a list.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SessionCursor {
    pub last_ms: i64,
    pub account_id: String,
    pub session: String,
}

/// Sums of the calls of one session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SessionUse {
    pub account_id: String,
    pub session: String,
    /// The program that the agent is, if it said so.
    pub client: Option<String>,
    /// All admitted calls, whatever their outcome.
    pub calls: u64,
    /// The charged calls; the sums below are of these.
    pub charged: u64,
    pub prompt: u64,
    pub cached: u64,
    pub cache_write: u64,
    pub completion: u64,
    pub reasoning: u64,
    pub cost: NanoUsd,
    /// When the first call was admitted.
    pub first_ms: i64,
    /// When the last call ended.
    pub last_ms: i64,
}

impl Ledger {
    /// One page of sessions. Reads all calls of the period, so periods of one account are best.
    pub(crate) async fn sessions(
        &self,
        page: SessionsPage,
    ) -> Result<Vec<SessionUse>, LedgerError> {
        let cursor = page.before.as_ref();
        let cursor = cursor.map(|cursor| [cursor.account_id.as_str(), &cursor.session]);
        let names = page.account_id.as_deref().into_iter();
        if names
            .chain(cursor.into_iter().flatten())
            .any(|name| has_nul(&[name]))
        {
            return Ok(Vec::new());
        }
        let limit = page.limit.min(MAX_ROWS);
        let page = SessionsPage { limit, ..page };
        match self {
            Self::Embedded(ledger) => ledger.sessions(page).await,
            Self::Shared(ledger) => ledger.sessions(page).await,
        }
    }
}

impl SessionCursor {
    /// Parses what [`Self::to_text`] wrote.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut parts = text.splitn(3, ':');
        Some(Self {
            last_ms: parts.next()?.parse().ok()?,
            account_id: parts.next()?.to_owned(),
            session: parts.next()?.to_owned(),
        })
    }

    pub(crate) fn to_text(&self) -> String {
        format!("{}:{}:{}", self.last_ms, self.account_id, self.session)
    }
}

impl SessionUse {
    /// Its position in a list.
    pub(crate) fn cursor(&self) -> SessionCursor {
        SessionCursor {
            last_ms: self.last_ms,
            account_id: self.account_id.clone(),
            session: self.session.clone(),
        }
    }

    /// How much of the input came from a provider's cache, in hundredths of a percent; `None` without input.
    pub(crate) fn cache_hits(&self) -> Option<u32> {
        let hits = u128::from(self.cached) * 10_000;
        let hits = hits.checked_div(u128::from(self.prompt))?;
        u32::try_from(hits).ok()
    }

    /// The sums of one call; `None` if it names no session.
    pub(super) fn of(call: &Call) -> Option<Self> {
        let agent = call.agent.as_deref()?;
        let mut sums = Self {
            account_id: call.account_id.clone(),
            session: agent.session.as_deref()?.to_owned(),
            client: agent.client.as_deref().map(str::to_owned),
            calls: 1,
            first_ms: call.admitted_ms,
            last_ms: call.ended_ms,
            ..Self::default()
        };
        if let Some(Charged { usage, cost, .. }) = call.charged {
            sums.charged = 1;
            sums.prompt = usage.prompt.into();
            sums.cached = usage.cached.into();
            sums.cache_write = usage.cache_write.into();
            sums.completion = usage.completion.into();
            sums.reasoning = usage.reasoning.into();
            sums.cost = cost;
        }
        Some(sums)
    }

    /// Adds further calls of the same session.
    pub(super) fn add(&mut self, more: &Self) {
        for (sum, more) in [
            (&mut self.calls, more.calls),
            (&mut self.charged, more.charged),
            (&mut self.prompt, more.prompt),
            (&mut self.cached, more.cached),
            (&mut self.cache_write, more.cache_write),
            (&mut self.completion, more.completion),
            (&mut self.reasoning, more.reasoning),
        ] {
            *sum = sum.saturating_add(more);
        }
        let cost = self.cost.nanos().saturating_add(more.cost.nanos());
        self.cost = NanoUsd::new(cost);
        self.client = self.client.take().max(more.client.clone());
        self.first_ms = self.first_ms.min(more.first_ms);
        self.last_ms = self.last_ms.max(more.last_ms);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_parses_as_it_was_written() {
        let cursor = SessionCursor {
            last_ms: 17,
            account_id: "acct_a".into(),
            session: "a:b:c".into(),
        };
        assert_eq!(SessionCursor::parse(&cursor.to_text()), Some(cursor));
        for bad in ["", "17", "17:acct_a", "x:acct_a:s"] {
            assert_eq!(SessionCursor::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn the_share_of_cached_input_is_in_hundredths_of_a_percent() {
        let hits = |cached, prompt| {
            let used = SessionUse {
                prompt,
                cached,
                ..SessionUse::default()
            };
            used.cache_hits()
        };
        assert_eq!(hits(0, 0), None);
        assert_eq!(hits(0, 7), Some(0));
        assert_eq!(hits(1, 3), Some(3_333));
        assert_eq!(hits(u64::MAX, u64::MAX), Some(10_000));
    }
}
