//! Crashes of the database server amid concurrent calls.

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

/// Concurrent callers that pay until they are stopped, and the calls whose charges were confirmed.
struct Crowd {
    paying: Arc<Paying>,
    stop: Arc<AtomicBool>,
    confirmed: Arc<Mutex<Vec<CallId>>>,
    callers: Vec<tokio::task::JoinHandle<()>>,
}

impl Crowd {
    fn of(paying: Arc<Paying>, runtime: &tokio::runtime::Handle) -> Self {
        let (stop, confirmed) = (
            Arc::<AtomicBool>::default(),
            Arc::<Mutex<Vec<_>>>::default(),
        );
        let callers = (0..16).map(|_| {
            let (paying, stop, confirmed) = (paying.clone(), stop.clone(), confirmed.clone());
            runtime.spawn(async move {
                while !stop.load(Relaxed) {
                    let Ok(mut held) = paying.hold(COST, COST, 0).await else {
                        tokio::time::sleep(Duration::from_millis(20)).await;
                        continue;
                    };
                    let call = charge(&mut held, COST).await.unwrap();
                    confirmed.lock().unwrap().push(call.id);
                }
            })
        });
        Self {
            callers: callers.collect(),
            paying,
            stop,
            confirmed,
        }
    }

    fn confirmed(&self) -> Vec<CallId> {
        self.confirmed.lock().unwrap().clone()
    }

    async fn until_confirmed(&self, more: usize) {
        let wanted = self.confirmed().len() + more;
        until("calls are charged", async || {
            self.confirmed().len() >= wanted
        })
        .await;
    }
}

/// Checks that every confirmed charge is stored once.
async fn assert_there(paying: &Paying, confirmed: &[CallId]) -> usize {
    let rows = paying.ledger.usage(&paying.account_id, 0, i64::MAX).await;
    let there: Vec<CallId> = rows.unwrap().iter().map(|call| call.id).collect();
    let once: BTreeSet<CallId> = there.iter().copied().collect();
    assert_eq!(once.len(), there.len());
    let lost: Vec<_> = confirmed.iter().filter(|id| !once.contains(id)).collect();
    assert!(lost.is_empty(), "{lost:?}");
    let spent = i64::try_from(there.len()).unwrap() * COST;
    assert_eq!(paying.balance().await, DOLLAR - spent);
    paying.assert_sound().await;
    paying.assert_added_up().await;
    there.len()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_confirmed_charge_survives_a_crash_of_the_server() {
    let server: &'static PostgresServer =
        Box::leak(Box::new(PostgresServer::own_with(&["fsync=on"])));
    // The gateway survives, and repeats what was lost.
    let paying = Paying::on_with(TestStore::database_of(server), DOLLAR).await;
    let paying = Arc::new(paying);
    let crowd = Crowd::of(paying.clone(), &tokio::runtime::Handle::current());
    crowd.until_confirmed(100).await;
    server.kill();
    server.start();
    crowd.until_confirmed(50).await;
    crowd.stop.store(true, Relaxed);
    let confirmed = crowd.confirmed;
    for caller in crowd.callers {
        caller.await.unwrap();
    }
    let confirmed = confirmed.lock().unwrap().clone();
    let there = assert_there(&paying, &confirmed).await;
    assert_eq!(there, confirmed.len(), "and nothing that was not confirmed");

    // The gateway dies with the server.
    let doomed = Runtime::new().unwrap();
    let (store, now_ms) = (paying.store.clone(), paying.now_ms.clone());
    let opened = doomed.spawn(async move { store.open(&now_ms).await });
    let other = Arc::new(paying.with(opened.await.unwrap()));
    let crowd = Crowd::of(other, doomed.handle());
    crowd.until_confirmed(100).await;
    server.kill();
    doomed.shutdown_background();
    let mut confirmed = confirmed;
    confirmed.extend(crowd.confirmed());
    server.start();
    paying.until_charges_are_taken().await;
    assert_there(&paying, &confirmed).await;
    paying.sql(&format!(
        "DELETE FROM gateways WHERE epoch = {}",
        crowd.paying.shared().inner.lease.load().epoch
    ));
    paying.shared().inner.lease_needed.notify_one();
    until("the dead one's holds are released", async || {
        paying.held().await == 0
    })
    .await;
    paying.assert_sound().await;
}

/// The gateway is otherwise idle, and the server writes only full pages of its log by itself.
#[tokio::test(flavor = "multi_thread")]
async fn an_idle_gateway_repeats_ends_and_holds_that_a_crash_has_undone() {
    let server: &'static PostgresServer = Box::leak(Box::new(PostgresServer::own_with(&[
        "wal_writer_delay=10s",
        "full_page_writes=off",
    ])));
    let paying = Paying::on_with(TestStore::database_of(server), DOLLAR).await;
    let [released, cancelled] = [
        paying.hold(COST, COST, 0).await.unwrap(),
        paying.hold(COST, COST, 0).await.unwrap(),
    ];
    let mut extended = paying.hold(COST, COST, 0).await.unwrap();
    // A charge waits for the disk, and so flushes what was committed before it.
    paying.pay().await.unwrap();
    drop(released);
    cancelled.cancel();
    let more = NanoUsd::new(5 * COST);
    let extension = extended.extend(1, more, more, NanoUsd::new(0));
    extension.await.unwrap();
    let running = paying.hold(COST, COST, 0).await.unwrap();
    assert_eq!(paying.held().await, 6 * COST);
    server.kill();
    server.start();
    until("the holds are restored", async || {
        let rows = "SELECT count(*) || ' ' || sum(amount_nano_usd) FROM holds";
        paying.sql(rows) == format!("2 {}", 6 * COST)
    })
    .await;
    paying.assert_sound().await;
    drop((running, extended));
    assert_eq!(paying.held().await, 0);
    paying.assert_sound().await;
    assert_eq!(paying.ledger.health().late_settlements.get(), 0);
}
