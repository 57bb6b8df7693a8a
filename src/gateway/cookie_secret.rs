//! The secret that signs the portal's cookies, as it was last read from the store.

use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use super::Gateway;
use crate::{
    backoffice::{BackofficeError, CookieSecret},
    base::timestamp,
};

/// How long a secret is used before it is read again. Within this time a rotation takes effect at all gateways; and
/// requests of strangers seldom cause a read.
const MAX_AGE: Duration = Duration::from_secs(2);

#[derive(Default)]
pub(super) struct CachedSecret(Mutex<Option<(Instant, CookieSecret)>>);

impl CachedSecret {
    fn get(&self, now: Instant) -> Option<CookieSecret> {
        let cached = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (read_at, secret) = cached.as_ref()?;
        (now.duration_since(*read_at) < MAX_AGE).then(|| secret.clone())
    }

    fn set(&self, secret: Option<(Instant, CookieSecret)>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = secret;
    }
}

impl Gateway {
    /// The secret that signs cookies, at most a few seconds old.
    pub(crate) async fn cookie_secret(&self) -> Result<CookieSecret, BackofficeError> {
        let now = Instant::now();
        if let Some(secret) = self.portal.cookie_secret.get(now) {
            return Ok(secret);
        }
        let secret = self.backoffice.cookie_secret(timestamp::now()).await?;
        self.portal.cookie_secret.set(Some((now, secret.clone())));
        Ok(secret)
    }

    /// Replaces the secret. Every gateway uses the new one when it next reads it, this one mostly at once.
    pub(crate) async fn rotate_cookie_secret(&self, now: i64) -> Result<(), BackofficeError> {
        self.backoffice.rotate_cookie_secret(now).await?;
        self.portal.cookie_secret.set(None);
        Ok(())
    }
}
