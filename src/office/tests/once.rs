//! Forms that count once.

use super::*;

contract!(
    a_form_counts_once,
    of_many_at_once_one_is_the_first,
    what_is_old_is_forgotten,
);

async fn a_form_counts_once(given: Given) {
    for (number, is_first) in [("a", true), ("b", true), ("a", false), ("b", false)] {
        let answer = given.office.is_first(number, NOW).await;
        assert_eq!(answer.unwrap(), is_first, "{number}");
    }
}

async fn of_many_at_once_one_is_the_first(given: Given) {
    let asked = (0..8).map(|_| given.office.is_first("a", NOW));
    let answers = futures_util::future::join_all(asked).await;
    let firsts = answers
        .into_iter()
        .filter(|answer| *answer.as_ref().unwrap());
    assert_eq!(firsts.count(), 1);
}

async fn what_is_old_is_forgotten(given: Given) {
    assert!(given.office.is_first("a", NOW).await.unwrap());
    given.office.prune(NOW + 29 * 24 * 3_600).await.unwrap();
    assert!(!given.office.is_first("a", NOW).await.unwrap());
    given.office.prune(NOW + 30 * 24 * 3_600).await.unwrap();
    assert!(given.office.is_first("a", NOW).await.unwrap());
}
