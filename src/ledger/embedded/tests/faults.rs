//! Full disks, locked databases and damaged files.

use super::*;

/// A full disk refuses charges, loses none that was committed, and accepts charges again later. While it is full, no
/// new call is started.
#[tokio::test]
async fn a_full_disk_refuses_charges_until_there_is_space() {
    let paying = with(DOLLAR).await;
    paying.limit_pages(Some(60)).await;
    let mut paid = 0;
    let refused = loop {
        let mut held = paying.hold(COST, COST, 0).await.expect("there is credit");
        match held.charge(tokens(COST), Outcome::Answered).await {
            Ok(_) => paid += 1,
            Err(error) => {
                assert_eq!(paying.held().await, COST, "it can still be charged");
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
    assert_eq!(
        (paying.balance().await, paying.held().await),
        (spent(paid), 0)
    );
    let unavailable = paying.hold(COST, COST, 0).await.err();
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
    paying.assert_added_up().await;
    assert_eq!(paying.restart().await.balance().await, spent(paid + 1));
}

/// As above, with charges that are written by the requesting thread, as on an idle gateway.
#[tokio::test]
async fn a_charge_that_is_refused_at_once_changes_nothing_and_can_be_tried_again() {
    let paying = with(DOLLAR).await;
    for round in 0..5 {
        paying.pay().await.unwrap();
        paying.sql(
            "CREATE TRIGGER refuse BEFORE INSERT ON redo_log
             BEGIN SELECT RAISE(ABORT, 'refused'); END",
        );
        tokio::time::sleep(Duration::from_millis(3)).await;
        let mut held = paying.hold(COST, COST, 0).await.expect("there is credit");
        let refused = held.charge(tokens(COST), Outcome::Answered).await;
        assert!(refused.is_err());
        assert_eq!(
            (paying.balance().await, paying.held().await),
            (spent(2 * round + 1), COST),
            "it can still be charged"
        );
        paying.sql("DROP TRIGGER refuse");
        paying.until_charges_are_taken().await;
        held.charge(tokens(COST), Outcome::Answered).await.unwrap();
        drop(held);
        assert_eq!(
            (paying.balance().await, paying.held().await),
            (spent(2 * round + 2), 0)
        );
    }
    paying.assert_sound().await;
    paying.assert_added_up().await;
    assert_eq!(paying.restart().await.balance().await, spent(10));
}

/// When a transaction of many charges fails, none of them has happened, whichever of them failed; each can be charged
/// again once there is space.
#[tokio::test(flavor = "multi_thread")]
async fn charges_of_a_batch_that_failed_are_undone_together_and_can_be_tried_again() {
    let paying = Arc::new(with(DOLLAR).await);
    paying.limit_pages(Some(80)).await;
    let callers = (0..64).map(|_| {
        let paying = paying.clone();
        tokio::spawn(async move {
            let mut paid = 0;
            while let Ok(mut held) = paying.hold(COST, COST, 0).await {
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
        (paying.balance().await, paying.held().await),
        (spent(paid), waiting * COST)
    );
    paying.limit_pages(None).await;
    paying.until_charges_are_taken().await;
    for mut held in unpaid {
        held.charge(tokens(COST), Outcome::Answered).await.unwrap();
    }
    paying.assert_added_up().await;
    assert_eq!(
        (paying.balance().await, paying.held().await),
        (spent(paid + waiting), 0)
    );
    paying.assert_sound().await;
    let paying = Arc::into_inner(paying).unwrap().restart().await;
    assert_eq!(paying.balance().await, spent(paid + waiting), "as stored");
}

/// Another program that locks the database delays charges and has no other effect.
#[tokio::test]
async fn a_database_locked_by_another_program_is_waited_for() {
    let paying = with(DOLLAR).await;
    paying.pay().await.unwrap();
    let file = paying.folder().path().join("ledger.db");
    let stranger = rusqlite::Connection::open(file).unwrap();
    stranger.execute_batch("BEGIN IMMEDIATE").unwrap();
    let mut held = paying.hold(COST, COST, 0).await.unwrap();
    assert!(held.charge(tokens(COST), Outcome::Answered).await.is_err());
    assert_eq!(
        (paying.balance().await, paying.held().await),
        (spent(1), COST)
    );
    let refused = paying.hold(COST, COST, 0).await.err();
    assert_eq!(refused, Some(HoldRefused::Unavailable));
    let listed = paying.ledger.usage(&paying.account_id, 0, i64::MAX).await;
    assert_eq!(listed.unwrap().len(), 1, "what was charged before is shown");
    stranger.execute_batch("ROLLBACK").unwrap();
    paying.until_charges_are_taken().await;
    held.charge(tokens(COST), Outcome::Answered).await.unwrap();
    drop(held);
    assert_eq!((paying.balance().await, paying.held().await), (spent(2), 0));
    paying.assert_sound().await;
}

/// A later transaction that fails does not hold the credit of a committed charge again.
#[tokio::test]
async fn a_committed_charge_is_not_held_again() {
    let paying = with(DOLLAR).await;
    let mut charged = paying.hold(COST, COST, 0).await.unwrap();
    charged
        .charge(tokens(COST), Outcome::Answered)
        .await
        .unwrap();
    let broken = paying
        .embedded()
        .writer
        .run(|_, _| -> Result<(), LedgerError> {
            Err(LedgerError::Database(rusqlite::Error::InvalidQuery))
        });
    assert!(broken.await.is_err());
    assert_eq!((paying.balance().await, paying.held().await), (spent(1), 0));
    drop(charged);
    assert_eq!((paying.balance().await, paying.held().await), (spent(1), 0));
    paying.until_charges_are_taken().await;
    paying.assert_sound().await;
}

/// A file that is as the last process left it is used without a check for damage; any other is checked.
#[tokio::test]
async fn a_file_that_was_touched_is_checked() {
    let paying = with(DOLLAR).await;
    let file = paying.folder().path().join("ledger.db");
    let checked = |paying: &Paying| paying.embedded().is_checked.load(Relaxed);
    assert!(checked(&paying), "a new one");
    paying.pay().await.unwrap();
    let paying = paying.restart().await;
    assert!(!checked(&paying));
    let paying = paying.restart().await;
    assert!(!checked(&paying), "nor has the last process checked it");
    paying.assert_sound().await;
    assert!(checked(&paying), "an audit has checked it");
    let touch = || {
        let opened = std::fs::OpenOptions::new().append(true).open(&file);
        let longer_ago = std::time::UNIX_EPOCH;
        opened.unwrap().set_modified(longer_ago).unwrap();
    };
    assert!(checked(&paying.restart_after(touch).await));
}

/// Damage that is not visible from outside is found by the first audit, and then no new call is started.
#[tokio::test]
async fn damage_that_is_found_late_stops_new_calls() {
    let paying = with(DOLLAR).await;
    for _ in 0..200 {
        paying.pay().await.unwrap();
    }
    let file = paying.folder().path().join("ledger.db");
    // A page that is not read before an audit.
    let page = "SELECT rootpage FROM sqlite_schema WHERE name = 'replays_by_call'";
    let page: usize = paying.sql(page).parse().unwrap();
    let damage = || {
        let mut bytes = std::fs::read(&file).unwrap();
        bytes[(page - 1) * 4096..page * 4096].fill(0xA5);
        std::fs::write(&file, bytes).unwrap();
        // As if it had been left so.
        Lock::take(&file).unwrap().usable.store(true, Relaxed);
    };
    let paying = paying.restart_after(damage).await;
    assert!(paying.hold(COST, COST, 0).await.is_ok());
    assert!(paying.ledger.audit().await.is_err());
    let refused = paying.hold(COST, COST, 0).await.err();
    assert_eq!(refused, Some(HoldRefused::Unavailable));
}
