//! Contract of operator actions.

use super::*;

contract!(
    actions_are_returned_unchanged_newest_first,
    pages_follow_each_other_without_a_gap,
    actions_are_found_by_their_subject,
    concurrent_actions_are_each_recorded_once,
);

pub(crate) fn action(what: &str, subject: &str) -> Action {
    Action {
        at_ms: NOW * 1_000,
        actor: "person_1".into(),
        what: what.into(),
        subject: subject.into(),
        before: None,
        after: None,
    }
}

fn whats(page: &[RecordedAction]) -> Vec<&str> {
    page.iter()
        .map(|recorded| recorded.action.what.as_str())
        .collect()
}

async fn actions_are_returned_unchanged_newest_first(given: Given) {
    assert_eq!(
        given.backoffice.actions_page(None, None, 10).await.unwrap(),
        []
    );
    let actions = [
        action("account.close", "acct_1"),
        Action {
            // Actions are ordered by recording, not by time.
            at_ms: NOW * 1_000 - 5,
            actor: "token".into(),
            before: Some("{\"tier\":\"free\"}".into()),
            after: Some("{\"text\":\"\\u0000 ü 👩‍👩‍👧\"}".into()),
            ..action("account.change", "acct_2")
        },
        Action {
            after: Some("null".into()),
            ..action("key.delete", "")
        },
        // An equal action is recorded again.
        action("account.close", "acct_1"),
    ];
    for action in &actions {
        given.backoffice.record(action).await.unwrap();
    }
    let page = given.backoffice.actions_page(None, None, 10).await.unwrap();
    assert!(
        page.is_sorted_by(|one, next| one.seq > next.seq),
        "{page:?}"
    );
    let found: Vec<_> = page.into_iter().map(|recorded| recorded.action).collect();
    assert!(found.iter().eq(actions.iter().rev()), "{found:?}");
}

async fn pages_follow_each_other_without_a_gap(given: Given) {
    for number in 0..10 {
        given
            .backoffice
            .record(&action(&number.to_string(), "acct_1"))
            .await
            .unwrap();
    }
    let (mut before, mut seen) = (None, Vec::new());
    for _ in 0..10 {
        let page = given
            .backoffice
            .actions_page(None, before, 3)
            .await
            .unwrap();
        let Some(last) = page.last() else { break };
        before = Some(last.seq);
        seen.extend(whats(&page).into_iter().map(str::to_owned));
        // Actions recorded meanwhile are on none of the following pages.
        given
            .backoffice
            .record(&action("late", "acct_1"))
            .await
            .unwrap();
    }
    assert_eq!(seen, ["9", "8", "7", "6", "5", "4", "3", "2", "1", "0"]);
    for (before, limit, length) in [
        (None, 0, 0),
        (None, usize::MAX, 14),
        (Some(i64::MIN), 5, 0),
        (Some(0), 5, 0),
        (Some(i64::MAX), 5, 5),
    ] {
        let page = given
            .backoffice
            .actions_page(None, before, limit)
            .await
            .unwrap();
        assert_eq!(page.len(), length, "{before:?} {limit}");
    }
}

async fn actions_are_found_by_their_subject(given: Given) {
    for number in 0..10 {
        let subject = format!("acct_{}", number % 2);
        given
            .backoffice
            .record(&action(&number.to_string(), &subject))
            .await
            .unwrap();
    }
    let page = async |subject, before| {
        let page = given
            .backoffice
            .actions_page(Some(subject), before, 3)
            .await;
        page.unwrap()
    };
    let first = page("acct_1", None).await;
    assert_eq!(whats(&first), ["9", "7", "5"]);
    let second = page("acct_1", Some(first[2].seq)).await;
    assert_eq!(whats(&second), ["3", "1"]);
    for unknown in ["acct_", "ACCT_1", "acct_%", "", "\0"] {
        assert_eq!(page(unknown, None).await, []);
    }
}

async fn concurrent_actions_are_each_recorded_once(given: Given) {
    let tasks = (0..20).map(|number| {
        let backoffice = given.backoffice.clone();
        tokio::spawn(async move {
            backoffice
                .record(&action(&number.to_string(), "acct_1"))
                .await
        })
    });
    for one in tasks.collect::<Vec<_>>() {
        one.await.unwrap().unwrap();
    }
    let page = given
        .backoffice
        .actions_page(None, None, 100)
        .await
        .unwrap();
    let mut numbers: Vec<i32> = whats(&page)
        .iter()
        .map(|what| what.parse().unwrap())
        .collect();
    numbers.sort_unstable();
    assert!(numbers.into_iter().eq(0..20));
}
