//! Contract of sessions.

use super::*;

contract!(
    a_session_is_found_by_its_digest,
    the_operator_token_has_sessions_without_a_person,
    a_session_expires_to_the_second,
    a_session_has_the_current_role_of_its_person,
    a_session_of_a_deleted_person_is_not_found,
    an_ended_session_is_not_found,
    all_sessions_of_a_person_except_one_are_ended,
    a_new_password_ends_the_other_sessions,
    sessions_are_listed_newest_first,
    expired_sessions_are_pruned,
    beginning_a_session_is_idempotent,
);

async fn a_session_is_found_by_its_digest(given: Given) {
    let ada = given.person("ada@example.com").await;
    // Distinct bytes, to show that all of them are stored.
    let digest: Digest = std::array::from_fn(|at| u8::try_from(at * 8).unwrap());
    let new = NewSession {
        digest,
        ..new_session(0, Some(&ada), NOW)
    };
    given.backoffice.begin_session(new).await.unwrap();
    let expected = Session {
        digest,
        person: Some(ada),
        role: Role::Customer,
        agent: "browser 0".into(),
        began_at: NOW,
        expires_at: NOW + 1_000,
    };
    let found = given.backoffice.session(&digest, NOW).await.unwrap();
    assert_eq!(found, Some(expected));
    let mut other = digest;
    other[31] ^= 1;
    assert!(!given.is_in(&other).await);
    assert!(!given.is_in(&[0; 32]).await);
}

async fn the_operator_token_has_sessions_without_a_person(given: Given) {
    for (number, role) in [(1, Role::Operator), (2, Role::Customer)] {
        let new = NewSession {
            role,
            ..new_session(number, None, NOW)
        };
        let digest = new.digest;
        given.backoffice.begin_session(new).await.unwrap();
        let found = given
            .backoffice
            .session(&digest, NOW)
            .await
            .unwrap()
            .unwrap();
        assert_eq!((found.person, found.role), (None, role));
    }
    assert_eq!(given.backoffice.sessions_of("", NOW).await.unwrap(), []);
}

async fn a_session_expires_to_the_second(given: Given) {
    let ada = given.person("ada@example.com").await;
    let digest = given.session(1, &ada, NOW).await;
    for (now, is_in) in [
        (NOW, true),
        (NOW + 999, true),
        (NOW + 1_000, false),
        (NOW + 1_001, false),
    ] {
        let found = given.backoffice.session(&digest, now).await.unwrap();
        assert_eq!(found.is_some(), is_in, "{now}");
        let listed = given.backoffice.sessions_of(&ada.id, now).await.unwrap();
        assert_eq!(listed.len(), usize::from(is_in), "{now}");
    }
}

async fn a_session_has_the_current_role_of_its_person(given: Given) {
    let ada = given.person("ada@example.com").await;
    let digest = given.session(1, &ada, NOW).await;
    for role in [Role::Operator, Role::Customer] {
        given.backoffice.set_role(&ada.id, role).await.unwrap();
        let found = given
            .backoffice
            .session(&digest, NOW)
            .await
            .unwrap()
            .unwrap();
        assert_eq!(found.role, role);
        assert_eq!(found.person.unwrap().role, role);
        let listed = given.backoffice.sessions_of(&ada.id, NOW).await.unwrap();
        assert_eq!(listed[0].role, role);
    }
}

/// It must not be mistaken for a session of the operator token.
async fn a_session_of_a_deleted_person_is_not_found(given: Given) {
    let ada = given.person("ada@example.com").await;
    let digest = given.session(1, &ada, NOW).await;
    given.run("DELETE FROM backoffice_people").await;
    assert!(!given.is_in(&digest).await);
    assert_eq!(
        given.backoffice.sessions_of(&ada.id, NOW).await.unwrap(),
        []
    );
}

async fn an_ended_session_is_not_found(given: Given) {
    let ada = given.person("ada@example.com").await;
    let (one, other) = (
        given.session(1, &ada, NOW).await,
        given.session(2, &ada, NOW).await,
    );
    for _ in 0..2 {
        given.backoffice.end_session(&one).await.unwrap();
        assert!(!given.is_in(&one).await && given.is_in(&other).await);
    }
}

/// Three sessions of one person, one of another person and one of the operator token.
async fn five_sessions(given: &Given) -> (Person, [Digest; 5]) {
    let (ada, grace) = (
        given.person("ada@example.com").await,
        given.person("grace@example.com").await,
    );
    let mut digests = [[0; 32]; 5];
    for (number, digest) in (0..).zip(&mut digests[..3]) {
        *digest = given.session(number, &ada, NOW).await;
    }
    digests[3] = given.session(3, &grace, NOW).await;
    let token = new_session(4, None, NOW);
    digests[4] = token.digest;
    given.backoffice.begin_session(token).await.unwrap();
    (ada, digests)
}

async fn which_are_in(given: &Given, digests: &[Digest; 5]) -> [bool; 5] {
    let mut which = [false; 5];
    for (is_in, digest) in which.iter_mut().zip(digests) {
        *is_in = given.is_in(digest).await;
    }
    which
}

async fn all_sessions_of_a_person_except_one_are_ended(given: Given) {
    let (ada, digests) = five_sessions(&given).await;
    let end = async |except| {
        given
            .backoffice
            .end_sessions_of(&ada.id, except)
            .await
            .unwrap();
    };
    end(Some(&digests[1])).await;
    assert_eq!(
        which_are_in(&given, &digests).await,
        [false, true, false, true, true]
    );
    // A session of another person as the exception changes nothing.
    end(Some(&digests[3])).await;
    assert_eq!(
        which_are_in(&given, &digests).await,
        [false, false, false, true, true]
    );
    end(None).await;
    assert_eq!(
        which_are_in(&given, &digests).await,
        [false, false, false, true, true]
    );
}

async fn a_new_password_ends_the_other_sessions(given: Given) {
    let (ada, digests) = five_sessions(&given).await;
    let backoffice = &given.backoffice;
    backoffice
        .set_password(&ada.id, "new", Some(&digests[2]), NOW)
        .await
        .unwrap();
    assert_eq!(
        which_are_in(&given, &digests).await,
        [false, false, true, true, true]
    );
    let found = backoffice.session(&digests[2], NOW).await.unwrap().unwrap();
    assert_eq!(found.person.unwrap().password.as_deref(), Some("new"));
    backoffice
        .set_password(&ada.id, "newer", None, NOW)
        .await
        .unwrap();
    assert_eq!(
        which_are_in(&given, &digests).await,
        [false, false, false, true, true]
    );
}

async fn sessions_are_listed_newest_first(given: Given) {
    let (ada, grace) = (
        given.person("ada@example.com").await,
        given.person("grace@example.com").await,
    );
    for (number, age) in [(1, 20), (2, 0), (3, 10), (4, 1_000), (5, 10)] {
        given.session(number, &ada, NOW - age).await;
    }
    let listed = given.backoffice.sessions_of(&ada.id, NOW).await.unwrap();
    let agents: Vec<_> = listed
        .iter()
        .map(|session| session.agent.as_str())
        .collect();
    assert_eq!(agents, ["browser 2", "browser 3", "browser 5", "browser 1"]);
    assert!(
        listed
            .iter()
            .all(|session| session.person.as_ref() == Some(&ada))
    );
    assert_eq!(
        given.backoffice.sessions_of(&grace.id, NOW).await.unwrap(),
        []
    );
}

async fn expired_sessions_are_pruned(given: Given) {
    let ada = given.person("ada@example.com").await;
    for number in 1..=3 {
        given.session(number, &ada, NOW + i64::from(number)).await;
    }
    let left = "SELECT count(*) FROM backoffice_sessions";
    for (now, expected) in [
        (NOW + 1_000, 3),
        (NOW + 1_001, 2),
        (NOW + 1_001, 2),
        (NOW + 1_003, 0),
    ] {
        given.backoffice.prune(now).await.unwrap();
        assert_eq!(given.count(left).await, expected, "{now}");
    }
    assert_eq!(given.backoffice.person(&ada.id).await.unwrap(), Some(ada));
}

/// When a connection breaks, the transaction is executed again.
async fn beginning_a_session_is_idempotent(given: Given) {
    let ada = given.person("ada@example.com").await;
    given.session(1, &ada, NOW).await;
    given.session(1, &ada, NOW).await;
    assert_eq!(
        given
            .backoffice
            .sessions_of(&ada.id, NOW)
            .await
            .unwrap()
            .len(),
        1
    );
}
