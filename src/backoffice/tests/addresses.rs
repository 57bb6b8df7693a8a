//! Changes of a person's address, with and without a link, and of their name.

use futures_util::future::join_all;

use super::*;
use crate::backoffice::{MadeLink, NewLink, Purpose};

contract!(
    an_address_changes_with_what_depends_on_it,
    an_address_of_another_person_is_refused_and_nothing_changes,
    a_link_changes_the_address_of_its_person_once,
    a_newer_link_or_a_new_password_ends_a_link,
    a_reset_link_is_for_the_address_that_it_was_sent_to,
);

/// Another transaction has given the address to another person and is committed while the change waits for it.
#[tokio::test(flavor = "multi_thread")]
async fn an_address_that_is_taken_at_the_same_moment_is_taken() {
    let given = Given::postgres();
    let ada = given.person("ada@example.com").await;
    let bob = given.person("bob@example.com").await;
    let link = given.link_of(&ada, "new@example.com").await;
    let Place::Database(address) = &given.place else {
        unreachable!("it was opened as a database")
    };
    for by_link in [false, true] {
        let other = address.connect().await.unwrap();
        let taken = format!(
            "BEGIN; UPDATE backoffice_people SET email_key = 'new@example.com' WHERE id = '{}'",
            bob.id
        );
        other.batch_execute(&taken).await.unwrap();
        let (backoffice, person, here) = (given.backoffice.clone(), ada.id.clone(), [1; 32]);
        let changing = tokio::spawn(async move {
            if by_link {
                let changing = backoffice.change_email_by_link(&link, &person, &here, NOW);
                return changing.await;
            }
            let changing = backoffice.change_email(&person, "new@example.com", &here);
            changing.await
        });
        let waits = "SELECT count(*) FROM pg_stat_activity
             WHERE datname = current_database() AND wait_event_type = 'Lock'";
        while given.count(waits).await == 0 {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        other.batch_execute("COMMIT").await.unwrap();
        let changed = changing.await.unwrap();
        assert!(
            matches!(changed, Err(BackofficeError::EmailTaken)),
            "{changed:?}"
        );
        given
            .run("UPDATE backoffice_people SET email_key = lower(email)")
            .await;
    }
    assert!(given.is_kept(&link).await, "it is not used");
    let found = given.backoffice.person(&ada.id).await.unwrap();
    assert_eq!(found, Some(ada));
}

impl Given {
    async fn link_of(&self, person: &Person, email: &str) -> Digest {
        let purpose = Purpose::Email {
            person_id: person.id.clone(),
        };
        self.link_for(email, purpose, None).await
    }

    async fn link_for(&self, email: &str, purpose: Purpose, made_by: Option<&str>) -> Digest {
        let new = NewLink {
            email: email.into(),
            purpose,
            made_by: made_by.map(str::to_owned),
            now: NOW,
        };
        let made = self.backoffice.make_link(new).await.unwrap();
        MadeLink::digest(made.secret.reveal()).unwrap()
    }

    async fn use_link(
        &self,
        person: &Person,
        link: &Digest,
    ) -> Result<Option<Person>, BackofficeError> {
        let except = [1; 32];
        self.backoffice
            .change_email_by_link(link, &person.id, &except, NOW)
            .await
    }

    async fn is_kept(&self, link: &Digest) -> bool {
        self.backoffice.link(link, NOW).await.unwrap().is_some()
    }
}

fn invitation() -> Purpose {
    Purpose::Invitation {
        account_id: "acct_1".into(),
        role: Role::Customer,
        team_role: TeamRole::Viewer,
    }
}

async fn an_address_changes_with_what_depends_on_it(given: Given) {
    let ada = given.person("ada@example.com").await;
    let here = given.session(1, &ada, NOW).await;
    let there = given.session(2, &ada, NOW).await;
    let reset = Purpose::Reset {
        person_id: ada.id.clone(),
    };
    let reset = given.link_for(&ada.email, reset, None).await;
    let made = given.link_for("bob@example.com", invitation(), Some(&ada.email));
    let made = made.await;
    let new = " Ada@New.example.com ";
    let changed = given.backoffice.change_email(&ada.id, new, &here).await;
    let changed = changed.unwrap().unwrap();
    assert_eq!(changed.email, "Ada@New.example.com");
    assert!(given.is_in(&here).await && !given.is_in(&there).await);
    assert!(!given.is_kept(&reset).await && given.is_kept(&made).await);
    let before = given.backoffice.person_by_email("ada@example.com").await;
    assert_eq!(before.unwrap(), None);
    let found = given
        .backoffice
        .person_by_email("ada@new.example.com")
        .await;
    assert_eq!(found.unwrap(), Some(changed.clone()));
    // The invitations that they made are still theirs.
    given.backoffice.remove_person(&ada.id).await.unwrap();
    assert!(!given.is_kept(&made).await);
    let unknown = given.backoffice.change_email(&ada.id, "x@y", &here).await;
    assert_eq!(unknown.unwrap(), None);
}

async fn an_address_of_another_person_is_refused_and_nothing_changes(given: Given) {
    let ada = given.person("ada@example.com").await;
    given.person("bob@example.com").await;
    let (here, there) = (
        given.session(1, &ada, NOW).await,
        given.session(2, &ada, NOW).await,
    );
    let made = given.link_for("eve@example.com", invitation(), Some(&ada.email));
    let made = made.await;
    let taken = given
        .backoffice
        .change_email(&ada.id, "BOB@example.com", &here)
        .await;
    assert!(matches!(taken, Err(BackofficeError::EmailTaken)));
    let link = given.link_of(&ada, "bob@example.com").await;
    let taken = given.use_link(&ada, &link).await;
    assert!(matches!(taken, Err(BackofficeError::EmailTaken)));
    assert!(given.is_kept(&link).await && given.is_in(&there).await);
    let found = given.backoffice.person(&ada.id).await.unwrap();
    assert_eq!(found, Some(ada.clone()));
    given.backoffice.remove_person(&ada.id).await.unwrap();
    assert!(!given.is_kept(&made).await, "it was still theirs");
    // Other capitals of one's own address are no other person's.
    let eve = given.person("eve@example.com").await;
    let changed = given
        .backoffice
        .change_email(&eve.id, "Eve@example.com", &here);
    assert_eq!(changed.await.unwrap().unwrap().email, "Eve@example.com");
}

async fn a_link_changes_the_address_of_its_person_once(given: Given) {
    let ada = given.person("ada@example.com").await;
    let bob = given.person("bob@example.com").await;
    let there = given.session(2, &ada, NOW).await;
    let link = given.link_of(&ada, "new@example.com").await;
    assert_eq!(given.use_link(&bob, &link).await.unwrap(), None);
    let late = given
        .backoffice
        .change_email_by_link(&link, &ada.id, &[1; 32], NOW + 3_600);
    assert_eq!(late.await.unwrap(), None);
    let joined = given
        .backoffice
        .join_by_link(&link, None, "$argon2id$", NOW);
    assert_eq!(joined.await.unwrap(), None);
    let reset = given.backoffice.reset_by_link(&link, "$argon2id$", NOW);
    assert_eq!(reset.await.unwrap(), None);
    assert!(given.is_in(&there).await);
    let uses = join_all((0..4).map(|_| given.use_link(&ada, &link))).await;
    let mut changed = uses.into_iter().filter_map(|used| used.unwrap());
    assert!(changed.all(|person| person.email == "new@example.com"));
    assert!(!given.is_in(&there).await);
    assert_eq!(given.use_link(&ada, &link).await.unwrap(), None);
    // A link for another kind of change is none for the address.
    let reset = Purpose::Reset {
        person_id: bob.id.clone(),
    };
    let reset = given.link_for("eve@example.com", reset, None).await;
    assert_eq!(given.use_link(&bob, &reset).await.unwrap(), None);
    let found = given.backoffice.person(&bob.id).await.unwrap();
    assert_eq!(found, Some(bob));
}

async fn a_newer_link_or_a_new_password_ends_a_link(given: Given) {
    let ada = given.person("ada@example.com").await;
    let first = given.link_of(&ada, "one@example.com").await;
    let second = given.link_of(&ada, "two@example.com").await;
    assert!(!given.is_kept(&first).await && given.is_kept(&second).await);
    let set = given
        .backoffice
        .set_password(&ada.id, "$argon2id$", None, NOW);
    set.await.unwrap();
    assert!(!given.is_kept(&second).await);
    given
        .backoffice
        .set_name(&ada.id, Some("Ada L."))
        .await
        .unwrap();
    let found = given.backoffice.person(&ada.id).await.unwrap().unwrap();
    assert_eq!(found.name.as_deref(), Some("Ada L."));
    given.backoffice.set_name(&ada.id, None).await.unwrap();
    let found = given.backoffice.person(&ada.id).await.unwrap().unwrap();
    assert_eq!(found.name, None);
}

async fn a_reset_link_is_for_the_address_that_it_was_sent_to(given: Given) {
    let ada = given.person("ada@example.com").await;
    let reset = || Purpose::Reset {
        person_id: ada.id.clone(),
    };
    let here = given.session(1, &ada, NOW).await;
    given
        .backoffice
        .change_email(&ada.id, "ada@new.example.com", &here)
        .await
        .unwrap();
    // It was under way while the address changed, and goes to a mailbox that may be another person's now.
    let former = given.link_for("ada@example.com", reset(), None).await;
    assert!(!given.is_kept(&former).await);
    let used = given.backoffice.reset_by_link(&former, "$argon2id$x", NOW);
    assert_eq!(used.await.unwrap(), None);
    assert!(given.is_in(&here).await);
    let found = given.backoffice.person(&ada.id).await.unwrap().unwrap();
    assert_eq!(found.password, ada.password);
    let present = given.link_for("ADA@new.example.com", reset(), None).await;
    assert!(given.is_kept(&present).await);
    let used = given.backoffice.reset_by_link(&present, "$argon2id$x", NOW);
    assert!(used.await.unwrap().is_some());
}
