//! Restores the windows of a server that may have lost entries, from the ledger.
//!
//! A partition in doubt admits nothing. The doubt is given a name first, and the ledger is read after that, so the
//! result contains everything that was ever admitted. If the server loses data again in between, it loses the name as
//! well, and the restore is refused and starts over.

use std::{collections::BTreeMap, time::Duration};

use futures_util::future::join_all;
use rand::random;
use tokio::time::{sleep, timeout};

use super::{
    super::StoredReservation,
    Inner,
    link::Link,
    script::{PARTITIONS, Reply, Run, WindowKeys, entry, partition},
};

const REPLY_TIMEOUT: Duration = Duration::from_secs(2);
const LEDGER_TIMEOUT: Duration = Duration::from_secs(5);

impl Inner {
    /// Restores every partition that may have lost entries, and returns once all are complete.
    ///
    /// The partitions in `clock_jumped` are restored too; their entries get their times by the age of their calls.
    pub(crate) async fn restore_partitions(
        &self,
        link: &Link,
        clock_jumped: &[u64],
    ) -> Result<(), String> {
        let doubts = self.doubts(link, clock_jumped).await?;
        if doubts.is_empty() {
            return Ok(());
        }
        self.link.send_modify(|link| {
            *link = Err("the windows are being restored from the ledger".to_owned());
        });
        sleep(self.known_within).await;
        let stored = timeout(LEDGER_TIMEOUT, (self.rebuild)())
            .await
            .unwrap_or_else(|_| Err("no response within the timeout".to_owned()))
            .map_err(|error| {
                format!("reading the window's calls from the ledger failed: {error}")
            })?;
        let reservations = stored.len();
        let runs = restores(&doubts, stored);
        send_all(link, runs.iter()).await?;
        if self.doubts(link, &[]).await?.is_empty() {
            let partitions = doubts.len();
            tracing::info!(
                places = reservations,
                partitions,
                "restored {reservations} reservations to Redis from the ledger; requests are admitted again"
            );
            return Ok(());
        }
        Err("it lost the windows again while they were being restored".to_owned())
    }

    /// Puts the partitions that may have lost entries in doubt, and returns them with the names of their doubts.
    async fn doubts(
        &self,
        link: &Link,
        clock_jumped: &[u64],
    ) -> Result<BTreeMap<u64, String>, String> {
        let name = random();
        let runs = (0..PARTITIONS).map(|at| {
            if clock_jumped.contains(&at) {
                Run::doubt_clock(at, name)
            } else {
                Run::doubt(at, name)
            }
        });
        let runs: Vec<_> = runs.collect();
        let replies = send_all(link, runs.iter()).await?;
        let doubts = (0..).zip(replies).filter_map(|(at, reply)| match reply {
            Reply::Doubtful(name) => Some((at, name)),
            _ => None,
        });
        Ok(doubts.collect())
    }
}

async fn send_all(link: &Link, runs: impl Iterator<Item = &Run>) -> Result<Vec<Reply>, String> {
    let replies = timeout(REPLY_TIMEOUT, join_all(runs.map(|run| run.send(link)))).await;
    let replies = replies.map_err(|_| "no reply within the timeout".to_owned())?;
    let replies: Result<_, _> = replies.into_iter().collect();
    replies.map_err(|error: redis::RedisError| error.to_string())
}

/// One run for each partition in doubt, including partitions without any reservation.
fn restores(doubts: &BTreeMap<u64, String>, stored: Vec<StoredReservation>) -> Vec<Run> {
    let mut windows: BTreeMap<u64, BTreeMap<(String, String), Vec<_>>> = BTreeMap::new();
    for reservation in stored {
        let windows = windows.entry(partition(&reservation.account)).or_default();
        let window = (reservation.account.clone(), reservation.model.clone());
        windows.entry(window).or_default().push(reservation);
    }
    let restore = |(partition, doubt): (&u64, &String)| {
        let mut run = Run::restore(*partition, doubt);
        for ((account, model), reservations) in windows.remove(partition).unwrap_or_default() {
            run.add_window(WindowKeys::of(&account, &model));
            for reservation in reservations {
                run.add_entry(entry(reservation.call, reservation.step), &reservation);
            }
        }
        run
    };
    doubts.iter().map(restore).collect()
}
