//! Fills a ledger with a million requests, held and charged as usual, spread over ninety days.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicUsize, Ordering::Relaxed},
    },
    time::Instant,
};

use tollgate::{
    base::{clock::Clock, durability::Durability},
    catalog::{Catalog, Model},
    ledger::{Caller, Ledger, Outcome},
};

use crate::{
    postgres_server::PostgresServer,
    support::{USAGE, customer, hold_request},
};

const REQUESTS: usize = 1_000_000;
const OTHERS: usize = 200;
const KEYS: usize = 10;
const MODELS: [&str; 4] = [
    "svc-standard",
    "svc-basic",
    "svc-native-fast",
    "svc-native-pro",
];
const AT_ONCE: usize = 256;
/// Milliseconds between two requests: ninety days in all.
const APART_MS: i64 = 7_776;
const QUARTER_MS: i64 = 7_776_000_000;
/// Failing requests per hundred.
const FAILED: usize = 2;

pub struct Filled {
    /// The account with half of all requests, and one of its keys.
    pub large: String,
    pub key: String,
}

/// A ledger in a file, with a clock that advances from request to request.
pub async fn fill_file(path: &Path) -> Filled {
    let now_ms = Clock::System.now_ms() - QUARTER_MS;
    let now_ms = Arc::new(AtomicI64::new(now_ms));
    let clock = Clock::Manual(now_ms.clone());
    let ledger = Ledger::open_at(path, Durability::Process, clock).unwrap();
    fill(ledger, Some(now_ms)).await
}

pub async fn fill(ledger: Ledger, clock: Option<Arc<AtomicI64>>) -> Filled {
    let (ledger, started) = (Arc::new(ledger), Instant::now());
    let large = callers(&ledger, "large@example.com", KEYS).await;
    let mut others = Vec::new();
    for number in 0..OTHERS {
        let email = format!("reader{number}@example.com");
        others.extend(callers(&ledger, &email, 1).await);
    }
    let filled = Filled {
        large: large[0].account_id.clone(),
        key: large[1].payer.key_id.clone(),
    };
    let catalog = Catalog::built_in();
    let models: Vec<_> = MODELS.iter().filter_map(|id| catalog.find(id)).collect();
    let models: Arc<[Arc<Model>]> = models.into_iter().cloned().collect();
    let (large, others): (Arc<[_]>, Arc<[_]>) = (large.into(), others.into());
    let next = Arc::new(AtomicUsize::new(0));
    let asking: Vec<_> = (0..AT_ONCE)
        .map(|_| {
            let (ledger, models, next) = (ledger.clone(), models.clone(), next.clone());
            let (large, others, clock) = (large.clone(), others.clone(), clock.clone());
            tokio::spawn(async move {
                loop {
                    let number = next.fetch_add(1, Relaxed);
                    if number >= REQUESTS {
                        return;
                    }
                    let half = number / 2;
                    let caller = if number % 2 == 0 {
                        &large[half % large.len()]
                    } else {
                        &others[half % others.len()]
                    };
                    let model = &models[half / KEYS % models.len()];
                    if let Some(now_ms) = &clock {
                        now_ms.fetch_add(APART_MS, Relaxed);
                    }
                    one(&ledger, caller, model, number).await;
                    if number.is_multiple_of(REQUESTS / 10) {
                        let per_cent = number / (REQUESTS / 100);
                        eprintln!("{per_cent:3} % filled after {:.0?}", started.elapsed());
                    }
                }
            })
        })
        .collect();
    for asking in asking {
        asking.await.unwrap();
    }
    ledger.close().await;
    println!("{REQUESTS} requests, filled in {:.0?}", started.elapsed());
    filled
}

/// The keys of a new account.
async fn callers(ledger: &Ledger, email: &str, keys: usize) -> Vec<Caller> {
    let customers = customer(ledger, email, keys).await;
    customers.into_iter().map(|(caller, _)| caller).collect()
}

async fn one(ledger: &Arc<Ledger>, caller: &Caller, model: &Model, number: usize) {
    let request_id = format!("req_{number:024}");
    let held = ledger.hold(hold_request(ledger.next_call(), caller, model, &request_id));
    let mut held = held.await.expect("there is credit");
    if number % 100 < FAILED {
        held.release(Outcome::ProviderFailed, Some("HTTP 500".into()));
        return;
    }
    // A charge whose outcome is unknown is retried.
    while held.charge(USAGE, Outcome::Answered).await.is_err() {}
}

/// Spreads requests, in their order, over ninety days, after the accounts were created; the daily sums follow.
const SPREAD: &str = "UPDATE accounts SET created_at = created_at - 7776000;
    UPDATE credit_grants SET created_at = created_at - 7776000;
    UPDATE ledger_entries SET at = at - 7776000;
    CREATE TABLE placed AS SELECT id, row_number() OVER (ORDER BY id) * 7776 AS later FROM calls;
    CREATE UNIQUE INDEX placed_by_id ON placed (id);
    UPDATE calls SET
       admitted_at_ms = admitted_at_ms - 7776000000 + (SELECT later FROM placed WHERE placed.id = calls.id),
       ended_at_ms = ended_at_ms - 7776000000 + (SELECT later FROM placed WHERE placed.id = calls.id);
    DROP TABLE placed;
    DELETE FROM usage_days;
    INSERT INTO usage_days
    SELECT account_id, to_char(to_timestamp(ended_at_ms / 1000) AT TIME ZONE 'UTC', 'YYYY-MM-DD'), model, key_id,
       coalesce(project_id, 'default'), count(*), count(cost_nano_usd), coalesce(sum(prompt_tokens), 0), coalesce(sum(cached_tokens), 0),
       coalesce(sum(cache_write_tokens), 0), coalesce(sum(completion_tokens), 0), coalesce(sum(reasoning_tokens), 0),
       coalesce(sum(cost_nano_usd), 0), count(provider_cost_nano_usd), coalesce(sum(provider_cost_nano_usd), 0),
       coalesce(sum(coalesce(cost_nano_usd, 0) - provider_cost_nano_usd), 0), max(ended_at_ms)
    FROM calls GROUP BY 1, 2, 3, 4, 5 ORDER BY 2, 1;";

pub fn spread_on_server(postgres: &PostgresServer, database: &str) {
    postgres.psql(database, SPREAD);
    postgres.psql(database, "VACUUM ANALYZE");
}
