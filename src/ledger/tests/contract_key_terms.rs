//! Projects and the terms of keys on both backends: stored, changed for the next call, and part of each call's record.

use super::*;
use crate::ledger::{Edit, Key, KeyChange, KeyState, KeyTerms, NewKey, Project};

contract!(
    a_key_has_the_terms_that_it_was_created_with,
    terms_change_for_the_next_call,
    an_expired_key_is_unknown_and_holds_nothing,
    a_call_is_recorded_with_project_and_member,
    projects_have_names_and_are_archived_without_keys,
    a_key_belongs_to_an_open_project_of_its_account,
);

impl Paying {
    async fn project(&self, name: &str) -> Project {
        let made = self.ledger.create_project(&self.account_id, name.into());
        made.await.unwrap()
    }

    async fn create(&self, new: NewKey) -> Result<Key, LedgerError> {
        let created = self.ledger.create_key(&self.account_id, new, MAX_KEYS);
        created.await.map(|(key, _)| key)
    }

    async fn change(&self, id: &str, change: KeyChange) -> Result<Key, LedgerError> {
        self.ledger.change_key(id, change).await
    }
}

fn terms(now: i64) -> KeyTerms {
    KeyTerms {
        expires_at: Some(now + 60),
        models: Some(vec!["svc-pro".into(), "svc-standard".into()]),
        rpm: Some(7),
        tpm: Some(u32::MAX),
    }
}

fn is_missing<T>(result: &Result<T, LedgerError>, thing: &str) -> bool {
    matches!(result, Err(LedgerError::NotFound { what, .. }) if *what == thing)
}

async fn a_key_has_the_terms_that_it_was_created_with(store: TestStore) {
    let paying = Paying::on(store).await;
    let project = paying.project("Search").await;
    let new = NewKey {
        name: "k".into(),
        project_id: Some(project.id.clone()),
        member_id: Some("person_1".into()),
        terms: terms(paying.ledger.clock().now()),
    };
    let created = paying.create(new.clone()).await.unwrap();
    let paying = paying.restart().await;
    let read = paying.ledger.key(&created.id).await.unwrap();
    let caller = paying.ledger.fresh_caller(created.digest).await.unwrap();
    let caller = caller.unwrap();
    for (payer, of) in [(&read.payer, &read.terms), (&caller.payer, &caller.terms)] {
        assert_eq!(payer.key_id, created.id);
        assert_eq!(payer.project_id, new.project_id);
        assert_eq!(payer.member_id, new.member_id);
        assert_eq!(**of, new.terms);
    }
    assert!(read.terms.allows("svc-pro") && !read.terms.allows("svc-basic"));
    let plain = paying.ledger.key(&paying.key_id).await.unwrap();
    assert_eq!(*plain.terms, KeyTerms::default());
    assert_eq!(plain.payer.project(), "default");
    assert!(plain.terms.allows("svc-basic"));
}

async fn terms_change_for_the_next_call(store: TestStore) {
    let paying = Paying::on(store).await;
    let is_shared = matches!(*paying.ledger, Ledger::Shared(_));
    let other = if is_shared {
        paying.beside().await
    } else {
        paying.with(paying.ledger.clone())
    };
    let wanted = terms(paying.ledger.clock().now());
    let project = paying.project("Search").await;
    let change = KeyChange {
        name: Some("renamed".into()),
        project_id: Edit::Set(project.id.clone()),
        expires_at: Edit::Set(wanted.expires_at.unwrap()),
        models: Edit::Set(wanted.models.clone().unwrap()),
        rpm: Edit::Set(wanted.rpm.unwrap()),
        tpm: Edit::Set(wanted.tpm.unwrap()),
    };
    // The other gateway has cached the caller: it must not hold by it any more.
    other.refresh().await;
    paying.give(10, None).await;
    let changed = paying.change(&paying.key_id, change).await.unwrap();
    assert_eq!((&*changed.name, &*changed.terms), ("renamed", &wanted));
    if is_shared {
        let stale = other.ledger.hold(other.request(1, 1, 0)).await;
        assert!(
            matches!(stale, Err(HoldRefused::Stale)),
            "{:?}",
            stale.err()
        );
    }
    other.refresh().await;
    let seen = other.ledger.fresh_caller(other.digest).await.unwrap();
    let seen = seen.unwrap();
    assert_eq!(*seen.terms, wanted);
    assert_eq!(seen.payer.project(), project.id);
    // What is not named stays, and what is named can be removed.
    let change = KeyChange {
        rpm: Edit::Clear,
        project_id: Edit::Clear,
        ..KeyChange::default()
    };
    let changed = paying.change(&paying.key_id, change).await.unwrap();
    let expected = KeyTerms {
        rpm: None,
        ..wanted
    };
    assert_eq!((&*changed.name, &*changed.terms), ("renamed", &expected));
    assert_eq!(changed.payer.project_id, None);
    let unknown = paying.change("key_0", KeyChange::default()).await;
    assert!(is_missing(&unknown, "key"));
    let deleted = paying
        .ledger
        .set_key_state(&paying.key_id, KeyState::Deleted);
    deleted.await.unwrap();
    let deleted = paying.change(&paying.key_id, KeyChange::default()).await;
    assert!(matches!(deleted, Err(LedgerError::KeyDeleted)));
}

async fn an_expired_key_is_unknown_and_holds_nothing(store: TestStore) {
    let paying = Paying::on_with(store, 100).await;
    let at = paying.now();
    let expire = |at: i64| KeyChange {
        expires_at: Edit::Set(at),
        ..KeyChange::default()
    };
    paying
        .change(&paying.key_id, expire(at + 3_600))
        .await
        .unwrap();
    paying.refresh().await;
    let held = paying.hold(10, 10, 0).await.unwrap();
    paying.change(&paying.key_id, expire(at)).await.unwrap();
    let caller = paying.ledger.fresh_caller(paying.digest).await.unwrap();
    assert!(caller.is_none());
    let refused = paying.ledger.hold(paying.request(10, 10, 0)).await;
    assert_eq!(refused.err(), Some(HoldRefused::KeyInactive));
    // The running call ends as always.
    let mut held = held;
    charge(&mut held, 10).await.unwrap();
    assert_eq!(paying.balance().await, 90);
}

async fn a_call_is_recorded_with_project_and_member(store: TestStore) {
    let paying = Paying::on_with(store, 1_000).await;
    let project = paying.project("Search").await;
    let payer = Arc::new(Payer {
        key_id: paying.key_id.clone(),
        project_id: Some(project.id.clone()),
        member_id: Some("person_1".into()),
    });
    let request = HoldRequest {
        payer: &payer,
        ..paying.request(10, 10, 0)
    };
    let mut held = paying.ledger.hold(request).await.unwrap();
    let id = held.id();
    charge(&mut held, 7).await.unwrap();
    let mut plain = paying.hold(10, 10, 0).await.unwrap();
    charge(&mut plain, 5).await.unwrap();
    for _ in 0..2 {
        let found = paying.ledger.find_calls(&id.to_string()).await.unwrap();
        assert_eq!(found[0].payer, payer);
    }
    let days = paying
        .ledger
        .usage_days(&paying.account_id, ("", "9999"), SumsOf::Each);
    let mut days: Vec<_> = days
        .await
        .unwrap()
        .into_iter()
        .map(|day| (day.project_id, day.cost.nanos()))
        .collect();
    days.sort();
    assert_eq!(days, [("default".to_owned(), 5), (project.id, 7)]);
    paying.assert_sound().await;
}

async fn projects_have_names_and_are_archived_without_keys(store: TestStore) {
    let paying = Paying::on(store).await;
    let neighbour = paying.neighbour(DOLLAR).await;
    let first = paying.project("First").await;
    paying.advance(1);
    let second = paying.project("Second").await;
    neighbour.project("Theirs").await;
    let renamed = paying.ledger.rename_project(&first.id, "1st".into()).await;
    assert_eq!(renamed.unwrap().name, "1st");
    let key = paying
        .create(NewKey {
            project_id: Some(second.id.clone()),
            ..NewKey::default()
        })
        .await
        .unwrap();
    let used = paying.ledger.archive_project(&second.id).await;
    assert!(matches!(used, Err(LedgerError::ProjectInUse)));
    let deleted = paying.ledger.set_key_state(&key.id, KeyState::Deleted);
    deleted.await.unwrap();
    let archived = paying.ledger.archive_project(&second.id).await.unwrap();
    assert!(archived.archived);
    drop(neighbour);
    let paying = paying.restart().await;
    let projects = paying.ledger.projects(&paying.account_id).await.unwrap();
    let projects: Vec<_> = projects
        .iter()
        .map(|project| (&*project.name, project.archived))
        .collect();
    assert_eq!(projects, [("1st", false), ("Second", true)]);
    let unknown = paying.ledger.rename_project("proj_0", "x".into()).await;
    assert!(is_missing(&unknown, "project"));
    let unknown = paying.ledger.archive_project("proj_0").await;
    assert!(is_missing(&unknown, "project"));
    let unknown = paying.ledger.create_project("acct_0", "x".into()).await;
    assert!(is_missing(&unknown, "account"));
}

async fn a_key_belongs_to_an_open_project_of_its_account(store: TestStore) {
    let paying = Paying::on(store).await;
    let neighbour = paying.neighbour(DOLLAR).await;
    let theirs = neighbour.project("Theirs").await;
    let archived = paying.project("Archived").await;
    paying.ledger.archive_project(&archived.id).await.unwrap();
    for id in ["proj_0", &theirs.id, &archived.id] {
        let created = paying.create(NewKey {
            project_id: Some(id.to_owned()),
            ..NewKey::default()
        });
        assert!(is_missing(&created.await, "project"), "{id}");
        let change = KeyChange {
            project_id: Edit::Set(id.to_owned()),
            ..KeyChange::default()
        };
        let changed = paying.change(&paying.key_id, change).await;
        assert!(is_missing(&changed, "project"), "{id}");
    }
    let keys = paying.ledger.keys(&paying.account_id).await.unwrap();
    assert_eq!(keys.len(), 1);
    assert_eq!(keys[0].payer.project_id, None);
}
