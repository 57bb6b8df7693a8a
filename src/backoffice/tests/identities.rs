//! What is promised of identities, and of what may be used once.

use super::*;
use crate::backoffice::Identity;

contract!(
    an_identity_is_one_persons,
    somebody_new_is_added_with_their_identity_or_not_at_all,
    who_is_gone_leaves_an_identity_to_whoever_has_it,
    the_only_way_in_is_not_given_up,
    of_twenty_who_use_it_one_does,
);

fn known_as(subject: &str) -> Identity<'_> {
    Identity {
        issuer: "https://id.example.com",
        subject,
    }
}

async fn an_identity_is_one_persons(given: Given) {
    let (ada, grace) = (
        given.person("ada@example.com").await,
        given.person("grace@example.com").await,
    );
    let backoffice = &given.backoffice;
    assert_eq!(
        backoffice.person_by_identity(known_as("1")).await.unwrap(),
        None
    );
    for _ in 0..2 {
        assert!(
            backoffice
                .connect(&ada.id, known_as("1"), NOW)
                .await
                .unwrap()
        );
        assert!(
            !backoffice
                .connect(&grace.id, known_as("1"), NOW)
                .await
                .unwrap()
        );
    }
    assert!(
        !backoffice
            .connect("person_gone", known_as("2"), NOW)
            .await
            .unwrap()
    );
    let elsewhere = Identity {
        issuer: "https://id.example.net",
        subject: "1",
    };
    assert!(backoffice.connect(&grace.id, elsewhere, NOW).await.unwrap());
    let found = backoffice.person_by_identity(known_as("1")).await.unwrap();
    assert_eq!(found.as_ref(), Some(&ada));
    let found = backoffice.person_by_identity(elsewhere).await.unwrap();
    assert_eq!(found.as_ref(), Some(&grace));
    for (person, issuer, is_connected) in [
        (&ada, known_as("").issuer, true),
        (&ada, elsewhere.issuer, false),
        (&grace, known_as("").issuer, false),
    ] {
        let connected = backoffice.is_connected(&person.id, issuer).await.unwrap();
        assert_eq!(connected, is_connected, "{} {issuer}", person.email);
    }
}

async fn somebody_new_is_added_with_their_identity_or_not_at_all(given: Given) {
    let add = |email: &str, subject: &'static str| {
        let (backoffice, new) = (given.backoffice.clone(), new_person(email));
        async move { backoffice.add_person_known_as(new, known_as(subject)).await }
    };
    given.person("taken@example.com").await;
    let refused = add("Taken@example.com", "1").await;
    assert!(matches!(refused, Err(BackofficeError::EmailTaken)));
    assert_eq!(
        given
            .backoffice
            .person_by_identity(known_as("1"))
            .await
            .unwrap(),
        None
    );
    let ada = add("ada@example.com", "1").await.unwrap();
    // Whoever it is done for twice, under whatever address, is that person.
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

async fn who_is_gone_leaves_an_identity_to_whoever_has_it(given: Given) {
    let backoffice = &given.backoffice;
    let (ada, grace) = (
        given.person("ada@example.com").await,
        given.person("grace@example.com").await,
    );
    assert!(
        backoffice
            .connect(&ada.id, known_as("1"), NOW)
            .await
            .unwrap()
    );
    // One with an issuer is enough: a second would be somebody else's, unseen.
    assert!(
        !backoffice
            .connect(&ada.id, known_as("2"), NOW)
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
    // As two gateways at the same moment could leave it.
    given
        .run("INSERT INTO backoffice_identities VALUES ('https://id.example.com', '1', 'person_gone', 0)")
        .await;
    assert!(
        backoffice
            .connect(&grace.id, known_as("1"), NOW)
            .await
            .unwrap()
    );
    let found = backoffice.person_by_identity(known_as("1")).await.unwrap();
    assert_eq!(found, Some(grace));
}

async fn the_only_way_in_is_not_given_up(given: Given) {
    let new = NewPerson {
        password: None,
        ..new_person("ada@example.com")
    };
    let (backoffice, issuer) = (&given.backoffice, known_as("").issuer);
    let ada = backoffice
        .add_person_known_as(new, known_as("1"))
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
        backoffice.person_by_identity(known_as("1")).await.unwrap(),
        None
    );
}

async fn of_twenty_who_use_it_one_does(given: Given) {
    let crowd = (0..20).map(|_| {
        let backoffice = given.backoffice.clone();
        tokio::spawn(async move { backoffice.spend(&[7; 32], NOW + 10).await.unwrap() })
    });
    let mut used = 0;
    for one in crowd.collect::<Vec<_>>() {
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
