//! A disk without room for rows: charges wait in the redo log, which is overwritten in place, and are posted later.

use super::*;
use crate::ledger::tests::until;

const PAGES: &str = "SELECT page_count FROM pragma_page_count";
const ROWS: &str = "SELECT count(*) FROM calls";

impl Paying {
    /// Posts the redo log, if there is room.
    async fn post(&self) {
        self.ledger.usage(&self.account_id, 0, 0).await.unwrap();
    }

    fn rows(&self) -> i64 {
        self.sql(ROWS).parse().unwrap()
    }

    /// Pays until rows cannot be posted any more, and returns how often.
    async fn pay_until_rows_have_no_room(&self) -> i64 {
        for paid in 1..10_000 {
            self.pay().await.unwrap();
            self.post().await;
            if self.calls_in_redo_log() > 0 {
                return paid;
            }
        }
        panic!("the disk never became full");
    }
}

/// A ledger with posted calls and a redo log of several pages, on a disk that is now full.
async fn on_a_full_disk() -> (Paying, i64) {
    let paying = with(DOLLAR).await;
    // Refused while the redo log grows, so that it has pages to overwrite later.
    paying.sql(
        "CREATE TRIGGER refuse BEFORE INSERT ON calls BEGIN SELECT RAISE(ABORT, 'refused'); END",
    );
    for _ in 0..200 {
        paying.pay().await.unwrap();
    }
    assert_eq!(paying.calls_in_redo_log(), 200);
    paying.sql("DROP TRIGGER refuse");
    paying.post().await;
    assert_eq!((paying.calls_in_redo_log(), paying.rows()), (0, 200));
    let pages = paying.sql(PAGES).parse().unwrap();
    paying.limit_pages(Some(pages)).await;
    let paid = 200 + paying.pay_until_rows_have_no_room().await;
    (paying, paid)
}

/// While there is no room for rows, calls are charged, listed and audited as usual.
#[tokio::test]
async fn charges_wait_in_the_redo_log_while_rows_have_no_room() {
    let (paying, mut paid) = on_a_full_disk().await;
    for _ in 0..50 {
        paying.pay().await.unwrap();
        paid += 1;
    }
    let waiting = i64::try_from(paying.calls_in_redo_log()).unwrap();
    assert!(waiting > 50, "{waiting}");
    assert_eq!(paying.rows() + waiting, paid);
    assert_eq!(paying.balance().await, spent(paid));
    paying.assert_sound().await;
    let listed = paying.ledger.usage(&paying.account_id, 0, i64::MAX).await;
    assert_eq!(i64::try_from(listed.unwrap().len()).unwrap(), paid);
    let file = paying.folder().path().join("ledger.db");
    assert_eq!(audit_file(&file).unwrap().violations, []);
    paying.limit_pages(None).await;
    until("it is posted by itself", async || paying.rows() == paid).await;
    assert_eq!(paying.calls_in_redo_log(), 0);
    paying.assert_sound().await;
    paying.assert_added_up().await;
    assert_eq!(paying.restart().await.balance().await, spent(paid));
}

/// When the redo log has no room either, charges are refused and change nothing. What was charged is there.
#[tokio::test]
async fn charges_are_refused_once_the_redo_log_has_no_room_either() {
    let (paying, mut paid) = on_a_full_disk().await;
    let mut refused = loop {
        let mut held = paying.hold(COST, COST, 0).await.expect("there is credit");
        match held.charge(tokens(COST), Outcome::Answered).await {
            Ok(_) => paid += 1,
            Err(_) => break held,
        }
        assert!(paid < 10_000, "the redo log never became full");
    };
    assert_eq!(
        (paying.balance().await, paying.held().await),
        (spent(paid), COST),
        "it can still be charged"
    );
    let unavailable = paying.hold(COST, COST, 0).await.err();
    assert_eq!(unavailable, Some(HoldRefused::Unavailable));
    paying.assert_sound().await;
    paying.limit_pages(None).await;
    paying.until_charges_are_taken().await;
    let charged = refused.charge(tokens(COST), Outcome::Answered).await;
    charged.unwrap();
    drop(refused);
    paid += 1;
    until("it is posted by itself", async || paying.rows() == paid).await;
    assert_eq!(
        (paying.balance().await, paying.held().await),
        (spent(paid), 0)
    );
    paying.assert_sound().await;
    paying.assert_added_up().await;
}

/// A process that stops while nothing can be posted leaves the calls to the next one.
#[tokio::test]
async fn the_next_process_posts_what_a_full_disk_has_left() {
    let (paying, paid) = on_a_full_disk().await;
    assert!(paying.rows() < paid);
    let paying = paying.restart().await;
    assert_eq!((paying.rows(), paying.calls_in_redo_log()), (paid, 0));
    assert_eq!(paying.balance().await, spent(paid));
    paying.assert_sound().await;
    paying.assert_added_up().await;
}
