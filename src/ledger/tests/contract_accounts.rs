//! Accounts for pages, on both backends: searched, created once, with their keys and what is left of their grants.

use super::*;
use crate::ledger::GrantLeft;

contract!(
    what_is_left_of_each_grant_is_returned,
    debt_is_not_counted_as_left,
    accounts_are_searched_for,
    accounts_are_found_by_their_ids,
    found_accounts_have_their_balances,
    an_account_is_created_once,
    a_key_is_found_by_its_id,
);

async fn what_is_left_of_each_grant_is_returned(store: TestStore) {
    let paying = Paying::on(store).await;
    let now = paying.now();
    for (amount, expires_at) in [(100, Some(now + 60)), (50, None), (30, Some(now + 30))] {
        paying.give(amount, expires_at).await;
    }
    let grants = paying.ledger.grants(&paying.account_id).await.unwrap();
    let left = async || {
        let left = paying.ledger.grants_left(&paying.account_id).await;
        let numbers = |one: &GrantLeft| {
            let grant = grants.iter().find(|grant| grant.id == one.grant_id);
            let expires_at = grant.map(|grant| grant.expires_at);
            assert!(expires_at.is_none_or(|expected| expected == one.expires_at));
            (one.left.nanos(), one.held.nanos())
        };
        left.unwrap().iter().map(numbers).collect::<Vec<_>>()
    };
    assert_eq!(left().await, [(30, 0), (100, 0), (50, 0)]);
    let mut held = paying.hold(40, 40, 0).await.unwrap();
    assert_eq!(left().await, [(30, 30), (100, 10), (50, 0)]);
    charge(&mut held, 35).await.unwrap();
    assert_eq!(left().await, [(95, 0), (50, 0)], "one is used up");
    let mut held = paying.hold(95, 200, 1_000).await.unwrap();
    paying.advance(60);
    assert_eq!(left().await, [(50, 0)], "one has expired");
    charge(&mut held, 180).await.unwrap();
    assert_eq!((left().await, paying.balance().await), (vec![], -35));
    paying.give(100, None).await;
    assert_eq!(left().await, [(65, 0)], "what was owed is paid");
    assert_eq!(paying.balance().await, 65);
    paying.assert_sound().await;
    let unknown = paying.ledger.grants_left("acct_0").await;
    assert_eq!(unknown.unwrap(), []);
}

/// Credit that a call releases pays the debt of another call, before or after that is stored.
async fn debt_is_not_counted_as_left(store: TestStore) {
    let paying = Paying::on_with(store, 100).await;
    let left = async || {
        let left = paying.ledger.grants_left(&paying.account_id).await;
        let left = left.unwrap();
        let numbers = left.iter().map(|one| (one.left.nanos(), one.held.nanos()));
        numbers.collect::<Vec<_>>()
    };
    let waiting = paying.hold(60, 60, 0).await.unwrap();
    let mut held = paying.hold(40, 90, 1_000).await.unwrap();
    charge(&mut held, 90).await.unwrap();
    assert_eq!(left().await, [(60, 60)]);
    drop(waiting);
    assert_eq!((left().await, paying.balance().await), (vec![(10, 0)], 10));
    paying.assert_sound().await;
    assert_eq!((left().await, paying.balance().await), (vec![(10, 0)], 10));
}

fn account(email: &str, name: Option<&str>) -> NewAccount {
    NewAccount {
        email: email.into(),
        name: name.map(Into::into),
        ..new_account()
    }
}

/// The IDs of the accounts found, in the order of the pages.
async fn found(ledger: &Ledger, text: &str, limit: usize) -> String {
    let (mut before, mut ids) = (None, Vec::new());
    loop {
        let page = ledger.find_accounts(text, before, limit).await.unwrap();
        assert!(page.len() <= limit);
        ids.extend(page.iter().map(|found| found.account.id.clone()));
        let Some(last) = page.last().filter(|_| page.len() == limit) else {
            return ids.join(" ");
        };
        before = Some((last.account.created_at, last.account.id.clone()));
    }
}

async fn accounts_are_found_by_their_ids(store: TestStore) {
    let ledger = store
        .open(&Arc::new(AtomicI64::new(1_800_000_000_000)))
        .await;
    for (id, email, name) in [
        ("acct_a1", "a@example.com", None),
        ("acct_b2", "b@example.com", Some("B")),
        ("acct_c3", "c@example.com", None),
    ] {
        ledger
            .ensure_account(id, account(email, name))
            .await
            .unwrap();
    }
    let ids = ["acct_b2", "acct_0", "acct_a1", "acct_b2", "a\0"];
    let mut found = ledger.accounts_with_ids(ids).await.unwrap();
    found.sort_by(|one, other| one.id.cmp(&other.id));
    let found: Vec<_> = found
        .iter()
        .map(|one| (one.id.as_str(), one.email.as_str(), one.name.as_deref()))
        .collect();
    assert_eq!(
        found,
        [
            ("acct_a1", "a@example.com", None),
            ("acct_b2", "b@example.com", Some("B")),
        ]
    );
    assert_eq!(ledger.accounts_with_ids([]).await.unwrap(), []);
}

async fn accounts_are_searched_for(store: TestStore) {
    let now_ms = Arc::new(AtomicI64::new(1_800_000_000_000));
    let ledger = store.open(&now_ms).await;
    for (id, email, name) in [
        ("acct_a1", "100%@example.com", None),
        ("acct_b2", "a_b@example.com", Some("Plain Name")),
        ("acct_c3", "aXb@example.com", None),
        ("later", r"back\slash@example.org", Some("50% off")),
        ("acct_d4", "acct_a1@example.org", Some("d_e")),
    ] {
        if id == "later" {
            now_ms.fetch_add(5_000, Relaxed);
        }
        let made = ledger.ensure_account(id, account(email, name)).await;
        assert_eq!(made.unwrap().id, id);
    }
    let all = "later acct_d4 acct_c3 acct_b2 acct_a1";
    for (text, expected) in [
        ("", all),
        ("example", all),
        ("EXAMPLE.org", "later acct_d4"),
        ("%", "later acct_a1"),
        ("0%", "later acct_a1"),
        ("_b", "acct_b2"),
        ("a_b", "acct_b2"),
        ("axb", "acct_c3"),
        ("d_", "acct_d4"),
        (r"\", "later"),
        (r"\s", "later"),
        (r"\%", ""),
        (r"k\\s", ""),
        ("plain n", "acct_b2"),
        ("acct_", "acct_d4 acct_c3 acct_b2 acct_a1"),
        ("ACCT_C", "acct_c3"),
        ("acct_a1", "acct_d4 acct_a1"),
        ("cct_c", ""),
        ("nobody", ""),
        ("' OR true --", ""),
        ("a\0", ""),
    ] {
        for limit in [1, 2, 100] {
            let found = found(&ledger, text, limit).await;
            assert_eq!(found, expected, "`{text}`, {limit} a page");
        }
    }
    let long = "a".repeat(400);
    ledger
        .ensure_account(&long, account("l", None))
        .await
        .unwrap();
    assert_eq!(found(&ledger, &long[..320], 5).await, long);
    assert_eq!(
        found(&ledger, &long[..321], 5).await,
        "",
        "that is too long"
    );
    let unknown = Some((i64::MAX, "a\0".to_owned()));
    let none = ledger.find_accounts("", unknown, 5).await.unwrap();
    assert!(none.is_empty());
}

async fn found_accounts_have_their_balances(store: TestStore) {
    let paying = Paying::on_with(store, 100).await;
    paying.advance(1);
    let neighbour = paying.neighbour(50).await;
    let _held = paying.hold(30, 30, 0).await.unwrap();
    neighbour.sql(&format!(
        "UPDATE accounts SET debt_nano_usd = 5 WHERE id = '{}'",
        neighbour.account_id
    ));
    paying.ledger.audit().await.unwrap();
    let found = paying.ledger.find_accounts("", None, 5).await.unwrap();
    let [second, first] = found.as_slice() else {
        panic!("{found:?}")
    };
    assert_eq!(first.account.id, paying.account_id);
    assert_eq!(first.account.email, "a@example.com");
    let balances = first.balances;
    assert_eq!((balances.balance.nanos(), balances.held.nanos()), (100, 30));
    assert_eq!(balances.available.nanos(), 70);
    assert_eq!((first.frozen, second.frozen), (false, true));
}

async fn an_account_is_created_once(store: TestStore) {
    let now_ms = Arc::new(AtomicI64::new(1_800_000_000_000));
    let ledger = store.open(&now_ms).await;
    let made = (0..8).map(|at| {
        let (ledger, new) = (ledger.clone(), account(&format!("{at}@example.com"), None));
        tokio::spawn(async move { ledger.ensure_account("acct_one", new).await.unwrap() })
    });
    let mut emails = Vec::new();
    for made in made.collect::<Vec<_>>() {
        let made = made.await.unwrap();
        assert_eq!(
            (made.id.as_str(), made.created_at),
            ("acct_one", 1_800_000_000)
        );
        emails.push(made.email);
    }
    emails.dedup();
    assert_eq!(emails.len(), 1, "{emails:?}");
    now_ms.fetch_add(5_000, Relaxed);
    let again = ledger.ensure_account("acct_one", new_account()).await;
    let again = again.unwrap();
    assert_eq!(
        (&again.email, again.created_at),
        (&emails[0], 1_800_000_000)
    );
    assert_eq!(ledger.accounts().await.unwrap().len(), 1);
    let (key, _) = ledger
        .create_key("acct_one", "works".into(), MAX_KEYS)
        .await
        .unwrap();
    assert_eq!(key.account_id, "acct_one");
    let impossible = NewAccount {
        track: Track::Personal,
        tier: Tier::Flex,
        ..new_account()
    };
    let refused = ledger.ensure_account("acct_two", impossible).await;
    assert!(matches!(refused, Err(LedgerError::NoSuchPlan { .. })));
    assert_eq!(ledger.accounts().await.unwrap().len(), 1);
}

async fn a_key_is_found_by_its_id(store: TestStore) {
    let paying = Paying::on(store).await;
    let key = paying.ledger.key(&paying.key_id).await.unwrap();
    assert_eq!(
        (key.digest, key.account_id),
        (paying.digest, paying.account_id)
    );
    for unknown in ["key_0", "", "key\0"] {
        let missing = paying.ledger.key(unknown).await;
        assert!(matches!(
            missing,
            Err(LedgerError::NotFound { what: "key", .. })
        ));
    }
}
