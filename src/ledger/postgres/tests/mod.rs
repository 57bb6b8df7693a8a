//! Tests of the shared ledger that do not apply to the embedded one; those of both are in `ledger::tests`.

use std::{
    sync::{Arc, OnceLock, atomic::AtomicI64},
    time::{Duration, Instant},
};

use super::{
    Shared,
    operations::{Operation, Reply},
    record::CallRecord,
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
mod months;
mod opening;
mod operations;
mod together;
mod views;

async fn with(nanos: i64) -> Paying {
    Paying::on_with(TestStore::database(), nanos).await
}

impl Paying {
    /// The ledger behind the common interface.
    fn shared(&self) -> &Shared {
        let Ledger::Shared(ledger) = &*self.ledger else {
            unreachable!("it was opened so")
        };
        ledger
    }

    /// Submits an operation and waits for its reply.
    async fn execute(&self, mut operation: Operation) -> Reply {
        let receiver = operation.expect_reply();
        self.shared().submit(operation);
        receiver.await.unwrap().unwrap()
    }

    /// Repeats the charge, as if its reply had been lost.
    async fn charge_again(&self, call: &Call) -> Reply {
        let charged = call.charged.unwrap();
        let record = CallRecord {
            call,
            usage: Some((charged.usage, charged.cost)),
        };
        self.execute(Operation::charge(&record)).await
    }

    /// Releases the call as not charged, as if its caller had got an error.
    async fn reverse(&self, call: &Call) -> Reply {
        let call = Call {
            outcome: Outcome::NotCharged,
            charged: None,
            ..call.clone()
        };
        let record = CallRecord {
            call: &call,
            usage: None,
        };
        self.execute(Operation::release(&record)).await
    }

    /// Places a hold, retrying while the ledger is unavailable because the machine is busy.
    async fn hold_with_retry(&self) -> Result<Held, HoldRefused> {
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

    /// The kinds and amounts of the account's entries, in order.
    fn entries(&self) -> String {
        self.sql(&format!(
            "SELECT string_agg(kind || ' ' || delta_nano_usd, ', ' ORDER BY seq) FROM ledger
             WHERE account_id = '{}'",
            self.account_id
        ))
    }
}
