//! Gateways that die, are paused for longer than their lease, or lose it.

use tokio::runtime::Runtime;

use super::{super::lease::Times, *};
use crate::db::testing::{fake_clock::FakeClock, postgres_server::PostgresServer};
use crate::ledger::{Period, tests::budget_of_account};

/// Long enough for a busy machine.
const QUICK: Times = Times {
    lease: Duration::from_secs(3),
    beat: Duration::from_millis(100),
};

/// A gateway with a short lease.
async fn quick(store: Arc<TestStore>, now_ms: Arc<AtomicI64>) -> Arc<Ledger> {
    let (address, clock) = (store.address(), Clock::Manual(now_ms));
    let deadline = Duration::from_secs(10);
    let opened = Shared::open_with(address, Durability::Power, deadline, clock, QUICK);
    Arc::new(Ledger::Shared(opened.await.unwrap()))
}

impl Paying {
    /// Replaces the gateway by one with a short lease, for the same account.
    async fn quickly(self) -> Self {
        self.ledger.close().await;
        self.with(quick(self.store.clone(), self.now_ms.clone()).await)
    }

    fn epoch(&self) -> i64 {
        self.shared().inner.lease.load().epoch
    }

    /// As if no gateway had renewed its lease for long, and another had noticed it.
    fn expire_leases(&self) {
        self.sql("DELETE FROM gateways; SELECT release_dead_holds(100)");
    }
}

#[tokio::test]
async fn a_call_whose_hold_was_released_is_charged_once_all_the_same() {
    let paying = with(DOLLAR).await;
    let mut held = paying.hold(COST, COST, 0).await.unwrap();
    paying.expire_leases();
    assert_eq!(paying.held().await, 0);
    let more = NanoUsd::new(2 * COST);
    let extended = held.extend(1, more, more, NanoUsd::new(0)).await;
    assert_eq!(extended, Err(HoldRefused::Unavailable));
    let call = charge(&mut held, COST).await.unwrap();
    paying.charge_again(&call).await;
    assert_eq!(paying.ledger.health().late_settlements.get(), 1);
    assert_eq!(
        (paying.balance().await, paying.held().await),
        (DOLLAR - COST, 0)
    );
    paying.assert_sound().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn holds_of_a_dead_gateway_are_released_by_another() {
    let one = with(DOLLAR).await.quickly().await;
    let doomed = Runtime::new().unwrap();
    let opened = doomed.spawn(quick(one.store.clone(), one.now_ms.clone()));
    let other = one.with(opened.await.unwrap());
    let mut held = Vec::new();
    for risk in 0..3 {
        held.push(other.hold(COST, COST + risk, COST).await.unwrap());
    }
    let mine = one.hold(COST, COST, 0).await.unwrap();
    assert_eq!(one.held().await, 4 * COST);
    doomed.shutdown_background();
    until("the holds are released", async || one.held().await == COST).await;
    one.assert_sound().await;
    drop((mine, held));
    assert_eq!((one.balance().await, one.held().await), (DOLLAR, 0));
    one.assert_sound().await;
}

/// A clock set forward ends no lease of a live gateway; one set back keeps none of a dead gateway.
#[tokio::test(flavor = "multi_thread")]
async fn leases_do_not_depend_on_the_clock_of_the_server() {
    let clock = OnceLock::new();
    let server = PostgresServer::own_in(&[], |folder| {
        let clock = clock.get_or_init(|| FakeClock::in_folder(folder));
        let variables = clock.environment();
        variables
            .map(|(name, value)| format!("{name}={value}"))
            .into()
    });
    let (server, clock): (&'static _, _) = (Box::leak(Box::new(server)), clock.get().unwrap());
    let one = Paying::on_with(TestStore::database_of(server), DOLLAR).await;
    let one = one.quickly().await;
    let doomed = Runtime::new().unwrap();
    let opened = doomed.spawn(quick(one.store.clone(), one.now_ms.clone()));
    let other = one.with(opened.await.unwrap());
    let held = [&one, &other].map(|gateway| gateway.hold(COST, COST, 0));
    let held = futures_util::future::join_all(held).await;
    let before = (one.epoch(), other.epoch());
    let both_beat = async |more: i64| {
        let fewest = || -> i64 { one.sql("SELECT min(beats) FROM gateways").parse().unwrap() };
        let before = fewest();
        until("both beat", async || fewest() >= before + more).await;
    };
    let noticed = async |jumps| {
        let jumped = async || {
            let seen = [&one, &other].map(|gateway| gateway.ledger.health().clock_jumps.get());
            seen == [jumps, jumps]
        };
        until("noticed", jumped).await;
    };
    // A jump is noticed by comparison: the second beat is sent when the clock of the first was kept.
    both_beat(2).await;
    clock.set(3_600);
    noticed(1).await;
    both_beat(4).await;
    assert_eq!((one.epoch(), other.epoch()), before);
    assert_eq!(one.held().await, 2 * COST);
    clock.set(-3_600);
    noticed(2).await;
    doomed.shutdown_background();
    until("the dead one's hold is released", async || {
        one.held().await == COST
    })
    .await;
    assert_eq!(one.epoch(), before.0);
    drop(held);
    one.assert_sound().await;
}

/// The credit of its running calls is available to others meanwhile. Holds whose credit is left are renewed; the call
/// whose credit was spent is charged late, and counted as such.
#[tokio::test]
async fn a_gateway_that_was_paused_renews_the_holds_of_its_running_calls() {
    let paying = with(2 * COST).await;
    let mut first = paying.hold(COST, COST, 0).await.unwrap();
    let mut second = paying.hold(COST, COST, 0).await.unwrap();
    let other = paying.beside().await;
    paying.sql("DELETE FROM gateways WHERE slot = (SELECT min(slot) FROM gateways)");
    other.sql("SELECT release_dead_holds(100)");
    other.pay().await.unwrap();
    paying.shared().inner.lease_needed.notify_one();
    until("one is held again", async || paying.held().await == COST).await;
    let late = &paying.ledger.health().late_settlements;
    for held in [&mut first, &mut second] {
        charge(held, COST).await.unwrap();
    }
    assert_eq!(late.get(), 1);
    assert_eq!((paying.balance().await, paying.held().await), (-COST, 0));
    paying.assert_sound().await;
}

#[tokio::test]
async fn a_gateway_whose_lease_expired_takes_a_new_one() {
    let paying = with(DOLLAR).await;
    let before = **paying.shared().inner.lease.load();
    let running = paying.hold(COST, COST, 0).await.unwrap();
    paying.expire_leases();
    // Another gateway takes its slot meanwhile.
    let other = paying.beside().await;
    paying.pay().await.unwrap();
    let after = **paying.shared().inner.lease.load();
    assert_ne!(before.epoch, after.epoch);
    let others = **other.shared().inner.lease.load();
    assert_ne!(after.slot, others.slot);
    other.pay().await.unwrap();
    drop(running);
    assert_eq!(
        (paying.balance().await, paying.held().await),
        (DOLLAR - 2 * COST, 0)
    );
    paying.assert_sound().await;
}

#[tokio::test]
async fn a_gateway_that_stops_ends_its_lease() {
    let paying = with(DOLLAR).await;
    let held = paying.hold(COST, COST, 0).await.unwrap();
    drop(held);
    paying.ledger.close().await;
    let left = "SELECT (SELECT count(*) FROM gateways) + (SELECT count(*) FROM lanes)
        + (SELECT count(*) FROM holds)";
    assert_eq!(paying.sql(left), "0");
}

/// A call of yesterday goes on after its gateway has got a new lease, and today's budget does not count it.
#[tokio::test(flavor = "multi_thread")]
async fn renewed_holds_count_in_the_periods_of_budgets_in_which_they_were_held() {
    let paying = with(DOLLAR).await.quickly().await;
    for period in [Period::Day, Period::Month] {
        let change = budget_of_account(&paying.account_id, period, 100);
        paying.ledger.set_budget(change).await.unwrap();
    }
    let counted = async || {
        let budgets = paying.ledger.budgets(&paying.account_id).await.unwrap();
        let counted = budgets.iter().map(|it| (it.spent.nanos(), it.held.nanos()));
        counted.collect::<Vec<_>>()
    };
    let mut of_yesterday = paying.hold(40, 50, 100).await.unwrap();
    paying.advance(86_400);
    let mut of_today = paying.hold(30, 30, 0).await.unwrap();
    assert_eq!(counted().await, [(0, 30), (0, 70)]);
    for _ in 0..2 {
        let epoch = paying.epoch();
        paying.sql("DELETE FROM gateways");
        let renewed = format!("SELECT count(*) FROM holds WHERE epoch > {epoch}");
        until("the holds are renewed", async || {
            paying.sql(&renewed) == "2"
        })
        .await;
        assert_eq!(counted().await, [(0, 30), (0, 70)]);
        paying.assert_sound().await;
    }
    charge(&mut of_yesterday, 45).await.unwrap();
    charge(&mut of_today, 30).await.unwrap();
    assert_eq!(counted().await, [(30, 0), (75, 0)]);
    paying.assert_sound().await;
}

/// What a dead gateway held is released from budgets, and its late charges count.
#[tokio::test]
async fn dead_gateways_hold_nothing_of_budgets() {
    let paying = with(DOLLAR).await;
    let change = budget_of_account(&paying.account_id, Period::Day, 3 * COST);
    paying.ledger.set_budget(change).await.unwrap();
    let mut held = paying.hold(COST, 2 * COST, COST).await.unwrap();
    paying.expire_leases();
    let counted = async || {
        let budgets = paying.ledger.budgets(&paying.account_id).await.unwrap();
        (budgets[0].spent.nanos(), budgets[0].held.nanos())
    };
    assert_eq!(counted().await, (0, 0));
    charge(&mut held, COST).await.unwrap();
    assert_eq!(counted().await, (COST, 0));
    paying.assert_sound().await;
}
