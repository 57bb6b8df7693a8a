//! What another thread has to say to the tasks of this one.
//!
//! To wake a task of a thread that sleeps takes a system call, for every task. So a thread that serves requests has a
//! mailbox, and a task that hands out the letters in it: whoever writes many of them wakes that task alone, and it
//! wakes the others where they are.
//!
//! The same task does what is to be done once others had their turn.

use std::{
    cell::RefCell,
    mem::take,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
};

use futures_util::task::AtomicWaker;

thread_local! {
    static HERE: RefCell<Option<Arc<Mailbox>>> = const { RefCell::new(None) };
    static AFTER_OTHERS: RefCell<Vec<Box<dyn FnOnce()>>> = const { RefCell::new(Vec::new()) };
}

type Open = Box<dyn FnOnce() + Send>;

#[derive(Default)]
pub struct Mailbox {
    letters: Mutex<Vec<Open>>,
    postman: AtomicWaker,
}

/// Something to be done on another thread.
pub struct Letter {
    to: Arc<Mailbox>,
    open: Open,
}

/// Opens the letters that come to the thread it is on, as long as it is polled there.
pub struct Postman(Arc<Mailbox>);

impl Mailbox {
    /// This thread's, if it has one.
    pub fn here() -> Option<Arc<Self>> {
        HERE.with_borrow(Clone::clone)
    }

    pub fn is_here(self: &Arc<Self>) -> bool {
        HERE.with_borrow(|here| here.as_ref().is_some_and(|here| Arc::ptr_eq(here, self)))
    }

    fn letters(&self) -> MutexGuard<'_, Vec<Open>> {
        self.letters.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Postman {
    /// Gives this thread a mailbox.
    pub fn start() -> Self {
        let mailbox = Arc::<Mailbox>::default();
        HERE.set(Some(mailbox.clone()));
        Self(mailbox)
    }
}

impl Future for Postman {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        self.0.postman.register(context.waker());
        let letters = take(&mut *self.0.letters());
        for open in letters {
            open();
        }
        do_what_waits();
        Poll::Pending
    }
}

impl Drop for Postman {
    fn drop(&mut self) {
        let _ = HERE.try_with(RefCell::take);
        do_what_waits();
    }
}

/// Does something on this thread when the tasks that can go on now had their turn; at once where there is no mailbox.
pub fn after_others(what: impl FnOnce() + 'static) {
    let Ok(Some(here)) = HERE.try_with(|here| here.borrow().clone()) else {
        return what();
    };
    AFTER_OTHERS.with_borrow_mut(|waiting| waiting.push(Box::new(what)));
    here.postman.wake();
}

fn do_what_waits() {
    let waiting = AFTER_OTHERS.try_with(RefCell::take).unwrap_or_default();
    for what in waiting {
        what();
    }
}

impl Letter {
    /// Where there is no mailbox, it is opened at once.
    pub fn to(mailbox: Option<Arc<Mailbox>>, open: impl FnOnce() + Send + 'static) -> Option<Self> {
        let Some(to) = mailbox else {
            open();
            return None;
        };
        let open = Box::new(open);
        Some(Self { to, open })
    }
}

/// Delivers all of them, with one wake-up for each thread.
pub fn post(letters: impl IntoIterator<Item = Letter>) {
    let mut to_wake = Vec::new();
    for Letter { to, open } in letters {
        let is_first = {
            let mut letters = to.letters();
            letters.push(open);
            letters.len() == 1
        };
        if is_first {
            to_wake.push(to);
        }
    }
    for mailbox in to_wake {
        mailbox.postman.wake();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    use futures_util::task::{ArcWake, waker};
    use tokio::sync::oneshot;

    use super::*;

    #[derive(Default)]
    struct Wakes(AtomicUsize);

    impl ArcWake for Wakes {
        fn wake_by_ref(wakes: &Arc<Self>) {
            wakes.0.fetch_add(1, Relaxed);
        }
    }

    #[test]
    fn many_letters_wake_once() {
        let count = Arc::<Wakes>::default();
        let waker = waker(count.clone());
        let mut context = Context::from_waker(&waker);
        let mut opening = std::pin::pin!(Postman::start());
        assert!(opening.as_mut().poll(&mut context).is_pending());
        let opened = Arc::<AtomicUsize>::default();
        let letters = |number: usize| {
            let (to, opened) = (Mailbox::here(), opened.clone());
            (0..number).filter_map(move |_| {
                let opened = opened.clone();
                Letter::to(to.clone(), move || {
                    opened.fetch_add(1, Relaxed);
                })
            })
        };
        for round in 1..=2 {
            std::thread::scope(|scope| {
                let letters = letters(10);
                scope.spawn(move || post(letters));
            });
            assert_eq!(count.0.load(Relaxed), round);
            assert_eq!(opened.load(Relaxed), (round - 1) * 10, "not by the writer");
            assert!(opening.as_mut().poll(&mut context).is_pending());
            assert_eq!(opened.load(Relaxed), round * 10);
        }
    }

    #[tokio::test]
    async fn a_task_that_waits_hears_of_it() {
        tokio::spawn(Postman::start());
        let (send, heard) = oneshot::channel();
        let to = Mailbox::here();
        std::thread::spawn(move || {
            post(Letter::to(to, move || send.send(7).unwrap()));
        });
        assert_eq!(heard.await, Ok(7));
    }
}
