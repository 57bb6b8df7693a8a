//! Callers that keep sending requests whatever happens, and a tally of their results.

use std::{
    collections::BTreeSet,
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{
            AtomicBool, AtomicUsize,
            Ordering::{Relaxed, SeqCst},
        },
    },
    time::Duration,
};

use tokio::task::JoinHandle;

use crate::{
    gateways::{Account, Fleet, MODEL, Outcome, eventually, outcome_of, store_refusal_is_wrong},
    support::gateway::hello,
};

const CALLERS: usize = 8;

/// Addresses of the gateways that are running now.
#[derive(Clone)]
pub struct Addresses(Arc<Mutex<Vec<SocketAddr>>>);

impl Addresses {
    pub fn of(fleet: &Fleet) -> Self {
        let addresses = fleet.gateways.iter().map(|gateway| gateway.public);
        Self(Arc::new(Mutex::new(addresses.collect())))
    }

    pub fn replace(&self, old: SocketAddr, new: SocketAddr) {
        for address in self.0.lock().unwrap().iter_mut() {
            if *address == old {
                *address = new;
            }
        }
    }

    pub fn pick(&self, number: usize) -> SocketAddr {
        let addresses = self.0.lock().unwrap();
        addresses[number % addresses.len()]
    }
}

#[derive(Default)]
pub struct Tally {
    /// IDs of requests whose response arrived completely.
    pub answered: BTreeSet<String>,
    /// 503s of §7 with Retry-After.
    pub refused: usize,
    /// Connections that broke or failed.
    pub broken: usize,
    /// Responses that violate the contract.
    pub wrong: Vec<String>,
}

pub struct Load {
    tally: Arc<Mutex<Tally>>,
    paused: Arc<AtomicBool>,
    ended: Arc<AtomicBool>,
    asking: Arc<AtomicUsize>,
    callers: Vec<JoinHandle<()>>,
}

impl Load {
    /// Starts callers of this account that rotate between the gateways, half of them with streams. Each request is
    /// retried up to `retries` times, at the next gateway.
    pub fn start(fleet: &Fleet, addresses: &Addresses, account: &Account, retries: usize) -> Self {
        let mut load = Self {
            tally: Arc::default(),
            paused: Arc::default(),
            ended: Arc::default(),
            asking: Arc::default(),
            callers: Vec::new(),
        };
        let numbers = Arc::new(AtomicUsize::new(0));
        for caller in 0..CALLERS {
            let caller = Caller {
                client: fleet.client.clone(),
                addresses: addresses.clone(),
                key: account.key.clone(),
                streams: caller % 2 == 0,
                retries,
                numbers: numbers.clone(),
                tally: load.tally.clone(),
            };
            let (paused, ended) = (load.paused.clone(), load.ended.clone());
            let asking = load.asking.clone();
            load.callers.push(tokio::spawn(async move {
                while !ended.load(SeqCst) {
                    asking.fetch_add(1, SeqCst);
                    if !paused.load(SeqCst) {
                        caller.one_request().await;
                    }
                    asking.fetch_sub(1, SeqCst);
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
            }));
        }
        load
    }

    pub fn answered(&self) -> usize {
        self.tally.lock().unwrap().answered.len()
    }

    /// Waits until this many more requests were served.
    pub async fn until_more(&self, more: usize) {
        let enough = self.answered() + more;
        eventually("callers are answered", async || self.answered() >= enough).await;
    }

    /// Pauses the callers; no request is running when this returns.
    pub async fn pause(&self) {
        self.paused.store(true, SeqCst);
        eventually("no request is running", async || {
            self.asking.load(SeqCst) == 0
        })
        .await;
    }

    pub fn resume(&self) {
        self.paused.store(false, SeqCst);
    }

    /// Stops the callers and returns their results.
    pub async fn end(self) -> Tally {
        self.ended.store(true, SeqCst);
        for caller in self.callers {
            caller.await.unwrap();
        }
        let tally = std::mem::take(&mut *self.tally.lock().unwrap());
        assert_eq!(tally.wrong, [] as [String; 0]);
        tally
    }
}

struct Caller {
    client: reqwest::Client,
    addresses: Addresses,
    key: String,
    streams: bool,
    retries: usize,
    numbers: Arc<AtomicUsize>,
    tally: Arc<Mutex<Tally>>,
}

impl Caller {
    /// One request with its retries.
    async fn one_request(&self) {
        let number = self.numbers.fetch_add(1, Relaxed);
        for attempt in 0..=self.retries {
            let id = format!("ask-{number}-{attempt}");
            let outcome = self.ask(&id, number + attempt).await;
            let is_last = attempt == self.retries;
            if self.record(id, outcome, is_last) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn ask(&self, id: &str, number: usize) -> Outcome {
        let public = self.addresses.pick(number);
        let mut body = hello(MODEL);
        body["stream"] = self.streams.into();
        let url = format!("http://{public}/v1/chat/completions");
        let request = self.client.post(url).bearer_auth(&self.key);
        outcome_of(request.header("x-request-id", id).json(&body)).await
    }

    /// Records an outcome; returns whether the request is finished with it.
    fn record(&self, id: String, outcome: Outcome, is_last: bool) -> bool {
        let mut tally = self.tally.lock().unwrap();
        match outcome {
            Outcome::Answered => {
                tally.answered.insert(id);
                return true;
            }
            Outcome::Broken(_) => tally.broken += 1,
            Outcome::Refused(answer) => {
                let stopping = self.retries > 0 && is_stopping(&answer);
                match store_refusal_is_wrong(&answer) {
                    Some(wrong) if !stopping => tally.wrong.push(wrong),
                    _ => tally.refused += 1,
                }
            }
        }
        if is_last && self.retries > 0 {
            tally.wrong.push(format!("{id} was never answered"));
        }
        is_last
    }
}

/// Whether a gateway refused because it is stopping; the caller then goes to another.
fn is_stopping(answer: &crate::support::Answer) -> bool {
    let error = &answer.body["error"];
    let (kind, code) = (error["type"].as_str(), error["code"].as_str());
    (answer.status, kind, code) == (503, Some("service_unavailable"), None)
}
