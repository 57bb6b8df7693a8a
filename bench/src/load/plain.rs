//! Plain responses: as many as possible, or at a low, steady rate.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use tokio::{
    task::JoinSet,
    time::{MissedTickBehavior, interval},
};

use super::{Connection, LoadResult, Target};
use crate::{Done, chat::Speed, clock};

/// Each connection sends its next request as soon as it has the response.
pub async fn full(
    target: &Target,
    connections: Vec<Connection>,
    time: Duration,
) -> Done<LoadResult> {
    let requests = Arc::new(target.requests(Speed::Whole));
    let started = Instant::now();
    let mut tasks = JoinSet::new();
    for (number, mut connection) in connections.into_iter().enumerate() {
        let requests = requests.clone();
        tasks.spawn(async move {
            let (mut result, mut next) = (LoadResult::default(), number);
            while started.elapsed() < time {
                ask(
                    &mut connection,
                    &requests[next % requests.len()],
                    &mut result,
                )
                .await?;
                next += 1;
            }
            Ok(result)
        });
    }
    let mut result = LoadResult::of_all(tasks).await?;
    result.took = started.elapsed();
    Ok(result)
}

/// Sends `rate` requests a second, whether or not earlier ones have finished, so that a slow response delays no other
/// one.
pub async fn steady(
    target: &Target,
    connections: Vec<Connection>,
    a_second: u32,
    time: Duration,
) -> Done<LoadResult> {
    let requests = Arc::new(target.requests(Speed::Whole));
    let idle = Arc::new(Mutex::new(connections));
    let started = Instant::now();
    let mut ticks = interval(Duration::from_secs(1) / a_second);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut tasks = JoinSet::new();
    let mut number = 0;
    while started.elapsed() < time {
        ticks.tick().await;
        let (requests, idle, port) = (requests.clone(), idle.clone(), target.port);
        let caller = number % requests.len();
        number += 1;
        tasks.spawn(async move {
            let one = lock(&idle).pop();
            let mut connection = match one {
                Some(connection) => connection,
                None => Connection::open(port).await?,
            };
            let mut result = LoadResult::default();
            ask(&mut connection, &requests[caller], &mut result).await?;
            lock(&idle).push(connection);
            Ok(result)
        });
    }
    let mut result = LoadResult::of_all(tasks).await?;
    result.took = started.elapsed();
    Ok(result)
}

async fn ask(connection: &mut Connection, request: &[u8], result: &mut LoadResult) -> Done {
    let begun = clock::now();
    let mut length = 0;
    connection
        .ask(request, |bytes| length += bytes.len())
        .await?;
    if length == 0 {
        return Err("an empty answer".into());
    }
    result.waits.push(clock::now() - begun);
    result.answers += 1;
    Ok(())
}

fn lock(idle: &Mutex<Vec<Connection>>) -> std::sync::MutexGuard<'_, Vec<Connection>> {
    idle.lock().unwrap_or_else(PoisonError::into_inner)
}
