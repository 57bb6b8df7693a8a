use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::{
    sync::Semaphore,
    time::{advance, sleep},
};

use super::*;

/// Issues the numbers from 1, valid for an hour, when it is let.
struct Numbers {
    /// How many fetches may end.
    let_through: Semaphore,
    begun: AtomicUsize,
    works: Mutex<bool>,
}

impl Issuer for Arc<Numbers> {
    type Value = usize;

    async fn issue(&self) -> Result<Issued<usize>, String> {
        let value = self.begun.fetch_add(1, Ordering::Relaxed) + 1;
        self.let_through.acquire().await.unwrap().forget();
        if *self.works.lock().unwrap() {
            let lifetime = Duration::from_hours(1);
            Ok(Issued { value, lifetime })
        } else {
            Err(format!("number {value} is not given out"))
        }
    }
}

struct Test {
    numbers: Arc<Numbers>,
    source: Arc<Renewing<Arc<Numbers>>>,
}

impl Test {
    /// The first `let_through` fetches end at once.
    fn new(let_through: usize) -> Self {
        let numbers = Arc::new(Numbers {
            let_through: Semaphore::new(let_through),
            begun: AtomicUsize::new(0),
            works: Mutex::new(true),
        });
        let source = Renewing::new(numbers.clone(), "fetching a number".into());
        let source = Arc::new(source);
        Self { numbers, source }
    }

    fn begun(&self) -> usize {
        self.numbers.begun.load(Ordering::Relaxed)
    }

    fn works(&self, works: bool) {
        *self.numbers.works.lock().unwrap() = works;
    }

    fn let_one_through(&self) {
        self.numbers.let_through.add_permits(1);
    }

    async fn get(&self) -> Result<usize, String> {
        let got = self.source.get().await;
        got.map(|lent| lent.value)
            .map_err(|error| error.to_string())
    }

    /// Waits until no fetch is running; the clock stands still.
    async fn settle(&self) {
        while self.source.state().running.is_some() {
            tokio::task::yield_now().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn many_that_wait_cause_one_fetch() {
    let test = Test::new(0);
    let waiting: Vec<_> = (0..100)
        .map(|_| {
            let source = test.source.clone();
            tokio::spawn(async move { source.get().await.unwrap().value })
        })
        .collect();
    while test.begun() == 0 {
        tokio::task::yield_now().await;
    }
    // A waiting request goes away. Even the first one, which began the fetch, would not end it.
    waiting[0].abort();
    test.let_one_through();
    for (number, waiting) in waiting.into_iter().enumerate() {
        let got = waiting.await;
        assert!(number == 0 || got.unwrap() == 1);
    }
    assert_eq!(test.begun(), 1);
}

#[tokio::test(start_paused = true)]
async fn it_is_renewed_before_its_end_and_nobody_waits() {
    let test = Test::new(1);
    assert_eq!(test.get().await, Ok(1));
    advance(Duration::from_mins(54)).await;
    assert_eq!((test.get().await, test.begun()), (Ok(1), 1));
    advance(Duration::from_secs(61)).await;
    for _ in 0..10 {
        assert_eq!(test.get().await, Ok(1), "while the renewal is running");
    }
    test.let_one_through();
    test.settle().await;
    assert_eq!((test.get().await, test.begun()), (Ok(2), 2));
}

#[tokio::test(start_paused = true)]
async fn a_failing_renewal_disturbs_nobody_until_the_end() {
    let test = Test::new(100);
    assert_eq!(test.get().await, Ok(1));
    test.works(false);
    advance(Duration::from_mins(56)).await;
    for _ in 0..3 {
        assert_eq!(test.get().await, Ok(1));
        test.settle().await;
    }
    assert_eq!(test.begun(), 2, "after a failure there is a pause");
    advance(Duration::from_mins(4)).await;
    let failed = test.get().await.unwrap_err();
    assert!(failed.contains("number 3 is not given out"), "{failed}");
    assert_eq!(test.get().await.unwrap_err(), failed, "in the pause");
    assert_eq!(test.begun(), 3);
    test.works(true);
    advance(LONGEST_PAUSE).await;
    assert_eq!(test.get().await, Ok(4));
}

#[tokio::test(start_paused = true)]
async fn a_fetch_that_hangs_is_given_up() {
    let test = Test::new(0);
    let failed = test.get().await.unwrap_err();
    assert!(failed.contains("no response within 15s"), "{failed}");
    sleep(FIRST_PAUSE).await;
    test.let_one_through();
    assert_eq!(test.get().await, Ok(2));
}

#[tokio::test(start_paused = true)]
async fn a_refused_value_is_replaced_once() {
    let test = Test::new(100);
    let instead_of = async |refused: &Arc<Lent<usize>>| {
        let other = test.source.instead_of(refused).await;
        other.map(|other| other.value)
    };
    let first = test.source.get().await.unwrap();
    assert_eq!(instead_of(&first).await, Some(2));
    // Another request was refused with the first one too.
    assert_eq!(instead_of(&first).await, Some(2));
    let second = test.source.get().await.unwrap();
    assert_eq!(
        instead_of(&second).await,
        None,
        "the provider refuses them all"
    );
    assert_eq!((test.get().await, test.begun()), (Ok(2), 2));
    advance(REFUSAL_PAUSE).await;
    assert_eq!(instead_of(&second).await, Some(3));
}

/// What was refused may be good for other requests, and is all there is if no other can be fetched.
#[tokio::test(start_paused = true)]
async fn others_go_on_with_a_refused_value_until_it_is_replaced() {
    let test = Test::new(1);
    let first = test.source.get().await.unwrap();
    let (source, refused) = (test.source.clone(), first.clone());
    let waiting = tokio::spawn(async move { source.instead_of(&refused).await.is_some() });
    while test.begun() < 2 {
        tokio::task::yield_now().await;
    }
    assert_eq!(test.get().await, Ok(1), "while another one is fetched");
    test.works(false);
    test.let_one_through();
    assert!(!waiting.await.unwrap());
    assert_eq!((test.get().await, test.begun()), (Ok(1), 2));
}
