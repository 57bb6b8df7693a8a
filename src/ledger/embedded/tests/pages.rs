//! Pages are read through an index, beginning at their cursor.

use rusqlite::{Connection, params_from_iter};

use super::{
    super::sqlite::{
        calls::BY_ID,
        pages::{CHARGES, Calls, accounts_query},
    },
    *,
};
use crate::ledger::{
    CallId, CallsPage,
    conditions::{Conditions, Sql},
};

fn file(paying: &Paying) -> Connection {
    Connection::open(paying.folder().path().join("ledger.db")).unwrap()
}

/// SQLite's query plan.
fn plan(file: &Connection, query: &str) -> String {
    let plan = format!("EXPLAIN QUERY PLAN {query}");
    let mut plan = file.prepare(&plan).unwrap();
    let values = vec![rusqlite::types::Value::Null; plan.parameter_count()];
    let steps = plan.query_map(params_from_iter(values), |row| row.get::<_, String>(3));
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
    for (page, expected) in [
        (all, "INDEX blocks_by_time (last_ms>? AND last_ms<?)"),
        (
            CallsPage {
                outcome: failed,
                ..all
            },
            "INDEX odd_blocks_by_time (last_ms>? AND last_ms<?)",
        ),
        (
            own,
            "INDEX blocks_by_account (account_id=? AND last_ms>? AND last_ms<?)",
        ),
        (
            CallsPage {
                outcome: Some(Outcome::Answered),
                ..own
            },
            "INDEX blocks_by_account (account_id=? AND last_ms>? AND last_ms<?)",
        ),
        (
            CallsPage {
                outcome: failed,
                ..own
            },
            "INDEX odd_blocks_by_account (account_id=? AND last_ms>? AND last_ms<?)",
        ),
    ] {
        let (file, calls) = (file(&paying), Calls::of(&page));
        let wanted = calls.wanted(&file).unwrap();
        let plan = plan(&file, &wanted.query());
        assert!(plan.contains(expected), "{page:?}: {plan}");
        assert!(!plan.contains("B-TREE"), "{page:?} is sorted: {plan}");
    }
}

/// Blocks are read from the page's cursor on, and between the times of sums.
#[tokio::test]
async fn a_page_of_calls_reads_no_rows_that_cannot_be_on_it() {
    let paying = with(DOLLAR).await;
    paying.pay().await.unwrap();
    paying.days().await; // posts the redo log
    let file = file(&paying);
    let times = |page: CallsPage<'_>| {
        let calls = Calls::of(&CallsPage {
            account_id: Some(&paying.account_id),
            ..page
        });
        calls.wanted(&file).unwrap().entered
    };
    let all = CallsPage::default();
    let before = Some((7, CallId(7)));
    assert_eq!(times(all), Some(0..=i64::MAX));
    assert_eq!(times(CallsPage { before, ..all }), Some(0..=7));
    let (never, key_id) = (Some("key_never"), Some(&*paying.key_id));
    let of_key = |key_id| times(CallsPage { key_id, ..all });
    assert_eq!(of_key(never), None);
    let used = of_key(key_id).unwrap();
    let now_ms = paying.now_ms.load(Relaxed);
    assert!(used.contains(&now_ms) && *used.end() == now_ms, "{used:?}");
}

#[tokio::test]
async fn entries_and_call_ids_use_an_index() {
    let paying = with(DOLLAR).await;
    for (query, expected) in [
        (BY_ID, "INDEX blocks_by_id (first_id>? AND first_id<?)"),
        (
            CHARGES,
            "INDEX blocks_with_charges (account_id=? AND seq<?)",
        ),
    ] {
        let plan = plan(&file(&paying), query);
        assert!(plan.contains(expected), "{plan}");
        assert!(!plan.contains("B-TREE"), "it is sorted: {plan}");
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
        let plan = plan(&file(&paying), &accounts_query(&wanted, 50));
        assert!(plan.contains(expected), "{plan}");
        assert!(!plan.contains("B-TREE"), "it is sorted: {plan}");
    }
}
