//! The threads that serve requests (lanes): one per core, each with a single-threaded runtime.
//!
//! A connection stays on the lane that it was assigned to, with all work for its requests, including the connections to
//! providers. A multi-threaded runtime would move tasks between threads; here a request wakes only its own thread.

use std::{
    cell::Cell,
    io,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread::{JoinHandle, available_parallelism},
    time::Duration,
};

use tokio::{
    runtime::{Builder, Handle},
    sync::oneshot,
};

use crate::net::{
    callbacks,
    lag::{self, Lag},
};

thread_local! {
    /// Number of this thread's lane; 0 if the thread serves no requests.
    static LANE: Cell<usize> = const { Cell::new(0) };
}

/// Number of threads that serve requests: one per core.
pub(crate) fn lanes() -> usize {
    available_parallelism().map_or(1, usize::from)
}

/// Sets the lane number of this thread: from 1 for lanes, 0 for other threads.
pub(crate) fn set_this_lane(lane: usize) {
    LANE.set(lane);
}

/// The lane number of this thread; 0 if it serves no requests.
pub(crate) fn this_lane() -> usize {
    LANE.get()
}

/// All lanes. Dropping it stops their threads and drops the tasks on them.
pub(crate) struct Lanes(Vec<Lane>);

struct Lane {
    runtime: Handle,
    /// Number of connections that are assigned to the lane.
    connections: Arc<AtomicUsize>,
    lag: Lag,
    /// The thread ends when this is dropped.
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// A lane that a connection was assigned to.
pub(crate) struct AssignedLane {
    pub runtime: Handle,
    pub guard: ConnectionGuard,
}

/// Counts a connection for its lane until it is dropped.
pub(crate) struct ConnectionGuard(Arc<AtomicUsize>);

impl Lanes {
    /// Starts a thread for each lane. A lane refuses billed requests while its lag stays above `max_lag`.
    pub(crate) fn start(max_lag: Duration) -> io::Result<Self> {
        let lanes = (1..=lanes()).map(|number| Lane::start(number, max_lag));
        Ok(Self(lanes.collect::<io::Result<_>>()?))
    }

    /// The lag of each lane.
    pub(crate) fn lags(&self) -> Vec<Lag> {
        self.0.iter().map(|lane| lane.lag.clone()).collect()
    }

    /// Assigns a connection to the lane with the fewest.
    pub(crate) fn assign(&self) -> AssignedLane {
        let connections = |lane: &&Lane| lane.connections.load(Ordering::Relaxed);
        let lane = self.0.iter().min_by_key(connections);
        let lane = lane.expect("there is at least one core");
        lane.connections.fetch_add(1, Ordering::Relaxed);
        AssignedLane {
            runtime: lane.runtime.clone(),
            guard: ConnectionGuard(lane.connections.clone()),
        }
    }
}

impl Lane {
    fn start(number: usize, max_lag: Duration) -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let (stop, stopped) = oneshot::channel::<()>();
        let handle = runtime.handle().clone();
        let lag = Lag::default();
        let watching = lag::watch(max_lag, lag.clone());
        let thread = std::thread::Builder::new()
            .name(format!("lane-{number}"))
            .spawn(move || {
                set_this_lane(number);
                runtime.spawn(callbacks::Runner::start());
                runtime.spawn(watching);
                let _ = runtime.block_on(stopped);
                // Does not wait for blocking tasks: a long database query must not delay shutdown.
                runtime.shutdown_background();
            })?;
        Ok(Self {
            runtime: handle,
            connections: Arc::default(),
            lag,
            stop: Some(stop),
            thread: Some(thread),
        })
    }
}

impl Drop for Lanes {
    /// Stops and joins the threads. Tasks that still run are dropped.
    fn drop(&mut self) {
        for lane in &mut self.0 {
            lane.stop.take();
        }
        for thread in self.0.iter_mut().filter_map(|lane| lane.thread.take()) {
            let _ = thread.join();
        }
    }
}

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
