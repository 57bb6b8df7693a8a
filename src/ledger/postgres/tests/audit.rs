//! Every inconsistency that an audit must find, made in a database on purpose and repaired again.

use super::*;
use crate::{
    base::money::TokenPrice,
    catalog::{Above, Prices, Rates},
    ledger::{HoldRequest, tests::charge_for},
    wire::chat::Usage,
};

/// The change, how the audit reports it, and how it is repaired.
const TAMPERED: [(&str, &str, &str); 14] = [
    (
        "UPDATE accounts SET funds[1].remaining_nano_usd = funds[1].remaining_nano_usd - 1",
        "the grants have",
        "UPDATE accounts SET funds[1].remaining_nano_usd = funds[1].remaining_nano_usd + 1",
    ),
    (
        "UPDATE accounts SET funds[1].remaining_nano_usd = funds[1].remaining_nano_usd + 1000000000",
        "invalid remaining amount",
        "UPDATE accounts SET funds[1].remaining_nano_usd = funds[1].remaining_nano_usd - 1000000000",
    ),
    (
        "UPDATE accounts SET held_nano_usd = held_nano_usd + 1",
        "are held by count",
        "UPDATE accounts SET held_nano_usd = held_nano_usd - 1",
    ),
    (
        "UPDATE accounts SET exposure_nano_usd = exposure_nano_usd + 1",
        "at risk",
        "UPDATE accounts SET exposure_nano_usd = exposure_nano_usd - 1",
    ),
    (
        "UPDATE holds SET amount_nano_usd = amount_nano_usd + 1",
        "are held by count",
        "UPDATE holds SET amount_nano_usd = amount_nano_usd - 1",
    ),
    (
        "UPDATE holds SET account_id = 'nobody_' || account_id",
        "are held by count",
        "UPDATE holds SET account_id = replace(account_id, 'nobody_', '')",
    ),
    (
        "UPDATE ledger_entries SET delta_nano_usd = delta_nano_usd - 1 WHERE seq = 1",
        "add up to",
        "UPDATE ledger_entries SET delta_nano_usd = delta_nano_usd + 1 WHERE seq = 1",
    ),
    (
        "UPDATE calls SET balance_after_nano_usd = balance_after_nano_usd + 7 WHERE entry_seq = 4",
        "add up to",
        "UPDATE calls SET balance_after_nano_usd = balance_after_nano_usd - 7 WHERE entry_seq = 4",
    ),
    (
        "CREATE TABLE kept AS SELECT * FROM calls WHERE entry_seq = 4; DELETE FROM calls WHERE entry_seq = 4",
        "add up to",
        "INSERT INTO calls SELECT * FROM kept; DROP TABLE kept",
    ),
    (
        "CREATE TABLE kept AS SELECT id FROM calls WHERE entry_seq = 5;
         UPDATE calls SET entry_seq = NULL WHERE entry_seq = 5",
        "was charged without an entry",
        "UPDATE calls SET entry_seq = 5 WHERE id = (SELECT id FROM kept); DROP TABLE kept",
    ),
    (
        "UPDATE calls SET cost_nano_usd = cost_nano_usd + 1",
        "differs from the cost",
        "UPDATE calls SET cost_nano_usd = cost_nano_usd - 1",
    ),
    (
        "UPDATE credit_grants SET amount_nano_usd = amount_nano_usd + 1",
        "differs from the amount of grant",
        "UPDATE credit_grants SET amount_nano_usd = amount_nano_usd - 1",
    ),
    (
        "UPDATE ledger_entries SET kind = 'opening', ref = '2027-01-01' WHERE seq = 2",
        "there are entries before it",
        "UPDATE ledger_entries SET kind = 'grant', ref = (SELECT id FROM credit_grants WHERE seq = 2)
         WHERE seq = 2",
    ),
    (
        "UPDATE ledger_entries SET kind = 'reversal' WHERE seq = 1",
        "takes back no charge",
        "UPDATE ledger_entries SET kind = 'grant' WHERE seq = 1",
    ),
];

async fn busy() -> Paying {
    let paying = with(1_000_000).await;
    paying.give(500, Some(paying.now() + 5)).await;
    for _ in 0..3 {
        paying.pay().await.unwrap();
    }
    paying.advance(10);
    paying.assert_sound().await;
    paying
}

#[tokio::test]
async fn tampering_is_found_and_freezes_the_account_until_it_is_repaired() {
    let paying = busy().await;
    let other = paying.beside().await;
    let running = paying.hold(COST, COST + 1, 1).await.unwrap();
    for (tamper, notice, mend) in TAMPERED {
        paying.sql(tamper);
        let audit = paying.ledger.audit().await.unwrap();
        let mut found = audit.violations.iter();
        let is_reported = found.any(|found| found.what.contains(notice));
        assert!(is_reported, "{tamper}: {:?}", audit.violations);
        let mut found = audit.violations.iter();
        assert!(found.all(|found| found.account_id == paying.account_id));
        assert!(paying.ledger.is_frozen(&paying.account_id).await.unwrap());
        assert_eq!(paying.ledger.violations(), 1);
        for gateway in [&paying, &other] {
            let refused = gateway.hold(1, 1, 0).await.err();
            assert_eq!(refused, Some(HoldRefused::Unavailable), "{tamper}");
        }
        paying.sql(mend);
        paying.assert_sound().await;
        assert_eq!(paying.ledger.violations(), 0, "{mend}");
        assert!(other.hold(1, 1, 0).await.is_ok(), "{mend}");
        assert_eq!(other.held().await, COST, "released");
    }
    let audit = crate::ledger::audit_database(&paying.store.address()).await;
    assert_eq!(audit.unwrap().violations, []);
    drop(running);
    paying.assert_sound().await;
}

/// An audit recomputes the cost of a call with every price it was charged at.
#[tokio::test]
async fn the_cost_of_a_call_with_thresholds_and_fees_is_recomputed() {
    let paying = with(1_000_000).await;
    let price = TokenPrice::from_picos;
    let rates = |input: i64| Rates {
        input: price(input),
        output: price(7_000),
        cached_input: price(300),
        cache_write: price(5_000),
        cache_write_1h: price(9_000),
    };
    let request = HoldRequest {
        prices: Arc::new(Prices {
            rates: rates(2_000),
            above: vec![Above {
                prompt_tokens: 100,
                rates: rates(4_000),
            }],
            request: NanoUsd::new(11),
            image: NanoUsd::default(),
        }),
        ..paying.request(10_000, 10_000, 0)
    };
    let mut held = paying.ledger.hold(request).await.unwrap();
    let usage = Usage {
        prompt: 101,
        cached: 20,
        cache_write: 30,
        cache_write_1h: 10,
        completion: 3,
        reasoning: 0,
    };
    let charged = charge_for(&mut held, usage, Outcome::Answered)
        .await
        .unwrap();
    // 51 × 4 + 20 × 0.3 + 20 × 5 + 10 × 9 + 3 × 7 + 11
    assert_eq!(charged.charged.unwrap().cost, NanoUsd::new(432));
    paying.assert_sound().await;
    for (tamper, mend) in [
        (
            "UPDATE calls SET detail = replace(detail::text, '4000', '4001')::jsonb",
            "UPDATE calls SET detail = replace(detail::text, '4001', '4000')::jsonb",
        ),
        (
            "UPDATE calls SET cache_write_1h_tokens = cache_write_1h_tokens - 1",
            "UPDATE calls SET cache_write_1h_tokens = cache_write_1h_tokens + 1",
        ),
        (
            "UPDATE calls SET prompt_tokens = 100, cached_tokens = 19",
            "UPDATE calls SET prompt_tokens = 101, cached_tokens = 20",
        ),
    ] {
        paying.sql(tamper);
        let audit = paying.ledger.audit().await.unwrap();
        let mut found = audit.violations.iter();
        let is_reported = found.any(|found| found.what.contains("differs from the cost"));
        assert!(is_reported, "{tamper}: {:?}", audit.violations);
        paying.sql(mend);
        paying.assert_sound().await;
    }
}

/// The periodic audit reads new entries only, and an inconsistency it has found keeps the account frozen.
#[tokio::test]
async fn the_periodic_audit_reads_new_entries() {
    let paying = busy().await;
    let count = async || paying.ledger.reconcile().await.unwrap().entries;
    paying.advance(200);
    // Entries are skipped once they are so old that all before them have been committed.
    assert!(count().await > 0);
    assert_eq!(count().await, 0, "all was seen before");
    paying.pay().await.unwrap();
    assert_eq!((count().await, count().await), (1, 1), "it is new");
    let last = "WHERE entry_seq = (SELECT max(entry_seq) FROM calls)";
    paying.sql(&format!(
        "UPDATE calls SET cost_nano_usd = cost_nano_usd - 1 {last}"
    ));
    let audit = paying.ledger.reconcile().await.unwrap();
    assert!(!audit.violations.is_empty());
    paying.sql(&format!(
        "UPDATE calls SET cost_nano_usd = cost_nano_usd + 1 {last}"
    ));
    let audit = paying.ledger.reconcile().await.unwrap();
    assert_eq!(audit.violations, []);
    let frozen = paying.hold(1, 1, 0).await.err();
    let until = "until a full audit";
    assert_eq!(frozen, Some(HoldRefused::Unavailable), "{until}");
    paying.assert_sound().await;
    assert!(paying.hold(1, 1, 0).await.is_ok());
}

/// An audit amid concurrent calls reads one snapshot and finds nothing wrong in it.
#[tokio::test(flavor = "multi_thread")]
async fn an_audit_amid_concurrent_calls_finds_nothing_wrong() {
    let paying = Arc::new(with(DOLLAR).await);
    paying.give(500 * COST, Some(paying.now() + 3)).await;
    let calls = (0..8).map(|_| {
        let paying = paying.clone();
        tokio::spawn(async move {
            for _ in 0..15 {
                let mut held = paying.hold_with_retry().await.unwrap();
                charge(&mut held, COST).await.unwrap();
                drop(paying.hold_with_retry().await.unwrap());
            }
        })
    });
    let calls: Vec<_> = calls.collect();
    while !calls.iter().all(tokio::task::JoinHandle::is_finished) {
        paying.assert_sound().await;
        paying.advance(1);
    }
    for call in calls {
        call.await.unwrap();
    }
    paying.assert_sound().await;
}

/// There are more accounts than one sweep takes, each with an expired grant that a running call holds.
#[tokio::test]
async fn expired_credit_that_calls_hold_does_not_keep_an_audit_busy() {
    let paying = with(100).await;
    paying.give(COST, Some(paying.now() + 5)).await;
    let held = paying.hold(COST, COST, 0).await.unwrap();
    paying.advance(10);
    let sweep = format!("SELECT sweep_expired({}, 1)", paying.now());
    assert_eq!(paying.sql(&sweep), "0");
    drop(held);
    paying.held().await;
    assert_eq!(
        (paying.sql(&sweep), paying.sql(&sweep)),
        ("1".into(), "0".into())
    );
    paying.assert_sound().await;
}

/// The account adds up, and no other gateway may release the hold while this one is alive.
#[tokio::test]
async fn a_hold_without_a_running_call_is_found_and_released() {
    let paying = with(DOLLAR).await;
    let other = paying.beside().await;
    let running = paying.hold(COST, COST, 0).await.unwrap();
    let elsewhere = other.hold(COST, COST, 0).await.unwrap();
    let stray = paying.hold(COST, COST, 0).await.unwrap();
    // As if the end of the call had been lost.
    paying.shared().inner.open_calls.remove(stray.id());
    let audit = paying.ledger.reconcile().await.unwrap();
    assert_eq!(audit.violations, []);
    let found: Vec<_> = audit.stray_holds.iter().map(|found| found.call).collect();
    assert_eq!(found, [stray.id()]);
    assert_eq!(audit.stray_holds[0].account_id, paying.account_id);
    assert_eq!(paying.ledger.health().stray_holds.get(), 1);
    assert_eq!(paying.held().await, 2 * COST);
    assert!(!paying.ledger.is_frozen(&paying.account_id).await.unwrap());
    let again = paying.ledger.reconcile().await.unwrap();
    assert_eq!(again.stray_holds, []);
    drop((running, elsewhere, stray));
    // Each gateway waits for its own queued operations only.
    other.held().await;
    assert_eq!(paying.held().await, 0);
    paying.assert_sound().await;
}
