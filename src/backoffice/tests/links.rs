//! Contract of one-time links, and of listing and removing people.

use super::*;
use crate::backoffice::{Identity, Link, MadeLink, NewLink, Purpose};

contract!(
    a_link_is_found_until_it_expires,
    of_concurrent_uses_of_an_invitation_one_succeeds,
    of_concurrent_uses_of_a_reset_link_one_succeeds,
    a_link_is_used_and_takes_effect_in_one_transaction,
    a_newer_link_replaces_an_older_one,
    an_invitation_is_listed_until_it_is_withdrawn_or_used,
    a_password_reset_deletes_identities,
    a_changed_password_deletes_reset_links,
    links_of_removed_people_and_former_operators_are_deleted,
    people_are_found_by_account_and_by_address,
    expired_links_are_pruned,
);

const HASH: &str = "$argon2id$another";

fn invitation() -> Purpose {
    Purpose::Invitation {
        account_id: "acct_1".into(),
        role: Role::Operator,
        team_role: TeamRole::Developer,
    }
}

pub(crate) fn new_link(email: &str) -> NewLink {
    NewLink {
        email: email.into(),
        purpose: invitation(),
        made_by: None,
        now: NOW,
    }
}

fn reset(person: &Person) -> Purpose {
    let person_id = person.id.clone();
    Purpose::Reset { person_id }
}

impl Given {
    async fn link(&self, email: &str, purpose: Purpose) -> Digest {
        self.link_by(email, purpose, None).await
    }

    async fn link_by(&self, email: &str, purpose: Purpose, maker: Option<&Person>) -> Digest {
        let new = NewLink {
            purpose,
            made_by: maker.map(|maker| maker.email.clone()),
            ..new_link(email)
        };
        let made = self.backoffice.make_link(new).await.unwrap();
        MadeLink::digest(made.secret.reveal()).unwrap()
    }

    async fn is_usable(&self, digest: &Digest) -> bool {
        self.backoffice.link(digest, NOW).await.unwrap().is_some()
    }

    /// The backoffices of two gateways; with SQLite the only one twice.
    fn gateways(&self) -> [Arc<Backoffice>; 2] {
        let other = match &self.place {
            Place::Folder(_) => self.backoffice.clone(),
            place @ Place::Database(_) => Arc::new(place.open()),
        };
        [self.backoffice.clone(), other]
    }
}

async fn a_link_is_found_until_it_expires(given: Given) {
    let ada = given.person("ada@example.com").await;
    let proof = Purpose::Proof {
        account_id: "acct_2".into(),
        name: Some("Grace".into()),
    };
    for (email, purpose, lasts) in [
        (" New@example.com ", invitation(), 7 * 86_400),
        ("grace@example.com", proof, 86_400),
        ("ada@example.com", reset(&ada), 3_600),
    ] {
        let digest = given.link(email, purpose.clone()).await;
        let expected = Link {
            email: email.trim().into(),
            purpose,
            expires_at: NOW + lasts,
        };
        let last = given
            .backoffice
            .link(&digest, NOW + lasts - 1)
            .await
            .unwrap();
        assert_eq!(last, Some(expected));
        let late = NOW + lasts;
        assert_eq!(given.backoffice.link(&digest, late).await.unwrap(), None);
        let joined = given
            .backoffice
            .join_by_link(&digest, None, HASH, late)
            .await;
        let set = given.backoffice.reset_by_link(&digest, HASH, late).await;
        if email != ada.email {
            assert_eq!(joined.unwrap(), None);
        }
        assert_eq!(set.unwrap(), None);
    }
    assert_eq!(
        given.count("SELECT count(*) FROM backoffice_people").await,
        1
    );
    assert_eq!(given.backoffice.person(&ada.id).await.unwrap(), Some(ada));
    assert!(!given.is_usable(&[7; 32]).await);
    for strange in ["", "x", &"x".repeat(44)] {
        assert_eq!(MadeLink::digest(strange), None, "{strange}");
    }
}

async fn of_concurrent_uses_of_an_invitation_one_succeeds(given: Given) {
    let digest = given.link("New@example.com", invitation()).await;
    let gateways = given.gateways();
    let tasks = (0..20).map(|number| {
        let backoffice = gateways[number % 2].clone();
        tokio::spawn(async move {
            let name = format!("{number}");
            backoffice
                .join_by_link(&digest, Some(&name), HASH, NOW)
                .await
        })
    });
    let mut joined = Vec::new();
    for one in tasks.collect::<Vec<_>>() {
        match one.await.unwrap() {
            Ok(Some(person)) => joined.push(person),
            Ok(None) | Err(BackofficeError::EmailTaken) => {}
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!(joined.len(), 1, "{joined:?}");
    let person = &joined[0];
    assert_eq!(person.email, "New@example.com");
    assert_eq!(person.password.as_deref(), Some(HASH));
    assert_eq!((person.role, person.created_at), (Role::Operator, NOW));
    let found = given.backoffice.person_by_email("new@example.com").await;
    assert_eq!(found.unwrap().as_ref(), Some(person));
    assert!(!given.is_usable(&digest).await);
}

async fn of_concurrent_uses_of_a_reset_link_one_succeeds(given: Given) {
    let ada = given.person("ada@example.com").await;
    let digest = given.link(&ada.email, reset(&ada)).await;
    let session = given.session(1, &ada, NOW).await;
    let gateways = given.gateways();
    let tasks = (0..20).map(|number| {
        let backoffice = gateways[number % 2].clone();
        tokio::spawn(async move {
            let hash = format!("hash {number}");
            backoffice.reset_by_link(&digest, &hash, NOW).await.unwrap()
        })
    });
    let mut set = Vec::new();
    for one in tasks.collect::<Vec<_>>() {
        set.extend(one.await.unwrap());
    }
    assert_eq!(set.len(), 1, "{set:?}");
    let found = given.backoffice.person(&ada.id).await.unwrap();
    assert_eq!(found.as_ref(), set.first());
    assert_ne!(found, Some(ada));
    assert!(!given.is_in(&session).await);
}

/// If the address is in use, neither the person nor the link is changed.
async fn a_link_is_used_and_takes_effect_in_one_transaction(given: Given) {
    let digest = given.link("ada@example.com", invitation()).await;
    let ada = given.person("Ada@example.com").await;
    let refused = given
        .backoffice
        .join_by_link(&digest, None, HASH, NOW)
        .await;
    assert!(matches!(refused, Err(BackofficeError::EmailTaken)));
    assert_eq!(
        given.backoffice.person(&ada.id).await.unwrap().as_ref(),
        Some(&ada)
    );
    assert!(given.is_usable(&digest).await);
    // An invitation is no reset link, and the other way round.
    let set = given.backoffice.reset_by_link(&digest, HASH, NOW).await;
    assert_eq!(set.unwrap(), None);
    // A removed person cannot return by it.
    given.backoffice.remove_person(&ada.id).await.unwrap();
    assert!(!given.is_usable(&digest).await);
    let digest = given.link("ada@example.com", invitation()).await;
    let joined = given
        .backoffice
        .join_by_link(&digest, None, HASH, NOW)
        .await;
    let joined = joined.unwrap().unwrap();
    let digest = given.link(&joined.email, reset(&joined)).await;
    let refused = given
        .backoffice
        .join_by_link(&digest, None, "no", NOW)
        .await;
    assert_eq!(refused.unwrap(), None);
    assert!(given.is_usable(&digest).await);
}

async fn a_newer_link_replaces_an_older_one(given: Given) {
    let (ada, eve) = (
        given.person("ada@example.com").await,
        given.person("eve@example.com").await,
    );
    let other = given.link(&eve.email, reset(&eve)).await;
    let proof = || Purpose::Proof {
        account_id: "acct_2".into(),
        name: None,
    };
    for (email, purpose, maker, replaces) in [
        ("new@example.com", invitation(), None, true),
        (ada.email.as_str(), reset(&ada), Some(&eve), true),
        // Requested by a visitor, who must not invalidate the link of another.
        (ada.email.as_str(), reset(&ada), None, false),
        ("new@example.com", proof(), None, false),
    ] {
        let first = given.link(&email.to_uppercase(), purpose.clone()).await;
        let second = given.link_by(email, purpose, maker).await;
        assert_eq!(given.is_usable(&first).await, !replaces, "{email}");
        assert!(given.is_usable(&second).await);
    }
    assert!(given.is_usable(&other).await);
}

async fn an_invitation_is_listed_until_it_is_withdrawn_or_used(given: Given) {
    let backoffice = &given.backoffice;
    let emails = async || {
        let open = backoffice.invitations_of("acct_1", NOW).await.unwrap();
        let emails = open.into_iter().map(|link| link.email);
        emails.collect::<Vec<_>>().join(" ")
    };
    let [one, two] = ["Ada@example.com", "eve@example.com"];
    let (first, second) = (
        given.link(one, invitation()).await,
        given.link(two, invitation()).await,
    );
    let open = emails().await;
    assert!(open.contains(one) && open.contains(two), "{open}");
    assert!(
        backoffice
            .invitations_of("acct_2", NOW)
            .await
            .unwrap()
            .is_empty()
    );
    for (account_id, is_usable) in [("acct_2", true), ("acct_1", false)] {
        let withdrawn = backoffice.withdraw_invitation(account_id, "ada@EXAMPLE.com");
        withdrawn.await.unwrap();
        assert_eq!(given.is_usable(&first).await, is_usable, "{account_id}");
    }
    assert_eq!(emails().await, two);
    let joined = backoffice.join_by_link(&second, None, HASH, NOW).await;
    assert!(joined.unwrap().is_some());
    assert_eq!(emails().await, "");
}

async fn a_password_reset_deletes_identities(given: Given) {
    let ada = given.person("ada@example.com").await;
    let identity = Identity {
        issuer: "https://id.example.com",
        subject: "1",
    };
    assert!(
        given
            .backoffice
            .connect(&ada.id, identity, NOW)
            .await
            .unwrap()
    );
    let digest = given.link(&ada.email, reset(&ada)).await;
    let set = given.backoffice.reset_by_link(&digest, HASH, NOW).await;
    assert!(set.unwrap().is_some());
    let found = given.backoffice.person_by_identity(identity).await;
    assert_eq!(found.unwrap(), None);
}

async fn a_changed_password_deletes_reset_links(given: Given) {
    let (ada, eve) = (
        given.person("ada@example.com").await,
        given.person("eve@example.com").await,
    );
    let (hers, other) = (
        given.link(&ada.email, reset(&ada)).await,
        given.link(&eve.email, reset(&eve)).await,
    );
    let changed = given
        .backoffice
        .set_password(&ada.id, "new", None, NOW)
        .await;
    changed.unwrap();
    assert!(!given.is_usable(&hers).await && given.is_usable(&other).await);
}

async fn links_of_removed_people_and_former_operators_are_deleted(given: Given) {
    let mut people = Vec::new();
    for email in ["ada@example.com", "eve@example.com", "grace@example.com"] {
        let person = given.person(email).await;
        let backoffice = &given.backoffice;
        backoffice
            .set_role(&person.id, Role::Operator)
            .await
            .unwrap();
        people.push(person);
    }
    let (ada, eve, grace) = (&people[0], &people[1], &people[2]);
    let made = async |email: &str, maker| given.link_by(email, invitation(), Some(maker)).await;
    let (by_ada, by_eve, by_grace) = (
        made("1@example.com", ada).await,
        made("2@example.com", eve).await,
        made("3@example.com", grace).await,
    );
    let for_eve = given.link(&eve.email, reset(eve)).await;
    let session = given.session(1, eve, NOW).await;
    let role = given.backoffice.set_role(&ada.id, Role::Customer).await;
    role.unwrap();
    for _ in 0..2 {
        given.backoffice.remove_person(&eve.id).await.unwrap();
    }
    for gone in [by_ada, by_eve, for_eve] {
        assert!(!given.is_usable(&gone).await);
    }
    assert!(given.is_usable(&by_grace).await);
    assert!(!given.is_in(&session).await);
    assert_eq!(given.backoffice.person(&eve.id).await.unwrap(), None);
    assert_eq!(
        given.count("SELECT count(*) FROM backoffice_people").await,
        2
    );
}

async fn people_are_found_by_account_and_by_address(given: Given) {
    let mut people = Vec::new();
    for number in 0..5 {
        let new = NewPerson {
            account_id: format!("acct_{}", number % 2),
            now: NOW + number / 2,
            ..new_person(&format!("A_{number}%@Example.com"))
        };
        people.push(given.backoffice.add_person(new).await.unwrap());
    }
    let of_account = given.backoffice.people_of("acct_1").await.unwrap();
    assert_eq!(of_account, [people[1].clone(), people[3].clone()]);
    assert_eq!(given.backoffice.people_of("acct_9").await.unwrap(), []);
    // Each is on one page, newest first.
    let (mut seen, mut before) = (Vec::new(), None);
    loop {
        let page = given.backoffice.people_page("a_", before, 2).await.unwrap();
        let Some(last) = page.last() else { break };
        before = Some((last.created_at, last.id.clone()));
        seen.extend(page);
    }
    people.sort_by_key(|person| std::cmp::Reverse((person.created_at, person.id.clone())));
    assert_eq!(seen, people);
    for (text, count) in [
        ("", 5),
        ("A_3%@", 1),
        ("EXAMPLE.com", 5),
        ("%", 5),
        ("a%3", 0),
        ("a!_3", 0),
        ("b", 0),
    ] {
        let found = given.backoffice.people_page(text, None, 9).await.unwrap();
        assert_eq!(found.len(), count, "{text}");
    }
}

async fn expired_links_are_pruned(given: Given) {
    let ada = given.person("ada@example.com").await;
    given.link(&ada.email, reset(&ada)).await;
    let kept = given.link("new@example.com", invitation()).await;
    given.backoffice.prune(NOW + 3_600).await.unwrap();
    assert_eq!(
        given.count("SELECT count(*) FROM backoffice_links").await,
        1
    );
    assert!(given.is_usable(&kept).await);
}
