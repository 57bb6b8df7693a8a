//! Pages are read by an index, from the line at which they begin.

use rusqlite::params_from_iter;

use super::{
    super::sqlite::pages::{accounts_query, calls_query},
    *,
};
use crate::ledger::{
    CallId, CallsPage,
    conditions::{Conditions, Sql},
};

/// How SQLite goes about it.
fn plan(paying: &Paying, query: &str, wanted: &Conditions) -> String {
    let connection = open_to_read(&paying.folder().path().join("ledger.db")).unwrap();
    let plan = format!("EXPLAIN QUERY PLAN {query}");
    let mut plan = connection.prepare(&plan).unwrap();
    let values = params_from_iter(&wanted.values);
    let steps = plan.query_map(values, |row| row.get::<_, String>(3));
    let steps: Vec<String> = steps.unwrap().map(Result::unwrap).collect();
    steps.join("; ")
}

#[tokio::test]
async fn pages_of_calls_use_an_index() {
    let paying = with(DOLLAR).await;
    paying.pay().await.unwrap();
    let all = CallsPage::default();
    let own = CallsPage {
        account_id: Some("acct_1"),
        ..all
    };
    let failed = Some(Outcome::ProviderFailed);
    for (page, first, later) in [
        (
            all,
            "SCAN calls USING INDEX calls_by_time",
            "calls_by_time (ended_ms<?)",
        ),
        (
            CallsPage {
                outcome: failed,
                ..all
            },
            "calls_by_outcome (outcome=?)",
            "calls_by_outcome (outcome=? AND ended_ms<?)",
        ),
        (
            own,
            "calls_by_account (account_id=?)",
            "calls_by_account (account_id=? AND ended_ms<?)",
        ),
        (
            CallsPage {
                outcome: Some(Outcome::Answered),
                ..own
            },
            "calls_by_account (account_id=?)",
            "calls_by_account (account_id=? AND ended_ms<?)",
        ),
        (
            CallsPage {
                outcome: failed,
                ..own
            },
            "calls_by_account_and_outcome (account_id=? AND outcome=?)",
            "calls_by_account_and_outcome (account_id=? AND outcome=? AND ended_ms<?)",
        ),
        (
            CallsPage {
                key_id: Some("key_1"),
                ..own
            },
            "calls_by_account (account_id=? AND ended_ms>? AND ended_ms<?)",
            "calls_by_account (account_id=? AND ended_ms>? AND ended_ms<?)",
        ),
    ] {
        let before = Some((7, CallId(7)));
        for (page, expected) in [(page, first), (CallsPage { before, ..page }, later)] {
            let mut wanted = Conditions::of_calls(Sql::Lite, &page);
            if Conditions::of_sums(Sql::Lite, &page).is_some() {
                wanted.within(1, 9);
            }
            let plan = plan(&paying, &calls_query(&wanted, 50), &wanted);
            assert!(plan.contains(expected), "{page:?}: {plan}");
            assert!(!plan.contains("B-TREE"), "{page:?} is sorted: {plan}");
        }
    }
}

#[tokio::test]
async fn pages_of_accounts_use_an_index() {
    let paying = with(DOLLAR).await;
    let before = Some((7, "acct_1".to_owned()));
    for (before, expected) in [
        (None, "SCAN accounts USING INDEX accounts_by_time"),
        (before, "accounts_by_time (created_at<?)"),
    ] {
        let wanted = Conditions::of_accounts(Sql::Lite, "text", before);
        let plan = plan(&paying, &accounts_query(&wanted, 50), &wanted);
        assert!(plan.contains(expected), "{plan}");
        assert!(!plan.contains("B-TREE"), "it is sorted: {plan}");
    }
}
