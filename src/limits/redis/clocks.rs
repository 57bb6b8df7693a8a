//! Detects jumps of the server's clock, by which the window and the times of admission go.
//!
//! If that clock were set forward by a minute, every entry would leave its window at once. So each operation carries
//! the range of times that the server's clock can show if it has not jumped, and the script refuses it at any other
//! time. In addition the clock is compared with our monotonic one every few seconds. After a jump, the partition is put
//! in doubt and its entries are restored by the age of their calls.

use std::time::Duration;

use arc_swap::ArcSwap;
use prometheus_client::metrics::counter::Counter;
use tokio::time::timeout;

use super::{
    link::Link,
    script::{PARTITIONS, Reply, Run},
};
use crate::base::clock_offset::{ClockOffset, monotonic_ms};

const REPLY_TIMEOUT: Duration = Duration::from_secs(1);

/// The offset of the clock of each partition's server. In a cluster, partitions have different servers.
type Offsets = Vec<Option<ClockOffset>>;

#[derive(Default)]
pub(crate) struct Clocks {
    /// The offsets of the last reading that was accepted.
    accepted: ArcSwap<Offsets>,
    pub jumps: Counter,
}

/// One reading of the servers' clocks.
pub(crate) struct ClockReading {
    offsets: Offsets,
    /// The partitions whose server's clock has jumped since the last accepted reading.
    pub jumped: Vec<u64>,
    /// The largest of these jumps, in milliseconds; 0 if there was none.
    pub jump_ms: i64,
}

impl Clocks {
    /// The earliest and the latest time that a server's clock can show when an operation sent now arrives there.
    pub(crate) fn now_within(&self, partition: u64, arrives: Duration) -> Option<(i64, i64)> {
        let at = usize::try_from(partition).ok()?;
        let offset = *self.accepted.load().get(at)?;
        offset.map(|offset| offset.now_within(arrives))
    }

    /// Reads the servers' clocks and compares them with the last accepted reading.
    pub(crate) async fn read(&self, link: &Link) -> Result<ClockReading, String> {
        let offsets = offsets(link).await?;
        let before = self.accepted.load();
        let jumps = before.iter().zip(&offsets).map(|jump| match jump {
            (Some(before), Some(now)) => before.jump_to(*now),
            _ => None,
        });
        let jumps: Vec<(u64, i64)> = (0..)
            .zip(jumps)
            .filter_map(|(at, jump)| Some((at, jump?)))
            .collect();
        let jump_ms = jumps
            .iter()
            .map(|(_, jump)| *jump)
            .max_by_key(|jump| jump.abs());
        Ok(ClockReading {
            jumped: jumps.into_iter().map(|(at, _)| at).collect(),
            jump_ms: jump_ms.unwrap_or(0),
            offsets,
        })
    }

    /// Uses this reading for all operations from now on.
    pub(crate) fn accept(&self, reading: ClockReading) {
        self.accepted.store(reading.offsets.into());
    }
}

async fn offsets(link: &Link) -> Result<Offsets, String> {
    let partitions = usize::try_from(PARTITIONS).unwrap_or(0);
    match link {
        Link::One(_) => Ok(vec![Some(offset(link, 0).await?); partitions]),
        Link::Cluster(_) => {
            let offsets = (0..PARTITIONS).map(|at| offset(link, at));
            let offsets = futures_util::future::join_all(offsets).await;
            offsets.into_iter().map(|offset| offset.map(Some)).collect()
        }
    }
}

async fn offset(link: &Link, partition: u64) -> Result<ClockOffset, String> {
    let (sent_ms, run) = (monotonic_ms(), Run::time(partition));
    let reply = timeout(REPLY_TIMEOUT, run.send(link)).await;
    match reply.map_err(|_| "no reply within the timeout".to_owned())? {
        Ok(Reply::Time(server_ms)) => Ok(ClockOffset::seen(server_ms, sent_ms, monotonic_ms())),
        Ok(_) => Err("reading its clock failed: unexpected reply".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}
