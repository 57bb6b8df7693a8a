//! A gateway that is paused for longer than its lease and then resumes, as after heavy swapping or a suspended
//! machine.

use crate::{
    gateways::{Fleet, MODEL, Outcome, TIMEOUT, ask, eventually, store_refusal_is_wrong, within},
    support::{Gate, gateway::hello, turns::Turn},
};

const CALLS: usize = 10;

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_that_slept_through_its_lease_charges_nothing_twice() {
    let fleet = Fleet::of(2).await;
    let account = fleet.account("10").await;
    let gate = Gate::default();
    fleet.upstream.converse([Turn::says("Late").after(&gate)]);
    let running: Vec<_> = (0..CALLS)
        .map(|number| {
            let (client, public) = (fleet.client.clone(), fleet.gateways[0].public);
            let (key, mut body) = (account.key.clone(), hello(MODEL));
            body["stream"] = (number % 2 == 0).into();
            tokio::spawn(async move { ask(&client, public, &key, &body).await })
        })
        .collect();
    let reached = async || fleet.upstream.calls() == CALLS;
    within(TIMEOUT, "all are running", reached).await;
    fleet.gateways[0].process.signal("STOP");
    let freed = async || fleet.spent_and_held(1, &account).await == (0, 0);
    eventually("the other one has freed what was held", freed).await;
    // The provider responds while the gateway is paused.
    gate.open();
    fleet.gateways[0].process.signal("CONT");
    let mut answered = 0;
    for outcome in running {
        match outcome.await.unwrap() {
            Outcome::Answered => answered += 1,
            Outcome::Refused(answer) => assert_eq!(store_refusal_is_wrong(&answer), None),
            Outcome::Broken(why) => panic!("{why}"),
        }
    }
    println!("{answered} of {CALLS} were answered late");
    fleet.upstream.converse([Turn::says("Hi")]);
    let (more, _) = fleet.until_answering(&account).await;
    for at in 0..2 {
        fleet.until_charged(at, &account, answered + more, 0).await;
        let charged = fleet.charged(at, &account).await;
        assert_eq!(charged.len(), answered + more);
    }
    assert_eq!(fleet.upstream.calls(), CALLS + more, "one request each");
    fleet.ends_clean().await;
}
