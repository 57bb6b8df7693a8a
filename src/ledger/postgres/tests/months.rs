//! Tables of months, and pruning. The months are in years to come, for which no gateway has created tables.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use time::{Date, Month, UtcDateTime};

use super::*;
use crate::ledger::{EntryKind, prune::Pruned, prune_database};

fn ms(month: Month, day: u8) -> i64 {
    let date = Date::from_calendar_date(2041, month, day).unwrap();
    UtcDateTime::new(date, time::Time::MIDNIGHT).unix_timestamp() * 1_000
}

/// An account with this credit since a day in January.
async fn in_january(nanos: i64) -> Paying {
    let paying = Paying::on(TestStore::database()).await;
    // Without the tables of the months in which the test runs.
    paying.sql("SELECT prune_month(month, false) FROM months_before('2041-01-01') AS month");
    paying.now_ms.store(ms(Month::January, 10), Relaxed);
    paying.give(nanos, None).await;
    paying
}

impl Paying {
    fn go_to(&self, month: Month, day: u8) {
        self.now_ms.store(ms(month, day), Relaxed);
    }

    fn calls_in(&self, table: &str) -> i64 {
        let count = format!("SELECT count(*) FROM {table}");
        self.sql(&count).parse().unwrap()
    }

    async fn prune(&self, before: Month) -> Pruned {
        self.prune_at(ms(before, 1), false).await
    }

    async fn prune_at(&self, before_ms: i64, keep_tables: bool) -> Pruned {
        // Operations that no caller waits for are written first.
        self.held().await;
        let address = self.store.address();
        let pruned = prune_database(&address, before_ms, keep_tables).await;
        let pruned = pruned.unwrap();
        self.assert_sound().await;
        pruned
    }

    /// Kinds and references of the account's entries, oldest first; those of calls as `call`.
    async fn statement(&self) -> Vec<(EntryKind, i64, String)> {
        let page = self.ledger.entries_page(&self.account_id, None, 100).await;
        let entries = page.unwrap().into_iter().rev();
        entries
            .map(|entry| (entry.kind, entry.delta.nanos(), entry.reference))
            .collect()
    }

    async fn has_call(&self, call: &Call) -> bool {
        self.ledger.call(call.id).await.unwrap().is_some()
    }
}

#[tokio::test]
async fn calls_are_stored_in_the_table_of_their_month() {
    let paying = in_january(DOLLAR).await;
    paying.now_ms.store(ms(Month::March, 1) - 1, Relaxed);
    paying.pay().await.unwrap();
    paying.now_ms.store(ms(Month::March, 1), Relaxed);
    paying.pay().await.unwrap();
    paying.now_ms.store(ms(Month::April, 1) - 1, Relaxed);
    paying.pay().await.unwrap();
    paying.now_ms.store(ms(Month::April, 1), Relaxed);
    paying.pay().await.unwrap();
    assert_eq!(paying.calls_in("calls_other"), 4);
    let add = "SELECT add_month('2041-03-20')";
    assert_eq!((paying.sql(add), paying.sql(add)), ("t".into(), "f".into()));
    let counts = ["calls_2041_03", "calls_other", "calls"].map(|table| paying.calls_in(table));
    assert_eq!(counts, [2, 2, 4]);
    paying.pay().await.unwrap();
    paying.sql("SELECT add_month('2041-04-01')");
    paying.pay().await.unwrap();
    let counts = ["calls_2041_04", "calls_other", "calls"].map(|table| paying.calls_in(table));
    assert_eq!(counts, [3, 1, 6]);
    paying.assert_sound().await;
    paying.assert_added_up().await;
}

/// A new database has them, and later a gateway adds the next ones.
#[tokio::test]
async fn tables_of_the_present_and_the_next_months_are_created() {
    let paying = with(DOLLAR).await;
    let present = "SELECT to_char(now() AT TIME ZONE 'UTC', '\"calls_\"YYYY_MM')";
    let names = "SELECT string_agg(relname, ' ' ORDER BY relname) FROM pg_class
        WHERE relname ~ '^calls_\\d{4}_\\d{2}$'";
    let before = paying.sql(names);
    assert!(before.starts_with(&paying.sql(present)), "{before}");
    assert_eq!(before.split(' ').count(), 3);
    let last = before.rsplit(' ').next().unwrap();
    paying.sql(&format!(
        "ALTER TABLE calls DETACH PARTITION {last}; DROP TABLE {last}"
    ));
    paying.shared().add_months().await.unwrap();
    assert_eq!(paying.sql(names), before);
}

/// A charge, an expiry, a reversal, a failed call, and a call that runs across the cutoff.
#[tokio::test]
async fn a_pruned_ledger_adds_up() {
    let paying = in_january(DOLLAR).await;
    let idle = paying.neighbour(DOLLAR).await;
    paying.pay().await.unwrap();
    paying.sql("SELECT add_month('2041-02-01')");
    paying.go_to(Month::February, 3);
    paying.give(500, Some(paying.now() + 60)).await;
    let gone = paying.pay().await.unwrap();
    idle.pay().await.unwrap();
    let reversed = paying.pay().await.unwrap();
    paying.reverse(&reversed).await;
    let failed = paying.hold(COST, COST, 0).await.unwrap();
    failed.release(Outcome::ProviderFailed, None);
    paying.give(500, Some(paying.now() + 60)).await;
    paying.advance(100);
    paying.assert_sound().await;
    paying.now_ms.store(ms(Month::March, 1) - 5, Relaxed);
    let mut across = paying.hold(COST, COST, 0).await.unwrap();
    let before = paying.pay().await.unwrap();
    paying.go_to(Month::March, 1);
    let late = paying.neighbour(DOLLAR).await;
    let across = charge(&mut across, COST).await.unwrap();
    let kept = paying.pay().await.unwrap();
    late.pay().await.unwrap();
    let (balance, idle_balance) = (paying.balance().await, idle.balance().await);
    let days = paying.days().await;

    let pruned = paying.prune(Month::March).await;
    // In January, one call and two grants. In February, the calls `gone`, of `idle`, `reversed`, `failed` and `before`;
    // two grants, an expiry, and the two entries of the reversal.
    let expected = Pruned {
        calls: 6,
        entries: 7,
        months: vec!["2041-02".into()],
    };
    assert_eq!(pruned, expected);
    assert_eq!(
        paying.statement().await,
        [
            (
                EntryKind::Opening,
                balance + 2 * COST,
                "2041-03-01".to_owned()
            ),
            (EntryKind::Charge, -COST, across.id.to_string()),
            (EntryKind::Charge, -COST, kept.id.to_string()),
        ]
    );
    assert_eq!(
        idle.statement().await,
        [(EntryKind::Opening, idle_balance, "2041-03-01".to_owned())]
    );
    let kinds: Vec<_> = late.statement().await.iter().map(|entry| entry.0).collect();
    assert_eq!(kinds, [EntryKind::Grant, EntryKind::Charge]);
    assert!(paying.has_call(&across).await);
    for call in [gone, reversed, before] {
        assert!(!paying.has_call(&call).await);
    }
    assert_eq!(paying.calls_in("calls"), 3);
    let balances = (paying.balance().await, idle.balance().await);
    assert_eq!(balances, (balance, idle_balance));
    assert_eq!(paying.days().await, days, "daily sums remain");

    assert_eq!(paying.prune(Month::March).await, Pruned::default());
    assert_eq!(paying.prune(Month::February).await, Pruned::default());
    paying.pay().await.unwrap();
    idle.pay().await.unwrap();
    paying.assert_sound().await;
    paying.go_to(Month::May, 1);
    paying.pay().await.unwrap();
    let pruned = paying.prune(Month::May).await;
    assert_eq!((pruned.calls, pruned.entries), (5, 1));
    let statement = paying.statement().await;
    assert_eq!(statement.len(), 2);
    assert_eq!(statement[0].2, "2041-05-01");
}

/// The audit accepts what each transaction of pruning leaves, and an interrupted one is completed by the next.
#[tokio::test]
async fn each_step_of_pruning_leaves_a_ledger_that_adds_up() {
    let paying = in_january(DOLLAR).await;
    paying.sql("SELECT add_month('2041-01-01')");
    paying.pay().await.unwrap();
    paying.pay().await.unwrap();
    paying.go_to(Month::February, 1);
    paying.pay().await.unwrap();
    paying.assert_sound().await;
    paying.sql("SELECT open_accounts('', 10, '2041-02-01')");
    paying.assert_sound().await;
    assert_eq!(paying.calls_in("calls"), 3);
    // The view and the statement no longer have the charges that the opening has replaced.
    let sum = paying.sql("SELECT sum(delta_nano_usd) FROM ledger");
    assert_eq!(sum, paying.balance().await.to_string());
    let kinds: Vec<_> = paying
        .statement()
        .await
        .iter()
        .map(|entry| entry.0)
        .collect();
    assert_eq!(kinds, [EntryKind::Opening, EntryKind::Charge]);
    // Also an audit of the changes, and one of the next charge.
    paying.advance(200);
    paying.pay().await.unwrap();
    assert_eq!(paying.ledger.reconcile().await.unwrap().violations, []);
    paying.sql("SELECT open_accounts('', 10, '2041-02-01')");
    let pruned = paying.prune(Month::February).await;
    assert_eq!((pruned.calls, pruned.entries), (2, 0));
    assert_eq!(paying.calls_in("calls"), 2);
    // Without the opening entry nothing adds up.
    paying.sql("DELETE FROM ledger_entries WHERE kind = 'opening'");
    assert!(!paying.ledger.audit().await.unwrap().violations.is_empty());
}

#[tokio::test]
async fn tables_of_pruned_months_can_be_kept() {
    let paying = in_january(DOLLAR).await;
    paying.pay().await.unwrap();
    paying.go_to(Month::March, 5);
    paying.pay().await.unwrap();
    paying.go_to(Month::April, 5);
    paying.pay().await.unwrap();
    assert_eq!(paying.calls_in("calls_other"), 3);
    let pruned = paying.prune_at(ms(Month::April, 1), true).await;
    assert_eq!((pruned.calls, pruned.entries), (2, 1));
    assert_eq!(pruned.months, ["2041-01", "2041-03"]);
    let counts = ["calls_2041_01", "calls_2041_03", "calls"].map(|table| paying.calls_in(table));
    assert_eq!(counts, [1, 1, 1]);
    let again = paying.prune_at(ms(Month::April, 20), true).await;
    assert_eq!(again, Pruned::default(), "a month that is not over stays");
}

/// More accounts than one transaction takes.
#[tokio::test]
async fn all_accounts_are_pruned() {
    let paying = in_january(DOLLAR).await;
    paying.pay().await.unwrap();
    paying.sql(
        "INSERT INTO accounts (id, email, track, tier, created_at)
             SELECT 'acct_' || n, 'many@example.com', 'business', 'flex', 0 FROM generate_series(1, 250) AS n;
         SELECT add_grant('acct_' || n, 'grant_' || n, n, NULL, NULL, NULL, 1) FROM generate_series(1, 250) AS n",
    );
    let pruned = paying.prune(Month::February).await;
    assert_eq!((pruned.calls, pruned.entries), (1, 251));
    let opened = "SELECT count(*) || ' ' || count(DISTINCT account_id) FROM ledger_entries WHERE kind = 'opening'";
    assert_eq!(paying.sql(opened), "251 251");
}

/// Calls are charged, and audits run, while months are pruned; none fails.
#[tokio::test(flavor = "multi_thread")]
async fn pruning_disturbs_neither_calls_nor_audits() {
    let paying = Arc::new(in_january(DOLLAR).await);
    for month in ["2041-01-01", "2041-02-01", "2041-03-01"] {
        paying.sql(&format!("SELECT add_month('{month}')"));
    }
    let done = Arc::<AtomicBool>::default();
    let callers = (0..4).map(|_| {
        let (paying, done) = (paying.clone(), done.clone());
        tokio::spawn(async move {
            let mut paid = 0;
            while !done.load(Relaxed) {
                let mut held = paying.hold_with_retry().await.unwrap();
                charge(&mut held, COST).await.unwrap();
                paid += COST;
            }
            paid
        })
    });
    let callers: Vec<_> = callers.collect();
    for month in [Month::February, Month::March, Month::April] {
        let charged = paying.calls_in("calls");
        until("calls are charged", async || {
            paying.calls_in("calls") > charged + 10
        })
        .await;
        // Some calls run across the beginning of the month.
        paying.go_to(month, 1);
        let charged = paying.calls_in("calls");
        until("calls are charged", async || {
            paying.calls_in("calls") > charged + 10
        })
        .await;
        let address = paying.store.address();
        let pruned = prune_database(&address, ms(month, 1), false);
        let (pruned, audit) = tokio::join!(pruned, paying.ledger.audit());
        assert_eq!(audit.unwrap().violations, []);
        assert_eq!(pruned.unwrap().months.len(), 1);
    }
    done.store(true, Relaxed);
    let mut paid = 0;
    for caller in callers {
        paid += caller.await.unwrap();
    }
    assert_eq!(paying.balance().await, DOLLAR - paid);
    paying.assert_sound().await;
}

/// An audit that waits for a table to be detached or added sees all calls that were moved.
#[tokio::test]
async fn an_audit_that_waits_for_months_sees_their_calls() {
    const WAITING: &str = "SELECT count(*) FROM pg_stat_activity
        WHERE datname = current_database() AND wait_event_type = 'Lock'";
    let paying = in_january(DOLLAR).await;
    paying.sql("SELECT add_month('2041-01-01')");
    paying.now_ms.store(ms(Month::February, 1) - 5, Relaxed);
    let mut across = paying.hold(COST, COST, 0).await.unwrap();
    paying.go_to(Month::February, 1);
    charge(&mut across, COST).await.unwrap();
    paying.pay().await.unwrap();
    paying.sql("SELECT open_accounts('', 10, '2041-02-01')");
    let stranger = paying.store.address().connect().await.unwrap();
    for change in [
        "SELECT prune_month('2041-01-01', false)",
        "SELECT add_month('2041-02-01')",
    ] {
        let begin = format!("BEGIN; {change}");
        stranger.batch_execute(&begin).await.unwrap();
        let change_ends = async {
            until("the audit waits", async || paying.sql(WAITING) == "1").await;
            stranger.batch_execute("COMMIT").await.unwrap();
        };
        let (audit, ()) = tokio::join!(paying.ledger.audit(), change_ends);
        assert_eq!(audit.unwrap().violations, [], "{change}");
    }
}
