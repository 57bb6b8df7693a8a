//! Contract of versions of the configuration.

use super::*;
use crate::backoffice::{GatewayReport, NewConfigVersion};

contract!(
    the_newest_version_counts_and_all_are_listed,
    a_version_based_on_an_old_one_is_refused,
    of_concurrent_versions_one_is_added,
    gateways_report_what_they_use,
);

async fn add(given: &Given, id: &str, based_on: i64) -> Option<i64> {
    let new = NewConfigVersion {
        id,
        at_ms: NOW * 1_000 + based_on,
        actor: "op@example.com",
        note: "a \0 note",
        content: &format!("{{\"of\":\"{id}\"}}"),
        based_on,
    };
    given.backoffice.add_config_version(new).await.unwrap()
}

async fn the_newest_version_counts_and_all_are_listed(given: Given) {
    let backoffice = &given.backoffice;
    assert_eq!(backoffice.config_newer_than(0).await.unwrap(), None);
    assert_eq!(backoffice.config_version(1).await.unwrap(), None);
    for (id, based_on) in [("a", 0), ("b", 1), ("c", 2)] {
        assert_eq!(add(&given, id, based_on).await, Some(based_on + 1));
    }
    let newest = Some((3, "{\"of\":\"c\"}".to_owned()));
    assert_eq!(backoffice.config_newer_than(0).await.unwrap(), newest);
    assert_eq!(backoffice.config_newer_than(2).await.unwrap(), newest);
    assert_eq!(backoffice.config_newer_than(3).await.unwrap(), None);
    let (second, content) = backoffice.config_version(2).await.unwrap().unwrap();
    assert_eq!((second.number, second.at_ms), (2, NOW * 1_000 + 1));
    assert_eq!(
        (&*second.actor, &*second.note),
        ("op@example.com", "a \u{fffd} note")
    );
    assert_eq!(content, "{\"of\":\"b\"}");
    let numbers = async |before, limit| {
        let page = backoffice.config_versions(before, limit).await.unwrap();
        page.into_iter().map(|one| one.number).collect::<Vec<_>>()
    };
    assert_eq!(numbers(None, 2).await, [3, 2]);
    assert_eq!(numbers(Some(2), 2).await, [1]);
}

async fn a_version_based_on_an_old_one_is_refused(given: Given) {
    assert_eq!(add(&given, "a", 0).await, Some(1));
    assert_eq!(add(&given, "b", 0).await, None, "there is a newer one");
    assert_eq!(add(&given, "b", 7).await, None, "there is no such one");
    assert_eq!(add(&given, "a", 0).await, Some(1), "it is a retry");
    assert_eq!(add(&given, "b", 1).await, Some(2));
    assert_eq!(add(&given, "a", 0).await, Some(1), "a late retry");
    let all = given.backoffice.config_versions(None, 9).await.unwrap();
    assert_eq!(all.len(), 2);
}

async fn of_concurrent_versions_one_is_added(given: Given) {
    let given = Arc::new(given);
    let tasks = (0..10).map(|number: i32| {
        let given = given.clone();
        tokio::spawn(async move { add(&given, &number.to_string(), 0).await })
    });
    let mut added = Vec::new();
    for task in tasks.collect::<Vec<_>>() {
        added.extend(task.await.unwrap());
    }
    assert_eq!(added, [1]);
}

async fn gateways_report_what_they_use(given: Given) {
    let backoffice = &given.backoffice;
    let report = |gateway: &str, number, problem: Option<&str>, seen_at| GatewayReport {
        gateway: gateway.into(),
        number,
        problem: problem.map(str::to_owned),
        seen_at,
    };
    let first = report("b", 1, None, NOW);
    let second = report("a", 2, Some("a variable is missing"), NOW + 1);
    for one in [&first, &second] {
        backoffice.report_config(one).await.unwrap();
    }
    assert_eq!(
        backoffice.config_reports(NOW).await.unwrap(),
        [second.clone(), first.clone()]
    );
    let updated = report("b", 2, None, NOW + 5);
    backoffice.report_config(&updated).await.unwrap();
    assert_eq!(
        backoffice.config_reports(NOW).await.unwrap(),
        [second, updated.clone()]
    );
    assert_eq!(backoffice.config_reports(NOW + 2).await.unwrap(), [updated]);
    let later = report("c", 2, None, NOW + 2 * 24 * 3_600);
    backoffice.report_config(&later).await.unwrap();
    assert_eq!(backoffice.config_reports(0).await.unwrap(), [later]);
}
