//! Deleted keys are only in the file.

use super::*;
use crate::ledger::{KeyState, MAX_KEYS};

#[tokio::test]
async fn deleted_keys_leave_memory_and_are_not_loaded() {
    let mut paying = with(DOLLAR).await;
    let created = paying
        .ledger
        .create_key(&paying.account_id, "k".into(), MAX_KEYS);
    let (key, _) = created.await.unwrap();
    let in_memory = |paying: &Paying| {
        let directory = paying.embedded().read();
        let is_there = directory.key(&key.id).is_some();
        (is_there, directory.key_count(&paying.account_id))
    };
    assert_eq!(in_memory(&paying), (true, 2));
    let deleted = paying.ledger.set_key_state(&key.id, KeyState::Deleted);
    deleted.await.unwrap();
    assert_eq!(in_memory(&paying), (false, 1));
    paying = paying.restart().await;
    assert_eq!(in_memory(&paying), (false, 1));
    assert_eq!(paying.ledger.key(&key.id).await.unwrap().name, "k");
}
