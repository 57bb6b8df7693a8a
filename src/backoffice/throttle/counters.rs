//! Counters of recent events, a bounded number of them.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

/// The key of a counter: a digest, so that memory holds no list of email addresses.
pub(super) type CounterKey = [u8; 32];

/// Maximum of counters. It bounds the memory, whatever addresses and networks attempts are made with.
const MAX_COUNTERS: usize = 50_000;

/// Which events a counter allows.
#[derive(Clone, Copy)]
pub(super) enum Rule {
    /// At most this many in a window.
    AtMost(usize),
    /// At most this many in a day.
    AtMostInADay(usize),
    /// Any number, but after the first ones each has to wait for longer.
    Slowing,
}

/// Window of [`Rule::AtMost`].
pub(super) const WINDOW: Duration = Duration::from_mins(15);
/// Window of [`Rule::AtMostInADay`].
pub(super) const DAY: Duration = Duration::from_hours(24);
/// Window of [`Rule::Slowing`].
pub(super) const SLOWING_WINDOW: Duration = Duration::from_hours(1);
/// How many events of the window are not slowed.
pub(super) const UNSLOWED: usize = 16;
/// The pause after the first event that is slowed; it doubles with each event.
pub(super) const FIRST_PAUSE: Duration = Duration::from_secs(15);
/// The longest pause.
pub(super) const LONGEST_PAUSE: Duration = Duration::from_mins(5);

impl Rule {
    fn window(self) -> Duration {
        match self {
            Self::AtMost(_) => WINDOW,
            Self::AtMostInADay(_) => DAY,
            Self::Slowing => SLOWING_WINDOW,
        }
    }

    /// How long the next event has to wait after these, which are in the window.
    fn wait(self, times: &[Instant], now: Instant) -> Option<Duration> {
        let free_at = match self {
            Self::AtMost(limit) | Self::AtMostInADay(limit) => {
                *times.get(times.len().checked_sub(limit)?)? + self.window()
            }
            Self::Slowing => {
                let slowed = times.len().checked_sub(UNSLOWED)?;
                let doubled = 1_u32.checked_shl(u32::try_from(slowed).unwrap_or(u32::MAX));
                let pause = doubled.and_then(|times| FIRST_PAUSE.checked_mul(times));
                *times.last()? + pause.unwrap_or(LONGEST_PAUSE).min(LONGEST_PAUSE)
            }
        };
        free_at
            .checked_duration_since(now)
            .filter(|wait| !wait.is_zero())
    }
}

/// One of the counters by which an event is counted.
#[derive(Clone, Copy)]
pub(super) struct Limit {
    pub key: CounterKey,
    pub rule: Rule,
    /// Whether the event is refused by this counter, or only counted.
    pub refuses: bool,
}

struct Counter {
    rule: Rule,
    /// Times of the events, in their order.
    times: Vec<Instant>,
}

impl Counter {
    fn forget_old(&mut self, now: Instant) {
        let window = self.rule.window();
        self.times
            .retain(|time| now.saturating_duration_since(*time) < window);
    }
}

#[derive(Default)]
pub(super) struct Counters(HashMap<CounterKey, Counter>);

impl Counters {
    /// Counts an event and returns the counters that it was counted by; or counts nothing, if a counter refuses the
    /// event, and returns how long it has to wait.
    pub(super) fn count(
        &mut self,
        limits: &[Limit],
        now: Instant,
    ) -> Result<Vec<CounterKey>, Duration> {
        let waits = limits.iter().map(|limit| self.wait(limit, now));
        let waits: Vec<_> = waits.collect();
        let refused = limits.iter().zip(&waits).filter(|(limit, _)| limit.refuses);
        if let Some(wait) = refused.filter_map(|(_, wait)| *wait).max() {
            return Err(wait);
        }
        self.make_room(limits.len(), now);
        // A counter that is full and does not refuse the event stays as it is, so that its size is bounded.
        let open = limits.iter().zip(waits).filter(|(_, wait)| wait.is_none());
        let counted = open.map(|(limit, _)| {
            let rule = limit.rule;
            let counter = self.0.entry(limit.key).or_insert_with(|| Counter {
                rule,
                times: Vec::new(),
            });
            counter.times.push(now);
            limit.key
        });
        Ok(counted.collect())
    }

    /// Undoes the count of one event.
    pub(super) fn undo(&mut self, key: &CounterKey) {
        if let Some(counter) = self.0.get_mut(key) {
            counter.times.pop();
            if counter.times.is_empty() {
                self.0.remove(key);
            }
        }
    }

    /// How many events a counter has in its window.
    pub(super) fn events(&mut self, key: &CounterKey, now: Instant) -> usize {
        let counter = self.0.get_mut(key);
        counter.map_or(0, |counter| {
            counter.forget_old(now);
            counter.times.len()
        })
    }

    pub(super) fn reset(&mut self, key: &CounterKey) {
        self.0.remove(key);
    }

    fn wait(&mut self, limit: &Limit, now: Instant) -> Option<Duration> {
        let counter = self.0.get_mut(&limit.key)?;
        counter.forget_old(now);
        counter.rule.wait(&counter.times, now)
    }

    /// Drops counters if there are too many: those without recent events, then those with the fewest, and last those
    /// that refuse. An attacker who wants to reset one of these has to fill as many others, from many networks. A quarter
    /// is dropped at once, so that this is not repeated for each event.
    fn make_room(&mut self, new: usize, now: Instant) {
        if self.0.len() + new <= MAX_COUNTERS {
            return;
        }
        self.0.retain(|_, counter| {
            counter.forget_old(now);
            !counter.times.is_empty()
        });
        let Some(surplus) = self.0.len().checked_sub(MAX_COUNTERS / 4 * 3) else {
            return;
        };
        let ranks = self.0.iter();
        let rank = |(key, counter): (&CounterKey, &Counter)| {
            let refuses = counter.rule.wait(&counter.times, now).is_some();
            (
                (refuses, counter.times.len()),
                counter.times.last().copied(),
                *key,
            )
        };
        let mut ranks: Vec<_> = ranks.map(rank).collect();
        if surplus < ranks.len() {
            ranks.select_nth_unstable(surplus);
        }
        for (_, _, key) in ranks.iter().take(surplus) {
            self.0.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: usize) -> CounterKey {
        let mut key = CounterKey::default();
        key[..8].copy_from_slice(&number.to_be_bytes());
        key
    }

    fn limit(number: usize, rule: Rule) -> Limit {
        Limit {
            key: key(number),
            rule,
            refuses: true,
        }
    }

    #[test]
    fn a_full_window_frees_its_oldest_event_first() {
        let (mut counters, start) = (Counters::default(), Instant::now());
        let limit = [limit(1, Rule::AtMost(2))];
        let minute = Duration::from_mins(1);
        counters.count(&limit, start).unwrap();
        counters.count(&limit, start + minute).unwrap();
        let wait = counters.count(&limit, start + 2 * minute).unwrap_err();
        assert_eq!(wait, 13 * minute);
        counters.count(&limit, start + WINDOW).unwrap();
        assert!(counters.count(&limit, start + WINDOW).is_err());
    }

    #[test]
    fn a_day_frees_its_oldest_event_after_a_day() {
        let (mut counters, start) = (Counters::default(), Instant::now());
        let limit = [limit(1, Rule::AtMostInADay(1))];
        counters.count(&limit, start).unwrap();
        let wait = counters.count(&limit, start + WINDOW).unwrap_err();
        assert_eq!(wait + WINDOW, DAY);
        counters.count(&limit, start + DAY).unwrap();
        assert_eq!(counters.events(&key(1), start + DAY), 1);
        assert_eq!(counters.events(&key(2), start), 0);
    }

    #[test]
    fn pauses_double_up_to_the_longest_and_end() {
        let (mut counters, mut now) = (Counters::default(), Instant::now());
        let limit = [limit(1, Rule::Slowing)];
        for _ in 0..UNSLOWED {
            counters.count(&limit, now).unwrap();
        }
        let mut pauses = Vec::new();
        for _ in 0..8 {
            let pause = counters.count(&limit, now).unwrap_err();
            // Attempts that are refused do not make the pause longer.
            assert_eq!(counters.count(&limit, now), Err(pause));
            pauses.push(pause.as_secs());
            now += pause;
            counters.count(&limit, now).unwrap();
        }
        assert_eq!(pauses, [15, 30, 60, 120, 240, 300, 300, 300]);
        // However long the attack lasts, the pause ends, and the counter stays small.
        let mut allowed = 0;
        for second in 0..5 * 3_600 {
            let at = now + Duration::from_secs(second);
            match counters.count(&limit, at) {
                Ok(_) => allowed += 1,
                Err(wait) => assert!(wait <= LONGEST_PAUSE),
            }
            assert!(counters.0[&key(1)].times.len() < 2 * UNSLOWED + 8);
        }
        assert!((5 * 10..5 * 40).contains(&allowed), "{allowed} in 5 hours");
        let later = now + 7 * SLOWING_WINDOW;
        for _ in 0..UNSLOWED {
            counters.count(&limit, later).unwrap();
        }
    }

    #[test]
    fn an_event_is_counted_by_all_counters_or_none() {
        let (mut counters, now) = (Counters::default(), Instant::now());
        let (one, many) = (limit(1, Rule::AtMost(1)), limit(2, Rule::AtMost(2)));
        counters.count(&[one, many], now).unwrap();
        assert!(counters.count(&[many, one], now).is_err());
        counters.count(&[many], now).unwrap();
        assert!(counters.count(&[many], now).is_err());
    }

    #[test]
    fn a_counter_that_does_not_refuse_is_not_overfilled() {
        let (mut counters, now) = (Counters::default(), Instant::now());
        let strict = limit(1, Rule::AtMost(1));
        let lenient = Limit {
            refuses: false,
            ..strict
        };
        assert_eq!(counters.count(&[lenient], now), Ok(vec![key(1)]));
        assert_eq!(counters.count(&[lenient], now), Ok(vec![]), "it is full");
        assert!(counters.count(&[strict], now).is_err());
        counters.undo(&key(1));
        counters.count(&[strict], now).unwrap();
    }

    #[test]
    fn counters_are_bounded_and_full_ones_stay() {
        let (mut counters, now) = (Counters::default(), Instant::now());
        let victim = [limit(usize::MAX, Rule::AtMost(3))];
        for _ in 0..3 {
            counters.count(&victim, now).unwrap();
        }
        // They have more events than the victim, and refuse none yet.
        for number in 0..2 * MAX_COUNTERS {
            let new = [limit(number, Rule::AtMost(60))];
            for _ in 0..4 {
                counters.count(&new, now).unwrap();
            }
            assert!(counters.0.len() <= MAX_COUNTERS);
        }
        assert!(counters.count(&victim, now).is_err(), "it was dropped");
        // Later all of them are old, and those are dropped before others.
        let later = now + SLOWING_WINDOW;
        for number in 0..=MAX_COUNTERS {
            let new = [limit(number, Rule::AtMost(3))];
            counters.count(&new, later).unwrap();
        }
        assert!(!counters.0.contains_key(&key(usize::MAX)));
    }
}
