//! Whether a server's clock was set: the window goes by that clock, and so do times of admission.
//!
//! Set forward by a minute, it would make every entry an old one and hand out a fresh minute. So each step
//! carries the times that the server's clock can show if nobody set it, and is not taken at any other; and
//! every look compares the clock with our monotonic one. Where it was set, the partition is put in doubt
//! and its entries are put back by their age.

use std::time::Duration;

use arc_swap::ArcSwap;
use prometheus_client::metrics::counter::Counter;
use tokio::time::timeout;

use super::{
    link::Link,
    script::{Answer, PARTITIONS, Run},
};
use crate::base::clock_offset::{ClockOffset, monotonic_ms};

const ANSWER_WITHIN: Duration = Duration::from_secs(1);

/// The clock of each partition's server, as it was seen last. Servers of a cluster have one each.
type Offsets = Vec<Option<ClockOffset>>;

#[derive(Default)]
pub struct Clocks {
    seen: ArcSwap<Offsets>,
    pub jumps: Counter,
}

/// What a look has shown.
pub struct Looked {
    offsets: Offsets,
    /// The partitions whose server's clock was set since the look before.
    pub set: Vec<u64>,
    /// By how many milliseconds, at most.
    pub by_ms: i64,
}

impl Clocks {
    /// The times that a server's clock can show when it gets a step that is sent now.
    pub fn now_within(&self, partition: u64, arrives: Duration) -> Option<(i64, i64)> {
        let at = usize::try_from(partition).ok()?;
        let offset = *self.seen.load().get(at)?;
        offset.map(|offset| offset.now_within(arrives))
    }

    /// Looks at the clocks, and compares them with what was seen before.
    pub async fn look(&self, link: &Link) -> Result<Looked, String> {
        let offsets = look(link).await?;
        let before = self.seen.load();
        let jumps = before.iter().zip(&offsets).map(|jump| match jump {
            (Some(before), Some(now)) => before.jump_to(*now),
            _ => None,
        });
        let jumps: Vec<(u64, i64)> = (0..)
            .zip(jumps)
            .filter_map(|(at, jump)| Some((at, jump?)))
            .collect();
        let by_ms = jumps
            .iter()
            .map(|(_, jump)| *jump)
            .max_by_key(|jump| jump.abs());
        Ok(Looked {
            set: jumps.into_iter().map(|(at, _)| at).collect(),
            by_ms: by_ms.unwrap_or(0),
            offsets,
        })
    }

    /// From now on steps go by these.
    pub fn go_by(&self, looked: Looked) {
        self.seen.store(looked.offsets.into());
    }
}

async fn look(link: &Link) -> Result<Offsets, String> {
    let partitions = usize::try_from(PARTITIONS).unwrap_or(0);
    match link {
        Link::One(_) => Ok(vec![Some(offset(link, 0).await?); partitions]),
        Link::Cluster(_) => {
            let looks = (0..PARTITIONS).map(|at| offset(link, at));
            let offsets = futures_util::future::join_all(looks).await;
            offsets.into_iter().map(|offset| offset.map(Some)).collect()
        }
    }
}

async fn offset(link: &Link, partition: u64) -> Result<ClockOffset, String> {
    let (sent_ms, run) = (monotonic_ms(), Run::time(partition));
    let answer = timeout(ANSWER_WITHIN, run.ask(link)).await;
    match answer.map_err(|_| "no answer in time".to_owned())? {
        Ok(Answer::Time(server_ms)) => Ok(ClockOffset::seen(server_ms, sent_ms, monotonic_ms())),
        Ok(_) => Err("it does not tell the time".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}
