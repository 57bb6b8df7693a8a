//! The shared ledger through `PgBouncer` in transaction mode, where each transaction may use another connection.

use super::*;
use crate::db::{postgres::Address, testing::bouncer::Bouncer};

#[tokio::test(flavor = "multi_thread")]
async fn calls_are_paid_for_through_a_bouncer() {
    let direct = with(DOLLAR).await;
    let TestStore::Database { server, name } = &*direct.store else {
        unreachable!("it was opened so")
    };
    let bouncer = Bouncer::start(server);
    let url = format!("postgres://postgres@127.0.0.1:{}/{name}", bouncer.port());
    let (address, clock) = (
        Address::parse(&url).unwrap(),
        Clock::Manual(direct.now_ms.clone()),
    );
    let opened = Shared::open(address, Durability::Power, Duration::from_secs(10), clock);
    let ledger = Arc::new(Ledger::Shared(opened.await.unwrap()));
    let paying = Arc::new(direct.with(ledger));
    let calls = (0..12).map(|_| {
        let paying = paying.clone();
        tokio::spawn(async move {
            for _ in 0..5 {
                let mut held = paying.hold_with_retry().await.unwrap();
                charge(&mut held, COST).await.unwrap();
                drop(paying.hold_with_retry().await.unwrap());
            }
        })
    });
    for call in calls.collect::<Vec<_>>() {
        call.await.unwrap();
    }
    let left = DOLLAR - 60 * COST;
    assert_eq!((paying.balance().await, paying.held().await), (left, 0));
    paying.assert_sound().await;
    let (model, enabled) = ("svc-standard", Some(false));
    let set = paying.ledger.set_model(model, enabled, None).await;
    assert!(!set.unwrap().enabled);
    assert_eq!(direct.balance().await, left);
    paying.ledger.close().await;
}
