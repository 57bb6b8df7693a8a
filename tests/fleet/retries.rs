//! Gateways that are killed while clients retry at any of them until they have a response: each of their requests is
//! charged once, and each client gets one whole response.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};
use serde_json::{Value, json};

use crate::{
    gateways::{Account, Fleet, MODEL, TIMEOUT, within},
    load::Addresses,
    support::{
        Gate,
        gateway::hello,
        retries::{Got, got, plays},
        turns::Turn,
    },
};

const WORKERS: usize = 12;
/// How many keys are sent to all gateways at once.
const KEYS: usize = 20;
/// A hold of a killed gateway is in the way of its key until its lease is over.
const PATIENCE: Duration = Duration::from_secs(150);

/// How often a gateway is killed; `make retries` sets more.
fn rounds() -> usize {
    let wanted = std::env::var("TOLLGATE_RETRY_ROUNDS");
    wanted.map_or(3, |rounds| rounds.parse().unwrap())
}

struct Clients {
    client: reqwest::Client,
    account: Account,
    addresses: Addresses,
    is_over: AtomicBool,
    requests: AtomicUsize,
    /// The response of each request, by its key.
    answered: Mutex<BTreeMap<String, (Value, String)>>,
}

impl Clients {
    async fn work(&self, worker: usize) {
        for number in 0.. {
            if self.is_over.load(SeqCst) {
                return;
            }
            let key = format!("intent-{worker}-{number}");
            let mut body = hello(MODEL);
            body["messages"][0]["content"] = json!(key);
            body["stream"] = (number % 2 == 0).into();
            let begun = Instant::now();
            let text = loop {
                assert!(begun.elapsed() < PATIENCE, "{key} is not answered");
                if let Some(text) = self.sent(&key, &body).await {
                    break text;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            };
            self.answered.lock().unwrap().insert(key, (body, text));
        }
    }

    /// The response of some gateway, if it is whole.
    async fn sent(&self, key: &str, body: &Value) -> Option<String> {
        let public = self.addresses.pick(self.requests.fetch_add(1, SeqCst));
        let request = self
            .client
            .post(format!("http://{public}/v1/chat/completions"));
        let request = request.bearer_auth(&self.account.key).json(body);
        let response = request.header("idempotency-key", key).send().await.ok()?;
        let status = response.status().as_u16();
        let text = response.text().await.ok()?;
        match status {
            200 | 503 => {}
            409 => assert!(text.contains("idempotency_in_progress"), "{text}"),
            other => panic!("{other}: {text}"),
        }
        let is_whole = if body["stream"] == true {
            text.ends_with("data: [DONE]\n\n")
        } else {
            text.ends_with('}')
        };
        (status == 200 && is_whole).then(|| text.replace(": keep-alive\n\n", ""))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_that_retry_pay_once_however_often_gateways_are_killed() {
    let mut fleet = Fleet::of(3).await;
    let account = fleet.account("1000").await;
    fleet.upstream.converse([Turn::says("Hi")]);
    let clients = Arc::new(Clients {
        client: fleet.client.clone(),
        account: account.clone(),
        addresses: Addresses::of(&fleet),
        is_over: AtomicBool::new(false),
        requests: AtomicUsize::new(0),
        answered: Mutex::default(),
    });
    let workers: Vec<_> = (0..WORKERS)
        .map(|worker| {
            let clients = clients.clone();
            tokio::spawn(async move { clients.work(worker).await })
        })
        .collect();
    let seed = rand::random();
    println!("seed {seed}");
    let mut random = StdRng::seed_from_u64(seed);
    for round in 0..rounds() {
        tokio::time::sleep(Duration::from_millis(random.random_range(50..500))).await;
        let killed = fleet.gateways.remove(round % 3);
        killed.process.signal("KILL");
        let next = fleet.one_more().await;
        clients.addresses.replace(killed.public, next.public);
        fleet.gateways.insert(round % 3, next);
    }
    clients.is_over.store(true, SeqCst);
    for worker in workers {
        worker.await.unwrap();
    }
    let answered = std::mem::take(&mut *clients.answered.lock().unwrap());
    for (key, (body, text)) in &answered {
        let again = clients.sent(key, body).await;
        assert_eq!(
            again.as_ref(),
            Some(text),
            "{key}: every gateway replays it"
        );
    }
    let (intents, rounds) = (answered.len(), rounds());
    println!("{intents} requests, {rounds} kills");
    assert!(intents > WORKERS, "{intents}");
    fleet.until_charged(0, &account, intents, 0).await;
    fleet.ends_clean().await;
}

/// One request, with a key, to one of the gateways.
async fn keyed(fleet: &Fleet, at: usize, account: &Account, key: &str, body: &Value) -> Got {
    let url = format!("http://{}/v1/chat/completions", fleet.gateways[at].public);
    let request = fleet.client.post(url).bearer_auth(&account.key).json(body);
    got(request.header("idempotency-key", key)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_is_known_to_all_gateways() {
    let fleet = Fleet::of(3).await;
    let account = fleet.account("10").await;
    for stream in [false, true] {
        let gate = Gate::default();
        fleet.upstream.play_for_each(plays(gate.clone()));
        let (calls, key) = (fleet.upstream.calls(), format!("key-{stream}"));
        let mut body = hello(MODEL);
        body["stream"] = stream.into();
        let meanwhile = async {
            let called = async || fleet.upstream.calls() == calls + 1;
            within(TIMEOUT, "the provider is called", called).await;
            let running = keyed(&fleet, 1, &account, &key, &body).await;
            running.assert_refused(409, "idempotency_in_progress");
            assert_eq!(running.headers["retry-after"], "1");
            assert_eq!(running.headers["x-should-retry"], "true");
            let mut other = body.clone();
            other["messages"][0]["content"] = "Another".into();
            let reused = keyed(&fleet, 1, &account, &key, &other).await;
            reused.assert_refused(422, "idempotency_key_reused");
            gate.open();
        };
        let first = keyed(&fleet, 0, &account, &key, &body);
        let (first, ()) = tokio::join!(first, meanwhile);
        let first = first.ok().body.replace(": keep-alive\n\n", "");
        for at in 0..3 {
            let again = keyed(&fleet, at, &account, &key, &body).await.ok();
            assert!(again.is_replayed());
            assert_eq!(again.body, first);
        }
        assert_eq!(fleet.upstream.calls(), calls + 1);
    }
    fleet.until_charged(0, &account, 2, 0).await;
    fleet.ends_clean().await;
}

/// Requests with one key that arrive at three gateways at the same moment.
#[tokio::test(flavor = "multi_thread")]
async fn of_first_requests_at_several_gateways_one_runs() {
    let fleet = Fleet::of(3).await;
    let account = fleet.account("100").await;
    fleet.upstream.converse([Turn::says("Hi")]);
    for number in 0..KEYS {
        let (key, body) = (format!("key-{number}"), hello(MODEL));
        let ask = async |at: usize| loop {
            let got = keyed(&fleet, at, &account, &key, &body).await;
            if got.status == 200 {
                return got.body;
            }
            got.assert_refused(409, "idempotency_in_progress");
            tokio::time::sleep(Duration::from_millis(5)).await;
        };
        let (first, second, third) = tokio::join!(ask(0), ask(1), ask(2));
        assert_eq!((&second, &third), (&first, &first));
    }
    assert_eq!(fleet.upstream.calls(), KEYS);
    fleet.until_charged(1, &account, KEYS, 0).await;
    fleet.ends_clean().await;
}
