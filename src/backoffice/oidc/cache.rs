//! A cache for a value that is fetched when it is needed.

use std::{sync::Arc, time::Duration};

use tokio::{sync::Mutex, time::Instant};

use super::OidcError;

/// How long a value is cached.
const MAX_AGE: Duration = Duration::from_hours(1);
/// The least time between two early refreshes.
const REFRESH_INTERVAL: Duration = Duration::from_mins(1);

/// A cached value. Of concurrent callers one fetches it; the others wait and share its result, also a failure.
pub(crate) struct Cached<T>(Mutex<Latest<T>>);

struct Latest<T> {
    value: Option<(Instant, Arc<T>)>,
    failure: Option<(Instant, OidcError)>,
    refreshed: Option<Instant>,
}

impl<T> Default for Cached<T> {
    fn default() -> Self {
        Self(Mutex::new(Latest {
            value: None,
            failure: None,
            refreshed: None,
        }))
    }
}

impl<T> Cached<T> {
    /// The cached value, or a new one if there is none or it is too old.
    pub(crate) async fn get(
        &self,
        fetch: impl Future<Output = Result<T, OidcError>>,
    ) -> Result<Arc<T>, OidcError> {
        let called_at = Instant::now();
        let mut latest = self.0.lock().await;
        if let Some((fetched, value)) = &latest.value
            && fetched.elapsed() < MAX_AGE
        {
            return Ok(value.clone());
        }
        latest.fetch(called_at, fetch).await
    }

    /// Fetches the value even if it is cached; returns the cached one if that was done less than a minute ago.
    pub(crate) async fn refresh(
        &self,
        fetch: impl Future<Output = Result<T, OidcError>>,
    ) -> Result<Arc<T>, OidcError> {
        let called_at = Instant::now();
        let mut latest = self.0.lock().await;
        if let (Some((_, value)), Some(refreshed)) = (&latest.value, latest.refreshed)
            && refreshed.elapsed() < REFRESH_INTERVAL
        {
            return Ok(value.clone());
        }
        let fetched = latest.fetch(called_at, fetch).await;
        latest.refreshed = Some(Instant::now());
        fetched
    }
}

impl<T> Latest<T> {
    /// Fetches the value, unless a fetch has failed after `called_at`: then the caller has waited for that one and shares
    /// its failure.
    async fn fetch(
        &mut self,
        called_at: Instant,
        fetch: impl Future<Output = Result<T, OidcError>>,
    ) -> Result<Arc<T>, OidcError> {
        if let Some((failed, error)) = &self.failure
            && *failed > called_at
        {
            return Err(error.clone());
        }
        match fetch.await {
            Ok(value) => {
                let value = Arc::new(value);
                self.value = Some((Instant::now(), value.clone()));
                Ok(value)
            }
            Err(error) => {
                self.failure = Some((Instant::now(), error.clone()));
                Err(error)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use tokio::time::{advance, sleep};

    use super::*;

    /// A fetch that takes a second and returns the number of fetches so far.
    async fn next(count: &Cell<u32>) -> Result<u32, OidcError> {
        sleep(Duration::from_secs(1)).await;
        count.set(count.get() + 1);
        Ok(count.get())
    }

    #[tokio::test(start_paused = true)]
    async fn a_value_is_fetched_once_an_hour_and_refreshed_once_a_minute() {
        let (cached, count) = (Cached::default(), Cell::new(0));
        for _ in 0..3 {
            assert_eq!(*cached.get(next(&count)).await.unwrap(), 1);
        }
        // The first refresh fetches although the value is new; the next ones do not for a minute.
        for _ in 0..3 {
            assert_eq!(*cached.refresh(next(&count)).await.unwrap(), 2);
        }
        advance(REFRESH_INTERVAL).await;
        assert_eq!(*cached.refresh(next(&count)).await.unwrap(), 3);
        assert_eq!(*cached.get(next(&count)).await.unwrap(), 3);
        advance(MAX_AGE).await;
        assert_eq!(*cached.get(next(&count)).await.unwrap(), 4);
    }

    #[tokio::test(start_paused = true)]
    async fn concurrent_callers_share_one_failure() {
        let (cached, count) = (Cached::<u32>::default(), Cell::new(0));
        let failing = || async {
            next(&count).await?;
            Err(OidcError::Unavailable("on purpose".into()))
        };
        let (one, other) = tokio::join!(cached.get(failing()), cached.get(failing()));
        assert!(one.is_err() && other.is_err());
        assert_eq!(count.get(), 1);
        assert!(cached.get(failing()).await.is_err());
        assert_eq!(count.get(), 2, "a later caller tries again");
    }
}
