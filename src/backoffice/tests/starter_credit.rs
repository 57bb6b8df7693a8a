//! Contract of starter credit: an address or an identity gets it with one account.

use super::*;
use crate::backoffice::Identity;

contract!(
    an_address_or_identity_gets_it_once,
    it_is_kept_when_the_account_is_deleted
);

const IDENTITY: Identity<'_> = Identity {
    issuer: "https://id.example.com",
    subject: "1",
};

/// A person with this address and an account of their own.
async fn owner(given: &Given, email: &str, account_id: &str) -> Person {
    let new = NewPerson {
        account_id: account_id.into(),
        ..new_person(email)
    };
    given.backoffice.add_person(new).await.unwrap()
}

async fn gets_it(given: &Given, person: &Person) -> bool {
    let claimed = given.backoffice.claim_starter_credit(person, NOW).await;
    claimed.unwrap()
}

async fn an_address_or_identity_gets_it_once(given: Given) {
    let ada = owner(&given, "ada@example.com", "acct_1").await;
    let connected = given.backoffice.connect(&ada.id, IDENTITY, NOW).await;
    assert!(connected.unwrap());
    for _ in 0..2 {
        assert!(
            gets_it(&given, &ada).await,
            "for her account it is repeated"
        );
    }
    let bob = owner(&given, "bob@example.com", "acct_2").await;
    assert!(gets_it(&given, &bob).await);
    // She has left her account, and signs up again.
    given
        .run("DELETE FROM backoffice_people WHERE account_id = 'acct_1'")
        .await;
    let again = owner(&given, " ADA@example.com", "acct_3").await;
    assert!(!gets_it(&given, &again).await);
    let variant = owner(&given, "ada+2@example.com", "acct_5").await;
    assert!(!gets_it(&given, &variant).await);
    let elsewhere = owner(&given, "ada@example.net", "acct_4").await;
    let connected = given.backoffice.connect(&elsewhere.id, IDENTITY, NOW).await;
    assert!(connected.unwrap());
    assert!(!gets_it(&given, &elsewhere).await);
}

async fn it_is_kept_when_the_account_is_deleted(given: Given) {
    let ada = owner(&given, "ada@example.com", "acct_1").await;
    // An account that got it before claims were stored.
    given
        .backoffice
        .connect(&ada.id, IDENTITY, NOW)
        .await
        .unwrap();
    for _ in 0..2 {
        let kept = given.backoffice.keep_starter_credit(&ada, NOW).await;
        kept.unwrap();
    }
    let traces = given.backoffice.traces_of("acct_1").await.unwrap();
    let erased = given.backoffice.erase_people_of("acct_1", &traces).await;
    erased.unwrap();
    given.backoffice.prune(NOW * 2).await.unwrap();
    let given = given.restart();
    let again = owner(&given, "ada@example.com", "acct_2").await;
    assert!(!gets_it(&given, &again).await);
    let elsewhere = owner(&given, "ada@example.net", "acct_3").await;
    let connected = given.backoffice.connect(&elsewhere.id, IDENTITY, NOW).await;
    assert!(connected.unwrap());
    assert!(!gets_it(&given, &elsewhere).await);
    let stored =
        "SELECT count(*) FROM backoffice_spent WHERE claim LIKE '%acct_1%' OR digest LIKE '%ada@%'";
    assert_eq!(given.count(stored).await, 0);
}
