//! Detects dead gateways by this gateway's monotonic clock.
//!
//! Each renewal of a lease increments a counter. A gateway whose counter has not changed for the length of a lease,
//! over several observations, is dead whatever the database's clock shows, and setting that clock cannot end the lease
//! of a live gateway.

use std::time::{Duration, Instant};

use super::lease::Times;
use crate::base::fast_map::FastMap;

#[derive(Default)]
pub(crate) struct Peers {
    by_epoch: FastMap<i64, Peer>,
    observed_at: Option<Instant>,
}

struct Peer {
    beats: i64,
    /// For how long the counter has not changed.
    silent: Duration,
}

/// The result of an observation: dead gateways with their counters, and whether another one may be dead.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Silence {
    pub epochs: Vec<i64>,
    pub beats: Vec<i64>,
    pub is_suspected: bool,
}

impl Peers {
    /// Records the other gateways' epochs and counters as of now.
    pub(crate) fn observe(&mut self, now: Instant, peers: &[(i64, i64)], times: Times) -> Silence {
        // Time without observations proves nothing about the others: the database may have been unreachable, or all
        // gateways were paused.
        let most = times.beat + times.beat / 2;
        let passed = self
            .observed_at
            .map_or(Duration::ZERO, |at| now.duration_since(at).min(most));
        self.observed_at = Some(now);
        let mut silence = Silence::default();
        let mut by_epoch = FastMap::default();
        for &(epoch, beats) in peers {
            let known = self.by_epoch.remove(&epoch);
            let silent = known
                .filter(|known| known.beats == beats)
                .map_or(Duration::ZERO, |known| known.silent + passed);
            if silent >= times.lease {
                silence.epochs.push(epoch);
                silence.beats.push(beats);
            }
            silence.is_suspected |= silent > most;
            by_epoch.insert(epoch, Peer { beats, silent });
        }
        self.by_epoch = by_epoch;
        silence
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMES: Times = Times {
        lease: Duration::from_secs(20),
        beat: Duration::from_secs(5),
    };

    /// Observes the only peer's counter at these seconds; returns the seconds at which it was found dead.
    fn dead_at(observations: &[(u64, i64)]) -> Vec<u64> {
        let (mut peers, start) = (Peers::default(), Instant::now());
        let dead = observations.iter().filter_map(|&(second, beats)| {
            let now = start + Duration::from_secs(second);
            let silence = peers.observe(now, &[(7, beats)], TIMES);
            (silence.epochs == [7]).then_some(second)
        });
        dead.collect()
    }

    #[test]
    fn a_counter_unchanged_for_a_lease_means_a_dead_gateway() {
        let beating: Vec<_> = (0..20)
            .map(|n| (5 * n, 1 + i64::try_from(n).unwrap()))
            .collect();
        assert!(dead_at(&beating).is_empty());
        let observations = [(0, 1), (5, 2), (10, 2), (15, 2), (20, 2), (24, 2), (25, 2)];
        assert_eq!(dead_at(&observations), [25]);
        // A renewal at the last moment starts a whole new lease.
        let observations = [(0, 1), (5, 1), (10, 1), (15, 1), (19, 2), (24, 2), (38, 2)];
        assert!(dead_at(&observations).is_empty());
    }

    #[test]
    fn time_without_observations_proves_no_death() {
        assert!(dead_at(&[(0, 1), (3_600, 1), (3_601, 2)]).is_empty());
        assert!(dead_at(&[(0, 1), (3_600, 1), (3_605, 1), (3_610, 1)]).is_empty());
        assert_eq!(dead_at(&[(0, 1), (60, 1), (120, 1), (180, 1)]), [180]);
    }
}
