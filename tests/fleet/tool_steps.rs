//! A store that is lost between two steps of a request: no further request goes to the provider, and nothing is
//! charged.

use crate::{
    gateways::{Fleet, MODEL, Servers, Store, TIMEOUT, assert_store_refusal, outcome_of, within},
    support::{
        Gate,
        gateway::hello,
        turns::{CONVERT, Turn},
    },
};

async fn lost_between_steps(store: Store) {
    let servers = Servers::start().await;
    let fleet = Fleet::on(servers.stores(), 2).await;
    let account = fleet.account("10").await;
    for (round, stream) in [false, true].into_iter().enumerate() {
        let (gate, before) = (Gate::default(), fleet.upstream.calls());
        fleet
            .upstream
            .converse([Turn::calls(&[CONVERT]).after(&gate), Turn::says("Never")]);
        let mut body = hello(MODEL);
        body["stream"] = stream.into();
        let url = format!("http://{}/v1/chat/completions", fleet.gateways[0].public);
        let request = fleet.client.post(url).bearer_auth(&account.key).json(&body);
        let asking = tokio::spawn(outcome_of(request));
        let reached = async || fleet.upstream.calls() > before;
        within(TIMEOUT, "the provider gets the request", reached).await;
        servers.kill(store).await;
        fleet.until_health(503).await;
        gate.open();
        let refused = asking.await.unwrap();
        assert_store_refusal(
            refused.refusal(),
            "server_error",
            "admission_state_unavailable",
        );
        assert_eq!(
            fleet.upstream.calls(),
            before + 1,
            "no further request is sent"
        );
        servers.start_again(store).await;
        fleet.upstream.converse([Turn::says("Hi")]);
        fleet.until_answering(&account).await;
        fleet.until_charged(1, &account, 2 * (round + 1), 0).await;
    }
    fleet.ends_clean().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_lost_between_two_steps_ends_the_request() {
    lost_between_steps(Store::Redis).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn postgres_lost_between_two_steps_ends_the_request() {
    lost_between_steps(Store::Postgres).await;
}
