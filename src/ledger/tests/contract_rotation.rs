//! Rotation of keys on both backends: two secrets for a while, then one.

use super::*;
use crate::ledger::{Edit, Key, KeyChange, KeyState, MAX_GRACE};

contract!(
    both_secrets_work_until_the_grace_ends,
    a_second_rotation_ends_the_first_secret,
    without_grace_the_old_secret_is_refused_at_once,
    what_ends_a_key_ends_both_secrets,
    a_running_call_goes_on_while_its_secret_is_valid,
    a_rotated_key_keeps_everything_else,
);

impl Paying {
    async fn rotate(&self, grace: u32) -> Key {
        let rotated = self.ledger.rotate_key(&self.key_id, grace).await;
        let (key, secret) = rotated.unwrap();
        assert_eq!(key.digest, secret.digest());
        assert_eq!(key.prefix, secret.visible_prefix());
        key
    }

    /// Whether requests with this secret find their caller, and may hold credit as one that was found before.
    async fn accepts(&self, secret: KeyDigest) -> bool {
        let found = self.ledger.fresh_caller(secret).await.unwrap();
        let mut held = self.holds(secret).await;
        if held == Err(HoldRefused::Stale) {
            self.refresh().await;
            held = self.holds(secret).await;
        }
        if let Err(refused) = &held {
            assert_eq!(*refused, HoldRefused::KeyInactive);
        }
        assert_eq!(held.is_ok(), found.is_some());
        let is_known = self.ledger.caller(secret).await.unwrap().is_some();
        assert_eq!(is_known, found.is_some());
        found.is_some()
    }

    /// Places a hold with this secret, by what was looked up before.
    async fn holds(&self, secret: KeyDigest) -> Result<(), HoldRefused> {
        let request = HoldRequest {
            secret,
            ..self.request(1, 1, 0)
        };
        self.ledger.hold(request).await.map(Held::cancel)
    }
}

/// This gateway and, of a shared ledger, another one that has cached the caller.
async fn gateways(paying: &Paying) -> Vec<Paying> {
    let mut all = vec![paying.with(paying.ledger.clone())];
    if matches!(*paying.ledger, Ledger::Shared(_)) {
        all.push(paying.beside().await);
    }
    for gateway in &all {
        assert!(gateway.accepts(gateway.digest).await);
    }
    all
}

async fn both_secrets_work_until_the_grace_ends(store: TestStore) {
    let paying = Paying::on_with(store, DOLLAR).await;
    let gateways = gateways(&paying).await;
    let (old, until) = (paying.digest, paying.now() + 60);
    let key = paying.rotate(60).await;
    let previous = key.previous.as_ref().unwrap();
    assert_eq!((previous.digest, previous.valid_until), (old, until));
    for gateway in &gateways {
        assert!(gateway.accepts(old).await && gateway.accepts(key.digest).await);
    }
    paying.advance(59);
    for gateway in &gateways {
        assert_eq!(gateway.holds(old).await, Ok(()));
        assert!(gateway.ledger.caller(old).await.unwrap().is_some());
    }
    paying.advance(1);
    for gateway in &gateways {
        assert_eq!(gateway.holds(old).await, Err(HoldRefused::KeyInactive));
        assert!(!gateway.accepts(old).await && gateway.accepts(key.digest).await);
    }
    let key = paying.ledger.key(&paying.key_id).await.unwrap();
    assert_eq!(key.previous_at(paying.now()), None);
    paying.assert_sound().await;
}

async fn a_second_rotation_ends_the_first_secret(store: TestStore) {
    let paying = Paying::on_with(store, DOLLAR).await;
    let gateways = gateways(&paying).await;
    let first = paying.digest;
    let second = paying.rotate(MAX_GRACE).await.digest;
    for gateway in &gateways {
        assert!(gateway.accepts(second).await);
    }
    let third = paying.rotate(60).await.digest;
    for gateway in &gateways {
        assert_eq!(gateway.holds(first).await, Err(HoldRefused::KeyInactive));
        assert!(!gateway.accepts(first).await);
        assert!(gateway.accepts(second).await && gateway.accepts(third).await);
    }
    paying.advance(60);
    for gateway in &gateways {
        assert!(!gateway.accepts(second).await && gateway.accepts(third).await);
    }
}

async fn without_grace_the_old_secret_is_refused_at_once(store: TestStore) {
    let paying = Paying::on_with(store, DOLLAR).await;
    let gateways = gateways(&paying).await;
    let key = paying.rotate(0).await;
    assert_eq!(key.previous, None);
    for gateway in &gateways {
        let old = gateway.holds(paying.digest).await;
        assert_eq!(old, Err(HoldRefused::KeyInactive));
        assert!(!gateway.accepts(paying.digest).await && gateway.accepts(key.digest).await);
    }
}

async fn what_ends_a_key_ends_both_secrets(store: TestStore) {
    let paying = Paying::on_with(store, DOLLAR).await;
    let gateways = gateways(&paying).await;
    let (ledger, id) = (&paying.ledger, &paying.key_id);
    let secrets = [paying.digest, paying.rotate(600).await.digest];
    let assert_accepted = async |expected| {
        for gateway in &gateways {
            for secret in secrets {
                assert_eq!(gateway.accepts(secret).await, expected);
            }
        }
    };
    assert_accepted(true).await;
    ledger.set_key_state(id, KeyState::Disabled).await.unwrap();
    assert_accepted(false).await;
    ledger.set_key_state(id, KeyState::Active).await.unwrap();
    assert_accepted(true).await;
    let expiry = KeyChange {
        expires_at: Edit::Set(paying.now() + 10),
        ..KeyChange::default()
    };
    ledger.change_key(id, expiry).await.unwrap();
    assert_accepted(true).await;
    paying.advance(10);
    assert_accepted(false).await;
    let unbound = KeyChange {
        expires_at: Edit::Clear,
        ..KeyChange::default()
    };
    ledger.change_key(id, unbound).await.unwrap();
    assert_accepted(true).await;
    ledger.set_key_state(id, KeyState::Deleted).await.unwrap();
    assert_accepted(false).await;
    let rotated = ledger.rotate_key(id, 60).await;
    assert!(matches!(rotated, Err(LedgerError::KeyDeleted)));
    let rotated = ledger.rotate_key("key_0", 60).await;
    assert!(matches!(rotated, Err(LedgerError::NotFound { .. })));
}

async fn a_running_call_goes_on_while_its_secret_is_valid(store: TestStore) {
    let paying = Paying::on_with(store, DOLLAR).await;
    let mut held = paying.hold(10, 10, 0).await.unwrap();
    let rotated = paying.rotate(60).await;
    let extend = async |held: &mut Held, amount: i64| {
        let amount = NanoUsd::new(amount);
        held.extend(1, amount, amount, NanoUsd::new(0)).await
    };
    assert_eq!(extend(&mut held, 20).await, Ok(()));
    paying.advance(60);
    let refused = extend(&mut held, 30).await;
    assert_eq!(refused, Err(HoldRefused::KeyInactive));
    // What it has used is charged as always.
    charge(&mut held, 15).await.unwrap();
    assert_eq!(paying.balance().await, DOLLAR - 15);
    assert!(paying.accepts(rotated.digest).await);
    paying.assert_sound().await;
}

async fn a_rotated_key_keeps_everything_else(store: TestStore) {
    let paying = Paying::on_with(store, DOLLAR).await;
    let change = KeyChange {
        name: Some("laptop".into()),
        rpm: Edit::Set(7),
        ..KeyChange::default()
    };
    let before = paying.ledger.change_key(&paying.key_id, change);
    let before = before.await.unwrap();
    let old = paying.digest;
    let rotated = paying.rotate(60).await;
    let paying = paying.restart().await;
    let read = paying.ledger.key(&paying.key_id).await.unwrap();
    for key in [&rotated, &read] {
        assert_eq!((&key.id, &key.name), (&before.id, &before.name));
        assert_eq!((&key.terms, &key.payer), (&before.terms, &before.payer));
        assert_eq!(key.created_at, before.created_at);
        assert_eq!(key.previous, rotated.previous);
    }
    assert_eq!(read.previous.unwrap().prefix, before.prefix);
    paying.refresh().await;
    assert!(paying.accepts(old).await && paying.accepts(rotated.digest).await);
    // The rest of a change is not undone by it, and it is not undone by a change.
    let renamed = KeyChange {
        name: Some("desk".into()),
        ..KeyChange::default()
    };
    let changed = paying.ledger.change_key(&paying.key_id, renamed);
    assert_eq!(changed.await.unwrap().digest, rotated.digest);
    assert!(paying.accepts(old).await);
    let keys = paying.ledger.keys(&paying.account_id).await.unwrap();
    assert_eq!(keys.len(), 1);
}
