//! Contract of checkouts.

use super::*;
use crate::{
    backoffice::{Checkout, NewCheckout, Payment, is_checkout},
    base::money::NanoUsd,
};

contract!(
    a_checkout_belongs_to_its_account,
    a_payment_is_recorded_once,
    of_concurrent_payments_one_is_recorded,
    a_payment_of_another_session_is_not_recorded,
    unpaid_checkouts_of_an_account_are_limited,
    a_payment_is_listed_until_it_is_credited,
);

const TEN: NanoUsd = NanoUsd::new(10_000_000_000);

pub(crate) fn new_checkout(account_id: &str, now: i64) -> NewCheckout {
    NewCheckout {
        provider: "stripe",
        account_id: account_id.into(),
        person: "ada@example.com".into(),
        amount: TEN,
        now,
        consent_id: None,
    }
}

pub(crate) fn payment(session: &str, nanos: i64, now: i64) -> Payment<'_> {
    Payment {
        provider: "stripe",
        session,
        amount: NanoUsd::new(nanos),
        now,
        expires_at: Some(now + 1),
    }
}

async fn open(given: &Given, account_id: &str, now: i64) -> Option<Checkout> {
    let new = new_checkout(account_id, now);
    let opened = given.backoffice.open_checkout(new, NOW - 3_600, 3).await;
    opened.unwrap()
}

async fn a_checkout_belongs_to_its_account(given: Given) {
    let first = open(&given, "acct_1", NOW).await.unwrap();
    let second = open(&given, "acct_1", NOW + 1).await.unwrap();
    let other = open(&given, "acct_2", NOW).await.unwrap();
    assert!(is_checkout(&first.id) && first.id != second.id);
    assert_eq!((first.amount, first.session.as_deref()), (TEN, None));
    assert_eq!(first.person, "ada@example.com");
    let given = given.restart();
    let backoffice = &given.backoffice;
    let of = async |account| backoffice.checkouts_of(account, None, 10).await.unwrap();
    assert_eq!(of("acct_1").await, [second.clone(), first.clone()]);
    assert_eq!(of("acct_2").await, [other]);
    assert_eq!(of("acct_3").await, []);
    assert_eq!(
        backoffice.checkouts_of("acct_1", None, 1).await.unwrap(),
        std::slice::from_ref(&second)
    );
    // Orders of one second are on one page or the other, and on neither twice.
    let same = open(&given, "acct_1", NOW + 1).await.unwrap();
    let mut paged = Vec::new();
    let mut before = None;
    loop {
        let page = backoffice.checkouts_of("acct_1", before, 1).await.unwrap();
        let Some(last) = page.last() else { break };
        before = Some((last.created_at, last.id.clone()));
        paged.extend(page);
    }
    let mut expected = [second, same];
    expected.sort_by(|one, other| other.id.cmp(&one.id));
    assert_eq!(paged[..2], expected);
    assert_eq!(&paged[2..], std::slice::from_ref(&first));
    assert_eq!(backoffice.checkout(&first.id).await.unwrap(), Some(first));
    assert_eq!(backoffice.checkout("checkout_1").await.unwrap(), None);
    for no in ["", "checkout_", "checkout_1", "order_1"] {
        assert!(!is_checkout(no), "{no}");
    }
}

async fn a_payment_is_recorded_once(given: Given) {
    let backoffice = &given.backoffice;
    let checkout = open(&given, "acct_1", NOW).await.unwrap();
    let id = checkout.id.as_str();
    // An unpaid checkout cannot be credited.
    backoffice.checkout_credited(id, "grant_0").await.unwrap();
    assert_eq!(
        backoffice.checkout(id).await.unwrap(),
        Some(checkout.clone())
    );
    backoffice.checkout_begun(id, "cs_1").await.unwrap();
    backoffice.checkout_begun(id, "cs_2").await.unwrap();
    let first = backoffice
        .checkout_paid(id, &payment("cs_1", 7, NOW + 5))
        .await;
    let first = first.unwrap().unwrap();
    assert_eq!(first.session.as_deref(), Some("cs_1"));
    let receipt = first.receipt.clone().unwrap();
    assert_eq!(
        (receipt.amount, receipt.paid_at),
        (NanoUsd::new(7), NOW + 5)
    );
    assert_eq!(
        (receipt.expires_at, receipt.grant_id),
        (Some(NOW + 6), None)
    );
    // A repeated event with another time and amount changes nothing.
    let again = backoffice
        .checkout_paid(id, &payment("cs_1", 8, NOW + 9))
        .await;
    assert_eq!(again.unwrap(), Some(first));
    backoffice.checkout_credited(id, "grant_1").await.unwrap();
    let credited = backoffice.checkout(id).await.unwrap().unwrap();
    let grant = credited.receipt.unwrap().grant_id;
    assert_eq!(grant.as_deref(), Some("grant_1"));
    let unknown = payment("cs_1", 7, NOW);
    let unknown = backoffice.checkout_paid("checkout_1", &unknown).await;
    assert_eq!(unknown.unwrap(), None);
}

async fn of_concurrent_payments_one_is_recorded(given: Given) {
    let checkout = open(&given, "acct_1", NOW).await.unwrap();
    let tasks = (0..20).map(|number| {
        let (backoffice, id) = (given.backoffice.clone(), checkout.id.clone());
        tokio::spawn(async move {
            let payment = payment("cs_1", number, NOW + number);
            backoffice.checkout_paid(&id, &payment).await.unwrap()
        })
    });
    let mut seen = Vec::new();
    for one in tasks.collect::<Vec<_>>() {
        seen.push(one.await.unwrap());
    }
    assert!(seen[0].is_some());
    assert!(seen.iter().all(|one| *one == seen[0]), "{seen:?}");
}

async fn a_payment_of_another_session_is_not_recorded(given: Given) {
    let backoffice = &given.backoffice;
    let checkout = open(&given, "acct_1", NOW).await.unwrap();
    backoffice
        .checkout_begun(&checkout.id, "cs_1")
        .await
        .unwrap();
    let elsewhere = Payment {
        provider: "test",
        ..payment("cs_1", 7, NOW)
    };
    for other in [payment("cs_2", 7, NOW), elsewhere] {
        let found = backoffice.checkout_paid(&checkout.id, &other).await;
        let found = found.unwrap().unwrap();
        assert_eq!(
            (found.session.as_deref(), found.receipt),
            (Some("cs_1"), None)
        );
    }
}

async fn unpaid_checkouts_of_an_account_are_limited(given: Given) {
    // Old checkouts and those of other accounts are not counted.
    assert!(open(&given, "acct_1", NOW - 3_600).await.is_some());
    assert!(open(&given, "acct_2", NOW).await.is_some());
    let mut last = None;
    for _ in 0..3 {
        last = open(&given, "acct_1", NOW).await;
        assert!(last.is_some());
    }
    assert_eq!(open(&given, "acct_1", NOW).await, None);
    let paid = payment("cs_1", 7, NOW);
    let last = last.unwrap();
    given
        .backoffice
        .checkout_paid(&last.id, &paid)
        .await
        .unwrap();
    assert!(open(&given, "acct_1", NOW).await.is_some(), "one is paid");
}

async fn a_payment_is_listed_until_it_is_credited(given: Given) {
    let backoffice = &given.backoffice;
    let left = async |before| {
        let left = backoffice.uncredited_checkouts(before, 10).await.unwrap();
        left.into_iter().map(|one| one.id).collect::<Vec<_>>()
    };
    let (paid, unpaid) = (
        open(&given, "acct_1", NOW).await.unwrap(),
        open(&given, "acct_1", NOW).await.unwrap(),
    );
    let payment = payment("cs_1", 7, NOW);
    backoffice.checkout_paid(&paid.id, &payment).await.unwrap();
    assert!(left(NOW).await.is_empty());
    assert_eq!(left(NOW + 1).await, [paid.id.as_str()]);
    backoffice
        .checkout_credited(&paid.id, "grant_1")
        .await
        .unwrap();
    assert!(left(NOW + 1).await.is_empty());
    // Only a checkout without session and payment is deleted.
    for id in [&paid.id, &unpaid.id] {
        backoffice.drop_checkout(id).await.unwrap();
    }
    assert!(backoffice.checkout(&paid.id).await.unwrap().is_some());
    assert_eq!(backoffice.checkout(&unpaid.id).await.unwrap(), None);
}
