//! More requests than can be served: some are refused, which is a result here and not a failure.

use std::{
    cell::RefCell,
    rc::Rc,
    time::{Duration, Instant},
};

use tokio::{
    task::LocalSet,
    time::{sleep, sleep_until},
};

use super::{Connection, Target, percentile};
use crate::{Done, chat::Speed, clock};

/// Most connections of an open loop. Beyond it, requests are not sent, and counted as failed.
const MOST: usize = 6_000;

#[derive(Debug, Default)]
pub struct Tally {
    /// Nanoseconds to the end of each response with status 200.
    pub accepted: Vec<u64>,
    /// Nanoseconds to the end of each response with status 503.
    pub refused: Vec<u64>,
    /// Other statuses, broken connections.
    pub failed: u64,
    pub took: Duration,
}

impl Tally {
    /// Responses with status 200 a second.
    pub fn goodput(&self) -> f64 {
        self.accepted.len() as f64 / self.took.as_secs_f64()
    }

    /// The share of all requests that were refused, in percent.
    pub fn refused_share(&self) -> f64 {
        let all = self.accepted.len() + self.refused.len() + self.failed as usize;
        self.refused.len() as f64 * 100.0 / all.max(1) as f64
    }

    /// A percentile of the accepted ones, in milliseconds.
    pub fn latency(&mut self, share: f64) -> f64 {
        percentile(&mut self.accepted, share)
    }

    fn add(&mut self, status: &Done<[u8; 3]>, wait: u64) -> bool {
        match status.as_ref().map(|status| &status[..]) {
            Ok(b"200") => self.accepted.push(wait),
            Ok(b"503") => self.refused.push(wait),
            _ => self.failed += 1,
        }
        status.is_ok()
    }
}

/// Closed loop: each connection sends its next request as soon as it has a response, to the targets in turn.
pub async fn closed(
    targets: &[&Target],
    connections: usize,
    speed: Speed,
    time: Duration,
) -> Done<Tally> {
    let all: Vec<_> = (targets.iter())
        .map(|target| (target.port, Rc::new(target.requests(speed))))
        .collect();
    let tally = Rc::new(RefCell::new(Tally::default()));
    let tasks = LocalSet::new();
    let mut open = Vec::with_capacity(connections);
    for number in 0..connections {
        let (port, requests) = &all[number % all.len()];
        open.push((Connection::open(*port).await?, *port, requests.clone()));
    }
    let started = Instant::now();
    for (number, (mut connection, port, requests)) in open.into_iter().enumerate() {
        let tally = tally.clone();
        tasks.spawn_local(async move {
            let mut next = number;
            while started.elapsed() < time {
                let (request, begun) = (&requests[next % requests.len()], clock::now());
                let status = connection.ask_for_status(request, |_| {}).await;
                let is_open = tally.borrow_mut().add(&status, clock::now() - begun);
                next += 1;
                if !is_open {
                    match Connection::open(port).await {
                        Ok(opened) => connection = opened,
                        Err(_) => return,
                    }
                }
            }
        });
    }
    tasks.await;
    Ok(finished(&tally, started))
}

/// Open loop: `rate` requests a second, whether or not earlier ones have finished.
pub async fn open(target: &Target, rate: f64, speed: Speed, time: Duration) -> Tally {
    let requests = Rc::new(target.requests(speed));
    let idle = Rc::new(RefCell::new(Vec::<Connection>::new()));
    let tally = Rc::new(RefCell::new(Tally::default()));
    let (started, mut sent, busy) = (Instant::now(), 0_u64, Rc::new(()));
    let tasks = LocalSet::new();
    let sending = async {
        while started.elapsed() < time {
            let due = (started.elapsed().as_secs_f64() * rate) as u64;
            for number in sent..due {
                let in_flight = Rc::strong_count(&busy);
                if in_flight > MOST {
                    tally.borrow_mut().failed += 1;
                    continue;
                }
                let (requests, idle, tally) = (requests.clone(), idle.clone(), tally.clone());
                let (port, running) = (target.port, busy.clone());
                tasks.spawn_local(async move {
                    let begun = clock::now();
                    let taken = idle.borrow_mut().pop();
                    let mut connection = match taken {
                        Some(connection) => connection,
                        None => match Connection::open(port).await {
                            Ok(opened) => opened,
                            Err(_) => return tally.borrow_mut().failed += 1,
                        },
                    };
                    let request = &requests[number as usize % requests.len()];
                    let status = connection.ask_for_status(request, |_| {}).await;
                    if tally.borrow_mut().add(&status, clock::now() - begun) {
                        idle.borrow_mut().push(connection);
                    }
                    drop(running); // counted until here
                });
            }
            sent = due;
            sleep(Duration::from_millis(1)).await;
        }
    };
    tasks.run_until(sending).await;
    // What is still running counts as well, but not the time that it takes.
    let took = started.elapsed();
    tasks.await;
    let mut tally = finished(&tally, started);
    tally.took = took;
    tally
}

/// Sends a request every few milliseconds. Returns after how long all responses were accepted, and as fast as `fast`
/// nanoseconds.
pub async fn recovery(target: &Target, speed: Speed, fast: u64) -> Done<Duration> {
    const EVERY: Duration = Duration::from_millis(10);
    const REQUESTS: u32 = 200;
    let requests = target.requests(speed);
    let started = tokio::time::Instant::now();
    let (tasks, last) = (LocalSet::new(), Rc::new(RefCell::new(Duration::ZERO)));
    for number in 0..REQUESTS {
        let request = requests[number as usize % requests.len()].clone();
        let (port, last) = (target.port, last.clone());
        tasks.spawn_local(async move {
            sleep_until(started + EVERY * number).await;
            let begun = clock::now();
            let status = match Connection::open(port).await {
                Ok(mut connection) => connection.ask_for_status(&request, |_| {}).await,
                Err(failure) => Err(failure),
            };
            let is_good = status.is_ok_and(|status| status == *b"200");
            if !is_good || clock::now() - begun > fast {
                let mut last = last.borrow_mut();
                *last = last.max(EVERY * (number + 1));
            }
        });
    }
    tasks.await;
    let last = *last.borrow();
    Ok(last)
}

fn finished(tally: &RefCell<Tally>, started: Instant) -> Tally {
    let mut tally = tally.take();
    tally.took = started.elapsed();
    tally
}
