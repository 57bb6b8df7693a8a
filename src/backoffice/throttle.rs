//! Limits on password guessing, sign-ups and e-mails that visitors can request. In memory of one gateway only.
//!
//! Sign-in attempts are counted per pair of e-mail address and network, so that an attacker cannot lock out the owner of
//! an address: the owner comes from another network, or with a browser that has signed in before, which is counted
//! separately. There are also limits on all attempts from one network, on sign-ups from it, and on e-mails to one
//! mailbox.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use sha2::{Digest as _, Sha256};

/// How long an attempt is counted.
const WINDOW: Duration = Duration::from_mins(15);
/// Maximum of attempts for one address from one network, or from one known browser.
const PER_PERSON: usize = 8;
/// Maximum of attempts from one network, for any address.
const PER_NETWORK: usize = 60;
/// Maximum of sign-ups from one network.
const SIGN_UPS: usize = 20;
/// Maximum of e-mails to one address that visitors from any network can request.
const EMAILS: usize = 5;
/// Number of counters above which those without a recent attempt are dropped.
const MAX_COUNTERS: usize = 100_000;

/// The key of a counter: a digest, so that memory holds no list of e-mail addresses.
type CounterKey = [u8; 32];

#[derive(Default)]
pub struct Throttle(Mutex<HashMap<CounterKey, Vec<Instant>>>);

/// The counters that an attempt to sign in is counted by.
pub(crate) struct Attempt {
    person: CounterKey,
    network: CounterKey,
}

impl Attempt {
    /// `device` is the ID of a browser with which this person has signed in before.
    pub(crate) fn new(email: &str, peer: Option<IpAddr>, device: Option<&str>) -> Self {
        let network = network(peer);
        let email = email.to_lowercase();
        let person = match device {
            Some(device) => counter_key(&["device", device]),
            None => counter_key(&["person", &network, &email]),
        };
        let network = counter_key(&["network", &network]);
        Self { person, network }
    }
}

impl Throttle {
    /// Counts an attempt to sign in; the error is the number of seconds until the next one is allowed.
    ///
    /// Call it before the password is verified, so that concurrent attempts are all counted.
    pub(crate) fn attempt(&self, attempt: &Attempt) -> Result<(), u64> {
        self.count(&[(attempt.person, PER_PERSON), (attempt.network, PER_NETWORK)])
    }

    /// Undoes the count of an attempt with the right password, and resets the person's counter.
    pub(crate) fn succeeded(&self, attempt: &Attempt) {
        let mut counts = self.counts();
        counts.remove(&attempt.person);
        if let Some(network) = counts.get_mut(&attempt.network) {
            network.pop();
        }
    }

    /// Counts a sign-up; the error is the number of seconds until the next one is allowed.
    pub(crate) fn sign_up(&self, peer: Option<IpAddr>) -> Result<(), u64> {
        self.count(&[(counter_key(&["sign-up", &network(peer)]), SIGN_UPS)])
    }

    /// Counts an e-mail that any visitor can request: as a sign-up from the visitor's network, and for the mailbox, which
    /// must not be flooded from many networks. The error is the number of seconds until the next one is allowed.
    pub(crate) fn message(&self, email: &str, peer: Option<IpAddr>) -> Result<(), u64> {
        let mailbox = counter_key(&["email", &email.trim().to_lowercase()]);
        let network = counter_key(&["sign-up", &network(peer)]);
        self.count(&[(network, SIGN_UPS), (mailbox, EMAILS)])
    }

    fn count(&self, limits: &[(CounterKey, usize)]) -> Result<(), u64> {
        let now = Instant::now();
        let mut counts = self.counts();
        for (key, limit) in limits {
            let Some(times) = counts.get_mut(key) else {
                continue;
            };
            times.retain(|time| now.duration_since(*time) < WINDOW);
            if times.len() >= *limit {
                let free = WINDOW.saturating_sub(now.duration_since(times[0]));
                return Err(free.as_secs() + 1);
            }
        }
        if counts.len() > MAX_COUNTERS {
            let is_recent = |times: &Vec<Instant>| {
                times
                    .last()
                    .is_some_and(|time| now.duration_since(*time) < WINDOW / 2)
            };
            counts.retain(|_, times| is_recent(times));
        }
        for (key, _) in limits {
            counts.entry(*key).or_default().push(now);
        }
        Ok(())
    }

    fn counts(&self) -> MutexGuard<'_, HashMap<CounterKey, Vec<Instant>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The network of a peer: the /64 of an IPv6 address, because one customer has all of it, or the whole IPv4 address,
/// also if it is mapped to IPv6.
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

/// The key of a counter, from parts whose lengths are hashed too, so that different parts never give one key.
fn counter_key(parts: &[&str]) -> CounterKey {
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
    fn guesses_from_one_network_do_not_lock_out_other_networks() {
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
    fn a_successful_sign_in_resets_the_counters() {
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
        let request = |network: usize, email: &str| {
            let peer = format!("203.0.113.{network}").parse().unwrap();
            throttle.message(email, Some(peer))
        };
        for network in 0..EMAILS {
            request(network, "victim@example.com").unwrap();
        }
        assert!(request(99, "Victim@example.com").is_err());
        for other in 0..SIGN_UPS {
            request(99, &format!("{other}@example.com")).unwrap();
        }
        assert!(request(99, "one-more@example.com").is_err());
    }

    #[test]
    fn mapped_ipv4_addresses_and_ipv6_networks_are_normalised() {
        let of = |text: &str| network(Some(text.parse().unwrap()));
        assert_eq!(of("::ffff:203.0.113.7"), of(HERE));
        assert_eq!(of("2001:db8:1:2::1"), of("2001:db8:1:2:ffff::9"));
        assert_ne!(of("2001:db8:1:2::1"), of("2001:db8:1:3::1"));
    }
}
