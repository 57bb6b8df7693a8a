//! How often a password may be guessed.
//!
//! Failures are counted for an address *and* the network they come from, so that nobody can lock out
//! somebody else: the owner comes from another network, or with a browser that has signed in before, which is
//! counted by itself. A network as a whole has a limit too, and so have sign-ups from it and
//! letters to one mailbox.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use sha2::{Digest as _, Sha256};

/// How long an attempt counts.
const WINDOW: Duration = Duration::from_mins(15);
/// Attempts for one address from one network, or from one browser.
const PER_PERSON: usize = 8;
/// Attempts from one network, whoever they are for.
const PER_NETWORK: usize = 60;
/// Accounts made from one network.
const SIGN_UPS: usize = 20;
/// Letters to one address that anybody can ask for, whoever does.
const LETTERS: usize = 5;
/// How much is remembered; beyond it, the oldest is forgotten.
const MAX_REMEMBERED: usize = 100_000;

/// What is counted. Addresses are kept as digests: a list of who signs in is nobody's business.
type Counted = [u8; 32];

#[derive(Default)]
pub struct Throttle(Mutex<HashMap<Counted, Vec<Instant>>>);

/// Who tries.
pub struct Attempt {
    person: Counted,
    network: Counted,
}

impl Attempt {
    /// `device` is the number of a browser that this person has signed in with before.
    pub fn new(email: &str, peer: Option<IpAddr>, device: Option<&str>) -> Self {
        let network = network(peer);
        let email = email.to_lowercase();
        let person = match device {
            Some(device) => counted(&["device", device]),
            None => counted(&["person", &network, &email]),
        };
        let network = counted(&["network", &network]);
        Self { person, network }
    }
}

impl Throttle {
    /// Counts an attempt to sign in, or says after how many seconds the next one is allowed.
    ///
    /// It is counted before the password is looked at, so that a hundred at once are a hundred.
    pub fn attempt(&self, attempt: &Attempt) -> Result<(), u64> {
        self.count(&[(attempt.person, PER_PERSON), (attempt.network, PER_NETWORK)])
    }

    /// Whoever was right has not guessed.
    pub fn succeeded(&self, attempt: &Attempt) {
        let mut counts = self.counts();
        counts.remove(&attempt.person);
        if let Some(network) = counts.get_mut(&attempt.network) {
            network.pop();
        }
    }

    pub fn sign_up(&self, peer: Option<IpAddr>) -> Result<(), u64> {
        self.count(&[(counted(&["sign-up", &network(peer)]), SIGN_UPS)])
    }

    /// Counts a letter that anybody can ask for: like a sign-up for the network that asks, and for the
    /// mailbox, which is not to be flooded from many networks either.
    pub fn message(&self, email: &str, peer: Option<IpAddr>) -> Result<(), u64> {
        let mailbox = counted(&["letter", &email.trim().to_lowercase()]);
        let network = counted(&["sign-up", &network(peer)]);
        self.count(&[(network, SIGN_UPS), (mailbox, LETTERS)])
    }

    fn count(&self, limits: &[(Counted, usize)]) -> Result<(), u64> {
        let now = Instant::now();
        let mut counts = self.counts();
        for (counted, limit) in limits {
            let Some(times) = counts.get_mut(counted) else {
                continue;
            };
            times.retain(|time| now.duration_since(*time) < WINDOW);
            if times.len() >= *limit {
                let free = WINDOW.saturating_sub(now.duration_since(times[0]));
                return Err(free.as_secs() + 1);
            }
        }
        if counts.len() > MAX_REMEMBERED {
            let latest = |times: &Vec<Instant>| {
                times
                    .last()
                    .is_some_and(|time| now.duration_since(*time) < WINDOW / 2)
            };
            counts.retain(|_, times| latest(times));
        }
        for (counted, _) in limits {
            counts.entry(*counted).or_default().push(now);
        }
        Ok(())
    }

    fn counts(&self) -> MutexGuard<'_, HashMap<Counted, Vec<Instant>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An IPv6 customer has a whole network of addresses; an IPv4 address in IPv6's clothes is one.
fn network(peer: Option<IpAddr>) -> String {
    match peer.map(|peer| peer.to_canonical()) {
        None => "unknown".into(),
        Some(IpAddr::V4(address)) => address.to_string(),
        Some(IpAddr::V6(address)) => {
            let [a, b, c, d, ..] = address.segments();
            format!("{a:x}:{b:x}:{c:x}:{d:x}")
        }
    }
}

fn counted(parts: &[&str]) -> Counted {
    let mut digest = Sha256::new();
    for part in parts {
        digest.update(part.len().to_be_bytes());
        digest.update(part.as_bytes());
    }
    digest.finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: &str = "203.0.113.7";

    fn from(address: &str, email: &str) -> Attempt {
        Attempt::new(email, Some(address.parse().unwrap()), None)
    }

    #[test]
    fn guesses_from_one_network_lock_out_nobody_elsewhere() {
        let throttle = Throttle::default();
        for _ in 0..PER_PERSON {
            throttle.attempt(&from(HERE, "victim@example.com")).unwrap();
        }
        let refused = throttle
            .attempt(&from(HERE, "Victim@example.com"))
            .unwrap_err();
        assert!((1..=901).contains(&refused));
        throttle
            .attempt(&from("198.51.100.1", "victim@example.com"))
            .unwrap();
        throttle.attempt(&from(HERE, "other@example.com")).unwrap();
        let at_home = Attempt::new(
            "victim@example.com",
            Some(HERE.parse().unwrap()),
            Some("known"),
        );
        throttle.attempt(&at_home).unwrap();
    }

    #[test]
    fn a_network_as_a_whole_has_a_limit() {
        let throttle = Throttle::default();
        for one in 0..PER_NETWORK {
            throttle
                .attempt(&from(HERE, &format!("{one}@example.com")))
                .unwrap();
        }
        assert!(throttle.attempt(&from(HERE, "new@example.com")).is_err());
    }

    #[test]
    fn whoever_is_right_starts_anew() {
        let throttle = Throttle::default();
        for _ in 0..PER_NETWORK * 2 {
            let attempt = from(HERE, "me@example.com");
            throttle.attempt(&attempt).unwrap();
            throttle.succeeded(&attempt);
        }
    }

    #[test]
    fn a_mailbox_is_not_flooded_from_many_networks() {
        let throttle = Throttle::default();
        let ask = |network: usize, email: &str| {
            let peer = format!("203.0.113.{network}").parse().unwrap();
            throttle.message(email, Some(peer))
        };
        for network in 0..LETTERS {
            ask(network, "victim@example.com").unwrap();
        }
        assert!(ask(99, "Victim@example.com").is_err());
        for other in 0..SIGN_UPS {
            ask(99, &format!("{other}@example.com")).unwrap();
        }
        assert!(ask(99, "one-more@example.com").is_err());
    }

    #[test]
    fn an_address_is_the_same_in_both_forms_and_a_network_has_many() {
        let of = |text: &str| network(Some(text.parse().unwrap()));
        assert_eq!(of("::ffff:203.0.113.7"), of(HERE));
        assert_eq!(of("2001:db8:1:2::1"), of("2001:db8:1:2:ffff::9"));
        assert_ne!(of("2001:db8:1:2::1"), of("2001:db8:1:3::1"));
    }
}
