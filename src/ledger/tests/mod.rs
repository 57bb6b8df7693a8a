//! Tests of both ledgers as a whole: with real files, a real server, and threads.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicI64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use tempfile::TempDir;

use super::{
    BudgetChange, BudgetScope, Call, CallId, CallsPage, DayUse, Held, HoldRefused, HoldRequest,
    Ledger, LedgerError, MAX_KEYS, NewAccount, NewGrant, Outcome, Payer, Period, Schedule, Seen,
    SumsOf,
    embedded::Embedded,
    postgres::{self, Shared},
};
use crate::{
    base::{
        clock::Clock,
        durability::Durability,
        keys::KeyDigest,
        money::{NanoUsd, TokenPrice},
    },
    catalog::{Prices, Tier, Track},
    db::{postgres::Address, testing::postgres_server::PostgresServer},
    wire::chat::Usage,
};

/// Runs each case on both backends.
macro_rules! contract {
    ($($case:ident),+ $(,)?) => {
        mod embedded {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $case() { super::$case(super::TestStore::folder()).await; })+
        }
        mod postgres {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $case() { super::$case(super::TestStore::database()).await; })+
        }
    };
}

mod contract;
mod contract_account_days;
mod contract_accounts;
mod contract_budget_periods;
mod contract_budgets;
mod contract_days;
mod contract_filters;
mod contract_idempotency;
mod contract_key_terms;
mod contract_keys;
mod contract_pages;
mod contract_pending;
mod contract_prune;
mod contract_rotation;
mod contract_seen;
mod contract_sessions;
mod contract_watched;
mod machine;
mod model;

pub(crate) const COST: i64 = 49_000;
pub(crate) const DOLLAR: i64 = 1_000_000_000;
/// Long, because a machine that builds at the same time is slow.
pub(crate) const TIMEOUT: Duration = Duration::from_mins(1);

/// The store of a test's ledger.
pub(crate) enum TestStore {
    Folder(TempDir),
    Database {
        server: &'static PostgresServer,
        name: String,
    },
}

impl TestStore {
    pub(crate) fn folder() -> Self {
        Self::Folder(TempDir::new().unwrap())
    }

    /// A database of the server that all tests share, with tables and without rows.
    pub(crate) fn database() -> Self {
        let server = PostgresServer::shared();
        Self::at(server, &server.copy_of(create_tables))
    }

    /// An empty database.
    pub(crate) fn database_of(server: &'static PostgresServer) -> Self {
        Self::at(server, &server.database())
    }

    fn at(server: &'static PostgresServer, url: &str) -> Self {
        let name = url.rsplit('/').next().unwrap().to_owned();
        Self::Database { server, name }
    }

    pub(crate) fn address(&self) -> Address {
        match self {
            Self::Folder(_) => unreachable!("a file has no address"),
            Self::Database { server, name } => Address::parse(&server.url(name)).unwrap(),
        }
    }

    pub(crate) async fn open(&self, now_ms: &Arc<AtomicI64>) -> Arc<Ledger> {
        let clock = Clock::Manual(now_ms.clone());
        Arc::new(match self {
            Self::Folder(folder) => {
                let path = folder.path().join("ledger.db");
                let opened = Embedded::open_at(&path, Durability::Process, clock);
                Ledger::Embedded(opened.unwrap())
            }
            Self::Database { .. } => {
                let deadline = Duration::from_secs(10);
                let opened = Shared::open(self.address(), Durability::Power, deadline, clock);
                Ledger::Shared(opened.await.unwrap())
            }
        })
    }

    /// Changes or reads the database directly, without the ledger; returns the first value.
    pub(crate) fn sql(&self, script: &str) -> String {
        match self {
            Self::Folder(folder) => {
                let file = rusqlite::Connection::open(folder.path().join("ledger.db")).unwrap();
                if !script.starts_with("SELECT") {
                    file.execute_batch(script).unwrap();
                    return String::new();
                }
                let text = format!("SELECT CAST(({script}) AS TEXT)");
                file.query_row(&text, [], |row| row.get(0)).unwrap()
            }
            Self::Database { server, name } => server.psql(name, script),
        }
    }
}

fn create_tables(url: &str) {
    let address = Address::parse(url).unwrap();
    // On a thread of its own, because this one may be running a test's tasks.
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let runtime = tokio::runtime::Runtime::new().unwrap();
            drop(runtime.block_on(postgres::connect(&address)).unwrap());
        });
    });
}

/// An account with a key and a ledger, and a clock that the test advances.
pub(crate) struct Paying {
    pub store: Arc<TestStore>,
    pub now_ms: Arc<AtomicI64>,
    pub ledger: Arc<Ledger>,
    pub account_id: String,
    pub key_id: String,
    pub payer: Arc<Payer>,
    pub digest: KeyDigest,
    seen: Mutex<Seen>,
}

impl Paying {
    pub(crate) async fn on(store: TestStore) -> Self {
        let now_ms = Arc::new(AtomicI64::new(1_800_000_000_000));
        let ledger = store.open(&now_ms).await;
        let account_id = ledger.create_account(new_account()).await.unwrap().id;
        let (key, _) = ledger
            .create_key(&account_id, "test".into(), MAX_KEYS)
            .await
            .unwrap();
        let paying = Self {
            store: Arc::new(store),
            now_ms,
            ledger,
            account_id,
            key_id: key.id,
            payer: key.payer,
            digest: key.digest,
            seen: Mutex::new(Seen::fresh()),
        };
        paying.refresh().await;
        paying
    }

    pub(crate) async fn on_with(store: TestStore, nanos: i64) -> Self {
        let paying = Self::on(store).await;
        paying.give(nanos, None).await;
        paying
    }

    /// This account and key at another gateway.
    pub(crate) async fn beside(&self) -> Self {
        self.with(self.store.open(&self.now_ms).await)
    }

    pub(crate) fn with(&self, ledger: Arc<Ledger>) -> Self {
        Self {
            store: self.store.clone(),
            now_ms: self.now_ms.clone(),
            ledger,
            account_id: self.account_id.clone(),
            key_id: self.key_id.clone(),
            payer: self.payer.clone(),
            digest: self.digest,
            seen: Mutex::new(*self.seen.lock().unwrap()),
        }
    }

    /// Another account with a key and credit, at this gateway.
    pub(crate) async fn neighbour(&self, nanos: i64) -> Self {
        let account = self.ledger.create_account(new_account()).await.unwrap();
        let made = self
            .ledger
            .create_key(&account.id, "test".into(), MAX_KEYS)
            .await;
        let (key, _) = made.unwrap();
        let neighbour = Self {
            account_id: account.id,
            key_id: key.id,
            payer: key.payer,
            digest: key.digest,
            ..self.with(self.ledger.clone())
        };
        neighbour.refresh().await;
        neighbour.give(nanos, None).await;
        neighbour
    }

    /// Restarts the ledger, as a new process would.
    pub(crate) async fn restart(self) -> Self {
        self.restart_after(|| ()).await
    }

    /// Restarts the ledger, with something that happens while it is closed.
    pub(crate) async fn restart_after(self, meanwhile: impl FnOnce()) -> Self {
        self.ledger.close().await;
        let (store, now_ms) = (self.store.clone(), self.now_ms.clone());
        let (account_id, key_id) = (self.account_id, self.key_id);
        drop(Arc::into_inner(self.ledger).expect("nothing is held any more"));
        meanwhile();
        Self {
            ledger: store.open(&now_ms).await,
            store,
            now_ms,
            account_id,
            key_id,
            payer: self.payer,
            digest: self.digest,
            seen: self.seen,
        }
    }

    /// Looks the caller up again. If the key is inactive, the versions stay as they were.
    pub(crate) async fn refresh(&self) {
        if let Some(caller) = self.ledger.fresh_caller(self.digest).await.unwrap() {
            // As a later request would find it in the cache.
            let fresh = false;
            *self.seen.lock().unwrap() = Seen {
                fresh,
                ..caller.seen
            };
        }
    }

    pub(crate) async fn give(&self, nanos: i64, expires_at: Option<i64>) {
        let grant = NewGrant {
            amount: NanoUsd::new(nanos),
            expires_at,
            reason: None,
            reference: None,
        };
        let given = self.ledger.add_grant(&self.account_id, grant).await;
        given.unwrap();
    }

    pub(crate) fn request(&self, amount: i64, worst: i64, overdraft: i64) -> HoldRequest<'_> {
        HoldRequest {
            id: self.ledger.next_call(),
            seen: *self.seen.lock().unwrap(),
            reservations: &[],
            request_id: "req_test",
            account_id: &self.account_id,
            payer: &self.payer,
            secret: self.digest,
            model: "svc-standard",
            routed_model: "svc-standard",
            // A nano-dollar a token.
            prices: Arc::new(Prices::flat(
                TokenPrice::from_picos(1_000),
                TokenPrice::default(),
                TokenPrice::default(),
            )),
            stream: false,
            reserved_tokens: 1,
            amount: NanoUsd::new(amount),
            worst: NanoUsd::new(worst),
            decision: None,
            agent: None,
            idempotency: None,
            overdraft: NanoUsd::new(overdraft),
        }
    }

    /// Places a hold as a request does: with cached data, and once more if that was stale.
    pub(crate) async fn hold(
        &self,
        amount: i64,
        worst: i64,
        overdraft: i64,
    ) -> Result<Held, HoldRefused> {
        let request = self.request(amount, worst, overdraft);
        match self.ledger.hold(request).await {
            Err(HoldRefused::Stale) => {
                self.refresh().await;
                let request = self.request(amount, worst, overdraft);
                self.ledger.hold(request).await
            }
            other => other,
        }
    }

    pub(crate) async fn pay(&self) -> Result<Call, LedgerError> {
        let mut held = self.hold(COST, COST, 0).await.expect("there is credit");
        charge(&mut held, COST).await
    }

    pub(crate) fn now(&self) -> i64 {
        self.ledger.clock().now()
    }

    pub(crate) fn advance(&self, seconds: i64) {
        self.now_ms.fetch_add(seconds * 1_000, Relaxed);
    }

    pub(crate) async fn balance(&self) -> i64 {
        let balances = self.ledger.balances(&self.account_id).await;
        balances.unwrap().balance.nanos()
    }

    pub(crate) async fn held(&self) -> i64 {
        let balances = self.ledger.balances(&self.account_id).await;
        balances.unwrap().held.nanos()
    }

    pub(crate) async fn assert_sound(&self) {
        let audit = self.ledger.audit().await.unwrap();
        assert_eq!(audit.violations, []);
    }

    /// Checks that all sums by day are those of the account's calls.
    pub(crate) async fn assert_added_up(&self) {
        let page = CallsPage {
            account_id: Some(&self.account_id),
            limit: usize::MAX,
            ..CallsPage::default()
        };
        let calls = self.ledger.calls_page(&page).await.unwrap().calls;
        assert_eq!(self.days().await, added_up(&calls));
    }

    /// The sums of all days.
    pub(crate) async fn days(&self) -> Vec<DayUse> {
        let days = self
            .ledger
            .usage_days(&self.account_id, ("", "9999"), SumsOf::Each)
            .await;
        days.unwrap()
    }

    pub(crate) fn sql(&self, script: &str) -> String {
        self.store.sql(script)
    }

    pub(crate) async fn until_charges_are_taken(&self) {
        let started = Instant::now();
        while !self.ledger.health().takes_charges() {
            assert!(started.elapsed() < TIMEOUT, "timed out");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

/// The call IDs of all pages, in order.
pub(crate) async fn walk(ledger: &Ledger, page: CallsPage<'_>) -> Vec<CallId> {
    let (mut page, mut ids) = (page, Vec::new());
    loop {
        let found = ledger.calls_page(&page).await.unwrap();
        assert!(found.calls.len() <= page.limit);
        ids.extend(found.calls.iter().map(|call| call.id));
        let is_full = found.calls.len() >= page.limit;
        let last = found.calls.last().filter(|_| is_full);
        let last = last.map(|call| (call.ended_ms, call.id));
        let searched_to = found.searched_to_ms.map(|ms| (ms, CallId(0)));
        page.before = last.or(searched_to);
        if page.before.is_none() {
            return ids;
        }
    }
}

/// A hard budget of the whole account, in UTC.
pub(crate) fn budget_of_account(account_id: &str, period: Period, nanos: i64) -> BudgetChange {
    BudgetChange {
        account_id: account_id.to_owned(),
        scope: BudgetScope::Account,
        scope_id: account_id.to_owned(),
        name: "test".into(),
        amount: NanoUsd::new(nanos),
        schedule: Schedule::new(period, None, None).unwrap(),
        hard: true,
        thresholds: vec![50, 80, 100],
    }
}

/// Charges as a call does: waits for a charge in flight.
pub(crate) async fn charge(held: &mut Held, cost: i64) -> Result<Call, LedgerError> {
    charge_for(held, tokens(cost), Outcome::Answered).await
}

pub(crate) async fn charge_for(
    held: &mut Held,
    usage: Usage,
    outcome: Outcome,
) -> Result<Call, LedgerError> {
    let started = Instant::now();
    loop {
        match held.charge(usage, outcome).await {
            Err(LedgerError::Unavailable) if started.elapsed() < TIMEOUT => {}
            other => return other,
        }
    }
}

/// Sums of calls by day, model and key.
fn added_up(calls: &[Call]) -> Vec<DayUse> {
    let mut days = BTreeMap::new();
    for call in calls {
        let ended = time::OffsetDateTime::from_unix_timestamp(call.ended_ms / 1_000);
        let day = ended.unwrap().date().to_string();
        let project_id = call.payer.project().to_owned();
        let of = (
            day.clone(),
            call.model.clone(),
            call.payer.key_id.clone(),
            project_id.clone(),
        );
        let sum = days.entry(of).or_insert_with(|| DayUse {
            day,
            key_id: call.payer.key_id.clone(),
            project_id,
            model: call.model.clone(),
            calls: 0,
            charged: 0,
            prompt: 0,
            cached: 0,
            completion: 0,
            reasoning: 0,
            cost: NanoUsd::default(),
            last_ms: 0,
        });
        sum.calls += 1;
        sum.last_ms = sum.last_ms.max(call.ended_ms);
        if let Some(charged) = call.charged {
            sum.charged += 1;
            sum.prompt += u64::from(charged.usage.prompt);
            sum.cached += u64::from(charged.usage.cached);
            sum.completion += u64::from(charged.usage.completion);
            sum.reasoning += u64::from(charged.usage.reasoning);
            sum.cost = sum.cost.checked_add(charged.cost).unwrap();
        }
    }
    days.into_values().collect()
}

/// Waits until a condition holds.
pub(crate) async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let started = Instant::now();
    while !is_so().await {
        assert!(
            started.elapsed() < TIMEOUT,
            "timed out waiting until {what}"
        );
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

pub(crate) fn new_account() -> NewAccount {
    NewAccount {
        email: "a@example.com".into(),
        name: None,
        track: Track::Business,
        tier: Tier::Flex,
    }
}

/// A usage that costs this many nano-dollars.
pub(crate) fn tokens(cost: i64) -> Usage {
    Usage {
        prompt: u32::try_from(cost).unwrap(),
        ..Usage::default()
    }
}
