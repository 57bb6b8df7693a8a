//! Tests with real Redis servers; each test starts its own.

use std::sync::Mutex;

use super::{super::NotRenewed, *};

mod clocks;
mod data_loss;
mod failures;
mod limiter;
mod proxy;
mod same_as_memory;
mod server;
mod topologies;

use proxy::Proxy;
use server::{Server, eventually};

const KNOWN_WITHIN: Duration = Duration::from_millis(500);
const DEADLINE: Duration = Duration::from_millis(500);

const CEILINGS: Ceilings = Ceilings {
    requests: 60,
    tokens: 1_000,
};

/// Stands in for the ledger: the reservations that it would have.
#[derive(Clone, Default)]
struct Ledger {
    stored: Arc<Mutex<Vec<StoredReservation>>>,
    stored_at: Arc<Mutex<Vec<std::time::Instant>>>,
    is_down: Arc<Mutex<bool>>,
}

impl Ledger {
    fn rebuild(&self) -> Rebuild {
        let ledger = self.clone();
        Box::new(move || {
            let mut all = ledger.stored.lock().unwrap().clone();
            for (stored, stored_at) in all.iter_mut().zip(&*ledger.stored_at.lock().unwrap()) {
                stored.age_ms += u64::try_from(stored_at.elapsed().as_millis()).unwrap();
            }
            let is_down = *ledger.is_down.lock().unwrap();
            Box::pin(async move {
                if is_down {
                    Err("it is down".to_owned())
                } else {
                    Ok(all)
                }
            })
        })
    }

    fn store(&self, call: u64, admission: &Admission) {
        let reservation = admission.reservations()[0];
        let now = std::time::Instant::now();
        self.stored_at.lock().unwrap().push(now);
        self.stored.lock().unwrap().push(StoredReservation {
            account: "a".to_owned(),
            model: "m".to_owned(),
            call,
            step: reservation.step,
            at_ms: reservation.at_ms,
            age_ms: 0,
            tokens: reservation.tokens,
        });
    }

    fn count(&self) -> usize {
        self.stored.lock().unwrap().len()
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

/// How many requests and tokens are left in the window, from the refusal of a request that is too large.
async fn left(limiter: &Arc<Shared>) -> (u32, u32) {
    limiter.drain(Duration::from_secs(5)).await;
    match admit(limiter, 0, 5_000).await {
        Err(NotAdmitted::Refused(refusal)) => (refusal.requests_left, refusal.tokens_left),
        _ => panic!("{:?}", limiter.why_not_ready()),
    }
}
