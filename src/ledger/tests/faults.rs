//! Disks that are full, databases that are locked, keys that are disabled.

use super::*;

const DOLLAR: i64 = 1_000_000_000;

fn spent(times: i64) -> i64 {
    DOLLAR - times * COST
}

#[tokio::test(flavor = "multi_thread")]
async fn charges_side_by_side_are_all_there_after_a_restart() {
    let paying = Arc::new(Paying::with(DOLLAR).await);
    let calls = (0..64).map(|_| {
        let paying = paying.clone();
        tokio::spawn(async move {
            for _ in 0..50 {
                let charged = paying.pay().await.unwrap().charged.unwrap();
                assert_eq!(charged.cost.nanos(), COST);
            }
        })
    });
    for call in calls.collect::<Vec<_>>() {
        call.await.unwrap();
    }
    assert_eq!((paying.balance(), paying.held()), (spent(64 * 50), 0));
    paying.assert_sound().await;
    let paying = Arc::into_inner(paying).unwrap().restart();
    assert_eq!(paying.balance(), spent(64 * 50));
    let rows = paying.ledger.usage(&paying.account_id, 0, i64::MAX).await;
    assert_eq!(rows.unwrap().len(), 64 * 50);
    paying.assert_sound().await;
}

/// A disk that is full refuses charges, loses none that it took, and takes them again. While it is
/// full, nothing new is begun.
#[tokio::test]
async fn a_full_disk_changes_nothing_and_heals() {
    let paying = Paying::with(DOLLAR).await;
    paying.limit_pages(Some(60)).await;
    let mut paid = 0;
    let refused = loop {
        let mut held = paying.hold(COST, COST, 0).expect("there is credit");
        match held.charge(tokens(COST), Outcome::Answered).await {
            Ok(_) => paid += 1,
            Err(error) => {
                assert_eq!(paying.held(), COST, "it can still be charged");
                break error;
            }
        }
        assert!(paid < 10_000, "the disk never became full");
    };
    let full = matches!(
        refused,
        LedgerError::Database(_) | LedgerError::NotCommitted
    );
    assert!(full, "{refused}");
    assert_eq!((paying.balance(), paying.held()), (spent(paid), 0));
    let unavailable = paying.hold(COST, COST, 0).err();
    assert_eq!(unavailable, Some(HoldRefused::Unavailable));
    let read = paying.ledger.usage(&paying.account_id, 0, i64::MAX).await;
    assert_eq!(
        read.unwrap().len(),
        usize::try_from(paid).unwrap(),
        "reads go on"
    );
    paying.limit_pages(None).await;
    paying.until_charges_are_taken().await;
    paying.assert_sound().await;
    paying.pay().await.unwrap();
    paying.assert_sound().await;
    assert_eq!(paying.restart().balance(), spent(paid + 1));
}

/// When a transaction of many fails, none of them has happened, whichever of them failed; each
/// can be charged again once there is room.
#[tokio::test(flavor = "multi_thread")]
async fn charges_of_a_batch_that_failed_are_undone_together_and_can_be_tried_again() {
    let paying = Arc::new(Paying::with(DOLLAR).await);
    paying.limit_pages(Some(80)).await;
    let callers = (0..64).map(|_| {
        let paying = paying.clone();
        tokio::spawn(async move {
            let mut paid = 0;
            while let Ok(mut held) = paying.hold(COST, COST, 0) {
                if held.charge(tokens(COST), Outcome::Answered).await.is_err() {
                    return (paid, Some(held));
                }
                paid += 1;
            }
            (paid, None)
        })
    });
    let (mut paid, mut unpaid) = (0, Vec::new());
    for caller in callers.collect::<Vec<_>>() {
        let (times, held) = caller.await.unwrap();
        paid += times;
        unpaid.extend(held);
    }
    let waiting = i64::try_from(unpaid.len()).unwrap();
    assert!(waiting > 0, "the disk became full");
    assert_eq!(
        (paying.balance(), paying.held()),
        (spent(paid), waiting * COST)
    );
    paying.limit_pages(None).await;
    paying.until_charges_are_taken().await;
    for mut held in unpaid {
        held.charge(tokens(COST), Outcome::Answered).await.unwrap();
    }
    assert_eq!(
        (paying.balance(), paying.held()),
        (spent(paid + waiting), 0)
    );
    paying.assert_sound().await;
    let paying = Arc::into_inner(paying).unwrap().restart();
    assert_eq!(paying.balance(), spent(paid + waiting), "as on the disk");
}

/// Another program that locks the database keeps charges waiting, and nothing else happens.
#[tokio::test]
async fn a_database_that_someone_locks_is_waited_for() {
    let paying = Paying::with(DOLLAR).await;
    let file = paying.folder.path().join("ledger.db");
    let stranger = rusqlite::Connection::open(file).unwrap();
    stranger.execute_batch("BEGIN IMMEDIATE").unwrap();
    let mut held = paying.hold(COST, COST, 0).unwrap();
    assert!(held.charge(tokens(COST), Outcome::Answered).await.is_err());
    assert_eq!((paying.balance(), paying.held()), (DOLLAR, COST));
    let refused = paying.hold(COST, COST, 0).err();
    assert_eq!(refused, Some(HoldRefused::Unavailable));
    stranger.execute_batch("ROLLBACK").unwrap();
    paying.until_charges_are_taken().await;
    held.charge(tokens(COST), Outcome::Answered).await.unwrap();
    drop(held);
    assert_eq!((paying.balance(), paying.held()), (spent(1), 0));
    paying.assert_sound().await;
}

#[tokio::test]
async fn a_key_that_was_disabled_holds_nothing() {
    let paying = Paying::with(DOLLAR).await;
    assert!(paying.hold(COST, COST, 0).is_ok());
    let disabled = paying
        .ledger
        .set_key_state(&paying.key_id, KeyState::Disabled);
    disabled.await.unwrap();
    let refused = paying.hold(COST, COST, 0).err();
    assert_eq!(refused, Some(HoldRefused::KeyInactive));
}

/// What was free of a grant that expired is entered in the books, once, by whoever comes first.
#[tokio::test]
async fn expired_credit_is_entered_in_the_books() {
    let paying = Paying::with(100).await;
    let soon = paying.ledger.clock.now() + 10;
    paying.give(40, Some(soon)).await;
    let mut held = paying.hold(30, 30, 0).unwrap();
    paying.advance(10);
    assert_eq!(paying.balance(), 130, "ten are gone, thirty are promised");
    held.charge(tokens(25), Outcome::Answered).await.unwrap();
    drop(held);
    assert_eq!(paying.balance(), 100);
    paying.assert_sound().await;
    paying.assert_sound().await;
    let expiries = "SELECT count(*) || ' ' || sum(delta) FROM ledger_entries WHERE kind = 'expiry'";
    let connection = open_to_read(&paying.folder.path().join("ledger.db")).unwrap();
    let entered: String = connection
        .query_row(expiries, [], |row| row.get(0))
        .unwrap();
    assert_eq!(entered, "2 -15");
    assert_eq!(paying.restart().balance(), 100);
}

/// A call that came to nothing leaves its story, and no charge.
#[tokio::test]
async fn a_call_that_came_to_nothing_is_remembered() {
    let paying = Paying::with(100).await;
    paying.hold(30, 30, 0).unwrap().cancel();
    let held = paying.hold(30, 30, 0).unwrap();
    let id = held.id().to_string();
    held.free(Outcome::ProviderFailed, Some("status 529".into()));
    drop(paying.hold(30, 30, 0).unwrap());
    let found = paying.ledger.find_calls(&id).await.unwrap();
    let [call] = found.as_slice() else {
        panic!("{found:?}")
    };
    assert_eq!(call.outcome, Outcome::ProviderFailed);
    assert_eq!(call.failure.as_deref(), Some("status 529"));
    assert_eq!(call.charged, None);
    let all = paying.ledger.find_calls("req_test").await.unwrap();
    let outcomes: Vec<_> = all.iter().map(|call| call.outcome).collect();
    assert_eq!(outcomes, [Outcome::Lost, Outcome::ProviderFailed]);
    assert_eq!((paying.balance(), paying.held()), (100, 0));
    assert_eq!(paying.count("SELECT count(*) FROM ledger_entries"), 1);
}

/// What was charged stays charged: a later transaction that fails does not hold it again.
#[tokio::test]
async fn a_charge_that_is_written_is_not_held_again() {
    let paying = Paying::with(DOLLAR).await;
    let mut charged = paying.hold(COST, COST, 0).unwrap();
    charged
        .charge(tokens(COST), Outcome::Answered)
        .await
        .unwrap();
    let broken = paying.ledger.writer.run(|_, _| -> Result<(), LedgerError> {
        Err(LedgerError::Database(rusqlite::Error::InvalidQuery))
    });
    assert!(broken.await.is_err());
    assert_eq!((paying.balance(), paying.held()), (spent(1), 0));
    drop(charged);
    assert_eq!((paying.balance(), paying.held()), (spent(1), 0));
    paying.until_charges_are_taken().await;
    paying.assert_sound().await;
}

/// A database that an earlier version wrote: its credit is there, and its books add up.
#[tokio::test]
async fn a_database_of_an_earlier_version_is_brought_up_to_date() {
    let folder = TempDir::new().unwrap();
    let old = rusqlite::Connection::open(folder.path().join("ledger.db")).unwrap();
    for migration in [
        include_str!("../migrations/1_accounts.sql"),
        include_str!("../migrations/2_limits.sql"),
        include_str!("../migrations/3_credit.sql"),
    ] {
        old.execute_batch(migration).unwrap();
    }
    // A grant from before there were books; one that expired; a charge whose balance leaves it out.
    old.execute_batch(
        "PRAGMA user_version = 3;
         INSERT INTO accounts (id, email, track, tier, created_at)
             VALUES ('acct_1', 'a@example.com', 'business', 'flex', 1);
         INSERT INTO credit_grants (id, account_id, amount, expires_at, created_at, remaining)
             VALUES ('g0', 'acct_1', 7, NULL, 1, 7), ('g1', 'acct_1', 100, 50, 1, 100),
                    ('g2', 'acct_1', 50000, NULL, 2, 49900);
         INSERT INTO ledger_entries (account_id, kind, ref, delta, balance_after, at)
             VALUES ('acct_1', 'grant', 'g1', 100, 100, 1), ('acct_1', 'grant', 'g2', 50000, 50100, 2),
                    ('acct_1', 'charge', 'use_1', -100, 49907, 60);
         INSERT INTO usage VALUES
             ('use_1', 'acct_1', 'key_1', 'm', 'm', 100, 0, 0, 0, 1000, 1000, 1000, 100, 0, 60);",
    )
    .unwrap();
    drop(old);
    let ledger = open(&folder, &Arc::new(AtomicI64::new(1_800_000_000_000)));
    let audit = ledger.audit().await.unwrap();
    assert_eq!(audit.violations, []);
    assert_eq!((audit.entries, audit.charges), (5, 1), "with the expiry");
    assert_eq!(ledger.balances("acct_1").balance.nanos(), 49_907);
    let rows = ledger.usage("acct_1", 0, i64::MAX).await.unwrap();
    assert_eq!(rows.len(), 1);
    assert_eq!(rows[0].charged.unwrap().cost.nanos(), 100);
}
