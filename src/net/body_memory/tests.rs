use std::time::Duration;

use tokio::time::timeout;

use super::*;

const STEP: usize = 10;

fn memory(limit: usize, share: usize) -> Arc<BodyMemory> {
    Arc::new(BodyMemory::new(limit, share))
}

impl BodyMemory {
    /// Asserts that the sums agree with each other.
    fn audit(&self) {
        let state = self.lock();
        let accounts = state.accounts.values();
        let sum: usize = accounts.clone().map(|account| account.reserved).sum();
        assert_eq!(sum + state.cancelled, state.reserved);
        assert!(state.reserved <= self.limit);
        for account in accounts {
            let unfinished = account.unfinished.values();
            let unfinished: usize = unfinished.map(|body| body.reserved).sum();
            assert!(unfinished <= account.reserved && account.reserved <= self.share);
        }
    }
}

async fn body(memory: &Arc<BodyMemory>, account: &str, steps: usize) -> BodyReservation {
    let mut body = memory.begin(account);
    for _ in 0..steps {
        body.grow(STEP).await.unwrap();
    }
    memory.audit();
    body
}

#[tokio::test]
async fn an_account_gets_its_share_and_no_more() {
    let memory = memory(100, 30);
    let mut first = body(&memory, "a", 2).await;
    let mut second = body(&memory, "a", 1).await;
    assert_eq!(second.grow(STEP).await, Err(Exhausted));
    assert_eq!(first.grow(STEP).await, Err(Exhausted));
    let other = body(&memory, "b", 3).await;
    assert_eq!(memory.reserved(), 60);
    // What is complete counts until it is dropped, and the surplus is released at once.
    second.complete(4).unwrap();
    assert_eq!(memory.reserved(), 54);
    drop((first, other));
    assert_eq!(memory.reserved(), 4);
    drop(second);
    memory.audit();
    assert!(memory.lock().accounts.is_empty());
}

#[tokio::test]
async fn the_account_with_the_most_loses_its_newest_unfinished_body() {
    let memory = memory(60, 50);
    let oldest = body(&memory, "a", 2).await;
    let newest = body(&memory, "a", 2).await;
    let other = body(&memory, "b", 2).await;
    let mut third = memory.begin("c");
    let growing = async {
        third.grow(STEP).await.unwrap();
        third
    };
    let leaving = async {
        newest.cancelled().await;
        assert_eq!(memory.reserved(), 60, "not released before it is dropped");
        drop(newest);
    };
    let (third, ()) = timeout(Duration::from_secs(5), async {
        tokio::join!(growing, leaving)
    })
    .await
    .expect("it waits for nothing else");
    memory.audit();
    assert_eq!(memory.reserved(), 50);
    assert!(!oldest.cancel.is_cancelled() && !other.cancel.is_cancelled());
    drop((oldest, other, third));
    assert_eq!(memory.reserved(), 0);
}

#[tokio::test]
async fn a_body_is_refused_if_no_account_has_more() {
    let memory = memory(40, 40);
    let mut first = body(&memory, "a", 2).await;
    let second = body(&memory, "b", 2).await;
    // As much as the other would be more than the other has: taking from each other would never end.
    assert_eq!(first.grow(STEP).await, Err(Exhausted));
    // What is complete is not taken.
    let mut third = memory.begin("c");
    first.complete(20).unwrap();
    let mut second = second;
    second.complete(20).unwrap();
    assert_eq!(third.grow(STEP).await, Err(Exhausted));
    drop(first);
    third.grow(STEP).await.unwrap();
    memory.audit();
}

#[tokio::test]
async fn a_cancelled_body_gets_no_memory_and_cannot_complete() {
    let memory = memory(30, 30);
    let mut large = body(&memory, "a", 3).await;
    let waiting = tokio::spawn({
        let memory = memory.clone();
        async move { body(&memory, "b", 1).await }
    });
    large.cancelled().await;
    assert_eq!(large.grow(STEP).await, Err(Exhausted));
    assert_eq!(large.complete(30), Err(Exhausted));
    drop(large);
    let small = timeout(Duration::from_secs(5), waiting).await;
    drop(small.unwrap().unwrap());
    assert_eq!(memory.reserved(), 0);
    assert!(memory.lock().accounts.is_empty());
    memory.audit();
}

/// Many tasks of several accounts grow, finish and give up in any order: every one gets a result, and the sums are
/// right at the end.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_order_of_steps_ends_in_a_deadlock() {
    let memory = memory(400, 120);
    let tasks = (0..64_usize).map(|task| {
        let memory = memory.clone();
        tokio::spawn(async move {
            let mut served = 0;
            for round in 0..40 {
                let mut body = memory.begin(&format!("account {}", (task + round) % 7));
                let steps = (task * 7 + round * 3) % 12;
                let mut result = Ok(());
                for _ in 0..steps {
                    result = body.grow(STEP).await;
                    if result.is_err() {
                        break;
                    }
                    // Stands for waiting for the client.
                    tokio::select! {
                        () = tokio::task::yield_now() => {}
                        () = body.cancelled() => break,
                    }
                }
                if result.is_ok() && body.complete(steps * STEP / 2).is_ok() {
                    served += 1;
                    tokio::task::yield_now().await;
                }
            }
            served
        })
    });
    let tasks: Vec<_> = tasks.collect();
    let mut served = 0;
    for task in tasks {
        let done = timeout(Duration::from_secs(30), task).await;
        served += done.expect("no deadlock").unwrap();
    }
    assert!(served > 0);
    memory.audit();
    assert_eq!(memory.reserved(), 0);
    assert!(memory.lock().accounts.is_empty());
}
