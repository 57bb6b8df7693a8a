//! The redo log and its pages.

use super::*;
use crate::{
    ledger::{HoldRequest, SessionsPage},
    wire::agent::Agent,
};

/// Makes posting fail.
const REFUSE: &str = "CREATE TRIGGER refuse BEFORE INSERT ON usage_days
    BEGIN SELECT RAISE(ABORT, 'refused'); END";
const ROWS: &str = "SELECT count(*) FROM redo_log";
/// Size of a page in the write-ahead log, including its header.
const FRAME: u64 = 4_096 + 24;

impl Paying {
    fn frames_written(&self) -> u64 {
        let beside = self.folder().path().join("ledger.db-wal");
        beside.metadata().unwrap().len() / FRAME
    }

    async fn pay_times(&self, times: usize) {
        for _ in 0..times {
            self.pay().await.unwrap();
        }
    }
}

/// A page that the disk has lost would hide those after it, and they would be overwritten.
#[tokio::test]
async fn a_missing_page_of_the_redo_log_is_damage() {
    let paying = with(DOLLAR).await;
    paying.sql(REFUSE);
    paying.pay_times(70).await;
    let file = paying.folder().path().join("ledger.db");
    assert!(audit_file(&file).unwrap().violations.is_empty());
    for lost in [
        "UPDATE redo_log SET used_bytes = 0 WHERE page = 1",
        "DELETE FROM redo_log WHERE page = 1",
    ] {
        paying.sql(lost);
        let damage = audit_file(&file).unwrap_err();
        assert!(damage.contains("a page of calls"), "{damage}");
    }
}

#[tokio::test]
async fn a_charge_writes_one_page() {
    let paying = with(DOLLAR).await;
    paying.sql(REFUSE);
    paying.pay_times(2).await;
    let before = paying.frames_written();
    paying.pay_times(5).await;
    assert_eq!(paying.frames_written() - before, 5);
    paying.assert_sound().await;
}

#[tokio::test]
async fn pages_are_reused_once_their_calls_are_posted() {
    let mut paying = with(DOLLAR).await;
    let mut rows = String::new();
    for round in 1..=3 {
        paying.sql(REFUSE);
        paying.pay_times(70).await;
        paying = paying.restart().await; // on to the next page
        paying.pay_times(2).await;
        assert_eq!(paying.calls_in_redo_log(), 72);
        paying.assert_sound().await;
        if round == 1 {
            rows = paying.sql(ROWS);
            assert!(rows.parse::<u32>().unwrap() > 3, "{rows} pages");
        }
        assert_eq!(paying.sql(ROWS), rows, "round {round}");
        paying.sql("DROP TRIGGER refuse");
        paying.assert_added_up().await;
        assert_eq!(paying.calls_in_redo_log(), 0);
        assert_eq!(paying.balance().await, spent(round * 72));
        paying = paying.restart().await;
        assert_eq!(paying.balance().await, spent(round * 72));
    }
    paying.assert_sound().await;
}

/// Sums by session are those of all calls, posted or not.
#[tokio::test]
async fn sessions_include_calls_that_cannot_be_posted() {
    let paying = with(DOLLAR).await;
    let pay_by = async |session: &str| {
        let agent = Agent {
            session: Some(session.into()),
            ..Agent::default()
        };
        let request = HoldRequest {
            agent: Some(Arc::new(agent)),
            ..paying.request(COST, COST, 0)
        };
        let mut held = paying.ledger.hold(request).await.unwrap();
        held.charge(tokens(COST), Outcome::Answered).await.unwrap();
    };
    let sessions = async || {
        let page = SessionsPage {
            to_ms: i64::MAX,
            limit: 10,
            ..SessionsPage::default()
        };
        let sessions = paying.ledger.sessions(page).await.unwrap();
        let sessions = sessions.into_iter().map(|used| (used.session, used.calls));
        sessions.collect::<Vec<_>>()
    };
    pay_by("both").await;
    paying.advance(1);
    assert_eq!(sessions().await, [("both".into(), 1)]);
    paying.sql(REFUSE);
    pay_by("unposted").await;
    pay_by("unposted").await;
    paying.advance(1);
    pay_by("both").await;
    assert_eq!(paying.calls_in_redo_log(), 3);
    let expected = [("both".into(), 2), ("unposted".into(), 2)];
    assert_eq!(sessions().await, expected);
}
