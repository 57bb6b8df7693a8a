//! Contract of response storage, for both backends.

use std::time::Duration;

use super::*;

macro_rules! contract {
    ($($case:ident),+ $(,)?) => {
        mod sqlite {
            $(#[tokio::test] async fn $case() { super::$case(super::Given::sqlite()).await })+
        }
        mod postgres {
            $(#[tokio::test] async fn $case() { super::$case(super::Given::postgres()).await })+
        }
    };
}

contract!(
    records_are_found_unchanged,
    responses_of_other_accounts_are_not_found,
    a_response_is_deleted_once_and_by_its_owner,
    of_two_records_with_one_id_the_first_is_kept,
    an_account_keeps_its_newest_hundred,
    above_a_thousand_the_account_with_the_most_is_evicted,
    a_response_expires_after_thirty_days_to_the_millisecond,
    an_expired_response_makes_room_and_frees_its_id,
    a_record_of_the_maximum_size_is_stored_and_a_larger_one_is_not,
    unusual_ids_are_not_found,
    responses_survive_a_restart,
    expired_responses_are_deleted_at_the_start_and_at_intervals,
);

async fn records_are_found_unchanged(given: Given) {
    let texts = [
        "",
        "\0",
        "a\0b\0",
        "{\"text\":\"\\u0000\"}",
        "Grüße, 世界, 👩‍👩‍👧, \u{feff}\u{202e}\u{10ffff}",
        "'; DROP TABLE responses; --\r\n\t\\",
    ];
    for (number, text) in texts.iter().enumerate() {
        let record = Record {
            id: format!("resp_{number}"),
            account_id: "a".into(),
            response: (*text).into(),
            input: format!("[{text}]"),
            events: None,
        };
        let kept = given.conversations.store(record.clone()).await.unwrap();
        assert_eq!(kept, StoreOutcome::Stored);
        let found = given.conversations.find("a", &record.id).await.unwrap();
        assert_eq!(found, Some(record));
    }
}

async fn responses_of_other_accounts_are_not_found(given: Given) {
    given.store("a", "resp_1").await;
    for (account, id) in [
        ("b", "resp_1"),
        ("a", "resp_2"),
        ("", "resp_1"),
        ("A", "resp_1"),
    ] {
        assert!(!given.has(account, id).await, "{account} {id}");
    }
    assert!(given.has("a", "resp_1").await);
}

async fn a_response_is_deleted_once_and_by_its_owner(given: Given) {
    given.store("a", "resp_1").await;
    given.store("a", "resp_2").await;
    let delete = |account, id| given.conversations.delete(account, id);
    assert!(!delete("b", "resp_1").await.unwrap());
    assert!(given.has("a", "resp_1").await);
    assert!(delete("a", "resp_1").await.unwrap());
    assert!(!given.has("a", "resp_1").await);
    assert!(!delete("a", "resp_1").await.unwrap());
    assert!(given.has("a", "resp_2").await);
}

async fn of_two_records_with_one_id_the_first_is_kept(given: Given) {
    given.store("a", "resp_1").await;
    for account in ["a", "b"] {
        let other = Record {
            response: "other".into(),
            ..record(account, "resp_1")
        };
        let kept = given.conversations.store(other).await.unwrap();
        assert_eq!(kept, StoreOutcome::Stored);
    }
    assert!(given.has("a", "resp_1").await, "as it was");
    assert!(!given.has("b", "resp_1").await);
}

async fn an_account_keeps_its_newest_hundred(given: Given) {
    given.store("b", "before").await;
    for number in 0..100 {
        given.store("a", &format!("a{number}")).await;
        // Age is the order of storing, not the time of the clock.
        given.advance(-1);
    }
    assert!(given.has("a", "a0").await);
    for number in 100..103 {
        given.store("a", &format!("a{number}")).await;
        let gone = number - 100;
        assert!(!given.has("a", &format!("a{gone}")).await);
        assert!(given.has("a", &format!("a{}", gone + 1)).await);
        assert!(given.has("a", &format!("a{number}")).await);
    }
    assert!(given.has("b", "before").await, "another account's is older");
}

/// Ten accounts have a hundred each; a new record displaces the oldest of the account with the most.
async fn above_a_thousand_the_account_with_the_most_is_evicted(given: Given) {
    for number in 0..1_000 {
        let account = number / 100;
        given.store(&account.to_string(), &number.to_string()).await;
    }
    assert!(given.has("0", "0").await, "a thousand are not too many");
    // Of ten accounts with a hundred, the one with the oldest record.
    given.store("new", "n0").await;
    assert!(!given.has("0", "0").await);
    assert!(given.has("0", "1").await && given.has("1", "100").await);
    // Account 0 has 99 now, so the next goes from account 1.
    given.store("new", "n1").await;
    assert!(!given.has("1", "100").await);
    assert!(given.has("0", "1").await && given.has("1", "101").await);
    // The new record is counted: account 0 is back at a hundred.
    given.store("0", "back").await;
    assert!(!given.has("0", "1").await);
    assert!(given.has("2", "200").await && given.has("0", "back").await);
    // After a deletion nothing is evicted for the next record.
    assert!(given.conversations.delete("9", "999").await.unwrap());
    given.store("new", "n2").await;
    assert!(given.has("2", "200").await);
    assert!(
        given.has("new", "n0").await,
        "an account with few loses none"
    );
}

async fn a_response_expires_after_thirty_days_to_the_millisecond(given: Given) {
    given.store("a", "resp_1").await;
    given.advance(30 * 24 * 60 * 60 * 1_000 - 1);
    assert!(given.has("a", "resp_1").await);
    given.advance(1);
    assert!(!given.has("a", "resp_1").await);
    assert!(!given.conversations.delete("a", "resp_1").await.unwrap());
}

async fn an_expired_response_makes_room_and_frees_its_id(given: Given) {
    given.store("a", "resp_1").await;
    given.advance(1);
    for number in 2..=100 {
        given.store("a", &format!("resp_{number}")).await;
    }
    given.advance(30 * 24 * 60 * 60 * 1_000 - 1);
    given.store("a", "resp_1").await;
    assert!(given.has("a", "resp_1").await);
    assert!(given.has("a", "resp_2").await, "a hundred are not too many");
}

async fn a_record_of_the_maximum_size_is_stored_and_a_larger_one_is_not(given: Given) {
    // The limit is in bytes, not characters.
    let largest = Record {
        response: "ü".repeat(64 << 10),
        input: "x".repeat(128 << 10),
        ..record("a", "resp_1")
    };
    let kept = given.conversations.store(largest.clone()).await.unwrap();
    assert_eq!(kept, StoreOutcome::Stored);
    for (response, input) in [("x", ""), ("", "x")] {
        let larger = Record {
            id: "resp_2".into(),
            response: format!("{}{response}", largest.response),
            input: format!("{}{input}", largest.input),
            ..largest.clone()
        };
        let kept = given.conversations.store(larger).await.unwrap();
        assert_eq!(kept, StoreOutcome::TooLarge);
    }
    assert!(!given.has("a", "resp_2").await);
    let found = given.conversations.find("a", "resp_1").await.unwrap();
    assert_eq!(found, Some(largest));
}

async fn unusual_ids_are_not_found(given: Given) {
    given.store("a", "resp_1").await;
    let long = "x".repeat(1 << 20);
    for strange in ["", "\0", "resp_1\0", "\u{10ffff}", "'", "$1", "%", &long] {
        assert!(!given.has("a", strange).await);
        assert!(!given.has(strange, "resp_1").await);
        assert!(!given.conversations.delete("a", strange).await.unwrap());
        let deleted = given.conversations.delete(strange, "resp_1").await;
        assert!(!deleted.unwrap());
    }
    assert!(given.has("a", "resp_1").await);
}

async fn responses_survive_a_restart(given: Given) {
    given.store("a", "resp_1").await;
    given.store("b", "resp_2").await;
    let given = given.restart();
    assert!(given.has("a", "resp_1").await && given.has("b", "resp_2").await);
}

/// Without any other operation.
async fn expired_responses_are_deleted_at_the_start_and_at_intervals(given: Given) {
    given.store("a", "resp_1").await;
    given.advance(SETTINGS.retention_ms);
    let given = given.restart();
    until_empty(&given).await;

    let settings = Settings {
        sweep_every: Duration::from_millis(50),
        ..LONG_DEADLINE
    };
    let given = Given::at(given.place, settings);
    given.store("a", "resp_1").await;
    given.advance(SETTINGS.retention_ms);
    until_empty(&given).await;
}

async fn until_empty(given: &Given) {
    let reader = given.reader().await;
    for _ in 0..250 {
        if reader.rows().await.is_empty() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("{:?} are left", reader.rows().await);
}
