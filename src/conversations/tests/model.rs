//! Property: after any sequence of operations, the storage has the same records as a model, which is a plain list.

use proptest::prelude::*;

use super::*;

const SMALL: Settings = Settings {
    retention_ms: 10,
    per_account: 3,
    in_all: 6,
    ..LONG_DEADLINE
};

#[derive(Clone, Debug)]
enum Operation {
    Store { account: u8, id: u8 },
    Find { account: u8, id: u8 },
    Delete { account: u8, id: u8 },
    Advance { ms: i64 },
    Restart,
}

fn operation() -> impl Strategy<Value = Operation> {
    // Some accounts store more than others; IDs are sometimes repeated.
    let account = prop_oneof![4 => Just(0_u8), 2 => Just(1_u8), 2 => 2..6_u8];
    let whose = || (account.clone(), 0..40_u8);
    prop_oneof![
        20 => whose().prop_map(|(account, id)| Operation::Store { account, id }),
        4 => whose().prop_map(|(account, id)| Operation::Find { account, id }),
        4 => whose().prop_map(|(account, id)| Operation::Delete { account, id }),
        4 => (1..6_i64).prop_map(|ms| Operation::Advance { ms }),
        1 => Just(Operation::Restart),
    ]
}

/// The expected records, oldest first.
#[derive(Default)]
struct Model(Vec<Entry>);

#[derive(Clone, Debug, PartialEq)]
struct Entry {
    account: u8,
    id: u8,
    stored_ms: i64,
}

impl Model {
    fn store(&mut self, account: u8, id: u8, now_ms: i64) {
        self.0.retain(|entry| !expired(entry, now_ms));
        if self.0.iter().any(|entry| entry.id == id) {
            return;
        }
        let stored_ms = now_ms;
        self.0.push(Entry {
            account,
            id,
            stored_ms,
        });
        if self.held_by(account) > 3 {
            self.remove_oldest_of(account);
        }
        if self.0.len() > 6 {
            // The list is in order of age, so among equal accounts the one with the oldest record is found first.
            let most = self.0.iter().map(|entry| self.held_by(entry.account)).max();
            let first = self
                .0
                .iter()
                .position(|entry| Some(self.held_by(entry.account)) == most);
            self.0.remove(first.unwrap());
        }
    }

    fn held_by(&self, account: u8) -> usize {
        let of_account = |entry: &&Entry| entry.account == account;
        self.0.iter().filter(of_account).count()
    }

    fn remove_oldest_of(&mut self, account: u8) {
        let oldest = self.0.iter().position(|entry| entry.account == account);
        self.0.remove(oldest.unwrap());
    }

    fn position(&self, account: u8, id: u8, now_ms: i64) -> Option<usize> {
        self.0
            .iter()
            .position(|entry| entry.account == account && entry.id == id && !expired(entry, now_ms))
    }
}

fn expired(entry: &Entry, now_ms: i64) -> bool {
    now_ms - entry.stored_ms >= 10
}

/// The stored records that are not expired, oldest first.
async fn rows(given: &Given, reader: &Reader) -> Vec<Entry> {
    let now_ms = given.now_ms.load(Relaxed);
    let rows = reader.rows().await.into_iter();
    let entries = rows.map(|(account_id, id, stored_ms)| Entry {
        account: account_id.parse().unwrap(),
        id: id.parse().unwrap(),
        stored_ms,
    });
    entries.filter(|entry| !expired(entry, now_ms)).collect()
}

/// Waits until the tables exist.
async fn until_opened(given: &Given) {
    given.has("0", "0").await;
}

async fn check(kind: Kind, operations: Vec<Operation>) -> Result<(), TestCaseError> {
    let mut given = Given::with(kind, SMALL);
    let mut model = Model::default();
    until_opened(&given).await;
    let reader = given.reader().await;
    for operation in operations {
        let now_ms = given.now_ms.load(Relaxed);
        match operation {
            Operation::Store { account, id } => {
                given.store(&account.to_string(), &id.to_string()).await;
                model.store(account, id, now_ms);
            }
            Operation::Find { account, id } => {
                let found = given.has(&account.to_string(), &id.to_string()).await;
                prop_assert_eq!(found, model.position(account, id, now_ms).is_some());
            }
            Operation::Delete { account, id } => {
                let (account_id, response_id) = (account.to_string(), id.to_string());
                let deleted = given.conversations.delete(&account_id, &response_id);
                let known = model.position(account, id, now_ms);
                prop_assert_eq!(deleted.await.unwrap(), known.is_some());
                known.map(|position| model.0.remove(position));
            }
            Operation::Advance { ms } => {
                given.advance(ms);
                model.0.retain(|entry| !expired(entry, now_ms + ms));
            }
            Operation::Restart => {
                given = given.restart();
                until_opened(&given).await;
            }
        }
        prop_assert_eq!(rows(&given, &reader).await, model.0.clone());
    }
    Ok(())
}

fn run(kind: Kind, operations: Vec<Operation>) -> Result<(), TestCaseError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.unwrap().block_on(check(kind, operations))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn sqlite_has_the_records_of_the_model(
        operations in proptest::collection::vec(operation(), 1..60),
    ) {
        run(Kind::Sqlite, operations)?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn postgres_has_the_records_of_the_model(
        operations in proptest::collection::vec(operation(), 1..60),
    ) {
        run(Kind::Postgres, operations)?;
    }
}
