//! Many streams that are open at the same time and carry few events.

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::{Semaphore, mpsc},
    task::JoinSet,
    time::timeout,
};

use super::{Connection, LoadResult, Target, events::Events};
use crate::{Done, Failure, chat::Speed};

/// Streams opened concurrently; limited, because the test measures how many can be open.
const OPENING: usize = 64;

/// For all of them to begin, or to end.
const TIMEOUT: Duration = Duration::from_mins(1);

/// Streams that have all received their first event.
pub struct Held(JoinSet<Done<LoadResult>>);

pub async fn open(target: &Target, streams: usize) -> Done<Held> {
    let requests = Arc::new(target.requests(Speed::Held));
    let places = Arc::new(Semaphore::new(OPENING));
    let (begun, mut has_begun) = mpsc::unbounded_channel();
    let mut tasks = JoinSet::new();
    for number in 0..streams {
        let (requests, places, begun) = (requests.clone(), places.clone(), begun.clone());
        let port = target.port;
        tasks.spawn(async move {
            let mut place = Some(places.acquire_owned().await?);
            let mut connection = Connection::open(port).await?;
            let mut events = Events::default();
            let request = &requests[number % requests.len()];
            let seen = |bytes: &[u8]| {
                events.take(bytes);
                if events.count > 0 && place.take().is_some() {
                    let _ = begun.send(());
                }
            };
            connection.ask(request, seen).await?;
            events.check(1)?;
            Ok(LoadResult {
                answers: 1,
                ..LoadResult::default()
            })
        });
    }
    drop(begun);
    let all_begun = async {
        for _ in 0..streams {
            tokio::select! {
                _ = has_begun.recv() => {}
                Some(ended) = tasks.join_next() => {
                    ended??;
                    return Err("a held stream has ended".into());
                }
            }
        }
        Ok::<_, Failure>(())
    };
    timeout(TIMEOUT, all_begun).await??;
    Ok(Held(tasks))
}

impl Held {
    /// Number of complete streams, after the upstream has released them.
    pub async fn finish(self) -> Done<u64> {
        Ok(timeout(TIMEOUT, LoadResult::of_all(self.0)).await??.answers)
    }
}
