//! Killed gateways: their holds are released within 30 seconds, nothing is charged twice, and every delivered
//! response is charged.

use std::time::Duration;

use tollgate::base::failpoint;

use crate::{
    gateways::{Fleet, Outcome, ask, within},
    gateways::{MODEL, TIMEOUT},
    load::{Addresses, Load},
    support::{Gate, gateway::hello, turns::Turn},
};

/// The lease promises that a dead gateway's holds are released after this time.
const RELEASED_WITHIN: Duration = Duration::from_secs(30);
const HELD: usize = 10;

#[tokio::test(flavor = "multi_thread")]
async fn holds_of_a_killed_gateway_are_released_by_the_others() {
    let mut fleet = Fleet::of(2).await;
    let account = fleet.account("10").await;
    let never = Gate::default();
    fleet.upstream.converse([Turn::says("Never").after(&never)]);
    let running: Vec<_> = (0..HELD)
        .map(|number| {
            let (client, public) = (fleet.client.clone(), fleet.gateways[0].public);
            let (key, mut body) = (account.key.clone(), hello(MODEL));
            body["stream"] = (number % 2 == 0).into();
            tokio::spawn(async move { ask(&client, public, &key, &body).await })
        })
        .collect();
    let reached = async || fleet.upstream.calls() == HELD;
    within(TIMEOUT, "all are running", reached).await;
    let (_, held) = fleet.spent_and_held(1, &account).await;
    assert!(held > 0, "the other gateway sees what is held");
    let killed = fleet.gateways.remove(0);
    killed.process.signal("KILL");
    let freed = async || fleet.spent_and_held(0, &account).await == (0, 0);
    let took = within(RELEASED_WITHIN, "nothing is held any more", freed).await;
    println!("freed after {took:?}");
    for outcome in running {
        assert!(matches!(outcome.await.unwrap(), Outcome::Broken(_)));
    }
    drop(killed);
    fleet.upstream.converse([Turn::says("Hi")]);
    fleet.ask(0, &account).await.assert_answered();
    fleet.until_charged(0, &account, 1, 0).await;
    fleet.ends_clean().await;
}

/// Kills one gateway after another, and starts a new one in place of each.
#[tokio::test(flavor = "multi_thread")]
async fn gateways_are_killed_under_load() {
    let mut fleet = Fleet::of(3).await;
    let account = fleet.account("1000").await;
    let addresses = Addresses::of(&fleet);
    let load = Load::start(&fleet, &addresses, &account, 0);
    for round in 0..6 {
        load.until_more(25).await;
        let killed = fleet.gateways.remove(round % 3);
        killed.process.signal("KILL");
        let next = fleet.one_more().await;
        addresses.replace(killed.public, next.public);
        fleet.gateways.insert(round % 3, next);
    }
    load.until_more(25).await;
    let tally = load.end().await;
    let answered = tally.answered.len();
    println!("{answered} answered, {} broken", tally.broken);
    assert_eq!(tally.refused, 0, "the stores were there all the time");
    fleet
        .until_charged(0, &account, answered, tally.broken)
        .await;
    let charged = fleet.charged(1, &account).await;
    for id in &tally.answered {
        assert!(charged.contains(id), "{id} was answered and is not charged");
    }
    fleet.ends_clean().await;
}

/// Kills a gateway between any two steps of a call. Failpoints that gateways with shared stores never reach are
/// skipped.
#[tokio::test(flavor = "multi_thread")]
async fn aborting_at_any_failpoint_loses_nothing() {
    let fleet = Fleet::of(1).await;
    let account = fleet.account("1000").await;
    let (mut answered, mut broken, mut died) = (0, 0, Vec::new());
    for (number, point) in failpoint::POINTS.iter().enumerate() {
        let mortal = fleet
            .one_that_aborts_at(&format!("{point}:{}", 5 + number))
            .await;
        for reached in 0..40 {
            let mut body = hello(MODEL);
            body["stream"] = (reached % 2 == 0).into();
            match ask(&fleet.client, mortal.public, &account.key, &body).await {
                Outcome::Answered => answered += 1,
                Outcome::Broken(_) => {
                    broken += 1;
                    died.push(*point);
                    break;
                }
                Outcome::Refused(answer) => panic!("{point}: {answer:?}"),
            }
        }
        if died.last() == Some(point) {
            assert_eq!(mortal.process.ended().await.code, None, "{point}");
        } else {
            assert_eq!(mortal.process.terminated().await.code, Some(0), "{point}");
        }
    }
    println!("died at {died:?}");
    for point in ["counted", "held", "answered", "charged"] {
        assert!(died.contains(&point), "{point} is passed by everyone");
    }
    fleet.until_charged(0, &account, answered, broken).await;
    fleet.ends_clean().await;
}
