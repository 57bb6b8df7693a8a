//! Audits: whether everything adds up, in one snapshot of the database.

use std::{
    collections::BTreeSet,
    sync::atomic::Ordering::Relaxed,
    time::{Duration, Instant},
};

use tokio::time::timeout;
use tokio_postgres::types::Type;

use super::{Shared, record::get};
use crate::{
    db::postgres::{Address, Connected, Error},
    ledger::{Audit, CallId, LedgerError, Violation},
};

const TIMEOUT: Duration = Duration::from_mins(10);
/// How many accounts are swept in one transaction.
const SWEEP_BATCH: i32 = 200;
/// After this many seconds the transaction that drew a sequence number has certainly ended.
const SETTLED: i64 = 120;

/// Locks the calls before the first query takes the snapshot: calls that another transaction moves from one table to
/// another would be in neither of them if the snapshot were older than the lock.
pub(super) const BEGIN: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY;
    LOCK TABLE calls IN ACCESS SHARE MODE";

/// Each query returns inconsistent accounts with a description. `$1` is the sequence number of the last audited entry;
/// zero audits everything.
const CHECKS: [&str; 10] = [
    // Each entry against the one before it.
    "WITH entries AS (
         SELECT account_id, seq, kind, delta_nano_usd, balance_after_nano_usd,
             lag(balance_after_nano_usd) OVER of_account AS before, row_number() OVER of_account AS number
         FROM ledger WHERE seq > $1
         WINDOW of_account AS (PARTITION BY account_id ORDER BY seq)
     ), preceded AS (
         SELECT e.account_id, e.seq, kind, delta_nano_usd, e.balance_after_nano_usd AS after,
             coalesce(e.before, p.balance_after_nano_usd) AS before
         FROM entries e LEFT JOIN LATERAL (SELECT balance_after_nano_usd
             FROM entries_before(e.account_id, e.seq, 1) WHERE $1 > 0 AND e.number = 1) p ON true
     )
     SELECT account_id, CASE WHEN kind = 'opening' AND before IS NOT NULL
         THEN format('entry %s is an opening, but there are entries before it', seq)
         ELSE format('entry %s has balance %s nano-dollars, but the entries add up to %s', seq, after,
             coalesce(before, 0) + delta_nano_usd) END
     FROM preceded WHERE after <> coalesce(before, 0) + delta_nano_usd
         OR (kind = 'opening' AND before IS NOT NULL)",
    // Each charge against the tokens and prices of its call.
    "SELECT account_id, format('the charge of call %s differs from the cost of its tokens', id) FROM calls
     WHERE entry_seq > $1 AND cost_nano_usd IS DISTINCT FROM CASE WHEN detail -> 'prices' IS NULL
         THEN ceil((greatest(prompt_tokens - cached_tokens, 0)::numeric * input_pico_usd
             + cached_tokens::numeric * cached_input_pico_usd
             + completion_tokens::numeric * output_pico_usd) / 1000)
         ELSE cost_of(calls) END",
    // Only a full audit finds charged calls without an entry.
    "SELECT account_id, format('call %s was charged without an entry', id) FROM calls
     WHERE $1 = 0 AND entry_seq IS NULL AND cost_nano_usd IS NOT NULL",
    // Each charge that was taken back against its reversal. Its call is not charged, or pruned.
    "SELECT e.account_id, format('the charge of call %s is not the one that was taken back', e.ref)
     FROM ledger_entries e LEFT JOIN ledger_entries r ON r.ref = e.ref AND r.kind = 'reversal'
     WHERE e.seq > $1 AND e.kind = 'charge' AND (r.delta_nano_usd IS DISTINCT FROM -e.delta_nano_usd
         OR r.account_id <> e.account_id OR r.seq < e.seq
         OR (SELECT cost_nano_usd FROM calls WHERE id = e.ref::bigint) IS NOT NULL)",
    "SELECT e.account_id, format('the reversal of call %s takes back no charge', e.ref) FROM ledger_entries e
     WHERE e.seq > $1 AND e.kind = 'reversal'
         AND NOT EXISTS (SELECT 1 FROM ledger_entries c WHERE c.ref = e.ref AND c.kind = 'charge')
         AND NOT EXISTS (SELECT 1 FROM ledger_entries o
             WHERE o.account_id = e.account_id AND o.kind = 'opening' AND o.seq < e.seq)",
    "SELECT e.account_id, format('entry %s differs from the amount of grant %s', e.seq, e.ref)
     FROM ledger_entries e LEFT JOIN credit_grants g ON g.id = e.ref AND g.account_id = e.account_id
     WHERE e.seq > $1 AND e.kind = 'grant' AND g.amount_nano_usd IS DISTINCT FROM e.delta_nano_usd",
    "SELECT account_id, format('entry %s is an expiry that deducts nothing', seq) FROM ledger_entries
     WHERE seq > $1 AND kind = 'expiry' AND delta_nano_usd >= 0",
    // Each account's row against its entries, grants and holds.
    "WITH checked AS (
         SELECT a.*, coalesce((SELECT balance_after_nano_usd
                 FROM entries_before(a.id, 9223372036854775807, 1)), 0) AS posted,
             coalesce((SELECT sum(f.remaining_nano_usd) FROM unnest(funds) AS f), 0) - debt_nano_usd AS remains,
             coalesce((SELECT sum(f.held_nano_usd) FROM unnest(funds) AS f), 0) AS held_of_grants,
             coalesce((SELECT sum(amount_nano_usd) FROM holds WHERE account_id = a.id), 0) AS held_by_calls,
             coalesce((SELECT sum(risk_nano_usd) FROM holds WHERE account_id = a.id), 0) AS risked,
             (SELECT count(*) FROM unnest(funds) AS f LEFT JOIN credit_grants g ON g.id = f.grant_id
                 WHERE f.remaining_nano_usd <= 0 OR f.held_nano_usd < 0 OR f.held_nano_usd > f.remaining_nano_usd
                     OR g.amount_nano_usd IS NULL OR f.remaining_nano_usd > g.amount_nano_usd) AS impossible
         FROM accounts a WHERE $1 = 0 OR id IN (SELECT account_id FROM ledger WHERE seq > $1)
     )
     SELECT id, CASE
         WHEN impossible > 0 THEN format('%s grants have an invalid remaining amount', impossible)
         WHEN posted <> remains THEN format('the entries add up to %s nano-dollars, and the grants have %s left',
             posted, remains)
         ELSE format('%s nano-dollars are held by count, %s by calls, %s by grants; %s are at risk, %s by calls',
             held_nano_usd, held_by_calls, held_of_grants, exposure_nano_usd, risked) END
     FROM checked WHERE impossible > 0 OR posted <> remains OR held_nano_usd <> held_by_calls
         OR held_nano_usd <> held_of_grants OR exposure_nano_usd <> risked",
    // Each budget against its calls. Of an account whose history was pruned, some of them may be gone.
    "WITH costs AS (
         SELECT b.id, cost_nano_usd FROM budgets b JOIN calls c
             ON b.scope = 'account' AND c.account_id = b.account_id
         WHERE $1 = 0 AND held_at >= period_start AND held_at < period_end
         UNION ALL
         SELECT b.id, cost_nano_usd FROM budgets b JOIN calls c
             ON b.scope = 'project' AND c.account_id = b.account_id AND coalesce(c.project_id, 'default') = b.scope_id
         WHERE $1 = 0 AND held_at >= period_start AND held_at < period_end
         UNION ALL
         SELECT b.id, cost_nano_usd FROM budgets b JOIN calls c
             ON b.scope = 'member' AND c.account_id = b.account_id AND c.member_id = b.scope_id
         WHERE $1 = 0 AND held_at >= period_start AND held_at < period_end
         UNION ALL
         SELECT b.id, cost_nano_usd FROM budgets b JOIN calls c
             ON b.scope = 'key' AND c.account_id = b.account_id AND c.key_id = b.scope_id
         WHERE $1 = 0 AND held_at >= period_start AND held_at < period_end
     ), sums AS (SELECT id, sum(cost_nano_usd) AS cost FROM costs GROUP BY id)
     SELECT account_id, format('%s nano-dollars were spent of budget %s, and its calls have cost %s',
         spent_nano_usd, id, coalesce(cost, 0))
     FROM budgets LEFT JOIN sums USING (id)
     WHERE $1 = 0 AND spent_nano_usd <> coalesce(cost, 0) AND NOT (spent_nano_usd > coalesce(cost, 0) AND EXISTS (
         SELECT 1 FROM ledger_entries o WHERE o.account_id = budgets.account_id AND o.kind = 'opening'))",
    "SELECT b.account_id, format('%s nano-dollars are held and %s at risk of budget %s by count, %s and %s by calls',
         b.held_nano_usd, b.exposure_nano_usd, b.id, running.held, running.risk)
     FROM budgets b CROSS JOIN LATERAL (SELECT coalesce(sum(counted_nano_usd), 0) AS held,
             coalesce(sum(counted_risk_nano_usd), 0) AS risk FROM holds h
         WHERE h.account_id = b.account_id AND h.held_at >= b.period_start
             AND is_above(b, h.key_id, h.project_id, h.member_id)) AS running
     WHERE $1 >= 0 AND (b.held_nano_usd <> running.held OR b.exposure_nano_usd <> running.risk)",
];

/// Up to where entries have been audited.
#[derive(Clone, Copy, Default)]
pub(super) struct Progress {
    /// Entries up to this one need no further audit.
    audited_to: i64,
    /// The last sequence number that was drawn by a time. Long after that time, every entry up to it is committed or
    /// never will be, so that an audit has seen it.
    drawn: Option<(i64, i64)>,
}

impl Progress {
    /// After an audit at this time, when `last` was the last sequence number.
    fn after_audit(self, now: i64, last: i64) -> Self {
        match self.drawn {
            Some((at, audited_to)) if now - at >= SETTLED => Self {
                audited_to,
                drawn: Some((now, last)),
            },
            Some(_) => self,
            None => Self {
                drawn: Some((now, last)),
                ..self
            },
        }
    }
}

impl Shared {
    /// Audits everything.
    pub(crate) async fn audit(&self) -> Result<Audit, LedgerError> {
        let mut progress = self.auditing.lock().await;
        self.audit_since(0, &mut progress).await
    }

    /// Audits what has changed since the last audit; the first time everything.
    pub(crate) async fn reconcile(&self) -> Result<Audit, LedgerError> {
        let mut progress = self.auditing.lock().await;
        self.audit_since(progress.audited_to, &mut progress).await
    }

    async fn audit_since(&self, since: i64, progress: &mut Progress) -> Result<Audit, LedgerError> {
        let started = Instant::now();
        self.wait_until_written().await;
        self.sweep_expired().await?;
        let stray_holds = self.release_strays().await?;
        let now = self.inner.clock.now();
        let mut audit = audit_snapshot(&self.inner.address, since).await?;
        audit.took = started.elapsed();
        audit.stray_holds = stray_holds;
        for Violation { account_id, what } in &audit.violations {
            tracing::error!(
                account.id = account_id,
                "the account does not add up and is frozen: {what}"
            );
        }
        self.freeze(&audit, since == 0).await?;
        *progress = progress.after_audit(now, audit.last_entry);
        Ok(audit)
    }

    /// Freezes the inconsistent accounts, so that they start no new calls. A full audit also unfreezes the others; an
    /// audit of changes only adds frozen accounts.
    async fn freeze(&self, audit: &Audit, is_full: bool) -> Result<(), LedgerError> {
        let found = audit.violations.iter();
        let inconsistent: BTreeSet<&str> = found.map(|found| found.account_id.as_str()).collect();
        let inconsistent: Vec<&str> = inconsistent.into_iter().collect();
        let update = "UPDATE accounts SET frozen = id = ANY ($1), version = version + 1
            WHERE frozen <> (id = ANY ($1)) AND ($2 OR id = ANY ($1))";
        let parameters = [
            (&inconsistent as _, Type::TEXT_ARRAY),
            (&is_full as _, Type::BOOL),
        ];
        self.inner.pool.execute(update, &parameters).await?;
        let count = "SELECT count(*) FROM accounts WHERE frozen";
        let frozen: i64 = self.inner.pool.query_one(count, &[]).await?;
        let frozen = usize::try_from(frozen).unwrap_or(0);
        self.frozen.store(frozen, Relaxed);
        Ok(())
    }

    async fn sweep_expired(&self) -> Result<(), LedgerError> {
        let now = self.inner.clock.now();
        let query = "SELECT sweep_expired($1, $2)";
        let parameters = [(&now as _, Type::INT8), (&SWEEP_BATCH as _, Type::INT4)];
        // Credit that is held cannot be swept; it is not counted.
        while self.inner.pool.query_one::<i32>(query, &parameters).await? == SWEEP_BATCH {}
        Ok(())
    }

    pub(crate) async fn is_frozen(&self, account_id: &str) -> Result<bool, LedgerError> {
        let query = "SELECT frozen FROM accounts WHERE id = $1";
        let rows = self
            .inner
            .pool
            .query(query, &[(&account_id, Type::TEXT)])
            .await?;
        Ok(rows.first().map_or(Ok(false), |row| get(row, 0))?)
    }
}

/// Audits a database, whether or not gateways are using it; changes nothing.
pub(crate) async fn audit_database(address: &Address) -> Result<Audit, Error> {
    let started = Instant::now();
    let audit = audit_snapshot(address, 0).await?;
    Ok(Audit {
        took: started.elapsed(),
        ..audit
    })
}

/// Audits on a connection of its own, because it may take long.
async fn audit_snapshot(address: &Address, since: i64) -> Result<Audit, Error> {
    let connection = address.connect().await?;
    let checked = timeout(TIMEOUT, async {
        connection.batch_execute(BEGIN).await?;
        let audit = run_checks(&connection, since).await?;
        connection.batch_execute("COMMIT").await?;
        Ok(audit)
    });
    checked.await.map_err(|_| Error::TimedOut)?
}

async fn run_checks(connection: &Connected, since: i64) -> Result<Audit, Error> {
    let mut audit = Audit::default();
    let since_then = [(&since as _, Type::INT8)];
    for check in CHECKS {
        for row in connection.query_typed(check, &since_then).await? {
            audit.violations.push(Violation {
                account_id: get(&row, 0)?,
                what: with_call_ids(get(&row, 1)?),
            });
        }
    }
    let counts = "SELECT count(*), count(*) FILTER (WHERE kind = 'charge') FROM ledger
        WHERE seq > $1";
    if let Some(row) = connection.query_typed(counts, &since_then).await?.first() {
        let count = |column| get(row, column).map(|it: i64| u64::try_from(it).unwrap_or(0));
        (audit.entries, audit.charges) = (count(0)?, count(1)?);
    }
    let accounts = "SELECT id FROM accounts
        WHERE $1 = 0 OR id IN (SELECT account_id FROM ledger WHERE seq > $1) ORDER BY id";
    for row in connection.query_typed(accounts, &since_then).await? {
        audit.accounts.push(get(&row, 0)?);
    }
    let last = "SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM entry_seqs";
    if let Some(row) = connection.query_typed(last, &[]).await?.first() {
        audit.last_entry = get(row, 0)?;
    }
    Ok(audit)
}

/// Replaces call numbers by call IDs.
fn with_call_ids(what: String) -> String {
    let Some((before, after)) = what.split_once("call ") else {
        return what;
    };
    let (number, rest) = after.split_once(' ').unwrap_or((after, ""));
    match number.parse() {
        Ok(number) => format!("{before}call {} {rest}", CallId(number)),
        Err(_) => what,
    }
}
