//! Contract of identities and of one-time tokens.

use super::*;
use crate::backoffice::Identity;

contract!(
    an_identity_belongs_to_one_person,
    a_person_and_their_identity_are_added_together,
    the_identity_of_a_removed_person_can_be_connected_again,
    the_only_way_to_sign_in_is_not_removed,
    of_concurrent_uses_of_a_token_one_succeeds,
);

fn identity(subject: &str) -> Identity<'_> {
    Identity {
        issuer: "https://id.example.com",
        subject,
    }
}

async fn an_identity_belongs_to_one_person(given: Given) {
    let (ada, grace) = (
        given.person("ada@example.com").await,
        given.person("grace@example.com").await,
    );
    let backoffice = &given.backoffice;
    assert_eq!(
        backoffice.person_by_identity(identity("1")).await.unwrap(),
        None
    );
    for _ in 0..2 {
        assert!(
            backoffice
                .connect(&ada.id, identity("1"), NOW)
                .await
                .unwrap()
        );
        assert!(
            !backoffice
                .connect(&grace.id, identity("1"), NOW)
                .await
                .unwrap()
        );
    }
    assert!(
        !backoffice
            .connect("person_gone", identity("2"), NOW)
            .await
            .unwrap()
    );
    let elsewhere = Identity {
        issuer: "https://id.example.net",
        subject: "1",
    };
    assert!(backoffice.connect(&grace.id, elsewhere, NOW).await.unwrap());
    let found = backoffice.person_by_identity(identity("1")).await.unwrap();
    assert_eq!(found.as_ref(), Some(&ada));
    let found = backoffice.person_by_identity(elsewhere).await.unwrap();
    assert_eq!(found.as_ref(), Some(&grace));
    for (person, issuer, is_connected) in [
        (&ada, identity("").issuer, true),
        (&ada, elsewhere.issuer, false),
        (&grace, identity("").issuer, false),
    ] {
        let connected = backoffice.is_connected(&person.id, issuer).await.unwrap();
        assert_eq!(connected, is_connected, "{} {issuer}", person.email);
    }
}

async fn a_person_and_their_identity_are_added_together(given: Given) {
    let add = |email: &str, subject: &'static str| {
        let (backoffice, new) = (given.backoffice.clone(), new_person(email));
        async move {
            backoffice
                .add_person_with_identity(new, identity(subject))
                .await
        }
    };
    given.person("taken@example.com").await;
    let refused = add("Taken@example.com", "1").await;
    assert!(matches!(refused, Err(BackofficeError::EmailTaken)));
    assert_eq!(
        given
            .backoffice
            .person_by_identity(identity("1"))
            .await
            .unwrap(),
        None
    );
    let ada = add("ada@example.com", "1").await.unwrap();
    // Repeating it with the identity returns the person, with any address.
    for email in ["ada@example.com", "ada@example.net", "taken@example.com"] {
        assert_eq!(add(email, "1").await.unwrap(), ada, "{email}");
    }
    assert_eq!(
        given.count("SELECT count(*) FROM backoffice_people").await,
        2
    );
    assert_eq!(
        given
            .count("SELECT count(*) FROM backoffice_identities")
            .await,
        1
    );
}

async fn the_identity_of_a_removed_person_can_be_connected_again(given: Given) {
    let backoffice = &given.backoffice;
    let (ada, grace) = (
        given.person("ada@example.com").await,
        given.person("grace@example.com").await,
    );
    assert!(
        backoffice
            .connect(&ada.id, identity("1"), NOW)
            .await
            .unwrap()
    );
    // A second identity with the issuer is refused: it could be an intruder's, and the person would not see it.
    assert!(
        !backoffice
            .connect(&ada.id, identity("2"), NOW)
            .await
            .unwrap()
    );
    backoffice.remove_person(&ada.id).await.unwrap();
    assert_eq!(
        given
            .count("SELECT count(*) FROM backoffice_identities")
            .await,
        0
    );
    // An identity without a person, as two gateways could leave behind in a race.
    given
        .run("INSERT INTO backoffice_identities VALUES ('https://id.example.com', '1', 'person_gone', 0)")
        .await;
    assert!(
        backoffice
            .connect(&grace.id, identity("1"), NOW)
            .await
            .unwrap()
    );
    let found = backoffice.person_by_identity(identity("1")).await.unwrap();
    assert_eq!(found, Some(grace));
}

async fn the_only_way_to_sign_in_is_not_removed(given: Given) {
    let new = NewPerson {
        password: None,
        ..new_person("ada@example.com")
    };
    let (backoffice, issuer) = (&given.backoffice, identity("").issuer);
    let ada = backoffice
        .add_person_with_identity(new, identity("1"))
        .await
        .unwrap();
    backoffice.disconnect(&ada.id, issuer).await.unwrap();
    assert!(backoffice.is_connected(&ada.id, issuer).await.unwrap());
    backoffice
        .set_password(&ada.id, "hash", None, NOW)
        .await
        .unwrap();
    backoffice
        .disconnect(&ada.id, "https://id.example.net")
        .await
        .unwrap();
    assert!(backoffice.is_connected(&ada.id, issuer).await.unwrap());
    backoffice.disconnect(&ada.id, issuer).await.unwrap();
    assert!(!backoffice.is_connected(&ada.id, issuer).await.unwrap());
    assert_eq!(
        backoffice.person_by_identity(identity("1")).await.unwrap(),
        None
    );
}

async fn of_concurrent_uses_of_a_token_one_succeeds(given: Given) {
    let tasks = (0..20).map(|_| {
        let backoffice = given.backoffice.clone();
        tokio::spawn(async move { backoffice.spend(&[7; 32], NOW + 10).await.unwrap() })
    });
    let mut used = 0;
    for one in tasks.collect::<Vec<_>>() {
        used += u32::from(one.await.unwrap());
    }
    assert_eq!(used, 1);
    assert!(given.backoffice.spend(&[8; 32], NOW + 10).await.unwrap());
    given.backoffice.prune(NOW + 9).await.unwrap();
    assert_eq!(
        given.count("SELECT count(*) FROM backoffice_spent").await,
        2
    );
    given.backoffice.prune(NOW + 10).await.unwrap();
    assert_eq!(
        given.count("SELECT count(*) FROM backoffice_spent").await,
        0
    );
}
