//! Holds and charges: the steps between a call's admission and its bill.

use std::sync::atomic::Ordering;

use super::{
    Ledger, LedgerError,
    credit::{HoldId, Shortage},
    now,
};
use crate::{
    auth::random_id,
    catalog::{Model, Prices},
    money::NanoUsd,
    wire::chat::Usage,
};

/// Why nothing was set aside for a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HoldRefused {
    /// The key was disabled or deleted since it was looked up.
    KeyInactive,
    /// The account is closed or gone.
    NoAccount {
        balance: NanoUsd,
    },
    Short(Shortage),
}

/// Who pays for a call, and what it may cost.
#[derive(Clone, Copy, Debug)]
pub struct HoldRequest<'a> {
    pub account_id: &'a str,
    pub key_id: &'a str,
    pub amount: NanoUsd,
    /// The most the call can come to.
    pub worst: NanoUsd,
    /// How far an account may go below zero by calls that cost more than they held.
    pub overdraft: NanoUsd,
}

/// Credit that is set aside for a running call.
///
/// Dropped without a charge it is given back, so no ending of a call can strand it.
pub struct Held<'a> {
    ledger: &'a Ledger,
    account_id: String,
    key_id: String,
    id: HoldId,
    /// When the credit it is paid from expires.
    pub expires_at: Option<i64>,
}

/// A call that was answered, as it is charged and remembered.
#[derive(Clone, Debug)]
pub struct UsageRow {
    pub id: String,
    pub account_id: String,
    pub key_id: String,
    pub model: String,
    pub routed_model: String,
    pub usage: Usage,
    pub prices: Prices,
    pub cost: NanoUsd,
    pub stream: bool,
    pub at: i64,
}

impl Ledger {
    /// Sets credit aside, or refuses and changes nothing.
    ///
    /// The key's state is read in the same step: a key that is disabled pays for nothing more,
    /// however lately it was looked up.
    pub fn hold(&self, request: HoldRequest<'_>) -> Result<Held<'_>, HoldRefused> {
        let directory = self.read();
        if !directory.is_active(request.key_id) {
            return Err(HoldRefused::KeyInactive);
        }
        let no_account = |balance| HoldRefused::NoAccount { balance };
        let account = directory.account(request.account_id);
        let account = account.map_err(|_| no_account(NanoUsd::default()))?;
        let now = now();
        let mut credit = directory.credit(request.account_id);
        if account.closed {
            return Err(no_account(credit.balance(now)));
        }
        let id = HoldId(self.holds.fetch_add(1, Ordering::Relaxed));
        let expires_at = credit.expires_at(now);
        credit
            .hold(id, request.amount, request.worst, request.overdraft, now)
            .map_err(HoldRefused::Short)?;
        drop(credit);
        Ok(Held {
            ledger: self,
            account_id: request.account_id.to_owned(),
            key_id: request.key_id.to_owned(),
            id,
            expires_at,
        })
    }

    /// Makes the disk look full at so many pages, or not any more.
    #[cfg(test)]
    async fn limit_pages(&self, pages: Option<u32>) {
        let limited = self
            .writer
            .run(move |database, _| Ok(database.limit_pages(pages)?));
        limited.await.unwrap();
    }

    /// The account's charged calls within these times, newest first.
    pub async fn usage(
        &self,
        account_id: &str,
        from: i64,
        to: i64,
    ) -> Result<Vec<UsageRow>, LedgerError> {
        self.account(account_id)?;
        let account_id = account_id.to_owned();
        self.writer
            .run(move |database, _| Ok(database.usage(&account_id, from, to)?))
            .await
    }
}

impl Held<'_> {
    /// Charges what the call used at the answering model's prices, and gives back the rest.
    ///
    /// It is committed when this returns. A charge that fails to be written changes nothing.
    pub async fn settle(
        self,
        requested: &Model,
        target: &Model,
        usage: Usage,
        stream: bool,
    ) -> Result<NanoUsd, LedgerError> {
        let fresh = usage.prompt.saturating_sub(usage.cached);
        // Reasoning is part of the completion and costs what it costs.
        let output = usage.completion.into();
        let cost = target
            .prices
            .cost(fresh.into(), usage.cached.into(), output);
        let row = UsageRow {
            id: random_id("use_"),
            account_id: self.account_id.clone(),
            key_id: self.key_id.clone(),
            model: requested.id.clone(),
            routed_model: target.id.clone(),
            usage,
            prices: target.prices,
            cost,
            stream,
            at: now(),
        };
        let id = self.id;
        self.ledger
            .writer
            .run(move |database, directory| {
                let planned = directory
                    .read()
                    .credit(&row.account_id)
                    .plan_charge(id, cost, row.at);
                let charge = planned.ok_or(LedgerError::NoHold)?;
                database.insert_charge(&row, &charge)?;
                directory.read().credit(&row.account_id).apply(&charge);
                Ok(cost)
            })
            .await
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        let directory = self.ledger.read();
        directory.credit(&self.account_id).release(self.id);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tempfile::TempDir;

    use super::*;
    use crate::{
        catalog::{Catalog, Tier, Track},
        config::Durability,
        ledger::{NewAccount, NewGrant},
    };

    const COST: NanoUsd = NanoUsd::new(49_000);
    const USAGE: Usage = Usage {
        prompt: 11,
        cached: 0,
        completion: 3,
        reasoning: 0,
    };

    struct Paying {
        ledger: Arc<Ledger>,
        account_id: String,
        key_id: String,
        model: Arc<Model>,
    }

    impl Paying {
        async fn start(folder: &TempDir, dollars: i64) -> Self {
            let ledger = open(folder);
            let new = NewAccount {
                email: "a@example.com".into(),
                name: None,
                track: Track::Business,
                tier: Tier::Flex,
            };
            let account_id = ledger.create_account(new).await.unwrap().id;
            let grant = NewGrant {
                amount: NanoUsd::new(dollars * 1_000_000_000),
                expires_at: None,
                reason: None,
            };
            ledger.add_grant(&account_id, grant).await.unwrap();
            let (key, _) = ledger.create_key(&account_id, "test".into()).await.unwrap();
            Self {
                ledger: Arc::new(ledger),
                account_id,
                key_id: key.id,
                model: Catalog::built_in().find("svc-standard").unwrap().clone(),
            }
        }

        fn hold(&self) -> Result<Held<'_>, HoldRefused> {
            self.ledger.hold(HoldRequest {
                account_id: &self.account_id,
                key_id: &self.key_id,
                amount: COST,
                worst: COST,
                overdraft: NanoUsd::default(),
            })
        }

        async fn pay(&self) -> Result<NanoUsd, LedgerError> {
            let held = self.hold().expect("there is credit");
            held.settle(&self.model, &self.model, USAGE, false).await
        }
    }

    fn open(folder: &TempDir) -> Ledger {
        Ledger::open(&folder.path().join("ledger.db"), Durability::Process).unwrap()
    }

    fn spent(nanos: i64, times: usize) -> NanoUsd {
        NanoUsd::new(nanos - i64::try_from(times).unwrap() * COST.nanos())
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn charges_side_by_side_are_all_there_after_a_restart() {
        let folder = TempDir::new().unwrap();
        let paying = Arc::new(Paying::start(&folder, 1).await);
        let calls = (0..64).map(|_| {
            let paying = paying.clone();
            tokio::spawn(async move {
                for _ in 0..50 {
                    assert_eq!(paying.pay().await.unwrap(), COST);
                }
            })
        });
        for call in calls.collect::<Vec<_>>() {
            call.await.unwrap();
        }
        let expected = spent(1_000_000_000, 64 * 50);
        assert_eq!(paying.ledger.balances(&paying.account_id).balance, expected);
        assert_eq!(
            paying.ledger.balances(&paying.account_id).held,
            NanoUsd::default()
        );
        let account_id = paying.account_id.clone();
        drop(paying);
        let ledger = open(&folder);
        assert_eq!(ledger.balances(&account_id).balance, expected);
        let rows = ledger.usage(&account_id, 0, i64::MAX).await.unwrap();
        assert_eq!(rows.len(), 64 * 50);
    }

    /// A disk that is full refuses charges, loses none that it took, and takes them again.
    #[tokio::test]
    async fn a_full_disk_changes_nothing_and_heals() {
        let folder = TempDir::new().unwrap();
        let paying = Paying::start(&folder, 1).await;
        paying.ledger.limit_pages(Some(40)).await;
        let mut paid = 0;
        let refused = loop {
            match paying.pay().await {
                Ok(_) => paid += 1,
                Err(error) => break error,
            }
            assert!(paid < 10_000, "the disk never became full");
        };
        assert!(
            matches!(
                refused,
                LedgerError::Database(_) | LedgerError::NotCommitted
            ),
            "{refused}"
        );
        let balances = paying.ledger.balances(&paying.account_id);
        assert_eq!(
            balances.balance,
            spent(1_000_000_000, paid),
            "as if it had not been tried"
        );
        assert_eq!(balances.held, NanoUsd::default());
        paying.ledger.limit_pages(None).await;
        paying.pay().await.unwrap();
        let account_id = paying.account_id.clone();
        drop(paying);
        let after = open(&folder).balances(&account_id).balance;
        assert_eq!(after, spent(1_000_000_000, paid + 1));
    }

    /// When a transaction of many fails, none of them has happened, whichever of them failed.
    #[tokio::test(flavor = "multi_thread")]
    async fn charges_of_a_batch_that_failed_are_undone_together() {
        let folder = TempDir::new().unwrap();
        let paying = Arc::new(Paying::start(&folder, 1).await);
        paying.ledger.limit_pages(Some(60)).await;
        let callers = (0..64).map(|_| {
            let paying = paying.clone();
            tokio::spawn(async move {
                let mut paid = 0;
                while paying.pay().await.is_ok() {
                    paid += 1;
                }
                paid
            })
        });
        let mut paid = 0;
        for caller in callers.collect::<Vec<_>>() {
            paid += caller.await.unwrap();
        }
        let balances = paying.ledger.balances(&paying.account_id);
        assert_eq!(balances.balance, spent(1_000_000_000, paid));
        assert_eq!(balances.held, NanoUsd::default());
        let account_id = paying.account_id.clone();
        drop(paying);
        let after = open(&folder).balances(&account_id).balance;
        assert_eq!(after, spent(1_000_000_000, paid), "as on the disk");
    }

    #[tokio::test]
    async fn a_key_that_was_disabled_holds_nothing() {
        let folder = TempDir::new().unwrap();
        let paying = Paying::start(&folder, 1).await;
        assert!(paying.hold().is_ok());
        let state = crate::ledger::KeyState::Disabled;
        paying
            .ledger
            .set_key_state(&paying.key_id, state)
            .await
            .unwrap();
        assert_eq!(paying.hold().err(), Some(HoldRefused::KeyInactive));
    }
}
