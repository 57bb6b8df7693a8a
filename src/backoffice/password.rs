//! Password hashing with Argon2id, which makes guessing slow. Concurrency is limited, so that hashing leaves processors
//! for calls.

use std::{num::NonZeroUsize, sync::Arc, thread::available_parallelism};

use argon2::{
    Algorithm, Argon2, Params, PasswordHash, PasswordHasher as _, PasswordVerifier as _, Version,
};
use tokio::{sync::Semaphore, task::spawn_blocking};

/// Memory of one hash in KiB: 19 MiB.
const MEMORY: u32 = 19 << 10;
const PASSES: u32 = 2;
const LANES: u32 = 1;

/// A hash that no password has, with the current parameters. Verified if there is no stored hash, so that the response
/// time does not reveal it.
const DUMMY_HASH: &str = "$argon2id$v=19$m=19456,t=2,p=1$AAAAAAAAAAAAAAAAAAAAAA\
                          $AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

pub struct Passwords {
    /// One permit per hash in progress.
    permits: Arc<Semaphore>,
}

#[derive(Debug, thiserror::Error)]
#[error("a password could not be hashed: {0}")]
pub struct PasswordError(String);

impl Default for Passwords {
    /// As many hashes at once as half of the processors, at least one and at most four.
    fn default() -> Self {
        let processors = available_parallelism().map_or(1, NonZeroUsize::get);
        Self::new((processors / 2).clamp(1, 4))
    }
}

impl Passwords {
    pub(crate) fn new(at_once: usize) -> Self {
        Self {
            permits: Arc::new(Semaphore::new(at_once)),
        }
    }

    /// Hashes a password with a new salt; returns a PHC string, which contains the parameters.
    pub async fn hash(&self, password: String) -> Result<String, PasswordError> {
        let hashed = self.work(move || hash(&password)).await;
        hashed.unwrap_or_else(|| Err(PasswordError("the hashing task panicked".into())))
    }

    /// Whether `given` is the password of the stored hash. Without a stored hash it is not, and the check takes as long.
    pub(crate) async fn verify(&self, given: String, stored: Option<String>) -> bool {
        let verified = self.work(move || matches(&given, stored.as_deref())).await;
        verified.unwrap_or(false)
    }

    /// Runs the work on a blocking thread. The permit is released when the work is done, not when the caller is dropped:
    /// otherwise clients that disconnect early could start any number of hashes at once.
    async fn work<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let permit = self.permits.clone().acquire_owned().await.ok()?;
        let working = spawn_blocking(move || {
            let _permit = permit;
            work()
        });
        working.await.ok()
    }
}

fn hash(password: &str) -> Result<String, PasswordError> {
    let params = Params::new(MEMORY, PASSES, LANES, None);
    let params = params.map_err(|error| PasswordError(error.to_string()))?;
    let hashed = Argon2::new(Algorithm::Argon2id, Version::V0x13, params)
        .hash_password(password.as_bytes())
        .map_err(|error| PasswordError(error.to_string()))?;
    Ok(hashed.to_string())
}

/// Whether `given` is the password of the stored hash; a hash that cannot be parsed matches no password.
fn matches(given: &str, stored: Option<&str>) -> bool {
    let stored = stored.and_then(|stored| PasswordHash::new(stored).ok());
    let is_stored = stored.is_some();
    let against = stored.or_else(|| PasswordHash::new(DUMMY_HASH).ok());
    // `verify_password` uses the parameters in the hash, which may differ from the current ones.
    let verify = |hash: &PasswordHash| Argon2::default().verify_password(given.as_bytes(), hash);
    against.is_some_and(|hash| verify(&hash).is_ok()) && is_stored
}

#[cfg(test)]
mod tests {
    use std::{
        sync::mpsc,
        time::{Duration, Instant},
    };

    use tokio::time::{sleep, timeout};

    use super::*;

    const PARAMETERS: &str = "$argon2id$v=19$m=19456,t=2,p=1$";

    #[tokio::test]
    async fn a_password_is_verified_by_its_hash() {
        let passwords = Passwords::new(2);
        let stored = passwords.hash("correct horse".into()).await.unwrap();
        assert!(stored.starts_with(PARAMETERS), "{stored}");
        for (given, is_right) in [
            ("correct horse", true),
            ("Correct horse", false),
            ("correct horse ", false),
            ("correct horse\0", false),
            ("", false),
        ] {
            let verified = passwords.verify(given.into(), Some(stored.clone())).await;
            assert_eq!(verified, is_right, "{given:?}");
        }
        let again = passwords.hash("correct horse".into()).await.unwrap();
        assert_ne!(stored, again, "each has its own salt");
    }

    #[tokio::test]
    async fn a_hash_with_other_parameters_is_verified() {
        let params = Params::new(64, 1, 1, None).unwrap();
        let older = Argon2::new(Algorithm::Argon2id, Version::V0x13, params);
        let older = older.hash_password(b"secret").unwrap().to_string();
        let passwords = Passwords::new(1);
        assert!(passwords.verify("secret".into(), Some(older.clone())).await);
        assert!(!passwords.verify("other".into(), Some(older)).await);
    }

    #[tokio::test]
    async fn without_a_valid_hash_no_password_matches() {
        let passwords = Passwords::new(2);
        for stored in [None, Some(""), Some("secret"), Some(&PARAMETERS[..20])] {
            for given in ["", "secret"] {
                let verified = passwords
                    .verify(given.into(), stored.map(str::to_owned))
                    .await;
                assert!(!verified, "{given:?} {stored:?}");
            }
        }
    }

    /// Compares the quickest of several runs, because other processes disturb single ones.
    #[tokio::test]
    async fn a_missing_hash_takes_as_long_as_a_stored_one() {
        let passwords = Passwords::new(1);
        let stored = passwords.hash("secret".into()).await.unwrap();
        let mut quickest = [Duration::MAX; 2];
        for _ in 0..5 {
            for (quickest, hash) in quickest.iter_mut().zip([Some(stored.clone()), None]) {
                let started = Instant::now();
                passwords.verify("other".into(), hash).await;
                *quickest = started.elapsed().min(*quickest);
            }
        }
        let [with_hash, without] = quickest;
        // A rough check that work is done at all; the equal parameters below show that it is the same work.
        assert!(without * 10 > with_hash, "{without:?} {with_hash:?}");
        let verified = Argon2::default().verify_password(b"secret", DUMMY_HASH);
        assert_eq!(verified, Err(argon2::password_hash::Error::PasswordInvalid));
        assert_eq!(DUMMY_HASH.len(), stored.len());
        assert!(DUMMY_HASH.starts_with(PARAMETERS));
    }

    #[tokio::test]
    async fn a_permit_is_held_until_the_work_is_done_after_the_caller_left() {
        let passwords = Arc::new(Passwords::new(1));
        let (release, released) = mpsc::channel::<()>();
        let (begin, has_begun) = tokio::sync::oneshot::channel();
        let leaving = tokio::spawn({
            let passwords = passwords.clone();
            async move {
                let work = move || {
                    let _ = begin.send(());
                    let _ = released.recv();
                };
                passwords.work(work).await
            }
        });
        has_begun.await.unwrap();
        leaving.abort();
        assert!(leaving.await.unwrap_err().is_cancelled());
        let mut next = tokio::spawn(async move { passwords.work(|| "done").await });
        let waited = timeout(Duration::from_millis(300), &mut next).await;
        assert!(waited.is_err(), "the permit was released early");
        drop(release);
        assert_eq!(next.await.unwrap(), Some("done"));
    }

    #[tokio::test]
    async fn concurrency_is_limited_by_the_permits() {
        use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
        let passwords = Arc::new(Passwords::new(3));
        let (now, most) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
        let tasks = (0..20).map(|_| {
            let (passwords, now, most) = (passwords.clone(), now.clone(), most.clone());
            tokio::spawn(async move {
                let work = move || {
                    most.fetch_max(now.fetch_add(1, SeqCst) + 1, SeqCst);
                    std::thread::sleep(Duration::from_millis(10));
                    now.fetch_sub(1, SeqCst);
                };
                passwords.work(work).await
            })
        });
        for one in tasks.collect::<Vec<_>>() {
            assert_eq!(one.await.unwrap(), Some(()));
        }
        assert_eq!(most.load(SeqCst), 3);
    }

    #[tokio::test]
    async fn a_panic_releases_its_permit() {
        let passwords = Passwords::new(1);
        let panicked: Option<()> = passwords.work(|| panic!("on purpose")).await;
        assert_eq!(panicked, None);
        sleep(Duration::from_millis(1)).await;
        assert_eq!(passwords.work(|| 1).await, Some(1));
    }
}
