//! Detects that a lane has more work than it can do, by how late its tasks run.
//!
//! A request whose socket is readable, and a task that is woken, wait until the lane has done everything that was ready
//! before. With more requests than a lane can serve, that wait has no bound, and all requests get slow. So a timer
//! measures it (the lag), and while the lag stays above its bound, new billed requests are refused; those that have
//! begun go on. A request costs a counter and a flag of its thread; no clock is read for it.
//!
//! One long task, or a moment without the CPU, is not an overload: the lag must be too long several times in a row and
//! for some time. Nor is a machine that is busy with other programs: the lane must have received many requests itself.

use std::{
    cell::Cell,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use tokio::time::{Instant, sleep, sleep_until};

/// How often the lag of a lane is measured that gets many requests.
const TICK: Duration = Duration::from_millis(5);
/// How often to look whether a lane gets many requests.
const LOOK: Duration = Duration::from_millis(100);
/// Requests a second above which a lane can be overloaded by them. A lane serves some thousands; with fewer than these,
/// its tasks run late because other programs use the CPU, and refusing requests would not help.
const MIN_RATE: u64 = 100;
/// The lag must be too long for this time and this many times in a row before requests are refused.
const MIN_LATE: Duration = Duration::from_millis(100);
const MIN_LATE_TICKS: u32 = 5;
/// After this time without lag, the next overload must be detected anew.
const CALM: Duration = Duration::from_secs(1);

thread_local! {
    /// Billed requests since they were last counted.
    static REQUESTS: Cell<u64> = const { Cell::new(0) };
    static IS_OVERLOADED: Cell<bool> = const { Cell::new(false) };
}

/// Counts a billed request of this thread. Returns whether it can be served; otherwise it is to be refused.
pub(crate) fn can_serve_request() -> bool {
    REQUESTS.set(REQUESTS.get().wrapping_add(1));
    !IS_OVERLOADED.get()
}

/// The last measured lag of a lane, readable by all threads.
#[derive(Clone, Default)]
pub(crate) struct Lag(Arc<AtomicU64>);

impl Lag {
    pub(crate) fn get(&self) -> Duration {
        Duration::from_micros(self.0.load(Relaxed))
    }

    fn set(&self, lag: Duration) {
        let micros = u64::try_from(lag.as_micros()).unwrap_or(u64::MAX);
        self.0.store(micros, Relaxed);
    }
}

/// Measures the lag of this thread for as long as it runs, and sets whether it can serve requests.
pub(crate) async fn watch(max_lag: Duration, shown: Lag) {
    loop {
        let begun = Instant::now();
        sleep(LOOK).await;
        if is_busy(REQUESTS.take(), begun.elapsed()) {
            watch_closely(max_lag, &shown).await;
            shown.set(Duration::ZERO);
        }
    }
}

/// Measures the lag until few requests arrive and the lane is not late.
async fn watch_closely(max_lag: Duration, shown: &Lag) {
    let mut detector = Detector::new(max_lag);
    let (mut since, mut requests) = (Instant::now(), 0);
    loop {
        let due = Instant::now() + TICK;
        sleep_until(due).await;
        let now = Instant::now();
        let (lag, arrived) = (now - due, REQUESTS.take());
        shown.set(lag);
        IS_OVERLOADED.set(detector.measured(lag, arrived, now));
        requests += arrived;
        if now - since >= LOOK {
            if !is_busy(requests, now - since) && detector.is_calm() {
                return;
            }
            (since, requests) = (now, 0);
        }
    }
}

fn is_busy(requests: u64, time: Duration) -> bool {
    u128::from(requests) * 1_000 >= u128::from(MIN_RATE) * time.as_millis()
}

/// Decides from measurements of the lag whether a lane is overloaded.
struct Detector {
    max_lag: Duration,
    /// The measurements since the lag was last short enough.
    late: Option<Late>,
    /// When the last lag that was too long ended; `None` if no overload has been detected since.
    overload: Option<Instant>,
}

struct Late {
    since: Instant,
    ticks: u32,
    requests: u64,
}

impl Detector {
    fn new(max_lag: Duration) -> Self {
        Self {
            max_lag,
            late: None,
            overload: None,
        }
    }

    /// Takes a measurement, and the number of requests since the last one. Returns whether to refuse requests now.
    ///
    /// Once an overload is detected, every measurement decides anew, so that the lag stays near its bound.
    fn measured(&mut self, lag: Duration, requests: u64, now: Instant) -> bool {
        if lag <= self.max_lag {
            self.late = None;
            self.overload = self.overload.filter(|last| now - *last < CALM);
            return false;
        }
        let late = self.late.get_or_insert(Late {
            since: now - lag,
            ticks: 0,
            requests: 0,
        });
        late.ticks += 1;
        late.requests += requests;
        let time = now - late.since;
        let begins = late.ticks >= MIN_LATE_TICKS && time >= MIN_LATE;
        if self.overload.is_some() || begins && is_busy(late.requests, time) {
            self.overload = Some(now);
        }
        self.overload.is_some()
    }

    fn is_calm(&self) -> bool {
        self.late.is_none() && self.overload.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX_LAG: Duration = Duration::from_millis(10);

    /// Takes measurements, each with its lag in milliseconds and the requests before it, and returns what was decided.
    fn decisions(measurements: impl IntoIterator<Item = (u64, u64)>) -> Vec<bool> {
        let (mut detector, mut now) = (Detector::new(MAX_LAG), Instant::now());
        let decide = |(lag, requests)| {
            let lag = Duration::from_millis(lag);
            now += TICK + lag;
            detector.measured(lag, requests, now)
        };
        measurements.into_iter().map(decide).collect()
    }

    #[test]
    fn requests_are_refused_while_the_lag_stays_too_long() {
        let overload = std::iter::repeat_n((20, 100), 20);
        let refused = decisions(overload.chain([(3, 100), (15, 100), (2, 0)]));
        assert!(!refused[3], "not before it has lasted");
        assert!(refused[4..20].iter().all(|refused| *refused));
        assert_eq!(refused[20..], [false, true, false], "anew at each tick");
    }

    #[test]
    fn after_a_calm_second_an_overload_must_last_again() {
        let overload = std::iter::repeat_n((20, 100), 20);
        let calm = std::iter::repeat_n((0, 100), 201);
        let refused = decisions(overload.chain(calm).chain([(500, 100)]));
        assert_eq!(refused.last(), Some(&false));
    }

    #[test]
    fn a_long_task_is_no_overload() {
        let tasks = std::iter::repeat_n([(2_000, 1_000), (900, 100), (0, 1)], 100);
        let refused = decisions(tasks.flatten());
        assert!(refused.iter().all(|refused| !refused));
    }

    #[test]
    fn a_lane_with_few_requests_is_not_overloaded_by_them() {
        // 25 ms from one tick to the next.
        let refused = decisions(std::iter::repeat_n((20, 2), 1_000));
        assert!(refused.iter().all(|refused| !refused));
        let refused = decisions(std::iter::repeat_n((20, 3), 1_000));
        assert!(refused[4..].iter().all(|refused| *refused));
    }

    /// The whole of it on one thread: tasks that take a millisecond each, more of them than there is time for.
    #[tokio::test]
    async fn a_thread_with_too_much_work_refuses_and_then_recovers() {
        let lag = Lag::default();
        let watching = tokio::spawn(watch(MAX_LAG, lag.clone()));
        let begun = Instant::now();
        while can_serve_request() {
            for _ in 0..40 {
                can_serve_request();
                tokio::spawn(async { std::thread::sleep(Duration::from_millis(1)) });
            }
            tokio::task::yield_now().await;
            assert!(begun.elapsed() < Duration::from_secs(30), "it is noticed");
        }
        assert!(lag.get() > MAX_LAG);
        while !can_serve_request() {
            sleep(Duration::from_millis(1)).await;
            assert!(begun.elapsed() < Duration::from_mins(1), "it recovers");
        }
        watching.abort();
    }
}
