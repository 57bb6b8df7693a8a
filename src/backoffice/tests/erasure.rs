//! Deleting the people of an account, and names and addresses in what stays.

use super::*;
use crate::backoffice::{MadeLink, NewCheckout, NewLink, Purpose};
use crate::base::money::NanoUsd;

contract!(
    names_and_addresses_are_replaced_in_recorded_actions,
    people_end_with_everything_that_lets_them_sign_in,
);

fn action(actor: &str, subject: &str, after: &str) -> Action {
    Action {
        at_ms: NOW * 1_000,
        actor: actor.into(),
        what: "test".into(),
        subject: subject.into(),
        before: Some(r#"{"email":"LATE@example.com","open":true}"#.into()),
        after: Some(after.into()),
    }
}

async fn names_and_addresses_are_replaced_in_recorded_actions(given: Given) {
    let ada = given.person("ada@example.com").await;
    let json = r#"{"name":"Ada","email":"Ada@example.com","made_by":"ada@example.com","amount":"5","who":["ada@example.com"]}"#;
    for _ in 0..3 {
        let theirs = action("ada@example.com", "acct_1", json);
        given.backoffice.record(&theirs).await.unwrap();
    }
    let other = action("ada@example.com", "acct_2", json);
    given.backoffice.record(&other).await.unwrap();
    let operators = action("op@example.com", "acct_1", "not JSON");
    given.backoffice.record(&operators).await.unwrap();
    let subjects = ["acct_1".to_owned(), ada.id.clone()];
    for _ in 0..2 {
        let people = [ada.clone()];
        let erased = given.backoffice.erase_from_actions(&subjects, &people);
        erased.await.unwrap();
        let page = given.backoffice.actions_page(None, None, 10).await.unwrap();
        let id = &ada.id;
        let theirs = &page[4].action;
        assert_eq!(&theirs.actor, id);
        let before = r#"{"email":"deleted","open":true}"#;
        assert_eq!(theirs.before.as_deref(), Some(before));
        let after = format!(
            r#"{{"name":"deleted","email":"{id}","made_by":"{id}","amount":"5","who":["{id}"]}}"#
        );
        assert_eq!(theirs.after, Some(after));
        assert_eq!(page[0].action.actor, "op@example.com");
        assert_eq!(page[0].action.after.as_deref(), Some("null"));
        // In another account they are the actor alone.
        assert_eq!(
            (&page[1].action.actor, page[1].action.after.as_deref()),
            (id, Some(json))
        );
    }
}

async fn people_end_with_everything_that_lets_them_sign_in(given: Given) {
    let ada = given.person("ada@example.com").await;
    let bob = given.person("bob@example.com").await;
    let elsewhere = NewPerson {
        account_id: "acct_2".into(),
        ..new_person("eve@example.com")
    };
    let eve = given.backoffice.add_person(elsewhere).await.unwrap();
    let (adas, eves) = (
        given.session(1, &ada, NOW).await,
        given.session(2, &eve, NOW).await,
    );
    let mut links = Vec::new();
    for (email, made_by) in [
        ("late@example.com", &bob.email),
        ("x@example.com", &eve.email),
    ] {
        let account_id = if made_by == &eve.email {
            "acct_2"
        } else {
            "acct_1"
        };
        let new = NewLink {
            email: email.into(),
            purpose: Purpose::Invitation {
                account_id: account_id.into(),
                role: Role::Customer,
                team_role: TeamRole::Viewer,
            },
            made_by: Some(made_by.clone()),
            now: NOW,
        };
        let made = given.backoffice.make_link(new).await.unwrap();
        links.push(MadeLink::digest(made.secret.reveal()).unwrap());
    }
    for person in [&ada.email, &"gone@example.com".to_owned()] {
        let order = NewCheckout {
            provider: "test",
            account_id: "acct_1".into(),
            person: person.clone(),
            amount: NanoUsd::new(1),
            now: NOW,
        };
        given.backoffice.open_checkout(order, 0, 10).await.unwrap();
    }
    let people = [ada.clone(), bob.clone()];
    for _ in 0..2 {
        let erased = given.backoffice.erase_people_of("acct_1", &people);
        erased.await.unwrap();
    }
    assert!(
        given
            .backoffice
            .people_of("acct_1")
            .await
            .unwrap()
            .is_empty()
    );
    assert_eq!(given.backoffice.people_of("acct_2").await.unwrap(), [eve]);
    assert!(!given.is_in(&adas).await && given.is_in(&eves).await);
    let open = [
        given
            .backoffice
            .link(&links[0], NOW)
            .await
            .unwrap()
            .is_some(),
        given
            .backoffice
            .link(&links[1], NOW)
            .await
            .unwrap()
            .is_some(),
    ];
    assert_eq!(open, [false, true]);
    let orders = given
        .backoffice
        .checkouts_of("acct_1", None, 10)
        .await
        .unwrap();
    let mut persons: Vec<_> = orders.iter().map(|order| order.person.as_str()).collect();
    persons.sort_unstable();
    assert_eq!(persons, ["deleted", ada.id.as_str()]);
    // The address is free.
    given.person("ada@example.com").await;
}
