//! What is fetched when it is needed, and kept for a while.

use std::{sync::Arc, time::Duration};

use tokio::{sync::Mutex, time::Instant};

use super::OidcError;

/// How long it is kept.
const FRESH: Duration = Duration::from_hours(1);
/// How often it is fetched before its time, because it may have changed.
const RENEWED_EVERY: Duration = Duration::from_mins(1);

/// Of a crowd that wants it one fetches it; the others wait, and hear what that one has heard.
pub struct Kept<T>(Mutex<Latest<T>>);

struct Latest<T> {
    value: Option<(Instant, Arc<T>)>,
    failure: Option<(Instant, OidcError)>,
    renewed: Option<Instant>,
}

impl<T> Default for Kept<T> {
    fn default() -> Self {
        Self(Mutex::new(Latest {
            value: None,
            failure: None,
            renewed: None,
        }))
    }
}

impl<T> Kept<T> {
    pub async fn get(
        &self,
        fetch: impl Future<Output = Result<T, OidcError>>,
    ) -> Result<Arc<T>, OidcError> {
        let asked = Instant::now();
        let mut latest = self.0.lock().await;
        if let Some((fetched, value)) = &latest.value
            && fetched.elapsed() < FRESH
        {
            return Ok(value.clone());
        }
        latest.fetch(asked, fetch).await
    }

    /// Fetches it anew; where that was done a moment ago, it is as it was then.
    pub async fn renewed(
        &self,
        fetch: impl Future<Output = Result<T, OidcError>>,
    ) -> Result<Arc<T>, OidcError> {
        let asked = Instant::now();
        let mut latest = self.0.lock().await;
        if let (Some((_, value)), Some(renewed)) = (&latest.value, latest.renewed)
            && renewed.elapsed() < RENEWED_EVERY
        {
            return Ok(value.clone());
        }
        let fetched = latest.fetch(asked, fetch).await;
        latest.renewed = Some(Instant::now());
        fetched
    }
}

impl<T> Latest<T> {
    async fn fetch(
        &mut self,
        asked: Instant,
        fetch: impl Future<Output = Result<T, OidcError>>,
    ) -> Result<Arc<T>, OidcError> {
        if let Some((failed, error)) = &self.failure
            && *failed > asked
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

    /// Counts how often it was fetched, which takes a second.
    async fn next(count: &Cell<u32>) -> Result<u32, OidcError> {
        sleep(Duration::from_secs(1)).await;
        count.set(count.get() + 1);
        Ok(count.get())
    }

    #[tokio::test(start_paused = true)]
    async fn it_is_fetched_once_an_hour_and_renewed_once_a_minute() {
        let (kept, count) = (Kept::default(), Cell::new(0));
        for _ in 0..3 {
            assert_eq!(*kept.get(next(&count)).await.unwrap(), 1);
        }
        // At once, however new it is; then no more for a minute.
        for _ in 0..3 {
            assert_eq!(*kept.renewed(next(&count)).await.unwrap(), 2);
        }
        advance(RENEWED_EVERY).await;
        assert_eq!(*kept.renewed(next(&count)).await.unwrap(), 3);
        assert_eq!(*kept.get(next(&count)).await.unwrap(), 3);
        advance(FRESH).await;
        assert_eq!(*kept.get(next(&count)).await.unwrap(), 4);
    }

    #[tokio::test(start_paused = true)]
    async fn a_crowd_waits_for_one_failure_and_not_for_one_each() {
        let (kept, count) = (Kept::<u32>::default(), Cell::new(0));
        let failing = || async {
            next(&count).await?;
            Err(OidcError::Unavailable("on purpose".into()))
        };
        let (one, other) = tokio::join!(kept.get(failing()), kept.get(failing()));
        assert!(one.is_err() && other.is_err());
        assert_eq!(count.get(), 1);
        assert!(kept.get(failing()).await.is_err());
        assert_eq!(count.get(), 2, "whoever comes later tries again");
    }
}
