//! What every storage of responses promises, whatever it is made of.

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
    what_was_stored_is_found_to_the_byte,
    another_accounts_response_is_an_unknown_one,
    a_response_is_deleted_once_and_by_its_owner,
    the_same_id_twice_keeps_the_first,
    an_account_keeps_its_newest_hundred,
    over_a_thousand_the_account_with_the_most_gives_way,
    a_response_expires_after_thirty_days_to_the_millisecond,
    an_expired_response_makes_room_and_frees_its_id,
    a_record_of_exactly_the_most_is_kept_and_one_byte_more_is_not,
    no_id_is_too_strange_to_be_asked_for,
    responses_outlive_a_restart,
    what_has_expired_is_deleted_at_the_start_and_from_time_to_time,
);

async fn what_was_stored_is_found_to_the_byte(given: Given) {
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
        };
        let kept = given.conversations.store(record.clone()).await.unwrap();
        assert_eq!(kept, Kept::Stored);
        let found = given.conversations.find("a", &record.id).await.unwrap();
        assert_eq!(found, Some(record));
    }
}

async fn another_accounts_response_is_an_unknown_one(given: Given) {
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

async fn the_same_id_twice_keeps_the_first(given: Given) {
    given.store("a", "resp_1").await;
    for account in ["a", "b"] {
        let other = Record {
            response: "other".into(),
            ..record(account, "resp_1")
        };
        let kept = given.conversations.store(other).await.unwrap();
        assert_eq!(kept, Kept::Stored);
    }
    assert!(given.has("a", "resp_1").await, "as it was");
    assert!(!given.has("b", "resp_1").await);
}

async fn an_account_keeps_its_newest_hundred(given: Given) {
    given.store("b", "before").await;
    for number in 0..100 {
        given.store("a", &format!("a{number}")).await;
        // Age is the order of storing, whatever the clock says.
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

/// Ten accounts have a hundred each; newcomers displace the oldest of whoever holds the most.
async fn over_a_thousand_the_account_with_the_most_gives_way(given: Given) {
    for number in 0..1_000 {
        let account = number / 100;
        given.store(&account.to_string(), &number.to_string()).await;
    }
    assert!(given.has("0", "0").await, "a thousand are not too many");
    // Of ten with a hundred, the one whose oldest is oldest.
    given.store("new", "n0").await;
    assert!(!given.has("0", "0").await);
    assert!(given.has("0", "1").await && given.has("1", "100").await);
    // Account 0 has 99 now, so the next goes from account 1.
    given.store("new", "n1").await;
    assert!(!given.has("1", "100").await);
    assert!(given.has("0", "1").await && given.has("1", "101").await);
    // One that is back at a hundred counts with the one it just stored.
    given.store("0", "back").await;
    assert!(!given.has("0", "1").await);
    assert!(given.has("2", "200").await && given.has("0", "back").await);
    // What was deleted makes room: nothing is evicted for the next.
    assert!(given.conversations.delete("9", "999").await.unwrap());
    given.store("new", "n2").await;
    assert!(given.has("2", "200").await);
    assert!(given.has("new", "n0").await, "who holds a few loses none");
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

async fn a_record_of_exactly_the_most_is_kept_and_one_byte_more_is_not(given: Given) {
    // Bytes, not characters.
    let largest = Record {
        response: "ü".repeat(64 << 10),
        input: "x".repeat(128 << 10),
        ..record("a", "resp_1")
    };
    let kept = given.conversations.store(largest.clone()).await.unwrap();
    assert_eq!(kept, Kept::Stored);
    for (response, input) in [("x", ""), ("", "x")] {
        let larger = Record {
            id: "resp_2".into(),
            response: format!("{}{response}", largest.response),
            input: format!("{}{input}", largest.input),
            ..largest.clone()
        };
        let kept = given.conversations.store(larger).await.unwrap();
        assert_eq!(kept, Kept::TooLarge);
    }
    assert!(!given.has("a", "resp_2").await);
    let found = given.conversations.find("a", "resp_1").await.unwrap();
    assert_eq!(found, Some(largest));
}

async fn no_id_is_too_strange_to_be_asked_for(given: Given) {
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

async fn responses_outlive_a_restart(given: Given) {
    given.store("a", "resp_1").await;
    given.store("b", "resp_2").await;
    let given = given.restart();
    assert!(given.has("a", "resp_1").await && given.has("b", "resp_2").await);
}

/// Nothing has to be stored or found for it.
async fn what_has_expired_is_deleted_at_the_start_and_from_time_to_time(given: Given) {
    given.store("a", "resp_1").await;
    given.advance(SETTINGS.retention_ms);
    let given = given.restart();
    until_empty(&given).await;

    let settings = Settings {
        sweep_every: Duration::from_millis(50),
        ..PATIENT
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
