//! Contract of people.

use super::*;

contract!(
    an_added_person_is_found,
    an_address_belongs_to_one_person_in_any_spelling,
    of_concurrent_additions_of_one_address_one_succeeds,
    an_unknown_person_is_not_found,
    unusual_texts_are_stored,
    a_role_is_changed,
    a_password_is_changed,
    data_survives_a_restart,
);

async fn an_added_person_is_found(given: Given) {
    let ada = given.person("  Ada@Example.com\t").await;
    assert!(ada.id.starts_with("person_"), "{ada:?}");
    let expected = Person {
        id: ada.id.clone(),
        email: "Ada@Example.com".into(),
        name: Some("Ada".into()),
        password: Some("$argon2id$…".into()),
        role: Role::Customer,
        account_id: "acct_1".into(),
        team_role: TeamRole::Owner,
        created_at: NOW,
        second_factor_at: None,
    };
    assert_eq!(ada, expected);
    let grace = NewPerson {
        name: None,
        password: None,
        role: Role::Operator,
        account_id: "acct_2".into(),
        ..new_person("grace@example.com")
    };
    let grace = given.backoffice.add_person(grace).await.unwrap();
    assert_eq!(
        (grace.name.as_deref(), grace.password.as_deref()),
        (None, None)
    );
    assert_eq!(grace.role, Role::Operator);
    for person in [&ada, &grace] {
        let found = given.backoffice.person(&person.id).await.unwrap();
        assert_eq!(found.as_ref(), Some(person));
        for email in [
            person.email.clone(),
            person.email.to_uppercase(),
            format!(" {} ", person.email),
        ] {
            let found = given.backoffice.person_by_email(&email).await.unwrap();
            assert_eq!(found.as_ref(), Some(person), "{email}");
        }
    }
}

async fn an_address_belongs_to_one_person_in_any_spelling(given: Given) {
    let first = given.person("Ünal@Example.com").await;
    for email in [
        "Ünal@Example.com",
        "ünal@example.com",
        "ÜNAL@EXAMPLE.COM ",
        "\tünal@Example.com",
    ] {
        let refused = given.backoffice.add_person(new_person(email)).await;
        assert!(
            matches!(refused, Err(BackofficeError::EmailTaken)),
            "{email}: {refused:?}"
        );
    }
    given.person("unal@example.com").await;
    let found = given.backoffice.person(&first.id).await.unwrap();
    assert_eq!(found, Some(first), "nothing has changed");
    assert_eq!(
        given.count("SELECT count(*) FROM backoffice_people").await,
        2
    );
}

/// With PostgreSQL on two gateways, with SQLite on one.
async fn of_concurrent_additions_of_one_address_one_succeeds(given: Given) {
    let other = match &given.place {
        Place::Folder(_) => given.backoffice.clone(),
        place @ Place::Database(_) => Arc::new(place.open()),
    };
    let gateways = [given.backoffice.clone(), other];
    let tasks = (0..20).map(|number| {
        let backoffice = gateways[number % 2].clone();
        tokio::spawn(async move {
            let email = if number % 3 == 0 {
                "Ada@Example.com"
            } else {
                "ada@example.com"
            };
            let mut new = new_person(email);
            new.account_id = format!("acct_{number}");
            backoffice.add_person(new).await
        })
    });
    let mut added = Vec::new();
    for one in tasks.collect::<Vec<_>>() {
        match one.await.unwrap() {
            Ok(person) => added.push(person),
            Err(BackofficeError::EmailTaken) => {}
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!(added.len(), 1, "{added:?}");
    let found = given
        .backoffice
        .person_by_email("ada@example.com")
        .await
        .unwrap();
    assert_eq!(found.as_ref(), added.first());
    assert_eq!(
        given.count("SELECT count(*) FROM backoffice_people").await,
        1
    );
}

async fn an_unknown_person_is_not_found(given: Given) {
    for id in ["person_1", ""] {
        assert_eq!(given.backoffice.person(id).await.unwrap(), None);
        assert_eq!(given.backoffice.person_by_email(id).await.unwrap(), None);
    }
    // Changes to an unknown person create none.
    given
        .backoffice
        .set_role("person_1", Role::Operator)
        .await
        .unwrap();
    given
        .backoffice
        .set_password("person_1", "hash", None, NOW)
        .await
        .unwrap();
    assert_eq!(
        given.count("SELECT count(*) FROM backoffice_people").await,
        0
    );
}

async fn unusual_texts_are_stored(given: Given) {
    let long = "x".repeat(1 << 20);
    for (number, strange) in [
        "",
        "'; DROP TABLE backoffice_people; --",
        "$1 ?1 :a %s",
        "👩‍👩‍👧\u{202e}\u{10ffff}",
        &long,
    ]
    .into_iter()
    .enumerate()
    {
        // Kept short, because an indexed value has a maximum length; real IDs are shorter.
        let account_id: String = strange.chars().take(99).collect();
        let new = NewPerson {
            name: Some(strange.into()),
            account_id: account_id.clone(),
            ..new_person(&format!("{number}@example.com"))
        };
        let added = given.backoffice.add_person(new).await.unwrap();
        assert_eq!(added.name.as_deref(), Some(strange));
        assert_eq!(added.account_id, account_id);
        assert_eq!(given.backoffice.person(strange).await.unwrap(), None);
    }
    // A zero byte, which PostgreSQL cannot store, becomes U+FFFD in both databases.
    let added = given.person("a\0b@example.com").await;
    assert_eq!(added.email, "a\u{fffd}b@example.com");
    let found = given
        .backoffice
        .person_by_email("A\0b@example.com")
        .await
        .unwrap();
    assert_eq!(found, Some(added));
    assert_eq!(given.backoffice.person("\0").await.unwrap(), None);
}

async fn a_role_is_changed(given: Given) {
    let (ada, grace) = (
        given.person("ada@example.com").await,
        given.person("grace@example.com").await,
    );
    for role in [Role::Operator, Role::Operator, Role::Customer] {
        given.backoffice.set_role(&ada.id, role).await.unwrap();
        let found = given.backoffice.person(&ada.id).await.unwrap();
        assert_eq!(
            found,
            Some(Person {
                role,
                ..ada.clone()
            })
        );
    }
    assert_eq!(
        given.backoffice.person(&grace.id).await.unwrap(),
        Some(grace)
    );
}

async fn a_password_is_changed(given: Given) {
    let (ada, grace) = (
        given.person("ada@example.com").await,
        given.person("grace@example.com").await,
    );
    given
        .backoffice
        .set_password(&ada.id, "new", None, NOW + 5)
        .await
        .unwrap();
    let found = given.backoffice.person(&ada.id).await.unwrap();
    let password = Some("new".to_owned());
    assert_eq!(found, Some(Person { password, ..ada }));
    assert_eq!(
        given.backoffice.person(&grace.id).await.unwrap(),
        Some(grace)
    );
}

async fn data_survives_a_restart(given: Given) {
    let ada = given.person("ada@example.com").await;
    let digest = given.session(1, &ada, NOW).await;
    given
        .backoffice
        .record(&actions::action("first", "acct_1"))
        .await
        .unwrap();
    let given = given.restart();
    assert_eq!(given.backoffice.person(&ada.id).await.unwrap(), Some(ada));
    assert!(given.is_in(&digest).await);
    let page = given.backoffice.actions_page(None, None, 10).await.unwrap();
    assert_eq!(page.len(), 1);
}

#[test]
fn roles_are_read_as_they_are_written() {
    for role in [Role::Customer, Role::Operator] {
        assert_eq!(Role::parse(role.as_str()), Some(role));
    }
    for text in ["", "Operator", "admin", " customer"] {
        assert_eq!(Role::parse(text), None, "{text}");
    }
}

#[tokio::test]
async fn a_hash_does_not_show_in_debug_output() {
    let ada = Given::sqlite().person("ada@example.com").await;
    assert!(!format!("{ada:?}").contains("argon2id"), "{ada:?}");
}
