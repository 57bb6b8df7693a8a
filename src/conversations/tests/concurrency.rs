//! Concurrent stores.

use std::{sync::atomic::AtomicBool, time::Duration};

use super::*;

const ACCOUNTS: usize = 15;
const TASKS: usize = 64;
const STORES: usize = 40;

/// Each account stores more than its limit, and a concurrent reader never sees more records than allowed.
#[tokio::test(flavor = "multi_thread")]
async fn concurrent_stores_respect_the_limits_in_sqlite() {
    let given = Given::sqlite();
    concurrent_stores_respect_the_limits(&given, std::slice::from_ref(&given.conversations)).await;
}

/// As above, with several gateways on one database.
#[tokio::test(flavor = "multi_thread")]
async fn concurrent_stores_respect_the_limits_in_postgres() {
    let given = Given::postgres();
    let open = || given.place.open(given.settings, &given.now_ms);
    concurrent_stores_respect_the_limits(&given, &[open(), open(), open()]).await;
}

async fn concurrent_stores_respect_the_limits(given: &Given, gateways: &[Arc<Conversations>]) {
    given.store("0", "first").await;
    let over = Arc::new(AtomicBool::new(false));
    let watch = tokio::spawn(watch(given.reader().await, over.clone()));
    let tasks = (0..TASKS).map(|task| {
        let conversations = gateways[task % gateways.len()].clone();
        tokio::spawn(async move {
            // Account 0 has as many tasks as all others together.
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
    let (reads, most_of_one, most_in_all) = watch.await.unwrap();
    assert!(reads > 20, "read only {reads} times");
    assert_eq!((most_of_one, most_in_all), (100, 1_000));
    let (_, in_all) = given.reader().await.counts().await;
    assert_eq!(in_all, 1_000);
}

async fn until_stored(conversations: &Conversations, record: Record) {
    loop {
        match conversations.store(record.clone()).await {
            Ok(kept) => return assert_eq!(kept, StoreOutcome::Stored),
            Err(StorageError::Unavailable(Cause::QueueFull) | StorageError::TimedOut) => {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            Err(error) => panic!("{error}"),
        }
    }
}

/// Reads the counts until `over`; returns the number of reads, and the maxima of one account and in all.
async fn watch(reader: Reader, over: Arc<AtomicBool>) -> (u32, i64, i64) {
    let (mut reads, mut most_of_one, mut most_in_all) = (0, 0, 0);
    while !over.load(Relaxed) {
        let (of_one, in_all) = reader.counts().await;
        most_of_one = most_of_one.max(of_one);
        most_in_all = most_in_all.max(in_all);
        reads += 1;
        tokio::task::yield_now().await;
    }
    (reads, most_of_one, most_in_all)
}
