//! Runs long computations on threads of their own, so that a lane can serve its other connections meanwhile.

use std::sync::Arc;

use tokio::sync::Semaphore;

use super::lanes::lanes;

/// Size above which a body is parsed and prepared beside the threads that serve requests. A smaller one takes these
/// threads a few milliseconds.
pub(crate) const LARGE_BYTES: usize = 256 << 10;

/// Slots for computations that run beside the lanes: one for every second core, so that they cannot take all cores. Clones
/// share them.
#[derive(Clone)]
pub struct Offload {
    slots: Arc<Semaphore>,
}

impl Default for Offload {
    fn default() -> Self {
        Self {
            slots: Arc::new(Semaphore::new((lanes() / 2).max(1))),
        }
    }
}

impl Offload {
    /// Runs `work` when a slot is free, in the order of arrival. `None` if it panicked; the panic hook has logged where.
    ///
    /// Work that has begun runs to its end, even if the caller is dropped, and keeps its slot until then.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let slot = self.slots.clone().acquire_owned().await.ok()?;
        let running = tokio::task::spawn_blocking(move || {
            let _slot = slot;
            work()
        });
        running.await.ok()
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{
            atomic::{AtomicUsize, Ordering::SeqCst},
            mpsc,
        },
        thread,
    };

    use futures_util::FutureExt as _;

    use super::*;

    fn with_slots(slots: usize) -> Offload {
        Offload {
            slots: Arc::new(Semaphore::new(slots)),
        }
    }

    #[tokio::test]
    async fn the_thread_that_asks_goes_on_meanwhile() {
        let offload = with_slots(1);
        let here = thread::current().id();
        let (send, receive) = mpsc::channel();
        let work = offload.run(move || (thread::current().id(), receive.recv().unwrap()));
        // Sent by the same thread, which therefore is not blocked.
        let (done, ()) = tokio::join!(work, async { send.send(7).unwrap() });
        let (there, received) = done.unwrap();
        assert_ne!(here, there);
        assert_eq!(received, 7);
    }

    #[tokio::test]
    async fn no_more_than_the_slots_run_at_once_even_if_callers_leave() {
        let (offload, running) = (with_slots(2), Arc::new(AtomicUsize::new(0)));
        let work = || {
            let running = running.clone();
            move || {
                let at_once = running.fetch_add(1, SeqCst) + 1;
                thread::sleep(std::time::Duration::from_millis(5));
                running.fetch_sub(1, SeqCst);
                at_once
            }
        };
        for _ in 0..4 {
            // Dropped after it was started, or while it waited for a slot.
            let _ = offload.run(work()).now_or_never();
        }
        let all = futures_util::future::join_all((0..20).map(|_| offload.run(work()))).await;
        assert!(all.into_iter().all(|at_once| at_once.unwrap() <= 2));
    }

    #[tokio::test]
    async fn a_panic_frees_its_slot() {
        let offload = with_slots(1);
        assert_eq!(offload.run(|| panic!("on purpose")).await, None::<()>);
        assert_eq!(offload.run(|| 7).await, Some(7));
    }
}
