//! Streams, one after another on each connection.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::{task::JoinSet, time::sleep};

use super::{Connection, LoadResult, Target, events::Events};
use crate::{Done, chat::Speed, clock, upstream::EVENTS};

/// Streams whose events are sent without a pause, for as long as `time`.
pub async fn full(
    target: &Target,
    connections: Vec<Connection>,
    time: Duration,
) -> Done<LoadResult> {
    ask(target, connections, time, Speed::AtOnce).await
}

/// Streams with an event every `pause` milliseconds, as a model sends them.
pub async fn paced(
    target: &Target,
    connections: Vec<Connection>,
    pause: u64,
    time: Duration,
) -> Done<LoadResult> {
    ask(target, connections, time, Speed::Paced(pause)).await
}

async fn ask(
    target: &Target,
    connections: Vec<Connection>,
    time: Duration,
    speed: Speed,
) -> Done<LoadResult> {
    let requests = Arc::new(target.requests(speed));
    let (started, api) = (Instant::now(), target.api);
    let all = u32::try_from(connections.len()).unwrap_or(u32::MAX);
    let mut tasks = JoinSet::new();
    for (number, mut connection) in (0_u32..).zip(connections) {
        let requests = requests.clone();
        tasks.spawn(async move {
            // Paced streams are started at different times; otherwise all events would be sent together.
            if let Speed::Paced(pause) = speed {
                sleep(Duration::from_millis(pause) * number / all).await;
            }
            let (mut result, mut next) = (LoadResult::default(), number as usize);
            while started.elapsed() < time {
                let mut events = Events::of(api);
                let begun = clock::now();
                let request = &requests[next % requests.len()];
                connection.ask(request, |bytes| events.take(bytes)).await?;
                events.check(u64::from(EVENTS))?;
                result.answers += 1;
                result.events += events.count;
                let first = events.first_at.unwrap_or(begun);
                result.waits.push(first.saturating_sub(begun));
                if speed != Speed::AtOnce {
                    result.delays.append(&mut events.delays);
                }
                next += 1;
            }
            Ok(result)
        });
    }
    let mut result = LoadResult::of_all(tasks).await?;
    result.took = started.elapsed();
    Ok(result)
}
