//! Contract of refused requests.

use super::*;
use crate::backoffice::{BLOCKED, RefusedCount, RefusedKind, RefusedPage, RefusedRequest};

contract!(
    a_record_is_returned_unchanged_and_written_once,
    the_last_thousand_of_an_account_stay,
    requests_of_a_blocked_account_are_few_among_them,
    pages_follow_each_other_and_keep_to_the_filter,
    a_filtered_page_of_all_accounts_looks_at_few_records,
    requests_are_found_by_their_ids_within_an_account,
    counts_are_the_sums_of_all_writers,
    old_records_and_counts_are_deleted,
);

type Condition = fn(&RefusedRequest) -> bool;

const AT_MS: i64 = NOW * 1_000;

fn refused(account: &str, number: i64) -> RefusedRequest {
    RefusedRequest {
        id: format!("refused_{account}_{number:06}"),
        at_ms: AT_MS + number,
        request_id: format!("req_{number}"),
        account_id: account.into(),
        key_id: format!("key_{}", number % 2),
        project_id: None,
        member_id: None,
        path: "/v1/chat/completions".into(),
        model: None,
        status: 404,
        code: "model_not_found".into(),
        param: None,
        message: "Use another model.".into(),
        agent: None,
        took_ms: 3,
    }
}

async fn all(given: &Given, page: RefusedPage<'_>) -> Vec<RefusedRequest> {
    let page = RefusedPage {
        limit: 10_000,
        ..page
    };
    given.backoffice.refused_page(&page).await.unwrap().requests
}

async fn a_record_is_returned_unchanged_and_written_once(given: Given) {
    let full = RefusedRequest {
        project_id: Some("proj_1".into()),
        member_id: Some("person_1".into()),
        model: Some("svc-ü \u{1f600}".into()),
        param: Some("messages[0]".into()),
        message: "'; DROP TABLE --\"".into(),
        agent: Some("claude-code".into()),
        status: 599,
        ..refused("acct_1", 2)
    };
    let records = [refused("acct_1", 1), full];
    for _ in 0..2 {
        given.backoffice.write_refused(&records).await.unwrap();
    }
    let mut found = all(&given, RefusedPage::default()).await;
    found.reverse();
    assert_eq!(found, records);
    given.backoffice.write_refused(&[]).await.unwrap();
}

async fn the_last_thousand_of_an_account_stay(given: Given) {
    for start in (0..1_100).step_by(50) {
        let batch: Vec<_> = (start..start + 50)
            .map(|at| refused("acct_1", at))
            .collect();
        given.backoffice.write_refused(&batch).await.unwrap();
    }
    let other = [refused("acct_2", 0)];
    given.backoffice.write_refused(&other).await.unwrap();
    let page = |account_id| RefusedPage {
        account_id: Some(account_id),
        ..RefusedPage::default()
    };
    let found = all(&given, page("acct_1")).await;
    assert_eq!(found.len(), 1_000);
    assert_eq!(found[0], refused("acct_1", 1_099));
    assert_eq!(found[999], refused("acct_1", 100));
    assert_eq!(all(&given, page("acct_2")).await, other);
}

async fn requests_of_a_blocked_account_are_few_among_them(given: Given) {
    let cause = [refused("acct_1", 0)];
    given.backoffice.write_refused(&cause).await.unwrap();
    for start in (1..2_001).step_by(200) {
        let batch: Vec<_> = (start..start + 200)
            .map(|at| RefusedRequest {
                code: BLOCKED.into(),
                ..refused("acct_1", at)
            })
            .collect();
        given.backoffice.write_refused(&batch).await.unwrap();
    }
    let kept = all(&given, RefusedPage::default()).await;
    assert_eq!(kept.len(), 101);
    assert_eq!((kept[0].at_ms, &kept[100]), (AT_MS + 2_000, &cause[0]));
}

async fn pages_follow_each_other_and_keep_to_the_filter(given: Given) {
    let mut records: Vec<_> = (0..20).map(|at| refused("acct_1", at)).collect();
    for (number, one) in records.iter_mut().enumerate() {
        // Some have the same time.
        one.at_ms = AT_MS + i64::try_from(number).unwrap() / 3;
        one.model = (number % 2 == 0).then(|| "svc-pro".into());
        one.member_id = (number % 4 == 0).then(|| "person_1".into());
        one.project_id = (number % 5 == 0).then(|| "proj_1".into());
        one.status = if number < 10 { 404 } else { 429 };
    }
    records.push(refused("acct_2", 50));
    given.backoffice.write_refused(&records).await.unwrap();
    records.reverse();

    for account_id in [None, Some("acct_1")] {
        let (mut before, mut seen) = (None, Vec::new());
        loop {
            let page = RefusedPage {
                account_id,
                before: before.as_ref().map(|(at, id): &(i64, String)| (*at, &**id)),
                limit: 3,
                ..RefusedPage::default()
            };
            let mut found = given.backoffice.refused_page(&page).await.unwrap();
            before = found.cut(2);
            seen.extend(found.requests);
            if before.is_none() {
                break;
            }
        }
        let expected = records.iter();
        let expected = expected.filter(|one| account_id.is_none_or(|id| one.account_id == id));
        assert!(seen.iter().eq(expected), "{seen:?}");
    }
    let projects = ["proj_0".to_owned(), "proj_1".to_owned()];
    let any = RefusedPage {
        account_id: Some("acct_1"),
        ..RefusedPage::default()
    };
    let filters: [(RefusedPage<'_>, Condition); 7] = [
        (
            RefusedPage {
                key_id: Some("key_1"),
                ..any
            },
            |one| one.key_id == "key_1",
        ),
        (
            RefusedPage {
                model: Some("svc-pro"),
                ..any
            },
            |one| one.model.is_some(),
        ),
        (
            RefusedPage {
                status: Some(429),
                ..any
            },
            |one| one.status == 429,
        ),
        (
            RefusedPage {
                code: Some("nope"),
                ..any
            },
            |_| false,
        ),
        (
            RefusedPage {
                from_ms: Some(AT_MS + 2),
                ..any
            },
            |one| one.at_ms >= AT_MS + 2,
        ),
        (
            RefusedPage {
                to_ms: Some(AT_MS + 2),
                ..any
            },
            |one| one.at_ms < AT_MS + 2,
        ),
        (
            RefusedPage {
                seen: Some(("person_1", &projects)),
                ..any
            },
            |one| one.member_id.is_some() || one.project_id.is_some(),
        ),
    ];
    for (page, condition) in filters {
        for account_id in [Some("acct_1"), None] {
            let found = all(&given, RefusedPage { account_id, ..page }).await;
            let expected = records
                .iter()
                .filter(|one| condition(one) && account_id.is_none_or(|id| one.account_id == id));
            assert!(found.iter().eq(expected), "{page:?}: {found:?}");
        }
    }
}

async fn a_filtered_page_of_all_accounts_looks_at_few_records(given: Given) {
    let mut records: Vec<_> = (0..100).map(|at| refused("acct_1", at)).collect();
    records[5].model = Some("svc-pro".into());
    records[95].model = Some("svc-pro".into());
    given.backoffice.write_refused(&records).await.unwrap();
    let (mut before, mut pages) = (None, Vec::new());
    loop {
        let page = RefusedPage {
            model: Some("svc-pro"),
            before: before.as_ref().map(|(at, id): &(i64, String)| (*at, &**id)),
            limit: 3,
            ..RefusedPage::default()
        };
        let mut found = given.backoffice.refused_page(&page).await.unwrap();
        let times = found.requests.iter().map(|one| one.at_ms - AT_MS);
        pages.push((times.collect::<Vec<_>>(), found.searched_to_ms.is_some()));
        before = found.cut(2);
        if before.is_none() {
            break;
        }
    }
    let none = || (Vec::new(), true);
    assert_eq!(pages, [(vec![95], true), none(), none(), (vec![5], false)]);
    // Without a filter, and within an account, it goes as far as it has to.
    for (account_id, model) in [(None, None), (Some("acct_1"), Some("svc-pro"))] {
        let page = RefusedPage {
            account_id,
            model,
            limit: 1_000,
            ..RefusedPage::default()
        };
        let found = given.backoffice.refused_page(&page).await.unwrap();
        assert_eq!(found.searched_to_ms, None);
        assert_eq!(
            found.requests.last().unwrap().at_ms - AT_MS,
            if model.is_some() { 5 } else { 0 }
        );
    }
}

async fn requests_are_found_by_their_ids_within_an_account(given: Given) {
    let same = |account: &str, number| RefusedRequest {
        request_id: "order 66".into(),
        ..refused(account, number)
    };
    let records = [
        same("acct_1", 1),
        same("acct_2", 2),
        refused("acct_1", 3),
        same("acct_1", 4),
    ];
    given.backoffice.write_refused(&records).await.unwrap();
    let find = async |id: &str, account_id: Option<&str>| {
        let found = given.backoffice.find_refused(id, account_id).await.unwrap();
        let numbers = found.iter().map(|one| one.at_ms - AT_MS);
        numbers.collect::<Vec<_>>()
    };
    assert_eq!(find("order 66", None).await, [4, 2, 1]);
    assert_eq!(find("order 66", Some("acct_1")).await, [4, 1]);
    assert_eq!(find(&records[1].id, None).await, [2]);
    assert_eq!(find(&records[1].id, Some("acct_1")).await, [0_i64; 0]);
    for unknown in ["", "order", "\0", "%"] {
        assert_eq!(find(unknown, None).await, [0_i64; 0]);
    }
}

async fn counts_are_the_sums_of_all_writers(given: Given) {
    let kind = |account: &str, key: &str, minute: i64| RefusedKind {
        account_id: account.into(),
        key_id: key.into(),
        status: 429,
        code: "rpm_exceeded".into(),
        minute,
    };
    let write = async |writer: &str, kind: RefusedKind, requests: i64| {
        let counts = [(kind, requests)];
        let written = given.backoffice.write_refused_counts(writer, &counts).await;
        written.unwrap();
    };
    write("gw_1", kind("acct_1", "key_1", 10), 3).await;
    // A total replaces a lower one; a batch can be written again.
    write("gw_1", kind("acct_1", "key_1", 10), 5).await;
    write("gw_1", kind("acct_1", "key_1", 10), 3).await;
    write("gw_2", kind("acct_1", "key_1", 10), 7).await;
    write("gw_1", kind("acct_1", "key_2", 11), 1).await;
    write("gw_1", kind("acct_1", "key_1", 9), 100).await;
    write("gw_1", kind("acct_2", "key_9", 11), 1_000).await;
    let count = |key: &str, requests| RefusedCount {
        key_id: key.into(),
        status: 429,
        code: "rpm_exceeded".into(),
        requests,
    };
    let counts = async |account_id, since| {
        let counts = given.backoffice.refused_counts(account_id, since).await;
        counts.unwrap()
    };
    assert_eq!(
        counts(Some("acct_1"), 10).await,
        [count("key_1", 12), count("key_2", 1)]
    );
    assert_eq!(counts(None, 10).await, [count("", 1_013)]);
    assert_eq!(counts(Some("acct_3"), 0).await, []);
}

async fn old_records_and_counts_are_deleted(given: Given) {
    let minute = AT_MS / 60_000;
    let records = [refused("acct_1", 0), refused("acct_1", 60_000)];
    given.backoffice.write_refused(&records).await.unwrap();
    for at in [minute - 1, minute] {
        let kind = RefusedKind {
            account_id: "acct_1".into(),
            key_id: "key_1".into(),
            status: 400,
            code: "x".into(),
            minute: at,
        };
        let counts = [(kind, 1)];
        let written = given.backoffice.write_refused_counts("gw", &counts).await;
        written.unwrap();
    }
    given
        .backoffice
        .prune_refused(AT_MS + 1, (AT_MS + 1).div_euclid(60_000))
        .await
        .unwrap();
    assert_eq!(all(&given, RefusedPage::default()).await, records[1..]);
    let left = given.backoffice.refused_counts(None, 0).await.unwrap();
    assert_eq!(left[0].requests, 1);
}
