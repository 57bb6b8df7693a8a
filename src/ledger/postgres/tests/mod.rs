//! What only a ledger that gateways share can do and suffer; what every ledger promises is in
//! `ledger::tests`.

use std::{
    sync::{Arc, OnceLock, atomic::AtomicI64},
    time::{Duration, Instant},
};

use super::{
    Shared,
    record::CallRecord,
    steps::{Answer, Step},
};
use crate::{
    base::{clock::Clock, durability::Durability, money::NanoUsd},
    ledger::{
        Call, Held, HoldRefused, Ledger, LedgerError, OpenError, Outcome,
        tests::{COST, DOLLAR, Paying, TIMEOUT, TestStore, charge, tokens, until},
    },
};

mod audit;
mod bouncer;
mod crash;
mod leases;
mod opening;
mod steps;
mod together;

async fn with(nanos: i64) -> Paying {
    Paying::on_with(TestStore::database(), nanos).await
}

impl Paying {
    /// Behind the door.
    fn shared(&self) -> &Shared {
        let Ledger::Shared(ledger) = &*self.ledger else {
            unreachable!("it was opened so")
        };
        ledger
    }

    /// Hands a step in and hears what became of it.
    async fn step(&self, mut step: Step) -> Answer {
        let heard = step.listen();
        self.shared().hand_in(step);
        heard.await.unwrap().unwrap()
    }

    /// Once more what was done before, as if the answer had not been heard.
    async fn charge_again(&self, call: &Call) -> Answer {
        let charged = call.charged.unwrap();
        let record = CallRecord {
            call,
            usage: Some((charged.usage, charged.cost)),
        };
        self.step(Step::charge(&record, charged.cost)).await
    }

    /// The call's caller is told that it was not charged.
    async fn take_back(&self, call: &Call) -> Answer {
        let call = Call {
            outcome: Outcome::NotCharged,
            charged: None,
            ..call.clone()
        };
        let record = CallRecord {
            call: &call,
            usage: None,
        };
        self.step(Step::free(&record)).await
    }

    /// Whoever finds the ledger unavailable on a busy machine asks again.
    async fn hold_after_all(&self) -> Result<Held, HoldRefused> {
        let started = Instant::now();
        loop {
            match self.hold(COST, COST, 0).await {
                Err(HoldRefused::Unavailable) if started.elapsed() < TIMEOUT => {
                    self.until_charges_are_taken().await;
                }
                other => return other,
            }
        }
    }

    /// The kinds of the account's entries, in order.
    fn entries(&self) -> String {
        self.sql(&format!(
            "SELECT string_agg(kind || ' ' || delta, ', ' ORDER BY seq) FROM ledger_entries
             WHERE account_id = '{}'",
            self.account_id
        ))
    }
}
