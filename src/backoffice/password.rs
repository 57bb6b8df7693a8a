//! Passwords: hashed so that guessing them is slow, and few at once, so that calls keep their
//! processors.

use std::{num::NonZeroUsize, sync::Arc, thread::available_parallelism};

use argon2::{
    Algorithm, Argon2, Params, PasswordHash, PasswordHasher as _, PasswordVerifier as _, Version,
};
use tokio::{sync::Semaphore, task::spawn_blocking};

/// In KiB: 19 MiB.
const MEMORY: u32 = 19 << 10;
const PASSES: u32 = 2;
const LANES: u32 = 1;

/// A hash that no password has, with the parameters of today.
const NOBODYS: &str = "$argon2id$v=19$m=19456,t=2,p=1$AAAAAAAAAAAAAAAAAAAAAA\
                       $AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

pub struct Passwords {
    /// A place for each that is worked on.
    places: Arc<Semaphore>,
}

#[derive(Debug, thiserror::Error)]
#[error("a password could not be hashed: {0}")]
pub struct PasswordError(String);

impl Default for Passwords {
    /// Half of the processors, at most four.
    fn default() -> Self {
        let processors = available_parallelism().map_or(1, NonZeroUsize::get);
        Self::new((processors / 2).clamp(1, 4))
    }
}

impl Passwords {
    pub fn new(at_once: usize) -> Self {
        Self {
            places: Arc::new(Semaphore::new(at_once)),
        }
    }

    /// A hash with its parameters and a salt of its own, as a PHC string.
    pub async fn hash(&self, password: String) -> Result<String, PasswordError> {
        let hashed = self.work(move || hash(&password)).await;
        hashed.unwrap_or_else(|| Err(PasswordError("the work was cut short".into())))
    }

    /// Whether `given` is the password that was kept; where none was, it takes as long to say no.
    pub async fn verify(&self, given: String, kept: Option<String>) -> bool {
        let verified = self.work(move || matches(&given, kept.as_deref())).await;
        verified.unwrap_or(false)
    }

    /// The place is free when the work is done, not when whoever waited for it leaves: else many who
    /// leave at once would have as many at work as they like.
    async fn work<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let place = self.places.clone().acquire_owned().await.ok()?;
        let working = spawn_blocking(move || {
            let _place = place;
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

/// A hash that cannot be read is nobody's.
fn matches(given: &str, kept: Option<&str>) -> bool {
    let kept = kept.and_then(|kept| PasswordHash::new(kept).ok());
    let is_kept = kept.is_some();
    let against = kept.or_else(|| PasswordHash::new(NOBODYS).ok());
    // By the parameters that the hash was made with, not by those of today.
    let verify = |hash: &PasswordHash| Argon2::default().verify_password(given.as_bytes(), hash);
    against.is_some_and(|hash| verify(&hash).is_ok()) && is_kept
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
        let kept = passwords.hash("correct horse".into()).await.unwrap();
        assert!(kept.starts_with(PARAMETERS), "{kept}");
        for (given, is_right) in [
            ("correct horse", true),
            ("Correct horse", false),
            ("correct horse ", false),
            ("correct horse\0", false),
            ("", false),
        ] {
            let verified = passwords.verify(given.into(), Some(kept.clone())).await;
            assert_eq!(verified, is_right, "{given:?}");
        }
        let again = passwords.hash("correct horse".into()).await.unwrap();
        assert_ne!(kept, again, "each has a salt of its own");
    }

    #[tokio::test]
    async fn a_hash_of_other_parameters_still_counts() {
        let params = Params::new(64, 1, 1, None).unwrap();
        let older = Argon2::new(Algorithm::Argon2id, Version::V0x13, params);
        let older = older.hash_password(b"secret").unwrap().to_string();
        let passwords = Passwords::new(1);
        assert!(passwords.verify("secret".into(), Some(older.clone())).await);
        assert!(!passwords.verify("other".into(), Some(older)).await);
    }

    #[tokio::test]
    async fn without_a_hash_that_can_be_read_nothing_is_right() {
        let passwords = Passwords::new(2);
        for kept in [None, Some(""), Some("secret"), Some(&PARAMETERS[..20])] {
            for given in ["", "secret"] {
                let verified = passwords
                    .verify(given.into(), kept.map(str::to_owned))
                    .await;
                assert!(!verified, "{given:?} {kept:?}");
            }
        }
    }

    /// The quickest of a few, because the machine does other things too.
    #[tokio::test]
    async fn nobody_takes_as_long_as_somebody() {
        let passwords = Passwords::new(1);
        let kept = passwords.hash("secret".into()).await.unwrap();
        let mut quickest = [Duration::MAX; 2];
        for _ in 0..5 {
            for (quickest, kept) in quickest.iter_mut().zip([Some(kept.clone()), None]) {
                let started = Instant::now();
                passwords.verify("other".into(), kept).await;
                *quickest = started.elapsed().min(*quickest);
            }
        }
        let [somebody, nobody] = quickest;
        // Not at once, then; that it is the same work is told by the parameters.
        assert!(nobody * 10 > somebody, "{nobody:?} {somebody:?}");
        let verified = Argon2::default().verify_password(b"secret", NOBODYS);
        assert_eq!(verified, Err(argon2::password_hash::Error::PasswordInvalid));
        assert_eq!(NOBODYS.len(), kept.len());
        assert!(NOBODYS.starts_with(PARAMETERS));
    }

    #[tokio::test]
    async fn a_place_is_taken_until_the_work_is_done_though_nobody_waits_for_it() {
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
        assert!(waited.is_err(), "the place was given away");
        drop(release);
        assert_eq!(next.await.unwrap(), Some("done"));
    }

    #[tokio::test]
    async fn no_more_are_worked_on_than_there_are_places() {
        use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
        let passwords = Arc::new(Passwords::new(3));
        let (now, most) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
        let crowd = (0..20).map(|_| {
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
        for one in crowd.collect::<Vec<_>>() {
            assert_eq!(one.await.unwrap(), Some(()));
        }
        assert_eq!(most.load(SeqCst), 3);
    }

    /// Whatever goes wrong in one, its place is free for the next.
    #[tokio::test]
    async fn a_panic_gives_its_place_back() {
        let passwords = Passwords::new(1);
        let panicked: Option<()> = passwords.work(|| panic!("on purpose")).await;
        assert_eq!(panicked, None);
        sleep(Duration::from_millis(1)).await;
        assert_eq!(passwords.work(|| 1).await, Some(1));
    }
}
