//! Sums of calls by session: of their rows, and of the redo log.

use std::{cmp::Reverse, collections::HashMap};

use rusqlite::{Connection, Row, params};

use super::{record::unsigned, redo_log::unposted_calls};
use crate::{
    base::money::NanoUsd,
    ledger::{SessionCursor, SessionUse, SessionsPage},
};

/// One page of sessions, the one that was used last first.
pub(crate) fn page(
    connection: &Connection,
    page: &SessionsPage,
) -> rusqlite::Result<Vec<SessionUse>> {
    let account_id = page.account_id.as_deref();
    let mut unposted = unposted(connection, page)?;
    // Without an account the condition must not hide the index of times.
    let account = account_id.map_or("?3 IS NULL", |_| "account_id = ?3");
    let (member_id, project_ids) = match &page.seen {
        Some(seen) => (
            Some(&seen.member_id),
            serde_json::to_string(&seen.project_ids).ok(),
        ),
        None => (None, None),
    };
    let query = format!(
        "SELECT account_id, json_extract(detail, '$.agent.session') AS session,
             max(json_extract(detail, '$.agent.client')), count(*), count(cost_nano_usd),
             coalesce(sum(prompt_tokens), 0), coalesce(sum(cached_tokens), 0),
             coalesce(sum(cache_write_tokens), 0), coalesce(sum(completion_tokens), 0),
             coalesce(sum(reasoning_tokens), 0), coalesce(sum(cost_nano_usd), 0),
             min(admitted_at_ms), max(ended_at_ms)
         FROM calls
         WHERE ended_at_ms >= ?1 AND ended_at_ms < ?2 AND {account}
             AND (?4 IS NULL OR member_id = ?4 OR project_id IN (SELECT value FROM json_each(?5)))
             AND json_extract(detail, '$.agent.session') IS NOT NULL
         GROUP BY account_id, session"
    );
    let mut latest = Latest::of(page);
    let mut rows = connection.prepare_cached(&query)?;
    let rows = rows.query_map(
        params![page.from_ms, page.to_ms, account_id, member_id, project_ids],
        read,
    )?;
    for row in rows {
        let mut used = row?;
        if let Some(more) = unposted.remove(&key(&used)) {
            used.add(&more);
        }
        latest.add(used);
    }
    for used in unposted.into_values() {
        latest.add(used);
    }
    Ok(latest.sorted())
}

fn key(used: &SessionUse) -> (String, String) {
    (used.account_id.clone(), used.session.clone())
}

/// The sums of calls that are not posted yet.
fn unposted(
    connection: &Connection,
    page: &SessionsPage,
) -> rusqlite::Result<HashMap<(String, String), SessionUse>> {
    let account_id = page.account_id.as_deref();
    let calls = unposted_calls(connection, |record| {
        (page.from_ms..page.to_ms).contains(&record.ended_at_ms)
            && account_id.is_none_or(|account_id| record.account_id == account_id)
            && (page.seen.as_ref())
                .is_none_or(|seen| seen.include(record.member_id, record.project_id))
    })?;
    let mut sessions: HashMap<_, SessionUse> = HashMap::new();
    for used in calls.iter().filter_map(|(_, call)| SessionUse::of(call)) {
        match sessions.get_mut(&key(&used)) {
            Some(sums) => sums.add(&used),
            None => drop(sessions.insert(key(&used), used)),
        }
    }
    Ok(sessions)
}

/// The latest sessions after the cursor. Memory does not grow with the number of sessions.
struct Latest<'a> {
    before: Option<&'a SessionCursor>,
    limit: usize,
    found: Vec<SessionUse>,
}

impl<'a> Latest<'a> {
    fn of(page: &'a SessionsPage) -> Self {
        Self {
            before: page.before.as_ref(),
            limit: page.limit,
            found: Vec::new(),
        }
    }

    fn add(&mut self, used: SessionUse) {
        if self.before.is_some_and(|before| used.cursor() >= *before) {
            return;
        }
        self.found.push(used);
        if self.found.len() > 2 * self.limit {
            self.cut();
        }
    }

    fn cut(&mut self) {
        self.found.sort_by_cached_key(|used| Reverse(used.cursor()));
        self.found.truncate(self.limit);
    }

    fn sorted(mut self) -> Vec<SessionUse> {
        self.cut();
        self.found
    }
}

fn read(row: &Row<'_>) -> rusqlite::Result<SessionUse> {
    let count = |column| row.get(column).map(unsigned);
    Ok(SessionUse {
        account_id: row.get(0)?,
        session: row.get(1)?,
        client: row.get(2)?,
        calls: count(3)?,
        charged: count(4)?,
        prompt: count(5)?,
        cached: count(6)?,
        cache_write: count(7)?,
        completion: count(8)?,
        reasoning: count(9)?,
        cost: NanoUsd::new(row.get(10)?),
        first_ms: row.get(11)?,
        last_ms: row.get(12)?,
    })
}
