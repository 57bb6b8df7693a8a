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
/// After this many seconds an entry's transaction has certainly ended; younger entries are audited again next time.
const SETTLED: i64 = 120;

/// Each query returns inconsistent accounts with a description. `$1` is the sequence number of the last audited entry;
/// zero audits everything.
const CHECKS: [&str; 6] = [
    // Each entry against the one before it.
    "SELECT e.account_id, format('entry %s has balance %s nano-dollars, but the entries add up to %s', e.seq,
         e.balance_after, coalesce(p.balance_after, 0) + e.delta)
     FROM ledger_entries e LEFT JOIN LATERAL (SELECT balance_after FROM ledger_entries
         WHERE account_id = e.account_id AND seq < e.seq ORDER BY seq DESC LIMIT 1) p ON true
     WHERE e.seq > $1 AND e.balance_after <> coalesce(p.balance_after, 0) + e.delta",
    // Each charge against its call or, if it was taken back, against the reversal.
    "SELECT e.account_id, CASE WHEN c.cost IS NULL AND r.seq IS NULL
         THEN format('entry %s charges a call that does not exist', e.seq)
         ELSE format('entry %s differs from the cost of its call', e.seq) END
     FROM ledger_entries e LEFT JOIN calls c ON c.id = e.ref::bigint
         LEFT JOIN ledger_entries r ON r.ref = e.ref AND r.kind = 'reversal'
     WHERE e.seq > $1 AND e.kind = 'charge' AND (CASE WHEN r.seq IS NOT NULL
         THEN c.cost IS NOT NULL OR r.delta <> -e.delta OR r.account_id <> e.account_id
         ELSE c.cost IS NULL OR c.account_id <> e.account_id OR c.cost <> -e.delta
             OR c.balance_after <> e.balance_after
             OR c.cost <> CASE WHEN c.prices IS NULL
                 THEN ceil((greatest(prompt - cached, 0)::numeric * input_price
                     + cached::numeric * cached_price + completion::numeric * output_price) / 1000)
                 ELSE cost_of(c) END END)",
    "SELECT e.account_id, format('entry %s differs from the amount of grant %s', e.seq, e.ref)
     FROM ledger_entries e LEFT JOIN credit_grants g ON g.id = e.ref AND g.account_id = e.account_id
     WHERE e.seq > $1 AND e.kind = 'grant' AND g.amount IS DISTINCT FROM e.delta",
    "SELECT account_id, format('entry %s is an expiry that deducts nothing', seq) FROM ledger_entries
     WHERE seq > $1 AND kind = 'expiry' AND delta >= 0",
    // Only a full audit finds charged calls without an entry.
    "SELECT account_id, format('call %s was charged without an entry', id) FROM calls
     WHERE $1 = 0 AND cost IS NOT NULL AND NOT EXISTS (SELECT 1 FROM ledger_entries
         WHERE ref = calls.id::text AND kind = 'charge')",
    // Each account's row against its entries, grants and holds.
    "WITH checked AS (
         SELECT a.*, coalesce((SELECT balance_after FROM ledger_entries WHERE account_id = a.id
                 ORDER BY seq DESC LIMIT 1), 0) AS posted,
             coalesce((SELECT sum(one) FROM unnest(fund_left) AS one), 0) - debt AS remains,
             coalesce((SELECT sum(one) FROM unnest(fund_held) AS one), 0) AS held_of_grants,
             coalesce((SELECT sum(amount) FROM holds WHERE account_id = a.id), 0) AS held_by_calls,
             coalesce((SELECT sum(risk) FROM holds WHERE account_id = a.id), 0) AS risked,
             (SELECT count(*) FROM unnest(fund_ids, fund_left, fund_held) AS f (id, remaining, held)
                 LEFT JOIN credit_grants g ON g.id = f.id
                 WHERE f.remaining <= 0 OR f.held < 0 OR f.held > f.remaining
                     OR g.amount IS NULL OR f.remaining > g.amount) AS impossible
         FROM accounts a WHERE $1 = 0 OR id IN (SELECT account_id FROM ledger_entries WHERE seq > $1)
     )
     SELECT id, CASE
         WHEN impossible > 0 THEN format('%s grants have an invalid remaining amount', impossible)
         WHEN posted <> remains THEN format('the entries add up to %s nano-dollars, and the grants have %s left',
             posted, remains)
         ELSE format('%s nano-dollars are held by count, %s by calls, %s by grants; %s are at risk, %s by calls',
             held, held_by_calls, held_of_grants, exposure, risked) END
     FROM checked WHERE impossible > 0 OR posted <> remains OR held <> held_by_calls
         OR held <> held_of_grants OR exposure <> risked",
];

impl Shared {
    /// Audits everything.
    pub(crate) async fn audit(&self) -> Result<Audit, LedgerError> {
        let _guard = self.auditing.lock().await;
        self.audit_since(0).await
    }

    /// Audits what has changed since the last audit; the first time everything.
    pub(crate) async fn reconcile(&self) -> Result<Audit, LedgerError> {
        let _guard = self.auditing.lock().await;
        self.audit_since(self.audited_to.load(Relaxed)).await
    }

    async fn audit_since(&self, since: i64) -> Result<Audit, LedgerError> {
        let started = Instant::now();
        self.wait_until_written().await;
        self.sweep_expired().await?;
        let stray_holds = self.release_strays().await?;
        let mut audit = audit_snapshot(&self.inner.address, since, self.inner.clock.now()).await?;
        audit.took = started.elapsed();
        audit.stray_holds = stray_holds;
        for Violation { account_id, what } in &audit.violations {
            tracing::error!(
                account.id = account_id,
                "the account does not add up and is frozen: {what}"
            );
        }
        self.freeze(&audit, since == 0).await?;
        self.audited_to.store(audit.last_entry, Relaxed);
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
    let audit = audit_snapshot(address, 0, 0).await?;
    Ok(Audit {
        took: started.elapsed(),
        ..audit
    })
}

/// Audits on a connection of its own, because it may take long.
async fn audit_snapshot(address: &Address, since: i64, now: i64) -> Result<Audit, Error> {
    let connection = address.connect().await?;
    let checked = timeout(TIMEOUT, async {
        connection
            .batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            .await?;
        let audit = run_checks(&connection, since, now).await?;
        connection.batch_execute("COMMIT").await?;
        Ok(audit)
    });
    checked.await.map_err(|_| Error::TimedOut)?
}

async fn run_checks(connection: &Connected, since: i64, now: i64) -> Result<Audit, Error> {
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
    let counts = "SELECT count(*), count(*) FILTER (WHERE kind = 'charge') FROM ledger_entries
        WHERE seq > $1";
    if let Some(row) = connection.query_typed(counts, &since_then).await?.first() {
        let count = |column| get(row, column).map(|it: i64| u64::try_from(it).unwrap_or(0));
        (audit.entries, audit.charges) = (count(0)?, count(1)?);
    }
    let accounts = "SELECT id FROM accounts
        WHERE $1 = 0 OR id IN (SELECT account_id FROM ledger_entries WHERE seq > $1) ORDER BY id";
    for row in connection.query_typed(accounts, &since_then).await? {
        audit.accounts.push(get(&row, 0)?);
    }
    let settled = now - SETTLED;
    let last = "SELECT coalesce(max(seq), $1) FROM ledger_entries WHERE seq > $1 AND at <= $2";
    let parameters = [(&since as _, Type::INT8), (&settled as _, Type::INT8)];
    if let Some(row) = connection.query_typed(last, &parameters).await?.first() {
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
