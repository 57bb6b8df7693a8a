//! The ledger as a whole: real files, real threads, faults.

use std::sync::{
    Arc,
    atomic::{AtomicI64, Ordering::Relaxed},
};

use tempfile::TempDir;

use super::{
    Call, HoldRefused, HoldRequest, KeyState, Ledger, LedgerError, NewAccount, NewGrant, Outcome,
    clock::Clock, sqlite::open_to_read,
};
use crate::{
    catalog::{Prices, Tier, Track},
    config::Durability,
    money::{NanoUsd, TokenPrice},
    wire::chat::Usage,
};

mod audit;
mod credit;
mod faults;
mod machine;
mod model;

const COST: i64 = 49_000;

/// An account with a key, and a clock that moves when it is told to.
struct Paying {
    folder: TempDir,
    now_ms: Arc<AtomicI64>,
    ledger: Arc<Ledger>,
    account_id: String,
    key_id: String,
}

impl Paying {
    async fn start() -> Self {
        let folder = TempDir::new().unwrap();
        let now_ms = Arc::new(AtomicI64::new(1_800_000_000_000));
        let ledger = open(&folder, &now_ms);
        let new = NewAccount {
            email: "a@example.com".into(),
            name: None,
            track: Track::Business,
            tier: Tier::Flex,
        };
        let account_id = ledger.create_account(new).await.unwrap().id;
        let (key, _) = ledger.create_key(&account_id, "test".into()).await.unwrap();
        Self {
            folder,
            now_ms,
            ledger,
            account_id,
            key_id: key.id,
        }
    }

    async fn with(nanos: i64) -> Self {
        let paying = Self::start().await;
        paying.give(nanos, None).await;
        paying
    }

    async fn give(&self, nanos: i64, expires_at: Option<i64>) {
        let grant = NewGrant {
            amount: NanoUsd::new(nanos),
            expires_at,
            reason: None,
            reference: None,
        };
        self.ledger
            .add_grant(&self.account_id, grant)
            .await
            .unwrap();
    }

    fn hold(&self, amount: i64, worst: i64, overdraft: i64) -> Result<super::Held, HoldRefused> {
        self.ledger.hold(HoldRequest {
            request_id: "req_test",
            account_id: &self.account_id,
            key_id: &self.key_id,
            model: "svc-standard",
            routed_model: "svc-standard",
            prices: Prices {
                // A nano-dollar a token.
                input: TokenPrice::from_picos(1_000),
                ..Prices::default()
            },
            stream: false,
            reserved_tokens: 1,
            amount: NanoUsd::new(amount),
            worst: NanoUsd::new(worst),
            decision: None,
            overdraft: NanoUsd::new(overdraft),
        })
    }

    async fn pay(&self) -> Result<Call, LedgerError> {
        let mut held = self.hold(COST, COST, 0).expect("there is credit");
        held.charge(tokens(COST), Outcome::Answered).await
    }

    /// As if the process had ended and begun again.
    fn restart(self) -> Self {
        let Self {
            folder,
            now_ms,
            ledger,
            account_id,
            key_id,
        } = self;
        drop(Arc::into_inner(ledger).expect("nothing is held any more"));
        let ledger = open(&folder, &now_ms);
        Self {
            folder,
            now_ms,
            ledger,
            account_id,
            key_id,
        }
    }

    fn advance(&self, seconds: i64) {
        self.now_ms.fetch_add(seconds * 1_000, Relaxed);
    }

    fn balance(&self) -> i64 {
        self.ledger.balances(&self.account_id).balance.nanos()
    }

    fn held(&self) -> i64 {
        self.ledger.balances(&self.account_id).held.nanos()
    }

    async fn assert_sound(&self) {
        let audit = self.ledger.audit().await.unwrap();
        assert_eq!(audit.violations, []);
    }

    /// Changes the database behind the ledger's back.
    fn tamper(&self, sql: &str) {
        let file = self.folder.path().join("ledger.db");
        rusqlite::Connection::open(file)
            .unwrap()
            .execute_batch(sql)
            .unwrap();
    }

    fn count(&self, query: &str) -> i64 {
        let connection = open_to_read(&self.folder.path().join("ledger.db")).unwrap();
        connection.query_row(query, [], |row| row.get(0)).unwrap()
    }

    /// Makes the disk look full at so many pages, or not any more.
    async fn limit_pages(&self, pages: Option<u32>) {
        let limited = self
            .ledger
            .writer
            .run(move |database, _| Ok(database.limit_pages(pages)?));
        limited.await.unwrap();
    }

    async fn until_charges_are_taken(&self) {
        while !self.ledger.health().takes_charges() {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    }
}

fn open(folder: &TempDir, now_ms: &Arc<AtomicI64>) -> Arc<Ledger> {
    let path = folder.path().join("ledger.db");
    let clock = Clock::Manual(now_ms.clone());
    Arc::new(Ledger::open_at(&path, Durability::Process, clock).unwrap())
}

/// A usage that costs this many nano-dollars.
fn tokens(cost: i64) -> Usage {
    Usage {
        prompt: u32::try_from(cost).unwrap(),
        cached: 0,
        completion: 0,
        reasoning: 0,
    }
}
