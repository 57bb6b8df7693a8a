//! Against real servers, each test with its own.

use std::sync::Mutex;

use super::{super::NotRenewed, *};

mod beside_memory;
mod clocks;
mod failures;
mod forgetting;
mod limiter;
mod places;
mod proxy;
mod server;

use proxy::Proxy;
use server::{Server, eventually};

const KNOWN_WITHIN: Duration = Duration::from_millis(500);
const DEADLINE: Duration = Duration::from_millis(500);

const CEILINGS: Ceilings = Ceilings {
    requests: 60,
    tokens: 1_000,
};

/// What a ledger would know, as far as the minute is concerned.
#[derive(Clone, Default)]
struct Ledger {
    kept: Arc<Mutex<Vec<StoredReservation>>>,
    begun: Arc<Mutex<Vec<std::time::Instant>>>,
    is_away: Arc<Mutex<bool>>,
}

impl Ledger {
    fn rebuild(&self) -> Rebuild {
        let ledger = self.clone();
        Box::new(move || {
            let mut kept = ledger.kept.lock().unwrap().clone();
            for (kept, begun) in kept.iter_mut().zip(&*ledger.begun.lock().unwrap()) {
                kept.age_ms += u64::try_from(begun.elapsed().as_millis()).unwrap();
            }
            let is_away = *ledger.is_away.lock().unwrap();
            Box::pin(async move {
                if is_away {
                    Err("it is away".to_owned())
                } else {
                    Ok(kept)
                }
            })
        })
    }

    fn keep(&self, call: u64, admission: &Admission) {
        let place = admission.places()[0];
        self.begun.lock().unwrap().push(std::time::Instant::now());
        self.kept.lock().unwrap().push(StoredReservation {
            account: "a".to_owned(),
            model: "m".to_owned(),
            call,
            step: place.step,
            at_ms: place.at_ms,
            age_ms: 0,
            tokens: place.tokens,
        });
    }

    fn count(&self) -> usize {
        self.kept.lock().unwrap().len()
    }
}

/// A limiter that is ready.
async fn limiter(url: &str, deadline: Duration, ledger: &Ledger) -> Arc<Shared> {
    let limiter = Shared::connect(
        &Address::parse(url).unwrap(),
        deadline,
        KNOWN_WITHIN,
        ledger.rebuild(),
    );
    ready(&limiter).await;
    limiter
}

async fn ready(limiter: &Shared) {
    eventually("ready", async || limiter.is_ready()).await;
}

async fn admit(limiter: &Arc<Shared>, call: u64, need: u64) -> Result<Admission, NotAdmitted> {
    limiter.admit(call, "a", "m", need, CEILINGS).await
}

/// How many requests and tokens fit into the minute, told by a request that never does.
async fn left(limiter: &Arc<Shared>) -> (u32, u32) {
    limiter.drain(Duration::from_secs(5)).await;
    match admit(limiter, 0, 5_000).await {
        Err(NotAdmitted::Refused(refusal)) => (refusal.requests_left, refusal.tokens_left),
        _ => panic!("{:?}", limiter.why_not_ready()),
    }
}
