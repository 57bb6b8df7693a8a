//! Tests of the spool on real files.

use std::{fs, path::Path, sync::Arc, time::Duration};

use tempfile::TempDir;

use super::{
    Spool, probe,
    record::{self, Contents},
    waiting_in,
};
use crate::{
    base::{
        money::{NanoUsd, TokenPrice},
        rate::Reservation,
    },
    catalog::Prices,
    ledger::{
        Attempt, Call, CallId, Idempotency, IdempotencyKey, KeepLimits, Outcome, Payer,
        PendingCharge, RequestHash, Step,
    },
    wire::{agent::Agent, chat::Usage},
};

fn charge(number: u64) -> PendingCharge {
    let call = Call {
        id: CallId(number),
        request_id: "line\nbreak \u{1F980}".into(),
        account_id: "acct_1".into(),
        payer: Payer::service("key_1"),
        model: "svc-standard".into(),
        routed_model: "svc-basic".into(),
        upstream: Some("local".into()),
        stream: true,
        reserved_tokens: 100,
        held: NanoUsd::new(30),
        most: NanoUsd::new(40),
        prices: Arc::new(Prices {
            request: NanoUsd::new(5),
            ..Prices::flat(
                TokenPrice::from_picos(1),
                TokenPrice::from_picos(2),
                TokenPrice::from_picos(3),
            )
        }),
        provider_cost: Some(NanoUsd::new(6).into()),
        admitted_ms: 1,
        first_byte_ms: Some(2),
        ended_ms: 3,
        outcome: Outcome::ClientLeft,
        failure: None,
        attempts: vec![Attempt {
            upstream: "other".into(),
            failure: "it was \"down\"".into(),
            ms: 4,
        }],
        steps: vec![Step::Tool {
            name: "convert_units".into(),
            arguments_bytes: 5,
            outcome: "ok".into(),
            result_bytes: 6,
            ms: 7,
        }],
        decision: Some("{}".into()),
        agent: Some(Arc::new(Agent {
            session: Some("s-1".into()),
            ..Agent::default()
        })),
        reservations: vec![Reservation {
            at_ms: 8,
            tokens: 9,
            step: 0,
        }],
        idempotency: Some(Box::new(Idempotency {
            key: Arc::new(IdempotencyKey {
                key: "key \"1\"".into(),
                request_hash: RequestHash::of("/v1/messages", b"{}"),
            }),
            limits: KeepLimits {
                keep: Duration::from_hours(24),
                max_total_bytes: 10,
            },
            body: Some("a response\nin two lines".into()),
        })),
        charged: None,
    };
    PendingCharge {
        call: Box::new(call),
        usage: Usage {
            prompt: 10,
            cached: 1,
            cache_write: 4,
            cache_write_1h: 2,
            completion: 3,
            reasoning: 2,
        },
        cost: NanoUsd::new(1_000),
    }
}

fn lines(numbers: impl IntoIterator<Item = u64>) -> Vec<u8> {
    numbers
        .into_iter()
        .flat_map(|number| record::encode(&charge(number)))
        .collect()
}

fn numbers(found: &[(u64, PendingCharge)]) -> Vec<u64> {
    found.iter().map(|(_, charge)| charge.call.id.0).collect()
}

fn ids(adopted: &[PendingCharge]) -> Vec<u64> {
    let mut ids: Vec<_> = adopted.iter().map(|charge| charge.call.id.0).collect();
    ids.sort_unstable();
    ids
}

/// The charges in the files of a folder, and how many files there are.
fn on_disk(folder: &Path) -> (Vec<u64>, usize) {
    let (mut waiting, mut files) = (Vec::new(), 0);
    for entry in fs::read_dir(folder).unwrap() {
        let Contents { found, .. } = record::read(&fs::read(entry.unwrap().path()).unwrap());
        waiting.extend(numbers(&found));
        files += 1;
    }
    waiting.sort_unstable();
    (waiting, files)
}

#[test]
fn a_charge_reads_back_as_it_was_written() {
    let Contents {
        found,
        damaged,
        torn,
        end,
    } = record::read(&lines([7]));
    let (at, read) = &found[0];
    assert_eq!((*at, damaged.len(), torn), (0, 0, None));
    assert_eq!(format!("{read:?}"), format!("{:?}", charge(7)));
    assert_eq!(end, lines([7]).len() as u64);
}

/// A file cut off anywhere, with or without reserved space after the cut, yields exactly its complete lines.
#[test]
fn a_file_that_was_cut_off_has_all_its_complete_lines() {
    let whole = lines([1, 2, 3]);
    let ends: Vec<_> = (1..=3).map(|last| lines(1..=last).len()).collect();
    for cut in 0..=whole.len() {
        let complete = ends.iter().filter(|end| **end <= cut).count();
        let expected: Vec<u64> = (1..=complete as u64).collect();
        let is_torn = cut != 0 && !ends.contains(&cut);
        let mut padded = whole[..cut].to_vec();
        padded.extend([b'\n'; 100]);
        for (bytes, is_last_byte) in [
            (&whole[..cut], false),
            (&padded[..], ends.contains(&(cut + 1))),
        ] {
            let contents = record::read(bytes);
            // Only the line's own end was missing, and the reserved space supplies one.
            let expected = if is_last_byte {
                (1..=complete as u64 + 1).collect()
            } else {
                expected.clone()
            };
            assert_eq!(numbers(&contents.found), expected, "cut at {cut}");
            assert_eq!(
                contents.torn.is_some(),
                is_torn && !is_last_byte,
                "cut at {cut}"
            );
            assert_eq!(contents.damaged.len(), 0, "cut at {cut}");
        }
    }
}

#[test]
fn any_damaged_byte_is_noticed_and_spares_the_other_lines() {
    let whole = lines([1, 2, 3]);
    let (begins, ends) = (lines([1]).len(), lines([1, 2]).len());
    for at in begins..ends - 1 {
        for damage in [1_u8, 0x80] {
            let mut bytes = whole.clone();
            bytes[at] ^= damage;
            let contents = record::read(&bytes);
            assert_eq!(numbers(&contents.found), [1, 3], "at {at}");
            assert_eq!(contents.torn, None, "at {at}");
            assert!(!contents.damaged.is_empty(), "at {at}");
        }
    }
}

#[tokio::test]
async fn the_next_process_finds_pending_charges_until_they_are_settled() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("made/for/it");
    let spool = Spool::new(&path);
    assert!(spool.adopt().await.is_empty());
    assert_eq!(
        probe(&path).unwrap(),
        format!("{} can be written", path.display())
    );
    for number in 1..=3 {
        spool.add(&charge(number)).await.unwrap();
    }
    assert_eq!(spool.waiting(), (3, NanoUsd::new(3_000)));
    spool.settled(CallId(2));
    let message = spool.left_behind().await.unwrap();
    let file = path.join("charges-1.spool");
    let expected = format!("2 charges wait in {} (0.000002 USD)", file.display());
    assert!(message.starts_with(&expected), "{message}");
    drop(spool);
    assert_eq!(on_disk(&path), (vec![1, 3], 1));
    assert!(probe(&path).unwrap().ends_with("2 charges wait in it"));
    let next = Spool::new(&path);
    assert_eq!(ids(&next.adopt().await), [1, 3]);
    assert_eq!(next.waiting().0, 2);
    let size = fs::metadata(&file).unwrap().len();
    for number in [1, 3] {
        next.settled(CallId(number));
    }
    assert_eq!(next.left_behind().await, None);
    drop(next);
    assert!(
        fs::read(&file).unwrap().iter().all(|byte| *byte == b'\n'),
        "empty lines alone"
    );
    assert_eq!(fs::metadata(&file).unwrap().len(), size);
}

/// Space for charges is reserved before the disk is full, and additional space is returned when it is not needed.
#[tokio::test]
async fn a_file_grows_with_pending_charges_and_shrinks_when_they_are_settled() {
    let folder = TempDir::new().unwrap();
    let spool = Spool::new(folder.path());
    spool.adopt().await;
    let length = || {
        fs::metadata(folder.path().join("charges-1.spool"))
            .unwrap()
            .len()
    };
    let reserved = length();
    assert!(reserved >= 1 << 20, "{reserved}");
    let many: Vec<_> = (0..3_000).map(charge).collect();
    let added = futures_util::future::join_all(many.iter().map(|charge| spool.add(charge))).await;
    assert!(added.iter().all(Result::is_ok));
    assert!(length() > reserved);
    for charge in &many {
        spool.settled(charge.call.id);
    }
    assert_eq!(spool.left_behind().await, None);
    assert_eq!(length(), reserved);
}

#[tokio::test]
async fn locked_files_are_skipped_and_others_are_merged_into_the_own_file() {
    let folder = TempDir::new().unwrap();
    let one = Spool::new(folder.path());
    one.adopt().await;
    one.add(&charge(1)).await.unwrap();
    let other = Spool::new(folder.path());
    assert!(other.adopt().await.is_empty());
    other.add(&charge(2)).await.unwrap();
    // Two files brought from other machines; a crash has left one charge in both.
    fs::write(folder.path().join("from-a.spool"), lines([3, 4])).unwrap();
    fs::write(folder.path().join("from-b.spool"), lines([4, 5])).unwrap();
    assert_eq!(ids(&other.adopt().await), [3, 4, 4, 5]);
    assert_eq!(other.waiting(), (4, NanoUsd::new(4_000)));
    let (_, files) = on_disk(folder.path());
    assert_eq!(files, 2, "those of the two processes");
    drop(one);
    assert_eq!(ids(&other.adopt().await), [1]);
    drop(other);
    assert_eq!(on_disk(folder.path()).1, 1);
    let next = Spool::new(folder.path());
    assert_eq!(ids(&next.adopt().await), [1, 2, 3, 4, 4, 5]);
    for number in 1..=5 {
        next.settled(CallId(number));
    }
    assert_eq!(next.left_behind().await, None);
}

#[tokio::test]
async fn a_torn_line_is_skipped_and_overwritten_by_a_complete_one() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("charges-1.spool");
    let whole = lines([1, 2]);
    fs::write(&file, &whole[..whole.len() - 40]).unwrap();
    let spool = Spool::new(folder.path());
    assert_eq!(ids(&spool.adopt().await), [1]);
    spool.add(&charge(3)).await.unwrap();
    drop(spool);
    let contents = record::read(&fs::read(&file).unwrap());
    assert_eq!(numbers(&contents.found), [1, 3]);
    assert_eq!((contents.torn, contents.damaged.len()), (None, 0));
}

#[tokio::test]
async fn a_damaged_line_is_quarantined_and_the_others_count() {
    let folder = TempDir::new().unwrap();
    let mut bytes = lines([1, 2, 3]);
    bytes[lines([1]).len() + 30] ^= 1;
    fs::write(folder.path().join("charges-1.spool"), &bytes).unwrap();
    let spool = Spool::new(folder.path());
    assert_eq!(ids(&spool.adopt().await), [1, 3]);
    let quarantined = fs::read(folder.path().join("charges-1.damaged")).unwrap();
    assert_eq!(quarantined, bytes[lines([1]).len()..lines([1, 2]).len()]);
    drop(spool);
    let next = Spool::new(folder.path());
    assert_eq!(ids(&next.adopt().await), [1, 3]);
    let quarantined_again = fs::read(folder.path().join("charges-1.damaged")).unwrap();
    assert_eq!(quarantined_again, quarantined, "once");
}

#[tokio::test]
async fn a_charge_whose_write_was_not_awaited_is_not_in_the_spool() {
    let folder = TempDir::new().unwrap();
    let spool = Spool::new(folder.path());
    spool.adopt().await;
    let pending = charge(1);
    {
        let mut adding = Box::pin(spool.add(&pending));
        // Sent to the thread, then dropped.
        assert!(futures_util::poll!(&mut adding).is_pending());
    }
    assert_eq!(spool.left_behind().await, None);
    drop(spool);
    assert!(on_disk(folder.path()).0.is_empty());
}

#[tokio::test]
async fn a_folder_that_cannot_be_created_is_an_error_until_it_can() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("spool");
    fs::write(&path, "in the way").unwrap();
    let spool = Spool::new(&path);
    assert!(spool.adopt().await.is_empty());
    spool.add(&charge(1)).await.unwrap_err();
    assert_eq!(spool.left_behind().await, None);
    probe(&path).unwrap_err();
    fs::remove_file(&path).unwrap();
    spool.add(&charge(2)).await.unwrap();
    assert_eq!(spool.waiting().0, 1);
}

/// A backup reads the charges of all files, whether or not a gateway has them locked, and changes nothing.
#[tokio::test]
async fn a_backup_has_every_pending_charge() {
    let folder = TempDir::new().unwrap();
    let none = waiting_in(&folder.path().join("nowhere")).unwrap();
    assert_eq!((none.charges, none.lines.len()), (0, 0));
    let path = folder.path().join("spool");
    let spool = Spool::new(&path);
    assert!(spool.adopt().await.is_empty());
    for number in 1..=3 {
        spool.add(&charge(number)).await.unwrap();
    }
    spool.settled(CallId(2));
    spool.left_behind().await;
    let mut left = lines([7, 8, 9]);
    // The second is damaged, the last is being written.
    let second = lines([7]).len();
    left[second + 30] ^= 1;
    left.truncate(left.len() - 5);
    fs::write(path.join("left.spool"), &left).unwrap();
    let waiting = waiting_in(&path).unwrap();
    assert_eq!((waiting.charges, waiting.unreadable), (3, 1));
    let Contents { found, damaged, .. } = record::read(&waiting.lines);
    assert_eq!((numbers(&found), damaged.len()), (vec![1, 3, 7], 0));
    assert_eq!(fs::read(path.join("left.spool")).unwrap(), left);
    drop(spool);

    let restored = folder.path().join("restored");
    fs::create_dir(&restored).unwrap();
    fs::write(restored.join("copy.spool"), &waiting.lines).unwrap();
    let spool = Spool::new(&restored);
    assert_eq!(ids(&spool.adopt().await), [1, 3, 7]);
}
