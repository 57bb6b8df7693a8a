//! A value that ends, such as a token: fetched when it is first needed, and renewed before its end.
//!
//! Requests wait only while there is no valid value; however many wait, there is one fetch. A request that finds the
//! value close to its end starts the renewal and does not wait for it. A failed renewal disturbs no request as long as
//! the value is valid. After a failure there is a pause, in which requests without a value fail at once.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use arc_swap::ArcSwapOption;
use tokio::{
    sync::watch,
    time::{Instant, timeout},
};

use crate::{base::outage::Outage, wire::error::UpstreamError};

/// How long before its end a value is renewed, unless a quarter of its lifetime is shorter.
const RENEWAL: Duration = Duration::from_mins(5);
/// How long before its end a value is not used any more, unless a tenth of its lifetime is shorter: it must be valid
/// when the provider looks at it.
const MARGIN: Duration = Duration::from_secs(30);
/// Longest time that one fetch takes.
const FETCH_TIMEOUT: Duration = Duration::from_secs(15);
/// Pause after a failed fetch; it doubles with every further failure.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(15);
/// A value that a provider refused is replaced once in this time: if the provider refuses them all, fetching more of
/// them is of no use.
const REFUSAL_PAUSE: Duration = Duration::from_mins(1);

/// Where values come from.
pub(crate) trait Issuer: Send + Sync + 'static {
    type Value: Send + Sync + 'static;

    /// Fetches a new value. The reason of a failure is for the log and must not contain a secret.
    fn issue(&self) -> impl Future<Output = Result<Issued<Self::Value>, String>> + Send;
}

/// A new value.
pub(crate) struct Issued<T> {
    pub value: T,
    pub lifetime: Duration,
}

/// A value as requests use it.
pub(crate) struct Lent<T> {
    pub value: T,
    renew_at: Instant,
    ends_at: Instant,
}

type Fetched<T> = Result<Arc<Lent<T>>, Arc<str>>;
/// A fetch that is running, or its result.
type Fetching<T> = watch::Receiver<Option<Fetched<T>>>;

pub(crate) struct Renewing<I: Issuer> {
    issuer: I,
    current: ArcSwapOption<Lent<I::Value>>,
    state: Mutex<State<I::Value>>,
}

/// What only those who fetch look at.
struct State<T> {
    /// The result of the running fetch.
    running: Option<Fetching<T>>,
    failed: Option<Failure>,
    outage: Outage,
    /// When a value was last replaced because the provider refused it.
    refused: Option<Instant>,
}

/// The failures since the last success.
struct Failure {
    reason: Arc<str>,
    count: u32,
    retry_at: Instant,
}

/// What there is for a request that found no fresh value.
enum Next<T> {
    Value(Arc<Lent<T>>),
    Running(Fetching<T>),
    Failed(Arc<str>),
}

impl<T> State<T> {
    fn running(&self) -> Option<Fetching<T>> {
        let running = self.running.as_ref();
        // A sender that is gone has panicked: it would have removed the receiver.
        running
            .filter(|running| running.has_changed().is_ok())
            .cloned()
    }

    /// Why the last fetch failed, as long as the next one has to wait.
    fn fails(&self, now: Instant) -> Option<Arc<str>> {
        let failed = self.failed.as_ref()?;
        (now < failed.retry_at).then(|| failed.reason.clone())
    }
}

impl<T> Lent<T> {
    fn new(issued: Issued<T>, began: Instant) -> Self {
        let lifetime = issued.lifetime;
        Self {
            value: issued.value,
            renew_at: began + lifetime - RENEWAL.min(lifetime / 4),
            ends_at: began + lifetime - MARGIN.min(lifetime / 10),
        }
    }
}

impl<I: Issuer> Renewing<I> {
    /// `what` is done, for the log, as the beginning of a sentence: "fetching a token".
    pub(crate) fn new(issuer: I, what: String) -> Self {
        Self {
            issuer,
            current: ArcSwapOption::empty(),
            state: Mutex::new(State {
                running: None,
                failed: None,
                outage: Outage::new(what),
                refused: None,
            }),
        }
    }

    /// The value, if there is one that is not close to its end; otherwise the first one that is fetched.
    pub(crate) async fn get(self: &Arc<Self>) -> Result<Arc<Lent<I::Value>>, UpstreamError> {
        let now = Instant::now();
        let current = self.current.load_full();
        if let Some(current) = current.filter(|current| now < current.ends_at) {
            if now >= current.renew_at {
                self.next(now);
            }
            return Ok(current);
        }
        let fetching = match self.next(now) {
            Next::Value(value) => return Ok(value),
            Next::Failed(reason) => return Err(UpstreamError::NoToken(reason.to_string())),
            Next::Running(fetching) => fetching,
        };
        fetched(fetching).await
    }

    /// A value in place of one that the provider refused; `None` if there is none, or if another one was refused a short
    /// time ago. Until it arrives, other requests go on with the refused one: what one request may not do, others may.
    pub(crate) async fn instead_of(
        self: &Arc<Self>,
        refused: &Arc<Lent<I::Value>>,
    ) -> Option<Arc<Lent<I::Value>>> {
        let fetching = match self.replacing(refused)? {
            Next::Value(value) => return Some(value),
            Next::Failed(_) => return None,
            Next::Running(fetching) => fetching,
        };
        fetched(fetching).await.ok()
    }

    fn replacing(self: &Arc<Self>, refused: &Arc<Lent<I::Value>>) -> Option<Next<I::Value>> {
        let mut state = self.state();
        let now = Instant::now();
        let current = self.current.load_full();
        let replaced = current.filter(|current| !Arc::ptr_eq(current, refused));
        if let Some(value) = replaced.filter(|value| now < value.ends_at) {
            return Some(Next::Value(value));
        }
        let is_replaced = |at| now < at + REFUSAL_PAUSE;
        if let Some(running) = state.running() {
            return Some(Next::Running(running));
        }
        if state.refused.is_some_and(is_replaced) || state.fails(now).is_some() {
            return None;
        }
        state.refused = Some(now);
        Some(Next::Running(self.begin(&mut state)))
    }

    /// Starts a fetch, unless one is running, has just succeeded or has just failed.
    fn next(self: &Arc<Self>, now: Instant) -> Next<I::Value> {
        let mut state = self.state();
        if let Some(running) = state.running() {
            return Next::Running(running);
        }
        let current = self.current.load_full();
        if let Some(current) = current.filter(|current| now < current.renew_at) {
            return Next::Value(current);
        }
        match state.fails(now) {
            Some(reason) => Next::Failed(reason),
            None => Next::Running(self.begin(&mut state)),
        }
    }

    fn begin(self: &Arc<Self>, state: &mut State<I::Value>) -> Fetching<I::Value> {
        let (sender, receiver) = watch::channel(None);
        state.running = Some(receiver.clone());
        // A task, because the request that waits for it may be cancelled while others wait too.
        tokio::spawn(self.clone().fetch(sender));
        receiver
    }

    async fn fetch(self: Arc<Self>, sender: watch::Sender<Option<Fetched<I::Value>>>) {
        let began = Instant::now();
        let issued = timeout(FETCH_TIMEOUT, self.issuer.issue()).await;
        let issued =
            issued.unwrap_or_else(|_| Err(format!("no response within {FETCH_TIMEOUT:?}")));
        let fetched = match issued {
            Ok(issued) => Ok(Arc::new(Lent::new(issued, began))),
            Err(reason) => Err(Arc::from(reason)),
        };
        self.record(&fetched);
        sender.send_replace(Some(fetched));
    }

    fn record(&self, fetched: &Fetched<I::Value>) {
        let mut state = self.state();
        state.running = None;
        match fetched {
            Ok(value) => {
                self.current.store(Some(value.clone()));
                state.failed = None;
                state.outage.works();
            }
            Err(reason) => {
                let count = state.failed.as_ref().map_or(0, |failed| failed.count + 1);
                let pause = FIRST_PAUSE * 2_u32.pow(count.min(5));
                state.failed = Some(Failure {
                    reason: reason.clone(),
                    count,
                    retry_at: Instant::now() + pause.min(LONGEST_PAUSE),
                });
                state.outage.fails(reason);
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State<I::Value>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Waits for a fetch.
async fn fetched<T>(mut fetching: Fetching<T>) -> Result<Arc<Lent<T>>, UpstreamError> {
    let fetched = fetching.wait_for(Option::is_some).await;
    match fetched.as_deref() {
        Ok(Some(Ok(value))) => Ok(value.clone()),
        Ok(Some(Err(reason))) => Err(UpstreamError::NoToken(reason.to_string())),
        Ok(None) | Err(_) => Err(UpstreamError::NoToken("the fetch was stopped".into())),
    }
}

#[cfg(test)]
mod tests;
