//! Deleting the people of an account, and names and addresses in what stays.

use super::*;
use crate::backoffice::{MadeLink, NewCheckout, NewLink, Purpose, deletion_id};
use crate::base::money::NanoUsd;

contract!(
    names_and_addresses_are_replaced_in_recorded_actions,
    former_addresses_and_former_people_are_replaced_too,
    actions_on_other_accounts_stay_as_they_are,
    an_interrupted_deletion_is_found_and_can_be_repeated,
    people_end_with_everything_that_lets_them_sign_in,
    links_to_an_account_end_when_its_deletion_begins,
);

const EMPTY: Option<&str> = None;

fn action(actor: &str, subject: &str, before: Option<&str>, after: Option<&str>) -> Action {
    Action {
        at_ms: NOW * 1_000,
        actor: actor.into(),
        what: "test".into(),
        subject: subject.into(),
        before: before.map(str::to_owned),
        after: after.map(str::to_owned),
    }
}

impl Given {
    async fn did(&self, actor: &str, subject: &str, before: Option<&str>, after: Option<&str>) {
        let action = action(actor, subject, before, after);
        self.backoffice.record(&action).await.unwrap();
    }

    /// Replaces what the account `acct_1` has in recorded actions, and returns all of them, oldest first.
    async fn erased(&self) -> Vec<Action> {
        let traces = self.backoffice.traces_of("acct_1").await.unwrap();
        self.backoffice.erase_from_actions(&traces).await.unwrap();
        self.recorded().await
    }

    async fn recorded(&self) -> Vec<Action> {
        let page = self.backoffice.actions_page(None, None, 1_000).await;
        let page = page.unwrap().into_iter().rev();
        page.map(|recorded| recorded.action).collect()
    }

    async fn erase_people(&self) {
        let traces = self.backoffice.traces_of("acct_1").await.unwrap();
        let erased = self.backoffice.erase_people_of("acct_1", &traces);
        erased.await.unwrap();
    }
}

async fn names_and_addresses_are_replaced_in_recorded_actions(given: Given) {
    let ada = given.person("ada@example.com").await;
    let id = ada.id.as_str();
    let json = r#"{"name":"Ada","email":"Ada@example.com","made_by":"ada@example.com","amount":"5","who":["ada@example.com"]}"#;
    let late = r#"{"email":"LATE@example.com","open":true}"#;
    for _ in 0..3 {
        given
            .did("Ada@example.com", "acct_1", Some(late), Some(json))
            .await;
    }
    given
        .did("op@example.com", "acct_1", None, Some("not JSON"))
        .await;
    // A budget that was removed is known from the account in its record, and so are keys and projects.
    let budget = r#"{"account":"acct_1","name":"Ada's budget"}"#;
    given
        .did("ada@example.com", "budget_1", Some(budget), None)
        .await;
    let bill = r#"{"bill_to":"Ada Lovelace\n1 Example Street"}"#;
    let none = r#"{"bill_to":""}"#;
    given
        .did("ada@example.com", "acct_1", Some(none), Some(bill))
        .await;
    let top_up = r#"{"consent_by":"ada@example.com","reason":"for ada@example.com."}"#;
    given
        .did("operator token", "acct_1", None, Some(top_up))
        .await;
    for _ in 0..2 {
        let all = given.erased().await;
        let after = format!(
            r#"{{"name":"deleted","email":"{id}","made_by":"{id}","amount":"5","who":["{id}"]}}"#
        );
        let late = r#"{"email":"deleted","open":true}"#;
        assert_eq!(all[0], action(id, "acct_1", Some(late), Some(&after)));
        assert_eq!(
            all[3],
            action("op@example.com", "acct_1", None, Some("null"))
        );
        let budget = r#"{"account":"acct_1","name":"deleted"}"#;
        assert_eq!(all[4], action(id, "budget_1", Some(budget), None));
        let bill = r#"{"bill_to":"deleted"}"#;
        assert_eq!(all[5], action(id, "acct_1", Some(none), Some(bill)));
        let top_up = format!(r#"{{"consent_by":"{id}","reason":"for {id}."}}"#);
        let expected = action("operator token", "acct_1", None, Some(&top_up));
        assert_eq!(all[6], expected);
    }
}

/// Records that a person's address was changed, as the actions on people do.
async fn changed(given: &Given, id: &str, [from, to]: [&str; 2]) {
    let [before, after] = [from, to].map(|email| format!(r#"{{"email":"{email}"}}"#));
    given.did(from, id, Some(&before), Some(&after)).await;
}

async fn former_addresses_and_former_people_are_replaced_too(given: Given) {
    let ada = given.person("ada@third.example").await;
    let id = ada.id.as_str();
    given.did("ada@first.example", "acct_1", None, None).await;
    changed(&given, id, ["ada@first.example", "ada@second.example"]).await;
    let key = r#"{"account":"acct_1","name":"laptop"}"#;
    given
        .did("ada@second.example", "key_1", None, Some(key))
        .await;
    changed(&given, id, ["ada@second.example", "ada@third.example"]).await;
    // Bob was removed, and had another address before.
    changed(
        &given,
        "person_bob",
        ["bob@first.example", "bob@example.com"],
    )
    .await;
    given
        .did("bob@first.example", "key_1", None, Some(key))
        .await;
    let bob = r#"{"account":"acct_1","email":"bob@example.com","name":"Bob"}"#;
    given
        .did("ada@third.example", "person_bob", Some(bob), None)
        .await;
    // Much later an operator has his former address.
    let much_later = Action {
        at_ms: NOW * 1_000 + 86_400_000,
        ..action("bob@example.com", "acct_1", None, None)
    };
    given.backoffice.record(&much_later).await.unwrap();
    for _ in 0..2 {
        let all = given.erased().await;
        let actors: Vec<_> = all.iter().map(|action| action.actor.as_str()).collect();
        let bob = "person_bob";
        assert_eq!(
            actors,
            [id, id, id, id, bob, bob, id, "bob@example.com"],
            "{all:?}"
        );
        let changed = format!(r#"{{"email":"{id}"}}"#);
        assert_eq!(
            (all[1].before.as_deref(), all[1].after.as_deref()),
            (Some(changed.as_str()), Some(changed.as_str()))
        );
        let bob = r#"{"account":"acct_1","email":"person_bob","name":"deleted"}"#;
        assert_eq!(all[6].before.as_deref(), Some(bob));
    }
}

async fn actions_on_other_accounts_stay_as_they_are(given: Given) {
    given.person("ada@example.com").await;
    let elsewhere = NewPerson {
        account_id: "acct_2".into(),
        ..new_person("eve@example.com")
    };
    given.backoffice.add_person(elsewhere).await.unwrap();
    // Ada was an operator.
    let invited = r#"{"email":"ada@example.com","name":"Ada"}"#;
    let key = r#"{"account":"acct_2","name":"ada@example.com"}"#;
    for (subject, after) in [
        ("acct_2", Some(invited)),
        ("key_2", Some(key)),
        ("ledger", EMPTY),
        ("person_eve", EMPTY),
    ] {
        given.did("ada@example.com", subject, None, after).await;
    }
    // The ID of the account is part of another one.
    let longer = r#"{"account":"acct_10","name":"Eve"}"#;
    given
        .did("eve@example.com", "key_10", None, Some(longer))
        .await;
    let before = given.recorded().await;
    assert_eq!(given.erased().await, before);
}

async fn an_interrupted_deletion_is_found_and_can_be_repeated(given: Given) {
    let ada = given.person("ada@second.example").await;
    changed(&given, &ada.id, ["ada@first.example", "ada@second.example"]).await;
    let key = r#"{"account":"acct_1"}"#;
    given
        .did("ada@first.example", "key_1", None, Some(key))
        .await;
    let unfinished = async || given.backoffice.unfinished_deletions().await.unwrap();
    assert_eq!(unfinished().await, Vec::<String>::new());
    let deleted = action(&ada.id, "acct_1", None, None);
    let id = deletion_id("acct_1");
    given.backoffice.record_once(&id, &deleted).await.unwrap();
    assert_eq!(unfinished().await, ["acct_1"]);
    let given = given.restart();
    let all = given.erased().await;
    assert!(!format!("{all:?}").contains("ada@"), "{all:?}");
    given.erase_people().await;
    let left = given.backoffice.unfinished_deletions().await.unwrap();
    assert!(left.is_empty());
    assert_eq!(given.erased().await, all);
    // The deletion of another account is none of this one's.
    given.person("new@example.com").await;
    let again = given.backoffice.unfinished_deletions().await.unwrap();
    assert_eq!(again, ["acct_1"], "a person who joined meanwhile");
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
    let late = given.invited("late@example.com", "acct_1", &bob).await;
    let other = given.invited("x@example.com", "acct_2", &eve).await;
    changed(&given, &ada.id, ["ada@first.example", "ada@example.com"]).await;
    for person in ["ada@example.com", "ada@first.example", "gone@example.com"] {
        let order = NewCheckout {
            provider: "test",
            account_id: "acct_1".into(),
            person: person.into(),
            amount: NanoUsd::new(1),
            now: NOW,
            consent_id: None,
        };
        given.backoffice.open_checkout(order, 0, 10).await.unwrap();
    }
    for _ in 0..2 {
        given.erase_people().await;
    }
    let people = given.backoffice.people_of("acct_1").await.unwrap();
    assert!(people.is_empty());
    assert_eq!(given.backoffice.people_of("acct_2").await.unwrap(), [eve]);
    assert!(!given.is_in(&adas).await && given.is_in(&eves).await);
    assert!(!given.can_join(&late).await && given.can_join(&other).await);
    let orders = given
        .backoffice
        .checkouts_of("acct_1", None, 10)
        .await
        .unwrap();
    let mut persons: Vec<_> = orders.iter().map(|order| order.person.as_str()).collect();
    persons.sort_unstable();
    assert_eq!(persons, ["deleted", ada.id.as_str(), ada.id.as_str()]);
    // The address is free.
    given.person("ada@example.com").await;
}

impl Given {
    async fn invited(&self, email: &str, account_id: &str, by: &Person) -> Digest {
        let new = NewLink {
            email: email.into(),
            purpose: Purpose::Invitation {
                account_id: account_id.into(),
                role: Role::Customer,
                team_role: TeamRole::Viewer,
            },
            made_by: Some(by.email.clone()),
            now: NOW,
        };
        let made = self.backoffice.make_link(new).await.unwrap();
        MadeLink::digest(made.secret.reveal()).unwrap()
    }

    async fn can_join(&self, link: &Digest) -> bool {
        self.backoffice.link(link, NOW).await.unwrap().is_some()
    }
}

async fn links_to_an_account_end_when_its_deletion_begins(given: Given) {
    let ada = given.person("ada@example.com").await;
    let here = given.invited("late@example.com", "acct_1", &ada).await;
    let elsewhere = given.invited("x@example.com", "acct_10", &ada).await;
    let begun = action(&ada.id, "acct_1", None, None);
    let id = deletion_id("acct_1");
    given.backoffice.record_once(&id, &begun).await.unwrap();
    // One that was made at the same moment is of no use either.
    let later = given.invited("later@example.com", "acct_1", &ada).await;
    for link in [here, later] {
        assert!(!given.can_join(&link).await);
        let joined = given
            .backoffice
            .join_by_link(&link, None, "$argon2id$", NOW);
        assert_eq!(joined.await.unwrap(), None);
    }
    assert!(given.can_join(&elsewhere).await);
    let joined = given
        .backoffice
        .join_by_link(&elsewhere, None, "$argon2id$", NOW);
    assert!(joined.await.unwrap().is_some());
}
