//! Replies of a store that are lost after the step was done: there is one hold, at most one charge, and one
//! reservation in the window.

use reqwest::Method;
use serde_json::Value;

use crate::{
    gateways::{
        Account, Fleet, MODEL, Outcome, Servers, TIMEOUT, outcome_of, store_refusal_is_wrong,
        within,
    },
    support::{FaultProxy, Gate, gateway::hello, proxy::Mode, turns::Turn},
};

/// Two gateways; the first reaches a store through a proxy that can drop replies, the second directly.
struct Lossy {
    fleet: Fleet,
    proxy: FaultProxy,
    account: Account,
    _servers: Servers,
}

impl Lossy {
    async fn to_postgres() -> Self {
        let servers = Servers::start().await;
        let proxy = FaultProxy::start(([127, 0, 0, 1], servers.postgres.port()).into());
        let stores = servers.stores();
        let by_proxy = stores.postgres_by(proxy.address);
        Self::on(servers, proxy, stores, by_proxy).await
    }

    async fn to_redis() -> Self {
        let servers = Servers::start().await;
        let proxy = FaultProxy::start(servers.redis.address());
        let stores = servers.stores();
        let by_proxy = stores.redis_by(proxy.address);
        Self::on(servers, proxy, stores, by_proxy).await
    }

    async fn on(
        servers: Servers,
        proxy: FaultProxy,
        stores: crate::gateways::Stores,
        by_proxy: crate::gateways::Stores,
    ) -> Self {
        let mut fleet = Fleet::on(by_proxy, 1).await;
        fleet.add_on(&stores).await;
        let account = fleet.account("100").await;
        Self {
            fleet,
            proxy,
            account,
            _servers: servers,
        }
    }

    fn asking(&self, id: &str, stream: bool) -> tokio::task::JoinHandle<Outcome> {
        let mut body = hello(MODEL);
        body["stream"] = stream.into();
        let fleet = &self.fleet;
        let url = format!("http://{}/v1/chat/completions", fleet.gateways[0].public);
        let request = fleet.client.post(url).bearer_auth(&self.account.key);
        tokio::spawn(outcome_of(request.header("x-request-id", id).json(&body)))
    }

    /// Drops replies from now on; earlier requests have had theirs.
    fn lose_replies(&self) {
        self.proxy.set(Mode::DropReplies);
    }

    /// Forwards replies again and waits until the gateway serves requests; returns how many it served.
    async fn heal(&self) -> usize {
        self.proxy.set(Mode::Pass);
        self.fleet.until_answering(&self.account).await.0
    }
}

/// Whether the request was served; asserts that any other outcome is a refusal of §7.
fn is_answered(outcome: &Outcome) -> bool {
    match outcome {
        Outcome::Answered => true,
        Outcome::Refused(answer) => {
            assert_eq!(store_refusal_is_wrong(answer), None);
            false
        }
        Outcome::Broken(why) => panic!("{why}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hold_whose_reply_is_lost_is_one_hold_and_no_charge() {
    let lossy = Lossy::to_postgres().await;
    let mut answered = lossy.fleet.until_answering(&lossy.account).await.0;
    for round in 0..6 {
        let calls = lossy.fleet.upstream.calls();
        lossy.lose_replies();
        let outcome = lossy.asking(&format!("hold-{round}"), round % 2 == 0).await;
        assert!(!is_answered(&outcome.unwrap()), "the hold is not confirmed");
        assert_eq!(
            lossy.fleet.upstream.calls(),
            calls,
            "no request is sent to the provider"
        );
        answered += lossy.heal().await;
        let account = &lossy.account;
        lossy.fleet.until_charged(1, account, answered, 0).await;
    }
    lossy.fleet.ends_clean().await;
}

/// Drops the reply to the charge itself. In every other round replies return while the charge is being retried, in
/// the others only after the response.
#[tokio::test(flavor = "multi_thread")]
async fn a_charge_whose_reply_is_lost_is_one_charge_or_none() {
    let lossy = Lossy::to_postgres().await;
    let mut answered = lossy.fleet.until_answering(&lossy.account).await.0;
    for round in 0..8 {
        let (gate, calls) = (Gate::default(), lossy.fleet.upstream.calls());
        let turn = Turn::says("Hi").after(&gate);
        lossy.fleet.upstream.converse([turn]);
        let asking = lossy.asking(&format!("charge-{round}"), round % 2 == 0);
        let reached = async || lossy.fleet.upstream.calls() > calls;
        within(TIMEOUT, "the provider gets the request", reached).await;
        lossy.lose_replies();
        let sent = lossy.proxy.bytes().0;
        gate.open();
        if round % 4 < 2 {
            let charged = async || lossy.proxy.bytes().0 > sent;
            within(TIMEOUT, "the charge is on its way", charged).await;
            lossy.proxy.set(Mode::Pass);
        }
        answered += usize::from(is_answered(&asking.await.unwrap()));
        lossy.fleet.upstream.converse([Turn::says("Hi")]);
        answered += lossy.heal().await;
        let account = &lossy.account;
        lossy.fleet.until_charged(1, account, answered, 0).await;
    }
    lossy.fleet.ends_clean().await;
}

/// Cuts the connection to PostgreSQL at various bytes.
#[tokio::test(flavor = "multi_thread")]
async fn cutting_the_connection_to_postgres_anywhere_loses_nothing() {
    let lossy = Lossy::to_postgres().await;
    let mut answered = lossy.fleet.until_answering(&lossy.account).await.0;
    for round in 0..8 {
        // From the first bytes of a new connection to some way into its work.
        lossy.proxy.set(Mode::CutAfter(40 << round));
        let asking = (0..6).map(|number| {
            let id = format!("cut-{round}-{number}");
            lossy.asking(&id, number % 2 == 0)
        });
        for asking in asking.collect::<Vec<_>>() {
            answered += usize::from(is_answered(&asking.await.unwrap()));
        }
        answered += lossy.heal().await;
        let account = &lossy.account;
        lossy.fleet.until_charged(1, account, answered, 0).await;
    }
    lossy.fleet.ends_clean().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_admission_whose_reply_is_lost_is_at_most_one_reservation() {
    let lossy = Lossy::to_redis().await;
    let fleet = &lossy.fleet;
    let mut answered = fleet.until_answering(&lossy.account).await.0;
    let mut unsure = 0;
    for round in 0..6 {
        let calls = fleet.upstream.calls();
        lossy.lose_replies();
        let outcome = lossy
            .asking(&format!("admit-{round}"), round % 2 == 0)
            .await;
        let outcome = outcome.unwrap();
        assert!(!is_answered(&outcome), "the admission is not confirmed");
        let (kind, code) = crate::gateways::Store::Redis.refusal();
        let refusal = outcome.refusal();
        refusal.assert_error(503, kind, Some(code), None);
        assert_eq!(
            fleet.upstream.calls(),
            calls,
            "no request is sent to the provider"
        );
        unsure += 1;
        // Each request that fails before the recovery may also leave a reservation.
        lossy.proxy.set(Mode::Pass);
        fleet.until_health(200).await;
        answered += fleet.until_answering(&lossy.account).await.0;
        let counted = fleet.counted(1, &lossy.account).await;
        let (least, most) = (answered as u64, answered as u64 + unsure);
        assert!(
            (least..=most).contains(&counted),
            "{counted} of {least} to {most}"
        );
    }
    fleet.until_charged(1, &lossy.account, answered, 0).await;
    let audit = fleet.operate(1, Method::POST, "/operator/audit", Value::Null);
    assert_eq!(audit.await["ok"], true);
    lossy.fleet.ends_clean().await;
}
