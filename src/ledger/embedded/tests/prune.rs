//! Pruning beside the writer, in many transactions.

use tokio::{runtime::Handle, task::block_in_place};

use super::{
    super::{prune_file, sqlite::prune},
    *,
};
use crate::base::month::Month;

const NEXT_MONTH: i64 = 31 * 86_400;

fn month(paying: &Paying) -> Month {
    Month::of_ms(paying.now_ms.load(Relaxed))
}

/// After each transaction the ledger adds up. Calls that are made meanwhile stay, though the account had none since the
/// cutoff when pruning began.
#[tokio::test(flavor = "multi_thread")]
async fn each_transaction_leaves_a_ledger_that_adds_up() {
    let paying = with(DOLLAR).await;
    let neighbour = paying.neighbour(DOLLAR).await;
    for _ in 0..40 {
        paying.pay().await.unwrap();
        neighbour.pay().await.unwrap();
        drop(neighbour.hold(COST, COST, 0).await.unwrap());
    }
    paying.advance(NEXT_MONTH);
    paying.assert_added_up().await;
    let file = paying.folder().path().join("ledger.db");
    let (mut transactions, mut paid) = (0, 0);
    let pruned = block_in_place(|| {
        prune_file(&file, month(&paying), &mut |_| {
            transactions += 1;
            assert_eq!(audit_file(&file).unwrap().violations, []);
            let pay = async {
                paying.pay().await.unwrap();
                paying.days().await; // posts it
            };
            Handle::current().block_on(pay);
            paid += 1;
        })
    });
    let pruned = pruned.unwrap();
    assert_eq!((pruned.calls, pruned.entries), (120, 2));
    assert!(transactions >= 4, "{transactions}");
    let calls: i64 = paying.sql("SELECT count(*) FROM calls").parse().unwrap();
    assert_eq!(calls, paid, "those that were made meanwhile");
    assert_eq!(paying.balance().await, spent(40 + paid));
    paying.assert_sound().await;
}

/// The write-ahead log is emptied while nothing else writes.
#[tokio::test]
async fn the_log_does_not_grow_without_a_gateway() {
    let connection = {
        let paying = with(DOLLAR).await;
        paying.pay().await.unwrap();
        prune::connect(&paying.folder().path().join("ledger.db")).unwrap()
    };
    let pages: i64 = connection
        .query_row("PRAGMA wal_autocheckpoint", [], |row| row.get(0))
        .unwrap();
    assert!(pages > 0);
}
