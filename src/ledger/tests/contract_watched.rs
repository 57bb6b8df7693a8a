//! What is watched: credit that expires, books that do not add up.

use super::*;
use crate::ledger::{AccountChange, Expiring, ExpiringPage};

contract!(
    credit_that_expires_is_found_page_by_page,
    books_that_do_not_add_up_are_known_once_somebody_has_looked,
);

async fn credit_that_expires_is_found_page_by_page(place: TestStore) {
    let paying = Paying::on_with(place, DOLLAR).await;
    let neighbour = paying.neighbour(DOLLAR).await;
    let now = paying.now();
    for seconds in [10, 20, 20, 30] {
        paying.give(seconds, Some(now + seconds)).await;
    }
    neighbour.give(COST, Some(now + 15)).await;
    neighbour.give(7, Some(now + 25)).await;
    let find = async |from: i64, until: i64, limit| {
        let (mut after, mut found) = (None, Vec::new());
        loop {
            let page = ExpiringPage {
                from,
                until,
                after,
                limit,
            };
            let next: Vec<Expiring> = paying.ledger.expiring(&page).await.unwrap();
            assert!(next.len() <= limit);
            let Some(last) = next.last() else { break };
            after = Some((last.expires_at, last.grant_id.clone()));
            found.extend(next);
        }
        let told = found
            .iter()
            .map(|one| (one.expires_at - now, one.left.nanos()));
        (told.collect::<Vec<_>>(), found)
    };
    let (told, found) = find(now, now + 25, 2).await;
    assert_eq!(told, [(10, 10), (15, COST), (20, 20), (20, 20), (25, 7)]);
    assert_eq!(found[0].account_id, paying.account_id);
    assert_eq!(found[1].account_id, neighbour.account_id);
    assert_ne!(found[2].grant_id, found[3].grant_id);
    // What is used up is not found, and what has expired is not.
    neighbour.pay().await.unwrap();
    paying.advance(20);
    let (told, _) = find(paying.now(), now + 30, 100).await;
    assert_eq!(told, [(25, 7), (30, 30)]);
    assert_eq!(find(now + 30, now + 99, 100).await.0, []);
    // What nobody can use any more is not found either.
    let closed = AccountChange {
        closed: Some(true),
        ..AccountChange::default()
    };
    let close = paying.ledger.change_account(&neighbour.account_id, closed);
    close.await.unwrap();
    let (told, _) = find(paying.now(), now + 30, 100).await;
    assert_eq!(told, [(30, 30)]);
}

async fn books_that_do_not_add_up_are_known_once_somebody_has_looked(place: TestStore) {
    let paying = Paying::on_with(place, DOLLAR).await;
    let neighbour = paying.neighbour(DOLLAR).await;
    let frozen = async |limit| paying.ledger.frozen_accounts(limit).await.unwrap();
    assert_eq!(frozen(10).await.unwrap_or_default(), [""; 0]);
    paying.assert_sound().await;
    assert_eq!(frozen(10).await, Some(Vec::new()));
    paying.sql("UPDATE ledger_entries SET delta = delta - 1");
    paying.ledger.audit().await.unwrap();
    let mut both = vec![paying.account_id.clone(), neighbour.account_id.clone()];
    both.sort_unstable();
    assert_eq!(frozen(10).await.as_deref(), Some(both.as_slice()));
    assert_eq!(frozen(1).await.unwrap().len(), 1);
    paying.sql("UPDATE ledger_entries SET delta = delta + 1");
    paying.assert_sound().await;
    assert_eq!(frozen(10).await, Some(Vec::new()));
}
