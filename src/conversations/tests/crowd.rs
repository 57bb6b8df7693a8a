//! Many at once.

use std::{sync::atomic::AtomicBool, time::Duration};

use super::*;

const ACCOUNTS: usize = 15;
const TASKS: usize = 64;
const STORES: usize = 40;

/// Everyone stores more than they may keep, and whoever looks meanwhile never sees too many.
#[tokio::test(flavor = "multi_thread")]
async fn no_crowd_gets_past_the_limits() {
    let given = Given::sqlite();
    given.store("0", "first").await;
    let over = Arc::new(AtomicBool::new(false));
    let watch = {
        let (reader, over) = (given.reader(), over.clone());
        std::thread::spawn(move || watch(&reader, &over))
    };
    let tasks = (0..TASKS).map(|task| {
        let conversations = given.conversations.clone();
        tokio::spawn(async move {
            // One of them has as many tasks as all others together.
            let account = if task % 2 == 0 { 0 } else { task % ACCOUNTS }.to_string();
            for number in 0..STORES {
                let record = record(&account, &format!("resp_{task}_{number}"));
                until_stored(&conversations, record).await;
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.unwrap();
    }
    over.store(true, Relaxed);
    let (looks, most_of_one, most_in_all) = watch.join().unwrap();
    assert!(looks > 20, "looked only {looks} times");
    assert_eq!((most_of_one, most_in_all), (100, 1_000));
    let (_, in_all) = counts(&given.reader());
    assert_eq!(in_all, 1_000);
}

async fn until_stored(conversations: &Conversations, record: Record) {
    loop {
        match conversations.store(record.clone()).await {
            Ok(kept) => return assert_eq!(kept, Kept::Stored),
            Err(StorageError::Unavailable(Cause::QueueFull) | StorageError::TimedOut) => {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            Err(error) => panic!("{error}"),
        }
    }
}

/// How often it looked, and the most it ever saw of one account and in all.
fn watch(reader: &Connection, over: &AtomicBool) -> (u32, u32, u32) {
    let (mut looks, mut most_of_one, mut most_in_all) = (0, 0, 0);
    while !over.load(Relaxed) {
        let (of_one, in_all) = counts(reader);
        most_of_one = most_of_one.max(of_one);
        most_in_all = most_in_all.max(in_all);
        looks += 1;
    }
    (looks, most_of_one, most_in_all)
}

/// The most of one account, and all.
fn counts(reader: &Connection) -> (u32, u32) {
    let counts = "SELECT coalesce(max(n), 0), coalesce(sum(n), 0)
                  FROM (SELECT count(*) AS n FROM responses GROUP BY account_id)";
    reader
        .query_row(counts, [], |row| Ok((row.get(0)?, row.get(1)?)))
        .unwrap()
}
