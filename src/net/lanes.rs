//! The threads that serve requests: one a core, each with a runtime of its own.
//!
//! A connection stays with the thread that it is given to, and so does all that is done for its requests, up
//! to the connections to providers. Where a runtime of many threads would hand tasks about, here nobody has to
//! be woken for a request but its own thread.

use std::{
    cell::Cell,
    io,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread::{JoinHandle, available_parallelism},
};

use tokio::{
    runtime::{Builder, Handle},
    sync::oneshot,
};

use crate::net::callbacks;

thread_local! {
    static LANE: Cell<usize> = const { Cell::new(0) };
}

/// How many threads serve requests.
pub fn lanes() -> usize {
    available_parallelism().map_or(1, usize::from)
}

/// Numbers a thread that serves requests, from 1 on.
pub fn this_thread_is(lane: usize) {
    LANE.set(lane);
}

/// Which of them this is; 0 for any other.
pub fn this_lane() -> usize {
    LANE.get()
}

pub struct Lanes(Vec<Lane>);

struct Lane {
    runtime: Handle,
    /// How many connections it has.
    open: Arc<AtomicUsize>,
    /// Dropped, it ends the thread.
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// A lane with a connection on it.
pub struct Taken {
    pub runtime: Handle,
    pub counted: Counted,
}

/// Counts for its lane until it is dropped.
pub struct Counted(Arc<AtomicUsize>);

impl Lanes {
    pub fn start() -> io::Result<Self> {
        let lanes = (1..=lanes()).map(Lane::start);
        Ok(Self(lanes.collect::<io::Result<_>>()?))
    }

    /// The lane with the fewest connections.
    pub fn take(&self) -> Taken {
        let open = |lane: &&Lane| lane.open.load(Ordering::Relaxed);
        let lane = self.0.iter().min_by_key(open);
        let lane = lane.expect("there is at least one core");
        lane.open.fetch_add(1, Ordering::Relaxed);
        Taken {
            runtime: lane.runtime.clone(),
            counted: Counted(lane.open.clone()),
        }
    }
}

impl Lane {
    fn start(number: usize) -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let (stop, stopped) = oneshot::channel::<()>();
        let handle = runtime.handle().clone();
        let thread = std::thread::Builder::new()
            .name(format!("lane-{number}"))
            .spawn(move || {
                this_thread_is(number);
                runtime.spawn(callbacks::Runner::start());
                let _ = runtime.block_on(stopped);
                // A look through a large database must not hold up the end.
                runtime.shutdown_background();
            })?;
        Ok(Self {
            runtime: handle,
            open: Arc::default(),
            stop: Some(stop),
            thread: Some(thread),
        })
    }
}

impl Drop for Lanes {
    /// Whatever is still running on them is dropped where it is.
    fn drop(&mut self) {
        for lane in &mut self.0 {
            lane.stop.take();
        }
        for thread in self.0.iter_mut().filter_map(|lane| lane.thread.take()) {
            let _ = thread.join();
        }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
