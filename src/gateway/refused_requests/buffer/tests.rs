use super::{
    records::{MAX_OWNERS, RECORDS_OF_BLOCKED},
    *,
};
use crate::backoffice::{BLOCKED, KEPT_OF_ACCOUNT};

fn refused(account: &str, number: i64) -> RefusedRequest {
    RefusedRequest {
        id: format!("refused_{number:06}"),
        at_ms: 60_000 * 7 + number % 1_000,
        request_id: "req_1".into(),
        account_id: account.into(),
        key_id: "key_1".into(),
        project_id: None,
        member_id: None,
        path: "/v1/chat/completions".into(),
        model: None,
        status: 404,
        code: "model_not_found".into(),
        param: None,
        message: "…".into(),
        agent: None,
        took_ms: 1,
    }
}

fn total(buffer: &Buffer) -> i64 {
    let counts = buffer.unwritten_counts();
    counts.iter().map(|(_, requests)| requests).sum()
}

#[test]
fn all_are_counted_and_the_newest_of_an_account_stay() {
    let mut buffer = Buffer::default();
    for number in 0..5_000 {
        buffer.add(refused("acct_1", number));
    }
    buffer.add(refused("acct_2", 1));
    assert_eq!(total(&buffer), 5_001);
    let records = buffer.take_records();
    let of_first = records.iter().filter(|one| one.account_id == "acct_1");
    let ids: Vec<_> = of_first.map(|one| one.id.clone()).collect();
    let newest: Vec<_> = (4_000..5_000)
        .map(|number| refused("", number).id)
        .collect();
    assert_eq!(ids, newest);
    assert_eq!(records.len(), 1_001, "another account has its own room");
}

#[test]
fn what_many_accounts_leave_in_memory_is_bounded() {
    let mut buffer = Buffer::default();
    for number in 0..40_000 {
        buffer.add(refused(&format!("acct_{}", number % 20_000), number));
    }
    assert_eq!(buffer.counts.len(), MAX_KINDS);
    assert_eq!(buffer.dropped, 2 * (20_000 - 16_384));
    assert_eq!(buffer.take_records().len(), 2 * MAX_OWNERS);
    assert!(buffer.take_records().is_empty());
    for number in 0..1_000_u32 {
        let key = KeyDigest([u8::try_from(number % 251).unwrap(); 32]);
        let other = KeyDigest([u8::try_from(number / 251).unwrap(); 32]);
        buffer.add_with_keys(vec![key, other], refused("", number.into()));
    }
    assert_eq!(buffer.unresolved.len(), MAX_UNRESOLVED);
}

/// What an eviction leaves.
const LEFT: usize = MAX_BYTES / 8 * 7;

#[test]
fn an_account_with_many_records_gives_way_to_those_with_few() {
    let large = |account: &str, number| RefusedRequest {
        message: "m".repeat(100_000),
        ..refused(account, number)
    };
    let mut buffer = Buffer::default();
    for number in 0..3 {
        buffer.add(refused("acct_few", number));
    }
    let mut evictions = 0;
    for number in 0..500 {
        for account in ["acct_many", "acct_more"] {
            let before = buffer.records.bytes();
            buffer.add(large(account, number));
            let bytes = buffer.records.bytes();
            assert!(bytes <= MAX_BYTES);
            if bytes < before {
                // Down to seven eighths, less at most a record of each.
                assert!((LEFT - 2 * 101_000..=LEFT).contains(&bytes), "{bytes}");
                evictions += 1;
            }
        }
    }
    // Each makes room for about ten records.
    assert!((70..100).contains(&evictions), "{evictions}");
    let records = buffer.take_records();
    let of = |account: &str| {
        let of = records.iter().filter(|one| one.account_id == account);
        of.map(|one| one.id.as_str()).collect::<Vec<_>>()
    };
    assert_eq!(of("acct_few").len(), 3);
    let (many, more) = (of("acct_many"), of("acct_more"));
    assert!(many.len() >= 36 && many.len().abs_diff(more.len()) <= 1);
    assert_eq!(many.last(), Some(&"refused_000499"), "the newest stay");
    // So it is for keys that are not valid.
    let mut added = 0;
    for number in 0..100 {
        buffer.add_with_keys(vec![KeyDigest([1; 32])], large("", number));
        added += 1;
    }
    assert!(buffer.unresolved_records.bytes() <= MAX_UNRESOLVED_BYTES);
    let one = buffer.take_unresolved().remove(0);
    assert_eq!(one.counts.values().sum::<i64>(), added);
    assert!((5..11).contains(&one.records.len()));
}

#[test]
fn counts_are_written_once_and_then_forgotten() {
    let mut buffer = Buffer::default();
    buffer.add(refused("acct_1", 1));
    let first = buffer.unwritten_counts();
    // Another one comes while they are written.
    buffer.add(refused("acct_1", 2));
    buffer.written(&first);
    buffer.forget_before(8);
    let second = buffer.unwritten_counts();
    assert_eq!(second.len(), 1);
    assert_eq!(second[0].1, 2, "it is the total of the kind");
    buffer.written(&second);
    assert_eq!(buffer.unwritten_counts(), []);
    buffer.forget_before(7);
    assert_eq!(buffer.counts.len(), 1, "more may come of this kind");
    buffer.forget_before(8);
    assert_eq!(buffer.counts.len(), 0);
}

#[test]
fn records_that_could_not_be_written_stay_before_newer_ones() {
    let mut buffer = Buffer::default();
    for number in 0..600 {
        buffer.add(refused("acct_1", number));
    }
    let unwritten = buffer.take_records();
    for number in 600..1_200 {
        buffer.add(refused("acct_1", number));
    }
    buffer.put_back(unwritten);
    let ids: Vec<_> = buffer
        .take_records()
        .into_iter()
        .map(|one| one.id)
        .collect();
    let newest: Vec<_> = (200..1_200).map(|number| refused("", number).id).collect();
    assert_eq!(ids, newest);
}

#[test]
fn requests_with_a_former_key_are_added_to_its_account() {
    let mut buffer = Buffer::default();
    let keys = vec![KeyDigest([1; 32])];
    for number in 0..1_000 {
        buffer.add_with_keys(keys.clone(), refused("", number));
    }
    let unresolved = buffer.take_unresolved();
    buffer.add_with_keys(keys, refused("", 1_000));
    buffer.put_back_unresolved(unresolved);
    let mut unresolved = buffer.take_unresolved();
    assert_eq!(unresolved.len(), 1);
    let payer = Payer {
        key_id: "key_7".into(),
        project_id: Some("proj_1".into()),
        member_id: None,
    };
    buffer.add_resolved(unresolved.remove(0), "acct_1", &payer);
    let counts = buffer.unwritten_counts();
    assert_eq!(counts.len(), 1);
    let (kind, requests) = &counts[0];
    assert_eq!((kind.account_id.as_str(), *requests), ("acct_1", 1_001));
    let records = buffer.take_records();
    assert_eq!(records.len(), KEPT_OF_ACCOUNT);
    let last = records.last().unwrap();
    assert_eq!(
        (last.id.as_str(), last.key_id.as_str()),
        ("refused_001000", "key_7")
    );
    assert_eq!(last.project_id.as_deref(), Some("proj_1"));
}

#[test]
fn requests_of_a_blocked_account_do_not_replace_those_before() {
    let mut buffer = Buffer::default();
    for number in 0..40 {
        buffer.add(refused("acct_1", number));
    }
    for number in 40..1_000 {
        buffer.add(RefusedRequest {
            code: BLOCKED.into(),
            ..refused("acct_1", number)
        });
    }
    assert_eq!(total(&buffer), 1_000);
    let records = buffer.take_records();
    let blocked = records.iter().filter(|one| one.code == BLOCKED);
    assert_eq!((records.len(), blocked.count()), (45, RECORDS_OF_BLOCKED));
}

#[test]
fn an_account_with_many_kinds_is_counted_without_keys() {
    let mut buffer = Buffer::default();
    for number in 0..1_000 {
        buffer.add(RefusedRequest {
            key_id: format!("key_{number}"),
            at_ms: 60_000 * 7,
            ..refused("acct_1", number)
        });
    }
    buffer.add(refused("acct_2", 1));
    assert_eq!(total(&buffer), 1_001);
    let counts = buffer.unwritten_counts();
    assert_eq!(counts.len(), KINDS_OF_ACCOUNT + 2);
    let without_key = counts.iter().find(|(kind, _)| kind.key_id.is_empty());
    assert_eq!(without_key.unwrap().1, 900);
}

#[test]
fn counts_stay_while_a_key_is_looked_up() {
    let mut buffer = Buffer::default();
    buffer.add(refused("acct_1", 1));
    let counts = buffer.unwritten_counts();
    buffer.written(&counts);
    let keys = vec![KeyDigest([1; 32])];
    buffer.add_with_keys(keys, refused("", 2));
    buffer.forget_before(8);
    let payer = Payer {
        key_id: "key_1".into(),
        ..Payer::default()
    };
    let found = buffer.take_unresolved().remove(0);
    buffer.add_resolved(found, "acct_1", &payer);
    let counts = buffer.unwritten_counts();
    assert_eq!(counts[0].1, 2, "the first call is still counted");
}
