//! A server that is killed in the middle of a crowd.

use std::{
    collections::BTreeSet,
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use tokio::runtime::Runtime;

use super::*;
use crate::{db::testing::postgres_server::PostgresServer, ledger::CallId};

/// Callers that pay until they are told to stop, and what they were told of.
struct Crowd {
    paying: Arc<Paying>,
    stop: Arc<AtomicBool>,
    told: Arc<Mutex<Vec<CallId>>>,
    callers: Vec<tokio::task::JoinHandle<()>>,
}

impl Crowd {
    fn of(paying: Arc<Paying>, runtime: &tokio::runtime::Handle) -> Self {
        let (stop, told) = (
            Arc::<AtomicBool>::default(),
            Arc::<Mutex<Vec<_>>>::default(),
        );
        let callers = (0..16).map(|_| {
            let (paying, stop, told) = (paying.clone(), stop.clone(), told.clone());
            runtime.spawn(async move {
                while !stop.load(Relaxed) {
                    let Ok(mut held) = paying.hold(COST, COST, 0).await else {
                        tokio::time::sleep(Duration::from_millis(20)).await;
                        continue;
                    };
                    let call = charge(&mut held, COST).await.unwrap();
                    told.lock().unwrap().push(call.id);
                }
            })
        });
        Self {
            callers: callers.collect(),
            paying,
            stop,
            told,
        }
    }

    fn told(&self) -> Vec<CallId> {
        self.told.lock().unwrap().clone()
    }

    async fn until_told(&self, more: usize) {
        let wanted = self.told().len() + more;
        until("calls are charged", async || self.told().len() >= wanted).await;
    }
}

/// What was told of is there, once.
async fn assert_there(paying: &Paying, told: &[CallId]) -> usize {
    let rows = paying.ledger.usage(&paying.account_id, 0, i64::MAX).await;
    let there: Vec<CallId> = rows.unwrap().iter().map(|call| call.id).collect();
    let once: BTreeSet<CallId> = there.iter().copied().collect();
    assert_eq!(once.len(), there.len());
    let lost: Vec<_> = told.iter().filter(|id| !once.contains(id)).collect();
    assert!(lost.is_empty(), "{lost:?}");
    let spent = i64::try_from(there.len()).unwrap() * COST;
    assert_eq!(paying.balance().await, DOLLAR - spent);
    paying.assert_sound().await;
    paying.assert_added_up().await;
    there.len()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_charge_that_was_told_of_outlives_the_server() {
    let server: &'static PostgresServer =
        Box::leak(Box::new(PostgresServer::own_with(&["fsync=on"])));
    // The gateway lives on, and makes good what was lost.
    let paying = Paying::on_with(TestStore::database_of(server), DOLLAR).await;
    let paying = Arc::new(paying);
    let crowd = Crowd::of(paying.clone(), &tokio::runtime::Handle::current());
    crowd.until_told(100).await;
    server.kill();
    server.start();
    crowd.until_told(50).await;
    crowd.stop.store(true, Relaxed);
    let told = crowd.told;
    for caller in crowd.callers {
        caller.await.unwrap();
    }
    let told = told.lock().unwrap().clone();
    let there = assert_there(&paying, &told).await;
    assert_eq!(there, told.len(), "and nothing that was not told of");

    // The gateway dies with it.
    let doomed = Runtime::new().unwrap();
    let (place, now_ms) = (paying.place.clone(), paying.now_ms.clone());
    let opened = doomed.spawn(async move { place.open(&now_ms).await });
    let other = Arc::new(paying.with(opened.await.unwrap()));
    let crowd = Crowd::of(other, doomed.handle());
    crowd.until_told(100).await;
    server.kill();
    doomed.shutdown_background();
    let mut told = told;
    told.extend(crowd.told());
    server.start();
    paying.until_charges_are_taken().await;
    assert_there(&paying, &told).await;
    paying.sql(&format!(
        "DELETE FROM gateways WHERE epoch = {}",
        crowd.paying.shared().inner.lease.load().epoch
    ));
    paying.shared().inner.lease_wanted.notify_one();
    until("the dead one's holds are freed", async || {
        paying.held().await == 0
    })
    .await;
    paying.assert_sound().await;
}

/// A gateway with nothing else to do, and a server that writes only full pages of its log by itself.
#[tokio::test(flavor = "multi_thread")]
async fn ends_and_holds_that_a_crash_undoes_are_made_good_by_an_idle_gateway() {
    let server: &'static PostgresServer = Box::leak(Box::new(PostgresServer::own_with(&[
        "wal_writer_delay=10s",
        "full_page_writes=off",
    ])));
    let paying = Paying::on_with(TestStore::database_of(server), DOLLAR).await;
    let [freed, cancelled] = [
        paying.hold(COST, COST, 0).await.unwrap(),
        paying.hold(COST, COST, 0).await.unwrap(),
    ];
    let mut extended = paying.hold(COST, COST, 0).await.unwrap();
    // A charge waits for the disk, and what was committed before it is there as well.
    paying.pay().await.unwrap();
    drop(freed);
    cancelled.cancel();
    let more = NanoUsd::new(5 * COST);
    let extension = extended.extend(1, more, more, NanoUsd::new(0));
    extension.await.unwrap();
    let running = paying.hold(COST, COST, 0).await.unwrap();
    assert_eq!(paying.held().await, 6 * COST);
    server.kill();
    server.start();
    until("all is as it was", async || {
        let rows = "SELECT count(*) || ' ' || sum(amount) FROM holds";
        paying.sql(rows) == format!("2 {}", 6 * COST)
    })
    .await;
    paying.assert_sound().await;
    drop((running, extended));
    assert_eq!(paying.held().await, 0);
    paying.assert_sound().await;
    assert_eq!(paying.ledger.health().late_settlements.get(), 0);
}
