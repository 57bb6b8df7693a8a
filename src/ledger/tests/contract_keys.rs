//! Keys on both backends: bounded in number, listed page by page, and forgotten by memory once they are deleted.

use futures_util::future::join_all;

use super::*;
use crate::ledger::{Key, KeyFilter, KeyState, KeysPage, NewKey};

contract!(
    racing_creations_never_exceed_the_bound,
    a_deleted_key_makes_room_and_a_disabled_one_does_not,
    keys_are_listed_page_by_page,
    keys_of_one_member_are_listed,
    deleted_keys_are_found_and_stay_deleted,
);

impl Paying {
    async fn new_key(&self, max: u32) -> Result<Key, LedgerError> {
        let created = self.ledger.create_key(&self.account_id, "k".into(), max);
        Ok(created.await?.0)
    }

    async fn page(&self, filter: KeyFilter, before: Option<&Key>, limit: usize) -> Vec<Key> {
        let page = KeysPage {
            account_id: &self.account_id,
            filter,
            member_id: None,
            before: before.map(|key| (key.created_at, key.id.clone())),
            limit,
        };
        self.ledger.keys_page(page).await.unwrap()
    }

    async fn set(&self, key: &Key, state: KeyState) -> Result<Key, LedgerError> {
        self.ledger.set_key_state(&key.id, state).await
    }
}

fn is_too_many(created: &Result<Key, LedgerError>) -> bool {
    matches!(created, Err(LedgerError::TooManyKeys { max: 10 }))
}

/// Also at two gateways, if they can share the store.
async fn racing_creations_never_exceed_the_bound(store: TestStore) {
    let paying = Paying::on(store).await;
    let is_shared = matches!(*paying.ledger, Ledger::Shared(_));
    let other = if is_shared {
        paying.beside().await
    } else {
        paying.with(paying.ledger.clone())
    };
    let neighbour = paying.neighbour(DOLLAR).await;
    let creations = (0..20).flat_map(|_| [paying.new_key(10), other.new_key(10)]);
    let created = join_all(creations).await;
    // One key was there before.
    assert_eq!(created.iter().filter(|key| key.is_ok()).count(), 9);
    assert_eq!(created.iter().filter(|key| is_too_many(key)).count(), 31);
    assert_eq!(paying.page(KeyFilter::All, None, 100).await.len(), 10);
    assert_eq!(
        paying.ledger.keys(&paying.account_id).await.unwrap().len(),
        10
    );
    neighbour.new_key(10).await.unwrap();
    paying.new_key(11).await.unwrap();
}

async fn a_deleted_key_makes_room_and_a_disabled_one_does_not(store: TestStore) {
    let mut paying = Paying::on(store).await;
    let mut last = None;
    for _ in 0..9 {
        last = Some(paying.new_key(10).await.unwrap());
    }
    let last = last.unwrap();
    paying.set(&last, KeyState::Disabled).await.unwrap();
    for _ in 0..2 {
        assert!(is_too_many(&paying.new_key(10).await));
        paying = paying.restart().await;
    }
    paying.set(&last, KeyState::Deleted).await.unwrap();
    paying.new_key(10).await.unwrap();
    assert!(is_too_many(&paying.new_key(10).await));
}

async fn keys_are_listed_page_by_page(store: TestStore) {
    let paying = Paying::on(store).await;
    let neighbour = paying.neighbour(DOLLAR).await;
    let mut keys = vec![paying.ledger.key(&paying.key_id).await.unwrap()];
    for number in 0..11 {
        // Some are created in the same second.
        paying.advance(number % 2);
        keys.push(paying.new_key(100).await.unwrap());
    }
    neighbour.new_key(100).await.unwrap();
    for key in &keys[..5] {
        paying.set(key, KeyState::Deleted).await.unwrap();
    }
    paying.set(&keys[5], KeyState::Disabled).await.unwrap();
    for (filter, expected) in [
        (KeyFilter::All, &keys[..]),
        (KeyFilter::Live, &keys[5..]),
        (KeyFilter::Deleted, &keys[..5]),
    ] {
        let mut listed: Vec<Key> = Vec::new();
        loop {
            let page = paying.page(filter, listed.last(), 3).await;
            let is_last = page.len() < 3;
            listed.extend(page);
            if is_last {
                break;
            }
        }
        let newest_first = |keys: &[Key]| keys.is_sorted_by(|a, b| a.created_at >= b.created_at);
        assert!(newest_first(&listed), "{filter:?}");
        let ids = |keys: &[Key]| {
            let mut ids: Vec<_> = keys.iter().map(|key| key.id.clone()).collect();
            ids.sort();
            ids
        };
        assert_eq!(ids(&listed), ids(expected), "{filter:?}");
    }
    let strange = Key {
        id: "key\0".into(),
        ..keys[0].clone()
    };
    let none = paying.page(KeyFilter::All, Some(&strange), 3).await;
    assert!(none.is_empty());
    let unknown = KeysPage {
        account_id: "acct_0",
        filter: KeyFilter::All,
        member_id: None,
        before: None,
        limit: 3,
    };
    let unknown = paying.ledger.keys_page(unknown).await;
    assert!(matches!(unknown, Err(LedgerError::NotFound { .. })));
}

async fn keys_of_one_member_are_listed(store: TestStore) {
    let paying = Paying::on(store).await;
    let mut made = Vec::new();
    for member_id in [Some("person_1"), None, Some("person_2"), Some("person_1")] {
        let new = NewKey {
            member_id: member_id.map(str::to_owned),
            ..NewKey::default()
        };
        let created = paying.ledger.create_key(&paying.account_id, new, MAX_KEYS);
        made.push(created.await.unwrap().0.id);
        paying.advance(1);
    }
    for (member_id, expected) in [
        ("person_1", vec![&made[3], &made[0]]),
        ("person_2", vec![&made[2]]),
        ("person_3", vec![]),
        ("person\0", vec![]),
    ] {
        let page = KeysPage {
            account_id: &paying.account_id,
            filter: KeyFilter::Live,
            member_id: Some(member_id),
            before: None,
            limit: 10,
        };
        let keys = paying.ledger.keys_page(page).await.unwrap();
        let ids: Vec<_> = keys.iter().map(|key| &key.id).collect();
        assert_eq!(ids, expected, "{member_id}");
    }
}

async fn deleted_keys_are_found_and_stay_deleted(store: TestStore) {
    let mut paying = Paying::on(store).await;
    let deleted = paying.new_key(10).await.unwrap();
    let live = paying.ledger.key(&paying.key_id).await.unwrap();
    let cached = paying.ledger.caller(deleted.digest).await.unwrap();
    assert!(cached.is_some());
    paying.set(&deleted, KeyState::Deleted).await.unwrap();
    if let Ledger::Shared(shared) = &*paying.ledger {
        assert!(!shared.has_in_memory(deleted.digest));
    }
    for _ in 0..2 {
        let ledger = &paying.ledger;
        let caller = ledger.fresh_caller(deleted.digest).await.unwrap();
        assert!(caller.is_none());
        let found = ledger.key(&deleted.id).await.unwrap();
        assert_eq!((found.name.as_str(), found.state), ("k", KeyState::Deleted));
        let ids = ["key_0", &deleted.id, &live.id, &deleted.id, "key\0"];
        let mut found = ledger.keys_with_ids(ids).await.unwrap();
        found.sort_by_key(|key| key.state == KeyState::Deleted);
        let found: Vec<_> = found.into_iter().map(|key| key.id).collect();
        assert_eq!(found, [live.id.clone(), deleted.id.clone()]);
        for state in [KeyState::Active, KeyState::Disabled] {
            let back = paying.set(&deleted, state).await;
            assert!(matches!(back, Err(LedgerError::KeyDeleted)), "{state:?}");
        }
        let again = paying.set(&deleted, KeyState::Deleted).await.unwrap();
        assert_eq!(again.id, deleted.id);
        assert_eq!(ledger.keys(&paying.account_id).await.unwrap().len(), 1);
        paying = paying.restart().await;
    }
}
