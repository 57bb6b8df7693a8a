//! Pages are read through an index, beginning at their cursor.

use rusqlite::{Connection, params_from_iter};

use super::{
    super::sqlite::pages::{Calls, ENTRIES, accounts_query},
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
    let before = Some((7, CallId(7)));
    for (page, expected) in [
        (all, "SCAN calls USING INDEX calls_by_time"),
        (
            CallsPage { before, ..all },
            "INDEX calls_by_time (ended_at_ms<?)",
        ),
        (
            CallsPage {
                outcome: failed,
                ..all
            },
            "INDEX calls_not_answered (outcome=?)",
        ),
        (own, "INDEX calls_by_account (account_id=?)"),
        (
            CallsPage { before, ..own },
            "INDEX calls_by_account (account_id=? AND ended_at_ms<?)",
        ),
        (
            CallsPage {
                outcome: Some(Outcome::Answered),
                ..own
            },
            "INDEX calls_by_account (account_id=?)",
        ),
        (
            CallsPage {
                outcome: failed,
                ..own
            },
            "INDEX calls_not_answered_by_account (account_id=? AND outcome=?)",
        ),
    ] {
        let plan = plan(&file(&paying), &Calls::query(&page).text);
        assert!(plan.contains(expected), "{page:?}: {plan}");
        assert!(!plan.contains("B-TREE"), "{page:?} is sorted: {plan}");
    }
}

/// Failed calls are read from the index of each outcome, between the bounds; only the rows that were read are sorted.
#[tokio::test]
async fn pages_of_errors_use_the_indexes_of_failed_calls() {
    let paying = with(DOLLAR).await;
    paying.pay().await.unwrap();
    let all = CallsPage {
        errors_only: true,
        from_ms: Some(3),
        to_ms: Some(9),
        limit: 5,
        ..CallsPage::default()
    };
    let own = CallsPage {
        account_id: Some("acct_1"),
        ..all
    };
    let bounds = "outcome=? AND ended_at_ms>? AND ended_at_ms<?)";
    for (page, expected) in [
        (all, format!("INDEX calls_not_answered ({bounds}")),
        (
            own,
            format!("INDEX calls_not_answered_by_account (account_id=? AND {bounds}"),
        ),
    ] {
        let plan = plan(&file(&paying), &Calls::query(&page).text);
        let failed = Outcome::errors().count();
        assert_eq!(plan.matches(&expected).count(), failed, "{plan}");
        assert!(!plan.contains("SCAN calls"), "{plan}");
    }
}

/// A page of a key or model reads calls between the first and the last of their sums.
#[tokio::test]
async fn a_page_of_calls_reads_no_rows_that_cannot_be_on_it() {
    let paying = with(DOLLAR).await;
    paying.pay().await.unwrap();
    paying.days().await; // posts the redo log
    let file = file(&paying);
    let of_key = |key_id| {
        let calls = Calls::of(&CallsPage {
            account_id: Some(&paying.account_id),
            key_id: Some(key_id),
            ..CallsPage::default()
        });
        let page = calls.restricted(&file).unwrap();
        page.map(|page| plan(&file, &Calls::query(&page).text))
    };
    assert_eq!(of_key("key_never"), None);
    let plan = of_key(&paying.key_id).unwrap();
    let expected = "INDEX calls_by_account (account_id=? AND ended_at_ms>? AND ended_at_ms<?)";
    assert!(plan.contains(expected), "{plan}");
}

#[tokio::test]
async fn entries_are_merged_from_two_indexes() {
    let paying = with(DOLLAR).await;
    let statement = "SELECT * FROM ledger WHERE account_id = 'acct_1' ORDER BY seq DESC LIMIT 9";
    for (query, of_entries, of_calls) in [
        (
            ENTRIES,
            "(account_id=? AND seq<?)",
            "(account_id=? AND entry_seq<?)",
        ),
        (
            statement,
            "(account_id=?)",
            "(account_id=? AND entry_seq>?)",
        ),
    ] {
        let plan = plan(&file(&paying), query);
        for expected in [
            format!("INDEX ledger_entries_by_account {of_entries}"),
            format!("INDEX calls_by_entry {of_calls}"),
        ] {
            assert!(plan.contains(&expected), "{expected}: {plan}");
        }
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
