//! Which of the other gateways are dead, by our own monotonic clock.
//!
//! Each renewal of a lease counts up. A gateway whose count has not moved for the length of a lease, over
//! several looks, is dead whatever the database's clock says; and no setting of that clock can take the
//! lease of one that lives.

use std::time::{Duration, Instant};

use super::lease::Times;
use crate::base::fast_map::FastMap;

#[derive(Default)]
pub struct Peers {
    by_epoch: FastMap<i64, Peer>,
    looked: Option<Instant>,
}

struct Peer {
    beats: i64,
    /// For how long the count has stood still.
    silent: Duration,
}

/// What a look has shown: the dead, with their counts, and whether one of the others may be.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Silence {
    pub epochs: Vec<i64>,
    pub beats: Vec<i64>,
    pub is_suspected: bool,
}

impl Peers {
    /// The others' epochs and counts as they are now.
    pub fn look(&mut self, now: Instant, peers: &[(i64, i64)], times: Times) -> Silence {
        // Time in which we could not look proves nothing about the others: the database may have been away,
        // or all of us were paused.
        let most = times.beat + times.beat / 2;
        let passed = self
            .looked
            .map_or(Duration::ZERO, |at| now.duration_since(at).min(most));
        self.looked = Some(now);
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

    /// Looks at these seconds, with the count of the only peer; says at which of them it was dead.
    fn dead_at(looks: &[(u64, i64)]) -> Vec<u64> {
        let (mut peers, start) = (Peers::default(), Instant::now());
        let dead = looks.iter().filter_map(|&(second, beats)| {
            let now = start + Duration::from_secs(second);
            let silence = peers.look(now, &[(7, beats)], TIMES);
            (silence.epochs == [7]).then_some(second)
        });
        dead.collect()
    }

    #[test]
    fn a_count_that_stands_still_for_a_lease_is_a_dead_gateway() {
        let beating: Vec<_> = (0..20)
            .map(|n| (5 * n, 1 + i64::try_from(n).unwrap()))
            .collect();
        assert!(dead_at(&beating).is_empty());
        let looks = [(0, 1), (5, 2), (10, 2), (15, 2), (20, 2), (24, 2), (25, 2)];
        assert_eq!(dead_at(&looks), [25]);
        // The last moment counts: it renews, and has a whole lease again.
        let looks = [(0, 1), (5, 1), (10, 1), (15, 1), (19, 2), (24, 2), (38, 2)];
        assert!(dead_at(&looks).is_empty());
    }

    #[test]
    fn a_watcher_that_could_not_look_condemns_nobody() {
        assert!(dead_at(&[(0, 1), (3_600, 1), (3_601, 2)]).is_empty());
        assert!(dead_at(&[(0, 1), (3_600, 1), (3_605, 1), (3_610, 1)]).is_empty());
        assert_eq!(dead_at(&[(0, 1), (60, 1), (120, 1), (180, 1)]), [180]);
    }
}
