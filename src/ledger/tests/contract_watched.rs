//! Alerts' queries on both backends: expiring credit, and frozen accounts.

use super::*;
use crate::ledger::{AccountChange, Expiring, ExpiringPage};

contract!(
    expiring_credit_is_found_page_by_page,
    accounts_that_do_not_add_up_are_known_after_an_audit,
);

async fn expiring_credit_is_found_page_by_page(store: TestStore) {
    let paying = Paying::on_with(store, DOLLAR).await;
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
        let amounts = found
            .iter()
            .map(|one| (one.expires_at - now, one.left.nanos()));
        (amounts.collect::<Vec<_>>(), found)
    };
    let (amounts, found) = find(now, now + 25, 2).await;
    assert_eq!(amounts, [(10, 10), (15, COST), (20, 20), (20, 20), (25, 7)]);
    assert_eq!(found[0].account_id, paying.account_id);
    assert_eq!(found[1].account_id, neighbour.account_id);
    assert_ne!(found[2].grant_id, found[3].grant_id);
    // Used-up and expired grants are not found.
    neighbour.pay().await.unwrap();
    paying.advance(20);
    let (amounts, _) = find(paying.now(), now + 30, 100).await;
    assert_eq!(amounts, [(25, 7), (30, 30)]);
    assert_eq!(find(now + 30, now + 99, 100).await.0, []);
    // Grants of closed accounts are not found either.
    let closed = AccountChange {
        closed: Some(true),
        ..AccountChange::default()
    };
    let close = paying.ledger.change_account(&neighbour.account_id, closed);
    close.await.unwrap();
    let (amounts, _) = find(paying.now(), now + 30, 100).await;
    assert_eq!(amounts, [(30, 30)]);
}

async fn accounts_that_do_not_add_up_are_known_after_an_audit(store: TestStore) {
    let paying = Paying::on_with(store, DOLLAR).await;
    let neighbour = paying.neighbour(DOLLAR).await;
    let frozen = async |limit| paying.ledger.frozen_accounts(limit).await.unwrap();
    assert_eq!(frozen(10).await.unwrap_or_default(), [""; 0]);
    paying.assert_sound().await;
    assert_eq!(frozen(10).await, Some(Vec::new()));
    paying.sql("UPDATE ledger_entries SET delta_nano_usd = delta_nano_usd - 1");
    paying.ledger.audit().await.unwrap();
    let mut both = vec![paying.account_id.clone(), neighbour.account_id.clone()];
    both.sort_unstable();
    assert_eq!(frozen(10).await.as_deref(), Some(both.as_slice()));
    assert_eq!(frozen(1).await.unwrap().len(), 1);
    paying.sql("UPDATE ledger_entries SET delta_nano_usd = delta_nano_usd + 1");
    paying.assert_sound().await;
    assert_eq!(frozen(10).await, Some(Vec::new()));
}
